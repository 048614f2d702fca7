//! Traces of a real server that is killed, as a collector of OpenTelemetry and a webhook's receiver see them.
//!
//! The collector is a stand-in that takes OTLP over HTTP as JSON and keeps it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run},
    http,
    server_process::ServerProcess,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ASKER: &str = "b7ad6b7169203331";

/// What arrived.
#[derive(Clone, Default)]
struct Arrived {
    spans: Arc<Mutex<Vec<Value>>>,
    hooks: Arc<Mutex<Vec<String>>>,
}

impl Arrived {
    fn named(&self, name: &str) -> Vec<Value> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span["name"] == name).cloned().collect()
    }

    /// The `traceparent` of each webhook that was received, in order.
    fn hooks(&self) -> Vec<String> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `traceparent` that stands for each exported span of a webhook.
    fn webhooks(&self) -> Vec<String> {
        let header = |span: &Value| format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap());
        self.named("webhook").iter().map(header).collect()
    }

    fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !condition(self) {
            assert!(started.elapsed() < Duration::from_secs(60), "never came true: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A collector and a receiver of webhooks, on one port.
fn listen() -> (String, Arrived) {
    let arrived = Arrived::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v1/traces", post(take))
        .route("/hook", post(hooked))
        .with_state(arrived.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (url, arrived)
}

async fn take(State(arrived): State<Arrived>, body: String) -> &'static str {
    let request: Value = serde_json::from_str(&body).unwrap();
    let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default();
    arrived.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    "{}"
}

async fn hooked(State(arrived): State<Arrived>, headers: HeaderMap) -> &'static str {
    let traceparent = headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned());
    arrived.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(traceparent.unwrap_or_default());
    "{}"
}

#[test]
fn one_trace_from_the_request_over_a_kill_to_the_webhook() {
    let (collector, arrived) = listen();
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[otlp]\nendpoint = \"{collector}\"\ninterval = \"20ms\"\n");
    std::fs::write(dir.path().join("nuncio.toml"), config).unwrap();
    let flags = ["--agent-step", "10ms", "--allow-private-webhooks"];
    let mut server = ServerProcess::start(&dir.path().join("data"), &flags);
    let url = format!("{}/agents/travel_agent", server.url());
    let params = json!({
        "message": { "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "Lisbon" }] },
        "configuration": { "taskPushNotificationConfig": { "id": "hook", "url": format!("{collector}/hook") } },
    });
    let given = format!("00-{TRACE}-{ASKER}-01");
    let task = http::rpc_with(&url, "SendMessage", &params, &[("traceparent", &given)]);
    let id = task["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    arrived.until("a run that was parked", |arrived| !arrived.named("run travel_agent").is_empty());
    arrived.until("a webhook before the kill", |arrived| {
        let known = arrived.webhooks();
        arrived.hooks().iter().any(|hook| known.contains(hook))
    });
    server.kill9();
    // A span that was not exported dies with its process.
    let before = arrived.hooks().len();
    server.restart();
    let answer = json!({ "message": {
        "messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{ "text": "yes" }],
    } });
    http::rpc(&url, "SendMessage", &answer);

    arrived.until("the whole task", |arrived| arrived.named("task travel_agent").len() == 1);
    let whole = arrived.named("task travel_agent").remove(0);
    assert_eq!((&whole["traceId"], &whole["parentSpanId"]), (&json!(TRACE), &json!(ASKER)));
    let conventional = json!({ "key": "gen_ai.agent.name", "value": { "stringValue": "travel_agent" } });
    assert!(whole["attributes"].as_array().unwrap().contains(&conventional), "{whole}");
    arrived.until("both runs", |arrived| arrived.named("run travel_agent").len() >= 2);
    arrived.until("a span for each webhook", |arrived| {
        let (hooks, known) = (arrived.hooks(), arrived.webhooks());
        hooks.len() > before + 1 && hooks[before..].iter().all(|hook| known.contains(hook))
    });
    for part in arrived.named("run travel_agent").iter().chain(&arrived.named("webhook")) {
        assert_eq!((&part["traceId"], &part["parentSpanId"]), (&json!(TRACE), &whole["spanId"]), "{part}");
    }
}

#[test]
fn a_plan_and_its_tasks_take_part_in_the_trace_of_the_command() {
    let (collector, arrived) = listen();
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[otlp]\nendpoint = \"{collector}\"\ninterval = \"20ms\"\n");
    std::fs::write(dir.path().join("nuncio.toml"), config).unwrap();
    std::fs::write(dir.path().join("plan.toml"), "[[tasks]]\nid = \"a\"\nagent = \"echo\"\n").unwrap();
    let _server = ServerProcess::start(&dir.path().join("data"), &[]);
    let mut command = nuncio_in(dir.path());
    command.args(["plan", "--data", "data", "run", "plan.toml"]);
    run(command.env("TRACEPARENT", format!("00-{TRACE}-{ASKER}-01"))).exits(0);
    arrived.until("both tasks", |arrived| {
        !arrived.named("task orchestrator").is_empty() && !arrived.named("task echo").is_empty()
    });
    let (plan, part) = (arrived.named("task orchestrator").remove(0), arrived.named("task echo").remove(0));
    assert_eq!((&plan["traceId"], &plan["parentSpanId"]), (&json!(TRACE), &json!(ASKER)));
    assert_eq!(part["traceId"], json!(TRACE), "{part}");
}
