//! How a handler asks: it returns its questions, and is called again with the answers.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

use super::CompiledSchema;
use crate::{access::Caller, error::Error, question::Answer};

/// What a handler is given with its arguments.
#[derive(Debug, Clone)]
pub struct HandlerRequest {
    /// Who is calling.
    pub caller: Caller,
    /// The arguments, by name.
    pub arguments: Map<String, Value>,
    /// What was answered so far; empty in the first round.
    pub answers: Answers,
    /// What the handler gave itself along in the round before.
    pub state: Option<Value>,
    /// What the caller's side can be asked.
    pub abilities: Abilities,
}

impl HandlerRequest {
    /// A first call with these arguments.
    pub fn new(caller: Caller, arguments: Map<String, Value>) -> Self {
        Self { caller, arguments, answers: Answers::new(), state: None, abilities: Abilities::default() }
    }

    /// An argument that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }
}

/// The answers to a handler's questions, by the names that it gave them. Roots come as `{"roots": [...]}`.
pub type Answers = BTreeMap<String, Answer>;

/// What the caller's side can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// A person can fill in forms.
    pub ask: bool,
    /// A person can be sent to a link.
    pub authorize: bool,
    /// There is a model to ask.
    pub sample: bool,
    /// It has root folders to tell.
    pub roots: bool,
}

/// What a handler says.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerReply<T> {
    /// The answer.
    Done(T),
    /// It wants to know something first.
    Ask(HandlerQuestions),
    /// It has what it needs, and an agent takes over with these arguments: the call is a task from here on.
    HandOver {
        /// The agent.
        agent: String,
        /// What it is to do.
        arguments: Map<String, Value>,
    },
}

/// Questions of a handler, by names of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandlerQuestions {
    /// The questions. May be empty where the handler only wants to be called again.
    pub questions: BTreeMap<String, HandlerQuestion>,
    /// What it wants to find again with the answers. It travels through the caller, signed, not encrypted.
    pub state: Option<Value>,
}

impl HandlerQuestions {
    /// One question.
    pub fn one(name: impl Into<String>, inquiry: HandlerQuestion) -> Self {
        Self { questions: BTreeMap::from([(name.into(), inquiry)]), state: None }
    }

    /// One more question.
    #[must_use]
    pub fn and(mut self, name: impl Into<String>, inquiry: HandlerQuestion) -> Self {
        self.questions.insert(name.into(), inquiry);
        self
    }

    /// With something to find again.
    #[must_use]
    pub fn keeping(mut self, state: Value) -> Self {
        self.state = Some(state);
        self
    }
}

/// What a handler may ask.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerQuestion {
    /// A form: a JSON Schema of a flat object of primitives.
    Form {
        /// The words put to a person.
        text: String,
        /// The schema that an accepted answer satisfies.
        schema: Value,
    },
    /// Something that happens elsewhere, at a link.
    Link {
        /// The words put to a person.
        text: String,
        /// Where they go.
        url: String,
    },
    /// Text from the caller's model.
    Sample {
        /// What is put to the model.
        prompt: String,
        /// The instructions that precede it.
        system: Option<String>,
        /// The longest answer that is wanted, in tokens.
        max_tokens: u32,
    },
    /// The folders that the caller works in.
    Roots,
}

impl HandlerQuestion {
    /// Whether that is an answer to it: of its kind, and where it is a form, one that satisfies the schema. A no
    /// always is.
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

/// Why a handler did not do it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HandlerError {
    /// It was tried and failed; a model may read why and try something else.
    #[error("{0}")]
    Failed(String),
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// What the address names does not exist, or the caller may not see it.
    #[error("there is no resource {0}")]
    NotFound(String),
    /// The caller may not do this. The text is the scope that would allow it.
    #[error("this needs the scope {0}, which the caller does not have: use a token that has it")]
    Forbidden(String),
    /// Only the operator may do this. The text is the scope that would allow it.
    #[error("{}", Error::NotOperator(.0.clone()))]
    NotOperator(String),
    /// Not now.
    #[error("{why}: try again in {} s", .retry_after.as_secs_f64().ceil().max(1.0))]
    Later {
        /// Why not.
        why: String,
        /// When it is worth another try.
        retry_after: Duration,
        /// Whether the caller does it too often; else there is too much to do.
        too_fast: bool,
    },
    /// The caller's side lacks what is needed.
    #[error("the client has to be able to do this: {}", needs(.0))]
    Needs(Abilities),
    /// Something inside.
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
            // What the caller asked for cannot be had; a model may read why.
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
