//! Endpoints as agents: every way in which one answers, and every way in which it does not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State as Shared,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use nuncio_engine::{Event, Level, Part, State, Task, trace::Trace};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpListener};

use crate::{
    program::{agent, extend},
    server::{Server, ending, lines, percents, result_data, submit, until},
};

/// One request that an endpoint got.
#[derive(Clone)]
struct Got {
    headers: HeaderMap,
    body: Value,
}

type Answers = Arc<dyn Fn(usize, &Got) -> Response + Send + Sync>;

/// An endpoint that answers as it is told, and remembers what it got.
#[derive(Clone)]
struct Endpoint {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
    answers: Answers,
}

impl Endpoint {
    /// `answers`: what to say to the how-manieth request, from 1.
    async fn start(answers: impl Fn(usize, &Got) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/work", listener.local_addr().unwrap());
        let endpoint = Self { url, got: Arc::default(), answers: Arc::new(answers) };
        let router = Router::new().route("/work", post(take)).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        endpoint
    }

    /// One that always says the same.
    async fn saying(kind: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::start(move |_, _| ([("content-type", kind)], body.clone()).into_response()).await
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    async fn serve(&self, keys: Value) -> Server {
        serve(&self.url, keys).await
    }

    async fn send(&self, keys: Value) -> Task {
        self.serve(keys).await.send("endpoint", Part::text("go")).await
    }
}

async fn take(Shared(endpoint): Shared<Endpoint>, headers: HeaderMap, body: Bytes) -> Response {
    let got = Got { headers, body: serde_json::from_slice(&body).unwrap() };
    let number = {
        let mut all = endpoint.got.lock().unwrap();
        all.push(got.clone());
        all.len()
    };
    (endpoint.answers)(number, &got)
}

async fn serve(url: &str, keys: Value) -> Server {
    let mut table = json!({ "name": "endpoint", "kind": "http", "url": url });
    extend(&mut table, keys);
    Server::with(vec![agent(table)]).await
}

fn failure(task: &Task) -> String {
    let (state, words, _) = ending(task);
    assert_eq!(state, State::Failed, "{words}");
    words
}

fn as_json(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

fn ndjson(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

#[tokio::test]
async fn an_endpoint_is_given_the_input_and_a_key() {
    let endpoint = Endpoint::saying("application/json", r#"{"text":"hi"}"#).await;
    let server = endpoint.serve(json!({ "headers": { "authorization": "Bearer t" } })).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut traced = submit("endpoint", Part::text("hello"));
    traced.trace = Some(trace.into());
    let task = server.submit(traced).await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task), (State::Completed, "hi".into(), vec![]));
    let [got] = &endpoint.got()[..] else { panic!("one request") };
    assert_eq!((&got.body["type"], &got.body["text"]), (&json!("input"), &json!("hello")));
    assert_eq!(got.body["answers"], json!([]));
    assert_eq!(got.headers["authorization"], "Bearer t");
    let traceparent = got.headers["traceparent"].to_str().unwrap();
    assert_eq!(traceparent, Trace::of(&task.origin).header());
    assert!(traceparent.starts_with(&trace[..36]), "the trace of the caller, and the task's own place in it");
    assert!(got.headers["idempotency-key"].to_str().unwrap().starts_with(&task.origin.id.to_string()));
}

#[tokio::test]
async fn an_answer_is_text_or_data_or_artifacts_or_a_file() {
    let check = async |kind: &'static str, body: &str, words: &str, artifacts: &[&str]| {
        let task = Endpoint::saying(kind, body).await.send(json!({})).await;
        assert_eq!(ending(&task), (State::Completed, words.into(), artifacts.to_vec()), "{body}");
        task
    };
    check("text/plain; charset=utf-8", "plain words", "plain words", &[]).await;
    check("text/plain", "", "", &[]).await;
    let task = check("application/json", r#"{"celsius":21}"#, "", &["result"]).await;
    assert_eq!(result_data(&task), json!({ "celsius": 21 }));
    let task = check("application/json", "[1,2]", "", &["result"]).await;
    assert_eq!(result_data(&task), json!([1, 2]));
    let task = check("application/vnd.x+json", r#"{"text":"t","data":{"n":1}}"#, "t", &["result"]).await;
    assert_eq!(result_data(&task), json!({ "n": 1 }));
    let body = r#"{"text":"t","artifacts":[{"id":"a","text":"x"},{"id":"b","data":1}]}"#;
    check("application/json", body, "t", &["a", "b"]).await;
    check("application/json", r#"{"type":"done","text":"t"}"#, "t", &[]).await;
    let task = check("image/x-dot", "..", "", &["result"]).await;
    assert_eq!(task.artifacts[0].parts[0].media_type.as_deref(), Some("image/x-dot"));
    // A thing of somebody's own that happens to have a type.
    let task = check("application/json", r#"{"type":"invoice","n":1}"#, "", &["result"]).await;
    assert_eq!(result_data(&task)["type"], "invoice");
}

#[tokio::test]
async fn a_stream_of_lines_and_one_of_events_say_the_same() {
    let messages = [
        json!({ "type": "progress", "done": 1, "total": 2 }),
        json!({ "type": "log", "level": "notice", "text": "working" }),
        json!({ "type": "artifact", "id": "a", "text": "one ", "last": false }),
        json!({ "type": "artifact", "id": "a", "text": "two", "append": true }),
        json!({ "type": "done", "text": "done", "data": { "n": 1 } }),
    ];
    let events: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    for (kind, body) in [("application/x-ndjson", ndjson(&messages)), ("text/event-stream", events)] {
        let endpoint = Endpoint::saying(kind, body).await;
        let server = endpoint.serve(json!({})).await;
        let task = server.send("endpoint", Part::text("go")).await;
        assert_eq!(ending(&task), (State::Completed, "done".into(), vec!["a", "result"]));
        let text: String = task.artifacts[0].parts.iter().filter_map(Part::as_text).collect();
        assert_eq!(text, "one two");
        let log = server.log(&task).await;
        assert_eq!((percents(&log), lines(&log, Level::Notice)), (vec![1.0], vec!["working"]));
    }
}

#[tokio::test]
async fn a_question_ends_the_answer_and_the_next_request_brings_what_was_answered() {
    let endpoint = Endpoint::start(|_, got| match got.body["answers"].as_array().unwrap().len() {
        0 => {
            let ask = json!({ "type": "ask", "text": "Which?", "schema":
                { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] } });
            let messages = [json!({ "type": "progress", "done": 1 }), ask];
            ([("content-type", "application/jsonl")], ndjson(&messages)).into_response()
        }
        1 => as_json(&json!({ "type": "ask", "text": "Sure?" })),
        _ => as_json(&json!({ "text": got.body["answers"].to_string() })),
    })
    .await;
    let server = endpoint.serve(json!({})).await;
    let task = server.send("endpoint", Part::text("go")).await;
    assert_eq!(task.state, State::InputRequired);
    let server = server.restart().await;
    let task = server.answer(&task, Part::text("7")).await;
    assert_eq!(task.state, State::InputRequired);
    let task = server.answer(&task, Part::data(json!({ "action": "decline", "note": "no" }))).await;
    let words: Value = serde_json::from_str(&ending(&task).1).unwrap();
    let first = json!({ "action": "accept", "data": { "n": 7 }, "question": "Which?" });
    let second = json!({ "action": "decline", "data": null, "note": "no", "question": "Sure?" });
    assert_eq!(words, json!([first, second]));
    let got = endpoint.got();
    assert_eq!(got.len(), 3, "a request that was answered is not made again");
    let keys: Vec<_> = got.iter().map(|got| &got.headers["idempotency-key"]).collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2], "{keys:?}");
    assert_eq!(percents(&server.log(&task).await), [1.0]);
}

#[tokio::test]
async fn a_request_that_a_stop_of_the_server_cut_is_made_again_under_its_key() {
    let endpoint = Endpoint::start(|number, _| {
        if number > 1 {
            return as_json(&json!({ "text": "the second time" }));
        }
        let first = Ok::<_, std::io::Error>(Bytes::from("{\"type\":\"artifact\",\"text\":\"half\"}\n"));
        let rest = futures_util::stream::pending();
        let body = futures_util::StreamExt::chain(futures_util::stream::iter([first]), rest);
        ([("content-type", "application/x-ndjson")], Body::from_stream(body)).into_response()
    })
    .await;
    let server = endpoint.serve(json!({})).await;
    let task = server.submit(submit("endpoint", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task).1, "the second time");
    let [first, second] = &endpoint.got()[..] else { panic!("two requests") };
    assert_eq!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
    assert_eq!(first.body, second.body, "under one key goes one body");
    assert_eq!(attempts(&endpoint), ["1", "2"]);
}

/// What the requests say which attempt they are.
fn attempts(endpoint: &Endpoint) -> Vec<String> {
    let got = endpoint.got();
    got.iter().map(|one| one.headers["nuncio-attempt"].to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn attempts_are_counted_over_a_restart_and_anew_for_the_next_request() {
    let endpoint = Endpoint::start(|number, _| match number {
        1 | 3 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        // Accepted, and never answered.
        2 => {
            let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
            ([("content-type", "application/x-ndjson")], body).into_response()
        }
        4 => as_json(&json!({ "type": "ask", "text": "Which?" })),
        _ => as_json(&json!({ "text": "at last" })),
    })
    .await;
    let server = endpoint.serve(json!({})).await;
    let task = server.submit(submit("endpoint", Part::text("go"))).await;
    until("the second request came", || endpoint.got().len() == 2).await;
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert_eq!(attempts(&endpoint), ["1", "2", "3", "4"]);
    let task = server.answer(&task, Part::text("7")).await;
    assert_eq!(ending(&task).1, "at last");
    assert_eq!(attempts(&endpoint), ["1", "2", "3", "4", "1"]);
}

#[tokio::test]
async fn what_was_not_taken_is_sent_again_when_it_may_be() {
    let endpoint = Endpoint::start(|number, _| match number {
        1 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "slow down").into_response(),
        2 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        _ => as_json(&json!({ "text": "at last" })),
    })
    .await;
    let server = endpoint.serve(json!({ "retries": 2 })).await;
    let began = std::time::Instant::now();
    let task = server.send("endpoint", Part::text("go")).await;
    assert_eq!(ending(&task).1, "at last");
    assert!(began.elapsed() >= Duration::from_secs(1), "it waited as it was told");
    let got = endpoint.got();
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|one| one.headers["idempotency-key"] == got[0].headers["idempotency-key"]));
    assert!(got.iter().all(|one| one.body == got[0].body), "under one key goes one body");
    assert_eq!(attempts(&endpoint), ["1", "2", "3"]);
    let log = server.log(&task).await;
    let warnings = lines(&log, Level::Warning);
    assert!(warnings[0].contains("429") && warnings[0].contains("slow down"), "{warnings:?}");
    assert!(warnings[1].contains("503") && warnings[1].contains("(2 of 2)"), "{warnings:?}");
}

#[tokio::test]
async fn what_is_never_taken_fails_and_says_how() {
    let endpoint = Endpoint::start(|_, _| (StatusCode::BAD_GATEWAY, "asleep").into_response()).await;
    let why = failure(&endpoint.send(json!({ "retries": 1 })).await);
    assert!(why.contains("502") && why.contains("asleep") && why.contains("2 requests"), "{why}");
    assert_eq!(endpoint.got().len(), 2);

    let endpoint =
        Endpoint::start(|_, _| (StatusCode::UNPROCESSABLE_ENTITY, "bad words").into_response()).await;
    let why = failure(&endpoint.send(json!({})).await);
    assert!(why.contains("422") && why.contains("bad words"), "{why}");
    assert_eq!(endpoint.got().len(), 1, "a refusal is not asked for again");

    let endpoint =
        Endpoint::start(|_, _| (StatusCode::FOUND, [("location", "http://127.0.0.1:1/")]).into_response())
            .await;
    assert!(failure(&endpoint.send(json!({})).await).contains("redirects are not followed"));

    let server = serve("http://127.0.0.1:9/", json!({ "retries": 0 })).await;
    let why = failure(&server.send("endpoint", Part::text("go")).await);
    assert!(why.contains("no connection"), "{why}");
}

/// An endpoint that answers with these bytes and closes.
async fn raw(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(answer.as_bytes()).await;
            let _ = connection.shutdown().await;
        }
    });
    url
}

