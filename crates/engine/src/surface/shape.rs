//! JSON Schemas that arguments and results are held against, compiled once.
//!
//! A schema may come from somebody else's server, so it is bounded in what it may cost, and a `$ref` that
//! leads anywhere else than into the schema itself is refused: nothing is ever fetched.

use serde_json::Value;

/// The largest schema, in bytes of its JSON.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The most schemas within a schema.
pub const MAX_SUBSCHEMAS: usize = 4096;
/// How deep they may stand in each other.
pub const MAX_SCHEMA_DEPTH: usize = 64;

/// What marks a property that is repeated in a header.
const HEADER: &str = "x-mcp-header";

/// A compiled schema.
pub struct Shape {
    validator: jsonschema::Validator,
    mirrors: bool,
}

/// A schema that is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(String);

impl Shape {
    /// Compiles a schema; 2020-12 where it does not say otherwise.
    pub fn compile(schema: &Value) -> Result<Self, ShapeError> {
        let text = schema.to_string();
        let size = text.len();
        if size > MAX_SCHEMA_BYTES {
            return Err(ShapeError(format!(
                "the schema has {size} bytes, and may have {MAX_SCHEMA_BYTES} (max_schema_bytes)"
            )));
        }
        let mut count = 0;
        check(schema, 0, &mut count)?;
        let validator = jsonschema::validator_for(schema).map_err(|error| ShapeError(error.to_string()))?;
        Ok(Self { validator, mirrors: text.contains(HEADER) })
    }

    /// Whether some properties may have to be repeated in headers.
    pub fn mirrors(&self) -> bool {
        self.mirrors
    }

    /// What is wrong with a value, in words.
    pub fn refuse(&self, value: &Value) -> Option<String> {
        if self.validator.is_valid(value) {
            return None;
        }
        let errors: Vec<String> = self
            .validator
            .iter_errors(value)
            .take(3)
            .map(|error| match error.instance_path().to_string() {
                at if at.is_empty() => error.to_string(),
                at => format!("{at}: {error}"),
            })
            .collect();
        Some(errors.join("; "))
    }

    /// Everything that is wrong with a value: where, as a JSON pointer, and what, in words.
    pub fn violations<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = (String, String)> + 'a {
        self.validator.iter_errors(value).map(|error| (error.instance_path().to_string(), error.to_string()))
    }
}

/// Objects are counted, whether they are schemas or only hold some: what is bounded is the work.
fn check(value: &Value, depth: usize, count: &mut usize) -> Result<(), ShapeError> {
    if depth > MAX_SCHEMA_DEPTH {
        return Err(ShapeError(format!(
            "the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels (max_schema_depth)"
        )));
    }
    match value {
        Value::Object(members) => {
            *count += 1;
            if *count > MAX_SUBSCHEMAS {
                return Err(ShapeError(format!(
                    "the schema holds more than {MAX_SUBSCHEMAS} schemas (max_subschemas)"
                )));
            }
            for (name, member) in members {
                if let ("$ref" | "$dynamicRef", Some(target)) = (name.as_str(), member.as_str())
                    && !target.starts_with('#')
                {
                    return Err(ShapeError(format!(
                        "$ref: {target} leads out of the schema, and nothing is fetched"
                    )));
                }
                check(member, depth + 1, count)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| check(item, depth + 1, count)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_bounded_and_fetches_nothing() {
        let refused = |schema: Value, word: &str| {
            let error = Shape::compile(&schema).err().expect("refused").to_string();
            assert!(error.contains(word), "{error}");
        };
        refused(json!({ "description": "x".repeat(MAX_SCHEMA_BYTES) }), "max_schema_bytes");
        refused(json!({ "anyOf": vec![json!({}); MAX_SUBSCHEMAS] }), "max_subschemas");
        let deep = (0..MAX_SCHEMA_DEPTH).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert!(Shape::compile(&deep).is_ok());
        refused(json!({ "not": deep }), "max_schema_depth");
        refused(json!({ "$ref": "http://127.0.0.1:1/schema.json" }), "nothing is fetched");
        refused(json!({ "$ref": "file:///etc/passwd" }), "nothing is fetched");
        refused(json!({ "type": "strange" }), "strange");
    }

    #[test]
    fn a_value_is_refused_with_the_place_where_it_is_wrong() {
        let shape = Shape::compile(&json!({
            "$defs": { "n": { "type": "integer" } },
            "type": "object",
            "properties": { "n": { "$ref": "#/$defs/n" } },
            "required": ["n"],
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(shape.refuse(&json!({ "n": 1 })), None);
        assert!(shape.refuse(&json!({ "n": "x" })).is_some_and(|why| why.starts_with("/n: ")));
        assert!(shape.refuse(&json!({})).is_some_and(|why| why.contains("required")));
        let all: Vec<_> = shape.violations(&json!({ "n": "x" })).collect();
        assert!(matches!(&all[..], [(path, why)] if path == "/n" && why.contains("integer")), "{all:?}");
        assert_eq!(shape.violations(&json!({ "n": 1 })).count(), 0);
    }
}
