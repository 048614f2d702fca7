//! Selections of tasks in a request: each operation on one becomes an operation for each of its tasks.
//!
//! That happens once, before the batch is made. So the batch holds what it is about, however long it is paused and
//! whatever becomes of the selection; and each task has its own result, its own retries, and counts in the progress.

use nuncio_engine::{Caller, Engine, content::json_size, surface::HandlerError};
use serde_json::{Map, Value, json};

use super::BatchOptions;

/// Replaces operations on selections.
pub(super) async fn expand(
    engine: &Engine,
    caller: &Caller,
    arguments: &mut Map<String, Value>,
    options: &BatchOptions,
) -> Result<(), HandlerError> {
    let Some(Value::Array(operations)) = arguments.get_mut("operations") else { return Ok(()) };
    if !operations.iter().any(|operation| selection_of(operation).is_some()) {
        return Ok(());
    }
    let (mut expanded, mut bytes) = (vec![], 0_usize);
    for (n, operation) in std::mem::take(operations).into_iter().enumerate() {
        let Some(selection) = selection_of(&operation) else {
            expanded.push(operation);
            continue;
        };
        let field = format!("operations[{n}].args.selection");
        let invalid = |why: &str| HandlerError::Invalid(format!("{field}: {why}"));
        if operation["args"].as_object().is_some_and(|args| args.len() > 1) {
            return Err(invalid("nothing else is given with a selection"));
        }
        let Some(found) = engine.selection(caller, selection).await? else {
            return Err(invalid("there is no such selection, or it has expired"));
        };
        if found.tasks.is_empty() {
            return Err(invalid("no task is in it"));
        }
        if expanded.len() + found.tasks.len() > options.operations_per_batch {
            return Err(invalid(&format!(
                "with its {} tasks the batch has more than {} operations (operations_per_batch)",
                found.tasks.len(),
                options.operations_per_batch
            )));
        }
        // Before it is copied for each task: the batch itself is measured only when it is whole.
        bytes = bytes.saturating_add(json_size(&operation).saturating_mul(found.tasks.len()));
        if bytes > options.batch_bytes {
            return Err(invalid(&format!(
                "for its {} tasks the batch is larger than {} bytes (batch_bytes)",
                found.tasks.len(),
                options.batch_bytes
            )));
        }
        let id = operation["id"].as_str().unwrap_or_default().to_owned();
        for (number, task) in (1..).zip(&found.tasks) {
            let mut one = operation.clone();
            one["id"] = format!("{id}.{number}").into();
            one["args"] = json!({ "task": task.to_string() });
            expanded.push(one);
        }
    }
    *operations = expanded;
    Ok(())
}

/// The selection that an operation names, where its type takes one.
fn selection_of(operation: &Value) -> Option<&str> {
    let is_of_tasks = operation["type"].as_str().is_some_and(|name| name.starts_with("task."));
    operation["args"]["selection"].as_str().filter(|_| is_of_tasks)
}
