//! The fork command: a new task with the log of another one up to a question, and with another answer to it.
//!
//! What the agent did before the question is not done again: the journal up to the question is copied, so its steps and
//! calls return what they returned. A question is a barrier: everything that its scope did before is in the log and in the
//! journal, and the question's own entry holds how much the scope had emitted. So both are cut at the same point. Branches
//! have no such point, and what an agent does elsewhere cannot be copied: such tasks are refused, with the reason.
//!
//! The new task is a task of its own: no called task, with its own lease, limits and usage. One commit makes it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    reply_decision::{MessageEffect, apply_message},
    submit::{check_message, stopping},
};
use crate::{
    access::{AccessKind, Action, Caller},
    access_control::AccessRequest,
    clock::Timestamp,
    commit::{Decision, Writer},
    engine::{Engine, EngineCore},
    error::Error,
    event::{self, Entry, Event},
    journal::JournalEntry,
    question::{Answer, Question},
    sent_by::SentBy,
    store::{Change, JournalRecord, NewTask, Precondition, RunChange, TaskRow},
    task::{Origin, Task, TaskId},
    task_header::{EmitCursor, TaskHeader},
    usage::MeteredResource,
};

/// The maximum bytes of log and journal that a fork copies (`fork.bytes`): they are one commit, and one batch of the log.
pub const MAX_FORK_BYTES: usize = 4 * 1024 * 1024;

/// The point at which a task was forked off another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The other task.
    pub task: TaskId,
    /// The event of it that asks the question.
    pub at: u64,
}

/// A request for a fork.
#[derive(Debug, Clone)]
pub struct Fork {
    /// The task's id, or the id that its owner chose.
    pub task: String,
    /// The event that asks the question.
    pub at: u64,
    /// The answer; `None`: the new task waits for one.
    pub answer: Option<Answer>,
}

/// A task that was forked off another one.
#[derive(Debug)]
pub struct ForkedTask {
    /// The new task.
    pub task: Task,
    /// Where it begins to differ.
    pub forked_from: ForkPoint,
}

/// Why a task cannot be forked at a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkRefusal {
    /// The event is none, or no question.
    #[error("at: event {0} asks no question; a task can be forked at the events of the type question")]
    NoQuestion(u64),
    /// The question is one of a called task, which goes on by itself.
    #[error("at: the question is one of the task {0}, which this one called; fork that task")]
    OfCalledTask(TaskId),
    /// The agent's work elsewhere cannot be copied.
    #[error(
        "the agent {0:?} works on another server, where its work cannot be copied; send the first message again"
    )]
    WorksElsewhere(String),
    /// Several scopes have no common point.
    #[error(
        "the agent works in branches, which have no common point at a question; send the first message again"
    )]
    Branches,
    /// The question was asked by an older version.
    #[error(
        "at: the question was asked by a version that did not record how far the agent was; send the first message again"
    )]
    Unrecorded,
    /// It is too large.
    #[error(
        "fork.bytes: the log and the journal up to there have more than {MAX_FORK_BYTES} bytes; send the first message again"
    )]
    TooLarge,
}

/// Why there is no fork.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// This task has none at this point.
    #[error(transparent)]
    Refused(#[from] ForkRefusal),
    /// Not found, not allowed, not possible now, or an answer that does not fit.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Engine {
    /// Makes a new task of the caller with the log of one of its tasks up to a question, and with this answer to it. It
    /// is allowed, counted and limited as a message to the agent is.
    pub async fn fork(&self, caller: &Caller, fork: &Fork) -> Result<ForkedTask, ForkError> {
        self.allow_task(caller, Action::Read, "task.get", &fork.task)?;
        let row = self.0.find_row(caller, &fork.task).await?;
        self.allow_fork(caller, &row)?;
        let task = self.0.fork(caller, &row, fork).await?;
        self.list_changed(caller.tenant());
        Ok(ForkedTask { task, forked_from: ForkPoint { task: row.id, at: fork.at } })
    }

    fn allow_fork(&self, caller: &Caller, row: &TaskRow) -> Result<(), Error> {
        let resource = format_args!("a2a://agents/{}?fork={}", row.agent, row.id);
        let (action, kind, name) = (Action::Execute, AccessKind::A2a, row.agent.as_str());
        let operation = "task.fork";
        self.allow(caller, &AccessRequest { action, kind, name, operation, resource: &resource })
    }
}

