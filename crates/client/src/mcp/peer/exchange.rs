//! A request that is under way: what comes for it, until its answer.

use tokio::{sync::mpsc, task::AbortHandle};

use super::{error::McpRequestError, incoming::McpMessage, router::PendingResponse};

/// Something that came for a request.
#[derive(Debug)]
pub(super) enum ExchangeEvent {
    /// A message.
    Message(McpMessage),
    /// Everything up to this event of the stream has been given: where to go on after a cut.
    Cursor(String),
}

/// A request that is under way. Dropped, nobody hears of it any more; over stateless HTTP that cancels it.
pub(super) enum McpPeerExchange {
    /// It has a stream of its own.
    Stream {
        /// What comes.
        heard: mpsc::Receiver<Result<ExchangeEvent, McpRequestError>>,
        /// Its answer, should the server send it on the session's own stream.
        elsewhere: PendingResponse,
        /// Whoever reads the stream.
        _reader: AbortOnDrop,
    },
    /// Its answer comes by the hub.
    Hub(PendingResponse),
}

impl McpPeerExchange {
    /// What comes next. Nothing does after the answer or an error.
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

/// Work that ends with whoever holds this.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
