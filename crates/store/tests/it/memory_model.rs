//! The memory bank against a plain map: whatever is done to it in whatever order, it answers as the map does.

use std::collections::BTreeMap;

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{
        ExpectedVersion, Knowledge, MemoryError, MemoryKey, MemoryPageQuery, MemoryPut, MemoryQuery,
        MemorySearch, MemoryStats,
    },
};
use proptest::prelude::*;

use crate::archive::sqlite;

const KEYS: [&str; 6] = ["a", "ab", "b/1", "é", "*", "zz"];
const SPACES: [&str; 2] = ["n", "m"];
const WORDS: [&str; 3] = ["red", "green", "blue"];

#[derive(Debug, Clone)]
enum Step {
    Put { space: usize, key: usize, words: usize, ttl: Option<u64>, expected: u8, cap: u64 },
    Delete { space: usize, key: usize, expected: Option<u64> },
    Clear { space: usize, limit: usize },
    Sweep { limit: usize },
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2_usize, 0..6_usize, 0..8_usize, prop::option::of(0..40_u64), 0..5_u8, 2..7_u64).prop_map(
            |(space, key, words, ttl, expected, cap)| Step::Put { space, key, words, ttl, expected, cap }
        ),
        2 => (0..2_usize, 0..6_usize, prop::option::of(1..3_u64))
            .prop_map(|(space, key, expected)| Step::Delete { space, key, expected }),
        1 => (0..2_usize, 1..4_usize).prop_map(|(space, limit)| Step::Clear { space, limit }),
        1 => (1..4_usize).prop_map(|limit| Step::Sweep { limit }),
        2 => (1..20_i64).prop_map(Step::Wait),
    ]
}

#[derive(Debug, Clone)]
struct Kept {
    version: u64,
    created: i64,
    updated: i64,
    expires: Option<i64>,
    words: usize,
}

