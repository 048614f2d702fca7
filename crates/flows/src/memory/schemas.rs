//! The JSON Schemas of the memory bank's results. They are published, and the tools' results are validated
//! against them.

use nuncio_engine::Surface;
use serde_json::{Value, json};

/// The schema of `memory://namespace/{namespace}/keys`.
pub(super) const KEYS: &str = "memory-keys";
/// The schema of `memory://data/{namespace}/{key}`.
pub(super) const DATA: &str = "memory-data";
/// The schema of `memory://search/{namespace}`.
pub(super) const SEARCH: &str = "memory-search";

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

pub(super) fn publish(surface: &Surface) {
    for (name, schema) in [(KEYS, keys()), (DATA, data()), (SEARCH, search())] {
        surface.add_schema(name, with_dialect(schema));
    }
}

fn with_dialect(mut schema: Value) -> Value {
    schema["$schema"] = DIALECT.into();
    schema
}

/// The schema of an object with exactly these fields, all required except those whose names end with `?`.
pub(super) fn object(fields: &[(&str, Value)]) -> Value {
    let named = |(name, schema): &(&str, Value)| (name.trim_end_matches('?').to_owned(), schema.clone());
    let required: Vec<&str> =
        fields.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('?')).collect();
    let properties: serde_json::Map<String, Value> = fields.iter().map(named).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

pub(super) fn keys() -> Value {
    object(&[
        ("namespace", text()),
        ("keys", json!({ "type": "array", "items": key() })),
        ("stats", stats()),
        ("next?", described("string", "The address of the next page; absent on the last one.")),
    ])
}

pub(super) fn key() -> Value {
    object(&[("key", text()), ("created", time()), ("accessed", time()), ("size", count()), ("ttl", ttl())])
}

pub(super) fn stats() -> Value {
    object(&[("total", count()), ("size", count()), ("oldestEntry", time())])
}

pub(super) fn data() -> Value {
    object(&[("key", text()), ("value", json!({})), ("metadata", metadata())])
}

fn metadata() -> Value {
    object(&[
        ("namespace", text()),
        ("created", time()),
        ("updated", time()),
        ("accessed", time()),
        ("accessCount", count()),
        ("ttl", ttl()),
        ("version", json!({ "type": "integer", "minimum": 1 })),
        ("size", count()),
    ])
}

pub(super) fn search() -> Value {
    let score = json!({ "type": "number", "minimum": 0, "maximum": 1 });
    let result = object(&[("key", text()), ("score", score), ("preview", text()), ("metadata", metadata())]);
    let number = json!({ "type": "integer", "minimum": 1 });
    object(&[
        (
            "pattern",
            json!({ "type": ["string", "null"], "description": "Null where words were searched for." }),
        ),
        ("text?", described("string", "The words that were searched for.")),
        ("namespace", text()),
        ("results", json!({ "type": "array", "items": result })),
        ("pagination", object(&[("total", count()), ("page", number.clone()), ("limit", number)])),
    ])
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

pub(super) fn described(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description })
}

/// ISO 8601, in UTC, to the millisecond.
pub(super) fn time() -> Value {
    json!({
        "type": "string",
        "format": "date-time",
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$",
    })
}

fn ttl() -> Value {
    json!({
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "For how many seconds it is kept since it was last written; null: until it is deleted.",
    })
}
