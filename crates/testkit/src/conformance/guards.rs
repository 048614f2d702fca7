//! Checks of the preconditions of a commit, and that a refused commit leaves no trace.

use std::sync::Arc;

use nuncio_engine::{
    store::WebhookError,
    store::{
        Change, CommitError, JournalRecord, ListQuery, NewTask, Precondition, RunChange, Store, TaskKey,
        TaskNo,
    },
    task::State,
};

use super::fixtures::{
    StoreFixtureExt, assert_is, at, by_runner, by_version, create, create_as, events, new_task, node, webhook,
};

/// The id, the client id and the idempotency key each belong to one task.
pub async fn create_refuses_what_exists(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let first =
        NewTask { client_id: Some("mine".into()), idempotency: Some(("key".into(), [7; 32])), ..new_task() };
    store.commit_ok(create(first.clone())).await;

    let same_id = NewTask { id: first.id, ..new_task() };
    let same_client_id = NewTask { client_id: Some("mine".into()), ..new_task() };
    let same_key = NewTask { idempotency: Some(("key".into(), [8; 32])), ..new_task() };
    for new in [&same_id, &same_client_id] {
        let refused = store.commit_err(create(new.clone())).await;
        assert_is!(refused, CommitError::Exists { task, digest: None } if task == first.id);
    }
    let refused = store.commit_err(create(same_key.clone())).await;
    assert_is!(refused, CommitError::Exists { task, digest: Some(digest) }
        if task == first.id && digest == [7; 32]);
    // The repeat of a request carries all three; the key decides, because only it can tell a repeat from a
    // collision.
    let refused = store.commit_err(create(first.clone())).await;
    assert_is!(refused, CommitError::Exists { digest: Some(digest), .. } if digest == [7; 32]);

    for new in [same_client_id, same_key] {
        store.commit_ok(create(NewTask { owner: "bob".into(), ..new })).await;
    }
}

/// Any change invalidates a decision on the old version: also one that writes nothing, and a claim.
pub async fn version_guard_notices_every_change(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let made = store.commit_ok(create_as(new.clone(), State::Submitted, at(0), RunChange::Due(at(0)))).await;
    store.commit_ok(by_version(made.task, 1)).await;
    assert_is!(store.commit_err(by_version(made.task, 1)).await, CommitError::Moved);
    assert_is!(store.commit_err(by_version(made.task, 3)).await, CommitError::Moved);
    let claimed = store.claim(node(), at(1), 1).await.unwrap();
    assert_is!(store.commit_err(by_version(made.task, 2)).await, CommitError::Moved);
    let version = store.row_of(new.id).await.version;
    assert_eq!(claimed[0].row.version, version);
    store.commit_ok(by_runner(made.task, claimed[0].row.epoch)).await;
    assert_is!(store.commit_err(by_version(made.task, version)).await, CommitError::Moved);
    store.commit_ok(by_version(made.task, version + 1)).await;
}

/// Only the runner that holds the task may write, and no runner once the task is terminal.
pub async fn runner_guard_fences(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let made = store.commit_ok(create_as(new_task(), State::Working, at(0), RunChange::Lease(node()))).await;
    let task = made.task;
    assert_is!(store.commit_err(by_runner(task, 0)).await, CommitError::Fenced);
    assert_is!(store.commit_err(by_runner(task, 2)).await, CommitError::Fenced);

    // Its node was never seen alive, so the next claim takes the task over.
    let taken = store.claim(node(), at(1), 1).await.unwrap();
    assert_eq!((taken[0].row.no, taken[0].row.epoch), (task, 2));
    assert_is!(store.commit_err(by_runner(task, 1)).await, CommitError::Fenced);

    for run in [RunChange::Due(at(5)), RunChange::Rest] {
        let version = {
            let mut back =
                by_runner(task, store.row(&TaskKey::Id(taken[0].row.id)).await.unwrap().unwrap().epoch);
            back.run = run;
            store.commit_ok(back).await.version
        };
        let epoch = store.row_of(taken[0].row.id).await.epoch;
        assert_is!(store.commit_err(by_runner(task, epoch)).await, CommitError::Fenced);
        let mut lease = by_version(task, version);
        lease.run = RunChange::Lease(node());
        assert_eq!(store.commit_ok(lease).await.epoch, epoch + 1);
    }

    let row = store.row_of(taken[0].row.id).await;
    let mut end = by_version(task, row.version);
    end.state = Some((State::Canceled, at(9)));
    store.commit_ok(end).await;
    assert_is!(store.commit_err(by_runner(task, row.epoch)).await, CommitError::Ended);
}

