//! A server with the batch engine on a folder of its own, which can be cut off and started again. Whatever waits
//! here waits for a condition and has a deadline.

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Agent, AgentError, Answer, Caller, Catalog, Engine, EngineParts, Message, Outcome, Part,
    Profile, Rate, Role, TaskContext,
    surface::{HandlerError, HandlerReply, HandlerRequest, ResourceBody},
};
use nuncio_flows::{
    batch::{BatchEngine, BatchOptions, LoadProbe},
    memory::{MemoryBank, MemoryOptions},
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::Semaphore};

const DEADLINE: Duration = Duration::from_secs(120);

/// How busy the machine is, as a test has it.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) memory: Mutex<Option<f64>>,
    pub(crate) cpu: Mutex<Option<f64>>,
}

impl LoadProbe for Claimed {
    fn memory(&self) -> Option<f64> {
        *self.memory.lock().unwrap()
    }

    fn cpu(&self) -> Option<f64> {
        *self.cpu.lock().unwrap()
    }
}

/// Counts how many of its tasks run at once, from the inside. It works as long as `ms` says, and fails as often
/// as `failures` says. With `held` a task ends only when the test lets it: how many run at once does not depend on
/// how fast the machine starts them.
#[derive(Clone, Default)]
pub(crate) struct Gauge {
    running: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    pub(crate) failures: Arc<AtomicUsize>,
    held: Held,
}

#[derive(Clone)]
struct Held(Arc<Semaphore>);

impl Default for Held {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gauge {
    /// Lets so many of the held tasks end, now or when they come, and waits until exactly `running` are held again.
    pub(crate) async fn let_go(&self, count: usize, running: usize) {
        self.held.0.add_permits(count);
        until(&format!("{running} run after {count} ended"), async || {
            let all_ended = self.held.0.available_permits() == 0;
            (all_ended && self.running.load(Ordering::SeqCst) == running).then_some(())
        })
        .await;
    }

    /// From now on every held task ends at once.
    pub(crate) fn let_all_go(&self) {
        self.held.0.close();
    }

