//! What a follower has seen is never withdrawn, reordered or repeated, from any cursor, live or not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use nuncio_engine::{
    AgentError, Chunk, Engine, Error, Event, Follower, Level, Next, Outcome, Reply, StartedTask, State,
    Submit, Task, TaskContext, TaskId,
    event::Entry,
    store::{CommitError, Precondition, Store, StoreError, StoreNotification},
};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::sync::{Semaphore, mpsc};

use crate::world::{
    CommitMoment, EngineExt, HandClock, HookedStore, World, cases, me, proceed, said, to, until, within,
};

/// Says so many things, with a barrier after every few of them, so that it takes many commits.
fn talkative() -> World {
    World::new().agent("talker", async |cx: TaskContext| {
        let lines: u32 = cx.text().parse().unwrap();
        for n in 0..lines {
            match n % 3 {
                0 => cx.log(Level::Info, format!("line {n}")).await?,
                1 => cx.progress(n.into(), None, "").await?,
                _ => cx.artifact(Chunk::text("text", format!("{n} "))).await?,
            }
            if n % 7 == 6 {
                cx.step("pause", async |_| Ok(())).await?;
            }
        }
        Ok(Outcome::done())
    })
}

/// Reads to the end; the numbers must follow each other.
async fn read_on(follower: &mut Follower, seen: &mut Vec<Entry>) {
    loop {
        match within(follower.next()).await.unwrap() {
            Next::Batch(batch) => {
                assert_eq!(batch.first_seq, seen.len() as u64 + 1, "a gap or a repeat");
                assert!(!batch.entries.is_empty(), "a batch is never empty");
                seen.extend(batch.entries.iter().cloned());
                assert_eq!(follower.cursor(), seen.len() as u64);
            }
            Next::End => return,
            Next::Closing | Next::Nudge(_) => panic!("nobody stops this"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_every_cursor_the_rest_of_the_log() {
    let engine = talkative().start().await;
    let task = engine.run(to("talker", "60")).await;
    let log = engine.log(task.origin.id).await;
    for after in 0..=log.len() {
        let mut follower = engine.follow(&me(), &task.origin.id.to_string(), after as u64).await.unwrap();
        let mut seen = log[..after].to_vec();
        read_on(&mut follower, &mut seen).await;
        assert_eq!(seen, log, "after {after}");
        assert!(matches!(within(follower.next()).await.unwrap(), Next::End), "the end stays the end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_nothing_to_continue_after_beyond_the_log() {
    let engine = talkative().start().await;
    let task = engine.run(to("talker", "3")).await;
    let id = task.origin.id.to_string();
    let last = engine.row(task.origin.id).await.seq;
    for asked in [last + 1, u64::MAX] {
        match engine.follow(&me(), &id, asked).await.map(drop) {
            Err(Error::UnknownCursor { asked: said, last: end }) => assert_eq!((said, end), (asked, last)),
            other => panic!("{other:?}"),
        }
    }
    engine.follow(&me(), &id, last).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_from_several_committers_without_a_gap_or_a_repeat() {
    let engine = talkative().start().await;
    for _ in 0..cases(4, 40) {
        let task = engine.send(to("talker", "300")).await;
        let id = task.origin.id;
        let follow = async |after: u64| {
            let mut follower = engine.follow(&me(), &id.to_string(), after).await.unwrap();
            let mut seen = engine.log(id).await[..after as usize].to_vec();
            read_on(&mut follower, &mut seen).await;
            seen
        };
        let speak = async |n: usize| {
            for turn in 0..5 {
                // Refused once the task has ended; that is not what this is about.
                let _ = engine.say(&task, said(format!("{n}.{turn}"))).await;
            }
        };
        let (seen, ()) = tokio::join!(join_all((0..4).map(|n| follow(n % 2))), async {
            join_all((0..3).map(speak)).await;
        });
        let log = engine.log(id).await;
        for seen in seen {
            assert_eq!(seen, log);
        }
        engine.checked(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_does_not_read_reads_all_of_it_later() {
    let engine = talkative().start().await;
    let task = engine.send(to("talker", "10000")).await;
    let id = task.origin.id.to_string();
    let mut slow = engine.follow(&me(), &id, 0).await.unwrap();
    let mut seen = vec![];
    if let Next::Batch(batch) = within(slow.next()).await.unwrap() {
        seen.extend(batch.entries.iter().cloned());
    }
    engine.ended(&task).await;
    read_on(&mut slow, &mut seen).await;
    assert_eq!(seen, engine.log(task.origin.id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_of_a_task_that_waits_hears_of_it_when_it_goes_on() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let schema =
            serde_json::json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        cx.ask("Who?", schema).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let mut follower = engine.follow(&me(), &task.origin.id.to_string(), task.seq).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(20), follower.next());
    assert!(waiting.await.is_err(), "there is nothing to hear yet, and no end");
    engine.say(&task, said("me")).await.unwrap();
    let mut seen = engine.log(task.origin.id).await[..task.seq as usize].to_vec();
    read_on(&mut follower, &mut seen).await;
    assert_eq!(seen, engine.log(task.origin.id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_tells_followers_where_to_continue() {
    let at_work = Arc::new(Semaphore::new(0));
    let signal = Arc::clone(&at_work);
    let world = World::new().agent("worker", move |cx: TaskContext| {
        let signal = Arc::clone(&signal);
        async move {
            for _ in 0..5 {
                cx.log(Level::Info, "working").await?;
            }
            cx.step("first", async |_| Ok(())).await?;
            signal.add_permits(1);
            cx.sleep(Duration::from_millis(300)).await?;
            Ok(Outcome::done())
        }
    });
    let engine = world.start().await;
    let task = engine.send(to("worker", "go")).await;
    let id = task.origin.id.to_string();
    let mut follower = engine.follow(&me(), &id, 0).await.unwrap();
    within(at_work.acquire()).await.unwrap().forget();
    let mut seen = vec![];
    let collect = async {
        loop {
            match within(follower.next()).await.unwrap() {
                Next::Batch(batch) => seen.extend(batch.entries.iter().cloned()),
                Next::Closing | Next::Nudge(_) => return,
                Next::End => panic!("it has not ended"),
            }
        }
    };
    tokio::join!(collect, engine.stop());
    assert_eq!(follower.cursor(), seen.len() as u64);
    drop(follower);
    drop(engine);

    let engine = world.start().await;
    let mut follower = engine.follow(&me(), &id, seen.len() as u64).await.unwrap();
    read_on(&mut follower, &mut seen).await;
    assert_eq!(seen, engine.log(task.origin.id).await);
    assert_eq!(engine.task(task.origin.id).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_of_a_task_that_is_deleted_meanwhile_is_told() {
    let clock = HandClock::new();
    let world = talkative().clock(&clock).options(|options| options.expiry_poll = Duration::from_millis(5));
    let engine = world.start().await;
    let task = engine.run(to("talker", "3")).await;
    let id = task.origin.id.to_string();
    let mut follower = engine.follow(&me(), &id, 1).await.unwrap();
    clock.advance(engine.options().retention * 2);
    until("the task is gone", async || engine.get(&me(), &id).await.is_err().then_some(())).await;
    let error = within(follower.next()).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchTask(_)), "{error}");
}

// ---------------------------------------------------------------------------- followers of a task just sent

/// An engine on a store that counts.
async fn counted(world: &World) -> (Engine, Arc<HookedStore>) {
    let store = HookedStore::counting(world.open().await);
    (world.start_on(Arc::clone(&store) as Arc<dyn Store>).await, store)
}

/// Follows from the beginning, and checks that it is the log.
async fn follow_new(engine: &Engine, started: StartedTask) -> TaskId {
    let (task, mut follower) = within(engine.follow_started(&me(), started, 0)).await.unwrap();
    let mut seen = vec![];
    read_on(&mut follower, &mut seen).await;
    assert!(matches!(within(follower.next()).await.unwrap(), Next::End), "the end stays the end");
    assert_eq!(seen, engine.log(task.origin.id).await);
    task.origin.id
}

async fn started(engine: &Engine, submit: Submit) -> StartedTask {
    within(engine.begin(&me(), submit)).await.unwrap()
}

/// Ends in its first commit, or, for a text, after as many as the talker makes.
fn two_agents() -> World {
    talkative().agent("computes", async |cx: TaskContext| {
        cx.log(Level::Info, "at once").await?;
        Ok(Outcome::done())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_of_a_task_just_sent_reads_nothing() {
    let (engine, store) = counted(&two_agents()).await;
    for submit in [to("computes", "go"), to("talker", "60")] {
        let before = store.used();
        let begun = started(&engine, submit).await;
        let (_, mut follower) = within(engine.follow_started(&me(), begun, 0)).await.unwrap();
        read_on(&mut follower, &mut vec![]).await;
        let used = store.used() - before;
        assert_eq!((used.rows, used.logs, used.opens), (0, 0, 0), "{used:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_wait_for_a_task_just_sent_reads_nothing() {
    let (engine, store) = counted(&two_agents()).await;
    for submit in [to("computes", "go"), to("talker", "60")] {
        let before = store.used();
        let begun = started(&engine, submit).await;
        let begun = within(engine.wait_until_shown(&me(), begun)).await.unwrap();
        let task = within(engine.wait_until_idle(&me(), begun)).await.unwrap();
        let used = store.used() - before;
        assert_eq!(task.state, State::Completed);
        assert_eq!((used.rows, used.logs, used.opens), (0, 0, 0), "{used:?}");
        assert_eq!(task, engine.checked(task.origin.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_called_task_is_followed_without_a_read() {
    let world = two_agents().agent("calls", async |cx: TaskContext| {
        let called = cx.call("talker", said("60")).await?;
        assert_eq!(called.state, State::Completed);
        Ok(Outcome::done())
    });
    let (engine, store) = counted(&world).await;
    let before = store.used();
    let begun = started(&engine, to("calls", "go")).await;
    let task = within(engine.wait_until_idle(&me(), begun)).await.unwrap();
    let used = store.used() - before;
    assert_eq!(task.state, State::Completed);
    // Once for the calling task: it may have been canceled while the called one was created.
    assert!(used.rows <= 1 && (used.logs, used.opens) == (0, 0), "{used:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_every_cursor_of_a_task_just_sent_the_rest_of_the_log() {
    let engine = two_agents().start().await;
    for (submit, last) in [("computes", 1_000), ("talker", 3)] {
        for after in 0..=last {
            let begun = started(&engine, to(submit, "60")).await;
            let (id, seq) = (begun.task.origin.id, begun.task.seq);
            let followed = within(engine.follow_started(&me(), begun, after)).await;
            if after > seq {
                let Err(Error::UnknownCursor { asked, last }) = followed.map(drop) else { panic!("{after}") };
                assert_eq!((asked, last), (after, seq));
                break;
            }
            let (_, mut follower) = followed.unwrap();
            let task = engine.ended(&engine.task(id).await).await;
            let log = engine.log(id).await;
            let mut seen = log[..after as usize].to_vec();
            read_on(&mut follower, &mut seen).await;
            assert_eq!((seen, task.seq), (log.clone(), log.len() as u64), "after {after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_just_sent_that_outgrows_the_ring_is_read_from_the_log() {
    let world = talkative();
    let (engine, store) = counted(&world).await;
    let begun = started(&engine, to("talker", "3000")).await;
    let sent = begun.task.clone();
    let before = store.used();
    let (_, mut follower) = within(engine.follow_started(&me(), begun, 0)).await.unwrap();
    engine.ended(&sent).await;
    let mut seen = vec![];
    read_on(&mut follower, &mut seen).await;
    assert!((store.used() - before).logs > 0);
    assert_eq!(seen, engine.log(sent.origin.id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_of_a_queued_task_sees_it_run() {
    let open = Arc::new(Semaphore::new(0));
    let door = Arc::clone(&open);
    let world = talkative().options(|options| options.max_running = 1).agent("waits", move |_| {
        let door = Arc::clone(&door);
        async move {
            door.acquire().await.unwrap().forget();
            Ok(Outcome::done())
        }
    });
    let engine = world.start().await;
    let first = started(&engine, to("waits", "go")).await;
    let queued = started(&engine, to("talker", "20")).await;
    assert_eq!(queued.task.state, State::Submitted);
    open.add_permits(1);
    follow_new(&engine, queued).await;
    follow_new(&engine, first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_of_a_task_just_sent_sees_one_log_whoever_commits() {
    let engine = talkative().start().await;
    for round in 0..cases(8, 80) {
        let begun = started(&engine, to("talker", "300")).await;
        let task = begun.task.clone();
        let (engine, task) = (&engine, &task);
        let speak = async |n: usize| {
            for turn in 0..5 {
                // Refused once the task has ended; that is not what this is about.
                let _ = engine.say(task, said(format!("{n}.{turn}"))).await;
            }
        };
        let follow = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            follow_new(engine, begun).await
        };
        tokio::join!(follow, join_all((0..3).map(speak)));
        engine.checked(task.origin.id).await;
    }
    assert_eq!(engine.followed_for_tests(), 0);
}

/// A store whose commits that create a task wait, once they are durable, until they are let go; and the ids of these tasks.
fn held_back(store: Arc<dyn Store>) -> (Arc<HookedStore>, mpsc::UnboundedReceiver<TaskId>, Arc<Semaphore>) {
    let (created, ids) = mpsc::unbounded_channel();
    let go_on = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go_on);
    let store = HookedStore::new(store, move |moment, change| {
        let (CommitMoment::After, Precondition::Create(new)) = (moment, &change.guard) else {
            return proceed();
        };
        created.send(new.id).unwrap();
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(())
        }
        .boxed()
    });
    (store, ids, go_on)
}

/// Asks once, and ends with the answer.
fn curious() -> World {
    World::new().agent("curious", async |cx: TaskContext| {
        let schema =
            serde_json::json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        cx.ask("Who?", schema).await?;
        Ok(Outcome::done())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_before_the_sender_knows_of_its_task_reaches_its_follower() {
    // It emits nothing: a later event would make the follower read the log, and find what it has missed.
    let world = World::new().agent("silent", async |cx: TaskContext| {
        cx.canceled().await;
        Err(AgentError::Canceled)
    });
    let (store, mut ids, go_on) = held_back(world.open().await);
    let engine = world.start_on(store).await;
    let sending = tokio::spawn({
        let engine = engine.clone();
        async move { started(&engine, to("silent", "go")).await }
    });
    let id = within(ids.recv()).await.unwrap();
    // The task is durable, so another request finds it.
    let reply = Reply {
        task: id.to_string(),
        context: None,
        message: said("early"),
        idempotency_key: None,
        webhooks: vec![],
    };
    within(engine.reply(&me(), reply)).await.unwrap();
    go_on.add_permits(1);
    let begun = within(sending).await.unwrap();
    let seq = begun.task.seq;
    let (_, mut follower) = within(engine.follow_started(&me(), begun, seq)).await.unwrap();
    let mut seen = engine.log(id).await[..seq as usize].to_vec();
    while !seen
        .iter()
        .any(|entry| matches!(entry.event(), Event::Message(said) if said.joined_text() == "early"))
    {
        let Next::Batch(batch) = within(follower.next()).await.unwrap() else { panic!("it goes on") };
        assert_eq!(batch.first_seq, seen.len() as u64 + 1, "a gap or a repeat");
        seen.extend(batch.entries.iter().cloned());
    }
    assert!(engine.log(id).await.starts_with(&seen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_node_commits_reaches_the_follower_of_a_task_just_sent() {
    let world = curious();
    let shared = world.open().await;
    let store = HookedStore::counting(Arc::clone(&shared));
    let news = store.notify_by_hand();
    let engine = world.start_on(Arc::clone(&store) as Arc<dyn Store>).await;
    let other = world.start_on(shared).await;
    for gap in [false, true] {
        let begun = started(&engine, to("curious", "go")).await;
        let (task, mut follower) = within(engine.follow_started(&me(), begun, 0)).await.unwrap();
        let id = task.origin.id;
        let mut seen = vec![];
        while !seen.iter().any(|entry: &Entry| matches!(entry.event(), Event::Question(_))) {
            let Next::Batch(batch) = within(follower.next()).await.unwrap() else { panic!("it goes on") };
            seen.extend(batch.entries.iter().cloned());
        }
        engine.parked(&task).await;
        let before = store.used();
        other.say(&task, said("me")).await.unwrap();
        let row = until("it has ended, on whichever node", async || {
            let row = other.row(id).await;
            row.state.is_terminal().then_some(row)
        })
        .await;
        news.send(match gap {
            false => StoreNotification::Task { no: row.no, id, seq: row.seq },
            true => StoreNotification::Gap,
        })
        .unwrap();
        read_on(&mut follower, &mut seen).await;
        assert!((store.used() - before).logs > 0);
        assert_eq!(seen, engine.log(id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_fails_or_is_dropped_leaves_no_channel() {
    let world = two_agents();
    let failing = HookedStore::new(world.open().await, |moment, change| match (moment, &change.guard) {
        (CommitMoment::Before, Precondition::Create(_)) => {
            std::future::ready(Err(CommitError::Store(StoreError::Unavailable("no disk".into())))).boxed()
        }
        _ => proceed(),
    });
    let engine = world.start_on(failing).await;
    for agent in ["computes", "talker"] {
        within(engine.begin(&me(), to(agent, "7"))).await.unwrap_err();
        assert_eq!(engine.followed_for_tests(), 0, "{agent}");
    }
    drop(engine);

    let world = two_agents();
    let (store, mut ids, go_on) = held_back(world.open().await);
    let engine = world.start_on(store).await;
    let sending = tokio::spawn({
        let engine = engine.clone();
        async move { started(&engine, to("talker", "7")).await }
    });
    let id = within(ids.recv()).await.unwrap();
    assert_eq!(engine.followed_for_tests(), 1);
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    until("the channel is gone", async || (engine.followed_for_tests() == 0).then_some(())).await;
    go_on.add_permits(1);
    until("it ends all the same", async || {
        let task = engine.task(id).await;
        task.state.is_terminal().then_some(())
    })
    .await;
    engine.checked(id).await;
    assert_eq!(engine.followed_for_tests(), 0);
}

// ------------------------------------------------------------------------------------------- properties

/// What one reader does: where it begins, how much it reads, and whether it comes back.
#[derive(Debug, Clone)]
struct Reader {
    after: u64,
    batches: usize,
    pause: bool,
}

#[test]
fn followers_that_come_and_go_anywhere_all_see_one_log() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let engine = rt.block_on(async { talkative().start().await });
    let reader = (0..3_u64, 0..5_usize, any::<bool>()).prop_map(|(after, batches, pause)| Reader {
        after,
        batches,
        pause,
    });
    let readers = prop::collection::vec(prop::collection::vec(reader, 1..4), 1..6);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(12, 300)) };
    TestRunner::new(config)
        .run(&readers, |readers| {
            rt.block_on(follow_all(&engine, readers));
            Ok(())
        })
        .unwrap();
}

async fn follow_all(engine: &Engine, readers: Vec<Vec<Reader>>) {
    let task = engine.send(to("talker", "80")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let speaking = async {
        for n in 0..10 {
            let _ = engine.say(&task, said(format!("{n}"))).await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let reading = readers.into_iter().map(async |visits| {
        let mut seen = vec![];
        for visit in visits {
            read_some(engine, &task, &visit, &mut seen).await;
        }
        seen
    });
    let (seen, ()) = tokio::join!(join_all(reading), speaking);
    engine.ended(&task).await;
    let log = engine.log(task.origin.id).await;
    for seen in seen {
        assert!(log.starts_with(&seen), "{seen:?} is not how {log:?} begins");
    }
}

/// One visit: it continues where the one before it ended, or a little earlier.
async fn read_some(engine: &Engine, task: &Task, visit: &Reader, seen: &mut Vec<Entry>) {
    seen.truncate(seen.len().saturating_sub(visit.after as usize));
    let mut follower = engine.follow(&me(), &task.origin.id.to_string(), seen.len() as u64).await.unwrap();
    for _ in 0..visit.batches {
        if visit.pause {
            tokio::task::yield_now().await;
        }
        match within(follower.next()).await.unwrap() {
            Next::Batch(batch) => {
                assert_eq!(batch.first_seq, seen.len() as u64 + 1);
                seen.extend(batch.entries.iter().cloned());
            }
            Next::End => return,
            Next::Closing | Next::Nudge(_) => panic!("nobody stops this"),
        }
    }
}
