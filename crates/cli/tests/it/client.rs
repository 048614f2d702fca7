//! The client commands against a real server: everything that a script would do.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    command::{Live, Ran, nuncio_in, run, run_with_input},
    server_process::ServerProcess,
};

/// A server, and commands that talk to it.
struct World {
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        Self { server, dir }
    }

    /// A command with its arguments, at this server.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.dir.path());
        command.args(args).args(["-a", self.server.url()]);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Where a task stands, whatever it is wrapped in.
fn state(value: &Value) -> &str {
    let task = value.get("task").or_else(|| value.get("statusUpdate")).unwrap_or(value);
    task["status"]["state"].as_str().unwrap_or_else(|| panic!("no state in {value}"))
}

#[test]
fn a_card_is_shown() {
    let world = World::new(&[]);
    let text = world.run(&["card", "get", "--validate"]).exits(0);
    assert_eq!([text.field("Name"), text.field("Streaming"), text.field("Valid")], ["echo", "yes", "yes"]);
    let card = world.run(&["card", "get", "-o", "json", "--agent", "travel_agent"]).exits(0).json();
    assert_eq!(card["name"], "travel_agent");
    let url = card["supportedInterfaces"][0]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/agents/travel_agent", world.server.url())), "{url}");

    // The same card from a file, and by its full address.
    let file = world.file("card.json", card.to_string().as_bytes());
    for reference in [file.to_str().unwrap(), &format!("file://{}", file.display()), "card.json"] {
        let sent = run(nuncio_in(world.dir.path()).args(["card", "get", "-a", reference])).exits(0);
        assert_eq!(sent.field("Name"), "travel_agent");
    }
    let full = format!("{}/agents/echo/.well-known/agent-card.json", world.server.url());
    let sent = run(nuncio_in(world.dir.path()).args(["send", "hi", "-a", &full])).exits(0);
    assert_eq!(sent.field("State"), "completed");
}

#[test]
fn a_message_waits_for_its_result() {
    let world = World::new(&["--agent-step", "5ms"]);
    let sent = world.run(&["send", "Hello", "-o", "json"]).exits(0).json();
    assert_eq!(state(&sent), "TASK_STATE_COMPLETED");
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "Hello");

    // An agent that takes its time: the id is said at once, beside the output.
    let sent = world.run(&["send", "--agent", "long_running_agent", "go"]).exits(0);
    assert_eq!(sent.field("State"), "completed");
    assert!(sent.stderr.contains(&format!("waiting for task {}", sent.field("Task"))), "{}", sent.stderr);
    let sent = world.run(&["send", "--agent", "long_running_agent", "go", "-o", "json"]).exits(0);
    assert_eq!(state(&sent.json()), "TASK_STATE_COMPLETED");
    assert_eq!(sent.stderr, "");
}

#[test]
fn parts_arrive_in_their_order() {
    let world = World::new(&[]);
    let file = world.file("a.bin", &[0, 1, 2]);
    let args = [
        "send",
        "--data",
        "-",
        "hello",
        "--file",
        file.to_str().unwrap(),
        "--media-type",
        "image/png",
        "--file",
        "https://files.example/x.pdf",
        "--data",
        r#"{"a":1}"#,
        "-o",
        "json",
    ];
    let sent = run_with_input(&mut world.command(&args), "[1]").exits(0).json();
    let parts = sent["task"]["artifacts"][0]["parts"].as_array().unwrap();
    let expected = serde_json::json!([
        { "data": [1] },
        { "text": "hello" },
        { "raw": "AAEC", "filename": "a.bin", "mediaType": "image/png" },
        { "url": "https://files.example/x.pdf", "mediaType": "application/pdf" },
        { "data": { "a": 1 } },
    ]);
    assert_eq!(Value::Array(parts.clone()), expected);
}

