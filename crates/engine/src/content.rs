//! Messages, parts and artifacts, independent of any protocol.
//!
//! These types are stored as they are serialized here, so a change of a field is a change of the stored
//! format: see `event.rs`. Dialects convert to and from them at the edge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sent_by::SentBy;

/// Free-form attributes that travel with messages, parts, artifacts and tasks.
pub type Metadata = Map<String, Value>;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Chosen by the sender of the message; the engine never interprets it.
    pub id: String,
    /// The sender: the caller or the agent.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
    /// Attributes of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the protocol extensions that the message uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Ids of other tasks that the message refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<String>,
    /// Who sent it, where that is recorded: in an event of the log. Set by the engine alone; a task's history does not have
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<SentBy>>,
}

impl Message {
    /// A message of one text part.
    pub fn text(id: impl Into<String>, role: Role, text: impl Into<String>) -> Self {
        Self::of(id, role, vec![Part::text(text)])
    }

    /// A message of the given parts.
    pub fn of(id: impl Into<String>, role: Role, parts: Vec<Part>) -> Self {
        Self {
            id: id.into(),
            role,
            parts,
            metadata: None,
            extensions: vec![],
            reference_task_ids: vec![],
            by: None,
        }
    }

    /// The approximate size in bytes.
    pub fn size(&self) -> usize {
        self.parts.iter().map(Part::size).sum()
    }

    /// All text parts, joined by newlines.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }

    /// The first structured part, if there is one.
    pub fn data(&self) -> Option<&Value> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::Data(value) => Some(value),
            _ => None,
        })
    }
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The caller's side.
    User,
    /// The agent's side.
    Agent,
}

/// One part of a message or of an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The content itself: text, bytes, a URL or data.
    pub content: Content,
    /// Attributes of the part.
    pub metadata: Option<Metadata>,
    /// The file name, if the part is a file.
    pub filename: Option<String>,
    /// The media type, if known.
    pub media_type: Option<String>,
}

impl Part {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(text.into()).into()
    }

    /// A structured value.
    pub fn data(value: Value) -> Self {
        Content::Data(value).into()
    }

    /// The text, if the part is text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The approximate size in bytes, which counts towards the limit on a task's size.
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Text(text) | Content::Url(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
            Content::Data(value) => json_size(value),
        }
    }
}

impl From<Content> for Part {
    fn from(content: Content) -> Self {
        Self { content, metadata: None, filename: None, media_type: None }
    }
}

/// The kinds of content that every protocol generation can carry.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// A file's bytes; base64 in text formats.
    Bytes(Vec<u8>),
    /// A file at a URL. The engine never fetches it.
    Url(String),
    /// A structured value.
    Data(Value),
}

/// A result of a task, with all chunks received so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Unique within the task.
    pub id: String,
    /// A display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the artifact contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content so far; adjacent text chunks are merged.
    pub parts: Vec<Part>,
    /// Attributes of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the protocol extensions that the artifact uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Whether its last chunk was received.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
}

/// The approximate length of a value as JSON, without serializing it.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_size(item) + 1).sum::<usize>(),
        Value::Object(map) => {
            2 + map.iter().map(|(key, item)| key.len() + 4 + json_size(item)).sum::<usize>()
        }
    }
}

/// The stored form of a part: one flat object, implemented manually, because serde's `flatten` and tagged
/// enums buffer every value and a log of chunks is mostly parts.
mod stored {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error, ser::SerializeStruct};
    use serde_json::Value;

    use super::{Content, Metadata, Part};

    impl Serialize for Part {
        fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
            let optional = [self.metadata.is_some(), self.filename.is_some(), self.media_type.is_some()];
            let fields = 1 + optional.into_iter().filter(|some| *some).count();
            let mut out = out.serialize_struct("Part", fields)?;
            match &self.content {
                Content::Text(text) => out.serialize_field("text", text)?,
                Content::Bytes(bytes) => out.serialize_field("bytes", &BASE64_STANDARD.encode(bytes))?,
                Content::Url(url) => out.serialize_field("url", url)?,
                Content::Data(value) => out.serialize_field("data", value)?,
            }
            if let Some(metadata) = &self.metadata {
                out.serialize_field("metadata", metadata)?;
            }
            if let Some(filename) = &self.filename {
                out.serialize_field("filename", filename)?;
            }
            if let Some(media_type) = &self.media_type {
                out.serialize_field("media_type", media_type)?;
            }
            out.end()
        }
    }

    #[derive(Deserialize)]
    struct Flat {
        text: Option<String>,
        bytes: Option<String>,
        url: Option<String>,
        /// `null` is a valid value here, so the field's presence is what counts.
        #[serde(default, deserialize_with = "present")]
        data: Option<Value>,
        metadata: Option<Metadata>,
        filename: Option<String>,
        media_type: Option<String>,
    }

    impl<'de> Deserialize<'de> for Part {
        fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
            let flat = Flat::deserialize(input)?;
            let content = match (flat.text, flat.bytes, flat.url, flat.data) {
                (Some(text), ..) => Content::Text(text),
                (_, Some(bytes), ..) => {
                    Content::Bytes(BASE64_STANDARD.decode(bytes).map_err(D::Error::custom)?)
                }
                (_, _, Some(url), _) => Content::Url(url),
                (.., Some(data)) => Content::Data(data),
                _ => return Err(D::Error::custom("a part without content")),
            };
            Ok(Self {
                content,
                metadata: flat.metadata,
                filename: flat.filename,
                media_type: flat.media_type,
            })
        }
    }

    fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(input).map(Some)
    }
}
