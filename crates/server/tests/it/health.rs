//! Whether the server lives, takes work, and has figures; and what happens when its disk is full.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use crate::{
    site::{Site, message, panics, request},
    socket::{post, within},
};

#[tokio::test]
async fn a_server_that_is_well_says_so() {
    let site = Site::new().await;
    let alive = site.get("/healthz", &[]).await;
    assert_eq!((alive.status, alive.json()), (200, json!({ "status": "ok" })));
    let ready = site.get("/readyz", &[]).await;
    assert_eq!((ready.status, ready.json()), (200, json!({ "status": "ready" })));
}

/// An orchestrator probes the address of a machine. Where the server has a public name, nothing else is answered there, and
/// the answer has no details.
#[tokio::test]
async fn probes_are_answered_whatever_host_they_name() {
    let pages = Arc::new(AtomicU32::new(u32::MAX - 1));
    let site = Site::with(|setup| {
        setup.store.max_pages = Some(Arc::clone(&pages));
        setup.server.public_url = Some("https://agents.example.org".into());
    })
    .await;
    let host = [("host", "10.1.2.3:8080")];
    let alive = site.get("/healthz", &host).await;
    assert_eq!((alive.status, alive.json()), (200, json!({ "status": "ok" })));
    assert_eq!(site.get("/readyz", &host).await.json(), json!({ "status": "ready" }));
    for path in ["/metrics", "/", "/healthz/x", "/.well-known/agent-card.json"] {
        assert_eq!(site.get(path, &host).await.status, 403, "{path}");
    }
    pages.store(1, Ordering::SeqCst);
    let large = message(&"x".repeat(100_000));
    let refused =
        site.send(post("/", &[("A2A-Version", "1.0")], request("SendMessage", &json!({ "message": large }))));
    assert_eq!(refused.await.status, 503);
    let unready = site.get("/readyz", &host).await;
    let expected = json!({ "status": "not ready", "reason": "the store takes no new work" });
    assert_eq!((unready.status, unready.json()), (503, expected));
}

#[tokio::test]
async fn figures_are_there_for_who_asks() {
    // Of this thread, which all of this site runs on.
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _figures = metrics::set_default_local_recorder(&recorder);
    let site = Site::with(|setup| {
        setup.options.max_running = 2;
        setup.server.metrics = Some(Arc::new(move || handle.render()));
    })
    .await;
    let figure = async |name: &str| -> f64 {
        let answer = site.get("/metrics", &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
        let line = answer.text().lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {}", answer.text())).parse().unwrap()
    };
    let figures = async || {
        [
            figure("nuncio_tasks_running").await,
            figure("nuncio_tasks_queued").await,
            figure("nuncio_streams_open").await,
        ]
    };
    assert_eq!(figures().await, [0.0, 0.0, 0.0]);
    let first = site.stream("1.0", "SendStreamingMessage", json!({ "message": message("wait") })).await;
    site.begin("wait").await;
    site.begin("wait").await;
    assert_eq!(figures().await, [2.0, 1.0, 1.0]);
    drop(first);
    within("a stream less", async { while figure("nuncio_streams_open").await > 0.0 {} }).await;
}

/// A disk that has filled up refuses what is new and keeps showing what is there; when there is room again, it
/// goes on by itself.
#[tokio::test]
async fn a_full_disk_refuses_work_and_recovers() {
    let pages = Arc::new(AtomicU32::new(u32::MAX - 1));
    let site = Site::with(|setup| setup.store.max_pages = Some(Arc::clone(&pages))).await;
    let task =
        site.result("1.0", "SendMessage", json!({ "message": message("before") })).await["task"].clone();
    let asking = site.begin("ask").await;
    site.until_state(&asking, "INPUT_REQUIRED").await;
    let total = site.total().await;

    pages.store(1, Ordering::SeqCst);
    let large = "x".repeat(100_000);
    let plain =
        |kind: &str| json!({ "messageId": "m", "role": "user", "parts": [{ kind: "text", "text": large }] });
    let mut answer = message("yes");
    // Within limits.metadata-bytes.
    let metadata = json!({ "more": large[..60_000] });
    (answer["taskId"], answer["parts"][0]["metadata"]) = (asking.as_str().into(), metadata);
    let refused = async || {
        for (version, method, params, code) in [
            ("1.0", "SendMessage", json!({ "message": message(&large) }), -32603),
            ("1.0", "SendStreamingMessage", json!({ "message": message(&large) }), -32603),
            ("1.0", "SendMessage", json!({ "message": answer }), -32603),
            ("0.3", "message/send", json!({ "message": plain("kind") }), -32603),
            ("0.3", "message/stream", json!({ "message": plain("kind") }), -32603),
            ("0.1", "tasks/send", json!({ "id": "t", "message": plain("type") }), -32011),
        ] {
            let answer = site.send(post("/", &[("A2A-Version", version)], request(method, &params))).await;
            assert_eq!(
                (answer.status, answer.header("retry-after")),
                (503, "30"),
                "{method}: {}",
                answer.text()
            );
            let error = answer.json()["error"].clone();
            assert_eq!(error["code"], code, "{version} {method}");
            let said = error["message"].as_str().unwrap();
            assert!(said.contains("the disk that holds the store is full"), "{said}");
        }
    };
    refused().await;
    refused().await;
    // What is there can be read, and that it is not ready is said with the reason.
    let get = async |id: &Value| site.result("1.0", "GetTask", json!({ "id": id })).await;
    assert_eq!(get(&task["id"]).await, task);
    assert_eq!(get(&json!(asking)).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(site.total().await, total);
    let after = [("A2A-Version", "1.0"), ("Last-Event-ID", "0")];
    let stream = site.stream_with(&after, "SubscribeToTask", json!({ "id": task["id"] })).await;
    assert_eq!(stream.results().await.len(), 3);
    let ready = site.get("/readyz", &[]).await;
    assert_eq!((ready.status, ready.header("retry-after")), (503, "5"));
    let reason = ready.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("the disk that holds the store is full"), "{reason}");
    assert_eq!(site.get("/healthz", &[]).await.status, 200);

    pages.store(u32::MAX - 1, Ordering::SeqCst);
    within("a server that is ready again", async { while site.get("/readyz", &[]).await.status != 200 {} })
        .await;
    site.result("1.0", "SendMessage", json!({ "message": message(&large) })).await;
    site.result("1.0", "SendMessage", json!({ "message": answer })).await;
    site.until_state(&asking, "COMPLETED").await;
    assert_eq!(site.total().await, total + 1);
    assert_eq!(panics(), 0);
}