#[test]
fn a_stream_shows_events_as_they_come() {
    let world = World::new(&["--agent-step", "5ms"]);
    let lines =
        world.run(&["send", "--agent", "long_running_agent", "go", "--stream", "-o", "json"]).exits(0);
    let events = lines.json_lines();
    assert!(events[0]["task"].is_object(), "the first is the task: {}", events[0]);
    assert!(events.len() > 50, "{}", events.len());
    assert_eq!(state(events.last().unwrap()), "TASK_STATE_COMPLETED");

    let text = world.run(&["send", "Hello", "--stream"]).exits(0);
    assert!(text.stdout.contains("Artifact: echo\nText:\nHello\n\n"), "{}", text.stdout);
    let tail: Vec<_> =
        text.stdout.lines().rev().take(3).map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(tail, ["State", "Context", "Task"], "the end says again what it was about: {}", text.stdout);
}

#[test]
fn what_a_sent_task_makes_is_saved() {
    let world = World::new(&[]);
    let folder = |name: &str| world.dir.path().join(name).join("echo.txt");
    for (name, flags) in
        [("waited", &["--save", "waited"][..]), ("streamed", &["--stream", "--save", "streamed"])]
    {
        let ran = world.run(&[&["send", "Hello"], flags].concat()).exits(0);
        assert!(
            ran.field("Saved").starts_with(&format!("{name}/echo.txt (artifact echo, 5 bytes)")),
            "{}",
            ran.stdout
        );
        assert_eq!(std::fs::read_to_string(folder(name)).unwrap(), "Hello");
        let again = world.run(&[&["send", "Other"], flags].concat()).exits(2);
        assert!(again.stderr.contains("echo.txt exists: --force replaces it"), "{}", again.stderr);
        assert_eq!(std::fs::read_to_string(folder(name)).unwrap(), "Hello");
        world.run(&[&["send", "Other", "--force"], flags].concat()).exits(0);
        assert_eq!(std::fs::read_to_string(folder(name)).unwrap(), "Other");
    }
}

#[test]
fn a_question_is_answered() {
    let world = World::new(&["--agent-step", "5ms"]);
    let asked = world.run(&["send", "--agent", "travel_agent", "Rome"]).exits(0);
    assert_eq!(asked.field("State"), "input-required");
    assert!(asked.stderr.contains("warning: the task waits for an answer"), "{}", asked.stderr);
    let task = asked.field("Task").to_owned();
    assert!(asked.stdout.contains("\nField: confirm [y/n] Confirm (Whether to book"), "{}", asked.stdout);
    assert!(!asked.stdout.contains("Data:"), "{}", asked.stdout);

    // The commands that are shown are the commands that work.
    let shown = world.run(&["task", "get", &task]).exits(0);
    assert!(shown.field("Answer").ends_with("--data '{\"confirm\":true}'"), "{}", shown.stdout);
    let other = world.run(&["send", "--agent", "travel_agent", "Rome"]).exits(0);
    let answer = other.field("Answer");
    assert!(answer.ends_with("--data '{\"confirm\":true}'"), "{answer}");
    let answered = run(Command::new("sh").args(["-c", answer]).current_dir(world.dir.path())).exits(0);
    assert_eq!(answered.field("State"), "completed");
    let resume = asked.field("Resume").replace("<reply>", "yes");
    let answered = run(Command::new("sh").args(["-c", &resume]).current_dir(world.dir.path())).exits(0);
    assert_eq!([answered.field("Task"), answered.field("State")], [task.as_str(), "completed"]);

    // From the beginning, over the question that is answered, to the end.
    let args = ["task", "subscribe", &task, "--stream", "--after", "0", "-o", "json"];
    let events = world.run(&args).exits(0).json_lines();
    let states: Vec<_> = events.iter().filter(|event| event["statusUpdate"].is_object()).map(state).collect();
    assert!(states.contains(&"TASK_STATE_INPUT_REQUIRED"), "{states:?}");
    assert_eq!(states.last(), Some(&"TASK_STATE_COMPLETED"));

    // A task that has ended takes no more, and no other is made in its place.
    let refused = world.run(&["send", "--task-id", &task, "more", "-o", "json"]).exits(1).json();
    assert_eq!(refused["error"]["code"], "UnsupportedOperationError");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("--debug"), "{refused}");
    assert_eq!(world.run(&["task", "list", "-o", "json"]).exits(0).json()["totalSize"], 2);
}

