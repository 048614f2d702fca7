//! Names are only names: whatever is in them comes back as it was, and leads nowhere else.

use nuncio_engine::memory::{data_uri, keys_uri};
use serde_json::json;

use super::Bank;

const ODD: &[&str] = &[
    "a/b",
    "task:1",
    "50%",
    "%2f",
    "..%2f..%2fetc",
    "../../etc/passwd",
    "..",
    ".",
    "with space",
    " ",
    "größe",
    "東京",
    "🍵",
    "?pattern=x",
    "#fragment",
    "a&b=c",
    "+",
    "*",
    "[x]",
    "{key}",
    "\"'\\",
    "keys",
    "'; DROP TABLE memory; --",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_comes_back_as_it_was() {
    let bank = Bank::new().await;
    for (n, name) in ODD.iter().enumerate() {
        let stored = bank.store(name, name, json!({ "n": n })).await;
        assert_eq!(stored["uri"], data_uri(name, name));
        bank.store("all", name, json!(n)).await;
    }
    for (n, name) in ODD.iter().enumerate() {
        let data = bank.read(&data_uri(name, name)).await.unwrap();
        assert_eq!(
            (&data["key"], &data["metadata"]["namespace"], &data["value"]["n"]),
            (&json!(name), &json!(name), &json!(n))
        );
        let keys = bank.read(&keys_uri(name)).await.unwrap();
        assert_eq!((&keys["namespace"], &keys["keys"][0]["key"]), (&json!(name), &json!(name)));
        let got = bank.call("memory_get", json!({ "namespace": "all", "key": name })).await;
        assert_eq!(got["value"], n);
    }
    let listed = bank.call("memory_list", json!({ "namespace": "all" })).await;
    let mut sorted = ODD.to_vec();
    sorted.sort_unstable();
    let keys: Vec<&str> =
        listed["keys"].as_array().unwrap().iter().filter_map(|key| key["key"].as_str()).collect();
    assert_eq!(keys, sorted, "in the order of their bytes");
    for name in ODD {
        bank.call("memory_delete", json!({ "namespace": "all", "key": name, "expectedVersion": 1 })).await;
    }
    assert!(bank.read("memory://namespace/all/keys").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_encoded_is_decoded_once() {
    let bank = Bank::new().await;
    bank.store("n", "a/b", json!("slash")).await;
    bank.store("n", "a%2Fb", json!("encoded")).await;
    bank.store("n", "..", json!("dots")).await;
    for (uri, value) in [
        ("memory://data/n/a%2Fb", "slash"),
        ("memory://data/n/a%2fb", "slash"),
        ("memory://data/n/a%252Fb", "encoded"),
        ("memory://data/n/%2e%2e", "dots"),
        ("memory://data/%6E/..", "dots"),
    ] {
        assert_eq!(bank.read(uri).await.unwrap()["value"], value, "{uri}");
    }
    for uri in
        ["memory://data/n/a/b", "memory://data/n/../n/a%2Fb", "memory://data/n/%2", "memory://data/n/%zz"]
    {
        assert!(bank.read(uri).await.is_err(), "{uri}");
    }
}
