//! Results and events.

use serde_json::{Value, json, value::RawValue};

use super::{
    Members, STATES, Translation, card, change, change_each,
    message::{read_artifact, read_said, write_artifact, write_message},
    pick, read_name, rename,
    request::{read_webhook, read_webhook_name, webhook_name},
    tagged, write_name,
};
use crate::a2a::{
    Dialect,
    call::A2aCall,
    input::{self, JsonPath, MalformedInput},
};

/// The root of paths in a result, as in the other bindings.
const ROOT: &str = "result";

impl Dialect {
    /// Writes a result or an event as REST has it. `json` is what the dialect wrote. `wrapped`: the member names the
    /// type of the value, as in the response to a message and in a stream.
    pub fn write_rest_result(self, out: &mut Vec<u8>, json: &[u8], wrapped: bool) {
        let value = match self {
            Self::V1 => None,
            Self::V0_1 | Self::V0_3 => serde_json::from_slice(json).ok(),
        };
        match value {
            None => out.extend_from_slice(json),
            Some(value) => crate::json::value(out, &write_result(value, wrapped)),
        }
    }

    /// The result of a call over REST or gRPC, as JSON-RPC has it. 1.0 has one JSON for all bindings.
    pub fn read_rest_result(
        self,
        call: &A2aCall,
        json: Box<RawValue>,
    ) -> Result<Box<RawValue>, MalformedInput> {
        if self >= Self::V1 {
            return Ok(json);
        }
        let value = input::parse(ROOT, json.get())?;
        as_raw(&match call {
            A2aCall::Send(_) | A2aCall::Stream(_) | A2aCall::Subscribe { .. } => read_event(value)?,
            A2aCall::Get { .. } | A2aCall::Cancel { .. } => read_one(value, read_task)?,
            A2aCall::SetWebhook { task, .. } | A2aCall::GetWebhook { task, .. } => {
                read_one(value, |webhook| read_named_webhook(webhook, task))?
            }
            A2aCall::ListWebhooks { task, .. } => read_webhooks(value, task)?,
            A2aCall::ExtendedCard => card::read_card(value),
            A2aCall::DeleteWebhook { .. } | A2aCall::List(_) => value,
        })
    }

    /// An event of a stream over REST or gRPC, as JSON-RPC has it.
    pub fn read_rest_event(self, json: Box<RawValue>) -> Result<Box<RawValue>, MalformedInput> {
        if self >= Self::V1 {
            return Ok(json);
        }
        as_raw(&read_event(input::parse(ROOT, json.get())?)?)
    }
}

fn as_raw(value: &Value) -> Result<Box<RawValue>, MalformedInput> {
    serde_json::value::to_raw_value(value).map_err(|error| malformed(error.to_string()))
}

fn malformed(problem: impl Into<String>) -> MalformedInput {
    JsonPath::Root(ROOT).malformed(problem)
}

fn write_result(value: Value, wrapped: bool) -> Value {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(items) => {
            let configs: Vec<Value> = items.into_iter().map(|item| write_result(item, false)).collect();
            return json!({ "configs": configs });
        }
        _ => return json!({}),
    };
    let kind = members.get("kind").and_then(Value::as_str).map(str::to_owned);
    let (name, members) = match kind.as_deref() {
        Some("task") => ("task", write_task(members)),
        Some("message") => ("message", write_message(members)),
        Some("status-update") => ("statusUpdate", write_status_update(members)),
        Some("artifact-update") => ("artifactUpdate", write_artifact_update(members)),
        _ if members.contains_key("pushNotificationConfig") => return Value::Object(write_webhook(members)),
        _ => return Value::Object(members),
    };
    if wrapped { json!({ name: members }) } else { Value::Object(members) }
}

/// Reads an object; one with a `kind` has the form of JSON-RPC already.
fn read_one(value: Value, read: impl FnOnce(Members) -> Members) -> Result<Value, MalformedInput> {
    match value {
        Value::Object(members) if members.contains_key("kind") => Ok(Value::Object(members)),
        Value::Object(members) => Ok(Value::Object(read(members))),
        _ => Err(malformed("expected an object")),
    }
}

/// Reads what a member names: the response to a message, or an item of a stream.
fn read_event(value: Value) -> Result<Value, MalformedInput> {
    const PAYLOADS: [(&str, Translation); 6] = [
        ("task", read_task),
        ("message", read_said),
        // The name of the field, which readers of ProtoJSON take, too.
        ("msg", read_said),
        ("statusUpdate", read_status_update),
        ("status_update", read_status_update),
        ("artifactUpdate", read_artifact_update),
    ];
    let Value::Object(mut members) = value else { return Err(malformed("expected an object")) };
    if members.contains_key("kind") {
        return Ok(Value::Object(members));
    }
    rename(&mut members, "artifact_update", "artifactUpdate");
    for (name, read) in PAYLOADS {
        if let Some(Value::Object(payload)) = members.shift_remove(name) {
            return Ok(Value::Object(read(payload)));
        }
    }
    Err(malformed("expected one of task, message, statusUpdate, artifactUpdate"))
}

fn write_task(members: Members) -> Members {
    let mut task = pick(members, &["id", "contextId", "status", "artifacts", "history", "metadata"]);
    change(&mut task, "status", write_status);
    change_each(&mut task, "artifacts", write_artifact);
    change_each(&mut task, "history", write_message);
    task
}

