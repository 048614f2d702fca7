//! A task as it is read, and the same task as it is streamed: they agree on artifacts in pieces and on times.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Chunk, Outcome, Part, Profile, TaskContext,
    clock::SystemClock,
    outbox::{Outbox, OutboxOptions},
};
use nuncio_outbound::{AddressPolicy, Outbound, OutboundOptions};
use nuncio_server::{push::HttpWebhookSender, signature::SigningSecret};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    receiver::{Reaction, Receiver, until},
    site::{Site, message},
    socket::within,
};

// ------------------------------------------------------------------------------------------------ pieces

/// Writes artifacts in pieces of several kinds.
struct Pieces;

#[async_trait]
impl Agent for Pieces {
    fn profile(&self) -> Profile {
        Profile::new("pieces", "Writes artifacts in pieces.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let typed = |text: &str, kind: &str| Part { media_type: Some(kind.into()), ..Part::text(text) };
        let noted = Part { metadata: json!({ "page": 2 }).as_object().cloned(), ..Part::text("d") };
        let file = Part { filename: Some("e.txt".into()), ..Part::text("e") };
        // Two parts of one piece are two parts.
        cx.artifact(Chunk::parts("mixed", vec![Part::text("a"), Part::text("b")]).named("Mixed")).await?;
        // More of the same text, in pieces that are nothing but text; the name is the one it has.
        cx.artifact(Chunk::text("mixed", "b1")).await?;
        cx.artifact(Chunk::text("mixed", "b2").named("Mixed")).await?;
        cx.artifact(Chunk::parts("mixed", vec![typed("c", "text/plain")])).await?;
        cx.artifact(Chunk::parts("mixed", vec![noted])).await?;
        cx.artifact(Chunk::parts("mixed", vec![file])).await?;
        cx.artifact(Chunk::text("mixed", "f")).await?;
        // Pieces with something of their own.
        let metadata = json!({ "source": "g" }).as_object().cloned().unwrap();
        cx.artifact(Chunk::text("mixed", "g").with_metadata(metadata)).await?;
        cx.artifact(Chunk::text("mixed", "h").named("Renamed")).await?;
        cx.artifact(Chunk::text("mixed", "i").described("Changed")).await?;
        cx.artifact(Chunk::parts("mixed", vec![Part::text("j"), Part::text("k")]).complete()).await?;
        Ok(Outcome::done())
    }
}

/// The parts of an artifact as a client puts them together that appends what it is told to.
fn appended(updates: &[Value]) -> Vec<Value> {
    let mut parts = vec![];
    for update in updates {
        if update["append"] != true {
            parts.clear();
        }
        parts.extend(update["artifact"]["parts"].as_array().unwrap().clone());
    }
    parts
}

#[tokio::test]
async fn only_pieces_that_are_nothing_but_text_are_joined_in_a_task() {
    let site = Site::with(|setup| setup.agents = vec![Arc::new(Pieces)]).await;
    let params = json!({ "message": message("go") });
    let headers = [("A2A-Version", "1.0")];
    let opened = crate::socket::post(
        "/agents/pieces",
        &headers,
        crate::site::request("SendStreamingMessage", &params),
    );
    let frames = crate::socket::Events::open(site.socket().await, &opened).await.results().await;
    let task = frames[0]["task"]["id"].clone();
    let updates: Vec<Value> =
        frames.iter().filter_map(|frame| frame.get("artifactUpdate").cloned()).collect();
    let texts = |parts: &[Value]| -> Vec<String> {
        parts.iter().map(|part| part["text"].as_str().unwrap().to_owned()).collect()
    };
    let streamed = appended(&updates);
    let all = ["a", "b", "b1", "b2", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    assert_eq!(texts(&streamed), all);

    let got = site.result("1.0", "GetTask", json!({ "id": task })).await;
    let parts = got["artifacts"][0]["parts"].as_array().unwrap();
    assert_eq!(texts(parts), ["a", "bb1b2", "c", "d", "e", "f", "g", "h", "i", "j", "k"]);
    // Nothing but the joined text differs.
    let apart = |parts: &[Value]| -> Vec<Value> {
        parts.iter().filter(|part| !part["text"].as_str().unwrap().starts_with('b')).cloned().collect()
    };
    assert_eq!(apart(parts), apart(&streamed));
    assert_eq!(got["artifacts"][0]["name"], "Renamed");
    assert_eq!(got["artifacts"][0]["metadata"], json!({ "source": "g" }));
    // The same in every dialect.
    for version in ["0.1", "0.3"] {
        let old = site.result(version, "tasks/get", json!({ "id": task })).await;
        assert_eq!(texts(old["artifacts"][0]["parts"].as_array().unwrap()), texts(parts), "{version}");
    }
}

// ------------------------------------------------------------------------------------------------- times

/// Reports progress, step by step: one for each permit.
struct Reporting {
    steps: tokio::sync::Semaphore,
}

#[async_trait]
impl Agent for Reporting {
    fn profile(&self) -> Profile {
        Profile::new("reporting", "Reports progress.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        for n in 1..=2 {
            cx.step(&format!("wait {n}"), async |_| {
                self.steps.acquire().await.map_err(AgentError::failed)?.forget();
                Ok(())
            })
            .await?;
            cx.progress(f64::from(n), Some(2.0), format!("step {n}")).await?;
            // Makes it durable.
            cx.step(&format!("done {n}"), async |_| Ok(())).await?;
        }
        cx.canceled().await;
        Err(AgentError::Canceled)
    }
}

fn status_of(frame: &Value) -> Option<&Value> {
    frame.get("statusUpdate").or_else(|| frame.get("task")).map(|holder| &holder["status"])
}

#[tokio::test]
async fn one_status_has_one_time_wherever_it_is_read() {
    let reporting = Arc::new(Reporting { steps: tokio::sync::Semaphore::new(0) });
    let agent: Arc<dyn Agent> = reporting.clone();
    let site = Site::with(|setup| setup.agents = vec![Arc::clone(&agent)]).await;
    let receiver = Receiver::new(|_, _| Reaction::Answer(200)).await;
    let outbound = OutboundOptions { policy: AddressPolicy { allow_private: true }, ..Default::default() };
    let secret = SigningSecret::parse("whsec_bnVuY2lvLXRlc3RzLXNpZ24td2l0aC10aGlz").unwrap();
    let sender = HttpWebhookSender::new(Outbound::new(outbound).unwrap(), secret, Arc::new(SystemClock));
    let store = Arc::clone(site.engine.store_for_tests());
    let outbox = Outbox::new(
        store,
        Arc::new(SystemClock),
        Arc::new(sender),
        site.engine.node(),
        site.engine.outbox(),
        OutboxOptions::default(),
    );
    let (stop, stopped) = watch::channel(false);
    let outbox = tokio::spawn(outbox.run(stopped));

    let params = json!({
        "message": message("go"),
        "configuration": {
            "returnImmediately": true,
            "taskPushNotificationConfig": { "url": receiver.url("/hook") },
        },
    });
    let sent = site.call_at("/agents/reporting", "1.0", "SendMessage", params).await;
    let task = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    site.until_state(&task, "WORKING").await;
    // A task that is older by its first status, and newer only by its progress.
    let other = site.begin("wait").await;
    site.until_state(&other, "WORKING").await;
    let mut stream = site.stream("1.0", "SubscribeToTask", json!({ "id": task })).await;
    stream.next().await.unwrap();

    for n in 1..=2 {
        // Times have milliseconds: the next status has to have another.
        tokio::time::sleep(Duration::from_millis(20)).await;
        reporting.steps.add_permits(1);
        let (cursor, frame) = stream.next().await.unwrap();
        let streamed = status_of(&frame["result"]).unwrap().clone();
        assert_eq!(streamed["message"]["parts"][0]["text"], format!("step {n}"));

        let got = site.result("1.0", "GetTask", json!({ "id": task })).await;
        assert_eq!(got["status"], streamed, "the task and the stream");
        for version in ["0.1", "0.3"] {
            let old = site.result(version, "tasks/get", json!({ "id": task })).await;
            assert_eq!(old["status"]["timestamp"], streamed["timestamp"], "{version}");
        }
        let list = site.result("1.0", "ListTasks", json!({})).await;
        assert_eq!(list["tasks"][0]["id"], *task, "the newest status is first");
        assert_eq!(list["tasks"][0]["status"], streamed, "the list");
        let since = json!({ "statusTimestampAfter": streamed["timestamp"] });
        let since = site.result("1.0", "ListTasks", since).await;
        assert_eq!((&since["totalSize"], &since["tasks"][0]["id"]), (&json!(1), &json!(task)));
        let pushed = async || -> Option<Value> {
            let got = receiver
                .got()
                .into_iter()
                .find(|got| got.task_and_seq() == (task.clone(), cursor.unwrap()))?;
            serde_json::from_str(&got.body).ok()
        };
        until("the delivery", async || pushed().await.is_some()).await;
        assert_eq!(status_of(&pushed().await.unwrap()), Some(&streamed), "the webhook");
    }
    let before = site.result("1.0", "GetTask", json!({ "id": task })).await["status"].clone();
    drop(stream);
    stop.send(true).unwrap();
    outbox.await.unwrap();
    let folder = site.begin_stop().finish().await;

    let site = Site::with(|setup| (setup.folder, setup.agents) = (folder, vec![agent])).await;
    let again = site.result("1.0", "GetTask", json!({ "id": task })).await;
    assert_eq!(again["status"], before, "after a restart");
    let list = site.result("1.0", "ListTasks", json!({})).await;
    assert_eq!(list["tasks"][0]["id"], *task);
    assert_eq!(list["tasks"][0]["status"], before);
    within("the end", async { site.call("1.0", "CancelTask", json!({ "id": task })).await }).await;
}