#[tokio::test]
async fn a_cut_answer_is_never_success() {
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    let check = async |answer: &'static str, words: &str| {
        let server = serve(&raw(answer).await, json!({ "retries": 0 })).await;
        let why = failure(&server.send("endpoint", Part::text("go")).await);
        assert!(why.contains(words), "{why}");
    };
    let progress = "{\"type\":\"progress\",\"done\":1}\n";
    check(format!("{stream}{progress}").leak(), "it was cut").await;
    check(format!("{stream}{progress}{{\"type\":\"do").leak(), "no message").await;
    let sse = stream.replace("application/x-ndjson", "text/event-stream");
    check(format!("{sse}data: {{\"type\":\"done\"}}\n").leak(), "it was cut").await;
    check(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"text\":\"hi\"}",
        "the answer was cut",
    )
    .await;
    check(
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"typ",
        "the answer was cut",
    )
    .await;
}

#[tokio::test]
async fn an_answer_has_a_longest_length_and_a_longest_silence() {
    let endpoint = Endpoint::saying("text/plain", "x".repeat(2_000)).await;
    let why = failure(&endpoint.send(json!({ "max-answer-bytes": 1_000 })).await);
    assert!(why.contains("max-answer-bytes") && why.contains("1000"), "{why}");

    let endpoint = Endpoint::start(|_, _| {
        let silent = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        ([("content-type", "application/x-ndjson")], Body::from_stream(silent)).into_response()
    })
    .await;
    let why = failure(&endpoint.send(json!({ "timeout": "100ms" })).await);
    assert!(why.contains("silent for 100ms"), "{why}");
}

