//! A question to a client as the client reads it: elicitation, sampling and roots, and the result that each expects.
//!
//! Up to 2025-11-25 it is a request of the server; in 2026-07-28 it is a member of `inputRequests`, in a result or in
//! a task. The method and the params are the same.

use nuncio_engine::question::{Answer, Ask};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{NOTE, QUESTION, notification::related_task, question::REJECTED};
use crate::jsonrpc::METHOD_NOT_FOUND;

/// Tokens of a sample if the server names no limit.
const MAX_TOKENS: u32 = 1024;

const ELICITATION: &str = "elicitation/create";
const SAMPLING: &str = "sampling/createMessage";

/// A question to a client, with its params as received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    /// The MCP method.
    pub method: String,
    /// The params of that method, unparsed.
    pub params: Value,
}

impl InputRequest {
    /// Reads `inputRequests`: the questions by their keys. `None`: it is not an object.
    pub(super) fn read_all(requests: Value) -> Option<Vec<(String, Self)>> {
        let Value::Object(requests) = requests else { return None };
        let read = |mut request: Value| Self {
            method: request["method"].as_str().unwrap_or_default().to_owned(),
            params: request.get_mut("params").map(Value::take).unwrap_or_default(),
        };
        Some(requests.into_iter().map(|(key, request)| (key, read(request))).collect())
    }

    /// Reads a link of an error that requires to visit it (2025-11-25). The error is a link that is no object.
    pub(super) fn read_link(mut params: Value) -> Result<Self, Value> {
        let Some(members) = params.as_object_mut() else { return Err(params) };
        members.insert("mode".into(), "url".into());
        Ok(Self { method: ELICITATION.into(), params })
    }

    /// Whether it asks for the client's root folders.
    pub fn asks_for_roots(&self) -> bool {
        self.method == "roots/list"
    }

    /// The result for a client without root folders.
    pub fn no_roots() -> Value {
        json!({ "roots": [] })
    }

    /// The server's name of the question, which stays the same when it repeats it under another request id.
    pub fn name(&self) -> Option<&str> {
        self.params["_meta"][QUESTION].as_str()
    }

    /// The task that it belongs to (2025-11-25).
    pub fn related_task(&self) -> Option<&str> {
        related_task(&self.params)
    }

    /// The id of the elicitation.
    pub fn elicitation_id(&self) -> &Value {
        &self.params["elicitationId"]
    }

    /// Whether it sends the user to a URL.
    pub fn is_link(&self) -> bool {
        self.params["mode"] == "url"
    }

