//! The resources: their shapes, what they say before anything was measured, and who is told of changes.

use nuncio_engine::surface::SurfaceChange;
use nuncio_flows::batch::{METRICS_URI, QUEUE_URI, SETTINGS_URI};
use serde_json::{Value, json};

use super::world::{World, until, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_measured_is_null_and_what_was_is_not() {
    let world = World::new();
    let server = world.serve().await;
    for uri in [METRICS_URI, SETTINGS_URI, QUEUE_URI] {
        let modified = server.modified(uri).await;
        assert!(*modified > *"2020", "{uri} was never changed, and did not exist in {modified}");
    }
    let totals = server.read(METRICS_URI).await;
    assert_eq!(totals["overall"]["averageSpeedup"], Value::Null);
    assert_eq!(totals["overall"]["memoryReduction"], Value::Null);
    let queue = server.read(QUEUE_URI).await;
    assert_eq!(queue["throughput"], json!({ "operationsPerSecond": null, "averageLatency": null }));
    assert_eq!(
        server.read(SETTINGS_URI).await,
        json!({
            "enabled": true,
            "maxConcurrency": 5,
            "resourceMonitoring": true,
            "thresholds": { "memoryUsage": 0.8, "cpuUsage": 0.8, "queueSize": 100 },
            "optimizationStrategies":
                ["concurrent_processing", "parallel_content_processing", "resource_optimization"],
        })
    );

    let id = server.submit(json!({ "priority": "high", "operations": waits(100, 50) })).await;
    let started = async || {
        let queue = server.read(QUEUE_URI).await;
        Some(queue).filter(|queue| {
            queue["activeBatches"] == 1 && !queue["operations"][0]["estimatedDuration"].is_null()
        })
    };
    let queue = until("it has begun", started).await;
    let shown = &queue["operations"][0];
    assert_eq!((shown["id"].as_str(), shown["priority"].as_str()), (Some(id.as_str()), Some("high")));
    assert_eq!(shown["type"], "mixed_operations");
    assert!(shown["startTime"].is_string());
    // About 50 ms each, a hundred of them, five at a time.
    let estimate = shown["estimatedDuration"].as_f64().unwrap();
    assert!((0.0..=3_000.0).contains(&estimate), "{shown}");
    server.ended(&id).await;
    let queue = server.read(QUEUE_URI).await;
    assert_eq!((queue["queueSize"].as_u64(), queue["activeBatches"].as_u64()), (Some(0), Some(0)));
    assert!(queue["throughput"]["averageLatency"].as_f64() >= Some(50.0), "{queue}");
    assert!(queue["throughput"]["operationsPerSecond"].as_f64() > Some(0.0), "{queue}");
    let totals = server.read(METRICS_URI).await;
    assert!(totals["overall"]["averageSpeedup"].as_f64() > Some(1.0), "{totals}");
    assert_eq!(totals["calibration"][0]["type"], "wait:50", "{totals}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_is_told_when_settings_change_and_batches_begin_and_end() {
    let world = World::new();
    let server = world.serve().await;
    server.read(SETTINGS_URI).await;
    let mut changes = server.engine.catalog().surface().changes();
    let mut told = |wanted: &str| {
        let mut count = 0;
        while let Ok(change) = changes.try_recv() {
            count += usize::from(
                matches!(&change, SurfaceChange::Updated(updated) if updated.concerns("home", wanted)),
            );
        }
        count
    };
    server.call("batch_configure", json!({ "maxConcurrency": 6 })).await;
    assert_eq!(told(SETTINGS_URI), 1, "once");
    assert_eq!(server.read(SETTINGS_URI).await["maxConcurrency"], 6);
    server.run(json!({ "operations": waits(1, 1) })).await;
    until("the queue is told", async || (told(QUEUE_URI) > 0).then_some(())).await;
    // Nothing changed, nothing told.
    told(SETTINGS_URI);
    server.call("batch_configure", json!({})).await;
    server.call("batch_configure", json!({ "maxConcurrency": 6 })).await;
    assert_eq!(told(SETTINGS_URI), 0);
    for (change, words) in [(json!({ "thresholds": { "queueSize": 1000 } }), "1000")] {
        assert!(server.call("batch_configure", change).await.to_string().contains(words));
    }
}
