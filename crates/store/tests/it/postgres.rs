//! The suite, on PostgreSQL, and what only a shared database can get wrong. Needs a server:
//! `scripts/postgres run cargo test -p nuncio-store`. Without one these tests say so and do nothing.

use nuncio_engine::store::{SessionStore as _, TaskStore as _, WebhookStore as _};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Engine, EngineParts, Error as EngineError, Message, Next, Outcome,
    Profile, Reply, Role, Submit, Task, TaskContext,
    access::{AccessKind, Action},
    clock::Timestamp,
    event::EncodedBatch,
    knowledge::{AuditEntry, AuditQuery, Knowledge as _},
    store::{
        AddedWebhooks, Change, CommitError, FailedDeliveryQuery, JournalRecord, NewTask, NodeId,
        Precondition, RunChange, Session, Store, StoreNotification, TaskKey, Webhook,
    },
    task::{State, TaskId},
    tenant_store::TenantTasks,
};
use nuncio_store::{
    PostgresError, PostgresOptions, PostgresStore, TimeSource,
    archive::{Archive as _, ArchiveItem, ArchiveKey},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::NoTls;
use uuid::Uuid;

/// The server to test with.
pub(crate) fn server() -> Option<String> {
    let url = std::env::var("NUNCIO_TEST_POSTGRES").ok();
    assert!(
        url.is_some() || std::env::var_os("NUNCIO_TEST_ALL").is_none(),
        "NUNCIO_TEST_POSTGRES is not set"
    );
    if url.is_none() {
        eprintln!("skipped: NUNCIO_TEST_POSTGRES names no server");
    }
    url
}

/// Options with a schema that nobody else uses.
pub(crate) fn options() -> PostgresOptions {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let schema = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    PostgresOptions { schema, readers: 4, time: TimeSource::Given, ..PostgresOptions::default() }
}

/// A schema of its own for each check. Opening it again opens the same data.
fn fresh(url: String) -> impl AsyncFn() -> Arc<dyn Store> {
    let options = options();
    async move || {
        let store = PostgresStore::open(&url, options.clone()).await.unwrap();
        Arc::new(store) as Arc<dyn Store>
    }
}

/// One test per check, where there is a server.
macro_rules! suite {
    ($fresh:path: $($check:ident)*) => {
        mod suite {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $check() {
                    if let Some(url) = super::server() {
                        nuncio_testkit::conformance::$check($fresh(url)).await;
                    }
                }
            )*
        }
    };
}
nuncio_testkit::for_each_check! { suite, super::fresh }

async fn open(url: &str, options: PostgresOptions) -> PostgresStore {
    PostgresStore::open(url, options).await.unwrap()
}

fn new_task() -> NewTask {
    NewTask {
        id: TaskId(Uuid::now_v7()),
        client_id: None,
        owner: "alice".into(),
        context: None,
        agent: "echo".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: Timestamp(1),
    }
}

fn create(new: &NewTask, run: RunChange) -> Change {
    let mut change = Change::new(Precondition::Create(Box::new(new.clone())));
    change.events = Some(EncodedBatch { count: 1, bytes: "born".into() });
    change.state = Some((State::Working, Timestamp(1)));
    change.run = run;
    change
}

fn session(id: &str, used_at: i64) -> Session {
    let used_at = Timestamp(used_at);
    Session { id: id.into(), owner: "alice".into(), body: "body".into(), version: 1, used_at }
}

