//! Agents whose work can be checked from outside, and the process that serves them.
//!
//! The process is this very test binary, started again with the name of the test below: so it is always built
//! together with the tests that kill it, and never installed beside `nuncio`.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use nuncio::{Nuncio, PostgresOptions, StoreLocation, engine::Options, prelude::*};
use serde::{Deserialize, Serialize};

const DATA: &str = "NUNCIO_TEST_AGENTS_DATA";
const LISTEN: &str = "NUNCIO_TEST_AGENTS_LISTEN";
const CLUSTER: &str = "NUNCIO_TEST_AGENTS_CLUSTER";

/// Steps of a task of `ledger`.
pub(crate) const STEPS: u32 = 20;
/// Chunks of a task of `chunks`.
pub(crate) const CHUNKS: u32 = 200;
/// The chunks after which `chunks` waits at a gate: when everybody follows it goes on, and when everybody has
/// seen nearly all of it it ends.
pub(crate) const GATES: [u32; 2] = [1, 190];

/// What the nodes of a cluster have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cluster {
    /// The PostgreSQL server.
    pub(crate) store: String,
    pub(crate) schema: String,
    /// The folder that the agents of all nodes use as theirs.
    pub(crate) world: PathBuf,
    pub(crate) lease: Duration,
    pub(crate) patience: Duration,
    /// How many times longer than usual `ledger` takes.
    pub(crate) slowness: u32,
    /// Chunks of a task of `chunks`.
    pub(crate) chunks: u32,
}

/// The lines that `ledger` wrote, in their order: what its steps did to the world.
pub(crate) fn ledger_file(data: &Path) -> PathBuf {
    data.join("ledger")
}

/// A task of `chunks` whose message is this name passes its gate after that chunk when this file exists.
pub(crate) fn gate_file(data: &Path, name: &str, chunk: u32) -> PathBuf {
    data.join(format!("gate-{name}-{chunk}"))
}

/// Events of the story that people see.
pub(crate) const STORY_EVENTS: u32 = 9;

/// The story goes on to that event when this file exists.
pub(crate) fn story_gate(data: &Path, event: usize) -> PathBuf {
    data.join(format!("story-{event}"))
}

/// The command that serves these agents, alone or as a node of a cluster.
pub(crate) fn command(data: &Path, listen: &str, cluster: Option<&Cluster>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["test_agents::serves_until_it_is_killed", "--exact", "--ignored", "--nocapture"]);
    command.env(DATA, data).env(LISTEN, listen);
    if let Some(cluster) = cluster {
        command.env(CLUSTER, serde_json::to_string(cluster).unwrap());
    }
    command
}

#[test]
#[ignore = "not a test: the server that the crash, resume and cluster tests start in a process of its own"]
fn serves_until_it_is_killed() {
    let Some(data) = std::env::var_os(DATA).map(PathBuf::from) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    std::fs::create_dir_all(&data).unwrap();
    let cluster: Option<Cluster> =
        std::env::var(CLUSTER).ok().map(|json| serde_json::from_str(&json).unwrap());
    let world = cluster.as_ref().map_or(&data, |cluster| &cluster.world);
    let slowness = cluster.as_ref().map_or(1, |cluster| cluster.slowness);
    let count = cluster.as_ref().map_or(CHUNKS, |cluster| cluster.chunks);
    let mut nuncio = Nuncio::new()
        .agent(Ledger::open(&ledger_file(world), slowness))
        .agent(Chunks { data: world.clone(), count })
        .agent(Listener)
        .agent(Story { data: world.clone() })
        .data(&data)
        .listen(std::env::var(LISTEN).unwrap());
    if let Some(Cluster { store: url, schema, lease, patience, .. }) = cluster {
        let options = PostgresOptions { schema, patience, ..PostgresOptions::default() };
        nuncio = nuncio.store(StoreLocation::Postgres { url, options });
        nuncio = nuncio.options(Options { lease, ..Options::default() });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = nuncio.start().await.unwrap();
        print!("{}", running.places());
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
}

/// Every step writes one line into a file, with the message of the task, its own number and the run that does
/// it, and returns that run. So the file and the result tell whether a finished step was redone. A run writes a
/// line for step 0 when it begins.
struct Ledger {
    file: Arc<File>,
    slowness: u32,
    runs: AtomicU32,
}

impl Ledger {
    fn open(path: &Path, slowness: u32) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        Self { file: Arc::new(file), slowness, runs: AtomicU32::new(0) }
    }

    /// Has the line on the disk when it returns.
    async fn write(&self, line: String) -> Result<(), AgentError> {
        let file = Arc::clone(&self.file);
        let write = move || (&*file).write_all(line.as_bytes()).and_then(|()| file.sync_data());
        tokio::task::spawn_blocking(write).await.map_err(AgentError::failed)?.map_err(AgentError::failed)
    }
}

