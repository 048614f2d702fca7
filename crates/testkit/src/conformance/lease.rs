//! Checks of leases: which node runs a task, and what happens when a node dies.

use std::{collections::HashSet, sync::Arc};

use nuncio_engine::{
    store::{JournalRecord, Load, OwnerClaim, RunChange, Store, TaskNo},
    task::State,
};
use tokio::task::JoinSet;

use super::fixtures::{
    StoreFixtureExt, at, by_runner, by_version, create, create_as, events, new_task, node,
};

/// Oldest due first, up to the limit, nothing before its time, and each with a new epoch.
pub async fn claims_take_the_oldest_due(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut due = vec![];
    for ms in [30, 10, 20, 999] {
        due.push(
            store.create_task(create_as(new_task(), State::Submitted, at(0), RunChange::Due(at(ms)))).await,
        );
    }
    store.create_task(create(new_task())).await;
    let runner = node();
    store.heartbeat(runner, at(10_000)).await.unwrap();
    let claim = async |now, limit| -> Vec<TaskNo> {
        let claimed = store.claim(runner, at(now), limit).await.unwrap();
        for task in &claimed {
            assert_eq!((task.row.node, task.row.epoch, task.row.attempts), (Some(runner), 1, 0));
            assert_eq!(task.row, store.row_of(task.row.id).await, "the row as it is after the claim");
        }
        claimed.into_iter().map(|task| task.row.no).collect()
    };
    assert_eq!(claim(5, 10).await, []);
    assert_eq!(claim(100, 2).await, [due[1], due[2]]);
    assert_eq!(claim(100, 0).await, []);
    assert_eq!(claim(100, 10).await, [due[0]], "what is held is not handed out again");
    assert_eq!(claim(999, 10).await, [due[3]], "due at its very time");
}

/// Claims of an owner take that owner's oldest due tasks, separately those called by other tasks; due tasks are
/// counted by owner.
pub async fn claims_go_by_owner(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (runner, dead) = (node(), node());
    store.heartbeat(runner, at(10_000)).await.unwrap();
    let make = async |owner: &str, called: bool, run: RunChange| {
        let mut new = new_task();
        new.owner = owner.into();
        new.parent = called.then(|| new_task().id);
        store.create_task(create_as(new, State::Submitted, at(0), run)).await
    };
    let loud = make("acme/loud", false, RunChange::Due(at(2))).await;
    make("acme/loud", false, RunChange::Due(at(3))).await;
    let orphan = make("acme/loud", false, RunChange::Lease(dead)).await;
    let quiet = make("beta/quiet", false, RunChange::Due(at(9))).await;
    let called = make("beta/quiet", true, RunChange::Due(at(8))).await;
    make("beta/quiet", false, RunChange::Due(at(500))).await;
    let due = store.due_tasks(runner, at(100)).await.unwrap();
    let counted: Vec<_> =
        due.iter().map(|due| (due.owner.as_str(), due.called, due.waiting, due.orphaned)).collect();
    assert_eq!(
        counted,
        [("acme/loud", false, 2, 1), ("beta/quiet", false, 1, 0), ("beta/quiet", true, 1, 0)]
    );
    let of = |owner: &str, called, limit| OwnerClaim { owner: owner.into(), called, limit };
    let claim = async |of: &[OwnerClaim]| -> HashSet<TaskNo> {
        let claimed = store.claim_of(runner, at(100), of).await.unwrap();
        for task in &claimed {
            assert_eq!((task.row.node, &task.row), (Some(runner), &store.row_of(task.row.id).await));
        }
        claimed.into_iter().map(|task| task.row.no).collect()
    };
    assert_eq!(claim(&[of("nobody", false, 9), of("acme/loud", true, 9)]).await, HashSet::new());
    assert_eq!(
        claim(&[of("acme/loud", false, 2), of("beta/quiet", true, 9)]).await,
        HashSet::from([orphan, loud, called])
    );
    assert_eq!(claim(&[of("beta/quiet", false, 9)]).await, HashSet::from([quiet]));
    let left = store.due_tasks(runner, at(100)).await.unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].waiting, left[0].orphaned), (1, 0));
}

/// All tasks created below a task are counted, terminal or not, up to the given limit.
pub async fn descendants_are_counted(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let root = new_task();
    store.create_task(create(root.clone())).await;
    let mut level = vec![root.id];
    for _ in 0..3 {
        let mut below = vec![];
        for parent in level {
            for state in [State::Completed, State::Working] {
                let mut new = new_task();
                new.parent = Some(parent);
                below.push(new.id);
                store.create_task(create_as(new, state, at(0), RunChange::Rest)).await;
            }
        }
        level = below;
    }
    assert_eq!(store.descendants(root.id, 1_000).await.unwrap(), 14);
    assert_eq!(store.descendants(root.id, 5).await.unwrap(), 5);
    assert_eq!(store.descendants(level[0], 5).await.unwrap(), 0);
}

/// A node with a heartbeat keeps its tasks, and a lease made by a commit counts like one made by a claim.
pub async fn a_living_node_keeps_its_tasks(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (alive, other) = (node(), node());
    store.heartbeat(alive, at(100)).await.unwrap();
    store.heartbeat(other, at(1_000)).await.unwrap();
    store.create_task(create_as(new_task(), State::Working, at(0), RunChange::Lease(alive))).await;
    store.create_task(create_as(new_task(), State::Submitted, at(0), RunChange::Due(at(0)))).await;
    assert_eq!(store.claim(alive, at(1), 10).await.unwrap().len(), 1);
    assert!(store.claim(other, at(50), 10).await.unwrap().is_empty());
    store.heartbeat(alive, at(200)).await.unwrap();
    assert!(store.claim(other, at(150), 10).await.unwrap().is_empty(), "the heartbeat was renewed");
    assert!(store.claim(alive, at(900), 10).await.unwrap().is_empty(), "who claims is alive and holds them");
    assert_eq!(store.claim(other, at(201), 10).await.unwrap().len(), 2, "its time has run out");
}

