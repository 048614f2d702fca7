//! The protocol's schemas of what is small enough to write down: everything that the server says in these tests
//! is held against them. Written from the specification, not from the code.

use serde_json::{Value, json};

use super::{RELATED, SUBSCRIPTION, V2025, V2026};

/// Holds a message of the server against the schemas of its revision.
pub(super) fn check_message(version: &str, message: &Value) {
    let envelope = json!({
        "type": "object",
        "required": ["jsonrpc"],
        "properties": { "jsonrpc": { "const": "2.0" }, "id": { "type": ["string", "integer", "null"] } },
        "oneOf": [
            { "required": ["method", "id"], "properties": { "id": { "type": ["string", "integer"] } } },
            { "required": ["method"], "not": { "required": ["id"] } },
            { "required": ["id", "result"], "not": { "required": ["error"] } },
            { "required": ["id", "error"], "not": { "required": ["result"] } },
        ],
    });
    hold("an envelope", &envelope, message);
    if let Some(error) = message.get("error") {
        hold("an error", &fault(), error);
    }
    let Some(method) = message["method"].as_str() else { return };
    // No revision without sessions lets the server ask.
    assert!(version != V2026 || message.get("id").is_none(), "a request in {version}: {message}");
    hold(method, &of_method(version, method), &message["params"]);
    if let Some(meta) = message["params"].get("_meta") {
        let related = json!({ "type": "object", "required": ["taskId"], "properties": text("taskId") });
        let known = json!({ "properties": { RELATED: related, SUBSCRIPTION: token() } });
        hold("_meta", &known, meta);
    }
}

/// Holds a result against the schema of its method.
pub(super) fn check_result(version: &str, method: &str, result: &Value) {
    let stateless = version == V2026;
    assert_eq!(result.get("resultType").is_some(), stateless, "resultType is of {V2026} alone: {result}");
    let kind = result["resultType"].as_str().unwrap_or("complete");
    let schema = match (method, kind) {
        (_, "input_required") => input_required(version),
        ("tools/call", "task") => task(version),
        ("tools/call", _) if result.get("task").is_some() => {
            json!({ "required": ["task"], "properties": { "task": task(version) } })
        }
        ("tools/call" | "tasks/result", _) => call_result(version),
        ("tasks/get", _) => task(version),
        ("tasks/cancel", _) if !stateless => task(version),
        ("tasks/update" | "tasks/cancel" | "ping" | "logging/setLevel" | "resources/subscribe", _) => {
            // An acknowledgement, and nothing else.
            json!({ "additionalProperties": false, "properties": { "resultType": {}, "_meta": {} } })
        }
        ("tasks/list", _) => {
            json!({ "required": ["tasks"], "properties": { "tasks": { "items": task(version) } } })
        }
        ("tools/list", _) => {
            json!({ "required": ["tools"], "properties": { "tools": { "items": tool(version) } } })
        }
        ("resources/read", _) => contents(stateless),
        ("initialize", _) => json!({
            "required": ["protocolVersion", "capabilities", "serverInfo"],
            "properties": { "serverInfo": { "required": ["name", "version"] } },
        }),
        ("server/discover", _) => json!({
            "required": ["supportedVersions", "capabilities", "ttlMs", "cacheScope"],
        }),
        _ => json!({ "type": "object" }),
    };
    hold(&format!("the result of {method} in {version}"), &schema, result);
}

fn of_method(version: &str, method: &str) -> Value {
    match method {
        "notifications/progress" => json!({
            "type": "object",
            "required": ["progress", "progressToken"],
            "properties": {
                "progressToken": token(),
                "progress": { "type": "number" },
                "total": { "type": "number" },
                "message": { "type": "string" },
            },
        }),
        "notifications/message" => json!({
            "type": "object",
            "required": ["data", "level"],
            "properties": {
                "level": { "enum": [
                    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
                ] },
                "logger": { "type": "string" },
            },
        }),
        "notifications/resources/updated" => {
            json!({ "type": "object", "required": ["uri"], "properties": text("uri") })
        }
        "notifications/tasks" => task(version),
        "notifications/dev.nuncio/event" => json!({
            "type": "object",
            "required": ["taskId", "seq", "event", "_meta"],
            "properties": {
                "seq": { "type": "integer" },
                "event": { "type": "object", "minProperties": 1, "maxProperties": 1 },
                "_meta": { "required": [if version == V2026 { SUBSCRIPTION } else { RELATED }] },
            },
        }),
        "notifications/subscriptions/acknowledged" => json!({
            "type": "object",
            "required": ["notifications", "_meta"],
            "properties": { "notifications": { "type": "object" }, "_meta": { "required": [SUBSCRIPTION] } },
        }),
        // Only to end a subscription.
        "notifications/cancelled" => {
            assert_eq!(version, V2026, "a server cancels nothing in {version}");
            json!({
                "type": "object",
                "required": ["requestId"],
                "properties": { "requestId": token(), "_meta": { "required": [SUBSCRIPTION] } },
            })
        }
        "notifications/tools/list_changed"
        | "notifications/prompts/list_changed"
        | "notifications/resources/list_changed" => json!({ "type": "object" }),
        "elicitation/create" => form(version),
        "sampling/createMessage" => sample(),
        other => panic!("a message of a method that these tests do not expect: {other}"),
    }
}

