//! The tasks extension of 2026-07-28: the server decides, and the client declares it with every request.

use serde_json::{Value, json};

use super::{
    SUBSCRIPTION, TASKS, V2026,
    client::{Client, accept, methods, saying, text_of},
    stage::{Stage, until},
};

fn with_tasks() -> Value {
    json!({ "extensions": { TASKS: {} }, "elicitation": { "form": {} } })
}

/// Makes a task; its id.
async fn make(client: &Client, agent: &str, text: &str) -> String {
    let made = client.ok("tools/call", saying(agent, text)).await;
    assert_eq!(made["resultType"], "task", "{made}");
    made["taskId"].as_str().unwrap().to_owned()
}

async fn until_status(client: &Client, task: &str, status: &str) -> Value {
    until(&format!("{task} {status}"), async || {
        let got = client.ok("tasks/get", json!({ "taskId": task })).await;
        assert_eq!(got["resultType"], "complete");
        (got["status"] == *status).then_some(got)
    })
    .await
}

#[tokio::test]
async fn only_a_request_that_declares_the_extension_gets_a_task() {
    let stage = Stage::new().await;
    let with = Client::stateless(&stage, with_tasks());
    let without = Client::stateless(&stage, json!({ "elicitation": {} }));
    let task = make(&with, "player", "wait").await;
    assert_eq!(until_status(&with, &task, "working").await["taskId"], *task, "it is there at once");

    // What was declared before does not count, and neither does the way of 2025-11-25.
    let mut params = saying("player", "hello");
    params["task"] = json!({});
    let plain = without.ok("tools/call", params).await;
    assert_eq!((&plain["resultType"], text_of(&plain)), (&json!("complete"), "hello"));
    // Who cannot come back is not given what it has to come back for.
    let (status, error) = without.refused("tools/call", saying("soloist", "hello")).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32021)), "{error}");
    assert_eq!(error["data"]["requiredCapabilities"]["extensions"], json!({ TASKS: {} }), "{error}");
    // And has no business with tasks at all.
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({ "taskId": task, "inputResponses": {} });
        let (status, error) = without.refused(method, params).await;
        assert_eq!((status, &error["code"]), (400, &json!(-32021)), "{method}: {error}");
    }
    assert_eq!(stage.state(&task).await, "WORKING");
    // A tool that is quick is quick, and so is what has ended by the time of the answer.
    for agent in ["quick", "player"] {
        let result = with.ok("tools/call", saying(agent, "hello")).await;
        assert_eq!((&result["resultType"], text_of(&result)), (&json!("complete"), "hello"), "{agent}");
    }
    // What the extension took away.
    for method in ["tasks/result", "tasks/list"] {
        let (status, error) = with.refused(method, json!({ "taskId": task })).await;
        assert_eq!((status, &error["code"]), (404, &json!(-32601)), "{method}");
    }
}

#[tokio::test]
async fn answers_may_come_one_by_one_and_what_answers_nothing_is_let_pass() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let task = make(&client, "soloist", "ask-both").await;
    let keys =
        |got: &Value| -> Vec<String> { got["inputRequests"].as_object().unwrap().keys().cloned().collect() };
    let got = until("both questions", async || {
        let got = client.ok("tasks/get", json!({ "taskId": task })).await;
        (got["status"] == "input_required" && keys(&got).len() == 2).then_some(got)
    })
    .await;
    let [left, right] = &keys(&got)[..] else { panic!("{got}") };
    assert_eq!(got["inputRequests"][left]["params"]["message"], "Left?");
    let update = async |responses: Value| {
        let params = json!({ "taskId": task, "inputResponses": responses });
        client.ok("tasks/update", params).await;
    };
    update(json!({})).await;
    update(json!({ "nobody": accept(true), "": {}, "nonsense": 7 })).await;
    let got = client.ok("tasks/get", json!({ "taskId": task })).await;
    assert_eq!(keys(&got), [left.clone(), right.clone()], "nothing was answered");

    update(json!({ left: accept(true), "nobody": accept(false) })).await;
    let got = until_status(&client, &task, "input_required").await;
    assert_eq!(keys(&got), [right.as_str()]);
    // Once.
    update(json!({ left: accept(false) })).await;
    update(json!({ left: accept(false), right: { "action": "decline" } })).await;
    let got = until_status(&client, &task, "completed").await;
    assert_eq!(text_of(&got["result"]), "yes, declined");
    // And it is over.
    update(json!({ right: accept(true) })).await;
    assert_eq!(client.ok("tasks/get", json!({ "taskId": task })).await, got);
}

