//! Checks of the memory bank: versioned entries, pages, counts, caps and expiry.

use std::sync::Arc;

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{
        ENTRY_OVERHEAD, ExpectedVersion, MemoryEntry, MemoryError, MemoryKey, MemoryPageQuery, MemoryPut,
        MemoryQuery, MemoryReads, MemorySearch, MemoryStats, MemoryWriteResult,
    },
    store::Store,
};
use tokio::task::JoinSet;

use super::fixtures::{assert_is, at};

/// Keys with a special meaning in SQL, in patterns or in paths.
const ODD_KEYS: [&str; 16] = [
    "100%",
    "a_b",
    "*",
    "?",
    "[x]",
    "]",
    "\\",
    "a/b/c",
    "a:b",
    "it's",
    "\"quoted\"",
    "a b",
    "ключ",
    "東京",
    "é",
    "🦀",
];

/// The key of an entry of `acme`.
pub(super) fn key(namespace: &str, key: &str) -> MemoryKey {
    MemoryKey { tenant: "acme".into(), namespace: namespace.into(), key: key.into() }
}

/// A write of `acme` at `at(0)` without an expected version, far below the caps.
pub(super) fn put(namespace: &str, name: &str, value: &str) -> MemoryPut {
    MemoryPut {
        key: key(namespace, name),
        value: value.into(),
        text: value.into(),
        ttl_ms: None,
        expected: ExpectedVersion::Any,
        now: at(0),
        max_entries: 1_000_000,
        max_bytes: 1 << 40,
        max_namespaces: 1_000,
    }
}

pub(super) fn page_of(namespace: &str, now: Timestamp) -> MemoryPageQuery {
    MemoryPageQuery {
        tenant: "acme".into(),
        namespace: namespace.into(),
        prefix: String::new(),
        after: String::new(),
        limit: 100,
        values: true,
        now,
    }
}

fn names(entries: &[MemoryEntry]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.key).collect()
}

/// Writes an entry; the write must be accepted.
pub(super) async fn puts(store: &Arc<dyn Store>, put: MemoryPut) -> MemoryWriteResult {
    store.knowledge().put_memory(put).await.expect("the write is accepted")
}

/// An entry is read back with all its metadata; an overwrite keeps what belongs to the key.
pub async fn an_entry_reads_back_whole(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    assert_eq!(bank.memory(&key("n", "k"), at(0)).await.unwrap(), None);
    let first = MemoryPut { ttl_ms: Some(5_000), ..put("n", "k", "{\"a\":\"é\"}") };
    assert_eq!(puts(&store, first).await, MemoryWriteResult { version: 1, created_at: at(0) });
    let mut expected = MemoryEntry {
        key: "k".into(),
        value: "{\"a\":\"é\"}".into(),
        version: 1,
        created_at: at(0),
        updated_at: at(0),
        accessed_at: at(0),
        reads: 0,
        size: 10,
        ttl_ms: Some(5_000),
    };
    assert_eq!(bank.memory(&key("n", "k"), at(0)).await.unwrap().as_ref(), Some(&expected));
    let read = |reads, ms| MemoryReads { key: key("n", "k"), reads, at: at(ms) };
    bank.count_reads(&[read(2, 30), read(3, 20)]).await.unwrap();
    bank.count_reads(&[MemoryReads { key: key("n", "gone"), reads: 1, at: at(1) }]).await.unwrap();
    (expected.reads, expected.accessed_at) = (5, at(30));
    assert_eq!(bank.memory(&key("n", "k"), at(40)).await.unwrap().as_ref(), Some(&expected));

    let second = MemoryPut { now: at(50), ..put("n", "k", "[]") };
    assert_eq!(puts(&store, second).await, MemoryWriteResult { version: 2, created_at: at(0) });
    expected = MemoryEntry {
        value: "[]".into(),
        version: 2,
        updated_at: at(50),
        accessed_at: at(50),
        size: 2,
        ttl_ms: None,
        ..expected
    };
    drop(store);
    let store = open().await;
    let bank = store.knowledge();
    assert_eq!(bank.memory(&key("n", "k"), at(1 << 40)).await.unwrap(), Some(expected));
    for other in
        [MemoryKey { tenant: "other".into(), ..key("n", "k") }, key("m", "k"), key("n", "K"), key("n", "k ")]
    {
        assert_eq!(bank.memory(&other, at(60)).await.unwrap(), None, "{other:?}");
    }
}

