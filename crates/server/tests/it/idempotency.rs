//! A repeated send is one send, by the key that it carries: one after the other, and at once.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    receiver::until,
    site::{Site, message, request, unique},
    socket::{Answer, Events, post},
};

/// Mostly 0.1: there are two names there by which a send may be known, the key and the task's id.
const ROUNDS: [&str; 5] = ["0.1", "0.3", "0.1", "1.0", "0.1"];

/// A send that makes a task.
fn send(version: &str, key: &str, text: &str) -> Vec<u8> {
    send_to(version, key, None, "m", text)
}

/// A message to a task, or one that makes it. In 0.1 the id is the client's, and messages have none.
fn send_to(version: &str, key: &str, task: Option<&str>, message_id: &str, text: &str) -> Vec<u8> {
    let (method, role, kind) = match version {
        "0.1" => ("tasks/send", "user", "type"),
        "0.3" => ("message/send", "user", "kind"),
        _ => ("SendMessage", "ROLE_USER", "text"),
    };
    let mut part = json!({ kind: "text" });
    part["text"] = text.into();
    let mut params = json!({ "message": { "messageId": message_id, "role": role, "parts": [part] } });
    match task {
        _ if version == "0.1" => {
            params["id"] = task.map_or_else(|| format!("task-{key}"), str::to_owned).into();
        }
        Some(task) => params["message"]["taskId"] = task.into(),
        None => {}
    }
    post("/", &[("A2A-Version", version), ("Idempotency-Key", key)], request(method, &params))
}

/// The task of an answer, or the code of its error.
fn outcome(answer: &Answer) -> Result<String, i64> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.json();
    match response["error"]["code"].as_i64() {
        Some(code) => {
            let said = response["error"]["message"].as_str().unwrap();
            assert!(said.contains("key") && said.contains("another request"), "{said}");
            Err(code)
        }
        None => {
            let result = &response["result"];
            Ok(result.get("task").unwrap_or(result)["id"].as_str().unwrap().to_owned())
        }
    }
}

#[tokio::test]
async fn a_repeat_is_the_same_task_and_another_request_is_refused() {
    let site = Site::new().await;
    for (n, version) in ["0.1", "0.3", "1.0"].into_iter().enumerate() {
        let key = unique("key");
        let first = outcome(&site.send(send(version, &key, "ask")).await).unwrap();
        for _ in 0..3 {
            assert_eq!(outcome(&site.send(send(version, &key, "ask")).await), Ok(first.clone()), "{version}");
        }
        assert_eq!(outcome(&site.send(send(version, &key, "ask again")).await), Err(-32602), "{version}");
        assert_eq!(site.total().await, n as u64 + 1, "{version}");
        // A repeat shows the task as it is by now.
        site.result("1.0", "CancelTask", json!({ "id": first })).await;
        let again = site.send(send(version, &key, "ask")).await;
        assert_eq!(outcome(&again), Ok(first));
        assert!(again.text().to_lowercase().contains("canceled"), "{}", again.text());
    }
    // Without a key, and with another one, it is another task.
    let other = outcome(&site.send(send("1.0", &unique("key"), "ask")).await).unwrap();
    let plain = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "ask" }] } });
    let without = site.result("1.0", "SendMessage", plain).await;
    assert_ne!(without["task"]["id"], *other);
    assert_eq!(site.total().await, 5);
}