#[tokio::test]
async fn an_answer_that_breaks_its_schema_is_refused_and_changes_nothing() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let task = make(&client, "soloist", "ask").await;
    let got = until_status(&client, &task, "input_required").await;
    let key = got["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let seq = stage.seq(&task).await;
    for answer in [
        json!({ "action": "accept", "content": { "confirm": "perhaps" } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept" }),
        json!({ "action": "shrug" }),
        json!({}),
        json!(7),
        Value::Null,
    ] {
        let params = json!({ "taskId": task, "inputResponses": { &key: answer } });
        let (status, error) = client.refused("tasks/update", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{answer}: {error}");
        assert_eq!(stage.seq(&task).await, seq, "{answer}");
    }
    let params = json!({ "taskId": task, "inputResponses": { &key: accept(true) } });
    client.ok("tasks/update", params).await;
    assert_eq!(text_of(&until_status(&client, &task, "completed").await["result"]), "yes");
}

/// Of an agent that failed there is a result; of one that fell over there is none.
#[tokio::test]
async fn a_failure_is_a_result_and_a_panic_is_an_error() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let failed = make(&client, "soloist", "fail no paper").await;
    let got = until_status(&client, &failed, "completed").await;
    assert_eq!((&got["result"]["isError"], text_of(&got["result"])), (&json!(true), "no paper"));
    assert_eq!(got.get("error"), None);
    assert_eq!(stage.state(&failed).await, "FAILED", "A2A says what it is");

    let panicked = make(&client, "soloist", "panic").await;
    let got = until_status(&client, &panicked, "failed").await;
    assert_eq!(got["error"]["code"], -32603);
    assert_eq!(got.get("result"), None);

    let fine = make(&client, "soloist", "hello").await;
    let got = until_status(&client, &fine, "completed").await;
    assert_eq!((got["result"]["isError"].as_bool(), text_of(&got["result"])), (Some(false), "hello"));
}

#[tokio::test]
async fn a_cancellation_is_acknowledged_whether_it_came_in_time_or_not() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    for text in ["wait", "ask"] {
        let task = make(&client, "soloist", text).await;
        client.ok("tasks/cancel", json!({ "taskId": task })).await;
        until_status(&client, &task, "cancelled").await;
        client.ok("tasks/cancel", json!({ "taskId": task })).await;
        assert_eq!(stage.state(&task).await, "CANCELED");
    }
    let (_, error) = client.refused("tasks/cancel", json!({ "taskId": "nobody" })).await;
    assert_eq!(error["code"], -32602);
}

/// The acknowledgement first; then each status until the end, each as `tasks/get` would show it.
#[tokio::test]
async fn a_subscription_tells_of_a_task_until_its_end() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let (task, other) = (make(&client, "soloist", "ask-later").await, make(&client, "soloist", "wait").await);
    let mut request = client.request(
        "subscriptions/listen",
        json!({ "notifications": { "taskIds": [task, "nobody"], "toolsListChanged": true } }),
    );
    request["id"] = "the subscription".into();
    let mut stream = client.send(&request).await.stream();
    let tagged = |message: &Value| {
        assert_eq!(message["params"]["_meta"][SUBSCRIPTION], "the subscription", "{message}");
    };
    let first = stream.expect("notifications/subscriptions/acknowledged").await;
    tagged(&first);
    let agreed = json!({ "taskIds": [task], "toolsListChanged": true });
    assert_eq!(first["params"]["notifications"], agreed, "what is not there is not agreed to");

    let mut statuses = vec![];
    let mut answered = false;
    let last = loop {
        let told = stream.expect("notifications/tasks").await;
        tagged(&told);
        let told = &told["params"];
        assert_eq!(told["taskId"], *task, "it was only asked for this one");
        assert_eq!(told.get("resultType"), None, "a notification is no result");
        let status = told["status"].as_str().unwrap().to_owned();
        if statuses.last() != Some(&status) {
            statuses.push(status.clone());
        }
        match &*status {
            "working" if !answered => stage.open(1),
            "working" => {}
            "input_required" => {
                let key = told["inputRequests"].as_object().unwrap().keys().next().unwrap();
                let params = json!({ "taskId": task, "inputResponses": { key: accept(true) } });
                if !std::mem::replace(&mut answered, true) {
                    client.ok("tasks/update", params).await;
                }
            }
            _ => break told.clone(),
        }
    };
    assert_eq!(statuses.first().unwrap(), "working");
    assert!(statuses.contains(&"input_required".to_owned()), "{statuses:?}");
    assert_eq!(statuses.last().unwrap(), "completed");
    let mut got = client.ok("tasks/get", json!({ "taskId": task })).await;
    let mut last = last;
    for message in [&mut got, &mut last] {
        let members = message.as_object_mut().unwrap();
        members.shift_remove("_meta");
        members.shift_remove("resultType");
    }
    assert_eq!(last, got, "not what tasks/get shows");
    // Nothing of the other task, and the stream goes on for what else was asked for.
    stage.result("1.0", "CancelTask", json!({ "id": other })).await;
    stage.change_tools();
    tagged(&stream.expect("notifications/tools/list_changed").await);
    // A server that stops says that this was all.
    let stopping = { stage }.stop();
    let (before, end) = stream.response().await;
    assert_eq!(methods(&before), ["notifications/cancelled"]);
    assert_eq!(before[0]["params"]["requestId"], request["id"]);
    tagged(&before[0]);
    assert_eq!(
        (&end["id"], &end["result"]["_meta"][SUBSCRIPTION]),
        (&request["id"], &request["id"]),
        "{end}"
    );
    stopping.finish().await;
}

