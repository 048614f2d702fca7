//! A batch under a server that is killed three times in its middle: it goes on, and what was finished is not done again.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use serde_json::{Value, json};

use crate::{
    caller::{Caller, until},
    command::{nuncio_in, run},
    server_process::ServerProcess,
};

/// How many operations of a batch run at once.
const CAP: usize = 5;

/// Three kinds, by turns: a line is appended to a file, an agent is called, and a while is waited. The first leaves one
/// line for every time that it is done, the second one task for every time that it is called anew.
fn operation(n: usize, count: usize) -> Value {
    let (kind, args) = match n % 3 {
        0 => ("files.write", json!({ "path": "lines", "content": format!("o{n}\n"), "append": true })),
        1 => ("agent.call", json!({ "agent": "echo", "input": format!("o{n}") })),
        // So that the whole takes some seconds, however many there are.
        _ => ("wait", json!({ "ms": 40_000 / count })),
    };
    json!({ "id": format!("o{n}"), "type": kind, "args": args })
}

/// How often each line stands in a file.
fn lines(path: &Path) -> HashMap<String, usize> {
    let mut lines = HashMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}

/// Two hundred operations by default, a thousand with `NUNCIO_FULL=1`.
#[test]
fn a_batch_survives_kills_and_redoes_nothing_that_was_finished() {
    let count: usize = if std::env::var_os("NUNCIO_FULL").is_some() { 1000 } else { 200 };
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("files")).unwrap();
    let file = format!("[batch]\nfiles-dir = {}\n", Value::from(dir.path().join("files").to_str().unwrap()));
    fs::write(dir.path().join("nuncio.toml"), file).unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    // Other tests keep the machine busy, which would be a reason to refuse a batch.
    let settings = ["batch", "--data", "data", "config", "--set", "resourceMonitoring=false", "-o", "json"];
    assert_eq!(run(nuncio_in(dir.path()).args(settings)).exits(0).json()["maxConcurrency"], CAP);
    let caller = Caller::new(server.url());
    let operations: Vec<Value> = (0..count).map(|n| operation(n, count)).collect();
    let made = caller.call("batch_submit", json!({ "operations": operations }));
    let id = made["batchId"].as_str().unwrap();
    let status = |operations: bool| {
        caller.call("batch_status", json!({ "batchId": id, "operations": operations, "limit": 1000 }))
    };

    // What was said of each operation that had succeeded when the server was killed, and how often it had been done:
    // more than once, where an earlier kill had cut it.
    let mut finished: BTreeMap<String, (Value, usize)> = BTreeMap::new();
    for kill in 1..=3 {
        let enough = (count * kill / 5) as u64;
        let seen = until("a fifth more is done", || {
            Some(status(true)).filter(|seen| seen["counts"]["succeeded"].as_u64() >= Some(enough))
        });
        server.kill9();
        assert_eq!(seen["status"], "working", "killed in the middle: {}", seen["counts"]);
        let lines = lines(&dir.path().join("files/lines"));
        for operation in seen["operations"].as_array().unwrap() {
            if operation["status"] == "succeeded" {
                let id = operation["id"].as_str().unwrap();
                let now = (operation.clone(), lines.get(id).copied().unwrap_or(0));
                let before = finished.insert(id.to_owned(), now.clone());
                assert!(before.is_none_or(|before| before == now), "{now:?}");
            }
        }
        assert!(finished.len() < count);
        server.restart();
    }

    let ended = until("the batch ends", || {
        Some(status(true))
            .filter(|status| !matches!(status["status"].as_str(), Some("submitted" | "working")))
    });
    assert_eq!(ended["status"], "completed", "{}", ended["counts"]);
    assert_eq!(ended["counts"], json!({ "total": count, "succeeded": count, "failed": 0, "skipped": 0 }));
    let operations = ended["operations"].as_array().unwrap();
    assert_eq!(operations.len(), count);
    for operation in operations {
        assert_eq!(operation["attempts"], 1, "{operation}");
        // The same in every word: when it began, how long it took, what it came to.
        if let Some((before, _)) = finished.get(operation["id"].as_str().unwrap()) {
            assert_eq!(before, operation, "it was finished before a kill");
        }
    }

    let lines = lines(&dir.path().join("files/lines"));
    let writes = (0..count).filter(|n| n % 3 == 0).count();
    assert_eq!(lines.len(), writes, "each was done");
    for (id, (_, times)) in &finished {
        assert_eq!(lines.get(id).copied().unwrap_or(0), *times, "{id} was finished, and done again");
    }
    // Those that ran when it was killed may have been done and not noted.
    let again: usize = lines.values().map(|times| times - 1).sum();
    assert!(again <= 3 * CAP, "{again} were done again");
    // A call is found again, whatever it had come to: never a second task.
    let listed = caller.call("task_list", json!({ "agent": "echo", "pageSize": 1 }));
    let calls = (0..count).filter(|n| n % 3 == 1).count();
    assert_eq!(listed["total"], calls, "{listed}");

    assert_eq!(ended["metrics"]["peakConcurrency"], CAP, "{}", ended["metrics"]);
    println!(
        "batch: {count} operations, 3 kills, {} finished before one of them and not redone, {again} writes done again that \
         were cut, {}",
        finished.len(),
        ended["metrics"]
    );
}
