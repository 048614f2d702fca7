//! The schema that was published for A2A 0.1; the wire crate keeps a copy of it.

use std::sync::LazyLock;

use serde_json::{Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../wire/tests/it/fixtures/a2a-0.1.schema.json")).unwrap()
});

/// Checks a value against a definition of the schema.
#[track_caller]
pub(crate) fn check(definition: &str, instance: &Value) {
    let mut schema = SCHEMA.clone();
    schema["allOf"] = json!([{ "$ref": format!("#/$defs/{definition}") }]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(instance)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{definition}: {errors:?}\n{instance:#}");
}
