//! Calls in a session: their streams can be lost and found again, their questions are put until they are
//! answered, and they end when nobody wants them any more.

use serde_json::{Value, json};

use super::{
    V2025,
    client::{Client, Told, accept, as_task, saying, text_of, with_token},
    stage::{Stage, until},
};

fn asks() -> Value {
    json!({ "elicitation": { "form": {} }, "sampling": {} })
}

/// The task of a call, by the first event of its stream.
async fn task_of(stream: &mut super::client::Stream) -> (String, Told) {
    let first = stream.piece().await.unwrap();
    assert_eq!(first.message(), None, "the first event only says where to go on: {first:?}");
    assert!(first.retry.is_some(), "{first:?}");
    (first.place().0.to_owned(), first)
}

#[tokio::test]
async fn a_lost_stream_is_found_again_byte_for_byte_and_no_other() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let call = with_token(saying("player", "tell-slowly 4"));
    let (one, two) =
        (client.stream("tools/call", call.clone()).await, client.stream("tools/call", call).await);
    stage.open(4);
    let (one, two) = (one.pieces().await, two.pieces().await);
    let tasks = [one[0].place().0, two[0].place().0];
    assert_ne!(tasks[0], tasks[1]);
    for (pieces, task) in [(&one, tasks[0]), (&two, tasks[1])] {
        // The first says where to go on; then a line and a step each, and the response.
        assert_eq!(pieces.len(), 1 + 2 * 4 + 1);
        let mut ids: Vec<&str> = pieces.iter().map(|piece| piece.id.as_deref().unwrap()).collect();
        ids.dedup();
        assert_eq!(ids.len(), pieces.len(), "no two events have one id");
        for (n, piece) in pieces.iter().enumerate() {
            let rest = client.resume(piece.id.as_deref().unwrap()).await.stream().pieces().await;
            let (raw, wanted): (Vec<&str>, Vec<&str>) =
                (rest.iter().map(|p| &*p.raw).collect(), pieces[n + 1..].iter().map(|p| &*p.raw).collect());
            assert_eq!(raw, wanted, "after {n} of {task}");
        }
    }
    assert_eq!(one.last().unwrap().message().unwrap()["id"], 1);
    assert_eq!(two.last().unwrap().message().unwrap()["id"], 2);
}

/// While it goes on: the first reader is gone, and the second hears what is new.
#[tokio::test]
async fn a_stream_that_is_taken_up_while_it_runs_goes_on() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", with_token(saying("player", "tell-slowly 3"))).await;
    let (task, _) = task_of(&mut stream).await;
    stage.open(1);
    let (line, _) = stream.told().await.unwrap();
    let (step, message) = stream.told().await.unwrap();
    assert_eq!(message["params"]["message"], "step 1");
    drop(stream);
    // Whoever goes away has not cancelled it.
    let mut second = client.resume(step.id.as_deref().unwrap()).await.stream();
    stage.open(2);
    let (told, message) = second.told().await.unwrap();
    assert_eq!(message["params"]["data"], "line 2");
    assert!(told.place().1 > step.place().1 && step.place().1 > line.place().1);
    // Each message goes on one stream: whoever comes again takes the place of who was there before.
    let mut third = client.resume(step.id.as_deref().unwrap()).await.stream();
    assert_eq!(third.told().await.unwrap().0, told);
    let left = second.rest().await;
    assert!(left.iter().all(|message| message["method"] == "notifications/progress"), "{left:?}");
    stage.open(3);
    let rest = third.pieces().await;
    assert_eq!(text_of(&rest.last().unwrap().message().unwrap()["result"]), "told 3");
    assert_eq!(stage.state(&task).await, "COMPLETED");
}

/// Progress of one request only grows, whatever its client was told on a stream before.
#[tokio::test]
async fn what_is_told_on_another_stream_is_further_than_what_was_told() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", with_token(saying("player", "falter"))).await;
    task_of(&mut stream).await;
    let mut last = String::new();
    for n in 1..=3 {
        let (told, message) = stream.told().await.unwrap();
        assert_eq!(message["params"]["progress"], json!(n), "{message}");
        last = told.id.unwrap();
    }
    drop(stream);
    stage.open(1);
    let pieces = client.resume(&last).await.stream().pieces().await;
    let messages: Vec<_> = pieces.iter().filter_map(Told::message).collect();
    let progress: Vec<_> =
        messages.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    assert_eq!(progress, [4.0], "{messages:?}");
    assert_eq!(text_of(&messages.last().unwrap()["result"]), "arrived");
}

