//! What servers ask for beside forms: links and texts of a model; what they log; and runs that are stopped.

use std::{
    fs,
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, response::IntoResponse, routing::post};
use serde_json::{Value, json};

use super::{
    Way, World,
    terminal::{PROMPT, Terminal},
};
use crate::{command, server_process::ServerProcess};

/// A server with agents that are programs, and a chat that speaks MCP to it.
fn programs(agents: &str) -> World {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nuncio.toml"), agents).unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", "20ms"]);
    World { server, dir, way: Way::Local }
}

/// A program that says a line, takes one, and ends with what it was told.
fn says(name: &str, line: &Value) -> String {
    let script = format!(
        "read input; echo '{line}'; read answer; printf '{{\"type\":\"done\",\"text\":%s}}\\n' \"$(printf '%s' \"$answer\" | sed 's/[\\\\\"]//g; s/.*/\"&\"/')\""
    );
    format!("[[agent]]\nname = {name:?}\nkind = \"process\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n\n")
}

#[test]
fn a_link_is_shown_whole_and_opened_by_nobody() {
    let long = format!("https://login.example/{}?next=%2Fhome", "a/".repeat(80));
    let authorize = |url: &str| json!({ "type": "authorize", "text": "Sign in, please", "url": url });
    let world = programs(&format!(
        "{}{}",
        says("bank", &authorize(&long)),
        says("odd", &authorize("file:///etc/passwd"))
    ));
    let mut chat = world.chat();
    chat.command("bank text=hello");
    chat.expect("asks: Sign in, please");
    chat.expect("Host: login.example");
    chat.expect(&format!("Link: {long}"));
    chat.expect("!c]: ");
    chat.line("d");
    chat.expect("Asked by: bank");
    chat.expect("!c]: ");
    chat.line("o");
    chat.expect("Enter when you are done there");
    chat.line("");
    chat.expect("completed");
    chat.command("bank text=hello");
    chat.expect("!c]: ");
    chat.line("n");
    chat.expect("declined");
    chat.expect(PROMPT);
    // What is no page of the web is shown, and not opened.
    chat.line("odd text=hello");
    chat.expect("Link: file:///etc/passwd");
    chat.expect("!c]: ");
    chat.line("y");
    chat.expect("open it yourself");
    chat.line("!c");
    chat.expect(PROMPT);
}

#[test]
fn what_a_call_needs_is_asked_first_and_in_the_order_of_its_schema() {
    let agent = r#"[[agent]]
name = "trip"
kind = "process"
command = ["sh", "-c", "read input; printf '%s\\n' \"$input\" >> asked; echo '{\"type\":\"done\",\"text\":\"gone\"}'"]
[agent.input-schema]
type = "object"
required = ["to", "from"]
[agent.input-schema.properties]
about = { type = "string" }
from = { type = "string" }
note = { type = "string" }
to = { type = "string" }
"#;
    let world = programs(agent);
    let mut chat = world.chat();
    chat.command("trip");
    for (prompt, typed) in [
        ("from: ", "Bern"),
        ("to: ", "Oslo"),
        ("about [may be empty]: ", "early"),
        ("note [may be empty]: ", ""),
    ] {
        chat.expect(prompt);
        chat.line(typed);
    }
    chat.expect("completed");
    let asked = fs::read_to_string(world.dir.path().join("asked")).unwrap();
    let input: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
    assert_eq!(input["data"], json!({ "from": "Bern", "to": "Oslo", "about": "early" }));
}

#[test]
fn a_question_that_was_answered_elsewhere_lets_go_of_the_prompt() {
    let world = World::new(Way::Mcp, "20ms");
    let mut chat = world.chat();
    chat.command("travel_agent destination=Oslo");
    chat.expect("!c]: ");
    let listed = command::run(command::nuncio_in(world.dir.path()).args([
        "task",
        "list",
        "-a",
        world.server.url(),
        "-o",
        "json",
    ]));
    let task = listed.exits(0).json()["tasks"][0]["id"].as_str().unwrap().to_owned();
    let answer = [
        "send",
        "-a",
        world.server.url(),
        "--agent",
        "travel_agent",
        "--task-id",
        &task,
        r#"{"confirm":false}"#,
    ];
    command::run(command::nuncio_in(world.dir.path()).args(answer)).exits(0);
    chat.expect("Not booked: you did not confirm");
    chat.expect("Enter goes on");
    chat.line("");
    chat.command("runs");
    chat.expect("completed");
}

