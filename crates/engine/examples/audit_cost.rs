//! What the audit costs: durable sends of an agent that answers at once, with every level of the audit, in turn, on a
//! SQLite store of their own. Prints sends per second and the CPU time of one send, lines of the audit included.
//!
//! `cargo run --release -p nuncio-engine --example audit_cost -- [SENDS] [REPEATS]`

#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use nuncio_engine::{
    Agent, AgentError, AuditLevel, Caller, Catalog, Engine, EngineParts, Message, Outcome, Profile, Role,
    Submit, TaskContext,
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;

/// Sends that are under way at once.
const AT_ONCE: usize = 64;

struct Echo;

#[async_trait]
impl Agent for Echo {
    fn profile(&self) -> Profile {
        Profile::new("echo", "says it again")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::said(cx.input().joined_text()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let sends = given.next().transpose()?.unwrap_or(20_000);
    let repeats = given.next().transpose()?.unwrap_or(3);
    if cfg!(debug_assertions) {
        println!("(not optimized: build with --release for figures that count)");
    }
    println!("| audit | sends/s | CPU µs a send |\n| --- | --- | --- |");
    let levels = [("off", AuditLevel::Off), ("changes", AuditLevel::Changes), ("all", AuditLevel::All)];
    let mut measured: Vec<Vec<(f64, f64)>> = vec![vec![]; levels.len()];
    // In turn, so that what the machine does meanwhile falls on all of them.
    for _ in 0..repeats {
        for (n, (_, level)) in levels.iter().enumerate() {
            measured[n].push(measure(*level, sends).await?);
        }
    }
    for ((name, _), mut runs) in levels.iter().zip(measured) {
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (per_second, cpu) = runs[runs.len() / 2];
        println!("| {name} | {per_second:.0} | {cpu:.1} |");
    }
    Ok(())
}

/// Sends per second, and CPU microseconds of one.
async fn measure(level: AuditLevel, sends: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = open_in(folder.path(), SqliteOptions::default()).await;
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(Echo))?;
    let mut parts = EngineParts::new(store, catalog);
    parts.options.access.audit = level;
    let engine = Engine::start(parts).await?;
    let caller = Caller::local();
    let send = |n: usize| {
        let (engine, caller) = (engine.clone(), caller.clone());
        async move {
            let message = Message::text(format!("m{n}"), Role::User, "the same words as ever");
            engine.submit(&caller, Submit::new("echo", message)).await
        }
    };
    let (began, cpu) = (Instant::now(), cpu_time()?);
    let mut under_way = stream::iter(0..sends).map(send).buffer_unordered(AT_ONCE);
    while let Some(sent) = under_way.next().await {
        sent?;
    }
    drop(under_way);
    engine.flush_audit().await;
    let (took, cpu) = (began.elapsed(), cpu_time()?.saturating_sub(cpu));
    engine.stop().await;
    Ok((sends as f64 / took.as_secs_f64(), cpu.as_secs_f64() * 1e6 / sends as f64))
}

/// The processors' time of this process: user and system, in ticks of 10 ms.
fn cpu_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
