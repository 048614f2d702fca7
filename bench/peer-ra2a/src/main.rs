//! The bench agent on ra2a 0.10.1, the fastest of the in-memory SDKs at answering messages.
//!
//! It routes the method names of A2A 0.3, streams at `/stream`, and never closes the stream of a task that
//! has ended, so the `stream` workload cannot run against it. It also leaves artifact updates out of the task
//! that it stores; for its answers to be the same as those of the others, an echo ends with the whole task.

use std::{future::Future, pin::Pin, time::Duration};

use anyhow::Context;
use axum::serve::ListenerExt;
use ra2a::{
    error::Result,
    server::{AgentExecutor, Event, EventQueue, RequestContext, ServerState, a2a_router},
    types::{
        AgentCard, AgentInterface, Artifact, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
        TaskStatusUpdateEvent, TransportProtocol,
    },
};
use tokio::net::TcpListener;

const CHUNKS: usize = 100;
const CHUNK_BYTES: usize = 200;
const WAIT: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port: u16 = std::env::args().nth(1).context("usage: peer-ra2a PORT")?.parse()?;
    let interface = AgentInterface::new(
        format!("http://127.0.0.1:{port}"),
        TransportProtocol::new(TransportProtocol::JSONRPC),
    );
    let mut card = AgentCard::new("bench", "For measurements.", vec![interface]);
    card.capabilities.streaming = Some(true);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, a2a_router(ServerState::from_executor(Bench, card))).await?;
    Ok(())
}

struct Bench;

type Done<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl AgentExecutor for Bench {
    fn execute<'a>(&'a self, cx: &'a RequestContext, events: &'a EventQueue) -> Done<'a> {
        Box::pin(async move {
            let text = cx.message.as_ref().and_then(Message::text_content).unwrap_or_default();
            let mut task = Task::new(&cx.task_id, &cx.context_id);
            task.status = TaskStatus::working();
            task.history = cx.message.clone().into_iter().collect();
            events.send(Event::Task(task.clone()))?;
            if text.starts_with("stream") {
                let content = "x".repeat(CHUNK_BYTES);
                for n in 1..=CHUNKS {
                    events.send(chunk(cx, &content, n > 1, n == CHUNKS))?;
                    // Without it the queue drops what its reader has not taken yet.
                    tokio::task::yield_now().await;
                }
            } else if text.starts_with("wait") {
                tokio::time::sleep(WAIT).await;
            } else {
                task.status = TaskStatus::completed();
                task.artifacts.push(Artifact::text("out", text).with_name("echo"));
                events.send(Event::Task(task))?;
                return Ok(());
            }
            events.send(status(cx, TaskStatus::completed()))?;
            Ok(())
        })
    }

    fn cancel<'a>(&'a self, cx: &'a RequestContext, events: &'a EventQueue) -> Done<'a> {
        Box::pin(async move {
            events.send(status(cx, TaskStatus::new(TaskState::Canceled)))?;
            Ok(())
        })
    }
}

fn chunk(cx: &RequestContext, text: &str, append: bool, last: bool) -> Event {
    let artifact = Artifact::text("out", text.to_owned());
    let mut update = TaskArtifactUpdateEvent::new(&cx.task_id, &cx.context_id, artifact);
    update.append = append;
    update.last_chunk = last;
    Event::ArtifactUpdate(update)
}

fn status(cx: &RequestContext, status: TaskStatus) -> Event {
    Event::StatusUpdate(TaskStatusUpdateEvent::new(&cx.task_id, &cx.context_id, status))
}
