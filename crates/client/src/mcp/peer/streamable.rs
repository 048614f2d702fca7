//! Streamable HTTP, stateless and with sessions: each request is a POST whose response is a body or a
//! stream.
//!
//! A session's stream that is cut, or closed by the server, is reopened after the last event received. A cut
//! without a way to resume is an error: the response did not arrive, and may never.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use nuncio_outbound::{Backoff, HttpResponse};
use nuncio_wire::{
    mcp::{McpMessage, McpPeerResponse, McpVersion, read_messages},
    sse,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    error::{McpRequestError, body_excerpt, of_status},
    exchange::{AbortOnDrop, ExchangeEvent, McpPeerExchange},
    http::McpHttp,
    router::{MessageRouter, RouteResult},
};
use crate::{mcp::relay::envelope::encoded, peer::PeerError};

/// The longest wait for the next event on a resumed stream, before the stream is opened once more.
const LONGEST_QUIET: Duration = Duration::from_secs(15);

/// Messages of a stream that are buffered for the call; then the reader stops reading (backpressure).
const AHEAD: usize = 16;

/// A server at a URL, in one revision, and in a session if the revision has them.
pub(super) struct StreamableHttp {
    pub(super) http: Arc<McpHttp>,
    pub(super) version: McpVersion,
    pub(super) session: Option<HeaderValue>,
    pub(super) hub: Arc<MessageRouter>,
}

/// How a stream begins.
enum ExchangeStart {
    /// With a request.
    Post(Value, HeaderMap),
    /// After the event with this id.
    After(String),
}

/// The position in a stream.
struct StreamPosition {
    /// The id of the last event with data, or of the first event of all. An empty event after that does not
    /// count: a server that stores a message while it replays sends the empty event's id without the message,
    /// and the message comes before it.
    cursor: Option<String>,
    /// The reconnection delay that the server requested.
    retry: Option<Duration>,
    /// Whether anything arrived since the last attempt.
    news: bool,
    /// Attempts since then that led to nothing.
    outage: Backoff,
    /// The pause that follows the last of them.
    pause: Option<Duration>,
    /// How long to wait for the next event if the stream is a resumed one. A server may replay what was missed
    /// and send what follows to the old stream; only another replay shows it.
    quiet: Option<Duration>,
}

impl StreamPosition {
    fn new(outage: Backoff) -> Self {
        Self { cursor: None, retry: None, news: false, outage, pause: None, quiet: None }
    }
}

/// How reading a stream ended.
#[derive(PartialEq)]
enum StreamEnd {
    /// The response arrived.
    Answered,
    Cut,
    /// The stream was resumed, and no event followed.
    Quiet,
}

impl StreamableHttp {
    /// Sends a request. Its messages are read in the background, as fast as the caller takes them.
    pub(super) fn exchange(self: &Arc<Self>, request: Value, mirrored: HeaderMap) -> McpPeerExchange {
        let id = request["id"].clone();
        self.read(id, ExchangeStart::Post(request, mirrored))
    }

    /// Resumes the stream of a request after an event.
    pub(super) fn resume(self: &Arc<Self>, id: Value, cursor: String) -> McpPeerExchange {
        self.read(id, ExchangeStart::After(cursor))
    }

    /// Sends a message without a response: a notification, or the response to a request of the server.
    pub(super) async fn post(&self, message: &Value) -> Result<(), McpRequestError> {
        let limit = self.http.options.request_timeout;
        let answered = self.send(message, HeaderMap::new(), limit).await?;
        match answered.status().is_success() {
            true => Ok(()),
            false => Err(self.refused(answered).await),
        }
    }

    /// Sends a request that is answered at once. Also returns the response headers.
    pub(super) async fn ask(&self, request: &Value) -> Result<(HeaderMap, McpPeerResponse), McpRequestError> {
        let limit = self.http.options.request_timeout;
        let asked = async {
            let answered = self.send(request, HeaderMap::new(), limit).await?;
            let headers = answered.headers().clone();
            let (tell, mut told) = mpsc::channel(AHEAD);
            let reading = async {
                let mut at = StreamPosition::new(self.http.options.outage());
                match self.answered(answered, &request["id"], &tell).await? {
                    None => Ok(()),
                    Some(stream) => match self.drain(stream, &request["id"], &mut at, &tell).await? {
                        StreamEnd::Answered => Ok(()),
                        _ => Err(McpRequestError::cut(format!("the answer of {} broke off", self.http.at))),
                    },
                }
            };
            let answer = async {
                while let Some(heard) = told.recv().await {
                    if let Ok(ExchangeEvent::Message(McpMessage::Answer(answer))) = heard {
                        return Ok(answer);
                    }
                }
                Err(McpRequestError::malformed(&self.http.at, "there is no answer"))
            };
            tokio::select! {
                biased;
                answer = answer => answer.map(|answer| (headers, answer)),
                Err(fail) = reading => Err(fail),
            }
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(self.http.silent(limit)),
        }
    }

