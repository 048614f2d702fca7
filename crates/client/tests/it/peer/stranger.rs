//! Agents that are not ours, and do what agents do: cut their streams, have none, answer without a task, ask in plain
//! words. This one speaks 1.0, has no cursors and no keys.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State as Shared,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use nuncio_client::{
    a2a::{A2aPeer, A2aPeerOptions},
    peer::{CallEvent, Peer, PeerError, RESULT},
};
use nuncio_engine::{
    State,
    question::{Answer, Ask},
};
use nuncio_wire::a2a::card::CURSOR_EXTENSION;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use super::{Story, begin, call, to_end, turn, within};

/// How a stranger behaves.
#[derive(Clone, Copy, Default)]
struct Manners {
    streams: bool,
    /// Streams break after so many events.
    cuts_after: Option<usize>,
    /// A task can be subscribed to.
    subscribes: bool,
    /// A subscription begins with what happens next, and not with the task.
    abrupt: bool,
    /// A task that has ended is forgotten.
    forgets: bool,
    /// It says that the ids of its events are cursors, and the same message is one message.
    cursors: bool,
}

struct Stranger {
    manners: Manners,
    address: SocketAddr,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What happens to the task, and how much of it has.
    script: Vec<Value>,
    happened: usize,
    /// The messages that came, and the methods.
    messages: Vec<Value>,
    methods: Vec<String>,
    /// How many answers are lost on the way back.
    swallow: usize,
    /// How many answers are not heard at all.
    deaf: usize,
    /// How many messages after that are answered with nothing, and no end.
    hang: usize,
    /// What it calls itself.
    name: Option<&'static str>,
    /// What is said to every message once it was taken: a status, `Retry-After`, a body.
    instead: Option<(u16, Option<&'static str>, Value)>,
}

const TASK: &str = "task-1";

fn status(state: &str, text: Option<&str>) -> Value {
    let mut status = json!({ "state": format!("TASK_STATE_{state}") });
    if let Some(text) = text {
        let parts = [json!({ "text": text })];
        status["message"] = json!({ "messageId": format!("m-{text}"), "role": "ROLE_AGENT", "parts": parts });
    }
    json!({ "statusUpdate": { "taskId": TASK, "contextId": "c", "status": status } })
}

fn piece(text: &str, append: bool) -> Value {
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": text }] });
    json!({ "artifactUpdate": { "taskId": TASK, "contextId": "c", "artifact": artifact, "append": append } })
}

impl Stranger {
    async fn start(manners: Manners, script: Vec<Value>) -> (Arc<Self>, A2aPeer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Mutex::new(Seen { script, ..Seen::default() });
        let stranger = Arc::new(Self { manners, address, seen });
        let app = Router::new()
            .route("/.well-known/agent-card.json", get(card))
            .route("/rpc", post(answer))
            .with_state(Arc::clone(&stranger));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let url = Url::parse(&format!("http://{address}/")).unwrap();
        let (poll, slowest) = (Duration::from_millis(5), Duration::from_millis(50));
        let whole_server = manners.cursors;
        let options = A2aPeerOptions { poll, slowest, whole_server, ..A2aPeerOptions::default() };
        (stranger, A2aPeer::new(url, options))
    }

    fn url(&self) -> Url {
        Url::parse(&format!("http://{}/", self.address)).unwrap()
    }

    fn methods(&self, method: &str) -> usize {
        self.seen.lock().unwrap().methods.iter().filter(|seen| *seen == method).count()
    }

    fn texts(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let text = |message: &Value| message["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        seen.messages.iter().map(text).collect()
    }
}

impl Seen {
    /// The task as of what has happened.
    fn task(&self) -> Value {
        let mut task = json!({ "id": TASK, "contextId": "c", "status": { "state": "TASK_STATE_SUBMITTED" } });
        let mut text = String::new();
        for event in &self.script[..self.happened] {
            if event["statusUpdate"].is_object() {
                task["status"] = event["statusUpdate"]["status"].clone();
            }
            if let Some(more) = event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str() {
                if event["artifactUpdate"]["append"] == false {
                    text.clear();
                }
                text.push_str(more);
                task["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": text }] }]);
            }
        }
        task
    }

    /// Lets one thing happen, unless the task has ended or waits.
    fn happen(&mut self) -> Option<Value> {
        let event = self.script.get(self.happened).filter(|_| !self.rests())?.clone();
        self.happened += 1;
        Some(event)
    }

    fn rests(&self) -> bool {
        let state = self.task()["status"]["state"].as_str().unwrap_or_default().to_owned();
        ["COMPLETED", "INPUT_REQUIRED", "AUTH_REQUIRED", "FAILED"].iter().any(|name| state.ends_with(name))
    }

    /// An answer came: what follows the question may happen.
    fn go_on(&mut self) {
        if self.rests() {
            self.script.insert(self.happened, status("WORKING", None));
            self.happened += 1;
        }
    }
}

