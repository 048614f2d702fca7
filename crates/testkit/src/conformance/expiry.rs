//! Checks of the deletion of tasks past their retention.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use nuncio_engine::{
    store::{
        AgedPhase, AgedTask, AgedTaskQuery, DeliveryOutcome, JournalRecord, ListQuery, NewTask, RunChange,
        Store, TaskKey,
    },
    task::{State, TaskId},
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

async fn make(store: &Arc<dyn Store>, owner: &str, agent: &str, state: State, ms: i64) -> TaskId {
    let new = NewTask { owner: owner.into(), agent: agent.into(), ..new_task() };
    store.create_task(create_as(new.clone(), state, at(ms), RunChange::Rest)).await;
    new.id
}

/// Every page of a search, each of two tasks.
async fn aged(store: &Arc<dyn Store>, phase: AgedPhase, older_than: u64) -> Vec<AgedTask> {
    let (mut found, mut after) = (vec![], None);
    loop {
        let older_than = Duration::from_millis(older_than);
        let query = AgedTaskQuery { phase, now: at(1_000), older_than, after, limit: 2 };
        let page = store.aged_tasks(&query).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { return found };
        after = Some(last.cursor);
        found.extend(page);
    }
}

/// Finds the tasks of all owners by the age of their status, each once, whatever the pages.
pub async fn aged_tasks_are_found_in_pages(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut waiting = BTreeSet::new();
    // More of one owner than a page holds, and times that are equal.
    for (owner, agent, ms) in [
        ("alice", "echo", 10),
        ("alice", "other", 10),
        ("alice", "echo", 10),
        ("alice", "echo", 20),
        ("bob", "echo", 5),
        ("carl", "other", 30),
        ("carl", "echo", 99),
    ] {
        waiting.insert((make(&store, owner, agent, State::InputRequired, ms).await, agent.to_owned()));
    }
    for state in [State::Submitted, State::Working, State::AuthRequired] {
        make(&store, "alice", "echo", state, 10).await;
    }
    let young = make(&store, "alice", "echo", State::InputRequired, 100).await;
    let mut ended = BTreeSet::new();
    for (owner, state, ms) in [
        ("alice", State::Completed, 10),
        ("bob", State::Failed, 10),
        ("bob", State::Canceled, 10),
        ("carl", State::Rejected, 99),
        ("carl", State::Replied, 1),
    ] {
        ended.insert((make(&store, owner, "echo", state, ms).await, state.code()));
    }
    make(&store, "bob", "echo", State::Completed, 100).await;

    let found = aged(&store, AgedPhase::Live(State::InputRequired), 900).await;
    let named: BTreeSet<_> = found.iter().map(|task| (task.id, task.agent.clone())).collect();
    assert_eq!((named, found.len()), (waiting, 7), "each once, and none that is as old as the limit");
    for task in &found {
        let row = store.row_of(task.id).await;
        assert_eq!((task.state, task.cursor.status_at, task.cursor.no), (row.state, row.status_at, row.no));
        assert_eq!(task.age, Duration::from_millis((at(1_000).0 - row.status_at.0) as u64));
    }
    let all = aged(&store, AgedPhase::Live(State::InputRequired), 899).await;
    assert!(all.len() == 8 && all.iter().any(|task| task.id == young));
    assert_eq!(aged(&store, AgedPhase::Live(State::AuthRequired), 900).await.len(), 1);
    let found = aged(&store, AgedPhase::Ended, 900).await;
    let named: BTreeSet<_> = found.iter().map(|task| (task.id, task.state.code())).collect();
    assert_eq!((named, found.len()), (ended, 5));
}

/// Deletes a task only if it ended when the search said: neither one that lives, nor one of another time.
pub async fn only_what_ended_then_is_deleted(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let old = make(&store, "alice", "echo", State::Completed, 10).await;
    let kept = make(&store, "bob", "echo", State::Failed, 10).await;
    let found = aged(&store, AgedPhase::Ended, 900).await;
    let due = found.iter().filter(|task| task.id == old);
    let due: Vec<_> = due.map(|task| (task.cursor.no, task.cursor.status_at)).collect();
    assert_eq!(store.delete_ended(&due).await.unwrap(), 1);
    assert!(store.row(&TaskKey::Id(old)).await.unwrap().is_none());
    assert_eq!(store.delete_ended(&due).await.unwrap(), 0, "a repeat does no harm");
    // A store may give a free number to the next task.
    let next = make(&store, "alice", "echo", State::Working, 500).await;
    assert_eq!(store.delete_ended(&due).await.unwrap(), 0);
    for id in [kept, next] {
        store.row_of(id).await;
    }
    assert_eq!(store.list(&all_of("alice", None)).await.unwrap().total, 1);
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
