//! The operations on tasks: cancel and rerun, of one task and of a selection.

use nuncio_engine::{
    Caller, Grants, Message, Part, Role, State, Submit,
    engine::{OverviewQuery, OverviewScope},
};
use serde_json::{Value, json};

use super::world::{Server, World, many, operation};

impl Server {
    async fn task(&self, agent: &str, input: Value) -> String {
        let message = Message::of("m-1", Role::User, vec![Part::data(input)]);
        let task = self.engine.submit(&self.caller, Submit::new(agent, message)).await.unwrap();
        task.origin.id.to_string()
    }

    async fn state(&self, task: &str) -> State {
        self.engine.task_summary(&self.caller, task).await.unwrap().state
    }

    async fn until_state(&self, task: &str, state: State) {
        super::world::until("the task's state", async || (self.state(task).await == state).then_some(()))
            .await;
    }

    async fn select(&self, scope: OverviewScope, agent: &str) -> (String, usize) {
        let query = OverviewQuery { scope, agents: vec![agent.into()], limit: 1, ..OverviewQuery::default() };
        let (selection, _) = self.engine.create_selection(&self.caller, &query).await.unwrap();
        (selection.id, selection.tasks.len())
    }
}

fn limited(name: &str, scopes: &str) -> Caller {
    Caller::named(name).limited_to(Grants::parse(scopes).unwrap())
}

