//! Clients that are slow, greedy or many: each limit of `HttpLimits` does what its name says, and nobody else
//! suffers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    site::{Site, message, panics, request},
    socket::{Events, Socket, get, post, within},
};

const SHORT: Duration = Duration::from_millis(200);
const V1: (&str, &str) = ("A2A-Version", "1.0");

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let site = Site::with(|setup| setup.server.limits.header_timeout = SHORT).await;
    let beginnings = [&b""[..], b"P", b"POST / HTTP/1.1\r\nhost: localhost\r\n", b"POST / HTTP/1.1\r\nx: "];
    for beginning in beginnings {
        let started = Instant::now();
        let mut socket = site.socket().await;
        socket.send(beginning).await;
        assert!(socket.ended().await);
        assert!(started.elapsed() >= SHORT, "{:?} is too early", started.elapsed());
    }
    // One byte now and then does not help: the time is that of the whole head.
    let started = Instant::now();
    let mut socket = site.socket().await;
    let mut bytes = b"POST / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'x'));
    let dripped = async {
        loop {
            socket.send([*bytes.next().unwrap()]).await;
            if tokio::time::timeout(SHORT / 20, socket.ended()).await == Ok(true) {
                return started.elapsed();
            }
        }
    };
    let elapsed = within("the end of a slow head", dripped).await;
    assert!(elapsed >= SHORT && elapsed < SHORT * 20, "{elapsed:?}");
    // So does a connection that had a request before.
    let mut socket = site.socket().await;
    socket.send(get("/healthz", &[])).await;
    assert_eq!(socket.answer().await.status, 200);
    assert!(socket.ended().await);
    assert_eq!(site.get("/healthz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let site = Site::with(|setup| setup.server.limits.body_timeout = SHORT).await;
    let body = request("SendMessage", &json!({ "message": message("x") }));
    for sent in [0, 1, body.len() - 1] {
        let started = Instant::now();
        let mut socket = site.socket().await;
        let length = body.len().to_string();
        socket.send(post("/", &[V1, ("content-length", &length)], &body[..sent])).await;
        let answer = socket.answer().await;
        assert!(started.elapsed() >= SHORT);
        assert_eq!(answer.status, 408);
        let said = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(said.contains("200ms") && said.contains("body_timeout"), "{said}");
        assert!(socket.ended().await, "the rest of the body is not a request");
    }
    // Every chunk in time, and all of them too late.
    let mut socket = site.socket().await;
    let head = String::from_utf8(post("/", &[V1, ("transfer-encoding", "chunked")], "")).unwrap();
    socket.send(head.replace("content-length: 0\r\n", "")).await;
    let dripped = async {
        loop {
            socket.send("1\r\n \r\n").await;
            if let Ok(answer) = tokio::time::timeout(SHORT / 20, socket.try_answer()).await {
                return answer;
            }
        }
    };
    assert_eq!(within("the end of a slow body", dripped).await.unwrap().status, 408);
    assert_eq!(site.total().await, 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431() {
    let site = Site::with(|setup| {
        setup.server.limits.max_headers = 20;
        setup.server.limits.max_header_bytes = 16 * 1024;
    })
    .await;
    let fields = |count: usize| -> Vec<(String, String)> {
        (0..count).map(|n| (format!("x-{n}"), "y".to_owned())).collect()
    };
    let with = |fields: &[(String, String)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        get("/healthz", &fields)
    };
    assert_eq!(site.send(with(&fields(19))).await.status, 200);
    assert_eq!(site.send(with(&fields(20))).await.status, 431, "with Host there are 21");
    let large = |bytes: usize| with(&[("x".to_owned(), "y".repeat(bytes))]);
    assert_eq!(site.send(large(15_000)).await.status, 200);
    assert_eq!(site.send(large(20_000)).await.status, 431);
    assert_eq!(site.send(get(&format!("/{}", "x".repeat(70_000)), &[])).await.status, 431);
    assert_eq!(site.get("/healthz", &[]).await.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_cap_are_told_so() {
    let site = Site::with(|setup| setup.server.limits.max_connections = 3).await;
    let mut holders = vec![];
    for _ in 0..3 {
        let mut socket = site.socket().await;
        socket.send(get("/healthz", &[])).await;
        assert_eq!(socket.answer().await.status, 200);
        holders.push(socket);
    }
    // With a request under way, and without.
    for request in [get("/healthz", &[]), post("/", &[], " ".repeat(1 << 20)), vec![]] {
        let mut socket = site.socket().await;
        socket.send(request).await;
        let answer = socket.answer().await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        assert_eq!(answer.header("connection"), "close");
        assert!(answer.text().contains("max_connections"), "{}", answer.text());
        assert!(answer.text().ends_with('\n'), "all of it: {:?}", answer.text());
        assert!(socket.ended().await);
    }
    // Those that are in are served, and a place that is given back is taken again.
    holders[0].send(get("/healthz", &[])).await;
    assert_eq!(holders[0].answer().await.status, 200);
    drop(holders.pop());
    let taken = async {
        loop {
            if site.get("/healthz", &[]).await.status == 200 {
                return;
            }
        }
    };
    within("a free place", taken).await;
}

#[tokio::test]
async fn streams_beyond_the_cap_are_refused_and_make_no_task() {
    let site = Site::with(|setup| setup.server.limits.max_streams = 2).await;
    let mut streams = vec![];
    for _ in 0..2 {
        let mut stream =
            site.stream("1.0", "SendStreamingMessage", json!({ "message": message("wait") })).await;
        assert!(stream.next().await.is_some());
        streams.push(stream);
    }
    let task = site.begin("wait").await;
    let total = site.total().await;
    let plain = json!({ "role": "user", "messageId": "m", "parts": [{ "text": "wait" }] });
    for (version, method, params, code) in [
        ("0.1", "tasks/sendSubscribe", json!({ "id": "t", "message": plain }), -32011),
        ("0.1", "tasks/resubscribe", json!({ "id": task }), -32011),
        ("0.3", "message/stream", json!({ "message": plain }), -32603),
        ("0.3", "tasks/resubscribe", json!({ "id": task }), -32603),
        ("1.0", "SendStreamingMessage", json!({ "message": message("wait") }), -32603),
        ("1.0", "SubscribeToTask", json!({ "id": task }), -32603),
    ] {
        let body = request(method, &params);
        let answer = site.send(post("/", &[("A2A-Version", version)], body)).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{version} {method}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{version} {method}");
        assert!(error["message"].as_str().unwrap().contains("max_streams"), "{error}");
        assert_eq!(site.total().await, total, "{version} {method}: there is a task");
    }
    // Other calls go on, and a client that leaves gives its place back.
    site.result("1.0", "GetTask", json!({ "id": task })).await;
    drop(streams.pop());
    within("a free place", async {
        let subscribe = post("/", &[V1], request("SubscribeToTask", &json!({ "id": task })));
        loop {
            let mut socket = site.socket().await;
            socket.send(&subscribe).await;
            if socket.head().await.unwrap().0 == 200 {
                return;
            }
        }
    })
    .await;
    assert_eq!(panics(), 0);
}

/// 200 clients ask for a long task and never read. What the server holds for them is what it has taken out
/// of the log for each and could not send yet; the log itself is not held, and neither is anybody cut off.
///
/// The memory is that of the process, so this test has one of its own.
#[test]
fn clients_that_do_not_read_hold_little_memory() {
    const NAME: &str = "limits::clients_that_do_not_read_hold_little_memory";
    if std::env::var_os("NUNCIO_TEST_ALONE").is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env("NUNCIO_TEST_ALONE", "1")
            .status();
        assert!(alone.unwrap().success());
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(unread_streams());
}

async fn unread_streams() {
    const STREAMS: usize = 200;
    const CHUNKS: usize = 20_000;
    let site = Site::new().await;
    let sent = json!({ "message": message(&format!("chunks {CHUNKS}")) });
    let sent = site.result("1.0", "SendMessage", sent).await;
    let task = sent["task"]["id"].as_str().unwrap();
    let subscribe =
        post("/", &[V1, ("Last-Event-ID", "0")], request("SubscribeToTask", &json!({ "id": task })));
    // What a stream is when somebody reads it, to see that there is much more than is held.
    let mut whole = 0;
    let mut reader = Events::open(site.socket().await, &subscribe).await;
    while let Some((_, event)) = reader.next().await {
        whole += event.to_string().len();
    }
    assert!(whole > 4 << 20, "{whole} bytes");

    let before = resident();
    let mut idle: Vec<Socket> = vec![];
    for _ in 0..STREAMS {
        let mut socket = site.socket().await;
        socket.send(&subscribe).await;
        assert_eq!(socket.head().await.unwrap().0, 200);
        idle.push(socket);
    }
    // The kernel's buffers are full when the server has stopped reading the log for them.
    let mut last = resident();
    within("the server to come to rest", async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = resident();
            if now.abs_diff(last) < 1 << 20 {
                return;
            }
            last = now;
        }
    })
    .await;
    let each = resident().saturating_sub(before) / STREAMS;
    assert!(each < 256 * 1024, "{each} bytes for each stream that is not read");

    // Late is not lost: one of them reads after all, to the end.
    let mut late = Events::open(site.socket().await, &subscribe).await;
    let mut events = 0;
    while late.next().await.is_some() {
        events += 1;
    }
    assert_eq!(events, CHUNKS + 2, "working, the chunks, completed");
    drop(idle);
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn one_address_has_only_so_many_connections() {
    let site = Site::with(|setup| setup.server.limits.max_connections_per_address = Some(2)).await;
    let mut holders = vec![];
    for _ in 0..2 {
        let mut socket = site.socket().await;
        socket.send(get("/healthz", &[])).await;
        assert_eq!(socket.answer().await.status, 200);
        holders.push(socket);
    }
    let mut socket = site.socket().await;
    socket.send(get("/healthz", &[])).await;
    let answer = socket.answer().await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    assert!(answer.text().contains("max_connections_per_address"), "{}", answer.text());
    // What is given back is taken again.
    drop(holders.pop());
    let taken = async {
        while site.get("/healthz", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.unwrap();
}
