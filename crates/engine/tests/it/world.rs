//! A world to test in: agents made of closures, the real store in a folder of its own, and engines that come
//! and go there. Whatever waits here has a deadline and waits for a condition, never for a time.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{FutureExt, future::BoxFuture};
use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Engine, EngineParts, Error, Message, Next, Options, Outcome, Part,
    Profile, QuestionLimit, Reply, Role, Submit, Task, TaskContext, TaskId,
    clock::{Clock, Timestamp},
    event::{self, Entry, Event},
    store::{Change, CommitError, Store, TaskKey, TaskRow},
    trace::Tracer,
};
use nuncio_store::SqliteOptions;
pub(crate) use nuncio_testkit::fault_injection::{CommitMoment, HookedStore, proceed};
use nuncio_testkit::open_in;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::Semaphore};
use uuid::Uuid;

/// Far more than anything here takes, on a machine that does other things too.
const DEADLINE: Duration = Duration::from_secs(60);

/// More cases of everything that is random, for nights and weekends.
pub(crate) fn cases(by_default: u32, in_full: u32) -> u32 {
    if std::env::var_os("NUNCIO_FULL").is_some() { in_full } else { by_default }
}

// ------------------------------------------------------------------------------------------------ agents

type Running = BoxFuture<'static, Result<Outcome, AgentError>>;

/// An agent made of a closure.
pub(crate) struct Scripted {
    profile: Profile,
    run: Box<dyn Fn(TaskContext) -> Running + Send + Sync>,
}

impl Scripted {
    pub(crate) fn new<F>(name: &str, run: impl Fn(TaskContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Outcome, AgentError>> + Send + 'static,
    {
        Self { profile: Profile::new(name, "an agent of a test"), run: Box::new(move |cx| run(cx).boxed()) }
    }

    /// Holds what begins a task against a schema.
    pub(crate) fn strict(mut self, schema: Value) -> Self {
        self.profile = self.profile.input(schema).strict();
        self
    }

    /// Lets it answer with a message instead of a task.
    pub(crate) fn replying(mut self) -> Self {
        self.profile = self.profile.replies();
        self
    }

    pub(crate) fn question_limit(mut self, limit: QuestionLimit) -> Self {
        self.profile.question_limit = Some(limit);
        self
    }

    pub(crate) fn retained(mut self, time: Duration) -> Self {
        self.profile.retention = Some(time);
        self
    }

    pub(crate) fn limited(mut self, limit: Duration) -> Self {
        self.profile.time_limit = Some(limit);
        self
    }
}

#[async_trait]
impl Agent for Scripted {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        (self.run)(cx).await
    }
}

// ------------------------------------------------------------------------------------------------ worlds

/// A folder with tasks in it, and what is needed to serve them.
pub(crate) struct World {
    folder: TempDir,
    agents: Vec<Arc<dyn Agent>>,
    options: Options,
    clock: Option<Arc<dyn Clock>>,
    sqlite: SqliteOptions,
    tracer: Option<Arc<dyn Tracer>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            agents: vec![],
            options: Options::default(),
            clock: None,
            sqlite: SqliteOptions::default(),
            tracer: None,
        }
    }

    pub(crate) fn tracer(mut self, tracer: &Arc<dyn Tracer>) -> Self {
        self.tracer = Some(Arc::clone(tracer));
        self
    }

    /// Adds an agent. The first one is the default of everything below.
    pub(crate) fn agent<F>(self, name: &str, run: impl Fn(TaskContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Outcome, AgentError>> + Send + 'static,
    {
        self.scripted(Scripted::new(name, run))
    }

    pub(crate) fn scripted(mut self, agent: Scripted) -> Self {
        self.agents.push(Arc::new(agent));
        self
    }

    /// An agent that is no script.
    pub(crate) fn plain(mut self, agent: Arc<dyn Agent>) -> Self {
        self.agents.push(agent);
        self
    }

    pub(crate) fn options(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    pub(crate) fn clock(mut self, clock: &Arc<HandClock>) -> Self {
        self.clock = Some(Arc::clone(clock) as Arc<dyn Clock>);
        self
    }

    pub(crate) fn sqlite(mut self, options: SqliteOptions) -> Self {
        self.sqlite = options;
        self
    }

    /// Serves what is in the folder.
    pub(crate) async fn start(&self) -> Engine {
        self.start_on(self.open().await).await
    }

    /// The same, on a store that the test has its hands in.
    pub(crate) async fn start_on(&self, store: Arc<dyn Store>) -> Engine {
        let mut catalog = Catalog::default();
        for agent in &self.agents {
            catalog.add(Arc::clone(agent)).unwrap();
        }
        let mut parts = EngineParts::new(store, catalog);
        parts.options = self.options.clone();
        parts.tracer.clone_from(&self.tracer);
        if let Some(clock) = &self.clock {
            parts.clock = Arc::clone(clock);
        }
        Engine::start(parts).await.unwrap()
    }

    /// The store in the folder, once whoever had it before has let go of it.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        open_in(self.folder.path(), self.sqlite.clone()).await
    }

    /// A life of the server: an engine on a runtime of its own, which can be cut off at any point.
    pub(crate) fn life(&self) -> Life {
        self.life_with(|store| store)
    }

    pub(crate) fn life_with(&self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Life {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let engine = runtime.block_on(async { self.start_on(wrap(self.open().await)).await });
        Life { runtime, engine }
    }
}

/// One run of a server process.
pub(crate) struct Life {
    runtime: Runtime,
    pub(crate) engine: Engine,
}

impl Life {
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(DEADLINE, future).await })
            .expect("a life goes on within the deadline")
    }

    /// The process dies here and now: every task of it stops at its next await and nothing is tidied up.
    pub(crate) fn cut(self) {
        self.runtime.shutdown_background();
    }
}

