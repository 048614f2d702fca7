//! The live stream: nothing is lost or repeated, whatever is followed and wherever it is cut.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use nuncio_engine::{
    Agent, AgentError, AuditLevel, Caller, Engine, Message, MeteredResource, Outcome, Profile, Role, Submit,
    TaskContext,
};
use serde_json::{Value, json};

use super::refused;
use crate::{
    guests::{As, Guests, audit, site_with},
    site::Site,
    socket::{Events, post, within},
};

impl Site {
    pub(super) async fn live(&self, topics: Value) -> Events {
        self.live_as(&[], topics).await
    }

    pub(super) async fn live_as(&self, headers: &[(&str, &str)], topics: Value) -> Events {
        let body = json!({ "topics": topics }).to_string();
        Events::open(self.socket().await, &post("/console/api/live", headers, body)).await
    }
}

/// The next frame of one of these kinds: the kind and its data. Others are passed over.
pub(super) async fn next(stream: &mut Events, kinds: &[&str]) -> Option<(String, Value)> {
    while let Some((_, frame)) = stream.next().await {
        let (kind, data) = frame.as_object().unwrap().iter().next().unwrap();
        if kinds.contains(&kind.as_str()) {
            return Some((kind.clone(), data.clone()));
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_once_and_in_order_from_any_cursor() {
    let site = Site::new().await;
    let id = site.begin("chunks 400").await;
    let mut seen = vec![];
    // A new stream after each frame, which continues at the cursor of the last one.
    loop {
        let after = seen.len().to_string();
        let mut stream = site.live(json!([{ "key": "t", "topic": "task", "id": id, "after": after }])).await;
        let (kind, data) = next(&mut stream, &["events", "end"]).await.unwrap();
        if kind == "end" {
            assert_eq!(data, json!({ "key": "t", "why": "ended" }));
            break;
        }
        for event in data["events"].as_array().unwrap() {
            assert_eq!(event["seq"], seen.len() as u64 + 1);
            seen.push(event.clone());
        }
        assert_eq!(data["cursor"], seen.len().to_string());
    }
    let log = site.shown(&format!("tasks/{id}/events?limit=1000&preview=100000")).await;
    assert_eq!(log["events"].as_array().unwrap(), &seen);
    let mut whole = site.live(json!([{ "key": "t", "topic": "task", "id": id }])).await;
    let mut numbers = vec![];
    while let Some((_, data)) = next(&mut whole, &["events"]).await {
        numbers.extend(data["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()));
        if data["ended"] == true {
            break;
        }
    }
    assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_questions_change_as_tasks_do() {
    let site = Site::new().await;
    let (rows, questions) = (site.shown("tasks").await, site.shown("questions").await);
    let mut stream = site
        .live(json!([
            { "key": "list", "topic": "rows", "after": rows["liveCursor"] },
            { "key": "inbox", "topic": "questions", "after": questions["liveCursor"] },
        ]))
        .await;
    let mut caught_up = vec![];
    while caught_up.len() < 2 {
        let (_, data) = next(&mut stream, &["caught-up"]).await.unwrap();
        caught_up.push(data["key"].as_str().unwrap().to_owned());
    }
    let id = site.begin("ask").await;
    let (mut asked, mut waiting) = (None, false);
    while asked.is_none() || !waiting {
        match next(&mut stream, &["rows", "questions"]).await.unwrap() {
            (kind, data) if kind == "questions" => {
                assert_eq!((&data["asked"][0]["taskId"], &data["closed"]), (&json!(id), &json!([])));
                asked = data["asked"][0]["questionId"].as_str().map(str::to_owned);
            }
            (_, data) => {
                let row = &data["rows"][0];
                assert_eq!(row["taskId"], *id);
                waiting = row["state"] == "input-required";
            }
        }
    }
    let answer = json!({ "questionId": asked, "action": "accept", "content": { "confirm": true } });
    assert_eq!(site.console_post(&format!("tasks/{id}/answers"), &[], &answer).await.status, 200);
    let (mut closed, mut ended) = (false, false);
    while !closed || !ended {
        match next(&mut stream, &["rows", "questions"]).await.unwrap() {
            (kind, data) if kind == "questions" => {
                assert_eq!((&data["closed"][0]["questionId"], &data["asked"]), (&json!(asked), &json!([])));
                assert_eq!(data["closed"][0]["how"], "answered");
                closed = true;
            }
            (_, data) => ended = data["rows"][0]["state"] == "completed",
        }
    }
}

/// A stream is one access, however often it reads: a console that is left open does not fill the audit.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_audited_once() {
    let site = Site::with(|setup| setup.options.access.audit = AuditLevel::All).await;
    let mut stream = site
        .live(json!([{ "key": "list", "topic": "rows" }, { "key": "inbox", "topic": "questions" }]))
        .await;
    for _ in 0..2 {
        next(&mut stream, &["caught-up"]).await.unwrap();
    }
    let lists = async || audit(&site).await.iter().filter(|line| line.operation == "task.list").count();
    assert_eq!(lists().await, 2, "a line for each topic");
    for _ in 0..3 {
        site.begin("ask").await;
        next(&mut stream, &["questions"]).await.unwrap();
    }
    assert_eq!(lists().await, 2);
}

/// What happened between a page and the stream that continues after it is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_where_the_page_ended() {
    let site = Site::new().await;
    let (rows, questions) = (site.shown("tasks").await, site.shown("questions").await);
    let id = site.begin("ask").await;
    site.until_state(&id, "INPUT_REQUIRED").await;
    let mut stream =
        site.live(json!([{ "key": "list", "topic": "rows", "after": rows["liveCursor"] }])).await;
    let (_, data) = next(&mut stream, &["rows"]).await.unwrap();
    assert_eq!(data["rows"][0]["taskId"], *id);
    let topic = json!([{ "key": "inbox", "topic": "questions", "after": questions["liveCursor"] }]);
    let mut stream = site.live(topic).await;
    let (kind, data) = next(&mut stream, &["gap", "caught-up"]).await.unwrap();
    assert_eq!(kind, "gap", "{data}");
    assert_eq!(data["cursor"], site.shown("questions").await["liveCursor"]);
    let mut stream =
        site.live(json!([{ "key": "list", "topic": "rows", "after": "of another version" }])).await;
    assert_eq!(next(&mut stream, &["gap", "caught-up"]).await.unwrap().0, "gap");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_credentials_and_with_the_server() {
    let guests = Arc::new(Guests::default());
    let authenticator = Arc::clone(&guests);
    let site = Site::with(|setup| setup.server.authenticator = Some(authenticator)).await;
    let topics = json!([{ "key": "list", "topic": "rows" }]);
    let mut passing = site.live_as(&[("Authorization", "Bearer passing")], topics.clone()).await;
    let mut staying = site.live_as(&[("Authorization", "Bearer staying")], topics).await;
    next(&mut passing, &["caught-up"]).await.unwrap();
    next(&mut staying, &["caught-up"]).await.unwrap();
    guests.revoked.store(true, Ordering::SeqCst);
    let (_, data) = next(&mut passing, &["closing"]).await.unwrap();
    assert_eq!(data["why"], "revoked");
    assert!(passing.next().await.is_none());
    let stopping = site.begin_stop();
    let (_, data) = next(&mut staying, &["closing"]).await.unwrap();
    assert_eq!(data["why"], "shutdown");
    assert!(staying.next().await.is_none());
    stopping.finish().await;
}

#[tokio::test]
async fn a_topic_that_is_refused_refuses_the_stream() {
    let site = Site::new().await;
    let id = site.begin("hello").await;
    site.until_state(&id, "COMPLETED").await;
    let many: Vec<Value> = (0..17).map(|n| json!({ "key": format!("k{n}"), "topic": "rows" })).collect();
    for (topics, field) in [
        (json!([]), "topics"),
        (json!(many), "topics"),
        (json!([{ "key": "", "topic": "rows" }]), "topics/0/key"),
        (json!([{ "key": "a", "topic": "rows" }, { "key": "a", "topic": "rows" }]), "topics/1/key"),
        (json!([{ "key": "a", "topic": "task" }]), "topics/0/id"),
        (json!([{ "key": "a", "topic": "task", "id": id, "after": "x" }]), "topics/0/after"),
    ] {
        let answer = site.console_post("live", &[], &json!({ "topics": topics })).await;
        assert_eq!(refused(&answer, 400, "bad_request")["field"], field, "{topics}");
    }
    let beyond = json!({ "topics": [{ "key": "a", "topic": "task", "id": id, "after": "99" }] });
    refused(&site.console_post("live", &[], &beyond).await, 409, "cursor_beyond");
    let others = json!({ "topics": [{ "key": "a", "topic": "rows", "filter": { "owner": "all" } }] });
    refused(&site.console_post("live", &[], &others).await, 403, "scope_missing");
}

/// A tenant that opens as many consoles as it can leaves streams to others.
#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_does_not_take_all_live_streams() {
    let site = Site::with(|setup| {
        setup.server.authenticator = Some(Arc::new(Guests::default()));
        setup.server.limits.max_streams = 32;
        setup.server.limits.max_streams_per_caller = 32;
    })
    .await;
    let topics = || json!([{ "key": "q", "topic": "questions" }]);
    let greedy = [("Authorization", "Bearer greedy/eve")];
    let mut held = vec![];
    let refusal = loop {
        let body = json!({ "topics": topics() }).to_string();
        let stream = Events::try_open(site.socket().await, &post("/console/api/live", &greedy, body)).await;
        match stream {
            Ok(stream) => held.push(stream),
            Err(answer) => break answer,
        }
        assert!(held.len() <= 32, "all streams went to one tenant");
    };
    refused(&refusal, 503, "busy");
    assert!(held.len() < 32, "{} of 32", held.len());
    let mut modest = site.live_as(&[("Authorization", "Bearer modest/ada")], topics()).await;
    assert!(next(&mut modest, &["caught-up"]).await.is_some(), "another tenant is served");
}

const MIB: u64 = 1024 * 1024;

/// Live streams over one connection of HTTP/2 whose client grants no window: no byte of them is ever taken.
struct StalledStreams {
    requests: h2::client::SendRequest<bytes::Bytes>,
    connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
    streams: Vec<h2::RecvStream>,
}

impl StalledStreams {
    async fn connect(site: &Site) -> Self {
        let stream = tokio::net::TcpStream::connect(site.address).await.unwrap();
        let mut client = h2::client::Builder::new();
        let (requests, connection) = client.initial_window_size(0).handshake(stream).await.unwrap();
        Self { requests, connection: tokio::spawn(connection), streams: vec![] }
    }

    async fn open(&mut self, token: &str, topics: &[Value]) -> u16 {
        let request = http::Request::post("http://localhost/console/api/live")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(())
            .unwrap();
        let mut ready = within("a free stream", self.requests.clone().ready()).await.unwrap();
        let (answer, mut body) = ready.send_request(request, false).unwrap();
        body.send_data(json!({ "topics": topics }).to_string().into(), true).unwrap();
        let answer = within("an answer", answer).await.unwrap();
        let status = answer.status();
        self.streams.push(answer.into_body());
        status.as_u16()
    }
}

/// Topics of as many tasks, each with a message of that many bytes.
async fn topics_of_large_tasks(caller: As<'_>, count: usize, bytes: usize) -> Vec<Value> {
    let mut topics = vec![];
    for n in 0..count {
        let id = caller.begin(&format!("echo {}", "x".repeat(bytes))).await;
        topics.push(json!({ "key": format!("t{n}"), "topic": "task", "id": id }));
    }
    topics
}

/// Ends at once and says nothing, so that a log has one large event: the message.
struct Silent;

#[async_trait]
impl Agent for Silent {
    fn profile(&self) -> Profile {
        Profile::new("silent", "Says nothing.")
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}

/// Topics of as many tasks of that agent, each with a message of that many bytes.
async fn topics_of_silent_tasks(site: &Site, owner: &str, count: usize, bytes: usize) -> Vec<Value> {
    let mut topics = vec![];
    for n in 0..count {
        let submit = Submit::new("silent", Message::text("", Role::User, "x".repeat(bytes)));
        let id = site.engine.submit(&Caller::named(owner), submit).await.unwrap().origin.id.to_string();
        topics.push(json!({ "key": format!("t{n}"), "topic": "task", "id": id }));
    }
    topics
}

/// Frames that no reader takes are charged to their caller, and no further frames are made when it holds all its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn the_frames_of_readers_that_stall_are_bounded_by_the_bytes_of_their_caller() {
    const BUDGET: u64 = 6 * MIB;
    let site = site_with(|setup| {
        setup.agents.push(Arc::new(Silent));
        setup.options.bytes_in_flight = 4 * BUDGET;
        setup.options.bytes_in_flight_per_caller = BUDGET;
    })
    .await;
    let eve = As { site: &site, token: "acme/eve" };
    let topics = topics_of_silent_tasks(&site, "acme/eve", 12, 900_000).await;
    let mut stalled = StalledStreams::connect(&site).await;
    assert_eq!(stalled.open(eve.token, &topics).await, 200);
    // A caller that holds all its bytes may be refused.
    let second = stalled.open(eve.token, &topics).await;
    let used = site.engine.bytes_in_flight();
    assert!(second == 200 || (second == 503 && used > BUDGET - MIB), "{second} with {used} bytes in flight");
    // A frame of one of these tasks and no second one fits into what is left.
    within("frames that are charged", async {
        while site.engine.bytes_in_flight() < BUDGET - 2 * MIB {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // What a connection takes from the queue keeps its charge.
    for _ in 0..100 {
        let used = site.engine.bytes_in_flight();
        assert!(used <= BUDGET, "{used} bytes in flight");
        tokio::task::yield_now().await;
    }
    // Other callers are served.
    let ada = site.live_as(&[("Authorization", "Bearer acme/ada")], json!([{ "key": "q", "topic": "rows" }]));
    assert!(next(&mut ada.await, &["caught-up"]).await.is_some());
    stalled.connection.abort();
    drop(stalled);
    within("the release of all bytes", async {
        while site.engine.bytes_in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A reader that reads gets all of them, also when its frames are larger than half of its bytes.
    let mut reading = site.live_as(&[("Authorization", "Bearer acme/eve")], json!(topics)).await;
    let mut ended = 0;
    while ended < topics.len() {
        let (_, data) = next(&mut reading, &["events"]).await.unwrap();
        ended += usize::from(data["ended"] == true);
    }
}

/// Waits until so many streams are open.
async fn until_streams(engine: &Engine, count: u64) {
    while engine.usage().used("", MeteredResource::Streams).total != count {
        tokio::task::yield_now().await;
    }
}

/// A reader that takes nothing does not keep its stream open.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_stream_ends_with_its_credentials_and_with_the_server() {
    let guests = Arc::new(Guests::default());
    let authenticator = Arc::clone(&guests);
    let site = site_with(|setup| setup.server.authenticator = Some(authenticator)).await;
    let mut all = vec![];
    for token in ["passing", "staying"] {
        all.push((token, topics_of_large_tasks(As { site: &site, token }, 12, 300_000).await));
    }
    // The server closes a connection that stalls for long: the streams are opened one after the other.
    let mut stalled = StalledStreams::connect(&site).await;
    for (token, topics) in all {
        assert_eq!(stalled.open(token, &topics).await, 200);
    }
    until_streams(&site.engine, 2).await;
    guests.revoked.store(true, Ordering::SeqCst);
    within("the end of the stream whose token is revoked", until_streams(&site.engine, 1)).await;
    let engine = site.engine.clone();
    let stopping = site.begin_stop();
    within("the end of the other stream", until_streams(&engine, 0)).await;
    drop(stalled);
    stopping.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_followed_once_on_a_stream() {
    let site = Site::new().await;
    let (one, two) = (site.begin("hello").await, site.begin("hello").await);
    let topic = |key: &str, id: &str| json!({ "key": key, "topic": "task", "id": id });
    let twice = json!({ "topics": [topic("a", &one), topic("b", &two), topic("c", &one)] }).to_string();
    let opened = Events::try_open(site.socket().await, &post("/console/api/live", &[], twice)).await;
    let error = refused(&opened.err().expect("the second topic of a task is refused"), 400, "bad_request");
    assert_eq!(error["field"], "topics/2/id");
    let mut stream = site.live(json!([topic("a", &one), topic("b", &two)])).await;
    assert!(next(&mut stream, &["events"]).await.is_some());
}

/// Asks a question as long as the message says.
struct Verbose;

#[async_trait]
impl Agent for Verbose {
    fn profile(&self) -> Profile {
        Profile::new("verbose", "Asks a long question.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let length: usize = cx.text().parse().map_err(AgentError::failed)?;
        let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } } });
        cx.ask("?".repeat(length), schema).await?;
        Ok(Outcome::done())
    }
}

/// The questions that a stream remembers, to notice which are closed, are charged to its caller for as long as it is open.
#[tokio::test(flavor = "multi_thread")]
async fn the_questions_that_a_stream_remembers_are_charged_to_its_caller() {
    const QUESTION: u64 = 200_000;
    let site = site_with(|setup| {
        setup.agents.push(Arc::new(Verbose));
        setup.options.bytes_in_flight = 16 * MIB;
        setup.options.bytes_in_flight_per_caller = 4 * MIB;
    })
    .await;
    let eve = Caller::named("acme/eve");
    for _ in 0..6 {
        let submit = Submit::new("verbose", Message::text("", Role::User, QUESTION.to_string()));
        site.engine.submit(&eve, submit).await.unwrap();
    }
    within("all questions", async {
        while site.engine.open_questions(&eve).await.unwrap().questions.len() < 6 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let in_flight = async |expected: &dyn Fn(u64) -> bool| {
        within("the charge", async {
            while !expected(site.engine.bytes_in_flight()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    in_flight(&|used| used == 0).await;
    let (headers, topics) =
        ([("Authorization", "Bearer acme/eve")], json!([{ "key": "q", "topic": "questions" }]));
    let open = async || {
        let mut stream = site.live_as(&headers, topics.clone()).await;
        assert!(next(&mut stream, &["caught-up"]).await.is_some());
        stream
    };
    let (first, second) = (open().await, open().await);
    in_flight(&|used| (2 * 6 * QUESTION..2 * 6 * QUESTION + MIB).contains(&used)).await;
    // A third one finds no room, and other callers do.
    let rest = site.engine.charge_bytes(&eve, 2 * MIB);
    let held: Vec<_> = (0..256).map(|_| Box::pin(site.engine.reserve_bytes(&eve, 4 * MIB))).collect();
    let mut held = futures_util::future::join_all(held);
    assert!((&mut held).now_or_never().is_none(), "as many as may wait");
    let answer = site.console_post("live", &headers, &json!({ "topics": topics })).await;
    refused(&answer, 503, "busy");
    let ada = [("Authorization", "Bearer acme/ada")];
    assert!(next(&mut site.live_as(&ada, topics.clone()).await, &["caught-up"]).await.is_some());
    drop((held, rest, first, second));
    in_flight(&|used| used == 0).await;
}
