//! Checks of what a commit writes, and what it leaves unchanged.

use std::sync::Arc;

use nuncio_engine::{
    store::{JournalRecord, RunChange, Store, StoredBatch, TaskKey},
    task::{State, TaskId},
};
use uuid::Uuid;

use super::fixtures::{
    StoreFixtureExt, at, by_runner, by_version, create, create_as, events, new_task, node,
};

/// Everything that a creation names is in the row and in the log, under the task's id and its client id.
pub async fn a_created_task_reads_back_whole(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (mut new, runner) = (new_task(), node());
    new.client_id = Some("mine".into());
    new.context = Some("a conversation".into());
    new.parent = Some(TaskId(Uuid::now_v7()));
    new.created_at = at(5);
    let mut change = create_as(new.clone(), State::Working, at(7), RunChange::Lease(runner));
    change.events = Some(events(3, "three events"));
    let done = store.commit_ok(change).await;
    assert_eq!((done.first_seq, done.seq, done.version, done.epoch), (1, 3, 1, 1));
    assert_eq!((done.cancel, done.unfolded), (false, 12));

    let opened = store.opened(new.id).await;
    let row = &opened.row;
    assert_eq!((row.no, row.id, &row.owner, &row.agent), (done.task, new.id, &new.owner, &new.agent));
    assert_eq!((&row.client_id, row.parent), (&new.client_id, new.parent));
    assert_eq!(row.context, "a conversation");
    assert_eq!((row.state, row.status_at, row.created_at), (State::Working, at(7), at(5)));
    assert_eq!((row.seq, row.version, row.epoch, row.attempts), (3, 1, 1, 0));
    assert_eq!((row.node, row.cancel, &*row.head), (Some(runner), false, b"head".as_slice()));
    assert!(opened.snapshot.is_none());
    assert_eq!(opened.log, [StoredBatch { first_seq: 1, bytes: "three events".into() }]);
    let named = TaskKey::Client { owner: "alice".into(), id: "mine".into() };
    assert_eq!(store.row(&named).await.unwrap().as_ref(), Some(row));
    assert_eq!(store.open(&named).await.unwrap().unwrap().log, opened.log);

    let stranger = TaskKey::Client { owner: "bob".into(), id: "mine".into() };
    assert!(store.row(&stranger).await.unwrap().is_none(), "client ids belong to owners");
    assert!(store.row(&TaskKey::Id(TaskId(Uuid::now_v7()))).await.unwrap().is_none());

    let bare = new_task();
    store.commit_ok(create(bare.clone())).await;
    let row = store.row_of(bare.id).await;
    assert_eq!(row.context, bare.id.own_context(), "a task without a context opens its own");
    assert_eq!((row.node, row.epoch, row.client_id, row.parent), (None, 0, None, None));
}

/// `None` in a change leaves the value as it was.
pub async fn a_change_leaves_what_it_does_not_name(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let made = store.commit_ok(create_as(new.clone(), State::Working, at(1), RunChange::Lease(node()))).await;
    let before = store.row_of(new.id).await;

    let mut chunk = by_runner(made.task, 1);
    chunk.events = Some(events(2, "chunk"));
    let done = store.commit_ok(chunk).await;
    assert_eq!((done.first_seq, done.seq, done.version, done.epoch), (2, 3, 2, 1));
    let after = store.row_of(new.id).await;
    assert_eq!((after.seq, after.version), (3, 2));
    assert_eq!(
        (after.state, after.status_at, &after.head, after.node, after.epoch, after.cancel),
        (before.state, before.status_at, &before.head, before.node, before.epoch, before.cancel)
    );

    let nothing = store.commit_ok(by_version(made.task, 2)).await;
    assert_eq!(
        (nothing.first_seq, nothing.seq, nothing.version),
        (4, 3, 3),
        "no event: first_seq is the next"
    );

    let mut intent = by_version(made.task, 3);
    (intent.cancel, intent.head) = (Some(true), Some("other".into()));
    assert!(store.commit_ok(intent).await.cancel);
    let mut entered = by_runner(made.task, 1);
    entered.state = Some((State::InputRequired, at(9)));
    assert!(store.commit_ok(entered).await.cancel, "cancel stays until it is taken back");
    let row = store.row_of(new.id).await;
    assert_eq!((row.state, row.status_at, row.cancel), (State::InputRequired, at(9), true));
    assert_eq!((&*row.head, row.node), (b"other".as_slice(), before.node));

    let mut handed_back = by_runner(made.task, 1);
    (handed_back.run, handed_back.cancel) = (RunChange::Due(at(20)), Some(false));
    assert!(!store.commit_ok(handed_back).await.cancel);
    let mut taken = by_version(made.task, 6);
    let other = node();
    taken.run = RunChange::Lease(other);
    assert_eq!(store.commit_ok(taken).await.epoch, 2, "every lease is a new epoch");
    assert_eq!(store.row_of(new.id).await.node, Some(other));
}

/// Records are read in the order of their commits, and within one commit in their own order.
pub async fn journal_keeps_its_order(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut change = create_as(new_task(), State::Working, at(0), RunChange::Lease(node()));
    change.journal = vec![JournalRecord("1".into())];
    let task = store.create_task(change).await;
    assert!(store.journal(store.create_task(create(new_task())).await).await.unwrap().is_empty());
    for records in [vec!["2", "3"], vec![], vec!["4"]] {
        let mut change = by_runner(task, 1);
        change.journal = records.into_iter().map(|record| JournalRecord(record.into())).collect();
        store.commit_ok(change).await;
    }
    let records = store.journal(task).await.unwrap();
    let records: Vec<&[u8]> = records.iter().map(|JournalRecord(bytes)| &**bytes).collect();
    assert_eq!(records, [b"1", b"2", b"3", b"4"]);
}

/// The bytes since the last snapshot, so that the engine knows when to write the next.
pub async fn unfolded_bytes_are_counted(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut change = create_as(new_task(), State::Working, at(0), RunChange::Lease(node()));
    change.events = Some(events(1, vec![0; 100]));
    let made = store.commit_ok(change).await;
    let chunk = |size: usize| {
        let mut change = by_runner(made.task, 1);
        change.events = Some(events(2, vec![0; size]));
        change
    };
    assert_eq!(made.unfolded, 100);
    assert_eq!(store.commit_ok(chunk(10)).await.unfolded, 110);
    assert_eq!(store.commit_ok(chunk(5)).await.unfolded, 115);
    store.put_snapshot(made.task, 3, "fold".into()).await.unwrap();
    assert_eq!(store.commit_ok(by_runner(made.task, 1)).await.unfolded, 5, "what came after the snapshot");
    store.put_snapshot(made.task, 5, "fold".into()).await.unwrap();
    assert_eq!(store.commit_ok(chunk(7)).await.unfolded, 7);
}

/// A terminal task is never run again, whatever the change requests.
pub async fn an_ended_task_rests(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (gone, claimer) = (node(), node());
    let new = new_task();
    let made = store.commit_ok(create_as(new.clone(), State::Working, at(0), RunChange::Lease(gone))).await;
    let mut end = by_version(made.task, made.version);
    end.state = Some((State::Canceled, at(1)));
    store.commit_ok(end).await;
    store.commit_ok(create_as(new_task(), State::Completed, at(0), RunChange::Lease(gone))).await;
    assert_eq!(store.row_of(new.id).await.node, None);
    assert!(store.claim(claimer, at(1_000_000), 10).await.unwrap().is_empty());
    assert_eq!(store.next_due().await.unwrap(), None);
}
