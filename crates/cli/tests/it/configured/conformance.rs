//! The agent for the A2A conformance kit, `examples/a2a_conformance`, as a program by configuration.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    http::{rpc, rpc_with},
    server_process::ServerProcess,
};

const EXTENSION: (&str, &str) = ("A2A-Extensions", "urn:a2a:tck:required-extension");

fn message(id: &str) -> Value {
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "Hello" }] } })
}

#[test]
fn the_program_answers_as_the_conformance_kit_expects() {
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/a2a_conformance");
    for file in ["agent.py", "nuncio.toml"] {
        fs::copy(example.join(file), dir.path().join(file)).unwrap();
    }
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let at = |agent: &str| format!("{}/agents/{agent}", server.url());
    let rows = fs::read_to_string(example.join("expected.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    for row in rows {
        let id = row["messageId"].as_str().unwrap();
        let result = &rpc(&at("full"), "SendMessage", &message(id))["result"];
        match row.get("reply") {
            Some(reply) => assert_eq!(result["message"]["parts"][0]["text"], *reply, "{id}: {result}"),
            None => {
                let state = format!("TASK_STATE_{}", row["state"].as_str().unwrap());
                assert_eq!(result["task"]["status"]["state"], state, "{id}: {result}");
            }
        }
        if let Some(parts) = row.get("parts") {
            assert_eq!(result["task"]["artifacts"][0]["parts"], *parts, "{id}: {result}");
        }
    }
    // The kit answers with the id that asks for the next question, twice, and then with one that ends.
    let mut task = Value::Null;
    for (id, state) in [
        ("tck-input-required-2", "INPUT_REQUIRED"),
        ("tck-input-required-3", "INPUT_REQUIRED"),
        ("tck-input-required-4", "INPUT_REQUIRED"),
        ("tck-complete-task-3", "COMPLETED"),
    ] {
        let mut params = message(id);
        if task.is_string() {
            params["message"]["taskId"] = task.clone();
        }
        let result = &rpc(&at("full"), "SendMessage", &params)["result"]["task"];
        assert_eq!(result["status"]["state"], format!("TASK_STATE_{state}"), "{id}: {result}");
        task = result["id"].clone();
    }
    let refused = rpc(&at("plain"), "SendStreamingMessage", &message("tck-stream-001-2"));
    assert_eq!(refused["error"]["code"], -32004, "{refused}");
    let refused = rpc(&at("required-extension"), "SendMessage", &message("tck-complete-task-2"));
    assert_eq!(refused["error"]["code"], -32008, "{refused}");
    let params = message("tck-complete-task-2");
    let taken = rpc_with(&at("required-extension"), "SendMessage", &params, &[EXTENSION]);
    assert_eq!(taken["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{taken}");
    let extended = &rpc(&at("extended-card"), "GetExtendedAgentCard", &json!({}))["result"];
    assert_eq!(
        (&extended["skills"][0]["id"], &extended["skills"][1]["id"]),
        (&json!("extended-card"), &json!("known"))
    );
    let none = rpc(&at("full"), "GetExtendedAgentCard", &json!({}));
    assert_eq!(none["error"]["code"], -32004, "{none}");
    let asked = rpc(&at("asking"), "SendMessage", &message("ordinary"));
    assert_eq!(asked["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
}
