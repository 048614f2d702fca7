//! Checks of reads: logs in pages, snapshots, names, children; and that all of it survives a reopen.

use std::sync::Arc;

use nuncio_engine::{
    store::{JournalRecord, ListQuery, NewTask, RunChange, Store, TaskKey, TaskNo},
    task::{State, TaskId},
};

use super::fixtures::{StoreFixtureExt, at, by_runner, create, create_as, events, new_task, node, webhook};

/// Pages hold about as many bytes as requested, never none, and begin with the batch that holds the cursor's
/// successor.
pub async fn log_is_read_in_pages(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let before = store.create_task(create(new_task())).await;
    let task =
        store.create_task(create_as(new_task(), State::Working, at(0), RunChange::Lease(node()))).await;
    store.create_task(create(new_task())).await;
    // Batches of 1, 3, 3, 3 events: they begin at 1, 2, 5, 8 and end at 10.
    for n in 0..3 {
        let mut change = by_runner(task, 1);
        change.events = Some(events(3, vec![n; 100]));
        store.commit_ok(change).await;
    }
    let firsts = async |after, max_bytes| -> Vec<u64> {
        let batches = store.log(task, after, max_bytes).await.unwrap();
        batches.iter().map(|batch| batch.first_seq).collect()
    };
    assert_eq!(firsts(0, 10_000).await, [1, 2, 5, 8]);
    assert_eq!(firsts(1, 10_000).await, [2, 5, 8]);
    assert_eq!(firsts(2, 10_000).await, [2, 5, 8], "the first may begin before the cursor");
    assert_eq!(firsts(3, 10_000).await, [2, 5, 8]);
    assert_eq!(firsts(4, 10_000).await, [5, 8]);
    assert_eq!(firsts(9, 10_000).await, [8]);
    assert_eq!(firsts(10, 10_000).await, [] as [u64; 0]);
    assert_eq!(firsts(99, 10_000).await, [] as [u64; 0]);
    assert_eq!(firsts(0, 0).await, [1], "always at least one");
    assert_eq!(firsts(1, 1).await, [2]);
    assert_eq!(firsts(1, 250).await, [2, 5]);
    assert_eq!(store.log(before, 0, 10_000).await.unwrap().len(), 1, "each task has its own");
    assert_eq!(store.log(task, 7, 1).await.unwrap()[0].bytes, vec![2_u8; 100]);
}

/// A snapshot replaces the log before it when a task is opened, and nowhere else; an older or impossible one is
/// ignored.
pub async fn snapshots_shorten_the_log(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let task =
        store.create_task(create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()))).await;
    for _ in 0..3 {
        let mut change = by_runner(task, 1);
        change.events = Some(events(3, "chunk"));
        store.commit_ok(change).await;
    }
    let opened = async || {
        let opened = store.opened(new.id).await;
        let firsts: Vec<u64> = opened.log.iter().map(|batch| batch.first_seq).collect();
        (opened.snapshot.map(|(seq, fold)| (seq, String::from_utf8(fold.to_vec()).unwrap())), firsts)
    };
    assert_eq!(opened().await, (None, vec![1, 2, 5, 8]));
    store.put_snapshot(task, 4, "four".into()).await.unwrap();
    assert_eq!(opened().await, (Some((4, "four".into())), vec![5, 8]));
    store.put_snapshot(task, 6, "six".into()).await.unwrap();
    assert_eq!(opened().await, (Some((6, "six".into())), vec![5, 8]), "the batch around it is read too");
    store.put_snapshot(task, 4, "four".into()).await.unwrap();
    assert_eq!(opened().await, (Some((6, "six".into())), vec![5, 8]), "an older one changes nothing");
    store.put_snapshot(task, 11, "eleven".into()).await.unwrap();
    assert_eq!(opened().await, (Some((6, "six".into())), vec![5, 8]), "the log does not go that far");
    store.put_snapshot(task, 10, "ten".into()).await.unwrap();
    assert_eq!(opened().await, (Some((10, "ten".into())), vec![]));
    assert_eq!(store.log(task, 0, 10_000).await.unwrap().len(), 4, "the log itself stays");
    let beginning = async |task, bytes| store.snapshot_beginning(task, bytes).await.unwrap();
    assert_eq!(beginning(task, 2).await.as_deref(), Some(&b"te"[..]));
    assert_eq!(beginning(task, 99).await.as_deref(), Some(&b"ten"[..]));
    assert_eq!(beginning(TaskNo(task.0 + 1), 99).await, None);
}

