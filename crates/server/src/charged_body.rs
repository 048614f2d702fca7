//! Bodies charged to their caller's budget of bytes in flight until the connection has taken them. Large chunks
//! are split: a client that does not read uses up its own budget and nothing else.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    BoxError, Error,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, Response, header},
};
use http_body::{Frame, SizeHint};
use nuncio_engine::{BytePermit, Caller, Engine};

use crate::{options::HttpLimits, request_checks, responses};

/// Maximum bytes per chunk that is passed to the connection.
const PIECE: usize = 64 * 1024;

/// Marks a response whose chunks bring their charges: each ends when its chunk is dropped.
#[derive(Clone, Copy)]
pub(crate) struct ChargedChunks;

/// Wraps the response so that its body is charged to that caller.
pub(crate) fn charge_response(engine: &Engine, caller: &Caller, response: Response<Body>) -> Response<Body> {
    // Most responses are small and need no wrapper.
    if response.body().size_hint().upper().is_some_and(|most| most <= PIECE as u64) {
        return response;
    }
    let is_charged = response.extensions().get::<ChargedChunks>().is_some();
    let charge = (!is_charged).then(|| (engine.clone(), caller.clone()));
    // A body of a known length is in memory already, whether or not the connection takes it.
    let held = response.body().size_hint().exact().filter(|_| !is_charged);
    let permit = held.map(|bytes| engine.charge_bytes(caller, bytes));
    response.map(|inner| Body::new(ChargedBody { inner, charge, rest: Bytes::new(), permit }))
}

/// Reads a request body into the budget of its caller. The permit lasts as long as the body is needed.
pub(crate) async fn read_body<B>(
    engine: &Engine,
    caller: &Caller,
    headers: &HeaderMap,
    body: B,
    limits: &HttpLimits,
) -> Result<(Bytes, BytePermit), Box<Response<Body>>>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let most = limits.max_body_bytes as u64;
    // Twice the length: the body, and what is parsed from it. Without a declared length, the maximum is
    // assumed.
    let wanted = 2 * declared.unwrap_or(most).min(most);
    let mut permit = match engine.reserve_bytes(caller, wanted).await {
        Ok(permit) => permit,
        Err(error) => return Err(Box::new(responses::refuse_busy(&error))),
    };
    match request_checks::read_body(headers, body, limits.max_body_bytes, limits.body_timeout).await {
        Ok(body) => {
            permit.shrink_to(2 * body.len() as u64);
            Ok((body, permit))
        }
        Err(refusal) => Err(Box::new(responses::refuse(&refusal))),
    }
}

struct ChargedBody {
    inner: Body,
    /// `None`: the chunks bring their charges.
    charge: Option<(Engine, Caller)>,
    /// The rest of the chunk that was last taken from `inner`.
    rest: Bytes,
    permit: Option<BytePermit>,
}

impl HttpBody for ChargedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.rest.is_empty() {
            self.permit = None;
            let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data() {
                Ok(data) if data.len() > PIECE => {
                    let charge = self.charge.as_ref();
                    let permit =
                        charge.map(|(engine, caller)| engine.charge_bytes(caller, data.len() as u64));
                    (self.permit, self.rest) = (permit, data);
                }
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
