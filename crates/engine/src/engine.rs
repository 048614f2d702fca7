//! The engine's public API: one method per operation, free of any transport. Every protocol binding wraps
//! these methods and nothing else.

mod background;
mod inbox;
mod log_page;
mod measure;
mod nodes;
mod options;
mod overview;
pub(crate) mod pulse;
mod queue;
mod retention;
mod selections;
mod slots;
mod store_access;
mod store_figures;
mod task_journal;
pub(crate) mod task_log;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use inbox::{ClosedQuestion, Inbox, InboxQuestion, InboxWatch, MAX_WAITING_TASKS, QuestionClosure};
pub use log_page::{LogPage, LogRange, TaskAt};
pub use measure::StorageMeter;
pub use nodes::{MAX_NODES, NodeDescription, NodeList, NodeStatus};
pub use options::{CallLimits, Limits, Options};
pub use overview::{
    DetailedTask, MAX_FILTER_AGENTS, MAX_ROWS_READ, OverviewFacets, OverviewPage, OverviewQuery,
    OverviewScope, OverviewWatch, TaskFamily, TaskOverview,
};
pub use pulse::{MAX_PULSE_AGENTS, OTHER_AGENTS, PULSE_INTERVALS, PulseCounts, PulseInterval, PulseWatch};
pub use retention::RetentionByState;
pub(crate) use slots::{CalledSlot, Slot, TreeUse};
pub use task_journal::{EffectKind, JournaledEffect, RunEnd, RunSpan, TaskJournal};
pub use task_log::TASK_LOG_TARGET;

pub use selections::Selection;

pub use crate::commands::submit::StartedTask;

use crate::{
    access::{AccessKind, Action, Caller, TASKS},
    access_control::{AccessControl, AccessRequest},
    admin::{self, Admin},
    agent::{Profile, Sampler},
    byte_budget::{ByteBudget, BytePermit},
    catalog::Catalog,
    clock::{Clock, SystemClock, Timestamp},
    commands::{
        list,
        reply::Reply,
        submit::{EventSource, Submit, stopping},
    },
    cpu_share::CpuShares,
    error::Error,
    event::{Entry, Event},
    finished_cache::FinishedTaskCache,
    follow::{Follower, FollowerHub, Next, Nudge},
    master_key::MasterKey,
    memory::Reads,
    question::Answer,
    redact::Redactor,
    refusal_log::count_refusal,
    run::TaskRun,
    runner,
    store::{NodeId, OpenedTask, Store, TaskKey, TaskRow},
    task::{Origin, State, Task, TaskId},
    task_header::{self, TaskHeader},
    trace::{Span, Trace, Tracer},
    usage::{TenantUsage, UsageLedger},
    webhook::WebhookConfig,
};

/// Checks whether a webhook's address is acceptable. The error text is shown to the caller.
pub type WebhookCheck = dyn Fn(&WebhookConfig) -> Result<(), String> + Send + Sync;

/// The components an engine is built from.
pub struct EngineParts {
    /// The backend that stores tasks.
    pub store: Arc<dyn Store>,
    /// The agents that this node serves.
    pub catalog: Catalog,
    /// The operator's configuration.
    pub options: Options,
    /// The source of time, ids and randomness; tests replace it.
    pub clock: Arc<dyn Clock>,
    /// Checks webhooks before they are stored.
    pub check_webhook: Box<WebhookCheck>,
    /// Receives the spans of finished work, for traces.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The server's own model, used where the caller has none.
    pub sampler: Option<Arc<dyn Sampler>>,
}

impl EngineParts {
    /// An engine of these agents on this store; everything else has its default.
    pub fn new(store: Arc<dyn Store>, catalog: Catalog) -> Self {
        Self {
            store,
            catalog,
            options: Options::default(),
            clock: Arc::new(SystemClock),
            check_webhook: Box::new(|_| Ok(())),
            tracer: None,
            sampler: None,
        }
    }
}

/// What is known of a task without reading its log.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSummary {
    /// The task's immutable attributes, set when it was created.
    pub origin: Origin,
    /// The current state.
    pub state: State,
    /// The sequence number of its last event.
    pub seq: u64,
    /// Data that the binding stored when it created the task, to read back later.
    pub request: Option<Value>,
}

/// Durable tasks. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<EngineCore>);

