//! A hundred thousand keys: what is asked of them stays paged and fast.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{AuditLevel, Options, knowledge::ExpectedVersion};
use nuncio_flows::memory::MemoryOptions;
use serde_json::{Value, json};

use super::{Bank, me};

const KEYS: u32 = 100_000;
/// Writers at once.
const WRITERS: u32 = 256;
/// Far more than it takes, on a machine that does other things too.
const CEILING: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_keys_are_listed_read_and_searched_in_no_time() {
    // Without lines of the audit, which are another hundred thousand writes.
    let set = |options: &mut Options| options.access.audit = AuditLevel::Refused;
    let bank = Arc::new(Bank::with(set, MemoryOptions::default()).await);
    let next = Arc::new(AtomicU32::new(0));
    let began = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (memory, next) = (bank.engine.memory(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= KEYS {
                        return;
                    }
                    let text = if n.is_multiple_of(1_000) { "a rare word" } else { "something common" };
                    let value = json!({ "n": n, "text": text });
                    let key = format!("task:{n:06}:note");
                    memory.store(&me(), "big", &key, &value, None, ExpectedVersion::Absent).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        tokio::time::timeout(Duration::from_secs(300), writer).await.unwrap().unwrap();
    }
    println!("{KEYS} durable stores in {:?}", began.elapsed());

    let timed = async |what: &str, uri: &str| -> Value {
        let mut took = Duration::MAX;
        // The best of three: the machine does other things, too.
        for _ in 0..3 {
            let began = Instant::now();
            bank.content(&me(), uri).await.unwrap();
            took = took.min(began.elapsed());
        }
        println!("{what}: {took:?}");
        assert!(took < CEILING, "{what} took {took:?}");
        bank.read(uri).await.unwrap()
    };
    let first = timed("the first page of keys", "memory://namespace/big/keys").await;
    assert_eq!((&first["stats"]["total"], first["keys"].as_array().unwrap().len()), (&json!(KEYS), 1_000));
    assert!(first["next"].as_str().unwrap().contains("after=task%3A000999%3Anote"));
    let last = timed("the last page of keys", "memory://namespace/big/keys?after=task:099990:note").await;
    assert_eq!((last["keys"].as_array().unwrap().len(), last.get("next")), (9, None));
    let some = timed("a prefix", "memory://namespace/big/keys?prefix=task:0500&limit=100").await;
    assert_eq!(some["keys"][0]["key"], "task:050000:note");
    let one = timed("one value", "memory://data/big/task%3A077777%3Anote").await;
    assert_eq!(one["value"]["n"], 77_777);
    for (what, query, total) in [
        ("a pattern with a prefix", "pattern=task:0123*", 100),
        ("a pattern that all keys are held against", "pattern=*:012345:*", 1),
        ("a pattern that all keys fit", "pattern=*&limit=100", u64::from(KEYS)),
        ("the last page of it", "pattern=*&limit=100&page=1000", u64::from(KEYS)),
        ("a rare word", "text=rare", 100),
        ("a number", "text=54321", 1),
        ("a word that nearly all values have", "text=common", u64::from(KEYS - KEYS / 1_000)),
    ] {
        let found = timed(what, &format!("memory://search/big?{query}")).await;
        assert_eq!(found["pagination"]["total"], total, "{what}");
    }
}