/// A write whose expected version does not match changes nothing.
pub async fn an_entry_changes_under_its_version(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    let write = |expected| bank.put_memory(MemoryPut { expected, ..put("n", "k", "1") });
    assert_is!(write(ExpectedVersion::Version(1)).await, Err(MemoryError::Moved { found: None }));
    assert_eq!(bank.memory_stats("acme", "n", at(0)).await.unwrap(), None);
    assert_eq!(write(ExpectedVersion::Absent).await.unwrap().version, 1);
    assert_is!(write(ExpectedVersion::Absent).await, Err(MemoryError::Moved { found: Some(1) }));
    assert_is!(write(ExpectedVersion::Version(2)).await, Err(MemoryError::Moved { found: Some(1) }));
    assert_eq!(write(ExpectedVersion::Version(1)).await.unwrap().version, 2);

    let delete = |expected| async move { bank.delete_memory(&key("n", "k"), expected, at(1)).await };
    assert_is!(delete(Some(1)).await, Err(MemoryError::Moved { found: Some(2) }));
    assert_eq!(delete(Some(2)).await.unwrap(), Some(2));
    assert_is!(delete(Some(2)).await, Err(MemoryError::Moved { found: None }));
    assert_eq!(delete(None).await.unwrap(), None);
    assert_eq!(write(ExpectedVersion::Absent).await.unwrap().version, 1, "what was deleted begins again");
}

/// Concurrent writes of one key: one of those that expect it absent wins, and one of those that expect a
/// version.
pub async fn one_of_many_writers_wins(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for round in 0..10 {
        for expected in [ExpectedVersion::Absent, ExpectedVersion::Version(1), ExpectedVersion::Version(2)] {
            let mut writers = JoinSet::new();
            for n in 0..20 {
                let store = Arc::clone(&store);
                let put = MemoryPut { expected, ..put("n", &format!("k{round}"), &n.to_string()) };
                writers.spawn(async move { (n, store.knowledge().put_memory(put).await) });
            }
            let mut won = vec![];
            for (n, done) in writers.join_all().await {
                match done {
                    Ok(stored) => won.push((n, stored.version)),
                    Err(MemoryError::Moved { found }) => assert!(found.is_some()),
                    Err(other) => panic!("{other:?}"),
                }
            }
            let version = match expected {
                ExpectedVersion::Version(version) => version + 1,
                _ => 1,
            };
            assert_eq!(won.len(), 1, "{expected:?}: {won:?}");
            assert_eq!(won[0].1, version);
            let entry =
                store.knowledge().memory(&key("n", &format!("k{round}")), at(1)).await.unwrap().unwrap();
            assert_eq!((entry.version, entry.value), (version, won[0].0.to_string()));
        }
    }
    let stats = store.knowledge().memory_stats("acme", "n", at(1)).await.unwrap().unwrap();
    assert_eq!(stats.entries, 10);
}

/// Concurrent writes of different keys: nothing is lost, the counts are exact, and a cap holds.
pub async fn counts_are_exact_under_contention(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut writers = JoinSet::new();
    for n in 0..200 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let write =
                MemoryPut { max_entries: 40, ..put("n", &format!("k{}", n % 50), &"x".repeat(n % 7)) };
            match store.knowledge().put_memory(write).await {
                Ok(_) => true,
                Err(MemoryError::TooManyEntries(40)) => false,
                Err(other) => panic!("{other:?}"),
            }
        });
    }
    let refused = writers.join_all().await.into_iter().filter(|done| !done).count();
    assert!(refused > 0, "fifty keys do not fit");
    let bank = store.knowledge();
    let entries = bank.memory_page(&page_of("n", at(1))).await.unwrap();
    let stats = bank.memory_stats("acme", "n", at(1)).await.unwrap().unwrap();
    assert_eq!((stats.entries, entries.len()), (40, 40));
    assert_eq!(stats.bytes, entries.iter().map(|entry| entry.value.len() as u64).sum::<u64>());
}

