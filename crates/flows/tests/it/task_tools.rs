//! Tasks by tools: everything that a caller can do to its own tasks, and nothing to those of others.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_agents::EchoAgent;
use nuncio_engine::{
    Agent, AgentError, Answer, Caller, Grants, Outcome, Profile, TaskContext, surface::HandlerError,
};
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, until};

/// Asks whether to go on, and says what it heard.
struct Asks;

#[async_trait]
impl Agent for Asks {
    fn profile(&self) -> Profile {
        Profile::new("asks", "Asks whether to go on.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let form = json!({
            "type": "object",
            "properties": { "confirm": { "type": "boolean" } },
            "required": ["confirm"],
        });
        Ok(Outcome::said(match cx.ask("Go on?", form).await? {
            Answer::Accept(data) => format!("accepted {}", data["confirm"]),
            Answer::Decline(note) => note.map_or("declined".into(), |note| format!("declined: {note}")),
            Answer::Cancel => "dismissed".into(),
            Answer::Unavailable => "nobody there".into(),
        }))
    }
}

/// Has another agent ask, and passes its question on.
struct PassesOn;

#[async_trait]
impl Agent for PassesOn {
    fn profile(&self) -> Profile {
        Profile::new("passes-on", "Passes a question on.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let called = cx.call("asks", cx.input().clone()).await?;
        Ok(Outcome::said(format!("it was {}", called.state.name())))
    }
}

struct Scene {
    here: TestEngine,
    ada: Caller,
}

impl Scene {
    async fn new() -> Self {
        let here = TestEngine::start(vec![Arc::new(EchoAgent), Arc::new(Asks), Arc::new(PassesOn)]).await;
        nuncio_flows::tasks::install(&here.engine, here.engine.catalog().surface()).unwrap();
        Self { here, ada: Caller::named("acme/ada") }
    }