pub(crate) struct EngineCore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Catalog,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) check_webhook: Box<WebhookCheck>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) sampler: Option<Arc<dyn Sampler>>,
    pub(crate) guard: AccessControl,
    /// The operator's orders, such as suspended tenants.
    pub(crate) admin: Admin,
    /// What owners and tenants use on this node.
    pub(crate) usage: Arc<UsageLedger>,
    /// The processor time that tenants use.
    pub(crate) cpu: CpuShares,
    pub(crate) ready: runner::ReadyQueues,
    /// Meters of what other modules store for tenants.
    meters: Mutex<Vec<Arc<dyn StorageMeter>>>,
    /// Triggers a measurement of tenants' storage now.
    measure: Notify,
    pub(crate) master_key: MasterKey,
    pub(crate) node: NodeId,
    pub(crate) hub: Arc<FollowerHub>,
    pub(crate) ended: FinishedTaskCache,
    /// Bytes that requests hold in memory.
    pub(crate) bytes: ByteBudget,
    /// Reads of the memory bank.
    pub(crate) reads: Reads,
    /// Wakes the claim loop.
    pub(crate) claims: Notify,
    /// Wakes the outbox, which delivers webhooks.
    pub(crate) outbox: Arc<Notify>,
    /// Wakes overviews when a task was created or has changed its state on this node.
    pub(crate) state_changes: watch::Sender<()>,
    runs: Mutex<HashMap<TaskId, Arc<TaskRun>>>,
    /// Tasks whose agent this node does not serve at present.
    pub(crate) missing: runner::MissingAgents,
    /// Tasks during which a process died.
    pub(crate) probation: runner::Probation,
    slots: slots::Slots,
    queue: queue::ClaimQueue,
    /// Tasks that are claimed and wait for a slot.
    pub(crate) waiting_claims: Mutex<HashSet<TaskId>>,
    /// When this node last sent its heartbeat.
    beaten: Mutex<Option<Instant>>,
    /// When this node began.
    started_at: Timestamp,
    /// Where this node listens.
    address: Mutex<Option<String>>,
    /// What this node did in the last hour.
    pub(crate) pulse: pulse::Pulse,
    pub(crate) node_metrics: store_figures::NodeMetrics,
    closing: watch::Sender<bool>,
}

impl Engine {
    /// Starts an engine. It resumes the tasks that an earlier process left, and runs until [`Engine::stop`].
    pub async fn start(parts: EngineParts) -> Result<Self, Error> {
        let EngineParts { store, catalog, options, clock, check_webhook, tracer, sampler } = parts;
        crate::surface::limit_foreign_cost(options.schema_cost);
        let ended = FinishedTaskCache::new(options.ended_cache_bytes);
        let master_key = MasterKey::load(&*store, &*clock).await?;
        let usage = UsageLedger::new(options.usage.clone());
        let started_at = clock.now();
        let inner = Arc::new(EngineCore {
            bytes: ByteBudget::new(&usage, options.bytes_in_flight, options.bytes_in_flight_per_caller),
            guard: AccessControl::new(&options.access),
            admin: Admin::default(),
            usage,
            cpu: CpuShares::new(options.cpu_percent),
            ready: runner::ReadyQueues::new(),
            meters: Mutex::default(),
            measure: Notify::new(),
            master_key,
            node: NodeId(clock.new_id()),
            reads: Reads::new(options.reads_waiting),
            store,
            catalog,
            options,
            clock,
            check_webhook,
            tracer,
            sampler,
            hub: Arc::default(),
            ended,
            claims: Notify::new(),
            outbox: Arc::default(),
            state_changes: watch::Sender::new(()),
            runs: Mutex::default(),
            missing: runner::MissingAgents::default(),
            probation: runner::Probation::new(),
            slots: slots::Slots::default(),
            queue: queue::ClaimQueue::default(),
            waiting_claims: Mutex::default(),
            beaten: Mutex::default(),
            started_at,
            address: Mutex::default(),
            pulse: pulse::Pulse::default(),
            node_metrics: store_figures::NodeMetrics::new(),
            closing: watch::Sender::new(false),
        });
        if let Some(news) = inner.store.notifications() {
            tokio::spawn(background::news_loop(Arc::clone(&inner), news));
        }
        if inner.store.is_shared() {
            tokio::spawn(background::follow_loop(Arc::clone(&inner)));
            if inner.guard.has_rates() {
                tokio::spawn(background::rates_loop(Arc::clone(&inner)));
            }
        }
        // Before the first request is served: a tenant that the operator suspended is refused from the start.
        inner.follow_orders().await?;
        inner.beat().await?;
        inner.recount().await?;
        tokio::spawn(background::heartbeat_loop(Arc::clone(&inner)));
        tokio::spawn(runner::claim_loop(Arc::clone(&inner)));
        tokio::spawn(admin::orders_loop(Arc::clone(&inner)));
        tokio::spawn(background::expiry_loop(Arc::clone(&inner)));
        tokio::spawn(background::unanswered_loop(Arc::clone(&inner)));
        tokio::spawn(background::audit_loop(Arc::clone(&inner)));
        tokio::spawn(background::reads_loop(Arc::clone(&inner)));
        tokio::spawn(background::sweep_loop(Arc::clone(&inner)));
        tokio::spawn(background::list_loop(Arc::clone(&inner)));
        tokio::spawn(measure::measure_loop(Arc::clone(&inner)));
        tokio::spawn(pulse::pulse_loop(Arc::clone(&inner)));
        tokio::spawn(store_figures::figures_loop(Arc::clone(&inner)));
        tokio::spawn(store_figures::refusals_loop(Arc::clone(&inner)));
        Ok(Self(inner))
    }

