//! What a waiting agent wants to know, as a question of the engine; and answers, as messages.
//!
//! A Nuncio agent says in a data part what kind of answer it wants, and gets that. A stranger's words are a form of
//! one text, and its answer is said in plain words.

use nuncio_engine::{
    content::{Content, Message, Part, Role},
    question::{Answer, Ask, Question},
    task::State,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The member of a stranger's form.
const ANSWER: &str = "answer";

/// A question that is open, and whether it was put by one who reads structured answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct A2aQuestion {
    pub(super) question: Question,
    /// The question's id over there, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<String>,
    /// Whether nothing but its words, and its place among others, tells it from another.
    #[serde(default)]
    pub(super) nameless: bool,
}

impl A2aQuestion {
    /// What is asked by a task that waits with this message, after so many questions that had no names.
    pub(super) fn read(state: State, message: Option<&Message>, before: u32) -> Self {
        let data = message.and_then(Message::data);
        let named = data.and_then(|data| data["questionId"].as_str()).map(str::to_owned);
        if let (Some(message), Some(data), Some(id)) = (message, data, &named)
            && let Some(ask) = own(data)
        {
            let question = Question { id: id.clone(), text: message.joined_text(), ask };
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
        Self { question: Question { id, text, ask }, named: None, nameless }
    }

    /// The message that answers it. Its id is the same whenever the same question is answered.
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

/// The kind of answer that a Nuncio agent wants, by its data part.
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

/// An answer in words, for one who reads nothing else.
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

/// What a message says: its text, or its data where it has none.
fn message_text(message: &Message) -> String {
    let text = message.joined_text();
    if !text.is_empty() {
        return text;
    }
    message.data().map(Value::to_string).unwrap_or_default()
}

/// The first address in a message: a link, a member of its data, a word of its text.
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

/// Where messages have no ids, a question is known by its words, and by how many went before it.
fn name(text: &str, before: u32) -> String {
    match before {
        0 => digest(&[text]),
        before => digest(&[text, &before.to_string()]),
    }
}

/// A short name of these texts together.
pub(super) fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