// --------------------------------------------------------------------------------------------- shorthand

pub(crate) fn me() -> Caller {
    Caller::local()
}

/// A message of one text, with an id of its own.
pub(crate) fn said(text: impl Into<String>) -> Message {
    Message::text(Uuid::now_v7().to_string(), Role::User, text)
}

/// A message of one structured value.
pub(crate) fn data(value: Value) -> Message {
    Message::of(Uuid::now_v7().to_string(), Role::User, vec![Part::data(value)])
}

pub(crate) fn to(agent: &str, text: &str) -> Submit {
    Submit::new(agent, said(text))
}

pub(crate) fn reply_to(task: &Task, message: Message) -> Reply {
    let task = task.origin.id.to_string();
    Reply { task, context: None, message, idempotency_key: None, webhooks: vec![] }
}

/// The text of an artifact.
pub(crate) fn text_of(task: &Task, artifact: &str) -> String {
    let artifact = task.artifacts.iter().find(|one| one.id == artifact).expect("the artifact is there");
    artifact.parts.iter().filter_map(Part::as_text).collect()
}

/// What a task's last status says.
pub(crate) fn last_words(task: &Task) -> String {
    task.status_message.as_ref().map(Message::joined_text).unwrap_or_default()
}

/// Waits for a condition.
pub(crate) async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it ends within the deadline")
}

/// What tests do with an engine, always as [`me`].
pub(crate) trait EngineExt {
    async fn send(&self, submit: Submit) -> Task;
    /// Sends, and waits until the task has ended or waits for somebody.
    async fn run(&self, submit: Submit) -> Task;
    async fn say(&self, task: &Task, message: Message) -> Result<Task, Error>;
    async fn task(&self, id: TaskId) -> Task;
    async fn settled(&self, task: &Task) -> Task;
    /// Follows a task to its end.
    async fn ended(&self, task: &Task) -> Task;
    /// Waits until nobody holds the task and nothing of it is left in memory.
    async fn parked(&self, task: &Task) -> Task;
    async fn row(&self, id: TaskId) -> TaskRow;
    async fn log(&self, id: TaskId) -> Vec<Entry>;
    /// Checks all that must hold of a task at any time, and returns it.
    async fn checked(&self, id: TaskId) -> Task;
}

impl EngineExt for Engine {
    async fn send(&self, submit: Submit) -> Task {
        within(self.submit(&me(), submit)).await.unwrap()
    }

    async fn run(&self, submit: Submit) -> Task {
        let task = self.send(submit).await;
        self.settled(&task).await
    }

    async fn say(&self, task: &Task, message: Message) -> Result<Task, Error> {
        within(self.reply(&me(), reply_to(task, message))).await
    }

    async fn task(&self, id: TaskId) -> Task {
        Arc::unwrap_or_clone(within(self.get(&me(), &id.to_string())).await.unwrap())
    }

    async fn settled(&self, task: &Task) -> Task {
        within(self.wait_until_idle(&me(), task.clone())).await.unwrap()
    }

