//! The A2A client against an agent that cuts its streams wherever a network could, in the bindings whose events are
//! server-sent events, and against interfaces that are not served.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use nuncio_client::a2a::{
    A2aBinding, A2aClient, A2aClientError, A2aCredentials, A2aHttpOptions, CardReference,
    InterfacePreference, WaitOptions, fetch_card,
};
use nuncio_engine::{
    content::{Message, Role},
    task::State,
};
use nuncio_wire::a2a::{Dialect, SendMessage, StreamEvent};
use serde_json::{Value, json};

const JSONRPC: &str = "JSONRPC";
const HTTP_JSON: &str = "HTTP+JSON";

/// A request as far as these tests look at it.
struct Asked {
    path: String,
    method: String,
    last_event_id: Option<usize>,
}

/// Answers each connection once: with what `reply` writes, then with its end.
fn serve(reply: impl Fn(&Asked, &str) -> Vec<u8> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let base = url.clone();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let asked = read_request(&mut connection);
            let _ = connection.write_all(&reply(&asked, &base));
        }
    });
    url
}

fn read_request(connection: &mut TcpStream) -> Asked {
    let (mut bytes, mut chunk) = (vec![], [0; 4096]);
    let head = loop {
        let read = connection.read(&mut chunk).unwrap();
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        assert!(read > 0, "half a request");
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let header = |name: &str| {
        let found = text
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
        found.map(|(_, value)| value.to_owned())
    };
    let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head + 4 + length {
        let read = connection.read(&mut chunk).unwrap();
        bytes.extend_from_slice(&chunk[..read]);
    }
    let body: Value = serde_json::from_slice(&bytes[head + 4..]).unwrap_or_default();
    Asked {
        path: text.split(' ').nth(1).unwrap().to_owned(),
        method: body["method"].as_str().unwrap_or_default().to_owned(),
        last_event_id: header("last-event-id").map(|id| id.parse().unwrap()),
    }
}

fn response(content_type: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

fn card(base: &str) -> Vec<u8> {
    let interface = |path: &str, binding: &str| json!({ "url": format!("{base}{path}"), "protocolBinding": binding, "protocolVersion": "1.0" });
    let interfaces = [interface("/rpc", "JSONRPC"), interface("/rest", "HTTP+JSON")];
    card_of(&json!(interfaces))
}

fn card_of(interfaces: &Value) -> Vec<u8> {
    let card =
        json!({ "name": "fake", "capabilities": { "streaming": true }, "supportedInterfaces": interfaces });
    response("application/json", &card.to_string())
}

/// The events of a task from its beginning to its end, as frames.
fn frames(binding: &str) -> Vec<String> {
    let status = |state: &str| json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": state } } });
    let events = [
        json!({ "task": { "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_SUBMITTED" } } }),
        status("TASK_STATE_WORKING"),
        json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "artifact": { "artifactId": "a", "parts": [{ "text": "é" }] } } }),
        status("TASK_STATE_COMPLETED"),
    ];
    let frame = |(index, event): (usize, &Value)| {
        let data = match binding {
            JSONRPC => json!({ "jsonrpc": "2.0", "id": 1, "result": event }),
            _ => event.clone(),
        };
        format!("id: {}\ndata: {data}\n\n", index + 1)
    };
    events.iter().enumerate().map(frame).collect()
}

async fn connect(url: &str, resumes: u32) -> A2aClient {
    connect_by(url, resumes, JSONRPC).await
}

async fn connect_by(url: &str, resumes: u32, binding: &str) -> A2aClient {
    let options = A2aHttpOptions { resumes, ..A2aHttpOptions::default() };
    let card = fetch_card(&CardReference::parse(url).unwrap(), &options).await.unwrap();
    let preference = InterfacePreference {
        bindings: vec![binding.to_owned()],
        only: true,
        ..InterfacePreference::default()
    };
    A2aClient::new(&card.value, &preference, &A2aCredentials::default(), &options).unwrap()
}

fn hello() -> SendMessage {
    SendMessage::new(Message::text("m", Role::User, "hello"))
}