async fn card(Shared(stranger): Shared<Arc<Stranger>>) -> Response {
    let extension = json!({ "uri": CURSOR_EXTENSION });
    let extensions: Vec<_> = stranger.manners.cursors.then_some(extension).into_iter().collect();
    let name = stranger.seen.lock().unwrap().name.unwrap_or("stranger");
    let url = format!("http://{}/rpc", stranger.address);
    let interface = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    plain(&json!({
        "name": name, "description": "Not ours.",
        "capabilities": { "streaming": stranger.manners.streams, "extensions": extensions },
        "supportedInterfaces": [interface], "skills": [],
    }))
}

async fn answer(Shared(stranger): Shared<Arc<Stranger>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap().to_owned();
    let manners = stranger.manners;
    let mut seen = stranger.seen.lock().unwrap();
    seen.methods.push(method.clone());
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let unsupported =
        || json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32004, "message": "no" } });
    match method.as_str() {
        "SendMessage" | "SendStreamingMessage" => {
            let message = request["params"]["message"].clone();
            let text = message["parts"][0]["text"].clone();
            let is_answer = message["taskId"] == TASK;
            seen.messages.push(message);
            if let Some((status, retry_after, body)) = seen.instead.clone() {
                let mut response = if status == 0 { stream(&[body]) } else { plain(&body) };
                *response.status_mut() = StatusCode::from_u16(status.max(200)).unwrap();
                if let Some(seconds) = retry_after {
                    response.headers_mut().insert(header::RETRY_AFTER, seconds.parse().unwrap());
                }
                return response;
            }
            if is_answer && seen.deaf > 0 {
                seen.deaf -= 1;
                return stream(&[]);
            }
            if is_answer {
                seen.go_on();
            }
            let streams = method == "SendStreamingMessage";
            if text == "just talk" {
                let said = json!({ "messageId": "s", "role": "ROLE_AGENT", "parts": [{ "text": "hello" }] });
                let said = result(json!({ "message": said }));
                return if streams { stream(&[said]) } else { plain(&said) };
            }
            if seen.swallow > 0 {
                seen.swallow -= 1;
                return stream(&[]);
            }
            if seen.hang > 0 {
                seen.hang -= 1;
                let never =
                    Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
                return ([(header::CONTENT_TYPE, "application/json")], never).into_response();
            }
            match streams {
                true => stream(&events(&mut seen, manners, &result)),
                false => plain(&result(json!({ "task": seen.task() }))),
            }
        }
        "SubscribeToTask" if manners.abrupt => {
            stream(&std::iter::from_fn(|| seen.happen()).map(result).collect::<Vec<_>>())
        }
        "SubscribeToTask" if manners.subscribes && !seen.rests() => {
            stream(&events(&mut seen, manners, &result))
        }
        "GetTask" if manners.forgets && seen.rests() => {
            let error = json!({ "code": -32001, "message": "no such task" });
            plain(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))
        }
        "GetTask" => {
            let task = seen.task();
            if !manners.streams || !manners.subscribes || manners.abrupt {
                seen.happen();
            }
            plain(&result(task))
        }
        "CancelTask" => {
            let at = seen.happened;
            seen.script.truncate(at);
            seen.script.push(status("CANCELED", Some("stopped")));
            seen.happened += 1;
            plain(&result(seen.task()))
        }
        _ => plain(&unsupported()),
    }
}

/// The task, then what happens, as long as the stream holds.
fn events(seen: &mut Seen, manners: Manners, result: &dyn Fn(Value) -> Value) -> Vec<Value> {
    let mut events = vec![result(json!({ "task": seen.task() }))];
    let most = manners.cuts_after.unwrap_or(usize::MAX);
    while events.len() < most {
        let Some(event) = seen.happen() else { break };
        events.push(result(event));
    }
    // What happens while nobody listens is in no stream.
    if manners.cuts_after.is_some() && !seen.rests() {
        seen.happen();
    }
    events
}

fn plain(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn stream(events: &[Value]) -> Response {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from(body)).into_response()
}

