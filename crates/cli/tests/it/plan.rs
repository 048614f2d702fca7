//! `nuncio plan …` with the real binary: the examples as they are written, the commands, and a server that is killed.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    caller::{Caller, until},
    command::{Live, Ran, nuncio_in, run, run_with_input},
    server_process::ServerProcess,
};

/// A server whose agents are quick, and commands that find it by its data folder.
struct World {
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new(step: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", step]);
        Self { server, dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.dir.path());
        command.args(["plan", "--data", "data"]).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn caller(&self) -> Caller {
        Caller::new(self.server.url())
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans")
}

fn example(name: &str) -> String {
    examples().join(name).to_str().unwrap().to_owned()
}

const TWO: &str = r#"
name = "two"
[[tasks]]
id = "steps"
agent = "long_running_agent"
input = { data = { steps = 4 } }
[[tasks]]
id = "say"
needs = ["steps"]
agent = "echo"
input = "{{ tasks.steps.data.steps }} steps"
"#;

#[test]
fn the_examples_run_as_they_are_written() {
    let world = World::new("5ms");
    let mut names: Vec<String> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["reports.toml", "steps.toml", "trip.toml"], "a new example is run here, too");
    for name in &names {
        world.run(&["check", &example(name)]).exits(0);
        let svg = world.run(&["show", &example(name), "--format", "svg"]).exits(0);
        assert!(svg.stdout.starts_with("<svg "), "{}", svg.stdout);
    }

    let ran = world.run(&["run", &example("reports.toml")]).exits(0);
    assert_eq!(ran.field("Message"), "three reports: 4 of 4 subtasks are done.");
    assert!(ran.stdout.contains("Told by research_agent to echo."), "{}", ran.stdout);
    assert!(ran.stderr.contains("letter done by echo in "), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "no colours, no bar");

    let ran = world.run(&["run", &example("steps.toml"), "-o", "json"]).exits(0);
    let (ended, quiet) = (ran.json(), &ran.stderr);
    assert_eq!((ended["state"].as_str(), quiet.as_str()), (Some("completed"), ""));
    assert!(ended["result"].as_str().unwrap().contains("3 steps are done; the other was failed."), "{ended}");

    // Nobody is at a terminal: what is asked is shown, and how to go on.
    let ran = world.run(&["run", &example("trip.toml"), "-o", "json"]).exits(1);
    let asked = ran.json();
    let (id, question) = (asked["planId"].as_str().unwrap(), &asked["questions"][0]);
    assert!(question["params"]["message"].as_str().unwrap().contains("trip to Lisbon"), "{asked}");
    let answer = json!({ "action": "accept", "content": { "confirm": true } });
    let key = question["key"].as_str().unwrap();
    world.caller().ok("tasks/update", json!({ "taskId": id, "inputResponses": { key: answer } }));
    let ended = world.run(&["run", "--attach", id, "-o", "json"]).exits(0).json();
    assert!(ended["result"].as_str().unwrap().contains("Trip to Lisbon booked for $1200"), "{ended}");
    assert_eq!(ended["parts"][1]["agent"], "travel_agent");
}

#[test]
fn a_plan_is_made_looked_at_and_run_by_commands() {
    let world = World::new("5ms");
    let request = "Research agent protocols (research_agent) and research SQLite, then echo the results";
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains(&format!("nuncio plan make {request:?}")), "the README's plan is run here");
    let made = world.run(&["make", request]).exits(0);
    assert!(
        made.stdout.contains("[[tasks]]") && made.stdout.contains("research_agent fits by 0."),
        "{}",
        made.stdout
    );
    world.run(&["make", request, "--to", "made.toml"]).exits(0);
    world.run(&["make", request, "--to", "made.toml"]).exits(2);
    let checked = world.run(&["check", "made.toml"]).exits(0);
    assert_eq!(checked.field("Valid"), "3 tasks");
    let drawn = world.run(&["show", "made.toml"]).exits(0);
    assert!(drawn.stdout.contains("after research-protocols, research-sqlite"), "{}", drawn.stdout);
    let drawn = world.run(&["show", "made.toml", "--format", "mermaid"]).exits(0);
    assert!(drawn.stdout.starts_with("flowchart LR\n"), "{}", drawn.stdout);
    let piped = run_with_input(&mut world.command(&["run", "-"]), &made.stdout).exits(0);
    assert!(piped.stdout.contains("_from agent research_agent_"), "{}", piped.stdout);
    let asked = world.run(&["run", request, "-o", "json"]).exits(0).json();
    assert_eq!(asked["parts"].as_array().unwrap().len(), 3);

