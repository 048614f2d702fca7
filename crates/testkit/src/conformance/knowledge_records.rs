//! Checks of records: versioned documents, of which several are written atomically.

use std::sync::Arc;

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::Store,
};
use tokio::task::JoinSet;

use super::fixtures::{assert_is, at};

fn key(id: &str) -> RecordKey {
    RecordKey::new("acme", "kind", id)
}

fn write(id: &str, body: &str, expected: ExpectedVersion) -> RecordWrite {
    RecordWrite { key: key(id), body: Some(body.to_owned().into()), expected, expires_at: None, now: at(0) }
}

async fn body(store: &Arc<dyn Store>, id: &str) -> Option<(String, u64)> {
    let record = store.knowledge().record(&key(id), at(1)).await.unwrap()?;
    Some((String::from_utf8(record.body.to_vec()).unwrap(), record.version))
}

/// A record is read back as it was written, also bytes that are not text; after a deletion its version starts
/// again.
pub async fn a_record_reads_back_whole(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.knowledge();
    assert_eq!(known.record(&key("a"), at(0)).await.unwrap(), None);
    let odd = RecordWrite {
        body: Some(vec![0, 255, 10].into()),
        now: at(7),
        ..write("a", "", ExpectedVersion::Absent)
    };
    assert_eq!(known.write_records(vec![odd]).await.unwrap(), [1]);
    let expected = Record { id: "a".into(), body: vec![0, 255, 10].into(), version: 1, updated_at: at(7) };
    drop(store);
    let store = open().await;
    let known = store.knowledge();
    assert_eq!(known.record(&key("a"), at(8)).await.unwrap(), Some(expected));
    for other in [
        RecordKey::new("other", "kind", "a"),
        RecordKey::new("acme", "other", "a"),
        RecordKey::new("acme", "kind", "A"),
    ] {
        assert_eq!(known.record(&other, at(8)).await.unwrap(), None, "{other:?}");
    }
    assert_eq!(known.write_records(vec![write("a", "two", ExpectedVersion::Version(1))]).await.unwrap(), [2]);
    assert_eq!(known.write_records(vec![write("a", "three", ExpectedVersion::Any)]).await.unwrap(), [3]);
    let gone = RecordWrite { body: None, ..write("a", "", ExpectedVersion::Version(3)) };
    assert_eq!(known.write_records(vec![gone.clone()]).await.unwrap(), [0]);
    assert_eq!(body(&store, "a").await, None);
    assert_is!(known.write_records(vec![gone]).await, Err(RecordError::Moved { at: 0, found: None }));
    let anyway = RecordWrite { body: None, ..write("a", "", ExpectedVersion::Any) };
    assert_eq!(known.write_records(vec![anyway]).await.unwrap(), [0], "nothing to delete is no refusal");
    assert_eq!(known.write_records(vec![write("a", "new", ExpectedVersion::Absent)]).await.unwrap(), [1]);
    assert_eq!(known.write_records(vec![]).await.unwrap(), [0; 0]);
}

/// Several records are written, or none: the error names the first that is not at its expected version.
pub async fn records_are_written_together_or_not(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.knowledge();
    let both = vec![write("b", "b1", ExpectedVersion::Absent), write("a", "a1", ExpectedVersion::Absent)];
    assert_eq!(known.write_records(both).await.unwrap(), [1, 1]);
    let wrong = vec![
        write("new", "x", ExpectedVersion::Absent),
        write("a", "a2", ExpectedVersion::Version(1)),
        write("b", "b2", ExpectedVersion::Version(2)),
        write("c", "c1", ExpectedVersion::Version(9)),
    ];
    assert_is!(known.write_records(wrong).await, Err(RecordError::Moved { at: 2, found: Some(1) }));
    assert_eq!(body(&store, "new").await, None);
    assert_eq!(body(&store, "a").await, Some(("a1".into(), 1)));
    let mixed = vec![
        write("a", "a2", ExpectedVersion::Version(1)),
        RecordWrite { body: None, ..write("b", "", ExpectedVersion::Version(1)) },
        RecordWrite { key: RecordKey::new("other", "kind", "a"), ..write("", "o1", ExpectedVersion::Absent) },
    ];
    assert_eq!(known.write_records(mixed).await.unwrap(), [2, 0, 1]);
    assert_eq!(body(&store, "a").await, Some(("a2".into(), 2)));
    assert_eq!(body(&store, "b").await, None);
}

