//! How many run at once, in which order, and what that gains.

use serde_json::{Value, json};

use super::world::{World, many, operation, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_operations_run_five_at_a_time_and_ten_when_the_cap_is_raised() {
    let world = World::new();
    let server = world.serve().await;
    let id = server
        .submit(json!({
            "operations": many(1_000, "agent.call", |_| json!({ "agent": "gauge", "input": { "held": true } })),
        }))
        .await;
    world.gauge.let_go(0, 5).await;
    world.gauge.let_go(300, 5).await;
    assert_eq!(world.gauge.take_peak(), 5, "as many as the cap, and no more");

    server.call("batch_configure", json!({ "maxConcurrency": 10 })).await;
    world.gauge.let_go(0, 10).await;
    world.gauge.let_go(300, 10).await;
    assert_eq!(world.gauge.take_peak(), 10, "raised while they run");

    server.call("batch_configure", json!({ "maxConcurrency": 2 })).await;
    // Those that ran at that moment end first.
    world.gauge.let_go(20, 2).await;
    world.gauge.take_peak();
    world.gauge.let_go(40, 2).await;
    assert_eq!(world.gauge.take_peak(), 2, "lowered while they run");
    server.call("batch_configure", json!({ "maxConcurrency": 10 })).await;
    world.gauge.let_all_go();
    let ended = server.ended(&id).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["counts"], json!({ "total": 1_000, "succeeded": 1_000, "failed": 0, "skipped": 0 }));
    assert_eq!(ended["metrics"]["peakConcurrency"], 10);
    assert_eq!(world.gauge.calls(), 1_000, "each was called once");

    let task = server.engine.get(&server.caller, &id).await.unwrap();
    assert!(task.seq < 150, "not one event for each operation: {}", task.seq);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_operations_gain_as_much_as_the_cap_and_serial_ones_nothing() {
    let world = World::new();
    let server = world.serve().await;
    // It is measured: on a busy machine a batch may gain less, but never more than the cap.
    let mut gained = 0.0;
    for _ in 0..5 {
        let beside = server.run(json!({ "operations": waits(40, 100) })).await;
        let speedup = beside["metrics"]["speedup"].as_f64().unwrap();
        assert!(speedup <= 5.2, "{}", beside["metrics"]);
        gained = speedup.max(gained);
        if gained >= 4.0 {
            break;
        }
    }
    assert!(gained >= 4.0, "{gained}");

    let serial = server.run(json!({ "operations": waits(8, 100), "maxConcurrency": 1 })).await;
    let speedup = serial["metrics"]["speedup"].as_f64().unwrap();
    assert!((0.8..=1.1).contains(&speedup), "{}", serial["metrics"]);
    let basis = &serial["metrics"]["speedupBasis"];
    assert_eq!(basis["sampleOperations"], 0, "too few for a sample: {basis}");
    assert_eq!(basis["calibrations"][0]["type"], "wait:100", "by what the batch before measured: {basis}");
    assert_eq!(serial["metrics"]["peakConcurrency"], 1);

    let sampled = server.run(json!({ "operations": waits(34, 100), "sequentialSample": 4 })).await;
    let metrics = &sampled["metrics"];
    assert!(metrics["sequentialMs"].as_f64().unwrap() >= 400.0, "{metrics}");
    let measured = metrics["speedup"].as_f64().unwrap();
    assert!((3.5..=6.0).contains(&measured), "{metrics}");
    assert_eq!(sampled["counts"]["succeeded"], 34);

    let totals = server.read("batchtools://metrics/performance").await;
    let concurrent = &totals["byType"]["concurrent_processing"];
    assert_eq!((concurrent["count"].as_u64(), concurrent["successRate"].as_f64()), (Some(3), Some(1.0)));
    assert!((2.0..=5.2).contains(&concurrent["averageSpeedup"].as_f64().unwrap()), "{totals}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_urgent_goes_first_within_a_batch_and_between_batches() {
    let world = World::new();
    let server = world.serve().await;
    server.call("batch_configure", json!({ "maxConcurrency": 1 })).await;
    let line = |id: &str, priority: &str| {
        let args = json!({ "path": "order", "content": format!("{id}\n"), "append": true });
        json!({ "id": id, "type": "files.write", "args": args, "priority": priority })
    };
    server.run(json!({ "operations": [line("c", "low"), line("b", "normal"), line("a", "high")] })).await;
    assert_eq!(world.lines("order"), ["a", "b", "c"]);

    let first = server.submit(json!({ "operations": waits(1, 700) })).await;
    server.when(&first, "it runs", |status| status["status"] == "working").await;
    let write = |word: &'static str| {
        many(
            3,
            "files.write",
            move |_| json!({ "path": "between", "content": format!("{word}\n"), "append": true }),
        )
    };
    let low = server.submit(json!({ "priority": "low", "operations": write("low") })).await;
    let high = server.submit(json!({ "priority": "high", "operations": write("high") })).await;
    server.ended(&low).await;
    server.ended(&high).await;
    assert_eq!(world.lines("between"), ["high", "high", "high", "low", "low", "low"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_failed_one_is_skipped_with_the_reason_and_the_rest_is_done() {
    let world = World::new();
    let server = world.serve().await;
    let write = |id: &str, needs: Value| {
        let args = json!({ "path": "order", "content": format!("{id}\n"), "append": true });
        json!({ "id": id, "type": "files.write", "args": args, "needs": needs })
    };
    let batch = json!({ "operations": [
        write("last", json!(["middle"])),
        write("middle", json!(["first"])),
        { "id": "first", "type": "wait", "args": { "ms": 50 } },
        { "id": "missing", "type": "files.read", "args": { "path": "missing" } },
        write("lost", json!(["missing", "first"])),
        write("lost-too", json!(["lost"])),
    ] });
    let ended = server.run(batch).await;
    assert_eq!(ended["status"], "completed", "failed operations are part of the result");
    assert_eq!(ended["counts"], json!({ "total": 6, "succeeded": 3, "failed": 1, "skipped": 2 }));
    assert_eq!(world.lines("order"), ["middle", "last"]);
    assert_eq!(operation(&ended, "missing")["status"], "failed");
    assert_eq!(operation(&ended, "lost")["error"], "it needs missing, which failed");
    assert_eq!(operation(&ended, "lost-too")["error"], "it needs lost, which was skipped");

    // Only what failed and what was skipped is done again.
    std::fs::write(world.file("missing"), "here now").unwrap();
    let again = server.call("batch_retry", json!({ "batchId": ended["batchId"] })).await;
    assert_eq!(again["operations"], 3);
    let again = server.ended(again["batchId"].as_str().unwrap()).await;
    assert_eq!(again["counts"]["succeeded"], 3);
    assert_eq!(world.lines("order"), ["middle", "last", "lost", "lost-too"]);
    let why = server.refused("batch_retry", json!({ "batchId": again["batchId"] })).await;
    assert!(why.contains("succeeded"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_failed_is_tried_again_and_alone() {
    let world = World::new();
    let server = world.serve().await;
    world.gauge.failures.store(2, std::sync::atomic::Ordering::SeqCst);
    let mut operations = waits(3, 5);
    let call = json!({ "agent": "gauge", "input": { "ms": 1 } });
    operations.push(json!({ "id": "flaky", "type": "agent.call", "args": call, "retries": 3 }));
    let ended = server.run(json!({ "operations": operations })).await;
    assert_eq!(operation(&ended, "flaky")["attempts"], 3);
    assert_eq!(operation(&ended, "flaky")["output"]["text"], "counted");
    assert_eq!(operation(&ended, "o0")["attempts"], 1);
    assert_eq!(world.gauge.calls(), 3);

    world.gauge.failures.store(9, std::sync::atomic::Ordering::SeqCst);
    let once = json!({ "id": "flaky", "type": "agent.call", "args": call });
    let ended = server.run(json!({ "operations": [once] })).await;
    let flaky = operation(&ended, "flaky");
    assert_eq!((flaky["attempts"].as_u64(), flaky["status"].as_str()), (Some(1), Some("failed")));
    assert!(flaky["error"].as_str().unwrap().contains("not this time"), "{flaky}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_stops_on_failure_begins_nothing_more() {
    let world = World::new();
    let server = world.serve().await;
    let mut operations = vec![json!({ "id": "bad", "type": "files.read", "args": { "path": "missing" } })];
    operations.extend(waits(50, 20));
    let ended =
        server.run(json!({ "operations": operations, "stopOnFailure": true, "maxConcurrency": 1 })).await;
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["counts"], json!({ "total": 51, "succeeded": 0, "failed": 1, "skipped": 50 }));
    assert!(operation(&ended, "o7")["error"].as_str().unwrap().contains("stopOnFailure"));
}
