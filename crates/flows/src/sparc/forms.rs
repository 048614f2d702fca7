//! Forms for artifacts, where there is no model: one section of the phase's schema at a time, each as a flat
//! form of primitive fields.
//!
//! A list is filled in one item at a time; each form asks whether there is another item. Inside an item, a
//! nested object is flattened with dotted names, and a list of strings is one text with a line for each. After
//! the gate has refused an artifact, only the sections that it named are asked again, prefilled with the
//! earlier answers.

use nuncio_engine::{AgentError, Answer, TaskContext};
use serde_json::{Map, Value, json};

use super::{api::Violation, model_prompt::shortened, templates::PhaseTemplate};

/// Maximum items of a list.
pub(super) const MAX_ITEMS: usize = 100;
/// The field that asks whether there is another item.
const ANOTHER: &str = "addAnother";
/// The name of the only field in the form of an item that is a string.
const ITEM: &str = "item";

/// The outcome of the forms.
pub(super) enum FormsOutcome {
    /// All sections are filled in.
    Artifact(Value),
    /// A person declined, with the reason.
    Refused(String),
    /// No person can be asked.
    Unavailable,
}

/// The outcome of one form.
enum FormOutcome {
    Fields(Map<String, Value>),
    Ended(FormsOutcome),
}

/// Asks for an artifact. `before`: the previous artifact and its violations.
pub(super) async fn fill(
    cx: &TaskContext,
    template: &PhaseTemplate,
    goal: &str,
    before: Option<(&Value, &[Violation])>,
) -> Result<FormsOutcome, AgentError> {
    let Some(sections) = template.validation["properties"].as_object() else {
        return Err(AgentError::Misuse("a template's schema has no properties".into()));
    };
    let known =
        before.map(|(artifact, _)| artifact.as_object().cloned().unwrap_or_default()).unwrap_or_default();
    let wrong = before.map_or(&[][..], |(_, violations)| violations);
    let asked = sections_to_ask(sections, wrong);
    let mut artifact = known.clone();
    for (n, name) in asked.iter().enumerate() {
        let place = format!("{}, section {} of {}: {name}", template.phase, n + 1, asked.len());
        let about = template.sections.get(*name).and_then(Value::as_str).unwrap_or_default();
        let wrong = complaints(wrong, n == 0);
        let intro = format!("{wrong}{place}\nGoal: {}\n{about}", shortened(goal));
        let schema = &sections[*name];
        let required = lists(&template.validation["required"], name);
        let told = match schema["type"].as_str() {
            Some("array") => ask_list(cx, &intro, name, schema, required, known.get(*name)).await?,
            _ => ask_section(cx, &intro, name, schema, required, known.get(*name)).await?,
        };
        match told {
            Ok(value) if value.is_null() => drop(artifact.shift_remove(*name)),
            Ok(value) => drop(artifact.insert((*name).to_owned(), value)),
            Err(ended) => return Ok(ended),
        }
    }
    Ok(FormsOutcome::Artifact(Value::Object(artifact)))
}

/// The sections that violations name; all sections if there are no violations, or if one names no section.
fn sections_to_ask<'a>(sections: &'a Map<String, Value>, wrong: &[Violation]) -> Vec<&'a str> {
    let named = |violation: &Violation| {
        let name = violation.path.trim_start_matches('/').split('/').next().unwrap_or_default();
        sections.get_key_value(name).map(|(name, _)| name.as_str())
    };
    let found: Option<Vec<&str>> = wrong.iter().map(named).collect();
    match found {
        Some(found) if !found.is_empty() => {
            sections.keys().map(String::as_str).filter(|name| found.contains(name)).collect()
        }
        _ => sections.keys().map(String::as_str).collect(),
    }
}

fn complaints(wrong: &[Violation], first: bool) -> String {
    if wrong.is_empty() || !first {
        return String::new();
    }
    let lines: String = wrong.iter().map(|violation| format!("- {violation}\n")).collect();
    format!("The gate did not let it through:\n{}\n", shortened(&lines))
}

/// Asks for a section that is not a list. `Ok(Null)`: it was left empty.
async fn ask_section(
    cx: &TaskContext,
    intro: &str,
    name: &str,
    schema: &Value,
    required: bool,
    known: Option<&Value>,
) -> Result<Result<Value, FormsOutcome>, AgentError> {
    let mut fields = vec![];
    flatten(name, schema, required, known, &mut fields);
    let form = match ask(cx, intro, name, &fields, None).await? {
        FormOutcome::Fields(form) => form,
        FormOutcome::Ended(ended) => return Ok(Err(ended)),
    };
    let mut value = Value::Null;
    for field in &fields {
        // The section itself is not part of its own path.
        let path = field.name.strip_prefix(name).unwrap_or_default();
        field.put(&mut value, path.trim_start_matches('.'), form.get(&field.name));
    }
    Ok(Ok(value))
}

