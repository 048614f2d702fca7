//! The requests that servers get most, and what each asks of the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use nuncio_testkit::fault_injection::StoreUse;
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    server::{EVENTS, TestServer},
};

const SESSION: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// One kind of request.
pub(crate) struct HotPath {
    pub(crate) name: &'static str,
    /// What one request asks of the store.
    pub(crate) store: StoreUse,
    request: Box<dyn Fn() -> Vec<u8>>,
}

impl HotPath {
    /// A request of this kind that was not sent before.
    pub(crate) fn request(&self) -> Vec<u8> {
        (self.request)()
    }
}

/// All of them, ready to be sent over this connection.
pub(crate) fn hot_paths(server: &TestServer, connection: &mut Connection) -> Vec<HotPath> {
    let to = connection.address;
    let a2a = move |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        post(&to.to_string(), "/", &[("a2a-version", "1.0")], &body)
    };
    let send = move || a2a("SendMessage", json!({ "message": message("Hello, how are you?") }));
    let sent: Value = serde_json::from_str(connection.exchange(&send()).1).unwrap();
    let id = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    let session = begin_session(connection);
    let in_session = move |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        let headers = [("mcp-session-id", &*session), ("mcp-protocol-version", SESSION)];
        mcp(&to.to_string(), &headers, "tools/call", &params)
    };
    let stateless = move |method: &str, named: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = params[named].as_str().unwrap().to_owned();
        let headers = [("mcp-protocol-version", STATELESS), ("mcp-method", method), ("mcp-name", &name)];
        mcp(&to.to_string(), &headers, method, &params)
    };
    let call = move |name: &str, arguments: Value| {
        stateless("tools/call", "name", json!({ "name": name, "arguments": arguments }))
    };
    let read = move |uri: &str| stateless("resources/read", "uri", json!({ "uri": uri }));
    for n in 0..100 {
        let entry = json!({ "namespace": "counts", "key": format!("key-{n}"), "value": { "n": n } });
        connection.expect(&call("memory_store", entry));
    }
    let stream = move |events: usize| {
        talker(&to.to_string(), "SendStreamingMessage", &json!({ "message": message(&events.to_string()) }))
    };
    let text = json!({ "text": "Hello, how are you?" });
    let (words, more, other) = (text.clone(), text.clone(), text);
    let commits = |commits: u64| StoreUse { commits, ..StoreUse::default() };
    // The task, the step, and the end with all events.
    let stepwise = StoreUse { commits: 3, children: 1, ..StoreUse::default() };
    let nothing = StoreUse::default();
    server.wait_until_idle();
    let path = |name: &'static str, store: StoreUse, request: Box<dyn Fn() -> Vec<u8>>| HotPath {
        name,
        store,
        request,
    };
    vec![
        path("A2A send", commits(1), Box::new(send)),
        path("A2A get", nothing, Box::new(move || a2a("GetTask", json!({ "id": id })))),
        path(
            "A2A list of 20",
            StoreUse { lists: 1, logs: 40, ..nothing },
            Box::new(move || a2a("ListTasks", json!({ "pageSize": 20 }))),
        ),
        path("A2A stream without events", stepwise, Box::new(move || stream(0))),
        path("A2A stream of 100 events", stepwise, Box::new(move || stream(EVENTS))),
        path("MCP durable call, session", commits(1), Box::new(move || in_session("echo", words.clone()))),
        path("MCP durable call, stateless", commits(1), Box::new(move || call("echo", more.clone()))),
        path("MCP plain call", nothing, Box::new(move || call("plain", other.clone()))),
        path(
            "memory_store",
            nothing,
            Box::new(move || {
                call(
                    "memory_store",
                    json!({ "namespace": "counts", "key": "key-7", "value": { "n": unique() } }),
                )
            }),
        ),
        path(
            "memory_get",
            nothing,
            Box::new(move || call("memory_get", json!({ "namespace": "counts", "key": "key-7" }))),
        ),
        path("memory keys page", nothing, Box::new(move || read("memory://namespace/counts/keys"))),
        path("memory data", nothing, Box::new(move || read("memory://data/counts/key-7"))),
    ]
}

/// A send that does not wait: to an agent that does not end at once.
pub(crate) fn send_and_leave(connection: &Connection) -> Vec<u8> {
    let params = json!({ "message": message("0"), "configuration": { "returnImmediately": true } });
    talker(&connection.address.to_string(), "SendMessage", &params)
}

fn talker(to: &str, method: &str, params: &Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    post(to, "/agents/talker", &[("a2a-version", "1.0")], &body)
}

fn begin_session(connection: &mut Connection) -> String {
    let to = connection.address.to_string();
    let client = json!({ "name": "counts", "version": "1" });
    let params = json!({ "protocolVersion": SESSION, "capabilities": {}, "clientInfo": client });
    let (head, _) = connection.exchange(&mcp(&to, &[], "initialize", &params));
    let found = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = found.expect("a session").to_owned();
    let headers = [("mcp-session-id", &*session), ("mcp-protocol-version", SESSION)];
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    connection.expect(&post(&to, "/mcp", &headers, &begun));
    session
}

fn mcp(to: &str, headers: &[(&str, &str)], method: &str, params: &Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": unique(), "method": method, "params": params });
    post(to, "/mcp", headers, &body)
}

fn message(text: &str) -> Value {
    json!({ "messageId": format!("m-{}", unique()), "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A number that was not used before, of always as many digits.
fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(100_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn post(to: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(&body);
    request.into_bytes()
}