fn counting() -> Vec<Value> {
    let mut script = vec![status("WORKING", Some("counting"))];
    script.extend((1..=6).map(|n| piece(&format!("{n} "), n > 1)));
    script.push(status("COMPLETED", Some("counted")));
    script
}

#[tokio::test]
async fn a_stream_that_is_cut_at_every_event_loses_nothing() {
    for cuts_after in [Some(1), Some(2), Some(3), None] {
        for subscribes in [true, false] {
            let manners = Manners { streams: true, cuts_after, subscribes, ..Manners::default() };
            let (_, peer) = Stranger::start(manners, counting()).await;
            let story = call(&peer, "stranger", "count", vec![]).await.unwrap();
            assert_eq!(story.text(), "1 2 3 4 5 6 ", "{cuts_after:?} {subscribes} {:#?}", story.all);
            assert_eq!(
                (story.ended.as_ref().unwrap().state, story.words()),
                (State::Completed, "counted".into())
            );
        }
    }
}

#[tokio::test]
async fn what_happens_before_a_new_subscription_is_not_lost() {
    let manners =
        Manners { streams: true, cuts_after: Some(3), subscribes: true, abrupt: true, ..Manners::default() };
    let (stranger, peer) = Stranger::start(manners, counting()).await;
    let story = call(&peer, "stranger", "count", vec![]).await.unwrap();
    assert_eq!(story.text(), "1 2 3 4 5 6 ", "{:#?}", story.all);
    assert_eq!(stranger.methods("SubscribeToTask"), 1);
}

#[tokio::test]
async fn a_task_that_is_forgotten_when_it_has_ended_has_ended() {
    let manners = Manners {
        streams: true,
        cuts_after: Some(3),
        subscribes: true,
        abrupt: true,
        forgets: true,
        ..Manners::default()
    };
    let (stranger, peer) = Stranger::start(manners, counting()).await;
    let story = call(&peer, "stranger", "count", vec![]).await.unwrap();
    assert_eq!((story.ended.as_ref().unwrap().state, story.words()), (State::Completed, "counted".into()));
    let is_said = |happened: &CallEvent| matches!(happened, CallEvent::Log(line) if line.text.contains("may be missing"));
    assert!(story.all.iter().any(is_said), "{:#?}", story.all);
    assert_eq!(stranger.texts(), ["count"]);
}

#[tokio::test]
async fn who_has_no_streams_is_looked_at() {
    let (stranger, peer) = Stranger::start(Manners::default(), counting()).await;
    let story = call(&peer, "stranger", "count", vec![]).await.unwrap();
    assert_eq!((story.text(), &story.said[..]), ("1 2 3 4 5 6 ", &["counting".to_owned()][..]));
    assert!(stranger.methods("GetTask") >= 6, "it was looked at until it had ended");
    assert_eq!(stranger.methods("SendStreamingMessage"), 0);
}

#[tokio::test]
async fn a_message_without_a_task_is_a_result() {
    for streams in [true, false] {
        let (_, peer) = Stranger::start(Manners { streams, ..Manners::default() }, vec![]).await;
        let story = call(&peer, "stranger", "just talk", vec![]).await.unwrap();
        assert_eq!(story.artifacts, [(RESULT.to_owned(), "hello".to_owned())]);
        assert_eq!(story.ended.unwrap().state, State::Completed);
        assert!(story.handles.is_empty(), "there is nothing to come back to");
    }
}

#[tokio::test]
async fn a_question_in_plain_words_is_a_form_of_one_text() {
    for streams in [true, false] {
        let script = vec![
            status("INPUT_REQUIRED", Some("Which city?")),
            piece("on my way", false),
            status("COMPLETED", None),
        ];
        let (stranger, peer) =
            Stranger::start(Manners { streams, subscribes: true, ..Manners::default() }, script).await;
        let answer = Answer::Accept(json!({ "answer": "Lisbon" }));
        let story = call(&peer, "stranger", "book", vec![answer]).await.unwrap();
        let [question] = &story.asked[..] else { panic!("one question, not {:?}", story.asked) };
        assert_eq!(question.text, "Which city?");
        assert!(matches!(&question.ask, Ask::Form { schema } if schema["required"] == json!(["answer"])));
        assert_eq!(stranger.texts(), ["book", "Lisbon"]);
        assert_eq!(story.text(), "on my way");
    }
}

