//! Reading whatever a peer may send where both sides ask: requests, notifications, responses, and batches.

use serde_json::{error::Category, value::RawValue};

use super::{
    ErrorObject, Id, Request, RequestError, RequestErrorKind, Response,
    request::{Envelope, is_deeper, string},
};

/// One message.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// A request or, without an id, a notification.
    Request(Request<'a>),
    /// The answer to a request of ours.
    Response(Response<'a>),
}

/// What a body holds.
#[derive(Debug, Clone)]
pub enum Messages<'a> {
    /// One message.
    One(Message<'a>),
    /// Several, or none. Each for itself: one that cannot be read does not spoil the others.
    Batch(Vec<Result<Message<'a>, RequestError>>),
}

/// Takes a body apart. `max_depth` bounds its nesting.
pub fn parse_messages(body: &[u8], max_depth: usize) -> Result<Messages<'_>, RequestError> {
    let error = |kind, message| RequestError { id: None, kind, message };
    let text = std::str::from_utf8(body)
        .map_err(|e| error(RequestErrorKind::Parse, format!("the body is not UTF-8: {e}")))?;
    if is_deeper(body, max_depth) {
        return Err(error(
            RequestErrorKind::Invalid,
            format!("the body is nested deeper than {max_depth} levels"),
        ));
    }
    if !text.trim_start().starts_with('[') {
        return parse_one(text).map(Messages::One);
    }
    let items: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|e| error(RequestErrorKind::Parse, format!("the body is not JSON: {e}")))?;
    Ok(Messages::Batch(items.into_iter().map(|item| parse_one(item.get())).collect()))
}

fn parse_one(text: &str) -> Result<Message<'_>, RequestError> {
    let error = |kind, message| RequestError { id: None, kind, message };
    let envelope = Envelope::read(text).map_err(|e| match e.classify() {
        Category::Data => error(RequestErrorKind::Invalid, "expected a JSON-RPC object".to_owned()),
        _ => error(RequestErrorKind::Parse, format!("the body is not JSON: {e}")),
    })?;
    let invalid =
        |id: Option<Id>, message: String| RequestError { id, kind: RequestErrorKind::Invalid, message };
    let id = envelope.id.map(Id::read).transpose().map_err(|message| invalid(None, message))?;
    if envelope.version.map(RawValue::get) != Some("\"2.0\"") {
        return Err(invalid(id, "jsonrpc: expected \"2.0\"".to_owned()));
    }
    if let Some(method) = envelope.method {
        let Some(method) = string(method) else {
            return Err(invalid(id, "method: expected a string".to_owned()));
        };
        let params = envelope.params.filter(|params| params.get() != "null");
        return Ok(Message::Request(Request { id, method, params }));
    }
    let outcome = match (envelope.error.filter(|raw| raw.get() != "null"), envelope.result) {
        (Some(raw), _) => Err(serde_json::from_str::<ErrorObject>(raw.get())
            .map_err(|e| invalid(id.clone(), format!("error: {e}")))?),
        (None, Some(raw)) => Ok(raw),
        (None, None) => {
            return Err(invalid(id, "expected a method, a result or an error".to_owned()));
        }
    };
    Ok(Message::Response(Response { id, outcome }))
}
