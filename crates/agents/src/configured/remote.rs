//! Agents for remote peers: an A2A agent, or an MCP server whose tools are the agent's skills.
//!
//! Both use a [`Peer`], so there is one durable way to call, follow, ask and cancel (`run.rs`). `profile.rs`
//! builds the agent's profile, `watch.rs` detects its changes, `select_tool.rs` finds the tool that a
//! message means, `conversation.rs` stores the peer's id of a conversation, `credentials.rs` supplies
//! tokens, `parked_calls.rs` holds calls whose task waits for an answer, `withdraw.rs` withdraws a question
//! that was closed at the peer.

mod artifacts;
mod conversation;
mod credentials;
mod form;
mod parked_calls;
mod profile;
mod run;
mod select_tool;
mod turn;
mod watch;
mod withdraw;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    a2a::{A2aBinding, A2aPeer, A2aPeerOptions, TrustedCardKeys},
    mcp::{McpPeer, McpPeerOptions},
    peer::{Peer, PeerCapability, PeerProtocol},
};
use nuncio_engine::{Agent, AgentError, Outcome, Probe, Profile, TaskContext};
use nuncio_wire::{a2a::Dialect, mcp::McpVersion};
use parking_lot::RwLock;

use super::{
    AgentKind, AgentSpec, BuiltAgent, SpecError,
    spec::{A2aSpec, LostCallPolicy, McpSpec},
};

pub use self::credentials::{authorizer, sign_in, sign_out, tls};

/// The shortest limit for a connection.
const SHORTEST_CONNECT: Duration = Duration::from_secs(1);

/// Time limits for an unreachable peer.
#[derive(Debug, Clone, Copy)]
pub struct RemoteTimeouts {
    /// How long to retry beginning a call before the task fails.
    pub begin: Duration,
    /// How long to retry opening a call again. While it is open, the peer's own options bound an outage.
    pub resume: Duration,
    /// The first backoff.
    pub first_pause: Duration,
    /// How often to poll the peer's capabilities, if it does not announce changes.
    pub look: Duration,
    /// How long a replaced agent is retained for its running calls; a call may wait for a person.
    pub retire: Duration,
}

impl Default for RemoteTimeouts {
    fn default() -> Self {
        Self {
            begin: Duration::from_secs(20),
            resume: Duration::from_secs(300),
            first_pause: Duration::from_millis(200),
            look: Duration::from_secs(300),
            retire: Duration::from_secs(24 * 3600),
        }
    }
}

/// The parts of a remote agent.
pub struct RemoteAgentBuilder {
    /// The peer that does the work.
    pub peer: Arc<dyn Peer>,
    /// What to do about a lost call.
    pub lost: LostCallPolicy,
    /// The tools to expose; empty: all.
    pub tools: Vec<String>,
    /// Time limits for an unreachable peer.
    pub patience: RemoteTimeouts,
}

impl RemoteAgentBuilder {
    /// An agent for this peer, with default settings.
    pub fn new(peer: Arc<dyn Peer>) -> Self {
        Self { peer, lost: LostCallPolicy::default(), tools: vec![], patience: RemoteTimeouts::default() }
    }

    /// Builds the agent of that table for this peer.
    pub fn build(self, spec: &AgentSpec) -> BuiltAgent {
        let there = Arc::new(RemoteSide {
            remote: self,
            spec: spec.clone(),
            offers: RwLock::default(),
            used: Arc::default(),
        });
        let agent = Arc::new(RemoteAgent::new(Arc::clone(&there)));
        BuiltAgent { managed: Some(Arc::new(watch::RemoteWatch::new(there, agent.profile()))), agent }
    }
}

/// Builds an agent of kind `a2a`.
pub(super) fn a2a(spec: &AgentSpec, own: &A2aSpec) -> Result<BuiltAgent, SpecError> {
    let dialect = match own.dialect.as_deref() {
        None => None,
        Some(version) => match Dialect::from_version(version) {
            Some(dialect) => Some(dialect),
            None => return Err(spec.wrong("dialect", format!("expected 1.0, 0.3 or 0.1, not {version:?}"))),
        },
    };
    let transport = match own.transport.as_deref() {
        None => None,
        Some(name) => match A2aBinding::from_name(name) {
            Some(binding) => Some(binding),
            None => {
                let known = A2aBinding::ALL.map(A2aBinding::name).join(", ");
                return Err(spec.wrong("transport", format!("expected one of {known}, not {name:?}")));
            }
        },
    };
    let mut options = A2aPeerOptions {
        authorizer: authorizer(spec)?,
        card_keys: card_keys(spec)?,
        dialect,
        transport,
        extensions: own.declare_extensions.clone(),
        whole_server: false,
        away: own.away,
        ..A2aPeerOptions::default()
    };
    options.http.tls = tls(spec)?;
    options.http.connect_timeout = connect_timeout(options.http.connect_timeout, own.patience);
    let peer = Arc::new(A2aPeer::new(own.url.expose().clone(), options));
    let patience = patience(own.patience, own.away);
    Ok(RemoteAgentBuilder { lost: own.lost, patience, ..RemoteAgentBuilder::new(peer) }.build(spec))
}