    /// Opens the session's own stream. `None`: the server has none.
    pub(super) async fn open_session_stream(
        &self,
        after: Option<&str>,
    ) -> Result<Option<HttpResponse>, McpRequestError> {
        let answered = self.get(after).await?;
        match answered.status().as_u16() {
            200 if answered.is_event_stream() => Ok(Some(answered)),
            405 | 501 => Ok(None),
            _ => Err(self.refused(answered).await),
        }
    }

    /// Ends the session.
    pub(super) async fn end(&self) {
        if self.session.is_none() {
            return;
        }
        let limit = self.http.options.connect_timeout;
        let headers = self.standing_headers();
        // A server that does not support ending sessions expires them itself.
        let _ = self.http.send(Method::DELETE, &self.http.url, &headers, &Bytes::new(), limit).await;
    }

    fn read(self: &Arc<Self>, id: Value, start: ExchangeStart) -> McpPeerExchange {
        let (tell, heard) = mpsc::channel(AHEAD);
        let elsewhere = self.hub.expect_response(&id);
        let this = Arc::clone(self);
        let reader = tokio::spawn(async move {
            if let Err(fail) = this.follow(&id, start, &tell).await {
                let _ = tell.send(Err(fail)).await;
            }
        });
        McpPeerExchange::Stream { heard, elsewhere, _reader: AbortOnDrop(reader.abort_handle()) }
    }

    async fn follow(
        &self,
        id: &Value,
        start: ExchangeStart,
        tell: &ExchangeSender,
    ) -> Result<(), McpRequestError> {
        let mut at = StreamPosition::new(self.http.options.outage());
        let mut stream = match start {
            ExchangeStart::Post(request, mirrored) => {
                let answered = self.send(&request, mirrored, self.http.options.silence).await?;
                match self.answered(answered, id, tell).await? {
                    Some(stream) => stream,
                    None => return Ok(()),
                }
            }
            ExchangeStart::After(cursor) => {
                at.cursor = Some(cursor);
                self.reopen_stream(&mut at, true).await?
            }
        };
        loop {
            at.news = false;
            let drained = self.drain(stream, id, &mut at, tell).await?;
            if drained == StreamEnd::Answered {
                return Ok(());
            }
            if at.news || drained == StreamEnd::Quiet {
                at.outage.reset();
                at.pause = None;
            } else if at.cursor.is_some() {
                self.record_failure(&mut at, Instant::now(), None, "it sent nothing new".into())?;
            }
            stream = self.reopen_stream(&mut at, drained == StreamEnd::Quiet).await?;
        }
    }

    /// The stream of a response. `None`: the response was a body and has been delivered.
    async fn answered(
        &self,
        answered: HttpResponse,
        id: &Value,
        tell: &ExchangeSender,
    ) -> Result<Option<HttpResponse>, McpRequestError> {
        if !answered.status().is_success() {
            return Err(self.refused(answered).await);
        }
        if answered.is_event_stream() {
            return Ok(Some(answered));
        }
        let body = self.http.whole(answered).await?;
        let messages = read_messages(&body).map_err(|why| McpRequestError::malformed(&self.http.at, why))?;
        for message in messages {
            if self.deliver_message(message, id, tell).await? {
                return Ok(None);
            }
        }
        Err(McpRequestError::malformed(&self.http.at, "an answer to another request"))
    }

