//! Whole tasks and sessions, from one store to another and back: nothing is missing, and nothing is there twice.

use nuncio_engine::store::{SessionStore as _, TaskStore as _};
use std::{ops::Range, path::Path, sync::Arc};

use nuncio_engine::{
    access::{AccessKind, Action},
    clock::Timestamp,
    content::{Message, Role},
    event::{self, EncodedBatch, Entry, Event},
    knowledge::{
        AuditEntry, ExpectedVersion, Knowledge as _, MemoryKey, MemoryPut, MemoryQuery, MemoryReads,
        MemorySearch, RecordKey, RecordWrite,
    },
    store::{
        Change, DeliveryOutcome, JournalRecord, ListQuery, NewTask, NodeId, Precondition, RunChange, Session,
        Store, TaskKey, Webhook,
    },
    task::{State, TaskId},
};
use nuncio_store::{
    SqliteOptions, SqliteStore,
    archive::{Archive, ArchiveItem, ArchiveKey, ArchiveKind, CopyError, CopyReport, TaskDump, copy},
};
use uuid::Uuid;

pub(crate) fn sqlite(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, SqliteOptions::default()).unwrap()
}

fn words(texts: &[String]) -> EncodedBatch {
    let said = |text: &String| Entry(Timestamp(1), Event::Message(Message::text("m", Role::User, text)));
    event::encode(&texts.iter().map(said).collect::<Vec<_>>())
}

/// Tasks of every kind; what they are depends only on the number.
pub(crate) async fn fill(store: &dyn Store, numbers: Range<u64>) -> Vec<TaskId> {
    let mut ids = vec![];
    for n in numbers {
        let id = TaskId(Uuid::now_v7());
        let mut change = Change::new(Precondition::Create(Box::new(NewTask {
            id,
            client_id: (n % 5 == 0).then(|| format!("client-{n}")),
            owner: if n % 3 == 0 { "alice".into() } else { "bob".into() },
            context: (n % 4 == 0).then(|| "shared".into()),
            agent: if n % 2 == 0 { "echo".into() } else { "worker".into() },
            parent: (n % 7 == 0).then(|| ids.last().copied()).flatten(),
            idempotency: (n % 6 == 0).then(|| (format!("key-{n}"), [n as u8; 32])),
            webhooks: (n % 8 == 0)
                .then(|| Webhook { id: format!("hook-{n}"), cursor: 0, config: "config".into() })
                .into_iter()
                .collect(),
            created_at: Timestamp(1_000 + n as i64),
        })));
        change.events = Some(words(&[format!("born {n}")]));
        let states = [State::Working, State::Completed, State::InputRequired, State::Failed];
        change.state = Some((states[n as usize % 4], Timestamp(2_000 + n as i64)));
        change.head = Some(format!("head {n}").into());
        change.journal = (0..n % 3).map(|k| JournalRecord(format!("record {n} {k}").into())).collect();
        change.run = match n % 4 {
            0 => RunChange::Lease(NodeId(Uuid::nil())),
            2 if n % 8 == 2 => RunChange::Due(Timestamp(9_999)),
            _ => RunChange::Rest,
        };
        let made = store.commit(change).await.unwrap();
        if n % 4 == 0 {
            for more in 0..n % 20 {
                let mut change = Change::new(Precondition::Runner { task: made.task, epoch: made.epoch });
                change.events = Some(words(&[format!("more {more}"), "x".repeat(20)]));
                store.commit(change).await.unwrap();
            }
        }
        if n % 16 == 0 {
            let dead = DeliveryOutcome::Dead {
                seq: 1,
                delivery: format!("delivery-{n}"),
                reason: "gone".into(),
                at: Timestamp(5_000),
            };
            store.record_delivery(made.task, &format!("hook-{n}"), dead).await.unwrap();
        }
        ids.push(id);
    }
    ids
}

/// A session; what it is depends only on the number.
fn session(n: u64) -> Session {
    Session {
        id: format!("session-{n}"),
        owner: ["alice", "bob", "carol"][n as usize % 3].into(),
        body: vec![n as u8; n as usize % 50].into(),
        version: 1 + n % 4,
        used_at: Timestamp(3_000 + n as i64),
    }
}

pub(crate) async fn fill_sessions(store: &dyn Store, numbers: Range<u64>) {
    for n in numbers {
        assert!(store.create_session(session(n), 10_000).await.unwrap());
    }
}

