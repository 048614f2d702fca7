//! A [`Peer`] for MCP: a server over HTTP or pipes, in any revision.
//!
//! Each tool is a capability, each call a `tools/call` that is followed to its end: across cut streams,
//! through questions on the way, and as a task if the server makes it one. No process is started and no
//! request sent before it is needed.

mod call;
mod connection;
mod connection_pool;
mod duplex;
mod error;
mod exchange;
mod handshake;
mod http;
mod legacy_sse;
mod options;
mod pipe;
mod question;
mod resume_state;
mod router;
mod standing_streams;
mod streamable;
mod tool_client;
mod tools;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::Level;
use nuncio_wire::mcp::{ClientRequest, McpVersion, ServerDescription};
use serde_json::Value;

use self::{
    call::McpCall,
    connection_pool::McpConnectionPool,
    resume_state::{CallResend, ResumeState, ResumeVia},
};
pub use self::{
    options::{DeclaredCapabilities, McpLogLevel, McpPeerOptions},
    standing_streams::SESSION_STREAM_WAIT,
    tool_client::{
        ToolAnswer, ToolChange, ToolChanges, ToolClient, ToolError, ToolOptions, ToolStart, ToolSubscription,
        ToolTaskQuestion, ToolTaskStatus, ToolTaskView,
    },
};
use crate::peer::{
    CallHandle, Peer, PeerCall, PeerCallRequest, PeerCapability, PeerDescription, PeerError, PeerLocation,
    PeerProtocol,
};

/// A peer that is an MCP server.
#[derive(Clone)]
pub struct McpPeer {
    shared: Arc<McpConnectionPool>,
}

impl McpPeer {
    /// The server at that location. Starts no process and sends no request until it is used.
    pub fn new(place: PeerLocation, options: McpPeerOptions) -> Self {
        Self { shared: Arc::new(McpConnectionPool::new(place, options)) }
    }

    /// Sends any other request of the protocol: resources, prompts, completion. Returns the result as
    /// received; in 2026-07-28 it may be one that asks for input.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, PeerError> {
        self.shared.request(ClientRequest::Other { method, params }).await
    }

    /// The revision in use; performs the handshake if needed.
    pub async fn version(&self) -> Result<McpVersion, PeerError> {
        Ok(self.shared.connection().await?.version)
    }

    /// The server's `capabilities`, as received.
    pub async fn capabilities(&self) -> Result<Value, PeerError> {
        Ok(self.shared.connection().await?.about.capabilities.as_json().clone())
    }

    /// The full params of an open question, as received: for sampling, all its messages.
    pub fn wording(&self, question: &str) -> Option<Value> {
        self.shared.wording(question)
    }
}

#[async_trait]
impl Peer for McpPeer {
    fn protocol(&self) -> PeerProtocol {
        PeerProtocol::Mcp
    }

    fn address(&self) -> String {
        self.shared.at.clone()
    }

    fn name(&self) -> Option<String> {
        self.shared.name()
    }

    async fn list_capabilities(&self) -> Result<Vec<PeerCapability>, PeerError> {
        let tools = self.shared.list_tools().await?;
        Ok(tools.iter().map(|tool| tool.offer.clone()).collect())
    }

    async fn wait_for_change(&self) {
        self.shared.changed().await;
    }

    async fn set_log_level(&self, level: Level) -> Result<(), PeerError> {
        self.shared.want_logs(level).await
    }

    async fn check_reachable(&self) -> Result<(), PeerError> {
        self.shared.request(ClientRequest::Ping).await.map(drop)
    }

    async fn describe(&self) -> Result<PeerDescription, PeerError> {
        let ServerDescription { info, capabilities } = self.shared.describe().await?;
        Ok(PeerDescription {
            document: Some(info).filter(Value::is_object),
            capabilities: capabilities.names().map(str::to_owned).collect(),
        })
    }

    async fn begin(&self, begin: PeerCallRequest) -> Result<PeerCall, PeerError> {
        let mut again = true;
        let tool = loop {
            let connection = self.shared.connection().await;
            let connection = connection.map_err(|error| error.into_read_error(&self.shared.at))?;
            match self.shared.tool(&connection, &begin.offer).await {
                Ok(tool) => break tool,
                Err(error::McpRequestError::SessionLost) if again => {
                    again = false;
                    self.shared.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.shared.at).into_read_error(&self.shared.at)),
            }
        };
        let key = Some(begin.input.id.clone()).filter(|key| !key.is_empty());
        let arguments = tool.arguments(&begin.input)?;
        let call = CallResend { arguments, trace: begin.trace, key, ..CallResend::default() };
        let token = uuid::Uuid::now_v7().simple().to_string();
        let place =
            self.shared.open_inbox(&token).await.map_err(|error| error.into_read_error(&self.shared.at))?;
        let (told, driver) = PeerCall::new();
        let conversation = McpCall::new(&self.shared, place, &begin.offer, token, call, driver);
        tokio::spawn(conversation.begin());
        Ok(told)
    }

    async fn resume(&self, handle: &CallHandle) -> Result<PeerCall, PeerError> {
        let (kept, version) = ResumeState::read(handle)?;
        let connection = self.shared.connection_in_session(version, kept.session.as_deref()).await;
        let connection = connection.map_err(|error| error.into_read_error(&self.shared.at))?;
        let (told, driver) = PeerCall::new();
        let again = match &kept.way {
            ResumeVia::Again(again) => again.clone(),
            ResumeVia::Stream { .. } | ResumeVia::Sent | ResumeVia::Task => CallResend::default(),
        };
        let token = kept.token.clone();
        let inbox = connection.hub.open_inbox(&token, handle.task.as_deref());
        let place = (connection, inbox);
        let conversation = McpCall::new(&self.shared, place, &handle.offer, token, again, driver);
        let task = handle.task.clone();
        tokio::spawn(async move { conversation.resume(kept, task.as_deref()).await });
        Ok(told)
    }

    fn answer_repeats_call(&self, handle: &CallHandle) -> bool {
        matches!(ResumeState::read(handle), Ok((ResumeState { way: ResumeVia::Again(_), .. }, _)))
    }

    async fn close(&self) {
        self.shared.close().await;
    }
}
