//! The built-in agents, one file each, and the configured ones (`configured.rs`, `fleet.rs`).
//!
//! The built-in agents demonstrate what an agent can do (stream, report progress, log, ask a person, ask a
//! model, continue after a restart) and need no external account: their bookings and findings are simulated.
//! They use the engine's `Agent` trait and know no protocol.

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

/// Settings of the built-in agents.
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

/// The agents that every server has. The first is the default. [`BenchAgent`] is not among them: it has to
/// be enabled explicitly.
pub fn built_in(options: &AgentOptions) -> Vec<Arc<dyn Agent>> {
    vec![
        Arc::new(EchoAgent),
        Arc::new(TravelAgent::new(options)),
        Arc::new(ResearchAgent::new(options)),
        Arc::new(LongRunningAgent::new(options)),
    ]
}
