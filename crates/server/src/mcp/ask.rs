//! Questions to clients that can be asked while they wait (to 2025-11-25), and what comes back.
//!
//! The id of such a request says which question of which task it puts, so that its answer is understood on
//! every node and after every restart. Only what a handler asks is known to this process alone.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use nuncio_engine::{Answer, Error, Message, Nudge, Part, Reply, Role, TaskId};
use nuncio_wire::{
    jsonrpc::{Id, Response},
    mcp::{Fault, answer_in_error, answer_in_result},
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Mcp, client::Client};

/// The id of a request that puts a question: never the same twice.
pub(super) fn question_id(task: TaskId, question: &str, nonce: u64) -> Id {
    Id::string(&format!("q:{task}:{nonce:x}:{question}"))
}

/// The task and the question that an id names.
fn read_question_id(id: &str) -> Option<(&str, &str)> {
    let rest = id.strip_prefix("q:")?;
    let (task, rest) = rest.split_once(':')?;
    let (_nonce, question) = rest.split_once(':')?;
    Some((task, question))
}

/// What handlers of this process have asked and wait for.
#[derive(Default)]
pub(super) struct Waiting {
    next: AtomicU64,
    asked: Mutex<HashMap<String, (String, oneshot::Sender<Answer>)>>,
}

impl Waiting {
    /// A new request id for that session, and where its answer will come.
    pub(super) fn ask(&self, session: &str) -> (Id, Asked<'_>) {
        let key = format!("h:{:x}", self.next.fetch_add(1, Ordering::Relaxed));
        let (tell, told) = oneshot::channel();
        self.lock().insert(key.clone(), (session.to_owned(), tell));
        (Id::string(&key), Asked { waiting: self, key, told })
    }

    fn answer(&self, session: &str, key: &str, answer: Answer) {
        let mut asked = self.lock();
        if asked.get(key).is_some_and(|(owner, _)| owner == session)
            && let Some((_, tell)) = asked.remove(key)
        {
            // An error says that the call is over.
            let _ = tell.send(answer);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (String, oneshot::Sender<Answer>)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is out. Dropped, nobody waits for it any more.
pub(super) struct Asked<'a> {
    waiting: &'a Waiting,
    key: String,
    told: oneshot::Receiver<Answer>,
}

impl Asked<'_> {
    pub(super) async fn answer(mut self) -> Answer {
        (&mut self.told).await.unwrap_or(Answer::Unavailable)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.key);
    }
}

impl Mcp {
    /// Takes what a client answered to a request of ours. What answers nothing is let pass: a question may
    /// have been answered elsewhere meanwhile.
    pub(super) async fn take_response(&self, client: &Client, response: Response<'_>) -> Result<(), Fault> {
        let Some(id) = response.id.as_ref().and_then(Id::as_text) else { return Ok(()) };
        let answer = match &response.outcome {
            Ok(result) => {
                let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                answer_in_result(&result).map_err(Fault::params)
            }
            Err(error) => Ok(answer_in_error(error)),
        };
        if let Some((task, question)) = read_question_id(&id) {
            let answered = match answer {
                Ok(answer) => self.give_answer(client, task, question, answer).await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = answered {
                // Whoever put the question waits for an answer: it is put again.
                let _ = self.engine.nudge(&client.caller, task, Nudge::AskAgain).await;
                return Err(fault);
            }
        } else if let Some(session) = &client.session {
            self.waiting.answer(session.id(), &id, answer.unwrap_or(Answer::Cancel));
        }
        Ok(())
    }

    /// Answers a question of a task. One that is not open any more is no error.
    pub(super) async fn give_answer(
        &self,
        client: &Client,
        task: &str,
        question: &str,
        answer: Answer,
    ) -> Result<(), Fault> {
        let known = self.engine.get(&client.caller, task).await?;
        if !known.questions.iter().any(|(_, open)| open.id == question) {
            return Ok(());
        }
        let mut data = match answer {
            Answer::Accept(content) => json!({ "action": "accept", "content": content }),
            Answer::Decline => json!({ "action": "decline" }),
            Answer::Cancel => json!({ "action": "cancel" }),
            Answer::Unavailable => json!({ "action": "unavailable" }),
        };
        data["questionId"] = question.into();
        let message = Message::of("", Role::User, vec![Part::data(data)]);
        let reply =
            Reply { task: task.to_owned(), context: None, message, idempotency_key: None, webhooks: vec![] };
        match self.engine.reply(&client.caller, reply).await {
            // Somebody else was first.
            Err(Error::Ended(_)) => Ok(()),
            Err(Error::Invalid(_)) if !self.is_open(client, task, question).await => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    async fn is_open(&self, client: &Client, task: &str, question: &str) -> bool {
        let task = self.engine.get(&client.caller, task).await;
        task.is_ok_and(|task| task.questions.iter().any(|(_, open)| open.id == question))
    }
}
