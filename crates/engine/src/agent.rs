//! The trait that does work, and how an agent describes itself.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    content::{Message, Part, Role},
    context::TaskContext,
};

/// Something that works on tasks.
///
/// `run` starts again from the top after a crash and after an answered question; what it did before is
/// replayed from the log and the journal, not redone. So it does its effects through the context: in
/// [`TaskContext::step`], and in no other place.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Who it is. Read once, when the agent is registered.
    fn profile(&self) -> Profile;

    /// Works on one task to its end.
    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError>;

    /// How to find out whether it can work now, for an agent that stands for somebody elsewhere. `None`: it is
    /// here, and can work while the engine runs.
    fn probe(&self) -> Option<Arc<dyn Probe>> {
        None
    }

    /// Whether work of a task goes on elsewhere while the task itself waits. Then it is run once more when it is
    /// canceled, so that the agent can stop that.
    fn works_elsewhere(&self) -> bool {
        false
    }
}

/// Finds out whether somebody elsewhere can be reached.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// Looks, and says why not. Whoever asks bounds the time.
    async fn check_reachable(&self) -> Result<(), String>;
}

/// A model of the server's own, asked where the caller of a task has none.
#[async_trait]
pub trait Sampler: Send + Sync + 'static {
    /// A text of at most `max_tokens`, or why there is none.
    async fn sample(&self, prompt: &str, system: Option<&str>, max_tokens: u32) -> Result<String, String>;
}

/// How an agent presents itself; cards and tool lists are made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The name in URLs: letters, digits, `-` and `_`.
    pub name: String,
    /// What it does, for people and for other agents.
    pub description: String,
    /// The version of the agent, kept with each of its tasks.
    pub version: String,
    /// What it is good at.
    pub skills: Vec<Skill>,
    /// Media types that it takes.
    pub input_modes: Vec<String>,
    /// Media types that it makes.
    pub output_modes: Vec<String>,
    /// A JSON Schema of its structured input, where it has one. Calls as a tool are held against it.
    pub input_schema: Option<Value>,
    /// Whether every message that begins a task is held against it, in every protocol; see [`crate::catalog::Registered`].
    /// Else the agent takes free text beside, and what it makes of that is its own affair.
    pub strict_input: bool,
    /// A JSON Schema of its structured result, where it has one: the first data part of its artifacts.
    pub output_schema: Option<Value>,
    /// Whether callers wait for the result, or come back for it.
    pub tasks: TaskUse,
    /// Whether callers may stream.
    pub streaming: bool,
    /// Whether callers may register webhooks.
    pub push_notifications: bool,
    /// How long it may run, waiting not counted. `None`: the server's default.
    pub time_limit: Option<Duration>,
}

impl Profile {
    /// A text agent, version 1, with one skill, streaming and webhooks on.
    pub fn new(name: &str, description: &str) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            version: "1".into(),
            skills: vec![Skill::new(name, name, description)],
            input_modes: vec!["text/plain".into(), "application/json".into()],
            output_modes: vec!["text/plain".into(), "application/json".into()],
            input_schema: None,
            strict_input: false,
            output_schema: None,
            tasks: TaskUse::Offered,
            streaming: true,
            push_notifications: true,
            time_limit: None,
        }
    }

    /// Sets the agent's version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the JSON Schema of the agent's structured input.
    #[must_use]
    pub fn input(mut self, schema: Value) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// Holds every message that begins a task against the schema of the input.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict_input = true;
        self
    }

    /// Adds something to say to the agent, to its first skill.
    #[must_use]
    pub fn example(mut self, example: impl Into<String>) -> Self {
        if let Some(skill) = self.skills.first_mut() {
            skill.examples.push(example.into());
        }
        self
    }
}

/// Whether callers wait for the result of a call, or get the task at once and come back for it. For protocols
/// that know both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskUse {
    /// They wait: the agent is quick.
    Never,
    /// Whoever can come back gets the task, unless it has ended at once.
    #[default]
    Offered,
    /// Whoever cannot come back is refused.
    Required,
}

/// One thing that an agent can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Unique within the agent.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Things to say to it.
    pub examples: Vec<String>,
}

impl Skill {
    /// A skill with its id as its only tag.
    pub fn new(id: &str, name: &str, description: &str) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            description: description.into(),
            tags: vec![id.into()],
            examples: vec![],
        }
    }
}

/// How a task ends when its agent returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done, with a last word if there is one.
    Completed(Option<Message>),
    /// Not done, with the reason.
    Failed(String),
    /// Not taken, with the reason.
    Rejected(String),
    /// Stopped on request.
    Canceled(Option<String>),
}

impl Outcome {
    /// Done, nothing to add.
    pub fn done() -> Self {
        Self::Completed(None)
    }

    /// Not done, with the reason.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// Not taken, with the reason.
    pub fn rejected(why: impl Into<String>) -> Self {
        Self::Rejected(why.into())
    }

    /// Stopped, with what became of it.
    pub fn canceled(why: impl Into<String>) -> Self {
        Self::Canceled(Some(why.into()))
    }

    /// Done, with a sentence. The message's id is given when it is written.
    pub fn said(text: impl Into<String>) -> Self {
        Self::Completed(Some(Message::of("", Role::Agent, vec![Part::text(text)])))
    }
}

/// Why an agent stopped without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The work failed. The text goes to the caller.
    #[error("{0}")]
    Failed(String),
    /// Whoever was to do the work cannot be reached, and has not begun it: another may be asked. The text goes to the
    /// caller, with a mark that says so. Not kept as the result of a step: it may be another the next time.
    #[error("{0}")]
    Unreachable(String),
    /// The task was canceled; the agent noticed and stopped.
    #[error("canceled")]
    Canceled,
    /// The agent did something else than before its restart.
    #[error("nondeterministic: {0}")]
    Nondeterministic(String),
    /// The agent used the context in a way that cannot be made durable, or went over a cap.
    #[error("{0}")]
    Misuse(String),
}

impl AgentError {
    /// A failure with these words.
    pub fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}
