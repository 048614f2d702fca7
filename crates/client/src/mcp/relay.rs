//! A relay between an MCP client on pipes and an MCP server over HTTP.
//!
//! Messages pass unchanged; only the envelope differs. Every request gets a response, if only an error. A
//! session's stream that is cut is resumed, and a server that becomes unreachable is located again, so that
//! a client on pipes survives restarts of the server.

pub(super) mod envelope;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use nuncio_outbound::{
    Backoff, HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError,
    ProxyRule, TlsClientOptions,
};
use nuncio_wire::{
    jsonrpc::{self, INTERNAL_ERROR, RpcId},
    sse,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::Instant,
};
use url::Url;

use self::envelope::{MirroredHeaders, RelayMessage};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long pending requests may still be answered after the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Bytes of one message.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;
/// How long to wait for an unreachable server, and the interval between attempts.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(250);

/// Locates the server. The result must not change while the server runs.
#[async_trait]
pub trait EndpointFinder: Send + Sync + 'static {
    /// The MCP endpoint, or why there is none.
    async fn find(&self) -> Result<RelayEndpoint, String>;
}

/// The address of a server, and the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayEndpoint {
    /// The URL of the MCP endpoint.
    pub url: String,
    /// A bearer token for the endpoint.
    pub bearer: Option<String>,
}

impl RelayEndpoint {
    /// A request to the endpoint, with its credentials.
    fn request(&self, method: Method) -> Result<HttpRequest, String> {
        let url = Url::parse(&self.url).map_err(|error| format!("{} is not a URL: {error}", self.url))?;
        let request = HttpRequest::new(method, url);
        let Some(token) = &self.bearer else { return Ok(request) };
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| "the token has characters that no header takes".to_owned())?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }

    /// A request for a stream.
    fn stream_request(&self) -> Result<HttpRequest, String> {
        let request = self.request(Method::GET)?;
        Ok(request.header(header::ACCEPT, HeaderValue::from_static("text/event-stream")))
    }
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RelayError(OutboundError);

/// A relay for one client.
pub struct Relay {
    wire: Arc<RelayConnection>,
    /// Pending requests.
    work: JoinSet<()>,
    /// The reader of the session's own stream.
    listening: JoinSet<()>,
}

struct RelayConnection {
    client: HttpClient,
    finder: Box<dyn EndpointFinder>,
    session: Mutex<RelaySession>,
    mirrors: Mutex<MirroredHeaders>,
    /// Stateless requests, which are cancelled by aborting them.
    open: Mutex<HashMap<RpcId, AbortHandle>>,
    out: mpsc::Sender<Vec<u8>>,
}

#[derive(Default, Clone)]
struct RelaySession {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The client's `initialize`, sent again when the server has lost the session.
    initialize: Option<Vec<u8>>,
}

impl Relay {
    /// A relay to the server that `finder` locates. Messages for the client go to `out`, one at a time.
    /// `tls`: whom to trust beside the system's CAs.
    pub fn new(
        finder: impl EndpointFinder,
        tls: TlsClientOptions,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Result<Self, RelayError> {
        let options =
            HttpClientOptions { tls, ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Never)) };
        let client = HttpClient::new(options).map_err(RelayError)?;
        let wire = RelayConnection {
            client,
            finder: Box::new(finder),
            session: Mutex::default(),
            mirrors: Mutex::default(),
            open: Mutex::default(),
            out,
        };
        Ok(Self { wire: Arc::new(wire), work: JoinSet::new(), listening: JoinSet::new() })
    }

    /// Forwards a message of the client.
    pub async fn send(&mut self, line: Vec<u8>) {
        while self.work.try_join_next().is_some() {}
        let line = RelayMessage::read(line);
        if let Some(id) = line.cancels()
            && let Some(work) = self.wire.open.lock().remove(&id)
        {
            work.abort();
            return;
        }
        let wire = Arc::clone(&self.wire);
        match line.method() {
            // Later messages need its session.
            "initialize" if line.headers().is_none() => {
                wire.session.lock().initialize = Some(line.bytes.clone());
                wire.post(&line).await;
            }
            "notifications/initialized" => {
                wire.post(&line).await;
                self.listening.spawn(async move { wire.listen().await });
            }
            _ => {
                let ids = line.ids.clone();
                let stateless = line.headers().is_some();
                let work = self.work.spawn(async move {
                    wire.post(&line).await;
                    for id in &line.ids {
                        wire.open.lock().remove(id);
                    }
                });
                if stateless {
                    self.wire.open.lock().extend(ids.into_iter().map(|id| (id, work.clone())));
                }
            }
        }
    }

    /// The client has closed its end: waits briefly for pending responses, then ends the session.
    pub async fn close(mut self) {
        let answered = async { while self.work.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        self.work.shutdown().await;
        self.listening.shutdown().await;
        if self.wire.session.lock().id.is_some()
            && let Ok(at) = self.wire.finder.find().await
            && let Ok(request) = at.request(Method::DELETE)
        {
            let request = self.wire.addressed(request).response_timeout(LAST_ANSWERS);
            // A server that was not told expires the session itself.
            let _ = self.wire.client.send(request).await;
        }
    }
}

