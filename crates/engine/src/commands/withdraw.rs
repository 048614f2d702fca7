//! The withdraw command: closes a question that its agent no longer needs answered.
//!
//! A withdrawal is not an answer. The agent continues without one, and a question that it relayed for a
//! remote agent or a called task gets none. It is matched by the question's id, so that it never hits another
//! question of the same task.

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

/// Withdraws questions of one task, in parallel to the run that asked them.
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

    /// Withdraws a question. False: it is not open, because it was not asked yet, or was answered.
    pub async fn withdraw(&self, question: &str) -> Result<bool, Error> {
        self.engine.withdraw_question(&self.caller, self.task, question).await
    }
}

impl EngineCore {
    /// Withdraws a question of a task, and its relayed copy in the calling task.
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

    /// `Ok(None)`: the task has changed meanwhile.
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

    /// Withdraws the relayed questions from the calling task, after they were withdrawn, or the task ended,
    /// here. Runs in the background: if it fails, the calling task notices when it polls this one.
    pub(super) fn withdraw_from_caller(self: &Arc<Self>, called: &TaskRow, questions: Vec<String>) {
        let Some(parent) = called.parent else { return };
        let (engine, called) = (Arc::clone(self), called.id);
        tokio::spawn(async move {
            let Ok(Some(row)) = engine.store.row(&TaskKey::Id(parent)).await else { return };
            let Ok(head) = TaskHeader::decode(&row.head) else { return };
            let caller = head.caller(&row.owner);
            for question in questions {
                let question = child_question_id(called, &question);
                // Recursively, up to the top of the call chain.
                let withdrawn: Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>> =
                    Box::pin(engine.withdraw_question(&caller, parent, &question));
                match withdrawn.await {
                    Ok(_) | Err(Error::Ended(_) | Error::NoSuchTask(_)) => {}
                    Err(error) => {
                        tracing::warn!(task = %parent, %error, "could not withdraw the relayed question");
                    }
                }
            }
        });
    }
}
