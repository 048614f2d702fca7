//! The submit command: creates a task.
//!
//! The agent is polled once before the first commit. An agent that only computes has finished by then, and
//! its whole task, from the message to the result, is written with one commit, as one batch of the log.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::OptionFuture;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{sync::oneshot, time::Instant};

use super::{check_id, webhooks::check_webhook};
use crate::{
    access::{AccessKind, Action, Caller, tenant_of},
    access_control::AccessRequest,
    agent::Profile,
    clock::Timestamp,
    commands::reply::Reply,
    commit::{Decision, Writer},
    content::{Message, Metadata, Part},
    context::CancelTrigger,
    engine::{CalledSlot, EngineCore, Limits, Slot, ends, wait_until_closing},
    error::Error,
    event::{self, Entry, Event},
    follow::{CreatedTask, Follower},
    journal::ReplayJournal,
    run::{PendingCommit, TaskRun},
    runner::{Driver, Lease},
    store::{Change, CommitError, Digest, NewTask, Precondition, RunChange, TaskKey, Webhook},
    surface::Abilities,
    task::{Origin, State, Task, TaskId},
    task_header::TaskHeader,
    trace::{self, Trace},
    usage::MeteredResource,
    webhook::WebhookConfig,
};

/// The maximum delay before a call is retried.
const CALL_AGAIN: Duration = Duration::from_secs(1);

/// The maximum number of media types that a request may accept, and the length of each: they are a part of the task's
/// header, which every commit of the task writes.
const MAX_ACCEPTED_MODES: usize = 100;
const MAX_MODE_BYTES: usize = 255;

/// A request for work.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The name of the agent that is to do the work.
    pub agent: String,
    /// The message that creates the task.
    pub message: Message,
    /// The conversation that it belongs to; `None` opens a new one.
    pub context: Option<String>,
    /// Whether `context` is the conversation of the caller's connection and was not named by the caller: a
    /// repeat under the same idempotency key may come over another connection.
    pub context_of_connection: bool,
    /// An id that the client chose. If the caller has a task of that id, the message is added to it.
    pub client_id: Option<String>,
    /// Attributes that are stored with the task.
    pub metadata: Option<Metadata>,
    /// The protocol dialect of the request, e.g. `a2a/1.0`.
    pub dialect: String,
    /// The idempotency key: a repeat under the same key returns the same task.
    pub idempotency_key: Option<String>,
    /// Webhooks to register with the task.
    pub webhooks: Vec<WebhookConfig>,
    /// Media types that the caller accepts; empty accepts all.
    pub accepted_output_modes: Vec<String>,
    /// Whether the caller waits for the answer, and takes a message instead of a task. See
    /// [`crate::Outcome::Replied`].
    pub accepts_reply: bool,
    /// URIs of the protocol extensions that the request activates.
    pub extensions: Vec<String>,
    /// What the caller's client can do while the task runs.
    pub abilities: Abilities,
    /// W3C `traceparent` of the request.
    pub trace: Option<String>,
    /// Data that the binding stores with the task, to read back later. Opaque to the engine.
    pub request: Option<Value>,
    /// Set if the caller waits on a connection and has no other way to the task: the task ends when the node
    /// that accepted it dies, and when its questions stay unanswered for this long.
    pub waiting: Option<Duration>,
    pub(crate) parent: Option<Parent>,
}

/// A task right after it was created.
#[derive(Debug)]
pub struct StartedTask {
    /// The task with the events so far.
    pub task: Task,
    /// The events of its first commit. `None`: the task existed before, and its log has to be read.
    pub entries: Option<Arc<[Entry]>>,
    pub(crate) events: EventSource,
}

/// Where the follower of a task that was just sent comes from.
#[derive(Default)]
pub(crate) enum EventSource {
    /// The task's row, which has to be read.
    #[default]
    Row,
    /// The commit that created the task; the fold has exactly its events.
    Created(CreatedTask),
    /// A follower that has returned all events of the fold.
    Follower(Box<Follower>),
}

