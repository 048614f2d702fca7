//! Reads an agent's argument: from structured input, otherwise from the text, otherwise a default.

use nuncio_engine::TaskContext;
use serde_json::Value;

/// Bytes of an argument. It is repeated in questions, progress and results, so it stays short.
const LONGEST: usize = 1_000;

/// The argument of that name; `None` if the caller gave none. `find` extracts it from a sentence; a named
/// argument is used unchanged. An error is a reason to reject the task.
pub(crate) fn read_argument(
    cx: &TaskContext,
    name: &str,
    find: impl Fn(&str) -> &str,
) -> Result<Option<String>, String> {
    let text = match cx.argument(name) {
        None | Some(Value::Null) => find(&cx.text()).to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => return Err(format!("{name}: a string is wanted, not {other}")),
    };
    let text = text.trim();
    if text.chars().count() > LONGEST {
        return Err(format!("{name}: at most {LONGEST} characters, this has {}", text.chars().count()));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
