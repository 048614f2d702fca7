//! An engine on SQLite in a folder of its own, that can be stopped and started again there, and what tests
//! do with it. Whatever waits here has a deadline.

use std::{future::Future, sync::Arc, time::Duration};

use nuncio_agents::{AgentOptions, BenchAgent, built_in};
use nuncio_engine::{
    Agent, Caller, Catalog, Engine, EngineParts, Error, Event, Level, Message, Next, Part, Reply, Role,
    Sampler, State, Submit, Task,
    store::{TaskKey, TaskRow},
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::Value;
use tempfile::TempDir;

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    pub(crate) engine: Engine,
    folder: TempDir,
    agents: Vec<Arc<dyn Agent>>,
    model: Option<Arc<dyn Sampler>>,
}

impl Server {
    /// The built-in agents, with steps of this length.
    pub(crate) async fn start(step: Duration) -> Self {
        let mut agents = built_in(&AgentOptions { step });
        agents.push(Arc::new(BenchAgent));
        Self::with(agents).await
    }

    pub(crate) async fn with(agents: Vec<Arc<dyn Agent>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { engine: open(&folder, &agents, None).await, folder, agents, model: None }
    }

    /// Agents on a server that has a model of its own.
    pub(crate) async fn with_model(agents: Vec<Arc<dyn Agent>>, model: Arc<dyn Sampler>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = Some(model);
        Self { engine: open(&folder, &agents, model.clone()).await, folder, agents, model }
    }

    /// Stops, and starts again on the same folder, without a model of its own.
    pub(crate) async fn restart_without_model(mut self) -> Self {
        self.model = None;
        self.restart().await
    }

    /// Stops, and starts again on the same folder.
    pub(crate) async fn restart(self) -> Self {
        within(self.engine.stop()).await;
        let Self { engine, folder, agents, model } = self;
        drop(engine);
        Self { engine: open(&folder, &agents, model.clone()).await, folder, agents, model }
    }

    pub(crate) async fn submit(&self, submit: Submit) -> Task {
        within(self.engine.submit(&caller(), submit)).await.unwrap()
    }

    /// Makes a task with these parts and waits until it has ended or waits for somebody.
    pub(crate) async fn send(&self, agent: &str, part: Part) -> Task {
        let task = self.submit(submit(agent, part)).await;
        self.settle(task).await
    }

    pub(crate) async fn settle(&self, task: Task) -> Task {
        within(self.engine.wait_until_idle(&caller(), task)).await.unwrap()
    }

    pub(crate) async fn try_answer(&self, task: &Task, part: Part) -> Result<Task, Error> {
        let reply = Reply {
            task: task.origin.id.to_string(),
            context: None,
            message: Message::of("answer", Role::User, vec![part]),
            idempotency_key: None,
            webhooks: vec![],
        };
        within(self.engine.reply(&caller(), reply)).await
    }

    /// Says something to a task that is at work.
    pub(crate) async fn tell(&self, task: &Task, id: &str, text: &str) {
        let reply = Reply {
            task: task.origin.id.to_string(),
            context: None,
            message: Message::text(id, Role::User, text),
            idempotency_key: None,
            webhooks: vec![],
        };
        within(self.engine.reply(&caller(), reply)).await.unwrap();
    }

    /// Answers a question and waits for what comes of it.
    pub(crate) async fn answer(&self, task: &Task, part: Part) -> Task {
        let task = self.try_answer(task, part).await.unwrap();
        self.settle(task).await
    }

    pub(crate) async fn get(&self, task: &Task) -> Task {
        Arc::unwrap_or_clone(within(self.engine.get(&caller(), &task.origin.id.to_string())).await.unwrap())
    }

    /// Cancels, and insists that this takes less than a second.
    pub(crate) async fn cancel(&self, task: &Task) -> Task {
        let (caller, id) = (caller(), task.origin.id.to_string());
        let canceled = self.engine.cancel(&caller, &id);
        let in_a_second = tokio::time::timeout(Duration::from_secs(1), canceled).await;
        in_a_second.expect("a cancel takes less than a second").unwrap()
    }

