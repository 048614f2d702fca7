//! The options of an engine. Every limit has a name and a default.

use std::time::Duration;

use super::retention::RetentionByState;
use crate::{
    access_control::AccessOptions,
    memory::{MemoryLimits, Privacy},
    question_limit::QuestionLimit,
    usage::{MeteredResource, Share, UsageLimits},
};

/// The options of an engine, set by the operator.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most tasks that run on this node at once. It applies twice: to tasks that callers sent, and to tasks
    /// that other tasks called. One tenant may use all of it; a quarter more is reserved for tenants with few
    /// tasks.
    pub max_running: usize,
    /// The most tasks that may wait for a slot. One tenant may use all of it; a tenant with fewer than a
    /// sixteenth of it waiting is admitted beyond it.
    pub max_queued: u64,
    /// How long this node keeps its tasks without a heartbeat.
    pub lease: Duration,
    /// How long a canceled agent may clean up before it is dropped.
    pub cancel_grace: Duration,
    /// How long an agent may run, waiting not counted, unless its profile sets another limit.
    pub time_limit: Duration,
    /// How long a task waits for an agent that is no longer served before the task fails.
    pub missing_agent: Duration,
    /// How long a run must live, after processes died under it, before it counts as harmless to the process.
    pub probation: Duration,
    /// How long a task may wait for an answer before it fails, unless its agent's profile sets another limit.
    pub question_limit: QuestionLimit,
    /// How long finished tasks are retained, unless their state or their agent's profile sets another time.
    pub retention: Duration,
    /// How long finished tasks are retained, by the state in which they ended.
    pub retention_by_state: RetentionByState,
    /// Bytes of the in-memory cache of finished tasks.
    pub ended_cache_bytes: usize,
    /// Bytes that all requests together hold in memory: request bodies, tasks being read, responses not sent yet.
    /// A tenant gets at most as much as is still free.
    pub bytes_in_flight: u64,
    /// Bytes in flight of one caller, at most half of `bytes_in_flight`.
    pub bytes_in_flight_per_caller: u64,
    /// How often finished tasks past their retention are deleted, and tasks that nobody answers are ended.
    pub expiry_poll: Duration,
    /// The longest wait between two polls for due tasks.
    pub claim_poll: Duration,
    /// How long a graceful stop may take.
    pub stop_within: Duration,
    /// Whether a repeated message id counts as a retry of the same send, without an idempotency key.
    pub idempotent_message_ids: bool,
    /// Caps on the size of one task.
    pub limits: Limits,
    /// Caps on tasks that call each other.
    pub calls: CallLimits,
    /// Bytes of content on one page of a list. A page holds at least one task, whatever its size.
    pub page_bytes: u64,
    /// The percentage of the processors that tenants share while several are active. A tenant that uses more than
    /// its fair part of it waits. 0: no limit.
    pub cpu_percent: u32,
    /// The cost limit for tool schemas of other servers: how many schemas one value is checked against, with
    /// references expanded. One limit for the whole process.
    pub schema_cost: u64,
    /// Caps on the size and the searches of the memory bank.
    pub memory: MemoryLimits,
    /// What to do with values of the memory bank that look like secrets.
    pub privacy: Privacy,
    /// How often counted reads of the memory bank are flushed to the store.
    pub reads_flush: Duration,
    /// How many entries of the memory bank may have reads that are not in the store. Then they are flushed before
    /// `reads_flush` has passed. At most 65,536.
    pub reads_waiting: usize,
    /// How often expired memory entries, records and audit lines are deleted.
    pub sweep_poll: Duration,
    /// Access control: rates, the audit and its retention.
    pub access: AccessOptions,
    /// What one owner, one tenant and all together may use at once, and what one tenant may store.
    pub usage: UsageLimits,
    /// The pause between two measurements of what tenants store.
    pub measure_interval: Duration,
    /// The length of one interval of the pulse.
    pub pulse_interval: Duration,
    /// The interval at which the gauges of the whole store are read.
    pub figures_interval: Duration,
}

