//! Who decides: pausing, canceling, thresholds, settings, and whose batch it is.

use nuncio_engine::{
    AccessKind, Caller, Grants, Message, Part, Rate, Role, State, Submit, knowledge::AuditQuery,
};
use serde_json::{Value, json};

use super::world::{World, many, until, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_paused_resumed_and_canceled() {
    let world = World::new();
    let server = world.serve().await;
    let calls = many(200, "agent.call", |_| json!({ "agent": "gauge", "input": { "ms": 10 } }));
    let id = server.submit(json!({ "operations": calls })).await;
    server.when(&id, "some are done", |status| status["done"].as_f64() >= Some(10.0)).await;
    assert_eq!(server.call("batch_pause", json!({ "batchId": id })).await["paused"], true);
    let paused = until("what ran has ended", async || {
        let before = server.status(&id).await["done"].as_f64();
        // Another batch of as many operations passes in between, so nothing is about to begin.
        server.run(json!({ "operations": waits(20, 20) })).await;
        let after = server.status(&id).await["done"].as_f64();
        (before == after).then_some(after)
    })
    .await;
    assert!(paused < Some(200.0));
    server.call("batch_resume", json!({ "batchId": id })).await;
    let more = |status: &Value| status["done"].as_f64() > paused;
    server.when(&id, "it goes on", more).await;

    assert_eq!(server.call("batch_cancel", json!({ "batchId": id })).await["status"], "canceled");
    let ended = server.ended(&id).await;
    assert_eq!(ended["status"], "canceled");
    let counts = &ended["counts"];
    assert!(counts["succeeded"].as_u64() > Some(9) && counts["skipped"].as_u64() > Some(0), "{counts}");
    assert_eq!(server.read("batchtools://queue/status").await["operations"], json!([]));
    assert_eq!(
        server.read("batchtools://metrics/performance").await["overall"]["optimizationsApplied"].as_u64(),
        Some(server.call("batch_list", json!({ "status": "completed" })).await["total"].as_u64().unwrap())
    );
    let why = server.refused("batch_pause", json!({ "batchId": id })).await;
    assert!(why.contains("has ended"), "{why}");
    // What was skipped can be done after all.
    let again = server.call("batch_retry", json!({ "batchId": id })).await;
    assert_eq!(again["operations"], counts["skipped"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_with_the_reason() {
    let world = World::new();
    let server = world.serve().await;
    let small = || json!({ "operations": waits(1, 1) });
    server.call("batch_configure", json!({ "thresholds": { "queueSize": 1 } })).await;
    let long = server.submit(json!({ "operations": waits(1, 30_000) })).await;
    server.when(&long, "it is taken", |status| status.get("type").is_some()).await;
    let why = server.refused("batch_submit", small()).await;
    assert!(why.contains("1 batches wait or are at work") && why.contains("queueSize is 1"), "{why}");
    // By the way of the agent as well.
    let message = Message::of("m", Role::User, vec![Part::data(small())]);
    let task = server.engine.submit(&server.caller, Submit::new("batch", message)).await.unwrap();
    let task = server.engine.wait_until_idle(&server.caller, task).await.unwrap();
    assert_eq!(task.state, State::Rejected);
    assert!(task.status_message.unwrap().joined_text().contains("queueSize"));
    server.call("batch_cancel", json!({ "batchId": long })).await;
    server.run(small()).await;

    server.call("batch_configure", json!({ "optimizationStrategies": ["resource_optimization"] })).await;
    assert!(server.refused("batch_submit", small()).await.contains("optimizationStrategies"));
    server.call("batch_configure", json!({ "enabled": false })).await;
    assert!(server.refused("batch_submit", small()).await.contains("enabled: false"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_makes_no_sense_is_refused_before_there_is_a_task() {
    let world = World::new();
    let server = world.serve().await;
    let needs =
        |id: &str, need: &str| json!({ "id": id, "type": "wait", "args": { "ms": 1 }, "needs": [need] });
    let circle = json!({ "operations": [needs("a", "b"), needs("b", "a")] });
    assert!(server.refused("batch_submit", circle.clone()).await.contains("a -> b -> a"));
    assert_eq!(server.call("batch_list", json!({})).await["total"], 0);
    for (data, words) in
        [(circle, "a -> b -> a"), (json!({ "operations": [{ "id": "a", "type": "x" }] }), "type")]
    {
        let message = Message::of("", Role::User, vec![Part::data(data)]);
        let task = server.engine.submit(&server.caller, Submit::new("batch", message)).await.unwrap();
        assert_eq!(task.state, State::Rejected);
        let said = task.status_message.unwrap().joined_text();
        assert!(said.contains(words), "{said}");
    }
    let text = Submit::new("batch", Message::text("m", Role::User, "do everything"));
    assert_eq!(server.engine.submit(&server.caller, text).await.unwrap().state, State::Rejected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_another_is_not_there() {
    let world = World::new();
    let server = world.serve().await;
    let mine = server.run(json!({ "operations": waits(2, 1) })).await;
    let id = mine["batchId"].clone();
    let nobodys = "01890000-0000-7000-8000-000000000000";
    for other in ["ada", "acme/ada"] {
        let other = server.for_caller(Caller::named(other));
        for tool in ["batch_status", "batch_cancel", "batch_pause", "batch_resume", "batch_retry"] {
            let why = other.refused(tool, json!({ "batchId": id })).await;
            let same = other.refused(tool, json!({ "batchId": nobodys })).await;
            assert_eq!(why, same.replace(nobodys, id.as_str().unwrap()), "{tool}");
        }
        assert_eq!(other.call("batch_list", json!({})).await["total"], 0);
    }
    let acme = server.for_caller(Caller::named("acme/ada"));
    let totals = acme.read("batchtools://metrics/performance").await;
    assert_eq!(totals["overall"]["optimizationsApplied"], 0, "another tenant's");
    let queue = acme.read("batchtools://queue/status").await;
    assert_eq!(queue["throughput"]["operationsPerSecond"], Value::Null);
    assert!(acme.refused("batch_configure", json!({ "maxConcurrency": 9 })).await.contains("operator"));
    // A task that is no batch is none here.
    let echo = Submit::new("gauge", Message::text("m", Role::User, "x"));
    let task = server.engine.submit(&server.caller, echo).await.unwrap();
    let why = server.refused("batch_status", json!({ "batchId": task.origin.id.to_string() })).await;
    assert!(why.contains("there is no batch"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_does_only_what_it_was_granted() {
    let world = World::new();
    let server = world.serve().await;
    let with = |scopes: &str| server.for_caller(Caller::local().limited_to(Grants::parse(scopes).unwrap()));
    let reader = with("read:batchtools read:a2a");
    reader.read("batchtools://queue/status").await;
    for (tool, arguments) in [
        ("batch_submit", json!({ "operations": waits(1, 1) })),
        ("batch_configure", json!({ "maxConcurrency": 9 })),
        ("batch_cancel", json!({ "batchId": "x" })),
        ("batch_pause", json!({ "batchId": "x" })),
        ("batch_retry", json!({ "batchId": "x" })),
    ] {
        let why = reader.refused(tool, arguments).await;
        assert!(why.contains("scope") && why.contains("batchtools"), "{tool}: {why}");
    }
    let memory = with("read:memory");
    assert!(memory.try_read("batchtools://config/settings").await.is_err());
    // Operations are done in the caller's name: what it may not call, its batch may not either.
    let narrow = with("*:batchtools read:a2a execute:a2a:batch");
    let call = json!({ "agent": "gauge", "input": "x" });
    let store = json!({ "namespace": "n", "key": "k", "value": 1 });
    let ended = narrow
        .run(json!({ "operations": [
            { "id": "call", "type": "agent.call", "args": call, "retries": 3 },
            { "id": "store", "type": "memory.store", "args": store, "retries": 3 },
        ] }))
        .await;
    for id in ["call", "store"] {
        let refused = super::world::operation(&ended, id);
        assert!(refused["error"].as_str().unwrap().contains("scope"), "{refused}");
        assert_eq!(refused["attempts"], 1, "another try would come to the same");
    }
    // And files need more than execute.
    let execute = with("execute:batchtools read:a2a execute:a2a:batch");
    let write = many(1, "files.write", |_| json!({ "path": "a", "content": "x" }));
    assert!(
        execute.refused("batch_submit", json!({ "operations": write })).await.contains("write:batchtools")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tenant_keeps_no_other_from_its_batches() {
    let world = World::new();
    let server = world.serve().await;
    server.call("batch_configure", json!({ "thresholds": { "queueSize": 1 } })).await;
    let (eve, bob) =
        (server.for_caller(Caller::named("evil/eve")), server.for_caller(Caller::named("acme/bob")));
    let greedy = eve.submit(json!({ "operations": waits(1_000, 300), "priority": "high" })).await;
    eve.when(&greedy, "some are done", |status| status["done"].as_f64() >= Some(5.0)).await;
    let why = eve.refused("batch_submit", json!({ "operations": waits(1, 1) })).await;
    assert!(why.contains("queueSize is 1"), "{why}");
    let modest = bob.run(json!({ "operations": waits(5, 1), "priority": "low" })).await;
    assert_eq!(modest["counts"]["succeeded"], 5);
    assert_eq!(eve.status(&greedy).await["status"], "working", "the other has much left");
    eve.call("batch_cancel", json!({ "batchId": greedy })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_names_only_the_caller_s_own_batches() {
    let world = World::new();
    let server = world.serve().await;
    let (ada, bob) =
        (server.for_caller(Caller::named("acme/ada")), server.for_caller(Caller::named("acme/bob")));
    let hers = ada.submit(json!({ "operations": waits(1, 30_000) })).await;
    ada.when(&hers, "it is taken", |status| status.get("type").is_some()).await;
    let seen = async |server: &super::world::Server| {
        let queue = server.read("batchtools://queue/status").await;
        let all = queue["queueSize"].as_u64().unwrap() + queue["activeBatches"].as_u64().unwrap();
        (all, queue["operations"].to_string())
    };
    let (all, named) = seen(&ada).await;
    assert!(all == 1 && named.contains(&hers), "{named}");
    assert_eq!(seen(&bob).await, (1, "[]".into()), "of others there is the count");
    ada.call("batch_cancel", json!({ "batchId": hers })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_a_batch_takes_from_the_same_rate_and_names_its_files() {
    let mut world = World::new();
    world.rates = vec![(AccessKind::Batchtools, "4/h".parse::<Rate>().unwrap())];
    let server = world.serve().await;
    let ada = server.for_caller(Caller::named("ada"));
    let directly = async |batch: Value| {
        let message = Message::of("m", Role::User, vec![Part::data(batch)]);
        let task = ada.engine.submit(&ada.caller, Submit::new("batch", message)).await.unwrap();
        ada.engine.wait_until_idle(&ada.caller, task).await.unwrap()
    };
    // One for the batch and one for the file, whether it comes by the tool or not.
    let write = |path: &str| json!({ "operations": many(1, "files.write", |_| json!({ "path": path, "content": "x" })) });
    let id = ada.submit(write("by-tool")).await;
    until("the tool's is done", async || world.file("by-tool").exists().then_some(())).await;
    assert_eq!(directly(write("directly")).await.state, State::Completed);
    assert!(world.file("directly").exists());
    let refused = directly(write("too-much")).await;
    assert_eq!(refused.state, State::Rejected);
    assert!(refused.status_message.unwrap().joined_text().contains("try again in"));
    assert!(ada.refused("batch_submit", write("too-much")).await.contains("try again in"));

    server.engine.flush_audit().await;
    let query = AuditQuery {
        kind: Some(AccessKind::Batchtools),
        caller: Some("ada".into()),
        limit: 100,
        ..Default::default()
    };
    let lines = server.engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    let mut said: Vec<(&str, &str, bool)> = lines
        .iter()
        .map(|(_, line)| (&*line.operation, line.resource.as_str(), line.refused.is_none()))
        .collect();
    said.sort_unstable();
    let queue = "batchtools://queue/status";
    assert_eq!(
        said,
        [
            ("batch.submit", queue, false),
            ("batch.submit", queue, false),
            ("batch.submit", queue, true),
            ("batch.submit", queue, true),
            ("files.write", "file:by-tool", true),
            ("files.write", "file:directly", true),
        ],
        "{id}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_used_up_for_a_moment_fails_no_operation() {
    let mut world = World::new();
    world.rates = vec![(AccessKind::Memory, "2/s".parse::<Rate>().unwrap())];
    let server = world.serve().await;
    let store = |n: usize| json!({ "namespace": "n", "key": format!("k{n}"), "value": n });
    let ended =
        server.run(json!({ "operations": many(6, "memory.store", store), "maxConcurrency": 1 })).await;
    assert_eq!(ended["counts"]["succeeded"], 6, "{ended}");
    let tried = |operation: &Value| operation["attempts"] == 1;
    assert!(ended["operations"].as_array().unwrap().iter().all(tried), "within the first try");
}
