//! Each type of operation on the real thing.

use std::os::unix::fs::symlink;

use nuncio_engine::{Caller, List};
use serde_json::{Value, json};

use super::world::{World, many, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_written_copied_hashed_and_searched_in_their_folder_only() {
    let world = World::new();
    let server = world.serve().await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "do not read").unwrap();
    symlink(outside.path().join("secret"), world.file("link")).unwrap();
    symlink(outside.path(), world.file("folder")).unwrap();
    let one = |id: &str, r#type: &str, args: Value, needs: Value| json!({ "id": id, "type": r#type, "args": args, "needs": needs });
    let ended = server
        .run(json!({ "operations": [
            one("write", "files.write", json!({ "path": "a/b/c", "content": "one\ntwo\n", "createFolders": true }), json!([])),
            one("copy", "files.copy", json!({ "from": "a/b/c", "to": "copy" }), json!(["write"])),
            one("read", "files.read", json!({ "path": "copy" }), json!(["copy"])),
            one("hash", "files.hash", json!({ "path": "copy" }), json!(["copy"])),
            one("search", "files.search", json!({ "path": "a", "pattern": "^t", "regex": true }), json!(["write"])),
            one("link", "files.read", json!({ "path": "link" }), json!([])),
            one("folder", "files.hash", json!({ "path": "folder/secret" }), json!([])),
            one("out", "files.write", json!({ "path": "folder/new", "content": "x" }), json!([])),
            one("encoded", "files.read", json!({ "path": "..%2fsecret" }), json!([])),
        ] }))
        .await;
    let output = |id: &str| operation(&ended, id)["output"].clone();
    assert_eq!(output("read")["content"], "one\ntwo\n");
    assert_eq!(output("hash")["sha256"], output("read")["sha256"]);
    assert_eq!(output("hash")["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(output("search")["matches"][0]["line"], 2);
    for id in ["link", "folder", "out", "encoded"] {
        assert_eq!(operation(&ended, id)["status"], "failed", "{id}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(!ended.to_string().contains("do not read"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_folder_operations_on_files_are_refused_with_the_setting() {
    let mut world = World::new();
    let server = world.serve().await;
    let read = || json!({ "operations": many(1, "files.read", |_| json!({ "path": "a" })) });
    // The home tenant's folder is not another tenant's.
    let acme = server.for_caller(Caller::named("acme/ada"));
    assert!(acme.refused("batch_submit", read()).await.contains("tenant_files"));
    server.engine.stop().await;
    server.let_go();
    drop((acme, server));
    world.options.files_dir = None;
    let server = world.serve().await;
    assert!(server.refused("batch_submit", read()).await.contains("files_dir"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_stored_found_and_forgotten_in_the_callers_tenant() {
    let world = World::new();
    let server = world.serve().await;
    let one = |id: &str, r#type: &str, args: Value, needs: Value| json!({ "id": id, "type": r#type, "args": args, "needs": needs });
    let name = json!({ "namespace": "notes", "key": "a/ü" });
    let ended = server
        .run(json!({ "operations": [
            one("store", "memory.store", json!({ "namespace": "notes", "key": "a/ü", "value": { "n": "needle" }, "expectedVersion": 0 }), json!([])),
            one("get", "memory.get", name.clone(), json!(["store"])),
            one("search", "memory.search", json!({ "namespace": "notes", "pattern": "a*" }), json!(["store"])),
            one("words", "memory.search", json!({ "namespace": "notes", "text": "needle" }), json!(["store"])),
            one("stale", "memory.store", json!({ "namespace": "notes", "key": "a/ü", "value": 2, "expectedVersion": 7 }), json!(["get"])),
            one("delete", "memory.delete", name.clone(), json!(["get", "search", "words"])),
        ] }))
        .await;
    let output = |id: &str| operation(&ended, id)["output"].clone();
    assert_eq!(output("get")["value"], json!({ "n": "needle" }), "{ended}");
    assert_eq!(output("search")["total"], 1);
    assert_eq!(output("words")["total"], 1);
    assert_eq!(output("delete")["deleted"], true);
    assert!(operation(&ended, "stale")["error"].as_str().unwrap().contains("version"));
    assert_eq!(ended["type"], "memory_operations");
    let gone = server.run(json!({ "operations": [one("get", "memory.get", name, json!([]))] })).await;
    assert!(operation(&gone, "get")["error"].as_str().unwrap().contains("no key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_are_bounded_one_by_one_and_together() {
    let mut world = World::new();
    world.options.operation_output_bytes = 1_000;
    world.options.batch_output_bytes = 5_000;
    let server = world.serve().await;
    std::fs::write(world.file("large"), "x".repeat(4_000)).unwrap();
    let ended =
        server.run(json!({ "operations": many(20, "files.read", |_| json!({ "path": "large" })) })).await;
    let operations = ended["operations"].as_array().unwrap();
    assert!(operations.iter().all(|one| one["status"] == "succeeded" && one["truncated"] == true));
    let kept: usize =
        operations.iter().filter_map(|one| one["output"]["content"].as_str()).map(str::len).sum();
    assert!(kept > 0 && kept <= 5_000, "{kept} bytes were kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_does_not_take_is_refused_to_an_operation_as_well() {
    let world = World::new();
    let server = world.serve().await;
    let call = |id: &str, input: Value| json!({ "id": id, "type": "agent.call", "args": { "agent": "adder", "input": input } });
    let ended = server
        .run(json!({ "operations": [
            call("right", json!({ "n": 7 })),
            call("wrong", json!({ "n": "seven" })),
            call("spoken", json!("seven")),
        ] }))
        .await;
    assert_eq!(operation(&ended, "right")["status"], "succeeded", "{ended}");
    for (id, why) in [("wrong", "/n: \"seven\" is not of type \"integer\""), ("spoken", "send a data part")] {
        let refused = operation(&ended, id);
        assert_eq!(refused["status"], "failed", "{id}: {refused}");
        assert!(refused["error"].as_str().unwrap().contains(why), "{id}: {refused}");
    }
    let list = List { agent: Some("adder".into()), page_size: 10, ..List::default() };
    let begun = server.engine.list(&server.caller, list).await.unwrap();
    assert_eq!(begun.total, 1, "nothing was begun that does not fit");
}