    /// Reads a stream to its end.
    async fn drain(
        &self,
        stream: HttpResponse,
        id: &Value,
        at: &mut StreamPosition,
        tell: &ExchangeSender,
    ) -> Result<StreamEnd, McpRequestError> {
        let mut parser = sse::SseParser::new(self.http.options.max_message);
        let mut pieces = stream.bytes_stream();
        let mut last = Instant::now();
        loop {
            // Any end without a response is a cut. Keep-alive comments do not count as events: a server may
            // keep a resumed stream open after it has forgotten the request.
            let piece = tokio::select! {
                piece = tokio::time::timeout(self.http.options.silence, pieces.next()) => piece,
                () = quiet(last, at.quiet) => {
                    at.quiet = at.quiet.map(|quiet| (quiet * 2).min(LONGEST_QUIET.max(quiet)));
                    return Ok(StreamEnd::Quiet);
                }
            };
            let Ok(Some(Ok(piece))) = piece else { return Ok(StreamEnd::Cut) };
            let events = parser
                .feed(&piece)
                .map_err(|error| McpRequestError::malformed(&self.http.at, error.to_string()))?;
            if let Some(retry) = parser.retry() {
                (at.retry, at.news) = (Some(retry.min(self.http.options.max_retry)), true);
            }
            for event in events {
                (at.news, last) = (true, Instant::now());
                let is_empty = holds_no_message(&event.data);
                if !is_empty {
                    let messages = read_messages(event.data.as_bytes())
                        .map_err(|why| McpRequestError::malformed(&self.http.at, why))?;
                    for message in messages {
                        if self.deliver_message(message, id, tell).await? {
                            return Ok(StreamEnd::Answered);
                        }
                    }
                }
                if let Some(cursor) = event.id.filter(|_| !is_empty || at.cursor.is_none()) {
                    self.record_cursor(cursor, at, tell).await;
                }
            }
            // An event id may arrive without data.
            if let Some(cursor) = parser.last_id().filter(|_| at.cursor.is_none()) {
                self.record_cursor(cursor.to_owned(), at, tell).await;
            }
        }
    }

    async fn record_cursor(&self, cursor: String, at: &mut StreamPosition, tell: &ExchangeSender) {
        if cursor.is_empty() || at.cursor.as_ref() == Some(&cursor) || self.version.is_stateless() {
            return;
        }
        at.cursor = Some(cursor.clone());
        let _ = tell.send(Ok(ExchangeEvent::Cursor(cursor))).await;
    }

    /// Delivers a message. Returns whether it was the response.
    async fn deliver_message(
        &self,
        message: McpMessage,
        id: &Value,
        tell: &ExchangeSender,
    ) -> Result<bool, McpRequestError> {
        let message = match self.hub.take(message) {
            RouteResult::Done => return Ok(false),
            RouteResult::Reply(reply) => {
                if let Err(fail) = self.post(&reply).await {
                    tracing::debug!(?fail, "{} rejected an answer", self.http.at);
                }
                return Ok(false);
            }
            RouteResult::ForCall(message) => message,
        };
        let mut is_answer = false;
        if let McpMessage::Answer(answer) = &message {
            // A server responds with a null id to a request that it could not parse.
            is_answer = answer.id == *id || (answer.id.is_null() && answer.outcome.is_err());
            if !is_answer {
                tracing::debug!(id = %answer.id, "{} sent a response to an unknown request", self.http.at);
                return Ok(false);
            }
        }
        // The call has stopped reading; this task will be aborted.
        tell.send(Ok(ExchangeEvent::Message(message)))
            .await
            .map_err(|_| McpRequestError::cut("the call has no follower"))?;
        Ok(is_answer)
    }

    /// Reopens the stream, with backoff, until it is open or the server has been unreachable for too long.
    async fn reopen_stream(
        &self,
        at: &mut StreamPosition,
        at_once: bool,
    ) -> Result<HttpResponse, McpRequestError> {
        let place = &self.http.at;
        let Some(cursor) = at.cursor.clone().filter(|_| !self.version.is_stateless()) else {
            return Err(McpRequestError::cut(format!(
                "the answer of {place} broke off, and it has no way back to it"
            )));
        };
        let options = &self.http.options;
        loop {
            let unfailed =
                || if at_once { Duration::ZERO } else { at.retry.unwrap_or(at.outage.next_pause()) };
            let pause = at.pause.unwrap_or_else(unfailed);
            tokio::time::sleep(pause).await;
            let (began, limit) = (Instant::now(), at.outage.attempt_limit());
            let answered = match tokio::time::timeout(limit, self.get(Some(&cursor))).await {
                Ok(answered) => answered,
                Err(_) => Err(self.http.silent(limit)),
            };
            let answered = match answered {
                Ok(answered) => answered,
                Err(fail) if fail.is_transient() => {
                    let error = fail.into_peer(place);
                    self.record_failure(at, began, error.retry_after(), error.to_string())?;
                    continue;
                }
                Err(fail) => return Err(fail),
            };
            match answered.status().as_u16() {
                200 if answered.is_event_stream() => {
                    at.quiet = at.quiet.or(Some(options.quiet));
                    return Ok(answered);
                }
                // The server has not yet noticed that the previous stream is closed.
                409 => {
                    let why = format!("{place} reports that another client reads the stream");
                    self.record_failure(at, began, None, why)?;
                    continue;
                }
                405 | 501 => {
                    let why =
                        format!("the answer of {place} broke off, and it does not take up streams again");
                    return Err(McpRequestError::cut(why));
                }
                _ => {}
            }
            match self.refused(answered).await {
                fail if fail.is_transient() => {
                    let error = fail.into_peer(place);
                    self.record_failure(at, began, error.retry_after(), error.to_string())?;
                }
                McpRequestError::SessionLost => return Err(McpRequestError::SessionLost),
                fail => {
                    let why = format!("the call cannot be resumed: {}", fail.into_peer(place));
                    return Err(PeerError::Gone(why).into());
                }
            }
        }
    }

