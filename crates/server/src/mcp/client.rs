//! Who is at the other end of a request, as far as the request or its session says.

use std::sync::Arc;

use nuncio_engine::{Caller, Level, surface::Abilities};
use nuncio_wire::mcp::{ClientCapabilities, McpFault, McpVersion, RequestMeta};
use serde_json::Value;

use super::session::McpSession;

/// Log lines below it are left out where a session never said what it wants.
pub(super) const DEFAULT_LEVEL: Level = Level::Info;

/// Who asks, and in which revision.
#[derive(Clone)]
pub(crate) struct McpClient {
    pub(super) version: McpVersion,
    pub(super) caller: Caller,
    pub(super) capabilities: ClientCapabilities,
    /// The session; without one, every request stands for itself.
    pub(super) session: Option<Arc<McpSession>>,
    /// The lowest level of log lines that this very request wants. Sessions have their own.
    pub(super) level: Option<Level>,
    /// What it calls itself, where this very request says so. Sessions have their own.
    pub(super) info: Option<String>,
}

/// The longest name of a client that is kept, in characters.
const MAX_INFO: usize = 200;

/// What a client calls itself: its name and version.
pub(super) fn info_of(declared: &Value) -> Option<String> {
    let name = declared["name"].as_str().filter(|name| !name.is_empty())?;
    let said = match declared["version"].as_str() {
        Some(version) => format!("{name}/{version}"),
        None => name.to_owned(),
    };
    Some(said.chars().take(MAX_INFO).collect())
}

impl McpClient {
    /// Whether a line of that level is wanted.
    pub(super) fn wants_level(&self, level: Level) -> bool {
        match &self.session {
            Some(session) => level >= session.level().unwrap_or(DEFAULT_LEVEL),
            None => self.level.is_some_and(|lowest| level >= lowest),
        }
    }

    /// The level of log lines that was asked for, in so many words.
    pub(super) fn asked_level(&self) -> Option<Level> {
        self.session.as_ref().map_or(self.level, |session| session.level())
    }

    /// What it calls itself.
    pub(super) fn info(&self) -> Option<String> {
        self.info.clone().or_else(|| self.session.as_ref().and_then(|session| session.state().client))
    }

    /// What it can be asked in a call that it waits for.
    pub(super) fn abilities(&self) -> Abilities {
        let ClientCapabilities { form, url, sampling, roots, .. } = self.capabilities;
        Abilities { ask: form, authorize: url, sample: sampling, roots }
    }

    /// The conversation that its calls belong to.
    pub(super) fn context(&self) -> Option<String> {
        self.session.as_ref().map(|session| session.context().to_owned())
    }

    /// Who sends a request that stands for itself. The outer error is a request that is none; the inner one is
    /// told only when the headers agree.
    pub(super) fn stateless(caller: &Caller, meta: &RequestMeta) -> Result<Result<Self, McpFault>, McpFault> {
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
        let (caller, capabilities) = (caller.clone(), meta.capabilities(version));
        let info = meta.client_info.as_ref().and_then(info_of);
        Ok(Ok(Self { version, caller, capabilities, session: None, level: meta.level, info }))
    }
}
