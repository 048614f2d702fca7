//! The kind `llm`: a language model that replies, and calls other agents of this server on the way.
//!
//! The loop is model, tools, model. Every model call is a step, and every tool call is a child task, a step
//! or a question of this task, so a restart repeats nothing that has ended. `answer.rs` is one model call,
//! `toolbox.rs` the tools, `call.rs` one tool call, `render.rs` the text that the model reads, `budget.rs`
//! the limits.

mod answer;
mod budget;
mod call;
mod render;
mod toolbox;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use nuncio_client::model::{Model, ModelOptions, ModelReply, ModelTurn, Provider, StopReason};
use nuncio_engine::{
    Agent, AgentError, Catalog, Level, List, MemoryLimits, Outcome, Probe, Profile, State, StepContext,
    TaskContext, TaskId,
};
use serde::{Deserialize, Serialize};

use self::{
    answer::LlmAnswerRecord,
    budget::{LlmBudget, LlmUsage},
    toolbox::LlmTool,
};
use super::{AgentSpec, BuiltAgent, SpecError, spec::LlmSpec};

/// The artifact with the reply.
const ANSWER: &str = "answer";
/// Earlier tasks of the conversation that the model is shown.
const EARLIER_TASKS: usize = 10;
/// Bytes of their text, newest first.
const EARLIER_BYTES: usize = 64 * 1024;

/// Why tools that the table names are not offered. A skill of an agent elsewhere is known only once that was reached, so it is
/// not among them.
pub(super) fn unoffered_tools(
    catalog: &Catalog,
    spec: &LlmSpec,
    is_elsewhere: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut spec = spec.clone();
    spec.tools.retain(|tool| tool.split_once('/').is_none_or(|(agent, _)| !is_elsewhere(agent)));
    toolbox::available_tools(catalog, &spec, false).1
}

/// An agent that is a language model.
struct LlmAgent {
    profile: Profile,
    spec: LlmSpec,
    model: Model,
}

/// The state at the beginning of the task. Journaled, because the agents of this server may change
/// meanwhile.
#[derive(Serialize, Deserialize)]
struct LlmStart {
    tools: Vec<LlmTool>,
    earlier: Vec<ModelTurn>,
}

/// The conversation so far; rebuilt from the journal.
struct LlmConversation {
    tools: Vec<LlmTool>,
    turns: Vec<ModelTurn>,
    spent: LlmUsage,
    /// How many of the caller's messages are in it.
    received: usize,
    /// Whether the artifact has text.
    shown: bool,
}

/// Builds the agent of a table.
pub(super) fn make(spec: &AgentSpec, llm: &LlmSpec) -> Result<BuiltAgent, SpecError> {
    let provider: Provider =
        llm.provider.parse().map_err(|error| spec.wrong("provider", format!("{error}")))?;
    check(spec, llm, provider)?;
    let options = ModelOptions {
        url: llm.base_url.as_ref().map(|url| url.expose().as_str().to_owned()),
        key: llm.api_key.as_ref().map(|key| key.0.clone()),
        timeout: llm.timeout,
        retries: llm.retries,
        shown_name: Some(llm.model.to_string()),
        ..ModelOptions::of(provider, llm.model.expose())
    };
    let model = Model::new(&options).map_err(|error| spec.wrong("base-url", error.to_string()))?;
    let profile = spec.profile(&format!("Answers with the model {} of {}.", llm.model, provider.name()));
    Ok(BuiltAgent { agent: Arc::new(LlmAgent { profile, spec: llm.clone(), model }), managed: None })
}

fn check(spec: &AgentSpec, llm: &LlmSpec, provider: Provider) -> Result<(), SpecError> {
    if llm.model.expose().trim().is_empty() {
        return Err(spec.wrong("model", "is empty: name one of the provider's models"));
    }
    if llm.api_key.is_none() && llm.base_url.is_none() && provider.needs_key() {
        let variable = format!("${{{}_API_KEY}}", provider.name().to_uppercase());
        let why = format!("{} answers nobody without one: api-key = \"{variable}\"", provider.name());
        return Err(spec.wrong("api-key", why));
    }
    if let Some(temperature) = llm.temperature.filter(|temperature| !(0.0..=2.0).contains(temperature)) {
        return Err(spec.wrong("temperature", format!("is 0 to 2, not {temperature}")));
    }
    let numbers = [
        ("max-tokens", llm.max_tokens.map_or(1, u64::from)),
        ("budget-tokens", llm.budget_tokens),
        ("budget-calls", u64::from(llm.budget_calls)),
    ];
    if let Some((key, _)) = numbers.iter().find(|(_, number)| *number == 0) {
        return Err(spec.wrong(key, "is more than 0"));
    }
    let unnamed = |tool: &&String| tool.split('/').any(str::is_empty) || tool.split('/').count() > 2;
    if let Some(tool) = llm.tools.iter().find(unnamed) {
        return Err(spec.wrong("tools", format!("expected an agent's name or agent/skill, not {tool:?}")));
    }
    if let Some(namespace) = &llm.memory {
        let checked = MemoryLimits::default().check_namespace(namespace);
        checked.map_err(|error| spec.wrong("memory", error.to_string()))?;
    }
    Ok(())
}

