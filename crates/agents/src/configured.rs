//! Agents that are made of configuration: a program, an endpoint, a model, somebody's MCP server or A2A agent.
//!
//! `spec.rs` is what a table `[[agent]]` says, checked; each kind has a file that makes an agent of it.

mod filled;
mod guarded;
mod http;
mod llm;
mod process;
mod protocol;
pub mod remote;
pub mod spec;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::Agent;

use self::{http::HttpAgent, process::ProcessAgent};

pub use self::spec::{AgentSpec, Kind, SpecError};

/// An agent that was made of configuration.
pub struct Made {
    /// The agent, as it presents itself now.
    pub agent: Arc<dyn Agent>,
    /// What has to be watched and let go of, where the agent stands for something that lives.
    pub living: Option<Arc<dyn Living>>,
}

/// Something behind an agent that may come and go, and present itself in another way than before.
#[async_trait]
pub trait Living: Send + Sync + 'static {
    /// Returns when the agent presents itself in another way, with the agent that does so. It is asked again then.
    async fn renewed(&self) -> Arc<dyn Agent>;

    /// Lets go of connections and child processes. The agent is not in the catalog any more.
    async fn close(&self);

    /// The same, once the calls that go on have ended: another agent is in the catalog now, and a task that is under
    /// way keeps the one that it began with.
    async fn retire(&self) {
        self.close().await;
    }
}

/// Makes an agent of a table. Nothing is started and nobody is called yet.
pub fn make(spec: &AgentSpec) -> Result<Made, SpecError> {
    let made = |agent: Arc<dyn Agent>| Made { agent, living: None };
    let made = match &spec.kind {
        Kind::Process(process) => Ok(made(Arc::new(ProcessAgent::new(spec, process)?))),
        Kind::Http(http) => Ok(made(Arc::new(HttpAgent::new(spec, http)?))),
        Kind::A2a(own) => remote::a2a(spec, own),
        Kind::Mcp(own) => remote::mcp(spec, own),
        Kind::Llm(llm) => llm::make(spec, llm),
    };
    made.map(|made| guarded::guard(made, &spec.known))
        .map_err(|error| SpecError { why: spec.known.clean(&error.why).into_owned(), ..error })
}
