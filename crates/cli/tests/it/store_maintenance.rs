//! Sizes, compaction and checks of stores, and backups with every secret.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use serde_json::{Value, json};

use crate::{
    command::{Ran, nuncio_in, run},
    server_process::ServerProcess,
};

fn store(dir: &Path, args: &[&str]) -> Ran {
    run(nuncio_in(dir).arg("store").args(args))
}

fn count(statistics: &Value, kind: &str) -> u64 {
    let kinds = statistics["kinds"].as_array().unwrap();
    kinds.iter().find(|found| found["kind"] == kind).unwrap()["count"].as_u64().unwrap()
}

fn send(dir: &Path, text: &str) -> String {
    run(nuncio_in(dir).args(["send", text])).exits(0).field("Task").to_owned()
}

/// A data folder where a server has run, with so many tasks.
fn used_folder(tasks: usize) -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    let ids = (0..tasks).map(|n| send(dir.path(), &format!("task {n}"))).collect();
    server.terminate();
    (dir, ids)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_store_is_measured_while_a_server_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    for n in 0..3 {
        send(dir.path(), &format!("task {n}"));
    }
    let found = store(dir.path(), &["stats", "-o", "json"]).exits(0).json();
    assert_eq!(count(&found, "tasks"), 3, "{found}");
    assert!(count(&found, "event batches") >= 3, "{found}");
    assert_eq!(found["tasksByState"], json!({ "completed": 3 }));
    assert!(found["bytes"].as_u64().unwrap() > 0 && found["schema"] == found["knownSchema"], "{found}");
    assert!(found["kinds"][0]["oldest"].as_str().unwrap() <= found["kinds"][0]["newest"].as_str().unwrap());
    let text = store(dir.path(), &["stats"]).exits(0);
    assert_eq!(text.field("Tasks"), "3 completed");
    // What would disturb the server is refused.
    let refused = store(dir.path(), &["compact"]).exits(1);
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    let refused = store(dir.path(), &["check"]).exits(1);
    assert!(refused.stderr.contains("nuncio store backup"), "{}", refused.stderr);
    drop(server);
}

#[test]
fn a_compaction_returns_room_and_loses_nothing() {
    let (dir, ids) = used_folder(3);
    let filled = dir.path().join("big.jsonl");
    let value = "x".repeat(500);
    let lines: String =
        (0..2000).map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"{value}{n}\"}}\n")).collect();
    fs::write(&filled, lines).unwrap();
    run(nuncio_in(dir.path()).args(["memory", "import", "big", filled.to_str().unwrap()])).exits(0);
    run(nuncio_in(dir.path()).args(["memory", "clear", "big", "--yes"])).exits(0);
    let done = store(dir.path(), &["compact", "-o", "json"]).exits(0).json();
    assert!(done["after"].as_u64() < done["before"].as_u64(), "{done}");
    let found = store(dir.path(), &["stats", "-o", "json"]).exits(0).json();
    assert_eq!(found["freeBytes"], 0, "{found}");
    let checked = store(dir.path(), &["check", "-o", "json"]).exits(0).json();
    assert_eq!((&checked["tasks"], &checked["problemCount"]), (&json!(3), &json!(0)), "{checked}");
    let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    for id in ids {
        assert_eq!(
            run(nuncio_in(dir.path()).args(["task", "get", &id])).exits(0).field("State"),
            "completed"
        );
    }
    drop(server);
}

#[test]
fn a_check_finds_a_log_that_does_not_come_to_its_row() {
    let (dir, ids) = used_folder(3);
    let checked = store(dir.path(), &["check"]).exits(0);
    assert_eq!(checked.field("Problems"), "0");
    let change = |sql: &str| {
        let conn = rusqlite::Connection::open(dir.path().join("nuncio-data/nuncio.db")).unwrap();
        conn.execute(sql, []).unwrap();
    };
    change("UPDATE task SET state = 5 WHERE no = (SELECT max(no) FROM task)");
    let found = store(dir.path(), &["check"]).exits(1);
    assert!(found.field("Problem").contains(&ids[2]), "{}", found.stdout);
    assert!(found.field("Problem").contains("its row says failed"), "{}", found.stdout);
    change("UPDATE log SET bytes = x'00' WHERE key = (SELECT min(key) FROM log)");
    let found = store(dir.path(), &["check", "-o", "json"]).exits(1).json();
    assert_eq!(found["problemCount"], 2, "{found}");
    assert!(found["problems"].to_string().contains(&ids[0]), "{found}");
}

