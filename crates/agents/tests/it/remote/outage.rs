//! How long a configured agent waits for a peer that cannot be reached: as long as its table allows, once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Method, Uri},
    response::Response,
};
use futures_util::{StreamExt as _, stream};
use nuncio_engine::{Event, Part, State, Task};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime, sync::watch};

use super::until;
use crate::{
    program::{agent, extend},
    server::{Server, ending, submit},
};

/// `away` and `patience` of every table here.
const LIMIT: Duration = Duration::from_secs(2);
/// The longest that a task may go on after its peer became unreachable: the limit, and a loaded machine.
const LATEST: Duration = Duration::from_secs(8);
/// When a test gives up.
const DEADLINE: Duration = Duration::from_secs(20);

/// What kind of peer it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Speaks {
    /// A2A 1.0 with streams.
    A2a,
    /// The same, with the cursor extension.
    A2aCursors,
    /// A2A 1.0 without streams: the task is polled.
    A2aPolled,
    /// MCP 2025-11-25: a stream with event ids.
    McpStream,
    /// MCP 2026-07-28: the call becomes a task, which asks to be polled once a minute.
    McpTask,
}

const ALL: [Speaks; 5] =
    [Speaks::A2a, Speaks::A2aCursors, Speaks::A2aPolled, Speaks::McpStream, Speaks::McpTask];

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Well,
    /// Its streams are cut, and no request is answered any more.
    Hangs,
    /// Its streams are cut, and every request gets this status.
    Answers(u16),
    /// Its streams are cut, and every request is to be sent again in a second.
    Busy,
    /// The work is done.
    Done,
}

struct Shared {
    speaks: Speaks,
    mood: watch::Sender<Mood>,
    /// How many calls were begun.
    calls: AtomicUsize,
    /// Requests after the mood changed.
    retries: AtomicUsize,
}

/// A peer in a runtime of its own, so that it can die with all its connections.
struct MortalPeer {
    runtime: Option<runtime::Runtime>,
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
}

impl MortalPeer {
    async fn start(speaks: Speaks) -> Self {
        let shared = Arc::new(Shared {
            speaks,
            mood: watch::Sender::new(Mood::Well),
            calls: AtomicUsize::new(0),
            retries: AtomicUsize::new(0),
        });
        let mut peer = Self { runtime: None, shared, address: ([127, 0, 0, 1], 0).into() };
        peer.rise().await;
        peer
    }

    /// Listens, at the address that it had before.
    async fn rise(&mut self) {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (shared, address) = (Arc::clone(&self.shared), self.address);
        let listening = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap();
            let answer = move |verb: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                respond(Arc::clone(&shared), address, verb, uri, headers, body)
            };
            tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
            address
        });
        self.address = listening.await.unwrap();
        self.runtime = Some(runtime);
    }

    fn die(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    fn turn(&self, mood: Mood) {
        self.shared.mood.send_replace(mood);
    }

    fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// A server with an agent for this peer.
    async fn server(&self, keys: Value) -> Server {
        let (kind, path) = match self.shared.speaks {
            Speaks::McpStream | Speaks::McpTask => ("mcp", "mcp"),
            _ => ("a2a", ""),
        };
        let url = format!("http://{}/{path}", self.address);
        let mut table = json!({ "name": "far", "kind": kind, "url": url, "away": "2s", "patience": "2s", "lost": "again" });
        extend(&mut table, keys);
        Server::with(vec![agent(table)]).await
    }

    /// A task that works at the peer, after its first sign of life.
    async fn working(&self, server: &Server) -> Task {
        let task = server.submit(submit("far", Part::text("go"))).await;
        server.log_until(&task, |event| matches!(event, Event::Progress(_) | Event::Log(_))).await;
        until(|| self.calls() == 1).await;
        task
    }
}

