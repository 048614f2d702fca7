//! One task, several protocols: begun in one, followed in another, answered in a third.

use std::time::Duration;

use nuncio_engine::QuestionLimit;
use serde_json::{Value, json};

use super::{
    TASKS, V2025, WITH_SESSIONS,
    client::{Client, RESOURCES_CHANGED, accept, as_task, saying, text_of},
    live_streams::published,
    stage::{Stage, until},
};

fn asks() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn with_tasks() -> Value {
    json!({ "extensions": { TASKS: {} }, "elicitation": { "form": {} } })
}

fn uri(task: &str) -> String {
    format!("a2a://tasks/{task}")
}

/// What a resource shows of the task that A2A 1.0 shows so.
fn as_resource(agent: &str, shown: &Value) -> Value {
    let or_none = |member: &str| shown.get(member).cloned().unwrap_or(json!([]));
    let state = shown["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
    json!({
        "taskId": shown["id"],
        "contextId": shown["contextId"],
        "status": {
            "state": state.to_lowercase().replace('_', "-"),
            "timestamp": shown["status"]["timestamp"],
            "message": shown["status"].get("message").cloned().unwrap_or(Value::Null),
        },
        "history": or_none("history"),
        "artifacts": or_none("artifacts"),
        "metadata": { "sparcPhase": null, "batchtoolsOptimized": false, "agentType": agent },
    })
}

/// The task that a resource shows.
async fn read(client: &Client, task: &str) -> Value {
    let read = client.ok("resources/read", json!({ "uri": uri(task) })).await;
    let content = &read["contents"][0];
    assert_eq!(content["uri"], *uri(task));
    assert_eq!(content["mimeType"], "application/json");
    serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn begun_over_mcp_followed_and_answered_over_a2a_and_read_over_mcp() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let made = client.ok("tools/call", as_task("player", "ask-later")).await;
    let task = made["task"]["taskId"].as_str().unwrap();
    let mut followed = stage.stream("1.0", "SubscribeToTask", json!({ "id": task })).await;
    let (_, first) = followed.next().await.unwrap();
    assert_eq!(first["result"]["task"]["id"], *task, "{first}");
    stage.open(1);
    loop {
        let (_, told) = followed.next().await.unwrap();
        if told["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED" {
            break;
        }
    }
    stage.answer_over_a2a(task, json!({ "confirm": true })).await;
    let rest = followed.results().await;
    let last = &rest.last().unwrap()["statusUpdate"]["status"];
    assert_eq!(last["state"], "TASK_STATE_COMPLETED", "{rest:?}");
    assert_eq!(last["message"]["parts"][0]["text"], "yes");
    assert_eq!(text_of(&client.ok("tasks/result", json!({ "taskId": task })).await), "yes");
    let stateless = Client::stateless(&stage, with_tasks());
    assert_eq!(text_of(&stateless.ok("tasks/get", json!({ "taskId": task })).await["result"]), "yes");
}

#[tokio::test]
async fn begun_over_a2a_answered_over_mcp_and_read_over_a2a() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let task = stage.begin_player("ask").await;
    stage.until_state(&task, "INPUT_REQUIRED").await;
    let got = client.ok("tasks/get", json!({ "taskId": task })).await;
    let key = got["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params = json!({ "taskId": task, "inputResponses": { key: accept(true) } });
    client.ok("tasks/update", params).await;
    let done = stage.until_state(&task, "COMPLETED").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "yes", "{done}");

    // The same in a session, where whoever waits for the result is asked.
    let client = Client::session(&stage, V2025, asks()).await;
    let task = stage.begin_player("ask").await;
    let mut result = client.stream("tasks/result", json!({ "taskId": task })).await;
    let asked = result.expect("elicitation/create").await;
    client.answer(&asked, accept(false)).await;
    assert_eq!(text_of(&result.response().await.1["result"]), "no");
    let done = stage.until_state(&task, "COMPLETED").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "no", "{done}");
    // Cancelled here, it is cancelled there.
    let task = stage.begin_player("wait").await;
    client.ok("tasks/cancel", json!({ "taskId": task })).await;
    assert_eq!(stage.state(&task).await, "CANCELED");
}

#[tokio::test]
async fn a_call_that_waits_is_answered_over_a2a() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    stream.expect("elicitation/create").await;
    let task = stage.only_task().await;
    stage.answer_over_a2a(&task, json!({ "confirm": true })).await;
    assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
}

