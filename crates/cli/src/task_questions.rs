//! The questions of a task that a command follows: asked at the standard input, answered at the server.

use std::io::{IsTerminal as _, Write as _, stderr, stdin};

use nuncio_client::mcp::{ToolError, ToolTaskQuestion};
use nuncio_engine::{
    Answer,
    question::{Ask, Question},
};
use nuncio_wire::mcp::NOTE;
use serde_json::{Map, Value, json};

use crate::{
    error::CliError,
    form, output,
    questions::{self, QuestionTerminal, TypedLine},
    server_connection::ServerConnection,
    text::plain,
};

/// Whether a user can be asked at the terminal.
pub(crate) fn is_attended(shared: &ServerConnection) -> bool {
    !shared.is_json() && stdin().is_terminal() && stderr().is_terminal()
}

/// The questions that a user can answer at a terminal.
pub(crate) fn answerable(questions: &[ToolTaskQuestion]) -> impl Iterator<Item = &ToolTaskQuestion> {
    questions.iter().filter(|question| question.method == "elicitation/create")
}

/// Asks the user and sends the answers. False: the user does not want to answer now.
pub(crate) async fn answer(
    shared: &ServerConnection,
    task: &str,
    questions: &[ToolTaskQuestion],
) -> Result<bool, CliError> {
    let mut answered = false;
    for asked in answerable(questions) {
        let question = question_of(asked);
        loop {
            let mut terminal = StandardTerminal::default();
            terminal.show_note(&format!("\n{}", question.text));
            let answer = questions::ask(&mut terminal, &question).await;
            terminal.failure.map_or(Ok(()), Err)?;
            let Some(answer) = answer else { return Ok(false) };
            match send(shared, task, asked, &answer).await {
                Ok(()) => break,
                // The form as a whole is invalid: the user is asked again.
                Err(CliError::Tool { error, .. }) if is_invalid(&error) => {
                    output::note(&plain(&error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        answered = true;
    }
    Ok(answered)
}

/// Answers the first question with the given content. Returns that question.
pub(crate) async fn submit_answer<'q>(
    shared: &ServerConnection,
    task: &str,
    questions: &'q [ToolTaskQuestion],
    content: Map<String, Value>,
) -> Result<&'q ToolTaskQuestion, CliError> {
    let question = answerable(questions)
        .next()
        .ok_or_else(|| CliError::Usage("what the task waits for is not answered with a form".to_owned()))?;
    let answer = Answer::Accept(Value::Object(content));
    send(shared, task, question, &answer).await?;
    Ok(question)
}

/// The open questions as JSON, for a client that answers them later.
pub(crate) fn documents(questions: &[ToolTaskQuestion]) -> Vec<Value> {
    let asked = |question: &ToolTaskQuestion| json!({ "key": question.key, "method": question.method, "params": question.params });
    questions.iter().map(asked).collect()
}

async fn send(
    shared: &ServerConnection,
    task: &str,
    question: &ToolTaskQuestion,
    answer: &Answer,
) -> Result<(), CliError> {
    let answers = Map::from_iter([(question.key.clone(), input_response(question, answer))]);
    shared.answer(task, answers).await
}

/// Whether the server rejected the answer because of its content.
fn is_invalid(error: &ToolError) -> bool {
    matches!(error, ToolError::Rpc(error) if error.code == -32602)
}

fn is_link(question: &ToolTaskQuestion) -> bool {
    question.params["mode"] == "url"
}

fn question_of(question: &ToolTaskQuestion) -> Question {
    let text = question.params["message"].as_str().unwrap_or_default().to_owned();
    let ask = match is_link(question) {
        true => Ask::Authorization { url: question.params["url"].as_str().unwrap_or_default().to_owned() },
        false => Ask::Form { schema: question.params["requestedSchema"].clone() },
    };
    Question { id: question.key.clone(), text, ask, callback: None }
}

/// The answer as the result of an elicitation.
fn input_response(question: &ToolTaskQuestion, answer: &Answer) -> Value {
    match answer {
        Answer::Accept(_) if is_link(question) => json!({ "action": "accept" }),
        Answer::Accept(content) => json!({ "action": "accept", "content": content }),
        Answer::Decline(None) => json!({ "action": "decline" }),
        Answer::Decline(Some(note)) => json!({ "action": "decline", "_meta": { NOTE: note } }),
        Answer::Cancel | Answer::Unavailable => json!({ "action": "cancel" }),
    }
}

/// The standard input, with prompts on the standard error, to keep the output clean.
#[derive(Default)]
struct StandardTerminal {
    /// Why a line could not be read.
    failure: Option<CliError>,
}

impl QuestionTerminal for StandardTerminal {
    async fn read_line(&mut self, prompt: String, _: Vec<String>) -> TypedLine {
        match form::read_line(prompt).await {
            Ok(Some(line)) => TypedLine::Line(line),
            Ok(None) => TypedLine::Left,
            Err(error) => {
                self.failure = Some(error);
                TypedLine::Left
            }
        }
    }

    fn show_wrong(&mut self, text: &str) {
        let _ = writeln!(stderr(), "{}", plain(text));
    }

    fn show_note(&mut self, text: &str) {
        let _ = writeln!(stderr(), "{}", plain(text));
    }

    fn show_details(&mut self, question: &Question) {
        let ask = serde_json::to_string_pretty(&question.ask).unwrap_or_default();
        self.show_note(&format!("{}\n{ask}", question.text));
    }

    fn show_link(&mut self, host: &str, url: &str) {
        self.show_note(&format!("This leads to {host}:\n  {url}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_form_of_its_question() {
        let check = |params: Value, answer: Answer, expected: Value| {
            let question = ToolTaskQuestion { key: "k".into(), method: "elicitation/create".into(), params };
            assert_eq!(input_response(&question, &answer), expected);
        };
        let (form, link) =
            (json!({ "requestedSchema": {} }), json!({ "mode": "url", "url": "https://a.example" }));
        let yes = || Answer::Accept(json!({ "confirm": true }));
        check(form.clone(), yes(), json!({ "action": "accept", "content": { "confirm": true } }));
        check(link.clone(), Answer::Accept(json!({})), json!({ "action": "accept" }));
        check(link, Answer::Decline(None), json!({ "action": "decline" }));
        check(
            form.clone(),
            Answer::Decline(Some("too dear".into())),
            json!({ "action": "decline", "_meta": { "nuncio/note": "too dear" } }),
        );
        check(form, Answer::Cancel, json!({ "action": "cancel" }));
    }
}
