//! The network prober: asks a peer how it describes itself. An A2A agent has its card, an MCP server its handshake.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    a2a::{A2aHttpOptions, A2aPeer, A2aPeerOptions, TrustedCardKeys, WELL_KNOWN},
    auth::Authorizer,
    mcp::{DeclaredCapabilities, McpPeer, McpPeerOptions},
    peer::{Peer, PeerDescription, PeerLocation},
};
use nuncio_outbound::TlsClientOptions;
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

/// Maximum bytes of a card, or of a message of a server.
const MAX_CARD: usize = 256 * 1024;

/// A remote that the operator configured.
#[derive(Clone)]
pub struct RegistryRemote {
    /// The name in this server's registry.
    pub name: String,
    /// The address: of an A2A agent the URL above `/.well-known/agent-card.json`, or that of its card; of an
    /// MCP server its endpoint.
    pub url: Url,
    /// The protocol of the remote.
    pub kind: RemoteKind,
    /// The credentials for it, if it requires any.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// The keys that must have signed its card, if it is an A2A agent. `None`: the card is not verified.
    pub card_keys: Option<Arc<TrustedCardKeys>>,
    /// Whom to trust beside the system's CAs, and the client's certificate.
    pub tls: TlsClientOptions,
}

impl fmt::Debug for RegistryRemote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, url, kind, authorizer, card_keys: _, tls: _ } = self;
        let mut out = out.debug_struct("RegistryRemote");
        out.field("name", name).field("host", &url.host_str()).field("kind", kind);
        out.field("authorized", &authorizer.is_some()).finish_non_exhaustive()
    }
}

/// The protocol of a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteKind {
    /// An A2A agent.
    A2a,
    /// An MCP server.
    Mcp,
}

impl RemoteKind {
    /// Its name in JSON and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::A2a => "a2a",
            Self::Mcp => "mcp",
        }
    }
}

/// The result of a successful probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeFindings {
    /// The card of an A2A agent.
    pub card: Option<Value>,
    /// The name and version of an MCP server.
    pub server_info: Option<Value>,
    /// The skills of an agent, or the capabilities of an MCP server.
    pub capabilities: Vec<String>,
}

/// Probes remotes. A trait, so that tests can inject their own.
#[async_trait]
pub trait Prober: Send + Sync + 'static {
    /// Probes one remote, or returns why it failed. It needs no timeout of its own: the caller sets one.
    async fn probe(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String>;
}

/// Probes over the network, at whatever address the operator configured.
pub struct NetworkProber {
    timeout: Duration,
    /// The peers by the names of their remotes. A peer retains no connection between two probes.
    peers: Mutex<BTreeMap<String, Arc<dyn Peer>>>,
}

impl NetworkProber {
    /// A prober with that timeout.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, peers: Mutex::default() }
    }

    fn peer(&self, remote: &RegistryRemote) -> Arc<dyn Peer> {
        let mut peers = self.peers.lock();
        Arc::clone(peers.entry(remote.name.clone()).or_insert_with(|| self.connect(remote)))
    }

    fn connect(&self, remote: &RegistryRemote) -> Arc<dyn Peer> {
        let timeout = self.timeout;
        match remote.kind {
            RemoteKind::A2a => {
                let http = A2aHttpOptions {
                    connect_timeout: timeout,
                    answer_timeout: timeout,
                    max_answer: MAX_CARD,
                    tls: remote.tls.clone(),
                    ..A2aHttpOptions::default()
                };
                let options = A2aPeerOptions {
                    whole_server: false,
                    authorizer: remote.authorizer.clone(),
                    card_keys: remote.card_keys.clone(),
                    http,
                    ..A2aPeerOptions::default()
                };
                Arc::new(A2aPeer::new(card_url(&remote.url), options))
            }
            RemoteKind::Mcp => {
                let options = McpPeerOptions {
                    declared: DeclaredCapabilities { forms: false, links: false, sampling: false },
                    connect_timeout: timeout,
                    request_timeout: timeout,
                    silence: timeout,
                    max_message: MAX_CARD,
                    authorizer: remote.authorizer.clone(),
                    tls: remote.tls.clone(),
                    ..McpPeerOptions::default()
                };
                Arc::new(McpPeer::new(PeerLocation::Url(remote.url.clone()), options))
            }
        }
    }
}

#[async_trait]
impl Prober for NetworkProber {
    async fn probe(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        let described = self.peer(remote).describe().await.map_err(|error| error.to_string())?;
        let PeerDescription { document, capabilities } = described;
        let (card, server_info) = match remote.kind {
            RemoteKind::A2a => (document, None),
            RemoteKind::Mcp => (None, document),
        };
        Ok(ProbeFindings { card, server_info, capabilities })
    }
}

/// The URL of an agent's card.
fn card_url(url: &Url) -> Url {
    let mut card = url.clone();
    if !url.path().ends_with(".json") {
        card.set_path(&format!("{}{WELL_KNOWN}", url.path().trim_end_matches('/')));
    }
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_stands_beneath_the_address_of_its_agent() {
        let check = |url: &str, expected: &str| {
            assert_eq!(card_url(&url.parse().unwrap()).as_str(), expected);
        };
        check("http://a.example", "http://a.example/.well-known/agent-card.json");
        check("http://a.example/agents/x/", "http://a.example/agents/x/.well-known/agent-card.json");
        check("http://a.example/my/card.json", "http://a.example/my/card.json");
        check("http://a.example/?key=1", "http://a.example/.well-known/agent-card.json?key=1");
    }
}
