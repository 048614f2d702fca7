//! What the operator does across owners and tenants, and what nobody else can.

use std::time::Duration;

use nuncio_engine::{
    AuditLevel, Caller, Engine, Error, Grants, Outcome, State, Task, TaskContext,
    admin::{AdminList, ExportCursor, ExportItem, OrderState},
    event::EncodedBatch,
    knowledge::{AuditQuery, ExpectedVersion, MemoryKey, RecordKey, RecordWrite},
    store::{Change, Precondition, TaskKey},
};
use serde_json::{Value, json};

use crate::world::{HandClock, World, last_words, reply_to, said, to, until};

fn token(owner: &str, id: &str) -> Caller {
    Caller::named(owner).limited_to(Grants::parse("*:*").unwrap()).with_credential(id)
}

fn admin(owner: &str, scopes: &str) -> Caller {
    Caller::named(owner).limited_to(Grants::parse(scopes).unwrap())
}

async fn for_ever(_cx: TaskContext) -> Result<Outcome, nuncio_engine::AgentError> {
    std::future::pending().await
}

fn world() -> World {
    World::new()
        .agent("stuck", for_ever)
        .agent("asks", async |cx: TaskContext| {
            let schema =
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
            let _ = cx.ask("which?", schema).await;
            Ok(Outcome::done())
        })
        .agent("calls", async |cx: TaskContext| {
            let _ = cx.call("stuck", said("go")).await;
            Ok(Outcome::done())
        })
        .agent("echo", async |_: TaskContext| Ok(Outcome::done()))
        .options(|options| options.cancel_grace = Duration::from_millis(200))
}

fn everything(tenant: Option<&str>) -> AdminList {
    AdminList { tenant: tenant.map(str::to_owned), page_size: 100, ..AdminList::default() }
}

