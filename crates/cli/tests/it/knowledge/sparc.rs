//! `nuncio sparc …`.

use serde_json::{Value, json};

use super::World;

#[test]
fn a_workflow_is_led_by_hand_up_to_a_gate_that_refuses() {
    let world = World::new(&[]);
    assert_eq!(world.run(&["sparc", "list"]).exits(0).stdout, "There are no workflows.\n");
    let started = world.run(&["sparc", "start", "Shorten links", "--context", "links"]).exits(0);
    assert_eq!([started.field("Workflow"), started.field("Phase")], ["links", "specification"]);

    // The example is an artifact that passes.
    let example = world.run(&["sparc", "template", "specification", "--example"]).exits(0);
    world.file("spec.json", &example.stdout);
    let passed = world.run(&["sparc", "submit", "links", "spec.json"]).exits(0);
    assert_eq!([passed.field("Gate"), passed.field("Next phase")], ["passed", "pseudocode"]);

    let refused = world.run_with_input(&["sparc", "submit", "links", "-"], "{}").exits(1);
    assert_eq!(refused.field("Gate"), "refused");
    assert!(refused.stdout.contains("Problem: \"steps\" is a required property"), "{}", refused.stdout);
    let refused =
        world.run_with_input(&["sparc", "submit", "links", "-", "-o", "json"], "{}").exits(1).json();
    assert_eq!((&refused["passed"], &refused["version"]), (&json!(false), &json!(2)));
    let skipped = world.run(&["sparc", "submit", "links", "spec.json", "--phase", "completion"]).exits(1);
    assert!(skipped.stderr.contains("pseudocode"), "{}", skipped.stderr);

    let shown = world.run(&["sparc", "show", "links"]).exits(0);
    assert_eq!([shown.field("Goal"), shown.field("Phase")], ["Shorten links", "pseudocode"]);
    let row = |name: &str| shown.stdout.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("specification").contains("passed"), "{}", shown.stdout);
    assert!(
        row("pseudocode").contains("blocked") && row("pseudocode").contains(" more)"),
        "{}",
        shown.stdout
    );
    assert!(row("completion").contains("pending"), "{}", shown.stdout);

    world.run(&["sparc", "back", "links", "specification", "--reason", "a requirement is missing"]).exits(0);
    let history = world.run(&["sparc", "history", "links", "-o", "json"]).exits(0).json();
    let whats: Vec<&str> =
        history["entries"].as_array().unwrap().iter().map(|entry| entry["what"].as_str().unwrap()).collect();
    assert_eq!(whats, ["started", "submitted", "submitted", "submitted", "went_back"]);
    let history = world.run(&["sparc", "history", "links"]).exits(0);
    assert!(history.stdout.contains("a requirement is missing"), "{}", history.stdout);
    let listed = world.run(&["sparc", "list", "-o", "json"]).exits(0).json();
    assert_eq!(listed["workflows"][0]["currentPhase"], "specification");

    world.run(&["sparc", "back", "links", "specification"]).exits(2);
    world.run(&["sparc", "back", "links", "lunch", "--reason", "x"]).exits(2);
    world.run(&["sparc", "template", "lunch"]).exits(2);
    world.run_with_input(&["sparc", "submit", "links", "-"], "no JSON").exits(2);
    let nobody = world.run(&["sparc", "show", "nobody"]).exits(1);
    assert!(nobody.stderr.contains("nobody"), "{}", nobody.stderr);
}

#[test]
fn templates_are_for_people_and_for_programs() {
    let world = World::new(&[]);
    for phase in ["specification", "pseudocode", "architecture", "refinement", "completion"] {
        let text = world.run(&["sparc", "template", phase]).exits(0);
        assert_eq!(text.field("Phase"), phase);
        assert!(text.stdout.contains("Guidelines:\n"), "{}", text.stdout);
        let json = world.run(&["sparc", "template", phase, "-o", "json"]).exits(0).json();
        let example: Value = world.run(&["sparc", "template", phase, "--example"]).exits(0).json();
        let schema = jsonschema::validator_for(&json["validation"]).unwrap();
        assert!(
            schema.is_valid(&example),
            "{phase}: {:?}",
            schema.iter_errors(&example).map(|e| e.to_string()).collect::<Vec<_>>()
        );
    }
}

/// Nobody sits at the terminal: the question is the output, and the answer is given along with the next command.
#[test]
fn a_run_without_a_terminal_shows_what_is_asked_and_goes_on_with_an_answer() {
    let world = World::new(&[]);
    let asked = world.run(&["sparc", "run", "Shorten links", "--context", "links"]).exits(0);
    assert_eq!([asked.field("Workflow"), asked.field("State")], ["links", "input-required"]);
    assert!(asked.stderr.contains("warning: the task waits for an answer"), "{}", asked.stderr);
    assert!(asked.stderr.contains("0 of 5 phases passed"), "{}", asked.stderr);
    let task = asked.field("Task").to_owned();

    let again = world.run(&["sparc", "follow", &task, "--context", "links", "-o", "json"]).exits(0).json();
    assert_eq!((&again["taskId"], &again["status"]), (&json!(task), &json!("input_required")));
    let question = &again["questions"][0];
    assert_eq!(question["method"], "elicitation/create");
    let fields = question["params"]["requestedSchema"]["properties"].as_object().unwrap();
    assert!(fields.contains_key("title"), "{fields:?}");

    let args = ["sparc", "follow", &task, "--context", "links", "-o", "json", "--answer"];
    let refused = world.run(&[&args[..], &["{\"id\": 7}"]].concat()).exits(1).json();
    assert_eq!(refused["error"]["code"], "InvalidParamsError", "{refused}");
    let answer = json!({
        "id": "R1", "title": "Shorten", "description": "A long address becomes short.", "priority": "must",
        "addAnother": false,
    });
    let next = world.run(&[&args[..], &[&answer.to_string()]].concat()).exits(0).json();
    assert_ne!(next["questions"][0]["key"], question["key"], "it asks something else: {next}");
    world.run(&[&args[..], &["[]"]].concat()).exits(2);
}

#[test]
fn a_run_may_be_left_to_itself() {
    let world = World::new(&[]);
    let started = world.run(&["sparc", "run", "Shorten links", "--detach"]).exits(0);
    let follow = started.field("Follow");
    assert!(follow.contains(started.field("Task")) && follow.contains(started.field("Workflow")), "{follow}");
    let json = world.run(&["sparc", "run", "Shorten links", "--detach", "-o", "json"]).exits(0).json();
    let context = json["contextId"].as_str().unwrap();
    // The task begins the workflow, some time after it was made.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while world.run(&["sparc", "show", context]).code != 0 {
        assert!(std::time::Instant::now() < deadline, "there never was a workflow");
    }
    let nobody =
        world.run(&["sparc", "follow", "01980000-0000-7000-8000-000000000000", "--context", "x"]).exits(1);
    assert!(nobody.stderr.contains("01980000"), "{}", nobody.stderr);
}
