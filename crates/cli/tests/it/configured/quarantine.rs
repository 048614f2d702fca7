//! The server dies under its programs, again and again. Only the program that kills it is given up.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{ending, id, lines, rpc, until};
use crate::server_process::ServerProcess;

const TABLES: &str = r#"
[[agent]]
name = "silent"
kind = "process"
command = ["sh", "-c", '''
read line
echo began >> silent
while [ ! -e may-end ] && kill -0 $PPID 2> /dev/null; do sleep 0.05; done
echo '{"type":"done","text":"at last"}'
''']

[[agent]]
name = "pill"
kind = "process"
command = ["sh", "-c", '''
read line
echo began >> pill
while [ ! -e may-kill ]; do sleep 0.01; done
kill -9 $PPID
''']
"#;

fn serve(dir: &Path) -> ServerProcess {
    fs::write(dir.join("nuncio.toml"), TABLES).unwrap();
    ServerProcess::start(&dir.join("data"), &["--probation", "300ms"])
}

/// Sends a text and does not wait for what comes of it.
fn begin(server: &ServerProcess, agent: &str) -> Value {
    let message = json!({
        "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER", "parts": [{ "text": "go" }],
    });
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let answer = rpc(&format!("{}/agents/{agent}", server.url()), "SendMessage", &params);
    answer["result"]["task"].clone()
}

fn get(server: &ServerProcess, task: &Value) -> Value {
    rpc(server.url(), "GetTask", &json!({ "id": id(task) }))["result"].clone()
}

fn is_completed(server: &ServerProcess, task: &Value) {
    until("it completes", || {
        let task = get(server, task);
        let (state, words) = ending(&task);
        assert!(!state.contains("FAILED"), "{words}");
        (state, words) == ("TASK_STATE_COMPLETED", "at last")
    });
}

#[test]
fn a_program_that_works_for_long_lives_through_eight_kills_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path());
    let task = begin(&server, "silent");
    until("it begins", || lines(&dir.path().join("silent")).len() == 1);
    for _ in 0..8 {
        server.kill9();
        server.restart();
    }
    fs::write(dir.path().join("may-end"), "").unwrap();
    is_completed(&server, &task);
    assert!(lines(&dir.path().join("silent")).len() >= 2, "it was begun again");
}

#[test]
fn a_program_that_kills_the_server_is_given_up_and_the_one_beside_it_completes() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path());
    let beside = begin(&server, "silent");
    let pill = begin(&server, "pill");
    fs::write(dir.path().join("may-kill"), "").unwrap();
    let mut deaths = 0;
    // Each life ends by the program, until one does without it.
    while !server.log().contains("quarantined") {
        server.wait();
        deaths += 1;
        assert!(deaths < 20, "it is never given up:\n{}", server.log());
        let begun = lines(&dir.path().join("pill")).len();
        server.respawn();
        until("it begins again, or is given up", || {
            lines(&dir.path().join("pill")).len() > begun || server.log().contains("quarantined")
        });
    }
    server.ready();
    until("it has failed", || ending(&get(&server, &pill)).0 == "TASK_STATE_FAILED");
    let failed = get(&server, &pill);
    assert!(ending(&failed).1.contains("quarantined"), "{failed}");
    assert!(deaths >= 5, "after {deaths} deaths");
    fs::write(dir.path().join("may-end"), "").unwrap();
    is_completed(&server, &beside);
}
