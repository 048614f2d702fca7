//! A channel on which both sides say everything: pipes, and HTTP+SSE of 2024-11-05.
//!
//! What is sent goes through one writer, so that a request which is given up half-way never leaves half a line; what
//! comes goes by the hub.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    error::McpRequestError,
    exchange::{AbortOnDrop, McpPeerExchange},
    pipe::PipeServerProcess,
    router::MessageRouter,
};

/// Messages that wait for the writer; then whoever sends waits.
pub(super) const OUTGOING: usize = 64;

/// What is to be sent, and where to say whether it was.
pub(super) type OutgoingMessage = (Vec<u8>, oneshot::Sender<Result<(), McpRequestError>>);

/// The channel.
pub(super) struct DuplexChannel {
    out: mpsc::Sender<OutgoingMessage>,
    pub(super) hub: Arc<MessageRouter>,
    /// Whoever reads and writes.
    _work: Vec<AbortOnDrop>,
    /// Who is at the other end, where that is a process of ours.
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

    /// With a process at its other end.
    pub(super) fn of(mut self, process: PipeServerProcess) -> Self {
        self.process = Some(process);
        self
    }

    /// Ends the process at the other end, if there is one.
    pub(super) async fn stop(&self) {
        if let Some(process) = &self.process {
            process.stop().await;
        }
    }

    /// Sends a message, and returns when it is on its way.
    pub(super) async fn send(&self, message: &Value) -> Result<(), McpRequestError> {
        send(&self.out, &self.hub, message).await
    }

    /// Sends a request. Only the answer comes here.
    pub(super) async fn exchange(&self, request: &Value) -> Result<McpPeerExchange, McpRequestError> {
        let expected = self.hub.expect_response(&request["id"]);
        self.send(request).await?;
        Ok(McpPeerExchange::Hub(expected))
    }
}

/// Sends a message through a writer.
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
