//! An agent that answers with a message: its callers get that message, and see no task.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Level, Message, Outcome, Part, Profile, Role, TaskContext, content::Metadata,
};
use serde_json::{Value, json};

use crate::{
    site::{Setup, Site, request, unique, version_header},
    socket::{Events, post},
};

/// Answers with a message: at once, or after what the first word of the text names.
pub(crate) struct Replier;

#[async_trait]
impl Agent for Replier {
    fn profile(&self) -> Profile {
        Profile::new("replier", "answers with a message").replies()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        match cx.text().as_str() {
            // After the task itself is stored, and with a line for the operator.
            "later" => {
                cx.wait_until_durable().await;
                cx.log(Level::Info, "thinking").await?;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            "progress" => cx.progress(1.0, Some(2.0), "half").await?,
            "fail" => return Ok(Outcome::failed("it broke")),
            _ => {}
        }
        let mut message =
            Message::of("", Role::Agent, vec![Part::text("hello"), Part::data(json!({ "n": 1 }))]);
        message.metadata = Some(Metadata::from_iter([("k".to_owned(), json!("v"))]));
        Ok(Outcome::Replied(message))
    }
}

fn with_replier(setup: &mut Setup) {
    setup.options.idempotent_message_ids = true;
    setup.agents.push(Arc::new(Replier));
}

async fn site() -> Site {
    Site::with(with_replier).await
}

fn message(version: &str, id: &str, text: &str) -> Value {
    match version {
        "0.3" => json!({ "messageId": id, "role": "user", "parts": [{ "kind": "text", "text": text }] }),
        _ => json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] }),
    }
}

fn methods(version: &str) -> [&'static str; 5] {
    match version {
        "0.3" => ["message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"],
        _ => ["SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"],
    }
}

async fn call(site: &Site, version: &str, method: &str, params: Value) -> Value {
    site.call_at("/agents/replier", version, method, params).await
}

async fn stream(site: &Site, version: &str, params: &Value) -> Vec<Value> {
    let body = request(methods(version)[1], params);
    let request = post("/agents/replier", &version_header(version), body);
    Events::open(site.socket().await, &request).await.results().await
}

/// The message of an answer, in either dialect.
fn reply_of<'a>(version: &str, result: &'a Value) -> &'a Value {
    let message = if version == "0.3" { result } else { &result["message"] };
    let (role, text) = match version {
        "0.3" => ("agent", json!({ "kind": "text", "text": "hello" })),
        _ => ("ROLE_AGENT", json!({ "text": "hello" })),
    };
    assert_eq!(message["role"], role, "{result}");
    assert_eq!(message["parts"][0], text, "{result}");
    assert_eq!(message["metadata"], json!({ "k": "v" }), "{result}");
    assert!(message["contextId"].is_string() && message["messageId"].is_string(), "{result}");
    assert!(message.get("taskId").is_none(), "there is no task: {result}");
    if version == "0.3" {
        assert_eq!(message["kind"], "message", "{result}");
    } else {
        assert_eq!(result.as_object().unwrap().len(), 1, "a message and nothing else: {result}");
    }
    message
}

