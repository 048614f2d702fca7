//! How a peer is spoken to: what is declared, who is shown, and every limit by its name.

use std::{sync::Arc, time::Duration};

use nuncio_engine::Level;
use nuncio_wire::mcp::{McpVersion, TASKS};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::auth::Authorizer;

/// How a peer is spoken to.
#[derive(Clone)]
pub struct McpPeerOptions {
    /// The revision to insist on. `None`: the newest that both sides know.
    pub version: Option<McpVersion>,
    /// Who knows tokens.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// What servers are told that can be asked here.
    pub declared: DeclaredCapabilities,
    /// The lowest level of log lines that is asked for; it may change while the peer is used.
    pub log_level: McpLogLevel,
    /// Whether tasks are followed event by event, from a cursor, where the server has the extension for that
    /// (`dev.nuncio/events`). Artifacts come in their pieces then, and not as one result.
    pub events: bool,
    /// How this client calls itself, and its version.
    pub client: (String, String),
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a request that is no call may take.
    pub request_timeout: Duration,
    /// How long a program on pipes may stay silent when it is asked for the newest revision; after it, it is greeted
    /// as those before it.
    pub probe_timeout: Duration,
    /// How long nothing at all may be heard of a call. On pipes the time in which a question is open does not count.
    pub silence: Duration,
    /// How soon a stream that was taken up is asked for once more when nothing follows what was missed: there are
    /// servers that keep what follows and send it nowhere. Longer each time, to 15 s.
    pub quiet: Duration,
    /// How often a stream that was cut is asked for again without hearing anything new; and how often a task.
    pub reconnects: u32,
    /// The longest wait between two such attempts, and before a program that died is started again.
    pub max_backoff: Duration,
    /// The longest wait that a server may ask for before its stream is asked for again.
    pub max_retry: Duration,
    /// Connections (processes, sessions) that are held at most at a server which asks without saying whom: a call has
    /// one of its own there. Further calls share, and a question that may be anybody's is refused.
    pub max_connections: usize,
    /// Bytes of one message.
    pub max_message: usize,
    /// Tools that a server may offer.
    pub max_tools: usize,
    /// How often a call may ask for more and be made again.
    pub max_rounds: u32,
    /// How long a program may take to end by itself once its input is closed; after it, it is told to (TERM).
    pub exit_grace: Duration,
    /// How long a program may take to end once it was told to; after it, it is killed.
    pub term_grace: Duration,
}

/// The lowest level of log lines that is asked for. `None`: whatever the server chooses to send. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct McpLogLevel(Arc<Mutex<Option<Level>>>);

impl McpLogLevel {
    /// What it is now.
    pub fn get(&self) -> Option<Level> {
        *self.0.lock()
    }

    /// From now on it is that.
    pub fn set(&self, level: Level) {
        *self.0.lock() = Some(level);
    }
}

impl From<Level> for McpLogLevel {
    fn from(level: Level) -> Self {
        Self(Arc::new(Mutex::new(Some(level))))
    }
}

/// What servers are told that can be asked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredCapabilities {
    /// Forms are filled in.
    pub forms: bool,
    /// People are sent to links.
    pub links: bool,
    /// There is a model.
    pub sampling: bool,
}

impl Default for McpPeerOptions {
    fn default() -> Self {
        Self {
            version: None,
            authorizer: None,
            declared: DeclaredCapabilities { forms: true, links: true, sampling: true },
            log_level: McpLogLevel::default(),
            events: false,
            client: ("nuncio".into(), env!("CARGO_PKG_VERSION").into()),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(5),
            silence: Duration::from_secs(24 * 3600),
            quiet: Duration::from_secs(2),
            reconnects: 30,
            max_backoff: Duration::from_secs(5),
            max_retry: Duration::from_secs(300),
            max_connections: 8,
            max_message: 64 * 1024 * 1024,
            max_tools: 10_000,
            max_rounds: 100,
            exit_grace: Duration::from_secs(2),
            term_grace: Duration::from_secs(3),
        }
    }
}

impl McpPeerOptions {
    /// What is declared, in the words of a revision.
    pub(super) fn capabilities(&self, version: McpVersion) -> Value {
        let DeclaredCapabilities { forms, links, sampling } = self.declared;
        let mut capabilities = Map::new();
        let mut modes = Map::new();
        if version >= McpVersion::V2025_11_25 {
            for (declared, mode) in [(forms, "form"), (links, "url")] {
                if declared {
                    modes.insert(mode.into(), json!({}));
                }
            }
        }
        let asks = forms || (links && version >= McpVersion::V2025_11_25);
        if asks && version >= McpVersion::V2025_06_18 {
            capabilities.insert("elicitation".into(), Value::Object(modes));
        }
        if sampling {
            capabilities.insert("sampling".into(), json!({}));
        }
        if version.is_stateless() {
            capabilities.insert("extensions".into(), json!({ TASKS: {} }));
        }
        Value::Object(capabilities)
    }

    /// Who this is.
    pub(super) fn client_info(&self) -> Value {
        json!({ "name": self.client.0, "version": self.client.1 })
    }

    /// The wait before an attempt, by how many went before it.
    pub(super) fn backoff(&self, attempt: u32) -> Duration {
        let wait = Duration::from_millis(100) * 2_u32.saturating_pow(attempt.min(10));
        wait.min(self.max_backoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_is_said_as_each_revision_knows_it() {
        let mut options = McpPeerOptions::default();
        let check = |options: &McpPeerOptions, version, expected: Value| {
            assert_eq!(options.capabilities(version), expected, "{version:?}");
        };
        check(&options, McpVersion::V2024_11_05, json!({ "sampling": {} }));
        check(&options, McpVersion::V2025_06_18, json!({ "elicitation": {}, "sampling": {} }));
        let both = json!({ "form": {}, "url": {} });
        check(&options, McpVersion::V2025_11_25, json!({ "elicitation": both, "sampling": {} }));
        check(
            &options,
            McpVersion::V2026_07_28,
            json!({ "elicitation": both, "sampling": {}, "extensions": { TASKS: {} } }),
        );
        options.declared = DeclaredCapabilities { forms: false, links: true, sampling: false };
        check(&options, McpVersion::V2025_06_18, json!({}));
        check(&options, McpVersion::V2025_11_25, json!({ "elicitation": { "url": {} } }));
    }

    #[test]
    fn waits_grow_to_a_limit() {
        let options = McpPeerOptions::default();
        let waits: Vec<_> = [0, 1, 2, 5, 6, 1000].map(|attempt| options.backoff(attempt).as_millis()).into();
        assert_eq!(waits, [100, 200, 400, 3200, 5000, 5000]);
    }
}
