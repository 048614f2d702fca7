//! The one place that commits a change of a task and then applies it in memory.
//!
//! A command, and a run, first decide without effects: what to write ([`Decision::change`]), and what follows once that is
//! durable ([`Effect`]). [`EngineCore::commit_and_apply`] is the only caller of `TaskStore::commit`. A refused commit
//! applies nothing, so nothing in memory is ahead of the store.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    clock::Timestamp,
    engine::{EngineCore, pulse::PulseChange},
    error::Error,
    event::{self, Entry, EntryBatch},
    question::{Answer, QuestionOutcome},
    run::{PendingCommit, TaskRun},
    sent_by::SentBy,
    store::{Change, CommitError, CommitReceipt, Precondition, TaskRow},
    task::{Origin, State, Task, TaskId},
};

/// What to write, and what follows from it in memory.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) change: Change,
    /// The events of the change, for followers on this node. Empty if none can exist yet.
    pub(crate) entries: Arc<[Entry]>,
    /// Applied in this order.
    pub(crate) effects: Vec<Effect>,
}

impl Decision {
    /// A decision without events for followers.
    pub(crate) fn silent(change: Change) -> Self {
        Self { change, entries: Arc::default(), effects: vec![] }
    }

    /// A decision on a task as it was read. Applies the events to `task`, which is then as it will be once they are
    /// durable.
    pub(crate) fn on(row: &TaskRow, task: &mut Task, entries: Vec<Entry>) -> Self {
        let mut change =
            Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
        let before: (State, Timestamp) = (task.state, task.status_at);
        for entry in &entries {
            task.apply(entry);
        }
        change.state = Some((task.state, task.status_at)).filter(|after| *after != before);
        change.events = (!entries.is_empty()).then(|| event::encode(&entries));
        Self { change, entries: entries.into(), effects: vec![] }
    }
}

/// What follows in memory from a durable change. "The run" is the task's run on this node; without one there is nothing to
/// do.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// The claim loop takes the task, from this time on.
    Due(Timestamp),
    /// The run reads the message that was added.
    NotifyRun,
    /// The run is canceled.
    CancelRun { by: Option<Box<SentBy>> },
    /// The run is stopped because nobody answered the task's question.
    StopUnanswered { reason: String },
    /// The run notifies the outbox of its commits, and the outbox reads the new webhooks.
    WatchWebhooks,
    /// The run gets the outcome of its question.
    EndQuestion { question: String, outcome: QuestionOutcome },
    /// The calling task relays this question, and gets the same answer.
    AnswerCaller { parent: TaskId, question: String, answer: Answer, by: Option<Box<SentBy>> },
    /// The calling task relays these questions, and withdraws them.
    WithdrawFromCaller { parent: TaskId, questions: Vec<String> },
}

/// The part of the engine that made a decision.
pub(crate) enum Writer<'a> {
    /// A command on a task.
    Command(&'a Origin),
    /// The run of a task, with the pending work that the commit makes durable. `None`: nothing waits for it.
    Run(&'a TaskRun, Option<&'a PendingCommit>),
    /// This node itself, for the task of this row.
    Node(&'a TaskRow),
}

impl Writer<'_> {
    /// The agent that works on the task.
    pub(crate) fn agent(&self) -> &str {
        match self {
            Self::Command(origin) => &origin.agent,
            Self::Run(run, _) => &run.origin.agent,
            Self::Node(row) => &row.agent,
        }
    }

    pub(crate) fn task(&self) -> TaskId {
        match self {
            Self::Command(origin) => origin.id,
            Self::Run(run, _) => run.origin.id,
            Self::Node(row) => row.id,
        }
    }

    fn owner(&self) -> &str {
        match self {
            Self::Command(origin) => &origin.owner,
            Self::Run(run, _) => &run.origin.owner,
            Self::Node(row) => &row.owner,
        }
    }
}