impl RelayConnection {
    /// Adds the session's headers to a request.
    fn addressed(&self, mut request: HttpRequest) -> HttpRequest {
        let RelaySession { id, version, .. } = self.session.lock().clone();
        if let Some(id) = id {
            request = request.header(SESSION, id);
        }
        if let Some(version) = version {
            request = request.header(VERSION, version);
        }
        request
    }

    /// Sends a message and forwards the response. Each request in it gets a response.
    async fn post(&self, line: &RelayMessage) {
        let mut open = line.ids.clone();
        let why = match self.exchange(line, &mut open).await {
            Ok(()) => "the server did not answer".to_owned(),
            Err(why) => why,
        };
        for id in &open {
            self.fail(id, &why).await;
        }
    }

    async fn exchange(&self, line: &RelayMessage, open: &mut Vec<RpcId>) -> Result<(), String> {
        let mut answered = self.send(line).await?;
        if answered.status() == StatusCode::NOT_FOUND && line.headers().is_none() && self.begin_again().await
        {
            answered = self.send(line).await?;
        }
        if line.method() == "initialize" {
            self.session.lock().id = answered.headers().get("mcp-session-id").cloned();
        }
        if answered.is_event_stream() {
            return self.follow(answered, open).await;
        }
        let status = answered.status();
        let body = answered.read_to_end(MAX_MESSAGE).await.map_err(|error| error.to_string())?;
        match self.deliver_message(&body, open).await {
            true => Ok(()),
            false => Err(format!("the server answered {status}: {}", envelope::error_in(&body))),
        }
    }

