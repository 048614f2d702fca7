//! What a Nuncio server shows of a task: the table, the whole of it, its events and its log.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    command::{Live, Ran, nuncio_in, run},
    server_process::ServerProcess,
};

/// A program that writes to its standard error, waits for the file `go`, and answers.
const LOGGING_AGENT: &str = r#"
[[agent]]
name = "logs"
description = "Writes log lines."
kind = "process"
command = ["sh", "-c", "echo first >&2; while [ ! -e go ]; do sleep 0.05; done; echo second >&2; echo done"]
speaks = "lines"
"#;

struct World {
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new(flags: &[&str], settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("nuncio.toml"), format!("data = \"data\"\n{settings}")).unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        Self { server, dir }
    }

    /// A command in the server's folder, which finds the server by itself.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.dir.path());
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn send(&self, args: &[&str]) -> String {
        self.run(&[&["send"], args].concat()).exits(0).field("Task").to_owned()
    }
}

/// The row of a task in a table.
fn row<'a>(listed: &'a Ran, task: &str) -> &'a str {
    let found = listed.stdout.lines().find(|line| line.starts_with(task));
    found.unwrap_or_else(|| panic!("no {task} in\n{}", listed.stdout))
}

/// The numbers of events, one JSON object a line.
fn numbers(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_list_is_a_table_with_the_agent_and_the_beginning_of_the_request() {
    let world = World::new(&["--agent-step", "5ms"], "");
    let (echo, travel) = (world.send(&["Hello table"]), world.send(&["--agent", "travel_agent", "Lisbon"]));
    let listed = world.run(&["task", "list"]).exits(0);
    let head: Vec<_> = listed.stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["ID", "AGENT", "STATE", "AGE", "REQUEST"]);
    let words = |task: &str| row(&listed, task).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&echo)[1..3], ["echo", "completed"]);
    assert_eq!(words(&echo)[4..], ["Hello", "table"]);
    assert_eq!(words(&travel)[1..3], ["travel_agent", "input-required"]);
    assert_eq!(listed.field("Total"), "2");

    let shown = |args: &[&str]| world.run(&[&["task", "list"], args].concat()).exits(0);
    let only_travel = |listed: Ran| {
        row(&listed, &travel);
        assert!(!listed.stdout.contains(&echo), "{}", listed.stdout);
        listed
    };
    only_travel(shown(&["--agent", "travel_agent"]));
    only_travel(shown(&["--state", "input-required"]));
    let of_tenant = only_travel(shown(&["--tenant", "home", "--agent", "travel_agent"]));
    assert!(row(&of_tenant, &travel).contains("Lisbon"), "{}", of_tenant.stdout);
    assert_eq!(
        world.run(&["task", "list", "-o", "json"]).exits(0).json()["totalSize"],
        2,
        "JSON is as before"
    );
}

