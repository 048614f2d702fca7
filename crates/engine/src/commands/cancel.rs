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
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, Status},
    store::{Change, OpenedTask, Precondition, RunChange, TaskKey},
    task::{State, Task, TaskId},
};

/// How much longer than the grace period a call waits for the end.
const PATIENCE: Duration = Duration::from_secs(2);

impl EngineCore {
    pub(crate) async fn cancel(self: &Arc<Self>, caller: &Caller, name: &str) -> Result<Task, Error> {
        self.cancel_and(caller, name, true).await
    }

    /// `tell`: also withdraw the task's questions from its calling task. Not if that one is being canceled as
    /// well: it would continue, and might end before the cancel reaches it.
    async fn cancel_and(self: &Arc<Self>, caller: &Caller, name: &str, tell: bool) -> Result<Task, Error> {
        for _ in 0..DECIDE_AGAIN {
            let opened = self.find(caller, name).await?;
            let task = self.fold(&opened).await?;
            if task.state.is_terminal() {
                return Err(Error::NotCancelable(task.state));
            }
            // A task that this node holds without a run is not being worked on: its run is yet to start, or
            // has crashed.
            let at_work = match opened.row.node {
                Some(node) => node != self.node || self.local_run(opened.row.id).is_some(),
                None => false,
            };
            let canceled = match at_work {
                true => self.cancel_at_work(caller, &opened, task).await?,
                false if self.works_elsewhere(&opened) => {
                    self.cancel_elsewhere(caller, &opened, task, tell).await?
                }
                false => self.cancel_at_rest(&opened, task, tell).await?,
            };
            if let Some(task) = canceled {
                return Ok(task);
            }
        }
        Err(moved_too_often())
    }

    pub(crate) async fn cancel_at_rest(
        self: &Arc<Self>,
        opened: &OpenedTask,
        mut task: Task,
        tell: bool,
    ) -> Result<Option<Task>, Error> {
        let row = &opened.row;
        self.cancel_children(row.id).await;
        let now = self.clock.now();
        let entry = ended_by_request(now);
        let asked = task.questions.iter().map(|(_, question)| question.id.clone()).collect::<Vec<_>>();
        task.apply(&entry);
        let mut change =
            Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
        change.state = Some((State::Canceled, now));
        change.run = RunChange::Rest;
        if self.decide(change, vec![entry.clone()], &row.id.to_string()).await?.is_none() {
            return Ok(None);
        }
        self.trace_end(&task.origin, &[entry]);
        if let Some(run) = self.local_run(row.id) {
            run.cancel();
        }
        if tell && !asked.is_empty() {
            self.withdraw_from_caller(row, asked);
        }
        Ok(Some(task))
    }

    async fn cancel_at_work(
        self: &Arc<Self>,
        caller: &Caller,
        opened: &OpenedTask,
        task: Task,
    ) -> Result<Option<Task>, Error> {
        let row = &opened.row;
        if !row.cancel {
            let mut change = Change::new(Precondition::Version { task: row.no, version: row.version })
                .of_owner(&row.owner);
            change.cancel = Some(true);
            if self.decide(change, vec![], &row.id.to_string()).await?.is_none() {
                return Ok(None);
            }
        }
        if let Some(run) = self.local_run(row.id) {
            run.cancel();
        }
        self.until_ended(caller, &row.id.to_string(), task).await.map(Some)
    }

    pub(crate) fn works_elsewhere(&self, opened: &OpenedTask) -> bool {
        self.catalog.get(&opened.row.agent).is_ok_and(|registered| registered.agent.works_elsewhere())
    }

    /// Runs a waiting task once more, with the cancel request set: its agent has remote work to stop.
    async fn cancel_elsewhere(
        self: &Arc<Self>,
        caller: &Caller,
        opened: &OpenedTask,
        task: Task,
        tell: bool,
    ) -> Result<Option<Task>, Error> {
        let (row, now) = (&opened.row, self.clock.now());
        let asked = task.questions.iter().map(|(_, question)| question.id.clone()).collect::<Vec<_>>();
        let mut change =
            Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
        change.cancel = Some(true);
        change.run = RunChange::Due(now);
        if self.decide(change, vec![], &row.id.to_string()).await?.is_none() {
            return Ok(None);
        }
        self.due(&row.owner, now);
        let ended = self.until_ended(caller, &row.id.to_string(), task).await?;
        if tell && ended.state.is_terminal() && !asked.is_empty() {
            self.withdraw_from_caller(row, asked);
        }
        Ok(Some(ended))
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

    /// Cancels the live tasks that a task called. Boxed, because they may have called others.
    pub(crate) fn cancel_children<'a>(
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
        match self.cancel_and(&Caller::named(row.owner.as_str()), &child.to_string(), false).await {
            Ok(_) | Err(Error::NotCancelable(_) | Error::NoSuchTask(_)) => {}
            Err(error) => tracing::warn!(task = %child, %error, "a called task could not be canceled"),
        }
    }
}

/// The event that ends a task on which no agent works.
pub(super) fn ended_by_request(now: Timestamp) -> Entry {
    Entry(now, Event::Status(Status { state: State::Canceled, message: None }))
}