impl EngineCore {
    async fn fork(self: &Arc<Self>, caller: &Caller, row: &TaskRow, fork: &Fork) -> Result<Task, ForkError> {
        if self.is_closing() {
            return Err(stopping().into());
        }
        self.admin.check_open(caller.tenant())?;
        let registered = self.catalog.get(&row.agent)?;
        if registered.agent.works_elsewhere() {
            return Err(ForkRefusal::WorksElsewhere(row.agent.clone()).into());
        }
        let _permit = self.reserve_for(caller, row).await?;
        let head = TaskHeader::decode(&row.head)?;
        let entries = self.entries_until(row, fork.at).await?;
        let journal = self.store.journal(row.no).await.map_err(Error::from)?;
        let cut = CutTask::of(&head, entries, &journal, fork.at)?;
        let forked_from = ForkPoint { task: row.id, at: fork.at };
        let (id, now) = (TaskId(self.clock.new_id()), self.clock.now());
        let head = forked_header(&head, caller, &cut, forked_from);
        let origin = forked_origin(row, &head, id, caller);
        let CutTask { mut entries, mut journal, bytes, .. } = cut;
        self.readdress(&mut entries, id);
        let mut task = Task::new(origin).fold(&entries);
        if let Some(answer) = &fork.answer {
            let Some((_, question)) = task.questions.last() else {
                return Err(ForkRefusal::NoQuestion(fork.at).into());
            };
            let mut message = answer.message(&question.id);
            self.name(&mut message, None);
            check_message(&message, &registered.profile, &self.options.limits)?;
            let by = SentBy::of(caller, caller.owner());
            let MessageEffect { entries: added, answered } = apply_message(&task, &message, &by, now)?;
            task = task.fold(&added);
            entries.extend(added);
            let record = answered.map(|(question, answer)| JournalEntry::Answered { question, answer });
            journal.extend(record.as_ref().map(JournalEntry::encode));
        }
        self.usage.accept_stored(caller.tenant(), MeteredResource::StoredBytes, bytes)?;
        self.create_forked(row, &task, &entries, journal, &head, now, fork.answer.is_some()).await?;
        Ok(task)
    }

    /// The commit that makes the new task: all of it or nothing.
    #[allow(clippy::too_many_arguments, reason = "the parts of one commit")]
    async fn create_forked(
        self: &Arc<Self>,
        row: &TaskRow,
        task: &Task,
        entries: &[Entry],
        journal: Vec<JournalRecord>,
        head: &TaskHeader,
        now: Timestamp,
        is_due: bool,
    ) -> Result<(), Error> {
        let queueing = match is_due {
            true => Some(self.enqueue(&task.origin.owner).ok_or_else(|| self.queue_full())?),
            false => None,
        };
        let new = NewTask {
            id: task.origin.id,
            client_id: None,
            owner: task.origin.owner.clone(),
            context: Some(row.context.clone()),
            agent: row.agent.clone(),
            parent: None,
            idempotency: None,
            webhooks: vec![],
            created_at: now,
        };
        let mut change = Change::new(Precondition::Create(Box::new(new))).of_owner(&task.origin.owner);
        change.events = Some(event::encode(entries));
        change.state = Some((task.state, task.status_at));
        change.head = Some(head.encode());
        change.journal = journal;
        change.run = if is_due { RunChange::Due(now) } else { RunChange::Rest };
        // No follower can exist yet.
        let committed = self.commit_and_apply(Writer::Command(&task.origin), Decision::silent(change)).await;
        committed.map_err(|error| match error {
            crate::store::CommitError::Store(error) => error.into(),
            other => Error::Internal(other.to_string()),
        })?;
        if let Some(queueing) = queueing {
            queueing.confirm();
            self.claims.notify_one();
        }
        Ok(())
    }

