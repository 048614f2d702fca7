//! One question to the model, within one step: its text streams into the artifact as it comes.
//!
//! A turn's text replaces what the turn before had written, so that at the end the artifact is the answer and
//! nothing else. What was said before tools were called is in the log.

use nuncio_client::model::{ModelEvent, ModelReply, ModelRequest, ModelTool, ModelTurn, StopReason};
use nuncio_engine::{AgentError, Chunk, Level, Message, StepContext, TaskContext};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{ANSWER, LlmAgent, LlmConversation, budget::LlmBudget, render};

/// What the journal keeps of a question.
#[derive(Serialize, Deserialize)]
pub(super) struct LlmAnswerRecord {
    /// What the caller had said since the question before.
    pub(super) heard: Vec<String>,
    /// The answer.
    pub(super) said: ModelReply,
    /// How long it took, with all tries.
    pub(super) ms: u64,
    /// About how many tokens it was, where the provider does not say.
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

    /// Asks until there is an answer, and shows its text meanwhile.
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
                        // Nothing was said this time, and what stands there is not the answer.
                        step.artifact(Chunk::text(ANSWER, "").anew()).await?;
                    }
                    return Ok(said);
                }
            }
        }
    }

    /// Says what the answer was, and that it is complete if it is the last one.
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
            step.artifact(Chunk::text(ANSWER, "").with_metadata(used).last()).await?;
        }
        step.log(Level::Info, format!("model {}: {spent}", self.spec.model)).await
    }
}

/// What a model is told of a message.
fn said_by_caller(message: &Message) -> String {
    let text = render::render_message(message);
    if text.is_empty() { "(nothing)".to_owned() } else { text }
}
