//! The limits of a task, its usage, and the texts for reaching a limit.

use std::{fmt, time::Duration};

use nuncio_client::model::{Provider, StopReason};
use nuncio_engine::content::Metadata;
use serde_json::json;

use super::{super::spec::LlmSpec, answer::LlmAnswerRecord};

/// `max_tokens` for a provider that requires it.
const ANTHROPIC_TOKENS: u32 = 4096;

/// The limits of a task.
pub(super) struct LlmBudget {
    tokens: u64,
    calls: u32,
    time: Duration,
}

/// The usage of a task.
#[derive(Debug, Clone)]
pub(super) struct LlmUsage {
    /// Model calls.
    pub(super) questions: u32,
    /// Tool calls.
    pub(super) calls: u32,
    /// Tokens of all requests; `None` if the provider omitted them once.
    input: Option<u64>,
    /// Tokens of all replies, likewise.
    output: Option<u64>,
    /// Input and output tokens, for the budget: estimated if the provider does not report them.
    tokens: u64,
    ms: u64,
}

impl Default for LlmUsage {
    fn default() -> Self {
        Self { questions: 0, calls: 0, input: Some(0), output: Some(0), tokens: 0, ms: 0 }
    }
}

impl LlmUsage {
    pub(super) fn add(&mut self, answered: &LlmAnswerRecord) {
        let usage = answered.said.usage;
        self.questions += 1;
        self.ms += answered.ms;
        self.input = self.input.zip(usage.input).map(|(before, now)| before + now);
        self.output = self.output.zip(usage.output).map(|(before, now)| before + now);
        self.tokens += match (usage.input, usage.output) {
            (Some(input), Some(output)) => input + output,
            _ => answered.guessed,
        };
    }

    /// The usage as metadata of the result; null where the provider did not report it.
    pub(super) fn metadata(&self, stop: &StopReason) -> Metadata {
        let usage = json!({
            "modelCalls": self.questions,
            "toolCalls": self.calls,
            "inputTokens": self.input,
            "outputTokens": self.output,
            "modelMs": self.ms,
        });
        [("usage".to_owned(), usage), ("stop".to_owned(), json!(stop))].into_iter().collect()
    }
}

impl fmt::Display for LlmUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { questions, calls, ms, .. } = self;
        write!(out, "{questions} questions, {calls} calls of tools, {:.1} s, ", *ms as f64 / 1000.0)?;
        match (self.input, self.output) {
            (Some(input), Some(output)) => write!(out, "{input} tokens in, {output} out"),
            _ => write!(out, "about {} tokens (the provider does not say)", self.tokens),
        }
    }
}

impl LlmBudget {
    pub(super) fn of(spec: &LlmSpec) -> Self {
        Self { tokens: spec.budget_tokens, calls: spec.budget_calls, time: spec.budget_time }
    }

    /// Why the model may not be called again.
    pub(super) fn refuse_question(&self, spent: &LlmUsage) -> Option<String> {
        let Self { tokens, calls, .. } = self;
        if spent.tokens >= *tokens {
            return Some(format!("budget-tokens: {tokens} tokens are used up ({spent})"));
        }
        if spent.questions >= *calls {
            return Some(format!("budget-calls: the model may be asked {calls} times ({spent})"));
        }
        self.time_left(spent).is_zero().then(|| self.time_is_over(spent))
    }

    /// Why that many tools may not be called.
    pub(super) fn refuse_calls(&self, spent: &LlmUsage, wanted: usize) -> Option<String> {
        let calls = self.calls;
        let over = spent.calls as usize + wanted > calls as usize;
        over.then(|| {
            format!("budget-calls: {calls} tools may be called, and {wanted} more are wanted ({spent})")
        })
    }

    /// The time left for model calls.
    pub(super) fn time_left(&self, spent: &LlmUsage) -> Duration {
        self.time.saturating_sub(Duration::from_millis(spent.ms))
    }

    pub(super) fn time_is_over(&self, spent: &LlmUsage) -> String {
        format!("budget-time: the model may take {:?} in all; before its last answer: {spent}", self.time)
    }

    /// `max_tokens` of the next request.
    pub(super) fn max_tokens(&self, spec: &LlmSpec, provider: Provider, spent: &LlmUsage) -> Option<u32> {
        let most =
            spec.max_tokens.or_else(|| (provider == Provider::Anthropic).then_some(ANTHROPIC_TOKENS))?;
        let left = u32::try_from(self.tokens.saturating_sub(spent.tokens)).unwrap_or(u32::MAX);
        Some(most.min(left.max(1)))
    }
}
