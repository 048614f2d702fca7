//! Questions to a client: elicitation, sampling and roots, and their answers.

use nuncio_engine::{
    Answer, Task,
    question::{Ask, Question, note_in},
    surface::HandlerQuestion,
};
use serde_json::{Value, json};

use super::{ClientCapabilities, McpVersion};
use crate::{
    json::{self, JsonObject},
    jsonrpc::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcErrorObject},
};

/// The `_meta` member that identifies the question of its task that a request asks. A question that is asked
/// again has another request id and the same name here.
pub const QUESTION: &str = "nuncio/question";

/// The `_meta` member of a result that holds the note of a decline: the protocol has no member for one.
pub const NOTE: &str = "nuncio/note";

/// A question to a client: a method with params.
#[derive(Debug, Clone, Copy)]
pub enum McpQuestion<'a> {
    /// A question of an agent.
    Question(&'a Question),
    /// A question of a handler.
    Inquiry(&'a HandlerQuestion),
}

impl<'a> McpQuestion<'a> {
    /// The open questions of a task, by their ids.
    pub fn all_of(task: &'a Task) -> impl Iterator<Item = (&'a str, Self)> {
        task.questions.iter().map(|(_, question)| (question.id.as_str(), Self::Question(question)))
    }

    /// The method.
    pub fn method(self) -> &'static str {
        match self.kind() {
            McpQuestionKind::Form { .. } | McpQuestionKind::Link { .. } => "elicitation/create",
            McpQuestionKind::Sample { .. } => "sampling/createMessage",
            McpQuestionKind::Roots => "roots/list",
        }
    }

    /// Whether a client supports this kind of question.
    pub fn is_supported_by(self, client: ClientCapabilities) -> bool {
        match self.kind() {
            McpQuestionKind::Form { .. } => client.form,
            McpQuestionKind::Link { .. } => client.url,
            McpQuestionKind::Sample { .. } => client.sampling,
            McpQuestionKind::Roots => client.roots,
        }
    }

    /// Writes the params. `name`: a unique name, if the revision requires one. `related`: the task that it
    /// belongs to, if the revision requires it.
    pub fn write_params(self, out: &mut Vec<u8>, version: McpVersion, name: &str, related: Option<&str>) {
        json::object(out, |params| {
            self.kind().write(params, version, name);
            let question = match self {
                Self::Question(question) if !version.is_stateless() => Some(&question.id),
                _ => None,
            };
            if related.is_some() || question.is_some() {
                params.object("_meta", |meta| {
                    if let Some(task) = related {
                        super::task::write_related(meta, task);
                    }
                    meta.optional(QUESTION, question);
                });
            }
        });
    }

    fn kind(self) -> McpQuestionKind<'a> {
        match self {
            Self::Question(Question { text, ask, .. }) => match ask {
                Ask::Form { schema } => McpQuestionKind::Form { text, schema },
                Ask::Authorization { url } => McpQuestionKind::Link { text, url },
                Ask::Sample { system, max_tokens } => McpQuestionKind::Sample {
                    prompt: text,
                    system: system.as_deref(),
                    max_tokens: *max_tokens,
                },
            },
            Self::Inquiry(inquiry) => match inquiry {
                HandlerQuestion::Form { text, schema } => McpQuestionKind::Form { text, schema },
                HandlerQuestion::Link { text, url } => McpQuestionKind::Link { text, url },
                HandlerQuestion::Sample { prompt, system, max_tokens } => {
                    McpQuestionKind::Sample { prompt, system: system.as_deref(), max_tokens: *max_tokens }
                }
                HandlerQuestion::Roots => McpQuestionKind::Roots,
            },
        }
    }
}

enum McpQuestionKind<'a> {
    Form { text: &'a str, schema: &'a Value },
    Link { text: &'a str, url: &'a str },
    Sample { prompt: &'a str, system: Option<&'a str>, max_tokens: u32 },
    Roots,
}

impl McpQuestionKind<'_> {
    fn write(&self, params: &mut JsonObject<'_>, version: McpVersion, name: &str) {
        match self {
            Self::Form { text, schema } => {
                if version >= McpVersion::V2025_11_25 {
                    params.value("mode", "form");
                }
                params.value("message", text);
                params.value("requestedSchema", schema);
            }
            Self::Link { text, url } => {
                params.value("mode", "url");
                params.value("message", text);
                params.value("url", url);
                if !version.is_stateless() {
                    params.value("elicitationId", name);
                }
            }
            Self::Sample { prompt, system, max_tokens } => {
                let content = json!({ "type": "text", "text": prompt });
                params.value("messages", &json!([{ "role": "user", "content": content }]));
                params.optional("systemPrompt", system.as_ref());
                params.value("maxTokens", max_tokens);
            }
            Self::Roots => {}
        }
    }
}

/// Writes `inputRequests`: the questions by their keys (2026-07-28).
pub fn write_input_requests<'a>(
    object: &mut JsonObject<'_>,
    version: McpVersion,
    questions: impl IntoIterator<Item = (&'a str, McpQuestion<'a>)>,
) {
    object.object("inputRequests", |requests| {
        for (key, question) in questions {
            requests.object_at(key, |out| {
                json::object(out, |request| {
                    request.value("method", question.method());
                    question.write_params(request.key("params"), version, "", None);
                });
            });
        }
    });
}

/// The answer in a client's result. Each of the three kinds has its own shape.
pub fn answer_in_result(result: &Value) -> Result<Answer, String> {
    if let Some(action) = result.get("action").and_then(Value::as_str) {
        return match action {
            "accept" => Ok(Answer::Accept(result.get("content").cloned().unwrap_or_else(|| json!({})))),
            "decline" => Ok(Answer::decline(
                result["_meta"][NOTE].as_str().or_else(|| note_in(result)).unwrap_or_default(),
            )),
            "cancel" => Ok(Answer::Cancel),
            other => Err(format!("action: {other:?} is none of accept, decline, cancel")),
        };
    }
    if result.get("roots").is_some_and(Value::is_array) {
        return Ok(Answer::Accept(json!({ "roots": result["roots"] })));
    }
    if let Some(content) = result.get("content") {
        let mut answer = json!({ "text": text_in(content) });
        for member in ["model", "stopReason"] {
            if let Some(value) = result.get(member) {
                answer[member] = value.clone();
            }
        }
        return Ok(Answer::Accept(answer));
    }
    Err("expected the result of elicitation/create, sampling/createMessage or roots/list".to_owned())
}

/// The answer in a client's error: the client does not support the question, or its user declined it. Any other
/// error is not an answer: the client failed, stopped or timed out.
pub fn answer_in_error(error: &RpcErrorObject) -> Option<Answer> {
    let code = i32::try_from(error.code).ok()?;
    match code {
        METHOD_NOT_FOUND | INVALID_REQUEST | INVALID_PARAMS => Some(Answer::Unavailable),
        REJECTED => Some(Answer::Cancel),
        _ => None,
    }
}

/// The code that a client sends when its user declined a request.
pub(super) const REJECTED: i32 = -1;

/// The text of a model's response: one block or several.
fn text_in(content: &Value) -> String {
    let block = |block: &Value| block.get("text").and_then(Value::as_str).map(str::to_owned);
    match content {
        Value::Array(blocks) => blocks.iter().filter_map(block).collect::<Vec<_>>().join("\n"),
        one => block(one).unwrap_or_default(),
    }
}
