//! Calls of gRPC, counted by method and status when they have ended. The status of a call is in the head of its response or
//! in the trailers after its last message.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    Error,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, Response},
};
use http_body::{Frame, SizeHint};
use nuncio_engine::metric::{self, OTHER};
use nuncio_wire::{
    a2a::GrpcMethod,
    grpc::{GrpcCode, code_name},
};

use super::{body::STATUS, health::HealthMethod, reflection::Reflection};

/// The label of a path's method: the path of one that is here, without its slash.
pub(crate) fn method_label(path: &str) -> String {
    let is_known = GrpcMethod::find(path).is_some()
        || HealthMethod::find(path).is_some()
        || Reflection::find(path).is_some();
    match path.strip_prefix('/').filter(|_| is_known) {
        Some(method) => method.to_owned(),
        None => OTHER.to_owned(),
    }
}

/// Counts the call of a response: now, if its status is in its head, else when its body has ended. A response without any
/// status is not one of gRPC: the client sees the status of HTTP, and that is what is counted.
pub(crate) fn count(response: Response<Body>, method: String) -> Response<Body> {
    if response.headers().contains_key(STATUS) {
        count_end(&method, status_of(response.headers()));
        return response;
    }
    let is_grpc = super::is_grpc(response.headers());
    match is_grpc {
        true => response.map(|inner| Body::new(CountedBody { inner, method: Some(method) })),
        false => response,
    }
}

fn status_of(headers: &HeaderMap) -> &'static str {
    let number = headers.get(STATUS).and_then(|status| status.to_str().ok()?.parse::<usize>().ok());
    number.and_then(|number| GrpcCode::ALL.get(number)).map_or(OTHER, |code| code_name(*code))
}

fn count_end(method: &str, code: &str) {
    metric::GRPC_CALLS.counter(&[method, code]).increment(1);
}

/// A body that counts its call.
struct CountedBody {
    inner: Body,
    /// `None` once it is counted.
    method: Option<String>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
            && let Some(method) = self.method.take()
        {
            count_end(&method, status_of(trailers));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for CountedBody {
    /// The client went away, or the connection broke, before the status was sent.
    fn drop(&mut self) {
        if let Some(method) = self.method.take() {
            count_end(&method, code_name(GrpcCode::Cancelled));
        }
    }
}