/// A key is found by its owner only, with the digest that was stored with it.
pub async fn idempotency_keys_belong_to_owners(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for (owner, digest) in [("alice", [1; 32]), ("bob", [2; 32])] {
        let new = NewTask { owner: owner.into(), idempotency: Some(("key".into(), digest)), ..new_task() };
        store.commit_ok(create(new.clone())).await;
        assert_eq!(store.idempotent(owner, "key").await.unwrap(), Some((new.id, digest)));
    }
    assert_eq!(store.idempotent("alice", "other").await.unwrap(), None);
    assert_eq!(store.idempotent("carol", "key").await.unwrap(), None);
}

/// Children that are not terminal, of that parent only.
pub async fn live_children_are_found(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (parent, other) = (new_task(), new_task());
    let mut expected = vec![];
    for (of, state) in [
        (&parent, State::Submitted),
        (&parent, State::Completed),
        (&parent, State::InputRequired),
        (&other, State::Working),
    ] {
        let child = NewTask { parent: Some(of.id), ..new_task() };
        store.commit_ok(create_as(child.clone(), state, at(0), RunChange::Rest)).await;
        if of.id == parent.id && !state.is_terminal() {
            expected.push(child.id);
        }
    }
    let mut found: Vec<TaskId> = store.live_children(parent.id).await.unwrap();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(store.live_children(new_task().id).await.unwrap().is_empty());
}

/// All children of a parent, whatever their state, in the order of their creation, as their rows are.
pub async fn children_are_listed(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (parent, other) = (new_task(), new_task());
    let mut expected = vec![];
    for (n, state) in [State::Completed, State::Working, State::Failed].into_iter().enumerate() {
        for of in [&parent, &other] {
            let child = NewTask { parent: Some(of.id), created_at: at(n as i64), ..new_task() };
            store.commit_ok(create_as(child.clone(), state, at(5), RunChange::Rest)).await;
            if of.id == parent.id {
                expected.push(store.row_of(child.id).await);
            }
        }
    }
    assert_eq!(store.children(parent.id, 10).await.unwrap(), expected);
    assert_eq!(store.children(parent.id, 2).await.unwrap(), expected[..2]);
    assert_eq!(store.children(new_task().id, 10).await.unwrap(), []);
}

/// A store that is dropped without being closed has lost nothing that it acknowledged, and its counters
/// continue.
pub async fn everything_survives_a_reopen(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = NewTask {
        client_id: Some("mine".into()),
        context: Some("talk".into()),
        idempotency: Some(("key".into(), [1; 32])),
        webhooks: vec![webhook("w")],
        ..new_task()
    };
    let mut change = create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()));
    change.journal = vec![JournalRecord("step".into())];
    let task = store.create_task(change).await;
    let mut chunk = by_runner(task, 1);
    chunk.events = Some(events(4, "chunk"));
    store.commit_ok(chunk).await;
    store.put_snapshot(task, 1, "fold".into()).await.unwrap();
    let before = store.opened(new.id).await;
    let list = ListQuery {
        owner: "alice".into(),
        context: Some("talk".into()),
        state: Some(State::Working),
        agent: Some("echo".into()),
        since: None,
        after: None,
        limit: 10,
        only_rows: false,
    };
    let total = store.list(&list).await.unwrap().total;
    drop(store);

    let store = open().await;
    let after = store.opened(new.id).await;
    assert_eq!((&after.row, &after.snapshot, &after.log), (&before.row, &before.snapshot, &before.log));
    assert_eq!(store.journal(task).await.unwrap(), [JournalRecord("step".into())]);
    assert_eq!(store.webhooks(task).await.unwrap(), [webhook("w")]);
    assert_eq!(store.idempotent("alice", "key").await.unwrap(), Some((new.id, [1; 32])));
    let by_client_id = TaskKey::Client { owner: "alice".into(), id: "mine".into() };
    assert_eq!(store.row(&by_client_id).await.unwrap().unwrap().no, task);
    assert_eq!(store.list(&list).await.unwrap().total, total);
    // Numbers continue where they stopped.
    let next: TaskNo = store.create_task(create(new_task())).await;
    assert!(next > task);
    let mut change = by_runner(task, 1);
    change.events = Some(events(1, "more"));
    assert_eq!(store.commit_ok(change).await.first_seq, 6);
    // Its node belongs to an earlier process, so it is claimed at once.
    let claimed = store.claim(node(), at(1), 10).await.unwrap();
    assert_eq!((claimed[0].row.no, claimed[0].row.attempts), (task, 1));
    store.close().await.unwrap();
    assert!(store.commit(create(new_task())).await.is_err(), "a closed store takes nothing");
    drop(store);
    let store = open().await;
    assert_eq!(store.opened(new.id).await.log.len(), 2);
}