#[tokio::test]
async fn the_stream_of_a_result_goes_on_as_well() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let made = client.ok("tools/call", with_token(as_task("player", "tell-slowly 3"))).await;
    let task = made["task"]["taskId"].as_str().unwrap();
    stage.open(1);
    until("the first step", async || {
        let got = client.ok("tasks/get", json!({ "taskId": task })).await;
        (got["statusMessage"] == "step 1").then_some(())
    })
    .await;
    let result = client.stream("tasks/result", json!({ "taskId": task })).await;
    stage.open(3);
    let pieces = result.pieces().await;
    for (n, piece) in pieces.iter().enumerate() {
        let rest = client.resume(piece.id.as_deref().unwrap()).await.stream().pieces().await;
        let (raw, wanted): (Vec<&str>, Vec<&str>) =
            (rest.iter().map(|p| &*p.raw).collect(), pieces[n + 1..].iter().map(|p| &*p.raw).collect());
        // Only what this stream had: not what its task did before.
        assert_eq!(raw, wanted, "after {n}");
    }
}

#[tokio::test]
async fn an_event_that_never_was_is_an_error() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let pieces = client.stream("tools/call", with_token(saying("player", "tell 2"))).await.pieces().await;
    let task = pieces[0].place().0.to_owned();
    let over_a2a = stage.begin_player("hello").await;
    let running = client.ok("tools/call", as_task("player", "wait")).await;
    let running = running["task"]["taskId"].as_str().unwrap();
    for id in [
        "x".to_owned(),
        "7".to_owned(),
        format!("{task}."),
        format!("{task}.x"),
        format!("{task}.-1"),
        format!("{task}.1.5"),
        format!("{task}.1.zz"),
        format!("{task}.99"),
        format!("{task}.99.31"),
        "0198c5b2-0000-7000-8000-000000000000.1".to_owned(),
        format!("{over_a2a}.1"),
        format!("{running}.{}", u64::MAX),
    ] {
        let answer = client.resume(&id).await.whole();
        assert_eq!(answer.status, 400, "{id}: {}", answer.text());
        let said = answer.json();
        assert_eq!(said["error"]["code"], -32600, "{said}");
        assert!(said["error"]["message"].as_str().unwrap().contains("Last-Event-ID"), "{said}");
    }
    // Nor is it anybody else's: the stream belongs to the session that called.
    let other = Client::session(&stage, V2025, asks()).await;
    for piece in &pieces {
        let answer = other.resume(piece.id.as_deref().unwrap()).await.whole();
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    client.ok("ping", json!({})).await;
}

#[tokio::test]
async fn a_question_that_is_open_is_put_again_under_another_id() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let (task, first) = task_of(&mut stream).await;
    let (told, asked) = stream.told().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    drop(stream);
    let mut ids = vec![asked["id"].clone()];
    // From before the question and from after it.
    for after in [&first, &told] {
        let mut again = client.resume(after.id.as_deref().unwrap()).await.stream();
        let asked = again.expect("elicitation/create").await;
        assert_eq!(asked["params"]["message"], "Really?");
        assert!(!ids.contains(&asked["id"]), "{ids:?} {asked}");
        ids.push(asked["id"].clone());
    }
    let mut last = client.resume(told.id.as_deref().unwrap()).await.stream();
    last.expect("elicitation/create").await;
    // Whichever of them is answered.
    let answer = json!({ "jsonrpc": "2.0", "id": ids[0], "result": accept(true) });
    assert_eq!(client.send(&answer).await.whole().status, 202);
    assert_eq!(text_of(&last.response().await.1["result"]), "yes");
    // The others answer nothing any more, and are no error.
    let late = json!({ "jsonrpc": "2.0", "id": ids[1], "result": accept(false) });
    assert_eq!(client.send(&late).await.whole().status, 202);
    assert_eq!(stage.state(&task).await, "COMPLETED");
}