    /// Refuses new work, ends all followers with their cursor, hands running tasks back, and closes the
    /// store.
    pub async fn stop(&self) {
        self.0.closing.send_replace(true);
        let handed_back = async {
            while !self.0.lock_runs().is_empty() || self.0.slots.held() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(self.0.options.stop_within, handed_back).await.is_err() {
            tracing::warn!("some tasks were not handed back in time; they resume after the next start");
        }
        self.0.guard.flush_audit(&self.0.store).await;
        self.0.reads.flush(&self.0).await;
        // Ends the lease now, so that other nodes need not wait until it expires.
        if let Err(error) = self.0.store.heartbeat(self.0.node, Timestamp(0)).await {
            tracing::warn!(%error, "could not end this node's lease; other nodes wait until it expires");
        }
        self.0.record_node(true).await;
        if let Err(error) = self.0.store.close().await {
            tracing::warn!(%error, "could not close the store cleanly");
        }
    }

    /// Begins a stop without waiting for it: followers end, and new work is refused.
    pub fn begin_stop(&self) {
        self.0.closing.send_replace(true);
    }

    /// The agents that this node serves.
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// The operator's configuration.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Derives the key for one purpose. It is the same on all nodes and after every restart, and different
    /// for every purpose and every database.
    pub fn derive_key(&self, purpose: &str) -> [u8; 32] {
        self.0.master_key.derive(purpose)
    }

    /// The id of this run of the server process.
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// Notified whenever a webhook may have something to deliver.
    pub fn outbox(&self) -> Arc<Notify> {
        Arc::clone(&self.0.outbox)
    }

    /// Changes whenever a task of any caller is created or changes its state on this node. It only saves time: what other
    /// nodes do is found by polling.
    pub fn state_changes(&self) -> watch::Receiver<()> {
        self.0.state_changes.subscribe()
    }

    /// The clock that the whole engine uses.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Becomes true when the engine begins to stop.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.0.closing()
    }

    /// How many tasks run here (without those that wait for another task), and about how many are queued.
    pub fn load(&self) -> (usize, u64) {
        (self.0.slots.running(), self.0.queued())
    }

    /// The ledger of what owners and tenants use on this node.
    pub fn usage(&self) -> &Arc<UsageLedger> {
        &self.0.usage
    }

    /// The processor time that tenants use, and the throttling of tenants that exceed their share.
    pub fn cpu(&self) -> &CpuShares {
        &self.0.cpu
    }

    /// What each tenant uses on this node, for the operator.
    pub fn usage_report(&self) -> Vec<TenantUsage> {
        self.0.usage.report()
    }

    /// Checks that a caller may access a shared resource; the error gives the reason. See
    /// [`crate::access_control`].
    pub fn allow(&self, caller: &Caller, access: &AccessRequest<'_>) -> Result<(), Error> {
        self.check_open(caller, access)?;
        self.0.guard.allow(caller, access, self.0.clock.now())
    }

