//! Converts elicitation and sampling requests to questions of the engine, and answers to the form that each
//! expects.

use nuncio_engine::question::{Answer, Ask, Question};
use nuncio_wire::{
    jsonrpc::METHOD_NOT_FOUND,
    mcp::{NOTE, QUESTION},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Tokens of a sample if the server names no limit.
const MAX_TOKENS: u32 = 1024;
/// The error code for "the user rejected the request".
const REJECTED: i32 = -1;

/// An open question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenQuestion {
    pub(super) id: String,
    /// The MCP method of the request.
    pub(super) method: String,
    pub(super) params: Value,
    /// Where the answer goes.
    pub(super) to: AnswerRoute,
    /// Whether the server may repeat it, because the stream was cut or the answer rejected.
    #[serde(skip)]
    pub(super) again: bool,
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerRoute {
    /// To the request of the server with this id.
    Request(Value),
    /// Into the repeated call, or to its task, under this key.
    Input(String),
    /// Nowhere: the call is sent again after the link was visited.
    Visit,
}

impl OpenQuestion {
    /// The question for the engine; the error is why it cannot be shown.
    pub(super) fn question(&self) -> Result<Question, String> {
        let (text, ask) = read(&self.method, &self.params)?;
        Ok(Question { id: self.id.clone(), text, ask })
    }

    /// Whether this is the same question again. A name that the server gave decides; without one, a question
    /// that may be repeated is compared by its content.
    pub(super) fn is_same(&self, method: &str, params: &Value) -> bool {
        if let (Some(own), Some(other)) = (name_of(&self.params), name_of(params)) {
            return own == other;
        }
        if !self.again {
            return false;
        }
        let members = ["message", "requestedSchema", "url", "messages", "systemPrompt", "maxTokens"];
        self.method == method && members.iter().all(|member| self.params.get(member) == params.get(member))
    }

    /// The response to a request: a result, or an error code and text.
    pub(super) fn reply(&self, answer: &Answer) -> Result<Value, (i32, String)> {
        match answer {
            Answer::Unavailable => Err((METHOD_NOT_FOUND, "no user is available to answer".to_owned())),
            Answer::Decline(_) | Answer::Cancel if self.method == "sampling/createMessage" => {
                let note = answer.note().map(|note| format!(": {note}")).unwrap_or_default();
                Err((REJECTED, format!("the request for a sample was turned down{note}")))
            }
            _ => Ok(self.input(answer)),
        }
    }

    /// The answer where only results are accepted. `Answer::Unavailable` has no such form; the caller
    /// handles it before.
    pub(super) fn input(&self, answer: &Answer) -> Value {
        let is_link = self.params["mode"] == "url";
        match answer {
            Answer::Accept(data) if self.method == "sampling/createMessage" => json!({
                "role": "assistant",
                "content": { "type": "text", "text": answer.text().unwrap_or_default() },
                "model": data["model"].as_str().unwrap_or("unknown"),
                "stopReason": data["stopReason"].as_str().unwrap_or("endTurn"),
            }),
            Answer::Accept(_) if is_link => json!({ "action": "accept" }),
            Answer::Accept(data) => json!({ "action": "accept", "content": data }),
            Answer::Decline(None) => json!({ "action": "decline" }),
            Answer::Decline(Some(note)) => json!({ "action": "decline", "_meta": { NOTE: note } }),
            Answer::Cancel | Answer::Unavailable => json!({ "action": "cancel" }),
        }
    }
}

/// The server's name of a question, which stays the same when it repeats it under another request id.
pub(super) fn name_of(params: &Value) -> Option<&str> {
    params["_meta"][QUESTION].as_str()
}

fn read(method: &str, params: &Value) -> Result<(String, Ask), String> {
    let message = || params["message"].as_str().unwrap_or_default().to_owned();
    match method {
        "elicitation/create" if params["mode"] == "url" => {
            let url = params["url"].as_str().ok_or("a link without its url")?;
            Ok((message(), Ask::Authorization { url: url.to_owned() }))
        }
        "elicitation/create" => {
            let schema = params.get("requestedSchema").filter(|schema| schema.is_object());
            let schema = schema.ok_or("a form without its requestedSchema")?.clone();
            Ok((message(), Ask::Form { schema }))
        }
        "sampling/createMessage" => {
            let messages = params["messages"].as_array().ok_or("a sample without messages")?;
            let system = params["systemPrompt"].as_str().map(str::to_owned);
            let max = params["maxTokens"].as_u64().and_then(|max| u32::try_from(max).ok());
            Ok((conversation(messages), Ask::Sample { system, max_tokens: max.unwrap_or(MAX_TOKENS) }))
        }
        other => Err(format!("{other} is nothing that can be asked here")),
    }
}

/// Messages as one text. A single message is only its text; several are each prefixed with their role.
fn conversation(messages: &[Value]) -> String {
    if let [only] = messages {
        return content_text(&only["content"]);
    }
    let turn = |message: &Value| {
        format!("{}: {}", message["role"].as_str().unwrap_or("user"), content_text(&message["content"]))
    };
    messages.iter().map(turn).collect::<Vec<_>>().join("\n\n")
}

fn content_text(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().map(content_text).collect::<Vec<_>>().join("\n"),
        block => match (block["text"].as_str(), block["type"].as_str()) {
            (Some(text), _) => text.to_owned(),
            (None, kind) => format!("[{}]", block["mimeType"].as_str().or(kind).unwrap_or("something else")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(method: &str, params: Value) -> OpenQuestion {
        OpenQuestion { id: "q".into(), method: method.into(), params, to: AnswerRoute::Visit, again: false }
    }

    #[test]
    fn what_a_server_asks_is_a_question() {
        let check = |method: &str, params: Value, expected: Result<(&str, Ask), &str>| {
            let question = open(method, params).question().map(|question| (question.text, question.ask));
            let expected = expected.map(|(text, ask)| (text.to_owned(), ask)).map_err(str::to_owned);
            assert_eq!(question, expected);
        };
        let schema = json!({ "type": "object" });
        check(
            "elicitation/create",
            json!({ "message": "Who?", "requestedSchema": schema }),
            Ok(("Who?", Ask::Form { schema })),
        );
        check(
            "elicitation/create",
            json!({ "mode": "url", "message": "Go", "url": "https://a.example" }),
            Ok(("Go", Ask::Authorization { url: "https://a.example".into() })),
        );
        check("elicitation/create", json!({ "message": "Who?" }), Err("a form without its requestedSchema"));
        let turn =
            |role: &str, text: &str| json!({ "role": role, "content": { "type": "text", "text": text } });
        let sample = |max_tokens| Ask::Sample { system: Some("Be brief.".into()), max_tokens };
        check(
            "sampling/createMessage",
            json!({ "messages": [turn("user", "Hi")], "systemPrompt": "Be brief.", "maxTokens": 50 }),
            Ok(("Hi", sample(50))),
        );
        let picture = json!({ "role": "user", "content": { "type": "image", "mimeType": "image/png" } });
        check(
            "sampling/createMessage",
            json!({ "messages": [turn("user", "Hi"), turn("assistant", "Yes?"), picture],
                    "systemPrompt": "Be brief." }),
            Ok(("user: Hi\n\nassistant: Yes?\n\nuser: [image/png]", sample(MAX_TOKENS))),
        );
        check("tools/list", json!({}), Err("tools/list is nothing that can be asked here"));
    }

    #[test]
    fn answers_have_the_shape_of_what_was_asked() {
        let form = open("elicitation/create", json!({}));
        let accepted = Answer::Accept(json!({ "name": "Ada" }));
        assert_eq!(form.input(&accepted), json!({ "action": "accept", "content": { "name": "Ada" } }));
        assert_eq!(form.reply(&Answer::Decline(None)), Ok(json!({ "action": "decline" })));
        let noted = json!({ "action": "decline", "_meta": { "nuncio/note": "too dear" } });
        assert_eq!(form.reply(&Answer::decline("too dear")), Ok(noted));
        assert_eq!(form.reply(&Answer::Unavailable).unwrap_err().0, METHOD_NOT_FOUND);
        let link = open("elicitation/create", json!({ "mode": "url" }));
        assert_eq!(link.input(&accepted), json!({ "action": "accept" }));
        let sample = open("sampling/createMessage", json!({}));
        let said = sample.input(&Answer::Accept(json!({ "text": "four", "model": "m" })));
        assert_eq!(said["content"]["text"], "four");
        assert_eq!((said["model"].as_str(), said["stopReason"].as_str()), (Some("m"), Some("endTurn")));
        assert_eq!(sample.reply(&Answer::Cancel).unwrap_err().0, REJECTED);
    }
}
