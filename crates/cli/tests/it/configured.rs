//! Agents of `nuncio.toml` in the real server: served, killed, edited, and as the examples have them.

mod access;
mod conformance;
mod examples;
mod hostile_schema;
mod input;
mod llm;
mod quarantine;
mod redirects;
mod tables;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    http::{client, rpc},
    server_process::ServerProcess,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a text to an agent, as a new task or as an answer to one, and waits for what comes of it.
fn send(server: &ServerProcess, agent: &str, text: &str, task: Option<&str>) -> Value {
    let mut message = json!({
        "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER", "parts": [{ "text": text }],
    });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    let answer =
        rpc(&format!("{}/agents/{agent}", server.url()), "SendMessage", &json!({ "message": message }));
    let task = &answer["result"]["task"];
    assert!(task.is_object(), "{answer}");
    task.clone()
}

fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap()
}

/// The state of a task, and its last words.
fn ending(task: &Value) -> (&str, &str) {
    let status = &task["status"];
    (status["state"].as_str().unwrap(), status["message"]["parts"][0]["text"].as_str().unwrap_or_default())
}

/// The status of a GET, and what it brings.
fn get(url: &str) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answer = client().get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

/// The status of an agent's card.
fn card(server: &ServerProcess, agent: &str) -> u16 {
    get(&format!("{}/agents/{agent}/.well-known/agent-card.json", server.url())).0
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A table of an agent in shell that says one thing.
fn says(name: &str, words: &str) -> String {
    format!(
        "[[agent]]\nname = \"{name}\"\nkind = \"process\"\ndescription = \"{words}\"\n\
         command = [\"sh\", \"-c\", '''read line; echo '{{\"type\":\"done\",\"text\":\"{words}\"}}' ''']\n\n"
    )
}

const PAYS: &str = r#"
import json, os, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(1)
def step(name, wait=False):
    say(type="step", name=name)
    if hear()["type"] == "done-before":
        return
    with open("effects", "a") as file:
        file.write(name + "\n")
    while wait and not os.path.exists("may-end"):
        time.sleep(0.01)
    say(type="step-done", name=name)
given = hear()
step("pay")
say(type="ask", text="Deliver?")
answer = hear()
step("deliver", wait=given["text"] == "slowly")
say(type="done", text=answer["data"]["answer"])
"#;

#[test]
fn a_program_goes_on_after_the_server_is_killed_while_it_asks_and_while_it_works() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pays.py"), PAYS).unwrap();
    let table = "[[agent]]\nname = \"pays\"\nkind = \"process\"\ncommand = [\"python3\", \"pays.py\"]\n";
    fs::write(dir.path().join("nuncio.toml"), table).unwrap();
    let effects = dir.path().join("effects");
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    assert!(server.greeting().contains("pays"), "{}", server.greeting());

    let task = send(&server, "pays", "slowly", None);
    assert_eq!(ending(&task), ("TASK_STATE_INPUT_REQUIRED", "Deliver?"));
    server.kill9();
    server.restart();

    // The answer is given, and the server is killed again in the middle of the step after it.
    let message = json!({
        "messageId": "a", "role": "ROLE_USER", "taskId": id(&task), "parts": [{ "text": "at noon" }],
    });
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    rpc(&format!("{}/agents/pays", server.url()), "SendMessage", &params);
    until("it delivers", || lines(&effects) == ["pay", "deliver"]);
    server.kill9();
    server.restart();
    until("it delivers again", || lines(&effects) == ["pay", "deliver", "deliver"]);
    fs::write(dir.path().join("may-end"), "").unwrap();

    let mut task = task;
    until("it has ended", || {
        let answer = rpc(&format!("{}/agents/pays", server.url()), "GetTask", &json!({ "id": id(&task) }));
        task = answer["result"].clone();
        ending(&task).0 == "TASK_STATE_COMPLETED"
    });
    assert_eq!(ending(&task).1, "at noon");
    assert_eq!(lines(&effects), ["pay", "deliver", "deliver"], "what was done is not done again");
}