#[test]
fn a_task_is_started_watched_and_stopped() {
    let world = World::new(&["--bench-agent", "--cancel-grace", "1s"]);
    let sent = world.run(&["send", "wait", "--async", "-o", "json"]).exits(0).json();
    let task = sent["task"]["id"].as_str().unwrap();
    assert!(sent["task"]["contextId"].is_string());

    let got = world.run(&["task", "get", task]).exits(0);
    assert_eq!([got.field("Task"), got.field("State")], [task, "working"]);

    let args = ["task", "get", task, "--wait", "--timeout", "200ms", "-o", "json"];
    let late = world.run(&args).exits(5).json();
    assert_eq!(late["error"]["code"], "A2ACLI_ERR_TIMEOUT");
    assert!(late["error"]["hint"].as_str().unwrap().contains(task), "{late}");

    let mut subscribed =
        Live::start(&mut world.command(&["task", "subscribe", task, "--stream", "-o", "json"]));
    let first: Value = serde_json::from_str(&subscribed.line().unwrap()).unwrap();
    assert_eq!(state(&first), "TASK_STATE_WORKING");
    let canceled = world.run(&["task", "cancel", task]).exits(0);
    assert_eq!(canceled.field("State"), "canceled");
    let rest = subscribed.finish().exits(0);
    assert_eq!(state(rest.json_lines().last().unwrap()), "TASK_STATE_CANCELED");
    assert!(rest.stderr.contains("warning: the task was canceled"), "{}", rest.stderr);

    let again = world.run(&["task", "cancel", task, "-o", "json"]).exits(1).json();
    assert_eq!(again["error"]["code"], "TaskNotCancelableError");
    assert_eq!(again["error"]["a2aCode"], -32002);

    // Without a stream it gives the task as it stands; with one it needs a cursor.
    let ended = world.run(&["task", "subscribe", task, "-o", "json"]).exits(0).json();
    assert_eq!(state(&ended), "TASK_STATE_CANCELED");
    let ended = world.run(&["task", "subscribe", task, "--stream", "-o", "json"]).exits(1).json();
    assert_eq!(ended["error"]["code"], "UnsupportedOperationError");
}

