//! The withdraw command: closes a question that its agent no longer needs answered.
//!
//! A withdrawal is not an answer. The agent continues without one, and a question that it relayed for a
//! remote agent or a called task gets none. It is matched by the question's id, so that it never hits another
//! question of the same task.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{
    DECIDE_AGAIN, child_questions::child_question_id, moved_too_often, reply_decision::next_question,
};
use crate::{
    access::Caller,
    clock::Timestamp,
    commit::{Decision, Effect},
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, QuestionWithdrawal},
    journal::JournalEntry,
    question::QuestionOutcome,
    store::{RunChange, TaskKey, TaskRow},
    task::{Task, TaskId},
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
        let name = task.to_string();
        for _ in 0..DECIDE_AGAIN {
            let opened = self.find(caller, &name).await?;
            let mut task = self.fold(&opened).await?;
            let now = self.clock.now();
            let Some(decision) = decide_withdrawal(&opened.row, &mut task, question, now)? else {
                return Ok(false);
            };
            if self.commit_command(&task.origin, &name, decision).await?.is_some() {
                return Ok(true);
            }
        }
        Err(moved_too_often())
    }

    /// Like [`EngineCore::withdraw_from_caller`], for a task whose calling task has to be looked up.
    pub(crate) fn withdraw_from_caller_of(self: &Arc<Self>, called: TaskId, questions: Vec<String>) {
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            match engine.store.row(&TaskKey::Id(called)).await {
                Ok(row) => {
                    if let Some(parent) = row.and_then(|row| row.parent) {
                        engine.withdraw_from_caller(called, parent, questions);
                    }
                }
                Err(error) => {
                    tracing::warn!(task = %called, %error, "could not withdraw its questions from its caller");
                }
            }
        });
    }

    /// Withdraws the relayed questions from the calling task, after they were withdrawn, or the task ended,
    /// here. Runs in the background: if it fails, the question stays open above until it is answered.
    pub(crate) fn withdraw_from_caller(
        self: &Arc<Self>,
        called: TaskId,
        parent: TaskId,
        questions: Vec<String>,
    ) {
        let engine = Arc::clone(self);
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

/// Decides on the withdrawal of a question. `Ok(None)`: it is not open.
pub(super) fn decide_withdrawal(
    row: &TaskRow,
    task: &mut Task,
    question: &str,
    now: Timestamp,
) -> Result<Option<Decision>, Error> {
    if task.state.is_terminal() {
        return Err(Error::Ended(task.state));
    }
    if !task.questions.iter().any(|(_, open)| open.id == question) {
        return Ok(None);
    }
    let more = task.questions.len() > 1;
    let withdrawn = Event::Withdrawn(QuestionWithdrawal { question: question.to_owned(), more });
    let next = next_question(task, question).map(|status| Entry(now, Event::Status(status)));
    let mut decision = Decision::on(row, task, std::iter::once(Entry(now, withdrawn)).chain(next).collect());
    let Decision { change, effects, .. } = &mut decision;
    change.journal.push(JournalEntry::Withdrawn { question: question.to_owned() }.encode());
    if row.node.is_none() {
        change.run = RunChange::Due(now);
        effects.push(Effect::Due(now));
    } else {
        let outcome = QuestionOutcome::Withdrawn;
        effects.push(Effect::EndQuestion { question: question.to_owned(), outcome });
    }
    if let Some(parent) = row.parent {
        effects.push(Effect::WithdrawFromCaller { parent, questions: vec![question.to_owned()] });
    }
    Ok(Some(decision))
}