#[tokio::test]
async fn an_endpoint_that_listens_gets_messages_beside_its_stream_and_again_after_a_restart() {
    let (count, _) = tokio::sync::watch::channel(0);
    let endpoint = Endpoint::start(move |_, got| {
        if got.body["type"] == "message" {
            count.send_modify(|count| *count += 1);
            return StatusCode::NO_CONTENT.into_response();
        }
        let first = "{\"type\":\"listen\"}\n{\"type\":\"progress\",\"done\":1}\n";
        let first = Ok::<_, std::io::Error>(Bytes::from(first));
        let mut counted = count.subscribe();
        let rest = futures_util::stream::once(async move {
            // The first is not enough: the stream goes on until the server has been stopped and started again.
            let _ = counted.wait_for(|count| *count == 2).await;
            Ok(Bytes::from("{\"type\":\"done\",\"text\":\"shorter\"}\n"))
        });
        let body = futures_util::StreamExt::chain(futures_util::stream::iter([first]), rest);
        ([("content-type", "application/x-ndjson")], Body::from_stream(body)).into_response()
    })
    .await;
    let server = endpoint.serve(json!({})).await;
    let task = server.submit(submit("endpoint", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    server.tell(&task, "m-1", "shorter").await;
    until("the message is there", || endpoint.got().len() == 2).await;
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task), (State::Completed, "shorter".into(), vec![]));
    let got = endpoint.got();
    let messages: Vec<&Got> = got.iter().filter(|got| got.body["type"] == "message").collect();
    let [first, second] = messages[..] else { panic!("the message, twice") };
    let requests: Vec<&Got> = got.iter().filter(|got| got.body["type"] == "input").collect();
    assert_eq!(requests[0].body, requests[1].body, "under one key goes one body");
    assert_eq!(first.body, second.body);
    assert_eq!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
    assert_eq!(first.body["task"], task.origin.id.to_string());
    assert_eq!(first.body["text"], "shorter");
    assert_eq!(first.body["number"], 1);
}

