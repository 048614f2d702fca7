//! The questions that an agent asks: forms, samples of a model, and authorizations.
//!
//! A question is a barrier: it is durable before the agent waits, and its outcome is read back after a restart.

use std::sync::Arc;

use serde_json::{Value, json};

use super::TaskContext;
use crate::{
    agent::AgentError,
    commands::withdraw::QuestionWithdrawer,
    event::{Event, Level},
    journal::JournalEntry,
    question::{Answer, Ask, Question, QuestionOutcome},
    surface::CompiledSchema,
};

impl TaskContext {
    /// Asks the caller, or its representative, to fill in a form: a JSON Schema of a flat object of
    /// primitives. The task waits, for a minute or a week, and holds no resources meanwhile.
    pub async fn ask(&self, text: impl Into<String>, schema: Value) -> Result<Answer, AgentError> {
        self.put_question(text, Ask::Form { schema }).await.and_then(answered)
    }

    /// Asks for one text. `None`: it was declined or dismissed, or the caller cannot answer questions.
    ///
    /// For the reason, and for anything but one text, see [`TaskContext::ask`].
    pub async fn ask_text(&self, text: impl Into<String>) -> Result<Option<String>, AgentError> {
        #[derive(serde::Deserialize)]
        struct TextForm {
            text: String,
        }
        let schema = json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
        });
        Ok(self.ask(text, schema).await?.accepted::<TextForm>().map(|form| form.text))
    }

    /// Asks a question that may be withdrawn while it waits, by a [`TaskContext::withdrawer`]. Like
    /// [`TaskContext::ask`], [`TaskContext::sample`] and [`TaskContext::authorize`], it returns Unavailable
    /// at once if the caller cannot answer questions.
    pub async fn put_question(
        &self,
        text: impl Into<String>,
        ask: Ask,
    ) -> Result<QuestionOutcome, AgentError> {
        if let Ask::Form { schema } = &ask {
            check_form(schema)?;
        }
        let abilities = self.run.abilities();
        let can = match &ask {
            Ask::Form { .. } => abilities.ask,
            Ask::Sample { .. } => abilities.sample,
            Ask::Authorization { .. } => abilities.authorize,
        };
        match ask {
            ask if can => self.question(text.into(), ask).await,
            Ask::Sample { system, max_tokens } if self.run.has_own_model() => {
                let sampled = self.sample_here(text.into(), system, max_tokens).await;
                sampled.map(QuestionOutcome::Answered)
            }
            _ => Ok(QuestionOutcome::Answered(Answer::Unavailable)),
        }
    }

    /// The id that the next question of this scope will have.
    pub fn next_question_id(&self) -> String {
        question_id(&format!("{}#{}", self.scope, self.lock().ordinal + 1))
    }

    /// The address at which the next authorization of this scope can be completed without a message of the client, for
    /// example by the redirect of a login. The status that asks for it shows the same address. `None` if the server has
    /// no address.
    pub fn next_callback(&self) -> Option<String> {
        self.callback_of(&self.next_question_id())
    }

    fn callback_of(&self, question: &str) -> Option<String> {
        self.run.engine.authorization_callback(self.run.origin.id, question)
    }

    /// A handle that withdraws questions of this task, also while the task is parked.
    pub fn withdrawer(&self) -> QuestionWithdrawer {
        QuestionWithdrawer {
            engine: Arc::clone(&self.run.engine),
            caller: self.run.caller(),
            task: self.run.origin.id,
        }
    }

    /// Asks the caller's model for a text of at most `max_tokens`, or the server's own model if the caller
    /// has none. `Unavailable` if neither exists.
    pub async fn sample(
        &self,
        prompt: impl Into<String>,
        system: Option<String>,
        max_tokens: u32,
    ) -> Result<Answer, AgentError> {
        self.put_question(prompt, Ask::Sample { system, max_tokens }).await.and_then(answered)
    }

    /// Whether [`TaskContext::sample`] uses the server's own model, because the caller has none.
    pub fn samples_own_model(&self) -> bool {
        !self.run.abilities().sample && self.run.has_own_model()
    }

    /// The name of that model, if it is used and still configured.
    pub fn own_model(&self) -> Option<String> {
        let sampler = self.run.engine.sampler.as_ref().filter(|_| self.samples_own_model());
        sampler.map(|sampler| sampler.name().to_owned())
    }

    /// Asks the server's own model, as a step. A failure counts as having no model; the task's log gets the
    /// reason.
    async fn sample_here(
        &self,
        prompt: String,
        system: Option<String>,
        max_tokens: u32,
    ) -> Result<Answer, AgentError> {
        let sampler = self.run.engine.sampler.clone();
        let text: Option<String> = self
            .step("sample", async |step| {
                let Some(sampler) = sampler else { return Ok(None) };
                let sampled = tokio::select! {
                    biased;
                    () = step.canceled() => return Err(AgentError::Canceled),
                    sampled = sampler.sample(&prompt, system.as_deref(), max_tokens) => sampled,
                };
                match sampled {
                    Ok(text) => Ok(Some(text)),
                    Err(why) => {
                        step.report(Level::Warning, format!("the server's model gave no text: {why}"))
                            .await?;
                        Ok(None)
                    }
                }
            })
            .await?;
        Ok(text.map_or(Answer::Unavailable, |text| Answer::Accept(Value::String(text))))
    }

    /// Asks for an authorization that a person grants at a link.
    pub async fn authorize(
        &self,
        text: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<Answer, AgentError> {
        self.put_question(text, Ask::Authorization { url: url.into() }).await.and_then(answered)
    }

    async fn question(&self, text: String, ask: Ask) -> Result<QuestionOutcome, AgentError> {
        let (at, _occupied) = self.next_barrier()?;
        let id = question_id(&at);
        if !self.run.replayed(|replay| replay.asked(&at, &text))? {
            let callback = match &ask {
                Ask::Authorization { .. } => self.callback_of(&id),
                Ask::Form { .. } | Ask::Sample { .. } => None,
            };
            let question = Question { callback, ..Question::new(&id, &text, ask) };
            let emitted = self.scope.is_empty().then(|| self.lock().emitted);
            let asked = JournalEntry::Asked { at, text, emitted };
            self.run.record(asked, Some(Event::Question(question))).await?;
        }
        // Not parked yet, or another branch is working: a cancel must not wait for the grace period.
        tokio::select! {
            biased;
            outcome = self.run.wait_for_outcome(&id, &self.scope) => Ok(outcome),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }
}

/// The id of the question at a barrier.
fn question_id(at: &str) -> String {
    at.replace('#', "q")
}

/// The answer to a question that only its own agent could have withdrawn.
fn answered(outcome: QuestionOutcome) -> Result<Answer, AgentError> {
    match outcome {
        QuestionOutcome::Answered(answer) => Ok(answer),
        QuestionOutcome::Withdrawn => Err(AgentError::Misuse(
            "the question was withdrawn, but the agent waits for an answer: use put_question".into(),
        )),
    }
}

/// Forms on the wire are flat objects of primitives; some protocol would refuse anything else.
fn check_form(schema: &Value) -> Result<(), AgentError> {
    let refuse = |why: &str| Err(AgentError::Misuse(format!("a form is a flat object of primitives: {why}")));
    if schema["type"] != "object" {
        return refuse("its type is not \"object\"");
    }
    let Some(properties) = schema["properties"].as_object() else {
        return refuse("it has no properties");
    };
    for (name, property) in properties {
        if !matches!(property["type"].as_str(), Some("string" | "number" | "integer" | "boolean")) {
            return refuse(&format!("{name:?} is not a string, number, integer or boolean"));
        }
    }
    match CompiledSchema::compile(schema) {
        Ok(_) => Ok(()),
        Err(error) => refuse(&error.to_string()),
    }
}