fn read_task(mut task: Members) -> Members {
    change(&mut task, "status", read_status);
    change_each(&mut task, "artifacts", read_artifact);
    change_each(&mut task, "history", read_said);
    tagged("task", task)
}

fn write_status(members: Members) -> Members {
    let mut status = pick(members, &["state", "message", "timestamp"]);
    write_name(&mut status, "state", &STATES);
    change(&mut status, "message", write_message);
    status
}

fn read_status(mut status: Members) -> Members {
    // In ProtoJSON absence is the default.
    status.entry("state").or_insert_with(|| 0.into());
    read_name(&mut status, "state", &STATES);
    rename(&mut status, "update", "message");
    change(&mut status, "message", read_said);
    status
}

fn write_status_update(members: Members) -> Members {
    let mut update = pick(members, &["taskId", "contextId", "status", "final", "metadata"]);
    change(&mut update, "status", write_status);
    update
}

fn read_status_update(mut update: Members) -> Members {
    change(&mut update, "status", read_status);
    update.entry("final").or_insert(Value::Bool(false));
    tagged("status-update", update)
}

fn write_artifact_update(members: Members) -> Members {
    let names = ["taskId", "contextId", "artifact", "append", "lastChunk", "metadata"];
    let mut update = pick(members, &names);
    change(&mut update, "artifact", write_artifact);
    update
}

fn read_artifact_update(mut update: Members) -> Members {
    change(&mut update, "artifact", read_artifact);
    tagged("artifact-update", update)
}

/// A webhook under its name.
pub(super) fn write_webhook(mut members: Members) -> Members {
    let task = members.get("taskId").and_then(Value::as_str).unwrap_or_default();
    let config = members.get("pushNotificationConfig");
    let id = config.and_then(|config| config["id"].as_str()).unwrap_or_default();
    let name = webhook_name(task, Some(id));
    members.insert("name".to_owned(), name.into());
    pick(members, &["name", "pushNotificationConfig"])
}

/// A webhook beside the id of its task: the one in its name, or that of the call.
fn read_named_webhook(mut members: Members, task: &str) -> Members {
    if members.contains_key("taskId") {
        return members;
    }
    rename(&mut members, "push_notification_config", "pushNotificationConfig");
    let name = members.shift_remove("name");
    let named = name.as_ref().and_then(Value::as_str).and_then(read_webhook_name);
    let (task, id) = named.unwrap_or_else(|| (task.to_owned(), String::new()));
    change(&mut members, "pushNotificationConfig", |webhook| {
        let mut webhook = read_webhook(webhook);
        if !id.is_empty() {
            webhook.entry("id").or_insert_with(|| id.into());
        }
        webhook
    });
    let mut out = Members::from_iter([("taskId".to_owned(), task.into())]);
    out.extend(members);
    out
}

/// A list of webhooks; with the token of the next page, if there is one, which JSON-RPC has no place for.
fn read_webhooks(value: Value, task: &str) -> Result<Value, MalformedInput> {
    let (items, next) = match value {
        Value::Array(items) => (items, None),
        Value::Object(mut page) => {
            rename(&mut page, "next_page_token", "nextPageToken");
            let next = page.shift_remove("nextPageToken").filter(|next| *next != "");
            let items = match page.shift_remove("configs") {
                Some(Value::Array(items)) => items,
                None => vec![],
                Some(_) => return Err(JsonPath::Root(ROOT).member("configs").malformed("expected a list")),
            };
            (items, next)
        }
        _ => return Err(malformed("expected an object")),
    };
    let read = |item| read_one(item, |webhook| read_named_webhook(webhook, task));
    let items = items.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(match next {
        None => items.into(),
        Some(next) => json!({ "configs": items, "nextPageToken": next }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(plain: &Value, wrapped: bool, proto: &Value) {
        let mut out = vec![];
        Dialect::V0_3.write_rest_result(&mut out, plain.to_string().as_bytes(), wrapped);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), *proto);
    }

    #[test]
    fn results_have_the_members_of_the_proto_file_and_no_others() {
        let said = json!({
            "kind": "message", "messageId": "m", "role": "agent", "referenceTaskIds": ["t"], "extensions": ["urn:x"],
            "parts": [{ "kind": "text", "text": "hello" }],
        });
        let message = json!({
            "messageId": "m", "role": "ROLE_AGENT", "extensions": ["urn:x"], "content": [{ "text": "hello" }],
        });
        check(&said, true, &json!({ "message": message }));
        let status = json!({ "state": "canceled", "message": said, "timestamp": "T" });
        let proto = json!({ "state": "TASK_STATE_CANCELLED", "message": message, "timestamp": "T" });
        let task = json!({ "kind": "task", "id": "t", "contextId": "c", "status": status });
        check(&task, false, &json!({ "id": "t", "contextId": "c", "status": proto }));
        check(&task, true, &json!({ "task": { "id": "t", "contextId": "c", "status": proto } }));
        check(&Value::Null, false, &json!({}));
    }

    /// 1.0 has one JSON for all bindings.
    #[test]
    fn results_of_1_0_are_as_they_are() {
        let mut out = vec![];
        Dialect::V1.write_rest_result(&mut out, b"{\"task\": 1 }", true);
        assert_eq!(out, b"{\"task\": 1 }");
    }
}
