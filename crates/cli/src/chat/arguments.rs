//! The arguments of a call: from the typed line, and from a form for what is missing.
//!
//! A name is followed by `name=value` pairs, a JSON object, or a text. Values are parsed by the schema's
//! types, and the whole is checked against the schema before the server is called.

use nuncio_engine::{Message, Part, Role};
use serde_json::{Map, Value};

use super::split_line::{LineWord, split_words};
use crate::form::{PromptField, fields};

/// What was typed after the name of a capability.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChatArguments {
    /// Nothing: the user is asked for the arguments.
    Nothing,
    Text(String),
    Arguments(Map<String, Value>),
}

/// Parses what was typed after the name of a capability with this input schema. Without a schema the
/// capability takes text, or arguments if arguments were typed.
pub(super) fn read_arguments(schema: Option<&Value>, rest: &str) -> Result<ChatArguments, String> {
    if rest.is_empty() {
        return Ok(ChatArguments::Nothing);
    }
    if rest.starts_with('{') {
        let object = serde_json::from_str::<Map<String, Value>>(rest);
        return object
            .map(ChatArguments::Arguments)
            .map_err(|error| format!("this is no JSON object: {error}"));
    }
    let words = split_words(rest);
    let pairs: Option<Vec<(&str, &str)>> = words.iter().map(pair).collect();
    let Some(schema) = schema else {
        return Ok(match pairs {
            Some(pairs) => ChatArguments::Arguments(
                pairs.into_iter().map(|(name, value)| (name.to_owned(), guessed(value))).collect(),
            ),
            None => ChatArguments::Text(joined(&words)),
        });
    };
    let fields = fields(schema);
    if let Some(pairs) = pairs {
        return pairs
            .into_iter()
            .map(|(name, value)| read(&fields, name, value))
            .collect::<Result<_, _>>()
            .map(ChatArguments::Arguments);
    }
    // A text becomes the value of the only field that takes text.
    let mut texts = fields.iter().filter(|field| field.kind() == "string");
    let only = match (texts.next(), texts.next()) {
        (Some(only), None) => only,
        _ => {
            let mut required = fields.iter().filter(|field| field.required && field.kind() == "string");
            match (required.next(), required.next()) {
                (Some(only), None) => only,
                _ => return Err(format!("expected {}", describe_arguments(&fields))),
            }
        }
    };
    let (name, value) = read(&fields, only.name, &joined(&words))?;
    Ok(ChatArguments::Arguments(Map::from_iter([(name, value)])))
}

/// `name=value`, unless the whole word is quoted.
fn pair(word: &LineWord) -> Option<(&str, &str)> {
    let (name, value) = word.text.split_once('=').filter(|_| !word.quoted)?;
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    (!name.is_empty() && name.chars().all(is_name)).then_some((name, value))
}

fn read(fields: &[PromptField<'_>], name: &str, value: &str) -> Result<(String, Value), String> {
    let field = fields.iter().find(|field| field.name == name);
    let field =
        field.ok_or_else(|| format!("there is no {name}: expected {}", describe_arguments(fields)))?;
    let value = if value.is_empty() && field.kind() == "string" {
        Some(Value::from(""))
    } else {
        field.read(value).map_err(|why| format!("{name}: {why}"))?
    };
    Ok((name.to_owned(), value.unwrap_or_default()))
}

/// The likely type of a value that has no schema.
fn guessed(value: &str) -> Value {
    match serde_json::from_str(value) {
        Ok(Value::String(_)) | Err(_) => value.into(),
        Ok(value) => value,
    }
}

fn joined(words: &[LineWord]) -> String {
    words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ")
}

/// The arguments as they are written on a line.
pub(super) fn describe_arguments(fields: &[PromptField<'_>]) -> String {
    let one = |field: &PromptField<'_>| {
        let kind =
            if field.choices().is_empty() { field.kind().to_uppercase() } else { field.choices().join("|") };
        let pair = format!("{}={kind}", field.name);
        if field.required { pair } else { format!("[{pair}]") }
    };
    match fields {
        [] => "no arguments".to_owned(),
        _ => fields.iter().map(one).collect::<Vec<_>>().join(" "),
    }
}

/// The message that begins a call. Its id is the same for every retry.
pub(super) fn message(id: &str, given: ChatArguments) -> Message {
    let part = match given {
        ChatArguments::Nothing => Part::data(Value::Object(Map::new())),
        ChatArguments::Text(text) => Part::text(text),
        ChatArguments::Arguments(arguments) => Part::data(Value::Object(arguments)),
    };
    Message::of(id, Role::User, vec![part])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Option<&Value>, rest: &str, expected: Value) {
        match (read_arguments(schema, rest), expected) {
            (Ok(ChatArguments::Arguments(found)), expected @ Value::Object(_)) => {
                assert_eq!(Value::Object(found), expected);
            }
            (Ok(ChatArguments::Text(found)), Value::String(expected)) => assert_eq!(found, expected),
            (Ok(ChatArguments::Nothing) | Err(_), Value::Null) => {}
            (found, expected) => panic!("{rest}: {found:?}, not {expected}"),
        }
    }

    #[test]
    fn an_agent_that_takes_text_gets_text() {
        check(None, "Book a trip to Lisbon", json!("Book a trip to Lisbon"));
        check(None, "destination=Lisbon days=3", json!({ "destination": "Lisbon", "days": 3 }));
        check(None, "'a=b'", json!("a=b"));
        check(None, "2+2=4 is true", json!("2+2=4 is true"));
        check(None, r#"{"a": [1]}"#, json!({ "a": [1] }));
        check(None, r#"{"a": "#, json!(null));
    }

    #[test]
    fn arguments_are_what_the_schema_wants() {
        let schema = json!({
            "properties": {
                "city": { "type": "string" },
                "days": { "type": "integer", "minimum": 1 },
                "class": { "enum": ["first", "second"] },
            },
            "required": ["city"],
        });
        let schema = Some(&schema);
        check(schema, "city='New York' days=3", json!({ "city": "New York", "days": 3 }));
        check(schema, "New York", json!({ "city": "New York" }));
        check(schema, "days=none", json!(null));
        check(schema, "days=0", json!(null));
        check(schema, "class=third", json!(null));
        check(schema, "town=Rome", json!(null));
        check(schema, "", json!(null));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let schema = json!({ "properties": { "steps": { "type": "integer" } } });
        assert_eq!(read_arguments(Some(&schema), "seven"), Err("expected [steps=INTEGER]".into()));
        assert_eq!(
            read_arguments(Some(&schema), "step=1"),
            Err("there is no step: expected [steps=INTEGER]".into())
        );
        let wanted = json!({ "type": "object", "properties": { "a": { "maximum": 3 } }, "required": ["a"] });
        assert!(crate::questions::check_form(&wanted, &Map::new()).is_err_and(|why| why.contains("\"a\"")));
    }
}