/// Waits until the only task is in a state.
#[track_caller]
fn only_task(world: &World, state: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while world.tasks() != [state] {
        assert!(Instant::now() < deadline, "{:?}, expected {state}", world.tasks());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_question_of_a_run_beside_waits_until_it_is_to_be_answered() {
    let script = "read input; echo '{\"type\":\"done\",\"text\":\"said\"}'";
    let plain_agent = format!(
        "[[agent]]\nname = \"quick\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n\n"
    );
    let form = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] });
    let ask = says("asks", &json!({ "type": "ask", "text": "One?", "schema": form }));
    let world = programs(&format!("{plain_agent}{ask}"));
    let mut chat = world.chat();
    chat.command("asks text=go &");
    chat.expect("[1 asks] asks: One?");
    chat.expect("`answer 1` answers it");
    // Another run in the foreground ends, and what is typed next is a command.
    chat.line("quick text=hello");
    chat.expect("[2 quick]");
    chat.expect("completed");
    chat.expect(PROMPT);
    chat.line("runs");
    chat.expect("asks");
    chat.command("answer 1");
    chat.expect("[1 asks] asks: One?");
    chat.expect("[1 asks] confirm [y, n, d for details, !c]: ");
    chat.line("n");
    chat.expect("declined");
    chat.expect(PROMPT);
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let form = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] });
    let line = json!({ "type": "ask", "text": "One?", "schema": form });
    let progress = json!({ "type": "progress", "done": 1, "total": 4, "text": "Reading" });
    let script = format!(
        "read input; echo '{progress}'; while ! [ -e go ]; do sleep 0.05; done; echo '{line}'; read answer; echo '{{\"type\":\"done\",\"text\":\"over\"}}'"
    );
    let world = programs(&format!(
        "[[agent]]\nname = \"slow\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    ));
    let mut chat = world.chat();
    chat.command("slow text=go");
    chat.expect("Reading");
    chat.line("y");
    // The terminal echoes it: it is in its buffer.
    chat.expect("y");
    fs::write(world.dir.path().join("go"), "").unwrap();
    chat.expect("asks: One?");
    chat.expect("confirm [y, n, d for details, !c]: ");
    chat.line("d");
    chat.expect("Asked by: slow");
    only_task(&world, "TASK_STATE_INPUT_REQUIRED");
    chat.expect("!c]: ");
    chat.line("n");
    chat.expect("declined");
    chat.expect(PROMPT);
}

#[test]
fn after_a_question_that_was_answered_elsewhere_enter_leads_to_the_next_one() {
    let form = json!({
        "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] });
    let ask = |text: &str| {
        let line = json!({ "type": "ask", "text": text, "schema": form });
        format!("echo '{line}'; read answer;")
    };
    let done = json!({ "type": "done", "text": "both" });
    let script = format!("read input; {} {} echo '{done}'", ask("One?"), ask("Two?"));
    let table = format!(
        "[[agent]]\nname = \"asks\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    );
    for way in [Way::A2a, Way::Mcp, Way::Local] {
        let world = World { way, ..programs(&table) };
        let mut chat = world.chat();
        chat.command("asks text=go");
        chat.expect("asks: One?");
        chat.expect("!c]: ");
        let listed = command::run(command::nuncio_in(world.dir.path()).args([
            "task",
            "list",
            "-a",
            world.server.url(),
            "-o",
            "json",
        ]));
        let task = listed.exits(0).json()["tasks"][0]["id"].as_str().unwrap().to_owned();
        let params = json!({ "configuration": { "returnImmediately": true }, "message": {
            "messageId": "elsewhere", "role": "ROLE_USER", "taskId": task,
            "parts": [{ "data": { "confirm": true } }],
        } });
        let answer = crate::http::rpc(&format!("{}/agents/asks", world.server.url()), "SendMessage", &params);
        assert!(answer["result"]["task"].is_object(), "{answer}");
        chat.expect("Enter goes on");
        let url = format!("{}/agents/asks", world.server.url());
        let is_next = || {
            let answer = crate::http::rpc(&url, "GetTask", &json!({ "id": task }));
            answer["result"]["status"]["message"].to_string().contains("Two?")
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_next() {
            assert!(Instant::now() < deadline, "the second question never came");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The prompt of the first stands there still. What is typed there is for nothing.
        chat.line("y");
        chat.expect("asks: Two?");
        chat.expect("!c]: ");
        chat.line("y");
        chat.expect("completed");
        chat.expect(PROMPT);
    }
}

#[test]
fn log_lines_come_from_the_level_that_is_wanted() {
    let logs: String = ["debug", "info", "warning"]
        .map(|level| {
            format!("echo '{{\"type\":\"log\",\"level\":\"{level}\",\"text\":\"a {level} line\"}}';")
        })
        .concat();
    // At once: they are there before anybody follows the task.
    let script = format!("read input; {logs} echo '{{\"type\":\"done\",\"text\":\"ok\"}}'");
    let world = programs(&format!(
        "[[agent]]\nname = \"logger\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    ));
    let mut chat = world.chat();
    chat.command("logger text=a");
    chat.expect("info: a info line");
    chat.expect("warning: a warning line");
    chat.expect("completed");
    chat.never("a debug line");
    chat.command("log warning");
    chat.command("logger text=b");
    chat.expect("completed");
    assert_eq!(chat.text().matches("info: a info line").count(), 1, "{}", chat.text());
    assert_eq!(chat.text().matches("warning: a warning line").count(), 2);
    // The server was told: it does not send these by itself.
    chat.command("log debug");
    chat.command("logger text=c");
    chat.expect("debug: a debug line");
    chat.expect("completed");
    chat.command("log loud");
    chat.expect("there is no level loud");
}

#[test]
fn runs_are_stopped_by_number_and_by_the_tasks_id() {
    for way in [Way::A2a, Way::Mcp] {
        let world = World::new(way, "1s");
        let mut chat = world.chat();
        chat.command("long_running_agent {} &");
        chat.expect("run 1 goes on beside");
        chat.command("cancel 1");
        chat.expect("[1 long_running_agent] canceled");
        chat.command("cancel 1");
        chat.expect("run 1 is over already");
        let text = if let Way::A2a = way { "long_running_agent go &" } else { "long_running_agent {} &" };
        chat.command(text);
        chat.expect("run 2 goes on beside");
        chat.expect(PROMPT);
        // Over MCP a call is given up here first, and canceled there a moment later; one that was canceled before it was
        // sent has made no task.
        world.all_canceled_but(1);
        let listed = command::run(command::nuncio_in(world.dir.path()).args([
            "task",
            "list",
            "-a",
            world.server.url(),
            "-o",
            "json",
            "--status",
            "working",
        ]));
        let task = listed.exits(0).json()["tasks"][0]["id"].as_str().unwrap().to_owned();
        chat.line(&format!("cancel {task}"));
        chat.expect("cancel");
        chat.expect("[2 long_running_agent] canceled");
        world.all_canceled_but(0);
    }
}

/// A stand-in of an OpenAI-compatible API.
struct Model {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Model {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let app = Router::new().route(
            "/v1/chat/completions",
            post(async move |body: Bytes| {
                seen.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let message = json!({ "role": "assistant", "content": "Tides follow the moon." });
                let answer =
                    json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
                ([("content-type", "application/json")], answer.to_string()).into_response()
            }),
        );
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app).await.unwrap();
            });
        });
        Self { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[test]
fn the_configured_model_writes_as_the_policy_says() {
    let (world, model) = (World::new(Way::Mcp, "20ms"), Model::start());
    let config = format!("[model]\nname = \"moon-1\"\nbase-url = \"{}\"\n", model.url);
    fs::write(world.dir.path().join("nuncio.toml"), config).unwrap();
    let address = world.address();
    let start =
        |policy: &str| Terminal::start(world.dir.path(), &["--server", &address, "--sampling", policy]);
    let call = "research_agent topic=tides";

    // Each time somebody decides, twice: who writes, and whether that is sent.
    let mut chat = start("ask");
    chat.command(call);
    chat.expect("asks: Please summarize the key findings for research on: tides");
    chat.expect("Who answers? [m: moon-1 writes it, t: I write it, n: refuse, !c]: ");
    assert_eq!(model.asked(), 0, "nobody said so yet");
    chat.line("m");
    chat.expect("| Tides follow the moon.");
    chat.expect("Send it? [y, n]: ");
    assert!(world.tasks().iter().all(|state| state != "TASK_STATE_COMPLETED"), "it was not sent yet");
    chat.line("n");
    chat.expect("Who answers?");
    chat.line("m");
    chat.expect("Send it? [y, n]: ");
    chat.line("y");
    chat.expect("The summary was written by your model.");
    assert_eq!(model.asked(), 2);

    let mut chat = start("always");
    chat.command(call);
    chat.expect("| Tides follow the moon.");
    chat.expect("The summary was written by your model.");
    chat.never("Who answers?");
    assert_eq!(model.asked(), 3);

    let mut chat = start("never");
    chat.command(call);
    chat.expect("refused: --sampling never");
    chat.expect("completed");
    chat.never("Tides follow");
    assert_eq!(model.asked(), 3);
}
