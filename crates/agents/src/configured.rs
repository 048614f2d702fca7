//! Agents that are made of configuration: a program, an endpoint, a model, somebody's MCP server or A2A agent.
//!
//! `spec.rs` is what a table `[[agent]]` says, checked; each kind has a file that makes an agent of it.

mod filled_text;
mod guarded_agent;
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

pub use self::spec::{AgentKind, AgentSpec, SpecError};

/// An agent that was made of configuration.
pub struct BuiltAgent {
    /// The agent, as it presents itself now.
    pub agent: Arc<dyn Agent>,
    /// What has to be watched and let go of, where the agent stands for something that lives.
    pub managed: Option<Arc<dyn ManagedAgent>>,
}

/// Something behind an agent that may come and go, and present itself in another way than before.
#[async_trait]
pub trait ManagedAgent: Send + Sync + 'static {
    /// Returns when the agent presents itself in another way, with the agent that does so. It is asked again then.
    async fn wait_for_update(&self) -> Arc<dyn Agent>;

    /// Lets go of connections and child processes. The agent is not in the catalog any more.
    async fn close(&self);

    /// The same, once the calls that go on have ended: another agent is in the catalog now, and a task that is under
    /// way keeps the one that it began with.
    async fn retire(&self) {
        self.close().await;
    }
}

/// Makes an agent of a table. Nothing is started and nobody is called yet.
pub fn build_agent(spec: &AgentSpec) -> Result<BuiltAgent, SpecError> {
    let made = |agent: Arc<dyn Agent>| BuiltAgent { agent, managed: None };
    let made = match &spec.kind {
        AgentKind::Process(process) => Ok(made(Arc::new(ProcessAgent::new(spec, process)?))),
        AgentKind::Http(http) => Ok(made(Arc::new(HttpAgent::new(spec, http)?))),
        AgentKind::A2a(own) => remote::a2a(spec, own),
        AgentKind::Mcp(own) => remote::mcp(spec, own),
        AgentKind::Llm(llm) => llm::make(spec, llm),
    };
    made.map(|made| guarded_agent::guard(made, &spec.known))
        .map_err(|error| SpecError { why: spec.known.clean(&error.why).into_owned(), ..error })
}
