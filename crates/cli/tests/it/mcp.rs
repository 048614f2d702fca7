//! `nuncio mcp`: a client that starts its server, in both of its ways.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run_with_input},
    server_process::ServerProcess,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A client on the pipes of `nuncio mcp`.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    messages: mpsc::Receiver<Value>,
}

impl Client {
    fn start(data: &Path, flags: &[&str]) -> Self {
        let mut command: Command = nuncio_in(data.parent().unwrap());
        command.args(["mcp", "--data"]).arg(data).args(flags);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, messages) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Nothing else may stand on the standard output.
                let message = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
                let _ = tell.send(message);
            }
        });
        Self { input: child.stdin.take(), child, messages }
    }

    fn say(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    fn hear(&self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("a message")
    }

    /// The response to a request; what is told before it goes to the closure, with a way to answer.
    fn ask(&mut self, request: &Value, mut told: impl FnMut(&mut Self, &Value)) -> Value {
        self.say(request);
        loop {
            let message = self.hear();
            if message["id"] == request["id"] && message.get("method").is_none() {
                return message;
            }
            told(self, &message);
        }
    }

    fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.ask(
            &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
            |_, message| panic!("{message}"),
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Closes its end, and waits for the other to go.
    fn close(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(id: u32, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn yes(message: &Value) -> Value {
    let result = json!({ "action": "accept", "content": { "confirm": true } });
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })
}

/// In this process or through the server that holds the folder: a client cannot tell.
#[test]
fn a_client_that_starts_its_server_books_a_trip() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let alone = |data: &Path| {
        let mut client = Client::start(data, &["--agent-step", "1ms"]);
        client.initialize();
        let (mut asked, mut progress) = (0, vec![]);
        let request = call(1, "travel_agent", &json!({ "destination": "Lisbon" }));
        let answer = client.ask(&request, |client, message| match message["method"].as_str() {
            Some("elicitation/create") => {
                asked += 1;
                client.say(&yes(message));
            }
            Some("notifications/progress") => progress.push(message["params"]["progress"].clone()),
            _ => {}
        });
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("booked"), "{answer}");
        assert_eq!((asked, progress), (1, [0, 25, 50, 75, 100].map(Value::from).to_vec()));
        client.close();
    };
    alone(&data);
    let server = ServerProcess::start(&data, &["--agent-step", "1ms"]);
    alone(&data);
    drop(server);
}

#[test]
fn two_clients_share_the_folder_that_one_of_them_holds() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut first = Client::start(&data, &[]);
    first.initialize();
    let mut second = Client::start(&data, &[]);
    second.initialize();
    for client in [&mut first, &mut second] {
        let answer = client.ask(&call(1, "echo", &json!({ "text": "hi" })), |_, _| {});
        assert_eq!(answer["result"]["content"][0]["text"], "hi");
    }
    second.close();
    first.close();
}

/// The client sees nothing of it: progress once each and in order, and one result. Nobody starts the server again,
/// so the client's own process goes on with what that one had taken.
#[test]
fn a_call_survives_the_death_of_the_server_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut server = ServerProcess::start(&data, &["--agent-step", "20ms"]);
    let mut client = Client::start(&data, &["--agent-step", "20ms"]);
    client.initialize();
    let mut progress = vec![];
    let request = call(1, "long_running_agent", &json!({ "steps": 30 }));
    let answer = client.ask(&request, |_, message| {
        if message["method"] == "notifications/progress" {
            progress.push(message["params"]["progress"].as_u64().unwrap());
            if progress.len() == 10 {
                server.kill9();
            }
        }
    });
    assert!(answer["result"].to_string().contains("All 30 steps are done."), "{answer}");
    assert_eq!(progress, (1..=30).collect::<Vec<u64>>());
    client.close();
}

/// Whoever holds the folder may go: the next one goes on, with the same session and the same call.
#[test]
fn a_client_takes_over_from_the_one_that_held_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut first = Client::start(&data, &["--agent-step", "20ms"]);
    first.initialize();
    let mut second = Client::start(&data, &["--agent-step", "20ms"]);
    second.initialize();
    let mut progress = vec![];
    let request = call(1, "long_running_agent", &json!({ "steps": 30 }));
    let mut first = Some(first);
    let answer = second.ask(&request, |_, message| {
        if message["method"] == "notifications/progress" {
            progress.push(message["params"]["progress"].as_u64().unwrap());
            if progress.len() == 10 {
                // Killed when it is dropped.
                drop(first.take());
            }
        }
    });
    assert!(answer["result"].to_string().contains("All 30 steps are done."), "{answer}");
    assert_eq!(progress, (1..=30).collect::<Vec<u64>>());
    let answer = second.ask(&call(2, "echo", &json!({ "text": "still here" })), |_, _| {});
    assert_eq!(answer["result"]["content"][0]["text"], "still here");
    second.close();
}

#[test]
fn requests_of_a_program_that_closes_at_once_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "echo", "arguments": { "text": "quick" }, "_meta": meta });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let ran = run_with_input(nuncio_in(dir.path()).arg("mcp"), &format!("{request}\n")).exits(0);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "quick");
}
