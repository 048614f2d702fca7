//! Compiled JSON Schemas that validate arguments and results.
//!
//! A schema may come from another server, so its cost is bounded, and a `$ref` that leads out of the schema
//! itself is refused: nothing is ever fetched.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::Semaphore;

use super::cost::cost;

/// The largest schema, in bytes of JSON.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The most subschemas of one schema.
pub const MAX_SUBSCHEMAS: usize = 4096;
/// The deepest nesting of subschemas.
pub const MAX_SCHEMA_DEPTH: usize = 64;

/// The default cost limit: the most schemas that one value is checked against, with references expanded.
pub const MAX_SCHEMA_COST: u64 = 100_000;

/// The operator's limit. One per process: schemas are also compiled where no engine is available.
static FOREIGN_SCHEMA_COST: AtomicU64 = AtomicU64::new(MAX_SCHEMA_COST);

/// Schemas up to this cost are applied on the worker thread; more expensive ones on a blocking thread.
const CHEAP_SCHEMA_COST: u64 = 1_000;
/// The deadline for validating one value against a foreign schema.
pub const VALIDATION_DEADLINE: Duration = Duration::from_secs(2);
/// The most threads that foreign schemas use at once: a validation past its deadline keeps its thread until it
/// ends.
const VALIDATION_THREADS: usize = 4;

static VALIDATIONS: Semaphore = Semaphore::const_new(VALIDATION_THREADS);

/// The largest value, in parts, for which all violations are listed.
pub const MAX_EXPLAINED: usize = 10_000;
/// The most characters of one violation's description.
pub const MAX_EXPLANATION: usize = 300;

/// Marks a property that is mirrored in a header.
const HEADER: &str = "x-mcp-header";

/// A compiled schema.
pub struct CompiledSchema {
    validator: jsonschema::Validator,
    mirrors: bool,
}

/// Why a schema was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl SchemaError {
    pub(super) fn new(why: String) -> Self {
        Self(why)
    }
}

impl CompiledSchema {
    /// Compiles a schema; draft 2020-12 unless it declares another.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let text = schema.to_string();
        let size = text.len();
        if size > MAX_SCHEMA_BYTES {
            return Err(SchemaError(format!(
                "the schema has {size} bytes, and may have {MAX_SCHEMA_BYTES} (max_schema_bytes)"
            )));
        }
        let mut count = 0;
        check(schema, 0, &mut count)?;
        // A limit below the default applies to foreign schemas only: the server's own agents must start
        // regardless.
        check_cost(schema, FOREIGN_SCHEMA_COST.load(Ordering::Relaxed).max(MAX_SCHEMA_COST))?;
        let validator = jsonschema::validator_for(schema).map_err(|error| SchemaError(error.to_string()))?;
        Ok(Self { validator, mirrors: text.contains(HEADER) })
    }

    /// Whether some properties may have to be mirrored in headers.
    pub fn mirrors(&self) -> bool {
        self.mirrors
    }

    /// The violations of a value as one text; `None` if it is valid.
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

    /// The violations of a value, each with its JSON pointer: at most `max`, and how many more there are. For a
    /// value with more than [`MAX_EXPLAINED`] parts only the first is returned: the validator collects either all
    /// or one.
    pub fn violations(&self, value: &Value, max: usize) -> (Vec<(String, String)>, usize) {
        let mut left = MAX_EXPLAINED;
        if !is_within(value, &mut left) {
            let Err(first) = self.validator.validate(value) else { return (vec![], 0) };
            let only = format!(
                "this is the first violation; with more than {MAX_EXPLAINED} parts no more are named"
            );
            return (vec![in_words(&first), (String::new(), only)], 0);
        }
        let mut errors = self.validator.iter_errors(value);
        let found = errors.by_ref().take(max).map(|error| in_words(&error)).collect();
        (found, errors.count())
    }
}

/// Sets the cost limit of foreign schemas (the operator's `limits.schema-cost`): how many schemas one value is
/// checked against, with references expanded.
pub fn limit_foreign_cost(limit: u64) {
    FOREIGN_SCHEMA_COST.store(limit, Ordering::Relaxed);
}

/// Refuses a foreign schema that costs more than the operator allows.
pub fn check_foreign_cost(schema: &Value) -> Result<(), SchemaError> {
    check(schema, 0, &mut 0)?;
    check_cost(schema, FOREIGN_SCHEMA_COST.load(Ordering::Relaxed))
}

fn check_cost(schema: &Value, limit: u64) -> Result<(), SchemaError> {
    match cost(schema, limit) {
        Some(_) => Ok(()),
        None => Err(SchemaError(format!(
            "with its references multiplied out the schema is more than {limit} schemas (limits.schema-cost)"
        ))),
    }
}

/// Whether a foreign schema may be applied on a worker thread.
pub fn is_cheap(schema: &Value) -> bool {
    cost(schema, CHEAP_SCHEMA_COST).is_some()
}

/// Runs work with foreign schemas on a blocking thread, within [`VALIDATION_DEADLINE`]. `None`: the deadline
/// passed, or all validation threads are busy.
pub async fn validate_off_worker<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let work = async {
        let permit = VALIDATIONS.acquire().await.ok()?;
        // The permit belongs to the thread, which may outlive the wait for it.
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.ok()
    };
    tokio::time::timeout(VALIDATION_DEADLINE, work).await.ok().flatten()
}

/// Whether a value has at most `left` parts.
fn is_within(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| is_within(item, left)),
        Value::Object(members) => members.values().all(|member| is_within(member, left)),
        _ => true,
    }
}

