//! How fast the embedded store is on this machine, with 64 callers: tasks created, chunks appended, tasks
//! opened, pages listed, and tasks opened while others are created.
//!
//! `cargo run --release -p nuncio-store --example commit_rate -- [SECONDS [DIR [PHASE…]]]`
//! where a phase is `create`, `append`, `open`, `list` or `mixed`; without one, all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement for a terminal"
)]

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{
    clock::{Clock, SystemClock},
    content::{Message, Part, Role},
    event::{ArtifactChunk, Entry, Event, Status, encode},
    store::{Change, ListQuery, NewTask, NodeId, Precondition, RunChange, Store, TaskKey, TaskNo},
    task::{State, TaskId},
};
use nuncio_store::{SqliteOptions, SqliteStore};

const WORKERS: usize = 64;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let time = Duration::from_secs_f64(args.next().map_or(3.0, |seconds| seconds.parse().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let dir = args.next().map_or_else(|| folder.path().to_owned(), PathBuf::from);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir, SqliteOptions::default()).unwrap());
    let (id, first) = echo();
    store.commit(first).await.unwrap();
    let running = running(&store).await;
    let bench = Arc::new(Bench { store, ids: Mutex::new(vec![id]), running, next: AtomicUsize::new(0) });
    let wanted: Vec<String> = args.collect();
    let wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if wanted("create") {
        measure("create", time, &bench, Bench::create).await;
    }
    if wanted("append") {
        measure("append", time, &bench, Bench::append).await;
    }
    if wanted("open") {
        measure("open", time, &bench, Bench::open).await;
    }
    if wanted("list") {
        measure("list", time, &bench, Bench::list).await;
    }
    if wanted("mixed") {
        measure("mixed", time, &bench, Bench::mixed).await;
    }
    bench.store.close().await.unwrap();
}

struct Bench {
    store: Arc<dyn Store>,
    ids: Mutex<Vec<TaskId>>,
    running: Vec<TaskNo>,
    next: AtomicUsize,
}

impl Bench {
    async fn create(self: Arc<Self>) {
        let (id, change) = echo();
        self.store.commit(change).await.unwrap();
        self.ids.lock().unwrap().push(id);
    }

    async fn append(self: Arc<Self>) {
        let task = self.running[self.next.fetch_add(1, Ordering::Relaxed) % self.running.len()];
        let mut change = Change::new(Precondition::Runner { task, epoch: 1 });
        change.events = Some(encode(&[Entry(SystemClock.now(), chunk(&"x".repeat(200)))]));
        self.store.commit(change).await.unwrap();
    }

    async fn open(self: Arc<Self>) {
        let id = {
            let ids = self.ids.lock().unwrap();
            // A stride that visits them all, out of order.
            ids[self.next.fetch_add(7_919, Ordering::Relaxed) % ids.len()]
        };
        self.store.open(&TaskKey::Id(id)).await.unwrap().unwrap();
        tokio::task::yield_now().await;
    }

    /// The newest 50 of an owner.
    async fn list(self: Arc<Self>) {
        let query = ListQuery {
            owner: "local".into(),
            context: None,
            state: None,
            agent: None,
            since: None,
            after: None,
            limit: 50,
            only_rows: false,
        };
        assert_eq!(self.store.list(&query).await.unwrap().tasks.len(), 50);
    }

    /// An open, and a create once in ten times.
    async fn mixed(self: Arc<Self>) {
        if SystemClock.chance() < 0.1 {
            Arc::clone(&self).create().await;
        }
        self.open().await;
    }
}

/// Repeats a thing in `WORKERS` tasks for a while and prints the rate.
async fn measure<F>(name: &str, time: Duration, bench: &Arc<Bench>, step: fn(Arc<Bench>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let bench = Arc::clone(bench);
            tokio::spawn(async move {
                let (mut times, mut last) = (vec![], started.elapsed());
                while last < time {
                    step(Arc::clone(&bench)).await;
                    let now = started.elapsed();
                    times.push(now.saturating_sub(last).as_micros() as u64);
                    last = now;
                }
                times
            })
        })
        .collect();
    let mut times: Vec<u64> = vec![];
    for worker in workers {
        times.extend(worker.await.unwrap());
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    times.sort_unstable();
    let part = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{name}: {:.0}/s, latency us p50 {} p99 {} max {}, CPU {:.2} s per 1,000,000",
        times.len() as f64 / seconds,
        part(0.5),
        part(0.99),
        part(1.0),
        cpu / times.len() as f64 * 1e6,
    );
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

/// A task that is born completed: what an echo agent commits.
fn echo() -> (TaskId, Change) {
    let (now, id) = (SystemClock.now(), TaskId(SystemClock.new_id()));
    let text = "hello lorem ipsum ".repeat(8);
    let status = |state| Event::Status(Status { state, message: None, by: None });
    let entries = [
        Event::Message(Message::text("m-1", Role::User, &text)),
        status(State::Working),
        chunk(&text),
        status(State::Completed),
    ]
    .map(|event| Entry(now, event));
    let mut change = Change::new(Precondition::Create(Box::new(NewTask {
        id,
        client_id: None,
        owner: "local".into(),
        context: None,
        agent: "echo".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: now,
    })));
    change.events = Some(encode(&entries));
    change.state = Some((State::Completed, now));
    change.head = Some(vec![b'h'; 80].into());
    change.run = RunChange::Rest;
    (id, change)
}

fn chunk(text: &str) -> Event {
    Event::Artifact(ArtifactChunk {
        id: "out".into(),
        index: 0,
        parts: vec![Part::text(text)],
        append: false,
        last: true,
        name: Some("echo".into()),
        description: None,
        metadata: None,
        extensions: vec![],
    })
}

/// As many tasks as there are callers, leased and at work.
async fn running(store: &Arc<dyn Store>) -> Vec<TaskNo> {
    let mut tasks = vec![];
    for _ in 0..WORKERS {
        let (_, mut change) = echo();
        change.state = Some((State::Working, SystemClock.now()));
        change.run = RunChange::Lease(NodeId(SystemClock.new_id()));
        tasks.push(store.commit(change).await.unwrap().task);
    }
    tasks
}
