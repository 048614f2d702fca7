//! Finds out what somebody speaks, and connects to them.
//!
//! A command is an MCP server on pipes. At an address there may be an agent card, then it is A2A; or an MCP
//! endpoint. Where both are (a Nuncio server), it is A2A unless the caller wants the other.

use std::sync::Arc;

use nuncio_wire::{a2a::Dialect, mcp::McpVersion};
use url::Url;

use super::{Peer, PeerError, PeerLocation, PeerProtocol};
use crate::{
    a2a::{A2aPeer, A2aPeerOptions},
    auth::Authorizer,
    mcp::{McpLogLevel, McpPeer, McpPeerOptions},
};

/// How to connect.
#[derive(Clone, Default)]
pub struct PeerConnectOptions {
    /// Who we are to them.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// What they speak; `None`: find out.
    pub protocol: Option<PeerProtocol>,
    /// The generation of A2A to speak; `None`: what the card prefers.
    pub dialect: Option<Dialect>,
    /// The revision of MCP to speak; `None`: the newest that both know.
    pub revision: Option<String>,
    /// From which level on log lines are wanted, where the protocol lets one say so.
    pub log_level: McpLogLevel,
    /// Whether every event of a task is wanted, also log lines and what happened while nobody followed, where the
    /// server has an extension for that.
    pub every_event: bool,
}

/// Connects to whoever is there. The error says what was tried, and where.
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
        // The host is not there: neither would an MCP endpoint be.
        Err(error @ PeerError::Unreachable { .. }) if !is_no_card(&error) => return Err(error),
        Err(error) => error,
    };
    let server = mcp(place, options)?;
    match server.check_reachable().await {
        Ok(()) => Ok(server),
        // It is one, and wants to know who is calling.
        Err(error @ PeerError::Unauthorized { .. }) => Err(error),
        Err(no_server) => Err(PeerError::Unsupported(format!(
            "{} speaks neither A2A nor MCP: for A2A it was asked for an agent card ({no_agent}); for MCP it was asked to introduce itself ({no_server})",
            agent.address()
        ))),
    }
}

/// Whether somebody answered, and had no card.
fn is_no_card(error: &PeerError) -> bool {
    matches!(error, PeerError::Unreachable { why, .. } if why.starts_with("there is no agent card"))
}

fn a2a(url: &Url, options: &PeerConnectOptions) -> Arc<dyn Peer> {
    let PeerConnectOptions { authorizer, dialect, every_event: logs, .. } = options.clone();
    Arc::new(A2aPeer::new(
        url.clone(),
        A2aPeerOptions { authorizer, dialect, logs, ..A2aPeerOptions::default() },
    ))
}

fn mcp(place: &PeerLocation, options: &PeerConnectOptions) -> Result<Arc<dyn Peer>, PeerError> {
    let version = match options.revision.as_deref() {
        None => None,
        Some(revision) => Some(McpVersion::parse(revision).ok_or_else(|| {
            PeerError::Unsupported(format!("MCP has no revision {revision:?} that is known here"))
        })?),
    };
    let (authorizer, log_level) = (options.authorizer.clone(), options.log_level.clone());
    let events = options.every_event;
    let own = McpPeerOptions { version, authorizer, log_level, events, ..McpPeerOptions::default() };
    Ok(Arc::new(McpPeer::new(place.clone(), own)))
}
