//! Handler requests and replies. To ask, a handler returns questions and is called again with the answers.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

use super::CompiledSchema;
use crate::{access::Caller, error::Error, question::Answer};

/// The input of a handler call.
#[derive(Debug, Clone)]
pub struct HandlerRequest {
    /// The authenticated caller, with its grants.
    pub caller: Caller,
    /// The arguments, by name.
    pub arguments: Map<String, Value>,
    /// The answers so far; empty in the first round.
    pub answers: Answers,
    /// The state that the handler returned in the previous round.
    pub state: Option<Value>,
    /// The kinds of questions that the client supports.
    pub abilities: Abilities,
}

impl HandlerRequest {
    /// The first round of a call with these arguments.
    pub fn new(caller: Caller, arguments: Map<String, Value>) -> Self {
        Self { caller, arguments, answers: Answers::new(), state: None, abilities: Abilities::default() }
    }

    /// A string argument.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }
}

/// The answers to a handler's questions, by the handler's own names. Roots arrive as `{"roots": [...]}`.
pub type Answers = BTreeMap<String, Answer>;

/// The kinds of questions that a client supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// The user can fill in forms.
    pub ask: bool,
    /// The user can open a link.
    pub authorize: bool,
    /// A model is available for sampling.
    pub sample: bool,
    /// The client can list its root folders.
    pub roots: bool,
}

/// The result of one round of a handler.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerReply<T> {
    /// The final result.
    Done(T),
    /// The handler needs answers first.
    Ask(HandlerQuestions),
    /// An agent takes over with these arguments: the call continues as a task.
    HandOver {
        /// The agent's name.
        agent: String,
        /// The arguments of its task.
        arguments: Map<String, Value>,
    },
}

/// The questions of a handler, by its own names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandlerQuestions {
    /// May be empty if the handler only wants to be called again.
    pub questions: BTreeMap<String, HandlerQuestion>,
    /// State that returns with the answers. It travels through the client, signed but not encrypted.
    pub state: Option<Value>,
}

impl HandlerQuestions {
    /// A single question.
    pub fn one(name: impl Into<String>, inquiry: HandlerQuestion) -> Self {
        Self { questions: BTreeMap::from([(name.into(), inquiry)]), state: None }
    }

    /// Adds a question.
    #[must_use]
    pub fn and(mut self, name: impl Into<String>, inquiry: HandlerQuestion) -> Self {
        self.questions.insert(name.into(), inquiry);
        self
    }

    /// Adds state that returns with the answers.
    #[must_use]
    pub fn keeping(mut self, state: Value) -> Self {
        self.state = Some(state);
        self
    }
}

/// The kinds of questions that a handler may ask.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerQuestion {
    /// A form: a JSON Schema of a flat object of primitives.
    Form {
        /// The text shown to the user.
        text: String,
        /// The schema that an accepted answer satisfies.
        schema: Value,
    },
    /// An action that the user takes at a link.
    Link {
        /// The text shown to the user.
        text: String,
        /// The link to open.
        url: String,
    },
    /// Text from the caller's model.
    Sample {
        /// The user message for the model.
        prompt: String,
        /// The system prompt.
        system: Option<String>,
        /// The longest response, in tokens.
        max_tokens: u32,
    },
    /// The client's root folders.
    Roots,
}

impl HandlerQuestion {
    /// Whether that answer fits the question: it has the right kind, and for a form it satisfies the schema. A
    /// decline always fits.
    pub fn takes(&self, answer: &Answer) -> bool {
        let Answer::Accept(given) = answer else { return true };
        match self {
            Self::Form { schema, .. } => {
                CompiledSchema::compile(schema).is_ok_and(|shape| shape.refuse(given).is_none())
            }
            Self::Link { .. } => true,
            Self::Sample { .. } => given.get("text").is_some_and(Value::is_string),
            Self::Roots => given.get("roots").is_some_and(Value::is_array),
        }
    }
}

/// Why a handler refused or failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HandlerError {
    /// The operation failed; a model may read why and try something else.
    #[error("{0}")]
    Failed(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The URI names nothing, or the caller may not see it.
    #[error("there is no resource {0}")]
    NotFound(String),
    /// The caller lacks the scope in the text.
    #[error("this needs the scope {0}, which the caller does not have: use a token that has it")]
    Forbidden(String),
    /// Only the operator may do this; the text is the scope that would allow it.
    #[error("{}", Error::NotOperator(.0.clone()))]
    NotOperator(String),
    /// Temporarily refused; retry later.
    #[error("{why}: try again in {} s", .retry_after.as_secs_f64().ceil().max(1.0))]
    Later {
        /// The limit that was hit.
        why: String,
        /// When a retry may succeed.
        retry_after: Duration,
        /// Whether the caller exceeded its rate; otherwise the server is overloaded.
        too_fast: bool,
    },
    /// The client does not support these.
    #[error("the client has to be able to do this: {}", needs(.0))]
    Needs(Abilities),
    /// An internal error.
    #[error("{0}")]
    Internal(String),
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Forbidden(scope) => Self::Forbidden(scope),
            Error::NotOperator(scope) => Self::NotOperator(scope),
            Error::TooFast { why, retry_after } => Self::Later { why, retry_after, too_fast: true },
            Error::Busy { why, retry_after } => Self::Later { why, retry_after, too_fast: false },
            Error::Internal(why) => Self::Internal(why),
            // The request cannot be fulfilled; a model may read why.
            error => Self::Failed(error.to_string()),
        }
    }
}

fn needs(abilities: &Abilities) -> String {
    let all = [
        (abilities.ask, "elicitation"),
        (abilities.authorize, "elicitation by link"),
        (abilities.sample, "sampling"),
        (abilities.roots, "roots"),
    ];
    all.iter().filter(|(needed, _)| *needed).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}
