//! The client for the tools of one server: what it sends, and what each answer means to its caller.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Response},
};
use nuncio_client::mcp::{
    ToolChange, ToolClient, ToolError, ToolOptions, ToolStart, ToolSubscription, ToolTaskStatus,
};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

type Received = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// An answer: its status, its content type, and its body, in which `ID` stands for the id of the request.
#[derive(Clone, Copy)]
struct Scripted(u16, &'static str, &'static str);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A server that answers every request in the same way.
async fn serve(scripted: Scripted) -> (String, Received) {
    let received = Received::default();
    let seen = Arc::clone(&received);
    let answer = move |headers: HeaderMap, body: Bytes| {
        let seen = Arc::clone(&seen);
        async move {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let Scripted(status, kind, text) = scripted;
            let text = text.replace("ID", &body["id"].to_string());
            seen.lock().unwrap().push((headers, body));
            let answer = Response::builder().status(status).header("content-type", kind);
            answer.header("retry-after", "3").body(Body::from(text)).unwrap()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    (url, received)
}

fn client(url: &str, bearer: Option<&str>) -> ToolClient {
    let options = ToolOptions {
        bearer: bearer.map(str::to_owned),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..ToolOptions::default()
    };
    ToolClient::new(url, options).unwrap()
}

#[tokio::test]
async fn every_request_says_who_asks_and_repeats_itself_in_headers() {
    let done = r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}],
        "structuredContent":{"n":1},"contents":[{"uri":"a:b","text":"{\"m\":2}"}],"taskId":"t","status":"working"}}"#;
    let (url, received) = serve(Scripted(200, JSON, done)).await;
    let client = client(&url, Some("secret"));
    let answer = client.call("look", json!({ "a": 1 })).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.structured), ("hi", Some(json!({ "n": 1 }))));
    assert!(matches!(client.start("look", json!({})).await.unwrap(), ToolStart::Done(_)));
    assert_eq!(client.read_json("memory://data/a/ü").await.unwrap(), json!({ "m": 2 }));
    let task = client.task("t").await.unwrap();
    assert_eq!((task.id.as_str(), task.status), ("t", ToolTaskStatus::Working));
    client.answer("t", Map::from_iter([("q".to_owned(), json!({ "action": "accept" }))])).await.unwrap();

    let received = received.lock().unwrap();
    let methods: Vec<&str> = received.iter().map(|(_, body)| body["method"].as_str().unwrap()).collect();
    assert_eq!(
        methods,
        ["tools/call", "tools/call", "resources/read", "tasks/get", "tasks/update"],
        "no handshake"
    );
    let names = ["look", "look", "=?base64?bWVtb3J5Oi8vZGF0YS9hL8O8?=", "t", "t"];
    for ((headers, body), name) in received.iter().zip(names) {
        let method = body["method"].as_str().unwrap();
        assert_eq!(headers["mcp-method"], method);
        assert_eq!(headers["mcp-name"], name);
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
        assert_eq!(headers["authorization"], "Bearer secret");
        let meta = &body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert!(meta["traceparent"].as_str().unwrap().starts_with("00-0af7"), "{meta}");
    }
    let declared =
        |at: usize| &received[at].1["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(declared(0), &json!({}), "a call that waits declares nothing, so that it becomes no task");
    let tasks =
        json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!((declared(1), declared(3)), (&tasks, &tasks));
    assert_eq!(received[4].1["params"]["inputResponses"], json!({ "q": { "action": "accept" } }));
}

