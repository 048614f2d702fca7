//! One connection to the server, kept alive: HTTP/1.1, or HTTP/2 for gRPC; plain or over TLS.

use std::net::{IpAddr, Ipv4Addr};

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
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{endpoint::Endpoint, mcp};

/// In the trailers of an answer, or in its head.
const GRPC_STATUS: &str = "grpc-status";

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Connection {
    endpoint: Endpoint,
    sender: Sender,
    /// The MCP session that its requests belong to.
    pub(crate) session: Option<HeaderValue>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let sender = Sender::connect(endpoint).await?;
        Ok(Self { endpoint: endpoint.clone(), sender, session: None })
    }

    /// Another connection in the place of one that broke, in the same session.
    pub(crate) async fn reopen(&mut self) -> anyhow::Result<()> {
        self.sender = Sender::connect(&self.endpoint).await?;
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

impl Sender {
    async fn connect(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let address = Ipv4Addr::LOCALHOST;
        let stream = TcpStream::connect((address, endpoint.port)).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        let is_http2 = endpoint.dialect.is_http2();
        match &endpoint.tls {
            Some(tls) => {
                let server = ServerName::from(IpAddr::from(address));
                let stream = tls.connect(server, stream).await.context("no TLS handshake")?;
                Self::handshake(is_http2, stream).await
            }
            None => Self::handshake(is_http2, stream).await,
        }
    }

    async fn handshake<S>(is_http2: bool, stream: S) -> anyhow::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        // A connection's error is also the error of the request that waits.
        Ok(if is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::task::spawn_local(async move { drop(connection.await) });
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::task::spawn_local(async move { drop(connection.await) });
            Self::Http1(sender)
        })
    }
}
