//! A connection to an MCP server after the handshake: its revision, its transport, and the server's
//! description.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use http::HeaderMap;
use nuncio_wire::mcp::{
    ClientNotification, ClientRequest, McpMessage, McpPeerResponse, McpVersion, ServerDescription,
    add_log_level, request_message,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    duplex::DuplexChannel,
    error::McpRequestError,
    exchange::{AbortOnDrop, ExchangeEvent, McpPeerExchange},
    options::McpPeerOptions,
    router::MessageRouter,
    streamable::StreamableHttp,
};

/// A connection after the handshake.
pub(super) struct McpConnection {
    /// The address for display.
    pub(super) at: String,
    pub(super) version: McpVersion,
    pub(super) about: ServerDescription,
    pub(super) link: McpTransport,
    pub(super) hub: Arc<MessageRouter>,
    pub(super) options: Arc<McpPeerOptions>,
    next: AtomicU64,
    background: Mutex<Vec<AbortOnDrop>>,
}

/// The transport of a connection.
pub(super) enum McpTransport {
    /// Every request is an HTTP request of its own.
    Http(Arc<StreamableHttp>),
    /// All messages share one duplex channel.
    Wire(Arc<DuplexChannel>),
}

impl McpConnection {
    pub(super) fn new(
        at: &str,
        (version, about): (McpVersion, ServerDescription),
        link: McpTransport,
        hub: &Arc<MessageRouter>,
        options: &Arc<McpPeerOptions>,
    ) -> Self {
        Self {
            at: at.to_owned(),
            version,
            about,
            link,
            hub: Arc::clone(hub),
            options: Arc::clone(options),
            next: AtomicU64::new(1),
            background: Mutex::default(),
        }
    }

    /// Marks a session that another process may have begun: the request ids must not collide.
    pub(super) fn adopted(self) -> Self {
        let random = uuid::Uuid::now_v7().as_u64_pair().1 & 0xffff_ffff;
        self.next.store((random << 16) + 1, Ordering::Relaxed);
        self
    }

    /// Attaches background work that stops with the connection.
    pub(super) fn attach_background(&self, work: AbortOnDrop) {
        self.background.lock().push(work);
    }

    /// Whether the server supports tasks in the form of its revision.
    pub(super) fn has_tasks(&self) -> bool {
        self.about.capabilities.has_tasks(self.version)
    }

    /// Whether tasks are followed by their events on this connection.
    pub(super) fn has_events(&self) -> bool {
        self.options.events && self.about.capabilities.has_events(self.version)
    }

    /// The session id, if there is one.
    pub(super) fn session(&self) -> Option<&str> {
        match &self.link {
            McpTransport::Http(http) => http.session.as_ref().and_then(|id| id.to_str().ok()),
            McpTransport::Wire(_) => None,
        }
    }

    /// Ends the session, or the process.
    pub(super) async fn end(&self) {
        match &self.link {
            McpTransport::Http(http) => http.end().await,
            McpTransport::Wire(wire) => wire.stop().await,
        }
    }

    /// Why the connection is closed, if it is.
    pub(super) fn closed(&self) -> Option<McpRequestError> {
        self.hub.closed()
    }

    /// Starts a request. Returns its id and its messages. Adds to its params what the revision requires with
    /// every request.
    pub(super) async fn exchange(
        &self,
        request: ClientRequest<'_>,
        mirrored: HeaderMap,
    ) -> Result<(Value, McpPeerExchange), McpRequestError> {
        let method = request.method(self.version).to_owned();
        let mut params = request.into_params(self.version);
        self.describe_client(&mut params);
        let id = Value::from(self.next.fetch_add(1, Ordering::Relaxed));
        let request = request_message(&id, &method, &params);
        let exchange = match &self.link {
            McpTransport::Http(http) => http.exchange(request, mirrored),
            McpTransport::Wire(wire) => wire.exchange(&request).await?,
        };
        Ok((id, exchange))
    }

    /// Sends a request that is answered soon, and returns its result.
    pub(super) async fn request(&self, request: ClientRequest<'_>) -> Result<Value, McpRequestError> {
        let limit = self.options.request_timeout;
        let method = request.method(self.version).to_owned();
        let mut given = None;
        let asked = async {
            let (id, mut exchange) = self.exchange(request, HeaderMap::new()).await?;
            given = Some(id);
            loop {
                match exchange.next().await? {
                    ExchangeEvent::Cursor(_) => {}
                    ExchangeEvent::Message(McpMessage::Answer(McpPeerResponse { outcome, .. })) => {
                        return outcome.map_err(McpRequestError::Rpc);
                    }
                    ExchangeEvent::Message(other) => {
                        if let Some(reply) = self.hub.route(other) {
                            self.send(&reply).await?;
                        }
                    }
                }
            }
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(result) => result,
            Err(_) => {
                if let Some(id) = given {
                    self.cancel(&id, "it took too long").await;
                }
                Err(McpRequestError::cut(format!(
                    "{} did not answer {method} within {} s",
                    self.at,
                    limit.as_secs_f32()
                )))
            }
        }
    }

    /// Sends a message that has no response.
    pub(super) async fn send(&self, message: &Value) -> Result<(), McpRequestError> {
        match &self.link {
            McpTransport::Http(http) => http.post(message).await,
            McpTransport::Wire(wire) => wire.send(message).await,
        }
    }

    /// Sends `notifications/cancelled`; over stateless HTTP closing the stream is the cancellation, so
    /// nothing is sent.
    pub(super) async fn cancel(&self, id: &Value, why: &str) {
        let shown = self.version.is_stateless() && matches!(self.link, McpTransport::Http(_));
        if !shown {
            let cancelled = ClientNotification::Cancelled { request: id, reason: why };
            // The request is abandoned in any case.
            let _ = self.send(&cancelled.to_message()).await;
        }
    }

    /// Adds what the revision requires with every request.
    fn describe_client(&self, params: &mut Value) {
        if !self.version.is_stateless() {
            return;
        }
        self.options.description().add_to(params, self.version);
        if let Some(level) = self.options.log_level.get() {
            add_log_level(params, level);
        }
    }
}