fn node() -> NodeId {
    NodeId(Uuid::now_v7())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

/// Ten servers that start at once on an empty database make one schema, and all of them can use it.
#[tokio::test(flavor = "multi_thread")]
async fn many_can_start_at_once() {
    let Some(url) = server() else { return };
    let options = options();
    let starts = (0..10).map(|_| PostgresStore::open(&url, options.clone()));
    for store in futures_util::future::join_all(starts).await {
        let store = store.unwrap();
        store.commit(create(&new_task(), RunChange::Rest)).await.unwrap();
    }
    let load = open(&url, options).await.load().await.unwrap();
    assert_eq!(load.live, 10);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let Some(url) = server() else { return };
    let options = options();
    drop(open(&url, options.clone()).await);
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let newer = format!("INSERT INTO {}.schema_version VALUES (1000)", options.schema);
    client.batch_execute(&newer).await.unwrap();
    let error = PostgresStore::open(&url, options).await.unwrap_err();
    assert!(matches!(error, PostgresError::NewerSchema { found: 1000, .. }), "{error}");
    assert!(error.to_string().contains("run a newer nuncio"), "{error}");
}

/// A schema as the first version made it, with a task in it: it is brought up to date, and takes sessions.
#[tokio::test]
async fn a_schema_of_version_1_is_brought_up_to_date() {
    let Some(url) = server() else { return };
    let options = options();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let first = include_str!("../../migrations/postgres/0001_tasks.sql");
    let name = &options.schema;
    let made = format!(
        "CREATE SCHEMA {name}; SET search_path = {name}; CREATE TABLE schema_version (version integer NOT NULL);
         INSERT INTO schema_version VALUES (1); {first}
         INSERT INTO owner (name) VALUES ('bob'), ('alice');"
    );
    client.batch_execute(&made).await.unwrap();
    let store = open(&url, options.clone()).await;
    let new = new_task();
    store.commit(create(&new, RunChange::Rest)).await.unwrap();
    assert!(store.create_session(session("a", 5), 1).await.unwrap());
    assert!(!store.create_session(session("b", 5), 1).await.unwrap());
    // Once: the next to come finds nothing to do.
    let again = open(&url, options).await;
    assert_eq!(again.session("a").await.unwrap(), Some(session("a", 5)));
    assert_eq!(again.row(&TaskKey::Id(new.id)).await.unwrap().unwrap().owner, "alice");
    let versions = client.query("SELECT version FROM schema_version ORDER BY version", &[]).await.unwrap();
    assert_eq!(versions.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Plain creations, those with a key, an id of the client's, a journal or a webhook, repeated ids, and changes of existing
/// tasks, in the same batches: each is decided as if it were alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_all_kinds_of_creations_decides_each_alone() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { writers: 1, ..options() };
    let store = Arc::new(open(&url, options.clone()).await);
    let existing = new_task();
    let existing_no = store.commit(create(&existing, RunChange::Rest)).await.unwrap().task;
    let mut changes = vec![];
    for n in 0..120_u32 {
        let mut new = new_task();
        match n % 6 {
            0 => new.idempotency = Some((format!("key-{}", n / 12), [1; 32])),
            1 => new.client_id = Some(format!("id-{}", n / 12)),
            2 => {
                new.webhooks = vec![Webhook { id: "w".into(), cursor: 0, config: "config".into() }];
            }
            3 if n % 12 == 3 => new.id = existing.id,
            _ => {}
        }
        let mut change = create(&new, if n % 5 == 0 { RunChange::Lease(node()) } else { RunChange::Rest });
        if n % 6 == 4 {
            change.journal = vec![JournalRecord("step".into()), JournalRecord("step".into())];
        }
        if n % 6 == 5 && n % 12 == 5 {
            change.events = None;
        }
        changes.push((n, change));
        if n % 20 == 0 {
            let version = Precondition::Version { task: existing_no, version: 1000 };
            changes.push((1000, Change::new(version)));
        }
    }
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
    // The only writer waits for this row, so that all others gather into one batch.
    client.batch_execute("BEGIN; SELECT FROM task FOR UPDATE").await.unwrap();
    let waits = Change::new(Precondition::Version { task: existing_no, version: 1000 });
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(waits).await }
    });
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let blocked = "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.locktype = 'tuple' AND c.relnamespace = $1::text::regnamespace";
    while client.query(blocked, &[&options.schema]).await.unwrap().is_empty() {
        assert!(std::time::Instant::now() < deadline, "the writer never waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let gathered = changes.len() as i64;
    let commits = changes.into_iter().map(|(n, change)| {
        let store = &store;
        async move { (n, store.commit(change).await) }
    });
    let mut commits = std::pin::pin!(futures_util::future::join_all(commits));
    let queued =
        std::future::poll_fn(|cx| std::task::Poll::Ready(commits.as_mut().poll(cx).is_pending())).await;
    assert!(queued);
    client.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(CommitError::Moved)));
    let (mut created, mut leased) = (0, 0);
    let mut taken = [0; 2];
    for done in commits.await {
        match done {
            (1000, outcome) => assert!(matches!(outcome, Err(CommitError::Moved)), "{outcome:?}"),
            (n, Ok(receipt)) => {
                created += 1;
                leased += i64::from(n % 5 == 0);
                let events = u64::from(n % 12 != 5);
                assert_eq!((receipt.first_seq, receipt.seq, receipt.version), (1, events, 1), "{n}");
                assert_eq!(receipt.epoch, u64::from(n % 5 == 0), "{n}");
                let log = store.log(receipt.task, 0, usize::MAX).await.unwrap();
                assert_eq!(log.len() as u64, events, "{n}");
                assert_eq!(
                    store.journal(receipt.task).await.unwrap().len(),
                    if n % 6 == 4 { 2 } else { 0 },
                    "{n}"
                );
                assert_ne!(n % 12, 3, "{n} has an id that is taken");
            }
            (n, Err(CommitError::Exists { task, digest })) => match n % 6 {
                0 => {
                    taken[0] += 1;
                    assert_eq!(digest, Some([1; 32]));
                }
                1 => taken[1] += 1,
                _ => assert_eq!((n % 12, task), (3, existing.id)),
            },
            (n, other) => panic!("{n}: {other:?}"),
        }
    }
    // Twenty changes share ten keys, and twenty others ten ids.
    assert_eq!(taken, [10, 10]);
    assert_eq!(created, 120 - 20 - 10);
    let count = async |sql: &str| client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count("SELECT count(*) FROM task").await, created + 1);
    assert_eq!(count("SELECT sum(n)::bigint FROM tally").await, created + 1);
    assert_eq!(count("SELECT count(*) FROM webhook").await, 20);
    assert_eq!(count("SELECT count(*) FROM task WHERE node IS NOT NULL").await, leased);
    assert_eq!(count("SELECT cardinality(outcomes)::bigint FROM writer").await, gathered, "it was one batch");
}