    /// Whether it asks the same, by its content.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let members = ["message", "requestedSchema", "url", "messages", "systemPrompt", "maxTokens"];
        let same = |member: &&str| self.params.get(member) == other.params.get(member);
        self.method == other.method && members.iter().all(same)
    }

    /// The text and the kind of the question. The error says why it cannot be shown.
    pub fn read_question(&self) -> Result<(String, Ask), String> {
        let params = &self.params;
        let message = || params["message"].as_str().unwrap_or_default().to_owned();
        match self.method.as_str() {
            ELICITATION if self.is_link() => {
                let url = params["url"].as_str().ok_or("a link without its url")?;
                Ok((message(), Ask::Authorization { url: url.to_owned() }))
            }
            ELICITATION => {
                let schema = params.get("requestedSchema").filter(|schema| schema.is_object());
                let schema = schema.ok_or("a form without its requestedSchema")?.clone();
                Ok((message(), Ask::Form { schema }))
            }
            SAMPLING => {
                let messages = params["messages"].as_array().ok_or("a sample without messages")?;
                let system = params["systemPrompt"].as_str().map(str::to_owned);
                let max = params["maxTokens"].as_u64().and_then(|max| u32::try_from(max).ok());
                Ok((conversation(messages), Ask::Sample { system, max_tokens: max.unwrap_or(MAX_TOKENS) }))
            }
            other => Err(format!("{other} is nothing that can be asked here")),
        }
    }

    /// Writes the response to a request: a result, or an error code and text.
    pub fn write_reply(&self, answer: &Answer) -> Result<Value, (i32, String)> {
        match answer {
            Answer::Unavailable => Err((METHOD_NOT_FOUND, "no user is available to answer".to_owned())),
            Answer::Decline(_) | Answer::Cancel if self.method == SAMPLING => {
                let note = answer.note().map(|note| format!(": {note}")).unwrap_or_default();
                Err((REJECTED, format!("the request for a sample was turned down{note}")))
            }
            _ => Ok(self.write_result(answer)),
        }
    }

    /// Writes the answer where only results are accepted. [`Answer::Unavailable`] has no such form; the caller
    /// handles it before.
    pub fn write_result(&self, answer: &Answer) -> Value {
        match answer {
            Answer::Accept(data) if self.method == SAMPLING => json!({
                "role": "assistant",
                "content": { "type": "text", "text": answer.text().unwrap_or_default() },
                "model": data["model"].as_str().unwrap_or("unknown"),
                "stopReason": data["stopReason"].as_str().unwrap_or("endTurn"),
            }),
            Answer::Accept(_) if self.is_link() => json!({ "action": "accept" }),
            Answer::Accept(data) => json!({ "action": "accept", "content": data }),
            Answer::Decline(None) => json!({ "action": "decline" }),
            Answer::Decline(Some(note)) => json!({ "action": "decline", "_meta": { NOTE: note } }),
            Answer::Cancel | Answer::Unavailable => json!({ "action": "cancel" }),
        }
    }

    /// Writes that the user has visited the link.
    pub fn write_visited() -> Value {
        json!({ "action": "accept" })
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

    fn request(method: &str, params: Value) -> InputRequest {
        InputRequest { method: method.into(), params }
    }

    #[test]
    fn what_a_server_asks_is_a_question() {
        let check = |method: &str, params: Value, expected: Result<(&str, Ask), &str>| {
            let expected = expected.map(|(text, ask)| (text.to_owned(), ask)).map_err(str::to_owned);
            assert_eq!(request(method, params).read_question(), expected);
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
        check("elicitation/create", json!(["mode", "url"]), Err("a form without its requestedSchema"));
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
                    "systemPrompt": "Be brief.", "maxTokens": "many" }),
            Ok(("user: Hi\n\nassistant: Yes?\n\nuser: [image/png]", sample(MAX_TOKENS))),
        );
        check("tools/list", json!({}), Err("tools/list is nothing that can be asked here"));
    }

    #[test]
    fn answers_have_the_shape_of_what_was_asked() {
        let form = request("elicitation/create", json!({}));
        let accepted = Answer::Accept(json!({ "name": "Ada" }));
        assert_eq!(form.write_result(&accepted), json!({ "action": "accept", "content": { "name": "Ada" } }));
        assert_eq!(form.write_reply(&Answer::Decline(None)), Ok(json!({ "action": "decline" })));
        let noted = json!({ "action": "decline", "_meta": { "nuncio/note": "too dear" } });
        assert_eq!(form.write_reply(&Answer::decline("too dear")), Ok(noted));
        assert_eq!(form.write_reply(&Answer::Unavailable).unwrap_err().0, METHOD_NOT_FOUND);
        let link = request("elicitation/create", json!({ "mode": "url" }));
        assert_eq!(link.write_result(&accepted), json!({ "action": "accept" }));
        let sample = request("sampling/createMessage", json!({}));
        let said = sample.write_result(&Answer::Accept(json!({ "text": "four", "model": "m" })));
        assert_eq!(said["content"]["text"], "four");
        assert_eq!((said["model"].as_str(), said["stopReason"].as_str()), (Some("m"), Some("endTurn")));
        assert_eq!(sample.write_reply(&Answer::Cancel).unwrap_err().0, REJECTED);
    }
}
