//! What only a file can get wrong: locks, versions, room, and the length of the write-ahead log.

use nuncio_engine::store::{TaskStore as _, WebhookStore as _};
use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{
    access::{AccessKind, Action},
    clock::Timestamp,
    event::EncodedBatch,
    knowledge::{AuditEntry, AuditQuery, Knowledge as _},
    store::{
        Change, CommitError, DeliveryOutcome, ListQuery, NewTask, NodeId, Precondition, RunChange, Store,
        StoreError, TaskKey, Webhook,
    },
    task::{State, TaskId},
};
use nuncio_store::{SqliteOpenError, SqliteOptions, SqliteStore};
use tokio::task::JoinSet;
use uuid::Uuid;

fn open(dir: &Path) -> Result<SqliteStore, SqliteOpenError> {
    SqliteStore::open(dir, SqliteOptions::default())
}

fn echo(bytes: usize) -> (TaskId, Change) {
    let id = TaskId(Uuid::now_v7());
    let mut change = Change::new(Precondition::Create(Box::new(NewTask {
        id,
        client_id: None,
        owner: "alice".into(),
        context: None,
        agent: "echo".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: Timestamp(1),
    })));
    change.events = Some(EncodedBatch { count: 4, bytes: vec![b'x'; bytes].into() });
    change.state = Some((State::Completed, Timestamp(1)));
    change.run = RunChange::Rest;
    (id, change)
}

#[tokio::test]
async fn two_stores_never_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new").join("folder");
    let first = open(&dir).unwrap();
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let error = open(&dir).unwrap_err();
    assert!(matches!(error, SqliteOpenError::Locked { holder: Some(pid), .. } if pid == std::process::id()));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");

    first.close().await.unwrap();
    let second = open(&dir).expect("a closed store has let go of the folder");
    drop(second);
    open(&dir).expect("and so has a dropped one");
}

/// One process holds the folder, so at open all nodes of earlier ones are dead, whatever they had promised.
#[tokio::test]
async fn leases_end_with_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (NodeId(Uuid::now_v7()), NodeId(Uuid::now_v7()));
    let store = open(folder.path()).unwrap();
    store.heartbeat(before, Timestamp(1_000_000)).await.unwrap();
    let (id, mut change) = echo(10);
    change.state = Some((State::Working, Timestamp(1)));
    change.run = RunChange::Lease(before);
    let task = store.commit(change).await.unwrap().task;
    for name in ["delivering", "waiting"] {
        let hook = Webhook { id: name.into(), cursor: 0, config: "".into() };
        store.put_webhook(task, hook, 9).await.unwrap();
    }
    let lease = Duration::from_secs(1_000);
    assert_eq!(store.claim_deliveries(before, Timestamp(2), lease, 9).await.unwrap().len(), 2);
    let retry = DeliveryOutcome::Retry { up_to: 0, at: Timestamp(500), reason: "refused".into() };
    store.record_delivery(task, "waiting", retry).await.unwrap();
    assert!(store.claim(after, Timestamp(3), 9).await.unwrap().is_empty());
    assert!(store.claim_deliveries(after, Timestamp(3), lease, 9).await.unwrap().is_empty());
    drop(store);

    let store = open(folder.path()).unwrap();
    let claimed = store.claim(after, Timestamp(4), 9).await.unwrap();
    assert_eq!((claimed[0].row.id, claimed[0].row.attempts), (id, 1));
    let deliveries = store.claim_deliveries(after, Timestamp(4), lease, 9).await.unwrap();
    assert_eq!(deliveries.len(), 1, "a retry keeps its time");
    assert_eq!(deliveries[0].hook.id, "delivering");
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let path = folder.path().join("nuncio.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(error, SqliteOpenError::NewerSchema { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("schema 99") && error.to_string().contains("up to 9"), "{error}");
    let version: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 99, "and left as it was");
}

#[test]
fn something_else_is_not_taken_for_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nuncio.db");
    std::fs::write(&path, "my diary, do not overwrite. ".repeat(1_000)).unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("not a database"), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("my diary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers_unaided() {
    let folder = tempfile::tempdir().unwrap();
    let cap = Arc::new(AtomicU32::new(200));
    let options = SqliteOptions { max_pages: Some(Arc::clone(&cap)), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(folder.path(), options).unwrap());
    let mut kept = vec![];
    let refused = loop {
        let (id, change) = echo(20_000);
        match store.commit(change).await {
            Ok(_) => kept.push(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CommitError::Store(StoreError::Full(_))), "{refused:?}");
    assert!(kept.len() > 10, "there was room at first: {}", kept.len());
    assert!(matches!(store.ready().await, Err(StoreError::Full(_))));
    // Everybody in a batch that did not fit is told, and told the truth.
    let mut commits = JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&store);
        commits.spawn(async move {
            let (id, change) = echo(20_000);
            (id, store.commit(change).await.is_ok())
        });
    }
    for (id, accepted) in commits.join_all().await {
        assert_eq!(store.row(&TaskKey::Id(id)).await.unwrap().is_some(), accepted);
    }
    for id in &kept {
        assert_eq!(store.open(&TaskKey::Id(*id)).await.unwrap().unwrap().log[0].bytes.len(), 20_000);
    }

    cap.store(u32::MAX - 1, Ordering::Relaxed);
    store.ready().await.expect("there is room again");
    let (id, change) = echo(20_000);
    store.commit(change).await.expect("and it is used");
    assert!(store.row(&TaskKey::Id(id)).await.unwrap().is_some());
    store.ready().await.unwrap();
}