#[tokio::test]
async fn whoever_does_not_know_tasks_is_not_told_of_them() {
    let stage = Stage::new().await;
    let task = make(&Client::stateless(&stage, with_tasks()), "soloist", "wait").await;
    let client = Client::stateless(&stage, json!({}));
    let params = json!({ "notifications": { "taskIds": [task] } });
    let (status, error) = client.refused("subscriptions/listen", params).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32021)));
    assert_eq!(error["data"]["requiredCapabilities"]["extensions"], json!({ TASKS: {} }));
}

#[tokio::test]
async fn the_header_names_the_task() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let (task, other) = (make(&client, "soloist", "wait").await, make(&client, "soloist", "wait").await);
    let check = async |method: &str, name: Option<&str>, refused: bool| {
        let request = client.request(method, json!({ "taskId": task, "inputResponses": {} }));
        let mut headers = client.headers(&request);
        headers.retain(|(header, _)| *header != "mcp-name");
        headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
        let answer = client.send_with(&request, &headers).await.whole();
        let code = answer.json()["error"]["code"].as_i64();
        let expected = if refused { (400, Some(-32020)) } else { (200, None) };
        assert_eq!((answer.status, code), expected, "{method} {name:?}: {}", answer.text());
    };
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        check(method, Some(&other), true).await;
        check(method, Some(&task.to_uppercase()), true).await;
        check(method, None, true).await;
        assert_eq!(stage.state(&task).await, "WORKING", "{method} was done all the same");
    }
    check("tasks/get", Some(&task), false).await;
    check("tasks/update", Some(&task), false).await;
    check("tasks/cancel", Some(&task), false).await;
    assert_eq!(client.version, V2026);
}
