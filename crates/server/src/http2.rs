//! Connections of HTTP/2: many requests at once on one connection, so the limits that HTTP/1 has per connection are
//! set per request here, and the protocol's own ways to make work for nothing are bounded.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Request, Response, StatusCode, header},
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{
    app::Site, auth::ConnectionPeer, open_streams::CONNECTION, options::HttpLimits,
    request_checks::HttpRefusal, responses,
};

/// Streams that a client opened and reset before they were accepted; with more the connection is closed.
const MAX_PENDING_RESETS: usize = 20;
/// Streams that were reset because the client broke the protocol; with more the connection is closed.
const MAX_ERROR_RESETS: usize = 1024;
/// Unread bytes of one request's body, and of all requests of a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of one response that wait for the client to read.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// How long a client may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a request's future in a task of its own, as part of its connection.
#[derive(Clone)]
struct RequestExecutor {
    connection: u64,
}

impl<F> Executor<F> for RequestExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, request: F) {
        tokio::spawn(CONNECTION.scope(self.connection, request));
    }
}

/// Counts the requests under way on a connection.
#[derive(Clone)]
struct ActiveRequests(Arc<watch::Sender<usize>>);

/// One request under way, until its response has been sent.
struct ActiveRequest(ActiveRequests);

impl ActiveRequests {
    fn begin(&self) -> ActiveRequest {
        self.0.send_modify(|count| *count += 1);
        ActiveRequest(self.clone())
    }

    /// Waits until no request was under way for that long.
    async fn idle_for(&self, limit: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // The sender lives as long as this future.
            let _ = count.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(limit, count.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// A response's body, during which its request counts as under way.
struct ActiveBody {
    inner: Body,
    _active: ActiveRequest,
}

impl HttpBody for ActiveBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Serves a connection until it ends, or until `stop`; a connection without a request for `header_timeout` is
/// closed as one of HTTP/1 is. After either, open requests have `drain` to finish.
pub(crate) async fn serve<S>(
    stream: S,
    number: u64,
    site: Arc<Site>,
    peer: ConnectionPeer,
    limits: &HttpLimits,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let active = ActiveRequests(Arc::new(watch::Sender::new(0)));
    let (requests, max_headers) = (active.clone(), limits.max_headers);
    let service = service_fn(move |request: Request<Incoming>| {
        let (site, peer, active) = (Arc::clone(&site), peer.clone(), requests.begin());
        async move {
            let response = match with_host(request, max_headers) {
                Ok(request) => site.answer(request, &peer).await,
                Err(refused) => *refused,
            };
            let response = response.map(|inner| Body::new(ActiveBody { inner, _active: active }));
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http2::Builder::new(RequestExecutor { connection: number });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_requests_per_connection)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stop => {}
        () = active.idle_for(limits.header_timeout) => {}
    }
    connection.as_mut().graceful_shutdown();
    match tokio::time::timeout(drain, connection).await {
        Ok(ended) => ended,
        Err(_) => {
            tracing::debug!("a connection of HTTP/2 did not close in time and was aborted");
            Ok(())
        }
    }
}

/// The request as the checks expect it: HTTP/2 names the host in its target instead of the header `Host`.
fn with_host(
    mut request: Request<Incoming>,
    max_headers: usize,
) -> Result<Request<Incoming>, Box<Response<Body>>> {
    let refuse = |status, message: String| Box::new(responses::refuse(&HttpRefusal { status, message }));
    if request.headers().len() > max_headers {
        let message = format!("the request has more than {max_headers} header fields (max_headers)");
        return Err(refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    if let Some(authority) = request.uri().authority() {
        match HeaderValue::from_str(authority.as_str()) {
            Ok(host) => request.headers_mut().insert(header::HOST, host),
            Err(_) => {
                return Err(refuse(
                    StatusCode::BAD_REQUEST,
                    "the :authority of the request is no host".into(),
                ));
            }
        };
    }
    Ok(request)
}
