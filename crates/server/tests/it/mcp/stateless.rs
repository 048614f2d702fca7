//! Calls of 2026-07-28: each request stands for itself, and what it wants to find again travels with its client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::surface::{HandlerReply, ToolOutput, ToolProfile, tool};
use ring::hmac;
use serde_json::{Value, json};

use super::{
    TASKS,
    client::{Client, accept, methods, saying, text_of, with_token},
    stage::{Stage, until},
};

fn asks() -> Value {
    json!({ "elicitation": {}, "sampling": {} })
}

/// Calls something that asks; what it asks and what it gives along.
async fn asked(client: &Client, params: Value) -> (Vec<String>, Value) {
    let result = client.ok("tools/call", params).await;
    assert_eq!(result["resultType"], "input_required", "{result}");
    let keys = result["inputRequests"].as_object().unwrap().keys().cloned().collect();
    (keys, result["requestState"].clone())
}

/// The same call again, with answers.
fn again(params: &Value, state: &Value, responses: Value) -> Value {
    let mut params = params.clone();
    params["requestState"] = state.clone();
    params["inputResponses"] = responses;
    params
}

#[tokio::test]
async fn whoever_hangs_up_has_cancelled_the_call() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let mut stream = client.stream("tools/call", with_token(saying("player", "wait"))).await;
    stream.expect("notifications/progress").await;
    let task = stage.only_task().await;
    assert_eq!(stage.state(&task).await, "WORKING");
    drop(stream);
    stage.until_state(&task, "CANCELED").await;
}

/// Before there is anything to read: the head of the answer has not come yet, or nothing but it.
#[tokio::test]
async fn whoever_hangs_up_before_anything_is_said_has_cancelled_it_too() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let stream = client.stream("tools/call", saying("player", "wait")).await;
    drop(stream);
    let task = stage.only_task().await;
    stage.until_state(&task, "CANCELED").await;
}

#[tokio::test]
async fn a_task_lives_on_when_its_client_goes() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({ "extensions": { TASKS: {} } }));
    let made = client.ok("tools/call", saying("player", "tell-slowly 1")).await;
    let task = made["taskId"].as_str().unwrap();
    let listen = json!({ "notifications": { "taskIds": [task] } });
    let mut stream = client.stream("subscriptions/listen", listen).await;
    stream.expect("notifications/subscriptions/acknowledged").await;
    drop(stream);
    // So does what goes on in the background.
    let mut background = saying("player", "tell-slowly 1");
    background["_meta"]["nuncio/background"] = true.into();
    let linked = client.ok("tools/call", background).await;
    let linked = linked["_meta"]["nuncio/taskId"].as_str().unwrap();
    stage.open(1);
    for task in [task, linked] {
        stage.until_state(task, "COMPLETED").await;
    }
}

/// What asks has ended its request: whoever hangs up then has cancelled nothing.
#[tokio::test]
async fn a_call_that_asks_is_there_when_its_client_comes_back() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, asks());
    let call = with_token(saying("player", "ask-later"));
    let mut stream = client.stream("tools/call", call.clone()).await;
    stage.open(1);
    let (before, response) = stream.response().await;
    assert_eq!(methods(&before), Vec::<&str>::new());
    drop(stream);
    let task = stage.only_task().await;
    assert_eq!(stage.state(&task).await, "INPUT_REQUIRED");
    let result = &response["result"];
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let responses = json!({ key: accept(true) });
    let result = client.ok("tools/call", again(&call, &result["requestState"], responses)).await;
    assert_eq!(text_of(&result), "yes");
    assert_eq!(stage.total().await, 1, "it is one call");
}

#[tokio::test]
async fn lines_are_told_to_whoever_names_a_level() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let check = async |level: Option<&str>, expected: &[&str]| {
        let mut params = with_token(saying("player", "tell 1"));
        if let Some(level) = level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = level.into();
        }
        let (before, _) = client.stream("tools/call", params).await.response().await;
        let lines: Vec<&str> =
            before.iter().filter_map(|message| message["params"]["data"].as_str()).collect();
        assert_eq!(lines, expected, "{level:?}");
        assert!(methods(&before).contains(&"notifications/progress"));
    };
    check(None, &[]).await;
    check(Some("debug"), &["detail 1", "line 1"]).await;
    check(Some("info"), &["line 1"]).await;
    check(Some("error"), &[]).await;
    // Not from one request to the next.
    check(None, &[]).await;
    let mut params = saying("player", "tell 1");
    params["_meta"]["io.modelcontextprotocol/logLevel"] = "loud".into();
    let (status, error) = client.refused("tools/call", params).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32602)));
}

