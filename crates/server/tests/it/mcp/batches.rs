//! Batches, which 2025-03-26 has and no other revision.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    V2025,
    client::{Client, Reply, methods, saying, text_of, with_token},
    stage::{Stage, until},
};
use crate::socket::{post, within};

const VERSION: &str = "2025-03-26";

fn ping(id: impl Into<Value>) -> Value {
    let id = id.into();
    json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
}

fn call(id: impl Into<Value>, params: &Value) -> Value {
    let id = id.into();
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// The answers by the text of their ids.
fn sorted(answers: &Value) -> Vec<Value> {
    let mut answers = answers.as_array().unwrap_or_else(|| panic!("no array: {answers}")).clone();
    answers.sort_by_key(|answer| answer["id"].to_string());
    answers
}

#[tokio::test]
async fn requests_notifications_and_responses_come_together_and_so_do_the_answers() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({ "sampling": {} })).await;
    // A call that waits for the client's model: its answer is among the rest.
    let mut waiting = client.stream("tools/call", saying("player", "sample")).await;
    let asked = waiting.expect("sampling/createMessage").await;
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Well." } });
    let batch = json!([
        ping(1),
        { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
        { "jsonrpc": "2.0", "id": asked["id"], "result": said },
        call("two", &saying("player", "hello")),
        { "jsonrpc": "2.0", "id": 3, "method": "nonsense" },
        { "jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {} },
        { "jsonrpc": "2.0", "id": "nobody asked", "result": {} },
    ]);
    let answer = client.send(&batch).await.whole();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answers = sorted(&answer.json());
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!("two"), &json!(1), &json!(3), &json!(4)]);
    assert_eq!(text_of(&answers[0]["result"]), "hello");
    assert_eq!(answers[1]["result"], json!({}));
    assert_eq!(answers[2]["error"]["code"], -32601);
    assert_eq!(answers[3]["error"]["code"], -32600, "initialize stands alone");
    assert_eq!(text_of(&waiting.response().await.1["result"]), "Well.");
}

#[tokio::test]
async fn a_batch_that_asks_nothing_is_accepted() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let batch = json!([
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": "nobody asked", "result": {} },
    ]);
    let answer = client.send(&batch).await.whole();
    assert_eq!((answer.status, answer.text()), (202, ""));
}

#[tokio::test]
async fn what_is_wrong_in_a_batch_does_not_spoil_the_rest() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let batch =
        json!([7, { "foo": "bar" }, ping(1), { "jsonrpc": "2.0", "id": 2, "method": 5 }, [ping(3)], null]);
    let answers = sorted(&client.send(&batch).await.whole().json());
    let seen: Vec<(&Value, i64)> =
        answers.iter().map(|answer| (&answer["id"], answer["error"]["code"].as_i64().unwrap_or(0))).collect();
    let (null, one, two) = (Value::Null, json!(1), json!(2));
    assert_eq!(
        seen,
        [(&one, 0), (&two, -32600), (&null, -32600), (&null, -32600), (&null, -32600), (&null, -32600)]
    );
}

#[tokio::test]
async fn a_batch_with_a_call_that_takes_its_time_is_a_stream_to_the_last_answer() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let batch = json!([
        call(1, &with_token(saying("player", "tell-slowly 1"))),
        ping(2),
        call(3, &saying("player", "tell-slowly 2")),
    ]);
    let mut stream = client.send(&batch).await.stream();
    // What is known at once comes at once.
    let first = stream.next().await.unwrap();
    assert_eq!((&first["id"], &first["result"]), (&json!(2), &json!({})));
    stage.open(1);
    let mut before = vec![];
    loop {
        let message = stream.next().await.unwrap();
        if message["id"] == 1 {
            assert_eq!(text_of(&message["result"]), "told 1");
            break;
        }
        before.push(message);
    }
    assert!(methods(&before).contains(&"notifications/progress"), "{before:?}");
    stage.open(2);
    let rest = stream.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((&last["id"], text_of(&last["result"])), (&json!(3), "told 2"));
    assert!(rest[..rest.len() - 1].iter().all(|message| message["method"] == "notifications/message"));
}