impl EngineCore {
    /// Commits a decision. Once it is durable, notifies the run and the followers and applies the effects.
    pub(crate) async fn commit_and_apply(
        self: &Arc<Self>,
        writer: Writer<'_>,
        decision: Decision,
    ) -> Result<CommitReceipt, CommitError> {
        let Decision { change, entries, effects } = decision;
        let (changes_state, pulse) = (change.state.is_some(), PulseChange::of(&change));
        let committed = self.store.commit(change).await?;
        self.count_commit(&writer, &pulse, &entries);
        self.log_task_change(&writer, pulse.creates, &entries);
        if changes_state && self.state_changes.receiver_count() > 0 {
            self.state_changes.send_replace(());
        }
        if let Writer::Run(run, Some(work)) = &writer {
            run.done(work);
        }
        if !entries.is_empty() {
            self.announce(&writer, &committed, &entries);
        }
        if let Writer::Run(run, _) = &writer
            && committed.cancel
            && !run.is_canceled()
        {
            run.cancel();
        }
        for effect in effects {
            self.apply(&writer, effect);
        }
        Ok(committed)
    }

    /// Commits the decision of a command on the task that its caller calls `name`. `Ok(None)`: the task has changed; read
    /// and decide again.
    pub(crate) async fn commit_command(
        self: &Arc<Self>,
        origin: &Origin,
        name: &str,
        decision: Decision,
    ) -> Result<Option<CommitReceipt>, Error> {
        // In a separate tokio task: the caller may disconnect meanwhile, and what is durable has to reach the run and the
        // followers.
        let (engine, origin) = (Arc::clone(self), origin.clone());
        let committing =
            tokio::spawn(async move { engine.commit_and_apply(Writer::Command(&origin), decision).await });
        let committed = match committing.await {
            Ok(committed) => committed,
            Err(error) if error.is_panic() => {
                return Err(Error::Internal("the commit of a command panicked".into()));
            }
            // The runtime is shutting down. The caller must not record that as a failure.
            Err(_) => std::future::pending().await,
        };
        match committed {
            Ok(committed) => Ok(Some(committed)),
            Err(CommitError::Moved) => Ok(None),
            Err(CommitError::Gone) => Err(Error::NoSuchTask(name.to_owned())),
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(error @ CommitError::LogFull(_)) => {
                Err(Error::limit("limits.events-per-task", error.to_string()))
            }
            Err(error @ CommitError::TooManyWebhooks(_)) => {
                Err(Error::limit("limits.webhooks-per-task", error.to_string()))
            }
            Err(error) => Err(Error::Internal(error.to_string())),
        }
    }

    /// Publishes durable events to the followers, the tracer and the outbox.
    fn announce(&self, writer: &Writer<'_>, committed: &CommitReceipt, entries: &Arc<[Entry]>) {
        let batch = || EntryBatch { first_seq: committed.first_seq, entries: Arc::clone(entries) };
        self.hub.publish(writer.task(), batch);
        match writer {
            Writer::Run(run, _) => {
                self.trace_end(&run.origin, entries);
                if run.hooked.load(Ordering::Relaxed) {
                    self.outbox.notify_one();
                }
            }
            Writer::Command(origin) => {
                self.trace_end(origin, entries);
                self.outbox.notify_one();
            }
            Writer::Node(_) => self.outbox.notify_one(),
        }
    }

    /// Applies one effect of what is durable.
    pub(crate) fn apply(self: &Arc<Self>, writer: &Writer<'_>, effect: Effect) {
        let local_run = || self.local_run(writer.task());
        match effect {
            Effect::Due(at) => self.due(writer.owner(), at),
            Effect::NotifyRun => {
                if let Some(run) = local_run() {
                    run.notify_external_write();
                }
            }
            Effect::CancelRun { by } => {
                if let Some(run) = local_run() {
                    run.cancel_by(by);
                }
            }
            Effect::StopUnanswered { reason } => {
                if let Some(run) = local_run() {
                    run.stop_unanswered(reason);
                }
            }
            Effect::WatchWebhooks => {
                if let Some(run) = local_run() {
                    run.hooked.store(true, Ordering::Relaxed);
                }
                self.outbox.notify_one();
            }
            Effect::EndQuestion { question, outcome } => {
                if let Some(run) = local_run() {
                    run.end_question(question, outcome);
                }
            }
            Effect::AnswerCaller { parent, question, answer, by } => {
                self.answer_parent(writer.task(), parent, question, answer, by);
            }
            Effect::WithdrawFromCaller { parent, questions } => {
                self.withdraw_from_caller(writer.task(), parent, questions);
            }
        }
    }
}