    async fn ended(&self, task: &Task) -> Task {
        let mut follower = self.follow(&me(), &task.origin.id.to_string(), 0).await.unwrap();
        let mut task = Task::new(task.origin.clone());
        loop {
            match within(follower.next()).await.unwrap() {
                Next::Batch(batch) => batch.iter().for_each(|(_, entry)| task.apply(entry)),
                Next::End => return task,
                Next::Closing | Next::Nudge(_) => panic!("the server stops"),
            }
        }
    }

    async fn parked(&self, task: &Task) -> Task {
        let id = task.origin.id;
        until("the task is parked", async || {
            (self.row(id).await.node.is_none() && self.load().0 == 0).then_some(())
        })
        .await;
        self.task(id).await
    }

    async fn row(&self, id: TaskId) -> TaskRow {
        self.store_for_tests().row(&TaskKey::Id(id)).await.unwrap().expect("the task is there")
    }

    async fn log(&self, id: TaskId) -> Vec<Entry> {
        read_log(&**self.store_for_tests(), id).await
    }

    async fn checked(&self, id: TaskId) -> Task {
        check(self, id).await
    }
}

/// The whole log, which must be without a gap.
pub(crate) async fn read_log(store: &dyn Store, id: TaskId) -> Vec<Entry> {
    let no = store.row(&TaskKey::Id(id)).await.unwrap().expect("the task is there").no;
    let mut log = vec![];
    loop {
        let batches = store.log(no, log.len() as u64, 1 << 20).await.unwrap();
        if batches.is_empty() {
            return log;
        }
        for batch in batches {
            assert_eq!(batch.first_seq, log.len() as u64 + 1, "the log has a gap or a repeat");
            log.extend(event::decode(&batch.bytes).unwrap());
        }
    }
}

async fn check(engine: &Engine, id: TaskId) -> Task {
    // The two readings are of one moment when nothing was committed between them.
    let (row, task, log) = until("the task holds still", async || {
        let row = engine.row(id).await;
        let (task, log) = (engine.task(id).await, engine.log(id).await);
        (engine.row(id).await.version == row.version).then_some((row, task, log))
    })
    .await;
    let mut fold = Task::new(task.origin.clone());
    for entry in &log {
        let before = fold.state;
        assert!(!before.is_terminal(), "{entry:?} after the end");
        fold.apply(entry);
        assert!(fold.state == before || before.may_become(fold.state), "{before:?} -> {:?}", fold.state);
    }
    let ends = log.iter().filter(|entry| is_end(entry.event())).count();
    assert_eq!(ends, usize::from(fold.state.is_terminal()), "ends in the log");
    assert_eq!(fold, task, "the fold of the whole log is what `get` says (also by way of a snapshot)");
    assert_eq!(row.seq, log.len() as u64);
    assert_eq!((row.state, row.status_at), (task.state, task.status_at), "lists show what the task says");
    assert!(!row.state.is_terminal() || row.node.is_none(), "nobody holds an ended task");
    task
}

pub(crate) fn is_end(event: &Event) -> bool {
    matches!(event, Event::Status(status) if status.state.is_terminal())
}

// ------------------------------------------------------------------------------------------------- clock

/// A clock that stands still until it is moved.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_700_000_000_000)))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn chance(&self) -> f64 {
        0.5
    }

    fn random_bytes(&self) -> [u8; 32] {
        [7; 32]
    }
}

// ------------------------------------------------------------------------------------------------- store

/// A place where the first commit that comes by waits until the test lets it go.
pub(crate) struct Gate {
    arrived: Semaphore,
    open: Semaphore,
    used: AtomicBool,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { arrived: Semaphore::new(0), open: Semaphore::new(0), used: AtomicBool::new(false) })
    }

    /// A store on which commits of a kind pass this gate.
    pub(crate) fn on(
        self: &Arc<Self>,
        store: Arc<dyn Store>,
        moment: CommitMoment,
        kind: impl Fn(&Change) -> bool + Send + Sync + 'static,
    ) -> Arc<dyn Store> {
        let gate = Arc::clone(self);
        HookedStore::new(store, move |now, change| match now == moment && kind(change) {
            true => Arc::clone(&gate).pass().boxed(),
            false => proceed(),
        })
    }

    async fn pass(self: Arc<Self>) -> Result<(), CommitError> {
        if !self.used.swap(true, Ordering::SeqCst) {
            self.arrived.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
        Ok(())
    }

    /// Waits until a commit waits here.
    pub(crate) async fn arrival(&self) {
        within(self.arrived.acquire()).await.unwrap().forget();
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}