#[tokio::test]
async fn every_task_is_a_resource_as_a2a_shows_it() {
    let stage = Stage::new().await;
    let over_a2a = stage.begin_player("hello").await;
    stage.until_state(&over_a2a, "COMPLETED").await;
    let stateless = Client::stateless(&stage, json!({}));
    let schema = published(&stage, "a2a-task").await;
    for version in WITH_SESSIONS {
        let client = Client::session(&stage, version, json!({})).await;
        let result = client.ok("tools/call", saying("player", "hello")).await;
        let own = result["_meta"]["nuncio/taskId"].as_str().unwrap();
        for task in [&over_a2a, own] {
            let wanted = stage.result("1.0", "GetTask", json!({ "id": task })).await;
            let wanted = as_resource("player", &wanted);
            assert_eq!(read(&client, task).await, wanted, "{version}");
            assert_eq!(read(&stateless, task).await, wanted);
            schema.validate(&wanted).unwrap();
        }
        for wrong in ["nobody", "", "a/b"] {
            let (status, error) = client.refused("resources/read", json!({ "uri": uri(wrong) })).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32002)), "{version} {wrong:?}");
        }
    }
    let (status, error) = stateless.refused("resources/read", json!({ "uri": uri("nobody") })).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)));
    assert_eq!(error["data"]["uri"], *uri("nobody"));
    // What is written there may begin with what is typed.
    let params = json!({
        "ref": { "type": "ref/resource", "uri": "a2a://tasks/{taskId}" },
        "argument": { "name": "taskId", "value": &over_a2a[..over_a2a.len() - 1] },
    });
    let completed = stateless.ok("completion/complete", params).await;
    assert!(completed["completion"]["values"].as_array().unwrap().contains(&json!(over_a2a)), "{completed}");
}

#[tokio::test]
async fn a_session_follows_a_task_as_a_resource_until_it_does_not_any_more() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let (task, other) = (stage.begin_player("tell-slowly 2").await, stage.begin_player("ask").await);
    stage.until_state(&other, "INPUT_REQUIRED").await;
    let mut stream = client.listen().await;
    for task in [&task, &other] {
        client.ok("resources/subscribe", json!({ "uri": uri(task) })).await;
    }
    client.ok("resources/unsubscribe", json!({ "uri": uri(&other) })).await;
    let (status, error) = client.refused("resources/subscribe", json!({ "uri": uri("nobody") })).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32002)));
    stage.answer_over_a2a(&other, json!({ "confirm": true })).await;
    stage.until_state(&other, "COMPLETED").await;
    stage.open(1);
    let told = stream.expect("notifications/resources/updated").await;
    assert_eq!(told["params"], json!({ "uri": uri(&task) }));
    stage.open(2);
    stage.until_state(&task, "COMPLETED").await;
    stage.change_tools();
    let mut updates = 0;
    loop {
        let message = stream.next().await.unwrap();
        if message["method"] == "notifications/tools/list_changed" {
            break;
        }
        if message["method"] == RESOURCES_CHANGED {
            continue;
        }
        assert_eq!(message["params"]["uri"], *uri(&task), "{message}");
        updates += 1;
    }
    assert!(updates > 0, "nobody said that it ended");
}

#[tokio::test]
async fn a_stateless_client_follows_a_task_as_a_resource() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let task = stage.begin_player("tell-slowly 1").await;
    let wanted = json!({ "resourceSubscriptions": [uri(&task), uri("nobody")] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": wanted })).await;
    let first = stream.expect("notifications/subscriptions/acknowledged").await;
    let agreed = json!({ "resourceSubscriptions": [uri(&task)] });
    assert_eq!(first["params"]["notifications"], agreed);
    stage.change_tools();
    stage.open(1);
    let told = stream.expect("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], *uri(&task));
}

/// Answered at once with a link; and what the link shows grows while the agent works.
#[tokio::test]
async fn a_call_in_the_background_shows_its_first_chapter_before_there_is_a_second() {
    for version in WITH_SESSIONS {
        let stage = Stage::new().await;
        let client = Client::session(&stage, version, json!({})).await;
        in_the_background(&stage, &client).await;
    }
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    in_the_background(&stage, &client).await;
}

async fn in_the_background(stage: &Stage, client: &Client) {
    let mut call = saying("player", "book");
    call["_meta"] = json!({ "nuncio/background": true });
    let result = client.ok("tools/call", call).await;
    let task = result["_meta"]["nuncio/taskId"].as_str().unwrap();
    let link = &result["content"][0];
    if *client.version < *"2025-06-18" {
        assert_eq!(*link, json!({ "type": "text", "text": uri(task) }), "there are no links yet");
    } else {
        assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &json!(uri(task))), "{link}");
    }
    assert_eq!(stage.state(task).await, "WORKING", "it was not answered at once");
    let chapters = |shown: &Value| -> Vec<String> {
        let artifacts = shown["artifacts"].as_array().cloned().unwrap_or_default();
        artifacts.iter().map(|made| made["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
    };
    let shown = until("the first chapter", async || {
        let shown = read(client, task).await;
        (!chapters(&shown).is_empty()).then_some(shown)
    })
    .await;
    assert_eq!(chapters(&shown), ["Chapter 1"], "{}", client.version);
    assert_eq!(shown["status"]["state"], "working");
    stage.open(1);
    stage.until_state(task, "COMPLETED").await;
    assert_eq!(chapters(&read(client, task).await), ["Chapter 1", "Chapter 2"]);
}

/// In every state: what is said and made so far, whatever it waits for.
#[tokio::test]
async fn a_task_that_waits_or_has_results_is_the_same_resource() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let schema = published(&stage, "a2a-task").await;
    let (asks, books) = (stage.begin_player("ask").await, stage.begin_player("book").await);
    stage.until_state(&asks, "INPUT_REQUIRED").await;
    stage.open(1);
    stage.until_state(&books, "COMPLETED").await;
    for task in [&asks, &books] {
        let wanted = stage.result("1.0", "GetTask", json!({ "id": task })).await;
        let shown = read(&client, task).await;
        assert_eq!(shown, as_resource("player", &wanted));
        schema.validate(&shown).unwrap();
    }
    assert_eq!(read(&client, &asks).await["status"]["state"], "input-required");
    assert_ne!(read(&client, &books).await["artifacts"], json!([]));
}

/// The standard metadata stands beside the content, and what the task's maker said of it within.
#[tokio::test]
async fn a_task_says_what_it_is_about() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let mut said = crate::site::message("hello");
    said["parts"] = json!([{ "text": "hello" }]);
    let metadata = json!({ "sparcPhase": "architecture", "batchtoolsOptimized": true });
    let sent = stage.result("1.0", "SendMessage", json!({ "message": said, "metadata": metadata })).await;
    let task = sent["task"]["id"].as_str().unwrap();
    let read = client.ok("resources/read", json!({ "uri": uri(task) })).await;
    let shown: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    // Whether it was a batch is what happened, not what its caller says.
    let wanted = json!({ "sparcPhase": "architecture", "batchtoolsOptimized": false, "agentType": "actor" });
    assert_eq!(shown["metadata"], wanted);
    let meta = &read["contents"][0]["_meta"];
    assert_eq!((&meta["resourceId"], &meta["type"]), (&json!(uri(task)), &json!("a2a")), "{meta}");
    assert_eq!(meta["lastModified"], shown["status"]["timestamp"]);
    assert_eq!(meta["permissions"], json!(["read", "write"]));
    let schema = meta["schema"].as_str().unwrap();
    assert_eq!(schema, format!("http://{}/schemas/a2a-task.json", stage.address));
}