/// How many rows of a table were read through its indexes and without them, and how often its indexes were searched.
async fn rows_read(client: &tokio_postgres::Client, schema: &str, table: &str) -> (i64, i64) {
    let sql = "SELECT (sum(i.idx_tup_read) + max(t.seq_tup_read))::bigint, sum(i.idx_scan)::bigint
         FROM pg_stat_user_indexes i JOIN pg_stat_user_tables t USING (relid)
         WHERE i.schemaname = $1 AND i.relname = $2";
    let row = client.query_one(sql, &[&schema, &table]).await.unwrap();
    (row.get(0), row.get(1))
}

/// A list across owners costs what is on its page, however many tasks and failed deliveries others have.
#[tokio::test]
async fn lists_across_owners_read_little_more_than_their_page() {
    let Some(url) = server() else { return };
    let options = options();
    let store = open(&url, options.clone()).await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let fill = format!(
        "SET search_path = {};
         INSERT INTO agent (name) VALUES ('echo');
         INSERT INTO owner (name) SELECT CASE n % 2 WHEN 0 THEN 'acme/' ELSE 'evil/' END || n FROM generate_series(1, 20) n;
         INSERT INTO task (tenant, no, id, agent, state, status_at, created_at, seq, version, epoch, attempts, cancel,
             stirred, snap_seq, unfolded, journaled, hooks, head)
           SELECT o.no, (o.no::bigint << 40) + n, gen_random_uuid(), 1, 4, n * 20 + o.no, 1, 2, 1, 1, 0, false, false, 0, 0, 0,
             0, '' FROM owner o, generate_series(1, 1000) n;
         INSERT INTO tally (tenant, agent, state, slot, n) SELECT o.no, 1, 4, 0, 1000 FROM owner o;
         INSERT INTO webhook (tenant, task, id, cursor, attempts, config) SELECT tenant, no, 'w', 1, 0, '' FROM task;
         UPDATE webhook SET failing_since = task & 1048575, attempts = 1;
         INSERT INTO dead_letter (tenant, task, webhook, seq, delivery, reason, at)
           SELECT tenant, no, 'w', 1, no::text, 'gone', status_at FROM task;
         ANALYZE owner; ANALYZE task; ANALYZE tally; ANALYZE webhook; ANALYZE dead_letter;",
        options.schema
    );
    client.batch_execute(&fill).await.unwrap();
    // What that has read is reported now, and not while the lists are counted.
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let failed = |dead, owner: Option<&str>| FailedDeliveryQuery {
        dead,
        tenant: Some("acme".into()),
        owner: owner.map(str::to_owned),
        after: None,
        limit: 10,
    };
    let tasks = TenantTasks { tenant: Some("acme".into()), limit: 10, ..TenantTasks::default() };
    // Of ten owners one search and their newest task each, and then the page of each, in the index and in the table.
    for (table, most, read) in [
        ("task", 400, None),
        ("dead_letter", 50, Some(failed(true, None))),
        ("dead_letter", 50, Some(failed(true, Some("acme/2")))),
        ("webhook", 50, Some(failed(false, None))),
        ("webhook", 50, Some(failed(false, Some("acme/2")))),
    ] {
        let (before, searches) = rows_read(&client, &options.schema, table).await;
        let found = match &read {
            None => {
                store.tenants().tenant_tasks(&tasks).await.unwrap().into_iter().map(|row| row.owner).collect()
            }
            Some(query) => {
                let found = store.failed_deliveries(query).await.unwrap();
                found.into_iter().map(|failed| failed.row.owner).collect::<Vec<_>>()
            }
        };
        assert_eq!(found.len(), 10, "{table}: {read:?}");
        assert!(found.iter().all(|owner| owner.starts_with("acme/")), "{found:?}");
        // A session reports what it has read a moment later.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let (after, _) = loop {
            let now = rows_read(&client, &options.schema, table).await;
            if now.1 > searches || now.0 > before {
                break now;
            }
            assert!(std::time::Instant::now() < deadline, "{table}: nothing was read: {read:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(after - before <= most, "{table}: {} rows were read: {read:?}", after - before);
    }
}

#[tokio::test]
async fn a_server_that_would_lie_is_refused_unless_that_is_named() {
    let Some(url) = server() else { return };
    let lying = format!("{url}&options=-c%20synchronous_commit%3Doff");
    let error = PostgresStore::open(&lying, options()).await.unwrap_err();
    assert!(
        matches!(&error, PostgresError::NotDurable { name, .. } if name == "synchronous_commit"),
        "{error}"
    );
    for wrong in [vec!["fsync".to_owned()], vec!["off".to_owned()]] {
        PostgresStore::open(&lying, PostgresOptions { allow_unsafe: wrong, ..options() }).await.unwrap_err();
    }
    let allow_unsafe = vec!["synchronous_commit".to_owned()];
    PostgresStore::open(&lying, PostgresOptions { allow_unsafe, ..options() }).await.unwrap();
}

#[tokio::test]
async fn what_is_no_address_or_no_name_is_refused_with_words() {
    for url in ["postgres://", "postgres://host:port/db", "mysql://x"] {
        let error = PostgresStore::open(url, options()).await.unwrap_err();
        assert!(!error.to_string().is_empty(), "{url}: {error}");
    }
    for schema in ["", "Nuncio", "a-b", "x; DROP TABLE task", "ä"] {
        let options = PostgresOptions { schema: schema.into(), ..options() };
        let error = PostgresStore::open("postgres://localhost/db", options).await.unwrap_err();
        assert!(matches!(&error, PostgresError::Url(_)), "{error}");
    }
}

/// Whose clock is a day ahead neither finds others dead nor wakes what sleeps nor deletes what is young.
#[tokio::test]
async fn a_node_whose_clock_jumps_steals_nothing() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { time: TimeSource::Database, ..options() };
    let store = open(&url, options).await;
    let (honest, jumped) = (node(), node());
    let minute = 60_000;
    store.heartbeat(honest, Timestamp(now() + minute)).await.unwrap();
    store.commit(create(&new_task(), RunChange::Lease(honest))).await.unwrap();
    store.commit(create(&new_task(), RunChange::Due(Timestamp(now() + minute)))).await.unwrap();
    let mut ended = create(&new_task(), RunChange::Rest);
    ended.state = Some((State::Completed, Timestamp(now())));
    store.commit(ended).await.unwrap();
    let tomorrow = Timestamp(now() + 24 * 60 * minute);
    assert!(store.claim(jumped, tomorrow, 10).await.unwrap().is_empty());
    assert_eq!(store.load().await.unwrap().queued, 0);
    // The wait is right for whoever sleeps by it, whatever its clock says.
    let due = store.next_due().await.unwrap().unwrap().0 - now();
    assert!((minute - 5_000..=minute + 5_000).contains(&due), "{due}");
    assert_eq!(store.expire(Timestamp(now() - minute), 10).await.unwrap(), 0);
    assert_eq!(store.expire(Timestamp(now() + minute), 10).await.unwrap(), 1);
}