#[tokio::test]
async fn an_endpoint_that_does_not_listen_gets_no_message_and_one_that_refuses_it_goes_on() {
    for listens in [false, true] {
        let told = Arc::new(tokio::sync::Notify::new());
        let go_on = Arc::clone(&told);
        let endpoint = Endpoint::start(move |_, got| {
            if got.body["type"] == "message" {
                return (StatusCode::NOT_FOUND, "no such thing here").into_response();
            }
            let listen = if listens { "{\"type\":\"listen\"}\n" } else { "" };
            let first = format!("{listen}{{\"type\":\"progress\",\"done\":1}}\n");
            let first = Ok::<_, std::io::Error>(Bytes::from(first));
            let told = Arc::clone(&go_on);
            let rest = futures_util::stream::once(async move {
                told.notified().await;
                Ok(Bytes::from("{\"type\":\"done\"}\n"))
            });
            let body = futures_util::StreamExt::chain(futures_util::stream::iter([first]), rest);
            ([("content-type", "application/x-ndjson")], Body::from_stream(body)).into_response()
        })
        .await;
        let server = endpoint.serve(json!({})).await;
        let task = server.submit(submit("endpoint", Part::text("go"))).await;
        server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
        server.tell(&task, "m-1", "shorter").await;
        if listens {
            let refused = |event: &Event| matches!(event, Event::Log(line) if line.text.contains("404"));
            server.log_until(&task, refused).await;
        }
        told.notify_one();
        assert_eq!(server.settle(task).await.state, State::Completed);
        assert_eq!(endpoint.got().len(), if listens { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_cancel_lets_go_of_the_connection() {
    let (told, mut gone) = tokio::sync::mpsc::channel::<()>(1);
    let endpoint = Endpoint::start(move |_, _| {
        let first = Ok::<_, std::io::Error>(Bytes::from("{\"type\":\"progress\",\"done\":1}\n"));
        let held = told.clone();
        // It holds its end of the channel for as long as somebody reads.
        let rest = futures_util::stream::once(async move {
            let _held = held;
            std::future::pending::<Result<Bytes, std::io::Error>>().await
        });
        let body = futures_util::StreamExt::chain(futures_util::stream::iter([first]), rest);
        ([("content-type", "application/x-ndjson")], Body::from_stream(body)).into_response()
    })
    .await;
    let server = endpoint.serve(json!({})).await;
    let task = server.submit(submit("endpoint", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    drop(endpoint);
    // Whoever made the stream holds a sender as well, so that only the count tells.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while gone.sender_strong_count() > 1 {
        assert!(tokio::time::Instant::now() < deadline, "the endpoint is still read from");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gone.close();
}

#[tokio::test]
async fn words_of_programs_are_not_for_endpoints() {
    let endpoint = Endpoint::saying("application/x-ndjson", "{\"type\":\"step\",\"name\":\"x\"}\n").await;
    let why = failure(&endpoint.send(json!({})).await);
    assert!(why.contains("\"step\" is not for endpoints"), "{why}");
    let endpoint = Endpoint::saying("application/json", "{").await;
    assert!(failure(&endpoint.send(json!({})).await).contains("not the JSON that it says it is"));
}

#[tokio::test]
async fn whether_somebody_listens_is_found_out_without_a_request() {
    let endpoint = Endpoint::saying("text/plain", "x").await;
    let there = agent(json!({ "name": "a", "kind": "http", "url": endpoint.url }));
    assert_eq!(there.probe().unwrap().check_reachable().await, Ok(()));
    assert!(endpoint.got().is_empty());
    let gone = agent(json!({ "name": "a", "kind": "http", "url": "http://127.0.0.1:9/" }));
    assert!(gone.probe().unwrap().check_reachable().await.is_err());
}
