//! Operations whose agents ask a person: meanwhile the batch holds nothing.

use nuncio_engine::{Message, Part, Reply, Role, TaskId, store::TaskKey};
use serde_json::{Value, json};

use super::world::{Server, World, many, operation, until, waits};

fn asks(count: usize) -> Value {
    json!({ "operations": many(count, "agent.call", |_| json!({ "agent": "asker", "input": "x" })) })
}

/// Waits until nobody runs a task, and so many questions of it are open; their ids.
async fn parked(server: &Server, id: &str, questions: usize) -> Vec<String> {
    let key = TaskKey::Id(TaskId::parse(id).unwrap());
    until("it is parked", async || {
        let row = server.engine.store_for_tests().row(&key).await.unwrap().unwrap();
        let task = server.engine.get(&server.caller, id).await.unwrap();
        let open: Vec<String> = task.questions.iter().map(|(_, question)| question.id.clone()).collect();
        (row.node.is_none() && open.len() == questions).then_some(open)
    })
    .await
}

async fn answer(server: &Server, id: &str, question: &str, word: &str) {
    let data = json!({ "questionId": question, "action": "accept", "content": { "word": word } });
    let reply = Reply {
        task: id.into(),
        context: None,
        message: Message::of(format!("to {question}"), Role::User, vec![Part::data(data)]),
        idempotency_key: None,
        webhooks: vec![],
    };
    server.engine.reply(&server.caller, reply).await.unwrap();
}

async fn completed(server: &Server, id: &str) -> Value {
    server.when(id, "it is completed", |status| status["status"] == "completed").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_asks_holds_no_place_and_its_batch_is_parked() {
    let world = World::new();
    let server = world.serve().await;
    server.call("batch_configure", json!({ "maxConcurrency": 1 })).await;
    let id = server.submit(asks(3)).await;
    let open = parked(&server, &id, 3).await;
    assert_eq!(server.status(&id).await["status"], "input-required");
    // The only place is free.
    let other = server.run(json!({ "operations": waits(3, 100) })).await;
    assert_eq!(other["counts"]["succeeded"], 3);

    answer(&server, &id, &open[1], "two").await;
    let left = parked(&server, &id, 2).await;
    assert!(!left.contains(&open[1]));
    for question in &left {
        answer(&server, &id, question, "one").await;
    }
    let ended = completed(&server, &id).await;
    assert_eq!(ended["counts"]["succeeded"], 3, "{ended}");
    let mut said: Vec<&str> =
        (0..3).map(|n| operation(&ended, &format!("o{n}"))["output"]["text"].as_str().unwrap()).collect();
    said.sort_unstable();
    assert_eq!(said, ["one", "one", "two"]);
    let list = nuncio_engine::List { agent: Some("asker".into()), page_size: 10, ..Default::default() };
    assert_eq!(server.engine.list(&server.caller, list).await.unwrap().total, 3, "each was called once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_asks_is_not_in_the_way_of_the_rest_of_its_batch() {
    let world = World::new();
    let server = world.serve().await;
    server.call("batch_configure", json!({ "maxConcurrency": 1 })).await;
    let mut batch = asks(1);
    let slow = json!({ "id": "slow", "type": "wait", "args": { "ms": 300 } });
    let quick = json!({ "id": "quick", "type": "wait", "args": { "ms": 1 }, "needs": ["slow"] });
    batch["operations"].as_array_mut().unwrap().extend([slow, quick]);
    let id = server.submit(batch).await;
    // Nothing is parked while there is something to do, and the time of waiting is nobody's work.
    server.when(&id, "the others are done", |status| status["done"].as_f64() == Some(2.0)).await;
    let open = parked(&server, &id, 1).await;
    answer(&server, &id, &open[0], "late").await;
    let ended = completed(&server, &id).await;
    assert_eq!(operation(&ended, "o0")["output"]["text"], "late");
    let took = operation(&ended, "o0")["durationMs"].as_f64().unwrap();
    assert!(took < 300.0, "the wait is not its time: {ended}");
    assert_eq!(ended["metrics"]["peakConcurrency"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_that_asks_is_still_taken_one_after_another() {
    let world = World::new();
    let server = world.serve().await;
    let mut batch = asks(2);
    batch["sequentialSample"] = json!(2);
    let id = server.submit(batch).await;
    for word in ["first", "second"] {
        let open = parked(&server, &id, 1).await;
        answer(&server, &id, &open[0], word).await;
    }
    let ended = completed(&server, &id).await;
    assert_eq!(operation(&ended, "o0")["output"]["text"], "first");
    assert_eq!(operation(&ended, "o1")["output"]["text"], "second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_asks_can_be_canceled() {
    let world = World::new();
    let server = world.serve().await;
    let id = server.submit(asks(2)).await;
    parked(&server, &id, 2).await;
    assert_eq!(server.call("batch_cancel", json!({ "batchId": id })).await["status"], "canceled");
    assert_eq!(server.read("batchtools://queue/status").await["operations"], json!([]));
}