    /// The log of a task from its start until the event that is wanted, that one included.
    pub(crate) async fn log_until(&self, task: &Task, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        within(async {
            let mut follower = self.engine.follow(&caller(), &task.origin.id.to_string(), 0).await.unwrap();
            let mut log = vec![];
            while let Next::Batch(batch) = follower.next().await.unwrap() {
                for (seq, entry) in batch.iter() {
                    log.push(entry.event().clone());
                    assert_eq!(seq, log.len() as u64, "the log has no gaps");
                    if wanted(entry.event()) {
                        return log;
                    }
                }
            }
            panic!("the log ended without it: {log:#?}");
        })
        .await
    }

    /// The whole log of a task, up to its end.
    pub(crate) async fn log(&self, task: &Task) -> Vec<Event> {
        self.log_until(task, |event| matches!(event, Event::Status(status) if status.state.is_terminal()))
            .await
    }

    pub(crate) async fn row(&self, task: &Task) -> TaskRow {
        self.engine.store_for_tests().row(&TaskKey::Id(task.origin.id)).await.unwrap().unwrap()
    }

    /// How many commits made the log.
    pub(crate) async fn commits(&self, task: &Task) -> usize {
        let row = self.row(task).await;
        self.engine.store_for_tests().log(row.no, 0, usize::MAX).await.unwrap().len()
    }

    /// The names of the steps that ended, in that order, once for each time that they did.
    pub(crate) async fn journaled_steps(&self, task: &Task) -> Vec<String> {
        let row = self.row(task).await;
        let journal = self.engine.store_for_tests().journal(row.no).await.unwrap();
        // A format version, then JSON.
        let records = journal.iter().map(|record| serde_json::from_slice::<Value>(&record.0[1..]).unwrap());
        records.filter_map(|record| record["step"]["name"].as_str().map(str::to_owned)).collect()
    }
}

async fn open(folder: &TempDir, agents: &[Arc<dyn Agent>], sampler: Option<Arc<dyn Sampler>>) -> Engine {
    let store = open_in(folder.path(), SqliteOptions::default()).await;
    let mut catalog = Catalog::default();
    for agent in agents {
        catalog.add(Arc::clone(agent)).unwrap();
    }
    Engine::start(EngineParts { sampler, ..EngineParts::new(store, catalog) }).await.unwrap()
}

pub(crate) fn caller() -> Caller {
    Caller::local()
}

pub(crate) fn submit(agent: &str, part: Part) -> Submit {
    Submit::new(agent, Message::of("request", Role::User, vec![part]))
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("this should have come long ago")
}

/// A task as a test compares it: its state, its last words, and the ids of its artifacts.
pub(crate) fn ending(task: &Task) -> (State, String, Vec<&str>) {
    let words = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
    (task.state, words, task.artifacts.iter().map(|artifact| artifact.id.as_str()).collect())
}

/// The text of a task's only artifact.
pub(crate) fn result_text(task: &Task) -> String {
    let [artifact] = &task.artifacts[..] else { panic!("one artifact, not {:?}", task.artifacts) };
    assert!(artifact.complete);
    artifact.parts.iter().filter_map(Part::as_text).collect()
}

/// The data of a task's only artifact.
pub(crate) fn result_data(task: &Task) -> Value {
    let [artifact] = &task.artifacts[..] else { panic!("one artifact, not {:?}", task.artifacts) };
    Message::of("", Role::Agent, artifact.parts.clone()).data().cloned().unwrap()
}

pub(crate) fn percents(log: &[Event]) -> Vec<f64> {
    let progress = log.iter().filter_map(|event| match event {
        Event::Progress(progress) => Some(progress.done),
        _ => None,
    });
    progress.collect()
}

/// The lines of a log at a level and above.
pub(crate) fn lines(log: &[Event], level: Level) -> Vec<&str> {
    let lines = log.iter().filter_map(|event| match event {
        Event::Log(line) if line.level >= level => Some(line.text.as_str()),
        _ => None,
    });
    lines.collect()
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
