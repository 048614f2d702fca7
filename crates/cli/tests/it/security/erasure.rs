//! The erasure of a tenant, as the file of the database shows it afterwards.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, types::ValueRef};
use serde_json::{Value, json};

use super::Place;
use crate::caller::{Caller, until};

/// In everything that the tenant has. Neither hexadecimal digits nor a digest can spell it.
const WORD: &str = "quokkazephyr";

/// Plants the word wherever a caller can leave one.
fn plant(place: &Place, caller: &Caller) {
    let message = |id: &str, context: Option<&str>| {
        let mut message = json!({ "messageId": format!("{WORD}-{id}"), "role": "ROLE_USER",
            "metadata": { "note": WORD }, "parts": [{ "text": format!("say {WORD}") }] });
        if let Some(context) = context {
            message["contextId"] = context.into();
        }
        message
    };
    // Tasks: ended, and at work; in a context of that name, with a webhook that nothing listens at.
    let hook = json!({ "url": format!("http://127.0.0.1:9/{WORD}"), "token": WORD,
        "authentication": { "scheme": "Bearer", "credentials": WORD } });
    let params = json!({ "message": message("a", Some(WORD)), "metadata": { "note": WORD },
        "configuration": { "taskPushNotificationConfig": hook } });
    let sent = caller.a2a("echo", "SendMessage", &params);
    assert!(sent["result"]["task"].is_object(), "{sent}");
    caller.tell("long_running_agent", "b", None, &json!({ "data": { "steps": 1000, "note": WORD } }));
    // The id of a task that its client chose, of A2A 0.1.
    let old = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": { "id": format!("{WORD}-task"),
        "sessionId": WORD, "message": { "role": "user", "parts": [{ "type": "text", "text": WORD }] } } });
    let sent = caller.send("POST", "/agents/echo", &[("idempotency-key", WORD)], Some(&old));
    assert_eq!(sent.status, 200, "{}", sent.body);
    // A session of MCP.
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": WORD, "version": WORD } } });
    let accept = [("accept", "application/json, text/event-stream")];
    assert_eq!(caller.send("POST", "/mcp", &accept, Some(&hello)).status, 200);
    // Knowledge: words that are searched for, an encrypted value, and names.
    for n in 0..20 {
        let value = json!({ "note": format!("{WORD} {n} {WORD}{n}"), "password": WORD });
        let entry = json!({ "namespace": WORD, "key": format!("{WORD}-{n}"), "value": value });
        caller.call("memory_store", entry);
    }
    let plain = json!({ "namespace": "notes", "key": WORD, "value": format!("plain {WORD}") });
    caller.call("memory_store", plain);
    caller.call("sparc_start", json!({ "contextId": WORD, "goal": WORD }));
    caller.call("sparc_submit", json!({ "contextId": WORD, "artifact": { "note": WORD } }));
    let operation = json!({ "id": WORD, "type": "agent.call", "args": { "agent": "echo", "input": WORD } });
    let batch = caller.call("batch_submit", json!({ "operations": [operation] }));
    until("the batch ends", || {
        let status = caller.call("batch_status", json!({ "batchId": batch["batchId"] }));
        (!matches!(status["status"].as_str(), Some("submitted" | "working"))).then_some(())
    });
    // What is refused.
    caller.mcp("tools/call", json!({ "name": WORD, "arguments": { "x": WORD } }));
    caller.a2a("echo", "GetTask", &json!({ "id": WORD }));
    // A second token of the same name, whose work is stopped.
    let made = place.token(&["--name", WORD, "--tenant", "acme"]);
    place.nuncio(&["token", "revoke", "--stop", made["id"].as_str().unwrap()]).exits(0);
}

/// Waits until the erasure of a tenant is done.
fn is_erased(place: &Place, tenant: &str) {
    until("the erasure is done", || {
        let listed = place.nuncio(&["tenant", "list", "-o", "json"]).exits(0).json();
        let all = listed["tenants"].as_array().unwrap();
        let found = all.iter().find(|one| one["tenant"] == tenant).unwrap_or_else(|| panic!("{listed}"));
        std::thread::sleep(Duration::from_millis(100));
        (found["state"] == "erased" && found["done"] == true).then_some(())
    });
}