    world.file("bad.toml", &TWO.replace("agent = \"echo\"", "agent = \"ehco\""));
    let bad = world.run(&["check", "bad.toml"]).exits(1);
    assert!(
        bad.stdout.contains("- task say, agent: there is no agent \"ehco\"; is \"echo\" meant?"),
        "{}",
        bad.stdout
    );
    let bad = world.run(&["run", "bad.toml", "-o", "json"]).exits(1).json();
    assert!(bad["error"]["message"].as_str().unwrap().contains("is \"echo\" meant?"), "{bad}");
    let nobody = world.run(&["make", "Paint the garage green"]).exits(1);
    assert!(nobody.stderr.contains("nobody here fits these parts"), "{}", nobody.stderr);
    let demo = world.run(&["make", "Book a trip to Lisbon"]).exits(1);
    assert!(demo.stderr.contains("travel_agent would fit, and is a demonstration"), "{}", demo.stderr);
    world.run(&["run", "missing.toml"]).exits(2);
    world.file(
        "fails.toml",
        "[[tasks]]\nid = \"a\"\nagent = \"long_running_agent\"\ninput = { data = { steps = -1 } }\n",
    );
    let failed = world.run(&["run", "fails.toml"]).exits(1);
    assert!(
        failed.stdout.contains("- a (long_running_agent): rejected: steps: 1 to 1000"),
        "{}",
        failed.stdout
    );

    let listed = world.run(&["list", "-o", "json"]).exits(0).json();
    assert_eq!(listed["total"], 3, "{listed}");
    let help = world.run(&["run", "--help"]).exits(0);
    assert!(help.stdout.contains("--attach <ID>"), "{}", help.stdout);
}

#[test]
fn what_a_task_comes_to_is_shown_while_others_go_on() {
    let world = World::new("60ms");
    let plan = json!({
        "name": "\u{1b}[2Jtwo",
        "tasks": [
            { "id": "say", "agent": "echo", "input": "something\u{1b}[31m early" },
            { "id": "steps", "needs": ["say"], "agent": "long_running_agent", "input": { "data": { "steps": 12 } } },
        ],
    });
    world.file("two.json", &plan.to_string());
    let ran = world.run(&["run", "two.json"]).exits(0);
    let early = ran.stderr.find("-- say, from echo:\nsomething\u{fffd}[31m early\n");
    assert!(early.is_some() && early < ran.stderr.find("steps done"), "{}", ran.stderr);
    let drawn = world.run(&["show", "two.json"]).exits(0);
    world.file("bad.json", &json!({ "tasks": [{ "id": "a", "agent": "\u{1b}[2J" }] }).to_string());
    let bad = world.run(&["run", "bad.json"]).exits(1);
    assert!(bad.stderr.contains("there is no agent"), "{}", bad.stderr);
    let obeys = |text: &str| text.contains(|c: char| c.is_control() && c != '\n' && c != '\t');
    for said in [&ran.stdout, &ran.stderr, &drawn.stdout, &bad.stderr] {
        assert!(!obeys(said), "a terminal would obey it: {said:?}");
    }
}