/// Asks for a section that is a list, one item at a time.
async fn ask_list(
    cx: &TaskContext,
    intro: &str,
    name: &str,
    schema: &Value,
    required: bool,
    known: Option<&Value>,
) -> Result<Result<Value, FormsOutcome>, AgentError> {
    let least = usize::try_from(schema["minItems"].as_u64().unwrap_or(0)).unwrap_or(0);
    let most = schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_ITEMS);
    let known: &[Value] = known.and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let mut items = vec![];
    if least == 0 {
        let schema = json!({
            "type": "object",
            "properties": { ANOTHER: {
                "type": "boolean", "title": format!("Is there anything for {name}?"), "default": !known.is_empty(),
            } },
            "required": [ANOTHER],
        });
        match put(cx, intro.to_owned(), name, schema).await? {
            FormOutcome::Fields(form) if form.get(ANOTHER) == Some(&Value::Bool(true)) => {}
            FormOutcome::Fields(_) if required => return Ok(Ok(json!([]))),
            FormOutcome::Fields(_) => return Ok(Ok(Value::Null)),
            FormOutcome::Ended(ended) => return Ok(Err(ended)),
        }
    }
    while items.len() < most.min(MAX_ITEMS) {
        let n = items.len();
        let mut fields = vec![];
        let is_object = schema["items"]["type"] == "object";
        let prefix = if is_object { "" } else { ITEM };
        flatten(prefix, &schema["items"], true, known.get(n), &mut fields);
        let intro = format!("{intro}\nItem {}.", n + 1);
        let form = match ask(cx, &intro, name, &fields, Some(n + 1 < known.len())).await? {
            FormOutcome::Fields(form) => form,
            FormOutcome::Ended(ended) => return Ok(Err(ended)),
        };
        let mut item = Value::Null;
        for field in &fields {
            let path = if is_object { field.name.as_str() } else { "" };
            field.put(&mut item, path, form.get(&field.name));
        }
        items.push(item);
        if form.get(ANOTHER) != Some(&Value::Bool(true)) && items.len() >= least {
            break;
        }
    }
    Ok(Ok(Value::Array(items)))
}

/// One field of a form.
struct ArtifactField {
    /// The dotted name.
    name: String,
    /// The field's schema in the form.
    schema: Value,
    /// Whether it is required.
    needed: bool,
    /// Whether it is a list, with one line per item.
    lines: bool,
    /// Whether the artifact contains it even when it is empty.
    keep_empty: bool,
}

impl ArtifactField {
    /// Stores the answer in the artifact at the dotted path, creating objects on the way; an empty path is the
    /// value itself.
    fn put(&self, value: &mut Value, path: &str, told: Option<&Value>) {
        let told = match (told, self.lines) {
            (Some(Value::String(text)), true) => lines(text),
            (None | Some(_), true) => json!([]),
            (Some(told), false) => told.clone(),
            (None, false) => return,
        };
        let empty = told == "" || told.as_array().is_some_and(Vec::is_empty);
        if empty && !self.keep_empty {
            return;
        }
        let mut place = value;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[name];
        }
        *place = told;
    }
}

fn lines(text: &str) -> Value {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Value::from).collect()
}

/// The primitive fields of a schema, with dotted names.
fn flatten(name: &str, schema: &Value, required: bool, known: Option<&Value>, into: &mut Vec<ArtifactField>) {
    match schema["type"].as_str() {
        Some("object") => {
            for (inner, inner_schema) in schema["properties"].as_object().into_iter().flatten() {
                let dotted = if name.is_empty() { inner.clone() } else { format!("{name}.{inner}") };
                let required = required && lists(&schema["required"], inner);
                let known = known.and_then(|known| known.get(inner));
                flatten(&dotted, inner_schema, required, known, into);
            }
        }
        Some("array") => {
            let needed = required && schema["minItems"].as_u64().unwrap_or(0) > 0;
            let said = schema["description"].as_str().map(|said| format!("{said} ")).unwrap_or_default();
            let mut field = json!({ "type": "string", "title": title(name, schema), "description": format!("{said}One per line.") });
            let texts: Vec<&str> =
                known.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
            if !texts.is_empty() {
                field["default"] = texts.join("\n").into();
            }
            into.push(ArtifactField {
                name: name.into(),
                schema: field,
                needed,
                lines: true,
                keep_empty: required,
            });
        }
        _ => {
            let mut field = json!({ "type": schema["type"], "title": title(name, schema) });
            for word in ["description", "enum", "minLength", "maxLength", "minimum", "maximum"] {
                if let Some(said) = schema.get(word) {
                    field[word] = said.clone();
                }
            }
            if let Some(known) = known.filter(|known| !known.is_object() && !known.is_array()) {
                field["default"] = known.clone();
            }
            into.push(ArtifactField {
                name: name.into(),
                schema: field,
                needed: required,
                lines: false,
                keep_empty: required,
            });
        }
    }
}

