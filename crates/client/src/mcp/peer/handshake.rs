//! The handshake: detects which revision a server speaks. Tries the newest first (`server/discover`), then
//! those before it (`initialize`), and over HTTP finally the transport of 2024-11-05.
//!
//! Only the body of the response distinguishes the stateless revision from those with sessions, never a
//! single code: older servers reject an unknown method in many different ways.

use std::sync::Arc;

use http::HeaderValue;
use nuncio_wire::{
    jsonrpc::RpcErrorObject,
    mcp::{HEADER_MISMATCH, MISSING_CAPABILITY, McpVersion, UNSUPPORTED_VERSION},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    connection::{McpConnection, McpServerInfo, McpTransport},
    error::McpRequestError,
    http::McpHttp,
    incoming::{self, McpPeerResponse},
    legacy_sse,
    options::McpPeerOptions,
    router::MessageRouter,
    streamable::StreamableHttp,
};
use crate::peer::PeerError;

/// Performs the handshake with a server over HTTP.
pub(super) async fn handshake(
    http: &Arc<McpHttp>,
    changes: &watch::Sender<u64>,
) -> Result<McpConnection, McpRequestError> {
    let options = &http.options;
    if options.version.is_none_or(McpVersion::is_stateless) {
        match discover(http, changes).await? {
            DiscoverOutcome::Speaks(connection) => return Ok(*connection),
            DiscoverOutcome::Before(version) if options.version.is_none() => {
                return initialize(http, changes, version.unwrap_or(McpVersion::NEWEST_WITH_SESSIONS)).await;
            }
            DiscoverOutcome::Before(_) => {
                return Err(insisted(&http.at, McpVersion::V2026_07_28, "an older revision"));
            }
        }
    }
    initialize(http, changes, options.version.unwrap_or(McpVersion::NEWEST_WITH_SESSIONS)).await
}

/// The outcome of `server/discover`.
enum DiscoverOutcome {
    /// The server speaks the newest revision.
    Speaks(Box<McpConnection>),
    /// It does not; it may have named the one that it speaks.
    Before(Option<McpVersion>),
}

async fn discover(
    http: &Arc<McpHttp>,
    changes: &watch::Sender<u64>,
) -> Result<DiscoverOutcome, McpRequestError> {
    let (version, hub) = (McpVersion::V2026_07_28, MessageRouter::new(changes.clone()));
    let link =
        Arc::new(StreamableHttp { http: Arc::clone(http), version, session: None, hub: Arc::clone(&hub) });
    let request = discover_request(&http.options);
    for again in [true, false] {
        let outcome = match link.ask(&request).await {
            Ok((_, answer)) => answer.outcome,
            Err(McpRequestError::Rpc(error)) => Err(error),
            // The server is unreachable or does not authorize us.
            Err(McpRequestError::Peer(
                error @ (PeerError::Unreachable { .. }
                | PeerError::Unauthorized { .. }
                | PeerError::Busy { .. }),
            )) => return Err(error.into()),
            Err(fail) => {
                tracing::debug!(?fail, "{} does not know server/discover", http.at);
                return Ok(DiscoverOutcome::Before(None));
            }
        };
        match read_discovered(&http.at, outcome)? {
            DiscoverReply::Speaks(about) => {
                let link = McpTransport::Http(link);
                let connection = McpConnection::new(&http.at, (version, about), link, &hub, &http.options);
                return Ok(DiscoverOutcome::Speaks(Box::new(connection)));
            }
            DiscoverReply::Before(before) => return Ok(DiscoverOutcome::Before(before)),
            DiscoverReply::Again if again => {}
            DiscoverReply::Again => break,
        }
    }
    let why = format!("{} names MCP {} as its revision, but does not support it", http.at, version.name());
    Err(PeerError::Unsupported(why).into())
}

