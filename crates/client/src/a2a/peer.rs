//! A2A agents as a [`Peer`]: one agent by its card, or all agents of a Nuncio server by its list of them.
//!
//! `agents.rs` finds out who is there, `line.rs` makes requests in the caller's name, `call.rs` follows one call
//! through cuts, `told.rs` says what happens in the words of the engine, `question.rs` turns what is asked into
//! questions and answers into messages.

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
use super::A2aHttpOptions;
use crate::{
    auth::Authorizer,
    peer::{CallHandle, Peer, PeerCall, PeerCallRequest, PeerCapability, PeerError, PeerProtocol},
};

/// How agents are spoken to.
#[derive(Clone)]
pub struct A2aPeerOptions {
    /// Who we are to them.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// The generation to speak; `None`: the first of the card that is known here.
    pub dialect: Option<Dialect>,
    /// Whether the address of a Nuncio server stands for all of its agents; else for the default one.
    pub whole_server: bool,
    /// How requests are made.
    pub http: A2aHttpOptions,
    /// How long an agent may be away in the middle of a call before the call is given up.
    pub away: Duration,
    /// How soon a task is looked at again where there are no streams. It gets slower, up to [`A2aPeerOptions::slowest`].
    pub poll: Duration,
    /// How slow that gets.
    pub slowest: Duration,
    /// Whether log lines are wanted, too, where the agent has the extension for them.
    pub logs: bool,
}

impl Default for A2aPeerOptions {
    fn default() -> Self {
        Self {
            authorizer: None,
            dialect: None,
            whole_server: true,
            // A stranger without streams may hold the answer until the work is done.
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
    /// Whoever is at that address: an agent, its card, or a Nuncio server. Nobody is called yet.
    pub fn new(url: Url, mut options: A2aPeerOptions) -> Self {
        // A cut is mended here, in more ways than the client knows.
        options.http.resumes = 0;
        Self { url, options: Arc::new(options), directory: Mutex::default() }
    }

    /// What leads back to a task that somebody began, by its id: to all that it said from its beginning, where the
    /// agent has cursors; else to where it stands.
    pub async fn task(&self, task: &str) -> Result<CallHandle, PeerError> {
        let found = match self.found() {
            Some(found) => found,
            None => self.find().await?,
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

    /// Looks who is there now.
    async fn find(&self) -> Result<Arc<AgentDirectory>, PeerError> {
        let found = Arc::new(agents::find(&self.url, &self.options).await?);
        *self.directory.lock() = Some(Arc::clone(&found));
        Ok(found)
    }

    fn found(&self) -> Option<Arc<AgentDirectory>> {
        self.directory.lock().clone()
    }

    /// The agent of that name. Who is not known may have come since.
    async fn agent(&self, name: &str) -> Result<Arc<KnownAgent>, PeerError> {
        if let Some(known) = self.found().and_then(|found| found.agent(name)) {
            return Ok(known);
        }
        let found = self.find().await.map_err(|error| error.into_read_error(&self.address()))?;
        // One that stands alone is the one that is meant, whatever it calls itself by now.
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
        let found = self.find().await?;
        Ok(found.agents.iter().map(|agent| agent.offer.clone()).collect())
    }

    async fn wait_for_change(&self) {
        // Cards do not tell when they change: whoever wants to know looks again.
        std::future::pending::<()>().await;
    }

    async fn check_reachable(&self) -> Result<(), PeerError> {
        agents::check_reachable(&self.url, &self.options).await
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