#[tokio::test]
async fn a_question_that_was_answered_elsewhere_meanwhile_is_not_put_again() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let (task, first) = task_of(&mut stream).await;
    let (told, asked) = stream.told().await.unwrap();
    drop(stream);
    stage.answer_over_a2a(&task, json!({ "confirm": false })).await;
    for after in [&first, &told] {
        let (before, response) = client.resume(after.id.as_deref().unwrap()).await.stream().response().await;
        assert_eq!(before, Vec::<Value>::new());
        assert_eq!(text_of(&response["result"]), "no");
    }
    assert_eq!(client.answer(&asked, accept(true)).await.status, 202, "too late is no error");
}

#[tokio::test]
async fn a_wrong_answer_is_not_taken_and_the_question_is_put_again_in_the_same_session() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let asked = stream.expect("elicitation/create").await;
    // Official clients of the first generation end their session where a response is answered with an error.
    let heard = client.answer(&asked, json!({ "action": "accept", "content": { "confirm": 7 } })).await;
    assert_eq!(heard.status, 202, "{}", heard.text());
    let again = stream.expect("elicitation/create").await;
    assert_ne!(again["id"], asked["id"]);
    assert_eq!(again["params"], asked["params"]);
    assert_eq!(client.answer(&again, accept(true)).await.status, 202);
    assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
}

#[tokio::test]
async fn after_three_wrong_answers_a_question_stands_until_somebody_answers_it() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let mut last = Value::Null;
    for wrong in [
        json!({ "action": "accept", "content": { "confirm": "x" } }),
        json!({ "action": "perhaps" }),
        json!({ "nothing": "of the kind" }),
    ] {
        last = stream.expect("elicitation/create").await;
        assert_eq!(client.answer(&last, wrong).await.status, 202);
    }
    assert_eq!(client.answer(&last, accept(true)).await.status, 202);
    let (before, response) = stream.response().await;
    assert_eq!(before, Vec::<Value>::new(), "it was asked a fourth time");
    assert_eq!(text_of(&response["result"]), "yes", "what cannot be read is nobody's answer");
}

#[tokio::test]
async fn a_client_may_refuse_a_question() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let check = async |answer: Value, expected: &str| {
        let mut stream = client.stream("tools/call", saying("player", "ask")).await;
        let asked = stream.expect("elicitation/create").await;
        let mut response = json!({ "jsonrpc": "2.0", "id": asked["id"] });
        for (name, value) in answer.as_object().unwrap() {
            response[name] = value.clone();
        }
        assert_eq!(client.send(&response).await.whole().status, 202, "{answer}");
        assert_eq!(text_of(&stream.response().await.1["result"]), expected, "{answer}");
    };
    check(json!({ "result": accept(false) }), "no").await;
    check(json!({ "result": { "action": "decline" } }), "declined").await;
    check(json!({ "result": { "action": "cancel" } }), "dismissed").await;
    check(json!({ "error": { "code": -32601, "message": "I cannot." } }), "unavailable").await;
    check(json!({ "error": { "code": -1, "message": "I will not." } }), "dismissed").await;
}

#[tokio::test]
async fn a_client_that_breaks_has_not_answered() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let asked = stream.expect("elicitation/create").await;
    let error = json!({ "code": -32603, "message": "the window was closed" });
    let broken = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
    assert_eq!(client.send(&broken).await.whole().status, 202);
    let again = stream.expect("elicitation/create").await;
    client.answer(&again, accept(true)).await;
    assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
}

