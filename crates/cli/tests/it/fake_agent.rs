//! An agent that does what a test tells it, also what no good agent does.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

/// A request as the agent got it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) headers: HeaderMap,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What the agent answers.
pub(crate) enum Reply {
    /// A result.
    Result(Value),
    /// An error of the protocol.
    Error(i64, &'static str),
    /// Events with their ids; then the connection ends.
    Stream(Vec<(u64, Value)>),
    /// No answer of the protocol.
    Status(u16),
}

pub(crate) struct FakeAgent {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FakeAgent {
    /// Starts one; it lives as long as the test's process. `card` is merged into a card that would do.
    pub(crate) fn start(card: Value, reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let card = merged(&url, card).to_string();
        let (reply, seen) = (Arc::new(reply), Arc::clone(&asked));
        let app = Router::new().route("/.well-known/agent-card.json", get(async move || card.clone())).route(
            "/rpc",
            post(async move |headers: HeaderMap, body: Bytes| {
                let request: Value = serde_json::from_slice(&body).unwrap();
                let method = request["method"].as_str().unwrap().to_owned();
                let asked = Asked { method, params: request["params"].clone(), headers };
                seen.lock().unwrap().push(asked.clone());
                respond(&request["id"], reply(&asked))
            }),
        );
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app).await.unwrap();
            });
        });
        Self { url, asked }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn merged(url: &str, card: Value) -> Value {
    let mut merged = json!({
        "name": "fake", "description": "A fake.", "version": "1", "skills": [],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "supportedInterfaces": [
            { "url": format!("{url}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        ],
        "capabilities": { "streaming": true },
    });
    let Value::Object(card) = card else { return merged };
    for (key, value) in card {
        merged[&key] = value;
    }
    merged
}

fn respond(id: &Value, reply: Reply) -> Response<Body> {
    let answer = |body: Value| {
        Response::builder().header("content-type", "application/json").body(body.to_string().into())
    };
    let response = match reply {
        Reply::Result(result) => answer(json!({ "jsonrpc": "2.0", "id": id, "result": result })),
        Reply::Error(code, message) => {
            answer(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
        }
        Reply::Stream(events) => {
            let frame = |(seq, event): &(u64, Value)| {
                format!("id: {seq}\ndata: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": event }))
            };
            let body: String = events.iter().map(frame).collect();
            Response::builder().header("content-type", "text/event-stream").body(body.into())
        }
        Reply::Status(status) => Response::builder().status(status).body("no".into()),
    };
    response.unwrap()
}

/// A task in a state, as the wire has it.
pub(crate) fn task(state: &str) -> Value {
    json!({ "id": "t1", "contextId": "c1", "status": { "state": format!("TASK_STATE_{state}") } })
}

/// A change of that task's state, as an item of a stream.
pub(crate) fn status(state: &str) -> Value {
    json!({ "statusUpdate": { "taskId": "t1", "contextId": "c1", "status": { "state": format!("TASK_STATE_{state}") } } })
}
