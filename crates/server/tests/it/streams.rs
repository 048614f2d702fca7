//! Event streams as HTTP: what their head says, that a quiet one is alive, how soon they begin, and where they
//! may be resumed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    site::{Site, message, request},
    socket::{Piece, post, within},
};

#[tokio::test]
async fn a_stream_says_that_nobody_may_hold_it_back() {
    let site = Site::new().await;
    for (version, method) in
        [("1.0", "SendStreamingMessage"), ("0.3", "message/stream"), ("0.1", "tasks/sendSubscribe")]
    {
        let role = if version == "1.0" { "ROLE_USER" } else { "user" };
        let message = json!({ "messageId": "m", "role": role, "parts": [{ "text": "x" }] });
        let stream = site.stream(version, method, json!({ "id": "t", "message": message })).await;
        let header = |name: &str| stream.headers.get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/event-stream");
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("x-accel-buffering"), "no");
        assert!(stream.results().await.len() > 2);
    }
}

/// Alive whatever the agent does: nothing, or something of which this protocol has no word.
#[tokio::test]
async fn a_quiet_stream_says_that_it_is_alive() {
    let keep_alive = Duration::from_millis(400);
    let site = Site::with(|setup| setup.server.limits.keep_alive = keep_alive).await;
    for text in ["wait", "mutter"] {
        let params = json!({ "message": message(text) });
        // Before the stream begins, whose first pause may be over when its head has been read.
        let started = Instant::now();
        let mut stream = site.stream("1.0", "SendStreamingMessage", params).await;
        let (mut events, mut comments) = (0, 0);
        while comments < 3 {
            match within(&format!("a sign of life while it does {text:?}"), stream.piece()).await.unwrap() {
                Piece::Comment(comment) => {
                    assert_eq!(comment, "keep-alive");
                    comments += 1;
                }
                Piece::Event { .. } => events += 1,
            }
        }
        assert_eq!(events, 2, "submitted, working");
        // Not each time that the agent pauses for so long: that it seldom does.
        let elapsed = started.elapsed();
        assert!(elapsed >= keep_alive * 3 && elapsed < keep_alive * 20, "{text}: {elapsed:?}");
    }
}

/// Small pieces leave when they are written, and do not wait for the client to acknowledge the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_at_once() {
    let site = Site::new().await;
    let mut soonest = Duration::MAX;
    for _ in 0..20 {
        let mut socket = site.socket().await;
        let task = site.begin("wait").await;
        let subscribe = request("SubscribeToTask", &json!({ "id": task }));
        // A connection that has been used: at its beginning the kernel acknowledges eagerly.
        for _ in 0..20 {
            socket.send(post("/", &[], "{")).await;
            socket.answer().await;
        }
        socket.send(post("/", &[("A2A-Version", "1.0")], subscribe)).await;
        let started = Instant::now();
        socket.head().await.unwrap();
        socket.chunk().await.unwrap();
        let cancel = site.result("1.0", "CancelTask", json!({ "id": task }));
        let (_, end) = tokio::join!(cancel, socket.chunk());
        assert!(String::from_utf8(end.unwrap()).unwrap().contains("CANCELED"));
        soonest = soonest.min(started.elapsed());
    }
    assert!(soonest < Duration::from_millis(35), "{soonest:?}");
}

#[tokio::test]
async fn a_cursor_that_is_none_is_refused() {
    let site = Site::new().await;
    let sent = site.result("1.0", "SendMessage", json!({ "message": message("x") })).await;
    let task = &sent["task"]["id"];
    for (cursor, words) in [
        ("abc", "\"abc\" is not an id"),
        ("-1", "\"-1\" is not an id"),
        ("1.5", "\"1.5\" is not an id"),
        ("0x1", "\"0x1\" is not an id"),
        ("1 2", "\"1 2\" is not an id"),
        ("18446744073709551616", "is not an id"),
        ("é", "\"é\" is not an id"),
        ("5", "no event 5 to continue after: the task's last event is 4"),
        ("18446744073709551615", "the task's last event is 4"),
    ] {
        for (version, method) in
            [("0.1", "tasks/resubscribe"), ("0.3", "tasks/resubscribe"), ("1.0", "SubscribeToTask")]
        {
            let headers = [("A2A-Version", version), ("Last-Event-ID", cursor)];
            let answer = site.send(post("/", &headers, request(method, &json!({ "id": task })))).await;
            let text = answer.text();
            let text = if version == "0.3" { text.strip_prefix("data: ").unwrap() } else { text };
            let response: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(response["error"]["code"], -32602, "{version} {cursor}: {response}");
            let said = response["error"]["message"].as_str().unwrap();
            assert!(said.contains(words), "{version} {cursor}: {said}");
        }
    }
    // An empty one is none: the stream of a task that has ended is not for 1.0 to see without one.
    let headers = [("A2A-Version", "1.0"), ("Last-Event-ID", "")];
    let answer = site.send(post("/", &headers, request("SubscribeToTask", &json!({ "id": task })))).await;
    assert_eq!(answer.json()["error"]["code"], -32004);
    // The first and the last are good.
    for (cursor, frames) in [("0", 3), ("1", 3), ("4", 0)] {
        let headers = [("A2A-Version", "1.0"), ("Last-Event-ID", cursor)];
        let rest = site.stream_with(&headers, "SubscribeToTask", json!({ "id": task })).await;
        assert_eq!(rest.results().await.len(), frames, "{cursor}");
    }
}