    /// Like [`Engine::allow`], for a list that is filtered to what the caller may see: a grant for any part
    /// of it is enough.
    pub fn allow_some(&self, caller: &Caller, access: &AccessRequest<'_>) -> Result<(), Error> {
        self.check_open(caller, access)?;
        self.0.guard.allow_some(caller, access, self.0.clock.now())
    }

    /// Refuses callers of a tenant that is not served, and audits the refusal.
    fn check_open(&self, caller: &Caller, access: &AccessRequest<'_>) -> Result<(), Error> {
        let Err(error) = self.0.admin.check_open(caller.tenant()) else { return Ok(()) };
        count_refusal("tenant-suspended");
        self.note_refused(caller, access, &error.to_string())?;
        Err(error)
    }

    /// Writes to the audit log a refusal that was decided elsewhere, before there was a resource to check.
    pub fn note_refused(&self, caller: &Caller, access: &AccessRequest<'_>, why: &str) -> Result<(), Error> {
        self.0.guard.note(caller, access, Some(why.to_owned()), self.0.clock.now())
    }

    /// Writes all pending audit entries to the store.
    pub async fn flush_audit(&self) {
        self.0.guard.flush_audit(&self.0.store).await;
    }

    /// Filters secrets out of text that other parties will read.
    pub fn redactor(&self) -> &Arc<Redactor> {
        self.0.guard.redactor()
    }

    /// Notifies subscribers, here and on other nodes, that the content of a tenant's resource has changed.
    pub fn notify_changed(&self, tenant: &str, uri: &str) {
        self.0.notify_changed(tenant, uri);
    }

    /// Notifies that a tenant's list of resources has changed. Debounced: changes within one second are one
    /// notification.
    pub fn list_changed(&self, tenant: &str) {
        self.0.catalog.surface().list_changes().add(tenant);
    }

    /// Like [`Engine::notify_changed`], for all resources of a tenant whose URIs begin with `prefix`.
    pub fn notify_changed_within(&self, tenant: &str, prefix: &str) {
        self.0.notify_changed_within(tenant, prefix);
    }

    /// Creates a task and returns when it is durable. An agent that only computes has finished by then.
    pub async fn submit(&self, caller: &Caller, submit: Submit) -> Result<Task, Error> {
        self.allow_send(caller, &submit)?;
        let task = self.0.submit(caller, submit).await?;
        self.list_changed(caller.tenant());
        Ok(task)
    }

    /// Like [`Engine::submit`], with the events that were committed with it.
    pub async fn begin(&self, caller: &Caller, submit: Submit) -> Result<StartedTask, Error> {
        self.allow_send(caller, &submit)?;
        let begun = self.0.begin(caller, submit).await?;
        self.list_changed(caller.tenant());
        Ok(begun)
    }

    fn allow_send(&self, caller: &Caller, submit: &Submit) -> Result<(), Error> {
        let resource = format_args!("a2a://agents/{}", submit.agent);
        let (action, name) = (Action::Execute, submit.agent.as_str());
        let operation = "task.send";
        self.allow(
            caller,
            &AccessRequest { action, kind: AccessKind::A2a, name, operation, resource: &resource },
        )
    }

    pub(crate) fn allow_task(
        &self,
        caller: &Caller,
        action: Action,
        operation: &'static str,
        task: &str,
    ) -> Result<(), Error> {
        let resource = format_args!("a2a://tasks/{task}");
        self.allow(
            caller,
            &AccessRequest { action, kind: AccessKind::A2a, name: TASKS, operation, resource: &resource },
        )
    }

    /// Adds a message to a task. It is the answer if the task has an open question.
    pub async fn reply(&self, caller: &Caller, reply: Reply) -> Result<Task, Error> {
        self.allow_task(caller, Action::Write, "task.reply", &reply.task)?;
        self.0.reply(caller, reply).await
    }

    /// Answers exactly this question of this task; [`Error::NotAsked`] if it is not, or no longer, open.
    pub async fn answer(
        &self,
        caller: &Caller,
        task: &str,
        question: &str,
        answer: &Answer,
    ) -> Result<Task, Error> {
        self.allow_task(caller, Action::Write, "task.reply", task)?;
        self.0.answer(caller, task, question, answer, true, None).await
    }

