//! Streamable HTTP in both of its shapes: each request a POST, its answer a body or a stream.
//!
//! A stream of a session that is cut, or that the server lets go of, is asked for again after the last event that
//! came. What was cut and has no way back is an error: the answer did not come, and may never.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use nuncio_wire::{mcp::McpVersion, sse};
use reqwest::Response;
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    error::{McpRequestError, body_excerpt, of_status},
    exchange::{AbortOnDrop, ExchangeEvent, McpPeerExchange},
    http::{McpHttp, is_stream},
    incoming::{self, McpMessage, McpPeerResponse},
    router::{MessageRouter, RouteResult},
};
use crate::{mcp::relay::envelope::encoded, peer::PeerError};

/// The longest wait for more on a stream that was taken up.
const LONGEST_QUIET: Duration = Duration::from_secs(15);
/// What comes so long after a stream was taken up was not missed before: the server goes on with it.
const REPLAYED: Duration = Duration::from_secs(1);

/// Messages of a stream that wait for whoever follows the call; then the network waits.
const AHEAD: usize = 16;

/// A server at an address, in one revision, and in a session where that has any.
pub(super) struct StreamableHttp {
    pub(super) http: Arc<McpHttp>,
    pub(super) version: McpVersion,
    pub(super) session: Option<HeaderValue>,
    pub(super) hub: Arc<MessageRouter>,
}

/// How a stream begins.
enum ExchangeStart {
    /// By a request.
    Post(Value, HeaderMap),
    /// Where another broke off.
    After(String),
}

/// Where a stream is.
#[derive(Default)]
struct StreamPosition {
    /// The last event that came.
    cursor: Option<String>,
    /// How long the server wants us to wait.
    retry: Option<Duration>,
    /// Whether anything came since the last attempt.
    news: bool,
    /// Attempts since then.
    attempts: u32,
    /// How long to wait for more on a stream that was taken up, until something has followed what was missed.
    quiet: Option<Duration>,
}

/// How a stream ended.
#[derive(PartialEq)]
enum StreamEnd {
    /// The answer was in it.
    Answered,
    Cut,
    /// It was taken up, and nothing follows.
    Quiet,
}

impl StreamableHttp {
    /// Sends a request. What comes for it is read in the background, as fast as it is taken.
    pub(super) fn exchange(self: &Arc<Self>, request: Value, mirrored: HeaderMap) -> McpPeerExchange {
        let id = request["id"].clone();
        self.read(id, ExchangeStart::Post(request, mirrored))
    }

    /// Goes on with the stream of a request after an event.
    pub(super) fn resume(self: &Arc<Self>, id: Value, cursor: String) -> McpPeerExchange {
        self.read(id, ExchangeStart::After(cursor))
    }

    /// Sends what has no answer: a notification, or the answer to a request of the server's.
    pub(super) async fn post(&self, message: &Value) -> Result<(), McpRequestError> {
        let limit = self.http.options.request_timeout;
        let answered = self.send(message, HeaderMap::new(), limit).await?;
        match answered.status().is_success() {
            true => Ok(()),
            false => Err(self.refused(answered).await),
        }
    }

    /// Sends a request that is answered at once, and gives the headers of the answer as well.
    pub(super) async fn ask(&self, request: &Value) -> Result<(HeaderMap, McpPeerResponse), McpRequestError> {
        let limit = self.http.options.request_timeout;
        let asked = async {
            let answered = self.send(request, HeaderMap::new(), limit).await?;
            let headers = answered.headers().clone();
            let (tell, mut told) = mpsc::channel(AHEAD);
            let reading = async {
                let mut at = StreamPosition::default();
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
    ) -> Result<Option<Response>, McpRequestError> {
        let answered = self.get(after).await?;
        match answered.status().as_u16() {
            200 if is_stream(&answered) => Ok(Some(answered)),
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
        // A server that does not let sessions be ended forgets them by itself.
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
        let mut at = StreamPosition::default();
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
                at.attempts = 0;
            }
            stream = self.reopen_stream(&mut at, drained == StreamEnd::Quiet).await?;
        }
    }

    /// The stream that an answer is. `None`: it was whole, and has been told.
    async fn answered(
        &self,
        answered: Response,
        id: &Value,
        tell: &ExchangeSender,
    ) -> Result<Option<Response>, McpRequestError> {
        if !answered.status().is_success() {
            return Err(self.refused(answered).await);
        }
        if is_stream(&answered) {
            return Ok(Some(answered));
        }
        let body = self.http.whole(answered).await?;
        let messages = incoming::read(&body).map_err(|why| McpRequestError::malformed(&self.http.at, why))?;
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
        stream: Response,
        id: &Value,
        at: &mut StreamPosition,
        tell: &ExchangeSender,
    ) -> Result<StreamEnd, McpRequestError> {
        let mut parser = sse::SseParser::new(self.http.options.max_message);
        let mut pieces = stream.bytes_stream();
        let begun = Instant::now();
        let mut last = begun;
        loop {
            // However it ends, it has been cut. Signs of life are no news: a server may keep a stream that was taken
            // up alive, and have forgotten what it is for.
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
                if begun.elapsed() > REPLAYED {
                    at.quiet = None;
                }
                if !event.data.is_empty() {
                    let messages = incoming::read(event.data.as_bytes())
                        .map_err(|why| McpRequestError::malformed(&self.http.at, why))?;
                    for message in messages {
                        if self.deliver_message(message, id, tell).await? {
                            return Ok(StreamEnd::Answered);
                        }
                    }
                }
                if let Some(cursor) = event.id.filter(|cursor| !cursor.is_empty()) {
                    self.record_cursor(cursor, at, tell).await;
                }
            }
            // An id may come without any data.
            if let Some(cursor) = parser.last_id().filter(|cursor| !cursor.is_empty()) {
                self.record_cursor(cursor.to_owned(), at, tell).await;
            }
        }
    }