/// Where the word is: tables and columns, those behind the full text included.
fn places(file: &Path) -> Vec<String> {
    let conn = Connection::open(file).unwrap();
    let mut tables = conn.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table'").unwrap();
    let tables: Vec<(String, String)> = tables
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(tables.len() > 15, "{tables:?}");
    let mut found = vec![];
    for (table, sql) in tables {
        // What it shows is in the tables behind it.
        if sql.starts_with("CREATE VIRTUAL") {
            continue;
        }
        let mut rows = conn.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns: Vec<String> = rows.column_names().map(str::to_owned).collect();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for (at, column) in columns.iter().enumerate() {
                let (ValueRef::Text(bytes) | ValueRef::Blob(bytes)) = row.get_ref(at).unwrap() else {
                    continue;
                };
                let text = String::from_utf8_lossy(bytes).to_lowercase();
                if let Some(from) = text.find(WORD) {
                    let around: String = text[..from].chars().rev().take(60).collect();
                    let around: String = around.chars().rev().collect();
                    found.push(format!("{table}.{column}: …{around}[{WORD}]"));
                }
            }
        }
    }
    found
}

#[test]
fn a_word_that_an_erased_tenant_had_everywhere_is_in_no_table_afterwards() {
    let place = Place::configured("audit = \"all\"\n", &["--allow-private-webhooks"]);
    let other = place.token(&["--name", "eve", "--tenant", "other"]);
    let made = place.token(&["--name", WORD, "--tenant", "acme", "--scope", "*:*", "--scope", "*:admin"]);
    let caller = Caller::with_token(place.server.url(), made["token"].as_str().unwrap());
    plant(&place, &caller);
    // An administrator of the tenant makes tokens of it, takes them back with their work, and rotates its key.
    let wish = json!({ "name": format!("{WORD}-2"), "expiresIn": 3600 });
    let made = caller.send("POST", "/admin/tokens", &[], Some(&wish));
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}"));
    let stopped = caller.send("DELETE", &format!("/admin/tokens/{id}?stop=true"), &[], None);
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    let rotated = caller.send("POST", "/admin/webhook-key/rotate", &[], Some(&json!({})));
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let eve = Caller::with_token(place.server.url(), other["token"].as_str().unwrap());
    eve.call("memory_store", json!({ "namespace": "notes", "key": "k", "value": "the wombats of eve" }));

    let erased = place.nuncio(&["tenant", "erase", "acme", "--yes", "-o", "json"]).exits(0).json();
    assert!(erased["counts"]["memory"].as_u64().unwrap() >= 21, "{erased}");
    is_erased(&place, "acme");
    // What others have is found as before.
    let found = eve.call("memory_search", json!({ "namespace": "notes", "text": "wombats" }));
    assert!(found.to_string().contains("\"k\""), "{found}");
    let Place { dir, mut server } = place;
    server.terminate();
    let left = places(&dir.path().join("nuncio-data/nuncio.db"));
    assert!(left.is_empty(), "{} places:\n{}", left.len(), left.join("\n"));
}

/// Receivers of the tenant that had the name before must not take what the next one sends for theirs.
#[test]
fn a_tenant_of_a_name_that_was_erased_signs_its_webhooks_with_other_keys() {
    let place = Place::new(&[]);
    let keys = || {
        let shown = place.nuncio(&["push", "key", "--tenant", "acme", "-o", "json"]).exits(0).json();
        let rotate = ["push", "rotate-key", "--tenant", "acme", "--overlap", "1h", "-o", "json"];
        let rotated = place.nuncio(&rotate).exits(0).json();
        assert_eq!(rotated["previous"], shown["secret"], "{rotated}");
        [shown, rotated].map(|key| key["secret"].as_str().unwrap().to_owned())
    };
    place.token(&["--name", "ada", "--tenant", "acme"]);
    let before = keys();
    place.nuncio(&["tenant", "erase", "acme", "--yes"]).exits(0);
    is_erased(&place, "acme");
    until("the name can be opened again", || {
        std::thread::sleep(Duration::from_millis(200));
        (place.nuncio(&["tenant", "resume", "acme"]).code == 0).then_some(())
    });
    let after = keys();
    assert!(before.iter().all(|key| !after.contains(key)), "{before:?} {after:?}");
    // A suspension changes nothing.
    let key =
        || place.nuncio(&["push", "key", "--tenant", "acme", "-o", "json"]).exits(0).json()["secret"].clone();
    let standing = key();
    place.nuncio(&["tenant", "suspend", "acme"]).exits(0);
    place.nuncio(&["tenant", "resume", "acme"]).exits(0);
    assert_eq!(key(), standing);
}
