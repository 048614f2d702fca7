//! Asks the caller what the peer asks.
//!
//! Forms are flat objects of primitives. A nested property is asked for as a JSON text and parsed.

use nuncio_engine::{
    AgentError, Answer, QuestionOutcome, TaskContext,
    question::{Ask, Question},
    surface::CompiledSchema,
};
use serde_json::{Map, Value, json};

use super::withdraw::LocalQuestionId;

/// The schema keywords that a property of a form may have beside its type.
const WORDS: [&str; 13] = [
    "title",
    "description",
    "enum",
    "enumNames",
    "const",
    "oneOf",
    "default",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
];

/// Asks a question and returns its answer in the shape that the peer expects, or reports that it was
/// withdrawn. Sets `here` to the question's id.
pub(super) async fn ask_remote_question(
    cx: &TaskContext,
    question: &Question,
    here: &LocalQuestionId,
) -> Result<QuestionOutcome, AgentError> {
    match &question.ask {
        Ask::Form { schema } => ask_or_withdrawn(cx, &question.text, schema, here).await,
        other => {
            here.set_to_next_question(cx);
            cx.put_question(&question.text, other.clone()).await
        }
    }
}

/// Asks for an object of that schema, flat or not.
pub(super) async fn ask(cx: &TaskContext, text: &str, schema: &Value) -> Result<Answer, AgentError> {
    match ask_or_withdrawn(cx, text, schema, &LocalQuestionId::default()).await? {
        QuestionOutcome::Answered(answer) => Ok(answer),
        QuestionOutcome::Withdrawn => {
            Err(AgentError::Misuse("a question of the agent itself was withdrawn".into()))
        }
    }
}

async fn ask_or_withdrawn(
    cx: &TaskContext,
    text: &str,
    schema: &Value,
    here: &LocalQuestionId,
) -> Result<QuestionOutcome, AgentError> {
    let form = FlatForm::of(schema);
    let mut words = text.to_owned();
    loop {
        here.set_to_next_question(cx);
        match cx.put_question(&words, Ask::Form { schema: form.schema.clone() }).await? {
            QuestionOutcome::Answered(Answer::Accept(data)) => match form.read(data) {
                Ok(data) => return Ok(QuestionOutcome::Answered(Answer::Accept(data))),
                Err(why) => words = format!("{text} ({why})"),
            },
            other => return Ok(other),
        }
    }
}

/// A flat form for any schema.
struct FlatForm {
    schema: Value,
    /// Properties that are asked for as a JSON text.
    texts: Vec<String>,
}

impl FlatForm {
    fn of(schema: &Value) -> Self {
        let nothing = Map::new();
        let asked = schema["properties"].as_object().unwrap_or(&nothing);
        let is_flat = schema["type"] == "object"
            && schema["properties"].is_object()
            && asked
                .values()
                .all(|property| primitive(property).is_some_and(|kind| property["type"] == kind));
        if is_flat && CompiledSchema::compile(schema).is_ok() {
            return Self { schema: schema.clone(), texts: vec![] };
        }
        let mut texts = vec![];
        let mut properties = Map::new();
        for (name, property) in asked {
            let flat = match primitive(property) {
                Some(kind) => spoken(property, kind),
                None => {
                    texts.push(name.clone());
                    as_text(property)
                }
            };
            properties.insert(name.clone(), flat);
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let required: Vec<&str> = required.filter(|name| properties.contains_key(*name)).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        Self { schema, texts }
    }

    /// An answer with its JSON texts parsed.
    fn read(&self, mut data: Value) -> Result<Value, String> {
        for name in &self.texts {
            let Some(member) = data.get_mut(name) else { continue };
            if let Value::String(text) = member {
                *member =
                    serde_json::from_str(text).map_err(|error| format!("{name}: expected JSON: {error}"))?;
            }
        }
        Ok(data)
    }
}

/// The type of a primitive property.
fn primitive(property: &Value) -> Option<&str> {
    let is_primitive = |kind: &&str| matches!(*kind, "string" | "number" | "integer" | "boolean");
    match &property["type"] {
        Value::String(kind) => Some(kind.as_str()).filter(is_primitive),
        // `["string", "null"]`: the caller leaves it out instead of sending null.
        Value::Array(kinds) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            let (only, more) = (kinds.next()?, kinds.next());
            Some(only).filter(|kind| more.is_none() && is_primitive(kind))
        }
        _ => {
            let words = property["enum"].as_array()?;
            words.iter().all(Value::is_string).then_some("string")
        }
    }
}

/// A primitive property with its supported keywords.
fn spoken(property: &Value, kind: &str) -> Value {
    let mut flat = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    for word in WORDS {
        if let Some(value) = property.get(word).filter(|value| !value.is_null()) {
            flat.insert(word.to_owned(), value.clone());
        }
    }
    let flat = Value::Object(flat);
    match CompiledSchema::compile(&flat) {
        Ok(_) => flat,
        Err(_) => json!({ "type": kind }),
    }
}

fn as_text(property: &Value) -> Value {
    let what = property["description"].as_str().unwrap_or_default();
    let kind = property["type"].as_str().unwrap_or("value");
    let description = format!("{what} (JSON: an {kind})").trim_start().to_owned();
    json!({ "type": "string", "description": description })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_form_stays_as_it_is() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"], "title": "t" });
        assert_eq!(FlatForm::of(&schema).schema, schema);
    }

    #[test]
    fn what_is_not_flat_is_a_text_of_json() {
        let form = FlatForm::of(&json!({
            "type": "object",
            "properties": {
                "tags": { "type": "array", "items": { "type": "string" }, "description": "Some words." },
                "kind": { "enum": ["a", "b"] },
                "size": { "type": ["integer", "null"] },
            },
            "required": ["tags"],
        }));
        assert_eq!(form.schema["properties"]["tags"]["description"], "Some words. (JSON: an array)");
        assert_eq!(form.schema["properties"]["kind"], json!({ "type": "string", "enum": ["a", "b"] }));
        assert_eq!(form.schema["properties"]["size"]["type"], "integer");
        let read = form.read(json!({ "tags": "[\"x\"]", "size": 3 }));
        assert_eq!(read, Ok(json!({ "tags": ["x"], "size": 3 })));
        assert!(form.read(json!({ "tags": "x, y" })).unwrap_err().starts_with("tags: expected JSON"));
    }
}
