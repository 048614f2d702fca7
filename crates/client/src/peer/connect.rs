//! Detects a peer's protocol and connects to it.
//!
//! A command is an MCP server on pipes. An address with an agent card is an A2A agent; otherwise an MCP
//! endpoint is tried. A Nuncio server has both: it is A2A unless the caller asks for MCP.

use std::sync::Arc;

use nuncio_outbound::TlsClientOptions;
use nuncio_wire::{a2a::Dialect, mcp::McpVersion};
use url::Url;

use super::{Peer, PeerError, PeerLocation, PeerProtocol};
use crate::{
    a2a::{A2aPeer, A2aPeerOptions},
    auth::Authorizer,
    mcp::{McpLogLevel, McpPeer, McpPeerOptions},
};

/// Options of [`connect`].
#[derive(Clone, Default)]
pub struct PeerConnectOptions {
    /// Supplies the tokens for requests.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Whom to trust beside the system's CAs, and the client's certificate.
    pub tls: TlsClientOptions,
    /// The protocol; `None`: detect it.
    pub protocol: Option<PeerProtocol>,
    /// The A2A version to speak; `None`: the one that the card prefers.
    pub dialect: Option<Dialect>,
    /// The MCP revision to speak; `None`: the newest that both sides know.
    pub revision: Option<String>,
    /// The lowest level of log lines to receive, where the protocol lets a client choose.
    pub log_level: McpLogLevel,
    /// Whether to receive every event of a task, including log lines and events from before the follower
    /// connected, where the server has an extension for that.
    pub every_event: bool,
}

/// Connects to the peer at that location. The error names what was tried, and where.
pub async fn connect(place: &PeerLocation, options: &PeerConnectOptions) -> Result<Arc<dyn Peer>, PeerError> {
    let url = match (place, options.protocol) {
        (PeerLocation::Url(url), _) => url,
        (PeerLocation::Command(_), Some(PeerProtocol::A2a)) => {
            return Err(PeerError::Unsupported("a command is spoken to in MCP: give a URL for A2A".into()));
        }
        (PeerLocation::Command(_), _) => return mcp(place, options),
    };
    match options.protocol {
        Some(PeerProtocol::A2a) => Ok(a2a(url, options)),
        Some(PeerProtocol::Mcp) => mcp(place, options),
        None => detect(url, place, options).await,
    }
}

async fn detect(
    url: &Url,
    place: &PeerLocation,
    options: &PeerConnectOptions,
) -> Result<Arc<dyn Peer>, PeerError> {
    let agent = a2a(url, options);
    let no_agent = match agent.check_reachable().await {
        Ok(()) => return Ok(agent),
        // If the host is unreachable, so is an MCP endpoint on it.
        Err(error @ PeerError::Unreachable { .. }) => return Err(error),
        Err(error) => error,
    };
    let server = mcp(place, options)?;
    match server.check_reachable().await {
        Ok(()) => Ok(server),
        // It is an MCP endpoint that requires authorization.
        Err(error @ PeerError::Unauthorized { .. }) => Err(error),
        Err(no_server) => Err(PeerError::Unsupported(format!(
            "{} speaks neither A2A nor MCP: for A2A it was asked for an agent card ({no_agent}); for MCP it was asked to introduce itself ({no_server})",
            agent.address()
        ))),
    }
}

fn a2a(url: &Url, options: &PeerConnectOptions) -> Arc<dyn Peer> {
    let PeerConnectOptions { authorizer, tls, dialect, every_event: logs, .. } = options.clone();
    let mut options = A2aPeerOptions { authorizer, dialect, logs, ..A2aPeerOptions::default() };
    options.http.tls = tls;
    Arc::new(A2aPeer::new(url.clone(), options))
}

fn mcp(place: &PeerLocation, options: &PeerConnectOptions) -> Result<Arc<dyn Peer>, PeerError> {
    let version = match options.revision.as_deref() {
        None => None,
        Some(revision) => Some(McpVersion::parse(revision).ok_or_else(|| {
            PeerError::Unsupported(format!("MCP has no revision {revision:?} that is known here"))
        })?),
    };
    let (authorizer, log_level) = (options.authorizer.clone(), options.log_level.clone());
    let (tls, events) = (options.tls.clone(), options.every_event);
    let own = McpPeerOptions { version, authorizer, tls, log_level, events, ..McpPeerOptions::default() };
    Ok(Arc::new(McpPeer::new(place.clone(), own)))
}