fn fault() -> Value {
    json!({
        "type": "object",
        "required": ["code", "message"],
        "properties": { "code": { "type": "integer" }, "message": { "type": "string", "minLength": 10 } },
    })
}

/// A task: of 2025-11-25, or of the extension with what belongs to its status.
fn task(version: &str) -> Value {
    let stateless = version == V2026;
    assert!(stateless || version == V2025, "there are no tasks in {version}");
    let (ttl, poll) = if stateless { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
    let mut schema = json!({
        "type": "object",
        "required": ["taskId", "status", "createdAt", "lastUpdatedAt", ttl],
        "properties": {
            "taskId": { "type": "string" },
            "status": { "enum": ["working", "input_required", "completed", "failed", "cancelled"] },
            "statusMessage": { "type": "string" },
            "createdAt": { "type": "string", "pattern": TIME },
            "lastUpdatedAt": { "type": "string", "pattern": TIME },
            ttl: { "type": ["integer", "null"] },
            poll: { "type": "integer" },
        },
    });
    if stateless {
        let questions =
            json!({ "type": "object", "minProperties": 1, "additionalProperties": asked(version) });
        // Without its own `resultType`: that is of the message around it.
        let mut result = call_result(version);
        result["required"] = json!(["content"]);
        schema["properties"]["inputRequests"] = questions;
        schema["properties"]["result"] = result;
        schema["properties"]["error"] = fault();
    }
    schema
}

const TIME: &str = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$";

fn call_result(version: &str) -> Value {
    let mut kinds = vec!["text", "image", "resource"];
    if version >= "2025-03-26" {
        kinds.push("audio");
    }
    if version >= "2025-06-18" {
        kinds.push("resource_link");
    }
    let mut schema = json!({
        "type": "object",
        "required": ["content"],
        "properties": {
            "content": { "type": "array", "items": {
                "type": "object",
                "required": ["type"],
                "properties": { "type": { "enum": kinds } },
                "if": { "properties": { "type": { "const": "text" } } },
                "then": { "required": ["text"] },
            } },
            "isError": { "type": "boolean" },
            "structuredContent": version >= "2025-06-18",
        },
    });
    if version == V2026 {
        schema["required"] = json!(["content", "resultType"]);
    }
    schema
}

fn input_required(version: &str) -> Value {
    json!({
        "type": "object",
        "required": ["resultType", "requestState"],
        "properties": {
            "requestState": { "type": "string", "minLength": 1 },
            "inputRequests": { "type": "object", "additionalProperties": asked(version) },
        },
    })
}

/// A question as it stands in `inputRequests`: no message of its own.
fn asked(version: &str) -> Value {
    json!({
        "type": "object",
        "required": ["method", "params"],
        "additionalProperties": false,
        "properties": { "method": { "type": "string" }, "params": {} },
        "if": { "properties": { "method": { "const": "elicitation/create" } } },
        "then": { "properties": { "params": form(version) } },
        "else": { "properties": { "params": sample() } },
    })
}

fn form(version: &str) -> Value {
    assert!(version >= "2025-06-18", "there is no elicitation in {version}");
    json!({
        "type": "object",
        "required": ["message", "requestedSchema"],
        "properties": {
            "message": { "type": "string" },
            "mode": if version >= V2025 { json!({ "const": "form" }) } else { json!(false) },
            "requestedSchema": {
                "required": ["type", "properties"],
                "properties": { "type": { "const": "object" }, "properties": { "type": "object" } },
            },
        },
    })
}

fn sample() -> Value {
    json!({
        "type": "object",
        "required": ["messages", "maxTokens"],
        "properties": {
            "messages": { "type": "array", "minItems": 1, "items": {
                "required": ["role", "content"],
                "properties": { "role": { "enum": ["user", "assistant"] } },
            } },
            "maxTokens": { "type": "integer" },
            "systemPrompt": { "type": "string" },
        },
    })
}

fn tool(version: &str) -> Value {
    let of = |oldest: &str| if version >= oldest { json!(true) } else { json!(false) };
    json!({
        "type": "object",
        "required": ["name", "inputSchema"],
        "properties": {
            "name": { "type": "string" },
            "inputSchema": { "required": ["type"], "properties": { "type": { "const": "object" } } },
            "title": of("2025-06-18"),
            "outputSchema": of("2025-06-18"),
            "annotations": of("2025-03-26"),
            "execution": if version == V2025 {
                json!({ "properties": { "taskSupport": { "enum": ["forbidden", "optional", "required"] } } })
            } else {
                json!(false)
            },
        },
    })
}

fn contents(stateless: bool) -> Value {
    let required: &[&str] = if stateless { &["contents", "ttlMs", "cacheScope"] } else { &["contents"] };
    let one = json!({ "type": "object", "required": ["uri"], "properties": text("uri") });
    json!({ "required": required, "properties": { "contents": { "type": "array", "items": one } } })
}

fn token() -> Value {
    json!({ "type": ["string", "integer"] })
}

fn text(name: &str) -> Value {
    json!({ name: { "type": "string" } })
}

fn hold(what: &str, schema: &Value, value: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Some(error) = validator.iter_errors(value).next() {
        panic!("{what}: {error} at {:?}: {value}", error.instance_path().to_string());
    }
}
