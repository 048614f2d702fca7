//! Checks of concurrent commits: on one task, and for one name.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_engine::{
    event::EncodedBatch,
    store::{CommitError, NewTask, Precondition, RunChange, Store},
    task::{State, TaskId},
};
use tokio::task::JoinSet;

use super::fixtures::{
    StoreFixtureExt, at, by_runner, by_version, create, create_as, events, new_task, node,
};

/// A runner and many callers write to one task concurrently. The log read back is 1..n, each once, and holds
/// what each commit's receipt named.
pub async fn sequence_has_no_gaps(open: impl AsyncFn() -> Arc<dyn Store>) {
    const COMMITS: u32 = 400;
    let store = open().await;
    let new = new_task();
    let id = new.id;
    let made = store.commit_ok(create_as(new, State::Working, at(0), RunChange::Lease(node()))).await;
    let mut commits = JoinSet::new();
    for n in 0..COMMITS {
        let store = Arc::clone(&store);
        // The number of events, with the id of the commit in the bytes.
        let batch = events(n % 3 + 1, n.to_be_bytes().to_vec());
        if n % 2 == 0 {
            commits.spawn(async move {
                let mut change = by_runner(made.task, made.epoch);
                change.events = Some(batch.clone());
                (store.commit_ok(change).await.first_seq, batch)
            });
        } else {
            commits.spawn(async move { (by_caller(&store, id, &batch).await, batch) });
        }
    }
    let mut written: BTreeMap<u64, EncodedBatch> = commits.join_all().await.into_iter().collect();
    assert_eq!(written.len(), COMMITS as usize, "no two commits begin at the same place");
    written.insert(1, events(1, "born"));

    let opened = store.opened(id).await;
    let mut next = 1;
    for batch in &opened.log {
        assert_eq!(batch.first_seq, next, "a gap, or a repetition");
        let told = &written[&batch.first_seq];
        assert_eq!(batch.bytes, told.bytes, "another batch than its commit was told");
        next += u64::from(told.count);
    }
    assert_eq!(opened.log.len(), written.len());
    assert_eq!((opened.row.seq, opened.row.version), (next - 1, u64::from(COMMITS) + 1));
}

/// Reads, decides and commits, and retries while other commits come first.
async fn by_caller(store: &Arc<dyn Store>, id: TaskId, batch: &EncodedBatch) -> u64 {
    loop {
        let row = store.row_of(id).await;
        let mut change = by_version(row.no, row.version);
        change.events = Some(batch.clone());
        match store.commit(change).await {
            Ok(done) => return done.first_seq,
            Err(CommitError::Moved) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Requests that arrive together with the same id, client id or key, likely in one batch: one of them creates
/// the task, and all others get its id.
pub async fn colliding_creates_make_one_task(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let id = new_task().id;
    let kinds: [fn(TaskId) -> NewTask; 3] = [
        |id| NewTask { id, ..new_task() },
        |_| NewTask { client_id: Some("mine".into()), ..new_task() },
        |_| NewTask { idempotency: Some(("key".into(), [1; 32])), ..new_task() },
    ];
    for kind in kinds {
        let mut commits = JoinSet::new();
        for _ in 0..100 {
            let (store, change) = (Arc::clone(&store), create(kind(id)));
            commits.spawn(async move {
                let Precondition::Create(new) = &change.guard else { unreachable!() };
                let id = new.id;
                match store.commit(change).await {
                    Ok(_) => (true, id),
                    Err(CommitError::Exists { task, .. }) => (false, task),
                    Err(other) => panic!("{other:?}"),
                }
            });
        }
        let told = commits.join_all().await;
        let makers: Vec<_> = told.iter().filter(|(made, _)| *made).collect();
        assert_eq!(makers.len(), 1, "exactly one creates");
        assert!(told.iter().all(|(_, task)| task == &makers[0].1), "all are told of the same task");
        assert_eq!(store.opened(makers[0].1).await.log.len(), 1);
    }
}