/// Pages are ordered by the bytes of the keys, under a prefix and after a key, within one namespace and tenant.
pub async fn pages_go_by_key(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    for name in ODD_KEYS {
        puts(&store, put("n", name, "\"v\"")).await;
        let elsewhere = MemoryKey { tenant: "other".into(), ..key("n", &format!("{name}x")) };
        puts(&store, MemoryPut { key: elsewhere, ..put("", "", "1") }).await;
        puts(&store, put("m", &format!("{name}y"), "1")).await;
    }
    let mut sorted = ODD_KEYS.to_vec();
    sorted.sort_unstable();
    let all = bank.memory_page(&page_of("n", at(1))).await.unwrap();
    assert_eq!(names(&all), sorted);
    for (place, name) in sorted.iter().enumerate() {
        let entry =
            bank.memory(&key("n", name), at(1)).await.unwrap().expect("every key is found by its name");
        assert_eq!(entry, all[place]);
        let query = MemoryPageQuery { after: (*name).into(), limit: 3, values: false, ..page_of("n", at(1)) };
        let rest = bank.memory_page(&query).await.unwrap();
        assert_eq!(names(&rest), sorted[place + 1..].iter().take(3).copied().collect::<Vec<_>>());
        assert!(
            rest.iter().all(|entry| entry.value.is_empty() && entry.size == 3),
            "without values: {rest:?}"
        );
        let first = name.chars().next().unwrap().to_string();
        let query = MemoryPageQuery { prefix: first.clone(), ..page_of("n", at(1)) };
        let fitting: Vec<_> = sorted.iter().copied().filter(|name| name.starts_with(&first)).collect();
        assert_eq!(names(&bank.memory_page(&query).await.unwrap()), fitting, "{first:?}");
    }
    let query = MemoryPageQuery { prefix: "a".into(), after: "a/b/c".into(), ..page_of("n", at(1)) };
    assert_eq!(names(&bank.memory_page(&query).await.unwrap()), ["a:b", "a_b"]);
    let query = MemoryPageQuery { prefix: "a".into(), after: "🦀".into(), ..page_of("n", at(1)) };
    assert_eq!(names(&bank.memory_page(&query).await.unwrap()), [""; 0]);
}

