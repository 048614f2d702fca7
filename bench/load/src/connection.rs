//! One HTTP/1.1 connection to the server, kept alive.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn open(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error is also the error of the request that waits.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(Self(sender))
    }

    /// Sends a request and reads all of the answer.
    pub(crate) async fn call(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let (head, body) = self.start(request).await?.into_parts();
        Ok(Answer { status: head.status, body: body.collect().await?.to_bytes() })
    }

    /// Sends a request and leaves the answer's body to be read.
    pub(crate) async fn start(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.0.ready().await?;
        Ok(self.0.send_request(request).await?)
    }
}
