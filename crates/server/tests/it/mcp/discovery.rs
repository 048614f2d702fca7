//! What a client finds by itself: the list of resources comes from the state, and what is said of each of them is true.

use nuncio_engine::{Caller, Message, Role, Submit};
use serde_json::{Value, json};

use super::{
    V2025,
    client::{Client, saying},
    stage::{Stage, until},
};

/// All pages of the list.
async fn listed(client: &Client) -> Vec<Value> {
    let (mut all, mut cursor) = (vec![], Value::Null);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let page = client.ok("resources/list", params).await;
        all.extend(page["resources"].as_array().unwrap().iter().cloned());
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            return all;
        }
    }
}

#[tokio::test]
async fn the_list_of_resources_has_the_callers_tasks_in_pages() {
    let stage = Stage::with(|setup| setup.server.mcp.page_size = 3).await;
    let client = Client::session(&stage, V2025, json!({})).await;
    assert_eq!(listed(&client).await, Vec::<Value>::new());
    let mut made = vec![];
    for _ in 0..7 {
        made.push(format!("a2a://tasks/{}", stage.begin_player("wait").await));
    }
    let all = listed(&client).await;
    let mut found: Vec<&str> = all.iter().map(|one| one["uri"].as_str().unwrap()).collect();
    found.sort_unstable();
    made.sort();
    assert_eq!(found, made, "each once");
    assert!(all[0]["description"].as_str().unwrap().contains("player"), "{}", all[0]);
    for cursor in ["somewhere", "in:", "in:x:", "in:77:", "in:99999999999999999999:a"] {
        let (_, refused) = client.refused("resources/list", json!({ "cursor": cursor })).await;
        assert_eq!(refused["code"], -32602, "{cursor}");
    }
    // Another caller's are not among them.
    let other = Submit::new("player", Message::text("m", Role::User, "wait"));
    stage.engine.submit(&Caller::named("other/one"), other).await.unwrap();
    assert_eq!(listed(&client).await.len(), 7);
}

#[tokio::test]
async fn a_new_task_changes_the_list_and_those_who_follow_it_are_told() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let mut stream = client.listen().await;
    // It stands when it tells of something else.
    stage.change_tools();
    stream.expect("notifications/tools/list_changed").await;
    stage.begin_player("wait").await;
    stream.expect("notifications/resources/list_changed").await;
}

#[tokio::test]
async fn a_task_has_one_id_however_it_is_spelled_and_its_metadata_is_true() {
    let stage = Stage::with(|setup| setup.surface.set_aliases(&["host".into()], &["a2a"])).await;
    let client = Client::stateless(&stage, json!({}));
    let task = stage.begin_player("tell-slowly 2").await;
    stage.until_state(&task, "WORKING").await;
    let meta = async |uri: &str| {
        let read = client.ok("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["cacheScope"], "private", "{read}");
        let content = read["contents"][0].clone();
        assert_eq!(content["uri"], uri, "named as it was asked for");
        content
    };
    let plain = format!("a2a://tasks/{task}");
    for spelled in [
        plain.clone(),
        format!("mcp://host/a2a/tasks/{task}"),
        format!("a2a://tasks/{}", task.to_uppercase()),
    ] {
        let content = meta(&spelled).await;
        assert_eq!(content["_meta"]["resourceId"], plain, "{spelled}");
        assert_eq!(content["_meta"]["permissions"], json!(["read", "write"]), "{content}");
    }
    let modified = |content: &Value| content["_meta"]["lastModified"].as_str().unwrap().to_owned();
    let status = |content: &Value| {
        serde_json::from_str::<Value>(content["text"].as_str().unwrap()).unwrap()["status"].clone()
    };
    let begun = meta(&plain).await;
    let later = async |than: &Value| {
        until("it has changed", async || {
            let now = meta(&plain).await;
            (modified(&now) > modified(than)).then_some(now)
        })
        .await
    };
    // It grows, and its status is never newer than the whole.
    stage.open(1);
    let grown = later(&begun).await;
    let times =
        [status(&begun), status(&grown)].map(|status| status["timestamp"].as_str().unwrap().to_owned());
    assert!(times[0] <= times[1] && times[1] <= modified(&grown), "{times:?} {}", modified(&grown));
    stage.open(2);
    stage.until_state(&task, "COMPLETED").await;
    later(&grown).await;

    // What a caller says of its task is not what became of it.
    let mut submit = Submit::new("player", Message::text("m", Role::User, "wait"));
    submit.metadata = json!({ "batchtoolsOptimized": true }).as_object().cloned();
    let claimed = stage.engine.submit(&Caller::local(), submit).await.unwrap();
    let read =
        client.ok("resources/read", json!({ "uri": format!("a2a://tasks/{}", claimed.origin.id) })).await;
    let text: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["metadata"]["batchtoolsOptimized"], false, "{text}");

    // Templates and their aliases are listed, for this caller.
    let templates = client.ok("resources/templates/list", json!({})).await;
    assert_eq!(templates["cacheScope"], "private");
    let uris: Vec<&str> = templates["resourceTemplates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["uriTemplate"].as_str().unwrap())
        .collect();
    assert!(
        uris.contains(&"a2a://tasks/{taskId}") && uris.contains(&"mcp://host/a2a/tasks/{taskId}"),
        "{uris:?}"
    );
    let completed = client
        .ok(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "mcp://host/a2a/tasks/{taskId}" },
                "argument": { "name": "taskId", "value": &task[..8] },
            }),
        )
        .await;
    assert!(completed["completion"]["values"].to_string().contains(&task), "{completed}");
}

#[tokio::test]
async fn an_event_of_a_stream_is_shown_with_its_data() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let mut call = saying("player", "wait");
    call["_meta"] = json!({ "progressToken": 7 });
    let mut stream = client.stream("tools/call", call).await;
    stream.expect("notifications/progress").await;
    let open = client.ok("tools/call", json!({ "name": "a2a_streams", "arguments": {} })).await;
    let events = &open["structuredContent"]["streams"][0]["events"];
    let progress = events.as_array().unwrap().iter().find(|event| event["type"] == "notifications/progress");
    let data = &progress.unwrap_or_else(|| panic!("{open}"))["data"];
    assert_eq!(data["event"]["message"], "waiting", "{data}");
    let info = &open["structuredContent"]["streams"][0]["metadata"]["clientInfo"];
    assert_eq!(info, "test/1", "as it named itself with initialize: {open}");
}