/// The keys that must have signed the card of a remote agent, if its table names any.
pub fn card_keys(spec: &AgentSpec) -> Result<Option<Arc<TrustedCardKeys>>, SpecError> {
    let AgentKind::A2a(A2aSpec { card_keys: Some(keys), .. }) = &spec.kind else { return Ok(None) };
    match TrustedCardKeys::read(keys.expose()) {
        Ok(keys) => Ok(Some(Arc::new(keys))),
        Err(why) => Err(spec.wrong("card-keys", why)),
    }
}

/// Builds an agent of kind `mcp`.
pub(super) fn mcp(spec: &AgentSpec, own: &McpSpec) -> Result<BuiltAgent, SpecError> {
    let place = own.location().map_err(|why| spec.wrong("command", why))?;
    let version = match own.revision.as_deref() {
        None => None,
        Some(revision) => match McpVersion::parse(revision) {
            Some(version) => Some(version),
            None => {
                let known: Vec<_> = McpVersion::ALL.iter().map(|version| version.name()).collect();
                let why = format!("expected one of {}, not {revision:?}", known.join(", "));
                return Err(spec.wrong("revision", why));
            }
        },
    };
    let authorizer = authorizer(spec)?;
    let mut options = McpPeerOptions {
        version,
        authorizer,
        tls: tls(spec)?,
        silence: own.silence,
        away: own.away,
        ..McpPeerOptions::default()
    };
    options.connect_timeout = connect_timeout(options.connect_timeout, own.patience);
    let peer = Arc::new(McpPeer::new(place, options));
    let patience = patience(own.patience, own.away);
    Ok(RemoteAgentBuilder {
        lost: own.lost,
        tools: own.tools.clone(),
        patience,
        ..RemoteAgentBuilder::new(peer)
    }
    .build(spec))
}

/// The limit for one connection: not longer than a call may take to begin, so that an address that drops
/// packets does not exceed it by much.
fn connect_timeout(default: Duration, patience: Duration) -> Duration {
    default.min(patience.max(SHORTEST_CONNECT))
}

fn patience(begin: Duration, resume: Duration) -> RemoteTimeouts {
    RemoteTimeouts { begin, resume, ..RemoteTimeouts::default() }
}

/// The peer, and what is known of it.
struct RemoteSide {
    remote: RemoteAgentBuilder,
    spec: AgentSpec,
    /// The last list of capabilities.
    offers: RwLock<Option<Arc<[PeerCapability]>>>,
    /// Held by every running task and every open call of the peer; its count shows whether the peer is in
    /// use.
    used: Arc<()>,
}

impl RemoteSide {
    fn peer(&self) -> &Arc<dyn Peer> {
        &self.remote.peer
    }

    /// Marks the peer as in use while the result is held.
    fn hold(&self) -> Arc<()> {
        Arc::clone(&self.used)
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.used) > 1
    }

    fn cached_capabilities(&self) -> Option<Arc<[PeerCapability]>> {
        self.offers.read().clone()
    }

    /// Reads the peer's capabilities, filtered by the table.
    async fn refresh_capabilities(&self) -> Result<Arc<[PeerCapability]>, nuncio_client::peer::PeerError> {
        let tools = &self.remote.tools;
        let offers = self.peer().list_capabilities().await?;
        let allowed = offers.into_iter().filter(|offer| tools.is_empty() || tools.contains(&offer.name));
        let offers: Arc<[PeerCapability]> = allowed.collect();
        *self.offers.write() = Some(Arc::clone(&offers));
        Ok(offers)
    }

    fn has_tools(&self) -> bool {
        self.peer().protocol() == PeerProtocol::Mcp
    }
}

/// An agent for a peer, with the profile that the peer had when the agent was built.
struct RemoteAgent {
    side: Arc<RemoteSide>,
    profile: Profile,
}

impl RemoteAgent {
    fn new(side: Arc<RemoteSide>) -> Self {
        let profile = profile::of(&side.spec, side.has_tools(), side.cached_capabilities().as_deref());
        Self { side, profile }
    }
}

#[async_trait]
impl Agent for RemoteAgent {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        run::run(&self.side, &cx).await
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(RemoteProbe(Arc::clone(self.side.peer()))))
    }

    fn works_elsewhere(&self) -> bool {
        true
    }
}

struct RemoteProbe(Arc<dyn Peer>);

#[async_trait]
impl Probe for RemoteProbe {
    async fn check_reachable(&self) -> Result<(), String> {
        self.0.check_reachable().await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::configured::spec::AgentKind;

    #[test]
    fn a_transport_is_one_that_the_client_speaks() {
        let built = |transport: &str| {
            let table =
                json!({ "name": "far", "kind": "a2a", "url": "http://127.0.0.1:1", "transport": transport });
            let spec = AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap();
            let AgentKind::A2a(own) = &spec.kind else { panic!("an agent of A2A") };
            a2a(&spec, own).map(|_| ()).map_err(|error| error.to_string())
        };
        for transport in ["JSONRPC", "HTTP+JSON", "GRPC", "grpc"] {
            assert_eq!(built(transport), Ok(()), "{transport}");
        }
        let refused = built("SOAP").unwrap_err();
        assert!(refused.contains("expected one of JSONRPC, HTTP+JSON, GRPC, not \"SOAP\""), "{refused}");
    }
}
