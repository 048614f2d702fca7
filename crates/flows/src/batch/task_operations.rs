//! The operations `task.cancel` and `task.rerun`: each is what the batch's caller could do itself, with the same rights.

use nuncio_engine::{Error, Event, Message, Role, State, Submit, engine::LogRange};
use serde_json::json;

use super::operation::{BatchContext, OperationFailure, OperationOutput};

/// Cancels a task of the caller, or one that the caller may administer. A task that has ended is skipped.
pub(super) async fn cancel(common: &BatchContext, task: &str) -> Result<OperationOutput, OperationFailure> {
    let (engine, caller) = (&common.engine, &common.caller);
    let reader = engine.admin_reader(caller, task).await.map_err(failure)?;
    let canceled = match reader.owner() == caller.owner() {
        true => engine.cancel(caller, task).await,
        false => engine.admin_cancel(caller, None, task).await.map(|(_, task)| task),
    };
    match canceled {
        Ok(ended) if ended.state.is_terminal() && ended.state != State::Canceled => {
            Ok(OperationOutput::skipped(has_ended(task, ended.state)))
        }
        Ok(asked) => Ok(OperationOutput::of(json!({ "taskId": task, "state": asked.state.name() }))),
        Err(Error::NotCancelable(state) | Error::Ended(state)) => {
            Ok(OperationOutput::skipped(has_ended(task, state)))
        }
        Err(error) => Err(failure(error)),
    }
}

fn has_ended(task: &str, state: State) -> String {
    format!("task {task} has ended: {}", state.name())
}

/// Sends the first message of a task of the caller to its agent again, as a new task in a context of its own.
///
/// The words of another caller would run with the rights of this one. A batch would breed: it could name itself, and what
/// it sends is the child of no task, so no budget of a tree of calls would end it.
pub(super) async fn rerun(
    common: &BatchContext,
    operation: &str,
    task: &str,
) -> Result<OperationOutput, OperationFailure> {
    let (engine, caller) = (&common.engine, &common.caller);
    let reader = engine.admin_reader(caller, task).await.map_err(failure)?;
    if reader.owner() != caller.owner() {
        let why = format!(
            "task {task} is another caller's: its message would run with your rights, so it is not sent again"
        );
        return Err(OperationFailure::lasting(why));
    }
    if engine.task_details(caller, &common.batch).await.map_err(failure)?.row.parent.is_some() {
        let why = "a batch that was called by a task sends no task again (task.rerun)".to_owned();
        return Err(OperationFailure::lasting(why));
    }
    let agent = engine.task_details(&reader, task).await.map_err(failure)?.row.agent;
    if agent == super::AGENT {
        let why = format!("task {task} is a batch: submit its operations as a batch of their own");
        return Err(OperationFailure::lasting(why));
    }
    let first = |_| LogRange { until: 1, ..LogRange::default() };
    let page = engine.log_page(&reader, task, first, |_| true).await.map_err(failure)?;
    let message = page.entries.first().and_then(|(_, entry)| match entry.event() {
        Event::Message(message) if message.role == Role::User => Some(message.clone()),
        _ => None,
    });
    let Some(message) = message else {
        return Err(OperationFailure::lasting(format!("task {task} does not begin with a message")));
    };
    // The same in every attempt, also after a crash: the message is sent once.
    let key = format!("batch {} {operation}", common.batch);
    let message = Message { id: key.clone(), ..message };
    let mut submit = Submit::new(agent.as_str(), message);
    submit.idempotency_key = Some(key);
    let made = engine.submit(caller, submit).await.map_err(failure)?;
    let made = made.origin.id.to_string();
    Ok(OperationOutput::of(json!({ "taskId": task, "newTaskId": made, "agent": agent })))
}

/// What cannot be found, or may not be done, is not found a moment later either.
fn failure(error: Error) -> OperationFailure {
    match error {
        Error::NoSuchTask(_) | Error::NotOperator(_) | Error::Invalid(_) | Error::Limit(_) => {
            OperationFailure::lasting(error.to_string())
        }
        error => error.into(),
    }
}
