//! Passes what a called task asks up to the task that called it, and the answer down.
//!
//! Whoever talks to a task need not know of those that it calls: their questions are put as its own, under an id
//! that names the called task. Each is answered once. Whoever answers the called task directly answers for both.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{
    access::Caller,
    engine::EngineCore,
    error::Error,
    question::{Answer, Question},
    store::{TaskKey, TaskRow},
    task::{Task, TaskId},
    task_header::TaskHeader,
};

/// The id under which a task puts the question of a task that it called.
pub(crate) fn child_question_id(called: TaskId, question: &str) -> String {
    format!("{called}.{question}")
}

impl EngineCore {
    /// Answers what a called task asks. One that does not ask it any more has its answer, or has ended.
    pub(crate) async fn answer_child(
        self: &Arc<Self>,
        caller: &Caller,
        called: TaskId,
        question: &Question,
        answer: &Answer,
    ) -> Result<(), Error> {
        match self.answer(caller, &called.to_string(), &question.id, answer, false).await {
            // It has its answer already, does not ask any more, or has ended.
            Ok(_) | Err(Error::NotAsked(_) | Error::Ended(_)) => Ok(()),
            // Anything else would be asked again at once, for ever.
            Err(Error::Invalid(why)) => {
                Err(Error::Internal(format!("a called task does not take its answer: {why}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes back what a task asks for one that it called, where that one does not ask it any more. Looked at after
    /// it was put: whoever answers the other one later finds it here.
    pub(crate) async fn withdraw_if_not_asked(
        self: &Arc<Self>,
        caller: &Caller,
        task: TaskId,
        called: TaskId,
        question: &Question,
    ) -> Result<(), Error> {
        let opened = self.find(caller, &called.to_string()).await?;
        if self.fold(&opened).await?.questions.iter().any(|(_, open)| open.id == question.id) {
            return Ok(());
        }
        match self.withdraw_question(caller, task, &child_question_id(called, &question.id)).await {
            Ok(_) | Err(Error::Ended(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Answers what the caller of a task asks in its name, after it was answered here. Nobody waits for
    /// it: where it cannot be done now, the question stays there until somebody answers it.
    pub(super) fn answer_parent(self: &Arc<Self>, called: &TaskRow, question: String, answer: Answer) {
        let Some(parent) = called.parent else { return };
        let (engine, called) = (Arc::clone(self), called.id);
        tokio::spawn(async move {
            let Ok(Some(row)) = engine.store.row(&TaskKey::Id(parent)).await else { return };
            let Ok(head) = TaskHeader::decode(&row.head) else { return };
            let (caller, parent) = (head.caller(&row.owner), parent.to_string());
            let question = child_question_id(called, &question);
            // Up to whoever called that one, too.
            let answered: Pin<Box<dyn Future<Output = Result<Task, Error>> + Send>> =
                Box::pin(engine.answer(&caller, &parent, &question, &answer, true));
            match answered.await {
                // It was not asked there, or has been answered.
                Ok(_)
                | Err(Error::NotAsked(_) | Error::Invalid(_) | Error::Ended(_) | Error::NoSuchTask(_)) => {}
                Err(error) => tracing::warn!(task = %parent, %error, "a question was answered elsewhere"),
            }
        });
    }
}
