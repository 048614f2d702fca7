//! What a task waits for while its call goes on elsewhere, and how the wait ends when nobody has to answer any more.
//!
//! Somebody may answer at the other side, or end the work there. Then the question is taken back here, as a dismissal:
//! the task runs again, finds that the other side does not want its answer, and hears what came after.

use std::time::Duration;

use nuncio_client::peer::{Happened, PeerError};
use nuncio_engine::{Error, Message, Part, Reply, Role, TaskContext, TaskId, question::Question};
use serde_json::json;

/// How soon it is looked whether the question is here, at first, and how seldom.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// A question of the other side that is open here.
pub(super) struct Waits {
    task: Option<(nuncio_engine::Engine, nuncio_engine::Caller, TaskId)>,
    /// The question's name over there.
    question: String,
}

impl Waits {
    /// A task that waits for the answer to that question.
    pub(super) fn new(cx: &TaskContext, question: &Question) -> Self {
        Self { task: Some((cx.engine(), cx.caller(), cx.task_id())), question: question.id.clone() }
    }

    #[cfg(test)]
    pub(super) fn for_nothing() -> Self {
        Self { task: None, question: String::new() }
    }

    /// Whether nobody over there waits for an answer after that.
    pub(super) fn is_answered_by(&self, happened: &Result<Happened, PeerError>) -> bool {
        match happened {
            Ok(Happened::Settled(question)) => *question == self.question,
            Ok(Happened::Ended(_)) => true,
            _ => false,
        }
    }

    /// Takes the question back here. It may be on its way to the log still.
    pub(super) async fn settle(&self) {
        let Some((engine, caller, task)) = &self.task else { return };
        let mut pause = FIRST_LOOK;
        loop {
            let open = match engine.get(caller, &task.to_string()).await {
                Ok(found) if found.state.is_terminal() => return,
                // Such an agent asks one thing after another.
                Ok(found) => found.questions.first().map(|(_, question)| question.id.clone()),
                Err(error) => {
                    tracing::debug!(%task, %error, "what was answered elsewhere cannot be looked for");
                    None
                }
            };
            if let Some(question) = open {
                let data = json!({ "questionId": question, "action": "cancel" });
                let id = format!("settled-{question}");
                let reply = Reply {
                    task: task.to_string(),
                    context: None,
                    message: Message::of(id, Role::User, vec![Part::data(data)]),
                    idempotency_key: None,
                    webhooks: vec![],
                };
                match engine.reply(caller, reply).await {
                    // Somebody was faster.
                    Ok(_) | Err(Error::Invalid(_) | Error::Ended(_)) => return,
                    Err(error) => tracing::warn!(%task, %error, "a question was answered elsewhere"),
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }
}
