//! A server with plans on a folder of its own, which can be cut off and started again, and agents that do what a test
//! says. Whatever waits here waits for a condition and has a deadline.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Content, Engine, EngineParts, List, Message, Outcome, Part, Probe,
    Profile, Role, Sampler, Skill, State, Submit, Task, TaskContext, store::Store,
};
use nuncio_flows::{
    plan::{AGENT, PlanEngine, PlanOptions},
    registry::{Registry, RegistryOptions},
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

type Work = Pin<Box<dyn Future<Output = Result<Outcome, AgentError>> + Send>>;

/// An agent that does what a test says.
pub(crate) struct Does {
    name: String,
    skill: String,
    tags: Vec<String>,
    work: Box<dyn Fn(TaskContext) -> Work + Send + Sync>,
    probe: Option<Arc<dyn Probe>>,
    schema: Option<Value>,
    demo: bool,
}

#[async_trait]
impl Agent for Does {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(&self.name, "does what a test says");
        let skill = Skill::new(&self.skill, &self.skill, "what a test says");
        profile.skills = vec![Skill { tags: self.tags.clone(), ..skill }];
        profile.demo = self.demo;
        match &self.schema {
            Some(schema) => profile.input(schema.clone()).strict(),
            None => profile,
        }
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        (self.work)(cx).await
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        self.probe.clone()
    }
}

impl Does {
    /// The same, strict about its input.
    pub(crate) fn strict(self: Arc<Self>, schema: Value) -> Arc<Self> {
        let Ok(does) = Arc::try_unwrap(self) else { panic!("it is served already") };
        Arc::new(Self { schema: Some(schema), ..does })
    }

    /// The same, as a demonstration.
    pub(crate) fn demo(self: Arc<Self>) -> Arc<Self> {
        let Ok(does) = Arc::try_unwrap(self) else { panic!("it is served already") };
        Arc::new(Self { demo: true, ..does })
    }

    /// The same, with a tag.
    pub(crate) fn tagged(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }
}

/// An agent of that name, with one skill.
pub(crate) fn does<F>(
    name: &str,
    skill: &str,
    work: impl Fn(TaskContext) -> F + Send + Sync + 'static,
) -> Arc<Does>
where
    F: Future<Output = Result<Outcome, AgentError>> + Send + 'static,
{
    let work = Box::new(move |cx| Box::pin(work(cx)) as Work);
    let (name, skill, tags) = (name.into(), skill.into(), vec![]);
    Arc::new(Does { name, skill, tags, work, probe: None, schema: None, demo: false })
}

/// The same, for somebody elsewhere who is as well as that says.
pub(crate) fn elsewhere<F>(
    name: &str,
    skill: &str,
    health: &Arc<Health>,
    work: impl Fn(TaskContext) -> F + Send + Sync + 'static,
) -> Arc<Does>
where
    F: Future<Output = Result<Outcome, AgentError>> + Send + 'static,
{
    let work = Box::new(move |cx| Box::pin(work(cx)) as Work);
    let probe = Some(Arc::clone(health) as Arc<dyn Probe>);
    let (name, skill, tags) = (name.into(), skill.into(), vec![]);
    Arc::new(Does { name, skill, tags, work, probe, schema: None, demo: false })
}

/// How somebody elsewhere is.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<String>>);

impl Health {
    pub(crate) fn ill(&self, why: &str) {
        *self.0.lock().unwrap() = Some(why.into());
    }

    pub(crate) fn well(&self) {
        *self.0.lock().unwrap() = None;
    }

    pub(crate) fn is_well(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

#[async_trait]
impl Probe for Health {
    async fn check_reachable(&self) -> Result<(), String> {
        self.0.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

/// Says back what it is told, after as long as `ms` says.
pub(crate) fn sleeper(name: &str, skill: &str, counts: &Counts) -> Arc<Does> {
    let counts = counts.clone();
    does(name, skill, move |cx: TaskContext| {
        let counts = counts.clone();
        async move {
            let ms = cx.argument("ms").and_then(Value::as_u64).unwrap_or(0);
            let id = cx.argument("id").and_then(Value::as_str).unwrap_or("?").to_owned();
            cx.step("work", async |step| {
                let _in = counts.enter(&id);
                step.sleep(Duration::from_millis(ms)).await
            })
            .await?;
            cx.artifact(nuncio_engine::Chunk::parts(
                "out",
                vec![
                    Part::text(format!("{id} is done")),
                    Part::data(serde_json::json!({ "id": id, "ms": ms })),
                ],
            ))
            .await?;
            Ok(Outcome::done())
        }
    })
}

/// How often each thing was done, and how many were done at once.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    begun: BTreeMap<String, usize>,
    now: usize,
    peak: usize,
}

pub(crate) struct In(Counts);

impl Drop for In {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().now -= 1;
    }
}

impl Counts {
    pub(crate) fn enter(&self, id: &str) -> In {
        let mut counted = self.0.lock().unwrap();
        *counted.begun.entry(id.to_owned()).or_default() += 1;
        counted.now += 1;
        counted.peak = counted.peak.max(counted.now);
        In(self.clone())
    }

    pub(crate) fn of(&self, id: &str) -> usize {
        self.0.lock().unwrap().begun.get(id).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().begun.clone()
    }

    pub(crate) fn now(&self) -> usize {
        self.0.lock().unwrap().now
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.lock().unwrap().peak
    }
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) agents: Vec<Arc<dyn Agent>>,
    pub(crate) options: PlanOptions,
    /// The server's own model.
    pub(crate) sampler: Option<Arc<dyn Sampler>>,
}

impl World {
    pub(crate) fn new(agents: Vec<Arc<Does>>) -> Self {
        let agents = agents.into_iter().map(|agent| agent as Arc<dyn Agent>).collect();
        Self { folder: tempfile::tempdir().unwrap(), agents, options: PlanOptions::default(), sampler: None }
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        open_in(self.folder.path(), SqliteOptions::default()).await
    }

