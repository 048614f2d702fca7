//! The A2A client over gRPC, against a server of HTTP/2 that answers, refuses and breaks off as a test tells it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nuncio_client::a2a::{
    A2aBinding, A2aClient, A2aClientError, A2aCredentials, A2aHttpOptions, CardReference,
    InterfacePreference, fetch_card,
};
use nuncio_engine::content::{Message, Role};
use nuncio_wire::{
    a2a::{Dialect, GrpcMethod, SendMessage, StreamEvent, card::CURSOR_EXTENSION},
    grpc::{self, GrpcCode, GrpcStatus},
    protobuf::ProtobufLimits,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::peer::within;

/// A call as the server got it.
#[derive(Debug, Clone)]
struct Asked {
    method: String,
    message: Value,
    metadata: HeaderMap,
}

/// What the server does about a call.
enum Reply {
    /// Messages, then a status.
    Messages(Vec<Value>, GrpcStatus),
    /// A status and nothing else.
    Refusal(GrpcStatus),
    /// So many bytes of these messages; then the stream is reset.
    Cut(Vec<Value>, usize),
    /// An answer that is not one of gRPC.
    Http(u16),
    Silence,
}

struct GrpcFake {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl GrpcFake {
    async fn start(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (reply, asked) = (Arc::new(reply), Arc::new(Mutex::new(vec![])));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, seen) = (Arc::clone(&reply), Arc::clone(&seen));
                let service = hyper::service::service_fn(move |request| {
                    let (reply, seen) = (Arc::clone(&reply), Arc::clone(&seen));
                    async move { Ok::<_, Infallible>(serve(request, &*reply, &seen).await) }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, asked }
    }

    /// A client of 0.3 by a card that names this server alone.
    async fn client_0_3(&self, options: &A2aHttpOptions) -> A2aClient {
        let card = json!({
            "name": "fake", "protocolVersion": "0.3.0", "url": self.address, "preferredTransport": "GRPC",
            "capabilities": { "streaming": true, "extensions": [{ "uri": CURSOR_EXTENSION }] },
        });
        let preference = InterfacePreference { dialect: Dialect::V0_3, ..InterfacePreference::default() };
        client_by(&card, &preference, None, options).await
    }

    /// A client by a card that names this server, with a tenant, and whatever else.
    async fn client(&self, options: &A2aHttpOptions, bearer: Option<&str>, others: &[Value]) -> A2aClient {
        let own = json!({ "url": self.address, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "acme" });
        let interfaces: Vec<Value> = std::iter::once(own).chain(others.iter().cloned()).collect();
        let card = json!({
            "name": "fake", "capabilities": { "streaming": true, "extensions": [{ "uri": CURSOR_EXTENSION }] },
            "supportedInterfaces": interfaces,
        });
        client_by(&card, &InterfacePreference::default(), bearer, options).await
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn client_by(
    card: &Value,
    preference: &InterfacePreference,
    bearer: Option<&str>,
    options: &A2aHttpOptions,
) -> A2aClient {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.json");
    std::fs::write(&path, card.to_string()).unwrap();
    let card = fetch_card(&CardReference::File(path), options).await.unwrap();
    let credentials = A2aCredentials { bearer: bearer.map(str::to_owned), ..A2aCredentials::default() };
    A2aClient::new(&card.value, preference, &credentials, options).unwrap()
}

async fn serve(
    request: Request<Incoming>,
    reply: &(dyn Fn(&Asked) -> Reply + Send + Sync),
    seen: &Mutex<Vec<Asked>>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let method = GrpcMethod::find(head.uri.path()).expect("a method of A2A");
    let body = body.collect().await.unwrap().to_bytes();
    let limits = ProtobufLimits { max_depth: 100, max_json_bytes: 1_000_000 };
    let message = method.read_request(grpc::read_message(&body).unwrap(), limits).unwrap();
    let asked = Asked {
        method: head.uri.path().rsplit('/').next().unwrap().to_owned(),
        message: serde_json::from_str(&message).unwrap(),
        metadata: head.headers,
    };
    seen.lock().unwrap().push(asked.clone());
    let write = |messages: &[Value]| {
        let mut out = vec![];
        for message in messages {
            grpc::write_message(&mut out, |out| {
                method.write_result(out, message.to_string().as_bytes(), None)
            })
            .unwrap();
        }
        out
    };
    let frames: Vec<Result<Frame<Bytes>, std::io::Error>> = match reply(&asked) {
        Reply::Http(status) => {
            return Response::builder()
                .status(status)
                .body(Body::new(http_body_util::Empty::new().map_err(|never| match never {})))
                .unwrap();
        }
        Reply::Refusal(status) => {
            let mut response = answer(vec![]);
            response.headers_mut().extend(trailers(&status));
            return response;
        }
        Reply::Messages(messages, status) => {
            vec![Ok(Frame::data(write(&messages).into())), Ok(Frame::trailers(trailers(&status)))]
        }
        Reply::Cut(messages, bytes) => {
            let piece = write(&messages)[..bytes].to_vec();
            vec![Ok(Frame::data(piece.into())), Err(std::io::Error::other("cut"))]
        }
        Reply::Silence => std::future::pending().await,
    };
    answer(frames)
}

fn answer(frames: Vec<Result<Frame<Bytes>, std::io::Error>>) -> Response<Body> {
    let frames = stream::iter(frames).then(async |frame| {
        // What was written before a reset is only sent if the connection gets a chance to.
        if frame.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        frame
    });
    let body = Body::new(StreamBody::new(frames));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn trailers(status: &GrpcStatus) -> HeaderMap {
    use base64::Engine as _;
    let mut trailers = HeaderMap::new();
    let number = (status.code as i32).to_string();
    trailers.insert("grpc-status", number.parse().unwrap());
    trailers.insert("grpc-message", grpc::encode_text(&status.message).parse().unwrap());
    if let Some(details) = status.write_details() {
        let text = base64::prelude::BASE64_STANDARD_NO_PAD.encode(details);
        trailers.insert("grpc-status-details-bin", HeaderValue::try_from(text).unwrap());
    }
    trailers
}

fn ok() -> GrpcStatus {
    GrpcStatus::new(GrpcCode::Ok, "")
}

fn task(state: &str) -> Value {
    json!({ "id": "t", "contextId": "c", "status": { "state": format!("TASK_STATE_{state}") } })
}

fn hello() -> SendMessage {
    SendMessage::new(Message::text("m", Role::User, "héllo"))
}

#[tokio::test]
async fn a_call_is_a_message_with_its_metadata_and_a_deadline() {
    let fake = GrpcFake::start(|asked| match &*asked.method {
        "SendMessage" => Reply::Messages(vec![json!({ "task": task("COMPLETED") })], ok()),
        "GetTask" => Reply::Messages(vec![task("WORKING")], ok()),
        "ListTasks" => Reply::Messages(vec![json!({ "tasks": [task("WORKING")], "totalSize": 1 })], ok()),
        "DeleteTaskPushNotificationConfig" => Reply::Messages(vec![json!({})], ok()),
        other => panic!("{other}"),
    })
    .await;
    let options = A2aHttpOptions { answer_timeout: Duration::from_secs(20), ..A2aHttpOptions::default() };
    let client = fake.client(&options, Some("secret"), &[]).await;
    assert_eq!(client.binding(), A2aBinding::Grpc);
    let sent = within(client.send(hello())).await.unwrap();
    assert!(matches!(&sent.value, StreamEvent::Task(task) if task.id == "t"), "{sent:?}");
    let first = fake.asked()[0].clone();
    assert_eq!(first.message["message"]["parts"][0]["text"], "héllo");
    assert_eq!(first.message["tenant"], "acme");
    let metadata = |name: &str| first.metadata.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(metadata("a2a-version"), Some("1.0"));
    assert_eq!(metadata("authorization"), Some("Bearer secret"));
    assert_eq!(metadata("te"), Some("trailers"));
    assert_eq!(metadata("content-type"), Some("application/grpc"));
    assert_eq!(metadata("grpc-timeout"), Some("20000000u"));
    assert_eq!(within(client.get("t", Some(2))).await.unwrap().value.id, "t");
    assert_eq!(fake.asked()[1].message, json!({ "tenant": "acme", "id": "t", "historyLength": 2 }));
    let listed = within(client.list(nuncio_wire::a2a::ListTasks::default())).await.unwrap();
    assert_eq!(listed.value.tasks.len(), 1);
    within(client.delete_webhook("t", "one")).await.unwrap();
    assert!(fake.asked().iter().all(|asked| asked.message["tenant"] == "acme"));
}

fn named(code: GrpcCode, reason: &str) -> GrpcStatus {
    let detail = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org" });
    GrpcStatus { code, message: "näh".to_owned(), details: vec![detail] }
}

#[tokio::test]
async fn a_status_is_the_error_that_the_other_bindings_have() {
    let check = async |status: GrpcStatus, expected: &dyn Fn(&A2aClientError) -> bool| {
        for before in [true, false] {
            let status = status.clone();
            let shown = format!("{status:?}, {before}");
            let fake = GrpcFake::start(move |_| match before {
                true => Reply::Refusal(status.clone()),
                false => Reply::Messages(vec![], status.clone()),
            })
            .await;
            let client =
                fake.client(&A2aHttpOptions { resumes: 0, ..A2aHttpOptions::default() }, None, &[]).await;
            let error = within(client.get("t", None)).await.unwrap_err();
            assert!(expected(&error), "{shown}: {error:?}");
        }
    };
    let rpc = |code: i64| {
        move |error: &A2aClientError| error.rpc_code() == Some(code) && error.to_string() == "näh"
    };
    check(named(GrpcCode::NotFound, "TASK_NOT_FOUND"), &rpc(-32001)).await;
    check(named(GrpcCode::FailedPrecondition, "TASK_NOT_CANCELABLE"), &rpc(-32002)).await;
    check(named(GrpcCode::Unimplemented, "PUSH_NOTIFICATION_NOT_SUPPORTED"), &rpc(-32003)).await;
    check(named(GrpcCode::FailedPrecondition, "VERSION_NOT_SUPPORTED"), &rpc(-32009)).await;
    let plain = |code| GrpcStatus::new(code, "näh");
    check(plain(GrpcCode::InvalidArgument), &rpc(-32602)).await;
    check(plain(GrpcCode::Internal), &rpc(-32603)).await;
    check(plain(GrpcCode::Unauthenticated), &|error| {
        matches!(error, A2aClientError::Unauthorized { status: 401, supplied: false, .. })
    })
    .await;
    check(plain(GrpcCode::PermissionDenied), &|error| {
        matches!(error, A2aClientError::Unauthorized { status: 403, .. })
    })
    .await;
    check(plain(GrpcCode::Unavailable), &A2aClientError::is_transient).await;
    check(plain(GrpcCode::ResourceExhausted), &|error| {
        matches!(error, A2aClientError::Http { status: 429, .. })
    })
    .await;
    check(plain(GrpcCode::DeadlineExceeded), &|error| matches!(error, A2aClientError::Timeout { .. })).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_a_timeout_and_one_of_another_protocol_an_error() {
    let fake = GrpcFake::start(|asked| match &*asked.method {
        "GetTask" => Reply::Silence,
        _ => Reply::Http(502),
    })
    .await;
    let options = A2aHttpOptions { answer_timeout: Duration::from_millis(200), ..A2aHttpOptions::default() };
    let client = fake.client(&options, None, &[]).await;
    let late = within(client.get("t", None)).await.unwrap_err();
    assert!(matches!(late, A2aClientError::Timeout { .. }), "{late:?}");
    let proxy = within(client.cancel("t")).await.unwrap_err();
    assert!(matches!(proxy, A2aClientError::Http { status: 502, .. }), "{proxy:?}");
}

/// Events with their cursors, as our servers put them into the metadata.
fn events() -> Vec<Value> {
    let update = |cursor: &str, state: &str| {
        let status = json!({ "state": format!("TASK_STATE_{state}") });
        json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": status, "metadata": { CURSOR_EXTENSION: cursor } } })
    };
    let mut begun = task("SUBMITTED");
    begun["metadata"] = json!({ CURSOR_EXTENSION: "1", "own": "stays" });
    vec![json!({ "task": begun }), update("2", "WORKING"), update("3", "COMPLETED")]
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_loses_and_repeats_nothing() {
    let cut = Arc::new(Mutex::new(0));
    let place = Arc::clone(&cut);
    let fake = GrpcFake::start(move |asked| match &*asked.method {
        "SendStreamingMessage" => Reply::Cut(events(), *place.lock().unwrap()),
        "SubscribeToTask" => {
            let after: usize = asked.metadata["last-event-id"].to_str().unwrap().parse().unwrap();
            Reply::Messages(events()[after..].to_vec(), ok())
        }
        other => panic!("{other}"),
    })
    .await;
    let client = fake.client(&A2aHttpOptions { resumes: 3, ..A2aHttpOptions::default() }, None, &[]).await;
    let size = |messages: &[Value]| {
        let method = GrpcMethod::find("/lf.a2a.v1.A2AService/SubscribeToTask").unwrap();
        let mut out = vec![];
        for message in messages {
            let json = message.to_string();
            grpc::write_message(&mut out, |out| method.write_result(out, json.as_bytes(), None)).unwrap();
        }
        out.len()
    };
    let (first, whole) = (size(&events()[..1]), size(&events()));
    let ends = [first, size(&events()[..2]), whole];
    for at in (first..=whole).filter(|at| ends.iter().any(|end| at.abs_diff(*end) <= 5) || at % 31 == 0) {
        *cut.lock().unwrap() = at;
        let mut stream = within(client.send_streaming(hello())).await.unwrap();
        let mut seen = vec![];
        while let Some(item) =
            within(stream.next()).await.unwrap_or_else(|error| panic!("at {at}: {error:?}"))
        {
            if let StreamEvent::Task(_) = item.event.value {
                let json: Value = serde_json::from_str(item.event.json.get()).unwrap();
                assert_eq!(json["task"]["metadata"], json!({ "own": "stays" }));
            }
            seen.push(item.cursor.unwrap());
        }
        assert_eq!(seen, ["1", "2", "3"], "cut at byte {at}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_gives_way_to_another_binding() {
    let rest = axum::Router::new().route(
        "/message:send",
        axum::routing::post(async || json!({ "task": task("COMPLETED") }).to_string()),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, rest).await.unwrap() });
    let other = json!({ "url": other, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" });
    for reply in [GrpcCode::Unimplemented, GrpcCode::Unavailable] {
        let fake = GrpcFake::start(move |_| Reply::Refusal(GrpcStatus::new(reply, "no"))).await;
        let client = fake.client(&A2aHttpOptions::default(), None, std::slice::from_ref(&other)).await;
        let sent = within(client.send(hello())).await;
        match reply {
            GrpcCode::Unimplemented => {
                sent.unwrap();
                assert_eq!(client.binding(), A2aBinding::HttpJson);
            }
            _ => assert!(matches!(sent, Err(A2aClientError::Http { status: 503, .. })), "{sent:?}"),
        }
    }
    let closed = GrpcFake { address: "127.0.0.1:1".to_owned(), asked: Arc::default() };
    let client = closed.client(&A2aHttpOptions::default(), None, &[other]).await;
    within(client.send(hello())).await.unwrap();
    assert_eq!(client.binding(), A2aBinding::HttpJson);
}

/// The port of a server of HTTP/1 alone that counts what it is asked, and answers over REST.
async fn rest_of_http_1(is_silent: bool) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut start = [0; 3];
                while stream.peek(&mut start).await.is_ok_and(|read| read < 3) {}
                // Most servers answer the preface of HTTP/2, and some only close the connection.
                if start == *b"PRI" && !is_silent {
                    let refusal =
                        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut { stream }, refusal).await;
                    return;
                }
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                    let body = json!({ "task": task("COMPLETED") }).to_string();
                    let body = http_body_util::Full::new(Bytes::from(body));
                    async move { Ok::<_, Infallible>(Response::new(body)) }
                });
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, seen)
}

fn interface(url: &str, binding: &str) -> Value {
    json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" })
}

#[tokio::test]
async fn a_port_that_speaks_http_1_alone_gives_way_to_another_binding() {
    for is_silent in [false, true] {
        let (address, seen) = rest_of_http_1(is_silent).await;
        let http1 = GrpcFake { address: address.clone(), asked: Arc::default() };
        let other = interface(&format!("http://{address}"), "HTTP+JSON");
        let client = http1.client(&A2aHttpOptions::default(), Some("secret"), &[other]).await;
        within(client.send(hello())).await.unwrap();
        assert_eq!(client.binding(), A2aBinding::HttpJson);
        assert_eq!(*seen.lock().unwrap(), ["HEAD /", "POST /message:send"], "silent: {is_silent}");
        within(client.send(hello())).await.unwrap();
        assert_eq!(seen.lock().unwrap().len(), 3, "and it stays there");
        // Without another binding the error says what is wrong.
        let alone = http1.client(&A2aHttpOptions::default(), None, &[]).await;
        let error = within(alone.send(hello())).await.unwrap_err();
        assert!(error.to_string().contains("HTTP/1"), "{error}");
    }
}

/// A server that takes a request and dies may have carried it out, whatever else is spoken there.
#[tokio::test]
async fn a_request_that_broke_off_over_http_2_is_not_sent_elsewhere() {
    let (address, seen) = rest_of_http_1(false).await;
    let other = interface(&format!("http://{address}"), "HTTP+JSON");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = hyper::service::service_fn(async |request: Request<Incoming>| {
                    match request.method().as_str() {
                        "POST" => Err(std::io::Error::other("dies")),
                        _ => Ok(Response::new(http_body_util::Empty::<Bytes>::new())),
                    }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let fake = GrpcFake { address: own, asked: Arc::default() };
    let client = fake.client(&A2aHttpOptions::default(), None, &[other]).await;
    let error = within(client.send(hello())).await.unwrap_err();
    assert!(matches!(error, A2aClientError::Unreachable { sent: true, .. }), "{error:?}");
    assert!(seen.lock().unwrap().is_empty());
}

fn plain_task(state: &str) -> Value {
    json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": state } })
}

#[tokio::test]
async fn calls_of_0_3_go_to_its_own_service_and_name_their_task() {
    let fake = GrpcFake::start(|asked| match &*asked.method {
        "SendMessage" | "GetTask" => Reply::Messages(vec![plain_task("completed")], ok()),
        "CreateTaskPushNotificationConfig" => {
            let config =
                json!({ "taskId": "t", "pushNotificationConfig": { "id": "one", "url": "https://x/" } });
            Reply::Messages(vec![config], ok())
        }
        "DeleteTaskPushNotificationConfig" => Reply::Messages(vec![json!({})], ok()),
        other => panic!("{other}"),
    })
    .await;
    let client = fake.client_0_3(&A2aHttpOptions::default()).await;
    assert_eq!((client.binding(), client.dialect()), (A2aBinding::Grpc, Dialect::V0_3));
    let sent = within(client.send(hello())).await.unwrap();
    assert!(matches!(&sent.value, StreamEvent::Task(task) if task.id == "t"), "{sent:?}");
    // What is shown is what JSON-RPC shows.
    assert_eq!(serde_json::from_str::<Value>(sent.json.get()).unwrap(), plain_task("completed"));
    let first = fake.asked()[0].clone();
    assert_eq!(first.message["message"]["content"][0]["text"], "héllo");
    assert_eq!(first.metadata["a2a-version"], "0.3");
    within(client.get("t", Some(2))).await.unwrap();
    assert_eq!(fake.asked()[1].message, json!({ "name": "tasks/t", "historyLength": 2 }));
    within(client.delete_webhook("t", "one")).await.unwrap();
    assert_eq!(fake.asked()[2].message, json!({ "name": "tasks/t/pushNotificationConfigs/one" }));
    let listed = within(client.list(nuncio_wire::a2a::ListTasks::default())).await.unwrap_err();
    assert!(matches!(listed, A2aClientError::Unsupported(_)), "{listed:?}");
}

/// The official servers of 0.3 send no details: one names the error in its message, the other has the code alone.
#[tokio::test]
async fn a_status_of_0_3_is_the_error_that_json_rpc_has() {
    let check = async |code: GrpcCode, message: &'static str, expected: (i64, &str)| {
        let fake = GrpcFake::start(move |_| Reply::Refusal(GrpcStatus::new(code, message))).await;
        let client = fake.client_0_3(&A2aHttpOptions::default()).await;
        let error = within(client.cancel("t")).await.unwrap_err();
        assert_eq!((error.rpc_code(), error.to_string().as_str()), (Some(expected.0), expected.1));
    };
    check(GrpcCode::NotFound, "TaskNotFoundError: no task", (-32001, "no task")).await;
    check(GrpcCode::Unimplemented, "TaskNotCancelableError: it has ended", (-32002, "it has ended")).await;
    check(GrpcCode::FailedPrecondition, "it has ended", (-32002, "it has ended")).await;
    check(GrpcCode::NotFound, "no task", (-32001, "no task")).await;
}

#[tokio::test]
async fn a_stream_of_0_3_that_is_cut_goes_on_after_its_last_event() {
    let events = || {
        let update = |cursor: &str, state: &str, last: bool| {
            json!({
                "kind": "status-update", "taskId": "t", "contextId": "c", "status": { "state": state },
                "final": last, "metadata": { CURSOR_EXTENSION: cursor },
            })
        };
        let mut begun = plain_task("submitted");
        begun["metadata"] = json!({ CURSOR_EXTENSION: "1", "own": "stays" });
        vec![begun, update("2", "working", false), update("3", "completed", true)]
    };
    let size = |messages: &[Value]| {
        let method = GrpcMethod::find("/a2a.v1.A2AService/TaskSubscription").unwrap();
        let mut out = vec![];
        for message in messages {
            let json = message.to_string();
            grpc::write_message(&mut out, |out| method.write_result(out, json.as_bytes(), None)).unwrap();
        }
        out.len()
    };
    for cut in [size(&events()[..1]), size(&events()[..2]) - 1, size(&events()[..2]) + 5] {
        let fake = GrpcFake::start(move |asked| match &*asked.method {
            "SendStreamingMessage" => Reply::Cut(events(), cut),
            "TaskSubscription" => {
                let after: usize = asked.metadata["last-event-id"].to_str().unwrap().parse().unwrap();
                Reply::Messages(events()[after..].to_vec(), ok())
            }
            other => panic!("{other}"),
        })
        .await;
        let client = fake.client_0_3(&A2aHttpOptions { resumes: 3, ..A2aHttpOptions::default() }).await;
        let mut stream = within(client.send_streaming(hello())).await.unwrap();
        let mut seen = vec![];
        while let Some(item) = within(stream.next()).await.unwrap() {
            if let StreamEvent::Task(task) = &item.event.value {
                assert_eq!(task.metadata.as_ref().unwrap()["own"], "stays");
                assert_eq!(task.metadata.as_ref().unwrap().len(), 1);
            }
            seen.push(item.cursor.unwrap());
        }
        assert_eq!(seen, ["1", "2", "3"], "cut at byte {cut}");
    }
}
