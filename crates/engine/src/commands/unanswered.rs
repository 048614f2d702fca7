//! The end of tasks that wait for an answer longer than their limit.
//!
//! Every node searches the store for them, as it does for tasks past their retention. Which node ends one, and whether an
//! answer that arrives at the same time was earlier, is decided by the version in the commit: exactly one of them is
//! written. A task whose agent has work elsewhere, or that called other tasks, is not ended at once: its run is requested
//! to stop, durably, as by a cancel, and the end then names this reason.

use std::{sync::Arc, time::Duration};

use super::cancel::{Workplace, decide_end};
use crate::{
    access::tenant_of,
    clock::Timestamp,
    commit::{Decision, Effect},
    content::{Message, Role},
    duration,
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, Status},
    question_limit::QuestionLimits,
    store::{AgedPhase, AgedTask, AgedTaskQuery, Change, Precondition, RunChange, TaskKey, TaskRow},
    task::{self, State, Task, TaskId},
    task_header::TaskHeader,
};

/// Tasks read at once.
const PAGE: usize = 256;

impl EngineCore {
    /// One pass over the tasks that wait for longer than the shortest limit.
    pub(crate) async fn end_unanswered(self: &Arc<Self>) -> Result<(), Error> {
        let limits = QuestionLimits::new(self.options.question_limit, &self.catalog);
        let Some(older_than) = limits.shortest() else { return Ok(()) };
        for state in [State::InputRequired, State::AuthRequired] {
            let (phase, mut after) = (AgedPhase::Live(state), None);
            loop {
                let query = AgedTaskQuery { phase, now: self.clock.now(), older_than, after, limit: PAGE };
                let page = self.store.aged_tasks(&query).await?;
                for aged in &page {
                    if self.is_closing() {
                        return Ok(());
                    }
                    // One that cannot be read keeps no other from its end.
                    if let Err(error) = self.end_if_unanswered(aged, &limits).await {
                        tracing::warn!(task = %aged.id, %error, "could not end a task that nobody answers; retrying");
                    }
                }
                after = page.last().filter(|_| page.len() == PAGE).map(|last| last.cursor);
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn end_if_unanswered(
        self: &Arc<Self>,
        aged: &AgedTask,
        limits: &QuestionLimits,
    ) -> Result<(), Error> {
        let Some(limit) = limits.of(&aged.agent).filter(|limit| aged.age > *limit) else { return Ok(()) };
        let Some(opened) = self.store.open(&TaskKey::Id(aged.id)).await? else { return Ok(()) };
        let row = &opened.row;
        // The age is that of the status that was found; after an answer it is another.
        let waits = row.state.is_interrupted() && row.status_at == aged.cursor.status_at;
        // A fork begins with the old status of the task that it was forked off.
        let is_young = self.clock.now() <= row.created_at.after(limit);
        // Nobody can answer for a tenant that is suspended.
        let is_closed = self.admin.check_open(tenant_of(&row.owner)).is_err();
        if !waits || row.cancel || is_young || is_closed {
            return Ok(());
        }
        let workplace = self.workplace(row);
        // The node that runs it finds it, too.
        if workplace == Workplace::Run && self.local_run(row.id).is_none() {
            return Ok(());
        }
        let mut task = self.fold(&opened).await?;
        if self.is_called_tasks_question(&task, limit, limits).await? {
            return Ok(());
        }
        let (reason, now) = (unanswered_reason(row.state, limit), self.clock.now());
        let has_work = workplace != Workplace::Nowhere || !self.store.live_children(row.id).await?.is_empty();
        let decision = match has_work {
            true => decide_unanswered_stop(row, workplace, reason, now)?,
            false => {
                let end = Entry(now, unanswered_end(self.clock.new_id().to_string(), reason));
                decide_end(row, &mut task, true, end)
            }
        };
        match self.commit_command(&task.origin, &row.id.to_string(), decision).await {
            Ok(Some(_)) => {
                tracing::info!(task = %row.id, agent = row.agent, ?limit, "nobody answered in time; the task ends");
                Ok(())
            }
            // An answer, a cancel or another node was earlier.
            Ok(None) | Err(Error::NoSuchTask(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the task only relays the question of a task that it called, so that the limit of that one decides: it ends
    /// first, and this task continues with its failure. A relayed question that the called task asks no longer is withdrawn
    /// here: the withdrawal was lost.
    async fn is_called_tasks_question(
        self: &Arc<Self>,
        task: &Task,
        limit: Duration,
        limits: &QuestionLimits,
    ) -> Result<bool, Error> {
        let relayed = task.questions.first().and_then(|(_, question)| relayed_question(&question.id));
        let Some((called, question)) = relayed else { return Ok(false) };
        let row = self.store.row(&TaskKey::Id(called)).await?;
        match row.filter(|row| row.parent == Some(task.origin.id)) {
            Some(row) if row.state.is_terminal() => {
                self.withdraw_from_caller(called, task.origin.id, vec![question.to_owned()]);
                Ok(true)
            }
            Some(row) => Ok(limits.of(&row.agent).is_some_and(|its| its <= limit)),
            // Deleted, or a question whose id only looks like a relayed one.
            None => Ok(false),
        }
    }
}

/// The called task and its question, from the id of a question that relays it.
fn relayed_question(id: &str) -> Option<(TaskId, &str)> {
    let (called, question) = id.split_once('.')?;
    Some((TaskId::parse(called)?, question))
}

fn unanswered_reason(state: State, limit: Duration) -> String {
    let limit = duration::format(limit);
    match state {
        State::AuthRequired => format!("nobody gave the authorization within {limit} (question-limit)"),
        _ => format!("nobody answered within {limit} (question-limit)"),
    }
}

/// The event that ends such a task.
pub(crate) fn unanswered_end(id: String, reason: String) -> Event {
    let message = task::as_unanswered(Message::text(id, Role::Agent, reason));
    Event::Status(Status { state: State::Failed, message: Some(message), by: None })
}

/// Decides to request the stop of a task that has work to stop first. From then on it takes no answer.
pub(super) fn decide_unanswered_stop(
    row: &TaskRow,
    workplace: Workplace,
    reason: String,
    now: Timestamp,
) -> Result<Decision, Error> {
    let mut change =
        Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
    change.cancel = Some(true);
    let head = TaskHeader { unanswered: Some(reason.clone()), ..TaskHeader::decode(&row.head)? };
    change.head = Some(head.encode());
    let effect = match workplace {
        Workplace::Run => Effect::StopUnanswered { reason },
        Workplace::Remote | Workplace::Nowhere => {
            change.run = RunChange::Due(now);
            Effect::Due(now)
        }
    };
    Ok(Decision { effects: vec![effect], ..Decision::silent(change) })
}