/// A session of MCP that listens for what changes.
struct Listener {
    told: std::sync::mpsc::Receiver<String>,
}

impl Listener {
    fn start(url: &str) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let endpoint = format!("{url}/mcp");
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let params = json!({
                    "protocolVersion": "2025-06-18", "capabilities": {},
                    "clientInfo": { "name": "test", "version": "1" },
                });
                let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
                let client = client();
                let answer = client
                    .post(&endpoint)
                    .header("Content-Type", "application/json")
                    .header("Accept", "application/json, text/event-stream")
                    .body(body.to_string())
                    .send()
                    .await
                    .unwrap();
                let session = answer.headers()["mcp-session-id"].clone();
                let mut stream = client
                    .get(&endpoint)
                    .header("Accept", "text/event-stream")
                    .header("MCP-Protocol-Version", "2025-06-18")
                    .header("Mcp-Session-Id", session)
                    .send()
                    .await
                    .unwrap();
                ready.send(()).unwrap();
                while let Ok(Some(bytes)) = stream.chunk().await {
                    let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
                }
            });
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        Self { told }
    }

    /// Waits until it is told that the list of tools has changed.
    fn hears_of_tools(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let told = self.told.recv_timeout(left).expect("it is told");
            if told.contains("notifications/tools/list_changed") {
                return;
            }
        }
    }
}

/// The names of the tools, as a stateless client sees them.
fn tools(url: &str) -> Vec<String> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(async {
        let request = client()
            .post(format!("{url}/mcp"))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/list");
        request.body(body.to_string()).send().await.unwrap().text().await.unwrap()
    });
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_edit_of_the_file_is_picked_up_while_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nuncio.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write(&says("one", "first"));
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    assert_eq!(ending(&send(&server, "one", "go", None)).1, "first");
    assert_eq!(card(&server, "two"), 404);
    let listener = Listener::start(server.url());

    write(&format!("{}{}", says("one", "changed"), says("two", "second")));
    listener.hears_of_tools();
    server.logs("agents: added two; replaced one");
    assert_eq!(card(&server, "two"), 200);
    let names = tools(server.url());
    assert!(names.contains(&"one".to_owned()) && names.contains(&"two".to_owned()), "{names:?}");
    assert_eq!(ending(&send(&server, "two", "go", None)).1, "second");
    assert_eq!(ending(&send(&server, "one", "go", None)).1, "changed");

    // A broken edit changes nothing, and says why, once.
    write(&format!(
        "{}{}",
        says("two", "third"),
        "[[agent]]\nname = \"bad\"\nkind = \"process\"\ncomand = [\"x\"]\n"
    ));
    server.logs("did you mean \"command\"?");
    server.logs("the agents stay as they were");
    assert_eq!(ending(&send(&server, "one", "go", None)).1, "changed");
    assert_eq!(ending(&send(&server, "two", "go", None)).1, "second");

    // So does a file that is gone. Another setting is named, and an agent that has gone is gone everywhere.
    fs::remove_file(&file).unwrap();
    server.logs("cannot read nuncio.toml");
    write(&format!("max-running = 77\n{}", says("two", "second")));
    listener.hears_of_tools();
    server.logs("agents: removed one");
    server.logs("a change of max-running takes effect after a restart");
    assert_eq!((card(&server, "one"), card(&server, "two")), (404, 200));
    assert!(!tools(server.url()).contains(&"one".to_owned()));
    let log = server.log();
    let failures = log.matches("the agents stay as they were").count();
    assert_eq!(failures, 2, "each is logged once:\n{log}");
}

#[test]
fn a_hangup_reads_the_file_at_once_and_twice_is_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    fs::write(dir.path().join("nuncio.toml"), says("late", "here")).unwrap();
    server.signal(rustix::process::Signal::HUP);
    server.logs("asked to read the configuration again");
    server.logs("agents: added late");
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(ending(&send(&server, "late", "go", None)).1, "here");
    assert_eq!(server.log().matches("agents: added late").count(), 1);
}