#[tokio::test]
async fn a_call_that_needs_what_its_client_cannot_do_says_what_that_is() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let (status, error) = client.refused("tools/call", json!({ "name": "greet", "arguments": {} })).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32021)));
    assert_eq!(error["data"]["requiredCapabilities"], json!({ "elicitation": {} }));
    // An agent goes its own way.
    assert_eq!(text_of(&client.ok("tools/call", saying("player", "ask")).await), "unavailable");
    assert_eq!(text_of(&client.ok("tools/call", saying("player", "sample")).await), "no model");
    let client = Client::stateless(&stage, asks());
    let call = saying("player", "sample");
    let (keys, state) = asked(&client, call.clone()).await;
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Well." } });
    let result = client.ok("tools/call", again(&call, &state, json!({ &keys[0]: said }))).await;
    assert_eq!(text_of(&result), "Well.");
}

#[tokio::test]
async fn a_retry_without_all_answers_asks_again() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, asks());
    let call = saying("player", "ask-both");
    let (keys, state) = asked(&client, call.clone()).await;
    let [left, right] = &keys[..] else { panic!("{keys:?}") };
    let mut retry = call.clone();
    retry["requestState"] = state.clone();
    let (keys, state) = asked(&client, retry).await;
    assert_eq!(keys, [left.clone(), right.clone()], "no answers at all");
    let (keys, state) = asked(&client, again(&call, &state, json!({ "nobody": accept(true) }))).await;
    assert_eq!(keys, [left.clone(), right.clone()], "an answer to nothing");
    let (keys, state) = asked(&client, again(&call, &state, json!({ left: accept(true) }))).await;
    assert_eq!(keys, [right.as_str()]);
    // What is answered stays so.
    let responses = json!({ left: accept(false), right: accept(false) });
    let result = client.ok("tools/call", again(&call, &state, responses)).await;
    assert_eq!(text_of(&result), "yes, no");
    assert_eq!(stage.total().await, 1);

    // The same with a plain tool, which keeps nothing itself.
    let call = json!({ "name": "greet", "arguments": {} });
    let (keys, state) = asked(&client, call.clone()).await;
    let (same, state) = asked(&client, again(&call, &state, json!({}))).await;
    assert_eq!(keys, same);
    let content = json!({ "action": "accept", "content": { "name": "Ada" } });
    let result = client.ok("tools/call", again(&call, &state, json!({ "name": content }))).await;
    assert_eq!(text_of(&result), "Hello, Ada.");
}

#[tokio::test]
async fn an_answer_that_breaks_its_schema_is_refused_and_changes_nothing() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, asks());
    let call = saying("player", "ask");
    let (keys, state) = asked(&client, call.clone()).await;
    let task = stage.only_task().await;
    let seq = stage.seq(&task).await;
    for wrong in [
        json!({ "action": "accept", "content": { "confirm": "perhaps" } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "shrug" }),
        json!({}),
        json!([]),
    ] {
        let params = again(&call, &state, json!({ &keys[0]: wrong }));
        let (status, error) = client.refused("tools/call", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{wrong}: {error}");
        assert_eq!(stage.seq(&task).await, seq, "{wrong}");
    }
    // It can still be answered.
    let result = client.ok("tools/call", again(&call, &state, json!({ &keys[0]: accept(true) }))).await;
    assert_eq!(text_of(&result), "yes");
}

