//! Tasks as 2025-11-25 has them: the client asks for one, comes back for it, and is asked when it waits for it.

use serde_json::{Value, json};

use super::{
    RELATED, V2025,
    client::{Client, accept, as_task, methods, saying, text_of, with_token},
    stage::{Stage, until},
};

fn asks() -> Value {
    json!({ "elicitation": { "form": {} }, "sampling": {} })
}

/// Makes a task; its id.
async fn make(client: &Client, agent: &str, text: &str) -> String {
    let made = client.ok("tools/call", as_task(agent, text)).await;
    // Whatever has become of it by now.
    assert_eq!(made["task"]["status"], "working", "{made}");
    assert!(made.get("content").is_none(), "{made}");
    made["task"]["taskId"].as_str().unwrap().to_owned()
}

async fn until_status(client: &Client, task: &str, status: &str) -> Value {
    until(&format!("{task} {status}"), async || {
        let got = client.ok("tasks/get", json!({ "taskId": task })).await;
        (got["status"] == *status).then_some(got)
    })
    .await
}

#[tokio::test]
async fn a_task_begins_at_work_and_is_found_again_until_its_result_is_read() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let task = make(&client, "player", "tell-slowly 1").await;
    let got = client.ok("tasks/get", json!({ "taskId": task })).await;
    assert_eq!(got["status"], "working");
    assert_eq!(got["ttl"], Value::Null, "nobody deletes what is not over");
    let listed = client.ok("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"][0]["taskId"], *task, "{listed}");
    assert_eq!(listed["tasks"][0]["status"], "working");

    let result = client.stream("tasks/result", json!({ "taskId": task })).await;
    stage.open(1);
    let (_, response) = { result }.response().await;
    assert_eq!(text_of(&response["result"]), "told 1");
    assert_eq!(response["result"]["_meta"][RELATED]["taskId"], *task, "{response}");
    let got = until_status(&client, &task, "completed").await;
    assert!(got["ttl"].as_u64().is_some_and(|ttl| ttl > 0), "{got}");
    // These name the task anyway.
    assert_eq!(got["_meta"].get(RELATED), None, "{got}");
    // As often as anybody wants, and from another session of the same caller.
    let other = Client::session(&stage, V2025, json!({})).await;
    for client in [&client, &other] {
        let again = client.ok("tasks/result", json!({ "taskId": task })).await;
        assert_eq!(text_of(&again), "told 1");
    }
    // Ended at once, and begun at work all the same.
    let quick = make(&client, "player", "hello").await;
    assert_eq!(text_of(&client.ok("tasks/result", json!({ "taskId": quick })).await), "hello");
    let listed = client.ok("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_list_of_tasks_has_pages() {
    let stage = Stage::with(|setup| setup.server.mcp.page_size = 2).await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut made = vec![];
    for n in 0..5 {
        made.push(make(&client, "player", &format!("hello {n}")).await);
    }
    let (mut seen, mut cursor, mut pages) = (vec![], None, 0);
    loop {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let page = client.ok("tasks/list", params).await;
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].clone()));
        pages += 1;
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(pages, 3);
    seen.sort_by_key(Value::to_string);
    made.sort();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn questions_come_to_whoever_waits_for_the_result_and_say_whose_they_are() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let task = make(&client, "player", "ask").await;
    let got = until_status(&client, &task, "input_required").await;
    assert_eq!(got.get("inputRequests"), None, "that is of another revision: {got}");

    let mut result = client.stream("tasks/result", json!({ "taskId": task })).await;
    let asked = result.expect("elicitation/create").await;
    assert_eq!(asked["params"]["message"], "Really?");
    assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], *task, "{asked}");
    assert_eq!(client.answer(&asked, accept(true)).await.status, 202);
    let (before, response) = result.response().await;
    assert_eq!(before, Vec::<Value>::new());
    assert_eq!(text_of(&response["result"]), "yes");
    until_status(&client, &task, "completed").await;
}

/// Also what comes while it is waited for, and what is not a question.
#[tokio::test]
async fn everything_on_the_stream_of_a_result_belongs_to_its_task() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let made = client.ok("tools/call", with_token(as_task("player", "tell-slowly 2"))).await;
    let told = made["task"]["taskId"].as_str().unwrap();
    let mut result = client.stream("tasks/result", json!({ "taskId": told })).await;
    stage.open(2);
    let (before, response) = result.response().await;
    assert_eq!(
        methods(&before),
        [
            "notifications/message",
            "notifications/progress",
            "notifications/message",
            "notifications/progress"
        ]
    );
    for message in before.iter().map(|message| &message["params"]).chain([&response["result"]]) {
        assert_eq!(message["_meta"][RELATED]["taskId"], *told, "{message}");
    }
    // The token of the call is good for as long as its task.
    assert_eq!(before[1]["params"]["progressToken"], "token");

    let later = make(&client, "player", "ask-later").await;
    let mut result = client.stream("tasks/result", json!({ "taskId": later })).await;
    let asked = result.expect("elicitation/create").await;
    assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], *later);
    client.answer(&asked, json!({ "action": "decline" })).await;
    assert_eq!(text_of(&result.response().await.1["result"]), "declined");
}

