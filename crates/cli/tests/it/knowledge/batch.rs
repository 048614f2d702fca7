//! `nuncio batch …`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::World;

/// A server whose batches are not refused because other tests keep the machine busy.
fn world() -> World {
    let world = World::new(&[]);
    world.run(&["batch", "config", "--set", "resourceMonitoring=false"]).exits(0);
    world
}

fn waits(count: usize, ms: u64) -> String {
    let one = |n: usize| json!({ "id": format!("w{n}"), "type": "wait", "args": { "ms": ms } });
    json!((0..count).map(one).collect::<Vec<_>>()).to_string()
}

fn with_a_failure() -> String {
    let store = |id: &str, key: &str| json!({ "id": id, "type": "memory.store", "args": { "namespace": "ns", "key": key, "value": 1 } });
    let needs = json!({ "id": "after", "type": "wait", "args": { "ms": 1 }, "needs": ["bad"] });
    let get = json!({ "id": "bad", "type": "memory.get", "args": { "namespace": "ns", "key": "missing" } });
    json!({ "operations": [store("good", "k"), get, needs] }).to_string()
}

#[test]
fn a_batch_is_watched_to_its_end_without_a_terminal() {
    let world = world();
    let ran = world.run_with_input(&["batch", "submit", "-", "--watch"], &waits(12, 5)).exits(0);
    assert_eq!([ran.field("Status"), ran.field("Done"), ran.field("Failed")], ["completed", "12 of 12", "0"]);
    assert!(ran.stderr.contains("12 of 12 done"), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "no colours, no bar");
    let batch = ran.field("Batch");

    let json = world.run(&["batch", "watch", batch, "-o", "json"]).exits(0);
    assert_eq!((&json.json()["counts"]["succeeded"], &*json.stderr), (&json!(12), ""));
    let status = world.run(&["batch", "status", batch, "--operations", "-o", "json"]).exits(0).json();
    assert_eq!(status["operations"].as_array().unwrap().len(), 12);
    let status = world.run(&["batch", "status", batch, "--operations"]).exits(0);
    assert!(status.stdout.contains("w11  wait  succeeded"), "{}", status.stdout);
    let listed = world.run(&["batch", "list"]).exits(0);
    assert!(listed.stdout.lines().any(|line| line.starts_with(batch) && line.contains("completed")));
    assert_eq!(listed.field("Total"), "1");
}

#[test]
fn what_failed_is_told_and_done_again() {
    let world = world();
    world.file("batch.json", &with_a_failure());
    let ran = world.run(&["batch", "submit", "batch.json", "--watch"]).exits(1);
    assert_eq!([ran.field("Failed"), ran.field("Skipped")], ["1", "1"]);
    let table = ran.stdout.split("FAILED").nth(1).unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(table.contains("bad") && table.contains("missing"), "{}", ran.stdout);

    world.run(&["memory", "set", "ns", "missing", "here now"]).exits(0);
    let again = world.run(&["batch", "retry", ran.field("Batch")]).exits(0);
    assert_ne!(again.field("Batch"), ran.field("Batch"));
    let done = world.run(&["batch", "watch", again.field("Batch"), "-o", "json"]).exits(0).json();
    assert_eq!(done["counts"], json!({ "total": 2, "succeeded": 2, "failed": 0, "skipped": 0 }));
    let nothing = world.run(&["batch", "retry", again.field("Batch")]).exits(1);
    assert!(nothing.stderr.contains("succeeded"), "{}", nothing.stderr);
}