#[tokio::test]
async fn an_answer_by_a_message_shows_no_task_in_any_operation() {
    let site = site().await;
    for version in ["1.0", "0.3"] {
        for text in ["now", "later"] {
            let [send, _, get, cancel, subscribe] = methods(version);
            let params = json!({ "message": message(version, &unique("m"), text) });
            let answer = call(&site, version, send, params).await;
            let reply = reply_of(version, &answer["result"]);
            // The context is named after the record, so its id can be guessed; it is no task all the same.
            let id = reply["contextId"].as_str().unwrap().strip_prefix("ctx-").unwrap();
            for method in [get, cancel] {
                let answer = call(&site, version, method, json!({ "id": id })).await;
                assert_eq!(answer["error"]["code"], -32001, "{method}: {answer}");
            }
            let body = request(subscribe, &json!({ "id": id }));
            let answer = site.send(post("/agents/replier", &version_header(version), body)).await;
            assert!(answer.text().contains("-32001"), "{}", answer.text());
            let mut follow_up = message(version, &unique("m"), "more");
            follow_up["taskId"] = id.into();
            let answer = call(&site, version, send, json!({ "message": follow_up })).await;
            assert_eq!(answer["error"]["code"], -32001, "{answer}");
            let context = reply["contextId"].clone();
            for filter in [json!({}), json!({ "contextId": context }), json!({ "includeArtifacts": true })] {
                let listed = call(&site, "1.0", "ListTasks", filter).await;
                assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
                assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
            }
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_answered_by_a_message_has_one_event() {
    let site = site().await;
    for version in ["1.0", "0.3"] {
        for text in ["now", "later"] {
            let params = json!({ "message": message(version, &unique("m"), text) });
            let events = stream(&site, version, &params).await;
            let [event] = &events[..] else { panic!("one event: {events:?}") };
            reply_of(version, event);
        }
    }
}

#[tokio::test]
async fn over_rest_an_answer_is_the_message_and_a_stream_has_one_event() {
    let site = site().await;
    let headers = version_header("1.0");
    for text in ["now", "later"] {
        let body = || json!({ "message": message("1.0", &unique("m"), text) }).to_string();
        let answer = site.send(post("/agents/replier/message:send", &headers, body())).await;
        reply_of("1.0", &answer.json());
        let streamed = site.send(post("/agents/replier/message:stream", &headers, body())).await;
        let events: Vec<&str> =
            streamed.text().lines().filter_map(|line| line.strip_prefix("data:")).collect();
        let [event] = events[..] else { panic!("one event: {events:?}") };
        reply_of("1.0", &serde_json::from_str(event).unwrap());
    }
}

#[tokio::test]
async fn a_repeated_send_gets_the_same_message_also_after_a_restart() {
    let mut site = site().await;
    let params = |text| json!({ "message": message("1.0", &format!("repeated-{text}"), text) });
    let mut first = vec![];
    for text in ["now", "later"] {
        first.push(call(&site, "1.0", "SendMessage", params(text)).await["result"].clone());
    }
    for round in 0..2 {
        for (text, first) in ["now", "later"].into_iter().zip(&first) {
            reply_of("1.0", first);
            let again = call(&site, "1.0", "SendMessage", params(text)).await;
            assert_eq!(again["result"], *first, "round {round}");
            assert_eq!(
                stream(&site, "1.0", &params(text)).await,
                std::slice::from_ref(first),
                "round {round}"
            );
        }
        if round == 0 {
            let folder = site.begin_stop().finish().await;
            site = Site::with(|setup| {
                setup.folder = folder;
                with_replier(setup);
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_reply_after_progress_completes_the_task_that_was_shown() {
    let site = site().await;
    for version in ["1.0", "0.3"] {
        let params = json!({ "message": message(version, &unique("m"), "progress") });
        let events = stream(&site, version, &params).await;
        let last = events.last().unwrap();
        let (task, status) = match version {
            "0.3" => (&events[0], &last["status"]),
            _ => (&events[0]["task"], &last["statusUpdate"]["status"]),
        };
        assert!(status["state"].as_str().unwrap().to_lowercase().ends_with("completed"), "{events:?}");
        assert_eq!(status["message"]["parts"][0]["text"], "hello", "{events:?}");
        let got = call(&site, version, methods(version)[2], json!({ "id": task["id"] })).await;
        assert_eq!(got["result"]["status"], *status, "{got}");
    }
}

#[tokio::test]
async fn a_caller_that_does_not_wait_gets_a_task_and_its_completion() {
    let site = site().await;
    let configuration = json!({ "returnImmediately": true });
    let params = json!({ "message": message("1.0", &unique("m"), "later"), "configuration": configuration });
    let sent = call(&site, "1.0", "SendMessage", params).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
    let done = site.until_state(&id, "COMPLETED").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "hello", "{done}");
    // A task of 0.1 has the id that its client chose, and 0.1 has no other answer.
    let parts = json!([{ "type": "text", "text": "now" }]);
    let params = json!({ "id": "chosen", "message": { "role": "user", "parts": parts } });
    let sent = call(&site, "0.1", "tasks/send", params).await;
    assert_eq!(sent["result"]["status"]["state"], "completed", "{sent}");
    assert_eq!(sent["result"]["id"], "chosen", "{sent}");
}

#[tokio::test]
async fn an_agent_that_may_reply_and_fails_shows_its_task_whole() {
    let site = site().await;
    let params = json!({ "message": message("1.0", &unique("m"), "fail") });
    let events = stream(&site, "1.0", &params).await;
    assert!(events[0]["task"]["id"].is_string(), "{events:?}");
    let last = &events.last().unwrap()["statusUpdate"]["status"];
    assert_eq!(last["state"], "TASK_STATE_FAILED", "{events:?}");
}

#[tokio::test]
async fn an_agent_without_the_promise_completes_its_task_with_the_message() {
    struct Plain;
    #[async_trait]
    impl Agent for Plain {
        fn profile(&self) -> Profile {
            Profile::new("plain", "did not say that it replies")
        }

        async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
            Ok(Outcome::replied("hello"))
        }
    }
    let site = Site::with(|setup| setup.agents.push(Arc::new(Plain))).await;
    let params = json!({ "message": message("1.0", &unique("m"), "go") });
    let sent = site.call_at("/agents/plain", "1.0", "SendMessage", params).await;
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
}

#[tokio::test]
async fn the_record_of_a_reply_is_stored_as_one_that_has_ended() {
    let site = site().await;
    let params = json!({ "message": message("1.0", &unique("m"), "now") });
    let answer = call(&site, "1.0", "SendMessage", params).await;
    let reply = reply_of("1.0", &answer["result"]);
    let id = reply["contextId"].as_str().unwrap().strip_prefix("ctx-").unwrap().to_owned();
    let key = nuncio_engine::store::TaskKey::Id(nuncio_engine::TaskId::parse(&id).unwrap());
    let row = site.engine.store_for_tests().row(&key).await.unwrap().unwrap();
    assert_eq!(row.state, nuncio_engine::State::Replied);
    assert!(row.state.is_terminal(), "it expires with the tasks that ended when it did");
}
