//! The JSON of 0.3 over REST: the ProtoJSON of `a2a.v1`, in both directions.
//!
//! The specification of 0.3 asks for objects that are "structurally equivalent" to those of JSON-RPC. The official
//! servers and clients use the ProtoJSON of the gRPC messages instead, and read nothing else. So a request is taken in
//! both forms, and a response has this one. It differs from the JSON of JSON-RPC in a few members, and is translated
//! from it: 0.3 is not worth a second set of writers.
//!
//! A message loses `referenceTaskIds`, for which `a2a.v1` has no field.

use serde_json::{Map, Value, json};

use super::{AT, params};
use crate::a2a::{
    Dialect,
    input::{self, MalformedInput},
};

/// State names of JSON-RPC and of ProtoJSON.
const STATES: [(&str, &str); 8] = [
    ("submitted", "TASK_STATE_SUBMITTED"),
    ("working", "TASK_STATE_WORKING"),
    ("completed", "TASK_STATE_COMPLETED"),
    ("failed", "TASK_STATE_FAILED"),
    ("canceled", "TASK_STATE_CANCELLED"),
    ("input-required", "TASK_STATE_INPUT_REQUIRED"),
    ("rejected", "TASK_STATE_REJECTED"),
    ("auth-required", "TASK_STATE_AUTH_REQUIRED"),
];

/// Role names of JSON-RPC and of ProtoJSON, and the number that ProtoJSON takes, too.
const ROLES: [(&str, &str, i64); 2] = [("user", "ROLE_USER", 1), ("agent", "ROLE_AGENT", 2)];

type Members = Map<String, Value>;

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
            Some(value) => crate::json::value(out, &result(value, wrapped)),
        }
    }
}

fn result(value: Value, wrapped: bool) -> Value {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(items) => {
            let configs: Vec<Value> = items.into_iter().map(|item| result(item, false)).collect();
            return json!({ "configs": configs });
        }
        _ => return json!({}),
    };
    let kind = members.get("kind").and_then(Value::as_str).map(str::to_owned);
    let (name, members) = match kind.as_deref() {
        Some("task") => ("task", task(members)),
        Some("message") => ("message", message(members)),
        Some("status-update") => ("statusUpdate", status_update(members)),
        Some("artifact-update") => ("artifactUpdate", artifact_update(members)),
        _ if members.contains_key("pushNotificationConfig") => return Value::Object(webhook(members)),
        _ => return Value::Object(members),
    };
    if wrapped { json!({ name: members }) } else { Value::Object(members) }
}

/// The members of those names. Official clients refuse a member that they do not know.
fn pick(mut members: Members, names: &[&str]) -> Members {
    members.retain(|name, _| names.contains(&name.as_str()));
    members
}

fn change(members: &mut Members, name: &str, change: impl FnOnce(Members) -> Members) {
    if let Some(Value::Object(inner)) = members.get_mut(name) {
        *inner = change(std::mem::take(inner));
    }
}

fn change_each(members: &mut Members, name: &str, change: fn(Members) -> Members) {
    for item in members.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(inner) = item {
            *inner = change(std::mem::take(inner));
        }
    }
}

fn task(members: Members) -> Members {
    let mut task = pick(members, &["id", "contextId", "status", "artifacts", "history", "metadata"]);
    change(&mut task, "status", status);
    change_each(&mut task, "artifacts", artifact);
    change_each(&mut task, "history", message);
    task
}

fn status(members: Members) -> Members {
    let mut status = pick(members, &["state", "message", "timestamp"]);
    if let Some(Value::String(state)) = status.get_mut("state")
        && let Some((_, name)) = STATES.iter().find(|(plain, _)| plain == state)
    {
        *state = (*name).to_owned();
    }
    change(&mut status, "message", message);
    status
}