#[tokio::test]
async fn a_client_is_asked_only_what_it_can_be_asked() {
    let stage = Stage::new().await;
    let check = async |version: &str, capabilities: Value, text: &str, expected: &str| {
        let client = Client::session(&stage, version, capabilities.clone()).await;
        let result = client.ok("tools/call", saying("player", text)).await;
        assert_eq!(text_of(&result), expected, "{version} {capabilities} {text}");
    };
    for version in super::WITH_SESSIONS {
        check(version, json!({}), "ask", "unavailable").await;
        check(version, json!({}), "sample", "no model").await;
    }
    // Elicitation is younger than these, whatever is declared.
    check("2024-11-05", asks(), "ask", "unavailable").await;
    check("2025-03-26", asks(), "ask", "unavailable").await;
    check(V2025, json!({ "elicitation": { "url": {} } }), "ask", "unavailable").await;
    let client = Client::session(&stage, "2025-06-18", json!({ "elicitation": {} })).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let asked = stream.expect("elicitation/create").await;
    client.answer(&asked, accept(true)).await;
    assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
}

/// A plain tool asks on the stream of its call too, and the rounds follow each other there.
#[tokio::test]
async fn a_plain_tool_asks_within_its_call() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", json!({ "name": "greet" })).await;
    let asked = stream.expect("elicitation/create").await;
    // Nobody else answers it.
    let other = Client::session(&stage, V2025, asks()).await;
    let content = json!({ "action": "accept", "content": { "name": "Eve" } });
    other.answer(&asked, content).await;
    let content = json!({ "action": "accept", "content": { "name": "Ada" } });
    assert_eq!(client.answer(&asked, content).await.status, 202);
    assert_eq!(text_of(&stream.response().await.1["result"]), "Hello, Ada.");
}

#[tokio::test]
async fn a_plain_tool_asks_three_times_and_then_its_call_fails_without_an_answer() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", json!({ "name": "greet" })).await;
    let mut ids = vec![];
    for wrong in [json!({ "name": 7 }), json!({}), json!([])] {
        let asked = stream.expect("elicitation/create").await;
        assert!(!ids.contains(&asked["id"]), "{asked}");
        client.answer(&asked, json!({ "action": "accept", "content": wrong })).await;
        ids.push(asked["id"].clone());
    }
    let (before, response) = stream.response().await;
    assert_eq!(before, Vec::<Value>::new());
    assert_eq!(response["error"]["code"], -32602, "{response}");
}

#[tokio::test]
async fn a_plain_tool_that_asks_is_cancelled_as_well() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let request = client.request("tools/call", json!({ "name": "greet" }));
    let mut stream = client.send(&request).await.stream();
    stream.expect("elicitation/create").await;
    let cancel = json!({ "requestId": request["id"] });
    assert_eq!(client.notify("notifications/cancelled", cancel).await, 202);
    assert_eq!(stream.rest().await, Vec::<Value>::new(), "it was answered");
}

/// It may come late. 404 would say that the session is gone, and a client would begin again.
#[tokio::test]
async fn an_answer_that_nobody_waits_for_does_not_end_the_session() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let mut stream = client.stream("tools/call", json!({ "name": "greet" })).await;
    let asked = stream.expect("elicitation/create").await;
    let named = json!({ "action": "accept", "content": { "name": "Ada" } });
    assert_eq!(client.answer(&asked, named.clone()).await.status, 202);
    stream.response().await;
    let done = stage.begin_player("hello").await;
    for id in [
        asked["id"].clone(),
        json!("nobody asked"),
        json!(7),
        json!(format!("q:{done}:1:q1")),
        json!("q:nobody:1:q1"),
        json!("h:1"),
    ] {
        let status = client.answer(&json!({ "id": id }), named.clone()).await.status;
        assert!([202, 400].contains(&status), "{id}: {status}");
    }
    client.ok("ping", json!({})).await;
}

