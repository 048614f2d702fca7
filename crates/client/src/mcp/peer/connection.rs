//! A connection to an MCP server after the handshake: its revision, its transport, and the server's
//! description.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use nuncio_wire::mcp::{EVENTS, McpVersion, TASKS};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    duplex::DuplexChannel,
    error::McpRequestError,
    exchange::{AbortOnDrop, ExchangeEvent, McpPeerExchange},
    incoming::{self, McpMessage, McpPeerResponse},
    options::McpPeerOptions,
    router::MessageRouter,
    streamable::StreamableHttp,
};

/// A connection after the handshake.
pub(super) struct McpConnection {
    /// The address for display.
    pub(super) at: String,
    pub(super) version: McpVersion,
    pub(super) about: McpServerInfo,
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

/// What a server declares in the handshake.
#[derive(Debug, Clone, Default)]
pub(super) struct McpServerInfo {
    /// `serverInfo`: its name and version.
    pub(super) info: Value,
    /// Its declared capabilities.
    pub(super) capabilities: Value,
}

impl McpConnection {
    pub(super) fn new(
        at: &str,
        (version, about): (McpVersion, McpServerInfo),
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
        let capabilities = &self.about.capabilities;
        match self.version {
            McpVersion::V2025_11_25 => capabilities["tasks"]["requests"]["tools"]["call"].is_object(),
            McpVersion::V2026_07_28 => capabilities["extensions"][TASKS].is_object(),
            _ => false,
        }
    }

    /// Whether tasks are followed by their events on this connection.
    pub(super) fn has_events(&self) -> bool {
        let capabilities = &self.about.capabilities;
        let declared = match self.version {
            McpVersion::V2025_11_25 => &capabilities["experimental"][EVENTS],
            McpVersion::V2026_07_28 => &capabilities["extensions"][EVENTS],
            _ => return false,
        };
        self.options.events && declared.is_object()
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

    /// Starts a request. Returns its id and its messages. Adds to `params` what the revision requires with
    /// every request.
    pub(super) async fn exchange(
        &self,
        method: &str,
        mut params: Value,
        mirrored: HeaderMap,
    ) -> Result<(Value, McpPeerExchange), McpRequestError> {
        self.dress(&mut params);
        let id = Value::from(self.next.fetch_add(1, Ordering::Relaxed));
        let request = incoming::request(&id, method, &params);
        let exchange = match &self.link {
            McpTransport::Http(http) => http.exchange(request, mirrored),
            McpTransport::Wire(wire) => wire.exchange(&request).await?,
        };
        Ok((id, exchange))
    }

    /// Sends a request that is answered soon, and returns its result.
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, McpRequestError> {
        self.request_within(method, params, self.options.request_timeout).await
    }

    pub(super) async fn request_within(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, McpRequestError> {
        let mut given = None;
        let asked = async {
            let (id, mut exchange) = self.exchange(method, params, HeaderMap::new()).await?;
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
            let params = json!({ "requestId": id, "reason": why });
            // The request is abandoned in any case.
            let _ = self.send(&incoming::notice("notifications/cancelled", &params)).await;
        }
    }

    /// Adds what the revision requires with every request.
    fn dress(&self, params: &mut Value) {
        if params.is_null() {
            *params = json!({});
        }
        if !self.version.is_stateless() {
            return;
        }
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = self.version.name().into();
        meta["io.modelcontextprotocol/clientCapabilities"] = self.options.capabilities(self.version);
        meta["io.modelcontextprotocol/clientInfo"] = self.options.client_info();
        if let Some(level) = self.options.log_level.get() {
            meta["io.modelcontextprotocol/logLevel"] = json!(level);
        }
    }
}