#[tokio::test]
async fn the_same_words_again_are_another_question() {
    for named in [true, false] {
        let ask = |id: &str| {
            let mut asks = status("INPUT_REQUIRED", Some("Which city?"));
            asks["statusUpdate"]["status"]["message"]["messageId"] =
                if named { id.into() } else { "".into() };
            asks
        };
        let script = vec![ask("q1"), ask("q2"), status("COMPLETED", None)];
        let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, script).await;
        let city = |name: &str| Answer::Accept(json!({ "answer": name }));
        let story = call(&peer, "stranger", "book", vec![city("Lisbon"), city("Porto")]).await.unwrap();
        assert_eq!(story.asked.len(), 2, "{named}: {:#?}", story.all);
        assert_ne!(story.asked[0].id, story.asked[1].id);
        assert_eq!(stranger.texts(), ["book", "Lisbon", "Porto"]);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_heard_is_given_again() {
    let script = || vec![status("INPUT_REQUIRED", Some("Which city?")), status("COMPLETED", None)];
    let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, script()).await;
    stranger.seen.lock().unwrap().deaf = 2;
    let answer = || vec![Answer::Accept(json!({ "answer": "Lisbon" }))];
    let story = call(&peer, "stranger", "book", answer()).await.unwrap();
    assert_eq!(story.ended.unwrap().state, State::Completed);
    assert_eq!(stranger.texts(), ["book", "Lisbon", "Lisbon", "Lisbon"]);
    let ids: Vec<_> = stranger.seen.lock().unwrap().messages.iter().map(|m| m["messageId"].clone()).collect();
    assert!(ids[1] == ids[2] && ids[2] == ids[3], "it is one message: {ids:?}");
    let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, script()).await;
    stranger.seen.lock().unwrap().deaf = usize::MAX;
    let error = call(&peer, "stranger", "book", answer()).await.unwrap_err();
    assert!(matches!(&error, PeerError::Cut(why) if why.contains("goes on waiting")), "{error:?}");
}

#[tokio::test]
async fn an_authorization_is_a_link_where_there_is_one() {
    let ask = |words: &'static str| async move {
        let script = vec![status("AUTH_REQUIRED", Some(words)), status("COMPLETED", None)];
        let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, script).await;
        let story = call(&peer, "stranger", "x", vec![Answer::Accept(json!({}))]).await.unwrap();
        assert_eq!(stranger.texts(), ["x", "done"]);
        story.asked[0].ask.clone()
    };
    let link = ask("Log in at https://login.example/now, please.").await;
    assert_eq!(link, Ask::Authorization { url: "https://login.example/now".into() });
    assert!(matches!(ask("Say the password.").await, Ask::Form { .. }));
}

#[tokio::test]
async fn a_stranger_who_may_have_heard_is_not_told_twice() {
    let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, counting()).await;
    stranger.seen.lock().unwrap().swallow = 1;
    let error = call(&peer, "stranger", "count", vec![]).await.unwrap_err();
    assert!(matches!(&error, PeerError::Cut(why) if why.contains("not known")), "{error:?}");
    assert_eq!(stranger.methods("SendStreamingMessage"), 1);
}

#[tokio::test]
async fn what_is_answered_in_place_of_a_call_tells_whether_it_may_be_made_again() {
    let rpc = |code: i64| json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": "words" } });
    let check = async |status: u16, retry_after: Option<&'static str>, body: Value, expected: &str| {
        for streams in [true, false] {
            let (stranger, peer) = Stranger::start(Manners { streams, ..Manners::default() }, vec![]).await;
            stranger.seen.lock().unwrap().instead = Some((status, retry_after, body.clone()));
            let came_to = match call(&peer, "stranger", "book", vec![]).await {
                Ok(story) => format!("{:?}: {}", story.ended.as_ref().unwrap().state, story.words()),
                Err(PeerError::Busy { retry_after, .. }) => format!("busy {retry_after:?}"),
                Err(PeerError::Cut(_)) => "cut".into(),
                Err(PeerError::Refused(_)) => "refused".into(),
                Err(PeerError::Gone(_)) => "gone".into(),
                Err(other) => format!("{other:?}"),
            };
            assert_eq!(came_to, expected, "{status} {retry_after:?} {body} {streams}");
            assert_eq!(stranger.texts(), ["book"], "{status} {body} {streams}: it was said once");
        }
    };
    // Whoever passed it on may have been heard.
    for status in [500, 502, 503, 504] {
        check(status, None, json!("a page"), "cut").await;
    }
    check(503, Some("3"), json!("a page"), "busy Some(3s)").await;
    check(429, None, json!("a page"), "busy None").await;
    check(404, None, json!("a page"), "gone").await;
    check(422, None, json!("a page"), "refused").await;
    // It was tried, and failed: with an error that stands alone, with a status, in a stream.
    for code in [-32603, -32000, -32006] {
        check(200, None, rpc(code), "Failed: words").await;
        check(500, None, rpc(code), "Failed: words").await;
    }
    check(200, None, rpc(-32602), "refused").await;
    check(200, None, rpc(-32001), "gone").await;
}