/// The words of a set, by the bits of its number.
fn text(words: usize) -> String {
    let chosen = WORDS.iter().enumerate().filter(|(bit, _)| words >> bit & 1 == 1);
    chosen.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

fn key(space: usize, key: usize) -> MemoryKey {
    MemoryKey { tenant: "acme".into(), namespace: SPACES[space].into(), key: KEYS[key].into() }
}

async fn run(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path());
    let mut model: BTreeMap<(usize, &str), Kept> = BTreeMap::new();
    let mut now = 1_000;
    for step in steps {
        let live = |kept: &Kept| kept.expires.is_none_or(|at| at > now);
        match step.clone() {
            Step::Put { space, key: name, words, ttl, expected, cap } => {
                let there = model.get(&(space, KEYS[name])).filter(|kept| live(kept)).cloned();
                let found = there.as_ref().map(|kept| kept.version);
                let expected = match expected {
                    0 | 1 => ExpectedVersion::Any,
                    2 => ExpectedVersion::Absent,
                    version => ExpectedVersion::Version(u64::from(version) - 2),
                };
                let entries =
                    model.iter().filter(|((at, _), kept)| *at == space && live(kept)).count() as u64;
                let put = MemoryPut {
                    key: key(space, name),
                    value: format!("{:?}", text(words)),
                    text: text(words),
                    ttl_ms: ttl,
                    expected,
                    now: Timestamp(now),
                    max_entries: cap,
                    max_bytes: 1 << 20,
                    max_namespaces: 1 << 20,
                };
                let done = store.put_memory(put).await;
                let fits = match expected {
                    ExpectedVersion::Any => true,
                    ExpectedVersion::Absent => found.is_none(),
                    ExpectedVersion::Version(version) => found == Some(version),
                };
                match done {
                    Err(MemoryError::Moved { found: told }) => assert!(!fits && told == found, "{step:?}"),
                    Err(MemoryError::TooManyEntries(told)) => {
                        assert!(fits && there.is_none() && entries >= cap && told == entries, "{step:?}");
                    }
                    Err(other) => panic!("{other:?}"),
                    Ok(stored) => {
                        assert!(fits && (there.is_some() || entries < cap), "{step:?}");
                        let kept = Kept {
                            version: found.unwrap_or(0) + 1,
                            created: there.map_or(now, |kept| kept.created),
                            updated: now,
                            expires: ttl.map(|ttl| now + ttl as i64),
                            words,
                        };
                        assert_eq!((stored.version, stored.created_at.0), (kept.version, kept.created));
                        model.insert((space, KEYS[name]), kept);
                    }
                }
            }
            Step::Delete { space, key: name, expected } => {
                let place = (space, KEYS[name]);
                let found = model.get(&place).filter(|kept| live(kept)).map(|kept| kept.version);
                match store.delete_memory(&key(space, name), expected, Timestamp(now)).await {
                    Ok(told) => {
                        assert!(told == found && (expected.is_none() || expected == found), "{step:?}");
                        model.remove(&place);
                    }
                    Err(MemoryError::Moved { found: told }) => {
                        assert!(told == found && expected.is_some() && expected != found, "{step:?}");
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            Step::Clear { space, limit } => {
                let gone = store.clear_memory("acme", SPACES[space], limit).await.unwrap();
                let page = all(&store, space, i64::MIN).await;
                let before = model.len();
                // Which of them go is the store's choice, among those that have expired and those that have not.
                model.retain(|(at, name), _| *at != space || page.iter().any(|key| key == name));
                assert_eq!((before - model.len()) as u64, gone, "{step:?}");
                assert!(gone <= limit as u64);
            }
            Step::Sweep { limit } => {
                let over = model.values().filter(|kept| !live(kept)).count();
                let gone = store.expire_memory(Timestamp(now), limit).await.unwrap();
                assert_eq!(gone.len(), over.min(limit), "{step:?}");
                for key in gone {
                    let space = SPACES.iter().position(|space| *space == key.namespace).unwrap();
                    let kept =
                        model.remove(&(space, KEYS.into_iter().find(|name| *name == key.key).unwrap()));
                    assert!(kept.unwrap().expires.unwrap() <= now);
                }
            }
            Step::Wait(ms) => now += ms,
        }
        compare(&store, &model, now).await;
    }
    crate::golden::weights(folder.path());
}

/// The keys of a namespace as they were at that time; in the beginning nothing had expired.
async fn all(store: &dyn Knowledge, space: usize, now: i64) -> Vec<String> {
    let query = MemoryPageQuery {
        tenant: "acme".into(),
        namespace: SPACES[space].into(),
        prefix: String::new(),
        after: String::new(),
        limit: 100,
        values: false,
        now: Timestamp(now),
    };
    store.memory_page(&query).await.unwrap().into_iter().map(|entry| entry.key).collect()
}

/// Every view shows what the map holds and what has not expired.
async fn compare(store: &dyn Knowledge, model: &BTreeMap<(usize, &str), Kept>, now: i64) {
    for (space, namespace) in SPACES.into_iter().enumerate() {
        let live: Vec<_> = model
            .iter()
            .filter(|((at, _), kept)| *at == space && kept.expires.is_none_or(|at| at > now))
            .map(|((_, name), kept)| (*name, kept))
            .collect();
        let names: Vec<_> = live.iter().map(|(name, _)| *name).collect();
        assert_eq!(all(store, space, now).await, names);
        let stats = store.memory_stats("acme", namespace, Timestamp(now)).await.unwrap();
        let expected = (!live.is_empty()).then(|| MemoryStats {
            entries: live.len() as u64,
            bytes: live.iter().map(|(_, kept)| text(kept.words).len() as u64 + 2).sum(),
            oldest: Timestamp(live.iter().map(|(_, kept)| kept.created).min().unwrap()),
            newest: Timestamp(live.iter().map(|(_, kept)| kept.updated).max().unwrap()),
        });
        assert_eq!(stats, expected);
        for (bit, word) in WORDS.into_iter().enumerate() {
            let query = MemorySearch {
                tenant: "acme".into(),
                namespace: namespace.into(),
                what: MemoryQuery::Words(vec![word.into()]),
                offset: 0,
                limit: 100,
                max_keys: 1_000_000,
                within: std::time::Duration::from_secs(60),
                now: Timestamp(now),
            };
            let found = store.search_memory(&query).await.unwrap();
            let mut keys: Vec<_> = found.entries.iter().map(|(entry, _)| &*entry.key).collect();
            keys.sort_unstable();
            let fitting = live.iter().filter(|(_, kept)| kept.words >> bit & 1 == 1);
            assert_eq!(keys, fitting.map(|(name, _)| *name).collect::<Vec<_>>(), "{word} in {namespace}");
        }
        for (place, name) in KEYS.into_iter().enumerate() {
            let entry = store.memory(&key(space, place), Timestamp(now)).await.unwrap();
            let kept = live.iter().find(|(live, _)| *live == name).map(|(_, kept)| kept);
            let told = entry.map(|entry| (entry.version, entry.created_at.0, entry.updated_at.0));
            assert_eq!(told, kept.map(|kept| (kept.version, kept.created, kept.updated)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_agrees_with_a_plain_map(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