#[async_trait]
impl Agent for Ledger {
    fn profile(&self) -> Profile {
        Profile::new("ledger", "Does a number of steps, and writes each of them down.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let name = cx.text();
        // The process, and which of its runs.
        let me = format!("{}.{}", std::process::id(), self.runs.fetch_add(1, Ordering::Relaxed));
        let begin = format!("{name} 0 {me}\n");
        (&*self.file).write_all(begin.as_bytes()).map_err(AgentError::failed)?;
        // Not the same for all, so that they do not march in step.
        let pause = Duration::from_millis(2 + u64::from(cx.task_id().0.as_bytes()[15] % 8)) * self.slowness;
        for n in 1..=STEPS {
            let by: String = cx
                .step(&format!("step-{n}"), async |step| {
                    // Said inside, so it is said again when the step is redone, in place of what was said.
                    let say = |text: String| Chunk::text(format!("step-{n}"), text);
                    step.artifact(say(format!("begun by {me}, "))).await?;
                    step.sleep(pause).await?;
                    self.write(format!("{name} {n} {me}\n")).await?;
                    step.sleep(pause).await?;
                    step.artifact(say(format!("done by {me}")).complete()).await?;
                    Ok(me.clone())
                })
                .await?;
            // Said outside, so it is said once.
            cx.artifact(Chunk::text("ledger", format!("{n} by {by}\n"))).await?;
            cx.progress(n.into(), Some(STEPS.into()), "").await?;
        }
        Ok(Outcome::said(format!("{name}: {STEPS} steps are done.")))
    }
}

/// One artifact in many chunks, a few at a time, with gates between them that a test opens.
struct Chunks {
    data: PathBuf,
    count: u32,
}

#[async_trait]
impl Agent for Chunks {
    fn profile(&self) -> Profile {
        Profile::new("chunks", "Makes one artifact in many chunks.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        const AT_ONCE: u32 = 5;
        const PAUSE: Duration = Duration::from_millis(5);
        let name = cx.text();
        for n in 1..=self.count {
            cx.artifact(Chunk::text("chunks", format!("chunk {n} \u{2713}\n"))).await?;
            if GATES.contains(&n) {
                let gate = gate_file(&self.data, &name, n);
                cx.step(&format!("gate-{n}"), async |step| {
                    while !gate.exists() {
                        step.sleep(PAUSE).await?;
                    }
                    Ok(())
                })
                .await?;
            } else if n % AT_ONCE == 0 {
                cx.step(&format!("pause-{n}"), async |step| step.sleep(PAUSE).await).await?;
            }
        }
        Ok(Outcome::done())
    }
}

/// Waits to be told something, and says in an artifact that it was. The message says what for: `cancel`, or
/// `answer`, or `answer at work`, where something else goes on beside the question so that the run stays.
struct Listener;

#[async_trait]
impl Agent for Listener {
    fn profile(&self) -> Profile {
        Profile::new("listener", "Says when it is told something.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = cx.text();
        let heard = |what: &str| Chunk::text("heard", what).complete();
        if text.starts_with("cancel") {
            cx.artifact(Chunk::text("ready", "ready")).await?;
            cx.canceled().await;
            cx.artifact(heard("cancel")).await?;
            return Err(AgentError::Canceled);
        }
        let schema = json!({
            "type": "object", "properties": { "word": { "type": "string" } }, "required": ["word"]
        });
        // A branch is at work for as long as there is one.
        let work = text.starts_with("answer at work").then(|| cx.branch("work"));
        cx.ask("Which word?", schema).await?;
        drop(work);
        cx.artifact(heard("answer")).await?;
        Ok(Outcome::done())
    }
}

/// One of everything that a task shows to people, an event at a time, with gates between them that a test opens.
struct Story {
    data: PathBuf,
}

impl Story {
    async fn pass(&self, cx: &TaskContext, event: usize) -> Result<(), AgentError> {
        let gate = story_gate(&self.data, event);
        cx.step(&format!("gate-{event}"), async |step| {
            while !gate.exists() {
                step.sleep(Duration::from_millis(5)).await?;
            }
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Agent for Story {
    fn profile(&self) -> Profile {
        Profile::new("story", "Tells a story.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = |text: &str| Chunk::text("text", text).named("The text");
        cx.log(Level::Info, "the first line").await?;
        self.pass(&cx, 1).await?;
        cx.progress(25.0, Some(100.0), "a quarter").await?;
        self.pass(&cx, 2).await?;
        cx.artifact(text("first line of the text\nsecond li")).await?;
        self.pass(&cx, 3).await?;
        cx.log(Level::Warning, "between the pieces").await?;
        self.pass(&cx, 4).await?;
        cx.artifact(text("ne of the text\n")).await?;
        self.pass(&cx, 5).await?;
        let schema = json!({
            "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"]
        });
        cx.ask("Shall it go on?", schema).await?;
        self.pass(&cx, 6).await?;
        cx.log(Level::Info, "it goes on").await?;
        self.pass(&cx, 7).await?;
        cx.artifact(text("third line of the text\n").complete()).await?;
        self.pass(&cx, 8).await?;
        Ok(Outcome::done())
    }
}
