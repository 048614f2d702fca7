//! Streams that stay open as long as a connection: the session's own (up to 2025-11-25), and the
//! subscription to tool changes (2026-07-28). After a gap the tools count as changed.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use http::HeaderMap;
use nuncio_wire::{
    mcp::{ClientRequest, ListenParams, McpMessage, ServerNotification, read_messages},
    sse,
};
use tokio::sync::oneshot;

use super::{
    connection::{McpConnection, McpTransport},
    error::McpRequestError,
    exchange::{AbortOnDrop, ExchangeEvent},
    streamable::StreamableHttp,
};

/// The longest wait for a session's own stream before its first call. A server may answer the request for the stream
/// only with the first event.
pub const SESSION_STREAM_WAIT: Duration = Duration::from_millis(500);

/// Opens the session's own stream, if there is a session, and reopens it whenever it ends. Waits until it is open, or
/// known not to be: what the server sends there during the first call would be lost.
pub(super) async fn open_session_stream(connection: &McpConnection) {
    if let Some(answered) = begin_session_stream(connection) {
        // The sender is dropped once the server has answered. Without an answer the calls go ahead.
        let _ = tokio::time::timeout(SESSION_STREAM_WAIT, answered).await;
    }
}

/// Begins to open the session's own stream. The receiver ends when the server has answered.
pub(super) fn begin_session_stream(connection: &McpConnection) -> Option<oneshot::Receiver<()>> {
    let McpTransport::Http(http) = &connection.link else { return None };
    if http.session.is_none() || http.version.is_stateless() {
        return None;
    }
    let (opening, answered) = oneshot::channel();
    let reader = tokio::spawn(standing(Arc::clone(http), opening));
    connection.attach_background(AbortOnDrop(reader.abort_handle()));
    Some(answered)
}

async fn standing(http: Arc<StreamableHttp>, opening: oneshot::Sender<()>) {
    let mut opening = Some(opening);
    let (options, at) = (&http.http.options, &http.http.at);
    let (mut cursor, mut retry, mut attempts) = (None::<String>, None, 0);
    while attempts < options.reconnects {
        let opened = http.open_session_stream(cursor.as_deref()).await;
        opening.take();
        match opened {
            Ok(None) | Err(McpRequestError::SessionLost) => return,
            Ok(Some(stream)) => {
                if attempts > 0 && cursor.is_none() {
                    http.hub.notify_changed();
                }
                let mut parser = sse::SseParser::new(options.max_message);
                let mut pieces = stream.bytes_stream();
                while let Some(Ok(piece)) = pieces.next().await {
                    attempts = 0;
                    let Ok(events) = parser.feed(&piece) else { return };
                    for event in events {
                        for message in read_messages(event.data.as_bytes()).unwrap_or_default() {
                            if let Some(reply) = http.hub.route(message)
                                && let Err(fail) = http.post(&reply).await
                            {
                                tracing::debug!(?fail, "{at} rejected an answer");
                            }
                        }
                    }
                    cursor = parser.last_id().map(str::to_owned).or(cursor);
                    retry = parser.retry().or(retry);
                }
            }
            Err(fail) if fail.is_transient() => {}
            Err(fail) => {
                tracing::debug!(?fail, "{at} has no stream for its session");
                return;
            }
        }
        attempts += 1;
        let backoff = options.backoff(attempts);
        tokio::time::sleep(retry.map_or(backoff, |retry| backoff.max(retry).min(options.max_retry))).await;
    }
}

/// Subscribes to tool changes, if the server announces them, and renews the subscription whenever it ends.
pub(super) fn subscribe(connection: &Arc<McpConnection>) -> Option<AbortOnDrop> {
    if !connection.version.is_stateless() || !connection.about.capabilities.announces_tools() {
        return None;
    }
    Some(AbortOnDrop(tokio::spawn(subscribed(Arc::clone(connection))).abort_handle()))
}

async fn subscribed(connection: Arc<McpConnection>) {
    let wanted = ListenParams { tools_list_changed: true, ..ListenParams::default() };
    let mut attempts = 0;
    while attempts < connection.options.reconnects {
        let request = ClientRequest::Listen { wanted: &wanted, events: None };
        match connection.exchange(request, HeaderMap::new()).await {
            Ok((_, mut exchange)) => loop {
                match exchange.next().await {
                    Ok(ExchangeEvent::Message(McpMessage::Answer(answer))) => match answer.outcome {
                        Ok(_) => break,
                        Err(error) => return tracing::debug!(%error, "{}: no subscription", connection.at),
                    },
                    Ok(ExchangeEvent::Message(McpMessage::Notification(
                        ServerNotification::Subscribed { .. },
                    ))) => {
                        if attempts > 0 {
                            connection.hub.notify_changed();
                        }
                        attempts = 0;
                    }
                    Ok(_) => {}
                    Err(fail) if fail.is_transient() && connection.closed().is_none() => break,
                    Err(fail) => return tracing::debug!(?fail, "{}: no subscription", connection.at),
                }
            },
            Err(fail) if fail.is_transient() && connection.closed().is_none() => {}
            Err(_) => return,
        }
        attempts += 1;
        tokio::time::sleep(connection.options.backoff(attempts)).await;
    }
}
