//! The [`Agent`] trait, and the profile with which an agent describes itself.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::{
    content::{Message, Part, Role},
    context::TaskContext,
    question_limit::QuestionLimit,
    surface::ToolGroup,
    task::Task,
};

/// Something that works on tasks.
///
/// `run` starts again from the top after a crash and after an answered question. What it did before is
/// replayed from the log and the journal, not repeated. Therefore an agent performs its side effects in
/// [`TaskContext::step`] and nowhere else.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// The agent's name and abilities. Read once, at registration.
    fn profile(&self) -> Profile;

    /// Works on one task to its end.
    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError>;

    /// A health check, for an agent that is a proxy for a remote one. `None`: the agent is local, and
    /// available while the engine runs.
    fn probe(&self) -> Option<Arc<dyn Probe>> {
        None
    }

    /// Whether remote work continues while the task itself waits. If so, the task is run once more when it is
    /// canceled, so that the agent can stop the remote work.
    fn works_elsewhere(&self) -> bool {
        false
    }

    /// Facts about one of this agent's tasks that only the agent can derive, for views of the task.
    fn describe_task(&self, _task: &Task) -> TaskFacts {
        TaskFacts::default()
    }

    /// Facts about a task that this agent called as a part of its own work.
    fn describe_called_task(&self, _task: &Task) -> TaskFacts {
        TaskFacts::default()
    }
}

/// What an agent says of a task beside the task itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFacts {
    /// The phase of the workflow that the task works on.
    pub phase: Option<String>,
    /// Whether the task is a batch, or an operation of one.
    pub batched: bool,
}

/// A health check of a remote agent.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// Checks whether the remote agent can be reached; the error is the reason. The caller sets the deadline.
    async fn check_reachable(&self) -> Result<(), String>;
}

/// The server's own model, used where the caller of a task has none.
#[async_trait]
pub trait Sampler: Send + Sync + 'static {
    /// The model's name, as its provider has it.
    fn name(&self) -> &str;

    /// Generates a text of at most `max_tokens`; the error is the reason for a failure.
    async fn sample(&self, prompt: &str, system: Option<&str>, max_tokens: u32) -> Result<String, String>;
}

/// An agent's description of itself, from which agent cards and tool lists are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The name in URLs: letters, digits, `-` and `_`.
    pub name: String,
    /// What the agent does, for people and for other agents.
    pub description: String,
    /// The version of the agent, stored with each of its tasks.
    pub version: String,
    /// What the agent can do, one entry per capability.
    pub skills: Vec<Skill>,
    /// Media types that it accepts.
    pub input_modes: Vec<String>,
    /// Media types that it produces.
    pub output_modes: Vec<String>,
    /// A JSON Schema of its structured input, if it has one. Tool calls are validated against it.
    pub input_schema: Option<Value>,
    /// Whether every message that begins a task is validated against the schema, in every protocol; see
    /// [`crate::catalog::RegisteredAgent`]. Otherwise the agent also accepts free text, which it interprets
    /// itself.
    pub strict_input: bool,
    /// A JSON Schema of its structured result, if it has one. The result is the first data part of its
    /// artifacts.
    pub output_schema: Option<Value>,
    /// Whether callers wait for the result, or get a task and poll it.
    pub tasks: TaskUse,
    /// Whether callers may stream.
    pub streaming: bool,
    /// Whether callers may register webhooks.
    pub push_notifications: bool,
    /// Whether it may answer with a message instead of a task; see [`Outcome::Replied`].
    pub replies: bool,
    /// The organization that provides the agent.
    pub provider: Option<AgentProvider>,
    /// The URL of its documentation.
    pub documentation_url: Option<String>,
    /// The URL of an image that stands for it.
    pub icon_url: Option<String>,
    /// The protocol extensions that it declares.
    pub extensions: Vec<AgentExtension>,
    /// What only authenticated callers read about it.
    pub extended_card: Option<ExtendedCard>,
    /// How long it may run, not counting time spent waiting. `None`: the server's default.
    pub time_limit: Option<Duration>,
    /// The group by which it is listed as a tool.
    pub tool_group: ToolGroup,
    /// Whether it is a demonstration, whose results are not real work. The planner gives it nothing unless the
    /// request names it.
    pub demo: bool,
    /// How long its tasks may wait for an answer. `None`: the server's default.
    pub question_limit: Option<QuestionLimit>,
    /// How long its tasks are retained after they have ended. `None`: the server's default.
    pub retention: Option<Duration>,
}

/// What an agent's extended card has beyond the public one. It is kept apart from the profile's own skills, so that no
/// other listing (tools, registry, index) shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtendedCard {
    /// Replaces the public description.
    pub description: Option<String>,
    /// Further skills, after the public ones.
    pub skills: Vec<Skill>,
}