impl Drop for MortalPeer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn respond(
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    verb: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mood = *shared.mood.borrow();
    if mood != Mood::Well {
        shared.retries.fetch_add(1, Ordering::SeqCst);
    }
    match mood {
        Mood::Hangs => return std::future::pending().await,
        Mood::Answers(status) => return whole(status, &json!({})),
        Mood::Busy => {
            let mut response = whole(429, &json!({}));
            response.headers_mut().insert("retry-after", "1".parse().unwrap());
            return response;
        }
        Mood::Well | Mood::Done => {}
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match shared.speaks {
        Speaks::McpStream | Speaks::McpTask => mcp(&shared, mood, &verb, &headers, &body),
        _ => a2a(&shared, mood, address, &uri, &body),
    }
}

fn whole(status: u16, body: &Value) -> Response {
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(Body::from(body.to_string())).unwrap()
}

/// These events, then nothing until the peer's mood changes: that cuts the stream.
fn streamed(shared: &Shared, events: &[(u32, Value)]) -> Response {
    let text: String = events.iter().map(|(id, data)| format!("id: {id}\ndata: {data}\n\n")).collect();
    let mut mood = shared.mood.subscribe();
    let cut = stream::once(async move {
        let _ = mood.wait_for(|mood| matches!(mood, Mood::Hangs | Mood::Answers(_) | Mood::Busy)).await;
        Err(std::io::Error::other("cut"))
    });
    let body = Body::from_stream(stream::iter([Ok(Bytes::from(text))]).chain(cut));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

fn a2a(shared: &Shared, mood: Mood, address: std::net::SocketAddr, uri: &Uri, body: &Value) -> Response {
    let (cursors, streams) = (shared.speaks == Speaks::A2aCursors, shared.speaks != Speaks::A2aPolled);
    if uri.path() == "/.well-known/agent-card.json" {
        let extensions: Vec<_> =
            cursors.then(|| json!({ "uri": nuncio_wire::a2a::card::CURSOR_EXTENSION })).into_iter().collect();
        let interface = json!({
            "url": format!("http://{address}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0",
        });
        return whole(
            200,
            &json!({
                "name": "far", "description": "Elsewhere.", "skills": [], "supportedInterfaces": [interface],
                "capabilities": { "streaming": streams, "extensions": extensions },
            }),
        );
    }
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": body["id"], "result": result });
    let says = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "at it" }] });
    let state = if mood == Mood::Done { "TASK_STATE_COMPLETED" } else { "TASK_STATE_WORKING" };
    let status = json!({ "state": state, "message": says });
    let task = json!({ "id": "t", "contextId": "c", "status": status });
    let update = json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": status } });
    match body["method"].as_str().unwrap_or_default() {
        "SendStreamingMessage" => {
            shared.calls.fetch_add(1, Ordering::SeqCst);
            streamed(shared, &[(1, result(json!({ "task": task }))), (2, result(update))])
        }
        "SendMessage" => {
            shared.calls.fetch_add(1, Ordering::SeqCst);
            whole(200, &result(json!({ "task": task })))
        }
        "SubscribeToTask" => streamed(shared, &[(3, result(update))]),
        _ => whole(200, &result(task)),
    }
}

fn mcp(shared: &Shared, mood: Mood, verb: &Method, headers: &HeaderMap, body: &Value) -> Response {
    let answer = |result: Value| whole(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }));
    let log = json!({
        "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "warning", "data": "at it" },
    });
    let content = json!([{ "type": "text", "text": "done" }]);
    let task = |status: &str| {
        json!({
            "resultType": "task", "taskId": "t", "status": status, "statusMessage": "at it", "ttlMs": null,
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
            "pollIntervalMs": 60_000, "result": { "content": content },
        })
    };
    let stateless = shared.speaks == Speaks::McpTask;
    match (verb.as_str(), body["method"].as_str().unwrap_or_default()) {
        ("POST", "server/discover") if stateless => answer(json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        })),
        ("POST", "initialize") if !stateless => {
            let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {} });
            let mut response = answer(about);
            response.headers_mut().insert("mcp-session-id", "s".parse().unwrap());
            response
        }
        ("POST", "tools/list") => {
            let annotations = json!({ "idempotentHint": true });
            let tool =
                json!({ "name": "t", "inputSchema": { "type": "object" }, "annotations": annotations });
            answer(json!({ "tools": [tool] }))
        }
        ("POST", "tools/call") => {
            shared.calls.fetch_add(1, Ordering::SeqCst);
            if stateless { answer(task("working")) } else { streamed(shared, &[(1, log)]) }
        }
        ("POST", "tasks/get") => answer(task(if mood == Mood::Done { "completed" } else { "working" })),
        ("POST", "subscriptions/listen") => {
            let acknowledged = json!({
                "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": { "taskIds": ["t"] } },
            });
            streamed(shared, &[(1, acknowledged)])
        }
        ("GET", _) if headers.contains_key("last-event-id") && mood == Mood::Done => {
            // The first request of a session after its handshake and its list of tools is the call.
            let answers: Vec<_> = (0..20)
                .map(|id| (2, json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } })))
                .collect();
            streamed(shared, &answers)
        }
        ("POST", "notifications/initialized") => whole(202, &json!({})),
        ("POST", _) => whole(400, &json!({})),
        _ => whole(405, &json!({})),
    }
}

/// Waits for the end of a task whose peer has just become unreachable, and checks how long that took.
async fn ends_in_time(server: &Server, task: Task, since: Instant, what: &str) -> Task {
    let ended = tokio::time::timeout(DEADLINE, server.settle(task)).await;
    let took = since.elapsed();
    let Ok(task) = ended else { panic!("{what}: the task still waits after {took:?}") };
    let (state, words, _) = ending(&task);
    assert_eq!(state, State::Failed, "{what}: {words}");
    assert!(took < LATEST, "{what}: {took:?}: {words}");
    task
}