/// The JSON pointer and the description. The validator's text repeats the value; a long one is masked.
fn in_words(error: &jsonschema::ValidationError<'_>) -> (String, String) {
    let mut text = BoundedText::new(MAX_EXPLANATION);
    if write!(text, "{error}").is_err() {
        text = BoundedText::new(MAX_EXPLANATION);
        let _ = write!(text, "{}", error.masked_with("the value"));
    }
    (error.instance_path().to_string(), text.into_text())
}

/// A text of at most `max` characters. Writing more fails, and the text then ends with "…".
#[derive(Debug)]
pub struct BoundedText {
    text: String,
    left: usize,
    cut: bool,
}

impl BoundedText {
    /// An empty text that takes at most `max` characters.
    pub fn new(max: usize) -> Self {
        Self { text: String::new(), left: max, cut: false }
    }

    /// The written text, with "…" if it was cut.
    pub fn into_text(mut self) -> String {
        if self.cut {
            self.text.push('…');
        }
        self.text
    }
}

impl Write for BoundedText {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        for letter in more.chars() {
            if self.left == 0 {
                self.cut = true;
                return Err(std::fmt::Error);
            }
            self.left -= 1;
            self.text.push(letter);
        }
        Ok(())
    }
}

/// Counts all objects, whether they are schemas or only contain some: the limit bounds the work.
fn check(value: &Value, depth: usize, count: &mut usize) -> Result<(), SchemaError> {
    if depth > MAX_SCHEMA_DEPTH {
        return Err(SchemaError(format!(
            "the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels (max_schema_depth)"
        )));
    }
    match value {
        Value::Object(members) => {
            *count += 1;
            if *count > MAX_SUBSCHEMAS {
                return Err(SchemaError(format!(
                    "the schema holds more than {MAX_SUBSCHEMAS} schemas (max_subschemas)"
                )));
            }
            for (name, member) in members {
                if let ("$ref" | "$dynamicRef", Some(target)) = (name.as_str(), member.as_str())
                    && !target.starts_with('#')
                {
                    return Err(SchemaError(format!(
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
            let error = CompiledSchema::compile(&schema).err().expect("refused").to_string();
            assert!(error.contains(word), "{error}");
        };
        refused(json!({ "description": "x".repeat(MAX_SCHEMA_BYTES) }), "max_schema_bytes");
        refused(json!({ "anyOf": vec![json!({}); MAX_SUBSCHEMAS] }), "max_subschemas");
        let deep = (0..MAX_SCHEMA_DEPTH).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert!(CompiledSchema::compile(&deep).is_ok());
        refused(json!({ "not": deep }), "max_schema_depth");
        refused(json!({ "$ref": "http://127.0.0.1:1/schema.json" }), "nothing is fetched");
        refused(json!({ "$ref": "file:///etc/passwd" }), "nothing is fetched");
        refused(json!({ "type": "strange" }), "strange");
        let again = json!({ "$ref": "#/$defs/a" });
        refused(
            json!({ "$defs": { "a": { "allOf": [again, again] } }, "$ref": "#/$defs/a" }),
            "limits.schema-cost",
        );
    }

    #[tokio::test]
    async fn a_schema_that_takes_long_costs_no_worker_and_has_a_deadline() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let started = std::time::Instant::now();
        let slow = validate_off_worker(move || wait.recv().is_ok()).await;
        assert_eq!(slow, None);
        assert!(started.elapsed() >= VALIDATION_DEADLINE);
        drop(release);
        assert_eq!(validate_off_worker(|| 7).await, Some(7));
    }

    #[test]
    fn a_value_is_refused_with_the_place_where_it_is_wrong() {
        let shape = CompiledSchema::compile(&json!({
            "$defs": { "n": { "type": "integer" } },
            "type": "object",
            "properties": { "n": { "$ref": "#/$defs/n" } },
            "required": ["n"],
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(shape.refuse(&json!({ "n": 1 })), None);
        assert!(shape.refuse(&json!({ "n": "x" })).is_some_and(|why| why.starts_with("/n: ")));
        assert!(shape.refuse(&json!({})).is_some_and(|why| why.contains("required")));
        let (all, more) = shape.violations(&json!({ "n": "x" }), 10);
        assert!(matches!(&all[..], [(path, why)] if path == "/n" && why.contains("integer")), "{all:?}");
        assert_eq!(more, 0);
        assert_eq!(shape.violations(&json!({ "n": 1 }), 10), (vec![], 0));
    }

    #[test]
    fn what_is_wrong_with_much_is_said_in_few_words() {
        let shape = CompiledSchema::compile(&json!({ "maxItems": 3, "items": { "type": "integer" } }))
            .unwrap_or_else(|error| panic!("{error}"));
        let (some, more) = shape.violations(&json!(vec!["x"; 100]), 10);
        assert_eq!((some.len(), more), (10, 91));
        let long: Vec<_> = some.iter().filter(|(path, _)| path.is_empty()).collect();
        assert!(long.iter().all(|(_, why)| why == "the value has more than 3 items"), "{long:?}");
        let (long, _) = shape.violations(&json!(["x".repeat(MAX_EXPLANATION)]), 10);
        assert!(long[0].1.starts_with("the value is not of type"), "{long:?}");
        let (much, _) = shape.violations(&json!(vec!["x"; MAX_EXPLAINED]), 10);
        assert_eq!(much.len(), 2, "{much:?}");
        assert_eq!(shape.violations(&json!([1, 2]), 10), (vec![], 0));
    }

    #[test]
    fn a_bounded_text_stops_whoever_writes_it() {
        let mut text = BoundedText::new(3);
        assert!(write!(text, "äöü").is_ok());
        assert!(write!(text, "x").is_err());
        assert_eq!(text.into_text(), "äöü…");
    }
}