#[async_trait]
impl Agent for LlmAgent {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(ModelProbe(self.model.clone())))
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        if render::render_message(cx.input()).is_empty() {
            return Ok(Outcome::rejected("there is nothing to answer: send a text, or data"));
        }
        let LlmStart { tools, earlier } = cx.step("begin", async |step| self.begin(&cx, &step).await).await?;
        let mut talk =
            LlmConversation { tools, turns: earlier, spent: LlmUsage::default(), received: 0, shown: false };
        let budget = LlmBudget::of(&self.spec);
        loop {
            if let Some(why) = budget.refuse_question(&talk.spent) {
                return Ok(Outcome::failed(why));
            }
            let answered = cx.step("model", async |step| self.ask(&cx, &step, &talk, &budget).await).await?;
            let said = talk.take(answered);
            if said.stop != StopReason::Tools {
                return Ok(self.end(&said));
            }
            if let Some(why) = budget.refuse_calls(&talk.spent, said.calls.len()) {
                return Ok(Outcome::failed(why));
            }
            self.call_all(&cx, &mut talk, &said).await?;
        }
    }
}

/// Probes whether the provider is reachable.
struct ModelProbe(Model);

#[async_trait]
impl Probe for ModelProbe {
    async fn check_reachable(&self) -> Result<(), String> {
        self.0.check_reachable().await.map_err(|error| error.to_string())
    }
}

impl LlmAgent {
    /// Collects the tools and the earlier messages of this conversation.
    async fn begin(&self, cx: &TaskContext, step: &StepContext) -> Result<LlmStart, AgentError> {
        let (tools, missing) = toolbox::available_tools(cx.engine().catalog(), &self.spec, cx.can_ask());
        for why in missing {
            step.report(Level::Warning, why).await?;
        }
        Ok(LlmStart { tools, earlier: self.earlier(cx).await })
    }

    /// The earlier requests and replies of the conversation. A child task has none: its siblings are in the
    /// same conversation.
    async fn earlier(&self, cx: &TaskContext) -> Vec<ModelTurn> {
        let context = cx.context_id();
        if cx.is_called() || TaskId::of_own_context(context) == Some(cx.task_id()) {
            return vec![];
        }
        let list = List {
            context: Some(context.to_owned()),
            agent: Some(self.profile.name.clone()),
            state: Some(State::Completed),
            page_size: EARLIER_TASKS,
            ..List::default()
        };
        // A caller without permission to read tasks has no earlier ones.
        let Ok(listed) = cx.engine().list(&cx.caller(), list).await else { return vec![] };
        let (mut left, mut turns) = (EARLIER_BYTES, vec![]);
        for task in listed.tasks.iter().filter(|task| task.origin.id != cx.task_id()) {
            let asked = task.history.first().map(render::render_message).unwrap_or_default();
            let answer = task.artifacts.iter().find(|artifact| artifact.id == ANSWER);
            let answer = answer.map(|answer| render::render_parts(&answer.parts)).unwrap_or_default();
            if asked.is_empty() || answer.is_empty() {
                continue;
            }
            match left.checked_sub(asked.len() + answer.len()) {
                Some(rest) => left = rest,
                None => break,
            }
            // The list has the newest first, the conversation last.
            turns.push(ModelTurn::Model(ModelReply { text: answer, ..ModelReply::default() }));
            turns.push(ModelTurn::User(asked));
        }
        turns.reverse();
        turns
    }

    /// Makes all tool calls of a reply concurrently.
    async fn call_all(
        &self,
        cx: &TaskContext,
        talk: &mut LlmConversation,
        said: &ModelReply,
    ) -> Result<(), AgentError> {
        let names: Vec<&str> = said.calls.iter().map(|call| call.name.as_str()).collect();
        let asked = talk.spent.questions;
        cx.progress(f64::from(asked), None, format!("calling {}", names.join(", "))).await?;
        let calls = said.calls.iter().enumerate().map(|(n, call)| {
            let branch = cx.branch(&format!("turn-{asked}-call-{}", n + 1));
            call::call_tool(branch, &talk.tools, &self.spec, call)
        });
        let results = try_join_all(calls).await?;
        talk.spent.calls += u32::try_from(results.len()).unwrap_or(u32::MAX);
        talk.turns.push(ModelTurn::Results(results));
        Ok(())
    }

    /// The outcome of the task with the last reply. States if the reply is incomplete.
    fn end(&self, said: &ModelReply) -> Outcome {
        let cut_calls = !said.calls.is_empty();
        match &said.stop {
            StopReason::Refused(why) => Outcome::failed(format!("the model would not answer: {why}")),
            stop if cut_calls => {
                Outcome::failed(format!("the model's answer broke off in a call of a tool: {stop}"))
            }
            stop if said.text.trim().is_empty() => {
                Outcome::failed(format!("the model's answer is empty: {stop}"))
            }
            StopReason::Length => {
                let limit =
                    self.spec.max_tokens.map(|max| format!(" (max-tokens is {max})")).unwrap_or_default();
                Outcome::said(format!("The answer is not complete: the model ran out of tokens{limit}."))
            }
            StopReason::Other(why) => {
                Outcome::said(format!("The answer may not be complete: it stopped with {why}."))
            }
            StopReason::End | StopReason::Tools => Outcome::done(),
        }
    }
}

impl LlmConversation {
    /// Appends the caller's messages and the model's reply.
    fn take(&mut self, answered: LlmAnswerRecord) -> ModelReply {
        self.spent.add(&answered);
        let LlmAnswerRecord { heard, said, .. } = answered;
        self.received += heard.len();
        self.turns.extend(heard.into_iter().map(ModelTurn::User));
        self.shown |= !said.text.is_empty();
        self.turns.push(ModelTurn::Model(said.clone()));
        said
    }
}
