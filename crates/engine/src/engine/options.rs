//! What an operator may set. Every limit has a name and a default.

use std::time::Duration;

use crate::{
    access_control::AccessOptions,
    memory::{MemoryLimits, Privacy},
    usage::{MeteredResource, Share, UsageLimits},
};

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tasks that run on this node at once: so many that callers sent, and so many that other tasks called. One tenant
    /// may use all of it; tenants that have little find a quarter more.
    pub max_running: usize,
    /// Tasks that may wait for one of them to end. One tenant may use all of it; a tenant of which fewer than a
    /// sixteenth wait is let in beyond.
    pub max_queued: u64,
    /// How long this node's tasks stay its own without a sign of life.
    pub lease: Duration,
    /// How long a canceled agent may tidy up.
    pub cancel_grace: Duration,
    /// How long an agent may run, waiting not counted, when its profile says nothing.
    pub time_limit: Duration,
    /// How long a task waits for its agent when that is not served here any more, before it fails.
    pub missing_agent: Duration,
    /// How long a run has to live before it is believed not to take the process down with it, where processes died
    /// under it before.
    pub probation: Duration,
    /// How long ended tasks are kept.
    pub retention: Duration,
    /// Bytes of ended tasks that are kept in memory for those who ask again.
    pub ended_cache_bytes: usize,
    /// Bytes that all requests together hold in memory: bodies that were read, tasks that are being read, answers that
    /// are not sent yet. A tenant gets at most as much as is still free.
    pub bytes_in_flight: u64,
    /// The same for one caller, at most half of all.
    pub bytes_in_flight_per_caller: u64,
    /// How often ended tasks are looked through.
    pub expiry_poll: Duration,
    /// The longest wait before due tasks are looked for again.
    pub claim_poll: Duration,
    /// How long a graceful stop may take.
    pub stop_within: Duration,
    /// Whether a repeated message id alone marks a repeated send.
    pub idempotent_message_ids: bool,
    /// Caps on what one task may hold.
    pub limits: Limits,
    /// Caps on what the memory bank holds and does.
    pub memory: MemoryLimits,
    /// What becomes of values of the memory bank that look like secrets.
    pub privacy: Privacy,
    /// How often counted reads of the memory bank are written.
    pub reads_flush: Duration,
    /// How often entries, records and lines of the audit are looked for whose time has come.
    pub sweep_poll: Duration,
    /// How callers are let through.
    pub access: AccessOptions,
    /// What one owner, one tenant and all together may use at once, and what one tenant may store.
    pub usage: UsageLimits,
    /// How long after the last time it is measured again what tenants store.
    pub measure_interval: Duration,
}

/// Caps on what one task may hold.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Events in the log.
    pub events_per_task: u64,
    /// Bytes of content in the log.
    pub bytes_per_task: u64,
    /// Bytes of content on a page of a list, or one task whatever its size.
    pub page_bytes: u64,
    /// Messages in the history.
    pub messages_per_task: usize,
    /// Parts of one message.
    pub parts_per_message: usize,
    /// Webhooks.
    pub webhooks_per_task: usize,
    /// Tasks that call each other in a row.
    pub call_depth: u32,
    /// Tasks that are ever made below one that a caller sent, by calls within calls.
    pub tasks_per_root: u64,
    /// Of those, how many are in memory on one node at once; the others wait. Each depth of calls may have a few beyond.
    pub running_per_root: usize,
    /// How much of the processors tenants use together while several are active, in percent: a tenant that uses more
    /// than its fair part of it waits; 0: as much as there is.
    pub cpu_percent: u32,
    /// Bytes of an id that a client chooses (task, context, message, key, webhook).
    pub id_bytes: usize,
    /// What a tool's schema of another server may cost: the schemas that one value is held against, with references
    /// multiplied out. One limit of the process.
    pub schema_cost: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_running: 10_000,
            max_queued: 10_000,
            lease: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            time_limit: Duration::from_secs(3600),
            missing_agent: Duration::from_secs(300),
            probation: Duration::from_secs(5),
            retention: Duration::from_secs(30 * 24 * 3600),
            ended_cache_bytes: 32 * 1024 * 1024,
            bytes_in_flight: 512 * 1024 * 1024,
            bytes_in_flight_per_caller: 128 * 1024 * 1024,
            expiry_poll: Duration::from_secs(60),
            claim_poll: Duration::from_secs(1),
            stop_within: Duration::from_secs(20),
            idempotent_message_ids: false,
            limits: Limits::default(),
            memory: MemoryLimits::default(),
            privacy: Privacy::default(),
            reads_flush: Duration::from_secs(3),
            sweep_poll: Duration::from_secs(5),
            access: AccessOptions::default(),
            usage: default_usage(),
            measure_interval: Duration::from_secs(60),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events_per_task: 500_000,
            bytes_per_task: 32 * 1024 * 1024,
            page_bytes: 4 * 1024 * 1024,
            messages_per_task: 10_000,
            parts_per_message: 1_000,
            webhooks_per_task: 16,
            call_depth: 16,
            tasks_per_root: 20_000,
            running_per_root: 1_000,
            cpu_percent: 75,
            id_bytes: 256,
            schema_cost: crate::surface::MAX_SCHEMA_COST,
        }
    }
}

/// A tenant searches no more than two namespaces at once, and waits for its own. Tokens have a generous bound.
fn default_usage() -> UsageLimits {
    let mut usage = UsageLimits::default();
    usage.set(MeteredResource::Tokens, Share { tenant: Some(10_000), ..Share::default() });
    usage.set(MeteredResource::Scans, Share { owner: Some(2), tenant: Some(2), total: None });
    usage
}
