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

    /// The method of a call over JSON-RPC, and its params with the routing identifier.
    fn params(&self, call: &A2aCall) -> Result<(&'static str, Vec<u8>), A2aClientError> {
        let mut params = Vec::new();
        let method = self.interface.dialect.write_call(&mut params, call);
        let method = method.ok_or_else(|| self.no_method())?;
        Ok((method, self.with_tenant(params)))
    }

    /// The request of a call over the other bindings, with the routing identifier.
    fn request(&self, call: &A2aCall) -> Result<Vec<u8>, A2aClientError> {
        let mut request = Vec::new();
        match self.interface.dialect.write_rest_request(&mut request, call) {
            true => Ok(self.with_tenant(request)),
            false => Err(self.no_method()),
        }
    }

    fn with_tenant(&self, params: Vec<u8>) -> Vec<u8> {
        match &self.interface.tenant {
            Some(tenant) => with_tenant(&params, tenant),
            None => params,
        }
    }

    fn no_method(&self) -> A2aClientError {
        let version = self.interface.dialect.version();
        A2aClientError::Unsupported(format!("A2A {version} has no method for this"))
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

/// Codes of JSON-RPC for the names that the official server of 0.3 puts before the message of a gRPC status.
const NAMES_0_3: [(&str, i64); 12] = [
    ("JSONParseError", -32700),
    ("InvalidRequestError", -32600),
    ("MethodNotFoundError", -32601),
    ("InvalidParamsError", -32602),
    ("InternalError", -32603),
    ("TaskNotFoundError", -32001),
    ("TaskNotCancelableError", -32002),
    ("PushNotificationNotSupportedError", -32003),
    ("UnsupportedOperationError", -32004),
    ("ContentTypeNotSupportedError", -32005),
    ("InvalidAgentResponseError", -32006),
    ("AuthenticatedExtendedCardNotConfiguredError", -32007),
];

/// The code and the text of a message such as `TaskNotFoundError: there is none`.
fn split_name(message: &str) -> Option<(i64, &str)> {
    let (name, text) = message.split_once(": ")?;
    NAMES_0_3.iter().find(|(known, _)| *known == name).map(|(_, code)| (*code, text))
}

/// The code of an error of 0.3 whose HTTP status, or status of gRPC, several errors share: the call decides.
fn code_of_status(status: u16, call: &A2aCall) -> Option<i64> {
    let names_task = match call {
        A2aCall::Send(send) | A2aCall::Stream(send) => send.task_id.is_some(),
        A2aCall::List(_) | A2aCall::ExtendedCard => false,
        _ => true,
    };
    let is_webhook = matches!(
        call,
        A2aCall::SetWebhook { .. }
            | A2aCall::GetWebhook { .. }
            | A2aCall::ListWebhooks { .. }
            | A2aCall::DeleteWebhook { .. }
    );
    Some(match (status, call) {
        (404, A2aCall::ExtendedCard) => -32007,
        (404, _) if names_task => -32001,
        (409, _) => -32002,
        (501, _) if is_webhook => -32003,
        (501, _) => -32004,
        (415, _) => -32005,
        (422, _) => -32602,
        (400, _) => -32600,
        (500, _) => -32603,
        _ => return None,
    })
}

fn code_of(reason: &str) -> Option<i64> {
    REASONS.iter().find(|(name, _)| *name == reason).map(|(_, code)| *code)
}

fn malformed(error: &dyn std::error::Error) -> A2aClientError {
    A2aClientError::Malformed(error.to_string())
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
    use nuncio_wire::a2a::A2aCall;

    use super::{code_of_status, split_name, with_tenant};

    #[test]
    fn an_error_of_0_3_is_known_by_its_name_or_by_its_status_and_the_call() {
        assert_eq!(split_name("TaskNotCancelableError: it: ended"), Some((-32002, "it: ended")));
        assert_eq!(split_name("no: name"), None);
        let cancel = A2aCall::Cancel { task: "t".to_owned(), metadata: None };
        let hooks = A2aCall::ListWebhooks { task: "t".to_owned(), page_size: None, page_token: None };
        let codes = |call: &A2aCall| [404, 409, 501, 503].map(|status| code_of_status(status, call));
        assert_eq!(codes(&cancel), [Some(-32001), Some(-32002), Some(-32004), None]);
        assert_eq!(codes(&hooks), [Some(-32001), Some(-32002), Some(-32003), None]);
        assert_eq!(code_of_status(404, &A2aCall::ExtendedCard), Some(-32007));
        let message = nuncio_engine::content::Message::text("m", nuncio_engine::content::Role::User, "x");
        let send = A2aCall::Send(Box::new(nuncio_wire::a2a::SendMessage::new(message)));
        assert_eq!(code_of_status(404, &send), None);
    }

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
