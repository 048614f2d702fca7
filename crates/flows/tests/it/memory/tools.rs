//! What the tools do that resources do not: write, under what is expected; and move entries out and in.

use std::time::Duration;

use nuncio_engine::surface::{ContentBlock, HandlerError};
use nuncio_flows::memory::MemoryOptions;
use serde_json::{Value, json};

use super::{Bank, invalid, me};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_under_an_expected_version_is_never_lost() {
    let bank = Bank::new().await;
    let store = |value: i32, expected: u64| json!({ "namespace": "n", "key": "k", "value": value, "expectedVersion": expected });
    assert_eq!(bank.call("memory_store", store(1, 0)).await["version"], 1);
    let HandlerError::Failed(why) = bank.refused("memory_store", store(2, 0)).await else { panic!() };
    assert!(why.contains("at version 1") && why.contains("expectedVersion 1"), "{why}");
    assert_eq!(bank.call("memory_store", store(2, 1)).await["version"], 2);
    let HandlerError::Failed(why) = bank.refused("memory_store", store(3, 1)).await else { panic!() };
    assert!(why.contains("at version 2"), "{why}");
    let delete = |expected: u64| json!({ "namespace": "n", "key": "k", "expectedVersion": expected });
    assert!(matches!(bank.refused("memory_delete", delete(1)).await, HandlerError::Failed(_)));
    let deleted = bank.call("memory_delete", delete(2)).await;
    assert_eq!(deleted, json!({ "namespace": "n", "key": "k", "deleted": true, "version": 2 }));
    let HandlerError::Failed(why) = bank.refused("memory_store", store(3, 2)).await else { panic!() };
    assert!(why.contains("no such entry") && why.contains("expectedVersion 0"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_expect_the_same_version_one_writes() {
    let bank = Bank::new().await;
    let bank = std::sync::Arc::new(bank);
    bank.store("n", "counter", json!(0)).await;
    let add = |bank: std::sync::Arc<Bank>| async move {
        loop {
            let read = bank.call("memory_get", json!({ "namespace": "n", "key": "counter" })).await;
            let (value, version) = (read["value"].as_u64().unwrap(), &read["metadata"]["version"]);
            let write =
                json!({ "namespace": "n", "key": "counter", "value": value + 1, "expectedVersion": version });
            match bank.call_as(&me(), "memory_store", write).await {
                Ok(_) => return,
                Err(HandlerError::Failed(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let tasks: Vec<_> = (0..20).map(|_| tokio::spawn(add(std::sync::Arc::clone(&bank)))).collect();
    for task in tasks {
        tokio::time::timeout(super::DEADLINE, task).await.unwrap().unwrap();
    }
    let read = bank.call("memory_get", json!({ "namespace": "n", "key": "counter" })).await;
    assert_eq!((&read["value"], &read["metadata"]["version"]), (&json!(20), &json!(21)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_of_null_keeps_an_entry_until_it_is_deleted() {
    let bank = Bank::new().await;
    let store = |ttl: Value| json!({ "namespace": "n", "key": "k", "value": 1, "ttl": ttl });
    let kept = async || {
        let read = bank.call("memory_get", json!({ "namespace": "n", "key": "k" })).await;
        read["metadata"]["ttl"].clone()
    };
    bank.call("memory_store", store(json!(60))).await;
    assert_eq!(kept().await, 60);
    bank.call("memory_store", store(Value::Null)).await;
    assert_eq!(kept().await, Value::Null);
    assert!(matches!(bank.refused("memory_store", store(json!(0))).await, HandlerError::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_json_comes_back_as_it_was() {
    let bank = Bank::new().await;
    for value in [
        json!(null),
        json!(false),
        json!(""),
        json!("text with \u{0} and \u{1f375}"),
        json!(-0.1),
        json!(u64::MAX),
        json!([]),
        json!({ "z": 1, "a": { "": [null, 1.5e300] } }),
    ] {
        bank.store("n", "k", value.clone()).await;
        let got = bank.call("memory_get", json!({ "namespace": "n", "key": "k" })).await;
        assert_eq!(got["value"], value);
        assert_eq!(got["value"].to_string(), value.to_string(), "also the order of its fields");
        assert_eq!(got["metadata"]["size"], value.to_string().len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_refused_with_its_field() {
    let bank = Bank::new().await;
    let large = json!("x".repeat(1024 * 1024 - 1));
    for (tool, arguments, words) in [
        ("memory_store", json!({ "namespace": "n", "key": "k" }), "value"),
        ("memory_store", json!({ "namespace": "n", "key": "k", "value": 1, "other": 1 }), "other"),
        ("memory_store", json!({ "namespace": "", "key": "k", "value": 1 }), "namespace"),
        ("memory_store", json!({ "namespace": "n", "key": "a\nb", "value": 1 }), "U+000A"),
        ("memory_store", json!({ "namespace": "n", "key": "k", "value": 1, "ttl": 0 }), "ttl"),
        ("memory_store", json!({ "namespace": "n", "key": "k", "value": 1, "ttl": 315_360_001 }), "ttl"),
        ("memory_store", json!({ "namespace": "n", "key": "ü".repeat(257), "value": 1 }), "key_bytes"),
        ("memory_store", json!({ "namespace": "n", "key": "k", "value": large }), "value_bytes"),
        ("memory_search", json!({ "namespace": "n" }), "pattern"),
        ("memory_search", json!({ "namespace": "n", "pattern": "a", "text": "b" }), "one of them"),
        ("memory_search", json!({ "namespace": "n", "pattern": "a", "limit": 101 }), "limit"),
        ("memory_list", json!({ "namespace": "n", "limit": 0 }), "limit"),
        ("memory_clear", json!({ "namespace": "n" }), "confirm"),
        ("memory_clear", json!({ "namespace": "n", "confirm": false }), "confirm"),
        ("memory_import", json!({ "namespace": "n", "lines": "", "mode": "merge" }), "mode"),
    ] {
        let why = invalid(bank.call_as(&me(), tool, arguments.clone()).await);
        assert!(why.contains(words), "{tool} {words}: {why}");
    }
    let absent = bank.refused("memory_get", json!({ "namespace": "n", "key": "k" })).await;
    assert!(matches!(&absent, HandlerError::Failed(why) if why.contains("memory_list")), "{absent}");
    let absent = bank.refused("memory_list", json!({ "namespace": "n" })).await;
    assert!(matches!(&absent, HandlerError::Failed(why) if why.contains("nothing in")), "{absent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_tool_says_what_it_does_before_it_is_called() {
    let bank = Bank::new().await;
    let surface = bank.engine.catalog().surface();
    for (name, read_only, destructive) in [
        ("memory_clear", false, true),
        ("memory_delete", false, true),
        ("memory_export", true, false),
        ("memory_get", true, false),
        ("memory_import", false, true),
        ("memory_list", true, false),
        ("memory_search", true, false),
        ("memory_store", false, true),
    ] {
        let profile = &surface.tool(name).unwrap().profile;
        assert_eq!(profile.annotations["readOnlyHint"], read_only, "{name}");
        assert_eq!(profile.annotations["destructiveHint"], destructive, "{name}");
        assert_eq!(profile.annotations["idempotentHint"], true, "{name}");
        assert_eq!(profile.input_schema["additionalProperties"], false, "{name}");
        assert_eq!(profile.output_schema.as_ref().unwrap()["type"], "object", "{name}");
    }
    assert_eq!(surface.tools().len(), 8);
    assert!(surface.tool("memory_search").unwrap().profile.description.contains("literally divided by"));
}

/// All parts of an export.
async fn exported(bank: &Bank, limit: u64) -> (String, u64) {
    let (mut lines, mut parts, mut after) = (String::new(), 0, String::new());
    loop {
        let part =
            bank.call("memory_export", json!({ "namespace": "n", "after": after, "limit": limit })).await;
        lines += part["lines"].as_str().unwrap();
        parts += 1;
        match part.get("next") {
            Some(next) => after = next.as_str().unwrap().to_owned(),
            None => return (lines, parts),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_exported_and_cleared_can_be_imported_again() {
    let bank = Bank::new().await;
    for n in 0..250 {
        let value = json!({ "n": n, "text": "line\nbreak \"quoted\" ü" });
        let mut entry = json!({ "namespace": "n", "key": format!("key/{n}"), "value": value });
        if n % 2 == 0 {
            entry["ttl"] = (60 + n).into();
        }
        bank.call("memory_store", entry).await;
    }
    let (lines, parts) = exported(&bank, 100).await;
    assert_eq!((lines.lines().count(), parts), (250, 3));
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({ "key": "key/0", "value": { "n": 0, "text": "line\nbreak \"quoted\" ü" }, "ttl": 60,
            "created": "2023-11-14T22:13:20.000Z" })
    );
    let cleared = bank.call("memory_clear", json!({ "namespace": "n", "confirm": true })).await;
    assert_eq!(cleared, json!({ "namespace": "n", "cleared": 250 }));
    assert!(bank.read("memory://namespace/n/keys").await.is_err());

    let import = |mode: &str| json!({ "namespace": "n", "lines": lines, "mode": mode });
    let done = bank.call("memory_import", import("fail")).await;
    assert_eq!(done, json!({ "namespace": "n", "written": 250, "kept": 0, "failed": 0, "errors": [] }));
    assert_eq!(exported(&bank, 1_000).await.0, lines, "it is all there again");
    let found = bank.read("memory://search/n?text=quoted").await.unwrap();
    assert_eq!(found["pagination"]["total"], 250);

    bank.store("n", "key/7", json!("mine")).await;
    let done = bank.call("memory_import", import("keep")).await;
    assert_eq!((&done["written"], &done["kept"]), (&json!(0), &json!(250)));
    assert_eq!(bank.read("memory://data/n/key%2F7").await.unwrap()["value"], "mine");
    let done = bank.call("memory_import", import("overwrite")).await;
    assert_eq!((&done["written"], &done["kept"]), (&json!(250), &json!(0)));
    assert_eq!(exported(&bank, 1_000).await.0, lines);
    bank.clock.advance(Duration::from_secs(60));
    assert_eq!(exported(&bank, 1_000).await.0.lines().count(), 249, "its time goes on from the import");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_with_a_wrong_line_writes_nothing() {
    let bank = Bank::new().await;
    let import = async |lines: &str, mode: &str| {
        let arguments = json!({ "namespace": "n", "lines": lines, "mode": mode });
        let output = bank.call_as(&me(), "memory_import", arguments).await.unwrap();
        let ContentBlock::Text(text) = &output.content[0] else { panic!("no text") };
        (output.is_error, output.structured.clone().unwrap(), text.clone())
    };
    let lines = "{\"key\":\"a\",\"value\":1}\n\nnot json\n{\"key\":\"b\"}\n{\"key\":\"\",\"value\":1}\n\
        {\"key\":\"c\",\"value\":1,\"ttl\":0}\n{\"key\":\"a\",\"value\":2}\n{\"key\":\"d\",\"value\":1,\"color\":1}";
    let (is_error, said, text) = import(lines, "overwrite").await;
    assert!(is_error);
    assert_eq!((&said["written"], &said["failed"]), (&json!(0), &json!(6)));
    let numbers: Vec<_> =
        said["errors"].as_array().unwrap().iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [3, 4, 5, 6, 7, 8]);
    for words in [
        "line 4: missing field `value`",
        "line 5: key: must not be empty",
        "line 6: ttl: ",
        "line 7: key: \"a\" stands in line 1",
        "line 8: unknown field `color`",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(bank.read("memory://namespace/n/keys").await.is_err(), "nothing was written");

    bank.store("n", "b", json!("mine")).await;
    let two = "{\"key\":\"a\",\"value\":1}\r\n{\"key\":\"b\",\"value\":null}";
    let (is_error, said, _) = import(two, "fail").await;
    assert_eq!((is_error, &said["written"], &said["errors"][0]["line"]), (true, &json!(0), &json!(2)));
    let (is_error, said, _) = import(two, "keep").await;
    assert_eq!((is_error, &said["written"], &said["kept"]), (false, &json!(1), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_and_imports_are_bounded() {
    let options = MemoryOptions { export_bytes: 1_000, import_bytes: 2_000, import_lines: 3 };
    let bank = Bank::with(|_| {}, options).await;
    for (key, size) in [("a", 400), ("b", 400), ("c", 400), ("d", 3_000), ("e", 1)] {
        bank.store("n", key, json!("x".repeat(size))).await;
    }
    let (lines, parts) = exported(&bank, 1_000).await;
    assert_eq!((lines.lines().count(), parts), (5, 4), "a and b, c, d although it is too large, e");
    let why = invalid(
        bank.call_as(&me(), "memory_import", json!({ "namespace": "m", "lines": lines, "mode": "keep" }))
            .await,
    );
    assert!(why.contains("lines") && why.contains("2000"), "{why}");
    let four = "{\"key\":\"a\",\"value\":1}\n".repeat(4);
    let why = invalid(
        bank.call_as(&me(), "memory_import", json!({ "namespace": "m", "lines": four, "mode": "keep" }))
            .await,
    );
    assert!(why.contains("import_lines"), "{why}");
}