/// A change that the database itself refuses, together with others that it takes.
#[tokio::test(flavor = "multi_thread")]
async fn one_poisonous_change_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    rusqlite::Connection::open(folder.path().join("nuncio.db"))
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER poison BEFORE INSERT ON log WHEN length(NEW.bytes) = 13
             BEGIN SELECT raise(ABORT, 'poison'); END",
        )
        .unwrap();
    let store = Arc::new(open(folder.path()).unwrap());
    let mut commits = JoinSet::new();
    for n in 0..200 {
        let store = Arc::clone(&store);
        commits.spawn(async move {
            let poisonous = n % 50 == 0;
            let (id, change) = echo(if poisonous { 13 } else { 700 });
            let answer = store.commit(change).await;
            assert_eq!(answer.is_err(), poisonous, "{answer:?}");
            assert_eq!(store.row(&TaskKey::Id(id)).await.unwrap().is_some(), !poisonous);
        });
    }
    commits.join_all().await;
    assert_eq!(total(&store, "alice").await, 196, "nothing of the others was counted");

    // The first of its owner failed, and the name that was stored with it is gone: the next one stores it again.
    for (bytes, accepted) in [(13, false), (700, true)] {
        let (id, mut change) = echo(bytes);
        let Precondition::Create(new) = &mut change.guard else { unreachable!() };
        new.owner = "bob".into();
        assert_eq!(store.commit(change).await.is_ok(), accepted);
        let row = store.row(&TaskKey::Id(id)).await.unwrap();
        assert_eq!(row.map(|row| row.owner), accepted.then(|| "bob".into()));
    }
    assert_eq!(total(&store, "bob").await, 1);
}

async fn total(store: &SqliteStore, owner: &str) -> u64 {
    let query = ListQuery {
        owner: owner.into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 1,
        only_rows: false,
    };
    store.list(&query).await.unwrap().total
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_short_under_load() {
    const PAGES: u64 = 100;
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { wal_pages: PAGES as u32, ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(folder.path(), options).unwrap());
    let (first, change) = echo(700);
    store.commit(change).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        readers.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                store.open(&TaskKey::Id(first)).await.unwrap().unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    let mut writers = JoinSet::new();
    for _ in 0..16 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for _ in 0..500 {
                store.commit(echo(700).1).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    done.store(true, Ordering::Relaxed);
    readers.join_all().await;

    let length = |file: &str| folder.path().join(file).metadata().unwrap().len() / 4_096;
    assert!(length("nuncio.db") > 5 * PAGES, "enough was written to fill the log many times over");
    assert!(length("nuncio.db-wal") < 6 * PAGES, "the log has {} pages", length("nuncio.db-wal"));
    store.close().await.unwrap();
    assert_eq!(length("nuncio.db-wal"), 0, "a closed store leaves no log behind");
}

/// Whoever has the file can write to it, but not quietly: the audit refuses to be changed by statements.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let line = AuditEntry {
        at: Timestamp(10),
        tenant: "acme".into(),
        caller: "acme/ada".into(),
        from: None,
        operation: "memory.delete".into(),
        action: Action::Write,
        kind: AccessKind::Memory,
        resource: "memory://data/n/k".into(),
        refused: None,
        credential: None,
    };
    store.append_audit([line.clone(), line.clone()].into()).await.unwrap();
    let conn = rusqlite::Connection::open(folder.path().join("nuncio.db")).unwrap();
    for sql in [
        "UPDATE audit SET caller = 'nobody'",
        "UPDATE audit SET no = no + 100",
        "DELETE FROM audit WHERE no = 1",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT no, at, owner, 'nobody', origin, operation, action, kind, resource, refused,
           credential, tenant FROM audit",
    ] {
        let error = conn.execute(sql, []).unwrap_err().to_string();
        assert!(error.contains("only appended to"), "{sql}: {error}");
    }
    let everything = AuditQuery { limit: 10, ..AuditQuery::default() };
    assert_eq!(store.audit(&everything).await.unwrap().entries, [(2, line.clone()), (1, line.clone())]);
    assert_eq!(store.expire_audit(Timestamp(11), 1).await.unwrap(), 1, "age removes it");
    conn.execute("DELETE FROM audit", []).unwrap_err();
    assert_eq!(store.audit(&everything).await.unwrap().entries, [(2, line.clone())]);

    // Nor after an erasure, which changes whom lines name.
    let erased = AuditEntry { tenant: "erased:1".into(), caller: "erased:1/2".into(), ..line.clone() };
    store.append_audit([line.clone()].into()).await.unwrap();
    store.tenants().rewrite_audit("acme", vec![(2, erased.clone())]).await.unwrap();
    conn.execute("UPDATE audit SET caller = 'nobody' WHERE no = 3", []).unwrap_err();
    assert_eq!(store.audit(&everything).await.unwrap().entries, [(3, line), (2, erased)]);
}