/// Exactly those sessions are there.
pub(crate) async fn compare_sessions(store: &dyn Archive, numbers: Range<u64>) {
    let keys = store.keys(ArchiveKind::Sessions, None, 10_000).await.unwrap();
    assert_eq!(keys.len(), numbers.clone().count());
    for n in numbers {
        let kept = store.read_item(&ArchiveKey::Session(session(n).id)).await.unwrap();
        assert_eq!(kept, Some(ArchiveItem::Session(session(n))));
    }
}

/// Everything of a kind.
pub(crate) async fn all(store: &dyn Archive, kind: ArchiveKind) -> Vec<ArchiveItem> {
    let mut items = vec![];
    for key in store.keys(kind, None, 10_000).await.unwrap() {
        items.push(store.read_item(&key).await.unwrap().unwrap());
    }
    items
}

/// A task with all its data.
pub(crate) async fn dump(store: &dyn Archive, id: TaskId) -> Option<TaskDump> {
    match store.read_item(&ArchiveKey::Task(id)).await.unwrap() {
        Some(ArchiveItem::Task(dump)) => Some(*dump),
        Some(other) => panic!("{other:?} is no task"),
        None => None,
    }
}

/// Memory, records and lines of the audit; what they are depends only on the number.
pub(crate) async fn fill_knowledge(store: &dyn Store, numbers: Range<u64>) {
    let known = store.knowledge();
    for n in numbers {
        let key = MemoryKey {
            tenant: ["home", "acme"][n as usize % 2].into(),
            namespace: format!("space-{}", n % 3),
            key: format!("key/{n}/é"),
        };
        for version in 0..1 + n % 3 {
            let put = MemoryPut {
                key: key.clone(),
                value: format!("{{\"n\":{n},\"version\":{version}}}"),
                text: format!("word{n} Version number {version}"),
                ttl_ms: (n % 4 == 0).then_some(1_000 * n),
                expected: ExpectedVersion::Any,
                now: Timestamp(4_000 + (n + version) as i64),
                max_entries: 1 << 40,
                max_bytes: 1 << 40,
                max_namespaces: 1 << 40,
            };
            known.put_memory(put).await.unwrap();
        }
        known.count_reads(&[MemoryReads { key: key.clone(), reads: n, at: Timestamp(6_000) }]).await.unwrap();
        let mut write = RecordWrite {
            key: RecordKey::new(&*key.tenant, format!("kind-{}", n % 2), format!("id-{n}")),
            body: Some(vec![n as u8; n as usize % 40].into()),
            expected: ExpectedVersion::Any,
            expires_at: (n % 5 == 0).then_some(Timestamp(7_000)),
            now: Timestamp(5_000 + n as i64),
        };
        for _ in 0..1 + n % 2 {
            known.write_records(vec![write.clone()]).await.unwrap();
            write.now = Timestamp(write.now.0 + 1);
        }
        let line = AuditEntry {
            at: Timestamp(8_000 + n as i64),
            tenant: key.tenant.into(),
            caller: format!("caller-{n}").into(),
            from: (n % 2 == 0).then(|| "192.0.2.7".into()),
            operation: "memory.store".into(),
            action: Action::ALL[n as usize % 3],
            kind: AccessKind::ALL[n as usize % 5],
            resource: format!("memory://data/{n}"),
            refused: (n % 7 == 0).then(|| "no".into()),
            credential: None,
        };
        known.append_audit([line].into()).await.unwrap();
    }
}

/// Lines of the audit that name a credential; what they are depends only on the number.
pub(crate) async fn fill_credentials(store: &dyn Store, numbers: Range<u64>) {
    let line = |n: u64| AuditEntry {
        at: Timestamp(9_000 + n as i64),
        tenant: "acme".into(),
        caller: format!("acme/caller-{n}").into(),
        from: None,
        operation: "task.send".into(),
        action: Action::Execute,
        kind: AccessKind::A2a,
        resource: format!("a2a://agents/{n}"),
        refused: None,
        credential: Some(format!("credential-{n}").into()),
    };
    store.knowledge().append_audit(numbers.map(line).collect()).await.unwrap();
}

