//! A channel that both sides send everything on: pipes, and HTTP+SSE of 2024-11-05.
//!
//! One writer task sends all messages, so that a request that is dropped half-way never leaves half a line.
//! Incoming messages go to the router.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    error::McpRequestError,
    exchange::{AbortOnDrop, McpPeerExchange},
    pipe::PipeServerProcess,
    router::MessageRouter,
};

/// Messages that may wait for the writer; then senders wait (backpressure).
pub(super) const OUTGOING: usize = 64;

/// A message to send, and where to report the result.
pub(super) type OutgoingMessage = (Vec<u8>, oneshot::Sender<Result<(), McpRequestError>>);

/// A duplex channel.
pub(super) struct DuplexChannel {
    out: mpsc::Sender<OutgoingMessage>,
    pub(super) hub: Arc<MessageRouter>,
    /// The reader and the writer task.
    _work: Vec<AbortOnDrop>,
    /// The server's process, if this client started one.
    process: Option<PipeServerProcess>,
}

impl DuplexChannel {
    pub(super) fn new(
        out: mpsc::Sender<OutgoingMessage>,
        hub: Arc<MessageRouter>,
        work: Vec<AbortOnDrop>,
    ) -> Self {
        Self { out, hub, _work: work, process: None }
    }

    /// Attaches the server's process.
    pub(super) fn of(mut self, process: PipeServerProcess) -> Self {
        self.process = Some(process);
        self
    }

    /// Stops the server's process, if there is one.
    pub(super) async fn stop(&self) {
        if let Some(process) = &self.process {
            process.stop().await;
        }
    }

    /// Sends a message and returns when it is written.
    pub(super) async fn send(&self, message: &Value) -> Result<(), McpRequestError> {
        send(&self.out, &self.hub, message).await
    }

    /// Sends a request. Only its response arrives here.
    pub(super) async fn exchange(&self, request: &Value) -> Result<McpPeerExchange, McpRequestError> {
        let expected = self.hub.expect_response(&request["id"]);
        self.send(request).await?;
        Ok(McpPeerExchange::Hub(expected))
    }
}

/// Sends a message through the writer task.
pub(super) async fn send(
    out: &mpsc::Sender<OutgoingMessage>,
    hub: &MessageRouter,
    message: &Value,
) -> Result<(), McpRequestError> {
    let over = || hub.closed().unwrap_or_else(|| McpRequestError::cut("the connection is closed"));
    let (tell, told) = oneshot::channel();
    out.send((message.to_string().into_bytes(), tell)).await.map_err(|_| over())?;
    told.await.unwrap_or_else(|_| Err(over()))
}
