//! Open streams as resources: each is known to its owner for as long as it is open, and its count is the client's.

use nuncio_engine::surface::HandlerRequest;
use serde_json::{Map, Value, json};

use super::{
    V2025,
    client::{Client, Stream, saying, with_token},
    stage::{Stage, until},
};
use crate::{
    site::{Site, message},
    socket::within,
};

fn uri(stream: &str) -> String {
    format!("a2a://streams/{stream}")
}

/// The schema of that name, as the server publishes it.
pub(super) async fn published(site: &Site, name: &str) -> jsonschema::Validator {
    let answer = site.get(&format!("/schemas/{name}.json"), &[]).await;
    assert_eq!(answer.status, 200, "{name}");
    jsonschema::options().should_validate_formats(true).build(&answer.json()).unwrap()
}

/// What a resource shows of a stream.
async fn read(client: &Client, stream: &str) -> Value {
    let read = client.ok("resources/read", json!({ "uri": uri(stream) })).await;
    let content = &read["contents"][0];
    assert_eq!(content["_meta"]["type"], "a2a");
    assert_eq!(content["_meta"]["cachePolicy"], "realtime");
    serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
}

async fn until_gone(client: &Client, stream: &str) {
    until("the end of the stream", async || {
        let response = client.call("resources/read", json!({ "uri": uri(stream) })).await;
        (response["error"]["code"] == -32602).then_some(())
    })
    .await;
}

/// The next events that are none of the prelude, counted.
async fn count(stream: &mut Stream, wanted: impl Fn(&Value) -> bool) -> u64 {
    let mut counted = 0;
    loop {
        let piece = stream.piece().await.expect("an event");
        counted += u64::from(piece.data.is_some());
        if piece.message().is_some_and(|message| wanted(&message)) {
            return counted;
        }
    }
}

#[tokio::test]
async fn an_a2a_stream_counts_as_its_client_does() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let schema = published(&stage, "a2a-stream").await;
    let params = json!({ "message": message("wait") });
    let mut stream = stage
        .stream_with(
            &[("A2A-Version", "1.0"), ("User-Agent", "tester/1 token=hunter2")],
            "SendStreamingMessage",
            params,
        )
        .await;
    let name = stream.headers["nuncio-stream-id"].to_str().unwrap().to_owned();
    let (mut counted, mut task) = (0, Value::Null);
    while counted < 2 {
        let (_, event) = stream.next().await.unwrap();
        task = event["result"]["statusUpdate"]["taskId"].clone();
        counted += 1;
    }
    let shown = read(&client, &name).await;
    schema.validate(&shown).unwrap();
    assert_eq!((&shown["streamId"], &shown["status"]), (&json!(name), &json!("active")));
    assert_eq!(shown["metadata"]["totalEvents"], 2, "{shown}");
    assert_eq!(shown["metadata"]["clientInfo"], "tester/1 token=[redacted]");
    let events = shown["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("task"), &json!("status")));
    let data = &events[1]["data"];
    assert_eq!((&data["taskId"], &data["seq"], &data["kind"]), (&json!(task), &json!(2), &json!("a2a")));
    assert!(data["event"].is_object(), "with what it says: {data}");

    let canceled = stage.result("1.0", "CancelTask", json!({ "id": task })).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    assert!(!stream.results().await.is_empty());
    until_gone(&client, &name).await;
}

/// Two streams on two connections, and a client that lists and completes them.
#[tokio::test]
async fn streams_of_mcp_count_as_their_clients_do() {
    let stage = Stage::new().await;
    let schema = published(&stage, "a2a-stream").await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let mut listening = client.listen().await;
    stage.change_tools();
    let told = count(&mut listening, |message| message["method"] == "notifications/tools/list_changed").await;
    let mut call = client.stream("tools/call", with_token(saying("player", "tell-slowly 2"))).await;
    stage.open(1);
    let progress = |message: &Value| message["method"] == "notifications/progress";
    let counted = count(&mut call, progress).await;

    for (stream, counted, kind, last) in [
        (&listening, told, "mcp-listen", "notifications/tools/list_changed"),
        (&call, counted, "mcp-call", "notifications/progress"),
    ] {
        let shown = read(&Client::stateless(&stage, json!({})), &stream.name).await;
        schema.validate(&shown).unwrap();
        assert_eq!(shown["metadata"]["totalEvents"], counted, "{shown}");
        let event = shown["events"].as_array().unwrap().last().unwrap();
        assert_eq!((&event["type"], &event["data"]["kind"]), (&json!(last), &json!(kind)), "{shown}");
    }
    // The call, the session's stream: what the caller has open, in the order in which it was opened.
    let stateless = Client::stateless(&stage, json!({}));
    let listed = stateless.ok("tools/call", json!({ "name": "a2a_streams", "arguments": {} })).await;
    let names: Vec<&str> = listed["structuredContent"]["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| stream["streamId"].as_str().unwrap())
        .collect();
    assert_eq!(names, [&*listening.name, &*call.name]);
    let completed = stateless
        .ok(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "a2a://streams/{streamId}" },
                "argument": { "name": "streamId", "value": "stream-" },
            }),
        )
        .await;
    assert_eq!(completed["completion"]["values"], json!(names));

    stage.open(2);
    let name = call.name.clone();
    call.response().await;
    until_gone(&stateless, &name).await;
    let name = listening.name.clone();
    drop(listening);
    until_gone(&stateless, &name).await;
}

/// Whoever else asks is told the same as of a stream that does not exist.
#[tokio::test]
async fn a_stream_is_its_owners_alone() {
    let stage = Stage::new().await;
    let params = json!({ "message": message("wait") });
    let stream = stage.stream("1.0", "SendStreamingMessage", params).await;
    let name = stream.headers["nuncio-stream-id"].to_str().unwrap().to_owned();
    let surface = stage.engine.catalog().surface();
    let template = surface.templates().into_iter().find(|one| one.profile.name == "stream").unwrap();
    let stranger = nuncio_engine::Caller::named("acme/eve");
    let ask = async |id: &str| {
        let arguments = Map::from_iter([("streamId".to_owned(), json!(id))]);
        template
            .handler
            .read(&uri(id), HandlerRequest::new(stranger.clone(), arguments))
            .await
            .unwrap_err()
            .to_string()
    };
    assert_eq!(ask(&name).await.replace(&name, "x"), ask("x").await);
    let seen = template.handler.complete(&stranger, "streamId", "", &Default::default()).await;
    assert_eq!(seen, [""; 0]);
    drop(stream);
}

/// However many events there were, only the last are remembered.
#[tokio::test]
async fn a_long_stream_remembers_little() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let mut listening = client.listen().await;
    for _ in 0..40 {
        stage.change_tools();
    }
    for _ in 0..40 {
        within("a change", listening.expect("notifications/tools/list_changed")).await;
    }
    let shown = read(&Client::stateless(&stage, json!({})), &listening.name).await;
    assert_eq!(shown["metadata"]["totalEvents"], 40);
    assert_eq!(shown["events"].as_array().unwrap().len(), 16);
}