/// Counters moved between records concurrently, in every order: no deadlock, and nothing is lost or duplicated.
pub async fn records_hold_under_contention(open: impl AsyncFn() -> Arc<dyn Store>) {
    const WRITERS: usize = 16;
    const MOVES: usize = 5;
    let store = open().await;
    let ids = ["a", "b", "c"];
    let start = ids.map(|id| write(id, "100", ExpectedVersion::Absent)).to_vec();
    store.knowledge().write_records(start).await.unwrap();
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let (from, to) = (ids[n % 3], ids[(n + 1 + n / 3 % 2) % 3]);
            let mut moved = 0;
            while moved < MOVES {
                let (has, from_version) = body(&store, from).await.unwrap();
                let (gets, to_version) = body(&store, to).await.unwrap();
                let (has, gets): (i64, i64) = (has.parse().unwrap(), gets.parse().unwrap());
                let pair = vec![
                    write(from, &(has - 1).to_string(), ExpectedVersion::Version(from_version)),
                    write(to, &(gets + 1).to_string(), ExpectedVersion::Version(to_version)),
                ];
                match store.knowledge().write_records(pair).await {
                    Ok(_) => moved += 1,
                    Err(RecordError::Moved { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
    }
    writers.join_all().await;
    let (mut sum, mut versions) = (0, 0);
    for id in ids {
        let (n, version) = body(&store, id).await.unwrap();
        sum += n.parse::<i64>().unwrap();
        versions += version;
    }
    assert_eq!(sum, 300);
    assert_eq!(versions, 3 + 2 * (WRITERS * MOVES) as u64, "every move counts twice");

    // Concurrent creations of the same records in opposite orders: one writer creates both.
    for round in 0..10 {
        let mut makers = JoinSet::new();
        for n in 0..8 {
            let store = Arc::clone(&store);
            makers.spawn(async move {
                let mut both = vec![
                    write(&format!("x{round}"), &n.to_string(), ExpectedVersion::Absent),
                    write(&format!("y{round}"), &n.to_string(), ExpectedVersion::Absent),
                ];
                if n % 2 == 0 {
                    both.reverse();
                }
                match store.knowledge().write_records(both).await {
                    Ok(_) => true,
                    Err(RecordError::Moved { found: Some(1), .. }) => false,
                    Err(other) => panic!("{other:?}"),
                }
            });
        }
        assert_eq!(makers.join_all().await.into_iter().filter(|made| *made).count(), 1);
        assert_eq!(body(&store, &format!("x{round}")).await, body(&store, &format!("y{round}")).await);
    }
}

fn all(tenant: Option<&str>, now: Timestamp) -> RecordQuery {
    RecordQuery {
        tenant: tenant.map(str::to_owned),
        kind: "kind".into(),
        prefix: String::new(),
        after: String::new(),
        limit: 100,
        now,
    }
}

async fn ids(store: &Arc<dyn Store>, query: RecordQuery) -> Vec<String> {
    let records = store.knowledge().records(&query).await.unwrap();
    assert!(records.iter().all(|record| record.version == 1 && &*record.body == b"x"), "{records:?}");
    records.into_iter().map(|record| record.id).collect()
}

/// Records of a kind are ordered by id, of one tenant or of all.
pub async fn records_are_listed_by_id(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let names = ["a", "a/1", "a/2", "a%", "a_", "B", "é", "it's"];
    let mut writes: Vec<_> = names.iter().map(|id| write(id, "x", ExpectedVersion::Absent)).collect();
    for (tenant, kind) in [("other", "kind"), ("acme2", "kind"), ("acme", "another")] {
        let of = RecordKey::new(tenant, kind, "a/9");
        writes.push(RecordWrite { key: of, ..write("", "x", ExpectedVersion::Absent) });
    }
    store.knowledge().write_records(writes).await.unwrap();
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let acme = || all(Some("acme"), at(1));
    assert_eq!(ids(&store, acme()).await, sorted);
    assert_eq!(ids(&store, RecordQuery { prefix: "a/".into(), ..acme() }).await, ["a/1", "a/2"]);
    assert_eq!(ids(&store, RecordQuery { prefix: "a%".into(), ..acme() }).await, ["a%"]);
    let query = RecordQuery { prefix: "a".into(), after: "a/1".into(), limit: 1, ..acme() };
    assert_eq!(ids(&store, query).await, ["a/2"]);
    assert_eq!(ids(&store, all(Some("nobody"), at(1))).await, [""; 0]);

    let mut everybody: Vec<String> = sorted.iter().map(|id| format!("acme\n{id}")).collect();
    everybody.extend(["acme2\na/9".to_owned(), "other\na/9".to_owned()]);
    assert_eq!(ids(&store, all(None, at(1))).await, everybody);
    let (mut seen, mut after) = (vec![], String::new());
    loop {
        let page = ids(&store, RecordQuery { after, limit: 3, ..all(None, at(1)) }).await;
        let Some(last) = page.last() else { break };
        after = last.clone();
        seen.extend(page);
    }
    assert_eq!(seen, everybody, "page by page");
    let query = RecordQuery { prefix: "acme\na/".into(), ..all(None, at(1)) };
    assert_eq!(ids(&store, query).await, ["acme\na/1", "acme\na/2"]);
    let query = RecordQuery { prefix: "acme2".into(), ..all(None, at(1)) };
    assert_eq!(ids(&store, query).await, ["acme2\na/9"]);
}

/// An expired record is absent, swept or not, and its version starts again.
pub async fn records_expire(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.knowledge();
    let short = |id: &str, expected| RecordWrite { expires_at: Some(at(100)), ..write(id, "x", expected) };
    let writes = vec![
        short("a", ExpectedVersion::Absent),
        short("b", ExpectedVersion::Absent),
        short("c", ExpectedVersion::Absent),
        write("d", "x", ExpectedVersion::Absent),
    ];
    known.write_records(writes).await.unwrap();
    assert_eq!(ids(&store, all(Some("acme"), at(99))).await, ["a", "b", "c", "d"]);
    assert_eq!(ids(&store, all(Some("acme"), at(100))).await, ["d"]);
    assert_eq!(ids(&store, all(None, at(100))).await, ["acme\nd"]);
    assert!(known.record(&key("a"), at(99)).await.unwrap().is_some());
    assert_eq!(known.record(&key("a"), at(100)).await.unwrap(), None);
    let late = |expected| vec![RecordWrite { now: at(100), ..write("a", "x", expected) }];
    assert_is!(
        known.write_records(late(ExpectedVersion::Version(1))).await,
        Err(RecordError::Moved { at: 0, found: None })
    );
    assert_eq!(known.write_records(late(ExpectedVersion::Absent)).await.unwrap(), [1]);
    assert_eq!(known.expire_records(at(99), 10).await.unwrap(), 0);
    assert_eq!(known.expire_records(at(100), 1).await.unwrap(), 1);
    assert_eq!(known.expire_records(at(100), 10).await.unwrap(), 1);
    assert_eq!(known.expire_records(at(1 << 40), 10).await.unwrap(), 0);
    assert_eq!(ids(&store, all(Some("acme"), at(1))).await, ["a", "d"]);
}
