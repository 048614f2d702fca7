//! Converts an agent's `input-required` to a question of the engine, and answers to messages.
//!
//! A Nuncio agent describes the expected answer in a data part and gets a structured answer. Any other
//! agent's text becomes a form with one text field, and the answer is sent as plain text.

use nuncio_engine::{
    content::{Content, Message, Part, Role},
    question::{Answer, Ask, Question},
    task::State,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The form field for an agent that sends plain text.
const ANSWER: &str = "answer";

/// An open question, and whether the agent reads structured answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct A2aQuestion {
    pub(super) question: Question,
    /// The agent's id of the question, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<String>,
    /// Whether only its text and its number distinguish it from another question.
    #[serde(default)]
    pub(super) nameless: bool,
}

impl A2aQuestion {
    /// The question of a task that waits with this message, after so many questions without ids.
    pub(super) fn read(state: State, message: Option<&Message>, before: u32) -> Self {
        let data = message.and_then(Message::data);
        let named = data.and_then(|data| data["questionId"].as_str()).map(str::to_owned);
        if let (Some(message), Some(data), Some(id)) = (message, data, &named)
            && let Some(ask) = own(data)
        {
            let question = Question { id: id.clone(), text: message.joined_text(), ask, callback: None };
            return Self { question, named, nameless: false };
        }
        let text = message.map(message_text).filter(|text| !text.is_empty());
        let url = message.and_then(link).filter(|_| state == State::AuthRequired);
        let text = text.unwrap_or_else(|| {
            let what = if state == State::AuthRequired { "an authorization" } else { "more input" };
            format!("The agent needs {what} and does not say which.")
        });
        let ask = match url {
            Some(url) => Ask::Authorization { url },
            None => Ask::Form { schema: one_text() },
        };
        let id = message.map(|message| message.id.clone()).filter(|id| !id.is_empty());
        let nameless = id.is_none();
        let id = id.unwrap_or_else(|| name(&text, before));
        Self { question: Question { id, text, ask, callback: None }, named: None, nameless }
    }

    /// The message that answers it. The same question always gets the same message id.
    pub(super) fn answer(&self, task: &str, answer: &Answer) -> Message {
        let (action, content) = match answer {
            Answer::Accept(content) => ("accept", Some(content)),
            Answer::Decline(_) => ("decline", None),
            Answer::Cancel => ("cancel", None),
            Answer::Unavailable => ("unavailable", None),
        };
        let parts = match &self.named {
            Some(id) => {
                let mut data = json!({ "questionId": id, "action": action });
                if let Some(content) = content {
                    data["content"] = content.clone();
                }
                if let Some(note) = answer.note() {
                    data["note"] = note.into();
                }
                vec![Part::data(data)]
            }
            None => vec![Part::text(plain(answer))],
        };
        Message::of(digest(&[task, &self.question.id]), Role::User, parts)
    }
}

/// The kind of answer that a Nuncio agent expects, from its data part.
fn own(data: &Value) -> Option<Ask> {
    if let Some(schema @ Value::Object(_)) = data.get("schema") {
        return Some(Ask::Form { schema: schema.clone() });
    }
    if let Some(url) = data["url"].as_str() {
        return Some(Ask::Authorization { url: url.to_owned() });
    }
    let max_tokens = u32::try_from(data["maxTokens"].as_u64()?).unwrap_or(u32::MAX);
    Some(Ask::Sample { system: None, max_tokens })
}

fn one_text() -> Value {
    json!({ "type": "object", "properties": { ANSWER: { "type": "string" } }, "required": [ANSWER] })
}

/// An answer as plain text.
fn plain(answer: &Answer) -> String {
    match answer {
        Answer::Accept(Value::Object(members)) => match members.get(ANSWER) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None if members.is_empty() => "done".into(),
            None => Value::Object(members.clone()).to_string(),
        },
        Answer::Accept(Value::String(text)) => text.clone(),
        Answer::Accept(Value::Null) => "done".into(),
        Answer::Accept(other) => other.to_string(),
        Answer::Decline(None) => "The request was declined.".into(),
        Answer::Decline(Some(note)) => format!("The request was declined: {note}"),
        Answer::Cancel => "The request was dismissed.".into(),
        Answer::Unavailable => "Nobody is there who could answer.".into(),
    }
}

/// The text of a message, or its data if it has no text.
fn message_text(message: &Message) -> String {
    let text = message.joined_text();
    if !text.is_empty() {
        return text;
    }
    message.data().map(Value::to_string).unwrap_or_default()
}

/// The first URL in a message: a link, a member of its data, a word of its text.
fn link(message: &Message) -> Option<String> {
    let is_link = |text: &&str| text.starts_with("https://") || text.starts_with("http://");
    message.parts.iter().find_map(|part| match &part.content {
        Content::Url(url) => Some(url.clone()),
        Content::Data(Value::Object(members)) => {
            members.values().filter_map(Value::as_str).find(is_link).map(str::to_owned)
        }
        Content::Text(text) => {
            let mut found =
                text.split_whitespace().map(|word| word.trim_matches(&['(', ')', '<', '>', '"'][..]));
            found.find(is_link).map(|word| word.trim_end_matches(['.', ',', ';']).to_owned())
        }
        _ => None,
    })
}

/// Without message ids, a question is identified by its text and by the number of questions before it.
fn name(text: &str, before: u32) -> String {
    match before {
        0 => digest(&[text]),
        before => digest(&[text, &before.to_string()]),
    }
}

/// A short digest of these texts together.
pub(super) fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