/// A task that its client asked for is asked for by it, also where that client cannot answer: somebody else may.
#[tokio::test]
async fn a_task_waits_for_an_answer_that_its_client_cannot_give() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let task = make(&client, "player", "ask").await;
    until_status(&client, &task, "input_required").await;
    let mut result = client.stream("tasks/result", json!({ "taskId": task })).await;
    stage.answer_over_a2a(&task, json!({ "confirm": false })).await;
    let (before, response) = result.response().await;
    assert_eq!(methods(&before), Vec::<&str>::new(), "it was asked");
    assert_eq!(text_of(&response["result"]), "no");
}

#[tokio::test]
async fn an_agent_that_failed_has_a_task_that_failed() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let failed = make(&client, "player", "fail the glue was dry").await;
    let got = until_status(&client, &failed, "failed").await;
    assert_eq!(got["statusMessage"], "the glue was dry");
    // What the call would have been answered with.
    let result = client.ok("tasks/result", json!({ "taskId": failed })).await;
    assert_eq!((&result["isError"], text_of(&result)), (&json!(true), "the glue was dry"));
    let plain = client.ok("tools/call", saying("player", "fail the glue was dry")).await;
    assert_eq!((&plain["isError"], text_of(&plain)), (&json!(true), "the glue was dry"));

    let panicked = make(&client, "player", "panic").await;
    until_status(&client, &panicked, "failed").await;
    let error = client.refused("tasks/result", json!({ "taskId": panicked })).await;
    assert_eq!((error.0, &error.1["code"]), (200, &json!(-32603)));
    let plain = client.call("tools/call", saying("player", "panic")).await;
    assert_eq!(plain["error"]["code"], -32603, "{plain}");
}

#[tokio::test]
async fn a_cancelled_task_says_so_and_stays_so() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    for text in ["wait", "ask"] {
        let task = make(&client, "player", text).await;
        let mut result = client.stream("tasks/result", json!({ "taskId": task })).await;
        let cancelled = client.ok("tasks/cancel", json!({ "taskId": task })).await;
        assert_eq!(cancelled["status"], "cancelled", "{text}");
        let (_, response) = result.response().await;
        assert_eq!(response["result"]["isError"], true, "{response}");
        // Once.
        let (status, error) = client.refused("tasks/cancel", json!({ "taskId": task })).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{text}: {error}");
        let got = client.ok("tasks/get", json!({ "taskId": task })).await;
        assert_eq!(got["status"], "cancelled");
        assert_eq!(stage.state(&task).await, "CANCELED");
    }
    let done = make(&client, "player", "hello").await;
    until_status(&client, &done, "completed").await;
    let (_, error) = client.refused("tasks/cancel", json!({ "taskId": done })).await;
    assert_eq!(error["code"], -32602);
    assert_eq!(client.ok("tasks/get", json!({ "taskId": done })).await["status"], "completed");
}

#[tokio::test]
async fn a_tool_says_how_it_is_called_and_is_not_called_otherwise() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let listed = client.ok("tools/list", json!({})).await;
    let support = |name: &str| {
        let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == *name).unwrap();
        tool["execution"]["taskSupport"].as_str().unwrap_or("absent").to_owned()
    };
    for (name, wanted) in
        [("player", "optional"), ("soloist", "required"), ("quick", "forbidden"), ("greet", "absent")]
    {
        assert_eq!(support(name), wanted, "{name}");
    }
    let check = async |params: Value, refused: bool| {
        let response = client.call("tools/call", params.clone()).await;
        match refused {
            true => assert_eq!(response["error"]["code"], -32601, "{params}: {response}"),
            false => assert!(response.get("result").is_some(), "{params}: {response}"),
        }
    };
    check(saying("player", "x"), false).await;
    check(as_task("player", "x"), false).await;
    check(saying("soloist", "x"), true).await;
    check(as_task("soloist", "x"), false).await;
    check(saying("quick", "x"), false).await;
    check(as_task("quick", "x"), true).await;
    check(json!({ "name": "greet", "task": {} }), true).await;
    // Nothing was begun by what was refused.
    assert_eq!(stage.total().await, 4);
}

#[tokio::test]
async fn there_are_no_tasks_before_this_revision() {
    let stage = Stage::new().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let client = Client::session(&stage, version, json!({})).await;
        // What the revision does not know is not looked at.
        let result = client.ok("tools/call", as_task("player", "hello")).await;
        assert_eq!(text_of(&result), "hello", "{version}");
        for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"] {
            let (status, error) = client.refused(method, json!({ "taskId": "x" })).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32601)), "{version} {method}");
        }
    }
}

#[tokio::test]
async fn a_task_that_is_not_there_is_an_error_of_the_params() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for params in [
            json!({ "taskId": "nobody" }),
            json!({ "taskId": "0198c5b2-0000-7000-8000-000000000000" }),
            json!({ "taskId": 7 }),
            json!({}),
        ] {
            let (status, error) = client.refused(method, params.clone()).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{method} {params}");
        }
    }
}