/// A state is good for one caller, one request and some time, and only as it was given.
#[tokio::test]
async fn a_state_that_does_not_belong_here_is_refused() {
    let secret = b"a secret of this test";
    let stage = Stage::with(|setup| setup.server.mcp.secret = secret.to_vec()).await;
    let client = Client::stateless(&stage, asks());
    let call = saying("player", "ask");
    let (keys, state) = asked(&client, call.clone()).await;
    let (_, other) = asked(&client, json!({ "name": "greet", "arguments": {} })).await;
    let task = stage.only_task().await;
    let seq = stage.seq(&task).await;
    let check = async |params: Value, state: &str, what: &str| {
        let params = again(&params, &json!(state), json!({ &keys[0]: accept(true) }));
        let (status, error) = client.refused("tools/call", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{what}: {error}");
        assert!(error["message"].as_str().unwrap().contains("requestState"), "{what}: {error}");
        assert_eq!(stage.seq(&task).await, seq, "{what}: it was answered all the same");
    };
    let good = state.as_str().unwrap();
    check(saying("player", "ask "), good, "other arguments").await;
    check(saying("quick", "ask"), good, "another tool").await;
    check(json!({ "name": "greet", "arguments": { "text": "ask" } }), good, "a plain tool").await;
    check(call.clone(), other.as_str().unwrap(), "the state of another call").await;
    check(call.clone(), "", "nothing").await;
    check(call.clone(), "a.b", "nonsense").await;
    check(call.clone(), &format!("{good}A"), "too long").await;
    for at in [0, 10, good.len() / 2, good.len() - 1] {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        check(call.clone(), &String::from_utf8(bytes).unwrap(), "tampered with").await;
    }
    // Signed as it should be, and made for somebody else, or for a time that is over.
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[&secret[..], b"\0mcp request state"].concat());
    let body = BASE64_URL_SAFE_NO_PAD.decode(good.split_once('.').unwrap().0).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let forge = |change: fn(&mut Value)| {
        let mut body = body.clone();
        change(&mut body);
        let body = BASE64_URL_SAFE_NO_PAD.encode(body.to_string());
        let tag = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, body.as_bytes()));
        format!("{body}.{tag}")
    };
    check(call.clone(), &forge(|body| body["c"] = "somebody".into()), "of another caller").await;
    check(call.clone(), &forge(|body| body["e"] = 1.into()), "expired").await;
    let forged = forge(|_| {});
    let result =
        client.ok("tools/call", again(&call, &json!(forged), json!({ &keys[0]: accept(true) }))).await;
    assert_eq!(text_of(&result), "yes", "the forger knows how it is done");
}

#[tokio::test]
async fn a_state_is_good_for_some_time() {
    let stage = Stage::with(|setup| setup.server.mcp.state_ttl = Duration::from_millis(1)).await;
    let client = Client::stateless(&stage, asks());
    for call in [saying("player", "ask"), json!({ "name": "greet", "arguments": {} })] {
        let (_, state) = asked(&client, call.clone()).await;
        // Without an answer it changes nothing while it is still good.
        let error = until("the end of a state", async || {
            let response = client.call("tools/call", again(&call, &state, json!({}))).await;
            response.get("error").cloned()
        })
        .await;
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains("expired"), "{error}");
    }
}

/// Signed by one server, understood by the next that has the same secret.
#[tokio::test]
async fn a_state_is_good_after_a_restart() {
    let secret = b"the same for all".to_vec();
    let stage = Stage::with(|setup| setup.server.mcp.secret = secret.clone()).await;
    let call = saying("player", "ask");
    let client = Client::stateless(&stage, asks());
    let (keys, state) = asked(&client, call.clone()).await;
    let folder = stage.stop().finish().await;
    let stage = Stage::with(|setup| {
        setup.folder = folder;
        setup.server.mcp.secret = secret;
    })
    .await;
    let client = client.moved_to(&stage);
    let result = client.ok("tools/call", again(&call, &state, json!({ &keys[0]: accept(true) }))).await;
    assert_eq!(text_of(&result), "yes");
}

/// A tool that is done has been run: answers that it did not ask for do not make it run again.
#[tokio::test]
async fn answers_that_no_tool_asked_for_do_not_run_it_twice() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, asks());
    let runs = Arc::new(AtomicU32::new(0));
    for (name, hands_over) in [("counting", false), ("handing-over", true)] {
        let counted = Arc::clone(&runs);
        let counting = tool(ToolProfile::new(name, "Counts its runs."), move |request| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                Ok(match hands_over {
                    true => HandlerReply::HandOver { agent: "player".into(), arguments: request.arguments },
                    false => HandlerReply::Done(ToolOutput::text(run.to_string())),
                })
            }
        });
        stage.engine.catalog().surface().add_tool(counting).unwrap();
        let mut call = saying("player", "tell 1");
        call["name"] = name.into();
        call["inputResponses"] = json!({ "name": accept(true) });
        client.ok("tools/call", call).await;
        assert_eq!(runs.swap(0, Ordering::SeqCst), 1, "{name}");
    }
    assert_eq!(stage.total().await, 1, "one task was begun");
}