    /// Cancels a task. Returns when it has ended, or after the grace period.
    pub async fn cancel(&self, caller: &Caller, task: &str) -> Result<Task, Error> {
        self.allow_task(caller, Action::Write, "task.cancel", task)?;
        self.0.cancel(caller, task).await
    }

    /// The current state of a task, folded from its whole log.
    pub async fn get(&self, caller: &Caller, task: &str) -> Result<Arc<Task>, Error> {
        self.allow_task(caller, Action::Read, "task.get", task)?;
        let engine = &self.0;
        if let Some(task) = TaskId::parse(task).and_then(|id| engine.finished(id))
            && caller.sees_task(&task.origin.owner, &task.origin.agent)
        {
            return Ok(task);
        }
        let row = engine.find_row(caller, task).await?;
        let _permit = engine.reserve_for(caller, &row).await?;
        let Some(opened) = engine.store.open(&TaskKey::Id(row.id)).await? else {
            return Err(Error::NoSuchTask(task.to_owned()));
        };
        let task = Arc::new(engine.fold(&opened).await?);
        engine.ended.insert(&task);
        Ok(task)
    }

    /// Reserves memory for the body that a request is about to send; see `limits.bytes-in-flight`. Waits for
    /// a limited time.
    pub async fn reserve_bytes(&self, caller: &Caller, bytes: u64) -> Result<BytePermit, Error> {
        self.0.bytes.reserve(caller, bytes).await
    }

    /// Counts memory that a response already holds, until it is sent.
    pub fn charge_bytes(&self, caller: &Caller, bytes: u64) -> BytePermit {
        self.0.bytes.charge(caller, bytes)
    }

    /// How many bytes requests hold in memory at present.
    pub fn bytes_in_flight(&self) -> u64 {
        self.0.bytes.held()
    }

    /// A task's immutable attributes. Does not read the log, so the cost does not depend on its length.
    pub async fn origin(&self, caller: &Caller, task: &str) -> Result<Origin, Error> {
        may_read(caller)?;
        let row = self.0.find_row(caller, task).await?;
        Ok(TaskHeader::decode(&row.head)?.origin(&row))
    }

    /// What is known of a task without reading its log.
    pub async fn task_summary(&self, caller: &Caller, task: &str) -> Result<TaskSummary, Error> {
        may_read(caller)?;
        let row = self.0.find_row(caller, task).await?;
        let head = TaskHeader::decode(&row.head)?;
        Ok(TaskSummary { origin: head.origin(&row), state: row.state, seq: row.seq, request: head.request })
    }

    /// A page of the caller's tasks, newest status first.
    pub async fn list(&self, caller: &Caller, list: list::List) -> Result<list::FoldedTaskPage, Error> {
        self.allow_task(caller, Action::Read, "task.list", "")?;
        self.0.list(caller, list).await
    }

    /// A page of the ids of the caller's tasks, newest status first. Reads no logs.
    pub async fn list_ids(&self, caller: &Caller, list: list::List) -> Result<list::TaskIdPage, Error> {
        self.allow_task(caller, Action::Read, "task.list", "")?;
        self.0.list_ids(caller, list).await
    }

    /// A page of the rows of the caller's tasks, newest status first. Reads no logs.
    pub async fn list_rows(&self, caller: &Caller, list: list::List) -> Result<list::TaskRowPage, Error> {
        self.allow_task(caller, Action::Read, "task.list", "")?;
        self.0.list_rows(caller, list).await
    }

    /// Follows a task's events after the cursor `after`.
    pub async fn follow(&self, caller: &Caller, task: &str, after: u64) -> Result<Follower, Error> {
        let row = self.row_to_follow(caller, task).await?;
        self.0.follower(&row, after)
    }

    /// Like [`Engine::follow`], with the task's immutable attributes, from the row that this reads anyway.
    pub async fn follow_with_origin(
        &self,
        caller: &Caller,
        task: &str,
        after: u64,
    ) -> Result<(Origin, Follower), Error> {
        let row = self.row_to_follow(caller, task).await?;
        let follower = self.0.follower(&row, after)?;
        Ok((TaskHeader::decode(&row.head)?.origin(&row), follower))
    }

    async fn row_to_follow(&self, caller: &Caller, task: &str) -> Result<TaskRow, Error> {
        self.allow_task(caller, Action::Read, "task.follow", task)?;
        self.0.find_row(caller, task).await
    }

