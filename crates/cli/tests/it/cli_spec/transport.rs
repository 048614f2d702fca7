//! Three bindings, one behaviour: HTTP+JSON and gRPC beside JSON-RPC.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};

use super::nuncio;
use crate::{
    fake_agent::{FakeAgent, Reply, status, task},
    server_process::ServerProcess,
};

/// A request as the agent got it: method and path, body, headers.
type Seen = Arc<Mutex<Vec<(String, Value, HeaderMap)>>>;

/// An agent that speaks HTTP+JSON, and knows one task.
struct RestAgent {
    url: String,
    seen: Seen,
}

impl RestAgent {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Seen::default();
        let shared = Arc::clone(&seen);
        let app =
            Router::new().fallback(async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let asked = format!("{method} {uri}");
                let body = serde_json::from_slice(&body).unwrap_or_default();
                shared.lock().unwrap().push((asked.clone(), body, headers));
                answer(&asked)
            });
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app).await.unwrap();
            });
        });
        Self { url, seen }
    }

    /// The interface in a card, with a routing identifier.
    fn interface(&self) -> Value {
        json!({ "url": format!("{}/a2a", self.url), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "acme" })
    }

    fn asked(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(asked, ..)| asked.clone()).collect()
    }
}

fn answer(asked: &str) -> Response {
    let json =
        |value: Value| ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response();
    let path = asked.strip_prefix("GET /a2a/acme").or_else(|| asked.strip_prefix("POST /a2a/acme"));
    match path {
        Some("/message:send") => json(json!({ "task": task("COMPLETED") })),
        Some("/message:stream" | "/tasks/t1:subscribe") => {
            let events = [json!({ "task": task("WORKING") }), status("COMPLETED")];
            let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
        }
        Some("/tasks/t1" | "/tasks/t1?historyLength=2") => json(task("COMPLETED")),
        Some("/tasks/t1:cancel") => {
            let body = json!({ "error": { "code": 400, "status": "FAILED_PRECONDITION", "message": "it has ended",
                "details": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_CANCELABLE" }] } });
            (StatusCode::BAD_REQUEST, json(body)).into_response()
        }
        Some(list) if list.starts_with("/tasks?pageSize=") => json(json!({ "tasks": [task("COMPLETED")] })),
        _ => {
            let body = json!({ "error": { "code": 404, "status": "NOT_FOUND", "message": "there is no such task",
                "details": [{ "reason": "TASK_NOT_FOUND" }] } });
            (StatusCode::NOT_FOUND, json(body)).into_response()
        }
    }
}

/// An agent that speaks both, HTTP+JSON first.
fn both() -> (RestAgent, FakeAgent, String) {
    let rest = RestAgent::start();
    let rpc = FakeAgent::start(json!({}), |asked| match &*asked.method {
        "GetTask" => Reply::Error(-32001, "there is no such task"),
        _ => Reply::Result(json!({ "task": task("COMPLETED") })),
    });
    let own =
        json!({ "url": format!("{}/rpc", rpc.url), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    let interfaces = json!([rest.interface(), own]);
    let card = FakeAgent::start(json!({ "supportedInterfaces": interfaces }), |_| Reply::Status(500));
    (rest, rpc, card.url)
}

/// `A2ACLI_TX_004`, `A2ACLI_TX_002`: the card's order decides, unless `--transport` does.
#[test]
fn two_bindings_can_be_chosen_and_the_cards_order_is_the_default() {
    let (rest, rpc, card) = both();
    nuncio(&["send", "x", "-a", &card]).exits(0);
    assert_eq!((rest.asked(), rpc.asked().len()), (vec!["POST /a2a/acme/message:send".to_owned()], 0));
    let (_, body, headers) = rest.seen.lock().unwrap()[0].clone();
    assert_eq!(body["message"]["parts"][0]["text"], "x");
    assert_eq!(headers["a2a-version"], "1.0");
    nuncio(&["send", "x", "-a", &card, "--transport", "JSONRPC", "--transport", "HTTP+JSON"]).exits(0);
    assert_eq!((rest.asked().len(), rpc.asked().len()), (1, 1));
    nuncio(&["send", "x", "-a", &card, "--transport", "GRPC", "--transport", "http+json"]).exits(0);
    assert_eq!((rest.asked().len(), rpc.asked().len()), (2, 1));
}

/// `A2ACLI_TX_004`: every command.
#[test]
fn tasks_are_read_streamed_listed_and_canceled_over_http_json() {
    let (rest, _rpc, card) = both();
    let nuncio = |args: &[&str]| nuncio(&[args, &["-a", &card]].concat());
    let lines = nuncio(&["send", "x", "--stream", "-o", "json"]).exits(0).json_lines();
    assert_eq!(lines, [json!({ "task": task("WORKING") }), status("COMPLETED")]);
    assert_eq!(
        nuncio(&["task", "get", "t1", "--history", "2", "-o", "json"]).exits(0).json(),
        task("COMPLETED")
    );
    assert_eq!(nuncio(&["task", "subscribe", "t1", "--stream"]).exits(0).field("State"), "completed");
    assert_eq!(nuncio(&["task", "list", "--verbose"]).exits(0).field("Task"), "t1");
    assert!(nuncio(&["task", "list"]).exits(0).stdout.lines().nth(1).unwrap().starts_with("t1  completed"));
    let ended = nuncio(&["task", "cancel", "t1", "-o", "json"]).exits(1).json();
    assert_eq!(ended["error"]["code"], "TaskNotCancelableError");
    assert!(rest.asked().iter().all(|asked| asked.contains(" /a2a/acme/")), "{:?}", rest.asked());
}

/// `A2ACLI_OUT_004`: the same error is the same result.
#[test]
fn an_error_is_the_same_in_both_bindings() {
    let (_rest, _rpc, card) = both();
    let errors = ["JSONRPC", "HTTP+JSON"].map(|binding| {
        let args = ["task", "get", "absent", "-a", &card, "--transport", binding, "-o", "json"];
        nuncio(&args).exits(1).json()
    });
    assert_eq!(errors[0]["error"]["code"], "TaskNotFoundError");
    assert_eq!(errors[0], errors[1]);
}

/// `A2ACLI_TX_004`, `A2ACLI_TX_005`, against this repository's server: what one binding does, the others do.
#[test]
fn a_real_server_is_called_over_every_binding() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--agent-step", "2ms", "--allow-private-webhooks"];
    let server = ServerProcess::start(&dir.path().join("data"), &flags);
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let nuncio = |args: &[&str]| nuncio(&[args, &["-a", server.url(), "--transport", binding]].concat());
        let sent = nuncio(&["send", "Hello", "-o", "json", "--debug"]).exits(0);
        let path = match binding {
            "JSONRPC" => "\"method\":\"SendMessage\"",
            "HTTP+JSON" => "/message:send",
            _ => "/lf.a2a.v1.A2AService/SendMessage",
        };
        assert!(sent.stderr.contains(path), "{binding}: {}", sent.stderr);
        let sent = sent.json();
        assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "Hello", "{binding}: {sent}");
        let task = sent["task"]["id"].as_str().unwrap();
        let got = nuncio(&["task", "get", task, "--history", "1", "-o", "json"]).exits(0).json();
        assert_eq!(
            (&got["id"], got["history"].as_array().map(Vec::len)),
            (&sent["task"]["id"], Some(1)),
            "{got}"
        );
        let listed = nuncio(&["task", "list", "--status", "completed", "-o", "json"]).exits(0).json();
        assert!(
            listed["tasks"].as_array().unwrap().iter().any(|one| one["id"] == task),
            "{binding}: {listed}"
        );
        let events =
            nuncio(&["send", "go", "--agent", "long_running_agent", "--stream", "-o", "json"]).exits(0);
        let events = events.json_lines();
        assert!(events.len() > 50, "{binding}: {}", events.len());
        let last = &events.last().unwrap()["statusUpdate"]["status"]["state"];
        assert_eq!(*last, "TASK_STATE_COMPLETED", "{binding}");
        let asked = nuncio(&["send", "Rome", "--agent", "travel_agent", "-o", "json"]).exits(0).json();
        let waiting = asked["task"]["id"].as_str().unwrap();
        let hook = ["--url", "http://127.0.0.1:9/", "--id", "one", "--agent", "travel_agent"];
        nuncio(&[&["task", "push-config", "set", waiting][..], &hook].concat()).exits(0);
        let one = ["one", "--agent", "travel_agent"];
        assert_eq!(
            nuncio(&[&["task", "push-config", "get", waiting][..], &one].concat()).exits(0).field("Id"),
            "one"
        );
        nuncio(&[&["task", "push-config", "delete", waiting][..], &one].concat()).exits(0);
        let listed = nuncio(&["task", "push-config", "list", waiting, "--agent", "travel_agent"]).exits(0);
        assert_eq!(listed.field("Total"), "0", "{binding}");
        let canceled = nuncio(&["task", "cancel", waiting, "--agent", "travel_agent"]).exits(0);
        assert_eq!(canceled.field("State"), "canceled", "{binding}");
        let again =
            nuncio(&["task", "cancel", waiting, "--agent", "travel_agent", "-o", "json"]).exits(1).json();
        assert_eq!(again["error"]["code"], "TaskNotCancelableError", "{binding}: {again}");
        let absent = nuncio(&["task", "get", "absent", "-o", "json"]).exits(1).json();
        assert_eq!(absent["error"]["code"], "TaskNotFoundError", "{binding}: {absent}");
        let checked = nuncio(&["conformance", "-o", "json"]).exits(0).json();
        assert_eq!(checked["failed"], 0, "{binding}: {checked}");
    }
}