/// A database whose clock is a day ahead of its nodes: a session is as old as it was used long ago, for whoever
/// reads it and for whoever forgets it.
#[tokio::test]
async fn sessions_are_as_old_as_the_database_says() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { time: TimeSource::Database, ..options() };
    let store = open(&url, options.clone()).await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (minute, day) = (60_000, 24 * 60 * 60_000);
    let ahead = format!(
        "CREATE OR REPLACE FUNCTION {}.time_or(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS
         $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {day} $$",
        options.schema
    );
    client.batch_execute(&ahead).await.unwrap();
    let age = async |id: &str| now() - store.session(id).await.unwrap().unwrap().used_at.0;
    for id in ["used", "unused"] {
        assert!(store.create_session(session(id, now() - 30 * minute), 9).await.unwrap());
        assert!((29 * minute..=31 * minute).contains(&age(id).await));
    }
    store.touch_sessions(&["used".into()], Timestamp(now())).await.unwrap();
    assert!((-minute..=minute).contains(&age("used").await));
    let Some(ArchiveItem::Session(kept)) =
        store.read_item(&ArchiveKey::Session("used".into())).await.unwrap()
    else {
        panic!("the session is gone")
    };
    let kept = kept.used_at.0 - now();
    assert!((day - minute..=day + minute).contains(&kept), "by the database's clock: {kept}");
    assert_eq!(store.expire_sessions(None, Timestamp(now() - 60 * minute), 9).await.unwrap(), 0);
    assert_eq!(store.expire_sessions(None, Timestamp(now() - 10 * minute), 9).await.unwrap(), 1);
    assert!(store.session("used").await.unwrap().is_some());
}

