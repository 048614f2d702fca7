//! Options of an MCP peer: declared capabilities, credentials, and every limit.

use std::{sync::Arc, time::Duration};

use nuncio_engine::Level;
use nuncio_outbound::{Backoff, TlsClientOptions};
use nuncio_wire::mcp::{ClientCapabilities, ClientDescription, Implementation, McpVersion};
use parking_lot::Mutex;

use crate::auth::Authorizer;

/// The first backoff.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Options of an MCP peer.
#[derive(Clone)]
pub struct McpPeerOptions {
    /// The required revision. `None`: the newest that both sides know.
    pub version: Option<McpVersion>,
    /// Supplies the tokens for requests.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Whom to trust beside the system's CAs, and the client's certificate.
    pub tls: TlsClientOptions,
    /// The client capabilities that are declared to servers.
    pub declared: DeclaredCapabilities,
    /// The lowest level of log lines to request; it may change while the peer is used.
    pub log_level: McpLogLevel,
    /// Whether to follow tasks event by event, from a cursor, where the server has the extension for that
    /// (`dev.nuncio/events`). Artifacts then arrive in chunks, not as one result.
    pub events: bool,
    /// The name and version of this client.
    pub client: (String, String),
    /// Limit for establishing a connection.
    pub connect_timeout: Duration,
    /// Limit for a request other than a tool call.
    pub request_timeout: Duration,
    /// How long to wait for a program's response to `server/discover`; after that, `initialize` is tried.
    pub probe_timeout: Duration,
    /// How long a call may go without any message. On pipes, time with an open question does not count.
    pub silence: Duration,
    /// How long to wait for new events on a resumed stream before it is reopened: some servers store further
    /// events but do not send them on the resumed stream. The wait doubles each time, up to 15 s.
    pub quiet: Duration,
    /// How long a server may be unreachable during a call before the call fails: its stream cannot be
    /// reopened, or its task not be read. Each outage has the whole time.
    pub away: Duration,
    /// How many times in a row a stream that belongs to no call is reopened without success.
    pub reconnects: u32,
    /// The longest backoff, also before a program that exited is restarted.
    pub max_backoff: Duration,
    /// The longest reconnection delay that a server may request (SSE `retry`).
    pub max_retry: Duration,
    /// Connections (processes, sessions) to a server whose questions do not name their call: each call gets
    /// its own connection there. Calls beyond the limit share one, and a question that may belong to several
    /// is rejected.
    pub max_connections: usize,
    /// Bytes of one message.
    pub max_message: usize,
    /// Tools of a server that are read.
    pub max_tools: usize,
    /// How many times a call may ask for input and be sent again.
    pub max_rounds: u32,
    /// How long a program may take to exit after its input is closed; then it gets SIGTERM.
    pub exit_grace: Duration,
    /// How long a program may take to exit after SIGTERM; then it is killed.
    pub term_grace: Duration,
}

/// The lowest level of log lines to request. `None`: the server decides. Clones share one value.
#[derive(Debug, Clone, Default)]
pub struct McpLogLevel(Arc<Mutex<Option<Level>>>);

impl McpLogLevel {
    /// The current level.
    pub fn get(&self) -> Option<Level> {
        *self.0.lock()
    }

    /// Sets the level for all clones.
    pub fn set(&self, level: Level) {
        *self.0.lock() = Some(level);
    }
}

impl From<Level> for McpLogLevel {
    fn from(level: Level) -> Self {
        Self(Arc::new(Mutex::new(Some(level))))
    }
}

/// The client capabilities that are declared to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredCapabilities {
    /// Elicitation by form.
    pub forms: bool,
    /// Elicitation by URL.
    pub links: bool,
    /// Sampling.
    pub sampling: bool,
}

impl Default for McpPeerOptions {
    fn default() -> Self {
        Self {
            version: None,
            authorizer: None,
            tls: TlsClientOptions::default(),
            declared: DeclaredCapabilities { forms: true, links: true, sampling: true },
            log_level: McpLogLevel::default(),
            events: false,
            client: ("nuncio".into(), env!("CARGO_PKG_VERSION").into()),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(5),
            silence: Duration::from_secs(24 * 3600),
            quiet: Duration::from_secs(2),
            away: Duration::from_secs(120),
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
    /// How this client describes itself to servers.
    pub(super) fn description(&self) -> ClientDescription {
        let DeclaredCapabilities { forms: form, links: url, sampling } = self.declared;
        let (name, version) = self.client.clone();
        ClientDescription {
            capabilities: ClientCapabilities { form, url, sampling, roots: false, tasks: true },
            info: Implementation { name, version },
        }
    }

    /// The backoff before an attempt, by the number of attempts before it.
    pub(super) fn backoff(&self, attempt: u32) -> Duration {
        let wait = FIRST_BACKOFF * 2_u32.saturating_pow(attempt.min(10));
        wait.min(self.max_backoff)
    }

    /// The backoff of a call whose server is unreachable.
    pub(super) fn outage(&self) -> Backoff {
        Backoff::new(FIRST_BACKOFF.min(self.max_backoff), self.max_backoff, self.away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        let options = McpPeerOptions::default();
        let waits: Vec<_> = [0, 1, 2, 5, 6, 1000].map(|attempt| options.backoff(attempt).as_millis()).into();
        assert_eq!(waits, [100, 200, 400, 3200, 5000, 5000]);
    }
}
