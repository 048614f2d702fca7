//! The built-in agents, one file each, and those that are made of configuration (`configured.rs`, `fleet.rs`).
//!
//! They show what an agent can do here (stream, report progress, log, ask a person, ask a model, go on after
//! a restart) and need no account anywhere: what they book and find out is simulated. They stand on the
//! engine's `Agent` and know no protocol.

mod argument;
mod bench;
pub mod configured;
mod echo;
pub mod fleet;
mod long_running;
mod pace;
mod redirect;
mod research;
mod travel;

use std::{sync::Arc, time::Duration};

use nuncio_engine::Agent;

pub use bench::BenchAgent;
pub use echo::EchoAgent;
pub use fleet::Fleet;
pub use long_running::LongRunningAgent;
pub use research::ResearchAgent;
pub use travel::TravelAgent;

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// How long one simulated step of work takes.
    pub step: Duration,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self { step: Duration::from_secs(2) }
    }
}

/// The agents that every server has. The first is the default one. [`BenchAgent`] is not among them: it is
/// served only when it is asked for.
pub fn built_in(options: &AgentOptions) -> Vec<Arc<dyn Agent>> {
    vec![
        Arc::new(EchoAgent),
        Arc::new(TravelAgent::new(options)),
        Arc::new(ResearchAgent::new(options)),
        Arc::new(LongRunningAgent::new(options)),
    ]
}
