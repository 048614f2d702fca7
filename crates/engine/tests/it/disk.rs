//! A full disk refuses what is new, keeps what is stored readable, and makes running agents wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{
    Chunk, Engine, Error, Level, List, Outcome, State, TaskContext,
    store::{Precondition, StoreError},
};
use nuncio_store::SqliteOptions;
use tokio::sync::Semaphore;

use crate::world::{
    CommitMoment, EngineExt, HookedStore, World, last_words, me, proceed, said, text_of, to, until, within,
};

const ROOM: u32 = 1 << 20;

/// A disk that is as large as the test wants it to be, in pages.
struct Disk(Arc<AtomicU32>);

impl Disk {
    fn new() -> Self {
        Self(Arc::new(AtomicU32::new(ROOM)))
    }

    fn options(&self) -> SqliteOptions {
        SqliteOptions { max_pages: Some(Arc::clone(&self.0)), ..SqliteOptions::default() }
    }

    /// Leaves no page free, and fills up what is left of those that are there.
    async fn fill(&self, engine: &Engine) {
        self.0.store(1, Ordering::SeqCst);
        until("the disk is full", async || {
            let filler = to("echo", &"x".repeat(1_000));
            engine.submit(&me(), filler).await.is_err().then_some(())
        })
        .await;
    }

    fn make_room(&self) {
        self.0.store(ROOM, Ordering::SeqCst);
    }
}

fn world(disk: &Disk, gate: &Arc<Semaphore>) -> World {
    let gate = Arc::clone(gate);
    World::new()
        .sqlite(disk.options())
        .agent("echo", async |cx: TaskContext| {
            cx.artifact(Chunk::text("echo", cx.text())).await?;
            Ok(Outcome::done())
        })
        .agent("worker", move |cx: TaskContext| {
            let gate = Arc::clone(&gate);
            async move {
                cx.step("first", async |_| Ok(())).await?;
                gate.acquire().await.unwrap().forget();
                for n in 0..400 {
                    cx.artifact(Chunk::text("book", format!("{n} {} ", "x".repeat(1_000)))).await?;
                }
                cx.log(Level::Info, "written").await?;
                cx.step("second", async |_| Ok(())).await?;
                let called = cx.call("echo", said("called")).await?;
                Ok(Outcome::said(text_of(&called, "echo")))
            }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_work_is_refused_stored_work_is_readable_and_running_work_waits_for_room() {
    let (disk, gate, tries) = (Disk::new(), Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let (world, count) = (world(&disk, &gate), Arc::clone(&tries));
    let store = HookedStore::new(world.open().await, move |moment, change| {
        if moment == CommitMoment::Before && matches!(change.guard, Precondition::Runner { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        proceed()
    });
    let engine = world.start_on(store).await;
    let kept = engine.send(to("echo", "kept")).await;
    let working = engine.send(to("worker", "go")).await;
    disk.fill(&engine).await;

    match engine.submit(&me(), to("echo", &"x".repeat(100_000))).await {
        Err(Error::Busy { why, retry_after }) => {
            assert!(why.contains("disk") && why.contains("full"), "{why}");
            assert!(retry_after > Duration::ZERO);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(engine.store_for_tests().ready().await, Err(StoreError::Full(_))));
    assert_eq!(engine.checked(kept.origin.id).await, kept);
    assert_eq!(engine.ended(&kept).await, kept);
    assert!(engine.list(&me(), List { page_size: 10, ..Default::default() }).await.unwrap().total >= 2);

    // The agent goes on until its buffer is full, and pauses there; its words are tried again and again.
    let (before, tried) = (engine.row(working.origin.id).await.seq, tries.load(Ordering::SeqCst));
    gate.add_permits(1);
    until("they were tried", async || (tries.load(Ordering::SeqCst) >= tried + 4).then_some(())).await;
    assert_eq!(engine.row(working.origin.id).await.seq, before);
    assert_eq!(engine.task(working.origin.id).await.state, State::Working);

    disk.make_room();
    let done = engine.ended(&working).await;
    assert_eq!((done.state, last_words(&done).as_str()), (State::Completed, "called"));
    let expected: String = (0..400).map(|n| format!("{n} {} ", "x".repeat(1_000))).collect();
    assert_eq!(text_of(&done, "book"), expected, "nothing is missing, nothing is doubled");
    engine.checked(working.origin.id).await;
    assert_eq!(engine.run(to("echo", "again")).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_for_which_there_is_no_room_waits_and_does_not_fail() {
    let (disk, gate) = (Disk::new(), Arc::new(Semaphore::new(0)));
    let wait = Arc::clone(&gate);
    let world = world(&disk, &gate).agent("caller", move |cx: TaskContext| {
        let wait = Arc::clone(&wait);
        async move {
            cx.step("first", async |_| Ok(())).await?;
            wait.acquire().await.unwrap().forget();
            let called = cx.call("echo", said("x".repeat(50_000))).await?;
            Ok(Outcome::said(called.state.code().to_string()))
        }
    });
    let engine = world.start().await;
    let task = engine.send(to("caller", "go")).await;
    disk.fill(&engine).await;
    gate.add_permits(1);
    let waiting = tokio::time::timeout(Duration::from_millis(300), engine.ended(&task)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    disk.make_room();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_a_full_disk_stops_and_goes_on_where_it_was() {
    let (disk, gate) = (Disk::new(), Arc::new(Semaphore::new(0)));
    let world = world(&disk, &gate);
    let engine = world.start().await;
    let working = engine.send(to("worker", "go")).await;
    disk.fill(&engine).await;
    gate.add_permits(2);
    // Long before its own patience is over.
    let started = Instant::now();
    within(engine.stop()).await;
    assert!(started.elapsed() < engine.options().stop_within * 3 / 4, "{:?}", started.elapsed());
    drop(engine);
    disk.make_room();
    let engine = world.start().await;
    let done = engine.ended(&working).await;
    assert_eq!(done.state, State::Completed, "{done:?}");
    engine.checked(working.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_takes_no_place_in_the_queue() {
    let (disk, gate) = (Disk::new(), Arc::new(Semaphore::new(0)));
    let world = world(&disk, &gate).options(|options| {
        options.max_running = 2;
        options.max_queued = 2;
        // No help from the next count.
        options.claim_poll = Duration::from_secs(3600);
    });
    let engine = world.start().await;
    engine.send(to("worker", "one")).await;
    disk.fill(&engine).await;
    disk.make_room();
    engine.send(to("worker", "two")).await;
    disk.0.store(1, Ordering::SeqCst);
    for _ in 0..5 {
        let error = engine.submit(&me(), to("worker", &"x".repeat(100_000))).await.unwrap_err();
        assert!(error.to_string().contains("disk"), "{error}");
    }
    disk.make_room();
    assert_eq!(engine.send(to("worker", "three")).await.state, State::Submitted);
}
