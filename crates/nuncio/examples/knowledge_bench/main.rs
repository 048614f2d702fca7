//! The benchmark `bench/knowledge`: the memory bank, a batch and `resources/read` of each kind, each beside
//! the same work directly on SQLite, in one process and one run.

mod direct;
mod figures;
mod wire;

use std::{error::Error, io::Write as _, sync::Arc, time::Instant};

use clap::Parser;
use nuncio::{
    FlowsOptions, Nuncio, RunningServer,
    engine::{
        Caller, Submit,
        knowledge::{ExpectedVersion, MemoryQuery},
    },
    prelude::*,
};
use nuncio_agents::EchoAgent;
use tokio::task::JoinSet;

use crate::{
    direct::Direct,
    figures::{Cost, Table, cpu},
    wire::Wire,
};

// The same allocator as the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NAMESPACE: &str = "bench";

/// Measures the memory bank, a batch and resources beside SQLite itself.
#[derive(Parser)]
struct Options {
    /// Keys in the namespace that is searched.
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    /// Concurrent writers; also the entries per transaction of the baseline.
    #[arg(long, default_value_t = 64)]
    writers: usize,
    /// Operations of the batch.
    #[arg(long, default_value_t = 1_000)]
    operations: usize,
    /// Reads of each resource.
    #[arg(long, default_value_t = 500)]
    reads: usize,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let options = Options::parse();
    let folder = tempfile::tempdir()?;
    let mut flows = FlowsOptions::default();
    // The benchmark makes the machine busier than the admission thresholds for batches allow.
    flows.batch.settings.resource_monitoring = false;
    let server = Nuncio::new().agent(EchoAgent).flows(flows);
    let running = server.listen("127.0.0.1:0").data(folder.path().join("ours")).start().await?;
    let mut bench = Bench { options, direct: Direct::open(folder.path())?, table: Table::default(), running };
    bench.run().await?;
    writeln!(std::io::stdout(), "{}", bench.table.text())?;
    bench.running.stop().await;
    Ok(())
}

struct Bench {
    options: Options,
    running: RunningServer,
    direct: Direct,
    table: Table,
}

impl Bench {
    async fn run(&mut self) -> Outcome<()> {
        let entries: Arc<Vec<(String, String)>> = Arc::new((0..self.options.keys).map(entry).collect());
        self.store(&entries).await?;
        self.get(&entries).await?;
        self.search().await?;
        self.batch(&entries).await?;
        self.resources(&entries).await
    }

