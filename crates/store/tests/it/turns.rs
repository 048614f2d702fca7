//! Tenants take turns at the one thread that writes.

use nuncio_engine::store::TaskStore as _;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{
    clock::Timestamp,
    event::EncodedBatch,
    store::{Change, NewTask, Precondition, RunChange},
    task::{State, TaskId},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

const MANY: usize = 3_000;

fn creation(owner: &str) -> Change {
    let new = NewTask {
        id: TaskId(Uuid::now_v7()),
        client_id: None,
        owner: owner.into(),
        context: None,
        agent: "echo".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: Timestamp(0),
    };
    let mut change = Change::new(Precondition::Create(Box::new(new))).of_owner(owner);
    change.events = Some(EncodedBatch { count: 1, bytes: vec![b'x'; 2_000].into() });
    change.state = Some((State::Submitted, Timestamp(0)));
    change.run = RunChange::Rest;
    change
}

/// With one worker of the runtime the order in which commits are sent is known: thousands of one tenant's, then one of
/// the other's.
#[tokio::test]
async fn a_commit_does_not_wait_for_thousands_of_another_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap());
    let written = Arc::new(AtomicUsize::new(0));
    let mut commits = JoinSet::new();
    for _ in 0..MANY {
        let (store, written) = (Arc::clone(&store), Arc::clone(&written));
        commits.spawn(async move {
            store.commit(creation("evil/mallory")).await.unwrap();
            written.fetch_add(1, Ordering::Relaxed);
        });
    }
    let good = tokio::spawn({
        let (store, written) = (Arc::clone(&store), Arc::clone(&written));
        async move {
            // On a busy machine some have been written by now: they did not go before it, but came before it.
            let earlier = written.load(Ordering::Relaxed);
            store.commit(creation("good/ada")).await.unwrap();
            (earlier, written.load(Ordering::Relaxed) - earlier)
        }
    });
    let (earlier, before) = timeout(Duration::from_secs(60), good).await.unwrap().unwrap();
    let waiting = MANY - earlier;
    assert!(before <= waiting / 2 + 256, "{before} of {waiting} commits of the other tenant went first");
    timeout(Duration::from_secs(60), commits.join_all()).await.unwrap();
    assert_eq!(written.load(Ordering::Relaxed), MANY);
}

/// Another program holds the database: a commit fails and says so, and the next one goes well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_learns_that_a_transaction_could_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let other = rusqlite::Connection::open(folder.path().join("nuncio.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = timeout(Duration::from_secs(20), store.commit(creation("acme/ada"))).await;
    assert!(refused.expect("it was never answered").is_err());
    other.execute_batch("ROLLBACK").unwrap();
    store.commit(creation("acme/ada")).await.unwrap();
}