#[test]
fn a_check_finds_a_damaged_file() {
    let (dir, _) = used_folder(50);
    let path = dir.path().join("nuncio-data/nuncio.db");
    store(dir.path(), &["compact"]).exits(0);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let found = store(dir.path(), &["check"]);
    assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
}

#[test]
fn a_backup_has_every_secret_and_a_restore_puts_them_back() {
    let (dir, ids) = used_folder(1);
    let data = dir.path().join("nuncio-data");
    let tokens = data.join("agent-tokens/weather");
    fs::create_dir_all(&tokens).unwrap();
    fs::write(tokens.join("token.json"), "{\"secret\":1}").unwrap();
    fs::set_permissions(tokens.join("token.json"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("/etc/passwd", tokens.join("link")).unwrap();

    let backup = dir.path().join("backup");
    let done = store(dir.path(), &["backup", "backup"]).exits(0);
    assert_eq!(done.field("In it"), "nuncio.db, webhook-secret, state-secret, agent-tokens.");
    let files = ["nuncio.db", "webhook-secret", "state-secret", "agent-tokens/weather/token.json"];
    for file in files {
        assert_eq!(mode(&backup.join(file)), 0o600, "{file}");
    }
    for folder in ["", "agent-tokens", "agent-tokens/weather"] {
        assert_eq!(mode(&backup.join(folder)), 0o700, "{folder}");
    }
    assert!(!backup.join("agent-tokens/weather/link").exists(), "a link is not followed");

    // Modes may be lost on the way.
    for file in files {
        fs::set_permissions(backup.join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let taken = store(dir.path(), &["restore", "backup"]).exits(1);
    assert!(taken.stderr.contains("is not empty"), "{}", taken.stderr);
    fs::rename(&data, dir.path().join("old")).unwrap();
    store(dir.path(), &["restore", "backup"]).exits(0);
    for file in files {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
        if file != "nuncio.db" {
            assert_eq!(
                fs::read(data.join(file)).unwrap(),
                fs::read(dir.path().join("old").join(file)).unwrap(),
                "{file}"
            );
        }
    }
    let server = ServerProcess::start(&data, &[]);
    let got = run(nuncio_in(dir.path()).args(["task", "get", &ids[0]])).exits(0);
    assert_eq!(got.field("State"), "completed");
    let secret = |folder: &Path| fs::read(folder.join("state-secret")).unwrap();
    assert_eq!(secret(&data), secret(&backup), "the server uses it");
    drop(server);

    // A backup of an older version has two files.
    fs::remove_file(backup.join("state-secret")).unwrap();
    fs::remove_dir_all(backup.join("agent-tokens")).unwrap();
    let older = store(dir.path(), &["restore", "backup", "--data", "older"]).exits(0);
    assert!(older.stderr.contains("has no state-secret"), "{}", older.stderr);
    assert_eq!(older.field("In it"), "nuncio.db, webhook-secret.");
    let none = store(dir.path(), &["restore", "old/agent-tokens", "--data", "none"]).exits(1);
    assert!(none.stderr.contains("is no backup") && !dir.path().join("none").exists(), "{}", none.stderr);
}

#[test]
fn a_copy_takes_the_secrets_along_and_replaces_none() {
    let (dir, _) = used_folder(1);
    let secret = |folder: &str, file: &str| fs::read_to_string(dir.path().join(folder).join(file)).unwrap();
    let done = store(dir.path(), &["copy", "sqlite:nuncio-data", "sqlite:copy"]).exits(0);
    assert!(done.stdout.contains("And the secrets webhook-secret, state-secret."), "{}", done.stdout);
    for file in ["webhook-secret", "state-secret"] {
        assert_eq!(secret("copy", file), secret("nuncio-data", file), "{file}");
        assert_eq!(mode(&dir.path().join("copy").join(file)), 0o600);
    }
    // A server has run on the destination: its own secrets stay, and the user is told.
    let mut server = ServerProcess::start(&dir.path().join("other"), &[]);
    server.terminate();
    let before = secret("other", "webhook-secret");
    let again = store(dir.path(), &["copy", "sqlite:nuncio-data", "sqlite:other"]);
    assert_eq!(secret("other", "webhook-secret"), before);
    assert!(
        again.stderr.contains("webhook-secret of its own") || again.code != 0,
        "{}{}",
        again.stdout,
        again.stderr
    );
}
