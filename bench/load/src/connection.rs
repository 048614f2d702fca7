//! One connection to the server, kept alive: HTTP/1.1, or HTTP/2 for gRPC.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::{http1, http2},
    header::{HeaderMap, HeaderValue},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::{mcp, request::Dialect};

/// In the trailers of an answer, or in its head.
const GRPC_STATUS: &str = "grpc-status";

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Connection {
    sender: Sender,
    /// The MCP session that its requests belong to.
    pub(crate) session: Option<HeaderValue>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(dialect: Dialect, port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        // A connection's error is also the error of the request that waits.
        let sender = if dialect == Dialect::A2aGrpc {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::task::spawn_local(async move { drop(connection.await) });
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::task::spawn_local(async move { drop(connection.await) });
            Sender::Http1(sender)
        };
        Ok(Self { sender, session: None })
    }

    /// Another connection in the place of one that broke, in the same session.
    pub(crate) async fn reopen(&mut self, dialect: Dialect, port: u16) -> anyhow::Result<()> {
        self.sender = Self::open(dialect, port).await?.sender;
        Ok(())
    }

    /// Sends a request and reads all of the answer.
    pub(crate) async fn call(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let (head, body) = self.start(request).await?.into_parts();
        let body = body.collect().await?;
        let status =
            body.trailers().and_then(|trailers| trailers.get(GRPC_STATUS)).or(head.headers.get(GRPC_STATUS));
        ensure!(status.is_none_or(|status| status == "0"), "grpc-status {status:?}");
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Sends a request and leaves the answer's body to be read.
    pub(crate) async fn start(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        if let Some(session) = &self.session {
            request.headers_mut().insert(mcp::SESSION, session.clone());
        }
        Ok(match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        })
    }
}
