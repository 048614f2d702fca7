//! Agents built from configuration: a program, an HTTP endpoint, a language model, an MCP server or a remote
//! A2A agent.
//!
//! `spec.rs` parses and checks an `[[agent]]` table; each kind has a file that builds the agent.

mod card_spec;
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
use nuncio_engine::{Agent, Catalog};

use self::{http::HttpAgent, process::ProcessAgent};

pub use self::spec::{AgentKind, AgentSpec, SpecError};

/// An agent built from configuration.
pub struct BuiltAgent {
    /// The agent with its current profile.
    pub agent: Arc<dyn Agent>,
    /// What has to be watched and closed, if the agent depends on a remote server or a process.
    pub managed: Option<Arc<dyn ManagedAgent>>,
}

/// The remote server or process behind an agent, whose profile may change while it runs.
#[async_trait]
pub trait ManagedAgent: Send + Sync + 'static {
    /// Waits until the agent's profile changes, and returns the agent with the new one. Called again after
    /// each change.
    async fn wait_for_update(&self) -> Arc<dyn Agent>;

    /// Closes connections and child processes. Called when the agent is no longer in the catalog.
    async fn close(&self);

    /// Closes once the running calls have ended. The catalog has another agent by now, but running tasks
    /// keep the one that they began with.
    async fn retire(&self) {
        self.close().await;
    }
}

/// Why tools that a model's table names are not offered by any agent.
pub(crate) fn unoffered_tools(
    catalog: &Catalog,
    spec: &AgentSpec,
    is_elsewhere: impl Fn(&str) -> bool,
) -> Vec<String> {
    match &spec.kind {
        AgentKind::Llm(llm) => llm::unoffered_tools(catalog, llm, is_elsewhere),
        _ => vec![],
    }
}

/// Builds an agent from a table. Starts no process and sends no request yet.
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
