//! An MCP server anywhere as a [`Peer`]: over HTTP or pipes, in whatever revision it speaks.
//!
//! Each tool is an offer, each call a `tools/call` that is followed to its end: through streams that are cut,
//! questions that are asked on the way, and tasks that go on by themselves. Nothing is started or called before it is
//! needed.

mod call;
mod connection;
mod content;
mod exchange;
mod fail;
mod greet;
mod http;
mod hub;
mod incoming;
mod kept;
mod listen;
mod old_sse;
mod options;
mod pipe;
mod question;
mod shared;
mod streamable;
mod tools;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::Level;
use nuncio_wire::mcp::McpVersion;
use serde_json::{Value, json};

pub use self::options::{Declared, LogLevel, McpOptions};
use self::{
    call::Conversation,
    kept::{Again, Kept, Way},
    shared::Shared,
};
use crate::peer::{Begin, Call, Handle, Offer, Peer, PeerError, Place, Protocol};

/// An MCP server.
#[derive(Clone)]
pub struct McpPeer {
    shared: Arc<Shared>,
}

impl McpPeer {
    /// The server at that place. Nothing is started or called until it is used.
    pub fn new(place: Place, options: McpOptions) -> Self {
        Self { shared: Arc::new(Shared::new(place, options)) }
    }

    /// Sends any other request of the protocol: resources, prompts, completion. Returns its result as it came; in
    /// 2026-07-28 that may be one which asks for more.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, PeerError> {
        self.shared.request(method, &params).await
    }

    /// The revision that is spoken, once the server was greeted.
    pub async fn version(&self) -> Result<McpVersion, PeerError> {
        Ok(self.shared.connection().await?.version)
    }

    /// What the server says that it can do, in the protocol's words.
    pub async fn capabilities(&self) -> Result<Value, PeerError> {
        Ok(self.shared.connection().await?.about.capabilities.clone())
    }

    /// The whole wording of a question that is open, in the protocol's words: of a sample, all its messages.
    pub fn wording(&self, question: &str) -> Option<Value> {
        self.shared.wording(question)
    }
}

#[async_trait]
impl Peer for McpPeer {
    fn protocol(&self) -> Protocol {
        Protocol::Mcp
    }

    fn address(&self) -> String {
        self.shared.at.clone()
    }

    fn name(&self) -> Option<String> {
        self.shared.name()
    }

    async fn offers(&self) -> Result<Vec<Offer>, PeerError> {
        let tools = self.shared.list_tools().await?;
        Ok(tools.iter().map(|tool| tool.offer.clone()).collect())
    }

    async fn changed(&self) {
        self.shared.changed().await;
    }

    async fn want_logs(&self, level: Level) -> Result<(), PeerError> {
        self.shared.want_logs(level).await
    }

    async fn look(&self) -> Result<(), PeerError> {
        let connection = self.shared.connection().await?;
        let method = if connection.version.is_stateless() { "server/discover" } else { "ping" };
        self.shared.request(method, &json!({})).await.map(drop)
    }

    async fn begin(&self, begin: Begin) -> Result<Call, PeerError> {
        let mut again = true;
        let tool = loop {
            let connection = self.shared.connection().await;
            let connection = connection.map_err(|error| error.of_a_look(&self.shared.at))?;
            match self.shared.tool(&connection, &begin.offer).await {
                Ok(tool) => break tool,
                Err(fail::Fail::SessionLost) if again => {
                    again = false;
                    self.shared.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.shared.at).of_a_look(&self.shared.at)),
            }
        };
        let key = Some(begin.input.id.clone()).filter(|key| !key.is_empty());
        let arguments = tool.arguments(&begin.input)?;
        let call = Again { arguments, trace: begin.trace, key, ..Again::default() };
        let token = uuid::Uuid::now_v7().simple().to_string();
        let place = self.shared.seat(&token).await.map_err(|error| error.of_a_look(&self.shared.at))?;
        let (told, driver) = Call::new();
        let conversation = Conversation::new(&self.shared, place, &begin.offer, token, call, driver);
        tokio::spawn(conversation.begin());
        Ok(told)
    }

    async fn resume(&self, handle: &Handle) -> Result<Call, PeerError> {
        let (kept, version) = Kept::read(handle)?;
        let connection = self.shared.back(version, kept.session.as_deref()).await;
        let connection = connection.map_err(|error| error.of_a_look(&self.shared.at))?;
        let (told, driver) = Call::new();
        let again = match &kept.way {
            Way::Again(again) => again.clone(),
            Way::Stream { .. } | Way::Sent | Way::Task => Again::default(),
        };
        let token = kept.token.clone();
        let seat = connection.hub.sit(&token, handle.task.as_deref());
        let place = (connection, seat);
        let conversation = Conversation::new(&self.shared, place, &handle.offer, token, again, driver);
        let task = handle.task.clone();
        tokio::spawn(async move { conversation.resume(kept, task.as_deref()).await });
        Ok(told)
    }

    fn answers_by_calling(&self, handle: &Handle) -> bool {
        matches!(Kept::read(handle), Ok((Kept { way: Way::Again(_), .. }, _)))
    }

    async fn close(&self) {
        self.shared.close().await;
    }
}
