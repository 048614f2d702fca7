//! The network prober: fetches the card of an A2A agent, and performs the handshake with an MCP server.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    a2a::{A2aHttpOptions, CardReference, WELL_KNOWN, fetch_card},
    mcp::{self, HandshakeMethod},
};
use nuncio_outbound::{AddressPolicy, Outbound, OutboundOptions};
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

/// Maximum bytes of a card.
const MAX_CARD: usize = 256 * 1024;

/// A remote that the operator configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRemote {
    /// The name in this server's registry.
    pub name: String,
    /// The address: of an A2A agent the URL above `/.well-known/agent-card.json`, or that of its card; of an
    /// MCP server its endpoint.
    pub url: Url,
    /// The protocol of the remote.
    pub kind: RemoteKind,
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

/// Probes over the network. Private addresses are allowed, because the operator configured them.
pub struct NetworkProber {
    timeout: Duration,
    outbound: Result<Outbound, String>,
    /// MCP servers that require `initialize`; their next probe begins with it.
    with_sessions: Mutex<BTreeSet<String>>,
}

impl NetworkProber {
    /// A prober with that timeout.
    pub fn new(timeout: Duration) -> Self {
        let options = OutboundOptions {
            policy: AddressPolicy { allow_private: true },
            connect_timeout: timeout,
            timeout,
            max_answer: MAX_CARD,
        };
        let outbound = Outbound::new(options).map_err(|error| error.to_string());
        Self { timeout, outbound, with_sessions: Mutex::default() }
    }

    async fn agent(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        let options = A2aHttpOptions {
            connect_timeout: self.timeout,
            answer_timeout: self.timeout,
            max_answer: MAX_CARD,
            ..A2aHttpOptions::default()
        };
        let card = fetch_card(&CardReference::Url(card_url(&remote.url)), &options).await;
        let card = card.map_err(|error| error.to_string())?;
        let card: Value = serde_json::from_str(card.json.get()).map_err(|error| error.to_string())?;
        let skills = card["skills"].as_array().into_iter().flatten();
        let capabilities = skills.filter_map(|skill| skill["id"].as_str().map(str::to_owned)).collect();
        Ok(ProbeFindings { card: Some(card), server_info: None, capabilities })
    }

    async fn server(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        let outbound = self.outbound.as_ref().map_err(Clone::clone)?;
        let known = self.with_sessions().contains(&remote.name);
        let first = if known { HandshakeMethod::Initialize } else { HandshakeMethod::Discover };
        let introduced = mcp::probe(outbound, &remote.url, first).await.map_err(|error| error.to_string())?;
        match introduced.greeting {
            HandshakeMethod::Initialize => self.with_sessions().insert(remote.name.clone()),
            HandshakeMethod::Discover => self.with_sessions().remove(&remote.name),
        };
        Ok(ProbeFindings {
            card: None,
            server_info: introduced.server_info,
            capabilities: introduced.capabilities,
        })
    }

    fn with_sessions(&self) -> parking_lot::MutexGuard<'_, BTreeSet<String>> {
        self.with_sessions.lock()
    }
}

#[async_trait]
impl Prober for NetworkProber {
    async fn probe(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        match remote.kind {
            RemoteKind::A2a => self.agent(remote).await,
            RemoteKind::Mcp => self.server(remote).await,
        }
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