#[tokio::test]
async fn a_running_call_of_a_dead_peer_fails_when_away_has_passed() {
    let each = ALL.map(|speaks| async move {
        let mut peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({})).await;
        let task = peer.working(&server).await;
        peer.die();
        let since = Instant::now();
        let task = ends_in_time(&server, task, since, &format!("{speaks:?} died")).await;
        assert!(since.elapsed() >= LIMIT, "{speaks:?}: it was given up too early");
        let (_, words, _) = ending(&task);
        assert!(words.contains("has been unreachable for"), "{speaks:?}: {words}");
        // The work was begun: no other agent may take it over as if it had not been.
        assert!(!task.is_unreachable(), "{speaks:?}: {words}");
        assert_eq!(peer.calls(), 1, "{speaks:?}");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_running_call_of_a_peer_that_hangs_fails_when_away_has_passed() {
    let each = ALL.map(|speaks| async move {
        let peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({})).await;
        let task = peer.working(&server).await;
        peer.turn(Mood::Hangs);
        let task = ends_in_time(&server, task, Instant::now(), &format!("{speaks:?} hangs")).await;
        assert_eq!(peer.calls(), 1, "{speaks:?}: {:?}", ending(&task));
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_running_call_behind_a_proxy_that_answers_502_fails_when_away_has_passed() {
    let each = ALL.map(|speaks| async move {
        let peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({})).await;
        let task = peer.working(&server).await;
        peer.turn(Mood::Answers(502));
        let task = ends_in_time(&server, task, Instant::now(), &format!("{speaks:?} 502")).await;
        assert!(peer.shared.retries.load(Ordering::SeqCst) > 2, "{speaks:?}: {:?}", ending(&task));
        assert_eq!(peer.calls(), 1, "{speaks:?}: {:?}", ending(&task));
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_busy_peer_of_a_running_call_is_asked_when_it_said_and_no_longer_than_away() {
    let each = ALL.map(|speaks| async move {
        let peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({})).await;
        let task = peer.working(&server).await;
        peer.turn(Mood::Busy);
        let task = ends_in_time(&server, task, Instant::now(), &format!("{speaks:?} busy")).await;
        // At once, after a second, and when the time is over; the backoff alone would ask more often.
        let retries = peer.shared.retries.load(Ordering::SeqCst);
        assert!((2..=4).contains(&retries), "{speaks:?}: {retries} requests: {:?}", ending(&task));
        assert_eq!(peer.calls(), 1, "{speaks:?}: {:?}", ending(&task));
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_call_that_is_resumed_after_a_restart_waits_no_longer_either() {
    let each = ALL.into_iter().flat_map(|speaks| [(speaks, true), (speaks, false)]);
    let each = each.map(|(speaks, dies)| async move {
        let mut peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({ "lost": "fail" })).await;
        let task = peer.working(&server).await;
        match dies {
            true => peer.die(),
            false => peer.turn(Mood::Hangs),
        }
        let server = server.restart().await;
        let since = Instant::now();
        let what = format!("{speaks:?}, a restart while the peer {}", if dies { "is dead" } else { "hangs" });
        ends_in_time(&server, task, since, &what).await;
        assert_eq!(peer.calls(), 1, "{what}");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_call_that_cannot_begin_fails_when_patience_has_passed_whatever_is_to_be_found_out_first() {
    let kinds = [Speaks::A2a, Speaks::McpStream, Speaks::McpTask];
    let each = kinds.into_iter().flat_map(|speaks| ["again", "safe", "fail"].map(|lost| (speaks, lost)));
    let each = each.map(|(speaks, lost)| async move {
        let mut peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({ "lost": lost })).await;
        peer.die();
        let since = Instant::now();
        let task = server.submit(submit("far", Part::text("go"))).await;
        let task = ends_in_time(&server, task, since, &format!("{speaks:?} {lost} begins")).await;
        assert!(since.elapsed() < LIMIT * 2, "{speaks:?} {lost}: {:?}", since.elapsed());
        assert!(task.is_unreachable(), "{speaks:?} {lost}: {:?}", ending(&task));
        assert_eq!(peer.calls(), 0);
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_call_whose_peer_comes_back_in_time_goes_on() {
    let each = ALL.map(|speaks| async move {
        let mut peer = MortalPeer::start(speaks).await;
        let server = peer.server(json!({ "away": "15s" })).await;
        let task = peer.working(&server).await;
        peer.die();
        tokio::time::sleep(Duration::from_millis(500)).await;
        peer.turn(Mood::Done);
        peer.rise().await;
        let Ok(task) = tokio::time::timeout(DEADLINE, server.settle(task)).await else {
            panic!("{speaks:?}: it still waits")
        };
        assert_eq!(task.state, State::Completed, "{speaks:?}: {:?}", ending(&task));
        assert_eq!(peer.calls(), 1, "{speaks:?}");
    });
    futures_util::future::join_all(each).await;
}
