//! How calls travel: one binding of A2A is one file here, with two functions. `call` sends a call and returns the JSON
//! of its result, `open` sends one whose response is a stream of events.
//!
//! Results, events and errors are the same in every binding: what is above this module does not know which one it is.

mod grpc;
mod jsonrpc;
mod rest;

use std::collections::VecDeque;

use nuncio_outbound::HttpResponse;
use nuncio_wire::{
    a2a::A2aCall,
    sse::{ServerEvent, SseParser},
};
use serde_json::value::RawValue;

use self::grpc::GrpcEventSource;
use super::{A2aBinding, A2aClientError, AgentInterface, http::A2aHttp};

/// An interface of an agent, and the way to it.
#[derive(Debug, Clone)]
pub(super) struct A2aRoute {
    pub(super) interface: AgentInterface,
    pub(super) http: A2aHttp,
}

impl A2aRoute {
    /// Sends a call and returns its result.
    pub(super) async fn call(&self, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
        match self.interface.binding {
            A2aBinding::JsonRpc => jsonrpc::call(self, call).await,
            A2aBinding::HttpJson => rest::call(self, call).await,
            A2aBinding::Grpc => grpc::call(self, call).await,
        }
    }

    /// Sends a call whose response is a stream; after a cursor, if there is one.
    pub(super) async fn open(
        &self,
        call: &A2aCall,
        after: Option<&str>,
    ) -> Result<A2aEventSource, A2aClientError> {
        match self.interface.binding {
            A2aBinding::JsonRpc => jsonrpc::open(self, call, after).await,
            A2aBinding::HttpJson => rest::open(self, call, after).await,
            A2aBinding::Grpc => grpc::open(self, call, after).await,
        }
    }

    /// The method of a call, and its params with the routing identifier.
    fn params(&self, call: &A2aCall) -> Result<(&'static str, Vec<u8>), A2aClientError> {
        let dialect = self.interface.dialect;
        let mut params = Vec::new();
        let Some(method) = dialect.write_call(&mut params, call) else {
            let version = dialect.version();
            return Err(A2aClientError::Unsupported(format!("A2A {version} has no method for this")));
        };
        if let Some(tenant) = &self.interface.tenant {
            params = with_tenant(&params, tenant);
        }
        Ok((method, params))
    }
}

/// The events of one response.
pub(super) enum A2aEventSource {
    Sse(Box<SseEventSource>),
    Grpc(Box<GrpcEventSource>),
}

/// An event as it arrived.
pub(super) struct ReceivedEvent {
    /// The cursor after it.
    pub(super) id: Option<String>,
    pub(super) json: Box<RawValue>,
}

impl A2aEventSource {
    /// The next event; `None` at the regular end of the response. A transient error is a cut. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Option<ReceivedEvent>, A2aClientError> {
        match self {
            Self::Sse(source) => source.next().await,
            Self::Grpc(source) => source.next().await,
        }
    }
}

/// Events as server-sent events.
pub(super) struct SseEventSource {
    response: HttpResponse,
    parser: SseParser,
    /// Events that were received but not yet returned.
    ready: VecDeque<ServerEvent>,
    /// Reads the data of an event.
    read: fn(&str) -> Result<Box<RawValue>, A2aClientError>,
}

impl SseEventSource {
    fn new(
        response: HttpResponse,
        max_event: usize,
        read: fn(&str) -> Result<Box<RawValue>, A2aClientError>,
    ) -> Self {
        Self { response, parser: SseParser::new(max_event), ready: VecDeque::new(), read }
    }

    async fn next(&mut self) -> Result<Option<ReceivedEvent>, A2aClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                tracing::debug!(target: "nuncio_client::wire", id = ?event.id, data = %event.data, "received");
                return Ok(Some(ReceivedEvent { json: (self.read)(&event.data)?, id: event.id }));
            }
            let Some(bytes) = self.response.chunk().await? else { return Ok(None) };
            let events = self.parser.feed(&bytes);
            self.ready.extend(events.map_err(|error| A2aClientError::Malformed(error.to_string()))?);
        }
    }
}

impl From<SseEventSource> for A2aEventSource {
    fn from(source: SseEventSource) -> Self {
        Self::Sse(Box::new(source))
    }
}

/// Codes of JSON-RPC for the reasons of the other bindings (A2A 1.0, section 5.4), so that an error is the same in all.
const REASONS: [(&str, i64); 9] = [
    ("TASK_NOT_FOUND", -32001),
    ("TASK_NOT_CANCELABLE", -32002),
    ("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003),
    ("UNSUPPORTED_OPERATION", -32004),
    ("CONTENT_TYPE_NOT_SUPPORTED", -32005),
    ("INVALID_AGENT_RESPONSE", -32006),
    ("EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007),
    ("EXTENSION_SUPPORT_REQUIRED", -32008),
    ("VERSION_NOT_SUPPORTED", -32009),
];

fn code_of(reason: &str) -> Option<i64> {
    REASONS.iter().find(|(name, _)| *name == reason).map(|(_, code)| *code)
}

fn as_json(bytes: &[u8]) -> Result<Box<RawValue>, A2aClientError> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    RawValue::from_string(text).map_err(|error| A2aClientError::Malformed(error.to_string()))
}

/// Adds the card's routing identifier, which every request must carry (A2A 1.0, section 8.3.2).
fn with_tenant(params: &[u8], tenant: &str) -> Vec<u8> {
    let mut out = format!("{{\"tenant\":{}", serde_json::Value::from(tenant)).into_bytes();
    let rest = params.strip_prefix(b"{").unwrap_or(b"}");
    if rest != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::with_tenant;

    #[test]
    fn the_tenant_goes_first() {
        let check = |params: &str, expected: &str| {
            let got = String::from_utf8(with_tenant(params.as_bytes(), "a\"b")).unwrap();
            assert_eq!(got, expected);
        };
        check("{}", r#"{"tenant":"a\"b"}"#);
        check(r#"{"id":"1"}"#, r#"{"tenant":"a\"b","id":"1"}"#);
    }
}
