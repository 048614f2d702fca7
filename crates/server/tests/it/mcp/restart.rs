//! Sessions are kept by the store: they are the same after a restart of the server.

use serde_json::{Value, json};

use super::{
    V2025, WITH_SESSIONS,
    client::{Client, accept, as_task, saying, text_of, with_token},
    stage::Stage,
};

fn asks() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn uri(task: &str) -> String {
    format!("a2a://tasks/{task}")
}

#[tokio::test]
async fn a_session_survives_with_its_revision_its_level_and_what_it_can_be_asked() {
    let stage = Stage::new().await;
    let mut clients = vec![];
    for version in WITH_SESSIONS {
        let client = Client::session(&stage, version, asks()).await;
        client.ok("logging/setLevel", json!({ "level": "debug" })).await;
        clients.push(client);
    }
    let ended = Client::session(&stage, V2025, asks()).await;
    assert_eq!(ended.delete().await, 204);
    let stage = stage.restart().await;
    let ended = ended.moved_to(&stage);
    assert_eq!(ended.delete().await, 404, "what has ended stays so");
    for client in clients {
        let client = client.moved_to(&stage);
        let mut stream = client.stream("tools/call", saying("player", "tell 1")).await;
        let (before, _) = stream.response().await;
        assert_eq!(before[0]["params"]["data"], "detail 1", "{}", client.version);
        // The harness holds the version with every request; this one it does not have.
        let tasks = client.call("tasks/list", json!({})).await;
        assert_eq!(tasks.get("result").is_some(), client.version == V2025, "{tasks}");
        if *client.version >= *"2025-06-18" {
            let mut stream = client.stream("tools/call", saying("player", "ask")).await;
            let asked = stream.expect("elicitation/create").await;
            client.answer(&asked, accept(true)).await;
            assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
        }
        assert_eq!(client.delete().await, 204);
    }
}

/// What it follows is kept too, and it is told of what moved while nobody listened: before the restart and after.
#[tokio::test]
async fn a_session_is_told_of_the_tasks_that_moved_while_it_was_away() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut tasks = vec![];
    for text in ["ask", "ask", "hello", "ask"] {
        let task = stage.begin_player(text).await;
        stage.until_state(&task, if text == "ask" { "INPUT_REQUIRED" } else { "COMPLETED" }).await;
        client.ok("resources/subscribe", json!({ "uri": uri(&task) })).await;
        tasks.push(task);
    }
    let [before, after, still, left] = &tasks[..] else { panic!() };
    client.ok("resources/unsubscribe", json!({ "uri": uri(left) })).await;
    stage.answer_over_a2a(before, json!({ "confirm": true })).await;
    stage.until_state(before, "COMPLETED").await;

    let stage = stage.restart().await;
    let client = client.moved_to(&stage);
    for task in [after, left] {
        stage.answer_over_a2a(task, json!({ "confirm": true })).await;
        stage.until_state(task, "COMPLETED").await;
    }
    let mut stream = client.listen().await;
    let mut told = vec![];
    while told.len() < 2 {
        let message = stream.expect("notifications/resources/updated").await;
        let uri = message["params"]["uri"].as_str().unwrap().to_owned();
        if !told.contains(&uri) {
            told.push(uri);
        }
    }
    told.sort();
    let mut wanted = [uri(before), uri(after)];
    wanted.sort();
    assert_eq!(told, wanted);
    // Of nothing else: not of what stands still, not of what is not followed any more.
    stage.change_tools();
    loop {
        let message = stream.next().await.unwrap();
        if message["method"] == "notifications/tools/list_changed" {
            break;
        }
        assert!(wanted.contains(&message["params"]["uri"].as_str().unwrap().to_owned()), "{message}");
    }
    assert_ne!(still, left);
}

#[tokio::test]
async fn a_call_goes_on_after_the_restart_where_its_client_left_it() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let request = client.request("tools/call", with_token(saying("player", "tell-slowly 2")));
    let mut stream = client.send(&request).await.stream();
    stage.open(1);
    stream.expect("notifications/message").await;
    let (step, message) = stream.told().await.unwrap();
    assert_eq!(message["params"]["message"], "step 1");
    let mut asking = client.stream("tools/call", saying("player", "ask")).await;
    let (question, asked) = asking.told().await.unwrap();

    let stopping = stage.stop();
    // Their ends say where to go on, and are no answer.
    assert_eq!(stream.rest().await, Vec::<Value>::new());
    assert_eq!(asking.rest().await, Vec::<Value>::new());
    let folder = stopping.finish().await;
    let stage = Stage::with(|setup| setup.folder = folder).await;
    let client = client.moved_to(&stage);

    stage.open(2);
    let mut stream = client.resume(step.id.as_deref().unwrap()).await.stream();
    let (before, response) = stream.response().await;
    let told: Vec<&Value> = before.iter().map(|message| &message["params"]).collect();
    assert_eq!((&told[0]["data"], &told[1]["message"]), (&json!("line 2"), &json!("step 2")), "{told:?}");
    assert_eq!(told.len(), 2);
    assert_eq!((&response["id"], text_of(&response["result"])), (&request["id"], "told 2"));

    let mut asking = client.resume(question.id.as_deref().unwrap()).await.stream();
    let again = asking.expect("elicitation/create").await;
    assert_ne!(again["id"], asked["id"], "ids are not used twice, also by the next server");
    // The answer to what the last server asked is understood.
    assert_eq!(client.answer(&asked, accept(true)).await.status, 202);
    assert_eq!(text_of(&asking.response().await.1["result"]), "yes");
}

#[tokio::test]
async fn a_task_survives_and_so_does_its_result() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let made = client.ok("tools/call", as_task("player", "ask")).await;
    let task = made["task"]["taskId"].as_str().unwrap();
    stage.until_state(task, "INPUT_REQUIRED").await;
    let stage = stage.restart().await;
    let client = client.moved_to(&stage);
    let mut result = client.stream("tasks/result", json!({ "taskId": task })).await;
    let asked = result.expect("elicitation/create").await;
    client.answer(&asked, accept(true)).await;
    assert_eq!(text_of(&result.response().await.1["result"]), "yes");
    let stage = stage.restart().await;
    let client = client.moved_to(&stage);
    assert_eq!(text_of(&client.ok("tasks/result", json!({ "taskId": task })).await), "yes");
}
