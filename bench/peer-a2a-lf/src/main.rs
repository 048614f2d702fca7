//! The bench agent on a2a-server-lf 0.5.3, the Linux Foundation's SDK: JSON-RPC and REST on one port, or with
//! `--grpc` a2a-grpc 0.3.11 on it instead.
//!
//! It stores every artifact update in the task and copies the whole task for each, so its streams cost more the
//! longer they are.

use std::{sync::Arc, time::Duration};

use a2a::{
    A2AError, Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, jsonrpc::jsonrpc_router,
    rest::rest_router,
};
use anyhow::Context;
use axum::serve::ListenerExt;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::net::TcpListener;

const CHUNKS: usize = 100;
const CHUNK_BYTES: usize = 200;
const WAIT: Duration = Duration::from_secs(600);
/// A stream whose reader is 32 events behind ends with an error, and the agent cannot tell how far it is. So there is a
/// pause after so many chunks. With 32 streams there is always another one to work for meanwhile.
const BURST: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().context("usage: peer-a2a-lf PORT [--grpc]")?.parse()?;
    let handler = Arc::new(DefaultRequestHandler::new(Bench, InMemoryTaskStore::new()));
    if arguments.next().is_some_and(|flag| flag == "--grpc") {
        let service = A2aServiceServer::new(GrpcHandler::new(handler));
        let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(service);
        server.serve(([127, 0, 0, 1], port).into()).await?;
    } else {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, jsonrpc_router(Arc::clone(&handler)).merge(rest_router(handler))).await?;
    }
    Ok(())
}

struct Bench;

type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

impl AgentExecutor for Bench {
    fn execute(&self, cx: ExecutorContext) -> Events {
        let parts = cx.message.as_ref().map(|message| message.parts.clone()).unwrap_or_default();
        let text = parts.first().and_then(Part::as_text).unwrap_or_default();
        let work: Events = if text.starts_with("stream") {
            let content = "x".repeat(CHUNK_BYTES);
            let of = cx.task_info();
            stream::iter(1..=CHUNKS)
                .then(move |n| {
                    let parts = vec![Part::text(content.clone())];
                    let chunk = artifact(&of, parts, n > 1, n == CHUNKS);
                    async move {
                        if n % BURST == 0 {
                            tokio::time::sleep(PAUSE).await;
                        }
                        Ok(chunk)
                    }
                })
                .boxed()
        } else if text.starts_with("wait") {
            stream::once(tokio::time::sleep(WAIT)).filter_map(|()| async { None }).boxed()
        } else {
            once(artifact(&cx.task_info(), parts, false, true))
        };
        let (working, completed) = (status(&cx, TaskState::Working), status(&cx, TaskState::Completed));
        once(working).chain(work).chain(once(completed)).boxed()
    }

    fn cancel(&self, cx: ExecutorContext) -> Events {
        once(status(&cx, TaskState::Canceled))
    }
}

fn once(event: StreamResponse) -> Events {
    stream::iter([Ok(event)]).boxed()
}

fn artifact(
    (task, context): &(String, String),
    parts: Vec<Part>,
    append: bool,
    last: bool,
) -> StreamResponse {
    let artifact = Artifact {
        artifact_id: "out".into(),
        name: None,
        description: None,
        parts,
        metadata: None,
        extensions: None,
    };
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: task.clone(),
        context_id: context.clone(),
        artifact,
        append: Some(append),
        last_chunk: Some(last),
        metadata: None,
    })
}

fn status(cx: &ExecutorContext, state: TaskState) -> StreamResponse {
    let (task_id, context_id) = cx.task_info();
    let status = TaskStatus { state, message: None, timestamp: None };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, metadata: None })
}
