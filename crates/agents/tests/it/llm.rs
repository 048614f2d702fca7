//! Agents that are language models, on a real engine and a real store, against a stand-in for a provider: see
//! `nuncio_testkit::model_provider`, which says what that shows and what it does not.

mod asking;
mod budgets;
mod durable;
mod tools;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use nuncio_agents::configured::{AgentSpec, build_agent};
use nuncio_engine::{Agent, AgentError, Chunk, Event, Outcome, Part, Profile, Task, TaskContext};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::server::{Server, submit};
use nuncio_testkit::model_provider::StandIn;

const AGENT: &str = "helper";
const KEY: &str = "k-very-secret";

/// An agent of a table that speaks to the stand-in.
fn llm(stand_in: &StandIn, more: Value) -> Arc<dyn Agent> {
    let mut table = json!({
        "name": AGENT, "kind": "llm", "provider": "openai", "model": "small", "base-url": stand_in.url,
        "api-key": KEY,
    });
    let Value::Object(more) = more else { panic!("a table") };
    for (key, value) in more {
        table[key] = value;
    }
    let spec = AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap();
    assert!(!format!("{spec:?}").contains(KEY));
    build_agent(&spec).unwrap().agent
}

/// Counts its runs, and waits for what it is told to wait for.
struct Tool {
    name: &'static str,
    runs: Arc<AtomicUsize>,
    barrier: Option<Arc<Barrier>>,
    gate: Option<Arc<Notify>>,
}

impl Tool {
    fn new(name: &'static str) -> Self {
        Self { name, runs: Arc::default(), barrier: None, gate: None }
    }
}

#[async_trait]
impl Agent for Tool {
    fn profile(&self) -> Profile {
        let schema =
            json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        Profile::new(self.name, "Doubles a number.").input(schema)
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let n = cx.argument("n").and_then(Value::as_i64).unwrap_or_default();
        let doubled: i64 = cx
            .step("double", async |_| {
                self.runs.fetch_add(1, Ordering::SeqCst);
                if let Some(barrier) = &self.barrier {
                    barrier.wait().await;
                }
                if let Some(gate) = &self.gate {
                    gate.notified().await;
                }
                Ok(n * 2)
            })
            .await?;
        if n < 0 {
            return Ok(Outcome::failed("it takes no negative numbers"));
        }
        cx.artifact(Chunk::text("result", doubled.to_string()).complete()).await?;
        Ok(Outcome::done())
    }
}

/// The text of the answer, which is complete and the only artifact.
fn answer(task: &Task) -> String {
    crate::server::result_text(task)
}

fn usage(task: &Task) -> Value {
    task.artifacts[0].metadata.as_ref().unwrap()["usage"].clone()
}

/// The roles of what a request says.
fn roles(body: &Value) -> Vec<&str> {
    body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing that anybody can read of a task has the key in it.
async fn assert_key_is_nowhere(server: &Server, task: &Task) {
    let log = server.log(task).await;
    assert!(!format!("{log:?}").contains(KEY), "{log:?}");
    let row = server.row(task).await;
    for record in server.engine.store_for_tests().journal(row.no).await.unwrap() {
        assert!(!String::from_utf8_lossy(&record.0).contains(KEY));
    }
}

fn question(text: &str) -> nuncio_engine::Submit {
    submit(AGENT, Part::text(text))
}

/// The chunks of the answer, with whether each follows what was there.
fn chunks(log: &[Event]) -> Vec<(bool, String)> {
    let chunks = log.iter().filter_map(|event| match event {
        Event::Artifact(chunk) => {
            Some((chunk.append, chunk.parts.iter().filter_map(Part::as_text).collect::<String>()))
        }
        _ => None,
    });
    chunks.collect()
}
