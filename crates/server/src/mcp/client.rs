//! The client of a request, as declared in the request or in its session.

use std::sync::Arc;

use nuncio_engine::{Caller, Level, surface::Abilities};
use nuncio_wire::mcp::{ClientCapabilities, McpFault, McpVersion, RequestMeta};
use serde_json::Value;

use super::{McpEndpoint, session::McpSession};

/// The lowest level of log messages that is sent to a session which never set one.
pub(super) const DEFAULT_LEVEL: Level = Level::Info;

/// The caller, the revision it uses, and its declared capabilities.
#[derive(Clone)]
pub(crate) struct McpClient {
    pub(super) version: McpVersion,
    pub(super) caller: Caller,
    /// The endpoint that it uses.
    pub(super) endpoint: McpEndpoint,
    pub(super) capabilities: ClientCapabilities,
    /// The session; `None` for a stateless request.
    pub(super) session: Option<Arc<McpSession>>,
    /// The lowest level of log messages that this request wants. Sessions have their own.
    pub(super) level: Option<Level>,
    /// The client's name and version, if this request declares them. Sessions have their own.
    pub(super) info: Option<String>,
}

/// The longest client name that is stored, in characters.
const MAX_INFO: usize = 200;

/// The declared name and version of a client.
pub(super) fn info_of(declared: &Value) -> Option<String> {
    let name = declared["name"].as_str().filter(|name| !name.is_empty())?;
    let said = match declared["version"].as_str() {
        Some(version) => format!("{name}/{version}"),
        None => name.to_owned(),
    };
    Some(said.chars().take(MAX_INFO).collect())
}

impl McpClient {
    /// Whether the client wants log messages of that level.
    pub(super) fn wants_level(&self, level: Level) -> bool {
        match &self.session {
            Some(session) => level >= session.level().unwrap_or(DEFAULT_LEVEL),
            None => self.level.is_some_and(|lowest| level >= lowest),
        }
    }

    /// The level of log messages that was explicitly requested.
    pub(super) fn asked_level(&self) -> Option<Level> {
        self.session.as_ref().map_or(self.level, |session| session.level())
    }

    /// The client's declared name and version.
    pub(super) fn info(&self) -> Option<String> {
        self.info.clone().or_else(|| self.session.as_ref().and_then(|session| session.state().client))
    }

    /// The kinds of questions that the client can answer while it waits for a call.
    pub(super) fn abilities(&self) -> Abilities {
        let ClientCapabilities { form, url, sampling, roots, .. } = self.capabilities;
        Abilities { ask: form, authorize: url, sample: sampling, roots }
    }

    /// The context (conversation) that its calls belong to.
    pub(super) fn context(&self) -> Option<String> {
        self.session.as_ref().map(|session| session.context().to_owned())
    }

    /// The client of a stateless request. The outer error means that the request is not a valid stateless one;
    /// the inner error is reported only if the headers match the body.
    pub(super) fn stateless(
        caller: &Caller,
        endpoint: &McpEndpoint,
        meta: &RequestMeta,
    ) -> Result<Result<Self, McpFault>, McpFault> {
        let missing = |what: &str| {
            McpFault::invalid_params(format!(
                "_meta: {what} is missing: MCP 2026-07-28 wants it with every request"
            ))
            .with_status(400)
        };
        let Some(name) = &meta.version else {
            return Err(missing("io.modelcontextprotocol/protocolVersion"));
        };
        let version = match McpVersion::parse(name).filter(|version| version.is_stateless()) {
            Some(version) => version,
            None => return Ok(Err(McpFault::unsupported_version(name))),
        };
        match &meta.capabilities {
            Some(Value::Object(_)) => {}
            Some(_) => {
                return Err(McpFault::invalid_params("_meta: clientCapabilities: expected an object")
                    .with_status(400));
            }
            None => return Err(missing("io.modelcontextprotocol/clientCapabilities")),
        }
        let (caller, capabilities) = (caller.clone().over(version.dialect()), meta.capabilities(version));
        let info = meta.client_info.as_ref().and_then(info_of);
        let (endpoint, level) = (endpoint.clone(), meta.level);
        Ok(Ok(Self { version, caller, endpoint, capabilities, session: None, level, info }))
    }
}
