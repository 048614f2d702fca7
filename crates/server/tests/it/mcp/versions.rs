//! Which revision is spoken, and whose session it is.

use nuncio_engine::{clock::Timestamp, store};
use serde_json::{Value, json};

use super::{
    V2025, WITH_SESSIONS,
    client::{Client, initialize},
    stage::Stage,
};
use crate::socket::{bare, get, post};

#[tokio::test]
async fn every_revision_with_sessions_is_answered_with_itself_and_any_other_with_the_newest_of_them() {
    let stage = Stage::new().await;
    let check = async |wanted: &str, expected: &str| {
        let answer = stage.send(post("/mcp", &[], initialize(wanted, &json!({})).to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let response = answer.json();
        assert_eq!(response["id"], "begin");
        assert_eq!(response["result"]["protocolVersion"], expected, "{wanted:?}");
        let session = answer.header("mcp-session-id").to_owned();
        assert!(!session.is_empty() && session.bytes().all(|byte| byte.is_ascii_graphic()), "{session:?}");
        // What was agreed on is what holds: that version is taken, and tasks are of one revision alone.
        let capabilities = &response["result"]["capabilities"];
        assert_eq!(capabilities.get("tasks").is_some(), expected == V2025, "{expected}: {capabilities}");
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", expected)];
        let ping = stage.send(post("/mcp", &headers, ping())).await;
        assert_eq!((ping.status, ping.json()["result"].clone()), (200, json!({})), "{expected}");
    };
    for version in WITH_SESSIONS {
        check(version, version).await;
    }
    for unknown in ["2026-07-28", "2099-01-01", "1.0", "2025-11-26", "2024-10-07", "DRAFT-2026-v1", ""] {
        check(unknown, V2025).await;
    }
}

#[tokio::test]
async fn a_session_is_held_to_its_revision() {
    let stage = Stage::new().await;
    let check = async |version: &str, header: &str, status: u16| {
        let client = Client::session(&stage, version, json!({})).await;
        let headers = [("mcp-session-id", &*client.session), ("mcp-protocol-version", header)];
        let answer = stage.send(post("/mcp", &headers, ping())).await;
        assert_eq!(answer.status, status, "{version} {header}: {}", answer.text());
        if status == 400 {
            assert!(answer.json()["error"]["message"].is_string(), "{}", answer.text());
            let stream = stage.get("/mcp", &headers).await;
            assert_eq!(stream.status, 400, "{version} {header}");
            assert_eq!(stage.send(bare("DELETE", "/mcp", &headers)).await.status, 400, "{version} {header}");
        }
        // It is none the worse for it.
        client.ok("ping", json!({})).await;
    };
    for version in ["2025-06-18", V2025] {
        check(version, version, 200).await;
        check(version, "2099-01-01", 400).await;
        check(version, "nonsense", 400).await;
        check(version, "2025-03-26", 400).await;
        check(version, "2026-07-28", 400).await;
    }
    check("2025-06-18", V2025, 400).await;
    check(V2025, "2025-06-18", 400).await;
    // The header is younger than these.
    check("2025-03-26", V2025, 200).await;
    check("2024-11-05", "2025-03-26", 200).await;
}

#[tokio::test]
async fn what_belongs_to_no_session_is_refused() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let response = json!({ "jsonrpc": "2.0", "id": "q:1:1:1", "result": {} }).to_string();
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    let check = async |session: Option<&str>, status: u16| {
        let headers: Vec<(&str, &str)> = session.map(|id| ("mcp-session-id", id)).into_iter().collect();
        for body in [ping(), notification.clone(), response.clone()] {
            let answer = stage.send(post("/mcp", &headers, &body)).await;
            assert_eq!(answer.status, status, "{session:?} {body}: {}", answer.text());
            assert_eq!(answer.json()["error"]["code"], -32600, "{body}");
        }
        let opened = stage.send(get("/mcp", &headers)).await;
        // Without a session there is no such stream at all.
        assert_eq!(opened.status, if session.is_none() { 405 } else { status }, "{session:?}");
        assert_eq!(stage.send(bare("DELETE", "/mcp", &headers)).await.status, status, "{session:?}");
    };
    check(None, 400).await;
    check(Some("nobody"), 404).await;
    check(Some(&"0".repeat(64)), 404).await;
    check(Some(&client.session.to_uppercase()), 404).await;
    check(Some(&client.session[1..]), 404).await;
    client.ok("ping", json!({})).await;
    assert_eq!(client.delete().await, 204);
    check(Some(&client.session), 404).await;
}

/// As if it did not exist, and it goes on for its owner: the store still has it.
#[tokio::test]
async fn a_session_of_somebody_else_is_not_found() {
    let stage = Stage::new().await;
    let mine = Client::session(&stage, V2025, json!({})).await;
    let store = stage.engine.store_for_tests();
    let body = store.session(&mine.session).await.unwrap().unwrap().body;
    let insert = async |id: &str, owner: &str| {
        let (id, owner, body) = (id.to_owned(), owner.to_owned(), body.clone());
        let session = store::Session { id, owner, body, version: 1, used_at: Timestamp(i64::MAX / 2) };
        assert!(store.create_session(session, 100).await.unwrap());
    };
    insert("made-by-hand", "local").await;
    insert("of-somebody", "somebody").await;
    let check = async |id: &str, status: u16| {
        let headers = [("mcp-session-id", id)];
        let answer = stage.send(post("/mcp", &headers, ping())).await;
        assert_eq!(answer.status, status, "{id}: {}", answer.text());
    };
    check("made-by-hand", 200).await;
    check("of-somebody", 404).await;
    let headers = [("mcp-session-id", "of-somebody")];
    assert_eq!(stage.get("/mcp", &headers).await.status, 404);
    assert_eq!(stage.send(bare("DELETE", "/mcp", &headers)).await.status, 404);
    assert!(store.session("of-somebody").await.unwrap().is_some(), "it was ended by somebody else");
}

fn ping() -> String {
    let ping: Value = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    ping.to_string()
}