    pub(crate) async fn serve(&self) -> Server {
        self.serve_on(self.store().await).await
    }

    pub(crate) async fn serve_on(&self, store: Arc<dyn Store>) -> Server {
        let registry = Arc::new(Registry::new(RegistryOptions::default()));
        let plans = PlanEngine::new(self.options.clone(), Arc::clone(&registry));
        let mut catalog = Catalog::default();
        for agent in self.agents.iter().cloned().chain(plans.agents()) {
            catalog.add(agent).unwrap();
        }
        let mut parts = EngineParts::new(store, catalog);
        parts.sampler = self.sampler.clone();
        parts.options.cancel_grace = Duration::from_millis(500);
        let engine = Engine::start(parts).await.unwrap();
        registry.watch(&engine);
        plans.install(&engine, engine.catalog().surface()).unwrap();
        Server { engine, registry, caller: Caller::local() }
    }
}

pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) registry: Arc<Registry>,
    pub(crate) caller: Caller,
}

impl Server {
    /// Begins what that part asks for.
    pub(crate) async fn begin(&self, part: Part) -> Task {
        let message = Message::of("", Role::User, vec![part]);
        self.engine.submit(&self.caller, Submit::new(AGENT, message)).await.unwrap()
    }

    /// Begins a plan that is TOML.
    pub(crate) async fn plan(&self, toml: &str) -> Task {
        self.begin(Part::text(toml)).await
    }

    pub(crate) async fn get(&self, task: &Task) -> Arc<Task> {
        self.engine.get(&self.caller, &task.origin.id.to_string()).await.unwrap()
    }

    pub(crate) async fn when(&self, task: &Task, what: &str, wanted: impl Fn(&Task) -> bool) -> Arc<Task> {
        until(what, async || Some(self.get(task).await).filter(|task| wanted(task))).await
    }

    pub(crate) async fn ended(&self, task: &Task) -> Arc<Task> {
        self.when(task, "the plan ends", |task| task.state.is_terminal()).await
    }

    pub(crate) async fn run(&self, toml: &str) -> Arc<Task> {
        let task = self.plan(toml).await;
        self.ended(&task).await
    }

    /// The tasks of an agent.
    pub(crate) async fn tasks(&self, agent: &str) -> Vec<Task> {
        let list = List { agent: Some(agent.into()), page_size: 100, ..List::default() };
        self.engine.list(&self.caller, list).await.unwrap().tasks
    }

    /// Lets go of what holds the engine by holding its surface: a process that dies lets go of everything.
    pub(crate) fn let_go(&self) {
        let surface = self.engine.catalog().surface();
        for tool in surface.tools() {
            surface.remove_tool(&tool.profile.name);
        }
    }
}

/// What a plan came to, in words.
pub(crate) fn result(task: &Task) -> String {
    let artifact = task.artifacts.iter().find(|artifact| artifact.id == "result");
    let artifact = artifact.unwrap_or_else(|| panic!("{:?}: {}", task.state, said(task)));
    artifact.parts.iter().find_map(Part::as_text).unwrap_or_default().to_owned()
}

/// Where the parts of a plan came from.
pub(crate) fn provenance(task: &Task) -> Value {
    let artifact = task.artifacts.iter().find(|artifact| artifact.id == "result");
    let artifact = artifact.unwrap_or_else(|| panic!("{:?}: {}", task.state, said(task)));
    let data = artifact.parts.iter().find_map(|part| match &part.content {
        Content::Data(value) => Some(value.clone()),
        _ => None,
    });
    data.expect("provenance")
}

/// What became of one part.
pub(crate) fn part(task: &Task, id: &str) -> Value {
    let all = provenance(task);
    let found = all["parts"].as_array().unwrap().iter().find(|part| part["task"] == id).cloned();
    found.unwrap_or_else(|| panic!("no {id} in {all}"))
}

/// The last word of a task.
pub(crate) fn said(task: &Task) -> String {
    task.status_message.as_ref().map(Message::joined_text).unwrap_or_default()
}

#[track_caller]
pub(crate) fn completed(task: &Task) {
    assert_eq!(task.state, State::Completed, "{}", said(task));
}

/// Waits for a condition.
pub(crate) async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
