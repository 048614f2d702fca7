//! A reply's webhooks are a part of its message: both are stored, or neither.

use nuncio_engine::{
    Engine, Error, Outcome, Reply, State, Task, TaskContext,
    store::{Change, CommitError, Precondition, StoreError},
    webhook::WebhookConfig,
};
use nuncio_testkit::fault_injection::CrashAfterCommits;
use serde_json::json;

use crate::world::{
    CommitMoment, EngineExt, Gate, HookedStore, World, me, proceed, reply_to, said, to, within,
};

fn hook(id: &str) -> WebhookConfig {
    WebhookConfig {
        id: id.into(),
        url: "https://a.example".into(),
        token: None,
        authentication: None,
        dialect: "engine".into(),
    }
}

fn world() -> World {
    World::new().agent("curious", async |cx: TaskContext| {
        let form = json!({
            "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
        });
        cx.ask("Who?", form).await?;
        Ok(Outcome::done())
    })
}

/// The answer to the one question, with webhooks.
fn answer(task: &Task, hooks: &[&str]) -> Reply {
    Reply { webhooks: hooks.iter().map(|id| hook(id)).collect(), ..reply_to(task, said("Ada")) }
}

async fn registered(engine: &Engine, task: &Task) -> Vec<String> {
    let hooks = engine.webhooks(&me(), &task.origin.id.to_string()).await.unwrap();
    hooks.into_iter().map(|hook| hook.id).collect()
}

/// A message of a client. A run parks under a version as well, and writes no event then.
fn is_message(change: &Change) -> bool {
    matches!(change.guard, Precondition::Version { .. }) && change.events.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_could_not_be_stored_registers_no_webhook() {
    let world = world();
    let store = HookedStore::new(world.open().await, |moment, change| {
        match moment == CommitMoment::Before && is_message(change) {
            true => {
                let full = StoreError::Full("no space".into());
                Box::pin(std::future::ready(Err(CommitError::Store(full))))
            }
            false => proceed(),
        }
    });
    let engine = world.start_on(store).await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let error = engine.reply(&me(), answer(&task, &["w"])).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert_eq!(registered(&engine, &task).await, [""; 0]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_came_too_late_registers_no_webhook() {
    let (world, gate) = (world(), Gate::new());
    let store = gate.on(world.open().await, CommitMoment::Before, is_message);
    let engine = world.start_on(store).await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let late = tokio::spawn({
        let (engine, reply) = (engine.clone(), answer(&task, &["w"]));
        async move { engine.reply(&me(), reply).await }
    });
    gate.arrival().await;
    let canceled = within(engine.cancel(&me(), &task.origin.id.to_string())).await.unwrap();
    assert_eq!(canceled.state, State::Canceled);
    gate.open();
    let error = within(late).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Ended(State::Canceled)), "{error}");
    assert_eq!(registered(&engine, &task).await, [""; 0]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_too_many_webhooks_none_is_registered() {
    let world = world().options(|options| options.limits.webhooks_per_task = 2);
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    engine.put_webhook(&me(), &task.origin.id.to_string(), hook("a")).await.unwrap();
    let before = engine.row(task.origin.id).await;
    let error = engine.reply(&me(), answer(&task, &["b", "c"])).await.unwrap_err();
    assert!(matches!(error, Error::Limit(_)), "{error}");
    assert_eq!(registered(&engine, &task).await, ["a"]);
    assert_eq!(engine.row(task.origin.id).await, before, "the message is not stored either");
    // One that is there is replaced and takes no room.
    engine.reply(&me(), answer(&task, &["a", "b"])).await.unwrap();
    assert_eq!(registered(&engine, &task).await, ["a", "b"]);
    assert_eq!(engine.ended(&task).await.state, State::Completed);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhooks_of_a_message_survive_a_crash_right_after_its_commit() {
    let world = world();
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    engine.stop().await;

    let crash = CrashAfterCommits::after(1);
    let engine = world.start_on(crash.on(world.open().await)).await;
    let reply = tokio::spawn({
        let (engine, reply) = (engine.clone(), answer(&task, &["v", "w"]));
        async move { engine.reply(&me(), reply).await }
    });
    within(crash.wait_for_crash()).await;
    reply.abort();
    assert_eq!(registered(&engine, &task).await, ["v", "w"]);
    let log = engine.log(task.origin.id).await;
    assert!(log.len() as u64 > task.seq, "the message is there as well");
    let hooks = engine.store_for_tests().webhooks(engine.row(task.origin.id).await.no).await.unwrap();
    assert!(hooks.iter().all(|hook| hook.cursor == task.seq), "they begin with the message: {hooks:?}");
    drop(engine);
}
