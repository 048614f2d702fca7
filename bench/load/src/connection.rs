//! One HTTP/1.1 connection to the server, kept alive.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::mcp;

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The MCP session that its requests belong to.
    pub(crate) session: Option<HeaderValue>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error is also the error of the request that waits.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(Self { sender, session: None })
    }

    /// Another connection in the place of one that broke, in the same session.
    pub(crate) async fn reopen(&mut self, port: u16) -> anyhow::Result<()> {
        self.sender = Self::open(port).await?.sender;
        Ok(())
    }

    /// Sends a request and reads all of the answer.
    pub(crate) async fn call(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let (head, body) = self.start(request).await?.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }

    /// Sends a request and leaves the answer's body to be read.
    pub(crate) async fn start(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        if let Some(session) = &self.session {
            request.headers_mut().insert(mcp::SESSION, session.clone());
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }
}
