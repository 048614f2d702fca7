//! One task has at most one runner; a runner that dies is followed by another, a poisoned task is given up,
//! and there are never more running than there may be.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use nuncio_engine::{
    AgentError, Chunk, Engine, Error, Level, List, Message, Options, Outcome, State, Submit, Task,
    TaskContext,
    clock::Timestamp,
    event::{self, Entry, Event},
    store::{
        Change, CommitError, JournalRecord, NewTask, NodeId, Precondition, RunChange, StoreError, TaskKey,
    },
    task::TaskId,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::world::{
    CommitMoment, EngineExt, HookedStore, Scripted, World, last_words, me, proceed, said, text_of, to, until,
};

fn form() -> Value {
    json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})
}

// ---------------------------------------------------------------------------------------- dead and alive

#[test]
fn five_attempts_that_get_nowhere_are_enough() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let brief = |options: &mut Options| options.probation = Duration::from_millis(100);
    let world = World::new().options(brief).agent("poison", move |_: TaskContext| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    let mut task: Option<Task> = None;
    for attempt in 1..=5 {
        let life = world.life();
        life.block_on(async {
            if task.is_none() {
                task = Some(life.engine.send(to("poison", "go")).await);
            }
            until("it runs again", async || (runs.load(Ordering::SeqCst) == attempt).then_some(())).await;
        });
        life.cut();
    }
    let life = world.life();
    let task = life.block_on(life.engine.ended(&task.unwrap()));
    assert_eq!((task.state, runs.load(Ordering::SeqCst)), (State::Failed, 5), "{task:?}");
    let words = last_words(&task);
    assert!(words.contains("quarantined") && words.contains("5 attempts in a row"), "{words}");
    life.block_on(life.engine.checked(task.origin.id));
}

