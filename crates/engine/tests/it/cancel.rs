//! A task is ended on request: at rest in one commit, at work within the grace period, with all it called.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::join_all};
use nuncio_engine::{
    AgentError, Error, Event, Level, List, Outcome, State, Task, TaskContext,
    store::{Change, NodeId, Precondition, RunChange, Store},
};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::world::{
    CommitMoment, EngineExt, Gate, HookedStore, World, cases, is_end, last_words, me, proceed, said, to,
    until, within,
};

async fn cancel(engine: &nuncio_engine::Engine, task: &Task) -> Result<Task, Error> {
    within(engine.cancel(&me(), &task.origin.id.to_string())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_is_canceled_in_one_commit() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        cx.ask("Who?", schema).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let before = engine.row(task.origin.id).await;
    let canceled = cancel(&engine, &task).await.unwrap();
    assert_eq!((canceled.state, canceled.questions.len()), (State::Canceled, 0));
    let after = engine.row(task.origin.id).await;
    assert_eq!((after.version, after.seq), (before.version + 1, before.seq + 1));
    assert_eq!(engine.checked(task.origin.id).await, canceled);

    let error = cancel(&engine, &task).await.unwrap_err();
    assert!(matches!(error, Error::NotCancelable(State::Canceled)), "{error}");
    let error = engine.say(&task, said("me")).await.unwrap_err();
    assert!(matches!(error, Error::Ended(State::Canceled)), "{error}");
    assert_eq!(engine.row(task.origin.id).await, after, "refused, and nothing changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_in_the_queue_is_canceled_in_one_commit() {
    let world =
        World::new().options(|options| options.max_running = 1).agent("worker", async |cx: TaskContext| {
            cx.canceled().await;
            Err(AgentError::Canceled)
        });
    let engine = world.start().await;
    let running = engine.send(to("worker", "first")).await;
    let queued = engine.send(to("worker", "second")).await;
    assert_eq!(queued.state, State::Submitted);
    assert_eq!(cancel(&engine, &queued).await.unwrap().state, State::Canceled);
    let log = engine.log(queued.origin.id).await;
    assert_eq!(log.len(), 2, "it was never begun: {log:?}");
    assert_eq!(cancel(&engine, &running).await.unwrap().state, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_listens_tidies_up_and_has_the_last_word() {
    let world = World::new().options(|options| options.cancel_grace = Duration::from_secs(3600)).agent(
        "tidy",
        async |cx: TaskContext| {
            cx.step("work", async |step| {
                step.log(Level::Info, "at work").await?;
                step.canceled().await;
                assert!(step.is_canceled());
                Ok(())
            })
            .await?;
            assert!(cx.is_canceled());
            cx.log(Level::Info, "tidying up").await?;
            cx.step("tidy", async |_| Ok(())).await?;
            Ok(Outcome::canceled("all put away"))
        },
    );
    let engine = world.start().await;
    let task = engine.send(to("tidy", "go")).await;
    until("it is at work", async || (engine.row(task.origin.id).await.seq == 3).then_some(())).await;
    let task = cancel(&engine, &task).await.unwrap();
    assert_eq!((task.state, last_words(&task).as_str()), (State::Canceled, "all put away"));
    assert_eq!(engine.log(task.origin.id).await.len(), 5);
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_listen_is_dropped_after_the_grace_period() {
    struct Dropped(Arc<Semaphore>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let dropped = Arc::new(Semaphore::new(0));
    let signal = Arc::clone(&dropped);
    let grace = Duration::from_millis(200);
    let world =
        World::new().options(|options| options.cancel_grace = grace).agent("deaf", move |_: TaskContext| {
            let on_drop = Dropped(Arc::clone(&signal));
            async move {
                let _on_drop = on_drop;
                std::future::pending().await
            }
        });
    let engine = world.start().await;
    let task = engine.send(to("deaf", "go")).await;
    let started = Instant::now();
    let task = cancel(&engine, &task).await.unwrap();
    assert_eq!(task.state, State::Canceled);
    assert!(started.elapsed() >= grace, "not before it was over");
    within(dropped.acquire()).await.unwrap().forget();
    engine.checked(task.origin.id).await;
    until("nothing runs", async || (engine.load().0 == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_does_in_spite_of_a_cancel_counts() {
    let world = World::new().options(|options| options.cancel_grace = Duration::from_secs(3600)).agent(
        "stubborn",
        async |cx: TaskContext| {
            cx.canceled().await;
            Ok(Outcome::said("done all the same"))
        },
    );
    let engine = world.start().await;
    let task = engine.send(to("stubborn", "go")).await;
    let task = cancel(&engine, &task).await.unwrap();
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "done all the same"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_cancel_at_once_both_see_the_end() {
    let world = World::new().agent("worker", async |cx: TaskContext| {
        cx.canceled().await;
        Err(AgentError::Canceled)
    });
    let engine = world.start().await;
    let task = engine.send(to("worker", "go")).await;
    let (one, two) = tokio::join!(cancel(&engine, &task), cancel(&engine, &task));
    for canceled in [one, two] {
        match canceled {
            Ok(task) => assert_eq!(task.state, State::Canceled),
            Err(error) => assert!(matches!(error, Error::NotCancelable(State::Canceled)), "{error}"),
        }
    }
    engine.checked(task.origin.id).await;
}

// ---------------------------------------------------------------------------------------------- children

const GRACE: Duration = Duration::from_millis(600);

/// Calls five others at once; each of them calls one more. The leaves do not listen.
fn family() -> World {
    World::new()
        .options(|options| options.cancel_grace = GRACE)
        .agent("parent", async |cx: TaskContext| {
            let call = async |name: &'static str| {
                let branch = cx.branch(name);
                branch.call("child", said(name)).await
            };
            let called = join_all(["a", "b", "c", "d", "e"].map(call)).await;
            called.into_iter().collect::<Result<Vec<_>, _>>().map(|_| Outcome::done())
        })
        .agent("child", async |cx: TaskContext| {
            cx.call("leaf", said("go")).await?;
            Ok(Outcome::done())
        })
        .agent("leaf", async |cx: TaskContext| {
            cx.log(Level::Info, "at work").await?;
            cx.step("deaf", async |_| std::future::pending::<Result<(), AgentError>>().await).await?;
            Ok(Outcome::done())
        })
}

async fn all_tasks(engine: &nuncio_engine::Engine) -> Vec<Task> {
    engine.list(&me(), List { page_size: 100, ..Default::default() }).await.unwrap().tasks
}

async fn family_at_work(engine: &nuncio_engine::Engine) {
    until("all of the family is at work", async || {
        let leaves =
            all_tasks(engine).await.into_iter().filter(|task| task.origin.agent == "leaf" && task.seq == 3);
        (leaves.count() == 5).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_called_is_canceled_with_it() {
    let engine = family().start().await;
    let parent = engine.send(to("parent", "go")).await;
    family_at_work(&engine).await;
    let started = Instant::now();
    let canceled = cancel(&engine, &parent).await.unwrap();
    assert_eq!(canceled.state, State::Canceled);
    // One grace period for all of them, not one for each.
    let took = started.elapsed();
    assert!(took < GRACE * 4, "it took {took:?}");
    let family = all_tasks(&engine).await;
    assert_eq!(family.len(), 11);
    for task in family {
        assert_eq!(task.state, State::Canceled, "{} is not: {task:?}", task.origin.agent);
        engine.checked(task.origin.id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_tidies_up_while_what_it_called_is_being_canceled() {
    let world = family().agent("tidy", async |cx: TaskContext| {
        let branch = cx.branch("call");
        tokio::select! {
            _ = branch.call("leaf", said("go")) => {}
            () = cx.canceled() => {}
        }
        // This is durable long before the one that was called is dropped.
        cx.step("tidy", async |_| Ok(())).await?;
        Ok(Outcome::canceled("put away"))
    });
    let engine = world.start().await;
    let task = engine.send(to("tidy", "go")).await;
    until("the called task is at work", async || {
        all_tasks(&engine).await.iter().any(|task| task.origin.agent == "leaf" && task.seq == 3).then_some(())
    })
    .await;
    let no = engine.row(task.origin.id).await.no;
    let tidied = until("it has tidied up", async || {
        let done = !engine.store_for_tests().journal(no).await.unwrap().is_empty();
        done.then(Instant::now)
    });
    let started = Instant::now();
    let (task, tidied) = tokio::join!(cancel(&engine, &task), tidied);
    let task = task.unwrap();
    assert!(tidied - started < GRACE, "it had to wait for what it called");
    assert_eq!((task.state, last_words(&task).as_str()), (State::Canceled, "put away"));
    assert!(all_tasks(&engine).await.iter().all(|task| task.state == State::Canceled), "also what it called");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_leaves_running_ends_with_it() {
    let world = family().agent("careless", async |cx: TaskContext| {
        let branch = cx.branch("call");
        tokio::select! {
            _ = branch.call("leaf", said("go")) => {}
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("careless", "go")).await;
    assert_eq!(task.state, State::Completed);
    until("the called task is canceled", async || {
        let tasks = all_tasks(&engine).await;
        tasks.iter().all(|task| task.state.is_terminal()).then_some(())
    })
    .await;
}

/// The called task becomes durable only after its caller has ended and looked for those it called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_born_after_its_caller_has_ended_ends_too() {
    let gate = Gate::new();
    let called = Arc::new(Notify::new());
    let seen = Arc::clone(&called);
    let world = family().agent("careless", move |cx: TaskContext| {
        let seen = Arc::clone(&seen);
        async move {
            let branch = cx.branch("call");
            tokio::select! {
                _ = branch.call("leaf", said("go")) => {}
                // It is on its way, and does not arrive.
                () = seen.notified() => {}
            }
            Ok(Outcome::done())
        }
    });
    let store = gate.on(world.open().await, CommitMoment::Before, move |change| {
        let is_it = matches!(&change.guard, Precondition::Create(new) if new.agent == "leaf");
        if is_it {
            called.notify_one();
        }
        is_it
    });
    let engine = world.start_on(store).await;
    let task = engine.run(to("careless", "go")).await;
    assert_eq!(task.state, State::Completed);
    gate.arrival().await;
    until("its run has left", async || (engine.load().0 <= 1).then_some(())).await;
    gate.open();
    until("the called task is there, and canceled", async || {
        let tasks = all_tasks(&engine).await;
        (tasks.len() == 2 && tasks.iter().all(|task| task.state.is_terminal())).then_some(())
    })
    .await;
}

/// The journal has only calls that have returned, so a run after a restart has to ask the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_called_before_a_restart_is_canceled_with_it() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let world = World::new()
        .options(|options| options.cancel_grace = GRACE)
        .agent("caller", move |cx: TaskContext| {
            let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                // The second run has not come to its call when it is canceled.
                if is_first {
                    let _ = cx.call("stuck", said("go")).await;
                }
                std::future::pending().await
            }
        })
        .agent("stuck", async |cx: TaskContext| {
            cx.log(Level::Info, "at work").await?;
            cx.step("deaf", async |_| std::future::pending::<Result<(), AgentError>>().await).await?;
            Ok(Outcome::done())
        });
    let engine = world.start().await;
    let parent = engine.send(to("caller", "go")).await;
    let at_work = |task: &Task| task.origin.agent == "stuck" && task.seq == 3;
    until("the called task is at work", async || all_tasks(&engine).await.iter().any(at_work).then_some(()))
        .await;
    engine.stop().await;
    let engine = world.start().await;
    until("it runs again", async || (runs.load(Ordering::SeqCst) == 2).then_some(())).await;
    // On a busy machine the call returns before the grace period is over.
    cancel(&engine, &parent).await.unwrap();
    until("it is canceled, and what it called", async || {
        let family = all_tasks(&engine).await;
        assert_eq!(family.len(), 2);
        family.iter().all(|task| task.state == State::Canceled).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_is_asked_for_called_tasks_only_where_there_may_be_some() {
    let world = family()
        .agent("quick", async |cx: TaskContext| {
            cx.step("work", async |_| Ok(())).await?;
            Ok(Outcome::done())
        })
        .agent("caller", async |cx: TaskContext| {
            cx.call("quick", said("go")).await?;
            Ok(Outcome::done())
        });
    // The run has ended when the engine has stopped.
    for (agent, canceled, expected) in
        [("quick", false, false), ("leaf", true, false), ("caller", false, true)]
    {
        let store = HookedStore::new(world.open().await, |_, _| proceed());
        let engine = world.start_on(Arc::clone(&store) as Arc<dyn Store>).await;
        let task = engine.send(to(agent, "go")).await;
        if canceled {
            assert_eq!(cancel(&engine, &task).await.unwrap().state, State::Canceled);
        }
        until("it has ended", async || engine.row(task.origin.id).await.state.is_terminal().then_some(()))
            .await;
        engine.stop().await;
        let reads = store.used().children;
        assert_eq!(reads > 0, expected, "{agent}: {reads} reads");
    }
}

// ------------------------------------------------------------------------------------------------- races

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cancel_and_an_end_that_race_one_wins() {
    let world = World::new().agent("quick", async |cx: TaskContext| {
        cx.step("work", async |_| Ok(())).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    for round in 0..cases(100, 2_000) {
        let task = engine.send(to("quick", "go")).await;
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        match cancel(&engine, &task).await {
            Ok(task) => assert!(task.state.is_terminal(), "round {round}: {task:?}"),
            Err(error) => assert!(matches!(error, Error::NotCancelable(_)), "round {round}: {error}"),
        }
        let task = engine.checked(task.origin.id).await;
        assert!([State::Canceled, State::Completed].contains(&task.state), "round {round}: {task:?}");
        let ends = engine.log(task.origin.id).await.into_iter().filter(|entry| is_end(entry.event()));
        assert_eq!(ends.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_this_node_holds_without_a_run_can_be_canceled() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        cx.ask("Who?", schema).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let row = engine.row(task.origin.id).await;
    // As after a claim whose run broke.
    let mut lease = Change::new(Precondition::Version { task: row.no, version: row.version });
    lease.run = RunChange::Lease(engine.node());
    engine.store_for_tests().commit(lease).await.unwrap();
    assert_eq!(cancel(&engine, &task).await.unwrap().state, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_that_cannot_be_met_in_time_is_kept() {
    let world = World::new()
        .options(|options| {
            options.cancel_grace = Duration::from_millis(10);
            options.claim_poll = Duration::from_millis(20);
        })
        .agent("curious", async |cx: TaskContext| {
            let schema =
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
            cx.ask("Who?", schema).await?;
            Ok(Outcome::done())
        });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let row = engine.row(task.origin.id).await;
    // Another node has it, and says nothing.
    let other = NodeId(Uuid::now_v7());
    let a_while = nuncio_engine::clock::Timestamp(i64::MAX / 2);
    engine.store_for_tests().heartbeat(other, a_while).await.unwrap();
    let mut lease = Change::new(Precondition::Version { task: row.no, version: row.version });
    lease.run = RunChange::Lease(other);
    engine.store_for_tests().commit(lease).await.unwrap();
    let told = cancel(&engine, &task).await.unwrap();
    assert_eq!(told.state, State::InputRequired, "told how it stands");
    assert!(engine.row(task.origin.id).await.cancel, "the wish is durable");
    // That node dies, and whoever takes the task over knows.
    engine.store_for_tests().heartbeat(other, nuncio_engine::clock::Timestamp(0)).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Canceled);
    assert!(matches!(engine.log(task.origin.id).await.last().unwrap().event(), Event::Status(_)));
}

/// A caller that disconnects during the commit does not keep the run from what is durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_the_run_although_its_caller_is_gone() {
    let (world, gate) = (World::new().agent("patient", patient), Gate::new());
    let is_request = |change: &Change| change.cancel == Some(true);
    let engine = world.start_on(gate.on(world.open().await, CommitMoment::After, is_request)).await;
    let task = patient_task(&engine).await;
    let caller = tokio::spawn({
        let (engine, task) = (engine.clone(), task.clone());
        async move { cancel(&engine, &task).await }
    });
    gate.arrival().await;
    caller.abort();
    assert!(caller.await.is_err_and(|error| error.is_cancelled()));
    gate.open();
    assert_eq!(engine.ended(&task).await.state, State::Canceled);
}

async fn patient(cx: TaskContext) -> Result<Outcome, AgentError> {
    cx.step("begin", async |_| Ok(())).await?;
    cx.canceled().await;
    Err(AgentError::Canceled)
}

/// A task whose run only waits: nothing of it is still to be committed.
async fn patient_task(engine: &nuncio_engine::Engine) -> Task {
    let task = engine.send(to("patient", "go")).await;
    until("the step is done", async || {
        let no = engine.row(task.origin.id).await.no;
        (engine.store_for_tests().journal(no).await.unwrap().len() == 1).then_some(())
    })
    .await;
    task
}

/// The same for a message: followers and an agent that receives messages get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_reaches_its_followers_although_its_sender_is_gone() {
    let (world, gate) = (World::new().agent("patient", patient), Gate::new());
    let is_message =
        |change: &Change| matches!(change.guard, Precondition::Version { .. }) && change.events.is_some();
    let engine = world.start_on(gate.on(world.open().await, CommitMoment::After, is_message)).await;
    let task = patient_task(&engine).await;
    let id = task.origin.id;
    let seq = engine.row(id).await.seq;
    let mut follower = engine.follow(&me(), &id.to_string(), seq).await.unwrap();
    let mut next = Box::pin(follower.next());
    let waits = next.as_mut().now_or_never().is_none();
    assert!(waits, "it has read the log, and waits for what is published");
    let sender = tokio::spawn({
        let (engine, task) = (engine.clone(), task.clone());
        async move { engine.say(&task, said("more")).await }
    });
    gate.arrival().await;
    sender.abort();
    assert!(sender.await.is_err_and(|error| error.is_cancelled()));
    gate.open();
    match within(next).await.unwrap() {
        nuncio_engine::Next::Batch(batch) => assert_eq!(batch.first_seq, seq + 1),
        other => panic!("{other:?}"),
    }
    cancel(&engine, &task).await.unwrap();
}