    /// Records an attempt that led to nothing. An error: the server has been unreachable for too long.
    fn record_failure(
        &self,
        at: &mut StreamPosition,
        began: Instant,
        busy: Option<Duration>,
        why: String,
    ) -> Result<(), McpRequestError> {
        let wanted = busy.or(at.retry.map(|retry| retry.max(at.outage.next_pause())));
        at.pause = at.outage.fail(began, wanted);
        match at.pause {
            Some(_) => Ok(()),
            None => {
                Err(PeerError::Outage { at: self.http.at.clone(), lasted: at.outage.lasted(), why }.into())
            }
        }
    }

    async fn send(
        &self,
        message: &Value,
        mirrored: HeaderMap,
        limit: Duration,
    ) -> Result<HttpResponse, McpRequestError> {
        let body = Bytes::from(message.to_string());
        tracing::trace!(body = %String::from_utf8_lossy(&body), "to {}", self.http.at);
        let mut headers = self.headers(message);
        headers.extend(mirrored);
        self.http.send(Method::POST, &self.http.url, &headers, &body, limit).await
    }

    async fn get(&self, after: Option<&str>) -> Result<HttpResponse, McpRequestError> {
        let mut headers = self.standing_headers();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(cursor) = after.and_then(|cursor| HeaderValue::from_str(cursor).ok()) {
            headers.insert("last-event-id", cursor);
        }
        let limit = self.http.options.request_timeout;
        self.http.send(Method::GET, &self.http.url, &headers, &Bytes::new(), limit).await
    }

    async fn refused(&self, answered: HttpResponse) -> McpRequestError {
        let (status, headers) = (answered.status().as_u16(), answered.headers().clone());
        if status == 404 && self.session.is_some() {
            return McpRequestError::SessionLost;
        }
        let body = self.http.whole(answered).await.unwrap_or_default();
        // The reference server, and many that derive from it, report a lost session with status 400 and this
        // text.
        if status == 400 && self.session.is_some() && body_excerpt(&body).to_lowercase().contains("session") {
            return McpRequestError::SessionLost;
        }
        of_status(&self.http.at, status, &headers, &body)
    }

    /// The headers of every request in a session.
    fn standing_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("mcp-protocol-version", HeaderValue::from_static(self.version.name()));
        if let Some(session) = &self.session {
            headers.insert("mcp-session-id", session.clone());
        }
        headers
    }

    /// The headers of a message; for a stateless one they repeat parts of its body.
    fn headers(&self, message: &Value) -> HeaderMap {
        let method = message["method"].as_str().unwrap_or_default();
        // The session's revision is not negotiated yet.
        let mut headers = if method == "initialize" { HeaderMap::new() } else { self.standing_headers() };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if !self.version.is_stateless() {
            return headers;
        }
        if let Ok(method) = HeaderValue::from_str(method) {
            headers.insert("mcp-method", method);
        }
        let member = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            method if method.starts_with("tasks/") => "taskId",
            _ => return headers,
        };
        if let Some(name) = message["params"][member].as_str().and_then(encoded) {
            headers.insert(HeaderName::from_static("mcp-name"), name);
        }
        headers
    }
}

/// Returns when no event has arrived for that long.
async fn quiet(since: Instant, limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep_until(since + limit).await,
        None => std::future::pending().await,
    }
}

type ExchangeSender = mpsc::Sender<Result<ExchangeEvent, McpRequestError>>;

/// Whether an event only carries an id. The official TypeScript SDK stores such an event as `{}`, and replays it like that.
fn holds_no_message(data: &str) -> bool {
    matches!(data.trim(), "" | "{}")
}