/// A page that is read with the size of its namespace is what both are alone, and never shows a write that the
/// size does not, or the other way around.
pub async fn a_page_and_its_counts_are_of_one_moment(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    assert_eq!(bank.memory_stats_and_page(&page_of("n", at(0))).await.unwrap(), None);
    for (n, name) in ODD_KEYS.into_iter().enumerate() {
        let ttl_ms = (n % 3 == 0).then_some(50);
        puts(&store, MemoryPut { ttl_ms, now: at(n as i64), ..put("n", name, &"x".repeat(n)) }).await;
    }
    puts(&store, MemoryPut { ttl_ms: Some(50), ..put("m", "k", "1") }).await;
    for now in [at(20), at(55), at(100)] {
        for (prefix, after, limit, values) in
            [("", "", 100, true), ("", "a_b", 3, false), ("a", "a/b/c", 2, true), ("a", "🦀", 2, false)]
        {
            let query = MemoryPageQuery {
                prefix: prefix.into(),
                after: after.into(),
                limit,
                values,
                ..page_of("n", now)
            };
            let (stats, page) = bank.memory_stats_and_page(&query).await.unwrap().expect("it holds entries");
            assert_eq!(Some(stats), bank.memory_stats("acme", "n", now).await.unwrap());
            assert_eq!(page, bank.memory_page(&query).await.unwrap(), "{query:?}");
        }
        let other = MemoryPageQuery { tenant: "other".into(), ..page_of("n", now) };
        assert_eq!(bank.memory_stats_and_page(&other).await.unwrap(), None);
    }
    assert!(bank.memory_stats_and_page(&page_of("m", at(49))).await.unwrap().is_some());
    assert_eq!(bank.memory_stats_and_page(&page_of("m", at(50))).await.unwrap(), None, "all have expired");

    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..200_usize {
                let name = format!("k{}", n % 20);
                puts(&store, MemoryPut { now: at(100), ..put("o", &name, &"x".repeat(n % 7)) }).await;
                if n % 5 == 4 {
                    store.knowledge().delete_memory(&key("o", &name), None, at(100)).await.unwrap();
                }
            }
        })
    };
    while !writer.is_finished() {
        let Some((stats, page)) = bank.memory_stats_and_page(&page_of("o", at(100))).await.unwrap() else {
            continue;
        };
        let bytes = page.iter().map(|entry| entry.value.len() as u64).sum::<u64>();
        assert_eq!((stats.entries, stats.bytes), (page.len() as u64, bytes));
    }
    writer.await.unwrap();
}

/// Many keys, page by page: each once, in order; then cleared in chunks.
pub async fn many_keys_are_paged_and_cleared(open: impl AsyncFn() -> Arc<dyn Store>) {
    const KEYS: usize = 20_000;
    let store = open().await;
    let mut writers = JoinSet::new();
    for part in 0..16 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut waiting = JoinSet::new();
            for n in (part..KEYS).step_by(16) {
                let store = Arc::clone(&store);
                waiting.spawn(async move { puts(&store, put("n", &format!("key/{n:05}"), "12345")).await });
                if waiting.len() >= 64 {
                    waiting.join_next().await;
                }
            }
            waiting.join_all().await;
        });
    }
    writers.join_all().await;
    puts(&store, put("m", "stays", "1")).await;
    let bank = store.knowledge();
    let stats = bank.memory_stats("acme", "n", at(1)).await.unwrap().unwrap();
    assert_eq!((stats.entries, stats.bytes), (KEYS as u64, KEYS as u64 * 5));
    let (mut seen, mut after) = (0, String::new());
    loop {
        let query = MemoryPageQuery { after, limit: 1_000, ..page_of("n", at(1)) };
        let entries = bank.memory_page(&query).await.unwrap();
        for entry in &entries {
            assert_eq!(entry.key, format!("key/{seen:05}"));
            seen += 1;
        }
        let Some(last) = entries.last() else { break };
        after = last.key.clone();
    }
    assert_eq!(seen, KEYS);
    let query = MemorySearch {
        tenant: "acme".into(),
        namespace: "n".into(),
        what: MemoryQuery::Keys("key/1*9".into()),
        offset: 995,
        limit: 10,
        max_keys: 1_000_000,
        within: std::time::Duration::from_secs(60),
        now: at(1),
    };
    let found = bank.search_memory(&query).await.unwrap();
    assert_eq!(found.total, 1_000);
    let last: Vec<_> = found.entries.iter().map(|(entry, _)| &*entry.key).collect();
    assert_eq!(last, ["key/19959", "key/19969", "key/19979", "key/19989", "key/19999"]);
    // Keys with the prefix are candidates, and one more than the limit is too many.
    let cut = async |max_keys, within| {
        let query = MemorySearch { max_keys, within, ..query.clone() };
        bank.search_memory(&query).await.unwrap().is_cut
    };
    assert!(!cut(10_000, query.within).await);
    assert!(cut(9_999, query.within).await);
    assert!(cut(10_000, std::time::Duration::from_micros(1)).await, "its time was over");
    assert_eq!(bank.search_memory(&query).await.unwrap(), found, "the next one is as good as before");

    assert_eq!(bank.clear_memory("acme", "n", 700).await.unwrap(), 700);
    assert_eq!(bank.memory_stats("acme", "n", at(1)).await.unwrap().unwrap().entries, KEYS as u64 - 700);
    assert_eq!(bank.clear_memory("acme", "n", KEYS).await.unwrap(), KEYS as u64 - 700);
    assert_eq!(bank.clear_memory("acme", "n", KEYS).await.unwrap(), 0);
    assert_eq!(bank.memory_stats("acme", "n", at(1)).await.unwrap(), None);
    assert_eq!(bank.namespaces("acme", "", "", 10, at(1)).await.unwrap(), ["m"]);
    assert_eq!(bank.search_memory(&query).await.unwrap().total, 0);
}