impl std::fmt::Debug for EventSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Row => "Row",
            Self::Created(_) => "Created",
            Self::Follower(_) => "Follower",
        })
    }
}

impl From<Task> for StartedTask {
    /// A task that existed before.
    fn from(task: Task) -> Self {
        Self { task, entries: None, events: EventSource::Row }
    }
}

/// The calling task.
#[derive(Debug, Clone)]
pub(crate) struct Parent {
    id: TaskId,
    caller: Caller,
    depth: u32,
    /// Whether the agent's author, not its caller, chose the called agent: then the caller needs no
    /// permission for it.
    wired: bool,
    /// The task at the top of the call chain.
    root: TaskId,
    /// The agents of all tasks from there to this one.
    agents: Vec<String>,
    /// The deadline of the call.
    until: Option<Timestamp>,
    run: CallingRun,
}

/// The run that makes the call.
#[derive(Clone)]
struct CallingRun(Arc<TaskRun>);

impl std::fmt::Debug for CallingRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the run of {}", self.0.origin.id)
    }
}

impl Submit {
    /// A message for an agent, from a caller that can answer questions.
    pub fn new(agent: impl Into<String>, message: Message) -> Self {
        Self {
            agent: agent.into(),
            message,
            context: None,
            context_of_connection: false,
            client_id: None,
            metadata: None,
            dialect: "engine".into(),
            idempotency_key: None,
            webhooks: vec![],
            accepted_output_modes: vec![],
            accepts_reply: false,
            extensions: vec![],
            abilities: Abilities { ask: true, authorize: true, ..Abilities::default() },
            trace: None,
            request: None,
            waiting: None,
            parent: None,
        }
    }

    /// A call from a running task. The position of the call makes it idempotent, however often it is
    /// replayed.
    pub(crate) fn child(run: &Arc<TaskRun>, agent: &str, message: Message, at: &str) -> Self {
        let agents = run.called_by.iter().chain([&run.origin.agent]).cloned().collect();
        let parent = Parent {
            id: run.origin.id,
            caller: run.caller(),
            depth: run.depth,
            wired: false,
            root: run.root,
            agents,
            until: None,
            run: CallingRun(Arc::clone(run)),
        };
        Self {
            context: Some(run.origin.context.clone()),
            idempotency_key: Some(format!("call:{}:{at}", run.origin.id)),
            abilities: run.abilities(),
            trace: Some(Trace::of(&run.origin).header()),
            parent: Some(parent),
            ..Self::new(agent, message)
        }
    }

    /// Marks the call's agent as chosen by the author of the calling agent; see
    /// [`crate::TaskContext::call_wired`].
    pub(crate) fn wired(mut self) -> Self {
        if let Some(parent) = &mut self.parent {
            parent.wired = true;
        }
        self
    }

    /// The digest that identifies a repeated request.
    fn digest(&self) -> Digest {
        let context = self.context.as_ref().filter(|_| !self.context_of_connection);
        let what = (&self.agent, context, &self.client_id, &self.message, &self.metadata);
        // Serializing these types cannot fail; an empty text would only make keys refuse each other.
        Sha256::digest(serde_json::to_vec(&what).unwrap_or_default()).into()
    }
}

impl EngineCore {
    pub(crate) async fn submit(self: &Arc<Self>, caller: &Caller, submit: Submit) -> Result<Task, Error> {
        Ok(self.begin(caller, submit).await?.task)
    }

