//! A pending request and the messages that arrive for it, up to its response.

use nuncio_wire::mcp::McpMessage;
use tokio::{sync::mpsc, task::AbortHandle};

use super::{error::McpRequestError, router::PendingResponse};

/// Something that arrived for a request.
#[derive(Debug)]
pub(super) enum ExchangeEvent {
    Message(McpMessage),
    /// All messages up to this event id were delivered: resume after it.
    Cursor(String),
}

/// A pending request. Dropping it stops reading; over stateless HTTP that cancels the request.
pub(super) enum McpPeerExchange {
    /// The request has its own stream.
    Stream {
        /// The messages of the stream.
        heard: mpsc::Receiver<Result<ExchangeEvent, McpRequestError>>,
        /// The response, in case the server sends it on the session's own stream.
        elsewhere: PendingResponse,
        /// The task that reads the stream.
        _reader: AbortOnDrop,
    },
    /// The response arrives through the router.
    Hub(PendingResponse),
}

impl McpPeerExchange {
    /// The next message. Nothing follows the response or an error.
    pub(super) async fn next(&mut self) -> Result<ExchangeEvent, McpRequestError> {
        match self {
            Self::Stream { heard, elsewhere, .. } => tokio::select! {
                biased;
                heard = heard.recv() => match heard {
                    Some(heard) => heard,
                    None => Err(McpRequestError::cut("the call broke off without an end")),
                },
                answer = elsewhere.answer() => answer.map(|answer| ExchangeEvent::Message(McpMessage::Answer(answer))),
            },
            Self::Hub(expected) => {
                expected.answer().await.map(|answer| ExchangeEvent::Message(McpMessage::Answer(answer)))
            }
        }
    }
}

/// Aborts a background task when dropped.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
