//! The limit for questions in real processes: it passes while the server is dead, and on several nodes one of them ends
//! the task.
//!
//! The second test needs a PostgreSQL: `scripts/postgres run cargo test -p nuncio-cli unanswered`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run},
    http::rpc,
    server_process::ServerProcess,
};

const REASON: &str = "nobody answered within 1s (question-limit)";
const FLAGS: [&str; 6] = ["--question-limit", "1s", "--expiry-poll", "50ms", "--agent-step", "5ms"];

/// A task that asks; its id.
fn ask(server: &ServerProcess) -> String {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "Lisbon" }] });
    let url = format!("{}/agents/travel_agent", server.url());
    let sent = rpc(&url, "SendMessage", &json!({ "message": message }));
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    task["id"].as_str().unwrap().to_owned()
}

/// Waits for the end of the task, which has the reason, and checks that it ended once.
fn check_unanswered(server: &ServerProcess, task: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let status = rpc(server.url(), "GetTask", &json!({ "id": task }))["result"]["status"].clone();
        if status["state"] == "TASK_STATE_FAILED" {
            break status;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status["message"]["parts"][0]["text"], REASON);
    let dir = tempfile::tempdir().unwrap();
    let subscribe = ["task", "subscribe", task, "--stream", "--after", "0", "-o", "json", "-a", server.url()];
    let events = run(nuncio_in(dir.path()).args(subscribe)).exits(0).json_lines();
    let is_end = |event: &&Value| event["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED";
    assert_eq!(events.iter().filter(is_end).count(), 1, "{events:?}");
}

#[test]
fn the_limit_of_a_question_passes_while_the_server_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &FLAGS);
    let task = ask(&server);
    server.kill9();
    server.restart();
    check_unanswered(&server, &task);
}

#[test]
fn one_of_two_nodes_ends_a_task_that_nobody_answers() {
    let Ok(url) = std::env::var("NUNCIO_TEST_POSTGRES") else {
        assert!(std::env::var_os("NUNCIO_TEST_ALL").is_none(), "NUNCIO_TEST_POSTGRES is not set");
        println!("skipped: NUNCIO_TEST_POSTGRES names no server");
        return;
    };
    let schema = format!("u_{}", std::process::id());
    let dir = tempfile::tempdir().unwrap();
    let flags = [&FLAGS[..], &["--store", &url, "--store-schema", &schema]].concat();
    let mut first = ServerProcess::start(&dir.path().join("first"), &flags);
    let second = ServerProcess::start(&dir.path().join("second"), &flags);
    let tasks: Vec<String> = (0..10).map(|_| ask(&first)).collect();
    tasks.iter().for_each(|task| check_unanswered(&second, task));
    // The node that it was sent to dies.
    let task = ask(&first);
    first.kill9();
    check_unanswered(&second, &task);
}
