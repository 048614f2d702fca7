//! A durable request for input, and its answer.
//!
//! A question is asked once and answered once, in whatever protocol the answer comes. What a form may ask is
//! a flat object of primitives; an answer is checked here, below all protocols, so that none accepts what
//! another would refuse.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    content::{Message, Part, Role, json_size},
    surface::Shape,
};

/// What an agent wants to know before it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Unique within the task; an answer names it when several are open.
    pub id: String,
    /// The words put to a person, or to a model.
    pub text: String,
    /// What kind of answer is wanted.
    pub ask: Ask,
}

/// The kinds of question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// A form: a JSON Schema of a flat object of primitives.
    Form {
        /// The schema that an accepted answer satisfies.
        schema: Value,
    },
    /// Text from the caller's model.
    Sample {
        /// The instructions that precede the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// The longest answer that is wanted, in tokens.
        max_tokens: u32,
    },
    /// An authorization that happens elsewhere, at a link.
    Authorization {
        /// Where the person goes.
        url: String,
    },
}

/// What somebody answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Yes, with the data that was asked for.
    Accept(Value),
    /// An explicit no.
    Decline,
    /// Dismissed without a choice.
    Cancel,
    /// Nobody there who could answer: the agent goes its own way without.
    Unavailable,
}

impl Answer {
    /// The answer as a message that names its question. Its id is given when it is written.
    pub fn message(&self, question: &str) -> Message {
        let mut data = match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
            Self::Unavailable => json!({ "action": "unavailable" }),
        };
        data["questionId"] = question.into();
        Message::of("", Role::User, vec![Part::data(data)])
    }

    /// The accepted data as a type; `None` where it was not accepted, or is of another shape.
    pub fn accepted<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        match self {
            Self::Accept(data) => serde_json::from_value(data.clone()).ok(),
            _ => None,
        }
    }

    /// The accepted text: of a model, `"…"` or `{"text": "…"}`.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Accept(Value::String(text)) => Some(text),
            Self::Accept(data) => data["text"].as_str(),
            _ => None,
        }
    }
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionOutcome {
    /// It was answered by somebody.
    Answered(Answer),
    /// It was taken back by whoever put it. That is no answer, and is passed on to nobody as one.
    Withdrawn,
}

/// Why an answer was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The data breaks the schema.
    #[error("the answer does not fit the question's schema: {0}")]
    Schema(String),
    /// A bare text where the form has several required fields.
    #[error("the question asks for {0}: answer with a data part of that shape")]
    NeedsData(String),
}

impl Question {
    /// The question as a message: its text, and a data part that a program can act on.
    ///
    /// `task` and `seq` make the message id, so that it is the same whenever the log is read again.
    pub fn message(&self, task: &str, seq: u64) -> Message {
        let mut data = Map::new();
        data.insert("questionId".into(), self.id.clone().into());
        match &self.ask {
            Ask::Form { schema } => data.insert("schema".into(), schema.clone()),
            Ask::Sample { max_tokens, .. } => data.insert("maxTokens".into(), (*max_tokens).into()),
            Ask::Authorization { url } => data.insert("url".into(), url.clone().into()),
        };
        let parts = vec![Part::text(&self.text), Part::data(Value::Object(data))];
        Message::of(format!("{task}-{seq}"), Role::Agent, parts)
    }

    /// About how many bytes the question holds.
    pub fn size(&self) -> usize {
        let ask = match &self.ask {
            Ask::Form { schema } => json_size(schema),
            Ask::Sample { system, .. } => system.as_ref().map_or(0, String::len),
            Ask::Authorization { url } => url.len(),
        };
        self.text.len() + ask
    }

    /// Reads a message as the answer to this question.
    ///
    /// A data part is the answer itself, or `{"action": "accept" | "decline" | "cancel" | "unavailable",
    /// "content": …}`.
    /// A bare text is taken as JSON, else as the value of the form's only required property.
    pub fn read_answer(&self, message: &Message) -> Result<Answer, AnswerError> {
        let answer = match message.data() {
            Some(data) => answer_in_data(data),
            None => self.answer_in_text(&message.joined_text())?,
        };
        self.check(answer)
    }

    /// Checks an answer that came in a structured way.
    pub fn check(&self, answer: Answer) -> Result<Answer, AnswerError> {
        if let (Ask::Form { schema }, Answer::Accept(data)) = (&self.ask, &answer) {
            // One that was asked here was compiled then. One that a remote server asks may be anything: it is bounded.
            let shape = Shape::compile(schema).map_err(|e| AnswerError::Schema(e.to_string()))?;
            if let Some((at, error)) = shape.violations(data, 1).0.into_iter().next() {
                let at = if at.is_empty() { String::new() } else { format!(" (at {at})") };
                return Err(AnswerError::Schema(format!("{error}{at}")));
            }
        }
        Ok(answer)
    }

    fn answer_in_text(&self, text: &str) -> Result<Answer, AnswerError> {
        let Ask::Form { schema } = &self.ask else {
            return Ok(Answer::Accept(Value::String(text.to_owned())));
        };
        if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
            return Ok(answer_in_data(&value));
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [only] = required[..] else {
            return Err(AnswerError::NeedsData(required.join(", ")));
        };
        let value = primitive(text.trim(), schema["properties"][only]["type"].as_str().unwrap_or("string"));
        Ok(Answer::Accept(json!({ only: value })))
    }
}

fn answer_in_data(data: &Value) -> Answer {
    match data.get("action").and_then(Value::as_str) {
        Some("accept") => Answer::Accept(data.get("content").cloned().unwrap_or_else(|| json!({}))),
        Some("decline") => Answer::Decline,
        Some("cancel") => Answer::Cancel,
        Some("unavailable") => Answer::Unavailable,
        _ => {
            let mut data = data.clone();
            if let Some(map) = data.as_object_mut() {
                map.shift_remove("questionId");
            }
            Answer::Accept(data)
        }
    }
}

/// A word typed by a person, as the type that the schema wants. What does not fit stays text, and the
/// schema refuses it with its own words.
fn primitive(text: &str, wanted: &str) -> Value {
    let parsed = match (wanted, text.to_ascii_lowercase().as_str()) {
        ("boolean", "true" | "yes" | "y" | "ok") => Some(Value::Bool(true)),
        ("boolean", "false" | "no" | "n") => Some(Value::Bool(false)),
        ("integer" | "number", _) => serde_json::from_str::<Value>(text).ok().filter(Value::is_number),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}
