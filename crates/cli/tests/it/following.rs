//! Commands that follow a task: by its stream, without polling, across cut connections and a server that restarts.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    caller::{Caller, until},
    chat::terminal::Terminal,
    command::{Live, nuncio_in, run, run_with_input},
    recording_relay::RecordingRelay,
    server_process::ServerProcess,
};

/// The notification of an event of a task.
const EVENT: &str = "notifications/dev.nuncio/event";

/// A server behind a relay.
struct World {
    relay: RecordingRelay,
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new(step: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", step]);
        Self { relay: RecordingRelay::start(server.url()), server, dir }
    }

    /// A command that calls the server through the relay.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.dir.path());
        command.args(args).args(["-a", &self.relay.url()]);
        command
    }

    /// A plan of one task, whose agent takes that many steps.
    fn plan(&self, steps: u32) -> &'static str {
        let agent =
            json!({ "id": "steps", "agent": "long_running_agent", "input": { "data": { "steps": steps } } });
        std::fs::write(self.dir.path().join("plan.json"), json!({ "tasks": [agent] }).to_string()).unwrap();
        "plan.json"
    }

    /// The id of the plan, once its task works.
    fn working_plan(&self) -> String {
        let caller = Caller::new(self.server.url());
        until("the plan's task works", || {
            let plan = &caller.call("plan_list", json!({}))["plans"][0];
            let id = plan["planId"].as_str()?.to_owned();
            let status = caller.call("plan_status", json!({ "planId": id }));
            (status["parts"][0]["state"] == "working").then_some(id)
        })
    }

    /// The cursors that the task's events were asked for from, in order.
    fn cursors(&self, task: &str) -> Vec<u64> {
        let cursor = |request: &Value| request["params"]["_meta"]["dev.nuncio/events"][task].as_u64();
        self.relay.requests().iter().filter_map(cursor).collect()
    }
}

/// Requests that a plan of one task needs: the call, the stream, and a status for each of its few changes.
const FEW: usize = 12;

#[test]
fn a_plan_that_takes_long_needs_no_more_requests() {
    let world = World::new("100ms");
    let count = |steps: u32| {
        let before = world.relay.requests().len();
        run(&mut world.command(&["plan", "run", world.plan(steps)])).exits(0);
        world.relay.requests().len() - before
    };
    let (short, long) = (count(2), count(30));
    println!("requests: {short} for 0.2 s, {long} for 3 s");
    assert!(short <= FEW && long <= FEW, "{short} requests for 0.2 s, {long} for 3 s");
    assert_eq!(world.relay.count("tasks/get"), 0, "the task's state comes on the stream");
}

#[test]
fn a_batch_that_takes_long_needs_no_more_requests() {
    let world = World::new("5ms");
    let count = |ms: u32| {
        let batch = json!([{ "id": "a", "type": "wait", "args": { "ms": ms } }]).to_string();
        let before = world.relay.count("tools/call");
        let submit = ["batch", "submit", "-", "--watch", "-o", "json"];
        let ended = run_with_input(&mut world.command(&submit), &batch).exits(0).json();
        assert_eq!(ended["status"], "completed", "{ended}");
        world.relay.count("tools/call") - before
    };
    let (short, long) = (count(1), count(4_000));
    println!("calls: {short} for 1 ms, {long} for 4 s");
    assert!(long <= 8, "{short} calls for 1 ms, {long} for 4 s");
}

#[test]
fn a_workflow_is_followed_to_its_question_without_a_poll() {
    let world = World::new("5ms");
    let asked = run(&mut world.command(&["sparc", "run", "Shorten links", "--context", "links"])).exits(0);
    assert_eq!(asked.field("State"), "input-required");
    let follow = ["sparc", "follow", asked.field("Task"), "--context", "links", "-o", "json"];
    let again = run(&mut world.command(&follow)).exits(0).json();
    assert_eq!(again["status"], "input_required", "{again}");
    assert_eq!(world.relay.count("tasks/get"), 0, "the questions come on the stream");
}

