//! One model call within one step: its text streams into the artifact.
//!
//! The text of a turn replaces that of the turn before, so that at the end the artifact is exactly the
//! reply. Text from before a tool call is in the log.

use nuncio_client::model::{ModelEvent, ModelReply, ModelRequest, ModelTool, ModelTurn, StopReason};
use nuncio_engine::{AgentError, Chunk, Level, Message, StepContext, TaskContext};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{ANSWER, LlmAgent, LlmConversation, budget::LlmBudget, render};

/// The journal entry of a model call.
#[derive(Serialize, Deserialize)]
pub(super) struct LlmAnswerRecord {
    /// The caller's messages since the previous model call.
    pub(super) heard: Vec<String>,
    pub(super) said: ModelReply,
    /// The duration in milliseconds, with all retries.
    pub(super) ms: u64,
    /// The estimated number of tokens, for a provider that does not report it.
    pub(super) guessed: u64,
}

impl LlmAgent {
    pub(super) async fn ask(
        &self,
        cx: &TaskContext,
        step: &StepContext,
        talk: &LlmConversation,
        budget: &LlmBudget,
    ) -> Result<LlmAnswerRecord, AgentError> {
        let messages = cx.read_messages().await.unwrap_or_else(|_| cx.messages().to_vec());
        let heard: Vec<String> = messages.iter().skip(talk.received).map(said_by_caller).collect();
        let request = ModelRequest {
            system: self.spec.system.as_ref().map(|system| system.expose().to_owned()),
            turns: talk.turns.iter().cloned().chain(heard.iter().cloned().map(ModelTurn::User)).collect(),
            tools: talk.tools.iter().map(|offered| ModelTool::clone(&offered.tool)).collect(),
            max_tokens: budget.max_tokens(&self.spec, self.model.provider(), &talk.spent),
            temperature: self.spec.temperature,
        };
        let clock = cx.engine().clock().now();
        let said = self.stream(step, talk, budget, &request).await?;
        let ms = cx.engine().clock().now().since(clock);
        let answered = LlmAnswerRecord {
            heard,
            guessed: render::guessed_tokens(&request, &said),
            said,
            ms: u64::try_from(ms.as_millis()).unwrap_or(u64::MAX),
        };
        self.close(step, talk, &answered).await?;
        Ok(answered)
    }

    /// Calls the model, with retries, and streams its text meanwhile.
    async fn stream(
        &self,
        step: &StepContext,
        talk: &LlmConversation,
        budget: &LlmBudget,
        request: &ModelRequest,
    ) -> Result<ModelReply, AgentError> {
        let until = Instant::now() + budget.time_left(&talk.spent);
        let mut asking = self.model.ask(request);
        let (mut begun, mut stale) = (false, talk.shown);
        loop {
            let happened = tokio::select! {
                biased;
                () = step.canceled() => return Err(AgentError::Canceled),
                happened = asking.next() => happened.map_err(AgentError::failed)?,
                () = tokio::time::sleep_until(until) => {
                    return Err(AgentError::Failed(budget.time_is_over(&talk.spent)));
                }
            };
            match happened {
                ModelEvent::Text(text) => {
                    let chunk = Chunk::text(ANSWER, text);
                    let chunk = if begun { chunk } else { chunk.anew().named("Answer") };
                    step.artifact(chunk).await?;
                    (begun, stale) = (true, true);
                }
                ModelEvent::Retry { why, wait } => {
                    let seconds = wait.as_secs_f64();
                    step.report(Level::Warning, format!("{why}; asked again in {seconds:.1} s")).await?;
                    begun = false;
                }
                ModelEvent::Reply(said) => {
                    if !begun && stale && said.stop != StopReason::Tools {
                        // This turn has no text, and the artifact still has that of another turn.
                        step.artifact(Chunk::text(ANSWER, "").anew()).await?;
                    }
                    return Ok(said);
                }
            }
        }
    }

    /// Logs the reply; closes the artifact if it is the last one.
    async fn close(
        &self,
        step: &StepContext,
        talk: &LlmConversation,
        answered: &LlmAnswerRecord,
    ) -> Result<(), AgentError> {
        let said = &answered.said;
        if said.stop == StopReason::Tools {
            if !said.text.trim().is_empty() {
                step.log(Level::Info, said.text.trim()).await?;
            }
            return Ok(());
        }
        let mut spent = talk.spent.clone();
        spent.add(answered);
        if talk.shown || !said.text.is_empty() {
            let used = spent.metadata(&said.stop);
            step.artifact(Chunk::text(ANSWER, "").with_metadata(used).complete()).await?;
        }
        step.log(Level::Info, format!("model {}: {spent}", self.spec.model)).await
    }
}

/// A message of the caller, as the model reads it.
fn said_by_caller(message: &Message) -> String {
    let text = render::render_message(message);
    if text.is_empty() { "(nothing)".to_owned() } else { text }
}
