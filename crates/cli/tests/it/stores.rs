//! Whole stores in the operator's hands: backed up under a running server, moved to PostgreSQL and back.

use serde_json::json;

use crate::{
    command::{Ran, nuncio_in, run},
    http,
    server_process::ServerProcess,
};

/// The database server to test with.
fn postgres() -> Option<String> {
    let url = std::env::var("NUNCIO_TEST_POSTGRES").ok();
    assert!(
        url.is_some() || std::env::var_os("NUNCIO_TEST_ALL").is_none(),
        "NUNCIO_TEST_POSTGRES is not set"
    );
    if url.is_none() {
        println!("skipped: NUNCIO_TEST_POSTGRES names no server");
    }
    url
}

fn send(server: &ServerProcess, agent: &str, text: &str) -> String {
    let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } });
    let answer = http::rpc(&format!("{}/agents/{agent}", server.url()), "SendMessage", &params);
    answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn state(server: &ServerProcess, task: &str) -> String {
    let answer = http::rpc(server.url(), "GetTask", &json!({ "id": task }));
    answer["result"]["status"]["state"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_backup_of_a_running_server_is_a_store_to_start_from() {
    let dir = tempfile::tempdir().unwrap();
    let backup =
        |to: &str| -> Ran { run(nuncio_in(dir.path()).args(["store", "backup", to, "--data", "data"])) };
    assert!(backup("early").exits(1).stderr.contains("there is no store in"));
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", "1ms"]);
    let (done, asks) = (send(&server, "echo", "hello"), send(&server, "travel_agent", "Lisbon"));
    assert!(backup("copy").exits(0).stdout.contains("Backed up"));
    assert!(backup("copy").exits(1).stderr.contains("is not empty"));
    let later = send(&server, "echo", "after the backup");
    server.terminate();

    let server = ServerProcess::start(&dir.path().join("copy"), &["--agent-step", "1ms"]);
    assert_eq!(state(&server, &done), "TASK_STATE_COMPLETED");
    assert_eq!(state(&server, &asks), "TASK_STATE_INPUT_REQUIRED");
    assert!(http::rpc(server.url(), "GetTask", &json!({ "id": later }))["error"].is_object());
    let secret = |folder: &str| std::fs::read(dir.path().join(folder).join("webhook-secret")).unwrap();
    assert_eq!(secret("data"), secret("copy"), "receivers still know who signs");
}

#[test]
fn a_store_moves_to_postgres_and_its_questions_are_answered_there() {
    let Some(url) = postgres() else { return };
    let dir = tempfile::tempdir().unwrap();
    let schema = format!("move_{}", std::process::id());
    let copy = |from: &str, to: &str| -> Ran {
        run(nuncio_in(dir.path()).args(["store", "copy", from, to, "--store-schema", &schema]))
    };
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", "1ms"]);
    let (done, asks) = (send(&server, "echo", "hello"), send(&server, "travel_agent", "Lisbon"));
    assert!(copy("sqlite:data", &url).exits(1).stderr.contains("in use"));
    server.terminate();
    assert!(copy("sqlite:nowhere", &url).exits(1).stderr.contains("there is no store in"));
    assert!(
        copy("sqlite:data", &url)
            .exits(0)
            .stdout
            .contains("Copied 2 tasks (0 were there already); 2 compared")
    );
    assert!(
        copy("sqlite:data", &url)
            .exits(0)
            .stdout
            .contains("Copied 0 tasks (2 were there already); 2 compared")
    );

    let maintain = |verb: &str| {
        let place = ["--store", &url, "--store-schema", &schema, "-o", "json"];
        run(nuncio_in(dir.path()).args(["store", verb]).args(place)).exits(0).json()
    };
    assert_eq!(maintain("stats")["kinds"][0]["count"], 2);
    assert!(maintain("compact")["after"].as_u64() > Some(0));
    assert_eq!((&maintain("check")["tasks"], &maintain("check")["problemCount"]), (&json!(2), &json!(0)));

    let flags = ["--agent-step", "1ms", "--store", &url, "--store-schema", &schema];
    let mut server = ServerProcess::start(&dir.path().join("node"), &flags);
    assert_eq!(state(&server, &done), "TASK_STATE_COMPLETED");
    let yes = json!({ "messageId": "y", "role": "ROLE_USER", "taskId": asks, "parts": [{ "text": "yes" }] });
    let answer = http::rpc(server.url(), "SendMessage", &json!({ "message": yes }));
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    assert!(copy(&url, "sqlite:back").exits(1).stderr.contains("a server uses"));
    server.terminate();
    assert!(copy(&url, "sqlite:back").exits(0).stdout.contains("Copied 2 tasks"));
    let secret =
        |folder: &str| std::fs::read_to_string(dir.path().join(folder).join("webhook-secret")).unwrap();
    assert_eq!(secret("data"), secret("back"), "receivers still know who signs, all the way");
    let server = ServerProcess::start(&dir.path().join("back"), &[]);
    assert_eq!(state(&server, &asks), "TASK_STATE_COMPLETED");
}