    /// Sends a message to the server's current address.
    async fn send(&self, line: &RelayMessage) -> Result<HttpResponse, String> {
        let mut outage = Backoff::new(AGAIN, AGAIN, PATIENCE);
        loop {
            let began = Instant::now();
            let why = match self.finder.find().await {
                Err(why) => why,
                Ok(at) => {
                    let accept = HeaderValue::from_static("application/json, text/event-stream");
                    let request = at.request(Method::POST)?.json(line.bytes.clone());
                    let request = request.header(header::ACCEPT, accept);
                    let request = match line.headers() {
                        Some(headers) => request.headers(headers).headers(self.mirrors.lock().headers(line)),
                        None => self.addressed(request),
                    };
                    match self.client.send(request).await {
                        Ok(answered) => return Ok(answered),
                        // A retry is safe.
                        Err(error) if error.is_unsent() => error.to_string(),
                        Err(error) => return Err(error.to_string()),
                    }
                }
            };
            match outage.fail(began, None) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(why),
            }
        }
    }

    /// Opens a new session after the server has lost the old one. The client does not notice.
    async fn begin_again(&self) -> bool {
        let Some(initialize) = self.session.lock().initialize.clone() else { return false };
        self.session.lock().id = None;
        let Ok(answered) = self.send(&RelayMessage::read(initialize)).await else { return false };
        let id = answered.headers().get("mcp-session-id").cloned();
        let begun = answered.status().is_success() && id.is_some();
        self.session.lock().id = id;
        let told = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec();
        begun && self.send(&RelayMessage::read(told)).await.is_ok()
    }

    /// Reads a stream until all requests are answered. Resumes it when it is cut.
    async fn follow(&self, mut answered: HttpResponse, open: &mut Vec<RpcId>) -> Result<(), String> {
        let mut last: Option<String> = None;
        while !open.is_empty() {
            let mut parser = sse::SseParser::new(MAX_MESSAGE);
            while let Ok(Some(piece)) = answered.chunk().await {
                for event in parser.feed(&piece).map_err(|error| error.to_string())? {
                    last = event.id.or(last);
                    if !event.data.is_empty() {
                        self.deliver_message(event.data.as_bytes(), open).await;
                    }
                }
                if open.is_empty() {
                    return Ok(());
                }
            }
            let Some(cursor) = last.as_ref().filter(|_| self.session.lock().id.is_some()) else {
                return Err("the stream of the call was cut: call again".to_owned());
            };
            answered = self.resume(cursor).await?;
        }
        Ok(())
    }

    async fn resume(&self, cursor: &str) -> Result<HttpResponse, String> {
        let cursor = HeaderValue::from_str(cursor)
            .map_err(|_| "the stream of the call was cut, and its event id fits no header".to_owned())?;
        let mut outage = Backoff::new(AGAIN, AGAIN, PATIENCE);
        let cut = Instant::now();
        while let Some(pause) = outage.fail(cut, None) {
            tokio::time::sleep(pause).await;
            if let Ok(at) = self.finder.find().await {
                let request = self.addressed(at.stream_request()?).header(LAST_EVENT_ID, cursor.clone());
                match self.client.send(request).await {
                    Ok(answered) if answered.status().is_success() => return Ok(answered),
                    Ok(answered) if answered.status().is_client_error() => {
                        return Err(format!(
                            "the stream of the call was cut, and is not there: {}",
                            answered.status()
                        ));
                    }
                    _ => {}
                }
            }
        }
        Err("the stream of the call was cut, and the server did not come back".to_owned())
    }

    /// Reads the session's own stream as long as the session lasts.
    async fn listen(&self) {
        loop {
            if let Ok(at) = self.finder.find().await
                && let Ok(request) = at.stream_request()
            {
                match self.client.send(self.addressed(request)).await {
                    Ok(mut answered) if answered.status().is_success() => {
                        let mut parser = sse::SseParser::new(MAX_MESSAGE);
                        while let Ok(Some(piece)) = answered.chunk().await {
                            let Ok(events) = parser.feed(&piece) else { break };
                            for event in events.into_iter().filter(|event| !event.data.is_empty()) {
                                self.deliver_message(event.data.as_bytes(), &mut vec![]).await;
                            }
                        }
                    }
                    Ok(answered) if answered.status() == StatusCode::METHOD_NOT_ALLOWED => return,
                    _ => {}
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Forwards a message of the server and removes the requests that it answers from `open`. False: it
    /// answers none of them, and is not forwarded if some are open.
    async fn deliver_message(&self, body: &[u8], open: &mut Vec<RpcId>) -> bool {
        let told = envelope::answers_in(body);
        let waited = !open.is_empty();
        open.retain(|id| !told.contains(id));
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        if message.is_null() {
            return !waited;
        }
        let is_answer = message.get("method").is_none() && !message.is_array();
        if waited && is_answer && told.is_empty() {
            return false;
        }
        self.mirrors.lock().learn(&message);
        if let Some(version) = message["result"]["protocolVersion"].as_str() {
            // Every later request carries the negotiated revision.
            self.session.lock().version = HeaderValue::from_str(version).ok();
        }
        // An error means that the client has disconnected.
        let _ = self.out.send(body.to_vec()).await;
        true
    }

    async fn fail(&self, id: &RpcId, why: &str) {
        let mut out = Vec::new();
        jsonrpc::write_error(&mut out, Some(id), INTERNAL_ERROR, why, None);
        let _ = self.out.send(out).await;
    }
}
