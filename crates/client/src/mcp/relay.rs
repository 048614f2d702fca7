//! Carries the messages of a client that speaks MCP over pipes to a server that speaks it over HTTP, and back.
//!
//! Whatever the client says is passed on as it is; only the envelope differs. A stream of a session that is
//! cut is taken up again where it was, so that a client on pipes outlives a restart of the server.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use nuncio_wire::{
    jsonrpc::{self, INTERNAL_ERROR, Id},
    sse,
};
use reqwest::{Client, RequestBuilder, redirect, retry};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet};

/// How long requests may still be answered when the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Bytes of one message.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;
/// How long a server that went away is waited for, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(250);

/// The server cannot be reached at all.
#[derive(Debug, thiserror::Error)]
#[error("the MCP server at {url} cannot be used: {why}")]
pub struct RelayError {
    url: String,
    why: String,
}

/// A client on pipes, on its way to a server.
pub struct Relay {
    wire: Arc<Wire>,
    /// Requests under way.
    work: JoinSet<()>,
    /// The session's own stream.
    listening: JoinSet<()>,
}

struct Wire {
    client: Client,
    url: String,
    session: Mutex<Session>,
    out: mpsc::Sender<Vec<u8>>,
}

#[derive(Default, Clone)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl Relay {
    /// A relay to the MCP endpoint at `url`. What comes back goes to `out`, one message at a time.
    pub fn new(url: &str, out: mpsc::Sender<Vec<u8>>) -> Result<Self, RelayError> {
        // An error means that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .http1_only()
            .no_proxy()
            .build()
            .map_err(|error| RelayError { url: url.to_owned(), why: error.to_string() })?;
        let wire = Wire { client, url: url.to_owned(), session: Mutex::default(), out };
        Ok(Self { wire: Arc::new(wire), work: JoinSet::new(), listening: JoinSet::new() })
    }

    /// Passes on what the client says.
    pub async fn send(&mut self, line: Vec<u8>) {
        while self.work.try_join_next().is_some() {}
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let wire = Arc::clone(&self.wire);
        match method.as_str() {
            // What follows needs its session.
            "initialize" => wire.post(line, message).await,
            "notifications/initialized" => {
                wire.post(line, message).await;
                let wire = Arc::clone(&self.wire);
                self.listening.spawn(async move { wire.listen().await });
            }
            _ => drop(self.work.spawn(async move { wire.post(line, message).await })),
        }
    }

    /// The client has closed its end: what is nearly answered is, and the session ends with it.
    pub async fn close(mut self) {
        let answered = async { while self.work.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        self.work.shutdown().await;
        self.listening.shutdown().await;
        if self.wire.session().id.is_some() {
            let request = self.wire.addressed(self.wire.client.delete(&self.wire.url));
            let _ = tokio::time::timeout(Duration::from_secs(5), request.send()).await;
        }
    }
}

impl Wire {
    fn session(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request with the names of the session.
    fn addressed(&self, mut request: RequestBuilder) -> RequestBuilder {
        let Session { id, version } = self.session();
        if let Some(id) = id {
            request = request.header("mcp-session-id", id);
        }
        if let Some(version) = version {
            request = request.header("mcp-protocol-version", version);
        }
        request
    }

    async fn post(&self, line: Vec<u8>, message: Value) {
        let id = message.get("id").and_then(|id| Id::from_json(&id.to_string()));
        let is_request = message.get("method").is_some() && id.is_some();
        let request = self.client.post(&self.url).header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::ACCEPT, "application/json, text/event-stream");
        let request = match mirrored(&message) {
            Some(headers) => request.headers(headers),
            None => self.addressed(request),
        };
        let answered = match request.body(line).send().await {
            Ok(answered) => answered,
            Err(error) => {
                if let (true, Some(id)) = (is_request, &id) {
                    self.fail(id, &format!("the server at {} does not answer: {error}", self.url)).await;
                }
                return;
            }
        };
        if message["method"] == "initialize" {
            self.begin(answered.headers());
        }
        let streams = is_stream(answered.headers());
        if !streams {
            let body = answered.bytes().await.unwrap_or_default();
            if is_request && !body.is_empty() {
                if message["method"] == "initialize" {
                    self.learn(&body);
                }
                self.tell(body.to_vec()).await;
            }
            return;
        }
        let Some(id) = id else { return };
        self.follow(answered, &id).await;
    }

