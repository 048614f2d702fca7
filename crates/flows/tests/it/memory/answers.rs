//! The complete answers, byte for byte: what a client gets does not depend on how it is made.

use nuncio_flows::memory::MemoryOptions;
use nuncio_wire::{
    json,
    mcp::{self, CallOutput, McpVersion},
};
use serde_json::{Value, json};

use super::{Bank, me};

/// Keys and values as clients send them. Digits that a 64-bit number cannot hold are lost when it is read.
const ENTRIES: &[(&str, &str, Option<u64>)] = &[
    ("a/null", "null", None),
    ("a/empty text", "\"\"", None),
    ("a/empty list", "[]", Some(60)),
    ("a/empty object", "{}", Some(100_000)),
    ("b/100%?x=1&y#z", r#"{ "path" : "a/b" , "amp" : "<&>'" }"#, None),
    ("b/\"quoted\"\\", r#""tab\tline\nquote\"slash\/back\\nul\u0000del\u007fsep\u2028""#, None),
    (
        "b/ünï 東京 🦀",
        r#"{"é":"東京 \ud83e\udd80","z":{"":[null,true,{"n":false}]},"a":1}"#,
        Some(315_360_000),
    ),
    ("c/numbers", "[1.10, 100000000000000000001, 18446744073709551615, -9223372036854775808]", None),
    ("c/more numbers", "[0, -0, -0.0, 1e5, 1.5e300, 1e-7, 0.1, 123456789.125, 1e21]", None),
    ("d/secret", r#"{"password":"hunter2"}"#, None),
    ("e/large", "", None),
];

/// The result of a tool call as it is sent.
async fn called(bank: &Bank, tool: &str, arguments: Value) -> String {
    let title = format!("{tool} {arguments}");
    let output = bank.call_as(&me(), tool, arguments).await.unwrap();
    let mut sent = vec![];
    json::object(&mut sent, |result| {
        mcp::write_output(result, McpVersion::V2025_11_25, CallOutput::Tool(&output));
    });
    format!("{title}\n{}", String::from_utf8(sent).unwrap())
}

/// The result of reading a resource as it is sent, and the address of the next page.
async fn read(bank: &Bank, uri: &str) -> (String, Option<String>) {
    let content = bank.content(&me(), uri).await.unwrap();
    let (value, _) = bank.read_as(&me(), uri).await.unwrap();
    let mut sent = vec![];
    json::object(&mut sent, |result| mcp::write_contents(result, &[content]));
    let next = value["next"].as_str().map(str::to_owned);
    (format!("{uri}\n{}", String::from_utf8(sent).unwrap()), next)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_of_an_answer_is_as_it_was() {
    let bank = Bank::with(|_| {}, MemoryOptions::default()).await;
    for (key, value, ttl) in ENTRIES {
        let value: Value = serde_json::from_str(value).unwrap_or_else(|_| json!("word ".repeat(4_000)));
        let mut entry = json!({ "namespace": "n m/%", "key": key, "value": value });
        if let Some(ttl) = ttl {
            entry["ttl"] = (*ttl).into();
        }
        bank.call("memory_store", entry).await;
        bank.clock.advance(std::time::Duration::from_millis(1_234_567));
    }
    // Written twice: created and updated differ.
    bank.call("memory_store", json!({ "namespace": "n m/%", "key": "a/null", "value": null })).await;

    let mut answers = vec![];
    for (key, ..) in ENTRIES.iter().filter(|(key, ..)| *key != "e/large" && *key != "a/empty list") {
        answers.push(called(&bank, "memory_get", json!({ "namespace": "n m/%", "key": key })).await);
        let uri = nuncio_engine::memory::data_uri("n m/%", key);
        answers.push(read(&bank, &uri).await.0);
    }
    for uri in [
        "memory://namespace/n%20m%2F%25/keys",
        "memory://namespace/n%20m%2F%25/keys?prefix=none",
        "memory://search/n%20m%2F%25?pattern=*&limit=100",
        "memory://search/n%20m%2F%25?pattern=c/*&limit=1",
        "memory://search/n%20m%2F%25?pattern=none",
        "memory://search/n%20m%2F%25?text=nothing",
    ] {
        answers.push(read(&bank, uri).await.0);
    }
    let mut next = Some("memory://namespace/n%20m%2F%25/keys?limit=2&prefix=b/".to_owned());
    while let Some(uri) = next {
        let (answer, following) = read(&bank, &uri).await;
        answers.push(answer);
        next = following;
    }
    for arguments in [
        json!({}),
        json!({ "namespace": "n m/%" }),
        json!({ "namespace": "n m/%", "prefix": "b/", "limit": 2 }),
        json!({ "namespace": "n m/%", "prefix": "none" }),
    ] {
        answers.push(called(&bank, "memory_list", arguments).await);
    }
    answers.push(
        called(&bank, "memory_search", json!({ "namespace": "n m/%", "pattern": "*", "limit": 3 })).await,
    );
    answers.push(called(&bank, "memory_export", json!({ "namespace": "n m/%", "limit": 9 })).await);
    answers.push(called(&bank, "memory_delete", json!({ "namespace": "n m/%", "key": "a/null" })).await);
    answers.push(called(&bank, "memory_delete", json!({ "namespace": "n m/%", "key": "a/null" })).await);
    answers.push(called(&bank, "memory_clear", json!({ "namespace": "n m/%", "confirm": true })).await);
    insta::assert_snapshot!(answers.join("\n\n"));
}