/// An expired entry is absent in every view. Sweeping it changes nothing.
pub async fn what_has_expired_is_gone_from_every_view(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    puts(&store, MemoryPut { now: at(5), ..put("n", "stays", "apple") }).await;
    puts(&store, MemoryPut { ttl_ms: Some(100), ..put("n", "goes", "apple pie") }).await;
    puts(&store, MemoryPut { ttl_ms: Some(100), ..put("short", "goes", "apple") }).await;
    puts(&store, MemoryPut { ttl_ms: Some(300), now: at(3), ..put("n", "later", "pear") }).await;
    let sought = |what| MemorySearch {
        tenant: "acme".into(),
        namespace: "n".into(),
        what,
        offset: 0,
        limit: 10,
        max_keys: 1_000_000,
        within: std::time::Duration::from_secs(60),
        now: at(100),
    };
    let views = async |now: Timestamp| {
        let search = async |what| {
            let found = bank.search_memory(&MemorySearch { now, ..sought(what) }).await.unwrap();
            assert_eq!(found.total, found.entries.len() as u64);
            let mut names: Vec<_> = found.entries.into_iter().map(|(entry, _)| entry.key).collect();
            names.sort_unstable();
            names
        };
        let stats = bank.memory_stats("acme", "n", now).await.unwrap().unwrap();
        (
            bank.memory(&key("n", "goes"), now).await.unwrap().is_some(),
            names(&bank.memory_page(&page_of("n", now)).await.unwrap()).join(" "),
            search(MemoryQuery::Keys("*".into())).await.join(" "),
            search(MemoryQuery::Words(vec!["apple".into()])).await.join(" "),
            (stats.entries, stats.bytes, stats.oldest, stats.newest),
            bank.namespaces("acme", "", "", 10, now).await.unwrap().join(" "),
            bank.memory_stats("acme", "short", now).await.unwrap().is_some(),
        )
    };
    let text = |text: &str| text.to_owned();
    let before = (
        true,
        text("goes later stays"),
        text("goes later stays"),
        text("goes stays"),
        (3, 18, at(0), at(5)),
        text("n short"),
        true,
    );
    let after = (
        false,
        text("later stays"),
        text("later stays"),
        text("stays"),
        (2, 9, at(3), at(5)),
        text("n"),
        false,
    );
    assert_eq!(views(at(99)).await, before);
    assert_eq!(views(at(100)).await, after);
    assert_eq!(bank.delete_memory(&key("short", "goes"), None, at(99)).await.unwrap(), Some(1));
    puts(&store, MemoryPut { ttl_ms: Some(100), ..put("short", "goes", "apple") }).await;
    assert_eq!(bank.delete_memory(&key("short", "none"), None, at(100)).await.unwrap(), None);

    assert_eq!(bank.expire_memory(at(99), 10).await.unwrap(), []);
    let mut swept = bank.expire_memory(at(100), 1).await.unwrap();
    assert_eq!(swept.len(), 1, "as many as asked for");
    swept.extend(bank.expire_memory(at(100), 10).await.unwrap());
    swept.sort();
    assert_eq!(swept, [key("n", "goes"), key("short", "goes")]);
    assert_eq!(views(at(100)).await, after);
    assert_eq!(bank.expire_memory(at(302), 10).await.unwrap(), []);
    assert_eq!(bank.expire_memory(at(303), 10).await.unwrap(), [key("n", "later")]);
}

