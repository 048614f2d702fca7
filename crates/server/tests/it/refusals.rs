//! What a refusal says: the specification's phrase, the state by its name on the wire, and what to do.

use serde_json::{Value, json};

use crate::{
    site::{Site, message, request, unique},
    socket::post,
};

fn fault(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    (
        error["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}")),
        error["message"].as_str().unwrap(),
    )
}

/// A message of any dialect, in that role.
fn message_as(version: &str, role: &str) -> Value {
    match version {
        "1.0" => json!({ "messageId": unique("m"), "role": role, "parts": [{ "text": "hello" }] }),
        "0.3" => json!({
            "messageId": unique("m"), "role": role, "parts": [{ "kind": "text", "text": "hello" }],
        }),
        _ => json!({ "role": role, "parts": [{ "type": "text", "text": "hello" }] }),
    }
}

#[tokio::test]
async fn a_task_that_is_not_there_is_not_found_in_the_words_of_the_specification() {
    let site = Site::new().await;
    for (version, method) in [
        ("0.1", "tasks/get"),
        ("0.1", "tasks/cancel"),
        ("0.1", "tasks/pushNotification/get"),
        ("0.3", "tasks/get"),
        ("0.3", "tasks/cancel"),
        ("1.0", "GetTask"),
        ("1.0", "CancelTask"),
        ("1.0", "SubscribeToTask"),
    ] {
        let answer = site.call(version, method, json!({ "id": "nobody" })).await;
        assert_eq!(fault(&answer), (-32001, "Task not found: nobody"), "{version} {method}");
    }
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_canceled_and_its_state_has_its_name_on_the_wire() {
    let site = Site::new().await;
    let sent = site.result("1.0", "SendMessage", json!({ "message": message("hello") })).await;
    let id = json!({ "id": sent["task"]["id"] });
    for (version, method, state) in [
        ("0.1", "tasks/cancel", "completed"),
        ("0.3", "tasks/cancel", "completed"),
        ("1.0", "CancelTask", "TASK_STATE_COMPLETED"),
    ] {
        let answer = site.call(version, method, id.clone()).await;
        let words = format!("Task cannot be canceled: {state}");
        assert_eq!(fault(&answer), (-32002, words.as_str()), "{version}");
    }
    let ended = site.call("1.0", "SubscribeToTask", id.clone()).await;
    assert!(fault(&ended).1.contains("has ended (TASK_STATE_COMPLETED)"), "{ended}");
    for (version, method, state) in
        [("0.3", "message/send", "(completed)"), ("1.0", "SendMessage", "(TASK_STATE_COMPLETED)")]
    {
        let role = if version == "1.0" { "ROLE_USER" } else { "user" };
        let mut more = message_as(version, role);
        more["taskId"] = id["id"].clone();
        let answer = site.call(version, method, json!({ "message": more })).await;
        let (_, words) = fault(&answer);
        assert!(words.contains(state) && words.contains("start a new task"), "{version}: {words}");
    }
}

#[tokio::test]
async fn a_content_type_that_is_not_json_is_refused_with_the_code_for_it() {
    let site = Site::new().await;
    let body = request("SendMessage", &json!({ "message": message("hello") }));
    for version in ["", "0.1", "0.3", "1.0"] {
        let headers = [("A2A-Version", version), ("content-type", "text/plain")];
        let answer = site.send(post("/", &headers, &body)).await;
        assert_eq!((answer.status, answer.header("content-type")), (415, "application/json"));
        let answer = answer.json();
        let (code, words) = fault(&answer);
        assert_eq!((code, &answer["id"]), (-32005, &json!(null)), "{answer}");
        assert!(words.starts_with("Incompatible content types: ") && words.contains("application/json"));
        let reason = answer["error"]["data"][0]["reason"].as_str();
        assert_eq!(reason, (version == "1.0").then_some("CONTENT_TYPE_NOT_SUPPORTED"), "{answer}");
    }
    assert_eq!(site.total().await, 0);
}

/// The history would show it as the agent's own words.
#[tokio::test]
async fn a_client_does_not_speak_in_the_role_of_the_agent() {
    let site = Site::new().await;
    for (version, methods, agent, user) in [
        ("0.1", ["tasks/send", "tasks/sendSubscribe"], "agent", "user"),
        ("0.3", ["message/send", "message/stream"], "agent", "user"),
        ("1.0", ["SendMessage", "SendStreamingMessage"], "ROLE_AGENT", "ROLE_USER"),
    ] {
        for method in methods {
            let params = json!({ "id": unique("t"), "message": message_as(version, agent) });
            let answer = site.call(version, method, params).await;
            let (code, words) = fault(&answer);
            assert_eq!(code, -32602, "{version} {method}: {answer}");
            let told = [agent, user, "params.message.role"].iter().all(|word| words.contains(word));
            assert!(told, "{version} {method}: {words}");
            let field = match version {
                "1.0" => &answer["error"]["data"][1]["fieldViolations"][0]["field"],
                _ => &answer["error"]["data"]["field"],
            };
            assert_eq!(field, "message.role", "{answer}");
        }
        let params = json!({ "id": unique("t"), "message": message_as(version, user) });
        site.result(version, methods[0], params).await;
    }
    assert_eq!(site.total().await, 3);
}