    /// Reads the stream of a call to its response. One that is cut is taken up again.
    async fn follow(&self, mut answered: reqwest::Response, id: &Id) {
        let mut last: Option<String> = None;
        loop {
            let mut parser = sse::Parser::new(MAX_MESSAGE);
            let mut pieces = answered.bytes_stream();
            while let Some(Ok(piece)) = pieces.next().await {
                let Ok(events) = parser.feed(&piece) else { return };
                for event in events {
                    last = event.id.or(last);
                    if event.data.is_empty() {
                        continue;
                    }
                    let ends = is_response(&event.data, id);
                    self.tell(event.data.into_bytes()).await;
                    if ends {
                        return;
                    }
                }
            }
            let (Some(cursor), true) = (&last, self.session().id.is_some()) else {
                return self.fail(id, "the stream of the call was cut: call again").await;
            };
            match self.resume(cursor).await {
                Some(resumed) => answered = resumed,
                None => {
                    return self.fail(id, "the stream of the call was cut, and could not be resumed").await;
                }
            }
        }
    }

    async fn resume(&self, cursor: &str) -> Option<reqwest::Response> {
        let tried = async {
            loop {
                tokio::time::sleep(AGAIN).await;
                let request = self.client.get(&self.url).header(header::ACCEPT, "text/event-stream");
                match self.addressed(request).header("last-event-id", cursor).send().await {
                    Ok(answered) if answered.status().is_success() => return Some(answered),
                    // It is there, and does not know of it.
                    Ok(answered) if answered.status().is_client_error() => return None,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, tried).await.ok().flatten()
    }

    /// Reads what the session is told outside of any call, for as long as it lasts.
    async fn listen(&self) {
        loop {
            let request = self.client.get(&self.url).header(header::ACCEPT, "text/event-stream");
            match self.addressed(request).send().await {
                Ok(answered) if answered.status().is_success() => {
                    let mut parser = sse::Parser::new(MAX_MESSAGE);
                    let mut pieces = answered.bytes_stream();
                    while let Some(Ok(piece)) = pieces.next().await {
                        let Ok(events) = parser.feed(&piece) else { break };
                        for event in events.into_iter().filter(|event| !event.data.is_empty()) {
                            self.tell(event.data.into_bytes()).await;
                        }
                    }
                }
                Ok(answered)
                    if matches!(
                        answered.status(),
                        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
                    ) =>
                {
                    return;
                }
                _ => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn begin(&self, headers: &HeaderMap) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.id = headers.get("mcp-session-id").cloned();
    }

    /// The revision that was agreed on goes with every request from here on.
    fn learn(&self, body: &[u8]) {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = answer["result"]["protocolVersion"].as_str();
        let version = version.and_then(|version| HeaderValue::from_str(version).ok());
        self.session.lock().unwrap_or_else(PoisonError::into_inner).version = version;
    }

    async fn fail(&self, id: &Id, why: &str) {
        let mut out = Vec::new();
        jsonrpc::write_error(&mut out, Some(id), INTERNAL_ERROR, why, None);
        self.tell(out).await;
    }

    async fn tell(&self, message: Vec<u8>) {
        // An error says that the client is gone.
        let _ = self.out.send(message).await;
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn is_response(data: &str, id: &Id) -> bool {
    jsonrpc::parse_response(data.as_bytes()).is_ok_and(|response| response.id.as_ref() == Some(id))
}

/// The headers of a request that stands for itself (2026-07-28): what its body says. `None` for all others.
fn mirrored(message: &Value) -> Option<HeaderMap> {
    let params = &message["params"];
    let version = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str()?;
    let mut headers = HeaderMap::new();
    headers.insert("mcp-protocol-version", HeaderValue::from_str(version).ok()?);
    headers.insert("mcp-method", HeaderValue::from_str(message["method"].as_str()?).ok()?);
    let named = ["name", "uri", "taskId"].iter().find_map(|member| params[*member].as_str());
    if let Some(named) = named {
        let plain = named.bytes().all(|byte| matches!(byte, b'!'..=b'~')) && !named.starts_with("=?");
        let value =
            if plain { named.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(named)) };
        headers.insert("mcp-name", HeaderValue::from_str(&value).ok()?);
    }
    Some(headers)
}