    /// The first events of a task's log, up to this one.
    async fn entries_until(&self, row: &TaskRow, at: u64) -> Result<Vec<Entry>, ForkError> {
        if at == 0 || at > row.seq {
            return Err(ForkRefusal::NoQuestion(at).into());
        }
        let (mut entries, mut bytes) = (vec![], 0);
        while (entries.len() as u64) < at {
            let after = entries.len() as u64;
            let stored = self.store.log(row.no, after, 1 << 20).await.map_err(Error::from)?;
            if stored.is_empty() {
                return Err(Error::NoSuchTask(row.id.to_string()).into());
            }
            for batch in &stored {
                bytes += batch.bytes.len();
                let all = event::decode(&batch.bytes).map_err(|error| Error::Internal(error.to_string()))?;
                let known = (entries.len() as u64 + 1).saturating_sub(batch.first_seq) as usize;
                entries.extend(all.into_iter().skip(known));
            }
            if bytes > MAX_FORK_BYTES + (1 << 20) {
                return Err(ForkRefusal::TooLarge.into());
            }
        }
        entries.truncate(usize::try_from(at).unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// A callback completes the authorization of the task that it was made for: the new task's question gets its own, and
    /// those that are closed get none.
    fn readdress(&self, entries: &mut [Entry], id: TaskId) {
        let last = entries.len().saturating_sub(1);
        for (n, Entry(_, event)) in entries.iter_mut().enumerate() {
            let Event::Question(Question { id: question, callback: callback @ Some(_), .. }) = event else {
                continue;
            };
            *callback = if n == last { self.authorization_callback(id, question) } else { None };
        }
    }
}

/// A task's log and journal up to a question.
#[derive(Debug)]
struct CutTask {
    entries: Vec<Entry>,
    journal: Vec<JournalRecord>,
    /// How much the agent had emitted.
    emitted: EmitCursor,
    /// The size of both.
    bytes: u64,
}

impl CutTask {
    /// `entries`: the log up to the question; `journal`: all of it.
    fn of(
        head: &TaskHeader,
        entries: Vec<Entry>,
        journal: &[JournalRecord],
        at: u64,
    ) -> Result<Self, ForkError> {
        let Some(Event::Question(question)) = entries.last().map(Entry::event) else {
            return Err(ForkRefusal::NoQuestion(at).into());
        };
        if let Some((called, _)) = question.id.split_once('.')
            && let Some(called) = TaskId::parse(called)
        {
            return Err(ForkRefusal::OfCalledTask(called).into());
        }
        if head.marks.keys().any(|scope| !scope.is_empty()) {
            return Err(ForkRefusal::Branches.into());
        }
        let (mut copied, mut emitted, mut found) = (vec![], None, false);
        for record in journal {
            let entry = JournalEntry::decode(record)?;
            if entry.is_in_branch() {
                return Err(ForkRefusal::Branches.into());
            }
            if found || entry.is_of_runs() {
                continue;
            }
            if let JournalEntry::Asked { at, emitted: recorded, .. } = &entry
                && at.replace('#', "q") == question.id
            {
                (found, emitted) = (true, *recorded);
            }
            copied.push(record.clone());
        }
        let emitted = emitted.ok_or(ForkRefusal::Unrecorded)?;
        let said: usize = entries.iter().map(|entry| entry.event().size()).sum();
        let bytes = said + copied.iter().map(|record| record.0.len()).sum::<usize>();
        if bytes > MAX_FORK_BYTES {
            return Err(ForkRefusal::TooLarge.into());
        }
        Ok(Self { entries, journal: copied, emitted, bytes: bytes as u64 })
    }
}

/// The header of the new task: what the agent decided by stays as it was, whose it is does not.
fn forked_header(head: &TaskHeader, caller: &Caller, cut: &CutTask, forked_from: ForkPoint) -> TaskHeader {
    TaskHeader {
        dialect: caller.dialect().to_owned(),
        agent_version: head.agent_version.clone(),
        can_ask: head.can_ask,
        can_sample: head.can_sample,
        own_model: head.own_model,
        can_authorize: head.can_authorize,
        metadata: head.metadata.clone(),
        accepted_output_modes: head.accepted_output_modes.clone(),
        extensions: head.extensions.clone(),
        grants: (!caller.grants().is_all()).then(|| caller.grants().to_string()),
        credential: caller.credential().map(str::to_owned),
        marks: BTreeMap::from([(String::new(), cut.emitted)]),
        bytes: cut.bytes,
        forked_from: Some(forked_from),
        ..TaskHeader::default()
    }
}

fn forked_origin(row: &TaskRow, head: &TaskHeader, id: TaskId, caller: &Caller) -> Origin {
    Origin {
        id,
        client_id: None,
        context: row.context.clone(),
        agent: row.agent.clone(),
        owner: caller.owner().to_owned(),
        dialect: head.dialect.clone(),
        metadata: head.metadata.clone(),
        trace: None,
        accepts_reply: false,
    }
}