/// The same knowledge is in both, in every way in which it is asked for.
pub(crate) async fn compare_knowledge(left: &dyn Archive, right: &dyn Archive, count: usize) {
    for kind in [ArchiveKind::Memory, ArchiveKind::Records] {
        let here = all(left, kind).await;
        assert_eq!(here.len(), count);
        assert_eq!(here, all(right, kind).await);
    }
    let here = all(left, ArchiveKind::Audit).await;
    assert!(here.len() >= count);
    assert_eq!(here, all(right, ArchiveKind::Audit).await);
    for (tenant, namespace) in
        [("home", "space-0"), ("acme", "space-0"), ("acme", "space-1"), ("acme", "none")]
    {
        let now = Timestamp(6_500);
        let stats =
            async |store: &dyn Archive| store.knowledge().memory_stats(tenant, namespace, now).await.unwrap();
        assert_eq!(stats(left).await, stats(right).await);
        let found = async |store: &dyn Archive| {
            let query = MemorySearch {
                tenant: tenant.into(),
                namespace: namespace.into(),
                what: MemoryQuery::Words(vec!["VERSION".into(), "number".into()]),
                offset: 0,
                limit: 1_000,
                max_keys: 1_000_000,
                within: std::time::Duration::from_secs(60),
                now,
            };
            let found = store.knowledge().search_memory(&query).await.unwrap();
            let mut keys: Vec<_> = found.entries.into_iter().map(|(entry, _)| entry.key).collect();
            keys.sort_unstable();
            (found.total, keys)
        };
        assert_eq!(found(left).await, found(right).await);
    }
}