/// Under another name it is the same thing, and whoever follows it under that name is told under that name.
#[tokio::test]
async fn an_alias_is_read_and_followed_under_its_own_name() {
    let stage = Stage::with(|setup| {
        setup.surface.set_aliases(&["claude-20x".into()], &["a2a"]);
    })
    .await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let task = stage.begin_player("tell-slowly 1").await;
    let alias = format!("mcp://claude-20x/a2a/tasks/{task}");
    let under_alias = client.ok("resources/read", json!({ "uri": alias })).await;
    let canonical = client.ok("resources/read", json!({ "uri": uri(&task) })).await;
    assert_eq!(under_alias["contents"][0]["uri"], *alias);
    assert_eq!(under_alias["contents"][0]["text"], canonical["contents"][0]["text"]);
    let mut stream = client.listen().await;
    client.ok("resources/subscribe", json!({ "uri": alias })).await;
    stage.open(1);
    let told = stream.expect("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], *alias);
    let other =
        client.refused("resources/read", json!({ "uri": format!("mcp://other/a2a/tasks/{task}") })).await;
    assert_eq!(other.1["code"], -32002);
}

/// The end of a task that nobody answers, and its reason, in both protocols; an answer that is late reads it, too.
#[tokio::test]
async fn a_question_that_nobody_answers_ends_its_task_with_the_reason_in_every_protocol() {
    let stage = Stage::with(|setup| {
        setup.options.question_limit = QuestionLimit::After(Duration::from_millis(200));
        setup.options.expiry_poll = Duration::from_millis(10);
    })
    .await;
    let reason = "nobody answered within 200ms (question-limit)";
    let task = stage.begin_player("ask").await;
    let done = stage.until_state(&task, "FAILED").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], reason, "{done}");
    let stateless = Client::stateless(&stage, with_tasks());
    let got = stateless.ok("tasks/get", json!({ "taskId": task })).await;
    // This generation has the failure in the result.
    assert_eq!((&got["result"]["isError"], &got["statusMessage"]), (&json!(true), &json!(reason)), "{got}");
    let session = Client::session(&stage, V2025, json!({})).await;
    let got = session.ok("tasks/get", json!({ "taskId": task })).await;
    assert_eq!((&got["status"], &got["statusMessage"]), (&json!("failed"), &json!(reason)), "{got}");
    let read = read(&session, &task).await;
    assert_eq!(read["status"]["message"]["parts"][0]["text"], reason, "{read}");
    let mut late = crate::site::message("yes");
    late["taskId"] = task.as_str().into();
    let refused = stage.call("1.0", "SendMessage", json!({ "message": late })).await;
    assert_eq!(refused["error"]["code"], -32004, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().starts_with(reason), "{refused}");
}
