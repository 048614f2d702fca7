//! What the task of a workflow or a plan asks, and whoever sits at the terminal answers.

use std::io::{IsTerminal as _, stderr, stdin};

use nuncio_client::mcp::{Question, ToolError};
use serde_json::{Map, Value, json};

use crate::cli::{
    error::CliError,
    form::{self, Filled},
    output,
    shared::Shared,
    text::plain,
};

/// Whether somebody is there to be asked.
pub(crate) fn is_attended(shared: &Shared) -> bool {
    !shared.is_json() && stdin().is_terminal() && stderr().is_terminal()
}

/// Asks and answers. False: nobody wants to answer now.
pub(crate) async fn answer(shared: &Shared, task: &str, questions: &[Question]) -> Result<bool, CliError> {
    let mut answered = false;
    for question in questions.iter().filter(|question| question.method == "elicitation/create") {
        loop {
            let message = question.params["message"].as_str().unwrap_or_default();
            let Filled::In(content) = form::fill(message, &question.params["requestedSchema"]).await? else {
                return Ok(false);
            };
            let answer = json!({ "action": "accept", "content": content });
            let answers = Map::from_iter([(question.key.clone(), answer)]);
            match shared.tools().answer(task, answers).await {
                Ok(()) => break,
                // The form as a whole does not do: it is asked for again.
                Err(ToolError::Rpc(error)) if error.code == -32602 => output::note(&plain(&error.message)),
                Err(error) => return Err(shared.failed(error)),
            }
        }
        answered = true;
    }
    Ok(answered)
}

/// Answers the first question with what was given along.
pub(super) async fn give(
    shared: &Shared,
    task: &str,
    questions: &[Question],
    content: Map<String, Value>,
) -> Result<(), CliError> {
    let question = questions.iter().find(|question| question.method == "elicitation/create");
    let question = question
        .ok_or_else(|| CliError::Usage("what the task waits for is not answered with a form".to_owned()))?;
    let answer = json!({ "action": "accept", "content": content });
    let answers = Map::from_iter([(question.key.clone(), answer)]);
    shared.tools().answer(task, answers).await.map_err(|error| shared.failed(error))
}

/// The questions as a document, for whoever answers them later.
pub(super) fn document(context: &str, task: &str, questions: &[Question]) -> Value {
    let asked = |question: &Question| json!({ "key": question.key, "method": question.method, "params": question.params });
    json!({
        "taskId": task,
        "contextId": context,
        "status": "input_required",
        "questions": questions.iter().map(asked).collect::<Vec<_>>(),
    })
}
