//! HTTP/2 with prior knowledge on the same port: every request works as over HTTP/1, many at once, and the
//! protocol's own ways to make work for nothing are bounded.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    client::{self, SendRequest},
};
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

use crate::{
    site::{Site, message, request},
    socket::within,
};

const SHORT: Duration = Duration::from_millis(200);

/// A client's connection; its end as the client sees it.
struct Connection {
    requests: SendRequest<Bytes>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

async fn connect(site: &Site) -> Connection {
    let stream = TcpStream::connect(site.address).await.unwrap();
    let (requests, connection) = client::handshake(stream).await.unwrap();
    Connection { requests, ended: tokio::spawn(connection) }
}

/// A request to a host, with the body where it has one.
fn ask(method: Method, host: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("http://{host}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

impl Connection {
    async fn begin(&mut self, asked: Request<()>, body: Option<String>) -> Response<RecvStream> {
        let mut ready = within("a free stream", self.requests.clone().ready()).await.unwrap();
        let (answer, mut sending) = ready.send_request(asked, body.is_none()).unwrap();
        if let Some(body) = body {
            sending.send_data(body.into(), true).unwrap();
        }
        within("an answer", answer).await.unwrap()
    }

    async fn get(&mut self, path: &str) -> (u16, Value) {
        let answer = self.begin(ask(Method::GET, "localhost", path, &[]), None).await;
        read(answer).await
    }

    async fn call(&mut self, method: &str, params: &Value) -> Response<RecvStream> {
        let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
        self.begin(ask(Method::POST, "localhost", "/", &headers), Some(request(method, params))).await
    }
}

async fn read(answer: Response<RecvStream>) -> (u16, Value) {
    let (head, mut body) = answer.into_parts();
    let mut whole = vec![];
    while let Some(piece) = within("a piece", body.data()).await {
        let piece = piece.unwrap();
        let _ = body.flow_control().release_capacity(piece.len());
        whole.extend_from_slice(&piece);
    }
    (head.status.as_u16(), serde_json::from_slice(&whole).unwrap_or_default())
}

#[tokio::test]
async fn requests_are_answered_as_over_http_1_and_many_at_once_on_one_connection() {
    let site = Site::new().await;
    let mut connection = connect(&site).await;
    let (status, card) = connection.get("/.well-known/agent-card.json").await;
    assert_eq!((status, &card["name"]), (200, &json!("actor")));
    // Streams stay open while other requests are answered.
    let mut streams = vec![];
    for _ in 0..20 {
        let params = json!({ "message": message("wait") });
        let answer = connection.call("SendStreamingMessage", &params).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert!(!answer.headers().contains_key("transfer-encoding"));
        streams.push(answer.into_body());
    }
    for stream in &mut streams {
        let first = within("the first event", stream.data()).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("\"task\""), "{first:?}");
    }
    let (status, answer) = read(connection.call("ListTasks", &json!({ "pageSize": 1 })).await).await;
    assert_eq!((status, &answer["result"]["totalSize"]), (200, &json!(20)));
}

#[tokio::test]
async fn the_authority_of_a_request_is_its_host() {
    let site = Site::new().await;
    let mut connection = connect(&site).await;
    let asked = ask(Method::GET, "evil.example", "/.well-known/agent-card.json", &[]);
    let (status, _) = read(connection.begin(asked, None).await).await;
    assert_eq!(status, 403);
    // A header that says otherwise does not help.
    let asked = ask(Method::GET, "evil.example", "/.well-known/agent-card.json", &[("host", "localhost")]);
    let (status, _) = read(connection.begin(asked, None).await).await;
    assert_eq!(status, 403);
    let asked = ask(Method::GET, "localhost", "/healthz", &[("origin", "http://evil.example")]);
    let (status, _) = read(connection.begin(asked, None).await).await;
    assert_eq!(status, 403);
    assert_eq!(connection.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431_and_the_connection_goes_on() {
    let site = Site::with(|setup| {
        setup.server.limits.max_headers = 20;
        setup.server.limits.max_header_bytes = 16 * 1024;
    })
    .await;
    let mut connection = connect(&site).await;
    let names: Vec<String> = (0..21).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "y")).collect();
    let status = read(connection.begin(ask(Method::GET, "localhost", "/healthz", &many), None).await).await.0;
    assert_eq!(status, 431);
    let large = "y".repeat(20_000);
    let asked = ask(Method::GET, "localhost", "/healthz", &[("x", &large)]);
    assert_eq!(read(connection.begin(asked, None).await).await.0, 431);
    assert_eq!(connection.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn one_connection_has_as_many_requests_at_once_as_it_may() {
    let site = Site::with(|setup| setup.server.limits.max_requests_per_connection = 3).await;
    let mut connection = connect(&site).await;
    assert_eq!(connection.get("/healthz").await.0, 200);
    let mut streams = vec![];
    for _ in 0..3 {
        let params = json!({ "message": message("wait") });
        streams.push(connection.call("SendStreamingMessage", &params).await);
    }
    let waiting = tokio::time::timeout(SHORT, connection.requests.clone().ready()).await;
    let mut ready = match waiting {
        Ok(ready) => ready.unwrap(),
        Err(_) => connection.requests.clone(),
    };
    // A fourth one waits in the client until one of the three has ended.
    let fourth = ready.send_request(ask(Method::GET, "localhost", "/healthz", &[]), true);
    let (mut fourth, _) = fourth.unwrap();
    assert!(tokio::time::timeout(SHORT, &mut fourth).await.is_err());
    drop(streams.pop());
    assert_eq!(within("the fourth", fourth).await.unwrap().status(), 200);
}

/// Each stream is opened and reset at once: the server would work for nothing, faster than the limit of concurrent
/// streams notices.
#[tokio::test]
async fn a_client_that_resets_all_it_begins_is_sent_away() {
    let site = Site::new().await;
    let connection = connect(&site).await;
    let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
    let began = Instant::now();
    let mut sent = 0;
    while sent < 10_000 && began.elapsed() < Duration::from_secs(20) {
        let Ok(mut ready) = connection.requests.clone().ready().await else { break };
        let Ok((_answer, mut sending)) =
            ready.send_request(ask(Method::POST, "localhost", "/", &headers), false)
        else {
            break;
        };
        sending.send_reset(Reason::CANCEL);
        sent += 1;
        if sent % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let ended = within("its end", connection.ended).await.unwrap();
    let reason = ended.expect_err("it was sent away").reason();
    assert_eq!(reason, Some(Reason::ENHANCE_YOUR_CALM), "after {sent}");
    assert_eq!(connect(&site).await.get("/healthz").await.0, 200);
}

/// A head in endless pieces that never ends.
#[tokio::test]
async fn a_flood_of_continuations_ends_the_connection() {
    let site = Site::new().await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let frame = |length: usize, kind: u8, flags: u8, id: u32| {
        let mut frame = (length as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(id.to_be_bytes());
        frame.resize(frame.len() + length, 0x82);
        frame
    };
    writing.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    writing.write_all(&frame(0, 4, 0, 0)).await.unwrap();
    writing.write_all(&frame(8, 1, 0, 1)).await.unwrap();
    let flood = async {
        // 160 MiB if nobody stops it.
        for _ in 0..10_000 {
            if writing.write_all(&frame(16 * 1024, 9, 0, 1)).await.is_err() {
                return;
            }
        }
        panic!("nobody stopped it");
    };
    let drain = async {
        let mut bytes = vec![0; 4096];
        while reading.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    within("the end of a flood", async { tokio::join!(flood, drain) }).await;
    assert_eq!(connect(&site).await.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_and_one_with_a_stream_is_not() {
    let site = Site::with(|setup| setup.server.limits.header_timeout = SHORT).await;
    let began = Instant::now();
    let idle = connect(&site).await;
    within("the end of an idle connection", idle.ended).await.unwrap().unwrap();
    assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    let mut busy = connect(&site).await;
    let params = json!({ "message": message("wait") });
    let mut stream = busy.call("SendStreamingMessage", &params).await.into_body();
    within("the first event", stream.data()).await.unwrap().unwrap();
    tokio::time::sleep(SHORT * 3).await;
    assert!(!busy.ended.is_finished());
    assert_eq!(busy.get("/healthz").await.0, 200);
    // A preface that does not come in full ends as a head does.
    let mut half = TcpStream::connect(site.address).await.unwrap();
    half.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    assert_eq!(within("the end of half a preface", half.read(&mut [0; 8])).await.unwrap(), 0);
}
