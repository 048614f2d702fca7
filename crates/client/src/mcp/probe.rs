//! A probe that reads an MCP server's name and capabilities and leaves no session behind.
//!
//! `server/discover` is stateless (2026-07-28). A server without it gets `initialize`, and the session that
//! this may have opened is ended at once.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use nuncio_outbound::{Outbound, OutboundError, OutboundResponse};
use nuncio_wire::sse;
use serde_json::{Value, json};
use url::Url;

/// The stateless revision, and the newest one with sessions.
const STATELESS: &str = "2026-07-28";
const WITH_SESSIONS: &str = "2025-11-25";
const SESSION: &str = "mcp-session-id";
/// Bytes of an event.
const MAX_EVENT: usize = 64 * 1024;

/// The request that a server is probed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeMethod {
    /// `server/discover`.
    Discover,
    /// `initialize`.
    Initialize,
}

/// How a server describes itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerIntroduction {
    /// `serverInfo`: its name and version.
    pub server_info: Option<Value>,
    /// The names of its declared capabilities, such as `tools` and `resources`.
    pub capabilities: Vec<String>,
    /// The request that it answered; the next probe should start with it.
    pub greeting: HandshakeMethod,
}

/// Why a probe failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProbeError {
    /// No response.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The response is not MCP.
    #[error("{0}")]
    NotMcp(String),
}

/// Probes the server at that endpoint: with the given request, and if the server does not know that one,
/// with the other.
pub async fn probe(
    outbound: &Outbound,
    url: &Url,
    first: HandshakeMethod,
) -> Result<ServerIntroduction, ProbeError> {
    let second = match first {
        HandshakeMethod::Discover => HandshakeMethod::Initialize,
        HandshakeMethod::Initialize => HandshakeMethod::Discover,
    };
    match request_introduction(outbound, url, first).await {
        // The server is reachable, and may speak another revision.
        Err(ProbeError::NotMcp(_)) => request_introduction(outbound, url, second).await,
        answered => answered,
    }
}

async fn request_introduction(
    outbound: &Outbound,
    url: &Url,
    greeting: HandshakeMethod,
) -> Result<ServerIntroduction, ProbeError> {
    let client = json!({ "name": "nuncio", "version": env!("CARGO_PKG_VERSION") });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let (method, params) = match greeting {
        HandshakeMethod::Discover => {
            headers.insert("mcp-protocol-version", HeaderValue::from_static(STATELESS));
            headers.insert("mcp-method", HeaderValue::from_static("server/discover"));
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": STATELESS,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": client,
            });
            ("server/discover", json!({ "_meta": meta }))
        }
        HandshakeMethod::Initialize => (
            "initialize",
            json!({ "protocolVersion": WITH_SESSIONS, "capabilities": {}, "clientInfo": client }),
        ),
    };
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let answer = outbound.send(Method::POST, url, headers, Bytes::from(body)).await?;
    if greeting == HandshakeMethod::Initialize
        && let Some(session) = answer.headers.get(SESSION)
    {
        let headers = HeaderMap::from_iter([(header::HeaderName::from_static(SESSION), session.clone())]);
        // A server that does not support ending sessions expires them itself.
        let _ = outbound.send(Method::DELETE, url, headers, Bytes::new()).await;
    }
    let result = result_of(&answer)?;
    let server_info = [&result["serverInfo"], &result["_meta"]["io.modelcontextprotocol/serverInfo"]];
    let capabilities = result["capabilities"].as_object().into_iter().flatten();
    Ok(ServerIntroduction {
        server_info: server_info.into_iter().find(|info| info.is_object()).cloned(),
        capabilities: capabilities.map(|(name, _)| name.clone()).collect(),
        greeting,
    })
}

/// The result in the response, which is a body or an event.
fn result_of(answer: &OutboundResponse) -> Result<Value, ProbeError> {
    let wrong = |why: String| ProbeError::NotMcp(why);
    if answer.status != StatusCode::OK {
        return Err(wrong(format!("HTTP {}", answer.status.as_u16())));
    }
    let kind =
        answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let response: Option<Value> = if kind.starts_with("text/event-stream") {
        let events =
            sse::SseParser::new(MAX_EVENT).feed(&answer.body).map_err(|error| wrong(error.to_string()))?;
        let mut messages = events.iter().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok());
        messages.find(|message| message.get("result").is_some() || message.get("error").is_some())
    } else {
        serde_json::from_slice(&answer.body).ok()
    };
    let mut response = response.ok_or_else(|| wrong("the answer is not a JSON-RPC response".into()))?;
    match response.get_mut("result").map(Value::take) {
        Some(result @ Value::Object(_)) => Ok(result),
        _ => Err(wrong(match response["error"]["message"].as_str() {
            Some(message) => format!("the server refused: {}", message.chars().take(200).collect::<String>()),
            None => "the answer is not a JSON-RPC response".into(),
        })),
    }
}