    async fn ok(&self, tool: &str, arguments: Value) -> Value {
        self.here.call(&self.ada, tool, arguments).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    async fn refused(&self, tool: &str, arguments: Value) -> HandlerError {
        self.here.call(&self.ada, tool, arguments).await.expect_err("refused")
    }

    /// A task that asks.
    async fn asking(&self) -> String {
        let sent = self.ok("task_send", json!({ "agent": "asks", "text": "please" })).await;
        let task = sent["taskId"].as_str().unwrap().to_owned();
        self.until(&task, "input-required").await;
        task
    }

    async fn until(&self, task: &str, state: &str) -> Value {
        until(state, async || {
            let got = self.ok("task_get", json!({ "taskId": task })).await;
            (got["state"] == *state).then_some(got)
        })
        .await
    }
}

#[tokio::test]
async fn a_task_is_sent_and_read() {
    let scene = Scene::new().await;
    let sent = scene.ok("task_send", json!({ "agent": "echo", "text": "hello", "contextId": "talk" })).await;
    assert_eq!((&sent["contextId"], &sent["state"]), (&json!("talk"), &json!("completed")));
    let task = &sent["taskId"];
    let brief = scene.ok("task_get", json!({ "taskId": task })).await;
    assert!(brief.get("history").is_none() && brief.get("artifacts").is_some(), "{brief}");
    assert_eq!((&brief["agent"], &brief["questions"]), (&json!("echo"), &json!([])));
    let whole = scene.ok("task_get", json!({ "taskId": task, "history": true, "artifacts": false })).await;
    assert_eq!(whole["history"][0]["parts"], json!([{ "text": "hello" }]));
    assert!(whole.get("artifacts").is_none());
}

#[tokio::test]
async fn a_question_is_answered_in_every_way() {
    let scene = Scene::new().await;
    for (reply, heard) in [
        (json!({ "text": "yes" }), "accepted true"),
        (json!({ "data": { "confirm": false } }), "accepted false"),
        (json!({ "data": "{\"confirm\": true}" }), "accepted true"),
        (json!({ "action": "accept", "data": { "confirm": true } }), "accepted true"),
        (json!({ "action": "decline" }), "declined"),
        (json!({ "action": "decline", "text": "too dear" }), "declined: too dear"),
        (json!({ "action": "decline", "data": { "reason": "too dear" } }), "declined: too dear"),
        (json!({ "action": "cancel" }), "dismissed"),
    ] {
        let task = scene.asking().await;
        let got = scene.ok("task_get", json!({ "taskId": task })).await;
        let question = &got["questions"][0];
        assert_eq!(
            (&question["text"], &question["schema"]["required"]),
            (&json!("Go on?"), &json!(["confirm"]))
        );
        // Once by the name of the question, where that can be said.
        let mut reply = reply;
        reply["taskId"] = json!(task);
        if reply.get("text").is_none() {
            reply["questionId"] = question["questionId"].clone();
        }
        scene.ok("task_reply", reply.clone()).await;
        let ended = scene.until(&task, "completed").await;
        assert_eq!(ended["message"]["parts"][0]["text"], heard, "{reply}");
        let late = scene.refused("task_reply", reply).await;
        assert!(late.to_string().contains("has ended"), "{late}");
    }
}

#[tokio::test]
async fn a_wrong_answer_changes_nothing_and_says_why() {
    let scene = Scene::new().await;
    let task = scene.asking().await;
    for (reply, why) in [
        (json!({ "data": { "confirm": "perhaps" } }), "/confirm"),
        (json!({ "data": "{\"confirm\": " }), "object"),
        (json!({}), "text or data: one of them must be given"),
        (json!({ "questionId": "other", "action": "decline" }), "questionId"),
        (json!({ "questionId": "other", "text": "yes" }), "questionId: goes with data"),
    ] {
        let mut reply = reply;
        reply["taskId"] = json!(task);
        let refused = scene.refused("task_reply", reply).await.to_string();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(scene.ok("task_get", json!({ "taskId": task })).await["state"], "input-required");
    let canceled = scene.ok("task_cancel", json!({ "taskId": task })).await;
    assert_eq!(canceled["state"], "canceled");
    let again = scene.refused("task_cancel", json!({ "taskId": task })).await;
    assert!(again.to_string().contains("can no longer be canceled"), "{again}");
}

#[tokio::test]
async fn a_log_is_read_in_pages_from_any_event_and_nobody_waits() {
    let scene = Scene::new().await;
    let task = scene.asking().await;
    let all = scene.ok("task_events", json!({ "taskId": task })).await;
    let events = all["events"].as_array().unwrap();
    assert_eq!(
        (&events[0]["type"], &events.last().unwrap()["type"]),
        (&json!("message"), &json!("question"))
    );
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!((&all["after"], &all["ended"]), (&all["last"], &json!(false)));
    // One at a time it is the same.
    let (mut paged, mut after) = (vec![], json!(0));
    loop {
        let page = scene.ok("task_events", json!({ "taskId": task, "after": after, "limit": 1 })).await;
        let Some(event) = page["events"].as_array().unwrap().first() else { break };
        paged.push(event.clone());
        after = page["after"].clone();
    }
    assert_eq!(paged, *events);
    let beyond = scene.refused("task_events", json!({ "taskId": task, "after": 99 })).await;
    assert!(
        matches!(&beyond, HandlerError::Invalid(why) if why.starts_with("after: there is no event 99")),
        "{beyond}"
    );
    let many = scene.refused("task_events", json!({ "taskId": task, "limit": 501 })).await;
    assert!(matches!(many, HandlerError::Invalid(_)));
    scene.ok("task_reply", json!({ "taskId": task, "text": "yes" })).await;
    scene.until(&task, "completed").await;
    let rest = scene.ok("task_events", json!({ "taskId": task, "after": after })).await;
    assert_eq!((&rest["ended"], &rest["events"][0]["type"]), (&json!(true), &json!("answer")), "{rest}");
    // Who answered is for the console, which knows who may read the name.
    for event in rest["events"].as_array().unwrap() {
        assert!(event["data"].get("by").is_none(), "{event}");
    }
}

#[tokio::test]
async fn tasks_are_listed_by_agent_state_and_conversation_in_pages() {
    let scene = Scene::new().await;
    let asking = scene.asking().await;
    for n in 0..5 {
        let context = if n < 3 { "one" } else { "other" };
        scene.ok("task_send", json!({ "agent": "echo", "text": "x", "contextId": context })).await;
    }
    let total = async |arguments: Value| scene.ok("task_list", arguments).await["total"].clone();
    assert_eq!(total(json!({})).await, 6);
    assert_eq!(total(json!({ "agent": "echo" })).await, 5);
    assert_eq!(total(json!({ "state": "completed", "contextId": "one" })).await, 3);
    let open = scene.ok("task_list", json!({ "state": "input-required" })).await;
    assert_eq!((&open["tasks"][0]["taskId"], &open["total"]), (&json!(asking), &json!(1)));
    let (mut seen, mut token) = (vec![], Value::Null);
    loop {
        let mut arguments = json!({ "pageSize": 4 });
        if token.is_string() {
            arguments["pageToken"] = token;
        }
        let page = scene.ok("task_list", arguments).await;
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].to_string()));
        token = page["nextPageToken"].clone();
        if token.is_null() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6);
    let wrong = scene.refused("task_list", json!({ "pageToken": "x" })).await;
    assert!(matches!(&wrong, HandlerError::Invalid(why) if why.starts_with("pageToken:")), "{wrong}");
}

