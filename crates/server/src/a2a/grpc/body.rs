//! The bodies of gRPC responses: messages, and the status in the trailers.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderName, HeaderValue, Response, header},
};
use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use nuncio_wire::grpc::{self, GrpcStatus};

const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
pub(super) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The longest details that are sent: clients and proxies bound the size of headers.
const MAX_DETAILS: usize = 4 * 1024;

/// A response without a message: the status is in its head.
pub(super) fn fail(status: &GrpcStatus) -> Response<Body> {
    let mut response = head(Body::empty());
    write_status(response.headers_mut(), status);
    response
}

/// A response with one message, which has its prefix.
pub(super) fn message(bytes: impl Into<Bytes>) -> Response<Body> {
    head(Body::new(SingleMessage { message: Some(bytes.into()), trailed: false }))
}

/// A response with the messages of a stream. An error is its last item, and becomes its status.
pub(super) fn stream<S>(messages: S) -> Response<Body>
where
    S: Stream<Item = Result<Bytes, GrpcStatus>> + Send + 'static,
{
    head(Body::new(MessageStream { messages: Some(Box::pin(messages)) }))
}

fn head(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

fn write_status(headers: &mut HeaderMap, status: &GrpcStatus) {
    headers.insert(STATUS, HeaderValue::from(status.code as u16));
    if let Ok(message) = HeaderValue::from_str(&grpc::encode_text(&status.message)) {
        headers.insert(MESSAGE, message);
    }
    let details = status.write_details().filter(|details| details.len() <= MAX_DETAILS);
    if let Some(details) = details
        && let Ok(details) = HeaderValue::from_str(&BASE64_STANDARD_NO_PAD.encode(details))
    {
        headers.insert(DETAILS, details);
    }
}

fn ok_trailers() -> Frame<Bytes> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    Frame::trailers(trailers)
}

/// One message, then the status.
struct SingleMessage {
    message: Option<Bytes>,
    trailed: bool,
}

impl HttpBody for SingleMessage {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.trailed, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(ok_trailers())))
    }

    fn is_end_stream(&self) -> bool {
        self.trailed
    }

    /// Not exact: hyper would add a `Content-Length`, which gRPC does not use and which no table of HPACK holds.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_upper(self.message.as_ref().map_or(0, |message| message.len() as u64));
        hint
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, GrpcStatus>> + Send>>;

/// Messages as they come, then the status.
struct MessageStream {
    /// `None` after the status.
    messages: Option<Messages>,
}

impl HttpBody for MessageStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let frame = match ready!(messages.as_mut().poll_next(cx)) {
            Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Err(status)) => {
                let mut trailers = HeaderMap::with_capacity(3);
                write_status(&mut trailers, &status);
                Frame::trailers(trailers)
            }
            None => ok_trailers(),
        };
        self.messages = None;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none()
    }
}