#[tokio::test]
async fn the_end_of_a_session_cancels_its_calls_and_not_its_tasks() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let other = Client::session(&stage, V2025, asks()).await;
    let mut calls = vec![];
    for text in ["wait", "ask"] {
        let mut stream = client.stream("tools/call", saying("player", text)).await;
        let (task, _) = task_of(&mut stream).await;
        calls.push((task, stream));
    }
    let mut kept = other.stream("tools/call", saying("player", "wait")).await;
    let (kept_task, _) = task_of(&mut kept).await;
    let made = client.ok("tools/call", as_task("player", "wait")).await;
    let task = made["task"]["taskId"].as_str().unwrap();
    let mut background = saying("player", "wait");
    background["_meta"] = json!({ "nuncio/background": true });
    let linked = client.ok("tools/call", background).await;
    let linked = linked["_meta"]["nuncio/taskId"].as_str().unwrap();
    let listening = client.listen().await;

    assert_eq!(client.delete().await, 204);
    for (task, stream) in calls {
        assert_eq!(stage.until_state(&task, "CANCELED").await["id"], *task);
        // It ends; that nobody is there to read the response does not matter.
        stream.rest().await;
    }
    assert_eq!(listening.rest().await, Vec::<Value>::new(), "the session's own stream ends");
    for task in [task, linked, &kept_task] {
        assert_eq!(stage.state(task).await, "WORKING", "{task}");
    }
    other.ok("ping", json!({})).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_over_and_not_answered() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, asks()).await;
    let other = Client::session(&stage, V2025, asks()).await;
    for text in ["wait", "ask"] {
        let request = client.request("tools/call", saying("player", text));
        let mut stream = client.send(&request).await.stream();
        let (task, _) = task_of(&mut stream).await;
        // Not by somebody else, and not by another name.
        let cancel = json!({ "requestId": request["id"], "reason": "enough" });
        assert_eq!(other.notify("notifications/cancelled", cancel.clone()).await, 202);
        let wrong = json!({ "requestId": request["id"].to_string() });
        assert_eq!(client.notify("notifications/cancelled", wrong).await, 202);
        assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": 99 })).await, 202);
        assert_eq!(client.notify("notifications/cancelled", json!({})).await, 202);
        assert_ne!(stage.state(&task).await, "CANCELED", "{text}");

        assert_eq!(client.notify("notifications/cancelled", cancel).await, 202);
        stage.until_state(&task, "CANCELED").await;
        let told = stream.rest().await;
        assert!(told.iter().all(|message| message.get("method").is_some()), "it was answered: {told:?}");
    }
    // A task is not cancelled in this way.
    let request = client.request("tools/call", as_task("player", "wait"));
    let made = client.send(&request).await.whole().json();
    let task = made["result"]["task"]["taskId"].as_str().unwrap();
    client.notify("notifications/cancelled", json!({ "requestId": request["id"] })).await;
    assert_eq!(stage.state(task).await, "WORKING");
}

#[tokio::test]
async fn a_session_hears_the_lines_of_its_level() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let lines = async || {
        let mut stream = client.stream("tools/call", with_token(saying("player", "tell 1"))).await;
        let (before, _) = stream.response().await;
        let lines = before.iter().filter(|message| message["method"] == "notifications/message");
        lines.map(|line| line["params"]["data"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(lines().await, ["line 1"]);
    client.ok("logging/setLevel", json!({ "level": "debug" })).await;
    assert_eq!(lines().await, ["detail 1", "line 1"]);
    client.ok("logging/setLevel", json!({ "level": "warning" })).await;
    assert_eq!(lines().await, Vec::<String>::new());
    let (_, error) = client.refused("logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn a_call_that_is_repeated_under_its_key_is_the_same_task_also_in_another_session() {
    let stage = Stage::new().await;
    let call = |text: &str| {
        let mut call = saying("player", text);
        call["_meta"] = json!({ "nuncio/idempotencyKey": "k-1" });
        call
    };
    let task = |result: &Value| result["_meta"]["nuncio/taskId"].as_str().unwrap().to_owned();
    let first = Client::session(&stage, V2025, asks()).await;
    let one = first.ok("tools/call", call("hello")).await;
    let second = Client::session(&stage, "2025-06-18", asks()).await;
    let other = second.ok("tools/call", call("hello")).await;
    assert_eq!(task(&one), task(&other));
    let plain = second.ok("tools/call", saying("player", "hello")).await;
    assert_ne!(task(&one), task(&plain), "without a key it is another call");
    let (_, error) = second.refused("tools/call", call("something else")).await;
    assert_eq!(error["code"], -32602, "{error}");
    let listed = second.ok("tools/list", json!({})).await;
    let player = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "player").unwrap();
    assert_eq!(player["_meta"]["nuncio/idempotencyKey"], true, "whoever bridges sees that the key counts");
}
