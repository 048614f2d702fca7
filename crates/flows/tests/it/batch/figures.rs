//! The figures: what a batch says of itself is what was measured, or null.

use serde_json::{Value, json};

use super::world::{World, many, operation, until, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_that_stand_in_each_others_way_have_no_speed_up() {
    let world = World::new();
    let server = world.serve().await;
    let ended = server
        .run(json!({
            "operations": many(40, "agent.call", |_| json!({ "agent": "narrow", "input": { "ms": 60 } })),
        }))
        .await;
    let metrics = &ended["metrics"];
    let speedup = metrics["speedup"].as_f64().unwrap();
    // Five at a time would be five; the rest is how busy the machine was during the sample and after it.
    assert!((0.3..=2.5).contains(&speedup), "one at a time is no faster than one at a time: {metrics}");
    assert!(metrics["concurrency"].as_f64() > Some(3.0), "five wait for each other: {metrics}");
    assert_eq!(metrics["speedupBasis"]["sampleOperations"], 2, "{metrics}");
    assert_eq!(metrics["speedupBasis"]["sampleShare"].as_f64(), Some(0.05), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_machine_delays_a_batch_and_says_so_and_the_delay_survives_a_restart() {
    let world = World::new();
    let first = world.serve().await;
    *world.probe.cpu.lock().unwrap() = Some(0.97);
    let taken = first.call("batch_submit", json!({ "operations": waits(2, 1) })).await;
    let id = taken["batchId"].as_str().unwrap().to_owned();
    let why = taken["waiting"].as_str().unwrap_or_else(|| panic!("it waits: {taken}"));
    assert!(why.contains("97.0 % of the processors' time") && why.contains("cpuUsage is 80.0 %"), "{why}");
    let waits = |status: &Value| status["waiting"].as_str().is_some_and(|why| why.contains("cpuUsage"));
    first.when(&id, "it is shown as waiting", waits).await;
    let queue = first.read("batchtools://queue/status").await;
    assert_eq!(queue["operations"][0]["status"], "waiting", "{queue}");
    assert!(queue["operations"][0]["waiting"].as_str().unwrap().contains("97.0 %"), "{queue}");
    let listed = first.call("batch_list", json!({})).await;
    assert!(listed["batches"][0]["waiting"].is_string(), "{listed}");

    first.engine.stop().await;
    first.let_go();
    drop(first);
    let second = world.serve().await;
    second.when(&id, "it still waits", waits).await;
    assert_eq!(second.status(&id).await["counts"]["succeeded"], Value::Null, "nothing was done");
    *world.probe.cpu.lock().unwrap() = Some(0.2);
    assert_eq!(second.ended(&id).await["counts"]["succeeded"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_stays_busy_gets_one_operation_at_a_time() {
    let mut world = World::new();
    world.options.load_wait = std::time::Duration::from_millis(200);
    let server = world.serve().await;
    *world.probe.memory.lock().unwrap() = Some(0.91);
    let calls = many(60, "agent.call", |_| json!({ "agent": "gauge", "input": { "ms": 100 } }));
    let id = server.submit(json!({ "operations": calls, "sequentialSample": 0 })).await;
    let mut peaks = vec![];
    for done in (3_u32..60).step_by(3) {
        server.when(&id, "more are done", |status| status["done"].as_f64() >= Some(f64::from(done))).await;
        peaks.push(world.gauge.take_peak());
        // One runs, and another as it ends.
        if peaks.last() <= Some(&2) {
            break;
        }
    }
    assert!(peaks.last() <= Some(&2), "the cap does not shrink: {peaks:?} at once");
    *world.probe.memory.lock().unwrap() = Some(0.3);
    server.ended(&id).await;
    // Switched off, nothing waits.
    *world.probe.memory.lock().unwrap() = Some(0.99);
    server.call("batch_configure", json!({ "resourceMonitoring": false })).await;
    let taken = server.call("batch_submit", json!({ "operations": waits(1, 1) })).await;
    assert_eq!(taken["waiting"], Value::Null);
    server.ended(taken["batchId"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_shows_a_batch_as_soon_as_it_is_acknowledged_and_two_at_once_fit_in_as_the_queue_says() {
    let world = World::new();
    let server = world.serve().await;
    server.call("batch_configure", json!({ "thresholds": { "queueSize": 4 } })).await;
    let mut submits = vec![];
    for _ in 0..12 {
        let server = server.clone();
        submits.push(tokio::spawn(async move {
            let taken = server.try_call("batch_submit", json!({ "operations": waits(1, 30_000) })).await;
            let taken = taken.ok()?["batchId"].as_str()?.to_owned();
            let queue = server.read("batchtools://queue/status").await;
            assert!(queue.to_string().contains(&taken), "{taken} is not in {queue}");
            Some(taken)
        }));
    }
    let mut taken = vec![];
    for submit in submits {
        taken.extend(submit.await.unwrap());
    }
    assert_eq!(taken.len(), 4, "as many as the queue has room for, and the others were told");
    for id in &taken {
        let status = server.when(id, "it runs", |status| status["done"].is_number()).await;
        assert_eq!(status["status"], "working", "what was acknowledged is not rejected: {status}");
        server.call("batch_cancel", json!({ "batchId": id })).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_can_be_reached_by_one_operation() {
    let world = World::new();
    let server = world.serve().await;
    server.run(json!({ "operations": waits(3, 300) })).await;
    server.call("batch_configure", json!({ "maxConcurrency": 1 })).await;
    let busy = server.submit(json!({ "operations": waits(1, 30_000) })).await;
    server.when(&busy, "it runs", |status| status["done"].is_number()).await;
    server.call("batch_configure", json!({ "maxConcurrency": 5 })).await;
    let one = server.submit(json!({ "operations": waits(1, 300), "sequentialSample": 0 })).await;
    let shown = until("it is estimated", async || {
        let queue = server.read("batchtools://queue/status").await;
        let all = queue["operations"].as_array().unwrap().clone();
        all.into_iter().find(|shown| shown["id"] == one.as_str() && shown["estimatedDuration"].is_number())
    })
    .await;
    assert!(shown["estimatedDuration"].as_f64() >= Some(300.0), "{shown}");
    server.call("batch_cancel", json!({ "batchId": busy })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_batches_counts_what_became_of_their_operations() {
    let world = World::new();
    let server = world.serve().await;
    let mut operations = waits(2, 1);
    operations.push(json!({ "id": "bad", "type": "files.read", "args": { "path": "missing" } }));
    operations.push(json!({ "id": "after", "type": "wait", "args": { "ms": 1 }, "needs": ["bad"] }));
    let ended = server.run(json!({ "operations": operations })).await;
    assert_eq!(operation(&ended, "bad")["status"], "failed");
    let listed = server.call("batch_list", json!({})).await;
    let counts = json!({ "total": 4, "succeeded": 2, "failed": 1, "skipped": 1 });
    assert_eq!(listed["batches"][0]["counts"], counts, "{listed}");
}