    /// Follows a task that the caller has just sent, also one that was answered by a message. Reads nothing of a
    /// task that was created by that.
    pub async fn follow_started(
        &self,
        caller: &Caller,
        mut started: StartedTask,
        after: u64,
    ) -> Result<(Task, Follower), Error> {
        let id = started.task.origin.id;
        self.allow_task(caller, Action::Read, "task.follow", &id.to_string())?;
        let follower = self.0.follower_of(&mut started, after).await?;
        Ok((started.task, follower))
    }

    /// Waits until a task that its caller has just sent is answered by a message, or can be shown as a task. If
    /// the server stops before that, the request fails, and is to be repeated.
    pub async fn wait_until_shown(
        &self,
        caller: &Caller,
        mut started: StartedTask,
    ) -> Result<StartedTask, Error> {
        self.0.wait_for(caller, &mut started, |task| !task.awaits_reply()).await?;
        if started.task.awaits_reply() { Err(stopping()) } else { Ok(started) }
    }

    /// Sends a nudge to all followers of a task on this node.
    pub async fn nudge(&self, caller: &Caller, task: &str, nudge: Nudge) -> Result<(), Error> {
        let row = self.0.find_row(caller, task).await?;
        self.0.hub.nudge(row.id, nudge);
        Ok(())
    }

    /// Waits until a task has ended or waits for input, and returns it then. If the server stops meanwhile,
    /// returns the task as it is.
    pub async fn wait_until_idle(
        &self,
        caller: &Caller,
        task: impl Into<StartedTask>,
    ) -> Result<Task, Error> {
        self.0.wait_until(caller, task, |task| task.state.is_terminal() || task.state.is_interrupted()).await
    }
}

impl EngineCore {
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// The task of that name, if the caller may see it. A name is a task id, or the id that its owner chose.
    pub(crate) async fn find(&self, caller: &Caller, name: &str) -> Result<OpenedTask, Error> {
        self.check_length(name)?;
        for key in keys(caller, name) {
            // The log of another owner's task is not read: that would take longer than an unknown id, and the
            // timing would reveal that the task exists. The operator may know of it.
            if let TaskKey::Id(_) = key
                && !caller.is_local()
                && self.visible(caller, name, self.store.row(&key).await?).is_none()
            {
                continue;
            }
            if let Some(opened) = self.store.open(&key).await? {
                if opened.row.state == State::Replied {
                    continue;
                }
                if caller.sees_task(&opened.row.owner, &opened.row.agent) {
                    return Ok(opened);
                }
                self.visible(caller, name, Some(opened.row));
            }
        }
        Err(Error::NoSuchTask(name.to_owned()))
    }

    /// The row of a task that is known to its caller, in whatever state.
    async fn row_of(&self, task: &Task) -> Result<TaskRow, Error> {
        let id = task.origin.id;
        let row = self.store.row(&TaskKey::Id(id)).await?;
        row.ok_or_else(|| Error::NoSuchTask(id.to_string()))
    }

    /// Like `find`, without the log.
    pub(crate) async fn find_row(&self, caller: &Caller, name: &str) -> Result<TaskRow, Error> {
        self.check_length(name)?;
        for key in keys(caller, name) {
            if let Some(row) = self.visible(caller, name, self.store.row(&key).await?) {
                return Ok(row);
            }
        }
        Err(Error::NoSuchTask(name.to_owned()))
    }

    /// Refuses a name that is longer than a client may choose: no task has it, and it is neither looked up
    /// nor logged.
    fn check_length(&self, name: &str) -> Result<(), Error> {
        let most = self.options.limits.id_bytes.max(64);
        match name.len() > most {
            true => Err(Error::NoSuchTask(format!("{}…", &name[..name.floor_char_boundary(most)]))),
            false => Ok(()),
        }
    }

    /// The row, if the caller may see it. An attempt to read another owner's task is audited; the caller
    /// learns nothing of it.
    fn visible(&self, caller: &Caller, name: &str, row: Option<TaskRow>) -> Option<TaskRow> {
        // An answer by a message is no task.
        let row = row.filter(|row| row.state != State::Replied)?;
        if caller.sees_task(&row.owner, &row.agent) {
            return Some(row);
        }
        if caller.sees(&row.owner) {
            // Its own task, at the address of another agent: nothing that the operator has to know.
            return None;
        }
        let resource = format_args!("a2a://tasks/{name}");
        let (action, kind, operation) = (Action::Read, AccessKind::A2a, "task.find");
        let access = AccessRequest { action, kind, name: TASKS, operation, resource: &resource };
        let why = "not found: another owner's task".to_owned();
        if let Err(error) = self.guard.note(caller, &access, Some(why), self.clock.now()) {
            tracing::warn!(%error, "could not write an audit entry");
        }
        None
    }