async fn state(engine: &Engine, task: &Task) -> State {
    let operator = Caller::local();
    engine.admin_get(&operator, None, &task.origin.id.to_string()).await.unwrap().0.state
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_stopped_token_is_canceled_and_that_of_another_of_the_same_name_goes_on() {
    let (world, operator) = (world(), Caller::local());
    let engine = world.start().await;
    let (bad, good) = (token("acme/ada", "bad"), token("acme/ada", "good"));
    let stuck = engine.submit(&bad, to("stuck", "x")).await.unwrap();
    let asking = engine.submit(&bad, to("asks", "x")).await.unwrap();
    let parent = engine.submit(&bad, to("calls", "x")).await.unwrap();
    let other = engine.submit(&good, to("stuck", "x")).await.unwrap();
    let listed = until("the called task is there", async || {
        let page = engine.admin_list(&operator, everything(Some("acme"))).await.unwrap();
        (page.tasks.len() == 5).then_some(page.tasks)
    })
    .await;
    assert_eq!(listed.iter().filter(|task| task.credential.as_deref() == Some("bad")).count(), 4);
    until("it asks", async || (state(&engine, &asking).await == State::InputRequired).then_some(())).await;
    engine.flush_audit().await;
    let query = AuditQuery { tenant: Some("acme".into()), limit: 100, ..AuditQuery::default() };
    let lines = engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    let named = |id: &str| lines.iter().filter(|(_, line)| line.credential.as_deref() == Some(id)).count();
    assert_eq!((named("bad"), named("good"), lines.len()), (4, 1, 5), "{lines:?}");

    let order = engine.stop_token(&operator, "bad", "acme/ada").await.unwrap();
    assert!(order.counts.canceled >= 3, "{order:?}");
    for task in [&stuck, &asking, &parent] {
        until("it ends", async || (state(&engine, task).await == State::Canceled).then_some(())).await;
    }
    assert!(!state(&engine, &other).await.is_terminal());
    let live = AdminList { live: true, ..everything(Some("acme")) };
    let left = engine.admin_list(&operator, live).await.unwrap().tasks;
    assert_eq!(left.iter().map(|task| task.id).collect::<Vec<_>>(), [other.origin.id]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_cannot_be_read_keeps_no_other_from_being_stopped() {
    let (world, operator, ada) = (world(), Caller::local(), token("acme/ada", "bad"));
    let engine = world.start().await;
    let first = engine.submit(&ada, to("asks", "x")).await.unwrap();
    until("it rests", async || {
        let opened = engine.store_for_tests().open(&TaskKey::Id(first.origin.id)).await.unwrap().unwrap();
        (opened.row.state == State::InputRequired && opened.row.node.is_none()).then_some(())
    })
    .await;
    let others = [
        engine.submit(&ada, to("asks", "x")).await.unwrap(),
        engine.submit(&ada, to("stuck", "x")).await.unwrap(),
    ];
    until("another rests", async || (state(&engine, &others[0]).await == State::InputRequired).then_some(()))
        .await;
    let store = engine.store_for_tests();
    let row = store.open(&TaskKey::Id(first.origin.id)).await.unwrap().unwrap().row;
    let damage = Change {
        events: Some(EncodedBatch { count: 1, bytes: b"\x01[nothing".as_slice().into() }),
        ..Change::new(Precondition::Version { task: row.no, version: row.version })
    };
    store.commit(damage).await.unwrap();

    // The order itself is not complete as long as one task of it goes on.
    let order = engine.stop_token(&operator, "bad", "acme/ada").await.unwrap();
    for task in &others {
        until("it ends", async || (state(&engine, task).await == State::Canceled).then_some(())).await;
    }
    assert!(!order.done, "{order:?}");
    assert_eq!(
        (order.passes > 0, order.counts.canceled),
        (true, 2),
        "a pass is complete, and counted: {order:?}"
    );
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_reaches_tasks_of_every_tenant_and_others_find_nothing() {
    let (world, operator) = (world(), Caller::local());
    let engine = world.start().await;
    let ada = token("acme/ada", "t");
    let task = engine.submit(&ada, to("stuck", "secret plans")).await.unwrap();
    let id = task.origin.id.to_string();
    let boss = admin("acme/boss", "read,write:admin:tasks");
    let stranger = admin("other/eve", "*:admin *:*");
    let plain = admin("acme/ada", "*:*");

    let page = engine.admin_list(&operator, everything(None)).await.unwrap();
    assert_eq!((page.tasks.len(), &*page.tasks[0].owner), (1, "acme/ada"));
    assert_eq!(page.tasks[0].credential.as_deref(), Some("t"));
    assert_eq!(engine.admin_list(&boss, everything(None)).await.unwrap().tasks.len(), 1, "its own tenant");
    assert!(engine.admin_list(&stranger, everything(None)).await.unwrap().tasks.is_empty());
    assert!(engine.admin_list(&stranger, everything(Some("acme"))).await.unwrap().tasks.is_empty());
    engine.admin_get(&boss, None, &id).await.unwrap();
    engine.admin_get(&operator, Some("acme"), &id).await.unwrap();

    // Another's task is answered as one that is not there; without the scope nothing is looked up.
    let nobody = "0190a5a5-0000-7000-8000-000000000000";
    let words = |error: Error, id: &str| error.to_string().replace(id, "ID");
    for task in [&*id, nobody] {
        let of = |result: Result<_, Error>| words(result.err().unwrap(), task);
        assert_eq!(of(engine.admin_get(&stranger, None, task).await.map(drop)), "there is no task ID");
        assert_eq!(of(engine.admin_cancel(&stranger, None, task).await.map(drop)), "there is no task ID");
        assert_eq!(of(engine.admin_delete(&stranger, None, task).await.map(drop)), "there is no task ID");
        assert_eq!(
            of(engine.admin_get(&operator, Some("other"), task).await.map(drop)),
            "there is no task ID"
        );
        assert_eq!(
            of(engine.get(&operator, task).await.map(drop)),
            "there is no task ID",
            "ordinary methods"
        );
        assert_eq!(of(engine.cancel(&operator, task).await.map(drop)), "there is no task ID");
        let scope = of(engine.admin_get(&plain, None, task).await.map(drop));
        assert!(scope.contains("read:admin:tasks"), "{scope}");
        let scope = of(engine.admin_cancel(&plain, None, task).await.map(drop));
        assert!(scope.contains("write:admin:tasks"), "{scope}");
    }

    let error = engine.admin_delete(&operator, Some("acme"), &id).await.unwrap_err().to_string();
    assert!(error.contains("cancel it first"), "{error}");
    let (_, canceled) = engine.admin_cancel(&operator, Some("acme"), &id).await.unwrap();
    assert_eq!(canceled.state, State::Canceled);
    engine.get(&ada, &id).await.unwrap();
    engine.admin_delete(&operator, Some("acme"), &id).await.unwrap();
    assert!(matches!(engine.get(&ada, &id).await, Err(Error::NoSuchTask(_))), "nor is it remembered");
    assert!(matches!(engine.admin_get(&operator, None, &id).await, Err(Error::NoSuchTask(_))));

    engine.flush_audit().await;
    let query = AuditQuery { caller: Some("local".into()), limit: 100, ..AuditQuery::default() };
    let lines = engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    for operation in ["admin.task.cancel", "admin.task.delete"] {
        assert!(lines.iter().any(|(_, line)| line.operation == operation), "{operation}");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_tenant_is_refused_until_it_is_resumed_and_its_questions_wait() {
    let (world, operator) = (world(), Caller::local());
    let engine = world.start().await;
    let (ada, eve) = (token("acme/ada", "t"), token("other/eve", "u"));
    let running = engine.submit(&ada, to("stuck", "x")).await.unwrap();
    let asking = engine.submit(&ada, to("asks", "x")).await.unwrap();
    let others = engine.submit(&eve, to("stuck", "x")).await.unwrap();
    until("it asks", async || (state(&engine, &asking).await == State::InputRequired).then_some(())).await;

    let status = engine.suspend_tenant(&operator, "acme", Some("unpaid".into())).await.unwrap();
    assert_eq!(status.order.unwrap().state, OrderState::Suspended);
    until("it ends", async || (state(&engine, &running).await == State::Canceled).then_some(())).await;
    assert_eq!(state(&engine, &asking).await, State::InputRequired, "it waits on");
    assert!(!state(&engine, &others).await.is_terminal());
    let why = engine.submit(&ada, to("echo", "x")).await.unwrap_err().to_string();
    assert_eq!(
        why,
        "the tenant \"acme\" is suspended by the operator of this server and not served: ask the operator"
    );
    assert!(matches!(engine.get(&ada, &asking.origin.id.to_string()).await, Err(Error::Suspended(..))));
    assert!(matches!(engine.reply(&ada, reply_to(&asking, said("y"))).await, Err(Error::Suspended(..))));
    engine.submit(&eve, to("echo", "x")).await.unwrap();

    // It outlives the process.
    engine.stop().await;
    let engine = world.start().await;
    assert!(matches!(engine.submit(&ada, to("echo", "x")).await, Err(Error::Suspended(..))));
    for (caller, tenant) in
        [(&admin("acme/boss", "*:admin"), "acme"), (&operator, "home"), (&operator, "a/b"), (&operator, "")]
    {
        engine.suspend_tenant(caller, tenant, None).await.unwrap_err();
        engine.erase_tenant(caller, tenant).await.unwrap_err();
    }
    assert_eq!(engine.resume_tenant(&operator, "acme").await.unwrap().order, None);
    engine.submit(&ada, to("echo", "x")).await.unwrap();
    engine.reply(&ada, reply_to(&asking, said("y"))).await.unwrap();
    until("it goes on", async || (state(&engine, &asking).await == State::Completed).then_some(())).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_holds_at_once_whatever_else_reads_the_orders() {
    // Without an audit: what reads the orders here would fill its backlog on a busy machine.
    let world = world().options(|options| options.access.audit = AuditLevel::Off);
    let operator = Caller::local();
    let engine = world.start().await;
    let ada = token("acme/ada", "t");
    let mut beside = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (engine, operator) = (engine.clone(), operator.clone());
        beside.spawn(async move {
            // There is nothing to resume: it only reads the orders.
            loop {
                engine.resume_tenant(&operator, "other").await.unwrap();
            }
        });
    }
    for round in 0..16 {
        engine.suspend_tenant(&operator, "acme", None).await.unwrap();
        let refused = engine.submit(&ada, to("echo", "x")).await;
        assert!(matches!(refused, Err(Error::Suspended(..))), "round {round}: a suspended tenant was served");
        engine.resume_tenant(&operator, "acme").await.unwrap();
        let served = engine.submit(&ada, to("echo", "x")).await;
        assert!(served.is_ok(), "round {round}: {:?}", served.err());
    }
    beside.shutdown().await;
    engine.stop().await;
}

async fn fill(engine: &Engine, owner: &str, tenant: &str) -> Vec<Task> {
    let caller = token(owner, "t");
    let mut tasks = vec![];
    for agent in ["echo", "asks", "stuck"] {
        tasks.push(engine.submit(&caller, to(agent, "x")).await.unwrap());
    }
    for n in 0..70 {
        let (key, value, memory) = (format!("k{n}"), json!({"n": n}), engine.memory());
        memory.store(&caller, "notes", &key, &value, None, ExpectedVersion::Any).await.unwrap();
    }
    let write = |id: &str| RecordWrite {
        key: RecordKey::new(tenant, "sparc.workflow", id),
        body: Some(r#"{"a":1}"#.into()),
        expected: ExpectedVersion::Any,
        expires_at: None,
        now: engine.clock().now(),
    };
    engine.store_for_tests().knowledge().write_records(vec![write("1"), write("2")]).await.unwrap();
    tasks
}

/// What is left of a tenant in the store.
async fn left(engine: &Engine, tenant: &str) -> (usize, usize, usize, usize) {
    let store = engine.store_for_tests();
    let now = engine.clock().now();
    let tasks = engine.admin_list(&Caller::local(), everything(Some(tenant))).await.unwrap().tasks.len();
    let spaces = store.knowledge().namespaces(tenant, "", "", 100, now).await.unwrap().len();
    let records = store.tenants().tenant_records(tenant, None, 100).await.unwrap().len();
    let owners = store.tenants().owners(tenant, "", 100).await.unwrap().len();
    (tasks, spaces, records, owners)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_tenant_leaves_lines_that_name_nobody_and_others_keep_all() {
    let clock = HandClock::new();
    let (world, operator) = (world().clock(&clock), Caller::local());
    let engine = world.start().await;
    fill(&engine, "acme/zoe", "acme").await;
    fill(&engine, "other/eve", "other").await;
    engine.flush_audit().await;
    let lines = async |engine: &Engine| {
        engine.flush_audit().await;
        let query = AuditQuery { limit: 1_000, ..AuditQuery::default() };
        let mut lines = engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
        lines.retain(|(_, line)| line.operation != "tenant.erase");
        lines
    };
    let before = lines(&engine).await;

    let status = engine.erase_tenant(&operator, "acme").await.unwrap();
    let counts = status.order.unwrap().counts;
    assert_eq!((counts.tasks, counts.memory, counts.records), (3, 70, 2), "{counts:?}");
    assert_eq!(left(&engine, "acme").await, (0, 0, 0, 0));
    assert_eq!(left(&engine, "other").await, (3, 1, 2, 1));
    assert!(matches!(
        engine.submit(&token("acme/zoe", "t"), to("echo", "x")).await,
        Err(Error::Suspended(..))
    ));
    let after = lines(&engine).await;
    let of_acme = |line: &str| line.contains("acme") || line.contains("zoe");
    for (no, line) in &before {
        let (_, now) = after.iter().find(|(number, _)| number == no).expect("lines stay");
        assert_eq!((now.at, &now.operation, now.action), (line.at, &line.operation, line.action));
        if line.tenant == "acme" {
            assert!(now.tenant.starts_with("erased:") && now.caller.starts_with(&*now.tenant), "{now:?}");
            assert!(!of_acme(&format!("{now:?}")) && now.from.is_none(), "{now:?}");
        } else {
            assert_eq!(now, line);
        }
    }

    // What is done is said, and the name can be opened again.
    clock.advance(Duration::from_secs(30));
    let done = until("it is done", async || {
        let order = engine.tenant(&operator, "acme").await.unwrap().order.unwrap();
        (order.done && order.state == OrderState::Erased).then_some(order)
    })
    .await;
    assert_eq!((done.counts.tasks, done.counts.memory, done.counts.records), (3, 70, 2));
    engine.resume_tenant(&operator, "acme").await.unwrap();
    let again = engine.submit(&token("acme/zoe", "t"), to("echo", "x")).await.unwrap();
    assert_eq!(again.origin.owner, "acme/zoe");
    // The one record is the salt of the name, which was used before.
    assert_eq!(left(&engine, "acme").await, (1, 0, 1, 1));
    engine.stop().await;
}

/// The process dies with half of it deleted; the next one finds the order, and goes on without being asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_that_a_crash_cut_goes_on_at_the_next_start() {
    let world = world();
    let engine = world.start().await;
    fill(&engine, "acme/zoe", "acme").await;
    engine.stop().await;
    drop(engine);
    let store = world.open().await;
    let order = json!({"state": "erasing", "at": 1, "by": "local", "passes": 0, "salt": "s",
        "worker": [uuid::Uuid::nil(), 2]});
    let write = RecordWrite {
        key: RecordKey::new("home", "operator.order", "tenant:acme"),
        body: Some(order.to_string().into()),
        expected: ExpectedVersion::Absent,
        expires_at: None,
        now: nuncio_engine::clock::Timestamp(1),
    };
    store.knowledge().write_records(vec![write]).await.unwrap();
    store.knowledge().clear_memory("acme", "notes", 35).await.unwrap();
    store.close().await.unwrap();
    drop(store);

    let engine = world.start().await;
    assert!(matches!(
        engine.submit(&token("acme/ada", "t"), to("echo", "x")).await,
        Err(Error::Suspended(..))
    ));
    let done = until("it is done", async || {
        let order = engine.tenant(&Caller::local(), "acme").await.unwrap().order.unwrap();
        order.done.then_some(order)
    })
    .await;
    assert_eq!((done.counts.tasks, done.counts.memory, done.counts.records), (3, 35, 2));
    assert_eq!(left(&engine, "acme").await, (0, 0, 0, 0));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_holds_all_that_a_tenant_has_and_nothing_else() {
    let (world, operator) = (world(), Caller::local());
    let engine = world.start().await;
    fill(&engine, "acme/ada", "acme").await;
    fill(&engine, "other/eve", "other").await;
    let (boss, stranger) = (admin("acme/boss", "read:admin:tenants"), admin("other/eve", "*:admin"));
    for caller in [&operator, &boss] {
        engine.allow_export(caller, "acme").unwrap();
        let (mut tasks, mut keys, mut records) = (0, vec![], 0);
        let mut at = Some(ExportCursor::start());
        while let Some(cursor) = at {
            let page = engine.export_page(caller, "acme", cursor).await.unwrap();
            for item in page.items {
                match item {
                    ExportItem::Task(task) => {
                        assert_eq!((&*task.0.owner, &*task.1.origin.owner), ("acme/ada", "acme/ada"));
                        tasks += 1;
                    }
                    ExportItem::Memory { namespace, entry } => {
                        assert!(namespace == "notes" && entry.value.starts_with("{\"n\":"), "{entry:?}");
                        keys.push(entry.key);
                    }
                    ExportItem::Record(record) => {
                        assert_eq!(record.kind, "sparc.workflow");
                        records += 1;
                    }
                }
            }
            at = page.next;
        }
        keys.dedup();
        assert_eq!((tasks, keys.len(), records), (3, 70, 2));
    }
    engine.allow_export(&stranger, "acme").unwrap_err();
    engine.export_page(&stranger, "acme", ExportCursor::start()).await.unwrap_err();
    engine.stop().await;
}

/// Values that look like secrets are encrypted in the store. Their tenant reads them back, and so does its export.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_encrypted_values_readable() {
    let (world, operator) = (world(), Caller::local());
    let engine = world.start().await;
    let ada = token("acme/ada", "t");
    let value = json!({"password": "correct-horse-battery", "n": 1});
    engine.memory().store(&ada, "vault", "db", &value, None, ExpectedVersion::Any).await.unwrap();
    let key = MemoryKey { tenant: "acme".into(), namespace: "vault".into(), key: "db".into() };
    let stored =
        engine.store_for_tests().knowledge().memory(&key, engine.clock().now()).await.unwrap().unwrap();
    assert!(!stored.value.contains("correct-horse"), "it is encrypted in the store: {stored:?}");

    let mut values = vec![];
    let mut at = Some(ExportCursor::start());
    while let Some(cursor) = at {
        let page = engine.export_page(&operator, "acme", cursor).await.unwrap();
        for item in page.items {
            if let ExportItem::Memory { entry, .. } = item {
                values.push((serde_json::from_str::<Value>(&entry.value).ok(), entry.size));
            }
        }
        at = page.next;
    }
    let size = value.to_string().len() as u64;
    assert_eq!(values, [(Some(value), size)]);
    engine.stop().await;
}

/// Programs and endpoints keep conversations by the digest: who has the name next must not meet those of before.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_of_a_name_that_was_erased_finds_no_conversation_of_the_one_before() {
    let clock = HandClock::new();
    let world =
        world().agent("digest", async |cx: TaskContext| Ok(Outcome::said(cx.context_digest()))).clock(&clock);
    let (operator, zoe, eve) = (Caller::local(), token("acme/zoe", "t"), token("other/eve", "t"));
    let digest = async |engine: &Engine, caller: &Caller| {
        let mut submit = to("digest", "x");
        submit.context = Some("main".into());
        let task = engine.submit(caller, submit).await.unwrap();
        let task = engine.wait_until_idle(caller, task).await.unwrap();
        last_words(&task)
    };
    let engine = world.start().await;
    let (first, others) = (digest(&engine, &zoe).await, digest(&engine, &eve).await);
    assert_eq!(digest(&engine, &zoe).await, first);
    let mut seen = vec![first];
    for _ in 0..2 {
        engine.erase_tenant(&operator, "acme").await.unwrap();
        clock.advance(Duration::from_secs(30));
        until("it is done", async || {
            engine.tenant(&operator, "acme").await.unwrap().order.unwrap().done.then_some(())
        })
        .await;
        engine.resume_tenant(&operator, "acme").await.unwrap();
        let next = digest(&engine, &zoe).await;
        assert!(!seen.contains(&next), "{next} {seen:?}");
        seen.push(next);
    }
    // It outlives the process, and no other tenant notices.
    engine.stop().await;
    let engine = world.start().await;
    assert_eq!(digest(&engine, &zoe).await, seen[2]);
    assert_eq!(digest(&engine, &eve).await, others);
    engine.stop().await;
}
