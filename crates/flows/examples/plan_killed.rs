//! Runs a plan over agents elsewhere on a folder, and dies by SIGKILL right after one of its commits. Started again
//! without a number, it goes on with what is there. For `tests/interop/plan`: the product itself has no such switch.
//!
//! ```text
//! plan_killed FOLDER AGENTS PLAN [COMMITS]
//! ```
//!
//! AGENTS is a file with tables `[[agent]]`, PLAN one with a plan. Prints one line of JSON: which tasks had ended
//! before it started, and what the plan came to.

#![allow(clippy::print_stdout, reason = "it says what happened")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test program that cannot go on has failed")]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use nuncio_agents::{Fleet, configured::AgentSpec};
use nuncio_engine::{
    Caller, Catalog, Content, Engine, EngineParts, List, Message, Part, Role, Submit, Task,
    store::{ListQuery, Store, TaskStore},
};
use nuncio_flows::{
    plan::{AGENT, PlanEngine, PlanOptions, RESULT},
    registry::{Registry, RegistryOptions},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use nuncio_testkit::fault_injection::{CommitMoment, HookedStore, proceed};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let mut path = || PathBuf::from(args.next().expect("plan_killed FOLDER AGENTS PLAN [COMMITS]"));
    let (folder, agents, plan) = (path(), path(), path());
    let last: Option<u64> = args.next().map(|commits| commits.parse().unwrap());
    let plan = std::fs::read_to_string(plan).unwrap();

    let store = SqliteStore::open(&folder, SqliteOptions::default()).unwrap();
    let ended = ended(&store).await;
    let commits = Arc::new(AtomicU64::new(0));
    let store = dying(Arc::new(store), Arc::clone(&commits), last);
    let engine = start(store, &agents).await;
    let task = begun(&engine, &plan).await;
    let done = engine.wait_until_idle(&Caller::local(), task).await.unwrap();
    let said = json!({
        "endedBefore": ended,
        "commits": commits.load(Ordering::SeqCst),
        "state": done.state,
        "message": done.status_message.as_ref().map(Message::joined_text),
        "result": result(&done).iter().find_map(Part::as_text),
        "parts": result(&done).iter().find_map(|part| match &part.content {
            Content::Data(value) => Some(value["parts"].clone()),
            _ => None,
        }),
    });
    println!("{said}");
    engine.stop().await;
}

/// The ids of the tasks that have ended as the store has it, before anybody works on it.
async fn ended(store: &SqliteStore) -> Vec<String> {
    let query = ListQuery {
        owner: Caller::local().owner().to_owned(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 1_000,
        only_rows: true,
    };
    let listed = store.list(&query).await.unwrap();
    let rows = listed.tasks.iter().map(|opened| &opened.row);
    rows.filter(|row| row.state.is_terminal()).map(|row| row.id.to_string()).collect()
}

/// The store, in a process that is killed right after that commit.
fn dying(store: Arc<dyn Store>, commits: Arc<AtomicU64>, last: Option<u64>) -> Arc<dyn Store> {
    HookedStore::new(store, move |moment, _| {
        if moment == CommitMoment::After && Some(commits.fetch_add(1, Ordering::SeqCst) + 1) == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        proceed()
    })
}

async fn start(store: Arc<dyn Store>, agents: &std::path::Path) -> Engine {
    let tables: Map<String, Value> = toml::from_str(&std::fs::read_to_string(agents).unwrap()).unwrap();
    let specs =
        tables["agent"].as_array().unwrap().iter().map(|table| {
            AgentSpec::read(table.as_object().unwrap(), &|name| std::env::var(name).ok()).unwrap()
        });
    let fleet = Fleet::new(specs.collect()).unwrap();
    let registry = Arc::new(Registry::new(RegistryOptions::default()));
    let plans = PlanEngine::new(PlanOptions::default(), Arc::clone(&registry));
    let mut catalog = Catalog::default();
    for agent in fleet.agents().into_iter().chain(plans.agents()) {
        catalog.add(agent).unwrap();
    }
    let engine = Engine::start(EngineParts::new(store, catalog)).await.unwrap();
    registry.watch(&engine);
    fleet.start(&engine).await;
    engine
}

/// The plan's task: the one that is there, or a new one.
async fn begun(engine: &Engine, plan: &str) -> Task {
    let list = List { agent: Some(AGENT.into()), page_size: 2, ..List::default() };
    let mut known = engine.list(&Caller::local(), list).await.unwrap().tasks;
    assert!(known.len() < 2, "one plan a folder");
    if let Some(task) = known.pop() {
        return task;
    }
    let message = Message::of("", Role::User, vec![Part::text(plan)]);
    engine.submit(&Caller::local(), Submit::new(AGENT, message)).await.unwrap()
}

fn result(task: &Task) -> &[Part] {
    let artifact = task.artifacts.iter().find(|artifact| artifact.id == RESULT);
    artifact.map(|artifact| artifact.parts.as_slice()).unwrap_or_default()
}
