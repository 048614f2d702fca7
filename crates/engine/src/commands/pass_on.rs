//! Passes what a called task asks up to the task that called it, and the answer down.
//!
//! Whoever talks to a task need not know of those that it calls: their questions are put as its own, under an id
//! that names the called task. Each is answered once. Whoever answers the called task directly answers for both.

use std::{future::Future, pin::Pin, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::reply::Reply;
use crate::{
    access::Caller,
    content::{Message, Part, Role},
    engine::Inner,
    error::Error,
    head::Head,
    question::{Answer, Question},
    store::{TaskKey, TaskRow},
    task::{Task, TaskId},
};

/// The id under which a task puts the question of a task that it called.
pub(crate) fn passed_on(called: TaskId, question: &str) -> String {
    format!("{called}.{question}")
}

/// An answer as a message that names its question. Its id is made of what is passed on, and short however many tasks
/// have called each other.
fn message_of(passed: &str, question: &str, answer: &Answer) -> Message {
    let digest = Sha256::digest(passed.as_bytes());
    let id = format!("answer-{}", BASE64_URL_SAFE_NO_PAD.encode(&digest[..16]));
    let (action, content) = match answer {
        Answer::Accept(data) => ("accept", Some(data)),
        Answer::Decline => ("decline", None),
        Answer::Cancel => ("cancel", None),
        Answer::Unavailable => ("unavailable", None),
    };
    let mut data = json!({ "questionId": question, "action": action });
    if let (Some(content), Value::Object(data)) = (content, &mut data) {
        data.insert("content".into(), content.clone());
    }
    Message::of(id, Role::User, vec![Part::data(data)])
}

impl Inner {
    /// Answers what a called task asks. One that does not ask it any more has its answer, or has ended.
    pub(crate) async fn answer_called(
        self: &Arc<Self>,
        caller: &Caller,
        called: TaskId,
        question: &Question,
        answer: &Answer,
    ) -> Result<(), Error> {
        let reply = Reply {
            task: called.to_string(),
            context: None,
            message: message_of(&passed_on(called, &question.id), &question.id, answer),
            idempotency_key: None,
            webhooks: vec![],
        };
        let asks = |task: &Task| task.questions.iter().any(|(_, open)| open.id == question.id);
        let stays =
            |why: &str| Err(Error::Internal(format!("a called task does not take its answer: {why}")));
        match self.answer(caller, reply).await {
            Ok(task) if asks(&task) => stays("it takes it for a repeat"),
            Ok(_) | Err(Error::Ended(_)) => Ok(()),
            // It has its answer already; anything else would be asked again at once, for ever.
            Err(Error::Invalid(why)) => {
                let opened = self.find(caller, &called.to_string()).await?;
                if asks(&self.fold(&opened).await?) { stays(&why) } else { Ok(()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Takes back what a task asks for one that it called, where that one does not ask it any more. Looked at after
    /// it was put: whoever answers the other one later finds it here.
    pub(crate) async fn still_asked(
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
        let id = passed_on(called, &question.id);
        let reply = Reply {
            task: task.to_string(),
            context: None,
            message: message_of(&id, &id, &Answer::Cancel),
            idempotency_key: None,
            webhooks: vec![],
        };
        match self.answer(caller, reply).await {
            Err(Error::Invalid(_) | Error::Ended(_)) => Ok(()),
            answered => answered.map(drop),
        }
    }

    /// Answers what the caller of a task asks in its name, after it was answered, or ended, here. Nobody waits for
    /// it: where it cannot be done now, the question stays there until somebody answers it.
    pub(super) fn answer_caller(self: &Arc<Self>, called: &TaskRow, questions: Vec<String>, answer: Answer) {
        let Some(parent) = called.parent else { return };
        let (engine, called) = (Arc::clone(self), called.id);
        tokio::spawn(async move {
            let Ok(Some(row)) = engine.store.row(&TaskKey::Id(parent)).await else { return };
            let Ok(head) = Head::decode(&row.head) else { return };
            let caller = head.caller(&row.owner);
            for question in questions {
                let question = passed_on(called, &question);
                let reply = Reply {
                    task: parent.to_string(),
                    context: None,
                    message: message_of(&question, &question, &answer),
                    idempotency_key: None,
                    webhooks: vec![],
                };
                // Up to whoever called that one, too.
                let answered: Pin<Box<dyn Future<Output = Result<Task, Error>> + Send>> =
                    Box::pin(engine.reply(&caller, reply));
                match answered.await {
                    // It was not asked there, or has been answered.
                    Ok(_) | Err(Error::Invalid(_) | Error::Ended(_) | Error::NoSuchTask(_)) => {}
                    Err(error) => tracing::warn!(task = %parent, %error, "a question was answered elsewhere"),
                }
            }
        });
    }
}