    pub(crate) async fn begin(
        self: &Arc<Self>,
        caller: &Caller,
        mut submit: Submit,
    ) -> Result<StartedTask, Error> {
        if self.is_closing() {
            return Err(stopping());
        }
        // The access check refuses callers of a closed tenant, but a call from a running task is checked by
        // `allow_call` only. So it is checked here as well.
        self.admin.check_open(caller.tenant())?;
        self.check_ids(&submit)?;
        if submit.idempotency_key.is_none()
            && self.options.idempotent_message_ids
            && submit.client_id.is_none()
            && !submit.message.id.is_empty()
        {
            submit.idempotency_key = Some(format!("message:{}", submit.message.id));
        }
        // Who sends the first message is in the task itself.
        submit.message.by = None;
        let digest = submit.idempotency_key.is_some().then(|| submit.digest());
        self.name(&mut submit.message, submit.idempotency_key.as_deref());
        // One read decides: between two, a repeat of this very request may create the task.
        let known = match &submit.client_id {
            None => None,
            Some(id) => match self.find_row(&caller.clone().at_any_agent(), id).await {
                Err(_) => None,
                Ok(row) if caller.sees_task(&row.owner, &row.agent) => Some(id),
                // Ids that clients choose are unique per caller. The message of one agent's client must not reach
                // another's task.
                Ok(_) => {
                    let agent = caller.only_agent().unwrap_or_default();
                    return Err(Error::Invalid(format!(
                        "id: the caller has a task {id} of another agent than {agent}: choose another id"
                    )));
                }
            },
        };
        // A known key wins over a known client id, so that a repeat of the first send does not become a second
        // message. The key is read after the id: a commit that ends between the two reads is then seen by the
        // second.
        if let (Some(key), Some(digest)) = (&submit.idempotency_key, digest)
            && let Some((task, made_by)) = self.store.idempotent(caller.owner(), key).await?
        {
            return self.original(caller, task, made_by == digest).await.map(StartedTask::from);
        }
        // After the key: a task that was accepted once is found again, even if its agent is not served at
        // present.
        let registered = self.catalog.get(&submit.agent)?;
        let profile = Arc::clone(&registered.profile);
        self.check(&submit, &profile)?;
        if let Some(id) = known {
            return Box::pin(self.reply(caller, Reply::to_chosen_id(&submit, id)))
                .await
                .map(StartedTask::from);
        }
        if let Some(parent) = &submit.parent {
            self.allow_call(parent, &submit.agent)?;
        }
        registered.take_input(&mut submit.message)?;
        // A task of the chosen id may appear while this one is created.
        let as_reply = submit.client_id.as_ref().map(|id| Reply::to_chosen_id(&submit, id));
        match self.create(caller, submit, &profile, digest).await {
            Err(CreateError::Exists { task, digest: Some(made_by) }) => {
                self.original(caller, task, Some(made_by) == digest).await.map(StartedTask::from)
            }
            Err(CreateError::Exists { .. }) => match as_reply {
                // Two first sends with one id raced; this one becomes the second message.
                Some(reply) => Box::pin(self.reply(caller, reply)).await.map(StartedTask::from),
                None => Err(Error::Internal("a new task's id was taken".into())),
            },
            Err(CreateError::Other(error)) => Err(error),
            Ok(begun) => Ok(begun),
        }
    }

    /// Checks that a task may call an agent in its caller's name; the audit entry names the task. Checked
    /// once for each created task: a call that is found again after a restart was allowed.
    fn allow_call(&self, parent: &Parent, agent: &str) -> Result<(), Error> {
        let resource = format_args!("a2a://agents/{agent}?parent={}", parent.id);
        let (action, kind, operation) = (Action::Execute, AccessKind::A2a, "task.call");
        let access = AccessRequest { action, kind, name: agent, operation, resource: &resource };
        let now = self.clock.now();
        match parent.wired {
            true => self.guard.allow_wired(&parent.caller, &access, now),
            false => self.guard.allow(&parent.caller, &access, now),
        }
    }