    async fn record_cursor(&self, cursor: String, at: &mut StreamPosition, tell: &ExchangeSender) {
        if at.cursor.as_ref() == Some(&cursor) || self.version.is_stateless() {
            return;
        }
        at.cursor = Some(cursor.clone());
        let _ = tell.send(Ok(ExchangeEvent::Cursor(cursor))).await;
    }

    /// Gives a message to whom it is for. Returns whether it was the answer.
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
                    tracing::debug!(?fail, "{} does not take an answer", self.http.at);
                }
                return Ok(false);
            }
            RouteResult::ForCall(message) => message,
        };
        let mut is_answer = false;
        if let McpMessage::Answer(answer) = &message {
            // A request that the server could not read is answered without its id.
            is_answer = answer.id == *id || (answer.id.is_null() && answer.outcome.is_err());
            if !is_answer {
                tracing::debug!(id = %answer.id, "{} answers what was not asked here", self.http.at);
                return Ok(false);
            }
        }
        // Whoever followed the call has gone, and so will this.
        tell.send(Ok(ExchangeEvent::Message(message)))
            .await
            .map_err(|_| McpRequestError::cut("nobody follows the call"))?;
        Ok(is_answer)
    }

    /// Asks for the stream again, until it is there or there is no hope.
    async fn reopen_stream(
        &self,
        at: &mut StreamPosition,
        at_once: bool,
    ) -> Result<Response, McpRequestError> {
        let place = &self.http.at;
        let Some(cursor) = at.cursor.clone().filter(|_| !self.version.is_stateless()) else {
            return Err(McpRequestError::cut(format!(
                "the answer of {place} broke off, and it has no way back to it"
            )));
        };
        let options = &self.http.options;
        let mut last = "it said nothing new".to_owned();
        while at.attempts < options.reconnects {
            if !at_once || at.attempts > 0 {
                let backoff = options.backoff(at.attempts);
                let wait = at
                    .retry
                    .map_or(backoff, |retry| if at.attempts == 0 { retry } else { retry.max(backoff) });
                tokio::time::sleep(wait).await;
            }
            at.attempts += 1;
            let answered = match self.get(Some(&cursor)).await {
                Ok(answered) => answered,
                Err(fail) if fail.is_transient() => {
                    last = fail.into_peer(place).to_string();
                    continue;
                }
                Err(fail) => return Err(fail),
            };
            match answered.status().as_u16() {
                200 if is_stream(&answered) => {
                    at.quiet = at.quiet.or(Some(options.quiet));
                    return Ok(answered);
                }
                // It has not noticed yet that the stream before this one is gone.
                409 => {
                    last = format!("{place} says that somebody else reads the stream");
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
                fail if fail.is_transient() => last = fail.into_peer(place).to_string(),
                McpRequestError::SessionLost => return Err(McpRequestError::SessionLost),
                fail => {
                    let why = format!("there is no way back to the call: {}", fail.into_peer(place));
                    return Err(PeerError::Gone(why).into());
                }
            }
        }
        let attempts = at.attempts;
        Err(McpRequestError::cut(format!(
            "the answer of {place} broke off, and did not go on in {attempts} attempts: {last}"
        )))
    }

    async fn send(
        &self,
        message: &Value,
        mirrored: HeaderMap,
        limit: Duration,
    ) -> Result<Response, McpRequestError> {
        let body = Bytes::from(message.to_string());
        tracing::trace!(body = %String::from_utf8_lossy(&body), "to {}", self.http.at);
        let mut headers = self.headers(message);
        headers.extend(mirrored);
        self.http.send(Method::POST, &self.http.url, &headers, &body, limit).await
    }

    async fn get(&self, after: Option<&str>) -> Result<Response, McpRequestError> {
        let mut headers = self.standing_headers();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(cursor) = after.and_then(|cursor| HeaderValue::from_str(cursor).ok()) {
            headers.insert("last-event-id", cursor);
        }
        let limit = self.http.options.request_timeout;
        self.http.send(Method::GET, &self.http.url, &headers, &Bytes::new(), limit).await
    }

    async fn refused(&self, answered: Response) -> McpRequestError {
        let (status, headers) = (answered.status().as_u16(), answered.headers().clone());
        if status == 404 && self.session.is_some() {
            return McpRequestError::SessionLost;
        }
        let body = self.http.whole(answered).await.unwrap_or_default();
        // The servers of many examples, the reference server among them, say it in these words instead.
        if status == 400 && self.session.is_some() && body_excerpt(&body).to_lowercase().contains("session") {
            return McpRequestError::SessionLost;
        }
        of_status(&self.http.at, status, &headers, &body)
    }

    /// What goes with every request of a session.
    fn standing_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("mcp-protocol-version", HeaderValue::from_static(self.version.name()));
        if let Some(session) = &self.session {
            headers.insert("mcp-session-id", session.clone());
        }
        headers
    }

    /// The headers of a message; of a stateless one, what its body says.
    fn headers(&self, message: &Value) -> HeaderMap {
        let method = message["method"].as_str().unwrap_or_default();
        // Which revision the session will speak is not known yet.
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

/// Returns when nothing has come for so long.
async fn quiet(since: Instant, limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep_until(since + limit).await,
        None => std::future::pending().await,
    }
}

type ExchangeSender = mpsc::Sender<Result<ExchangeEvent, McpRequestError>>;