#[test]
fn an_attempt_that_gets_somewhere_is_not_counted() {
    let steps = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&steps);
    // Each life does one step more than the one before, and dies.
    let world = World::new().agent("slow", move |cx: TaskContext| {
        let count = Arc::clone(&count);
        async move {
            for n in 1..=8 {
                let before = count.load(Ordering::SeqCst);
                let done = cx.step("one", async |_| Ok(count.fetch_add(1, Ordering::SeqCst) + 1)).await?;
                assert_eq!(done, n);
                if before < n && n < 8 {
                    std::future::pending::<()>().await;
                }
            }
            Ok(Outcome::done())
        }
    });
    let mut task: Option<Task> = None;
    for life_no in 1..8 {
        let life = world.life();
        life.block_on(async {
            if task.is_none() {
                task = Some(life.engine.send(to("slow", "go")).await);
            }
            let id = task.as_ref().unwrap().origin.id;
            until("its step is durable", async || {
                let journal = life.engine.task_journal(&me(), &id.to_string()).await.unwrap();
                (journal.effects.len() == life_no).then_some(())
            })
            .await;
        });
        life.cut();
    }
    let life = world.life();
    let task = life.block_on(life.engine.ended(&task.unwrap()));
    assert_eq!((task.state, steps.load(Ordering::SeqCst)), (State::Completed, 8), "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_back_is_no_attempt() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let world = World::new().agent("patient", move |_: TaskContext| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    let mut task: Option<Task> = None;
    for start in 1..=7 {
        let engine = world.start().await;
        if task.is_none() {
            task = Some(engine.send(to("patient", "go")).await);
        }
        until("it runs again", async || (runs.load(Ordering::SeqCst) == start).then_some(())).await;
        engine.stop().await;
        drop(engine);
        let id = task.as_ref().unwrap().origin.id;
        let row = world.open().await.row(&TaskKey::Id(id)).await.unwrap().unwrap();
        assert_eq!((row.attempts, row.node, row.state), (0, None, State::Working));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_lost_its_lease_writes_nothing_more() {
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let (wait, count) = (Arc::clone(&gate), Arc::clone(&begun));
    let world = World::new().options(|options| options.claim_poll = Duration::from_millis(10)).agent(
        "worker",
        move |cx: TaskContext| {
            let (wait, count) = (Arc::clone(&wait), Arc::clone(&count));
            async move {
                let n: u32 = cx
                    .step("work", async |_| {
                        let n = count.fetch_add(1, Ordering::SeqCst);
                        wait.acquire().await.unwrap().forget();
                        Ok(n)
                    })
                    .await?;
                cx.artifact(Chunk::text("who", format!("run {n}"))).await?;
                Ok(Outcome::done())
            }
        },
    );
    let engine = world.start().await;
    let task = engine.send(to("worker", "go")).await;
    until("it is at work", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;

    // Another node, which is alive, takes the task over.
    let other = NodeId(Uuid::now_v7());
    engine.store_for_tests().heartbeat(other, Timestamp(i64::MAX / 2)).await.unwrap();
    let row = engine.row(task.origin.id).await;
    let mut lease = Change::new(Precondition::Version { task: row.no, version: row.version });
    lease.run = RunChange::Lease(other);
    engine.store_for_tests().commit(lease).await.unwrap();
    let taken = engine.row(task.origin.id).await;

    // The first runner ends its step, cannot write it, and is dropped.
    gate.add_permits(1);
    until("the run is dropped", async || (engine.load().0 == 0).then_some(())).await;
    assert_eq!(engine.row(task.origin.id).await, taken, "nothing of it was written");
    assert_eq!(engine.store_for_tests().journal(row.no).await.unwrap(), []);

    // That node dies; the task is taken up here again and ends.
    engine.store_for_tests().heartbeat(other, Timestamp(0)).await.unwrap();
    gate.add_permits(1);
    let task = engine.ended(&task).await;
    assert_eq!((task.state, text_of(&task, "who").as_str()), (State::Completed, "run 1"));
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runs_of_one_task_on_one_node_end_it_once() {
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let (wait, count) = (Arc::clone(&gate), Arc::clone(&begun));
    let world = World::new().options(|options| options.claim_poll = Duration::from_millis(10)).agent(
        "worker",
        move |cx: TaskContext| {
            let (wait, count) = (Arc::clone(&wait), Arc::clone(&count));
            async move {
                cx.log(Level::Info, "begun").await?;
                cx.step("work", async |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    wait.acquire().await.unwrap().forget();
                    Ok(())
                })
                .await?;
                Ok(Outcome::done())
            }
        },
    );
    let engine = world.start().await;
    let task = engine.send(to("worker", "go")).await;
    until("it is at work", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
    // The lease goes to a node that nobody has heard of, so that the claim loop takes it from there, while the
    // first run knows nothing.
    until("the lease is gone", async || {
        let row = engine.row(task.origin.id).await;
        let mut lease = Change::new(Precondition::Version { task: row.no, version: row.version });
        lease.run = RunChange::Lease(NodeId(Uuid::now_v7()));
        engine.store_for_tests().commit(lease).await.ok()
    })
    .await;
    until("a second run is at work", async || (begun.load(Ordering::SeqCst) == 2).then_some(())).await;
    gate.add_permits(2);
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed);
    let log = engine.log(task.origin.id).await;
    assert_eq!(log.len(), 4, "message, working, one log line, one end: {log:?}");
    until("nothing runs", async || (engine.load().0 == 0).then_some(())).await;
    engine.checked(task.origin.id).await;
}

/// Where the agent `gone` has begun one task and is not served any more.
async fn without_its_agent(submit: Submit, wait: Duration) -> (Engine, Task) {
    let world = World::new().agent("gone", async |_: TaskContext| std::future::pending().await);
    let engine = world.start().await;
    let task = engine.send(submit).await;
    engine.stop().await;
    let store = {
        drop(engine);
        world.open().await
    };
    let world = World::new().options(|options| options.missing_agent = wait);
    let engine = world.agent("other", async |_: TaskContext| Ok(Outcome::done())).start_on(store).await;
    (engine, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_not_served_any_more_fails_its_tasks() {
    let (engine, task) = without_its_agent(to("gone", "go"), Duration::from_millis(100)).await;
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Failed);
    let words = last_words(&task);
    assert!(words.contains("there is no agent \"gone\""), "{task:?}");
    assert!(words.contains("no node has served this agent for 100ms"), "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_for_an_agent_that_is_away_for_a_while() {
    let mut keyed = to("gone", "go");
    keyed.idempotency_key = Some("once".into());
    let (engine, task) = without_its_agent(keyed.clone(), Duration::from_secs(300)).await;
    let known = engine.send(keyed).await;
    assert_eq!(known.origin.id, task.origin.id, "what was accepted is found, whoever is served");
    // Taken once here, after the engine before.
    until("it was given back", async || {
        let row = engine.row(task.origin.id).await;
        (row.epoch > 1 && row.node.is_none()).then_some(())
    })
    .await;
    let back = Scripted::new("gone", async |_: TaskContext| Ok(Outcome::done()));
    engine.catalog().change(vec![Arc::new(back)], &[]).unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_its_agent_can_be_canceled() {
    let (engine, task) = without_its_agent(to("gone", "go"), Duration::from_secs(300)).await;
    engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_cannot_be_read_is_given_back_and_the_others_run() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        cx.ask("Who?", form()).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let row = engine.row(task.origin.id).await;
    let mut newer = Change::new(Precondition::Version { task: row.no, version: row.version });
    newer.journal = vec![JournalRecord(b"\xfffrom the future".as_slice().into())];
    engine.store_for_tests().commit(newer).await.unwrap();
    engine.say(&task, said("me")).await.unwrap();
    until("it was tried", async || (engine.row(task.origin.id).await.epoch > row.epoch).then_some(())).await;
    let left = engine.parked(&task).await;
    assert_eq!(left.state, State::Working, "it is not lost, and not failed");
    let next = engine.store_for_tests().next_due().await.unwrap();
    assert!(next.is_some(), "and it is tried again");
    let other = engine.run(to("curious", "go")).await;
    assert_eq!(other.state, State::InputRequired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_broke_with_its_batch_is_tried_again() {
    let world = World::new().agent("worker", async |cx: TaskContext| {
        cx.step("work", async |_| Ok(())).await?;
        Ok(Outcome::done())
    });
    let broke = AtomicBool::new(false);
    let store = HookedStore::new(world.open().await, move |moment, change| {
        let runner = matches!(change.guard, Precondition::Runner { .. });
        if moment == CommitMoment::Before && runner && !broke.swap(true, Ordering::SeqCst) {
            let broken = StoreError::Broken("a neighbour".into());
            return std::future::ready(Err(CommitError::Store(broken))).boxed();
        }
        proceed()
    });
    let engine = world.start_on(store).await;
    let task = engine.send(to("worker", "go")).await;
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

// ------------------------------------------------------------------------------------------------ limits

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_takes_too_long_fails() {
    let limited = Scripted::new("slow", async |cx: TaskContext| {
        cx.log(Level::Info, "at work").await?;
        std::future::pending().await
    });
    let world = World::new().scripted(limited.limited(Duration::from_millis(50)));
    let engine = world.start().await;
    let task = engine.send(to("slow", "go")).await;
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Failed);
    assert!(last_words(&task).contains("longer than its time limit of 50ms"), "{task:?}");
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_time_is_up_tidies_up_and_so_does_what_it_called() {
    let tidied = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&tidied);
    let slow = Scripted::new("slow", move |cx: TaskContext| {
        let seen = Arc::clone(&seen);
        async move {
            let called = cx.call("endless", said("go"));
            tokio::select! {
                _ = called => Ok(Outcome::done()),
                () = cx.canceled() => {
                    seen.store(true, Ordering::SeqCst);
                    Ok(Outcome::done())
                }
            }
        }
    });
    let world = World::new()
        .agent("endless", async |_: TaskContext| std::future::pending().await)
        .scripted(slow.limited(Duration::from_millis(200)))
        .options(|options| options.cancel_grace = Duration::from_millis(200));
    let engine = world.start().await;
    let task = engine.send(to("slow", "go")).await;
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Failed, "however it ended: {task:?}");
    assert!(last_words(&task).contains("longer than its time limit of 200ms"), "{task:?}");
    assert!(tidied.load(Ordering::SeqCst));
    let called = engine
        .list(&me(), List { agent: Some("endless".into()), page_size: 10, ..List::default() })
        .await
        .unwrap();
    assert_eq!(called.tasks.len(), 1);
    assert_eq!(engine.ended(&called.tasks[0]).await.state, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_that_is_spent_waiting_is_not_counted() {
    let limit = Duration::from_millis(500);
    let limited = Scripted::new("patient", async |cx: TaskContext| {
        cx.ask("Who?", form()).await?;
        Ok(Outcome::done())
    });
    let world = World::new().scripted(limited.limited(limit));
    let engine = world.start().await;
    let task = engine.run(to("patient", "go")).await;
    let task = engine.parked(&task).await;
    tokio::time::sleep(limit + limit / 2).await;
    engine.say(&task, said("me")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed, "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_that_earlier_runs_took_is_counted() {
    let work = Duration::from_millis(400);
    let limited = Scripted::new("worker", move |cx: TaskContext| async move {
        tokio::time::sleep(work).await;
        cx.ask("Who?", form()).await?;
        Ok(Outcome::done())
    });
    let world = World::new().scripted(limited.limited(work * 7 / 4));
    let engine = world.start().await;
    let task = engine.run(to("worker", "go")).await;
    let task = engine.parked(&task).await;
    engine.say(&task, said("me")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Failed, "the second run had what the first one left: {task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_panics_fails_its_task_and_nobody_elses() {
    let world = World::new().agent("panicky", async |cx: TaskContext| {
        match cx.text().as_str() {
            "at once" => panic!("boo"),
            "later" => {
                cx.log(Level::Info, "still calm").await?;
                cx.step("calm", async |_| Ok(())).await?;
                panic!("boo {}", 2)
            }
            "inside" => cx.step::<(), _>("panic", async |_| panic!("boo 3")).await?,
            _ => {}
        }
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    for (when, words) in [("at once", "boo"), ("later", "boo 2"), ("inside", "boo 3")] {
        let task = engine.run(to("panicky", when)).await;
        assert_eq!((task.state, last_words(&task)), (State::Failed, format!("the agent panicked: {words}")));
        engine.checked(task.origin.id).await;
    }
    assert_eq!(engine.run(to("panicky", "never")).await.state, State::Completed);
    until("nothing runs", async || (engine.load().0 == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_only_computes_is_one_commit() {
    let world = World::new().agent("echo", async |cx: TaskContext| {
        cx.artifact(Chunk::text("echo", cx.text()).complete()).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.send(to("echo", "hello")).await;
    assert_eq!((task.state, text_of(&task, "echo").as_str()), (State::Completed, "hello"));
    let row = engine.row(task.origin.id).await;
    assert_eq!((row.version, row.epoch, row.node), (1, 0, None));
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outcome_is_its_own_end() {
    let world = World::new().agent("any", async |cx: TaskContext| match cx.text().as_str() {
        "done" => Ok(Outcome::done()),
        "said" => Ok(Outcome::said("words")),
        "failed" => Ok(Outcome::failed("words")),
        "rejected" => Ok(Outcome::rejected("words")),
        "canceled" => Ok(Outcome::canceled("words")),
        "error" => Err(AgentError::failed("words")),
        _ => Err(AgentError::Canceled),
    });
    let engine = world.start().await;
    let check = async |how: &str, state: State, words: &str| {
        let task = engine.run(to("any", how)).await;
        assert_eq!((task.state, last_words(&task).as_str()), (state, words), "{how}");
        assert!(task.status_message.is_none_or(|message| !message.id.is_empty()), "{how}: it has an id");
        engine.checked(task.origin.id).await;
    };
    check("done", State::Completed, "").await;
    check("said", State::Completed, "words").await;
    check("failed", State::Failed, "words").await;
    check("rejected", State::Rejected, "words").await;
    check("canceled", State::Canceled, "words").await;
    check("error", State::Failed, "words").await;
    check("gave up", State::Canceled, "").await;
}

/// As after a commit that was done although it seemed to have failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_this_node_holds_and_does_not_run_is_taken_up() {
    let world = World::new()
        .options(|options| options.lease = Duration::from_millis(150))
        .agent("worker", async |_: TaskContext| Ok(Outcome::said("done")));
    let engine = world.start().await;
    let id = TaskId(Uuid::now_v7());
    let mut change = Change::new(Precondition::Create(Box::new(NewTask {
        id,
        client_id: None,
        owner: "local".into(),
        context: None,
        agent: "worker".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: engine.clock().now(),
    })));
    let born = Entry(engine.clock().now(), Event::Message(said("go")));
    change.events = Some(event::encode(&[born]));
    change.state = Some((State::Submitted, engine.clock().now()));
    change.head = Some(r#"{"dialect":"engine","agent_version":"1","can_ask":true}"#.into());
    change.run = RunChange::Lease(engine.node());
    engine.store_for_tests().commit(change).await.unwrap();
    until("it has ended", async || (engine.task(id).await.state == State::Completed).then_some(())).await;
    engine.checked(id).await;
}

// --------------------------------------------------------------------------------------------- admission

/// Works until it is let go.
fn crowd(gate: &Arc<Semaphore>, running: usize, queued: u64) -> World {
    let gate = Arc::clone(gate);
    World::new()
        .options(|options| {
            options.max_running = running;
            options.max_queued = queued;
        })
        .agent("worker", move |cx: TaskContext| {
            let gate = Arc::clone(&gate);
            async move {
                cx.step("wait", async |_| {
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                })
                .await?;
                Ok(Outcome::done())
            }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_run_so_many_wait_and_the_rest_is_told_when_to_come_back() {
    let gate = Arc::new(Semaphore::new(0));
    // The queue is counted again all the time, also while a task joins it.
    let world = crowd(&gate, 2, 3).options(|options| options.claim_poll = Duration::from_millis(1));
    let engine = world.start().await;
    let mut tasks = vec![];
    for n in 0..5 {
        let task = engine.send(to("worker", "go")).await;
        let expected = if n < 2 { State::Working } else { State::Submitted };
        assert_eq!(task.state, expected, "task {n}");
        tasks.push(task);
    }
    until("two run", async || (engine.load().0 == 2).then_some(())).await;
    for _ in 0..3 {
        match engine.submit(&me(), to("worker", "go")).await {
            Err(Error::Busy { why, retry_after }) => {
                assert!(why.contains("max-running, max-queued"), "{why}");
                assert!(retry_after > Duration::ZERO);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(engine.load().0, 2, "none of them runs");
    gate.add_permits(tasks.len());
    for task in tasks {
        assert_eq!(engine.ended(&task).await.state, State::Completed);
        engine.checked(task.origin.id).await;
    }
    until("there is room again", async || (engine.load() == (0, 0)).then_some(())).await;
    gate.add_permits(1);
    assert_eq!(engine.run(to("worker", "go")).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_in_the_queue_is_free_again_when_its_task_is_canceled() {
    let gate = Arc::new(Semaphore::new(0));
    let world = crowd(&gate, 1, 1).options(|options| options.claim_poll = Duration::from_millis(10));
    let engine = world.start().await;
    engine.send(to("worker", "runs")).await;
    let queued = engine.send(to("worker", "waits")).await;
    // About one: a task that is being written while the queue is counted may be missed, for a moment.
    let mut waiting = vec![queued];
    until("nobody else may wait", async || {
        let sent = engine.submit(&me(), to("worker", "go")).await;
        sent.map(|task| waiting.push(task)).is_err().then_some(())
    })
    .await;
    for task in waiting {
        engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
    }
    until("somebody else may wait", async || engine.submit(&me(), to("worker", "go")).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_survives_a_restart() {
    let gate = Arc::new(Semaphore::new(0));
    let world = crowd(&gate, 1, 10);
    let engine = world.start().await;
    let mut tasks = vec![];
    for _ in 0..4 {
        tasks.push(engine.send(to("worker", "go")).await);
    }
    engine.stop().await;
    drop(engine);
    gate.add_permits(tasks.len());
    let engine = world.start().await;
    for task in tasks {
        assert_eq!(engine.ended(&task).await.state, State::Completed);
    }
}

// ------------------------------------------------------------------------------------------------- calls

/// Calls itself so many times, one within the other; the innermost asks where it is told to.
fn nest(running: usize) -> World {
    World::new().options(|options| options.max_running = running).agent("nest", async |cx: TaskContext| {
        let text = cx.text();
        match text.split_once(' ') {
            Some((_, deeper)) => {
                let inner = cx.call("nest", said(deeper)).await?;
                if inner.state != State::Completed {
                    return Ok(Outcome::failed(last_words(&inner)));
                }
                Ok(Outcome::said(format!("({})", last_words(&inner))))
            }
            None if text == "ask" => {
                cx.ask("Who?", form()).await?;
                Ok(Outcome::said("answered"))
            }
            None => Ok(Outcome::said(text)),
        }
    })
}

async fn innermost(engine: &Engine) -> Task {
    until("the innermost asks", async || {
        let list = List { page_size: 10, state: Some(State::InputRequired), ..Default::default() };
        engine.list(&me(), list).await.unwrap().tasks.pop()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_within_calls_end_although_only_one_may_run() {
    let engine = nest(1).start().await;
    let task = engine.run(to("nest", "x x x done")).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "(((done)))"), "{task:?}");
    until("nothing runs", async || (engine.load().0 == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_the_cap_all_end() {
    let engine = nest(2).start().await;
    let mut tasks = vec![];
    for _ in 0..10 {
        tasks.push(engine.send(to("nest", "x x done")).await);
    }
    for task in tasks {
        assert_eq!(engine.ended(&task).await.state, State::Completed);
    }
    until("nothing runs", async || (engine.load() == (0, 0)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_called_task_that_asks_goes_on_although_its_caller_has_the_only_place() {
    let engine = nest(1).start().await;
    let task = engine.send(to("nest", "x x ask")).await;
    let asking = innermost(&engine).await;
    engine.say(&asking, said("me")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "((answered))"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_and_called_both_go_on_after_a_restart_although_only_one_may_run() {
    let world = nest(1);
    let engine = world.start().await;
    let task = engine.send(to("nest", "x x ask")).await;
    let asking = innermost(&engine).await;
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    engine.say(&asking, said("me")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "((answered))"));
    let all = engine.list(&me(), List { page_size: 10, ..Default::default() }).await.unwrap();
    assert_eq!(all.total, 3, "no call was made twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_calls_of_one_task_take_no_place_twice() {
    let world = nest(2).agent("pair", async |cx: TaskContext| {
        let call = async |name: &'static str| cx.branch(name).call("nest", said("x done")).await;
        let (a, b) = tokio::join!(call("a"), call("b"));
        Ok(Outcome::said(format!("{} {}", last_words(&a?), last_words(&b?))))
    });
    let engine = world.start().await;
    let task = engine.run(to("pair", "go")).await;
    assert_eq!(last_words(&task), "(done) (done)", "{task:?}");
    until("the places are all free", async || (engine.load().0 == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_of_the_same_conversation_and_owner() {
    let engine = nest(10).start().await;
    let task = engine.run(to("nest", "x done")).await;
    let list = List { page_size: 10, context: Some(task.origin.context.clone()), ..Default::default() };
    let both = engine.list(&me(), list).await.unwrap();
    assert_eq!(both.total, 2);
    let called = both.tasks.iter().find(|one| one.origin.id != task.origin.id).unwrap();
    assert_eq!(called.origin.owner, task.origin.owner);
    assert_eq!(engine.row(called.origin.id).await.parent, Some(task.origin.id));
    assert_eq!(called.history.iter().map(Message::joined_text).collect::<Vec<_>>(), ["done"]);
}
