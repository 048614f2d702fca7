//! What the orchestrator costs: plans of many subtasks whose agent does nothing, on a durable store, beside the same
//! tasks sent directly. One line of JSON; nothing in it is computed from anything but what was measured.
//!
//! ```text
//! cargo run --release -p nuncio-flows --example plan_bench [SUBTASKS] [CHAIN]
//! ```

#![allow(clippy::print_stdout, reason = "a bench says what it measured")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use nuncio_agents::Echo;
use nuncio_engine::{Caller, Catalog, Engine, Message, Part, Parts, Role, State, Submit};
use nuncio_flows::{
    plan::{AGENT, PlanOptions, Plans},
    registry::{Registry, RegistryOptions},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().unwrap());
    let (many, chain) = (args.next().unwrap_or(1_000), args.next().unwrap_or(200));
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    // Once for nothing, so that everything is loaded.
    run(&engine, &parallel(10)).await;

    let direct_at_once = {
        let begun = Instant::now();
        join_all((0..many).map(|n| direct(&engine, n))).await;
        begun.elapsed()
    };
    let wide = run(&engine, &parallel(many)).await;
    let direct_in_a_row = {
        let begun = Instant::now();
        for n in 0..chain {
            direct(&engine, many + n).await;
        }
        begun.elapsed()
    };
    let long = run(&engine, &in_a_row(chain)).await;
    let per = |time: Duration, count: usize| (time.as_secs_f64() * 1e6 / count as f64).round() / 1e3;
    let said = json!({
        "subtasks": many,
        "parallel_ms_per_subtask": per(wide, many),
        "direct_parallel_ms_per_task": per(direct_at_once, many),
        "chain": chain,
        "chain_ms_per_subtask": per(long, chain),
        "direct_in_a_row_ms_per_task": per(direct_in_a_row, chain),
        "debug": cfg!(debug_assertions),
    });
    println!("{said}");
    engine.stop().await;
}

async fn start(folder: &std::path::Path) -> Engine {
    let registry = Arc::new(Registry::new(RegistryOptions::default()));
    let plans = Plans::new(PlanOptions::default(), Arc::clone(&registry));
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(Echo)).unwrap();
    for agent in plans.agents() {
        catalog.add(agent).unwrap();
    }
    let store = SqliteStore::open(folder, SqliteOptions::default()).unwrap();
    let engine = Engine::start(Parts::new(Arc::new(store), catalog)).await.unwrap();
    registry.watch(&engine);
    engine
}

async fn direct(engine: &Engine, n: usize) {
    let message = Message::text(format!("m{n}"), Role::User, "hello");
    let task = engine.submit(&Caller::local(), Submit::new("echo", message)).await.unwrap();
    assert_eq!(task.state, State::Completed);
}

/// How long a plan takes, from its submission to its end.
async fn run(engine: &Engine, plan: &Value) -> Duration {
    let begun = Instant::now();
    let message = Message::of("", Role::User, vec![Part::data(json!({ "plan": plan }))]);
    let task = engine.submit(&Caller::local(), Submit::new(AGENT, message)).await.unwrap();
    let ended = engine.settle(&Caller::local(), task).await.unwrap();
    assert_eq!(ended.state, State::Completed, "{:?}", ended.status_message);
    begun.elapsed()
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
