//! The input schema of a table holds however a task is sent.

use std::fs;

use serde_json::{Value, json};

use super::{lines, rpc, until};
use crate::{http::client, server_process::ServerProcess};

const TABLES: &str = r#"
[[agent]]
name = "adds"
kind = "process"
command = ["sh", "-c", '''read line; echo "$line" >> heard; echo "{\"type\":\"done\",\"text\":\"added\"}"''']
input-schema = { type = "object", properties = { n = { type = "integer" } }, required = ["n"], additionalProperties = false }
"#;

/// The error of an answer, or "begun".
fn what(answer: &Value) -> String {
    match answer["error"]["message"].as_str() {
        Some(error) => format!("{} {error}", answer["error"]["code"]),
        None => "begun".into(),
    }
}

#[test]
fn an_input_schema_holds_in_every_dialect_with_and_without_a_stream_and_for_the_tools_of_tasks() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nuncio.toml"), TABLES).unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let url = format!("{}/agents/adds", server.url());
    let parts_1 = |value: &Value| match value {
        Value::String(text) => json!([{ "text": text }]),
        data => json!([{ "data": data, "mediaType": "application/json" }]),
    };
    let parts = |value: &Value, kind: &str| match value {
        Value::String(text) => json!([{ kind: "text", "text": text }]),
        data => json!([{ kind: "data", "data": data }]),
    };
    let id = || uuid::Uuid::now_v7().to_string();
    let send = |how: &str, value: &Value| match how {
        "1.0" => {
            let message = json!({ "messageId": id(), "role": "ROLE_USER", "parts": parts_1(value) });
            what(&rpc(&url, "SendMessage", &json!({ "message": message })))
        }
        "0.3" => {
            let message = json!({ "kind": "message", "messageId": id(), "role": "user", "parts": parts(value, "kind") });
            let params = json!({ "message": message, "configuration": { "blocking": true } });
            what(&post(&url, "message/send", &params, &[("A2A-Version", "0.3")]))
        }
        "0.1" => {
            let message = json!({ "role": "user", "parts": parts(value, "type") });
            let params = json!({ "id": id(), "message": message });
            what(&post(&url, "tasks/send", &params, &[("A2A-Version", "0.1")]))
        }
        "1.0 stream" => {
            let message = json!({ "messageId": id(), "role": "ROLE_USER", "parts": parts_1(value) });
            let params = json!({ "message": message });
            what(&post(&url, "SendStreamingMessage", &params, &[("A2A-Version", "1.0")]))
        }
        "0.3 stream" => {
            let message = json!({ "kind": "message", "messageId": id(), "role": "user", "parts": parts(value, "kind") });
            what(&post(&url, "message/stream", &json!({ "message": message }), &[("A2A-Version", "0.3")]))
        }
        "0.1 stream" => {
            let message = json!({ "role": "user", "parts": parts(value, "type") });
            let params = json!({ "id": id(), "message": message });
            what(&post(&url, "tasks/sendSubscribe", &params, &[("A2A-Version", "0.1")]))
        }
        "task_send" => {
            let mut arguments = json!({ "agent": "adds" });
            arguments[if value.is_string() { "text" } else { "data" }] = value.clone();
            tool(&server, "task_send", &arguments)
        }
        tool_of => {
            let arguments = if value.is_string() { json!({ "text": value }) } else { value.clone() };
            tool(&server, tool_of, &arguments)
        }
    };
    let dialects = ["1.0", "0.3", "0.1", "1.0 stream", "0.3 stream", "0.1 stream"];
    for how in dialects.into_iter().chain(["task_send", "adds"]) {
        let wrong = send(how, &json!({ "n": "seven" }));
        assert!(wrong.contains("/n: ") && wrong.contains("is not of type \"integer\""), "{how}: {wrong}");
        let unknown = send(how, &json!({ "n": 7, "m": 8 }));
        assert!(unknown.contains("'m' was unexpected"), "{how}: {unknown}");
        let right = send(how, &json!({ "n": 7 }));
        assert_eq!(right, "begun", "{how}");
    }
    for how in dialects.into_iter().chain(["task_send"]) {
        let spoken = send(how, &json!("add seven"));
        assert!(spoken.contains("send a data part"), "{how}: {spoken}");
        let as_json = send(how, &json!("{\"n\": 7}"));
        assert_eq!(as_json, "begun", "{how}");
    }
    // The program got the same each time, and nothing that was refused.
    let file = dir.path().join("heard");
    until("all of them have begun", || lines(&file).len() >= 15);
    let heard: Vec<Value> = lines(&file).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(heard.len(), 15);
    assert!(heard.iter().all(|input| input["data"] == json!({ "n": 7 })), "{heard:?}");
}

/// A request with these headers, and its response: the body, or the last event of a stream.
fn post(url: &str, method: &str, params: &Value, headers: &[(&str, &str)]) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut post = client().post(url).header("Content-Type", "application/json");
    for (name, value) in headers {
        post = post.header(*name, *value);
    }
    let answer = runtime.block_on(async { post.body(body).send().await.unwrap().text().await.unwrap() });
    let last = answer.lines().rev().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(last.unwrap_or(&answer)).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Calls a tool over MCP, without a session; "begun" or what was wrong.
fn tool(server: &ServerProcess, name: &str, arguments: &Value) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", name),
        ("Accept", "application/json, text/event-stream"),
    ];
    let answer = post(&format!("{}/mcp", server.url()), "tools/call", &params, &headers);
    if answer["error"].is_object() {
        return what(&answer);
    }
    let result = &answer["result"];
    match result["isError"] == true {
        true => result["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
        false => "begun".into(),
    }
}
