//! The user's answers to questions of a workflow's or a plan's task.

use std::io::{IsTerminal as _, stderr, stdin};

use nuncio_client::mcp::{ToolError, ToolTaskQuestion};
use serde_json::{Map, Value, json};

use crate::{
    error::CliError,
    form::{self, FormPromptOutcome},
    output,
    server_connection::ServerConnection,
    text::plain,
};

/// Whether a user can be asked at the terminal.
pub(crate) fn is_attended(shared: &ServerConnection) -> bool {
    !shared.is_json() && stdin().is_terminal() && stderr().is_terminal()
}

/// Asks the user and sends the answers. False: the user does not want to answer now.
pub(crate) async fn answer(
    shared: &ServerConnection,
    task: &str,
    questions: &[ToolTaskQuestion],
) -> Result<bool, CliError> {
    let mut answered = false;
    for question in answerable(questions) {
        loop {
            let message = question.params["message"].as_str().unwrap_or_default();
            let answer = if question.params["mode"] == "url" {
                let Some(answer) = wait_for_visit(message, &question.params["url"]).await? else {
                    return Ok(false);
                };
                answer
            } else {
                let schema = &question.params["requestedSchema"];
                let FormPromptOutcome::In(content) = form::fill(message, schema).await? else {
                    return Ok(false);
                };
                json!({ "action": "accept", "content": content })
            };
            let answers = Map::from_iter([(question.key.clone(), answer)]);
            match shared.tools().answer(task, answers).await {
                Ok(()) => break,
                // The form as a whole is invalid: the user is asked again.
                Err(ToolError::Rpc(error)) if error.code == -32602 => output::note(&plain(&error.message)),
                Err(error) => return Err(shared.failed(error)),
            }
        }
        answered = true;
    }
    Ok(answered)
}

/// The questions that a user can answer at a terminal.
pub(crate) fn answerable(questions: &[ToolTaskQuestion]) -> impl Iterator<Item = &ToolTaskQuestion> {
    questions.iter().filter(|question| question.method == "elicitation/create")
}

/// Shows a link for the user to open, and its host. The answer only tells whether the user did or declines.
async fn wait_for_visit(message: &str, url: &Value) -> Result<Option<Value>, CliError> {
    let url = url.as_str().unwrap_or_default();
    let host = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let host = host.unwrap_or_else(|| "an address that cannot be read".to_owned());
    output::note(&format!("\n{message}\nThis leads to {host}:\n  {url}"));
    let schema = json!({
        "properties": { "visited": { "type": "boolean", "title": "Open it yourself. Is it done there?" } },
        "required": ["visited"],
    });
    Ok(match form::fill("", &schema).await? {
        FormPromptOutcome::Left => None,
        FormPromptOutcome::In(content) if content["visited"] == true => Some(json!({ "action": "accept" })),
        FormPromptOutcome::In(_) => Some(json!({ "action": "decline" })),
    })
}

/// Answers the first question with the given content. Returns that question.
pub(super) async fn submit_answer<'q>(
    shared: &ServerConnection,
    task: &str,
    questions: &'q [ToolTaskQuestion],
    content: Map<String, Value>,
) -> Result<&'q ToolTaskQuestion, CliError> {
    let question = answerable(questions).next();
    let question = question
        .ok_or_else(|| CliError::Usage("what the task waits for is not answered with a form".to_owned()))?;
    let answer = json!({ "action": "accept", "content": content });
    let answers = Map::from_iter([(question.key.clone(), answer)]);
    shared.tools().answer(task, answers).await.map_err(|error| shared.failed(error))?;
    Ok(question)
}

/// The open questions as JSON, for a client that answers them later.
pub(super) fn document(context: &str, task: &str, questions: &[ToolTaskQuestion]) -> Value {
    let asked = |question: &ToolTaskQuestion| json!({ "key": question.key, "method": question.method, "params": question.params });
    json!({
        "taskId": task,
        "contextId": context,
        "status": "input_required",
        "questions": questions.iter().map(asked).collect::<Vec<_>>(),
    })
}