/// The cursors of a whole stream, and how it ended.
async fn cursors(client: &A2aClient) -> (Vec<String>, Option<A2aClientError>) {
    let mut events = client.send_streaming(hello()).await.unwrap();
    let mut seen = vec![];
    loop {
        match events.next().await {
            Ok(Some(item)) => seen.push(item.cursor.unwrap()),
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

/// How a call is named in a binding: by its method, or by its path.
fn asks(asked: &Asked, binding: &str, method: &str, path: &str) -> bool {
    match binding {
        JSONRPC => asked.path == "/rpc" && asked.method == method,
        _ => asked.path == format!("/rest{path}"),
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_loses_and_repeats_nothing() {
    for binding in [JSONRPC, HTTP_JSON] {
        let whole: String = frames(binding).concat();
        let first = frames(binding)[0].len();
        // Where the first stream is cut; before the end of its first event nobody knows of a task to go on with.
        let cut = Arc::new(Mutex::new(0));
        let place = Arc::clone(&cut);
        let url = serve(move |asked, base| {
            if asks(asked, binding, "SendStreamingMessage", "/message:stream") {
                let bytes = &frames(binding).concat().into_bytes()[..*place.lock().unwrap()];
                return [response("text/event-stream", ""), bytes.to_vec()].concat();
            }
            if asks(asked, binding, "SubscribeToTask", "/tasks/t:subscribe") {
                let after = asked.last_event_id.unwrap();
                return response("text/event-stream", &frames(binding)[after..].concat());
            }
            card(base)
        });
        let client = connect_by(&url, 3, binding).await;
        // Every byte around the ends of events, and some of those between.
        let ends: Vec<usize> = frames(binding)
            .iter()
            .scan(0, |at, frame| {
                *at += frame.len();
                Some(*at)
            })
            .collect();
        let near = |at: usize| ends.iter().any(|end| at.abs_diff(*end) <= 6);
        for at in (first..=whole.len()).filter(|at| near(*at) || at % 29 == 0) {
            *cut.lock().unwrap() = at;
            let (seen, error) = cursors(&client).await;
            assert_eq!(seen, ["1", "2", "3", "4"], "{binding}: cut at byte {at}");
            assert!(error.is_none(), "{binding}: cut at byte {at}: {error:?}");
        }
        *cut.lock().unwrap() = first - 1;
        let (seen, error) = cursors(&client).await;
        assert!(
            seen.is_empty() && matches!(error, Some(A2aClientError::Cut { task: None, .. })),
            "{binding}: {error:?}"
        );
    }
}

/// An answer with another status.
fn refusal(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").into_bytes()
}

/// The first interface is not served; what the second one answers, and the paths that were asked for.
async fn fall_back(
    first: &'static str,
    status: &'static str,
    bearer: Option<&str>,
) -> (Result<StreamEvent, A2aClientError>, Vec<String>, A2aClient) {
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    let url = serve(move |asked, base| {
        if asked.path.starts_with("/.well-known") {
            let first = first.replace("{base}", base);
            return card_of(&json!([
                { "url": first, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
                { "url": format!("{base}/rest"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" },
            ]));
        }
        log.lock().unwrap().push(asked.path.clone());
        match &*asked.path {
            "/rest/message:send" => {
                let task = json!({ "id": "t", "status": { "state": "TASK_STATE_COMPLETED" } });
                response("application/json", &json!({ "task": task }).to_string())
            }
            "/cut" => vec![],
            _ => refusal(status),
        }
    });
    let options = A2aHttpOptions::default();
    let card = fetch_card(&CardReference::parse(&url).unwrap(), &options).await.unwrap();
    let credentials = A2aCredentials { bearer: bearer.map(str::to_owned), ..A2aCredentials::default() };
    let client =
        A2aClient::new(&card.value, &InterfacePreference::default(), &credentials, &options).unwrap();
    let sent = client.send(hello()).await.map(|sent| sent.value);
    let seen = seen.lock().unwrap().clone();
    (sent, seen, client)
}

#[tokio::test]
async fn an_interface_that_is_not_served_gives_way_to_the_next() {
    let answered = |sent: &Result<StreamEvent, A2aClientError>| matches!(sent, Ok(StreamEvent::Task(_)));
    // A port that nothing listens at.
    let (sent, seen, client) = fall_back("http://127.0.0.1:1/", "500 No", None).await;
    assert!(answered(&sent), "{sent:?}");
    assert_eq!(seen, ["/rest/message:send"]);
    // And it stays with what works.
    assert_eq!(client.binding(), A2aBinding::HttpJson);
    for status in ["404 Not Found", "405 No", "415 No", "501 No"] {
        let (sent, seen, client) = fall_back("{base}/rpc", status, None).await;
        assert!(answered(&sent), "{status}: {sent:?}");
        assert_eq!(seen, ["/rpc", "/rest/message:send"], "{status}");
        client.send(hello()).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_carried_out_is_not_sent_again_elsewhere() {
    for (first, status) in [
        ("{base}/cut", ""),
        ("{base}/rpc", "500 No"),
        ("{base}/rpc", "503 No"),
        ("{base}/rpc", "400 No"),
        ("{base}/rpc", "401 No"),
    ] {
        let (sent, seen, _) = fall_back(first, status, None).await;
        assert!(sent.is_err(), "{first} {status}");
        assert_eq!(seen.len(), 1, "{first} {status}: {seen:?}");
    }
}

#[tokio::test]
async fn credentials_do_not_follow_to_another_origin() {
    let (sent, seen, _) = fall_back("http://127.0.0.1:1/", "500 No", Some("secret")).await;
    assert!(matches!(sent, Err(A2aClientError::Unreachable { sent: false, .. })), "{sent:?}");
    assert!(seen.is_empty(), "{seen:?}");
    let (sent, seen, _) = fall_back("{base}/rpc", "404 Not Found", Some("secret")).await;
    assert!(sent.is_ok() && seen.len() == 2, "within one origin they do: {sent:?}");
}

/// The events of a task as servers of 0.3 send them over REST.
fn frames_0_3() -> Vec<String> {
    let status = |state: &str| json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": state } } });
    let events = [
        json!({ "task": { "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_SUBMITTED" } } }),
        status("TASK_STATE_WORKING"),
        json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "artifact": { "artifactId": "a", "parts": [{ "text": "é" }] } } }),
        status("TASK_STATE_COMPLETED"),
    ];
    let frame = |(index, event): (usize, &Value)| format!("id: {}\ndata: {event}\n\n", index + 1);
    events.iter().enumerate().map(frame).collect()
}

async fn connect_0_3(url: &str) -> A2aClient {
    let options = A2aHttpOptions { resumes: 3, ..A2aHttpOptions::default() };
    let card = fetch_card(&CardReference::parse(url).unwrap(), &options).await.unwrap();
    let preference = InterfacePreference { dialect: Dialect::V0_3, ..InterfacePreference::default() };
    A2aClient::new(&card.value, &preference, &A2aCredentials::default(), &options).unwrap()
}

fn card_0_3(base: &str) -> Vec<u8> {
    let card = json!({
        "name": "fake", "protocolVersion": "0.3.0", "url": format!("{base}/rest"), "preferredTransport": "HTTP+JSON",
        "capabilities": { "streaming": true },
    });
    response("application/json", &card.to_string())
}

#[tokio::test]
async fn over_rest_0_3_has_the_paths_and_the_messages_of_its_generation() {
    let url = serve(|asked, base| {
        match &*asked.path {
        "/rest/v1/message:send" => {
            let answer = json!({ "message": { "messageId": "m", "content": [{ "text": "hi" }] } });
            response("application/json", &answer.to_string())
        }
        "/rest/v1/message:stream" => response("text/event-stream", &frames_0_3()[..2].concat()),
        "/rest/v1/tasks/t:subscribe" => {
            response("text/event-stream", &frames_0_3()[asked.last_event_id.unwrap()..].concat())
        }
        "/rest/v1/tasks/t?historyLength=2" => {
            let task = json!({ "id": "t", "status": { "state": "TASK_STATE_CANCELLED" } });
            response("application/json", &task.to_string())
        }
        "/rest/v1/tasks/t:cancel" => {
            b"HTTP/1.1 409 Conflict\r\nContent-Length: 22\r\nConnection: close\r\n\r\n{\"message\":\"it ended\"}".to_vec()
        }
        path if path.starts_with("/.well-known") => card_0_3(base),
        _ => refusal("404 Not Found"),
    }
    });
    let client = connect_0_3(&url).await;
    assert_eq!(client.binding(), A2aBinding::HttpJson);
    assert!(matches!(client.send(hello()).await.unwrap().value, StreamEvent::Message(_)));
    let got = client.get("t", Some(2)).await.unwrap();
    assert_eq!(got.value.state, State::Canceled);
    let error = client.cancel("t").await.unwrap_err();
    assert_eq!((error.rpc_code(), error.to_string().as_str()), (Some(-32002), "it ended"));
    let missing = client.get_webhook("t", Some("x")).await.unwrap_err();
    assert!(matches!(missing, A2aClientError::Http { status: 404, .. }), "{missing:?}");
    let (seen, error) = cursors(&client).await;
    assert_eq!(seen, ["1", "2", "3", "4"], "{error:?}");
}

/// A question between the read and the subscription is in neither: a stream of 0.3 would be waited on for ever.
#[tokio::test]
async fn a_task_of_0_3_is_waited_for_without_a_subscription() {
    let (reads, subscriptions) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&reads), Arc::clone(&subscriptions));
    let url = serve(move |asked, base| match &*asked.path {
        "/rest/v1/tasks/t" => {
            let state = match counts.0.fetch_add(1, Ordering::SeqCst) {
                0 => "TASK_STATE_WORKING",
                _ => "TASK_STATE_INPUT_REQUIRED",
            };
            let task = json!({ "id": "t", "contextId": "c", "status": { "state": state } });
            response("application/json", &task.to_string())
        }
        "/rest/v1/tasks/t:subscribe" => {
            counts.1.fetch_add(1, Ordering::SeqCst);
            response("text/event-stream", "")
        }
        path if path.starts_with("/.well-known") => card_0_3(base),
        _ => refusal("404 Not Found"),
    });
    let client = connect_0_3(&url).await;
    let found = client.wait_until_idle("t", WaitOptions::default(), |_| {}).await.unwrap();
    assert_eq!(found.value.state, State::InputRequired);
    assert_eq!((reads.load(Ordering::SeqCst), subscriptions.load(Ordering::SeqCst)), (2, 0));
}

#[tokio::test]
async fn what_cannot_be_continued_is_an_error_that_says_where_it_was() {
    let url = serve(|asked, base| match (&*asked.path, &*asked.method) {
        ("/rpc", "SendStreamingMessage") => response("text/event-stream", &frames(JSONRPC)[..2].concat()),
        ("/rpc", _) => response("text/event-stream", ""),
        _ => card(base),
    });
    let (seen, error) = cursors(&connect(&url, 2).await).await;
    assert_eq!(seen, ["1", "2"]);
    let Some(A2aClientError::Cut { task, cursor, tries, last }) = error else { panic!("{error:?}") };
    assert_eq!((task.as_deref(), cursor.as_deref(), tries), (Some("t"), Some("2"), 2));
    assert!(matches!(*last, A2aClientError::Ended), "{last:?}");
}

#[tokio::test]
async fn a_message_answers_without_a_task() {
    let message =
        json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] } });
    let url = serve(move |asked, base| match &*asked.path {
        "/rpc" => {
            let result = json!({ "jsonrpc": "2.0", "id": 1, "result": message });
            response("text/event-stream", &format!("data: {result}\n\n"))
        }
        _ => card(base),
    });
    let mut events = connect(&url, 2).await.send_streaming(hello()).await.unwrap();
    let item = events.next().await.unwrap().unwrap();
    assert!(matches!(item.event.value, StreamEvent::Message(_)));
    assert!(events.next().await.unwrap().is_none(), "and that is all");
}

#[tokio::test]
async fn what_the_agent_refuses_is_the_agents_error() {
    let url = serve(|asked, base| match &*asked.path {
        "/rpc" => response(
            "application/json",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"none"}}"#,
        ),
        _ => card(base),
    });
    let client = connect(&url, 2).await;
    assert_eq!(client.get("x", None).await.unwrap_err().rpc_code(), Some(-32001));
    assert_eq!(client.subscribe("x", None).await.err().unwrap().rpc_code(), Some(-32001));
}