#[test]
fn a_list_says_why_tasks_failed_and_takes_several_states() {
    let world = World::new(
        &["--agent-step", "5ms", "--demo"],
        "[[agent]]\nname = \"fails\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", \"exit 3\"]\nspeaks = \"lines\"\n",
    );
    let travel = world.send(&["--agent", "travel_agent", "Lisbon"]);
    let echo = world.send(&["--agent", "echo", "fine"]);
    let failed =
        world.run(&["send", "--agent", "fails", "--data", r#"{"order":7}"#]).field("Task").to_owned();
    for tenant in [&[][..], &["--tenant", "home"]] {
        let shown = |args: &[&str]| world.run(&[&["task", "list"], tenant, args].concat()).exits(0);
        let listed = shown(&["--state", "failed,input-required"]);
        assert!(listed.stdout.lines().next().unwrap().ends_with("REASON"), "{}", listed.stdout);
        let first = row(&listed, &failed);
        // A request without text is shown by its data.
        assert!(first.contains(r#"{"order":7}"#) && first.contains("exit code 3"), "{first}");
        row(&listed, &travel);
        assert!(!listed.stdout.contains(&echo), "{}", listed.stdout);
        assert!(listed.stdout.find(&failed) < listed.stdout.find(&travel), "the last change is first");
        let repeated = shown(&["--state", "failed", "--state", "input-required", "-o", "json"]).json();
        assert_eq!(repeated["tasks"].as_array().unwrap().len(), 2, "{repeated}");
        let cut = shown(&["--state", "failed,input-required", "--limit", "1"]);
        assert!(cut.stdout.contains(&failed) && !cut.stdout.contains(&travel), "{}", cut.stdout);
        assert!(cut.stderr.contains("There are more"), "{}", cut.stderr);
        let verbose = shown(&["--state", "failed", "--verbose"]);
        assert_eq!([verbose.field("Agent"), verbose.field("Request")], ["fails", r#"{"order":7}"#]);
        assert!(verbose.field("Reason").contains("exit code 3"), "{}", verbose.stdout);
    }
    world.run(&["task", "list", "--state", "failed,completed", "--page-token", "x"]).exits(2);
    // Without a tenant, a task of the server's own tenant is deleted.
    assert_eq!(world.run(&["task", "delete", &failed]).exits(0).field("Deleted"), "yes");
}

#[test]
fn a_task_is_shown_with_its_question_its_steps_and_its_subtasks() {
    let world = World::new(&["--agent-step", "5ms"], "");
    let task = world.send(&["--agent", "travel_agent", "Lisbon"]);
    let shown = world.run(&["task", "show", &task]).exits(0);
    assert_eq!([shown.field("Task"), shown.field("State")], [task.as_str(), "input-required"]);
    assert_eq!(shown.field("Agent").split(' ').next(), Some("travel_agent"));
    assert_eq!(shown.field("Caller"), "local over a2a/1.0");
    assert_eq!(shown.field("Request"), "Lisbon");
    assert!(shown.field("Reason").starts_with("it asks: "), "{}", shown.stdout);
    assert!(shown.stdout.lines().any(|line| line.starts_with("QUESTION")), "{}", shown.stdout);
    assert!(shown.stdout.lines().any(|line| line.contains("  open  ")), "{}", shown.stdout);
    assert!(shown.stdout.lines().any(|line| line.contains("parked")), "{}", shown.stdout);

    assert_eq!(shown.field("Runs"), "1");

    world.run(&["send", "--task-id", &task, "yes"]).exits(0);
    assert_eq!(world.run(&["task", "show", &task]).exits(0).field("Runs"), "2");
    let whole = world.run(&["task", "show", &task, "-o", "json"]).exits(0).json();
    assert_eq!(whole["task"]["row"]["state"], "completed");
    assert_eq!(whole["questions"][0]["state"], "answered", "{whole}");
    assert!(whole["journal"]["runs"].as_array().unwrap().len() >= 2, "{whole}");
    let of_tenant = world.run(&["task", "show", &task, "--tenant", "home"]).exits(0);
    assert_eq!(of_tenant.field("State"), "completed");
    let other = world.run(&["task", "show", &task, "--tenant", "other", "-o", "json"]).exits(1).json();
    assert_eq!(other["error"]["code"], "TaskNotFoundError");
    let none = world.run(&["task", "show", "no-such-task", "-o", "json"]).exits(1).json();
    assert_eq!(none["error"]["code"], "TaskNotFoundError");

    // A task that calls others.
    std::fs::write(
        world.dir.path().join("plan.toml"),
        "[[tasks]]\nid = \"one\"\nagent = \"echo\"\ninput = \"part of a plan\"\n",
    )
    .unwrap();
    let ran = world.run(&["plan", "run", "plan.toml", "-o", "json"]);
    let plan = ran.exits(0).json()["planId"].as_str().unwrap().to_owned();
    let shown = world.run(&["task", "show", &plan]).exits(0);
    assert!(shown.stdout.lines().any(|line| line.starts_with("SUBTASK")), "{}", shown.stdout);
    assert!(shown.stdout.contains("part of a plan"), "{}", shown.stdout);
}

#[test]
fn events_are_shown_from_any_number_on_and_by_kind() {
    let world = World::new(&["--agent-step", "5ms"], "");
    let task = world.send(&["--agent", "travel_agent", "Lisbon"]);
    let events = |args: &[&str]| {
        world.run(&[&["task", "events", &task, "-o", "json"], args].concat()).exits(0).json_lines()
    };
    let all = events(&[]);
    assert_eq!(numbers(&all), (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(numbers(&events(&["--after", "2"])), (3..=all.len() as u64).collect::<Vec<_>>());
    let questions = events(&["--kind", "question"]);
    assert!(questions.len() == 1 && questions[0]["type"] == "question", "{questions:?}");
    let text = world.run(&["task", "events", &task]).exits(0);
    assert_eq!(text.stdout.lines().count(), all.len());
    assert!(text.stdout.contains("user: Lisbon"), "{}", text.stdout);
    let beyond = world.run(&["task", "events", &task, "--after", "1000"]).exits(1);
    assert!(beyond.stderr.contains("1000"), "{}", beyond.stderr);
}

#[test]
fn events_are_followed_over_a_server_that_is_killed() {
    let mut world = World::new(&["--agent-step", "40ms"], "");
    let task = world.send(&["--agent", "long_running_agent", "go", "--async"]);
    let mut followed = Live::start(&mut world.command(&["task", "events", &task, "--follow", "-o", "json"]));
    let mut events: Vec<Value> = vec![];
    while events.len() < 6 {
        events.push(serde_json::from_str(&followed.line().expect("more events")).unwrap());
    }
    world.server.kill9();
    world.server.restart();
    let rest = followed.finish().exits(0);
    events.extend(rest.json_lines());
    let log = world.run(&["task", "events", &task, "-o", "json"]).exits(0).json_lines();
    assert_eq!(
        numbers(&events),
        (1..=log.len() as u64).collect::<Vec<_>>(),
        "nothing is missing, nothing came twice"
    );
    assert_eq!(events.last().unwrap()["data"]["state"], "completed");
    // A task that has ended is shown to its end, and the command ends.
    let again = world.run(&["task", "events", &task, "--follow", "-o", "json"]).exits(0).json_lines();
    assert_eq!(again.len(), log.len());
}

#[test]
fn the_way_to_go_on_is_shown_where_a_follower_is_interrupted() {
    let world = World::new(&["--bench-agent"], "");
    let task = world.send(&["wait", "--async"]);
    let args = ["task", "events", &task, "--follow", "--timeout", "500ms"];
    let late = world.run(&args).exits(5);
    let hint = late
        .stderr
        .lines()
        .find(|line| line.starts_with("Hint:"))
        .unwrap_or_else(|| panic!("{}", late.stderr));
    assert!(hint.contains(&format!("task events {task}")) && hint.contains("--after"), "{hint}");
}

#[test]
fn log_lines_come_as_they_are_written() {
    let world = World::new(&[], LOGGING_AGENT);
    let task = world.send(&["--agent", "logs", "x", "--async"]);
    let mut followed = Live::start(&mut world.command(&["task", "log", &task, "-f"]));
    assert!(followed.line().unwrap().ends_with(" first"));
    std::fs::write(world.dir.path().join("go"), "").unwrap();
    let rest = followed.finish().exits(0);
    assert!(rest.stdout.lines().any(|line| line.ends_with(" second")), "{}", rest.stdout);
    let whole = world.run(&["task", "log", &task]).exits(0);
    assert_eq!(whole.stdout.lines().count(), 2, "{}", whole.stdout);

    let sent = world.run(&["send", "--agent", "logs", "y", "--log"]).exits(0);
    for line in [" first", " second"] {
        let found = sent.stderr.lines().filter(|shown| shown.ends_with(line)).count();
        assert_eq!(found, 1, "{line} in\n{}", sent.stderr);
    }
    assert!(!sent.stdout.contains("second"), "{}", sent.stdout);
    let streamed = world.run(&["send", "--agent", "logs", "z", "--log", "--stream"]).exits(0);
    assert_eq!(streamed.stderr.matches(" second").count(), 1, "{}", streamed.stderr);
}

#[test]
fn a_checked_send_succeeds_only_where_the_task_completes() {
    let world = World::new(
        &["--demo", "--agent-step", "5ms"],
        "[[agent]]\nname = \"fails\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", \"exit 3\"]\nspeaks = \"lines\"\n",
    );
    for stream in [&[][..], &["--stream"]] {
        let send = |args: &[&str]| world.run(&[&["send"], args, stream].concat());
        send(&["--agent", "echo", "--check", "Hello"]).exits(0);
        send(&["--agent", "travel_agent", "Lisbon"]).exits(0);
        send(&["--agent", "travel_agent", "Lisbon", "--check"]).exits(1);
        send(&["--agent", "fails", "x"]).exits(0);
        let failed = send(&["--agent", "fails", "x", "--check"]).exits(1);
        assert_eq!(failed.field("State"), "failed");
    }
    assert!(world.run(&["send", "--help"]).exits(0).stdout.contains("a2a-cli"));
}

#[test]
fn a_wrong_name_of_an_agent_is_answered_with_those_that_there_are() {
    let world = World::new(&[], "");
    let wrong = world.run(&["send", "--agent", "travel_agnet", "Lisbon"]).exits(3);
    assert!(wrong.stderr.contains("did you mean \"travel_agent\"?"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("research_agent"), "{}", wrong.stderr);
    let json = world.run(&["card", "get", "--agent", "nobody", "-o", "json"]).exits(3).json();
    assert_eq!(json["error"]["code"], "A2ACLI_ERR_CARD_NOT_FOUND");
    assert!(json["error"]["hint"].as_str().unwrap().contains("echo"), "{json}");
}

#[test]
fn a_batch_that_waits_says_why() {
    let world = World::new(&[], "");
    world.run(&["batch", "config", "--set", "thresholds.memoryUsage=0.01"]).exits(0);
    world.run(&["batch", "config", "--set", "resourceMonitoring=true"]).exits(0);
    std::fs::write(
        world.dir.path().join("batch.json"),
        r#"[{ "id": "a", "type": "wait", "args": { "ms": 1 } }]"#,
    )
    .unwrap();
    let began = Instant::now();
    let watched = world.run(&["batch", "submit", "batch.json", "--watch"]);
    assert!(watched.stderr.contains("the batch waits: "), "{}{}", watched.stdout, watched.stderr);
    assert!(
        watched.stderr.contains("memoryUsage") && watched.stderr.contains("batch.load-wait"),
        "{}",
        watched.stderr
    );
    assert!(watched.stderr.contains("resourceMonitoring=false"), "{}", watched.stderr);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn batches_that_have_ended_are_listed_with_their_counts() {
    let world = World::new(&[], "");
    world.run(&["batch", "config", "--set", "resourceMonitoring=false"]).exits(0);
    let batch = r#"[{ "id": "a", "type": "wait", "args": { "ms": 1 } }, { "id": "b", "type": "wait", "args": { "ms": 1 } }]"#;
    std::fs::write(world.dir.path().join("batch.json"), batch).unwrap();
    let watched = world.run(&["batch", "submit", "batch.json", "--watch"]).exits(0);
    assert_eq!(watched.field("Done"), "2 of 2");
    let listed = world.run(&["batch", "list"]).exits(0);
    let words: Vec<&str> = row(&listed, watched.field("Batch")).split_whitespace().collect();
    assert_eq!(words[1..6], ["completed", "2", "2", "2", "0"], "{}", listed.stdout);
}
