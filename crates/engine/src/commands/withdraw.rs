//! Takes a question back: whoever put it does not need an answer any more.
//!
//! That is no answer. The agent goes on without one, and what it asked for somebody else is told nothing. It is matched
//! by the question's id, so that it never meets another question of the same task.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{DECIDE_AGAIN, child_questions::child_question_id, moved_too_often, reply::next_question};
use crate::{
    access::Caller,
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, QuestionWithdrawal},
    journal::JournalEntry,
    store::{Change, Precondition, RunChange, TaskKey, TaskRow},
    task::TaskId,
    task_header::TaskHeader,
};

/// Takes questions of one task back, beside the run that put them.
#[derive(Clone)]
pub struct QuestionWithdrawer {
    pub(crate) engine: Arc<EngineCore>,
    pub(crate) caller: Caller,
    pub(crate) task: TaskId,
}

impl QuestionWithdrawer {
    /// The task whose questions they are.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Takes a question back. False: it is not open, because it was not put yet, or was answered.
    pub async fn withdraw(&self, question: &str) -> Result<bool, Error> {
        self.engine.withdraw_question(&self.caller, self.task, question).await
    }
}

impl EngineCore {
    /// Takes a question of a task back, and what the task that called it asks in its name.
    pub(crate) async fn withdraw_question(
        self: &Arc<Self>,
        caller: &Caller,
        task: TaskId,
        question: &str,
    ) -> Result<bool, Error> {
        for _ in 0..DECIDE_AGAIN {
            if let Some(withdrawn) = self.try_withdraw(caller, task, question).await? {
                return Ok(withdrawn);
            }
        }
        Err(moved_too_often())
    }

    /// `Ok(None)`: the task moved meanwhile.
    async fn try_withdraw(
        self: &Arc<Self>,
        caller: &Caller,
        id: TaskId,
        question: &str,
    ) -> Result<Option<bool>, Error> {
        let opened = self.find(caller, &id.to_string()).await?;
        let row = &opened.row;
        let mut task = self.fold(&opened).await?;
        if task.state.is_terminal() {
            return Err(Error::Ended(task.state));
        }
        if !task.questions.iter().any(|(_, open)| open.id == question) {
            return Ok(Some(false));
        }
        let now = self.clock.now();
        let more = task.questions.len() > 1;
        let withdrawn = Event::Withdrawn(QuestionWithdrawal { question: question.to_owned(), more });
        let next = next_question(&task, question).map(|status| Entry(now, Event::Status(status)));
        let entries: Vec<Entry> = std::iter::once(Entry(now, withdrawn)).chain(next).collect();
        let before = (task.state, task.status_at);
        for entry in &entries {
            task.apply(entry);
        }
        let mut change =
            Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
        change.state = Some((task.state, task.status_at)).filter(|after| *after != before);
        change.journal.push(JournalEntry::Withdrawn { question: question.to_owned() }.encode());
        if row.node.is_none() {
            change.run = RunChange::Due(now);
        }
        if self.decide(change, entries, &id.to_string()).await?.is_none() {
            return Ok(None);
        }
        match row.node {
            None => self.due(&row.owner, now),
            Some(_) => {
                if let Some(run) = self.local_run(row.id) {
                    run.withdrawn(question.to_owned());
                }
            }
        }
        self.withdraw_from_caller(row, vec![question.to_owned()]);
        Ok(Some(true))
    }

    /// Takes back what the caller of a task asks in its name, after it was taken back, or the task ended, here. Nobody
    /// waits for it: where it cannot be done now, the caller finds out when it looks at the task.
    pub(super) fn withdraw_from_caller(self: &Arc<Self>, called: &TaskRow, questions: Vec<String>) {
        let Some(parent) = called.parent else { return };
        let (engine, called) = (Arc::clone(self), called.id);
        tokio::spawn(async move {
            let Ok(Some(row)) = engine.store.row(&TaskKey::Id(parent)).await else { return };
            let Ok(head) = TaskHeader::decode(&row.head) else { return };
            let caller = head.caller(&row.owner);
            for question in questions {
                let question = child_question_id(called, &question);
                // Up to whoever called that one, too.
                let withdrawn: Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>> =
                    Box::pin(engine.withdraw_question(&caller, parent, &question));
                match withdrawn.await {
                    Ok(_) | Err(Error::Ended(_) | Error::NoSuchTask(_)) => {}
                    Err(error) => {
                        tracing::warn!(task = %parent, %error, "a question could not be taken back");
                    }
                }
            }
        });
    }
}
