//! The cancel command.
//!
//! If no agent works on the task, it is canceled in one commit. Otherwise the cancel request is committed,
//! the agent is notified, and the call waits for the end, bounded by the grace period. Children are canceled
//! first, so that a cancel that returned has reached all of them.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::{DECIDE_AGAIN, moved_too_often};
use crate::{
    access::Caller,
    clock::Timestamp,
    commit::{Decision, Effect, Writer},
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, Status},
    run::TaskRun,
    sent_by::SentBy,
    store::{Change, Precondition, RunChange, TaskKey, TaskRow},
    task::{State, Task, TaskId},
    task_header::{CALLING_TASK, TaskHeader},
};

/// How much longer than the grace period a call waits for the end.
const PATIENCE: Duration = Duration::from_secs(2);

impl EngineCore {
    pub(crate) async fn cancel(self: &Arc<Self>, caller: &Caller, name: &str) -> Result<Task, Error> {
        self.cancel_and(caller, name, true, None).await
    }

    /// Cancels a task in its owner's name, at the request of another caller.
    pub(crate) async fn cancel_for(
        self: &Arc<Self>,
        owner: &Caller,
        name: &str,
        by: SentBy,
    ) -> Result<Task, Error> {
        self.cancel_and(owner, name, true, Some(by)).await
    }

    /// `tell`: also withdraw the task's questions from its calling task. Not if that one is being canceled as
    /// well: it would continue, and might end before the cancel reaches it.
    ///
    /// `by`: whom the end names; `None`: the caller.
    async fn cancel_and(
        self: &Arc<Self>,
        caller: &Caller,
        name: &str,
        tell: bool,
        by: Option<SentBy>,
    ) -> Result<Task, Error> {
        for _ in 0..DECIDE_AGAIN {
            let opened = self.find(caller, name).await?;
            let row = &opened.row;
            let mut task = self.fold(&opened).await?;
            if task.state.is_terminal() {
                return Err(Error::NotCancelable(task.state));
            }
            let id = row.id.to_string();
            let by = by.clone().unwrap_or_else(|| SentBy::of(caller, &row.owner));
            let workplace = self.workplace(row);
            if workplace == Workplace::Nowhere {
                match self.cancel_at_rest(row, &mut task, tell, by).await? {
                    true => return Ok(task),
                    false => continue,
                }
            }
            match workplace == Workplace::Run && row.cancel {
                // The request is durable already.
                true => self.apply(&Writer::Command(&task.origin), Effect::CancelRun { by: None }),
                false => {
                    let decision = decide_cancel_request(row, workplace, by, self.clock.now());
                    if self.commit_command(&task.origin, &id, decision).await?.is_none() {
                        continue;
                    }
                }
            }
            let asked = open_questions(&task);
            let ended = self.until_ended(caller, &id, task).await?;
            if let Some(parent) = row.parent
                && tell
                && ended.state.is_terminal()
                && !asked.is_empty()
            {
                self.withdraw_from_caller(row.id, parent, asked);
            }
            return Ok(ended);
        }
        Err(moved_too_often())
    }

    /// Ends a task on which nothing works. False: the task has changed meanwhile.
    pub(crate) async fn cancel_at_rest(
        self: &Arc<Self>,
        row: &TaskRow,
        task: &mut Task,
        tell: bool,
        by: SentBy,
    ) -> Result<bool, Error> {
        // One that never ran has called none.
        if row.epoch > 0 {
            self.cancel_children(row.id).await;
        }
        let decision = decide_end(row, task, tell, ended_by_request(by, self.clock.now()));
        Ok(self.commit_command(&task.origin, &row.id.to_string(), decision).await?.is_some())
    }

    pub(crate) fn workplace(&self, row: &TaskRow) -> Workplace {
        // A task that this node holds without a run is not being worked on: its run is yet to start, or has
        // crashed.
        let at_work = row.node.is_some_and(|node| node != self.node || self.local_run(row.id).is_some());
        let remote =
            || self.catalog.get(&row.agent).is_ok_and(|registered| registered.agent.works_elsewhere());
        match at_work {
            true => Workplace::Run,
            false if remote() => Workplace::Remote,
            false => Workplace::Nowhere,
        }
    }

