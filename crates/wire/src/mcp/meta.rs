//! The `_meta` of a request: data about the message that is not part of its content.

use std::collections::BTreeMap;

use nuncio_engine::Level;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{ClientCapabilities, McpFault, McpVersion};

/// The token that a client expects in its progress notifications: a string or an integer, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressToken(Box<str>);

impl ProgressToken {
    /// Longer ones are refused: a token is repeated in every notification.
    pub const MAX_LEN: usize = 1024;

    /// The token as JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Parses a token from its JSON.
    pub fn from_json(json: &str) -> Option<Self> {
        let legal = json.len() <= Self::MAX_LEN
            && match json.as_bytes().first() {
                Some(b'"') => serde_json::from_str::<&RawValue>(json).is_ok(),
                Some(b'-' | b'0'..=b'9') => serde_json::from_str::<i64>(json).is_ok(),
                _ => false,
            };
        legal.then(|| Self(json.into()))
    }
}

/// The members of `_meta` that this server reads.
#[derive(Debug, Clone, Default)]
pub struct RequestMeta {
    /// Whether the request had a `_meta`.
    pub present: bool,
    /// The token for progress notifications, if they are wanted.
    pub progress: Option<ProgressToken>,
    /// The revision of this request.
    pub version: Option<String>,
    /// The client's capabilities, as declared in this request.
    pub capabilities: Option<Value>,
    /// The client's name and version, as declared in this request.
    pub client_info: Option<Value>,
    /// The lowest level of log lines to send for this request.
    pub level: Option<Level>,
    /// W3C trace context.
    pub trace: Option<String>,
    /// Whether the call is answered at once, with a link to its result.
    pub background: bool,
    /// The cursors after which events of tasks are requested, by task id ([`super::EVENTS`]). Empty if the
    /// request creates the task.
    pub events: Option<BTreeMap<String, u64>>,
    /// The idempotency key: a retry with the same key is the same call.
    pub idempotency_key: Option<String>,
}

/// The `_meta` member that holds an idempotency key; in a tool's own `_meta`, whether its calls honour one.
pub const IDEMPOTENCY_KEY: &str = "nuncio/idempotencyKey";

#[derive(Deserialize, Default)]
struct ParamsWithMeta<'a> {
    #[serde(rename = "_meta", borrow, default)]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct MetaMembers<'a> {
    #[serde(rename = "progressToken", borrow, default)]
    progress: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", default)]
    version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities", default)]
    capabilities: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo", default)]
    client_info: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/logLevel", default)]
    level: Option<String>,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(rename = "nuncio/background", default)]
    background: Option<bool>,
    #[serde(rename = "dev.nuncio/events", default)]
    events: Option<BTreeMap<String, u64>>,
    #[serde(rename = "nuncio/idempotencyKey", default)]
    idempotency_key: Option<String>,
}

/// Reads the `_meta` of a request's params.
pub fn read_meta(params: Option<&RawValue>) -> Result<RequestMeta, McpFault> {
    let Some(params) = params else { return Ok(RequestMeta::default()) };
    // Params that are not an object are refused by the reader of the method's params.
    let Ok(ParamsWithMeta { meta: Some(meta) }) = serde_json::from_str::<ParamsWithMeta<'_>>(params.get())
    else {
        return Ok(RequestMeta::default());
    };
    let members: MetaMembers<'_> =
        serde_json::from_str(meta.get()).map_err(|e| McpFault::invalid_params(format!("_meta: {e}")))?;
    let progress = match members.progress.map(RawValue::get) {
        None | Some("null") => None,
        Some(json) => Some(ProgressToken::from_json(json).ok_or_else(|| {
            McpFault::invalid_params("_meta.progressToken: expected a string or an integer")
        })?),
    };
    let level = members.level.as_deref().map(parse_level).transpose()?;
    Ok(RequestMeta {
        present: true,
        progress,
        version: members.version,
        capabilities: members.capabilities,
        client_info: members.client_info,
        level,
        trace: members.traceparent,
        background: members.background.unwrap_or(false),
        events: members.events,
        idempotency_key: members.idempotency_key,
    })
}

impl RequestMeta {
    /// The client's capabilities, as declared in this request.
    pub fn capabilities(&self, version: McpVersion) -> ClientCapabilities {
        self.capabilities
            .as_ref()
            .map(|declared| ClientCapabilities::read(declared, version))
            .unwrap_or_default()
    }
}

/// Parses the name of a log level.
pub fn parse_level(name: &str) -> Result<Level, McpFault> {
    serde_json::from_value(Value::from(name)).map_err(|_| {
        McpFault::invalid_params(format!(
            "the log level {name:?} is none of debug, info, notice, warning, error, critical, alert, emergency"
        ))
    })
}