/// A server's reply to `server/discover`.
pub(super) enum DiscoverReply {
    /// It speaks the newest revision.
    Speaks(McpServerInfo),
    /// It does not; it may have named the one that it speaks.
    Before(Option<McpVersion>),
    /// It asks for the request in the revision in which it was sent.
    Again,
}

/// The `server/discover` request.
pub(super) fn discover_request(options: &McpPeerOptions) -> Value {
    let version = McpVersion::V2026_07_28;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version.name(),
        "io.modelcontextprotocol/clientCapabilities": options.capabilities(version),
        "io.modelcontextprotocol/clientInfo": options.client_info(),
    });
    incoming::request(&"discover".into(), "server/discover", &json!({ "_meta": meta }))
}

/// The server's description if it speaks the newest revision; otherwise the revision that it names.
pub(super) fn read_discovered(
    at: &str,
    outcome: Result<Value, RpcErrorObject>,
) -> Result<DiscoverReply, McpRequestError> {
    let newest = |names: &Value| {
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter_map(McpVersion::parse).max()
    };
    match outcome {
        Ok(mut result) if result.is_object() => {
            let speaks = newest(&result["supportedVersions"]);
            if result["supportedVersions"].is_array() && !speaks.is_some_and(McpVersion::is_stateless) {
                return Ok(DiscoverReply::Before(speaks));
            }
            let info = [&result["_meta"]["io.modelcontextprotocol/serverInfo"], &result["serverInfo"]];
            let info = info.into_iter().find(|info| info.is_object()).cloned().unwrap_or_default();
            Ok(DiscoverReply::Speaks(McpServerInfo { info, capabilities: result["capabilities"].take() }))
        }
        Ok(_) => Ok(DiscoverReply::Before(None)),
        Err(error) if error.code == i64::from(UNSUPPORTED_VERSION) => {
            let data = error.data.unwrap_or_default();
            match newest(&data["supported"]) {
                Some(version) if version.is_stateless() => Ok(DiscoverReply::Again),
                Some(version) => Ok(DiscoverReply::Before(Some(version))),
                None => {
                    let why = format!("{at} speaks none of the revisions known here: {}", data["supported"]);
                    Err(PeerError::Unsupported(why).into())
                }
            }
        }
        Err(error) if [HEADER_MISMATCH, MISSING_CAPABILITY].map(i64::from).contains(&error.code) => {
            Err(McpRequestError::malformed(at, format!("it refuses server/discover: {error}")))
        }
        Err(_) => Ok(DiscoverReply::Before(None)),
    }
}

async fn initialize(
    http: &Arc<McpHttp>,
    changes: &watch::Sender<u64>,
    version: McpVersion,
) -> Result<McpConnection, McpRequestError> {
    let (options, hub) = (&http.options, MessageRouter::new(changes.clone()));
    let link = StreamableHttp { http: Arc::clone(http), version, session: None, hub: Arc::clone(&hub) };
    let (headers, answer) = match link.ask(&initialize_request(options, version)).await {
        Ok(answered) => answered,
        // The address may be an HTTP+SSE stream of 2024-11-05.
        Err(fail @ (McpRequestError::Status { status: 400 | 404 | 405, .. } | McpRequestError::Rpc(_))) => {
            return match legacy_sse::connect(http, changes).await {
                Ok(connection) => Ok(connection),
                Err(_) => Err(fail),
            };
        }
        Err(fail) => return Err(fail),
    };
    let session = headers.get("mcp-session-id").cloned();
    let link = |version| {
        let (http, hub) = (Arc::clone(http), Arc::clone(&hub));
        StreamableHttp { http, version, session: session.clone(), hub }
    };
    let (version, about) = match read_initialized(&http.at, options, answer) {
        Ok(initialized) => initialized,
        Err(fail) => {
            link(version).end().await;
            return Err(fail);
        }
    };
    let link = McpTransport::Http(Arc::new(link(version)));
    let connection = McpConnection::new(&http.at, (version, about), link, &hub, options);
    initialized(&connection).await?;
    Ok(connection)
}