fn message(mut members: Members) -> Members {
    if let Some(Value::String(role)) = members.get_mut("role")
        && let Some((_, name, _)) = ROLES.iter().find(|(plain, ..)| plain == role)
    {
        *role = (*name).to_owned();
    }
    change_each(&mut members, "parts", part);
    if let Some(parts) = members.shift_remove("parts") {
        members.insert("content".to_owned(), parts);
    }
    pick(members, &["messageId", "contextId", "taskId", "role", "content", "metadata", "extensions"])
}

fn artifact(members: Members) -> Members {
    let names = ["artifactId", "name", "description", "parts", "metadata", "extensions"];
    let mut artifact = pick(members, &names);
    change_each(&mut artifact, "parts", part);
    artifact
}

fn part(mut members: Members) -> Members {
    change(&mut members, "file", |mut file| {
        for (plain, proto) in [("uri", "fileWithUri"), ("bytes", "fileWithBytes")] {
            if let Some(value) = file.shift_remove(plain) {
                file.insert(proto.to_owned(), value);
            }
        }
        file
    });
    if let Some(data) = members.get_mut("data") {
        *data = json!({ "data": data.take() });
    }
    pick(members, &["text", "file", "data", "metadata"])
}

fn status_update(members: Members) -> Members {
    let mut update = pick(members, &["taskId", "contextId", "status", "final", "metadata"]);
    change(&mut update, "status", status);
    update
}

fn artifact_update(members: Members) -> Members {
    let names = ["taskId", "contextId", "artifact", "append", "lastChunk", "metadata"];
    let mut update = pick(members, &names);
    change(&mut update, "artifact", artifact);
    update
}

fn webhook(mut members: Members) -> Members {
    let task = members.get("taskId").and_then(Value::as_str).unwrap_or_default();
    let id = members["pushNotificationConfig"]["id"].as_str().unwrap_or_default();
    let name = format!("tasks/{task}/pushNotificationConfigs/{id}");
    members.insert("name".to_owned(), name.into());
    pick(members, &["name", "pushNotificationConfig"])
}

/// A card as a message of `a2a.v1`: its security schemes are named by a member, its requirements are wrapped.
pub(in crate::a2a) fn card(json: &[u8]) -> Option<Value> {
    let mut card: Value = serde_json::from_slice(json).ok()?;
    requirements(&mut card);
    for skill in card.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten() {
        requirements(skill);
    }
    if let Some(Value::Object(schemes)) = card.get_mut("securitySchemes") {
        for scheme in schemes.values_mut() {
            let name = match scheme["type"].as_str() {
                Some("apiKey") => "apiKeySecurityScheme",
                Some("oauth2") => "oauth2SecurityScheme",
                Some("openIdConnect") => "openIdConnectSecurityScheme",
                Some("mutualTLS") => "mtlsSecurityScheme",
                _ => "httpAuthSecurityScheme",
            };
            *scheme = json!({ name: scheme.take() });
        }
    }
    Some(card)
}

/// `[{"bearer": ["a"]}]` as `[{"schemes": {"bearer": {"list": ["a"]}}}]`.
fn requirements(of: &mut Value) {
    for requirement in of.get_mut("security").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(schemes) = requirement {
            let wrapped =
                schemes.iter_mut().map(|(name, scopes)| (name.clone(), json!({ "list": scopes.take() })));
            *requirement = json!({ "schemes": wrapped.collect::<Members>() });
        }
    }
}

// Requests.

/// The params of `message/send` from the body of a request in either form.
pub(super) fn read_send(body: &str) -> Result<String, MalformedInput> {
    let mut request: Members = input::parse(params::ROOT, body)?;
    rename(&mut request, "request", "message");
    let mut proto = false;
    change(&mut request, "message", |mut message| {
        proto = message.contains_key("content");
        rename(&mut message, "content", "parts");
        if let Some(role) = message.get_mut("role") {
            let named = ROLES.iter().find(|(_, name, number)| *role == **name || *role == *number);
            if let Some((plain, ..)) = named {
                *role = (*plain).into();
            }
        }
        change_each(&mut message, "parts", read_part);
        message
    });
    change(&mut request, "configuration", |mut configuration| {
        rename(&mut configuration, "pushNotification", "pushNotificationConfig");
        rename(&mut configuration, "push_notification", "pushNotificationConfig");
        configuration
    });
    if proto {
        // In ProtoJSON absence is the default: `blocking: false` is not written.
        let configuration = request.entry("configuration").or_insert_with(|| json!({}));
        if let Value::Object(configuration) = configuration {
            configuration.entry("blocking").or_insert(Value::Bool(false));
        }
    }
    Ok(Value::Object(request).to_string())
}