fn one(r#type: &str, args: &Value) -> Value {
    json!({ "operations": [{ "id": "o", "type": r#type, "args": args }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selection_is_canceled_task_by_task_and_what_has_ended_is_skipped() {
    let world = World::new();
    let server = world.serve().await.for_caller(Caller::named("acme/ada"));
    let mut tasks = vec![];
    for _ in 0..5 {
        tasks.push(server.task("asker", json!({})).await);
    }
    for task in &tasks {
        server.until_state(task, State::InputRequired).await;
    }
    let (selection, count) = server.select(OverviewScope::Own, "asker").await;
    assert_eq!(count, 5);
    server.engine.cancel(&server.caller, &tasks[1]).await.unwrap();
    let later = server.task("asker", json!({})).await;

    let ended = server.run(one("task.cancel", &json!({ "selection": selection }))).await;
    assert_eq!(ended["counts"]["total"], 5, "one operation for each task: {ended}");
    assert_eq!((&ended["counts"]["succeeded"], &ended["counts"]["skipped"]), (&4.into(), &1.into()));
    for task in &tasks {
        assert_eq!(server.state(task).await, State::Canceled);
    }
    assert_ne!(server.state(&later).await, State::Canceled, "it was not selected");
    let operations = ended["operations"].as_array().unwrap();
    let skipped = operations.iter().find(|one| one["status"] == "skipped").unwrap();
    assert!(skipped["error"].as_str().unwrap().contains(&tasks[1]), "{skipped}");
    let done = operations.iter().find(|one| one["status"] == "succeeded").unwrap();
    assert_eq!(done["output"]["state"], "canceled");
    assert!(done["id"].as_str().unwrap().starts_with("o."), "{done}");

    // Another caller's selection is none, whatever it may administer.
    for caller in [Caller::named("acme/bob"), Caller::named("root")] {
        let why = server
            .for_caller(caller)
            .refused("batch_submit", one("task.cancel", &json!({ "selection": selection })))
            .await;
        assert!(why.contains("no such selection"), "{why}");
    }
    let (empty, _) = server.select(OverviewScope::Own, "nobody").await;
    for (args, expected) in [
        (json!({ "selection": empty }), "no task"),
        (json!({ "selection": "x" }), "no such selection"),
        (json!({ "selection": selection, "task": tasks[0] }), "nothing else"),
        (json!({}), "a task, or a selection"),
        (json!({ "task": "x".repeat(257) }), "256"),
        (json!({ "tasks": [] }), "unknown field"),
    ] {
        let why = server.refused("batch_submit", one("task.cancel", &args)).await;
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cancels_what_its_caller_may_cancel() {
    let world = World::new();
    let ada = world.serve().await.for_caller(Caller::named("acme/ada"));
    let task = ada.task("asker", json!({})).await;
    ada.until_state(&task, State::InputRequired).await;
    let batches = "execute,read:batchtools execute:a2a:batch read,write:a2a:tasks";
    let (admin, reader) = ("read,write:admin:tasks", "read:admin:tasks");
    for (name, scopes) in [
        ("acme/bob", String::new()),
        ("evil/eve", admin.to_owned()),
        ("acme/boss", reader.to_owned()),
        ("acme/boss", "write:admin:tasks".to_owned()),
    ] {
        let other = ada.for_caller(limited(name, &format!("{batches} {scopes}")));
        let ended = other.run(one("task.cancel", &json!({ "task": task }))).await;
        assert_eq!(operation(&ended, "o")["status"], "failed", "{name} {scopes}: {ended}");
        assert_eq!(ada.state(&task).await, State::InputRequired);
    }
    let boss = ada.for_caller(limited("acme/boss", &format!("{batches} {admin}")));
    let (selection, count) = boss.select(OverviewScope::Administered, "asker").await;
    assert_eq!(count, 1);
    let ended = boss.run(one("task.cancel", &json!({ "selection": selection }))).await;
    assert_eq!(operation(&ended, "o.1")["status"], "succeeded", "{ended}");
    assert_eq!(ada.state(&task).await, State::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rerun_sends_the_same_message_as_a_new_task_of_its_caller() {
    let world = World::new();
    let ada = world.serve().await.for_caller(Caller::named("acme/ada"));
    let task = ada.task("adder", json!({ "n": 42 })).await;
    ada.until_state(&task, State::Completed).await;
    let ended = ada.run(one("task.rerun", &json!({ "task": task }))).await;
    let output = &operation(&ended, "o")["output"];
    let again = output["newTaskId"].as_str().unwrap_or_else(|| panic!("{ended}"));
    assert_ne!(again, task);
    assert_eq!((&output["taskId"], &output["agent"]), (&json!(task), &"adder".into()));
    ada.until_state(again, State::Completed).await;
    let (old, new) = (
        ada.engine.task_details(&ada.caller, &task).await.unwrap(),
        ada.engine.task_details(&ada.caller, again).await.unwrap(),
    );
    assert_eq!((new.row.owner.as_str(), new.row.parent), ("acme/ada", None));
    assert_ne!(new.row.context, old.row.context, "a context of its own");

    // Of a stranger's task there is nothing to send, and of one that may be read the agent has to be allowed.
    let batches = "execute,read:batchtools execute:a2a:batch read,write:a2a:tasks";
    for (name, scopes) in [
        ("acme/bob", "execute:a2a:adder"),
        ("evil/eve", "execute:a2a:adder read:admin:tasks"),
        ("acme/boss", "read:admin:tasks"),
    ] {
        let other = ada.for_caller(limited(name, &format!("{batches} {scopes}")));
        let ended = other.run(one("task.rerun", &json!({ "task": task }))).await;
        assert_eq!(operation(&ended, "o")["status"], "failed", "{name} {scopes}: {ended}");
    }
    // What another caller said is not done with an administrator's rights.
    let boss = ada.for_caller(limited("acme/boss", &format!("{batches} execute:a2a:adder read:admin:tasks")));
    let ended = boss.run(one("task.rerun", &json!({ "task": task }))).await;
    let refused = operation(&ended, "o");
    assert_eq!(refused["status"], "failed", "{ended}");
    assert!(refused["error"].to_string().contains("another caller's"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cannot_be_sent_again_by_a_batch_nor_send_tasks_again_for_a_task_that_called_it() {
    let world = World::new();
    let server = world.serve().await;
    let batch = server.task("batch", json!({ "operations": many(1, "wait", |_| json!({ "ms": 1 })) })).await;
    server.until_state(&batch, State::Completed).await;
    let ended = server.run(one("task.rerun", &json!({ "task": batch }))).await;
    let refused = operation(&ended, "o");
    assert_eq!(refused["status"], "failed", "{ended}");
    assert!(refused["error"].to_string().contains("is a batch"), "{refused}");

    let task = server.task("adder", json!({ "n": 1 })).await;
    server.until_state(&task, State::Completed).await;
    let inner = one("task.rerun", &json!({ "task": task }));
    let outer = server.task("calling", json!({ "agent": "batch", "input": inner })).await;
    server.until_state(&outer, State::Completed).await;
    let agents = |agent: &str| OverviewQuery {
        scope: OverviewScope::Own,
        agents: vec![agent.into()],
        limit: 10,
        ..OverviewQuery::default()
    };
    let found = server.engine.overview(&server.caller, &agents("adder")).await.unwrap();
    assert_eq!(found.rows.len(), 1, "nothing was sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_a_selection_is_measured_before_it_is_copied_for_each_task() {
    let mut world = World::new();
    world.options.batch_bytes = 4_000;
    let server = world.serve().await;
    for _ in 0..5 {
        server.task("asker", json!({})).await;
    }
    let (selection, _) = server.select(OverviewScope::Own, "asker").await;
    let needs: Vec<String> = (0..40).map(|n| format!("another-operation-{n:03}")).collect();
    let mut large = one("task.cancel", &json!({ "selection": selection }));
    large["operations"][0]["needs"] = json!(needs);
    let why = server.refused("batch_submit", large).await;
    assert!(why.contains("for its 5 tasks the batch is larger than 4000 bytes (batch_bytes)"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_to_the_agent_itself_names_tasks() {
    let world = World::new();
    let server = world.serve().await;
    let task = server.task("batch", one("task.cancel", &json!({ "selection": "x" }))).await;
    server.until_state(&task, State::Rejected).await;
    let mut small = World::new();
    small.options.operations_per_batch = 2;
    let server = small.serve().await;
    for _ in 0..3 {
        server.task("asker", json!({})).await;
    }
    let (selection, _) = server.select(OverviewScope::Own, "asker").await;
    let why = server.refused("batch_submit", one("task.cancel", &json!({ "selection": selection }))).await;
    assert!(why.contains("operations_per_batch"), "{why}");
}
