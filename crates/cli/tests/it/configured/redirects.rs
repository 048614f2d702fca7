//! Messages that reach agents while they work: a program through kills of the server, and an agent of another server.

use std::fs;

use serde_json::{Value, json};

use super::{ending, id, lines, until};
use crate::{http::rpc, server_process::ServerProcess};

/// Counts, a step each, until it is told to be shorter. What it took of the messages is part of a step's result.
const COUNTS: &str = r#"
import json, os, queue, sys, threading, time
told, messages = queue.Queue(), queue.Queue()
def say(**message):
    print(json.dumps(message), flush=True)
def read():
    for line in sys.stdin:
        line = json.loads(line)
        (messages if line["type"] == "message" else told).put(line)
    os._exit(1)
threading.Thread(target=read, daemon=True).start()
told.get()
say(type="listen")
seen, n, total, words = 0, 0, 10_000, []
while n < total:
    n += 1
    say(type="step", name=f"count-{n}")
    line = told.get()
    if line["type"] == "done-before":
        heard = line["result"]
    else:
        time.sleep(0.02)
        heard = [messages.get() for _ in range(messages.qsize())]
        with open("counted", "a") as file:
            file.write(f"{n} {len([m for m in heard if m['number'] > seen])}\n")
        say(type="step-done", name=f"count-{n}", result=heard)
    for message in heard:
        if message["number"] > seen:
            seen = message["number"]
            words.append(f"{n}:{message['text']}")
            total = n + 20 if message["text"] == "shorter" else total
say(type="done", text=f"{n} {' '.join(words)}")
"#;

fn begin(server: &ServerProcess, agent: &str) -> Value {
    say(server, agent, "go", None)
}

/// Says something, and does not wait for what comes of it.
fn say(server: &ServerProcess, agent: &str, text: &str, task: Option<&str>) -> Value {
    let mut message = json!({
        "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER", "parts": [{ "text": text }],
    });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let answer = rpc(&format!("{}/agents/{agent}", server.url()), "SendMessage", &params);
    assert!(answer["result"]["task"].is_object(), "{answer}");
    answer["result"]["task"].clone()
}

fn look(server: &ServerProcess, agent: &str, task: &Value) -> Value {
    rpc(&format!("{}/agents/{agent}", server.url()), "GetTask", &json!({ "id": id(task) }))["result"].clone()
}

#[test]
fn a_program_is_told_shorter_and_ends_early_through_kills_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("counts.py"), COUNTS).unwrap();
    let table = "[[agent]]\nname = \"counts\"\nkind = \"process\"\ncommand = [\"python3\", \"counts.py\"]\n";
    fs::write(dir.path().join("nuncio.toml"), table).unwrap();
    let counted = dir.path().join("counted");
    let heard = |number: usize| lines(&counted).iter().filter(|line| !line.ends_with(" 0")).count() >= number;
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);

    let task = begin(&server, "counts");
    until("it counts", || lines(&counted).len() > 3);
    say(&server, "counts", "louder", Some(id(&task)));
    until("it was told", || heard(1));
    server.kill9();
    server.restart();
    let before = lines(&counted).len();
    until("it goes on", || lines(&counted).len() > before + 2);
    say(&server, "counts", "shorter", Some(id(&task)));
    until("it was told", || heard(2));
    // Between the message and the early end.
    server.kill9();
    server.restart();
    let mut ended = task.clone();
    until("it has ended", || {
        ended = look(&server, "counts", &task);
        ending(&ended).0 != "TASK_STATE_WORKING"
    });
    let (state, words) = ending(&ended);
    assert_eq!(state, "TASK_STATE_COMPLETED", "{words}");
    let words: Vec<&str> = words.split(' ').collect();
    let [n, louder, shorter] = words[..] else { panic!("each message once: {words:?}") };
    assert!(louder.ends_with(":louder"), "{words:?}");
    let (at, text) = shorter.split_once(':').unwrap();
    assert_eq!(text, "shorter");
    assert_eq!(n.parse::<u32>().unwrap(), at.parse::<u32>().unwrap() + 20, "{words:?}");
}

#[test]
fn a_message_goes_on_to_an_agent_of_another_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    let there = ServerProcess::start(&dir.path().join("there/nuncio-data"), &["--agent-step", "100ms"]);
    for dialect in ["1.0", "0.3", "0.1"] {
        let here = dir.path().join(format!("here-{dialect}"));
        fs::create_dir(&here).unwrap();
        let table = format!(
            "[[agent]]\nname = \"far\"\nkind = \"a2a\"\nurl = \"{}/agents/long_running_agent\"\ndialect = \"{dialect}\"\n",
            there.url()
        );
        fs::write(here.join("nuncio.toml"), table).unwrap();
        let server = ServerProcess::start(&here.join("nuncio-data"), &[]);
        let task = begin(&server, "far");
        until("it is at work", || {
            look(&server, "far", &task)["status"]["message"].to_string().contains("is done")
        });
        say(&server, "far", "stop after this step", Some(id(&task)));
        let mut ended = task.clone();
        until("it has ended", || {
            ended = look(&server, "far", &task);
            ending(&ended).0 != "TASK_STATE_WORKING"
        });
        let (state, words) = ending(&ended);
        assert_eq!(state, "TASK_STATE_COMPLETED", "{dialect}: {words}");
        assert!(words.starts_with("All ") && words != "All 50 steps are done.", "{dialect}: {words}");
    }
}
