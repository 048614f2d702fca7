//! The two strategies about content.

use std::io::Read as _;

use serde_json::{Value, json};

use super::world::World;

fn text() -> String {
    (0..4_000)
        .map(|n| format!("line {n} with ünï and needle{}\n", if n % 100 == 0 { " NEEDLE" } else { "" }))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_content_in_chunks_comes_to_the_same_as_in_one_piece() {
    let world = World::new();
    let server = world.serve().await;
    std::fs::write(world.file("large"), text()).unwrap();
    let process = |more: Value| {
        let mut process = json!({ "file": "large" });
        process.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "strategy": "parallel_content_processing", "process": process })
    };
    for what in [
        json!({ "operation": "count" }),
        json!({ "operation": "search", "pattern": "NEEDLE", "maxMatches": 25 }),
        json!({ "operation": "search", "pattern": "line 39[0-9]+", "regex": true, "maxMatches": 1000 }),
    ] {
        let sized = |bytes: usize| {
            let mut what = what.clone();
            what["chunkBytes"] = json!(bytes);
            process(what)
        };
        let mut whole = server.run(sized(1 << 20)).await["content"].clone();
        let parts = server.run(sized(2_000)).await;
        let mut content = parts["content"].clone();
        assert!(content["chunks"].as_u64() > Some(20), "{content}");
        assert_eq!(parts["type"], "content_processing");
        for one in [&mut whole, &mut content] {
            one.as_object_mut().unwrap().remove("chunks");
        }
        assert_eq!(content, whole);
        if what["operation"] == "count" {
            assert_eq!(whole["lines"], 4_000);
            assert_eq!(whole["words"].as_u64(), Some(text().split_whitespace().count() as u64));
            assert_eq!(whole["characters"].as_u64(), Some(text().chars().count() as u64));
        }
    }
    let hashed = |most: usize| {
        let mut batch = process(json!({ "operation": "hash", "chunkBytes": 2_000 }));
        batch["maxConcurrency"] = json!(most);
        batch
    };
    let (beside, serial) = (server.run(hashed(5)).await, server.run(hashed(1)).await);
    assert_eq!(beside["content"], serial["content"]);

    let ended = server
        .run(process(json!({ "operation": "compress", "chunkBytes": 10_000, "to": "out/large.gz" })))
        .await;
    let mut back = String::new();
    let file = std::fs::File::open(world.file("out/large.gz")).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut back).unwrap();
    assert_eq!(back, text(), "what is joined is one gzip stream");
    assert_eq!(std::fs::read_dir(world.file("out")).unwrap().count(), 1, "no parts are left");
    let metrics = &ended["metrics"];
    assert_eq!(metrics["bytesBefore"].as_u64(), Some(text().len() as u64));
    let size = std::fs::metadata(world.file("out/large.gz")).unwrap().len();
    assert_eq!(metrics["bytesAfter"].as_u64(), Some(size));

    let inline = json!({ "content": "a b\nc", "operation": "count" });
    let ended = server.run(json!({ "strategy": "parallel_content_processing", "process": inline })).await;
    assert_eq!(ended["content"]["words"], 3);
    let missing = server.run(process(json!({ "file": "missing", "operation": "hash" }))).await;
    assert_eq!(missing["status"], "failed");
    assert!(missing["message"].as_str().unwrap().contains("missing"), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_are_kept_once_and_compressed_with_the_bytes_measured() {
    let world = World::new();
    let server = world.serve().await;
    std::fs::write(world.file("same"), "x".repeat(10_000)).unwrap();
    let store = json!({ "namespace": "n", "key": "k", "value": "x".repeat(10_000) });
    server.run(json!({ "operations": [{ "id": "s", "type": "memory.store", "args": store }] })).await;
    let ended = server
        .run(json!({ "strategy": "resource_optimization", "optimize": { "to": "kept", "contents": [
            { "id": "inline", "content": "x".repeat(10_000) },
            { "id": "file", "file": "same" },
            { "id": "memory", "memory": { "namespace": "n", "key": "k" } },
            { "id": "other", "content": "something else" },
        ] } }))
        .await;
    let metrics = &ended["metrics"];
    assert_eq!(metrics["bytesBefore"], 30_014);
    let after = metrics["bytesAfter"].as_u64().unwrap();
    assert!(after < 200, "{metrics}");
    let reduction = metrics["memoryReduction"].as_f64().unwrap();
    assert!((reduction - (1.0 - after as f64 / 30_014.0)).abs() < 0.001, "{metrics}");
    assert_eq!(
        (ended["content"]["unique"].as_u64(), ended["content"]["duplicates"].as_u64()),
        (Some(2), Some(2))
    );
    assert_eq!(std::fs::read_dir(world.file("kept")).unwrap().count(), 2, "each content once");
    let totals = server.read("batchtools://metrics/performance").await;
    assert_eq!(totals["byType"]["resource_optimization"]["memoryReduction"].as_f64(), Some(reduction));
    assert_eq!(server.call("batch_list", json!({})).await["bytesBefore"], 30_014);
}
