//! Checks of client sessions: stored whole, limited per owner, versioned, and deleted when idle.

use std::{collections::BTreeSet, sync::Arc};

use nuncio_engine::store::{Session, Store};
use tokio::task::JoinSet;

use super::fixtures::{StoreFixtureExt, at, create, new_task};

/// More than any check creates.
const PLENTY: usize = 10_000;

fn session(id: impl Into<String>, owner: &str, used_ms: i64) -> Session {
    let id = id.into();
    Session {
        body: format!("body of {id}").into(),
        id,
        owner: owner.into(),
        version: 1,
        used_at: at(used_ms),
    }
}

/// Which of these sessions exist.
async fn left(store: &Arc<dyn Store>, ids: &[String]) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for id in ids {
        left.extend(store.session(id).await.unwrap().map(|session| session.id));
    }
    left
}

/// A session is read back as it was written, and only under its own id; a second one of the same id is refused,
/// also of another owner.
pub async fn a_session_reads_back_whole(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    // An owner that has tasks, one that has none; a body that is not text, and an empty one.
    store.create_task(create(new_task())).await;
    let first = Session { body: vec![0, 255, 10, 128].into(), ..session("a", "alice", 5) };
    let second = Session { body: "".into(), ..session("Ä", "bob", 7) };
    for session in [&first, &second] {
        assert_eq!(store.session(&session.id).await.unwrap(), None);
        assert!(store.create_session(session.clone(), PLENTY).await.unwrap());
        assert_eq!(store.session(&session.id).await.unwrap().as_ref(), Some(session));
    }
    for unknown in ["A", "a ", "", "b"] {
        assert_eq!(store.session(unknown).await.unwrap(), None, "{unknown:?}");
    }
    for owner in ["alice", "carol"] {
        let refused = store.create_session(session("a", owner, 9), PLENTY).await.unwrap_err();
        assert!(refused.to_string().contains("already"), "{refused}");
    }
    assert_eq!(store.session("a").await.unwrap(), Some(first));
}

/// The limit holds under concurrent creations, for each owner separately. A deleted session makes space.
pub async fn sessions_are_limited_per_owner(open: impl AsyncFn() -> Arc<dyn Store>) {
    const LIMIT: usize = 5;
    let store = open().await;
    let ids: Vec<String> = (0..40).map(|n| format!("s{n}")).collect();
    let mut creates = JoinSet::new();
    for id in ids.clone() {
        let store = Arc::clone(&store);
        creates.spawn(async move { store.create_session(session(id, "alice", 0), LIMIT).await.unwrap() });
    }
    let kept = creates.join_all().await.into_iter().filter(|kept| *kept).count();
    assert_eq!(kept, LIMIT);
    let there = left(&store, &ids).await;
    assert_eq!(there.len(), LIMIT, "what was refused is not there");

    assert!(!store.create_session(session("more", "alice", 0), LIMIT).await.unwrap());
    assert!(store.create_session(session("bobs", "bob", 0), LIMIT).await.unwrap());
    assert!(store.create_session(session("more", "alice", 0), LIMIT + 1).await.unwrap());
    assert!(!store.create_session(session("none", "carol", 0), 0).await.unwrap());
    for id in there.iter().take(2) {
        assert!(store.delete_session(id).await.unwrap());
    }
    assert!(store.create_session(session("again", "alice", 0), LIMIT).await.unwrap());
    assert!(!store.create_session(session("too many", "alice", 0), LIMIT).await.unwrap());
}

/// A change that was decided on an old version changes nothing; of many on the same version one succeeds.
pub async fn a_session_changes_under_its_version(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for id in ["a", "other"] {
        store.create_session(session(id, "alice", 5), PLENTY).await.unwrap();
    }
    assert!(store.update_session("a", 1, "second".into()).await.unwrap());
    let second = Session { body: "second".into(), version: 2, ..session("a", "alice", 5) };
    for stale in [0, 1, 3] {
        assert!(!store.update_session("a", stale, "stale".into()).await.unwrap(), "version {stale}");
        assert_eq!(store.session("a").await.unwrap().as_ref(), Some(&second));
    }
    assert!(!store.update_session("unknown", 1, "x".into()).await.unwrap());
    assert_eq!(store.session("unknown").await.unwrap(), None);

    for version in 2..6_u64 {
        let mut updates = JoinSet::new();
        for n in 0..20 {
            let (store, body) = (Arc::clone(&store), format!("{version} by {n}"));
            updates.spawn(async move {
                store.update_session("a", version, body.clone().into()).await.unwrap().then_some(body)
            });
        }
        let made: Vec<_> = updates.join_all().await.into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "exactly one changes version {version}");
        let now = store.session("a").await.unwrap().unwrap();
        assert_eq!((now.body, now.version), (made[0].clone().into(), version + 1));
    }
    assert_eq!(store.session("other").await.unwrap(), Some(session("other", "alice", 5)));
}

