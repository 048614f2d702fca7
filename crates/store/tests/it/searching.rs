//! A search that takes long is cut, and nothing else waits for it.

use nuncio_engine::store::TaskStore as _;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{ExpectedVersion, Knowledge as _, MemoryKey, MemoryPut, MemoryQuery, MemorySearch},
    store::{ListQuery, Store as _},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use tokio::task::JoinSet;

/// Enough for several times what a search may take, alone and on a fast machine: with 2,000 one was whole in its two seconds.
const KEYS: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_does_not_wait_for_the_searches_of_another_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap());
    let mut puts = JoinSet::new();
    for n in 0..KEYS {
        let store = Arc::clone(&store);
        puts.spawn(async move {
            let key = format!("{}{n:05}", "a".repeat(500));
            let put = MemoryPut {
                key: MemoryKey { tenant: "evil".into(), namespace: "n".into(), key },
                value: "1".into(),
                text: String::new(),
                ttl_ms: None,
                expected: ExpectedVersion::Any,
                now: Timestamp(0),
                max_entries: 1_000_000,
                max_bytes: 1 << 40,
                max_namespaces: 10,
            };
            store.put_memory(put).await.unwrap();
        });
    }
    puts.join_all().await;
    // Each star may begin anywhere: some hundred thousand comparisons for each key.
    let query = MemorySearch {
        tenant: "evil".into(),
        namespace: "n".into(),
        what: MemoryQuery::Keys(format!("*{}b*", "?".repeat(240))),
        offset: 0,
        limit: 10,
        max_keys: 1_000_000,
        within: Duration::from_secs(2),
        now: Timestamp(1),
    };
    let mut searches = JoinSet::new();
    for _ in 0..8 {
        let (store, query) = (Arc::clone(&store), query.clone());
        searches.spawn(async move {
            let started = Instant::now();
            (store.search_memory(&query).await.unwrap(), started.elapsed())
        });
    }
    let list = ListQuery {
        owner: "acme/ada".into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 10,
        only_rows: true,
    };
    let (mut longest, mut lists) = (Duration::ZERO, 0);
    while !searches.is_empty() {
        let started = Instant::now();
        store.list(&list).await.unwrap();
        longest = longest.max(started.elapsed());
        lists += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        while let Some(search) = searches.try_join_next() {
            let (found, _) = search.unwrap();
            assert!(found.is_cut, "it looked at everything in time: {}", found.total);
        }
    }
    println!("{lists} lists while eight searches ran; the longest took {longest:?}");
    assert!(longest < Duration::from_millis(1_500), "a list took {longest:?}");
    store.close().await.unwrap();
}
