//! Random agents, random commands, random deaths: whatever happens, what holds of a task holds of all of them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use nuncio_engine::{Engine, Error, List, Message, State, Submit, Task, store::Store};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use serde_json::json;

use crate::{
    script::{Script, any_script, world},
    world::{EngineExt, HookedStore, cases, data, me, proceed, said, until, within},
};

/// What somebody outside does to a task.
#[derive(Debug, Clone, Copy)]
enum Command {
    Say,
    Answer,
    AnswerBadly,
    Decline,
    Cancel,
    Get,
    /// Waits until the task has ended or waits for somebody.
    Settle,
    Yield,
}

fn any_commands() -> impl Strategy<Value = Vec<Command>> {
    let command = select(vec![
        Command::Say,
        Command::Answer,
        Command::Answer,
        Command::AnswerBadly,
        Command::Decline,
        Command::Cancel,
        Command::Get,
        Command::Settle,
        Command::Settle,
        Command::Yield,
    ]);
    prop::collection::vec(command, 0..8)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        // A case is a story with a real store in it: a shorter one is not worth a thousand of them.
        max_shrink_iters: 30,
        ..ProptestConfig::with_cases(cases)
    })
}

#[test]
fn whatever_is_asked_of_a_task_its_log_is_legal() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let world = world().options(|options| options.cancel_grace = Duration::from_millis(20));
    let store = HookedStore::new(rt.block_on(world.open()), |_, _| proceed());
    let engine = rt.block_on(world.start_on(Arc::clone(&store) as Arc<dyn Store>));
    // Several at once, so that they share commits.
    let story = prop::collection::vec((any_script(), any_commands()), 1..6);
    runner(cases(100, 2_000))
        .run(&story, |tasks| {
            rt.block_on(async {
                join_all(tasks.into_iter().map(|(script, commands)| tell(&engine, script, commands))).await;
            });
            Ok(())
        })
        .unwrap();
    rt.block_on(async {
        until("nothing runs", async || (engine.load().0 == 0).then_some(())).await;
    });
    assert!(!store.snapshots.lock().is_empty(), "some of them were read by way of a snapshot");
}

async fn tell(engine: &Engine, script: Script, commands: Vec<Command>) {
    let task = engine.send(Submit::new("script", script.message())).await;
    for command in commands {
        perform(engine, &task, command).await;
    }
    finish(engine, &task).await;
    for one in family(engine, &task).await {
        engine.checked(one.origin.id).await;
    }
}

async fn perform(engine: &Engine, task: &Task, command: Command) {
    let id = task.origin.id.to_string();
    let refused = match command {
        Command::Say => engine.say(task, said("by the way")).await.err(),
        Command::Answer => engine.say(task, said("fine")).await.err(),
        Command::AnswerBadly => engine.say(task, data(json!({"y": 1, "x": 2}))).await.err(),
        Command::Decline => engine.say(task, data(json!({"action": "decline"}))).await.err(),
        Command::Cancel => within(engine.cancel(&me(), &id)).await.err(),
        Command::Get => {
            engine.checked(task.origin.id).await;
            None
        }
        Command::Settle => {
            let now = engine.task(task.origin.id).await;
            wait_for_somebody(engine, &now).await;
            None
        }
        Command::Yield => {
            tokio::task::yield_now().await;
            None
        }
    };
    match refused {
        None | Some(Error::Ended(_) | Error::NotCancelable(_) | Error::Answer(_)) => {}
        Some(other) => panic!("{command:?}: {other}"),
    }
}

/// Waits until the task has ended or waits for somebody; it may wait for a task that it called.
async fn wait_for_somebody(engine: &Engine, task: &Task) {
    until("the task or one that it called waits or has ended", async || {
        let now = engine.task(task.origin.id).await;
        let waits = |task: &Task| task.state.is_terminal() || task.state.is_interrupted();
        let called = family(engine, task).await;
        (waits(&now) || called.iter().any(|task| task.state.is_interrupted())).then_some(())
    })
    .await;
}

/// All tasks of the conversation.
async fn family(engine: &Engine, task: &Task) -> Vec<Task> {
    let list = List { page_size: 100, context: Some(task.origin.context.clone()), ..Default::default() };
    engine.list(&me(), list).await.unwrap().tasks
}

/// Answers whatever is asked until the task has ended.
async fn finish(engine: &Engine, task: &Task) {
    until("the task has ended", async || {
        for one in family(engine, task).await {
            if one.state.is_interrupted() {
                // It may have ended, or been answered, since it was listed.
                let _ = engine.say(&one, said("fine")).await;
            }
        }
        engine.task(task.origin.id).await.state.is_terminal().then_some(())
    })
    .await;
}

#[test]
fn wherever_a_server_dies_its_tasks_end_as_they_would_have() {
    let story = (any_script(), prop::collection::vec(0..12_u64, 1..4));
    runner(cases(12, 400))
        .run(&story, |(script, lives)| {
            let expected = uninterrupted(&script);
            let world = world();
            let mut task: Option<Task> = None;
            for ms in lives {
                let life = world.life();
                let submit = keyed(&script);
                let sent = life.block_on(async {
                    // Born before the end: what was not accepted is not lost but never was.
                    let task = life.engine.send(submit).await;
                    let dying = tokio::time::sleep(Duration::from_millis(ms));
                    tokio::select! {
                        () = finish(&life.engine, &task) => {}
                        () = dying => {}
                    }
                    task
                });
                life.cut();
                task = Some(sent);
            }
            let life = world.life();
            let ended = life.block_on(async {
                let task = task.unwrap();
                finish(&life.engine, &task).await;
                for one in family(&life.engine, &task).await {
                    life.engine.checked(one.origin.id).await;
                }
                life.engine.task(task.origin.id).await
            });
            life.cut();
            let words = ended.status_message.as_ref().map(Message::joined_text);
            prop_assert_eq!((ended.state, artifacts(&ended)), expected, "its last words: {:?}", words);
            Ok(())
        })
        .unwrap();
}

fn keyed(script: &Script) -> Submit {
    let mut message = script.message();
    message.id = "m-1".into();
    let mut submit = Submit::new("script", message);
    submit.idempotency_key = Some("the one".into());
    submit
}

fn uninterrupted(script: &Script) -> (State, Vec<(String, usize)>) {
    let life = world().life();
    let task = life.block_on(async {
        let task = life.engine.send(keyed(script)).await;
        finish(&life.engine, &task).await;
        life.engine.task(task.origin.id).await
    });
    life.cut();
    (task.state, artifacts(&task))
}

/// Artifacts by name, with their length: lines of work beside each other begin theirs in any order.
fn artifacts(task: &Task) -> Vec<(String, usize)> {
    let size = |parts: &[nuncio_engine::Part]| parts.iter().map(nuncio_engine::Part::size).sum();
    let mut all: Vec<_> = task.artifacts.iter().map(|one| (one.id.clone(), size(&one.parts))).collect();
    all.sort();
    all
}