#[test]
fn a_batch_is_paused_resumed_and_canceled() {
    let world = world();
    let submitted =
        world.run_with_input(&["batch", "submit", "-", "-o", "json"], &waits(200, 5_000)).exits(0).json();
    let batch = submitted["batchId"].as_str().unwrap();
    // It can be paused as soon as it is taken.
    let deadline = Instant::now() + Duration::from_secs(30);
    while world.run(&["batch", "pause", batch]).code != 0 {
        assert!(Instant::now() < deadline, "it is never taken");
    }
    assert!(world.run(&["batch", "status", batch]).exits(0).field("Status").ends_with("(paused)"));
    let late = world.run(&["batch", "watch", batch, "--timeout", "300ms", "-o", "json"]).exits(5).json();
    assert_eq!(late["error"]["code"], "A2ACLI_ERR_TIMEOUT");
    assert!(late["error"]["hint"].as_str().unwrap().contains(batch), "{late}");
    world.run(&["batch", "resume", batch]).exits(0);
    world.run(&["batch", "cancel", batch]).exits(0);
    let ended = world.run(&["batch", "watch", batch, "-o", "json"]).exits(1).json();
    assert_eq!(ended["status"], "canceled", "{ended}");
    world.run(&["batch", "cancel", batch]).exits(1);
    let nobody = world.run(&["batch", "status", "nobody"]).exits(1);
    assert!(nobody.stderr.contains("there is no batch nobody"), "{}", nobody.stderr);
}

#[test]
fn settings_are_shown_and_changed() {
    let world = world();
    let before = world.run(&["batch", "config", "-o", "json"]).exits(0).json();
    assert_eq!((&before["maxConcurrency"], &before["resourceMonitoring"]), (&json!(5), &json!(false)));
    let args =
        ["batch", "config", "--set", "maxConcurrency=7", "--set", "thresholds.queueSize=50", "-o", "json"];
    let after = world.run(&args).exits(0).json();
    assert_eq!((&after["maxConcurrency"], &after["thresholds"]["queueSize"]), (&json!(7), &json!(50)));
    let text = world.run(&["batch", "config"]).exits(0);
    assert!(
        text.stdout.lines().any(|line| line.split_whitespace().eq(["maxConcurrency", "7"])),
        "{}",
        text.stdout
    );
    let wrong = world.run(&["batch", "config", "--set", "maxConcurrency=many"]).exits(1);
    assert!(wrong.stderr.contains("maxConcurrency"), "{}", wrong.stderr);
    world.run(&["batch", "config", "--set", "maxConcurrency"]).exits(2);

    let metrics = world.run(&["batch", "metrics", "-o", "json"]).exits(0).json();
    assert_eq!(metrics["overall"]["averageSpeedup"], Value::Null, "nothing was measured yet: {metrics}");
    let text = world.run(&["batch", "metrics"]).exits(0);
    assert!(text.stdout.contains("concurrent_processing"), "{}", text.stdout);
}

#[test]
fn a_batch_that_is_none_is_refused() {
    let world = world();
    let submit = |input: &str| world.run_with_input(&["batch", "submit", "-"], input);
    assert!(submit("no JSON").exits(2).stderr.contains("the standard input is not JSON"));
    assert!(submit("7").exits(2).stderr.contains("expected a list of operations"));
    world.run(&["batch", "submit", "no such file"]).exits(2);
    let refused = submit(r#"[{"id": "a", "type": "lunch"}]"#).exits(1);
    assert!(refused.stderr.contains("lunch"), "{}", refused.stderr);
    let refused = submit(r#"[{"id": "a", "type": "wait", "args": {"ms": 1}, "needs": ["b"]}]"#).exits(1);
    assert!(refused.stderr.contains('b'), "{}", refused.stderr);
}

/// Where no server runs, the batch is done by the one in the process of the command, for as long as it is watched.
#[test]
fn a_batch_is_done_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let nuncio = |args: &[&str], input: &str| {
        crate::command::run_with_input(crate::command::nuncio_in(dir.path()).args(args), input)
    };
    nuncio(&["batch", "config", "--set", "resourceMonitoring=false"], "").exits(0);
    let submitted = nuncio(&["batch", "submit", "-"], &waits(3, 1)).exits(0);
    assert!(submitted.stderr.contains("no server runs"), "{}", submitted.stderr);
    let done = nuncio(&["batch", "watch", submitted.field("Batch")], "").exits(0);
    assert_eq!(done.field("Done"), "3 of 3");
}