    /// Durable writes by many concurrent writers; the baseline writes as many per transaction.
    async fn store(&mut self, entries: &Arc<Vec<(String, String)>>) -> Outcome<()> {
        let (started, used) = (Instant::now(), cpu());
        let mut writers = JoinSet::new();
        for writer in 0..self.options.writers {
            let (memory, entries, step) =
                (self.running.engine().memory(), Arc::clone(entries), self.options.writers);
            writers.spawn(async move {
                for (key, value) in entries.iter().skip(writer).step_by(step) {
                    let value: Value = serde_json::from_str(value)?;
                    memory
                        .store(&Caller::local(), NAMESPACE, key, &value, None, ExpectedVersion::Any)
                        .await?;
                }
                Ok::<(), Box<dyn Error + Send + Sync>>(())
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        let ours = Cost::of(entries.len(), started, used);
        let direct = self.direct.store(NAMESPACE, entries, self.options.writers)?;
        let what = format!("store, {} writers, durable, full text", self.options.writers);
        self.table.row(&what, &ours, &direct);
        Ok(())
    }

    async fn get(&mut self, entries: &[(String, String)]) -> Outcome<()> {
        let keys = || entries.iter().step_by(5).map(|(key, _)| key.as_str());
        let memory = self.running.engine().memory();
        let (started, used, mut count) = (Instant::now(), cpu(), 0);
        for key in keys() {
            let found = memory.get(&Caller::local(), NAMESPACE, key).await?;
            count += usize::from(found.is_some());
        }
        assert_eq!(count, keys().count(), "every key that was stored is there");
        let ours = Cost::of(count, started, used);
        let direct = self.direct.get(NAMESPACE, keys())?;
        self.table.row("get", &ours, &direct);
        Ok(())
    }

    async fn search(&mut self) -> Outcome<()> {
        let memory = self.running.engine().memory();
        for (pattern, times) in [("user:0000123*", 50), ("*:name-77", 20), ("*1234*", 20), ("*", 10)] {
            let (started, used) = (Instant::now(), cpu());
            for _ in 0..times {
                let what = MemoryQuery::Keys(pattern.to_owned());
                memory.search(&Caller::local(), NAMESPACE, &what, 1, 10).await?;
            }
            let ours = Cost::of(times, started, used);
            let direct = self.direct.search(NAMESPACE, pattern, times)?;
            self.table.row(&format!("search {pattern:?} in {} keys", self.options.keys), &ours, &direct);
        }
        let (started, used, times) = (Instant::now(), cpu(), 20);
        for n in 0..times {
            let what = MemoryQuery::Words(vec![format!("word{}", n * 31)]);
            memory.search(&Caller::local(), NAMESPACE, &what, 1, 10).await?;
        }
        let ours = Cost::of(times, started, used);
        // SQLite without a full-text index: scans every value.
        let direct = self.direct.search(NAMESPACE, "*", times)?;
        self.table.row("search by a word (beside a scan)", &ours, &direct);
        Ok(())
    }

    async fn batch(&mut self, entries: &[(String, String)]) -> Outcome<()> {
        let keys: Vec<String> =
            entries.iter().take(self.options.operations).map(|(key, _)| key.clone()).collect();
        let operations: Vec<Value> = keys
            .iter()
            .enumerate()
            .map(|(n, key)| {
                let args = json!({ "namespace": NAMESPACE, "key": key });
                json!({ "id": format!("op{n}"), "type": "memory.get", "args": args })
            })
            .collect();
        let input = Message::of("bench", Role::User, vec![Part::data(json!({ "operations": operations }))]);
        let (engine, caller) = (self.running.engine(), Caller::local());
        let (started, used) = (Instant::now(), cpu());
        let task = engine.submit(&caller, Submit::new("batch", input)).await?;
        let task = engine.wait_until_idle(&caller, task).await?;
        let ours = Cost::of(keys.len(), started, used);
        assert!(task.state == nuncio::engine::State::Completed, "the batch ended as {:?}", task.state);
        // As many per transaction as operations run at once.
        let direct = self.direct.batch(NAMESPACE, &keys, 5)?;
        self.table.row("batch, one memory.get an operation, cap 5", &ours, &direct);
        Ok(())
    }

    async fn resources(&mut self, entries: &[(String, String)]) -> Outcome<()> {
        let wire = Wire::new(self.running.url());
        let context = wire.tool("sparc_start", json!({ "goal": "Measure it", "contextId": "bench" })).await?;
        std::hint::black_box(context);
        let task = self
            .running
            .engine()
            .submit(&Caller::local(), Submit::new("echo", Message::text("t", Role::User, "hello")))
            .await?;
        let (key, reads) = (&entries[7].0, self.options.reads);
        let point = self.direct.get(NAMESPACE, std::iter::repeat_n(key.as_str(), reads))?;
        let uris = [
            (format!("memory://data/{NAMESPACE}/{}", key.replace(':', "%3A")), point),
            (format!("memory://namespace/{NAMESPACE}/keys"), self.direct.list(NAMESPACE, reads.min(50))?),
            (
                format!("memory://search/{NAMESPACE}?pattern=user%3A0000123%2A"),
                self.direct.search(NAMESPACE, "user:0000123*", reads.min(50))?,
            ),
            ("sparc://workflow/bench".to_owned(), point),
            ("sparc://phase/specification/template".to_owned(), point),
            ("sparc://agent/coder/capabilities".to_owned(), point),
            ("batchtools://metrics/performance".to_owned(), point),
            ("batchtools://queue/status".to_owned(), point),
            ("batchtools://config/settings".to_owned(), point),
            ("a2a://agents/registry".to_owned(), point),
            (format!("a2a://tasks/{}", task.origin.id), point),
        ];
        for (uri, direct) in uris {
            let (started, used) = (Instant::now(), cpu());
            for _ in 0..reads {
                wire.read(&uri).await?;
            }
            let ours = Cost::of(reads, started, used);
            self.table.row(&format!("resources/read {uri} (client's CPU in it)"), &ours, &direct);
        }
        Ok(())
    }
}

fn entry(n: usize) -> (String, String) {
    let value = json!({ "n": n, "text": format!("word{} and some more words to keep", n % 1_000), "tags": ["a", "b"] });
    (format!("user:{n:07}:name-{}", n % 100), value.to_string())
}