    /// Waits for the end of a task whose cancelling was requested. It will end, because the request is
    /// durable; if that takes too long, returns the task as it is.
    async fn until_ended(self: &Arc<Self>, caller: &Caller, id: &str, task: Task) -> Result<Task, Error> {
        let patience = self.options.cancel_grace + PATIENCE;
        let ended = self.wait_until(caller, task, |task| task.state.is_terminal());
        match tokio::time::timeout(patience, ended).await {
            Ok(ended) => ended,
            Err(_) => self.fold(&self.find(caller, id).await?).await,
        }
    }

    /// Cancels the live tasks that the task of a run called. The store is asked only if there may be any.
    pub(crate) async fn cancel_children_of(self: &Arc<Self>, run: &TaskRun) {
        if run.may_have_called() {
            self.cancel_children(run.origin.id).await;
        }
    }

    /// Cancels the live tasks that a task called. Boxed, because they may have called others.
    fn cancel_children<'a>(
        self: &'a Arc<Self>,
        parent: TaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let children = match self.store.live_children(parent).await {
                Ok(children) => children,
                Err(error) => {
                    tracing::warn!(task = %parent, %error, "could not list called tasks to cancel them");
                    return;
                }
            };
            join_all(children.into_iter().map(|child| self.cancel_child(child))).await;
        })
    }

    /// Cancels a task that was just created, if its calling task had ended before: that one could not find it
    /// among its children.
    pub(crate) async fn cancel_if_orphaned(self: &Arc<Self>, child: TaskId, parent: TaskId) {
        let parent = self.store.row(&TaskKey::Id(parent)).await;
        if parent.is_ok_and(|row| row.is_none_or(|row| row.state.is_terminal())) {
            let engine = Arc::clone(self);
            tokio::spawn(async move { engine.cancel_child(child).await });
        }
    }

    async fn cancel_child(self: &Arc<Self>, child: TaskId) {
        let Ok(Some(row)) = self.store.row(&TaskKey::Id(child)).await else { return };
        let caller = Caller::named(row.owner.as_str()).over(CALLING_TASK);
        match self.cancel_and(&caller, &child.to_string(), false, None).await {
            Ok(_) | Err(Error::NotCancelable(_) | Error::NoSuchTask(_)) => {}
            Err(error) => tracing::warn!(task = %child, %error, "a called task could not be canceled"),
        }
    }
}

/// Where a task is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workplace {
    /// Nowhere: it waits.
    Nowhere,
    /// In a run, on this node or another.
    Run,
    /// It waits here, and its agent has remote work that it can stop.
    Remote,
}

/// Decides the end of a task on which nothing works.
///
/// `tell`: also withdraw the task's questions from its calling task.
pub(super) fn decide_end(row: &TaskRow, task: &mut Task, tell: bool, end: Entry) -> Decision {
    let questions = open_questions(task);
    let mut decision = Decision::on(row, task, vec![end]);
    decision.change.run = RunChange::Rest;
    decision.effects.push(Effect::CancelRun { by: None });
    if let Some(parent) = row.parent.filter(|_| tell && !questions.is_empty()) {
        decision.effects.push(Effect::WithdrawFromCaller { parent, questions });
    }
    decision
}

/// Decides to request the cancelling of a task. Remote work is stopped by running the task's agent once more, with the
/// request set.
///
/// The header holds the sender until the end of the task names it. A run on another node that commits before it has read the
/// request writes its own header over it: then the end names no sender.
pub(crate) fn decide_cancel_request(
    row: &TaskRow,
    workplace: Workplace,
    by: SentBy,
    now: Timestamp,
) -> Decision {
    let mut change =
        Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
    change.cancel = Some(true);
    let by = Some(Box::new(by));
    // A header that cannot be decoded must not keep a task from being canceled.
    if let Ok(head) = TaskHeader::decode(&row.head) {
        change.head = Some(TaskHeader { canceled_by: by.clone(), ..head }.encode());
    }
    let effect = match workplace {
        Workplace::Run | Workplace::Nowhere => Effect::CancelRun { by },
        Workplace::Remote => {
            change.run = RunChange::Due(now);
            Effect::Due(now)
        }
    };
    Decision { effects: vec![effect], ..Decision::silent(change) }
}

fn open_questions(task: &Task) -> Vec<String> {
    task.questions.iter().map(|(_, question)| question.id.clone()).collect()
}

/// The event that ends a canceled task on which no agent works.
pub(super) fn ended_by_request(by: SentBy, now: Timestamp) -> Entry {
    Entry(now, Event::Status(Status { state: State::Canceled, message: None, by: Some(Box::new(by)) }))
}