#[test]
fn an_agent_makes_a_plan_whose_file_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let input = "Answer as JSON:\n{\"a\": 1}\nand nothing else";
    let plan = json!({ "tasks": [{ "id": "a", "agent": "echo", "input": input }] });
    let says = json!({ "type": "done", "text": plan.to_string() }).to_string();
    let config = dir.path().join("nuncio.toml");
    let agent = json!({
        "name": "planner", "kind": "process", "command": ["sh", "-c", "read line; printf '%s\\n' \"$SAYS\""],
        "env": { "SAYS": says },
    });
    std::fs::write(&config, toml::to_string(&json!({ "agent": [agent] })).unwrap()).unwrap();
    let flags = ["--demo", "--config", config.to_str().unwrap()];
    let server = ServerProcess::start(&dir.path().join("data"), &flags);
    let world = World { server, dir };
    // The plan may use a demonstration only where the request names it.
    let refused = world.run(&["make", "whatever", "--by", "planner"]).exits(1);
    assert!(refused.stderr.contains("there is no agent \"echo\""), "{}", refused.stderr);
    let made = world.run(&["make", "echo whatever", "--by", "planner", "--to", "made.toml"]).exits(0);
    assert!(made.stderr.contains("wrote made.toml"), "{}", made.stderr);
    let ran = world.run(&["run", "made.toml"]).exits(0);
    assert!(ran.stdout.contains(input), "{}", ran.stdout);
    world.run(&["make", "whatever", "--by", "planer"]).exits(1);
}

#[test]
fn ctrl_c_lets_go_of_a_plan_and_a_cancel_ends_it() {
    let world = World::new("200ms");
    world.file("long.toml", &TWO.replace("steps = 4", "steps = 900"));
    let live = Live::start(&mut world.command(&["run", "long.toml"]));
    let pid = Pid::from_child(&live.child);
    let caller = world.caller();
    let id = until("it runs", || {
        let plans = caller.call("plan_list", json!({}));
        let plan = &plans["plans"][0];
        (plan["state"] == "working").then(|| plan["planId"].as_str().unwrap().to_owned())
    });
    // Whoever interrupts it before it is followed interrupts nothing.
    thread::sleep(Duration::from_millis(500));
    kill_process(pid, Signal::INT).unwrap();
    let ran = live.finish().exits(130);
    assert!(ran.stderr.contains(&format!("plan run --attach {id}")), "{}", ran.stderr);
    assert_eq!(caller.call("plan_status", json!({ "planId": id }))["state"], "working", "it goes on");
    let attached = Live::start(&mut world.command(&["run", "--attach", &id]));
    let canceled = world.run(&["cancel", &id]).exits(0);
    assert_eq!(canceled.field("State"), "canceled");
    attached.finish().exits(1);
    let children = caller.call("task_list", json!({ "agent": "long_running_agent" }));
    assert_eq!(children["tasks"][0]["state"], "canceled", "the cancel reached it: {children}");
}

/// A plan of ten, with agents that take their time.
fn ten() -> String {
    let mut plan = String::from("name = \"ten\"\n");
    for n in 0..10 {
        let needs = match n {
            0..=3 => String::new(),
            4..=8 => format!("\"t{}\"", n - 4),
            _ => "\"t4\", \"t5\", \"t6\", \"t7\", \"t8\"".to_owned(),
        };
        let who = match n % 3 {
            0 => format!("agent = \"long_running_agent\"\ninput = {{ data = {{ steps = {} }} }}", 2 + n),
            1 => "skill = \"research_topic\"\ninput = \"Topic\"".to_owned(),
            _ => format!("agent = \"echo\"\ninput = \"echo {n}\""),
        };
        plan.push_str(&format!("[[tasks]]\nid = \"t{n}\"\nneeds = [{needs}]\n{who}\n"));
    }
    plan
}