/// The organization that provides an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProvider {
    /// The name of the organization.
    pub organization: String,
    /// Its web site.
    pub url: String,
}

/// A protocol extension that an agent declares.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentExtension {
    /// The extension's identity.
    pub uri: String,
    /// How the agent uses it.
    pub description: Option<String>,
    /// Whether a request must name it: one that does not is refused.
    pub required: bool,
    /// The extension's own configuration.
    pub params: Option<Map<String, Value>>,
}

impl Profile {
    /// A text agent, version 1, with one skill; streaming and webhooks are on.
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
            replies: false,
            provider: None,
            documentation_url: None,
            icon_url: None,
            extensions: vec![],
            extended_card: None,
            time_limit: None,
            tool_group: ToolGroup::Agents,
            demo: false,
            question_limit: None,
            retention: None,
        }
    }

    /// Sets the group by which the agent is listed as a tool.
    #[must_use]
    pub fn tool_group(mut self, group: ToolGroup) -> Self {
        self.tool_group = group;
        self
    }

    /// Marks the agent as a demonstration.
    #[must_use]
    pub fn demo(mut self) -> Self {
        self.demo = true;
        self
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

    /// Validates every message that begins a task against the input schema.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict_input = true;
        self
    }

    /// Lets the agent answer with a message instead of a task; see [`Outcome::Replied`].
    #[must_use]
    pub fn replies(mut self) -> Self {
        self.replies = true;
        self
    }

    /// Adds an example prompt to the agent's first skill.
    #[must_use]
    pub fn example(mut self, example: impl Into<String>) -> Self {
        if let Some(skill) = self.skills.first_mut() {
            skill.examples.push(example.into());
        }
        self
    }
}

/// Whether a call returns the result, or returns the task at once so that the caller polls it. For protocols
/// that support both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskUse {
    /// Callers wait for the result: the agent is quick.
    Never,
    /// A caller that supports tasks gets the task, unless it has ended at once.
    #[default]
    Offered,
    /// A caller that does not support tasks is refused.
    Required,
}

/// One capability of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Unique within the agent.
    pub id: String,
    /// A display name.
    pub name: String,
    /// What the skill does, for people and for models.
    pub description: String,
    /// Keywords for search.
    pub tags: Vec<String>,
    /// Example prompts.
    pub examples: Vec<String>,
    /// Media types that the skill accepts; empty: those of the agent.
    pub input_modes: Vec<String>,
    /// Media types that the skill produces; empty: those of the agent.
    pub output_modes: Vec<String>,
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
            input_modes: vec![],
            output_modes: vec![],
        }
    }
}

/// How a task ends when its agent returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The work is done, with an optional final message.
    Completed(Option<Message>),
    /// The agent answers with this message, and no task is shown.
    ///
    /// That holds if the profile says [`Profile::replies`], the caller waits for the answer in a protocol that
    /// has such answers, and nothing of the task was shown before: no progress, artifact or question, no
    /// further message and no webhook. Otherwise the task is completed with this message.
    Replied(Message),
    /// The work failed, for this reason.
    Failed(String),
    /// The agent refused the task, for this reason.
    Rejected(String),
    /// The task was canceled on request, with an optional explanation.
    Canceled(Option<String>),
}

impl Outcome {
    /// Completed without a final message.
    pub fn done() -> Self {
        Self::Completed(None)
    }

    /// Failed, for this reason.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// Refused, for this reason.
    pub fn rejected(why: impl Into<String>) -> Self {
        Self::Rejected(why.into())
    }

    /// Canceled, with this explanation.
    pub fn canceled(why: impl Into<String>) -> Self {
        Self::Canceled(Some(why.into()))
    }

    /// Answered with a text message, without a task. The message's id is assigned when it is written.
    pub fn replied(text: impl Into<String>) -> Self {
        Self::Replied(Message::of("", Role::Agent, vec![Part::text(text)]))
    }

    /// Completed with a final text message. The message's id is assigned when it is written.
    pub fn said(text: impl Into<String>) -> Self {
        Self::Completed(Some(Message::of("", Role::Agent, vec![Part::text(text)])))
    }
}

/// Why an agent stopped without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The work failed. The text is sent to the caller.
    #[error("{0}")]
    Failed(String),
    /// The remote agent cannot be reached and has not begun the work, so the caller may try another agent.
    /// The text is sent to the caller, marked as unreachable. It is not recorded as a step's result, because
    /// a retry may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The task was canceled; the agent noticed and stopped.
    #[error("canceled")]
    Canceled,
    /// After a restart the agent took another path than before.
    #[error("nondeterministic: {0}")]
    Nondeterministic(String),
    /// The agent used the context in a way that cannot be made durable, or exceeded a limit.
    #[error("{0}")]
    Misuse(String),
}

impl AgentError {
    /// A failure with this text.
    pub fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}