/// The stream of a batch is found again as any other: with all of its calls, and nothing twice.
#[tokio::test]
async fn the_stream_of_a_batch_goes_on_after_it_was_lost() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let batch =
        json!([call(1, &saying("player", "tell-slowly 3")), call(2, &saying("player", "tell-slowly 3")),]);
    let mut stream = client.send(&batch).await.stream();
    stage.open(1);
    let (mut seen, mut cursor) = (vec![], None);
    while seen.len() < 2 {
        let (told, message) = stream.told().await.unwrap();
        assert_eq!(message["params"]["data"], "line 1");
        seen.push(message);
        cursor = told.id.or(cursor);
    }
    drop(stream);
    stage.open(3);
    let cursor = cursor.expect("a place to go on from once both have said something");
    let rest = client.resume(&cursor).await.stream().rest().await;
    let lines: Vec<&str> = rest.iter().filter_map(|message| message["params"]["data"].as_str()).collect();
    for line in ["line 2", "line 3"] {
        assert_eq!(lines.iter().filter(|told| **told == line).count(), 2, "{lines:?}");
    }
    assert_eq!(lines.len(), 4, "{lines:?}");
    let mut answered: Vec<u64> = rest.iter().filter_map(|message| message["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
}

#[tokio::test]
async fn a_batch_whose_calls_are_quiet_says_that_it_is_alive() {
    let keep_alive = Duration::from_millis(100);
    let stage = Stage::with(|setup| setup.server.limits.keep_alive = keep_alive).await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let mut stream = client.send(&json!([ping(1), call(2, &saying("player", "ask-later"))])).await.stream();
    stream.next().await.unwrap();
    let mut comments = 0;
    while comments < 2 {
        let piece = within("a sign of life", stream.piece()).await.unwrap();
        assert_eq!(piece.message(), None, "{piece:?}");
        comments += 1;
    }
}

#[tokio::test]
async fn calls_of_a_batch_can_be_cancelled_one_by_one() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let batch = json!([call(1, &saying("player", "wait")), call(2, &saying("player", "tell-slowly 1"))]);
    let stream = client.send(&batch).await.stream();
    until("both tasks", async || (stage.total().await == 2).then_some(())).await;
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    stage.open(1);
    let rest = stream.rest().await;
    let answered: Vec<u64> = rest.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert_eq!(answered, [2], "{rest:?}");
}

#[tokio::test]
async fn other_revisions_have_no_batches() {
    let stage = Stage::new().await;
    let batch = json!([ping(1), call(2, &saying("player", "hello"))]);
    for version in ["2024-11-05", "2025-06-18", V2025] {
        let client = Client::session(&stage, version, json!({})).await;
        let answer = client.send(&batch).await.whole();
        assert_eq!(answer.status, 400, "{version}: {}", answer.text());
        let said = answer.json();
        assert_eq!((&said["id"], &said["error"]["code"]), (&Value::Null, &json!(-32600)), "{version}");
    }
    // Without a session there is none to have them.
    let answer = stage.send(post("/mcp", &[], batch.to_string())).await;
    assert_eq!(answer.status, 400);
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "ping")];
    assert_eq!(stage.send(post("/mcp", &headers, batch.to_string())).await.status, 400);
    assert_eq!(stage.total().await, 0, "some of it was done all the same");
}

#[tokio::test]
async fn a_batch_has_something_in_it_and_not_too_much() {
    let stage = Stage::with(|setup| setup.server.mcp.max_batch = 3).await;
    let client = Client::session(&stage, VERSION, json!({})).await;
    let check = async |count: u64, status: u16| {
        let batch: Vec<Value> = (0..count).map(|n| call(n, &saying("player", "hello"))).collect();
        let before = stage.total().await;
        let Reply::Whole(answer) = client.send(&json!(batch)).await else { panic!("a stream") };
        assert_eq!(answer.status, status, "{count}: {}", answer.text());
        let done = stage.total().await - before;
        if status == 200 {
            assert_eq!((answer.json().as_array().unwrap().len() as u64, done), (count, count));
        } else {
            assert_eq!((&answer.json()["error"]["code"], done), (&json!(-32600), 0));
        }
    };
    check(0, 400).await;
    check(1, 200).await;
    check(3, 200).await;
    check(4, 400).await;
}