#[tokio::test]
async fn each_failure_is_a_case_of_its_own() {
    let check = async |scripted: Scripted, bearer: Option<&str>, expected: &str| {
        let (url, _) = serve(scripted).await;
        let error = client(&url, bearer).call("t", json!({})).await.unwrap_err();
        let said = match &error {
            ToolError::Unauthorized { status, supplied, why, .. } => format!("{status} {supplied} {why}"),
            ToolError::TooFast { why, retry_after } => format!("too fast: {why} {retry_after:?}"),
            ToolError::Http { status, why, .. } => format!("http {status} {why}"),
            ToolError::Rpc(error) => format!("rpc {} {}", error.code, error.message),
            ToolError::Tool { why, structured } => format!("tool {why} {structured:?}"),
            ToolError::Cut { why, .. } => format!("cut: {why}"),
            other => other.to_string(),
        };
        assert!(said.contains(expected), "{said}");
        assert!(!error.to_string().contains("HTTP 401: HTTP"), "{error}");
        error
    };
    let refused = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":"who are you?"}}"#;
    check(Scripted(401, JSON, refused), None, "401 false who are you?").await;
    check(Scripted(401, JSON, refused), Some("t"), "401 true who are you?").await;
    check(Scripted(403, JSON, refused), Some("t"), "403 true who are you?").await;
    let busy =
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32029,"message":"slowly","data":{"retryAfterMs":250}}}"#;
    let error = check(Scripted(429, JSON, busy), None, "too fast: slowly Some(250ms)").await;
    assert!(error.is_transient());
    assert!(check(Scripted(503, JSON, "later"), None, "Some(3s)").await.is_transient());
    assert!(
        check(Scripted(502, "text/html", "<p>bad gateway"), None, "http 502 <p>bad").await.is_transient()
    );
    assert!(!check(Scripted(404, "text/html", "nothing"), None, "http 404 nothing").await.is_transient());
    let invalid = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"a: missing"}}"#;
    check(Scripted(200, JSON, invalid), None, "rpc -32602 a: missing").await;
    check(Scripted(400, JSON, invalid), None, "rpc -32602 a: missing").await;
    let failed =
        r#"{"jsonrpc":"2.0","id":ID,"result":{"isError":true,"content":[{"type":"text","text":"no"}]}}"#;
    check(Scripted(200, JSON, failed), None, "tool no None").await;
    check(Scripted(200, JSON, "hello"), None, "the server's answer is malformed").await;
    let task = r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"task","taskId":"t","status":"working"}}"#;
    check(Scripted(200, JSON, task), None, "a task that was not requested").await;
    check(Scripted(200, EVENTS, ": nothing\n\n"), None, "cut: ").await;
    let nobody = client("http://127.0.0.1:1/mcp", None).call("t", json!({})).await.unwrap_err();
    assert!(matches!(&nobody, ToolError::Unreachable { .. }) && nobody.is_transient(), "{nobody}");
    let setup = ToolOptions { bearer: Some("a\nb".into()), ..ToolOptions::default() };
    assert!(matches!(ToolClient::new("http://127.0.0.1:1/mcp", setup), Err(ToolError::Setup(_))));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_waited_for_as_long_as_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let limit = Duration::from_millis(100);
    let options = ToolOptions { answer_timeout: limit, ..ToolOptions::default() };
    let error = ToolClient::new(&url, options).unwrap().call("t", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::Timeout { limit: waited, .. } if waited == limit), "{error}");
}

#[tokio::test]
async fn changes_are_followed_to_the_end_of_their_stream() {
    let stream = concat!(
        "data: {\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{\"taskIds\":[\"t\"]}}}\n\n",
        "data: {\"method\":\"notifications/dev.nuncio/event\",\"params\":{\"taskId\":\"t\",\"seq\":8,\"event\":{}}}\n\n",
        "data: {\"method\":\"notifications/tasks\",\"params\":{\"taskId\":\"t\",\"status\":\"cancelled\"}}\n\n",
        "data: {\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"a:b\"}}\n\n",
        "data: {\"id\":ID,\"result\":{\"resultType\":\"complete\"}}\n\n",
    );
    let (url, received) = serve(Scripted(200, EVENTS, stream)).await;
    let client = client(&url, None);
    let wanted = ToolSubscription { task: Some(("t".into(), 7)), resources: vec!["a:b".into()] };
    let mut changes = client.subscribe(&wanted).await.unwrap();
    let acknowledged = ToolChange::Acknowledged { tasks: vec!["t".into()], resources: vec![] };
    assert_eq!(changes.next().await.unwrap(), Some(acknowledged));
    assert_eq!(changes.next().await.unwrap(), Some(ToolChange::Event(8)));
    assert!(matches!(changes.next().await.unwrap(), Some(ToolChange::Task(task)) if task.is_over()));
    assert_eq!(changes.next().await.unwrap(), Some(ToolChange::Resource("a:b".into())));
    assert_eq!(changes.next().await.unwrap(), None);
    assert_eq!(changes.next().await.unwrap(), None, "and it stays over");
    let params = received.lock().unwrap()[0].1["params"].clone();
    assert_eq!(params["notifications"], json!({ "resourceSubscriptions": ["a:b"], "taskIds": ["t"] }));
    assert_eq!(params["_meta"]["dev.nuncio/events"], json!({ "t": 7 }));

    let (url, _) = serve(Scripted(200, EVENTS, "data: {\"method\":\"notifications/tasks\"}\n\n")).await;
    let mut lying = self::client(&url, None).subscribe(&wanted).await.unwrap();
    assert!(matches!(lying.next().await, Err(ToolError::Malformed(_))));
    let (url, _) = serve(Scripted(200, EVENTS, ": nothing\n\n")).await;
    let mut cut = self::client(&url, None).subscribe(&wanted).await.unwrap();
    assert!(matches!(cut.next().await, Err(ToolError::Cut { .. })));
}