#[test]
fn a_plan_survives_kills_at_any_moment_and_repeats_nothing() {
    let kills: u64 = if std::env::var_os("NUNCIO_FULL").is_some() { 20 } else { 6 };
    let mut world = World::new("30ms");
    world.file("ten.toml", &ten());
    let calm = world.run(&["run", "ten.toml", "-o", "json"]).exits(0).json();
    let expected = calm["result"].as_str().unwrap();
    let mut kept = 0;
    for round in 1..=kills {
        let caller = world.caller();
        let begun = world.run(&["run", "ten.toml", "--detach", "-o", "json"]).exits(0).json();
        let id = begun["planId"].as_str().unwrap().to_owned();
        // At another moment each time: after so many tasks, and a little.
        let status = |caller: &Caller| caller.call("plan_status", json!({ "planId": id }));
        until("some are over", || {
            Some(status(&caller)).filter(|now| now["over"].as_u64() >= Some(round % 9))
        });
        thread::sleep(Duration::from_millis(7 * round % 40));
        let before = status(&caller);
        world.server.kill9();
        world.server.restart();
        let caller = world.caller();
        let after = until("it is over", || {
            Some(status(&caller)).filter(|now| now["state"] != "working" && now["state"] != "submitted")
        });
        assert_eq!(after["state"], "completed", "{after}");
        assert_eq!(after["result"].as_str(), Some(expected), "the same, to the byte");
        for (before, after) in
            before["parts"].as_array().unwrap().iter().zip(after["parts"].as_array().unwrap())
        {
            assert_eq!(after["attempts"], 1, "{after}");
            if before["state"] == "done" {
                assert_eq!(before, after, "it was done before the kill");
                kept += 1;
            }
        }
    }
    // A call is found again, whatever it had come to: never a second task.
    let caller = world.caller();
    for (agent, each) in [("long_running_agent", 4), ("research_agent", 3), ("echo", 3)] {
        let listed = caller.call("task_list", json!({ "agent": agent, "pageSize": 1 }));
        assert_eq!(listed["total"], json!((kills + 1) * each), "{agent}");
    }
    println!("plans: {kills} kills, {kept} subtasks were done before one of them and not done again");
}

#[test]
fn a_plan_runs_on_a_folder_alone_and_over_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("plan.toml"),
        "[[tasks]]\nid = \"a\"\nagent = \"echo\"\ninput = \"alone\"\n",
    )
    .unwrap();
    let ran = run(nuncio_in(dir.path()).args(["plan", "--data", "data", "run", "plan.toml"])).exits(0);
    assert!(ran.stdout.contains("## a\n\nalone\n\n_from agent echo_"), "{}", ran.stdout);

    let world = World::new("5ms");
    let caller = world.caller();
    let plan = json!({ "tasks": [{ "id": "a", "agent": "echo", "input": "over A2A" }] });
    let task = caller.tell("orchestrator", "m1", None, &json!({ "data": { "plan": plan } }));
    let id = task["id"].as_str().unwrap().to_owned();
    let ended = until("it ends", || {
        let said = caller.a2a("orchestrator", "GetTask", &json!({ "id": id }));
        (said["result"]["status"]["state"] == "TASK_STATE_COMPLETED").then(|| said["result"].clone())
    });
    let artifacts: Vec<&str> = ended["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["artifactId"].as_str().unwrap())
        .collect();
    assert_eq!(artifacts, ["plan", "task:a", "result"], "{ended}");
    // A client that waits gets it as the result of the tool.
    let called = caller.mcp("tools/call", json!({ "name": "plan_run", "arguments": { "plan": plan } }));
    let words = called["result"].to_string();
    let task = called["result"]["taskId"].as_str().map(str::to_owned);
    let came = match task {
        None => words,
        Some(id) => until("it ends", || {
            let seen: Value = caller.ok("tasks/get", json!({ "taskId": id }));
            (seen["status"] == "completed").then(|| seen.to_string())
        }),
    };
    assert!(came.contains("over A2A"), "{came}");
}
