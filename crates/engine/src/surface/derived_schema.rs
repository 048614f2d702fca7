//! JSON Schemas derived from Rust types, in the one form that is published.
//!
//! What the derive macro leaves open is decided here: references are expanded, because many clients do not
//! follow them; objects are closed; an optional member is left out rather than null; the doc comment of a field
//! is its description, and that of a type describes the Rust type only.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// The deepest nesting of types. A recursive type has no finite expanded schema: it is cut off here.
const MAX_DEPTH: usize = 32;
/// The sizes of Rust numbers, which say nothing to a client.
const RUST_FORMATS: [&str; 12] = [
    "int8", "int16", "int32", "int64", "int", "uint8", "uint16", "uint32", "uint64", "uint", "float",
    "double",
];

/// The schema of values that are deserialized into `T`.
pub fn input_schema<T: JsonSchema>() -> Value {
    published(SchemaSettings::draft2020_12().for_deserialize(), T::json_schema)
}

/// The schema of values that are serialized from `T`.
pub fn output_schema<T: JsonSchema>() -> Value {
    published(SchemaSettings::draft2020_12().for_serialize(), T::json_schema)
}

fn published(
    settings: SchemaSettings,
    derive: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
) -> Value {
    let mut generator = settings.into_generator();
    let schema = derive(&mut generator).to_value();
    let definitions = generator.take_definitions(false);
    expand(without_description(schema), &definitions, 0)
}

fn without_description(mut schema: Value) -> Value {
    if let Value::Object(members) = &mut schema {
        members.shift_remove("description");
    }
    schema
}

/// Expands the references of a schema, and puts it into the published form.
fn expand(schema: Value, definitions: &Map<String, Value>, depth: usize) -> Value {
    let Value::Object(members) = schema else {
        // `true`, the schema of any value.
        return Value::Object(Map::new());
    };
    let mut members = referenced(members, definitions, depth);
    if let Some(Value::String(format)) = members.get("format")
        && RUST_FORMATS.contains(&format.as_str())
    {
        members.shift_remove("format");
    }
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = unwrapped(text);
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(schemas)) = members.get_mut(keyword) {
            for schema in schemas {
                *schema = expand(schema.take(), definitions, depth + 1);
            }
        }
    }
    for keyword in ["items", "additionalProperties"] {
        match members.get_mut(keyword) {
            Some(Value::Bool(true)) => drop(members.shift_remove(keyword)),
            Some(schema @ Value::Object(_)) => *schema = expand(schema.take(), definitions, depth + 1),
            _ => {}
        }
    }
    join_constants(&mut members);
    let required = members.get("required").cloned().unwrap_or_default();
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        for (name, schema) in properties {
            *schema = expand(schema.take(), definitions, depth + 1);
            let is_required =
                required.as_array().is_some_and(|names| names.iter().any(|known| known == name.as_str()));
            if !is_required {
                refuse_null(schema);
            }
        }
        members.entry("additionalProperties").or_insert(false.into());
    }
    Value::Object(members)
}

/// A schema with its reference replaced by the definition. Keywords beside the reference win.
fn referenced(
    mut members: Map<String, Value>,
    definitions: &Map<String, Value>,
    depth: usize,
) -> Map<String, Value> {
    let Some(Value::String(target)) = members.get("$ref") else { return members };
    let definition = target.strip_prefix("#/$defs/").and_then(|name| definitions.get(name));
    members.shift_remove("$ref");
    if depth >= MAX_DEPTH {
        return members;
    }
    let Some(Value::Object(definition)) = definition.cloned().map(without_description) else {
        return members;
    };
    let mut expanded = referenced(definition, definitions, depth + 1);
    expanded.extend(members);
    expanded
}

/// A paragraph of a doc comment as one line.
fn unwrapped(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    paragraphs.join("\n\n")
}

/// Documented variants of an enum are derived as a list of constants: they are published as one `enum`.
fn join_constants(members: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = members.get("oneOf") else { return };
    let mut constants = vec![];
    for variant in variants {
        match (variant.get("const"), variant.get("enum")) {
            (Some(constant), None) => constants.push(constant.clone()),
            (None, Some(Value::Array(several))) => constants.extend(several.iter().cloned()),
            _ => return,
        }
    }
    members.shift_remove("oneOf");
    members.insert("type".into(), "string".into());
    members.insert("enum".into(), constants.into());
}

/// Removes null from the accepted types.
fn refuse_null(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            members.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(constants)) = members.get_mut("enum") {
        constants.retain(|constant| !constant.is_null());
    }
    let Some(Value::Array(schemas)) = members.get_mut("anyOf") else { return };
    schemas.retain(|schema| schema.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = &schemas[..] {
        let mut only = only.clone();
        members.shift_remove("anyOf");
        only.extend(std::mem::take(members));
        *members = only;
    }
}

/// Sets a keyword of the schema of a field to a limit that is known only at run time. The field is a path of
/// property names such as `optimize.contents`, where `[]` stands for the items of an array. The error names a
/// field that the schema does not have.
pub fn limit_field(schema: &mut Value, field: &str, keyword: &str, value: Value) -> Result<(), String> {
    let mut at = schema;
    for name in field.split('.') {
        let (name, is_item) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
        at = at.get_mut("properties").and_then(|properties| properties.get_mut(name)).ok_or_else(|| {
            format!("{field:?} is no field of the arguments, so its {keyword} cannot be limited")
        })?;
        if is_item {
            at = at.get_mut("items").ok_or_else(|| format!("{field:?} has no items"))?;
        }
    }
    at[keyword] = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// A type's own comment is not published.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Drawer {
        /// What is written
        /// on it.
        label: String,
        size: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        lock: Option<LockState>,
        before: Option<DrawerContent>,
        content: Vec<DrawerContent>,
        any: Value,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    enum LockState {
        /// Nobody has the key.
        NotLocked,
        /// It is locked.
        Locked,
    }

    /// The same here.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct DrawerContent {
        count: u64,
    }

    #[test]
    fn a_derived_schema_is_closed_and_has_no_references() {
        let content = json!({
            "type": "object",
            "properties": { "count": { "type": "integer", "minimum": 0 } },
            "required": ["count"],
            "additionalProperties": false,
        });
        let mut wanted = json!({
            "type": "object",
            "properties": {
                "label": { "type": "string", "description": "What is written on it." },
                "size": { "type": ["number", "null"] },
                "lock": { "type": "string", "enum": ["not-locked", "locked"] },
                "before": { "anyOf": [content, { "type": "null" }] },
                "content": { "type": "array", "items": content },
                "any": {},
            },
            "required": ["label", "size", "before", "content", "any"],
            "additionalProperties": false,
        });
        assert_eq!(output_schema::<Drawer>(), wanted);
        wanted["required"] = json!(["label", "content", "any"]);
        wanted["properties"]["size"] = json!({ "type": "number" });
        wanted["properties"]["before"] = content;
        assert_eq!(input_schema::<Drawer>(), wanted, "what is optional is left out rather than null");
    }
}
