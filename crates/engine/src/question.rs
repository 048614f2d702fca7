//! Durable requests for input, and their answers.
//!
//! A question is asked once and answered once, in any protocol. A form is a flat object of primitives. An
//! answer is validated here, below all protocols, so that none accepts what another would refuse.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    content::{Message, Part, Role, json_size},
    surface::CompiledSchema,
};

/// The field names under which a decline may carry a note.
const NOTES: [&str; 3] = ["note", "notes", "reason"];

/// A request for input that an agent needs before it continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Unique within the task; an answer names it when several are open.
    pub id: String,
    /// The prompt for a person, or for a model.
    pub text: String,
    /// The kind of answer that is wanted.
    pub ask: Ask,
    /// The address at which an authorization is completed without a message; see [`crate::authorization`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
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
    /// An authorization that a person grants elsewhere, at a link.
    Authorization {
        /// The link to open.
        url: String,
    },
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredAnswer", into = "StoredAnswer")]
pub enum Answer {
    /// Accepted, with the requested data.
    Accept(Value),
    /// Declined explicitly, with an optional note.
    Decline(Option<String>),
    /// Dismissed without a choice.
    Cancel,
    /// The caller cannot answer questions: the agent continues without an answer.
    Unavailable,
}

/// The stored form of an answer. Without a note it is the same as before notes existed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredAnswer {
    Accept(Value),
    Decline,
    Declined { note: String },
    Cancel,
    Unavailable,
}

impl From<StoredAnswer> for Answer {
    fn from(stored: StoredAnswer) -> Self {
        match stored {
            StoredAnswer::Accept(data) => Self::Accept(data),
            StoredAnswer::Decline => Self::Decline(None),
            StoredAnswer::Declined { note } => Self::Decline(Some(note)),
            StoredAnswer::Cancel => Self::Cancel,
            StoredAnswer::Unavailable => Self::Unavailable,
        }
    }
}

impl From<Answer> for StoredAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Accept(data) => Self::Accept(data),
            Answer::Decline(None) => Self::Decline,
            Answer::Decline(Some(note)) => Self::Declined { note },
            Answer::Cancel => Self::Cancel,
            Answer::Unavailable => Self::Unavailable,
        }
    }
}

impl Answer {
    /// A decline, with a note if the text is not empty.
    pub fn decline(note: &str) -> Self {
        let note = note.trim();
        Self::Decline((!note.is_empty()).then(|| note.to_owned()))
    }

    /// The note of a decline.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Decline(note) => note.as_deref(),
            _ => None,
        }
    }

    /// The answer as a message that names its question. The message's id is assigned when it is written.
    pub fn message(&self, question: &str) -> Message {
        let mut data = match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline(None) => json!({ "action": "decline" }),
            Self::Decline(Some(note)) => json!({ "action": "decline", "note": note }),
            Self::Cancel => json!({ "action": "cancel" }),
            Self::Unavailable => json!({ "action": "unavailable" }),
        };
        data["questionId"] = question.into();
        Message::of("", Role::User, vec![Part::data(data)])
    }

    /// The accepted data as a type; `None` if it was not accepted, or has another shape.
    pub fn accepted<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        match self {
            Self::Accept(data) => serde_json::from_value(data.clone()).ok(),
            _ => None,
        }
    }

    /// The accepted text of a model: `"…"` or `{"text": "…"}`.
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
    /// The caller answered, or cannot answer.
    Answered(Answer),
    /// The agent that asked it withdrew it. This is not an answer, and is never passed on as one.
    Withdrawn,
}

/// Why an answer was refused. The question stays open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The data violates the schema.
    #[error("the answer does not fit the question's schema: {0}")]
    Schema(String),
    /// A bare text, but the form has several required fields.
    #[error("the question asks for {0}: answer with a data part of that shape")]
    NeedsData(String),
}

impl Question {
    /// A question without a callback.
    pub fn new(id: impl Into<String>, text: impl Into<String>, ask: Ask) -> Self {
        Self { id: id.into(), text: text.into(), ask, callback: None }
    }

    /// The question as a message: its text, and a data part that a program can act on.
    ///
    /// `task` and `seq` make the message id, so that it is the same whenever the log is read.
    pub fn message(&self, task: &str, seq: u64) -> Message {
        let mut data = Map::new();
        data.insert("questionId".into(), self.id.clone().into());
        match &self.ask {
            Ask::Form { schema } => data.insert("schema".into(), schema.clone()),
            Ask::Sample { max_tokens, .. } => data.insert("maxTokens".into(), (*max_tokens).into()),
            Ask::Authorization { url } => data.insert("url".into(), url.clone().into()),
        };
        if let Some(callback) = &self.callback {
            data.insert("callbackUrl".into(), callback.clone().into());
        }
        let parts = vec![Part::text(&self.text), Part::data(Value::Object(data))];
        Message::of(format!("{task}-{seq}"), Role::Agent, parts)
    }

