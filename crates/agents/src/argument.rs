//! How agents read what they were asked: a structured argument, else the text, else a default.

use nuncio_engine::TaskContext;
use serde_json::Value;

/// Arguments are repeated in questions, progress and results, so they stay short.
const LONGEST: usize = 1_000;

/// The argument of that name; `None` when the caller gave nothing. `find` finds it in a sentence; where it
/// came by name it is taken as it is. An error is a reason to reject the task.
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