    /// The most that ran at once since this was last asked.
    pub(crate) fn take_peak(&self) -> usize {
        self.peak.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Agent for Gauge {
    fn profile(&self) -> Profile {
        Profile::new("gauge", "counts itself")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let ms = cx.argument("ms").and_then(Value::as_u64).unwrap_or(1);
        cx.step("work", async |_| {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(running, Ordering::SeqCst);
            if cx.argument("held") == Some(&json!(true))
                && let Ok(permit) = self.held.0.acquire().await
            {
                permit.forget();
            }
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
        .await?;
        let fails =
            self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Ok(if fails.is_ok() { Outcome::failed("not this time") } else { Outcome::said("counted") })
    }
}

/// Lets one of its tasks work at a time: however many are called, they are no faster together.
#[derive(Clone, Default)]
struct Narrow(Arc<tokio::sync::Mutex<()>>);

#[async_trait]
impl Agent for Narrow {
    fn profile(&self) -> Profile {
        Profile::new("narrow", "works on one thing at a time")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let ms = cx.argument("ms").and_then(Value::as_u64).unwrap_or(1);
        cx.step("work", async |_| {
            let _alone = self.0.lock().await;
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        })
        .await?;
        Ok(Outcome::done())
    }
}

/// Asks for a word, and says it.
struct Asker;

#[async_trait]
impl Agent for Asker {
    fn profile(&self) -> Profile {
        Profile::new("asker", "asks for a word")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let form = json!({
            "type": "object", "properties": { "word": { "type": "string" } }, "required": ["word"],
        });
        match cx.ask("Which word?", form).await? {
            Answer::Accept(given) => Ok(Outcome::said(given["word"].as_str().unwrap_or_default())),
            _ => Ok(Outcome::failed("no word")),
        }
    }
}

/// Calls another agent with an input, and ends as that one does.
struct Calling;

#[async_trait]
impl Agent for Calling {
    fn profile(&self) -> Profile {
        Profile::new("calling", "calls another agent")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let agent = cx.argument("agent").and_then(Value::as_str).unwrap_or_default().to_owned();
        let input = cx.argument("input").cloned().unwrap_or_default();
        let called = cx.call(&agent, Message::of("m", Role::User, vec![Part::data(input)])).await?;
        Ok(Outcome::said(called.state.name()))
    }
}

/// Takes one whole number and nothing else.
struct Adder;

#[async_trait]
impl Agent for Adder {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new("adder", "takes a number").input(json!({
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        }));
        profile.strict_input = true;
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::said(format!("got {}", cx.argument("n").cloned().unwrap_or_default())))
    }
}

pub(crate) struct World {
    store: TempDir,
    files: TempDir,
    pub(crate) gauge: Gauge,
    pub(crate) probe: Arc<Claimed>,
    pub(crate) options: BatchOptions,
    /// How often a caller may do something.
    pub(crate) rates: Vec<(AccessKind, Rate)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let (files, probe) = (tempfile::tempdir().unwrap(), Arc::<Claimed>::default());
        let options = BatchOptions {
            files_dir: Some(files.path().into()),
            probe: Some(Arc::clone(&probe) as Arc<dyn LoadProbe>),
            poll: Duration::from_millis(50),
            ..BatchOptions::default()
        };
        let (store, gauge) = (tempfile::tempdir().unwrap(), Gauge::default());
        Self { store, files, gauge, probe, options, rates: vec![] }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) async fn serve(&self) -> Server {
        let store = open_in(self.store.path(), SqliteOptions::default()).await;
        let batch = Arc::new(BatchEngine::new(self.options.clone()));
        let mut catalog = Catalog::default();
        catalog.add(Arc::new(self.gauge.clone())).unwrap();
        catalog.add(Arc::new(Asker)).unwrap();
        catalog.add(Arc::new(Calling)).unwrap();
        catalog.add(Arc::new(Adder)).unwrap();
        catalog.add(Arc::<Narrow>::default()).unwrap();
        for agent in batch.agents() {
            catalog.add(agent).unwrap();
        }
        let mut parts = EngineParts::new(store, catalog);
        parts.options.access.rates.clone_from(&self.rates);
        let engine = Engine::start(parts).await.unwrap();
        let bank = MemoryBank::new(engine.clone(), MemoryOptions::default());
        batch.install(&engine, &bank, engine.catalog().surface()).unwrap();
        Server { engine, caller: Caller::local() }
    }

    /// A life of the server, which can be cut off at any point.
    pub(crate) fn life(&self) -> Life {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(self.serve());
        Life { runtime, server }
    }
}

pub(crate) struct Life {
    runtime: Runtime,
    pub(crate) server: Server,
}

impl Life {
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(DEADLINE, future).await })
            .expect("within the deadline")
    }

    /// The process dies here and now: everything stops at its next await, and nothing is tidied up.
    pub(crate) fn cut(self) {
        self.runtime.shutdown_background();
        self.server.let_go();
    }
}

/// A server, as one caller has it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) caller: Caller,
}

impl Server {
    pub(crate) fn for_caller(&self, caller: Caller) -> Self {
        Self { engine: self.engine.clone(), caller }
    }

    /// Lets go of what holds the engine by holding its surface: a process that dies lets go of everything.
    pub(crate) fn let_go(&self) {
        let surface = self.engine.catalog().surface();
        for tool in surface.tools() {
            surface.remove_tool(&tool.profile.name);
        }
        for resource in surface.resources() {
            surface.remove_resource(&resource.profile.uri);
        }
    }

