//! Parts: an object whose member names its type (1.0), or an object with a tag (`kind`, before that `type`).

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use nuncio_engine::content::{Content, Metadata, Part};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Dialect,
    input::{EnumValue, JsonPath, MalformedInput, present},
};
use crate::json::{self, JsonObject};

/// Marks, in the metadata of a tagged data part, that its object only wraps a value that is not an object. The
/// official SDKs use the same name, so that such a value survives a round trip through them.
const WRAPPED: &str = "data_part_compat";

pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, part: &Part) {
    json::object(out, |object| match dialect {
        Dialect::V0_1 => write_tagged(object, "type", part),
        Dialect::V0_3 => write_tagged(object, "kind", part),
        Dialect::V1 => write_one_of(object, part),
    });
}

fn write_one_of(object: &mut JsonObject<'_>, part: &Part) {
    match &part.content {
        Content::Text(text) => object.value("text", text),
        Content::Bytes(bytes) => json::base64(object.key("raw"), bytes),
        Content::Url(url) => object.value("url", url),
        Content::Data(data) => object.value("data", data),
    }
    object.optional("filename", part.filename.as_ref());
    object.optional("mediaType", part.media_type.as_ref());
    object.optional("metadata", part.metadata.as_ref());
}

fn write_tagged(object: &mut JsonObject<'_>, tag: &'static str, part: &Part) {
    match &part.content {
        Content::Text(text) => {
            object.value(tag, "text");
            object.value("text", text);
        }
        Content::Bytes(_) | Content::Url(_) => {
            object.value(tag, "file");
            object.object("file", |file| {
                match &part.content {
                    Content::Bytes(bytes) => json::base64(file.key("bytes"), bytes),
                    Content::Url(url) => file.value("uri", url),
                    Content::Text(_) | Content::Data(_) => {}
                }
                file.optional("mimeType", part.media_type.as_ref());
                file.optional("name", part.filename.as_ref());
            });
        }
        Content::Data(data @ Value::Object(_)) => {
            object.value(tag, "data");
            object.value("data", data);
        }
        Content::Data(data) => {
            object.value(tag, "data");
            object.object("data", |wrapper| wrapper.value("value", data));
            let mut metadata = part.metadata.clone().unwrap_or_default();
            metadata.insert(WRAPPED.to_owned(), Value::Bool(true));
            object.value("metadata", &metadata);
            return;
        }
    }
    object.optional("metadata", part.metadata.as_ref());
}

/// A part of any generation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct PartIn<'a> {
    #[serde(borrow)]
    kind: Option<EnumValue<'a>>,
    #[serde(borrow)]
    r#type: Option<EnumValue<'a>>,
    text: Option<String>,
    raw: Option<String>,
    url: Option<String>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Value>,
    file: Option<FileIn>,
    metadata: Option<Metadata>,
    filename: Option<String>,
    #[serde(alias = "media_type")]
    media_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct FileIn {
    bytes: Option<String>,
    uri: Option<String>,
    #[serde(alias = "mime_type")]
    mime_type: Option<String>,
    name: Option<String>,
}

impl PartIn<'_> {
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<Part, MalformedInput> {
        match dialect {
            Dialect::V0_1 | Dialect::V0_3 => self.read_tagged(at),
            Dialect::V1 => self.read_one_of(at),
        }
    }

    fn read_one_of(self, at: JsonPath<'_>) -> Result<Part, MalformedInput> {
        let content = match (self.text, self.raw, self.url, self.data) {
            (Some(text), None, None, None) => Content::Text(text),
            (None, Some(raw), None, None) => Content::Bytes(decode(&raw, &at.member("raw"))?),
            (None, None, Some(url), None) => Content::Url(url),
            (None, None, None, Some(data)) => Content::Data(data),
            (None, None, None, None) => return Err(at.malformed("a part needs one of text, raw, url, data")),
            _ => return Err(at.malformed("a part has only one of text, raw, url, data")),
        };
        Ok(Part { content, metadata: self.metadata, filename: self.filename, media_type: self.media_type })
    }

    /// The tag may be missing, as in the official servers: then the member decides.
    fn read_tagged(self, at: JsonPath<'_>) -> Result<Part, MalformedInput> {
        let tag = match self.kind.or(self.r#type) {
            Some(EnumValue::Name(tag)) => Some(tag),
            Some(EnumValue::Number(_)) => {
                return Err(at.malformed("the kind of a part is text, file or data"));
            }
            None => None,
        };
        let mut part = match (tag.as_deref(), self.text, self.file, self.data) {
            (Some("text"), Some(text), ..) | (None, Some(text), None, None) => Part::text(text),
            (Some("file"), _, Some(file), _) | (None, None, Some(file), None) => {
                file.read(&at.member("file"))?
            }
            (Some("data"), _, _, Some(data)) | (None, None, None, Some(data)) => {
                return read_data(data, self.metadata, &at);
            }
            (None, None, None, None) => return Err(at.malformed("a part needs one of text, file, data")),
            (None, ..) => return Err(at.malformed("a part has only one of text, file, data")),
            (Some(tag @ ("text" | "file" | "data")), ..) => {
                return Err(at.malformed(format!("a {tag} part needs the member {tag}")));
            }
            (Some(tag), ..) => {
                return Err(at.malformed(format!("the kind of a part is text, file or data, not {tag:?}")));
            }
        };
        part.metadata = self.metadata;
        Ok(part)
    }
}

fn read_data(
    mut data: Value,
    mut metadata: Option<Metadata>,
    at: &JsonPath<'_>,
) -> Result<Part, MalformedInput> {
    let Value::Object(members) = &mut data else {
        return Err(at.member("data").malformed("expected an object"));
    };
    let marked = metadata.as_ref().is_some_and(|map| map.get(WRAPPED) == Some(&Value::Bool(true)));
    if marked && let Some(value) = members.shift_remove("value") {
        data = value;
        if let Some(map) = &mut metadata {
            map.shift_remove(WRAPPED);
        }
        metadata = metadata.filter(|map| !map.is_empty());
    }
    Ok(Part { content: Content::Data(data), metadata, filename: None, media_type: None })
}

impl FileIn {
    fn read(self, at: &JsonPath<'_>) -> Result<Part, MalformedInput> {
        let content = match (self.bytes, self.uri) {
            (Some(bytes), None) => Content::Bytes(decode(&bytes, &at.member("bytes"))?),
            (None, Some(uri)) => Content::Url(uri),
            (None, None) => return Err(at.malformed("a file needs one of bytes, uri")),
            (Some(_), Some(_)) => return Err(at.malformed("a file has only one of bytes, uri")),
        };
        Ok(Part { content, metadata: None, filename: self.name, media_type: self.mime_type })
    }
}

/// Decodes base64 in both alphabets, with and without padding, as ProtoJSON requires.
fn decode(text: &str, at: &JsonPath<'_>) -> Result<Vec<u8>, MalformedInput> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
    let engine = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    engine.decode(text).map_err(|error| at.malformed(format!("not base64: {error}")))
}
