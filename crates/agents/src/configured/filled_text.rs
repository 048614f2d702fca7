//! Texts of a table with environment variables filled in: `Debug` prints the template, only `expose` returns
//! the value.
//!
//! Variables are filled in while a table is parsed. A filled text passes through serde as an object, so that
//! a field whose type is not made for secrets rejects it, and no serde error repeats the value.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use nuncio_engine::redact::KnownSecrets;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use url::Url;

/// The object member that marks a filled text during parsing.
const FILLED: &str = "${}";

/// A text with its variables filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct FilledText {
    template: String,
    value: String,
}

impl FilledText {
    /// The value, for its intended use only.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// The value as a path.
    pub fn path(&self) -> &Path {
        Path::new(&self.value)
    }

    /// The path, relative to a folder.
    #[must_use]
    pub fn beside(self, folder: &Path) -> Self {
        let join = |text: &str| folder.join(text).display().to_string();
        Self { template: join(&self.template), value: join(&self.value) }
    }
}

impl From<&Path> for FilledText {
    fn from(path: &Path) -> Self {
        let text = path.display().to_string();
        Self { template: text.clone(), value: text }
    }
}

impl fmt::Display for FilledText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.template)
    }
}

impl fmt::Debug for FilledText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.template)
    }
}

impl<'de> Deserialize<'de> for FilledText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        match &value {
            Value::String(text) => Ok(Self { template: text.clone(), value: text.clone() }),
            Value::Object(members) => {
                match members.get(FILLED).and_then(Value::as_array).map(Vec::as_slice) {
                    Some([Value::String(template), Value::String(value)]) => {
                        Ok(Self { template: template.clone(), value: value.clone() })
                    }
                    _ => Err(D::Error::custom("invalid type: map, expected a string")),
                }
            }
            other => Err(D::Error::custom(format!("invalid type: {}, expected a string", kind(other)))),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "sequence",
        Value::Object(_) => "map",
    }
}

/// A URL with its variables filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct FilledUrl {
    template: String,
    url: Url,
}

impl FilledUrl {
    /// The URL, for its intended use only.
    pub fn expose(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for FilledUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.template)
    }
}

impl fmt::Debug for FilledUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.template)
    }
}

impl<'de> Deserialize<'de> for FilledUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let FilledText { template, value } = FilledText::deserialize(from)?;
        let url = Url::parse(&value).map_err(|error| D::Error::custom(format!("{template:?}: {error}")))?;
        Ok(Self { template, url })
    }
}

/// A text that is never printed, not even as its template.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        FilledText::deserialize(from).map(|filled| Self(filled.value))
    }
}

/// Fills in the variables `${NAME}` of all texts in a value, and records their values.
pub(super) fn fill(
    value: &mut Value,
    variable: &dyn Fn(&str) -> Option<String>,
    known: &mut KnownSecrets,
) -> Result<(), String> {
    match value {
        Value::String(template) => {
            if let Some(filled) = filled(template, variable, known)? {
                *value = json!({ FILLED: [template, filled] });
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(item, variable, known)),
        Value::Object(members) => members.values_mut().try_for_each(|member| fill(member, variable, known)),
        _ => Ok(()),
    }
}

/// Whether a value contains a filled text.
pub(super) fn is_filled(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key(FILLED) || members.values().any(is_filled),
        Value::Array(items) => items.iter().any(is_filled),
        _ => false,
    }
}

/// The text with its variables filled in; `None` if it has none.
fn filled(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    known: &mut KnownSecrets,
) -> Result<Option<String>, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}') else {
            return Err("a variable ${NAME} has no closing brace".into());
        };
        let name = &rest[at + 2..at + end];
        match variable(name) {
            Some(value) => {
                known.add(name, &value);
                out.push_str(&value);
            }
            None => return Err(format!("the variable {name} of the environment is not set")),
        }
        rest = &rest[at + end + 1..];
    }
    if rest.len() == text.len() {
        return Ok(None);
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// Resolves a path of a table relative to the folder of its file.
pub fn path_beside(folder: &Path, path: Option<FilledText>) -> FilledText {
    path.map_or_else(|| FilledText::from(PathBuf::from(folder).as_path()), |path| path.beside(folder))
}
