//! A stand-in for the APIs of model providers.
//!
//! No provider can be reached where these tests run. This server says what a test tells it to say, in the form that
//! the providers' documentation describes (chat completions, messages), cut into
//! the pieces that a test wants, and broken off where a test wants that. What it shows is how this client behaves
//! towards such a server; it does not show that a provider is such a server.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::Response,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A provider's API at an address of its own.
pub struct StandIn {
    /// Where it is.
    pub url: String,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    asked: Mutex<Vec<Asked>>,
    /// The headers of those who only looked whether it is there.
    looked: Mutex<Vec<HeaderMap>>,
    replies: Mutex<VecDeque<StandInReply>>,
    /// Connections that were let go before the answer had ended.
    left: AtomicUsize,
}

/// A request as it came.
#[derive(Clone)]
pub struct Asked {
    /// The path and the query.
    pub place: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Value,
    /// When.
    pub at: Instant,
}

/// What is answered.
pub struct StandInReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<String>,
    end: End,
    gate: Option<Arc<Notify>>,
}

/// How an answer ends.
enum End {
    /// As it should.
    Whole,
    /// The connection breaks.
    Cut,
    /// Not at all.
    Open,
}

impl StandInReply {
    /// An answer in one piece.
    pub fn new(status: u16, content_type: &str, body: impl Into<String>) -> Self {
        Self::pieces(status, content_type, vec![body.into()])
    }

    /// An answer in pieces.
    pub fn pieces(status: u16, content_type: &str, pieces: Vec<String>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { status, headers, pieces, end: End::Whole, gate: None }
    }

    /// Server-sent events, each a piece.
    pub fn events(events: impl IntoIterator<Item = impl ToString>) -> Self {
        let pieces = events.into_iter().map(|data| format!("data: {}\n\n", data.to_string()));
        Self::pieces(200, "text/event-stream", pieces.collect())
    }

    /// An error of OpenAI's.
    pub fn refusal(status: u16, message: &str) -> Self {
        let body = json!({ "error": { "message": message, "type": "some_error" } });
        Self::new(status, "application/json", body.to_string())
    }

    /// A text of OpenAI's, one piece a word, that took so many tokens.
    pub fn text(text: &str, tokens: (u64, u64)) -> Self {
        let mut events: Vec<String> = text
            .split_inclusive(' ')
            .map(|word| json!({ "choices": [{ "index": 0, "delta": { "content": word } }] }).to_string())
            .collect();
        events.extend(openai_end("stop", tokens));
        Self::events(events)
    }

    /// Calls of tools (id, name, arguments) of OpenAI's, after a text, the arguments in pieces.
    pub fn calls(text: &str, calls: &[(&str, &str, &str)], tokens: (u64, u64)) -> Self {
        let piece = |n: usize, call: Value| {
            let mut call = call;
            call["index"] = n.into();
            json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] }).to_string()
        };
        let mut events = vec![];
        if !text.is_empty() {
            events.push(json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string());
        }
        for (n, (id, name, _)) in calls.iter().enumerate() {
            let function = json!({ "name": name, "arguments": "" });
            events.push(piece(n, json!({ "id": id, "type": "function", "function": function })));
        }
        // The pieces of all calls are mixed.
        let halves = |arguments: &str| arguments.len() / 2;
        for first in [true, false] {
            for (n, (_, _, arguments)) in calls.iter().enumerate() {
                let (head, tail) = arguments.split_at(halves(arguments));
                let part = if first { head } else { tail };
                events.push(piece(n, json!({ "function": { "arguments": part } })));
            }
        }
        events.extend(openai_end("tool_calls", tokens));
        Self::events(events)
    }

    /// With a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Only the first pieces; then the connection breaks.
    pub fn cut_after(mut self, pieces: usize) -> Self {
        self.pieces.truncate(pieces);
        self.end = End::Cut;
        self
    }

    /// Only the first pieces; then the answer ends as if that were all.
    pub fn ended_after(mut self, pieces: usize) -> Self {
        self.pieces.truncate(pieces);
        self
    }

    /// Only the first pieces; then nothing more comes.
    pub fn open_after(mut self, pieces: usize) -> Self {
        self.pieces.truncate(pieces);
        self.end = End::Open;
        self
    }

    /// The answer begins when this is notified.
    pub fn behind(mut self, gate: &Arc<Notify>) -> Self {
        self.gate = Some(Arc::clone(gate));
        self
    }
}

fn openai_end(why: &str, (input, output): (u64, u64)) -> [String; 3] {
    [
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": why }] }).to_string(),
        json!({ "choices": [], "usage": { "prompt_tokens": input, "completion_tokens": output } })
            .to_string(),
        "[DONE]".to_owned(),
    ]
}

impl StandIn {
    /// Starts one that will give these answers, one after another.
    pub async fn start(replies: impl IntoIterator<Item = StandInReply>) -> Self {
        let told = Arc::new(Told { replies: Mutex::new(replies.into_iter().collect()), ..Told::default() });
        let app = Router::new().fallback(answer).with_state(Arc::clone(&told));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, told }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.told.asked.lock().unwrap().clone()
    }

    /// The headers of those who only looked whether it is there.
    pub fn looked(&self) -> Vec<HeaderMap> {
        self.told.looked.lock().unwrap().clone()
    }

    /// How often somebody went away before the answer had ended.
    pub fn left(&self) -> usize {
        self.told.left.load(Ordering::SeqCst)
    }

    /// Whether all answers were given.
    pub fn is_done(&self) -> bool {
        self.told.replies.lock().unwrap().is_empty()
    }
}

/// Notes that an answer was let go, unless it had ended.
struct Leaving(Option<Arc<Told>>);

impl Leaving {
    fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(told) = &self.0 {
            told.left.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(
    State(told): State<Arc<Told>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Somebody looks whether it is there.
    if method == Method::GET {
        told.looked.lock().unwrap().push(headers);
        return Response::default();
    }
    let body = serde_json::from_slice(&body).unwrap_or_default();
    told.asked.lock().unwrap().push(Asked { place: uri.to_string(), headers, body, at: Instant::now() });
    let next = told.replies.lock().unwrap().pop_front();
    let StandInReply { status, headers, pieces, end, gate } = next.unwrap_or_else(|| {
        StandInReply::refusal(400, "the stand-in was asked more often than the test told it")
    });
    let mut leaving = Leaving(Some(Arc::clone(&told)));
    if let Some(gate) = gate {
        gate.notified().await;
    }
    let pieces = stream::iter(pieces).then(|piece| async move {
        // So that each piece is one of the network's.
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(Bytes::from(piece))
    });
    let last = stream::once(async move {
        match end {
            End::Whole => leaving.has_ended(),
            End::Cut => {
                leaving.has_ended();
                return Some(Err(std::io::Error::other("cut")));
            }
            End::Open => std::future::pending().await,
        }
        None
    });
    let mut response = Response::new(Body::from_stream(pieces.chain(last.filter_map(std::future::ready))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
