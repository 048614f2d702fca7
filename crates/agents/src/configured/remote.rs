//! Agents that stand for somebody elsewhere: an A2A agent, or an MCP server whose tools are the agent's skills.
//!
//! Both stand on a [`Peer`], so that there is one durable way to call, to follow, to ask and to stop (`run.rs`).
//! `profile.rs` says how the agent presents itself, `watch.rs` notices when that changes, `choose.rs` finds out
//! which tool a message means, `conversation.rs` keeps the other side's name of a conversation, `access.rs` who we are to them, `pool.rs` keeps calls alive whose task waits for an
//! answer, `withdraw.rs` takes a question back that
//! was closed over there.

mod access;
mod artifacts;
mod choose;
mod conversation;
mod form;
mod pool;
mod profile;
mod run;
mod turn;
mod watch;
mod withdraw;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    a2a::{A2aOptions, A2aPeer},
    mcp::{McpOptions, McpPeer},
    peer::{Offer, Peer, Protocol},
};
use nuncio_engine::{Agent, AgentError, Outcome, Probe, Profile, TaskContext};
use nuncio_wire::{a2a::Dialect, mcp::McpVersion};
use parking_lot::RwLock;

use super::{
    AgentSpec, Made, SpecError,
    spec::{A2aSpec, Lost, McpSpec},
};

pub use self::access::{sign_in, sign_out};

/// How long others may be away.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long it is tried to begin a call, before the task fails.
    pub begin: Duration,
    /// How long it is tried to go on with one.
    pub resume: Duration,
    /// How soon it is tried again, at first.
    pub again: Duration,
    /// How often it is looked what is offered, where nobody tells.
    pub look: Duration,
    /// How long one that was replaced is kept at most for calls that go on; a call may wait for a person.
    pub retire: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            begin: Duration::from_secs(20),
            resume: Duration::from_secs(300),
            again: Duration::from_millis(200),
            look: Duration::from_secs(300),
            retire: Duration::from_secs(24 * 3600),
        }
    }
}

/// What a remote agent is made of.
pub struct Remote {
    /// Who does the work.
    pub peer: Arc<dyn Peer>,
    /// What becomes of a call that was lost.
    pub lost: Lost,
    /// Tools that are offered; empty: all.
    pub tools: Vec<String>,
    /// How long others may be away.
    pub patience: Patience,
}

impl Remote {
    /// An agent that stands for this peer.
    pub fn new(peer: Arc<dyn Peer>) -> Self {
        Self { peer, lost: Lost::default(), tools: vec![], patience: Patience::default() }
    }

    /// The agent of that table over this peer.
    pub fn make(self, spec: &AgentSpec) -> Made {
        let there = Arc::new(There {
            remote: self,
            spec: spec.clone(),
            offers: RwLock::default(),
            used: Arc::default(),
        });
        let agent = Arc::new(RemoteAgent::new(Arc::clone(&there)));
        Made { living: Some(Arc::new(watch::Watch::new(there, agent.profile()))), agent }
    }
}

/// An agent of kind `a2a`.
pub(super) fn a2a(spec: &AgentSpec, own: &A2aSpec) -> Result<Made, SpecError> {
    let dialect = match own.dialect.as_deref() {
        None => None,
        Some(version) => match Dialect::from_version(version) {
            Some(dialect) => Some(dialect),
            None => return Err(spec.wrong("dialect", format!("expected 1.0, 0.3 or 0.1, not {version:?}"))),
        },
    };
    let options = A2aOptions {
        authorizer: access::authorizer(spec)?,
        dialect,
        whole_server: false,
        ..A2aOptions::default()
    };
    let peer = Arc::new(A2aPeer::new(own.url.expose().clone(), options));
    let patience = patience(own.patience, own.away);
    Ok(Remote { lost: own.lost, patience, ..Remote::new(peer) }.make(spec))
}

/// An agent of kind `mcp`.
pub(super) fn mcp(spec: &AgentSpec, own: &McpSpec) -> Result<Made, SpecError> {
    let place = own.place().map_err(|why| spec.wrong("command", why))?;
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
    let authorizer = access::authorizer(spec)?;
    let options = McpOptions { version, authorizer, silence: own.silence, ..McpOptions::default() };
    let peer = Arc::new(McpPeer::new(place, options));
    let patience = patience(own.patience, own.away);
    Ok(Remote { lost: own.lost, tools: own.tools.clone(), patience, ..Remote::new(peer) }.make(spec))
}

fn patience(begin: Duration, resume: Duration) -> Patience {
    Patience { begin, resume, ..Patience::default() }
}

/// The other side, and what is known of it.
struct There {
    remote: Remote,
    spec: AgentSpec,
    /// What it offered when it was last looked.
    offers: RwLock<Option<Arc<[Offer]>>>,
    /// Held by every task that is at work with it, and by every call that goes on.
    used: Arc<()>,
}

impl There {
    fn peer(&self) -> &Arc<dyn Peer> {
        &self.remote.peer
    }

    /// Held by whoever needs the other side.
    fn hold(&self) -> Arc<()> {
        Arc::clone(&self.used)
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.used) > 1
    }

    fn known(&self) -> Option<Arc<[Offer]>> {
        self.offers.read().clone()
    }

    /// What it offers now, as far as the table lets it.
    async fn look(&self) -> Result<Arc<[Offer]>, nuncio_client::peer::PeerError> {
        let tools = &self.remote.tools;
        let offers = self.peer().offers().await?;
        let allowed = offers.into_iter().filter(|offer| tools.is_empty() || tools.contains(&offer.name));
        let offers: Arc<[Offer]> = allowed.collect();
        *self.offers.write() = Some(Arc::clone(&offers));
        Ok(offers)
    }

    fn has_tools(&self) -> bool {
        self.peer().protocol() == Protocol::Mcp
    }
}

/// An agent that stands for somebody elsewhere, as that one presented itself when it was made.
struct RemoteAgent {
    there: Arc<There>,
    profile: Profile,
}

impl RemoteAgent {
    fn new(there: Arc<There>) -> Self {
        let profile = profile::of(&there.spec, there.has_tools(), there.known().as_deref());
        Self { there, profile }
    }
}

#[async_trait]
impl Agent for RemoteAgent {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        run::run(&self.there, &cx).await
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(Looks(Arc::clone(self.there.peer()))))
    }

    fn works_elsewhere(&self) -> bool {
        true
    }
}

struct Looks(Arc<dyn Peer>);

#[async_trait]
impl Probe for Looks {
    async fn look(&self) -> Result<(), String> {
        self.0.look().await.map_err(|error| error.to_string())
    }
}
