//! Ended tasks are kept for a while, and then all of them is gone; live ones stay.

use std::time::Duration;

use nuncio_engine::{
    AgentError, Error, List, Outcome, State, Task, TaskContext, engine::RetentionByState, store::TaskKey,
};
use serde_json::json;

use crate::world::{EngineExt, HandClock, Scripted, World, me, said, to, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_tasks_go_after_the_retention_and_live_ones_stay() {
    let clock = HandClock::new();
    let retention = Duration::from_secs(24 * 3600);
    let world = World::new()
        .clock(&clock)
        .options(|options| {
            options.retention = retention;
            options.expiry_poll = Duration::from_millis(5);
        })
        .agent("any", async |cx: TaskContext| match cx.text().as_str() {
            "wait" => {
                let form =
                    json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
                cx.ask("Who?", form).await?;
                Ok(Outcome::done())
            }
            "work" => {
                cx.canceled().await;
                Err(AgentError::Canceled)
            }
            "fail" => Ok(Outcome::failed("so be it")),
            _ => Ok(Outcome::done()),
        });
    let engine = world.start().await;
    let mut keyed = to("any", "done");
    keyed.client_id = Some("chosen".into());
    keyed.idempotency_key = Some("key".into());
    let old = engine.send(keyed.clone()).await;
    let failed = engine.send(to("any", "fail")).await;
    let waiting = engine.run(to("any", "wait")).await;
    let working = engine.send(to("any", "work")).await;
    clock.advance(retention / 2);
    let young = engine.send(to("any", "done")).await;
    let late = engine.run(to("any", "wait")).await;

    clock.advance(retention / 2 + Duration::from_millis(1));
    until("the old ones are gone", async || {
        let gone = engine.get(&me(), &old.origin.id.to_string()).await.is_err()
            && engine.get(&me(), &failed.origin.id.to_string()).await.is_err();
        gone.then_some(())
    })
    .await;
    for (task, state) in [
        (&waiting, State::InputRequired),
        (&working, State::Working),
        (&young, State::Completed),
        (&late, State::InputRequired),
    ] {
        assert_eq!(engine.checked(task.origin.id).await.state, state);
    }
    // Nothing is left of the old one: its names are free again.
    assert!(matches!(engine.get(&me(), "chosen").await, Err(Error::NoSuchTask(_))));
    let again = engine.send(keyed).await;
    assert_ne!(again.origin.id, old.origin.id);
    assert_eq!(engine.list(&me(), List { page_size: 10, ..Default::default() }).await.unwrap().total, 5);

    // The time counts from the end, not from the beginning.
    engine.say(&waiting, said("me")).await.unwrap();
    let ended = engine.ended(&waiting).await;
    assert_eq!(ended.state, State::Completed);
    clock.advance(retention - Duration::from_millis(1));
    until("the young one is gone", async || {
        engine.get(&me(), &young.origin.id.to_string()).await.is_err().then_some(())
    })
    .await;
    assert_eq!(engine.checked(waiting.origin.id).await, ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_go_too() {
    let clock = HandClock::new();
    let world = World::new()
        .clock(&clock)
        .options(|options| options.expiry_poll = Duration::from_millis(5))
        .agent("echo", async |_: TaskContext| Ok(Outcome::done()));
    let engine = world.start().await;
    // More than are looked at in one go.
    futures_util::future::join_all((0..600).map(|_| engine.send(to("echo", "go")))).await;
    clock.advance(engine.options().retention * 2);
    until("all of them are gone", async || {
        let list = List { page_size: 1, ..Default::default() };
        (engine.list(&me(), list).await.unwrap().total == 0).then_some(())
    })
    .await;
}

async fn as_told(cx: TaskContext) -> Result<Outcome, AgentError> {
    match cx.text().as_str() {
        "fail" => Ok(Outcome::failed("so be it")),
        "reject" => Ok(Outcome::rejected("not this")),
        _ => Ok(Outcome::done()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_and_states_have_their_own_retention() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let clock = HandClock::new();
    let world = World::new()
        .clock(&clock)
        .options(|options| {
            options.retention = 4 * DAY;
            options.retention_by_state = RetentionByState {
                completed: Some(DAY),
                failed: Some(9 * DAY),
                ..RetentionByState::default()
            };
            options.expiry_poll = Duration::from_millis(5);
        })
        .agent("any", as_told)
        .scripted(Scripted::new("short", as_told).retained(2 * DAY));
    let engine = world.start().await;
    let mut tasks: Vec<(u32, Task)> = vec![];
    for (days, agent, text) in [
        (1, "any", "done"),
        (2, "short", "done"),
        (2, "short", "fail"),
        (4, "any", "reject"),
        (9, "any", "fail"),
    ] {
        let task = engine.run(to(agent, text)).await;
        let retention = engine.retention_of(agent, task.state);
        assert_eq!(retention, days * DAY, "{agent} {text}");
        tasks.push((days, task));
    }
    // More than are read at once, and of the kind that stays longest: none of them hides those after it.
    futures_util::future::join_all((0..600).map(|_| engine.send(to("any", "fail")))).await;
    let last = engine.run(to("short", "done")).await;
    tasks.push((2, last));
    for day in 1..=9 {
        clock.advance(DAY + Duration::from_millis(1));
        until("what is past its retention is deleted, and nothing else", async || {
            for (days, task) in &tasks {
                let row = engine.store_for_tests().row(&TaskKey::Id(task.origin.id)).await.unwrap();
                if row.is_some() != (*days > day) {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }
}