/// Whoever repeats an answer, because nobody told them that it had come, does not answer the next question.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_answer_is_one_answer() {
    let site = Site::new().await;
    for version in ["0.1", "0.3", "1.0"] {
        let task = outcome(&site.send(send(version, &unique("key"), "ask-twice")).await).unwrap();
        let question = async || {
            let got = site.until_state(&task, "INPUT_REQUIRED").await;
            got["status"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(question().await, "First?");
        let key = unique("key");
        let answer = |text: &str| send_to(version, &key, Some(&task), "answer", text);
        // One after the other, and at once.
        let answers = join_all((0..4).map(|_| site.send(answer("yes")))).await;
        assert!(answers.iter().all(|answer| outcome(answer).as_ref() == Ok(&task)), "{version}: {answers:?}");
        until("the second question", async || question().await == "Second?").await;
        for _ in 0..2 {
            assert_eq!(outcome(&site.send(answer("yes")).await).as_ref(), Ok(&task));
        }
        assert_eq!(question().await, "Second?", "{version}");
        assert_eq!(
            outcome(&site.send(answer("no")).await),
            Err(-32602),
            "{version}: another answer under that key"
        );
        if version != "0.1" {
            let renamed = send_to(version, &key, Some(&task), "renamed", "yes");
            assert_eq!(
                outcome(&site.send(renamed).await),
                Err(-32602),
                "{version}: its id is part of a message"
            );
        }
        let other = send_to(version, &unique("key"), Some(&task), "answer 2", "no");
        assert_eq!(outcome(&site.send(other).await).as_ref(), Ok(&task));
        let done = site.until_state(&task, "COMPLETED").await;
        assert_eq!(done["status"]["message"]["parts"][0]["text"], "yes, no", "{version}");
        // And after the end a repeat is still the answer that was given, not a message to a task that has ended.
        assert_eq!(outcome(&site.send(answer("yes")).await).as_ref(), Ok(&task), "{version}");
    }
}

#[tokio::test]
async fn a_repeated_stream_is_the_same_stream() {
    let site = Site::new().await;
    let key = unique("key");
    let headers = [("A2A-Version", "1.0"), ("Idempotency-Key", key.as_str())];
    let request =
        post("/", &headers, request("SendStreamingMessage", &json!({ "message": message("chunks 5") })));
    let read = async || {
        let mut stream = Events::open(site.socket().await, &request).await;
        let mut frames: Vec<(Option<u64>, Value)> = vec![];
        while let Some(frame) = stream.next().await {
            frames.push(frame);
        }
        frames
    };
    let first = read().await;
    assert_eq!(first.len(), 8, "the task, working, five pieces, completed");
    assert_eq!(read().await, first);
    assert_eq!(site.total().await, 1);
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_refused() {
    let site = Site::new().await;
    for key in ["", " ", "é"] {
        let refused = site.send(send("1.0", key, "x")).await.json();
        assert_eq!(refused["error"]["code"], -32602, "{key:?}");
        let said = refused["error"]["message"].as_str().unwrap();
        assert!(said.contains("Idempotency-Key") && said.contains("ASCII"), "{said}");
    }
    assert_eq!(site.total().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_that_meet_are_one_task() {
    let site = Site::new().await;
    for (round, version) in ROUNDS.into_iter().cycle().take(40).enumerate() {
        // An agent that is done at once, and one that stays.
        let text = if round % 2 == 0 { "echo" } else { "ask" };
        let key = unique("key");
        let sends = (0..8).map(|_| site.send(send(version, &key, text)));
        let answers = join_all(sends).await;
        let tasks: BTreeSet<_> = answers.iter().map(outcome).collect();
        assert_eq!(tasks.len(), 1, "{version}: {tasks:?}");
        assert!(tasks.first().unwrap().is_ok(), "{tasks:?}");
        assert_eq!(site.total().await, round as u64 + 1, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_different_requests_that_meet_under_one_key_one_is_taken() {
    let site = Site::new().await;
    for (round, version) in ROUNDS.into_iter().cycle().take(40).enumerate() {
        let key = unique("key");
        let texts = ["a", "b", "c", "a", "b", "c"];
        let answers = join_all(texts.map(|text| site.send(send(version, &key, text)))).await;
        let outcomes: Vec<_> = answers.iter().map(outcome).collect();
        let taken: BTreeSet<_> = outcomes.iter().filter_map(|outcome| outcome.clone().ok()).collect();
        assert_eq!(taken.len(), 1, "{version}: {outcomes:?}");
        // The winner and its repeat.
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2, "{version}: {outcomes:?}");
        assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|code| *code == -32602));
        assert_eq!(site.total().await, round as u64 + 1);
    }
}
