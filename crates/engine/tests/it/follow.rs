//! What a follower has seen is never withdrawn, reordered or repeated, from any cursor, live or not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use nuncio_engine::{
    Chunk, Engine, Error, Follower, Level, Next, Outcome, State, Task, TaskContext, event::Entry,
};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::sync::Semaphore;

use crate::world::{EngineExt, HandClock, World, cases, me, said, to, until, within};

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