/// An expired entry is absent for writes, and starts again at version 1.
pub async fn what_has_expired_begins_again(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    let short = MemoryPut { ttl_ms: Some(100), ..put("n", "k", "12345") };
    puts(&store, short.clone()).await;
    puts(&store, short.clone()).await;
    bank.count_reads(&[MemoryReads { key: key("n", "k"), reads: 7, at: at(50) }]).await.unwrap();
    let late = |expected| MemoryPut { expected, now: at(100), ..short.clone() };
    assert_is!(
        bank.put_memory(late(ExpectedVersion::Version(2))).await,
        Err(MemoryError::Moved { found: None })
    );
    assert_is!(
        bank.delete_memory(&key("n", "k"), Some(2), at(100)).await,
        Err(MemoryError::Moved { found: None })
    );
    assert_eq!(
        puts(&store, late(ExpectedVersion::Absent)).await,
        MemoryWriteResult { version: 1, created_at: at(100) }
    );
    let entry = bank.memory(&key("n", "k"), at(199)).await.unwrap().unwrap();
    assert_eq!((entry.version, entry.reads, entry.created_at), (1, 0, at(100)));
    assert_eq!(bank.expire_memory(at(199), 10).await.unwrap(), [], "its new time has not come");
    assert_eq!(bank.delete_memory(&key("n", "k"), None, at(200)).await.unwrap(), None, "too late");
    assert_eq!(bank.memory_stats("acme", "n", at(150)).await.unwrap(), None);
    assert_eq!(
        puts(&store, MemoryPut { ttl_ms: Some(u64::MAX), ..short }).await.version,
        1,
        "the longest time is no time that overflows"
    );
    assert!(bank.memory(&key("n", "k"), at(1 << 50)).await.unwrap().is_some());
}

/// Caps count live entries; a write that does not grow an entry is always accepted. An entry counts with its
/// names and a fixed overhead.
pub async fn memory_is_capped(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    // Two entries with names of one byte each, and ten bytes of values.
    let most = 2 * (2 + ENTRY_OVERHEAD) + 10;
    let capped = |name: &str, value: &str, ms| MemoryPut {
        max_entries: 2,
        max_bytes: most,
        now: at(ms),
        ..put("n", name, value)
    };
    puts(&store, MemoryPut { ttl_ms: Some(100), ..capped("a", "12345", 0) }).await;
    puts(&store, capped("b", "123", 0)).await;
    assert_is!(bank.put_memory(capped("c", "", 0)).await, Err(MemoryError::TooManyEntries(2)));
    puts(&store, capped("a", "54321", 0)).await;
    puts(&store, MemoryPut { ttl_ms: Some(100), ..capped("a", "1234567", 0) }).await;
    let full = Err::<MemoryWriteResult, u64>(most);
    let bytes = |refused: Result<MemoryWriteResult, MemoryError>| {
        refused.map_err(|error| match error {
            MemoryError::TooManyBytes(bytes) => bytes,
            other => panic!("{other}"),
        })
    };
    assert_eq!(bytes(bank.put_memory(capped("a", "12345678", 0)).await), full);
    let elsewhere = MemoryPut { key: key("m", "k"), ..capped("", "1", 0) };
    // The cap on bytes is the tenant's, the cap on entries the namespace's.
    assert_eq!(bytes(bank.put_memory(elsewhere.clone()).await), full);
    let larger = MemoryPut { max_bytes: most + 202, ..elsewhere.clone() };
    assert_eq!(bytes(bank.put_memory(larger).await), full, "one byte more than its names and the rest");
    let other = MemoryKey { tenant: "other".into(), ..key("m", "k") };
    puts(&store, MemoryPut { key: other, ..elsewhere.clone() }).await;
    puts(&store, MemoryPut { max_entries: 1, max_bytes: 1, ..capped("b", "321", 0) }).await;
    // From 100 on `a` no longer counts, swept or not: neither its value nor its names.
    let most = most + 202;
    let capped = |name: &str, value: &str, ms| MemoryPut { max_bytes: most, ..capped(name, value, ms) };
    puts(&store, MemoryPut { now: at(100), ..elsewhere.clone() }).await;
    puts(&store, capped("c", "123456", 100)).await;
    assert_is!(bank.put_memory(capped("d", "", 100)).await, Err(MemoryError::TooManyEntries(2)));
    let more = MemoryPut { max_entries: 9, ..capped("d", "1", 100) };
    assert_eq!(bytes(bank.put_memory(more).await), Err(most));
    bank.expire_memory(at(100), 10).await.unwrap();
    assert_is!(bank.put_memory(capped("d", "", 100)).await, Err(MemoryError::TooManyEntries(2)));
    let stats = bank.memory_stats("acme", "n", at(100)).await.unwrap().unwrap();
    assert_eq!(stats, MemoryStats { entries: 2, bytes: 9, oldest: at(0), newest: at(100) });
    assert_eq!(bank.delete_memory(&key("n", "c"), None, at(100)).await.unwrap(), Some(1));
    puts(&store, capped("d", "123456", 100)).await;
}