#[tokio::test]
async fn an_error_in_place_of_the_first_event_is_an_end() {
    let (stranger, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, vec![]).await;
    let error = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "words" } });
    stranger.seen.lock().unwrap().instead = Some((0, None, error));
    let story = call(&peer, "stranger", "book", vec![]).await.unwrap();
    assert_eq!((story.ended.as_ref().unwrap().state, story.words()), (State::Failed, "words".into()));
    assert_eq!(stranger.texts(), ["book"]);
}

#[tokio::test]
async fn a_cancel_while_the_message_is_sent_again_is_not_lost() {
    let manners = Manners { streams: true, cursors: true, ..Manners::default() };
    let (stranger, peer) = Stranger::start(manners, vec![status("WORKING", None)]).await;
    (stranger.seen.lock().unwrap().swallow, stranger.seen.lock().unwrap().hang) = (1, 1);
    let mut call = within(peer.begin(begin("stranger", "work"))).await.unwrap();
    within(async {
        while stranger.methods("SendStreamingMessage") < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let orders = call.control();
    let (canceled, story) = tokio::join!(within(orders.cancel()), to_end(&mut call, vec![]));
    canceled.unwrap();
    assert_eq!(story.unwrap().ended.unwrap().state, State::Canceled);
    assert_eq!(stranger.methods("CancelTask"), 1);
}

#[tokio::test]
async fn an_agent_with_another_name_is_the_same_where_it_stands_alone() {
    let manners = Manners { streams: true, cuts_after: Some(3), subscribes: true, ..Manners::default() };
    let (stranger, peer) = Stranger::start(manners, counting()).await;
    let mut first = within(peer.begin(begin("stranger", "count"))).await.unwrap();
    let CallEvent::HandleUpdated(handle) = within(first.next()).await.unwrap() else {
        panic!("it leads back")
    };
    drop(first);
    stranger.seen.lock().unwrap().name = Some("stranger 2");
    let later =
        A2aPeer::new(stranger.url(), A2aPeerOptions { whole_server: false, ..A2aPeerOptions::default() });
    let story = to_end(&mut within(later.resume(&handle)).await.unwrap(), vec![]).await.unwrap();
    assert_eq!(story.text(), "1 2 3 4 5 6 ");
    // Of several it would not be known which is meant.
    let server = A2aPeer::new(stranger.url(), A2aPeerOptions::default());
    assert!(matches!(within(server.resume(&handle)).await, Err(PeerError::Gone(_))));
}

#[tokio::test]
async fn a_handle_leads_back_without_cursors_too() {
    let manners = Manners { streams: true, cuts_after: Some(3), subscribes: true, ..Manners::default() };
    let (_, peer) = Stranger::start(manners, counting()).await;
    let mut first = within(peer.begin(begin("stranger", "count"))).await.unwrap();
    let mut story = Story::default();
    while story.handles.is_empty() {
        let happened = within(first.next()).await.unwrap();
        assert!(matches!(happened, CallEvent::HandleUpdated(_)), "first comes what leads back: {happened:?}");
        story.take(happened);
    }
    drop(first);
    let mut again = within(peer.resume(&story.handles[0])).await.unwrap();
    turn(&mut again, &mut story).await.unwrap();
    assert_eq!(story.text(), "1 2 3 4 5 6 ");
}

#[tokio::test]
async fn a_cancel_ends_as_the_stranger_says() {
    let script = vec![status("WORKING", None), status("INPUT_REQUIRED", Some("Go on?"))];
    let (_, peer) = Stranger::start(Manners { streams: true, ..Manners::default() }, script).await;
    let mut waiting = within(peer.begin(begin("stranger", "x"))).await.unwrap();
    let mut story = Story::default();
    turn(&mut waiting, &mut story).await.unwrap();
    within(waiting.cancel()).await.unwrap();
    let story = to_end(&mut waiting, vec![]).await.unwrap();
    assert_eq!((story.ended.as_ref().unwrap().state, story.words()), (State::Canceled, "stopped".into()));
}