    /// Runs a call from another task until the called task has ended, or asks a question. Cancels it at its
    /// deadline.
    pub(crate) async fn call(
        self: &Arc<Self>,
        submit: &Submit,
        until: Option<Timestamp>,
        unless: &mut Option<CancelTrigger<'_>>,
    ) -> Result<Task, Error> {
        let Some(parent) = &submit.parent else {
            return Err(Error::Internal("a call without a caller".into()));
        };
        if parent.depth >= self.options.calls.call_depth {
            return Err(Error::limit(
                "limits.call-depth",
                format!(
                    "limits.call-depth: at most {} tasks call each other in a row",
                    self.options.calls.call_depth
                ),
            ));
        }
        let caller = parent.caller.clone();
        let mut submit = submit.clone();
        if let Some(parent) = &mut submit.parent {
            parent.until = until;
        }
        let left = || until.map_or(Duration::MAX, |until| until.since(self.clock.now()));
        loop {
            // Not aborted at the deadline: a created task has to be known, to be canceled.
            let called = match self.begin(&caller, submit.clone()).await {
                Ok(mut started) => {
                    let settled = |task: &Task| task.state.is_terminal() || !task.questions.is_empty();
                    let settling = self.wait_for(&caller, &mut started, settled);
                    let settled = tokio::select! {
                        biased;
                        settled = tokio::time::timeout(left(), settling) => settled.ok(),
                        Some(first) = OptionFuture::from(unless.as_mut()) => {
                            *unless = None;
                            first.await;
                            None
                        }
                    };
                    let task = started.task;
                    match settled {
                        Some(Ok(())) if task.state.is_terminal() || !left().is_zero() => Ok(task),
                        Some(Err(error)) => Err(error),
                        Some(Ok(())) | None => self.cancel_late(&caller, task).await,
                    }
                }
                Err(error) => Err(error),
            };
            match called {
                Ok(task) if task.state.is_terminal() || !task.questions.is_empty() => return Ok(task),
                // The server is stopping: the calling run is handed back and calls again after the next
                // start.
                Ok(_) => std::future::pending().await,
                Err(Error::Busy { why, .. } | Error::TooFast { why, .. }) if left().is_zero() => {
                    return Err(Error::Limit(format!("the deadline passed before a slot was free: {why}")));
                }
                // Accepted work waits for a slot; it does not fail for the lack of one.
                Err(Error::Busy { why, retry_after }) => {
                    tracing::warn!(agent = submit.agent, why, "the server is busy; the call is retried");
                    tokio::time::sleep(retry_after.min(CALL_AGAIN).min(left())).await;
                }
                // Each attempt writes an audit entry, so there are no more of them than needed.
                Err(Error::TooFast { why, retry_after }) => {
                    tracing::debug!(agent = submit.agent, why, "a call waits for its caller's rate limit");
                    tokio::time::sleep(retry_after.min(left())).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Cancels a called task that is past its deadline, or that is given up, and waits for its end.
    async fn cancel_late(self: &Arc<Self>, caller: &Caller, task: Task) -> Result<Task, Error> {
        match self.cancel(caller, &task.origin.id.to_string()).await {
            Ok(task) if task.state.is_terminal() => Ok(task),
            // The cancel request is durable: the task will end.
            Ok(task) => self.wait_until(caller, task, |task| task.state.is_terminal()).await,
            Err(Error::NotCancelable(_)) => self.original(caller, task.origin.id, true).await,
            Err(error) => Err(error),
        }
    }

    async fn original(&self, caller: &Caller, task: TaskId, same: bool) -> Result<Task, Error> {
        if !same {
            return Err(Error::KeyReused);
        }
        // The key was the caller's own, so the task is, too. It may be one that was answered by a message.
        match self.store.open(&TaskKey::Id(task)).await? {
            Some(opened) if caller.sees(&opened.row.owner) => self.fold(&opened).await,
            _ => Err(Error::NoSuchTask(task.to_string())),
        }
    }

    async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        submit: Submit,
        profile: &Arc<Profile>,
        digest: Option<Digest>,
    ) -> Result<StartedTask, CreateError> {
        let tenant = caller.tenant();
        if submit.parent.is_none() {
            // Accepted work may continue; only new work is refused.
            self.usage.accept_stored(tenant, MeteredResource::StoredBytes, submit.message.size() as u64)?;
        }
        if !submit.webhooks.is_empty() {
            self.usage.accept_stored(tenant, MeteredResource::Webhooks, submit.webhooks.len() as u64)?;
        }
        let asked = Instant::now();
        let (slot, made) = match &submit.parent {
            None => (self.root_slot_now(caller.owner()), None),
            Some(parent) => {
                parent.run.0.record_call();
                parent.run.0.enter_tree();
                let made = self.make_below(parent.root).await?;
                (Some(self.slot_for_call(parent, caller.owner()).await?), Some(made))
            }
        };
        let waited = slot.is_some().then(|| asked.elapsed());
        let now = self.clock.now();
        let id = TaskId(self.clock.new_id());
        // An invalid traceparent carries no information, and may be of any length.
        let trace = submit.trace.filter(|trace| trace::parse(trace).is_some());
        // A webhook is told of a task, and a task that the client named exists by that name.
        let accepts_reply = submit.accepts_reply
            && profile.replies
            && submit.webhooks.is_empty()
            && submit.client_id.is_none()
            && submit.parent.is_none();
        let head = TaskHeader {
            dialect: submit.dialect.clone(),
            agent_version: profile.version.clone(),
            can_ask: submit.abilities.ask,
            can_sample: submit.abilities.sample,
            own_model: !submit.abilities.sample && self.sampler.is_some(),
            can_authorize: submit.abilities.authorize,
            metadata: submit.metadata.clone(),
            accepts_reply,
            accepted_output_modes: submit.accepted_output_modes,
            extensions: submit.extensions,
            request: submit.request,
            waiting_ms: submit.waiting.map(|waiting| waiting.as_millis() as u64),
            trace: trace.clone(),
            grants: (!caller.grants().is_all()).then(|| caller.grants().to_string()),
            credential: caller.credential().map(str::to_owned),
            depth: submit.parent.as_ref().map_or(0, |parent| parent.depth + 1),
            root: submit.parent.as_ref().map(|parent| parent.root),
            called_by: submit.parent.as_ref().map(|parent| parent.agents.clone()).unwrap_or_default(),
            first_node: slot.is_some().then_some(self.node),
            bytes: submit.message.size() as u64,
            ..TaskHeader::default()
        };
        let made_by = Entry(now, Event::Message(submit.message));
        let mut task = Task::new(Origin {
            id,
            client_id: submit.client_id.clone(),
            context: submit.context.clone().unwrap_or_else(|| id.own_context()),
            agent: submit.agent.clone(),
            owner: caller.owner().to_owned(),
            dialect: submit.dialect,
            metadata: submit.metadata,
            trace,
            accepts_reply,
        });
        let new = NewTask {
            id,
            client_id: submit.client_id,
            owner: caller.owner().to_owned(),
            context: submit.context,
            agent: submit.agent,
            parent: submit.parent.as_ref().map(|parent| parent.id),
            idempotency: submit.idempotency_key.zip(digest),
            webhooks: submit.webhooks.iter().map(encode_webhook).collect(),
            created_at: now,
        };
        task.apply(&made_by);
        let begun = match slot {
            Some(slot) => self.create_running(new, task, made_by, head, profile, slot).await?,
            None => self.create_queued(new, task, &made_by, &head).await?,
        };
        if let Some(made) = made {
            made.confirm();
        }
        if let Some(waited) = waited {
            self.node_metrics.record_queue_wait(waited);
        }
        Ok(begun)
    }

    /// A slot for a called task. The call waits for it in memory, and the task is created only then: a call
    /// that is canceled or past its deadline leaves nothing behind.
    async fn slot_for_call(self: &Arc<Self>, parent: &Parent, owner: &str) -> Result<Slot, Error> {
        let run = &parent.run.0;
        let canceled = || Error::Invalid("the task that calls was canceled".into());
        if run.is_canceled() {
            return Err(canceled());
        }
        let granted = match self.called_slot(owner, parent.root, parent.depth + 1) {
            CalledSlot::Now(slot) => return Ok(slot),
            CalledSlot::Later(granted) => granted,
        };
        let mut closing = self.closing();
        let left = parent.until.map_or(Duration::MAX, |until| until.since(self.clock.now()));
        tokio::select! {
            biased;
            Ok(slot) = granted => Ok(slot),
            () = run.canceled() => Err(canceled()),
            () = wait_until_closing(&mut closing) => Err(stopping()),
            () = tokio::time::sleep(left) => {
                let why = "called tasks hold all slots (max-running, limits.running-per-root)";
                Err(Error::busy("max-running", why, CALL_AGAIN))
            }
        }
    }

    async fn create_running(
        self: &Arc<Self>,
        new: NewTask,
        mut task: Task,
        made_by: Entry,
        head: TaskHeader,
        profile: &Arc<Profile>,
        slot: Slot,
    ) -> Result<StartedTask, CreateError> {
        let (hooked, parent) = (!new.webhooks.is_empty(), new.parent);
        let registered = self.catalog.get(&new.agent)?.clone();
        let run = Arc::new(TaskRun::new(
            Arc::clone(self),
            Arc::clone(profile),
            &task,
            head,
            ReplayJournal::default(),
            false,
        ));
        run.hooked.store(hooked, Ordering::Relaxed);
        let mut driver = Driver::new(Arc::clone(&run), &registered, slot);
        let end = driver.try_finish();
        let ended = end.as_ref().is_some_and(ends);
        let work = run.take_first(made_by, end);
        let schedule = if ended { RunChange::Rest } else { RunChange::Lease(self.node) };
        let decision = decide_creation(new, &work, task.status_at, schedule);
        let entries = Arc::clone(&work.entries);
        let created = if ended {
            let committed = self.commit_and_apply(Writer::Run(&run, None), decision).await?;
            CreatedTask { no: committed.task, joined: None }
        } else {
            let joined = self.hub.join(run.origin.id);
            // In a separate tokio task: the client may disconnect meanwhile, and a stored task has to be run.
            // Registered before the commit: a cancel may follow at once and has to find the run.
            let (kept, told) = oneshot::channel();
            let (engine, entered) = (Arc::clone(self), self.enter(&run));
            let tenant = tenant_of(&run.origin.owner).to_owned();
            let keeping = tokio::spawn(self.ready.queue(&tenant, async move {
                let writer = Writer::Run(&run, Some(&work));
                let committed = match engine.commit_and_apply(writer, decision).await {
                    Ok(committed) => committed,
                    Err(error) => return drop(kept.send(Err(error))),
                };
                drop(work);
                let _ = kept.send(Ok(committed.task));
                if let Some(parent) = parent {
                    engine.cancel_if_orphaned(run.origin.id, parent).await;
                }
                driver.drive(Lease::new(engine, &committed), entered).await;
            }));
            match told.await {
                Ok(kept) => CreatedTask { no: kept?, joined: Some(joined) },
                Err(_) if keeping.await.is_err_and(|error| error.is_panic()) => {
                    return Err(Error::Internal("the commit of a new task panicked".into()).into());
                }
                // The runtime is shutting down. The caller must not record that as a failure.
                Err(_) => std::future::pending().await,
            }
        };
        for entry in &entries[1..] {
            task.apply(entry);
        }
        Ok(StartedTask { task, entries: Some(entries), events: EventSource::Created(created) })
    }

    /// All slots are taken: the task is stored, and runs when one is free.
    async fn create_queued(
        self: &Arc<Self>,
        new: NewTask,
        task: Task,
        made_by: &Entry,
        head: &TaskHeader,
    ) -> Result<StartedTask, CreateError> {
        let Some(queueing) = self.enqueue(&new.owner) else {
            return Err(CreateError::Other(self.queue_full()));
        };
        let mut change = Change::new(Precondition::Create(Box::new(new))).of_owner(&task.origin.owner);
        change.events = Some(event::encode(std::slice::from_ref(made_by)));
        change.state = Some((State::Submitted, task.status_at));
        change.head = Some(head.encode());
        change.run = RunChange::Due(task.status_at);
        let joined = self.hub.join(task.origin.id);
        // No other follower can exist yet, and this one gets the event with the result.
        let writer = Writer::Command(&task.origin);
        let committed = self.commit_and_apply(writer, Decision::silent(change)).await?;
        queueing.confirm();
        self.claims.notify_one();
        let created = CreatedTask { no: committed.task, joined: Some(joined) };
        let entries = Some([made_by.clone()].into());
        Ok(StartedTask { task, entries, events: EventSource::Created(created) })
    }

    pub(super) fn queue_full(&self) -> Error {
        let why = format!(
            "{} tasks run and {} wait (max-running, max-queued)",
            self.options.max_running, self.options.max_queued
        );
        Error::busy("max-queued", why, Duration::from_secs(5))
    }

    /// Validates ids before anything is looked up by them.
    fn check_ids(&self, submit: &Submit) -> Result<(), Error> {
        let message = (!submit.message.id.is_empty()).then_some(&submit.message.id);
        for (what, id) in [
            ("messageId", message),
            ("contextId", submit.context.as_ref()),
            ("task id", submit.client_id.as_ref()),
            ("idempotency key", submit.idempotency_key.as_ref()),
        ] {
            if let Some(id) = id {
                check_id(what, id, &self.options.limits)?;
            }
        }
        Ok(())
    }

    fn check(&self, submit: &Submit, profile: &Profile) -> Result<(), Error> {
        let limits = &self.options.limits;
        check_message(&submit.message, profile, limits)?;
        check_metadata("a request", &submit.metadata, limits)?;
        if submit.webhooks.len() > limits.webhooks_per_task {
            return Err(Error::limit(
                "limits.webhooks-per-task",
                format!(
                    "limits.webhooks-per-task: a task has at most {} push notification configs",
                    limits.webhooks_per_task
                ),
            ));
        }
        for webhook in &submit.webhooks {
            check_webhook(profile, webhook, limits, &*self.check_webhook)?;
        }
        let accepted = &submit.accepted_output_modes;
        if accepted.len() > MAX_ACCEPTED_MODES || accepted.iter().any(|mode| mode.len() > MAX_MODE_BYTES) {
            return Err(Error::limit(
                "acceptedOutputModes",
                format!(
                    "acceptedOutputModes: at most {MAX_ACCEPTED_MODES} media types, of {MAX_MODE_BYTES} bytes each"
                ),
            ));
        }
        let makes = |mode: &String| mode == "*/*" || accepts(accepted, mode);
        if !accepted.is_empty() && !profile.output_modes.iter().any(makes) {
            return Err(Error::ContentType(format!(
                "the agent makes {}, and the request accepts only {}",
                profile.output_modes.join(", "),
                accepted.join(", ")
            )));
        }
        Ok(())
    }

    /// Assigns an id to a message whose protocol has none; always the same under one idempotency key.
    pub(crate) fn name(&self, message: &mut Message, key: Option<&str>) {
        if message.id.is_empty() {
            message.id = key.map_or_else(|| self.clock.new_id().to_string(), str::to_owned);
        }
    }
}

enum CreateError {
    Exists { task: TaskId, digest: Option<Digest> },
    Other(Error),
}

impl From<Error> for CreateError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<CommitError> for CreateError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Exists { task, digest } => Self::Exists { task, digest },
            CommitError::Store(error) => Self::Other(error.into()),
            other => Self::Other(Error::Internal(other.to_string())),
        }
    }
}

