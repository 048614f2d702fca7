//! Who sent a message, gave an answer or canceled a task, and over which protocol: shown here, and on no other wire.

use serde_json::{Value, json};

use super::API;
use crate::{
    guests::{self, As},
    site::{Site, message},
    socket::{post, within},
};

/// What the console shows a caller of a task's log.
async fn events(caller: &As<'_>, task: &str) -> Vec<Value> {
    let page = caller.get(&format!("{API}/tasks/{task}/events?limit=1000&preview=100000")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    page.json()["events"].as_array().unwrap().clone()
}

/// The sender of the last event of that kind.
async fn sender(caller: &As<'_>, task: &str, kind: &str) -> Value {
    let events = events(caller, task).await;
    let of_kind = events.iter().rfind(|event| event["type"] == kind);
    of_kind.unwrap_or_else(|| panic!("no {kind} in {events:?}"))["by"].clone()
}

/// A task that asks, and its question.
async fn asking(caller: &As<'_>) -> (String, String) {
    let task = caller.begin("ask").await;
    let question = within("the question", async {
        loop {
            let open = caller.get(&format!("{API}/questions")).await.json();
            let open = open["questions"].as_array().unwrap().clone();
            if let Some(question) = open.iter().find(|question| question["taskId"] == *task) {
                return question["questionId"].as_str().unwrap().to_owned();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    (task, question)
}

async fn console_post(caller: &As<'_>, path: &str, body: &Value) -> Value {
    let authorization = format!("Bearer {}", caller.token);
    let headers = [("authorization", &*authorization)];
    caller.site.send(post(&format!("{API}/{path}"), &headers, body.to_string())).await.json()
}

/// Answers the question over a protocol.
async fn answer(caller: &As<'_>, dialect: &str, task: &str, question: &str) {
    match dialect {
        "console" => {
            let body = json!({ "questionId": question, "action": "accept", "content": { "confirm": true } });
            let taken = console_post(caller, &format!("tasks/{task}/answers"), &body).await;
            assert_eq!(taken["taskId"], *task, "{taken}");
        }
        "mcp/2026-07-28" => {
            let got = caller.mcp("", "tasks/get", json!({ "taskId": task })).await.json();
            let asked = got["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{got}"));
            let key = asked.keys().next().unwrap();
            let accepted = json!({ "action": "accept", "content": { "confirm": true } });
            let params = json!({ "taskId": task, "inputResponses": { key: accepted } });
            let updated = caller.mcp("", "tasks/update", params).await.json();
            assert!(updated.get("error").is_none(), "{updated}");
        }
        "a2a/1.0" => {
            let mut reply = message("");
            reply["taskId"] = task.into();
            reply["parts"] = json!([{ "data": { "confirm": true } }]);
            let sent = caller.a2a("1.0", "SendMessage", &json!({ "message": reply })).await.json();
            assert!(sent.get("error").is_none(), "{sent}");
        }
        "a2a/0.3" => {
            let reply = json!({ "kind": "message", "messageId": "yes", "role": "user", "taskId": task,
                "parts": [{ "kind": "data", "data": { "confirm": true } }] });
            let sent = caller.a2a("0.3", "message/send", &json!({ "message": reply })).await.json();
            assert!(sent.get("error").is_none(), "{sent}");
        }
        _ => panic!("{dialect}"),
    }
}

#[tokio::test]
async fn an_answer_names_its_caller_and_its_protocol() {
    let site = guests::site().await;
    let ada = As { site: &site, token: "acme/ada" };
    for dialect in ["console", "mcp/2026-07-28", "a2a/1.0", "a2a/0.3"] {
        let (task, question) = asking(&ada).await;
        answer(&ada, dialect, &task, &question).await;
        let by = json!({ "caller": "acme/ada", "dialect": dialect });
        assert_eq!(sender(&ada, &task, "answer").await, by);
        let first = events(&ada, &task).await[0]["by"].clone();
        assert_eq!(first, json!({ "caller": "acme/ada", "dialect": "a2a/1.0" }), "who made the task");
        // A second answer comes too late, and is told who was faster.
        let late = json!({ "questionId": question, "action": "cancel" });
        let late = console_post(&ada, &format!("tasks/{task}/answers"), &late).await;
        assert_eq!(late["error"]["closed"]["by"], by, "{late}");
        shown_on_no_other_wire(&ada, &task).await;
    }
}

/// Neither the data of an event nor a frame of a protocol names a sender.
async fn shown_on_no_other_wire(caller: &As<'_>, task: &str) {
    for event in events(caller, task).await {
        assert!(event["data"].get("by").is_none(), "{event}");
        let path = format!("{API}/tasks/{task}/events/{}?part=data", event["seq"]);
        let data = caller.get(&path).await;
        assert!(data.json().get("by").is_none(), "{}", data.text());
        let wire = caller.get(&format!("{API}/tasks/{task}/wire/{}", event["seq"])).await.text().to_owned();
        assert!(!wire.contains("\\\"by\\\"") && !wire.contains("acme/ada"), "{wire}");
    }
    let folded = caller.get(&format!("{API}/tasks/{task}/at/{}", events(caller, task).await.len())).await;
    assert!(!folded.text().contains("\"by\""), "{}", folded.text());
    for (version, method) in [("1.0", "GetTask"), ("0.3", "tasks/get")] {
        let got = caller.a2a(version, method, &json!({ "id": task })).await.text().to_owned();
        assert!(!got.contains("\"by\"") && !got.contains("acme/ada"), "{got}");
    }
    let got = caller.mcp("", "tasks/get", json!({ "taskId": task })).await.text().to_owned();
    assert!(!got.contains("\"by\"") && !got.contains("acme/ada"), "{got}");
}

#[tokio::test]
async fn a_message_and_a_cancel_name_their_sender_and_no_name_leaves_its_tenant() {
    let site = guests::site().await;
    let ada = As { site: &site, token: "acme/ada" };
    let operator = As { site: &site, token: "chief;read,write:admin:tasks" };

    // To a task at work, and canceled there: the run writes the end.
    let task = ada.begin("mutter").await;
    let mut more = message("more");
    more["taskId"] = task.as_str().into();
    let params = json!({ "message": more, "configuration": { "returnImmediately": true } });
    let sent = ada.a2a("1.0", "SendMessage", &params).await.json();
    assert!(sent.get("error").is_none(), "{sent}");
    // A repeat changes nothing: the first sender stays.
    let mut repeat =
        json!({ "kind": "message", "role": "user", "parts": [{ "kind": "text", "text": "more" }] });
    repeat["messageId"] = more["messageId"].clone();
    repeat["taskId"] = task.as_str().into();
    ada.a2a("0.3", "message/send", &json!({ "message": repeat, "configuration": { "blocking": false } }))
        .await;
    let messages = events(&ada, &task).await;
    let messages: Vec<&Value> = messages.iter().filter(|event| event["type"] == "message").collect();
    assert_eq!(messages[1]["by"], json!({ "caller": "acme/ada", "dialect": "a2a/1.0" }), "{messages:?}");
    let canceled = ada.a2a("0.3", "tasks/cancel", &json!({ "id": task })).await.json();
    assert_eq!(canceled["result"]["status"]["state"], "canceled", "{canceled}");
    assert_eq!(sender(&ada, &task, "status").await, json!({ "caller": "acme/ada", "dialect": "a2a/0.3" }));
    shown_on_no_other_wire(&ada, &task).await;

    // At rest, and at work, by an administrator of another tenant.
    for text in ["ask", "wait"] {
        let task = match text {
            "ask" => asking(&ada).await.0,
            _ => ada.begin(text).await,
        };
        let canceled = console_post(&operator, &format!("tasks/{task}/cancel"), &json!({})).await;
        assert_eq!(canceled["state"], "canceled", "{canceled}");
        assert_eq!(
            sender(&operator, &task, "status").await,
            json!({ "caller": "chief", "dialect": "console" })
        );
        assert_eq!(
            sender(&ada, &task, "status").await,
            json!({ "caller": null, "dialect": "console" }),
            "{text}"
        );
    }
}

/// The topic `questions` says who closed a question, and the topic `task` who sent what.
#[tokio::test]
async fn a_live_stream_names_senders() {
    let site = Site::new().await;
    let id = site.begin("ask").await;
    site.until_state(&id, "INPUT_REQUIRED").await;
    let mut stream = site
        .live(json!([
            { "key": "inbox", "topic": "questions" },
            { "key": "task", "topic": "task", "id": id },
        ]))
        .await;
    let mut caught_up = 0;
    while caught_up < 2 {
        super::live::next(&mut stream, &["caught-up"]).await.unwrap();
        caught_up += 1;
    }
    let mut reply = message("");
    reply["taskId"] = id.as_str().into();
    reply["parts"] = json!([{ "data": { "confirm": true } }]);
    site.result("1.0", "SendMessage", json!({ "message": reply })).await;
    let by = json!({ "caller": "local", "dialect": "a2a/1.0" });
    let (mut closed, mut answered) = (false, false);
    while !closed || !answered {
        let (kind, data) = super::live::next(&mut stream, &["questions", "events"]).await.unwrap();
        if kind == "questions" {
            assert_eq!(data["closed"][0]["by"], by, "{data}");
            closed = true;
        } else if let Some(answer) =
            data["events"].as_array().unwrap().iter().find(|event| event["type"] == "answer")
        {
            assert_eq!(answer["by"], by);
            answered = true;
        }
    }
}