fn title(name: &str, schema: &Value) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => schema["title"].as_str().unwrap_or(name).to_owned(),
    }
}

fn lists(names: &Value, name: &str) -> bool {
    names.as_array().is_some_and(|names| names.iter().any(|known| known == name))
}

/// Asks one form. `another`: also asks whether there is another item, with this default.
async fn ask(
    cx: &TaskContext,
    intro: &str,
    section: &str,
    fields: &[ArtifactField],
    another: Option<bool>,
) -> Result<FormOutcome, AgentError> {
    let mut properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.clone(), field.schema.clone())).collect();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.needed).map(|field| field.name.as_str()).collect();
    if let Some(likely) = another {
        let schema = json!({ "type": "boolean", "title": "Add another?", "default": likely });
        properties.insert(ANOTHER.into(), schema);
    }
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    put(cx, intro.to_owned(), section, schema).await
}

async fn put(
    cx: &TaskContext,
    text: String,
    section: &str,
    schema: Value,
) -> Result<FormOutcome, AgentError> {
    Ok(match cx.ask(text, schema).await? {
        Answer::Accept(Value::Object(form)) => FormOutcome::Fields(form),
        Answer::Accept(_) => FormOutcome::Fields(Map::new()),
        Answer::Decline(note) => {
            let note = note.map(|note| format!(": {note}")).unwrap_or_default();
            FormOutcome::Ended(FormsOutcome::Refused(format!("the form for {section} was declined{note}")))
        }
        Answer::Cancel => {
            FormOutcome::Ended(FormsOutcome::Refused(format!("the form for {section} was dismissed")))
        }
        Answer::Unavailable => FormOutcome::Ended(FormsOutcome::Unavailable),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparc::phase::SparcPhase;

    #[test]
    fn every_section_of_every_template_can_be_asked_for_by_flat_forms() {
        for phase in SparcPhase::ALL {
            let validation = &PhaseTemplate::of(phase).validation;
            for (name, schema) in validation["properties"].as_object().into_iter().flatten() {
                let mut fields = vec![];
                let item = if schema["type"] == "array" { &schema["items"] } else { schema };
                flatten(ITEM, item, true, None, &mut fields);
                assert!(!fields.is_empty(), "{phase} {name}");
                for field in fields {
                    let kind = field.schema["type"].as_str();
                    assert!(
                        matches!(kind, Some("string" | "boolean" | "number" | "integer")),
                        "{phase} {name}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_filled_in_goes_where_its_dotted_name_says() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "size": { "type": "object", "properties": { "width": { "type": "integer" } }, "required": ["width"] },
                "tags": { "type": "array", "items": { "type": "string" } },
                "notes": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["name", "size", "tags"],
        });
        let mut fields = vec![];
        flatten("", &schema, true, Some(&json!({ "size": { "width": 3 } })), &mut fields);
        let names: Vec<(&str, bool)> =
            fields.iter().map(|field| (field.name.as_str(), field.needed)).collect();
        assert_eq!(names, [("name", true), ("size.width", true), ("tags", false), ("notes", false)]);
        assert_eq!(fields[1].schema["default"], 3);
        assert_eq!(fields[1].schema["title"], "size.width");
        let form = json!({ "name": "x", "size.width": 4, "notes": " a \n\n b" });
        let mut value = Value::Null;
        for field in &fields {
            field.put(&mut value, &field.name, form.get(&field.name));
        }
        assert_eq!(value, json!({ "name": "x", "size": { "width": 4 }, "tags": [], "notes": ["a", "b"] }));
    }

    #[test]
    fn only_what_was_wrong_is_asked_for_again() {
        let sections = json!({ "goals": {}, "constraints": {}, "steps": {} });
        let sections = sections.as_object().cloned().unwrap_or_default();
        let wrong = |path: &str| Violation { path: path.into(), message: "wrong".into() };
        assert_eq!(sections_to_ask(&sections, &[wrong("/steps/0/id"), wrong("/goals")]), ["goals", "steps"]);
        assert_eq!(sections_to_ask(&sections, &[wrong("/steps/0/id"), wrong("")]).len(), 3);
        assert_eq!(sections_to_ask(&sections, &[]).len(), 3);
    }
}