fn read_part(mut part: Members) -> Members {
    change(&mut part, "file", |mut file| {
        for (proto, plain) in [
            ("fileWithUri", "uri"),
            ("file_with_uri", "uri"),
            ("fileWithBytes", "bytes"),
            ("file_with_bytes", "bytes"),
        ] {
            // An empty text is absence where its alternative is present.
            if file.get(proto).is_some_and(|value| value != "") {
                rename(&mut file, proto, plain);
            }
        }
        file
    });
    let wrapped = |data: &Value| {
        data.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("data"))
    };
    if !part.contains_key("kind") && part.get("data").is_some_and(wrapped) {
        let inner = part["data"]["data"].take();
        part.insert("data".to_owned(), inner);
    }
    part
}

/// The webhook alone, as an object, from the body of a request: `{config: {pushNotificationConfig}}`, what the
/// specification and the Python client write, or `{pushNotificationConfig}`, what the JavaScript client writes.
pub(super) fn read_webhook(body: &str) -> Result<String, MalformedInput> {
    let mut request: Members = input::parse(params::ROOT, body)?;
    rename(&mut request, "config_id", "configId");
    let id = request.shift_remove("configId");
    if let Some(Value::Object(config)) = request.shift_remove("config") {
        request = config;
    }
    rename(&mut request, "push_notification_config", "pushNotificationConfig");
    let Some(Value::Object(mut webhook)) = request.shift_remove("pushNotificationConfig") else {
        return Err(AT.member("pushNotificationConfig").malformed("expected an object"));
    };
    let has_id = webhook.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
    if let Some(id) = id.filter(|_| !has_id) {
        webhook.insert("id".to_owned(), id);
    }
    // ProtoJSON writes an empty object for what is not set.
    let unset = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if webhook.get("authentication").is_some_and(unset) {
        webhook.shift_remove("authentication");
    }
    Ok(Value::Object(webhook).to_string())
}

/// Renames a member, unless there is one of the new name.
fn rename(members: &mut Members, from: &str, to: &str) {
    if !members.contains_key(to)
        && let Some(value) = members.shift_remove(from)
    {
        members.insert(to.to_owned(), value);
    }
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

    #[test]
    fn a_card_says_its_security_as_the_proto_file_does() {
        let plain = json!({
            "name": "a",
            "securitySchemes": { "bearer": { "type": "http", "scheme": "Bearer" }, "tls": { "type": "mutualTLS" } },
            "security": [{ "bearer": [] }, { "tls": [] }],
            "skills": [{ "id": "s", "security": [{ "bearer": ["x"] }] }],
        });
        let proto = card(plain.to_string().as_bytes()).unwrap();
        assert_eq!(proto["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
        assert!(proto["securitySchemes"]["tls"].get("mtlsSecurityScheme").is_some());
        assert_eq!(proto["security"][0], json!({ "schemes": { "bearer": { "list": [] } } }));
        assert_eq!(proto["skills"][0]["security"], json!([{ "schemes": { "bearer": { "list": ["x"] } } }]));
    }

    /// 1.0 has one JSON for all bindings.
    #[test]
    fn results_of_1_0_are_as_they_are() {
        let mut out = vec![];
        Dialect::V1.write_rest_result(&mut out, b"{\"task\": 1 }", true);
        assert_eq!(out, b"{\"task\": 1 }");
    }
}