/// The latest use counts, in whatever order uses are recorded; and nothing else changes.
pub async fn a_touched_session_never_goes_back(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for (id, used) in [("a", 10), ("b", 50), ("c", 10)] {
        store.create_session(session(id, "alice", used), PLENTY).await.unwrap();
    }
    let used = async |id: &str| store.session(id).await.unwrap().unwrap();
    let both = ["b".to_owned(), "unknown".to_owned(), "a".to_owned()];
    store.touch_sessions(&both, at(30)).await.unwrap();
    assert_eq!(used("a").await, session("a", "alice", 30));
    assert_eq!(used("b").await, session("b", "alice", 50), "it was used later than that");
    assert_eq!(used("c").await, session("c", "alice", 10), "nobody named it");
    assert_eq!(store.session("unknown").await.unwrap(), None);
    store.touch_sessions(&both, at(60)).await.unwrap();
    store.touch_sessions(&both, at(20)).await.unwrap();
    store.touch_sessions(&[], at(90)).await.unwrap();
    assert_eq!((used("a").await.used_at, used("b").await.used_at), (at(60), at(60)));
    // A change is not a use, and a use is not a change.
    assert!(store.update_session("a", 1, "new".into()).await.unwrap());
    assert_eq!(used("a").await.used_at, at(60));

    // Many concurrent writes, in both orders: no deadlock.
    let ids: Vec<String> = (0..30).map(|n| format!("s{n}")).collect();
    for id in &ids {
        store.create_session(session(id, "bob", 0), PLENTY).await.unwrap();
    }
    let mut touches = JoinSet::new();
    for n in 1..=40 {
        let (store, mut ids) = (Arc::clone(&store), ids.clone());
        touches.spawn(async move {
            if n % 2 == 0 {
                ids.reverse();
            }
            store.touch_sessions(&ids, at(n)).await.unwrap();
        });
    }
    touches.join_all().await;
    for id in &ids {
        assert_eq!(used(id).await.used_at, at(40));
    }
}

/// Deletes sessions last used before the time, of every owner, oldest first, up to the limit; nothing else.
pub async fn old_sessions_expire_in_pieces(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    // Enough for several transactions, if a store deletes them in chunks.
    const OLD: usize = 600;
    let ids: Vec<String> = (0..OLD).map(|n| format!("old {n}")).collect();
    let mut creates = JoinSet::new();
    for (n, id) in ids.iter().cloned().enumerate() {
        let (store, owner) = (Arc::clone(&store), if n % 2 == 0 { "alice" } else { "bob" });
        // The first four are the oldest.
        let used = if n < 4 { n as i64 } else { 10 };
        creates.spawn(async move { store.create_session(session(id, owner, used), PLENTY).await.unwrap() });
    }
    assert!(creates.join_all().await.into_iter().all(|kept| kept));
    let kept = ["at", "after", "touched"].map(str::to_owned);
    for (id, used) in kept.iter().zip([100, 101, 10]) {
        store.create_session(session(id, "alice", used), PLENTY).await.unwrap();
    }
    store.touch_sessions(&kept[2..], at(100)).await.unwrap();

    assert_eq!(store.expire_sessions(None, at(0), PLENTY).await.unwrap(), 0, "before, not at");
    assert_eq!(store.expire_sessions(Some("carol"), at(100), PLENTY).await.unwrap(), 0, "nobody's");
    assert_eq!(store.expire_sessions(None, at(100), 0).await.unwrap(), 0);
    assert_eq!(store.expire_sessions(None, at(100), 4).await.unwrap(), 4, "as many as asked for");
    assert_eq!(left(&store, &ids).await, ids[4..].iter().cloned().collect(), "the oldest first");
    assert_eq!(store.expire_sessions(Some("bob"), at(100), PLENTY).await.unwrap(), OLD as u64 / 2 - 2);
    let of_alice = ids[4..].iter().step_by(2).cloned().collect();
    assert_eq!(left(&store, &ids).await, of_alice, "whoever makes room makes it among its own");
    assert_eq!(store.expire_sessions(None, at(100), 200).await.unwrap(), 200);
    assert_eq!(left(&store, &ids).await.len(), OLD / 2 - 202);
    assert_eq!(
        store.expire_sessions(None, at(100), PLENTY).await.unwrap(),
        OLD as u64 / 2 - 202,
        "then the rest"
    );
    assert_eq!(store.expire_sessions(None, at(100), PLENTY).await.unwrap(), 0);
    assert!(left(&store, &ids).await.is_empty());
    assert_eq!(left(&store, &kept).await.len(), 3);
    // An expired session makes space, and its id is free.
    assert!(store.create_session(session("old 0", "alice", 200), 4).await.unwrap());
}

/// Created, changed, used and deleted sessions are the same after a restart.
pub async fn sessions_survive_a_reopen(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for id in ["a", "b", "gone"] {
        store.create_session(session(id, "alice", 5), PLENTY).await.unwrap();
    }
    assert!(store.update_session("a", 1, "second".into()).await.unwrap());
    store.touch_sessions(&["b".into()], at(9)).await.unwrap();
    assert!(store.delete_session("gone").await.unwrap());
    assert!(!store.delete_session("gone").await.unwrap(), "it was there once");
    assert_eq!(store.session("gone").await.unwrap(), None);
    store.close().await.unwrap();
    store
        .create_session(session("late", "alice", 5), PLENTY)
        .await
        .expect_err("a closed store keeps nothing");
    drop(store);

    let store = open().await;
    let second = Session { body: "second".into(), version: 2, ..session("a", "alice", 5) };
    assert_eq!(store.session("a").await.unwrap(), Some(second));
    assert_eq!(store.session("b").await.unwrap(), Some(session("b", "alice", 9)));
    for gone in ["gone", "late"] {
        assert_eq!(store.session(gone).await.unwrap(), None);
    }
    assert!(!store.create_session(session("c", "alice", 5), 2).await.unwrap(), "they are still counted");
    assert!(store.update_session("a", 2, "third".into()).await.unwrap());
}
