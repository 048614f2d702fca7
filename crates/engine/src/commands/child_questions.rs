//! Relays the questions of a called task to its calling task, and the answers back.
//!
//! A client of a task need not know the tasks that it calls: their questions are asked as its own, under an
//! id that names the called task. Each is answered once. A client that answers the called task directly
//! answers for both.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{
    access::Caller,
    engine::EngineCore,
    error::Error,
    question::{Answer, Question},
    sent_by::SentBy,
    store::TaskKey,
    task::{Task, TaskId},
    task_header::TaskHeader,
};

/// The id under which a task relays the question of a task that it called.
pub(crate) fn child_question_id(called: TaskId, question: &str) -> String {
    format!("{called}.{question}")
}

impl EngineCore {
    /// Answers a called task's question. If the question is no longer open, it has its answer, or the task
    /// has ended.
    pub(crate) async fn answer_child(
        self: &Arc<Self>,
        caller: &Caller,
        called: TaskId,
        question: &Question,
        answer: &Answer,
    ) -> Result<(), Error> {
        match self.answer(caller, &called.to_string(), &question.id, answer, false, None).await {
            // It has its answer already, the question was withdrawn, or the task has ended.
            Ok(_) | Err(Error::NotAsked(_) | Error::Ended(_) | Error::Unanswered(_)) => Ok(()),
            // Any other error would be retried at once, forever.
            Err(Error::Invalid(why)) => {
                Err(Error::Internal(format!("a called task refused its answer: {why}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Withdraws a relayed question if the called task no longer asks it. Checked after the question was put:
    /// an answer to the called task that comes later finds the relayed question here.
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

    /// Answers the question that the calling task relays, after the called task was answered directly. Runs
    /// in the background: if it fails, the relayed question stays open until it is answered.
    pub(crate) fn answer_parent(
        self: &Arc<Self>,
        called: TaskId,
        parent: TaskId,
        question: String,
        answer: Answer,
        by: Option<Box<SentBy>>,
    ) {
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(Some(row)) = engine.store.row(&TaskKey::Id(parent)).await else { return };
            let Ok(head) = TaskHeader::decode(&row.head) else { return };
            let (caller, parent) = (head.caller(&row.owner), parent.to_string());
            let question = child_question_id(called, &question);
            // Recursively, up to the top of the call chain.
            let answered: Pin<Box<dyn Future<Output = Result<Task, Error>> + Send>> =
                Box::pin(engine.answer(&caller, &parent, &question, &answer, true, by));
            match answered.await {
                // It was not relayed, or has been answered.
                Ok(_)
                | Err(
                    Error::NotAsked(_)
                    | Error::Invalid(_)
                    | Error::Ended(_)
                    | Error::Unanswered(_)
                    | Error::NoSuchTask(_),
                ) => {}
                Err(error) => tracing::warn!(task = %parent, %error, "could not answer the relayed question"),
            }
        });
    }
}
