//! Plans that go well: order, time, what goes from task to task, questions and cancel.

use std::time::Duration;

use nuncio_engine::{Answer, Chunk, Content, Outcome, Part, Reply, Role, State, Task, TaskContext};
use nuncio_flows::plan::{Plan, PlanGraph, PlanOptions, PlanStatus, SubtaskState};
use serde_json::{Value, json};

use super::world::{
    Counts, Does, Server, World, completed, does, part, provenance, result, said, sleeper, until,
};

fn one(id: &str, needs: &[&str], ms: u64) -> String {
    let needs: Vec<String> = needs.iter().map(|need| format!("{need:?}")).collect();
    format!(
        "[[tasks]]\nid = \"{id}\"\nneeds = [{}]\nagent = \"worker\"\ninput = {{ data = {{ id = \"{id}\", ms = {ms} }} }}\n",
        needs.join(", ")
    )
}

/// The text with which it began, and with which it ends, in the artifacts of a plan.
fn text_of(task: &Task, artifact: &str) -> String {
    let artifact = task.artifacts.iter().find(|one| one.id == artifact).unwrap();
    artifact.parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_subtasks_take_as_long_as_the_longest_way_through_them() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let plan = [
        one("a", &[], 800),
        one("b", &[], 1600),
        one("c", &[], 400),
        one("d", &["a"], 1200),
        one("e", &["a", "c"], 600),
        one("f", &["b"], 1800),
        one("g", &["d", "e"], 1000),
        one("h", &["f"], 800),
        one("i", &["g", "h"], 1400),
        one("j", &["c"], 3000),
    ]
    .concat();
    let read = Plan::parse(&plan, &PlanOptions::default()).unwrap();
    let takes = |n: usize| read.tasks[n].input.data.as_ref().unwrap()["ms"].as_f64().unwrap();
    let (path, longest) = PlanGraph::of(&read).critical_path(takes);
    let path: Vec<&str> = path.into_iter().map(|n| read.tasks[n].id.as_str()).collect();
    assert_eq!((path.as_slice(), longest), (&["b", "f", "h", "i"][..], 5_600.0));
    let ended = server.run(&plan).await;
    completed(&ended);
    let took = ended.status_at.since(ended.origin.id.made_at()).as_secs_f64() * 1_000.0;
    println!("ten subtasks took {took:.0} ms, their critical path {longest:.0} ms");
    assert!(took >= longest && took <= longest * 1.15, "{took} ms, and the critical path has {longest} ms");
    assert_eq!(counts.all().values().sum::<usize>(), 10);
    // Each began when what it needs was done, not when its level was: j before f was.
    let at = |id: &str| part(&ended, id)["startedAt"].as_str().unwrap().to_owned();
    assert!(at("j") < at("f") && at("g") < at("i"), "{}", provenance(&ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_nothing_runs_at_once_and_is_told_as_it_happens() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let plan: String = (0..8).map(|n| one(&format!("t{n}"), &[], 300)).collect();
    let ended = server.run(&plan).await;
    completed(&ended);
    assert_eq!(counts.peak(), 8);
    for n in 0..8 {
        assert_eq!(text_of(&ended, &format!("task:t{n}")), format!("t{n} is done"));
    }
    let status = PlanStatus::of(&ended, &PlanOptions::default()).unwrap();
    assert!(status.parts.iter().all(|part| part.state == SubtaskState::Done), "{:?}", status.parts);
    // The plan, then two lines for each of its parts, each once.
    let lines = &ended.artifacts.iter().find(|artifact| artifact.id == "plan").unwrap().parts;
    assert_eq!(lines.len(), 1 + 2 * 8);
    assert_eq!(said(&ended), "plan: 8 of 8 subtasks are done.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_go_into_inputs_and_into_the_synthesis() {
    let hears = does("hears", "hear", async |cx: TaskContext| {
        let data = cx.input().data().cloned().unwrap_or_default();
        cx.artifact(Chunk::parts("heard", vec![Part::text(cx.text()), Part::data(json!({ "got": data }))]))
            .await?;
        Ok(Outcome::done())
    });
    let server = World::new(vec![hears]).serve().await;
    let ended = server
        .run(
            r#"
            name = "chain"
            request = "the request"
            synthesis = "{{ plan.name }}: {{ tasks.b.text }} / {{ tasks.c.data.got.deep.0 }} by {{ tasks.b.agent }}"
            [[tasks]]
            id = "a"
            agent = "hears"
            input = { text = "about {{ request }}", data = { n = 7, list = ["x", "y"] } }
            [[tasks]]
            id = "b"
            needs = ["a"]
            agent = "hears"
            input = "a said: {{ tasks.a.text }}, n is {{ tasks.a.data.got.n }}"
            [[tasks]]
            id = "c"
            needs = ["b"]
            agent = "hears"
            input = { data = { deep = "{{ tasks.a.data.got.list }}", id = "{{ tasks.b.id }}" } }
            [[tasks]]
            id = "d"
            agent = "hears"
            "#,
        )
        .await;
    completed(&ended);
    assert_eq!(result(&ended), "chain: a said: about the request, n is 7 / x by hears");
    assert_eq!(text_of(&ended, "task:d"), "the request", "without an input it is told the request");
    let got = provenance(&ended);
    assert_eq!(got["synthesis"]["by"], "template");
    assert_eq!(got["parts"].as_array().unwrap().len(), 4);
    let id = part(&ended, "b")["taskId"].as_str().unwrap().to_owned();
    let child = server.engine.get(&server.caller, &id).await.unwrap();
    assert_eq!(child.origin.agent, "hears");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_puts_the_parts_together_or_they_are_as_they_came() {
    let counts = Counts::default();
    let writer = does("writer", "write", async |cx: TaskContext| {
        let parts = cx.argument("parts").and_then(Value::as_array).map_or(0, Vec::len);
        Ok(Outcome::said(format!("{parts} parts; {}", cx.text().lines().next().unwrap_or_default())))
    });
    let broken = does("broken", "break", async |_| Ok(Outcome::failed("out of ink")));
    let server = World::new(vec![sleeper("worker", "work", &counts), writer, broken]).serve().await;
    let tasks = [one("a", &[], 1), one("b", &[], 1)].concat();
    let head = |by: &str| {
        format!("[synthesis]\nagent = \"{by}\"\nprompt = \"Join {{{{ tasks.a.text }}}}.\"\n{tasks}")
    };
    let ended = server.run(&head("writer")).await;
    assert_eq!(result(&ended), "2 parts; Join a is done.");
    assert_eq!(provenance(&ended)["synthesis"]["agent"], "writer");
    // What was done is not lost because nobody could put it together.
    let ended = server.run(&head("broken")).await;
    completed(&ended);
    assert_eq!(
        result(&ended),
        "## a\n\na is done\n\n_from agent worker_\n\n## b\n\nb is done\n\n_from agent worker_\n"
    );
    assert_eq!(provenance(&ended)["synthesis"]["why"], "broken: out of ink");
    let ended = server.run(&format!("[synthesis]\nmodel = true\n{tasks}")).await;
    completed(&ended);
    let why = provenance(&ended)["synthesis"]["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("there is no model"), "{why}");
}

/// Asks for a name, and says it.
fn asker() -> std::sync::Arc<Does> {
    does("asker", "ask", async |cx: TaskContext| {
        let schema =
            json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
        let text = cx.text();
        match cx.ask(format!("{text}?"), schema).await? {
            Answer::Accept(form) => Ok(Outcome::said(format!("{text}: {}", form["name"].as_str().unwrap()))),
            other => Ok(Outcome::failed(format!("{other:?}"))),
        }
    })
}

async fn answer(server: &Server, task: &Task, question: &str, name: &str) {
    let data = json!({ "questionId": question, "action": "accept", "content": { "name": name } });
    let message = nuncio_engine::Message::of(format!("m-{question}"), Role::User, vec![Part::data(data)]);
    let reply = Reply {
        task: task.origin.id.to_string(),
        context: None,
        message,
        idempotency_key: None,
        webhooks: vec![],
    };
    server.engine.reply(&server.caller, reply).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_subtasks_ask_at_once_also_across_a_restart() {
    let world = World::new(vec![asker()]);
    let server = world.serve().await;
    let plan = "[[tasks]]\nid = \"x\"\nagent = \"asker\"\ninput = \"left\"\n\
                [[tasks]]\nid = \"y\"\nagent = \"asker\"\ninput = \"right\"\n";
    let task = server.plan(plan).await;
    server.when(&task, "both ask", |task| task.questions.len() == 2).await;
    server.engine.stop().await;
    server.let_go();
    drop(server);
    let server = world.serve().await;
    let asking = server.when(&task, "both still ask", |task| task.questions.len() == 2).await;
    assert_eq!(asking.state, State::InputRequired);
    // The second one first.
    for (_, question) in asking.questions.iter().rev() {
        let name = if question.text == "left?" { "Ada" } else { "Bob" };
        answer(&server, &task, &question.id, name).await;
    }
    let ended = server.ended(&task).await;
    completed(&ended);
    assert!(
        result(&ended).contains("left: Ada") && result(&ended).contains("right: Bob"),
        "{}",
        result(&ended)
    );
    assert_eq!(server.tasks("asker").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_also_ends_a_question_that_nobody_answers() {
    let server = World::new(vec![asker()]).serve().await;
    let plan = "[[tasks]]\nid = \"x\"\nagent = \"asker\"\ntimeout = \"700ms\"\ninput = \"hello\"\n";
    let task = server.plan(plan).await;
    server.when(&task, "it asks", |task| task.questions.len() == 1).await;
    let ended = server.ended(&task).await;
    assert_eq!(ended.state, State::Failed);
    assert_eq!(
        said(&ended),
        "plan was not completed.\n- x (asker): it was not done within its timeout of 700ms"
    );
    assert_eq!(server.tasks("asker").await[0].state, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_every_subtask() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let plan: String =
        (0..5).map(|n| one(&format!("t{n}"), &[], 60_000)).collect::<String>() + &one("after", &["t0"], 1);
    let task = server.plan(&plan).await;
    until("all run", async || (counts.now() == 5).then_some(())).await;
    server.engine.cancel(&server.caller, &task.origin.id.to_string()).await.unwrap();
    let ended = server.ended(&task).await;
    assert_eq!(
        (ended.state, &*said(&ended)),
        (State::Canceled, "The plan was canceled: 0 of 6 subtasks were done.")
    );
    until("all have stopped", async || (counts.now() == 0).then_some(())).await;
    let tasks = server.tasks("worker").await;
    assert_eq!(tasks.len(), 5, "nothing was begun after it");
    assert!(tasks.iter().all(|task| task.state == State::Canceled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_comes_as_text_or_as_data_and_a_bad_one_changes_nothing() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let plan = json!({ "tasks": [{ "id": "a", "agent": "worker", "input": { "data": { "id": "a" } } }] });
    for part in [
        Part::data(json!({ "plan": plan })),
        Part::data(plan.clone()),
        Part::text(plan.to_string()),
        Part::data(json!({ "plan": plan.to_string() })),
    ] {
        let task = server.begin(part).await;
        completed(&*server.ended(&task).await);
    }
    assert_eq!(counts.of("a"), 4);
    let bad = "[[tasks]]\nid = \"a\"\nagent = \"wroker\"\n[[tasks]]\nid = \"b\"\nneeds = [\"c\"]\nagent = \"worker\"\n";
    let ended = server.run(bad).await;
    assert_eq!(ended.state, State::Rejected);
    assert_eq!(said(&ended), "task b, needs[0]: there is no task \"c\"; is \"a\" meant?");
    let ended = server.run("[[tasks]]\nid = \"a\"\nagent = \"wroker\"\n").await;
    assert_eq!(said(&ended), "task a, agent: there is no agent \"wroker\"; is \"worker\" meant?");
    assert_eq!(server.tasks("worker").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_that_grew_too_large_fails_its_task() {
    let long = does("long", "long", async |_| Ok(Outcome::said("x".repeat(2_000))));
    let mut world = World::new(vec![long]);
    world.options.input_bytes = 1_000;
    let server = world.serve().await;
    let plan = "[[tasks]]\nid = \"a\"\nagent = \"long\"\n\
                [[tasks]]\nid = \"b\"\nneeds = [\"a\"]\nagent = \"long\"\ninput = \"{{ tasks.a.text }}\"\n";
    let ended = server.run(plan).await;
    assert_eq!(ended.state, State::Failed);
    assert!(
        said(&ended).contains("- b: input_bytes: with what came before its input has 2000 bytes"),
        "{}",
        said(&ended)
    );
    let missing = plan.replace("tasks.a.text", "tasks.a.data.price");
    let ended = server.run(&missing).await;
    assert!(said(&ended).contains("a came to no structured data"), "{}", said(&ended));
    assert!(ended.artifacts.iter().any(|artifact| artifact.id == "task:a"), "what was done is there");
    let text = ended.artifacts.iter().flat_map(|artifact| &artifact.parts);
    assert!(text.into_iter().any(|part| matches!(&part.content, Content::Data(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_which_time_is_up_names_what_is_missing() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let plan = format!(
        "name = \"slow\"\n[budget]\ntime = \"600ms\"\n{}{}{}",
        one("quick", &[], 1),
        one("slow", &["quick"], 60_000),
        one("never", &["slow"], 1)
    );
    let begun = std::time::Instant::now();
    let ended = server.run(&plan).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(ended.state, State::Failed);
    assert_eq!(
        said(&ended),
        "slow was not completed.\n- slow (worker): it was not done when the plan's time was up\n\
         - never: it needs slow, which failed"
    );
    until("it has stopped", async || (counts.now() == 0).then_some(())).await;
    assert_eq!(part(&ended, "quick")["state"], "done");
}