/// The `initialize` request.
pub(super) fn initialize_request(options: &McpPeerOptions, version: McpVersion) -> Value {
    let params = json!({
        "protocolVersion": version.name(),
        "capabilities": options.capabilities(version),
        "clientInfo": options.client_info(),
    });
    incoming::request(&"initialize".into(), "initialize", &params)
}

/// The revision of the session, and the server's description.
pub(super) fn read_initialized(
    at: &str,
    options: &McpPeerOptions,
    answer: McpPeerResponse,
) -> Result<(McpVersion, McpServerInfo), McpRequestError> {
    let mut result = answer.outcome.map_err(McpRequestError::Rpc)?;
    let name = result["protocolVersion"].as_str().unwrap_or_default().to_owned();
    let Some(version) = McpVersion::parse(&name).filter(|version| !version.is_stateless()) else {
        let why = format!("{at} selected MCP {name:?}, which this client does not know");
        return Err(PeerError::Unsupported(why).into());
    };
    if let Some(wanted) = options.version.filter(|wanted| *wanted != version) {
        return Err(insisted(at, wanted, &name));
    }
    Ok((
        version,
        McpServerInfo { info: result["serverInfo"].take(), capabilities: result["capabilities"].take() },
    ))
}

/// Sends `notifications/initialized` and the log level.
pub(super) async fn initialized(connection: &McpConnection) -> Result<(), McpRequestError> {
    connection.send(&incoming::notice("notifications/initialized", &json!({}))).await?;
    if let Some(level) =
        connection.options.log_level.get().filter(|_| connection.about.capabilities["logging"].is_object())
        && let Err(fail) = connection.request("logging/setLevel", json!({ "level": level })).await
    {
        // A call does not depend on log lines.
        tracing::warn!(?fail, "{} rejected the log level", connection.at);
    }
    Ok(())
}

/// The session id as a header value.
pub(super) fn session_header(session: &str) -> Result<HeaderValue, McpRequestError> {
    HeaderValue::from_str(session)
        .map_err(|_| PeerError::Gone("the handle holds an invalid session id".into()).into())
}

fn insisted(at: &str, wanted: McpVersion, speaks: &str) -> McpRequestError {
    let why = format!("{at} does not support MCP {}; it supports {speaks}", wanted.name());
    PeerError::Unsupported(why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_tells_its_era() {
        let check = |outcome: Result<Value, (i64, Value)>, expected: &str| {
            let outcome = outcome.map_err(|(code, data)| RpcErrorObject {
                code,
                message: "words".into(),
                data: Some(data),
            });
            let said = format!("{outcome:?}");
            let found = match read_discovered("there", outcome) {
                Ok(DiscoverReply::Speaks(about)) => format!("speaks it, can {}", about.capabilities),
                Ok(DiscoverReply::Before(version)) => format!("before: {version:?}"),
                Ok(DiscoverReply::Again) => "again".into(),
                Err(fail) => fail.into_peer("there").to_string(),
            };
            assert!(found.starts_with(expected), "{said}: {found}");
        };
        let tools = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
        check(Ok(tools), r#"speaks it, can {"tools":{}}"#);
        check(Ok(json!({ "supportedVersions": ["2025-06-18", "2025-03-26"] })), "before: Some(V2025_06_18)");
        check(Ok(json!({ "supportedVersions": ["2999-01-01"] })), "before: None");
        let older = json!({ "supported": ["2025-11-25", "2024-11-05"] });
        check(Err((-32022, older)), "before: Some(V2025_11_25)");
        check(Err((-32022, json!({ "supported": ["2999-01-01"] }))), "there speaks none");
        check(Err((-32022, json!({ "supported": ["2026-07-28"] }))), "again");
        for code in [-32601, -32602, -32600, -32000, 0] {
            check(Err((code, Value::Null)), "before: None");
        }
        check(Err((-32020, Value::Null)), "there does not speak its protocol");
    }
}
