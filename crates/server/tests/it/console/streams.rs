//! The list of streams and sessions, and the followers of a task.

use std::time::Duration;

use serde_json::{Value, json};

use super::live::next;
use crate::{
    guests,
    site::{Site, message},
    socket::{Events, post, within},
};

const ADA: [(&str, &str); 1] = [("Authorization", "Bearer acme/ada;*:*")];
const BOB: [(&str, &str); 1] = [("Authorization", "Bearer acme/bob;*:*")];
const EVE: [(&str, &str); 1] = [("Authorization", "Bearer other/eve;*:*")];
const ACME_ADMIN: [(&str, &str); 1] = [("Authorization", "Bearer acme/root;*:*+*:admin")];
const OPERATOR: [(&str, &str); 1] = [("Authorization", "Bearer operator")];

async fn shown(site: &Site, path: &str, headers: &[(&str, &str)]) -> Value {
    let answer = site.console(path, headers).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// A stream over A2A of a task that waits, and the task's id.
async fn begin(site: &Site, caller: (&str, &str)) -> (Events, String) {
    let headers = [("A2A-Version", "1.0"), ("User-Agent", "probe/1 token=hunter2"), caller];
    let mut stream =
        site.stream_with(&headers, "SendStreamingMessage", json!({ "message": message("wait") })).await;
    let (_, first) = stream.next().await.unwrap();
    let id = first["result"]["task"]["id"].as_str().unwrap().to_owned();
    (stream, id)
}

fn callers(listed: &Value) -> Vec<String> {
    let mut names: Vec<String> = listed["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| {
            format!(
                "{}/{}",
                stream["caller"]["tenant"].as_str().unwrap(),
                stream["caller"]["name"].as_str().unwrap()
            )
        })
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_listed_to_their_caller_and_to_administrators() {
    let site = guests::site().await;
    let (_ada, task) = begin(&site, ADA[0]).await;
    let (_bob, _) = begin(&site, BOB[0]).await;
    let (_eve, _) = begin(&site, EVE[0]).await;
    let own = within("the first event", async {
        loop {
            let own = shown(&site, "streams", &ADA).await;
            if own["streams"][0]["events"].as_u64() >= Some(1) {
                return own;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((callers(&own), &own["totalStreams"]), (vec!["acme/ada".to_owned()], &json!(1)));
    let stream = &own["streams"][0];
    assert_eq!((&stream["protocol"], &stream["tasks"][0]["taskId"]), (&json!("a2a"), &json!(task)));
    assert!(stream["events"].as_u64().unwrap() >= 1 && stream["lastEvent"].is_string(), "{stream}");
    assert_eq!(stream["client"], "probe/1 token=[redacted]");
    // Of others only with the scope, and then of the own tenant; the operator sees all.
    let error = site.console_refuses("streams?owner=all", &ADA, 403, "scope_missing").await;
    assert_eq!(error["scope"], "read:admin:tasks");
    let tenant = shown(&site, "streams?owner=all", &ACME_ADMIN).await;
    assert_eq!(
        (callers(&tenant), &tenant["totalStreams"]),
        (vec!["acme/ada".into(), "acme/bob".into()], &json!(2))
    );
    let all = shown(&site, "streams?owner=all", &OPERATOR).await;
    assert_eq!(callers(&all).len(), 3);
    let short = shown(&site, "streams?owner=all&limit=1", &OPERATOR).await;
    assert_eq!((short["streams"].as_array().unwrap().len(), &short["totalStreams"]), (1, &json!(3)));
    site.console_refuses("streams?limit=1001", &ADA, 400, "bad_request").await;
    site.console_refuses("streams?owner=acme/bob", &ADA, 400, "bad_request").await;
    let no_streams = [("Authorization", "Bearer acme/ada;read:memory")];
    site.console_refuses("streams", &no_streams, 403, "scope_missing").await;
    // The console's own stream counts what it was sent.
    let topics = json!([{ "key": "t", "topic": "task", "id": task }]);
    let mut live = site.live_as(&ADA, topics).await;
    next(&mut live, &["caught-up"]).await.unwrap();
    let own = shown(&site, "streams", &ADA).await;
    let console = own["streams"].as_array().unwrap().iter().find(|stream| stream["protocol"] == "console");
    let console = console.unwrap();
    assert!(console["events"].as_u64().unwrap() >= 2, "{console}");
    assert_eq!(console["tasks"][0]["taskId"], *task);
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_task_have_cursors() {
    let site = guests::site().await;
    let (ada, task) = begin(&site, ADA[0]).await;
    let path = format!("tasks/{task}/followers");
    let mut live = site.live_as(&OPERATOR, json!([{ "key": "t", "topic": "task", "id": task }])).await;
    next(&mut live, &["caught-up"]).await.unwrap();
    let followed = within("both to have caught up", async {
        loop {
            let followed = shown(&site, &path, &OPERATOR).await;
            let caught_up = |follower: &Value| follower["behind"] == 0;
            let followers = followed["followers"].as_array().unwrap();
            if followers.len() == 2 && followers.iter().all(caught_up) {
                return followed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let protocols: Vec<&str> = {
        let mut found: Vec<&str> = followed["followers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|follower| follower["protocol"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(protocols, ["a2a", "console"]);
    assert_eq!(followed["followers"][0]["cursor"], followed["last"]);
    // Its caller sees its own stream, and not that the operator reads along.
    let own = shown(&site, &path, &ADA).await;
    assert_eq!((own["followers"].as_array().unwrap().len(), &own["total"]), (1, &json!(1)));
    assert_eq!(own["followers"][0]["protocol"], "a2a");
    for other in [&BOB, &EVE] {
        site.console_refuses(&path, other, 404, "not_found").await;
    }
    drop(ada);
    within("the stream to be closed", async {
        while shown(&site, &path, &ADA).await["total"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_listed_without_its_id() {
    let site = guests::site().await;
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "probe", "version": "1" } } });
    let accept = ("Accept", "application/json, text/event-stream");
    let opened = site.send(post("/mcp", &[ADA[0], accept], hello.to_string())).await;
    assert_eq!(opened.status, 200, "{}", opened.text());
    let session = opened.header("mcp-session-id").to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    site.send(post("/mcp", &[ADA[0], accept, ("Mcp-Session-Id", session.as_str())], ready.to_string())).await;
    let own = shown(&site, "streams", &ADA).await;
    let listed = &own["sessions"][0];
    assert_eq!((&listed["protocol"], &listed["caller"]["name"]), (&json!("mcp/2025-06-18"), &json!("ada")));
    assert!(!own.to_string().contains(&session), "the id grants access");
    assert_eq!(shown(&site, "streams", &BOB).await["totalSessions"], 0);
    assert_eq!(shown(&site, "streams?owner=all", &ACME_ADMIN).await["totalSessions"], 1);
    let other = [("Authorization", "Bearer other/root;*:*+*:admin")];
    assert_eq!(shown(&site, "streams?owner=all", &other).await["totalSessions"], 0);
}
