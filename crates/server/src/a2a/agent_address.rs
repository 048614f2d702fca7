//! The agent that a request is for: that of its path, the one that its tenant names, or the default one.
//!
//! A2A's `tenant` is the name of an agent here, and never a tenant of this server, which follows from the credentials.

use std::sync::Arc;

use nuncio_engine::{Caller, catalog::RegisteredAgent};

use crate::app::App;

/// An agent, and the caller as it is known at the agent's address.
pub(super) struct AgentAddress {
    pub(super) agent: Arc<RegisteredAgent>,
    /// At an agent's own address only the tasks of that agent exist. The root reaches all tasks of the caller: a client
    /// that knows only the server finds the tasks of every agent there.
    pub(super) caller: Caller,
}

/// Finds the agent; the error is for the client.
pub(super) fn find(
    app: &App,
    in_path: Option<&str>,
    tenant: Option<&str>,
    caller: Caller,
) -> Result<AgentAddress, String> {
    let catalog = app.engine.catalog();
    let name = match (in_path, tenant) {
        (Some(agent), Some(tenant)) if agent != tenant => {
            return Err(format!("the tenant {tenant:?} is not at /agents/{agent}: a tenant names an agent"));
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => {
            let agent = catalog.default_agent().ok_or("this server has no agents")?;
            return Ok(AgentAddress { agent, caller });
        }
    };
    let agent = catalog.get(name).map_err(|error| error.to_string())?;
    let caller = caller.at_agent(agent.profile.name.as_str());
    Ok(AgentAddress { agent, caller })
}