/// A tenant has a maximum number of namespaces; existing ones accept more entries.
pub async fn namespaces_are_capped(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    let capped = |namespace: &str, name: &str, ms| MemoryPut {
        max_namespaces: 2,
        now: at(ms),
        ..put(namespace, name, "1")
    };
    puts(&store, MemoryPut { ttl_ms: Some(100), ..capped("a", "k", 0) }).await;
    puts(&store, capped("b", "k", 0)).await;
    assert_is!(bank.put_memory(capped("c", "k", 0)).await, Err(MemoryError::TooManyNamespaces(2)));
    puts(&store, capped("b", "another", 0)).await;
    let other = MemoryKey { tenant: "other".into(), ..key("c", "k") };
    puts(&store, MemoryPut { key: other, ..capped("c", "k", 0) }).await;
    // An expired entry counts until it is swept.
    assert_is!(bank.put_memory(capped("c", "k", 100)).await, Err(MemoryError::TooManyNamespaces(2)));
    bank.expire_memory(at(100), 10).await.unwrap();
    puts(&store, capped("c", "k", 100)).await;
    assert_is!(bank.put_memory(capped("d", "k", 100)).await, Err(MemoryError::TooManyNamespaces(2)));
    bank.clear_memory("acme", "b", 10).await.unwrap();
    puts(&store, capped("d", "k", 100)).await;
    bank.delete_memory(&key("c", "k"), None, at(100)).await.unwrap();
    puts(&store, capped("b", "k", 100)).await;
}

/// Lists the namespaces that hold entries, by name, under a prefix and after one.
pub async fn namespaces_are_listed(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let bank = store.knowledge();
    for namespace in ["team/b", "team", "team/a", "Zoo", "t%", "été"] {
        puts(&store, put(namespace, "k", "1")).await;
        let other = MemoryKey { tenant: "other".into(), ..key(&format!("{namespace}/x"), "k") };
        puts(&store, MemoryPut { key: other, ..put("", "", "1") }).await;
    }
    let list = async |prefix: &str, after: &str, limit| {
        bank.namespaces("acme", prefix, after, limit, at(1)).await.unwrap().join(" ")
    };
    assert_eq!(list("", "", 10).await, "Zoo t% team team/a team/b été");
    assert_eq!(list("", "team", 2).await, "team/a team/b");
    assert_eq!(list("team/", "", 10).await, "team/a team/b");
    assert_eq!(list("t%", "", 10).await, "t%");
    assert_eq!(list("team", "team/a", 10).await, "team/b");
    assert_eq!(bank.namespaces("nobody", "", "", 10, at(1)).await.unwrap(), [""; 0]);
}
