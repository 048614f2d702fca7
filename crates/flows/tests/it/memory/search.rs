//! Search: scores that were worked out by hand, pages, words, and previews that give nothing away.

use std::time::{Duration, Instant};

use nuncio_engine::{Caller, MeteredResource};
use nuncio_flows::memory::MemoryOptions;
use serde_json::{Value, json};

use super::Bank;

/// Keys and scores of what is found.
async fn found(bank: &Bank, query: &str) -> (Vec<(String, f64)>, u64) {
    let found = bank.read(&format!("memory://search/n?{query}")).await.unwrap();
    let results = found["results"].as_array().unwrap().iter();
    let results =
        results.map(|one| (one["key"].as_str().unwrap().to_owned(), one["score"].as_f64().unwrap()));
    (results.collect(), found["pagination"]["total"].as_u64().unwrap())
}

async fn check(bank: &Bank, pattern: &str, expected: &[(&str, f64)]) {
    let query: String = pattern.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let (found, total) = found(bank, &format!("pattern={query}")).await;
    let expected: Vec<(String, f64)> =
        expected.iter().map(|(key, score)| ((*key).to_owned(), *score)).collect();
    assert_eq!((found, total), (expected.clone(), expected.len() as u64), "{pattern}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scores_are_as_worked_out_by_hand() {
    let bank = Bank::new().await;
    for key in [
        "task:1",
        "task:12",
        "task:123:specification",
        "task:9:specification",
        "tusk:1",
        "größe",
        "a*b",
        "Task:1",
    ] {
        bank.store("n", key, json!(key)).await;
    }
    check(&bank, "task:1", &[("task:1", 1.0)]).await;
    // 19 of 20, and 19 of 22.
    check(
        &bank,
        "task:*:specification",
        &[("task:9:specification", 0.95), ("task:123:specification", 0.8636)],
    )
    .await;
    // 5 of 6, of 7, of 20, of 22: the shortest first.
    check(
        &bank,
        "task:*",
        &[
            ("task:1", 0.8333),
            ("task:12", 0.7143),
            ("task:9:specification", 0.25),
            ("task:123:specification", 0.2273),
        ],
    )
    .await;
    // Of equal length, by key.
    check(&bank, "t?sk:1", &[("task:1", 0.8333), ("tusk:1", 0.8333)]).await;
    check(&bank, "t[a-e]sk:[0-9]", &[("task:1", 0.6667)]).await;
    check(&bank, "t[!a]sk:1", &[("tusk:1", 0.8333)]).await;
    // Characters, not bytes: 3 of 5.
    check(&bank, "grö*", &[("größe", 0.6)]).await;
    check(&bank, "a[*]b", &[("a*b", 1.0)]).await;
    check(&bank, "nothing*", &[]).await;
    let (all, total) = found(&bank, "pattern=*&limit=100").await;
    assert_eq!((all.len(), total), (8, 8));
    assert!(all.iter().all(|(_, score)| *score == 0.0), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_have_all_results_once() {
    let bank = Bank::new().await;
    for n in 0..23 {
        bank.store("n", &format!("k{n:02}"), json!("word")).await;
    }
    for what in ["pattern=k*", "text=word"] {
        let mut seen = vec![];
        for page in 1..=4 {
            let found = bank.read(&format!("memory://search/n?{what}&page={page}")).await.unwrap();
            assert_eq!(found["pagination"], json!({ "total": 23, "page": page, "limit": 10 }));
            seen.extend(
                found["results"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| one["key"].as_str().unwrap().to_owned()),
            );
        }
        seen.sort();
        assert_eq!(seen, (0..23).map(|n| format!("k{n:02}")).collect::<Vec<_>>(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_are_found_in_values_and_the_best_come_first() {
    let bank = Bank::new().await;
    bank.store("n", "tea", json!({ "drink": "Green tea, green leaves", "price": 42 })).await;
    bank.store("n", "mixed", json!(["green", "coffee with a lot of other words around it that say nothing"]))
        .await;
    bank.store("n", "nested", json!({ "a": { "b": [{ "c": "GRÜN" }] } })).await;
    bank.store("m", "elsewhere", json!("green")).await;
    let (green, total) = found(&bank, "text=green").await;
    assert_eq!(
        (green.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), total),
        (vec!["tea", "mixed"], 2)
    );
    assert!(
        green[0].1 > green[1].1 && green.iter().all(|(_, score)| (0.0..=1.0).contains(score)),
        "{green:?}"
    );
    for (text, expected) in [
        ("green%20coffee", vec!["mixed"]),
        ("leaves,%20GREEN!", vec!["tea"]),
        ("42", vec!["tea"]),
        ("gr%C3%BCn", vec!["nested"]),
        ("drink", vec![]),
        ("gree", vec![]),
        ("tea%20OR%20coffee", vec![]),
        ("NEAR(green)", vec![]),
        ("%22green%22", vec!["tea", "mixed"]),
    ] {
        let (found, _) = found(&bank, &format!("text={text}")).await;
        assert_eq!(found.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), expected, "{text}");
    }
    // What is written over or deleted is not found by its old words.
    bank.store("n", "tea", json!("black")).await;
    bank.call("memory_delete", json!({ "namespace": "n", "key": "mixed" })).await;
    assert_eq!(found(&bank, "text=green").await, (vec![], 0));
    let said = bank.read("memory://search/n?text=black").await.unwrap();
    assert_eq!((&said["pattern"], &said["text"]), (&Value::Null, &json!("black")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preview_is_short_and_has_no_secret_which_its_owner_still_reads() {
    let bank = Bank::new().await;
    let secret = "sk-live-0123456789abcdefghij";
    let value =
        json!({ "note": format!("the key is {secret}"), "password": "hunter2", "rest": "x".repeat(500) });
    bank.store("n", "k", value.clone()).await;
    bank.store("n", "edge", json!(format!("{} {secret}", "y".repeat(109)))).await;
    for query in ["pattern=*", "text=key"] {
        let found = bank.read(&format!("memory://search/n?{query}")).await.unwrap().to_string();
        assert!(!found.contains("sk-live") && !found.contains("hunter2"), "{found}");
    }
    let called = bank
        .call_as(&super::me(), "memory_search", json!({ "namespace": "n", "pattern": "*" }))
        .await
        .unwrap();
    let said = format!("{called:?}");
    assert!(!said.contains("sk-live") && !said.contains("hunter2"), "{said}");
    for result in called.structured.unwrap()["results"].as_array().unwrap() {
        let preview = result["preview"].as_str().unwrap();
        assert!(preview.chars().count() <= 120, "{preview}");
        assert!(preview.contains("[redact"), "{preview}");
    }
    assert_eq!(bank.read("memory://data/n/k").await.unwrap()["value"], value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_looks_at_too_much_is_cut_and_says_what_to_do() {
    let bank = Bank::with(|options| options.memory.search_keys = 3, MemoryOptions::default()).await;
    for key in ["few:1", "few:2", "many:1", "many:2"] {
        bank.store("n", key, json!("a word")).await;
    }
    for query in ["pattern=*", "text=word"] {
        let cut = bank.read(&format!("memory://search/n?{query}")).await.unwrap_err().to_string();
        assert!(cut.contains("memory.search-keys") && cut.contains("literal"), "{query}: {cut}");
    }
    assert_eq!(
        found(&bank, "pattern=few:*").await.1,
        2,
        "a pattern that begins with what is sought looks at little"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_waits_for_its_own_searches_and_for_nobody_elses() {
    let within = Duration::from_millis(300);
    let bank = Bank::with(|options| options.memory.search_within = within, MemoryOptions::default()).await;
    let usage = bank.engine.usage();
    let _held = ["acme/eve", "acme/mallory"]
        .map(|owner| usage.take_amount(owner, MeteredResource::Scans, 1).unwrap());
    let began = Instant::now();
    let refused = bank.read_as(&Caller::named("acme/ada"), "memory://search/n?pattern=*").await.unwrap_err();
    assert!(refused.to_string().contains("scans-per-tenant"), "{refused}");
    assert!(began.elapsed() >= within, "it waited for its own first: {:?}", began.elapsed());
    bank.read_as(&Caller::named("globex/bob"), "memory://search/n?pattern=*").await.unwrap();
}