/// Decides the creation of a task whose run has begun, or has ended already.
fn decide_creation(
    new: NewTask,
    work: &PendingCommit,
    submitted: Timestamp,
    schedule: RunChange,
) -> Decision {
    let owner = tenant_of(&new.owner).into();
    let mut change = Change::new(Precondition::Create(Box::new(new)));
    change.tenant = Some(owner);
    change.events = Some(event::encode(&work.entries));
    change.state = Some(work.state.unwrap_or((State::Submitted, submitted)));
    change.head = Some(work.head.encode());
    change.journal.clone_from(&work.journal);
    change.run = schedule;
    Decision { entries: Arc::clone(&work.entries), ..Decision::silent(change) }
}

/// Validates a message before anything is decided on it.
pub(super) fn check_message(message: &Message, profile: &Profile, limits: &Limits) -> Result<(), Error> {
    // A2A 0.1 has no message ids; such a message gets one when it is stored.
    if !message.id.is_empty() {
        check_id("messageId", &message.id, limits)?;
    }
    if message.parts.is_empty() {
        return Err(Error::Invalid("message.parts: a message has at least one part".into()));
    }
    if message.parts.len() > limits.parts_per_message {
        return Err(Error::limit(
            "limits.parts-per-message",
            format!(
                "limits.parts-per-message: a message has at most {} parts, this one has {}",
                limits.parts_per_message,
                message.parts.len()
            ),
        ));
    }
    let of_parts = message.parts.iter().filter_map(|part| part.metadata.as_ref());
    check_metadata("a message with its parts", message.metadata.iter().chain(of_parts), limits)?;
    if message.size() as u64 > limits.bytes_per_task {
        return Err(Error::limit(
            "limits.bytes-per-task",
            format!("limits.bytes-per-task: a task holds at most {} bytes", limits.bytes_per_task),
        ));
    }
    let refused =
        |part: &&Part| part.media_type.as_ref().is_some_and(|mode| !accepts(&profile.input_modes, mode));
    match message.parts.iter().find(refused).and_then(|part| part.media_type.as_ref()) {
        Some(mode) => {
            Err(Error::ContentType(format!("the agent takes {}, not {mode}", profile.input_modes.join(", "))))
        }
        None => Ok(()),
    }
}