    /// Reserves memory for reading a whole task: its stored log, its fold, and the response rendered from it.
    pub(crate) async fn reserve_for(&self, caller: &Caller, row: &TaskRow) -> Result<BytePermit, Error> {
        self.bytes.reserve(caller, 3 * task_header::weight(&row.head)).await
    }

    /// Folds what was read, from the start of the log if the snapshot cannot be used.
    pub(crate) async fn fold(&self, opened: &OpenedTask) -> Result<Task, Error> {
        if let Some(task) = task_header::fold(opened)? {
            return Ok(task);
        }
        let mut task = Task::new(TaskHeader::decode(&opened.row.head)?.origin(&opened.row));
        loop {
            let log = self.store.log(opened.row.no, task.seq, 1 << 20).await?;
            if log.is_empty() {
                return Ok(task);
            }
            task_header::fold_onto(&mut task, &log)?;
        }
    }

    pub(crate) fn follower(&self, row: &TaskRow, after: u64) -> Result<Follower, Error> {
        Follower::new(Arc::clone(&self.store), &self.hub, self.closing(), row, after)
    }

    /// Follows a task right after it was sent.
    async fn follower_of(&self, started: &mut StartedTask, after: u64) -> Result<Follower, Error> {
        match (std::mem::take(&mut started.events), &started.entries) {
            (EventSource::Created(created), Some(entries)) => {
                let (store, of) = (Arc::clone(&self.store), (&started.task, entries));
                Follower::of_created(store, &self.hub, self.closing(), created, of, after)
            }
            (EventSource::Follower(follower), _) if follower.cursor() == after => Ok(*follower),
            _ => self.follower(&self.row_of(&started.task).await?, after),
        }
    }

    /// Follows a task from its known state until the condition holds, the task ends, or the server stops.
    pub(crate) async fn wait_until(
        &self,
        caller: &Caller,
        task: impl Into<StartedTask>,
        wanted: impl Fn(&Task) -> bool,
    ) -> Result<Task, Error> {
        let mut started = task.into();
        self.wait_for(caller, &mut started, wanted).await?;
        Ok(started.task)
    }

    /// Like `wait_until`. The task is as far as its events were received, also if this is dropped.
    pub(crate) async fn wait_for(
        &self,
        caller: &Caller,
        started: &mut StartedTask,
        wanted: impl Fn(&Task) -> bool,
    ) -> Result<(), Error> {
        if wanted(&started.task) {
            return Ok(());
        }
        if !caller.sees(&started.task.origin.owner) {
            return Err(Error::NoSuchTask(started.task.origin.id.to_string()));
        }
        let mut follower = self.follower_of(started, started.task.seq).await?;
        loop {
            let batch = match follower.next().await? {
                Next::Batch(batch) => batch,
                Next::Nudge(_) => continue,
                Next::End | Next::Closing => break,
            };
            for (_, entry) in batch.iter() {
                started.task.apply(entry);
            }
            if wanted(&started.task) {
                break;
            }
        }
        started.events = EventSource::Follower(Box::new(follower));
        Ok(())
    }

    /// Sends a task's span to the tracer, if these entries end the task.
    pub(crate) fn trace_end(&self, origin: &Origin, entries: &[Entry]) {
        if self.tracer.is_some()
            && let Some(span) = entries.last().and_then(|last| Trace::whole(origin, last))
        {
            self.trace(span);
        }
    }

    /// Sends a finished span to the tracer, redacted.
    pub(crate) fn trace(&self, mut span: Span) {
        let Some(tracer) = &self.tracer else { return };
        if let Some(error) = &mut span.error {
            *error = self.options.access.redactor.text(error).into_owned();
        }
        tracer.record_span(span);
    }

    /// Registers a run, so that commands find it, until the guard is dropped.
    pub(crate) fn enter(&self, run: &Arc<TaskRun>) -> RunRegistration {
        self.lock_runs().insert(run.origin.id, Arc::clone(run));
        RunRegistration(Arc::clone(run))
    }