#[test]
fn tasks_are_listed_in_pages() {
    let world = World::new(&["--bench-agent"]);
    let first = world.run(&["send", "one", "-o", "json"]).exits(0).json();
    let context = first["task"]["contextId"].as_str().unwrap();
    world.run(&["send", "two", "--context-id", context]).exits(0);
    world.run(&["send", "three"]).exits(0);
    world.run(&["send", "wait", "--async"]).exits(0);

    let ids = |args: &[&str]| -> Vec<String> {
        let all = world.run(&[&["task", "list", "-o", "json"], args].concat()).exits(0).json();
        all["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]).len(), 4);
    assert_eq!(ids(&["--context-id", context]).len(), 2);
    assert_eq!(ids(&["--status", "completed"]).len(), 3);
    assert_eq!(ids(&["--state", "TASK_STATE_WORKING"]).len(), 1);

    let page = world.run(&["task", "list", "--page-size", "3"]).exits(0);
    assert_eq!(page.field("Total"), "4");
    let next = page.field("Next");
    let rest = run(Command::new("sh").args(["-c", next]).current_dir(world.dir.path())).exits(0);
    let rows = |shown: &Ran| shown.stdout.lines().filter(|line| line.starts_with("01")).count();
    assert_eq!([rows(&page), rows(&rest)], [3, 1], "{}", rest.stdout);
    let blocks = world.run(&["task", "list", "--verbose"]).exits(0);
    assert_eq!(blocks.stdout.matches("Task: ").count(), 4, "{}", blocks.stdout);

    let lines = world.run(&["task", "list", "-o", "json", "--stream"]).exits(0).json_lines();
    assert!(lines.len() == 4 && lines.iter().all(|task| task["id"].is_string()));
    world.run(&["task", "list", "--status", "lost"]).exits(2);
    world.run(&["task", "list", "--page-size", "101"]).exits(2);
}

#[test]
fn a_stream_goes_on_after_the_server_was_killed() {
    goes_on_after(ServerProcess::kill9);
}

#[test]
fn a_stream_goes_on_after_the_server_was_stopped() {
    goes_on_after(|server| assert_eq!(server.terminate().code(), Some(0), "{}", server.log()));
}

fn goes_on_after(end: impl Fn(&mut ServerProcess)) {
    let mut world = World::new(&["--agent-step", "40ms"]);
    let args = ["send", "--agent", "long_running_agent", "go", "--stream", "-o", "json"];
    let mut stream = Live::start(&mut world.command(&args));
    let mut events: Vec<Value> = vec![];
    while events.len() < 8 {
        events.push(serde_json::from_str(&stream.line().expect("more events")).unwrap());
    }
    end(&mut world.server);
    world.server.restart();
    let rest = stream.finish().exits(0);
    events.extend(rest.json_lines());

    assert_eq!(state(events.last().unwrap()), "TASK_STATE_COMPLETED");
    // What it saw is what there is: nothing is missing, and nothing came twice.
    let task = events[0]["task"]["id"].as_str().unwrap();
    let args = ["task", "subscribe", task, "--stream", "--after", "0", "-o", "json"];
    let log: Vec<Value> = world.run(&args).exits(0).json_lines();
    let updates: Vec<&Value> = events.iter().filter(|event| event.get("task").is_none()).collect();
    let logged: Vec<&Value> = log.iter().filter(|event| event.get("task").is_none()).collect();
    assert_eq!(updates, logged);
}

#[test]
fn ctrl_c_leaves_the_way_to_go_on() {
    let world = World::new(&["--bench-agent"]);
    let mut stream = Live::start(&mut world.command(&["send", "wait", "--stream"]));
    let first = stream.line().unwrap();
    let task = first.strip_prefix("Task: ").unwrap().to_owned();
    while stream.line().unwrap() != "State: working" {}
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&stream.child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = stream.finish().exits(130);
    assert!(ended.stderr.contains(&format!("task subscribe {task} ")), "{}", ended.stderr);
    assert!(ended.stderr.contains("--after "), "{}", ended.stderr);
    // The task does not care.
    assert_eq!(world.run(&["task", "get", &task]).exits(0).field("State"), "working");
}

#[test]
fn a_task_of_0_1_is_sent_under_an_id_that_the_client_makes() {
    let world = World::new(&[]);
    let sent = world.run(&["send", "hello", "--a2a-version", "0.1", "-o", "json"]).exits(0).json();
    assert_eq!(sent["status"]["state"], "completed", "{sent}");
    let id = sent["id"].as_str().unwrap();
    let got = world.run(&["task", "get", id, "--a2a-version", "0.1", "-o", "json"]).exits(0).json();
    assert_eq!(got["id"], sent["id"]);
}

/// The whole way of a push notification: asked for by one command, delivered, verified and printed by another.
#[test]
fn a_webhook_is_asked_for_received_and_verified() {
    let world = World::new(&["--allow-private-webhooks", "--agent-step", "1ms"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let secret = world.server.data().join("webhook-secret");
    let mut listen = nuncio_in(world.dir.path());
    listen.args(["listen", "--listen", &address, "--token", "t-9", "--timeout", "100s", "-o", "json"]);
    listen.arg("--secret-file").arg(&secret);
    let mut listening = Live::start(&mut listen);
    crate::caller::until("a listener", || std::net::TcpStream::connect(&address).ok());
    // A stranger is not printed.
    let stranger = crate::caller::Caller::new(&format!("http://{address}"));
    assert_eq!(stranger.send("POST", "/hook", &[], Some(&serde_json::json!({ "id": "x" }))).status, 401);
    let hook = format!("http://{address}/hook");
    world.run(&["send", "hello", "--webhook", &hook, "--webhook-token", "t-9"]).exits(0);
    let mut printed = vec![];
    while !printed.iter().any(|line: &String| line.contains("TASK_STATE_COMPLETED")) {
        printed.push(listening.line().unwrap_or_else(|| panic!("it ended before the task did: {printed:?}")));
    }
    assert!(!printed.iter().any(|line| line.contains("\"x\"")), "{printed:?}");
    listening.child.kill().unwrap();
    listening.child.wait().unwrap();
}