    /// Calls a tool, and holds both sides against its schemas.
    pub(crate) async fn try_call(&self, name: &str, arguments: Value) -> Result<Value, HandlerError> {
        let tool = self.engine.catalog().surface().tool(name).expect("the tool is offered");
        assert_eq!(tool.input.refuse(&arguments), None, "{name} {arguments}");
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let said = tool.handler.call(HandlerRequest::new(self.caller.clone(), arguments)).await?;
        let HandlerReply::Done(output) = said else { panic!("{name} answers at once") };
        let structured = output.structured.expect("a structured result");
        let shape = tool.output.as_ref().expect("an output schema");
        assert_eq!(shape.refuse(&structured), None, "{name} said {structured}");
        assert!(!output.content.is_empty());
        Ok(structured)
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        self.try_call(name, arguments).await.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) async fn refused(&self, name: &str, arguments: Value) -> String {
        match self.try_call(name, arguments).await {
            Ok(said) => panic!("{name} was not refused: {said}"),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) async fn submit(&self, batch: Value) -> String {
        self.call("batch_submit", batch).await["batchId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn status(&self, id: &str) -> Value {
        self.call("batch_status", json!({ "batchId": id, "operations": true, "limit": 1000 })).await
    }

    /// Waits until a batch is as wanted.
    pub(crate) async fn when(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, async || Some(self.status(id).await).filter(|status| wanted(status))).await
    }

    /// Waits for the end of a batch.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        let ended = |status: &Value| !matches!(status["status"].as_str(), Some("submitted" | "working"));
        self.when(id, "the batch ends", ended).await
    }

    pub(crate) async fn run(&self, batch: Value) -> Value {
        let id = self.submit(batch).await;
        self.ended(&id).await
    }

    /// Reads a resource, and holds it against its published schema.
    pub(crate) async fn read(&self, uri: &str) -> Value {
        self.try_read(uri).await.unwrap_or_else(|error| panic!("{uri}: {error}"))
    }

    /// When a resource last changed, as its metadata says.
    pub(crate) async fn modified(&self, uri: &str) -> String {
        let resource = self.engine.catalog().surface().resource(uri).expect("the resource is offered");
        let said = resource.handler.read(HandlerRequest::new(self.caller.clone(), Default::default())).await;
        let Ok(HandlerReply::Done(contents)) = said else { panic!("{uri} is read at once") };
        contents[0].meta.as_ref().unwrap()["lastModified"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn try_read(&self, uri: &str) -> Result<Value, HandlerError> {
        let surface = self.engine.catalog().surface();
        let resource = surface.resource(uri).expect("the resource is offered");
        let HandlerReply::Done(contents) =
            resource.handler.read(HandlerRequest::new(self.caller.clone(), Default::default())).await?
        else {
            panic!("{uri} is read at once")
        };
        let ResourceBody::Text(text) = &contents[0].body else { panic!("{uri} is text") };
        let value: Value = serde_json::from_str(text).unwrap();
        let meta = contents[0].meta.as_ref().unwrap();
        assert_eq!((meta["resourceId"].as_str(), meta["type"].as_str()), (Some(uri), Some("batchtools")));
        let name =
            meta["schema"].as_str().unwrap().rsplit('/').next().unwrap().trim_end_matches(".json").to_owned();
        let schema = surface.schema(&name).expect("the schema is published");
        let errors: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{uri}: {errors:?}\n{value}");
        Ok(value)
    }
}

/// Operations `o0`, `o1`, … of one type.
pub(crate) fn many(count: usize, r#type: &str, args: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(|n| json!({ "id": format!("o{n}"), "type": r#type, "args": args(n) })).collect()
}

pub(crate) fn waits(count: usize, ms: u64) -> Vec<Value> {
    many(count, "wait", |_| json!({ "ms": ms }))
}

pub(crate) fn operation<'a>(status: &'a Value, id: &str) -> &'a Value {
    let all = status["operations"].as_array().unwrap();
    all.iter().find(|operation| operation["id"] == id).unwrap_or_else(|| panic!("no {id} in {status}"))
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