    /// The approximate size in bytes.
    pub fn size(&self) -> usize {
        let ask = match &self.ask {
            Ask::Form { schema } => json_size(schema),
            Ask::Sample { system, .. } => system.as_ref().map_or(0, String::len),
            Ask::Authorization { url } => url.len(),
        };
        self.text.len() + ask + self.callback.as_ref().map_or(0, String::len)
    }

    /// Parses a message as the answer to this question.
    ///
    /// A data part is the answer itself, or `{"action": "accept" | "decline" | "cancel" | "unavailable",
    /// "content": …}`. A note of a decline is its `note`, in its content, or text beside the data. A bare
    /// text is parsed as JSON, else taken as the value of the form's only required property.
    pub fn read_answer(&self, message: &Message) -> Result<Answer, AnswerError> {
        let answer = match message.data() {
            Some(data) => match answer_in_data(data) {
                Answer::Decline(None) => Answer::decline(&message.joined_text()),
                answer => answer,
            },
            None => self.answer_in_text(&message.joined_text())?,
        };
        self.check(answer)
    }

    /// Validates an answer that arrived in structured form.
    pub fn check(&self, answer: Answer) -> Result<Answer, AnswerError> {
        if let (Ask::Form { schema }, Answer::Accept(data)) = (&self.ask, &answer) {
            // A schema from a local agent was compiled when it was asked. A remote server's may be anything,
            // so compiling is bounded.
            let shape = CompiledSchema::compile(schema).map_err(|e| AnswerError::Schema(e.to_string()))?;
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
        Some("decline") => Answer::decline(note_in(data).unwrap_or_default()),
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

/// The note of a decline: a field of its own, or of the content, or the content itself.
pub fn note_in(declined: &Value) -> Option<&str> {
    let note = |value: &'_ Value| NOTES.iter().find(|name| value[**name].is_string()).copied();
    if let Some(name) = note(declined) {
        return declined[name].as_str();
    }
    match declined.get("content")? {
        Value::String(text) => Some(text),
        content => content[note(content)?].as_str(),
    }
}

/// Converts text typed by a person to the type that the schema wants. Text that does not convert stays text,
/// and the schema's validation reports it.
fn primitive(text: &str, wanted: &str) -> Value {
    let parsed = match (wanted, text.to_ascii_lowercase().as_str()) {
        ("boolean", "true" | "yes" | "y" | "ok") => Some(Value::Bool(true)),
        ("boolean", "false" | "no" | "n") => Some(Value::Bool(false)),
        ("integer" | "number", _) => serde_json::from_str::<Value>(text).ok().filter(Value::is_number),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions stored before callbacks existed keep their encoding. Never change these.
    #[test]
    fn a_question_is_stored_as_it_was_and_with_its_callback_if_it_has_one() {
        let check = |question: Question, stored: &str| {
            assert_eq!(serde_json::to_string(&question).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Question>(stored).unwrap(), question);
        };
        let asked = Question::new("q1", "Log in.", Ask::Authorization { url: "https://a.example".into() });
        let plain = r#"{"id":"q1","text":"Log in.","ask":{"authorization":{"url":"https://a.example"}}}"#;
        check(asked.clone(), plain);
        let stored = plain.replacen("}}}", r#"}},"callback":"https://b.example/x"}"#, 1);
        check(Question { callback: Some("https://b.example/x".into()), ..asked }, &stored);
    }

    /// Answers stored before notes existed keep their encoding. Never change these.
    #[test]
    fn a_decline_is_stored_as_it_was_and_with_its_note_if_it_has_one() {
        let check = |answer: Answer, stored: &str| {
            assert_eq!(serde_json::to_string(&answer).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Answer>(stored).unwrap(), answer);
        };
        check(Answer::Accept(json!({ "n": 1 })), r#"{"accept":{"n":1}}"#);
        check(Answer::Decline(None), r#""decline""#);
        check(Answer::decline(" too dear "), r#"{"declined":{"note":"too dear"}}"#);
        check(Answer::Cancel, r#""cancel""#);
        check(Answer::Unavailable, r#""unavailable""#);
    }
}
