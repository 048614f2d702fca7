//! A [`Peer`] for A2A: one agent by its card, or all agents of a Nuncio server by its list.
//!
//! `agents.rs` discovers agents, `authorized_client.rs` sends requests with the caller's token, `call.rs`
//! follows one call across disconnects, `event_translator.rs` converts A2A events to call events,
//! `question.rs` converts A2A's `input-required` to questions and answers to messages.

mod agents;
mod authorized_client;
mod call;
pub(crate) mod event_translator;
mod fault;
mod question;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_wire::a2a::Dialect;
use parking_lot::Mutex;
use url::Url;

use self::{
    agents::{AgentDirectory, KnownAgent},
    authorized_client::AuthorizedClient,
    call::CallFeed,
};
use super::{A2aBinding, A2aHttpOptions, CardCache, CardFreshness, TrustedCardKeys};
use crate::{
    auth::Authorizer,
    peer::{
        CallHandle, Peer, PeerCall, PeerCallRequest, PeerCapability, PeerDescription, PeerError, PeerProtocol,
    },
};

/// Options of an A2A peer.
#[derive(Clone)]
pub struct A2aPeerOptions {
    /// Supplies the tokens for requests.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// The protocol version to speak; `None`: the first one on the card that this client knows.
    pub dialect: Option<Dialect>,
    /// The only binding to use; `None`: the card's order.
    pub transport: Option<A2aBinding>,
    /// Extensions that the caller knows, beside those of this client, and declares in every request.
    pub extensions: Vec<String>,
    /// The cards that were read.
    pub cards: CardCache,
    /// The keys that must have signed a card. `None`: cards are not verified.
    pub card_keys: Option<Arc<TrustedCardKeys>>,
    /// Whether the address of a Nuncio server stands for all of its agents, or only for the default one.
    pub whole_server: bool,
    /// Options of the HTTP layer.
    pub http: A2aHttpOptions,
    /// How long an agent may be unreachable during a call before the call fails. Each outage has the whole time.
    pub away: Duration,
    /// The first interval for polling a task without streams. It grows up to [`A2aPeerOptions::slowest`].
    pub poll: Duration,
    /// The longest polling interval.
    pub slowest: Duration,
    /// Whether to request log lines, where the agent has the extension for them.
    pub logs: bool,
}

impl Default for A2aPeerOptions {
    fn default() -> Self {
        Self {
            authorizer: None,
            dialect: None,
            transport: None,
            extensions: vec![],
            cards: CardCache::default(),
            card_keys: None,
            whole_server: true,
            // An agent without streams may hold back its response until the work is done.
            http: A2aHttpOptions { answer_timeout: Duration::from_secs(300), ..A2aHttpOptions::default() },
            away: Duration::from_secs(120),
            poll: Duration::from_millis(250),
            slowest: Duration::from_secs(5),
            logs: false,
        }
    }
}

/// An A2A agent, or the agents of a Nuncio server.
pub struct A2aPeer {
    url: Url,
    options: Arc<A2aPeerOptions>,
    directory: Mutex<Option<Arc<AgentDirectory>>>,
}

impl A2aPeer {
    /// A peer at that address: an agent, its card, or a Nuncio server. Sends no request yet.
    pub fn new(url: Url, mut options: A2aPeerOptions) -> Self {
        // `reconnect.rs` handles disconnects, with more fallbacks than the client has.
        options.http.resumes = 0;
        Self { url, options: Arc::new(options), directory: Mutex::default() }
    }

    /// A handle for an existing task, by its id. If the agent has cursors it replays all events from the
    /// beginning; otherwise it continues from the current state.
    pub async fn task(&self, task: &str) -> Result<CallHandle, PeerError> {
        let found = match self.found() {
            Some(found) => found,
            None => self.find(CardFreshness::Fresh).await?,
        };
        let mut first = None;
        for agent in &found.agents {
            match call::handle_of(&self.client_for(Arc::clone(agent)), task).await {
                Ok(handle) => return Ok(handle),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(first.unwrap_or_else(|| PeerError::Gone(format!("{} has no agents", self.address()))))
    }

    /// Discovers the agents again.
    async fn find(&self, freshness: CardFreshness) -> Result<Arc<AgentDirectory>, PeerError> {
        let found = Arc::new(agents::find(&self.url, &self.options, freshness).await?);
        *self.directory.lock() = Some(Arc::clone(&found));
        Ok(found)
    }

    fn found(&self) -> Option<Arc<AgentDirectory>> {
        self.directory.lock().clone()
    }

    /// The agent of that name. An unknown name triggers a new discovery, because the agent may be new.
    async fn agent(&self, name: &str) -> Result<Arc<KnownAgent>, PeerError> {
        if let Some(known) = self.found().and_then(|found| found.agent(name)) {
            return Ok(known);
        }
        let found = self
            .find(CardFreshness::Revalidated)
            .await
            .map_err(|error| error.into_read_error(&self.address()))?;
        // A single agent is the one that is meant, even if it has changed its name.
        let alone = || (!self.options.whole_server).then(|| found.agents.first().cloned()).flatten();
        found.agent(name).or_else(alone).ok_or_else(|| {
            let names: Vec<_> = found.agents.iter().map(|agent| agent.offer.name.as_str()).collect();
            PeerError::Refused(format!(
                "{} has no agent {name:?}; there is {}",
                self.address(),
                names.join(", ")
            ))
        })
    }

    fn client_for(&self, agent: Arc<KnownAgent>) -> AuthorizedClient {
        AuthorizedClient::new(agent, Arc::clone(&self.options))
    }
}

#[async_trait]
impl Peer for A2aPeer {
    fn protocol(&self) -> PeerProtocol {
        PeerProtocol::A2a
    }

    fn address(&self) -> String {
        agents::shown(&self.url)
    }

    fn name(&self) -> Option<String> {
        self.found().map(|found| found.name.clone())
    }

    async fn list_capabilities(&self) -> Result<Vec<PeerCapability>, PeerError> {
        let found = self.find(CardFreshness::Fresh).await?;
        Ok(found.agents.iter().map(|agent| agent.offer.clone()).collect())
    }

    async fn wait_for_change(&self) {
        // Cards do not announce changes: a caller that needs to know has to poll.
        std::future::pending::<()>().await;
    }

    async fn check_reachable(&self) -> Result<(), PeerError> {
        agents::check_reachable(&self.url, &self.options).await
    }

    async fn describe(&self) -> Result<PeerDescription, PeerError> {
        agents::describe(&self.url, &self.options).await
    }

    async fn begin(&self, begin: PeerCallRequest) -> Result<PeerCall, PeerError> {
        let line = self.client_for(self.agent(&begin.offer).await?);
        Ok(call::follow(CallFeed::begin(line, begin).await?))
    }

    async fn resume(&self, handle: &CallHandle) -> Result<PeerCall, PeerError> {
        let agent = self.agent(&handle.offer).await.map_err(|error| match error {
            PeerError::Refused(why) => PeerError::Gone(why),
            other => other,
        });
        let line = self.client_for(agent?);
        Ok(call::follow(CallFeed::resume(line, handle).await?))
    }

    async fn close(&self) {}
}