/// Every way to name a task that does not exist.
pub async fn unknown_tasks_are_gone(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let nobody = TaskNo(4_711);
    assert_is!(store.commit_err(by_version(nobody, 1)).await, CommitError::Gone);
    assert_is!(store.commit_err(by_runner(nobody, 1)).await, CommitError::Gone);
    assert_is!(store.put_webhook(nobody, webhook("w"), 9).await, Err(WebhookError::Gone));
    assert!(store.log(nobody, 0, 1_000).await.unwrap().is_empty());
    assert!(store.journal(nobody).await.unwrap().is_empty());
    assert!(store.webhooks(nobody).await.unwrap().is_empty());
    assert!(!store.delete_webhook(nobody, "w").await.unwrap());
    store.put_snapshot(nobody, 1, "fold".into()).await.unwrap();
    assert!(store.idempotent("alice", "key").await.unwrap().is_none());
}

/// A change that violates its precondition leaves no event, no record, no name and no count.
pub async fn a_refused_change_writes_nothing(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let taken = NewTask { idempotency: Some(("key".into(), [1; 32])), ..new_task() };
    let made =
        store.commit_ok(create_as(taken.clone(), State::Working, at(0), RunChange::Lease(node()))).await;
    let before = store.opened(taken.id).await;

    let everything = |guard| {
        let mut change = Change::new(guard);
        change.events = Some(events(5, "not to be"));
        change.state = Some((State::Failed, at(99)));
        change.head = Some("not to be".into());
        change.journal = vec![JournalRecord("not to be".into())];
        change.run = RunChange::Due(at(0));
        change.cancel = Some(true);
        change
    };
    store.commit_err(everything(Precondition::Version { task: made.task, version: 7 })).await;
    store.commit_err(everything(Precondition::Runner { task: made.task, epoch: 7 })).await;
    let clash = NewTask {
        client_id: Some("new".into()),
        idempotency: Some(("key".into(), [2; 32])),
        context: Some("new".into()),
        webhooks: vec![webhook("new")],
        ..new_task()
    };
    store.commit_err(everything(Precondition::Create(Box::new(clash.clone())))).await;

    let after = store.opened(taken.id).await;
    assert_eq!((&after.row, &after.log), (&before.row, &before.log));
    assert!(store.journal(made.task).await.unwrap().is_empty());
    assert!(store.row(&TaskKey::Id(clash.id)).await.unwrap().is_none());
    let by_client_id = TaskKey::Client { owner: "alice".into(), id: "new".into() };
    assert!(store.row(&by_client_id).await.unwrap().is_none());
    assert_eq!(store.idempotent("alice", "key").await.unwrap(), Some((taken.id, [1; 32])));
    assert_eq!(store.next_due().await.unwrap(), None);
    assert_eq!(store.next_delivery_due().await.unwrap(), None);
    let all = ListQuery {
        owner: "alice".into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 10,
        only_rows: false,
    };
    let page = store.list(&all).await.unwrap();
    assert_eq!((page.total, page.tasks.len()), (1, 1));
}

/// A task's log has a cap; a commit beyond it fails, and the log stays as it is.
pub async fn a_full_log_refuses(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let made = store.commit_ok(create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()))).await;
    let mut flood = by_runner(made.task, 1);
    flood.events = Some(events(u32::MAX, "too many"));
    let refused = store.commit_err(flood).await;
    let CommitError::LogFull(cap) = refused else { panic!("{refused:?}") };
    let mut last = by_runner(made.task, 1);
    last.events = Some(events(u32::try_from(cap - 1).unwrap(), "up to the cap"));
    assert_eq!(store.commit_ok(last).await.seq, cap);
    let mut one_more = by_runner(made.task, 1);
    one_more.events = Some(events(1, "one more"));
    assert_is!(store.commit_err(one_more).await, CommitError::LogFull(_));
    let mut end = by_runner(made.task, 1);
    end.state = Some((State::Failed, at(1)));
    store.commit_ok(end).await;
    assert_eq!(store.opened(new.id).await.log.len(), 2);
    let mut flood = create(new_task());
    flood.events = Some(events(u32::MAX, "too many"));
    assert_is!(store.commit_err(flood).await, CommitError::LogFull(_));
}
