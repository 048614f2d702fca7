//! The questions to clients that wait for a call (to 2025-11-25), and their answers.
//!
//! The id of such a request names the task and the question, so that every node can accept the answer, also
//! after a restart. Only the questions of handlers are known to this process alone.

use std::collections::HashMap;

use nuncio_engine::{Answer, Error, Nudge, TaskId};
use nuncio_wire::{
    jsonrpc::{RpcId, RpcResponse},
    mcp::{McpFault, answer_in_error, answer_in_result},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Mcp, client::McpClient};

/// How often one question is sent to a client that answers it wrongly. Then it stays open, and the client may
/// answer later.
const MAX_ASKS: u32 = 3;
/// Wrong answers that are counted; beyond that all counts are reset.
const MAX_WRONG: usize = 10_000;

/// The id of a request that carries a question.
pub(super) fn question_id(task: TaskId, question: &str, nonce: u64) -> RpcId {
    RpcId::string(&format!("q:{task}:{nonce:x}:{question}"))
}

/// Parses the task and the question from an id.
fn read_question_id(id: &str) -> Option<(&str, &str)> {
    let rest = id.strip_prefix("q:")?;
    let (task, rest) = rest.split_once(':')?;
    let (_nonce, question) = rest.split_once(':')?;
    Some((task, question))
}

/// Sends an answer to its handler; `None` if it cannot be read.
type AnswerSender = oneshot::Sender<Option<Answer>>;

/// The open questions of this process's handlers.
#[derive(Default)]
pub(super) struct ClientQuestions {
    pending: Mutex<HashMap<String, (String, AnswerSender)>>,
}

impl ClientQuestions {
    /// Registers a question to that session; returns the request id and the receiver of the answer. The name
    /// must be new: a session outlives the process, and an old answer must not match a new question.
    pub(super) fn register_question(&self, session: &str, name: Uuid) -> (RpcId, ClientQuestion<'_>) {
        let key = format!("h:{}", name.simple());
        let (tell, told) = oneshot::channel();
        self.lock().insert(key.clone(), (session.to_owned(), tell));
        (RpcId::string(&key), ClientQuestion { questions: self, key, receiver: told })
    }

    /// Delivers an answer to the handler that waits for it; false if there is none.
    fn deliver_answer(&self, session: &str, key: &str, answer: Option<Answer>) -> bool {
        let mut asked = self.lock();
        if asked.get(key).is_none_or(|(owner, _)| owner != session) {
            return false;
        }
        asked.remove(key).is_some_and(|(_, tell)| tell.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, AnswerSender)>> {
        self.pending.lock()
    }
}

/// An open question. Dropping it unregisters the question.
pub(super) struct ClientQuestion<'a> {
    questions: &'a ClientQuestions,
    key: String,
    receiver: oneshot::Receiver<Option<Answer>>,
}

impl ClientQuestion<'_> {
    /// Waits for the answer; `None` if it cannot be read.
    pub(super) async fn wait_for_answer(mut self) -> Option<Answer> {
        (&mut self.receiver).await.ok().flatten()
    }
}

impl Drop for ClientQuestion<'_> {
    fn drop(&mut self) {
        self.questions.lock().remove(&self.key);
    }
}

/// Wrong answers to questions of tasks, by task and question.
#[derive(Default)]
pub(super) struct WrongAnswers(Mutex<HashMap<(String, String), u32>>);

impl WrongAnswers {
    /// Counts one more; returns the count.
    fn count_wrong_answer(&self, task: &str, question: &str) -> u32 {
        let mut wrong = self.0.lock();
        if wrong.len() >= MAX_WRONG {
            // The counts that matter build up again.
            wrong.clear();
        }
        let count = wrong.entry((task.to_owned(), question.to_owned())).or_default();
        *count += 1;
        *count
    }

    fn forget(&self, task: &str, question: &str) {
        let mut wrong = self.0.lock();
        wrong.remove(&(task.to_owned(), question.to_owned()));
    }

    /// Whether it was answered wrongly.
    pub(super) fn contains(&self, task: &str, question: &str) -> bool {
        let wrong = self.0.lock();
        wrong.contains_key(&(task.to_owned(), question.to_owned()))
    }
}

impl Mcp {
    /// Handles a client's response to a request of this server. A response that matches no question is ignored:
    /// the question may have been answered elsewhere.
    pub(super) async fn handle_response(
        &self,
        client: &McpClient,
        response: RpcResponse<'_>,
    ) -> Result<(), McpFault> {
        let Some(id) = response.id.as_ref().and_then(RpcId::as_text) else { return Ok(()) };
        let answer = match &response.outcome {
            Ok(result) => {
                let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                answer_in_result(&result).map_err(McpFault::invalid_params)
            }
            Err(error) => answer_in_error(error).ok_or_else(|| {
                McpFault::invalid_params(format!("an error is no answer: {} ({})", error.message, error.code))
            }),
        };
        let Some((task, question)) = read_question_id(&id) else {
            let Some(session) = client.session.as_ref().filter(|_| id.starts_with("h:")) else {
                return Ok(());
            };
            return match self.client_questions.deliver_answer(session.id(), &id, answer.ok()) {
                true => Ok(()),
                false => Err(McpFault::invalid_request("nobody here waits for that answer (any more)")),
            };
        };
        let (fault, is_wrong) = match answer {
            Err(fault) => (fault, true),
            Ok(answer) => match self.try_answer_question(client, task, question, answer).await {
                Ok(()) => {
                    self.wrong_answers.forget(task, question);
                    return Ok(());
                }
                // Any other error is not the answer's fault: the client may send it again.
                Err(error) => (McpFault::from(&error), matches!(error, Error::Answer(_))),
            },
        };
        if is_wrong {
            // The question is sent again, up to a limit. After that it stays open until it is answered: an
            // unreadable response is not an answer.
            if self.wrong_answers.count_wrong_answer(task, question) < MAX_ASKS {
                self.engine.nudge(&client.caller, task, Nudge::AskAgain).await?;
            }
            tracing::debug!(task, question, ?fault, "rejected the answer to a question");
            // The repeated question carries the error. Official clients end their session when a response of
            // theirs is answered with an error.
            return Ok(());
        }
        Err(fault)
    }

    /// Answers a question of a task. A question that is no longer open is no error.
    pub(super) async fn give_answer(
        &self,
        client: &McpClient,
        task: &str,
        question: &str,
        answer: Answer,
    ) -> Result<(), McpFault> {
        self.try_answer_question(client, task, question, answer).await.map_err(McpFault::from)
    }

    async fn try_answer_question(
        &self,
        client: &McpClient,
        task: &str,
        question: &str,
        answer: Answer,
    ) -> Result<(), Error> {
        match self.engine.answer(&client.caller, task, question, &answer).await {
            // Another client answered first.
            Ok(_) | Err(Error::Ended(_) | Error::Unanswered(_) | Error::NotAsked(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
