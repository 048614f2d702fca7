//! HTTP+SSE of 2024-11-05: one stream for everything received, and a separate address for everything sent. A
//! stream that is cut loses its pending requests: it cannot be resumed.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Method, header};
use nuncio_outbound::HttpResponse;
use nuncio_wire::{mcp::McpVersion, sse};
use tokio::sync::{mpsc, oneshot, watch};
use url::Url;

use super::{
    connection::{McpConnection, McpTransport},
    duplex::{DuplexChannel, OUTGOING, OutgoingMessage},
    error::{McpRequestError, of_status},
    exchange::{AbortOnDrop, ExchangeEvent},
    handshake::{initialize_request, initialized, read_initialized},
    http::McpHttp,
    incoming::{self, McpMessage},
    router::MessageRouter,
};
use crate::peer::PeerError;

/// Opens the stream at the address, and a session on it.
pub(super) async fn connect(
    http: &Arc<McpHttp>,
    changes: &watch::Sender<u64>,
) -> Result<McpConnection, McpRequestError> {
    let options = &http.options;
    let limit = options.request_timeout;
    let opened = async {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        let answered = http.send(Method::GET, &http.url, &headers, &Bytes::new(), limit).await?;
        if answered.status() != 200 || !answered.is_event_stream() {
            let why = format!("there is no stream of events: HTTP {}", answered.status().as_u16());
            return Err(McpRequestError::malformed(&http.at, why));
        }
        let mut events = Box::pin(events(Arc::clone(http), answered));
        let endpoint = match events.next().await {
            Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => event.data,
            Some(Err(fail)) => return Err(fail),
            _ => {
                return Err(McpRequestError::malformed(
                    &http.at,
                    "the stream does not begin with an endpoint",
                ));
            }
        };
        let endpoint = http.url.join(endpoint.trim()).ok().filter(|url| url.origin() == http.url.origin());
        let endpoint = endpoint
            .ok_or_else(|| McpRequestError::malformed(&http.at, "the endpoint is not at the same server"))?;
        Ok((endpoint, events))
    };
    let (endpoint, events) =
        tokio::time::timeout(limit, opened).await.unwrap_or_else(|_| Err(http.silent(limit)))?;
    let hub = MessageRouter::new(changes.clone());
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let writer = tokio::spawn(write(Arc::clone(http), endpoint, outgoing));
    let reader = tokio::spawn(read(events, Arc::clone(&hub), out.clone(), http.at.clone()));
    let work = [writer, reader].map(|work| AbortOnDrop(work.abort_handle())).into();
    let wire = Arc::new(DuplexChannel::new(out, Arc::clone(&hub), work));

    let version = options.version.unwrap_or(McpVersion::V2024_11_05);
    let mut exchange = wire.exchange(&initialize_request(options, version)).await?;
    let answer = match tokio::time::timeout(limit, exchange.next()).await {
        Ok(Ok(ExchangeEvent::Message(McpMessage::Answer(answer)))) => answer,
        Ok(Ok(_)) => return Err(McpRequestError::malformed(&http.at, "no answer to initialize")),
        Ok(Err(fail)) => return Err(fail),
        Err(_) => return Err(http.silent(limit)),
    };
    let spoken = read_initialized(&http.at, options, answer)?;
    let connection = McpConnection::new(&http.at, spoken, McpTransport::Wire(wire), &hub, options);
    initialized(&connection).await?;
    Ok(connection)
}

fn events(
    http: Arc<McpHttp>,
    answered: HttpResponse,
) -> impl Stream<Item = Result<sse::ServerEvent, McpRequestError>> + Send {
    let parser = sse::SseParser::new(http.options.max_message);
    let pieces = answered.bytes_stream();
    let state = (parser, pieces, std::collections::VecDeque::new(), http);
    futures_util::stream::unfold(state, |(mut parser, mut pieces, mut ready, http)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((Ok(event), (parser, pieces, ready, http)));
            }
            let fed = match pieces.next().await? {
                Ok(piece) => parser
                    .feed(&piece)
                    .map_err(|error| McpRequestError::malformed(&http.at, error.to_string())),
                Err(error) => Err(http.broke_off(&error)),
            };
            match fed {
                Ok(events) => ready.extend(events),
                Err(fail) => return Some((Err(fail), (parser, pieces, ready, http))),
            }
        }
    })
}

async fn read(
    mut events: impl Stream<Item = Result<sse::ServerEvent, McpRequestError>> + Send + Unpin,
    hub: Arc<MessageRouter>,
    out: mpsc::Sender<OutgoingMessage>,
    at: String,
) {
    let fail = loop {
        let event = match events.next().await {
            Some(Ok(event)) => event,
            Some(Err(fail)) => break fail,
            None => break McpRequestError::cut(format!("{at} closed its stream")),
        };
        if event.data.is_empty() || event.event.as_deref().is_some_and(|name| name != "message") {
            continue;
        }
        match incoming::read(event.data.as_bytes()) {
            Ok(messages) => {
                for reply in messages.into_iter().filter_map(|message| hub.route(message)) {
                    // A failed write shows up on the stream.
                    let _ = out.send((reply.to_string().into_bytes(), oneshot::channel().0)).await;
                }
            }
            Err(why) => break McpRequestError::malformed(&at, why),
        }
    };
    hub.close(&fail);
}

async fn write(http: Arc<McpHttp>, endpoint: Url, mut outgoing: mpsc::Receiver<OutgoingMessage>) {
    let headers =
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let limit = http.options.request_timeout;
    while let Some((message, told)) = outgoing.recv().await {
        let sent = match http.send(Method::POST, &endpoint, &headers, &message.into(), limit).await {
            Ok(answered) if answered.status().is_success() => Ok(()),
            Ok(answered) if answered.status() == 404 => {
                Err(PeerError::Cut(format!("{} has closed the session", http.at)).into())
            }
            Ok(answered) => {
                let (status, headers) = (answered.status().as_u16(), answered.headers().clone());
                let body = http.whole(answered).await.unwrap_or_default();
                Err(of_status(&http.at, status, &headers, &body))
            }
            Err(fail) => Err(fail),
        };
        let _ = told.send(sent);
    }
}
