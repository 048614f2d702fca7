//! A server that is asked to stop: streams say where they continue, requests are answered, work is handed back,
//! and nobody can hold it up.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nuncio_engine::{State, TaskId, store::TaskKey};
use serde_json::json;
use tokio::net::TcpStream;

use crate::{
    site::{Site, message, panics, request},
    socket::{Piece, get, post, within},
};

const V1: (&str, &str) = ("A2A-Version", "1.0");

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_cursor_and_go_on_after_the_next_start() {
    let site = Site::new().await;
    let mut open = vec![];
    for (version, subscribe) in
        [("0.1", "tasks/resubscribe"), ("0.3", "tasks/resubscribe"), ("1.0", "SubscribeToTask")]
    {
        let task = site.begin("wait").await;
        let mut stream = site.stream(version, subscribe, json!({ "id": task })).await;
        let (seen, _) = stream.next().await.unwrap();
        open.push((version, subscribe, task, stream, seen.unwrap()));
    }
    let stopping = site.begin_stop();
    let mut cursors = vec![];
    for (version, subscribe, task, mut stream, seen) in open {
        let Some(Piece::Comment(last)) = stream.piece().await else { panic!("{version}: no last word") };
        assert_eq!(last, format!("the server is stopping; continue with Last-Event-ID: {seen}"), "{version}");
        assert_eq!(stream.piece().await, None, "{version}: the stream goes on");
        cursors.push((version, subscribe, task, last.rsplit_once(' ').unwrap().1.to_owned()));
    }
    let folder = stopping.finish().await;

    let site = Site::with(|setup| setup.folder = folder).await;
    for (version, subscribe, task, cursor) in cursors {
        let headers = [("A2A-Version", version), ("Last-Event-ID", cursor.as_str())];
        let mut stream = site.stream_with(&headers, subscribe, json!({ "id": task })).await;
        site.result("1.0", "CancelTask", json!({ "id": task })).await;
        let (id, end) = stream.next().await.unwrap();
        assert_eq!(id.unwrap(), cursor.parse::<u64>().unwrap() + 1, "{version}");
        assert!(end.to_string().to_lowercase().contains("canceled"), "{end}");
        assert_eq!(stream.next().await, None);
    }
}

/// Before its first byte it is not known what a connection speaks.
#[tokio::test(flavor = "multi_thread")]
async fn connections_on_which_nothing_was_asked_hold_up_no_stop() {
    let site = Site::with(|setup| setup.server.limits.header_timeout = Duration::from_secs(3600)).await;
    let (mut silent, mut half) = (site.socket().await, site.socket().await);
    half.send("PRI * HT").await;
    // Both were accepted: a third one, after them, is answered.
    assert_eq!(site.get("/healthz", &[]).await.status, 200);
    let stopping = site.begin_stop();
    within("the stop", stopping.finish()).await;
    assert!(silent.ended().await && half.ended().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_handed_back_and_not_held_against_the_task() {
    let mut site = Site::new().await;
    let task = site.begin("wait").await;
    // More often than a task may fail to get any further.
    for round in 0..7 {
        within("the agent", async {
            while site.runs.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        site.until_state(&task, "WORKING").await;
        let stopping = site.begin_stop();
        let store = std::sync::Arc::clone(stopping.engine.store_for_tests());
        let key = TaskKey::Id(TaskId::parse(&task).unwrap());
        within("a task without a runner", async {
            loop {
                let row = store.row(&key).await.unwrap().unwrap();
                assert_eq!((row.state, row.attempts), (State::Working, 0), "round {round}");
                if row.node.is_none() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let folder = stopping.finish().await;
        drop(store);
        site = Site::with(|setup| setup.folder = folder).await;
    }
    site.until_state(&task, "WORKING").await;
    site.result("1.0", "CancelTask", json!({ "id": task })).await;
    assert_eq!(panics(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_requests_are_answered_and_new_ones_find_nobody() {
    let site = Site::new().await;
    let address = site.address;
    let mut idle = site.socket().await;
    idle.send(get("/healthz", &[])).await;
    idle.answer().await;
    // A send that waits for a task without an end.
    let mut blocking = site.socket().await;
    blocking.send(post("/", &[V1], request("SendMessage", &json!({ "message": message("wait") })))).await;
    within("the task", async { while site.total().await == 0 {} }).await;

    let stopping = site.begin_stop();
    let answer = blocking.answer().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_WORKING", "as it stands");
    assert!(blocking.ended().await);
    assert!(idle.ended().await, "a connection without a request is closed");
    within("an address that nobody listens on", async { while TcpStream::connect(address).await.is_ok() {} })
        .await;
    stopping.finish().await;
}

/// While it stops, what still reaches it is told so.
#[tokio::test]
async fn what_comes_late_is_told_to_come_again() {
    let site = Site::new().await;
    let task = site.begin("ask").await;
    site.until_state(&task, "INPUT_REQUIRED").await;
    let total = site.total().await;
    site.engine.begin_stop();
    let mut answer = message("yes");
    answer["taskId"] = task.as_str().into();
    for (method, message) in
        [("SendMessage", message("x")), ("SendStreamingMessage", message("x")), ("SendMessage", answer)]
    {
        let answer = site.send(post("/", &[V1], request(method, &json!({ "message": message })))).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "5"), "{}", answer.text());
        assert!(answer.text().contains("the server is stopping"), "{}", answer.text());
    }
    assert_eq!(site.total().await, total);
    site.until_state(&task, "INPUT_REQUIRED").await;
    let ready = site.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json(), json!({ "status": "not ready", "reason": "the server is stopping" }));
    assert_eq!(site.get("/healthz", &[]).await.status, 200);
}

/// Clients that do not read, that do not finish their request, and an agent that does not end: the stop takes
/// as long as it may, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_hold_it_up() {
    let stop_within = Duration::from_secs(2);
    let site = Site::with(|setup| setup.options.stop_within = stop_within).await;
    let long = site.result("1.0", "SendMessage", json!({ "message": message("chunks 3000") })).await;
    let long = &long["task"]["id"];
    let subscribe = request("SubscribeToTask", &json!({ "id": long }));
    let mut unread = site.socket().await;
    unread.send(post("/", &[V1, ("Last-Event-ID", "0")], subscribe)).await;
    unread.head().await.unwrap();
    let mut half_a_head = site.socket().await;
    half_a_head.send("POST / HTTP/1.1\r\nhost: local").await;
    let mut half_a_body = site.socket().await;
    half_a_body.send(post("/", &[("content-length", "100")], "{")).await;
    site.begin("wait").await;

    let started = Instant::now();
    let stopping = site.begin_stop();
    let server_ended = async {
        while !stopping.server_has_ended() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        started.elapsed()
    };
    let took = within("the end of the server", server_ended).await;
    // Half of the time is the server's, the other half the engine's.
    assert!(took < stop_within * 3 / 4, "{took:?}");
    // Nothing of it is left behind.
    for socket in [&mut half_a_head, &mut half_a_body] {
        within("the end of a connection", async { while socket.try_answer().await.is_some() {} }).await;
    }
    within("the end of a stream", async { while unread.chunk().await.is_some() {} }).await;
    stopping.finish().await;
    assert!(started.elapsed() < stop_within * 2, "{:?}", started.elapsed());
}
