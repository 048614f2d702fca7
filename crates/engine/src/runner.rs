//! The runner: executes agents on claimed tasks.
//!
//! A `Driver` holds one agent's future and its `Lease`. It polls the agent, commits what the agent emits
//! while the agent continues, and ends in one of four ways: the task ends, the task is parked, the task is
//! handed back at shutdown, or the lease is lost and everything is dropped. The claim loop finds tasks that
//! no node runs.

mod claim;
mod driver;
mod lease;
mod missing_agents;
mod probation;
mod ready_queue;

use std::time::Duration;

pub(crate) use claim::claim_loop;
pub(crate) use driver::Driver;
pub(crate) use lease::Lease;
pub(crate) use missing_agents::MissingAgents;
pub(crate) use probation::{Probation, Suspicion};
pub(crate) use ready_queue::ReadyQueues;

/// The backoff between retries at a store that is full or unreachable.
const STORE_RETRY: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];
