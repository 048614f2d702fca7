//! A benchmark of the orchestrator: plans with many subtasks whose agent does nothing, on a durable store,
//! beside the same tasks sent directly. Prints one line of JSON with measured numbers only.
//!
//! ```text
//! cargo run --release -p nuncio --example plan_bench FOLDER [SUBTASKS]
//! ```
//!
//! The folder must be on a real disk: elsewhere a commit costs nothing. `bench/host` runs this.

#![allow(clippy::print_stdout, reason = "a bench says what it measured")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench that cannot go on has failed")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use futures_util::future::join_all;
use nuncio_agents::EchoAgent;
use nuncio_engine::{Caller, Catalog, Engine, EngineParts, Message, Part, Role, State, Submit, Task};
use nuncio_flows::{
    plan::{AGENT, PlanEngine, PlanOptions},
    registry::{Registry, RegistryOptions},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().expect("usage: plan_bench FOLDER [SUBTASKS]"));
    let count: usize = args.next().map_or(1_000, |count| count.parse().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let engine = start(&folder).await;
    // A warm-up, so that everything is loaded.
    run(&engine, &parallel(10)).await;

    let direct_at_once = timed(count, async {
        join_all((0..count).map(|n| direct(&engine, n))).await;
        None
    });
    let direct_at_once = direct_at_once.await;
    let at_once = timed(count, async { Some(run(&engine, &parallel(count)).await) }).await;
    let direct_in_a_row = timed(count, async {
        for n in 0..count {
            direct(&engine, count + n).await;
        }
        None
    });
    let direct_in_a_row = direct_in_a_row.await;
    let in_a_row = timed(count, async { Some(run(&engine, &in_a_row(count)).await) }).await;
    engine.stop().await;
    let said = json!({
        "subtasks": count,
        "parallel": at_once,
        "direct_parallel": direct_at_once,
        "chain": in_a_row,
        "direct_chain": direct_in_a_row,
        "debug": cfg!(debug_assertions),
    });
    println!("{said}");
}

/// Time and CPU per item, and the task they belong to.
async fn timed(count: usize, work: impl Future<Output = Option<Task>>) -> Value {
    let (begun, before) = (Instant::now(), cpu_seconds());
    let task = work.await;
    let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - before);
    let per = |seconds: f64| (seconds * 1e6 / count as f64).round() / 1e3;
    json!({ "ms": per(took), "cpu_ms": per(cpu), "task": task.map(|task| task.origin.id.to_string()) })
}

/// The CPU time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

async fn start(folder: &Path) -> Engine {
    let registry = Arc::new(Registry::new(RegistryOptions::default()));
    let plans = PlanEngine::new(PlanOptions::default(), Arc::clone(&registry));
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(EchoAgent)).unwrap();
    for agent in plans.agents() {
        catalog.add(agent).unwrap();
    }
    let store = SqliteStore::open(folder, SqliteOptions::default()).unwrap();
    let engine = Engine::start(EngineParts::new(Arc::new(store), catalog)).await.unwrap();
    registry.watch(&engine);
    engine
}

async fn direct(engine: &Engine, n: usize) {
    let message = Message::text(format!("m{n}"), Role::User, "hello");
    let task = engine.submit(&Caller::local(), Submit::new("echo", message)).await.unwrap();
    assert_eq!(task.state, State::Completed);
}

/// Runs a plan from its submission to its end.
async fn run(engine: &Engine, plan: &Value) -> Task {
    let message = Message::of("", Role::User, vec![Part::data(json!({ "plan": plan }))]);
    let task = engine.submit(&Caller::local(), Submit::new(AGENT, message)).await.unwrap();
    let ended = engine.wait_until_idle(&Caller::local(), task).await.unwrap();
    assert_eq!(ended.state, State::Completed, "{:?}", ended.status_message);
    ended
}

fn parallel(count: usize) -> Value {
    let task = |n: usize| json!({ "id": format!("t{n}"), "agent": "echo", "input": "hello" });
    json!({ "tasks": (0..count).map(task).collect::<Vec<_>>() })
}

fn in_a_row(count: usize) -> Value {
    let task = |n: usize| {
        let needs: Vec<String> = n.checked_sub(1).map(|before| format!("t{before}")).into_iter().collect();
        json!({ "id": format!("t{n}"), "needs": needs, "agent": "echo", "input": "hello" })
    };
    json!({ "tasks": (0..count).map(task).collect::<Vec<_>>() })
}