/// A dead node's tasks go to the next claim with a new epoch and one more attempt; a release and a wait do not
/// count as attempts.
pub async fn a_dead_node_loses_its_tasks(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let task =
        store.create_task(create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()))).await;
    // Nodes that are never seen alive: each claim finds the previous one dead.
    for attempt in 1..=3 {
        let claimed = store.claim(node(), at(10), 10).await.unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!((claimed[0].row.no, claimed[0].row.attempts), (task, attempt));
        assert_eq!(claimed[0].row.epoch, u64::from(attempt) + 1);
    }
    let mut back = by_runner(task, 4);
    back.run = RunChange::Due(at(20));
    store.commit_ok(back).await;
    assert_eq!(store.row_of(new.id).await.node, None);
    assert!(store.claim(node(), at(19), 10).await.unwrap().is_empty());
    let (last, next) = (node(), node());
    let claimed = store.claim(last, at(20), 10).await.unwrap();
    assert_eq!((claimed[0].row.attempts, claimed[0].row.epoch), (3, 5), "a hand-back is no attempt");

    // Leased by a commit while it waited for a time far away: claimable at once when that node dies.
    let mut sleep = by_runner(task, 5);
    sleep.run = RunChange::Due(at(1_000_000));
    let version = store.commit_ok(sleep).await.version;
    let mut woken = by_version(task, version);
    (woken.state, woken.run) = (Some((State::Working, at(30))), RunChange::Lease(last));
    store.commit_ok(woken).await;
    let claimed = store.claim(next, at(40), 10).await.unwrap();
    assert_eq!((claimed[0].row.attempts, claimed[0].row.epoch), (4, 7));
}

/// Attempts are consecutive: a runner that commits something new resets them to zero.
pub async fn progress_forgives_attempts(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = new_task();
    let task =
        store.create_task(create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()))).await;
    let attempts = async || store.row_of(new.id).await.attempts;
    for with_journal in [false, true] {
        let epoch = store.claim(node(), at(1), 1).await.unwrap()[0].row.epoch;
        assert_eq!(attempts().await, 1);
        store.commit_ok(by_runner(task, epoch)).await;
        assert_eq!(attempts().await, 1, "an empty commit is no progress");
        let mut caller = by_version(task, store.row_of(new.id).await.version);
        caller.events = Some(events(1, "from outside"));
        store.commit_ok(caller).await;
        assert_eq!(attempts().await, 1, "nor is what others do");
        let mut progress = by_runner(task, epoch);
        if with_journal {
            progress.journal = vec![JournalRecord("a step".into())];
        } else {
            progress.events = Some(events(1, "news"));
        }
        store.commit_ok(progress).await;
        assert_eq!(attempts().await, 0);
    }
}

/// Concurrent claims hand out every task exactly once.
pub async fn concurrent_claims_never_share(open: impl AsyncFn() -> Arc<dyn Store>) {
    const TASKS: usize = 120;
    let store = open().await;
    for n in 0..TASKS {
        // A third of them are orphans.
        let run = if n % 3 == 0 { RunChange::Lease(node()) } else { RunChange::Due(at(0)) };
        store.create_task(create_as(new_task(), State::Working, at(0), run)).await;
    }
    let mut claims = JoinSet::new();
    for _ in 0..40 {
        let store = Arc::clone(&store);
        claims.spawn(async move {
            let node = node();
            store.heartbeat(node, at(1_000)).await.unwrap();
            store.claim(node, at(10), 7).await.unwrap()
        });
    }
    let claimed: Vec<_> = claims.join_all().await.into_iter().flatten().map(|task| task.row.no).collect();
    assert_eq!(claimed.len(), TASKS);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), TASKS);
}

/// The figures that a scheduler sleeps by.
pub async fn load_and_next_due(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    assert_eq!(store.load().await.unwrap(), Load::default());
    assert_eq!(store.next_due().await.unwrap(), None);
    let runner = node();
    store.heartbeat(runner, at(1_000)).await.unwrap();
    store.create_task(create_as(new_task(), State::Submitted, at(0), RunChange::Due(at(20)))).await;
    store.create_task(create_as(new_task(), State::Submitted, at(0), RunChange::Due(at(10)))).await;
    store.create_task(create_as(new_task(), State::Working, at(0), RunChange::Lease(runner))).await;
    store.create_task(create_as(new_task(), State::InputRequired, at(0), RunChange::Rest)).await;
    store.create_task(create_as(new_task(), State::Completed, at(0), RunChange::Rest)).await;
    // A claim passes in the time, also one that takes nothing.
    let load = async |now| {
        assert!(store.claim(runner, at(now), 0).await.unwrap().is_empty());
        store.load().await.unwrap()
    };
    assert_eq!(load(9).await, Load { queued: 0, live: 4 }, "what sleeps is not queued");
    assert_eq!(load(10).await, Load { queued: 1, live: 4 });
    assert_eq!(load(25).await, Load { queued: 2, live: 4 });
    assert_eq!(store.next_due().await.unwrap(), Some(at(10)));
    let claimed = store.claim(runner, at(15), 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(load(25).await, Load { queued: 1, live: 4 });
    assert_eq!(store.next_due().await.unwrap(), Some(at(20)));
    let mut end = by_runner(claimed[0].row.no, 1);
    end.state = Some((State::Failed, at(16)));
    store.commit_ok(end).await;
    assert_eq!(load(25).await, Load { queued: 1, live: 3 });
}
