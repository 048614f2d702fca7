//! Connections of HTTP/2: many requests at once on one connection, so the limits that HTTP/1 has per connection are
//! set per request here, and the protocol's own ways to make work for nothing are bounded.

mod connection_task;
mod few_writes;

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
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use self::{
    connection_task::{ConnectionTask, RequestExecutor},
    few_writes::FewWrites,
};
use crate::{app::Site, auth::ConnectionPeer, options::HttpLimits, request_checks::HttpRefusal, responses};

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

/// The requests under way on a connection, and since when there are none.
#[derive(Clone)]
struct ActiveRequests(Arc<Mutex<RequestCount>>);

struct RequestCount {
    active: usize,
    idle_since: Instant,
}

/// One request under way, until its response has been sent.
struct ActiveRequest(ActiveRequests);

impl ActiveRequests {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(RequestCount { active: 0, idle_since: Instant::now() })))
    }

    fn begin(&self) -> ActiveRequest {
        self.0.lock().active += 1;
        ActiveRequest(self.clone())
    }

    /// Waits until no request was under way for that long. Looks from time to time: to be told of every request would
    /// cost each of them two wakes.
    async fn idle_for(&self, limit: Duration) {
        let mut look_at = Instant::now() + limit;
        loop {
            tokio::time::sleep_until(look_at).await;
            let now = Instant::now();
            let idle_until = {
                let count = self.0.lock();
                if count.active > 0 { now + limit } else { count.idle_since + limit }
            };
            if idle_until <= now {
                return;
            }
            look_at = idle_until;
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut count = self.0.0.lock();
        count.active -= 1;
        count.idle_since = Instant::now();
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
    let active = ActiveRequests::new();
    let (requests, max_headers) = (active.clone(), limits.max_headers);
    let service = service_fn(move |request: Request<Incoming>| {
        let (site, peer, active) = (Arc::clone(&site), peer.clone(), requests.begin());
        // Boxed: it is large, and hyper moves it several times before it is polled.
        Box::pin(async move {
            let response = match with_host(request, max_headers) {
                Ok(request) => site.answer(request, &peer).await,
                Err(refused) => *refused,
            };
            Ok::<_, Infallible>(response.map(|inner| ActiveBody { inner, _active: active }))
        })
    });
    let executor = RequestExecutor::new(number);
    let mut builder = http2::Builder::new(executor.clone());
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
    let connection = std::pin::pin!(builder.serve_connection(TokioIo::new(FewWrites::new(stream)), service));
    let mut task = ConnectionTask::new(connection, &executor);
    tokio::select! {
        ended = &mut task => return ended,
        () = stop => {}
        () = active.idle_for(limits.header_timeout) => {}
    }
    task.connection().as_mut().graceful_shutdown();
    match tokio::time::timeout(drain, task).await {
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
