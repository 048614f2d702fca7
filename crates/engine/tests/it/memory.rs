//! The memory bank in an agent's hands, and what the engine does for it beside: reads that are counted, entries
//! that go when their time has come.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use nuncio_engine::{
    AgentError, Caller, Chunk, Error, Grants, Outcome, State, TaskContext,
    knowledge::{AuditQuery, ExpectedVersion, MemoryKey, MemoryQuery},
    memory::{BankError, BankPageQuery, data_uri, keys_uri},
    surface::SurfaceChange,
};
use serde_json::{Value, json};

use crate::world::{
    CommitMoment, EngineExt, Gate, HandClock, World, last_words, me, said, text_of, to, until, within,
};

/// Reads a plan, notes what it saw, looks around, and asks before it goes on.
async fn planner(cx: TaskContext) -> Result<Outcome, AgentError> {
    let plan = cx.memory("notes").get("plan").await?.map(|entry| (entry.value, entry.version));
    let missing = cx.memory("notes").get("missing").await?;
    assert_eq!(missing, None);
    let version = cx.memory("notes").store("seen", &json!(plan), None).await?;
    let taken = cx.memory("notes").store_if("plan", &json!("mine"), None, ExpectedVersion::Absent).await?;
    let found = cx.memory("notes").search(&MemoryQuery::Keys("pl*".into()), 1, 10).await?;
    let gone = cx.memory("notes").delete("scrap").await?;
    let refused = cx.memory("").get("x").await;
    let form = json!({"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]});
    cx.ask("Go on?", form).await?;
    let report = format!("{plan:?} {version} {taken:?} {} {gone} {refused:?}", found.results[0].0.value);
    cx.artifact(Chunk::text("report", report)).await?;
    Ok(Outcome::done())
}

#[test]
fn after_a_restart_an_agent_finds_what_it_read_before_and_writes_nothing_twice() {
    let world = World::new().agent("planner", planner);
    let life = world.life();
    let task = life.block_on(async {
        let memory = life.engine.memory();
        memory.store(&me(), "notes", "plan", &json!("tea"), None, ExpectedVersion::Any).await.unwrap();
        memory.store(&me(), "notes", "scrap", &json!(0), None, ExpectedVersion::Any).await.unwrap();
        let task = life.engine.run(to("planner", "go")).await;
        assert_eq!(task.questions.len(), 1, "{task:?}");
        let coffee =
            memory.store(&me(), "notes", "plan", &json!("coffee"), None, ExpectedVersion::Version(1)).await;
        assert_eq!(coffee.unwrap().version, 2);
        memory.store(&me(), "notes", "scrap", &json!(1), None, ExpectedVersion::Absent).await.unwrap();
        task
    });
    life.cut();

    let life = world.life();
    life.block_on(async {
        life.engine.say(&task, said("yes")).await.unwrap();
        let task = life.engine.ended(&task).await;
        assert_eq!(task.state, State::Completed, "{}", last_words(&task));
        let report = text_of(&task, "report");
        let expected =
            r#"Some((String("tea"), 1)) 1 None "tea" true Err(Failed("namespace: must not be empty"))"#;
        assert_eq!(report, expected);
        let memory = life.engine.memory();
        let version = async |key: &str| memory.get(&me(), "notes", key).await.unwrap().unwrap().version;
        assert_eq!((version("seen").await, version("plan").await), (1, 2), "nothing was written again");
        assert_eq!(version("scrap").await, 1, "nor deleted again");
    });
    life.cut();
}

#[test]
fn a_write_that_the_task_does_not_know_of_is_done_again_and_may_find_itself() {
    let world = World::new().agent("writer", async |cx: TaskContext| {
        let first = cx.memory("notes").store_if("a", &json!(1), None, ExpectedVersion::Absent).await?;
        let second = cx.memory("notes").store("b", &json!(1), None).await?;
        cx.artifact(Chunk::text("report", format!("{first:?} {second}"))).await?;
        Ok(Outcome::done())
    });
    let gate = Gate::new();
    let life =
        world.life_with(|store| gate.on(store, CommitMoment::Before, |change| !change.journal.is_empty()));
    let task = life.block_on(async {
        let task = life.engine.send(to("writer", "go")).await;
        gate.arrival().await;
        task
    });
    life.cut();
    let life = world.life();
    life.block_on(async {
        let task = life.engine.ended(&task).await;
        assert_eq!(text_of(&task, "report"), "None 1", "{task:?}");
        let a = life.engine.memory().get(&me(), "notes", "a").await.unwrap().unwrap();
        assert_eq!(a.version, 1, "under what it expected it was not written twice");
    });
    life.cut();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_may_do_in_memory_what_its_caller_may() {
    let world = World::new().agent("reader", async |cx: TaskContext| {
        let read = cx.memory("team-a").get("x").await?;
        let refused = cx.memory("private").get("x").await;
        Ok(Outcome::said(format!("{read:?} {refused:?}")))
    });
    let engine = world.start().await;
    let limited = Caller::local().limited_to(Grants::parse("*:a2a read:memory:team-*").unwrap());
    let task = within(engine.submit(&limited, to("reader", "go"))).await.unwrap();
    let task = engine.settled(&task).await;
    let words = last_words(&task);
    assert!(words.starts_with("None Err(Failed(") && words.contains("read:memory:private"), "{words}");
    engine.flush_audit().await;
    let refused = AuditQuery { refused: true, limit: 10, ..AuditQuery::default() };
    let lines = engine.store_for_tests().knowledge().audit(&refused).await.unwrap().entries;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (&*lines[0].1.operation, lines[0].1.resource.as_str()),
        ("memory.get", "memory://data/private/x")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_is_counted_once_before_it_is_written_and_after() {
    let world = World::new().options(|options| options.reads_flush = Duration::from_secs(3600));
    let engine = world.start().await;
    let memory = engine.memory();
    for key in ["a", "b"] {
        memory.store(&me(), "n", key, &json!(1), None, ExpectedVersion::Any).await.unwrap();
    }
    let reads = (0..50).map(|_| {
        let memory = memory.clone();
        tokio::spawn(async move { memory.get(&me(), "n", "a").await.unwrap().unwrap().reads })
    });
    let mut counts = vec![];
    for read in reads.collect::<Vec<_>>() {
        counts.push(within(read).await.unwrap());
    }
    assert_eq!(counts.iter().max(), Some(&50));
    let key = MemoryKey { tenant: "home".into(), namespace: "n".into(), key: "a".into() };
    let kept = async |engine: &nuncio_engine::Engine| {
        let now = engine.clock().now();
        engine.store_for_tests().knowledge().memory(&key, now).await.unwrap().unwrap().reads
    };
    assert_eq!(kept(&engine).await, 0, "a read costs no write");
    let listed = async |engine: &nuncio_engine::Engine| {
        let query = BankPageQuery { limit: 10, ..BankPageQuery::default() };
        let page = engine.memory().page(&me(), "n", &query).await.unwrap().unwrap();
        page.entries.iter().map(|entry| entry.reads).collect::<Vec<_>>()
    };
    assert_eq!(listed(&engine).await, [50, 0], "a list shows them, and is no read");
    memory.delete(&me(), "n", "b", None).await.unwrap();
    engine.stop().await;
    drop((engine, memory));

    let engine = world.start().await;
    assert_eq!(kept(&engine).await, 50, "the stop has written them");
    assert_eq!(engine.memory().get(&me(), "n", "a").await.unwrap().unwrap().reads, 51);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_written_while_others_read_and_none_is_lost_or_seen_twice() {
    let world = World::new().options(|options| options.reads_flush = Duration::from_millis(1));
    let engine = world.start().await;
    let memory = engine.memory();
    memory.store(&me(), "n", "a", &json!(1), None, ExpectedVersion::Any).await.unwrap();
    for expected in 1..=500 {
        let entry = memory.get(&me(), "n", "a").await.unwrap().unwrap();
        assert_eq!(entry.reads, expected);
    }
    // Written again, it is the same entry; deleted and written again, another.
    memory.store(&me(), "n", "a", &json!(2), None, ExpectedVersion::Version(1)).await.unwrap();
    assert_eq!(memory.get(&me(), "n", "a").await.unwrap().unwrap().reads, 501);
    memory.delete(&me(), "n", "a", None).await.unwrap();
    memory.store(&me(), "n", "a", &json!(3), None, ExpectedVersion::Absent).await.unwrap();
    assert_eq!(memory.get(&me(), "n", "a").await.unwrap().unwrap().reads, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reads_of_many_entries_are_written_before_it_is_time() {
    let world = World::new().options(|options| {
        options.reads_flush = Duration::from_secs(3600);
        options.reads_waiting = 3;
    });
    let engine = world.start().await;
    let memory = engine.memory();
    let names = ["a", "b", "c"];
    for key in names {
        memory.store(&me(), "n", key, &json!(1), None, ExpectedVersion::Any).await.unwrap();
    }
    let kept = async |key: &str| {
        let key = MemoryKey { tenant: "home".into(), namespace: "n".into(), key: key.into() };
        let now = engine.clock().now();
        engine.store_for_tests().knowledge().memory(&key, now).await.unwrap().unwrap().reads
    };
    for round in 1..=3 {
        for key in ["a", "b", "a"] {
            memory.get(&me(), "n", key).await.unwrap();
        }
        assert_eq!(kept("b").await, round - 1, "two entries wait");
        memory.get(&me(), "n", "c").await.unwrap();
        until("three are written", async || {
            let now = (kept("a").await, kept("b").await, kept("c").await);
            (now == (2 * round, round, round)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_is_swept_and_its_followers_are_told() {
    let clock = HandClock::new();
    let world = World::new().clock(&clock).options(|options| {
        options.sweep_poll = Duration::from_millis(5);
        options.access.audit_retention = Some(Duration::from_secs(60));
    });
    let engine = world.start().await;
    let (memory, minute) = (engine.memory(), Duration::from_secs(60));
    // More than one round takes.
    for n in 0..300 {
        memory
            .store(&me(), "n", &format!("k{n}"), &json!(n), Some(minute), ExpectedVersion::Any)
            .await
            .unwrap();
    }
    memory.store(&me(), "n", "stays", &json!(1), None, ExpectedVersion::Any).await.unwrap();
    engine.flush_audit().await;
    let told: Arc<Mutex<Vec<SurfaceChange>>> = Arc::default();
    let (mut changes, telling) = (engine.catalog().surface().changes(), Arc::clone(&told));
    tokio::spawn(async move {
        while let Ok(change) = changes.recv().await {
            telling.lock().unwrap().push(change);
        }
    });
    clock.advance(minute + Duration::from_millis(1));
    let concerned = |uri: &str| {
        let told = told.lock().unwrap();
        told.iter()
            .any(|change| matches!(change, SurfaceChange::Updated(updated) if updated.concerns("home", uri)))
    };
    for uri in
        [data_uri("n", "k0"), data_uri("n", "k299"), keys_uri("n"), "memory://search/n?pattern=k*".into()]
    {
        until("its followers are told", async || concerned(&uri).then_some(())).await;
    }
    assert!(!concerned(&data_uri("n", "stays")));
    let stats = memory.stats(&me(), "n").await.unwrap().unwrap();
    assert_eq!((stats.entries, stats.bytes), (1, 1));
    until("the audit is swept, too", async || {
        let lines = engine
            .store_for_tests()
            .knowledge()
            .audit(&AuditQuery { limit: 10, ..AuditQuery::default() })
            .await;
        lines.unwrap().entries.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_for_a_namespace_or_a_tenant_is_refused_by_its_name() {
    let world = World::new().options(|options| {
        options.memory.entries_per_namespace = 2;
        options.memory.bytes_per_tenant = 4_000;
        options.memory.namespaces_per_tenant = 2;
    });
    let engine = world.start().await;
    let memory = engine.memory();
    let store = async |caller: &Caller, namespace: &str, key: &str, value: Value| {
        memory.store(caller, namespace, key, &value, None, ExpectedVersion::Any).await
    };
    store(&me(), "n", "a", json!(1)).await.unwrap();
    store(&me(), "n", "b", json!(1)).await.unwrap();
    store(&me(), "n", "b", json!(2)).await.expect("what is there can be written again");
    let error = store(&me(), "n", "c", json!(1)).await.unwrap_err();
    assert!(matches!(&error, BankError::Full(why) if why.contains("entries_per_namespace")), "{error}");
    let error = store(&me(), "m", "a", json!("x".repeat(4_000))).await.unwrap_err();
    assert!(matches!(&error, BankError::Full(why) if why.contains("bytes_per_tenant")), "{error}");
    store(&me(), "another", "a", json!(1)).await.unwrap();
    let error = store(&me(), "third", "a", json!(1)).await.unwrap_err();
    assert!(matches!(&error, BankError::Full(why) if why.contains("namespaces_per_tenant")), "{error}");
    store(&Caller::named("acme/ada"), "n", "c", json!("x".repeat(3_000)))
        .await
        .expect("another tenant's room");
    let refused = Caller::local().limited_to(Grants::parse("read:memory").unwrap());
    let error = store(&refused, "n", "a", json!(1)).await.unwrap_err();
    assert!(matches!(error, BankError::Engine(Error::Forbidden(_))), "{error}");
}