/// What belongs to somebody else, of the same tenant or of another, is not there: in the very same words.
#[tokio::test]
async fn a_task_of_somebody_else_does_not_exist() {
    let scene = Scene::new().await;
    let task = scene.asking().await;
    let missing = "0197a000-0000-7000-8000-000000000000";
    for stranger in ["acme/eve", "other/ada", "ada"] {
        let stranger = Caller::named(stranger);
        for tool in ["task_get", "task_cancel", "task_reply", "task_events"] {
            let ask = async |id: &str| {
                let mut arguments = json!({ "taskId": id });
                if tool == "task_reply" {
                    arguments["text"] = json!("yes");
                }
                let refused = scene.here.call(&stranger, tool, arguments).await.expect_err(tool);
                assert!(matches!(refused, HandlerError::Failed(_)), "{tool}: {refused}");
                refused.to_string()
            };
            assert_eq!(ask(&task).await.replace(&task, missing), ask(missing).await, "{tool}");
        }
        assert_eq!(scene.here.call(&stranger, "task_list", json!({})).await.unwrap()["total"], 0);
    }
    assert_eq!(scene.ok("task_get", json!({ "taskId": task })).await["state"], "input-required");
}

#[tokio::test]
async fn what_a_caller_may_not_do_it_may_not_do_by_tools() {
    let scene = Scene::new().await;
    let task = scene.asking().await;
    let check = async |scopes: &str, tool: &str, arguments: Value, needs: &str| {
        let caller = scene.ada.clone().limited_to(Grants::parse(scopes).unwrap());
        let refused = scene.here.call(&caller, tool, arguments).await.expect_err(tool);
        assert_eq!(refused, HandlerError::Forbidden(needs.into()), "{tool}");
    };
    check("execute:a2a:asks", "task_send", json!({ "agent": "echo", "text": "x" }), "execute:a2a:echo").await;
    check("write:a2a", "task_get", json!({ "taskId": task }), "read:a2a:tasks").await;
    check("write:a2a", "task_list", json!({}), "read:a2a:tasks").await;
    check("write:a2a", "task_events", json!({ "taskId": task }), "read:a2a:tasks").await;
    check("read:a2a", "task_cancel", json!({ "taskId": task }), "write:a2a:tasks").await;
    check("read:a2a", "task_reply", json!({ "taskId": task, "text": "yes" }), "write:a2a:tasks").await;
    let unknown = scene.refused("task_send", json!({ "agent": "nobody", "text": "x" })).await;
    assert_eq!(unknown.to_string(), "there is no agent \"nobody\" here");
}

#[tokio::test]
async fn a_question_that_is_withdrawn_is_in_the_log_as_the_schema_has_it() {
    let scene = Scene::new().await;
    let sent = scene.ok("task_send", json!({ "agent": "passes-on", "text": "please" })).await;
    let task = sent["taskId"].as_str().unwrap();
    scene.until(task, "input-required").await;
    let asking = scene.ok("task_list", json!({ "agent": "asks", "state": "input-required" })).await;
    scene.ok("task_cancel", json!({ "taskId": asking["tasks"][0]["taskId"] })).await;
    let ended = scene.until(task, "completed").await;
    assert_eq!(ended["message"]["parts"][0]["text"], "it was canceled");
    // The page is held against the output schema.
    let page = scene.ok("task_events", json!({ "taskId": task })).await;
    let kinds: Vec<&Value> = page["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert!(kinds.contains(&&json!("withdrawn")), "{kinds:?}");
}