#[test]
fn a_plan_whose_connections_are_cut_is_followed_from_where_it_was() {
    let world = World::new("100ms");
    let live = Live::start(&mut world.command(&["plan", "run", world.plan(100), "-o", "json"]));
    let id = world.working_plan();
    // Cut again and again before anything came, the command would give up after its outage.
    until("an event came", || (world.relay.passed_on(EVENT) > 0).then_some(()));
    for cuts in 1..=3 {
        world.relay.cut();
        until("it is followed again", || (world.cursors(&id).len() > cuts).then_some(()));
    }
    let ended = live.finish().exits(0).json();
    assert_eq!(ended["state"], "completed", "{ended}");
    let cursors = world.cursors(&id);
    assert_eq!(cursors[0], 0, "a new task from its first event");
    assert!(cursors.is_sorted(), "what was received is not sent again: {cursors:?}");
    assert!(cursors[1] > 0, "it goes on after what came before the cut: {cursors:?}");
}

#[test]
fn a_plan_is_followed_across_a_restart_of_its_server() {
    let mut world = World::new("100ms");
    let live = Live::start(&mut world.command(&["plan", "run", world.plan(25)]));
    let id = world.working_plan();
    until("it is followed", || (!world.cursors(&id).is_empty()).then_some(()));
    world.server.kill9();
    world.server.restart();
    let ran = live.finish().exits(0);
    assert!(ran.stdout.contains("1 of 1 subtasks are done"), "{}", ran.stdout);
    assert_eq!(ran.stderr.matches("steps done by long_running_agent").count(), 1, "{}", ran.stderr);
}

/// The operator's token is another one after every start of the server.
#[test]
fn a_plan_is_followed_across_a_restart_though_its_server_wants_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--agent-step", "100ms", "--auth", "on"];
    let server = ServerProcess::start(&dir.path().join("data"), &flags);
    let mut world = World { relay: RecordingRelay::start(server.url()), server, dir };
    let run = ["plan", "--data", "data", "run", world.plan(40)];
    let live = Live::start(nuncio_in(world.dir.path()).args(run));
    let list = || {
        crate::command::run(
            nuncio_in(world.dir.path()).args(["plan", "--data", "data", "list", "-o", "json"]),
        )
    };
    until("the plan runs", || {
        let listed = list().exits(0).json();
        (listed["plans"][0]["state"] == "working").then_some(())
    });
    world.server.kill9();
    world.server.restart();
    let ran = live.finish().exits(0);
    assert!(ran.stdout.contains("1 of 1 subtasks are done"), "{}", ran.stdout);
}

/// The trip's plan at a terminal, up to the question of its agent.
fn asked_at_a_terminal(world: &World) -> Terminal {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plans/trip.toml");
    let args = ["plan", "run", plan, "-a", &world.relay.url()];
    let mut terminal = Terminal::start_command(world.dir.path(), &args, 120);
    terminal.expect("Please confirm the estimated price of $1200 for your trip to Lisbon");
    terminal
}

#[test]
fn a_question_of_a_plan_is_answered_at_the_terminal_as_it_comes() {
    let world = World::new("5ms");
    let mut terminal = asked_at_a_terminal(&world);
    terminal.expect("[y, n, d for details, !c]: ");
    terminal.line("what?");
    terminal.expect("y: yes, n: no, d: details, !c: cancel");
    terminal.expect("[y, n, d for details, !c]: ");
    terminal.line("d");
    terminal.expect("\"confirm\"");
    terminal.expect("[y, n, d for details, !c]: ");
    terminal.line("y");
    terminal.expect("may be empty");
    terminal.line("");
    terminal.expect("Trip to Lisbon booked for $1200");
    assert_eq!(terminal.ends(), 0, "{}", terminal.text());
    assert_eq!(world.relay.count("tasks/update"), 1, "it is asked once, and answered once");
    assert_eq!(world.relay.count("tasks/get"), 0, "nothing is polled while the user thinks");
}

#[test]
fn a_question_of_a_plan_is_declined_with_a_note_or_left_open() {
    let world = World::new("5ms");
    let mut terminal = asked_at_a_terminal(&world);
    terminal.expect("!c]: ");
    terminal.line("!n too dear");
    terminal.expect("too dear");
    terminal.expect("Not booked");
    terminal.ends();

    let mut terminal = asked_at_a_terminal(&world);
    terminal.expect("!c]: ");
    terminal.ctrl_d();
    terminal.expect("plan run --attach ");
    assert_eq!(terminal.ends(), 1, "{}", terminal.text());
}