/// Refuses metadata that is too large. That of a request is a part of the task's header, which every read of its row loads;
/// that of a message is no content, so `limits.bytes-per-task` does not count it.
fn check_metadata<'m>(
    whose: &str,
    metadata: impl IntoIterator<Item = &'m Metadata>,
    limits: &Limits,
) -> Result<(), Error> {
    // As it is stored: characters that JSON escapes are up to six times as long. Maps with text keys: it cannot fail.
    let length = |metadata: &Metadata| serde_json::to_vec(metadata).map_or(0, |json| json.len());
    let bytes: usize = metadata.into_iter().map(length).sum();
    match bytes > limits.metadata_bytes {
        true => Err(Error::Limit(format!(
            "limits.metadata-bytes: the metadata of {whose} has at most {} bytes, this has {bytes}",
            limits.metadata_bytes
        ))),
        false => Ok(()),
    }
}

/// Whether a list of media types covers one: exactly, by wildcard, or by the short names of A2A 0.1.
fn accepts(list: &[String], mode: &str) -> bool {
    let bare = |mode: &str| mode.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let mode = bare(mode);
    list.iter().map(|one| bare(one)).any(|one| {
        one == mode
            || one == "*/*"
            || one.strip_suffix("/*").is_some_and(|kind| mode.split('/').next() == Some(kind))
            || matches!((one.as_str(), mode.as_str()), ("text", "text/plain") | ("text/plain", "text"))
            || matches!(
                (one.as_str(), mode.as_str()),
                ("data", "application/json") | ("application/json", "data")
            )
    })
}

pub(crate) fn encode_webhook(config: &WebhookConfig) -> Webhook {
    // Strings only: it cannot fail; unreadable bytes would surface as a dead letter.
    let bytes = serde_json::to_vec(config).unwrap_or_default();
    Webhook { id: config.id.clone(), cursor: 0, config: bytes.into() }
}

pub(crate) fn stopping() -> Error {
    Error::busy("stopping", "the server is stopping", Duration::from_secs(5))
}