/// Caps on the size of one task.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Events in its log.
    pub events_per_task: u64,
    /// Bytes of content in its log.
    pub bytes_per_task: u64,
    /// Messages in its history.
    pub messages_per_task: usize,
    /// Parts of one message.
    pub parts_per_message: usize,
    /// Bytes of the metadata of a request, and of a message with its parts, as JSON.
    pub metadata_bytes: usize,
    /// Webhooks of one task.
    pub webhooks_per_task: usize,
    /// Bytes of an id chosen by a client (task, context, message, key, webhook).
    pub id_bytes: usize,
    /// How long a list waits for the end of its caller's, or its tenant's, others before it is refused.
    pub list_wait: Duration,
    /// Lines of the audit that are read for one page of it.
    pub audit_lines_read: usize,
    /// Tasks of one selection.
    pub selected_tasks: usize,
    /// Selections of one caller; the oldest give way.
    pub selections_per_caller: usize,
    /// Reads for one selection, each of at most 1,000 tasks that match.
    pub selection_reads: usize,
    /// How long a selection can be used.
    pub selection_life: Duration,
}

/// Caps on tasks that call each other.
#[derive(Debug, Clone)]
pub struct CallLimits {
    /// The longest chain of tasks that call each other.
    pub call_depth: u32,
    /// Tasks ever created in the call tree below one task that a caller sent.
    pub tasks_per_root: u64,
    /// How many tasks of one call tree are in memory on one node at once; the others wait. Each depth may exceed
    /// it by a few.
    pub running_per_root: usize,
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
            // An approval that nobody gave in a quarter is not coming, and a task that waits without end holds a row for ever.
            question_limit: QuestionLimit::After(Duration::from_secs(90 * 24 * 3600)),
            retention: Duration::from_secs(30 * 24 * 3600),
            retention_by_state: RetentionByState::default(),
            ended_cache_bytes: 32 * 1024 * 1024,
            bytes_in_flight: 512 * 1024 * 1024,
            bytes_in_flight_per_caller: 128 * 1024 * 1024,
            expiry_poll: Duration::from_secs(60),
            claim_poll: Duration::from_secs(1),
            stop_within: Duration::from_secs(20),
            idempotent_message_ids: false,
            limits: Limits::default(),
            calls: CallLimits::default(),
            page_bytes: 4 * 1024 * 1024,
            cpu_percent: 75,
            schema_cost: crate::surface::MAX_SCHEMA_COST,
            memory: MemoryLimits::default(),
            privacy: Privacy::default(),
            reads_flush: Duration::from_secs(30),
            reads_waiting: 32_768,
            sweep_poll: Duration::from_secs(5),
            access: AccessOptions::default(),
            usage: default_usage(),
            measure_interval: Duration::from_secs(60),
            pulse_interval: Duration::from_secs(10),
            figures_interval: Duration::from_secs(15),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events_per_task: 500_000,
            bytes_per_task: 32 * 1024 * 1024,
            messages_per_task: 10_000,
            parts_per_message: 1_000,
            metadata_bytes: 64 * 1024,
            webhooks_per_task: 16,
            id_bytes: 256,
            list_wait: Duration::from_secs(5),
            audit_lines_read: 20_000,
            selected_tasks: 10_000,
            selections_per_caller: 16,
            selection_reads: 100,
            selection_life: Duration::from_secs(3600),
        }
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { call_depth: 16, tasks_per_root: 20_000, running_per_root: 1_000 }
    }
}

/// A tenant runs at most two memory searches and two lists at once, a caller one list, and they queue their others. Tokens
/// have a generous bound.
fn default_usage() -> UsageLimits {
    let mut usage = UsageLimits::default();
    usage.set(MeteredResource::Tokens, Share { tenant: Some(10_000), ..Share::default() });
    usage.set(MeteredResource::Scans, Share { owner: Some(2), tenant: Some(2), total: None });
    usage.set(MeteredResource::Lists, Share { owner: Some(1), tenant: Some(2), total: None });
    usage
}
