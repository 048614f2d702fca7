//! Parsing of requests, as far as the framing goes.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{MapAccess, Visitor},
};
use serde_json::{error::Category, value::RawValue};

/// A request or, where it has no id, a notification.
#[derive(Debug, Clone)]
pub struct RpcRequest<'a> {
    /// The id that the response must repeat. `None`: a notification, which gets no response.
    pub id: Option<RpcId>,
    /// The method's name.
    pub method: Cow<'a, str>,
    /// The unparsed params; `None` if they are absent or `null`.
    pub params: Option<&'a RawValue>,
}

/// The id of a request: a string, an integer or `null`, stored as the original bytes, so that the response
/// repeats it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RpcId(Box<str>);

impl RpcId {
    /// Longer ids are refused: an id is repeated in every frame of a stream.
    pub const MAX_LEN: usize = 1024;

    /// The id of responses to requests that could not be parsed.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// A numeric id.
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// A string id.
    pub fn string(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string().into())
    }

    /// The text of a string id.
    pub fn as_text(&self) -> Option<String> {
        serde_json::from_str(&self.0).ok()
    }

    /// Parses an id from its JSON.
    pub fn from_json(json: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(json).ok()?;
        Self::read(raw).ok()
    }

    /// The id as JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    pub(super) fn read(raw: &RawValue) -> Result<Self, String> {
        let json = raw.get();
        if json.len() > Self::MAX_LEN {
            return Err(format!("id: longer than {} bytes", Self::MAX_LEN));
        }
        let legal = match json.as_bytes().first() {
            Some(b'"') => true,
            Some(b'-' | b'0'..=b'9') => !json.contains(['.', 'e', 'E']),
            _ => json == "null",
        };
        legal.then(|| Self(json.into())).ok_or_else(|| "id: expected a string, an integer or null".to_owned())
    }
}

/// Why a body is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcRequestError {
    /// The id, if it could be parsed.
    pub id: Option<RpcId>,
    /// Decides the JSON-RPC error code.
    pub kind: RpcRequestErrorKind,
    /// The description of the problem.
    pub message: String,
}

impl RpcRequestError {
    /// The error code of JSON-RPC.
    pub fn code(&self) -> i32 {
        match self.kind {
            RpcRequestErrorKind::Parse => super::PARSE_ERROR,
            RpcRequestErrorKind::Invalid => super::INVALID_REQUEST,
        }
    }
}

/// The two kinds of malformed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcRequestErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body is JSON, but not a request.
    Invalid,
}

/// Parses a body. `max_depth` bounds the nesting of the whole body; a deeper one is refused before any value is
/// built.
pub fn parse_request(body: &[u8], max_depth: usize) -> Result<RpcRequest<'_>, RpcRequestError> {
    let error = |kind, message| RpcRequestError { id: None, kind, message };
    let text = std::str::from_utf8(body)
        .map_err(|e| error(RpcRequestErrorKind::Parse, format!("the body is not UTF-8: {e}")))?;
    let envelope = RpcEnvelope::read(text).map_err(|e| match e.classify() {
        Category::Data => error(
            RpcRequestErrorKind::Invalid,
            "expected one JSON-RPC request object; batches are not supported".to_owned(),
        ),
        _ => error(RpcRequestErrorKind::Parse, format!("the body is not JSON: {e}")),
    })?;

    let invalid = |id: Option<RpcId>, message: String| RpcRequestError {
        id,
        kind: RpcRequestErrorKind::Invalid,
        message,
    };
    let id = envelope.id.map(RpcId::read).transpose().map_err(|message| invalid(None, message))?;
    if envelope.version.map(RawValue::get) != Some("\"2.0\"") {
        return Err(invalid(id, "jsonrpc: expected \"2.0\"".to_owned()));
    }
    let Some(method) = envelope.method.and_then(string) else {
        return Err(invalid(id, "method: expected a string".to_owned()));
    };
    // The envelope itself is one level.
    if is_deeper(text.as_bytes(), max_depth) {
        return Err(invalid(id, format!("the body is nested deeper than {max_depth} levels")));
    }
    let params = envelope.params.filter(|params| params.get() != "null");
    Ok(RpcRequest { id, method, params })
}

/// The unparsed members of a request. Of a duplicate member the last one counts.
#[derive(Default)]
pub(super) struct RpcEnvelope<'a> {
    pub(super) version: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> RpcEnvelope<'a> {
    pub(super) fn read(text: &'a str) -> serde_json::Result<Self> {
        let mut input = serde_json::Deserializer::from_str(text);
        let envelope = input.deserialize_map(RpcEnvelopeVisitor)?;
        input.end()?;
        Ok(envelope)
    }
}

/// A key that is copied only if it contains escapes.
#[derive(Deserialize)]
struct EnvelopeKey<'a>(#[serde(borrow)] Cow<'a, str>);

struct RpcEnvelopeVisitor;

impl<'a> Visitor<'a> for RpcEnvelopeVisitor {
    type Value = RpcEnvelope<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<RpcEnvelope<'a>, A::Error> {
        let mut envelope = RpcEnvelope::default();
        while let Some(EnvelopeKey(key)) = map.next_key()? {
            let value = Some(map.next_value::<&RawValue>()?);
            match &*key {
                "jsonrpc" => envelope.version = value,
                "id" => envelope.id = value,
                "method" => envelope.method = value,
                "params" => envelope.params = value,
                "result" => envelope.result = value,
                "error" => envelope.error = value,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let plain = serde_json::from_str::<&str>(raw.get()).map(Cow::Borrowed);
    plain.or_else(|_| serde_json::from_str::<String>(raw.get()).map(Cow::Owned)).ok()
}

/// Whether valid JSON is nested deeper than `limit`.
pub fn is_deeper(json: &[u8], limit: usize) -> bool {
    // A body with at most `limit` opening brackets, in strings or not, cannot be deeper. Counting is many times
    // faster than recognizing strings, and enough for nearly all requests.
    let opened = json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    opened > limit && depth_exceeds(json, limit)
}

/// One pass over the bytes, without allocation.
fn depth_exceeds(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth -= 1,
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    false
}
