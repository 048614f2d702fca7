//! `nuncio chat` where nobody sits: plain lines, JSON, and exit codes.

use serde_json::{Value, json};

use super::{Way, World};
use crate::command::{self, Ran};

fn run(world: &World, flags: &[&str], input: &str) -> Ran {
    let mut chat = command::nuncio_in(world.dir.path());
    chat.args(["chat", "--server", &world.address(), "--state"])
        .arg(world.dir.path().join("state"))
        .args(flags);
    command::run_with_input(&mut chat, input)
}

#[test]
fn lines_are_commands_and_answers() {
    let world = World::new(Way::A2a, "20ms");
    let ran = run(&world, &[], "travel_agent Lisbon\nd\ny\nby the window\necho hello\n").exits(0);
    let text = &ran.stdout;
    assert!(
        text.contains(
            "[1 travel_agent] asks: Please confirm the estimated price of $1200 for your trip to Lisbon\n"
        ),
        "{text}"
    );
    assert!(text.contains("Asked by: travel_agent"), "{text}");
    assert!(text.contains("\"notes\": \"by the window\""), "{text}");
    assert!(text.contains("[2 echo] completed in"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("nuncio>"), "no colour, no prompt: {text:?}");
    assert_eq!(world.kept(), 0);
}

#[test]
fn the_exit_code_tells_how_the_last_call_went() {
    let world = World::new(Way::A2a, "20ms");
    let check = |input: &str, code: i32, words: &str| {
        let ran = run(&world, &[], input).exits(code);
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    };
    check("echo hello\n", 0, "completed");
    check("nobody hello\n", 1, "there is no nobody");
    check("travel_agent Lisbon\n!c\n", 1, "canceled in");
    check("nobody hello\nlist\n", 0, "travel_agent");
    check("attach 17\n", 1, "there is no run and no task 17");
}

#[test]
fn a_question_that_nobody_answers_stays_open() {
    let world = World::new(Way::A2a, "20ms");
    let ran = run(&world, &[], "travel_agent Lisbon\n").exits(1);
    assert!(ran.stdout.contains("goes on without you"), "{}", ran.stdout);
    assert_eq!(world.kept(), 1);
    // Whoever comes next is asked.
    let ran = run(&world, &[], "y\n\n").exits(0);
    assert!(ran.stdout.contains("Trip to Lisbon booked"), "{}", ran.stdout);
    world.ran_once();
}

#[test]
fn programs_get_one_object_a_line() {
    let world = World::new(Way::A2a, "20ms");
    let ran = run(&world, &["-o", "json", "-c", "travel_agent destination=Rome"], "y\n\n").exits(0);
    let events = ran.json_lines();
    let of =
        |kind: &str| events.iter().filter(|event| event["event"] == kind).cloned().collect::<Vec<Value>>();
    assert_eq!(of("server")[0]["state"], "up");
    assert_eq!(of("begun")[0]["offer"], "travel_agent");
    assert_eq!(of("question")[0]["question"]["ask"]["form"]["schema"]["required"], json!(["confirm"]));
    assert!(of("progress").iter().any(|event| event["done"] == 75.0));
    assert_eq!(of("artifact")[0]["artifact"]["parts"][1]["data"]["status"], "booked");
    let ended = of("ended");
    assert_eq!((ended.len(), &ended[0]["state"], &ended[0]["run"]), (1, &json!("completed"), &json!(1)));
    assert!(ended[0]["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_that_is_away_does_not_stop_the_others() {
    let world = World::new(Way::A2a, "20ms");
    let away = ["--server", "gone=http://127.0.0.1:9"];
    let ran = run(&world, &away, "agents\necho hello\n").exits(0);
    assert!(ran.stdout.contains("gone: away"), "{}", ran.stdout);
    assert!(ran.stdout.contains("[1 echo] completed"), "{}", ran.stdout);
}

#[test]
fn two_servers_may_offer_the_same() {
    let world = World::new(Way::A2a, "20ms");
    let other = World::new(Way::A2a, "20ms");
    let flag = format!("other={}", other.address());
    let ran = run(&world, &["--server", &flag], "echo hello\nother/echo hello\n").exits(0);
    assert!(ran.stdout.contains("several servers offer echo"), "{}", ran.stdout);
    assert!(ran.stdout.contains("[1 echo] completed"), "{}", ran.stdout);
    assert_eq!((world.tasks().len(), other.tasks().len()), (0, 1));
}

#[test]
fn a_task_of_somebody_else_is_followed_and_canceled() {
    let world = World::new(Way::A2a, "20ms");
    let mut send = command::nuncio_in(world.dir.path());
    let ran = command::run(send.args([
        "send",
        "-a",
        world.server.url(),
        "--agent",
        "travel_agent",
        "Lisbon",
        "-o",
        "json",
    ]));
    let task = ran.exits(0).json()["task"]["id"].as_str().unwrap().to_owned();
    let ran = run(&world, &[], &format!("tasks\nattach {task}\ny\n\n")).exits(0);
    assert!(ran.stdout.contains("input-required"), "{}", ran.stdout);
    assert!(ran.stdout.contains("Trip to Lisbon booked"), "{}", ran.stdout);
    world.ran_once();
    run(&world, &[], &format!("cancel {task}\n")).exits(1);
}

/// `A2ACLI_CHAT_001`: the server's conversation is continued, until the user begins another.
#[test]
fn the_calls_of_an_agent_in_one_chat_are_one_conversation() {
    let world = World::new(Way::A2a, "20ms");
    run(&world, &[], "echo one\necho two\ntravel_agent Rome\ny\n\nnew\necho three\n").exits(0);
    let mut list = command::nuncio_in(world.dir.path());
    let listed = command::run(list.args(["task", "list", "-a", world.server.url(), "-o", "json"])).exits(0);
    let mut tasks = listed.json()["tasks"].as_array().unwrap().clone();
    tasks.reverse();
    let contexts: Vec<_> = tasks.iter().map(|task| task["contextId"].as_str().unwrap()).collect();
    assert_eq!(contexts.len(), 4);
    assert_eq!(contexts[0], contexts[1], "echo goes on");
    assert!(contexts[2] != contexts[0], "another agent has another conversation");
    assert!(contexts[3] != contexts[0], "`new` begins one");
}

/// `A2ACLI_INTERACT_005`: chat's memory of runs can be declined; the server still has the task.
#[test]
fn a_chat_without_state_stores_nothing_and_takes_up_nothing() {
    let world = World::new(Way::A2a, "20ms");
    let left = run(&world, &["--stateless", "-o", "json"], "travel_agent Lisbon\n").exits(1);
    assert!(!world.dir.path().join("state").exists(), "not even the folder");
    let events = left.json_lines();
    let task = events.iter().find(|event| event["event"] == "task").unwrap()["task"].as_str().unwrap();
    // A stored run is not taken up either; the task is reached by its id.
    run(&world, &[], "travel_agent Rome\n").exits(1);
    assert_eq!(world.kept(), 1);
    let ran = run(&world, &["--stateless"], &format!("attach {task}\ny\n\n")).exits(0);
    assert!(ran.stdout.contains("Trip to Lisbon booked"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("Rome"), "{}", ran.stdout);
    assert_eq!(world.kept(), 1);
}
