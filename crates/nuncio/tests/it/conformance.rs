//! The agent for the A2A conformance kit, `examples/a2a_conformance`, as its Rust program has it.

#[path = "../../../../examples/a2a_conformance/agent.rs"]
mod agent;
#[path = "../../../../examples/a2a_conformance/behaviour.rs"]
mod behaviour;

use agent::{CardProfile, ConformanceAgent, REQUIRED_EXTENSION};
use nuncio::{Nuncio, RunningServer, prelude::*};

async fn start(profile: CardProfile, ask_by_default: bool) -> (RunningServer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let server = Nuncio::new().agent(ConformanceAgent { profile, ask_by_default });
    (server.listen("127.0.0.1:0").data(dir.path().join("data")).start().await.unwrap(), dir)
}

/// The response to a message of this id, or the text of the stream of events that follows it.
async fn send(server: &RunningServer, method: &str, id: &str, extension: Option<&str>) -> String {
    let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "Hello" }] });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "message": message } });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(server.url()).header("A2A-Version", "1.0");
    if let Some(uri) = extension {
        request = request.header("A2A-Extensions", uri);
    }
    let request = request.header("Content-Type", "application/json").body(body.to_string());
    request.send().await.unwrap().text().await.unwrap()
}

fn as_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Holds the result of a send against a row of `expected.json`.
fn check(row: &Value, result: &Value) {
    if let Some(reply) = row.get("reply") {
        assert_eq!(result["message"]["parts"][0]["text"], *reply, "{row}: {result}");
        return;
    }
    let task = &result["task"];
    let state = format!("TASK_STATE_{}", row["state"].as_str().unwrap());
    assert_eq!(task["status"]["state"], state, "{row}: {result}");
    if let Some(message) = row.get("message") {
        assert_eq!(task["status"]["message"]["parts"][0]["text"], *message, "{row}: {result}");
    }
    if let Some(parts) = row.get("parts") {
        assert_eq!(task["artifacts"][0]["parts"], *parts, "{row}: {result}");
    }
}

#[tokio::test]
async fn the_agent_in_rust_answers_as_the_conformance_kit_expects() {
    let (server, _dir) = start(CardProfile::Full, false).await;
    let rows = as_json(include_str!("../../../../examples/a2a_conformance/expected.json"));
    for row in rows.as_array().unwrap() {
        let answer = as_json(&send(&server, "SendMessage", row["messageId"].as_str().unwrap(), None).await);
        check(row, &answer["result"]);
    }
    let streamed = send(&server, "SendStreamingMessage", "tck-stream-artifact-chunked-2", None).await;
    assert_eq!(streamed.matches("\"artifactUpdate\"").count(), 2, "{streamed}");
    let streamed = send(&server, "SendStreamingMessage", "tck-message-response-2", None).await;
    assert_eq!(streamed.matches("data:").count(), 1, "{streamed}");
    server.stop().await;
}

#[tokio::test]
async fn the_profiles_of_the_agent_announce_and_refuse_what_they_say() {
    let (server, _dir) = start(CardProfile::Plain, true).await;
    let streamed = as_json(&send(&server, "SendStreamingMessage", "tck-stream-001-1", None).await);
    assert_eq!(streamed["error"]["code"], -32004, "{streamed}");
    let asked = as_json(&send(&server, "SendMessage", "ordinary", None).await);
    assert_eq!(asked["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    server.stop().await;
    let (server, _dir) = start(CardProfile::RequiredExtension, false).await;
    let refused = as_json(&send(&server, "SendMessage", "tck-complete-task-1", None).await);
    assert_eq!(refused["error"]["code"], -32008, "{refused}");
    let taken = as_json(&send(&server, "SendMessage", "tck-complete-task-1", Some(REQUIRED_EXTENSION)).await);
    assert_eq!(taken["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{taken}");
    server.stop().await;
    let (server, _dir) = start(CardProfile::ExtendedCard, false).await;
    let extended = as_json(&send(&server, "GetExtendedAgentCard", "", None).await);
    assert_eq!(extended["result"]["skills"][1]["id"], "known", "{extended}");
    assert_eq!(extended["result"]["capabilities"]["extendedAgentCard"], true, "{extended}");
    server.stop().await;
}