async fn copied(from: &dyn Archive, to: &dyn Archive) -> Result<CopyReport, CopyError> {
    copy(from, to, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_the_same_store() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (sqlite(here.path()), sqlite(there.path()));
    let ids = fill(&from, 0..200).await;
    // More sessions than one page.
    fill_sessions(&from, 0..700).await;
    fill_knowledge(&from, 0..150).await;
    let report = CopyReport {
        copied: 200,
        there: 0,
        verified: 200,
        sessions: 700,
        memory: 150,
        records: 150,
        audit: 150,
    };
    assert_eq!(copied(&from, &to).await.unwrap(), report);
    compare(&from, &to, &ids).await;
    compare_sessions(&to, 0..700).await;
    compare_knowledge(&from, &to, 150).await;
    // Again, and nothing is there twice.
    assert_eq!(copied(&from, &to).await.unwrap(), CopyReport { copied: 0, there: 200, ..report });
    compare_sessions(&to, 0..700).await;
    compare_knowledge(&from, &to, 150).await;
    // What is held in one place can be claimed in the other.
    let claimed = to.claim(NodeId(Uuid::now_v7()), Timestamp(1), 100).await.unwrap();
    assert_eq!(claimed.len(), 50);
}

async fn compare(from: &dyn Archive, to: &dyn Archive, ids: &[TaskId]) {
    for id in ids {
        let (left, right) = (dump(from, *id).await, dump(to, *id).await);
        assert!(left.is_some());
        assert_eq!(left, right);
    }
    for owner in ["alice", "bob"] {
        let query = ListQuery {
            owner: owner.into(),
            context: None,
            state: None,
            agent: None,
            since: None,
            after: None,
            limit: 500,
            only_rows: false,
        };
        let (left, right) = (from.list(&query).await.unwrap(), to.list(&query).await.unwrap());
        assert_eq!(left.total, right.total);
        let ids =
            |page: &nuncio_engine::store::ListPage| page.tasks.iter().map(|t| t.row.id).collect::<Vec<_>>();
        assert_eq!(ids(&left), ids(&right));
    }
    assert_eq!(from.load().await.unwrap().live, to.load().await.unwrap().live);
    let key = TaskKey::Client { owner: "alice".into(), id: "client-0".into() };
    assert_eq!(to.row(&key).await.unwrap().unwrap().id, ids[0]);
    assert_eq!(to.idempotent("alice", "key-6").await.unwrap(), Some((ids[6], [6; 32])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_interrupted_goes_on() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (sqlite(here.path()), sqlite(there.path()));
    let ids = fill(&from, 0..60).await;
    for id in &ids[..25] {
        let dump = dump(&from, *id).await.unwrap();
        assert_eq!(to.restore(vec![ArchiveItem::Task(Box::new(dump))]).await.unwrap(), 1);
    }
    fill_sessions(&from, 0..9).await;
    for (n, inserted) in [(3, 1), (3, 0), (7, 1)] {
        assert_eq!(to.restore(vec![ArchiveItem::Session(session(n))]).await.unwrap(), inserted);
    }
    let report = CopyReport { copied: 35, there: 25, verified: 60, sessions: 9, ..CopyReport::default() };
    assert_eq!(copied(&from, &to).await.unwrap(), report);
    compare(&from, &to, &ids).await;
    compare_sessions(&to, 0..9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_found() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (sqlite(here.path()), sqlite(there.path()));
    let ids = fill(&from, 0..10).await;
    copied(&from, &to).await.unwrap();
    let row = to.row(&TaskKey::Id(ids[4])).await.unwrap().unwrap();
    let mut change = Change::new(Precondition::Version { task: row.no, version: row.version });
    change.cancel = Some(true);
    to.commit(change).await.unwrap();
    assert!(matches!(copied(&from, &to).await, Err(CopyError::Differs(id)) if id == ids[4]));
}

/// An entry that was written in one of the stores.
#[tokio::test(flavor = "multi_thread")]
async fn a_difference_of_knowledge_is_found() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (sqlite(here.path()), sqlite(there.path()));
    fill_knowledge(&from, 0..100).await;
    copied(&from, &to).await.unwrap();
    fill_knowledge(&to, 40..41).await;
    let error = copied(&from, &to).await.unwrap_err();
    assert!(matches!(&error, CopyError::KnowledgeDiffers(what) if what.contains("key/40/")), "{error}");
}

/// A session that was changed, or only used, in one of the stores; and the error does not give its id away.
#[tokio::test(flavor = "multi_thread")]
async fn a_difference_of_a_session_is_found() {
    for used in [false, true] {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (sqlite(here.path()), sqlite(there.path()));
        fill_sessions(&from, 0..10).await;
        copied(&from, &to).await.unwrap();
        let one = session(4);
        if used {
            to.touch_sessions(std::slice::from_ref(&one.id), Timestamp(9_000)).await.unwrap();
        } else {
            assert!(to.update_session(&one.id, one.version, "other".into()).await.unwrap());
        }
        let error = copied(&from, &to).await.unwrap_err();
        assert!(matches!(&error, CopyError::SessionDiffers(owner) if *owner == one.owner), "{error}");
        assert!(!error.to_string().contains(&one.id), "{error}");
    }
}

/// A backup is of one moment, although somebody writes all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_store_that_is_written_to_is_whole() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = Arc::new(sqlite(here.path()));
    let before = fill(&*from, 0..50).await;
    let writing = tokio::spawn({
        let from = Arc::clone(&from);
        async move { fill(&*from, 50..350).await }
    });
    let (dir, to) = (here.path().to_owned(), there.path().join("nuncio.db"));
    tokio::task::spawn_blocking(move || SqliteStore::back_up(&dir, &to)).await.unwrap().unwrap();
    writing.await.unwrap();
    let copy = sqlite(there.path());
    for item in all(&copy, ArchiveKind::Tasks).await {
        // Whole: its log is as long as its row says.
        let ArchiveItem::Task(dump) = item else { panic!("{item:?} is no task") };
        let events: usize = dump.log.iter().map(|batch| event::decode(&batch.bytes).unwrap().len()).sum();
        assert_eq!(events as u64, dump.row.seq);
    }
    for id in before {
        assert!(copy.row(&TaskKey::Id(id)).await.unwrap().is_some());
    }
}

/// To PostgreSQL and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_copy_in_postgres_is_the_same_store() {
    let Some(url) = crate::postgres::server() else { return };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, back) = (sqlite(here.path()), sqlite(there.path()));
    let ids = fill(&from, 0..200).await;
    fill_sessions(&from, 0..700).await;
    fill_knowledge(&from, 0..150).await;
    let options = nuncio_store::PostgresOptions {
        // A copy is made by the real clock: it leaves the times as they are.
        time: nuncio_store::TimeSource::Database,
        ..crate::postgres::options()
    };
    let middle = nuncio_store::PostgresStore::open(&url, options).await.unwrap();
    let report = CopyReport {
        copied: 200,
        there: 0,
        verified: 200,
        sessions: 700,
        memory: 150,
        records: 150,
        audit: 150,
    };
    assert_eq!(copied(&from, &middle).await.unwrap(), report);
    compare(&from, &middle, &ids).await;
    compare_sessions(&middle, 0..700).await;
    compare_knowledge(&from, &middle, 150).await;
    // What is new comes after all that was copied.
    let Some(ArchiveItem::Audit(no, line)) = all(&middle, ArchiveKind::Audit).await.pop() else { panic!() };
    middle.append_audit([*line].into()).await.unwrap();
    let after = middle.keys(ArchiveKind::Audit, Some(&ArchiveKey::Audit(no)), 10).await.unwrap();
    assert_eq!(after.len(), 1);
    assert_eq!(copied(&middle, &back).await.unwrap(), CopyReport { audit: 151, ..report });
    compare(&from, &back, &ids).await;
    compare_sessions(&back, 0..700).await;
    compare_knowledge(&middle, &back, 150).await;
    // While a server uses it, it is left alone.
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    middle.heartbeat(NodeId(Uuid::now_v7()), Timestamp(soon + 60_000)).await.unwrap();
    assert!(matches!(copied(&middle, &back).await, Err(CopyError::InUse(_))));
}
