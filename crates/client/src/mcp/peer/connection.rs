//! A server that has been greeted: in which revision, by what channel, and what it said of itself.

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

/// A server that has been greeted.
pub(super) struct McpConnection {
    /// For people.
    pub(super) at: String,
    pub(super) version: McpVersion,
    pub(super) about: McpServerInfo,
    pub(super) link: McpTransport,
    pub(super) hub: Arc<MessageRouter>,
    pub(super) options: Arc<McpPeerOptions>,
    next: AtomicU64,
    background: Mutex<Vec<AbortOnDrop>>,
}

/// By what channel.
pub(super) enum McpTransport {
    /// Each request for itself.
    Http(Arc<StreamableHttp>),
    /// All on one.
    Wire(Arc<DuplexChannel>),
}

/// What a server says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct McpServerInfo {
    /// Its name and version.
    pub(super) info: Value,
    /// What it can do.
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

    /// A session that another process may have begun: its request ids must not be met again.
    pub(super) fn adopted(self) -> Self {
        let random = uuid::Uuid::now_v7().as_u64_pair().1 & 0xffff_ffff;
        self.next.store((random << 16) + 1, Ordering::Relaxed);
        self
    }

    /// What is done for as long as the connection lasts.
    pub(super) fn attach_background(&self, work: AbortOnDrop) {
        self.background.lock().push(work);
    }

    /// Whether the server lets calls be tasks in the manner of its revision.
    pub(super) fn has_tasks(&self) -> bool {
        let capabilities = &self.about.capabilities;
        match self.version {
            McpVersion::V2025_11_25 => capabilities["tasks"]["requests"]["tools"]["call"].is_object(),
            McpVersion::V2026_07_28 => capabilities["extensions"][TASKS].is_object(),
            _ => false,
        }
    }

    /// Whether tasks are followed by their events here.
    pub(super) fn has_events(&self) -> bool {
        let capabilities = &self.about.capabilities;
        let declared = match self.version {
            McpVersion::V2025_11_25 => &capabilities["experimental"][EVENTS],
            McpVersion::V2026_07_28 => &capabilities["extensions"][EVENTS],
            _ => return false,
        };
        self.options.events && declared.is_object()
    }

    /// The session, where there is one.
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

    /// Whether it is over, and why.
    pub(super) fn closed(&self) -> Option<McpRequestError> {
        self.hub.closed()
    }

    /// Begins a request; its id, and what comes for it. `params` get what the revision wants with every request.
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

    /// Sends a request that is answered soon; its result.
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

    /// Sends what has no answer.
    pub(super) async fn send(&self, message: &Value) -> Result<(), McpRequestError> {
        match &self.link {
            McpTransport::Http(http) => http.post(message).await,
            McpTransport::Wire(wire) => wire.send(message).await,
        }
    }

    /// Says that nobody wants a request answered any more, where that is said and not shown.
    pub(super) async fn cancel(&self, id: &Value, why: &str) {
        let shown = self.version.is_stateless() && matches!(self.link, McpTransport::Http(_));
        if !shown {
            let params = json!({ "requestId": id, "reason": why });
            // It is let go in any case.
            let _ = self.send(&incoming::notice("notifications/cancelled", &params)).await;
        }
    }

    /// What the revision wants with every request.
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