/// What one process commits another hears of: the task, that something is due, that the run has to look.
#[tokio::test(flavor = "multi_thread")]
async fn others_hear_what_was_committed() {
    let Some(url) = server() else { return };
    let options = options();
    let (here, there) = (open(&url, options.clone()).await, open(&url, options).await);
    let mut news = there.notifications().unwrap();
    assert!(there.notifications().is_none(), "for the first who asks");
    let mut hear = async |wanted: fn(&StoreNotification) -> bool| {
        let heard = async {
            loop {
                let heard = news.recv().await.unwrap();
                if wanted(&heard) {
                    return heard;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.unwrap()
    };
    hear(|news| matches!(news, StoreNotification::Gap)).await;
    // Who finds nobody else alive tells nobody.
    for store in [&there, &here] {
        store.heartbeat(node(), Timestamp(1_000_000)).await.unwrap();
    }
    let (new, runner) = (new_task(), node());
    let made = here.commit(create(&new, RunChange::Lease(runner))).await.unwrap();
    let mut more = Change::new(Precondition::Runner { task: made.task, epoch: made.epoch });
    more.events = Some(EncodedBatch { count: 2, bytes: "more".into() });
    here.commit(more).await.unwrap();
    let heard = hear(|news| matches!(news, StoreNotification::Task { .. })).await;
    assert_eq!(heard, StoreNotification::Task { no: made.task, id: new.id, seq: 3 });
    here.commit(create(&new_task(), RunChange::Due(Timestamp(0)))).await.unwrap();
    hear(|news| matches!(news, StoreNotification::Due)).await;
    here.notify_nodes("=acme\nmemory://data/n/a b é".into());
    let heard = hear(|news| matches!(news, StoreNotification::Knowledge(_))).await;
    assert_eq!(heard, StoreNotification::Knowledge("=acme\nmemory://data/n/a b é".into()));
}

/// Whoever has the database can write to it, but not quietly: the audit refuses to be changed by statements.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_cannot_be_changed() {
    let Some(url) = server() else { return };
    let options = options();
    let store = open(&url, options.clone()).await;
    let line = AuditEntry {
        at: Timestamp(10),
        tenant: "acme".into(),
        caller: "acme/ada".into(),
        from: None,
        operation: "memory.delete".into(),
        action: Action::Write,
        kind: AccessKind::Memory,
        resource: "memory://data/n/k\0".into(),
        refused: None,
        credential: None,
    };
    store.append_audit([line.clone(), line].into()).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
    for sql in [
        "UPDATE audit SET caller = 'nobody'",
        "DELETE FROM audit WHERE no = 1",
        "DELETE FROM audit",
        "TRUNCATE audit",
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        let said = error.as_db_error().map(|said| said.message().to_owned()).unwrap_or_default();
        assert!(said.contains("only appended to"), "{sql}: {error}");
    }
    let everything = AuditQuery { limit: 10, ..AuditQuery::default() };
    let lines = store.audit(&everything).await.unwrap().entries;
    assert_eq!(lines.len(), 2);
    assert_eq!((&*lines[0].1.caller, &*lines[0].1.resource), ("acme/ada", "memory://data/n/k\u{fffd}"));
    assert_eq!(store.expire_audit(Timestamp(11), 1).await.unwrap(), 1, "age removes it");
    client.batch_execute("DELETE FROM audit").await.unwrap_err();
    assert_eq!(store.audit(&everything).await.unwrap().entries.len(), 1);
}

/// What others write to a task is found by its runner also where nobody rang.
#[tokio::test]
async fn a_runner_finds_what_others_wrote() {
    let Some(url) = server() else { return };
    let store = open(&url, options()).await;
    let (new, runner) = (new_task(), node());
    let made = store.commit(create(&new, RunChange::Lease(runner))).await.unwrap();
    assert_eq!(store.held_tasks(runner).await.unwrap(), [new.id]);
    assert!(store.externally_written_tasks(runner).await.unwrap().is_empty());
    let mut wish = Change::new(Precondition::Version { task: made.task, version: made.version });
    wish.cancel = Some(true);
    store.commit(wish).await.unwrap();
    assert_eq!(store.externally_written_tasks(runner).await.unwrap(), [new.id]);
    assert!(store.externally_written_tasks(node()).await.unwrap().is_empty());
    let heard =
        store.commit(Change::new(Precondition::Runner { task: made.task, epoch: made.epoch })).await.unwrap();
    assert!(heard.cancel && heard.version > made.version + 1, "it is told with its next commit");
    assert!(store.externally_written_tasks(runner).await.unwrap().is_empty());
}

/// Connections that are cut in the middle of their transactions: every change is done in the end, and once.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_lose_and_repeat_nothing() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { writers: 3, ..options() };
    let schema = options.schema.clone();
    let store = Arc::new(open(&url, options).await);
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    // Whoever has a lock on a table of this test is at work for it.
    let cutting = tokio::spawn({
        async move {
            loop {
                let sql = "SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                     JOIN pg_namespace n ON n.oid = c.relnamespace
                     WHERE n.nspname = $1 AND l.pid <> pg_backend_pid() AND random() < 0.3";
                client.execute(sql, &[&schema]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    });
    let runner = node();
    let writing = (0..16).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let new = new_task();
            let made = loop {
                match store.commit(create(&new, RunChange::Lease(runner))).await {
                    Ok(made) => break made,
                    Err(CommitError::Store(_)) => {}
                    Err(CommitError::Exists { .. }) => {
                        let row = loop {
                            if let Ok(Some(row)) = store.row(&TaskKey::Id(new.id)).await {
                                break row;
                            }
                        };
                        assert_eq!((row.seq, row.version), (1, 1));
                        break nuncio_engine::store::CommitReceipt {
                            task: row.no,
                            first_seq: 1,
                            seq: 1,
                            version: 1,
                            epoch: row.epoch,
                            cancel: false,
                            unfolded: 4,
                        };
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            for n in 0..60_u64 {
                let mut more = Change::new(Precondition::Runner { task: made.task, epoch: made.epoch });
                more.events = Some(EncodedBatch { count: 1, bytes: n.to_string().into() });
                // As the runner does it: what is not available is tried again, what is done is not.
                let done = loop {
                    match store.commit(more.clone()).await {
                        Ok(done) => break done,
                        Err(CommitError::Store(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                assert_eq!((done.first_seq, done.seq, done.version), (n + 2, n + 2, n + 2));
            }
            made.task
        })
    });
    for task in futures_util::future::join_all(writing.collect::<Vec<_>>()).await {
        let task = task.unwrap();
        let mut log = vec![];
        while let Some(batch) = {
            let after = log.len() as u64;
            loop {
                if let Ok(found) = store.log(task, after, 1).await {
                    break found.into_iter().next();
                }
            }
        } {
            log.push(String::from_utf8(batch.bytes.to_vec()).unwrap());
        }
        let expected: Vec<String> =
            std::iter::once("born".to_owned()).chain((0..60).map(|n| n.to_string())).collect();
        assert_eq!(log, expected);
    }
    cutting.abort();
}

/// Between a store and its server: now and then it swallows an answer and hangs up, so that what was asked for is
/// done and nobody heard of it. Returns the address to use instead.
async fn forgetful(url: &str) -> String {
    let socket = url.rsplit("host=").next().unwrap().replace("%2F", "/");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let answers = Arc::new(AtomicU32::new(0));
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let (socket, answers) = (format!("{socket}/.s.PGSQL.5432"), Arc::clone(&answers));
            tokio::spawn(async move {
                let server = tokio::net::UnixStream::connect(socket).await.unwrap();
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let mut bytes = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                    if answers.fetch_add(1, Ordering::Relaxed) % 17 == 16
                        || to_client.write_all(&bytes[..count]).await.is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    format!("postgres://nuncio@127.0.0.1:{port}/postgres")
}

/// What was committed although its answer was lost is not committed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_done_once() {
    let Some(url) = server() else { return };
    let options = options();
    let plain = open(&url, options.clone()).await;
    let made = plain.commit(create(&new_task(), RunChange::Lease(node()))).await.unwrap();
    let store = loop {
        if let Ok(store) = PostgresStore::open(&forgetful(&url).await, options.clone()).await {
            break store;
        }
    };
    for n in 0..200_u64 {
        let mut more = Change::new(Precondition::Runner { task: made.task, epoch: made.epoch });
        more.events = Some(EncodedBatch { count: 1, bytes: n.to_string().into() });
        let done = loop {
            match store.commit(more.clone()).await {
                Ok(done) => break done,
                Err(CommitError::Store(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!((done.first_seq, done.seq, done.version), (n + 2, n + 2, n + 2));
    }
}

/// A change with webhooks is several statements of one transaction: wherever it is cut, it is done once.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_with_webhooks_whose_answer_is_lost_is_done_once() {
    let Some(url) = server() else { return };
    let options = options();
    let plain = open(&url, options.clone()).await;
    let new = new_task();
    let made = plain.commit(create(&new, RunChange::Rest)).await.unwrap();
    let store = loop {
        if let Ok(store) = PostgresStore::open(&forgetful(&url).await, options.clone()).await {
            break store;
        }
    };
    for n in 1..100_u64 {
        let hook = Webhook { id: "w".into(), cursor: n, config: n.to_string().into() };
        let mut more = Change::new(Precondition::Version { task: made.task, version: n });
        more.events = Some(EncodedBatch { count: 1, bytes: n.to_string().into() });
        more.webhooks = Some(AddedWebhooks { hooks: vec![hook.clone()], cap: 1 });
        loop {
            match store.commit(more.clone()).await {
                Ok(done) => break assert_eq!((done.first_seq, done.version), (n + 1, n + 1)),
                // It was done, although it was reported as failed.
                Err(CommitError::Moved) => break,
                Err(CommitError::Store(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let row = plain.row(&TaskKey::Id(new.id)).await.unwrap().unwrap();
        assert_eq!((row.seq, row.version), (n + 1, n + 1));
        assert_eq!(plain.webhooks(made.task).await.unwrap(), [hook]);
    }
}

/// Asks, and says the answer.
struct Curious;

#[async_trait::async_trait]
impl Agent for Curious {
    fn profile(&self) -> Profile {
        Profile::new("curious", "asks")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let form =
            serde_json::json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        cx.progress(0.0, None, "asking").await?;
        cx.ask("Who?", form).await?;
        Ok(Outcome::said("thanks"))
    }
}

async fn engine(store: PostgresStore) -> Engine {
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(Curious)).unwrap();
    let mut parts = EngineParts::new(Arc::new(store), catalog);
    parts.options.lease = Duration::from_secs(2);
    Engine::start(parts).await.unwrap()
}

async fn asking(engine: &Engine) -> Task {
    let message = Message::text(Uuid::now_v7().to_string(), Role::User, "go");
    let task = engine.submit(&Caller::local(), Submit::new("curious", message)).await.unwrap();
    engine.wait_until_idle(&Caller::local(), task).await.unwrap()
}

fn answer(task: &Task) -> Reply {
    Reply {
        task: task.origin.id.to_string(),
        context: None,
        message: Message::text(Uuid::now_v7().to_string(), Role::User, "me"),
        idempotency_key: None,
        webhooks: vec![],
    }
}

/// Follows a task to its end.
async fn end_of(engine: &Engine, task: &Task) {
    let id = task.origin.id.to_string();
    let followed = async {
        loop {
            // On a busy machine thousands wait for few connections, and a read that waits too long is refused.
            let mut follower = match engine.follow(&Caller::local(), &id, task.seq).await {
                Ok(follower) => follower,
                Err(EngineError::Busy { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            loop {
                match follower.next().await {
                    Ok(Next::End) => return,
                    Ok(_) => {}
                    Err(EngineError::Busy { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), followed).await.unwrap();
}

/// However many follow, they hold no connection; and all of them hear of the end.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_followers_hold_no_connection() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { time: TimeSource::Database, ..options() };
    let name = format!("nuncio {}", options.schema);
    let most = (options.readers + options.writers + 1) as i64;
    let (here, there) =
        (engine(open(&url, options.clone()).await).await, engine(open(&url, options).await).await);
    let task = asking(&here).await;
    let (ready, mut followers) = (Arc::new(tokio::sync::Semaphore::new(0)), tokio::task::JoinSet::new());
    for _ in 0..5_000 {
        let (there, task, ready) = (there.clone(), task.clone(), Arc::clone(&ready));
        followers.spawn(async move {
            ready.add_permits(1);
            end_of(&there, &task).await;
        });
    }
    let all = ready.acquire_many(5_000);
    drop(tokio::time::timeout(Duration::from_secs(60), all).await.unwrap().unwrap());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let open: i64 = client.query_one(count, &[&name]).await.unwrap().get(0);
    assert!(open <= 2 * most, "{open} connections of two nodes");
    here.reply(&Caller::local(), answer(&task)).await.unwrap();
    followers.join_all().await;
    let open: i64 = client.query_one(count, &[&name]).await.unwrap().get(0);
    assert!(open <= 2 * most, "{open} connections of two nodes");
}

/// Nodes that hear no news find out all the same: the follower, the runner, the one who claims.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_news_came_of_is_found() {
    let Some(url) = server() else { return };
    let options = PostgresOptions { time: TimeSource::Database, ..options() };
    let (left, right) = (open(&url, options.clone()).await, open(&url, options).await);
    // Whoever has taken the news and lets them go is deaf from then on.
    drop((left.notifications(), right.notifications()));
    let (left, right) = (engine(left).await, engine(right).await);
    let task = asking(&left).await;
    let following = tokio::spawn({
        let (right, task) = (right.clone(), task.clone());
        async move { end_of(&right, &task).await }
    });
    right.reply(&Caller::local(), answer(&task)).await.unwrap();
    end_of(&left, &task).await;
    following.await.unwrap();
    for engine in [left, right] {
        let task = engine.get(&Caller::local(), &task.origin.id.to_string()).await.unwrap();
        assert_eq!(task.state, State::Completed);
    }
}
