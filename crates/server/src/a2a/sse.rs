//! Streams as server-sent events, for the bindings over HTTP and JSON.
//!
//! The SSE id of a frame is the event's cursor: `Last-Event-ID` continues after it. The binding's envelope is around the
//! data of each frame.

use std::{borrow::Cow, convert::Infallible};

use axum::{
    body::{Body, Bytes},
    http::Response,
};
use futures_util::stream;
use nuncio_engine::Error;
use nuncio_wire::{
    a2a::{A2aFault, Dialect},
    sse,
};

use super::{
    event_stream::{A2aEventStream, StreamChunk, StreamEnd, StreamFraming},
    exchange::fault_of,
};
use crate::{open_streams::STREAM_ID, responses::event_stream};

/// What a binding writes around the data of a frame.
pub(crate) trait SseEnvelope: Send + 'static {
    /// Writes a result; `write` adds its JSON.
    fn write_result(&self, out: &mut Vec<u8>, dialect: Dialect, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Writes the error that ends a stream.
    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault);

    /// The type of the event that carries the error; `None` for that of all others.
    fn fault_event(&self) -> Option<&'static str> {
        None
    }
}

/// Frames as events in an envelope.
pub(super) struct SseFraming<E>(pub(super) E);

impl<E: SseEnvelope> StreamFraming for SseFraming<E> {
    fn write_frame(
        &self,
        out: &mut Vec<u8>,
        dialect: Dialect,
        cursor: Option<u64>,
        write: &mut dyn FnMut(&mut Vec<u8>),
    ) {
        sse::write_numbered_event(out, cursor, |out| self.0.write_result(out, dialect, write));
    }

    fn keep_alive(&self) -> Option<Bytes> {
        Some(Bytes::from_static(sse::KEEP_ALIVE))
    }

    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault) {
        if let Some(kind) = self.0.fault_event() {
            sse::write_event_type(out, kind);
        }
        sse::write_numbered_event(out, None, |out| self.0.write_fault(out, dialect, fault));
    }
}

/// The response that carries a stream.
pub(super) fn respond(stream: A2aEventStream) -> Response<Body> {
    respond_with(stream, None)
}

/// The response, once the stream has something to send; see [`A2aEventStream::first_chunk`].
pub(super) async fn respond_when_begun(mut stream: A2aEventStream) -> Result<Response<Body>, Error> {
    let first = stream.first_chunk().await?;
    Ok(respond_with(stream, first))
}

fn respond_with(stream: A2aEventStream, first: Option<StreamChunk>) -> Response<Body> {
    let name = stream.live.header();
    let frames = stream::unfold((stream, first), |(mut stream, first)| async move {
        let chunk = match first {
            Some(first) => Ok(first),
            None => stream.next_chunk().await,
        };
        let bytes = match chunk {
            Ok(StreamChunk::Frames(bytes) | StreamChunk::KeepAlive(bytes)) => bytes,
            Ok(StreamChunk::End(StreamEnd::ServerStops(cursor))) => {
                format!(": the server is stopping; continue with Last-Event-ID: {cursor}\n\n").into()
            }
            Ok(StreamChunk::End(StreamEnd::Complete | StreamEnd::CredentialsEnded)) => return None,
            Err(error) => {
                let mut out = Vec::new();
                stream.framing.write_fault(&mut out, stream.dialect, &fault_of(stream.dialect, &error));
                stream.live.record_event(Cow::Borrowed("error"), Some(&stream.task_id), None);
                out.into()
            }
        };
        Some((Ok::<_, Infallible>(bytes), (stream, None)))
    });
    let mut response = event_stream(Body::from_stream(frames));
    response.headers_mut().insert(STREAM_ID, name);
    response
}
