//! Checks of the deletion of tasks past their retention.

use std::sync::Arc;

use nuncio_engine::{
    store::{DeliveryOutcome, JournalRecord, ListQuery, NewTask, RunChange, Store, TaskKey},
    task::State,
};

use super::fixtures::{StoreFixtureExt, at, by_version, create_as, events, new_task, node, webhook};

fn all_of(owner: &str, state: Option<State>) -> ListQuery {
    ListQuery {
        owner: owner.into(),
        context: None,
        state,
        agent: None,
        since: None,
        after: None,
        limit: 50,
        only_rows: false,
    }
}

/// Deletes tasks that ended before the time, of every owner, up to the limit; nothing else.
pub async fn expiry_takes_all_of_what_ended(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let make = async |owner: &str, state, ms| {
        let new = NewTask { owner: owner.into(), ..new_task() };
        store.create_task(create_as(new.clone(), state, at(ms), RunChange::Rest)).await;
        new.id
    };
    let mut old = vec![];
    for (owner, state) in [
        ("alice", State::Completed),
        ("alice", State::Failed),
        ("bob", State::Canceled),
        ("bob", State::Rejected),
    ] {
        old.push(make(owner, state, 10).await);
    }
    let kept = [
        make("alice", State::InputRequired, 10).await,
        make("alice", State::Completed, 100).await,
        make("bob", State::Working, 1).await,
    ];
    assert_eq!(store.expire(at(10), 100).await.unwrap(), 0, "before, not at");
    assert_eq!(store.expire(at(100), 3).await.unwrap(), 3, "as many as asked for");
    assert_eq!(store.expire(at(100), 3).await.unwrap(), 1, "then the rest");
    assert_eq!(store.expire(at(100), 3).await.unwrap(), 0);
    for id in old {
        assert!(store.row(&TaskKey::Id(id)).await.unwrap().is_none());
    }
    for id in kept {
        store.row_of(id).await;
    }
    for (owner, state, total) in [
        ("alice", None, 2),
        ("bob", None, 1),
        ("alice", Some(State::Failed), 0),
        ("bob", Some(State::Working), 1),
    ] {
        let page = store.list(&all_of(owner, state)).await.unwrap();
        assert_eq!((page.total, page.tasks.len()), (total, total as usize), "{owner} {state:?}");
    }
    assert_eq!(store.load().await.unwrap().live, 2);
}

/// Log, journal, snapshot, webhooks and dead letters are deleted too; client id and idempotency key can be used
/// again.
pub async fn expiry_frees_the_names(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = NewTask {
        client_id: Some("mine".into()),
        idempotency: Some(("key".into(), [1; 32])),
        webhooks: vec![webhook("w")],
        ..new_task()
    };
    let mut change = create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()));
    change.journal = vec![JournalRecord("step".into())];
    change.events = Some(events(3, "three"));
    let task = store.create_task(change).await;
    store.put_snapshot(task, 1, "fold".into()).await.unwrap();
    let dead = |delivery: &str| DeliveryOutcome::Dead {
        seq: 1,
        delivery: delivery.into(),
        reason: "no".into(),
        at: at(1),
    };
    store.record_delivery(task, "w", dead("d1")).await.unwrap();
    let mut end = by_version(task, 1);
    end.state = Some((State::Completed, at(5)));
    store.commit_ok(end).await;
    assert_eq!(store.expire(at(6), 10).await.unwrap(), 1);

    assert!(store.log(task, 0, 1_000).await.unwrap().is_empty());
    assert!(store.journal(task).await.unwrap().is_empty());
    assert!(store.webhooks(task).await.unwrap().is_empty());
    assert!(store.dead_letters(10).await.unwrap().is_empty());
    assert_eq!(store.replay_dead_letters(None, at(7)).await.unwrap(), 0);
    assert_eq!(store.next_delivery_due().await.unwrap(), None);
    assert_eq!(store.idempotent("alice", "key").await.unwrap(), None);
    let by_client_id = TaskKey::Client { owner: "alice".into(), id: "mine".into() };
    assert!(store.row(&by_client_id).await.unwrap().is_none());
    let again = NewTask { id: new_task().id, ..new };
    store.commit_ok(create_as(again.clone(), State::Working, at(9), RunChange::Rest)).await;
    assert_eq!(store.row(&by_client_id).await.unwrap().unwrap().id, again.id);
    assert_eq!(store.idempotent("alice", "key").await.unwrap(), Some((again.id, [1; 32])));
}