    /// The run of a task on this node.
    pub(crate) fn local_run(&self, task: TaskId) -> Option<Arc<TaskRun>> {
        self.lock_runs().get(&task).cloned()
    }

    fn lock_runs(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<TaskRun>>> {
        self.runs.lock()
    }

    pub(crate) fn notify_changed(&self, tenant: &str, uri: &str) {
        self.catalog.surface().updated_for(tenant, uri);
        self.store.knowledge().notify_nodes(format!("={tenant}\n{uri}"));
    }

    /// Notifies subscribers of searches whose URIs begin with `prefix` that the entry `key` has changed.
    pub(crate) fn notify_search_changed(&self, tenant: &str, prefix: &str, key: &str) {
        self.catalog.surface().updated_search(tenant, prefix, key);
        self.store.knowledge().notify_nodes(format!("?{tenant}\n{prefix}\n{key}"));
    }

    pub(crate) fn notify_changed_within(&self, tenant: &str, prefix: &str) {
        self.catalog.surface().updated_within(tenant, prefix);
        self.store.knowledge().notify_nodes(format!("^{tenant}\n{prefix}"));
    }

    /// Passes on another node's notification of a change.
    pub(crate) fn apply_notification(&self, topic: &str) {
        let surface = self.catalog.surface();
        let told = topic.get(1..).and_then(|rest| rest.split_once('\n'));
        match (topic.as_bytes().first(), told) {
            (Some(b'='), Some((tenant, uri))) => surface.updated_for(tenant, uri),
            (Some(b'^'), Some((tenant, prefix))) => surface.updated_within(tenant, prefix),
            (Some(b'-'), Some((_, task))) => {
                TaskId::parse(task).into_iter().for_each(|id| self.ended.forget(id));
            }
            (Some(b'!'), Some(_)) => self.admin.wake(),
            (Some(b'?'), Some((tenant, rest))) => match rest.split_once('\n') {
                Some((prefix, key)) => surface.updated_search(tenant, prefix, key),
                None => surface.updated_within(tenant, rest),
            },
            // Written by a newer version of nuncio.
            _ => {}
        }
    }

    /// Removes a deleted task from the cache of finished tasks.
    pub(crate) fn forget_ended(&self, task: TaskId) {
        self.ended.forget(task);
    }

    /// Clears the cache of finished tasks: other nodes may have deleted some of them.
    pub(crate) fn forget_all_ended(&self) {
        self.ended.clear();
    }

    /// A profile for a task whose agent is no longer served here.
    pub(crate) fn unknown_agent(&self) -> Arc<Profile> {
        Arc::new(Profile::new("unknown", "an agent that this node no longer serves"))
    }
}

/// Checks read access for a request that is part of another operation; that operation writes the audit entry.
fn may_read(caller: &Caller) -> Result<(), Error> {
    match caller.may(Action::Read, AccessKind::A2a, TASKS) {
        true => Ok(()),
        false => Err(Error::Forbidden(format!("read:a2a:{TASKS}"))),
    }
}

fn keys(caller: &Caller, name: &str) -> impl Iterator<Item = TaskKey> {
    // Built only when needed: nearly all names are ids.
    let chosen =
        std::iter::once_with(|| TaskKey::Client { owner: caller.owner().to_owned(), id: name.to_owned() });
    TaskId::parse(name).map(TaskKey::Id).into_iter().chain(chosen)
}

/// The registration of a run; dropping it removes the run.
pub(crate) struct RunRegistration(Arc<TaskRun>);

impl Drop for RunRegistration {
    fn drop(&mut self) {
        let run = &self.0;
        let mut runs = run.engine.lock_runs();
        // Not a newer run of the same task that may be registered already.
        if runs.get(&run.origin.id).is_some_and(|known| Arc::ptr_eq(known, run)) {
            runs.remove(&run.origin.id);
        }
    }
}

/// Waits until an engine stops.
pub(crate) async fn wait_until_closing(closing: &mut watch::Receiver<bool>) {
    // An error means that the engine was dropped, which is the same thing.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Whether an event ends its task.
pub(crate) fn ends(event: &Event) -> bool {
    matches!(event, Event::Status(status) if status.state.is_terminal())
}
