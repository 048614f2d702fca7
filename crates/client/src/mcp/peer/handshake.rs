//! The handshake: detects which revision a server speaks. Tries the newest first (`server/discover`), then
//! those before it (`initialize`), and over HTTP finally the transport of 2024-11-05.

use std::sync::Arc;

use http::HeaderValue;
use nuncio_wire::mcp::{
    ClientNotification, ClientRequest, DiscoverReply, InitializeResult, McpPeerResponse, McpVersion,
    ServerDescription, request_message,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    connection::{McpConnection, McpTransport},
    error::McpRequestError,
    http::McpHttp,
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
        match DiscoverReply::read(outcome) {
            DiscoverReply::Newest(about) => {
                let link = McpTransport::Http(link);
                let connection = McpConnection::new(&http.at, (version, about), link, &hub, &http.options);
                return Ok(DiscoverOutcome::Speaks(Box::new(connection)));
            }
            DiscoverReply::Older(older) => return Ok(DiscoverOutcome::Before(older)),
            DiscoverReply::SameVersion if again => {}
            reply => return Err(discover_error(&http.at, reply)),
        }
    }
    Err(discover_error(&http.at, DiscoverReply::SameVersion))
}

/// The `server/discover` request.
pub(super) fn discover_request(options: &McpPeerOptions) -> Value {
    let version = McpVersion::V2026_07_28;
    let mut params = json!({});
    options.description().add_to(&mut params, version);
    request_message(&"discover".into(), ClientRequest::Ping.method(version), &params)
}

/// The error of a reply that ends the handshake.
pub(super) fn discover_error(at: &str, reply: DiscoverReply) -> McpRequestError {
    match reply {
        DiscoverReply::NoKnownVersion(names) => {
            let why = format!("{at} speaks none of the revisions known here: {names}");
            PeerError::Unsupported(why).into()
        }
        DiscoverReply::Refused(error) => {
            McpRequestError::malformed(at, format!("it refuses server/discover: {error}"))
        }
        DiscoverReply::SameVersion | DiscoverReply::Newest(_) | DiscoverReply::Older(_) => {
            let newest = McpVersion::V2026_07_28.name();
            let why = format!("{at} names MCP {newest} as its revision, but does not support it");
            PeerError::Unsupported(why).into()
        }
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
    let params = options.description().initialize_params(version);
    request_message(&"initialize".into(), "initialize", &params)
}

/// The revision of the session, and the server's description.
pub(super) fn read_initialized(
    at: &str,
    options: &McpPeerOptions,
    answer: McpPeerResponse,
) -> Result<(McpVersion, ServerDescription), McpRequestError> {
    let InitializeResult { version: name, server } =
        InitializeResult::read(answer.outcome.map_err(McpRequestError::Rpc)?);
    let Some(version) = McpVersion::parse(&name).filter(|version| !version.is_stateless()) else {
        let why = format!("{at} selected MCP {name:?}, which this client does not know");
        return Err(PeerError::Unsupported(why).into());
    };
    if let Some(wanted) = options.version.filter(|wanted| *wanted != version) {
        return Err(insisted(at, wanted, &name));
    }
    Ok((version, server))
}

/// Sends `notifications/initialized` and the log level.
pub(super) async fn initialized(connection: &McpConnection) -> Result<(), McpRequestError> {
    connection.send(&ClientNotification::Initialized.to_message()).await?;
    if let Some(level) =
        connection.options.log_level.get().filter(|_| connection.about.capabilities.has_logging())
        && let Err(fail) = connection.request(ClientRequest::SetLogLevel(level)).await
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
