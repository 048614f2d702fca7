//! What an operator may set about the HTTP side. Every limit has a name and a default.

use std::{sync::Arc, time::Duration};

use crate::{Authenticator, McpOptions, auth::TokenAdmin, proxies::TrustedProxy, webhook_keys::WebhookKeys};

/// How the server presents itself and what it bears.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// What cards say, where clients reach the server by another address than it listens on.
    pub public_url: Option<String>,
    /// Names, beside loopback ones and that of `public_url`, under which the server answers.
    pub allowed_hosts: Vec<String>,
    /// Whether requests are answered whatever `Host` they name. For servers that are meant to be public.
    pub any_host: bool,
    /// Whether `/.well-known/agent-card.json` is strictly 1.0 even for clients that do not say so.
    pub strict_cards: bool,
    /// Whether cards and lists of agents are shown to callers alone that have said who they are.
    pub private_cards: bool,
    /// Origins of pages that may call from a browser, such as `https://app.example.org`; `*`: any.
    pub cors_origins: Vec<String>,
    /// Proxies that are believed when they name the client. Where no credentials are asked for, requests that came
    /// through any other proxy are refused.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Says who is calling; without one every request acts in the operator's name, without administration.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Keeps the server's own tokens.
    pub tokens: Option<Arc<dyn TokenAdmin>>,
    /// The keys that webhooks are signed with.
    pub webhook_keys: Option<Arc<WebhookKeys>>,
    /// The operator's secret, for one run of the server: whoever shows it is the operator. Without one there is
    /// no `/admin`, unless there is an authenticator.
    pub admin_token: Option<String>,
    /// What is refused for its size or slowness.
    pub limits: HttpLimits,
    /// How MCP is served.
    pub mcp: McpOptions,
    /// Renders the figures for `/metrics`.
    pub metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

/// What is refused for its size or slowness.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Levels of nesting in a request's JSON, at most [`HttpLimits::DEEPEST`].
    pub max_json_depth: usize,
    /// Bytes of a request's head.
    pub max_header_bytes: usize,
    /// Fields of a request's head.
    pub max_headers: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// Connections of one address at once, an IPv6 network of 64 bits being one. `None`: a quarter of
    /// `max_connections`, and no bound for this machine, whose proxies bring the connections of many. Trusted proxies
    /// have no bound.
    pub max_connections_per_address: Option<usize>,
    /// Streams at once.
    pub max_streams: usize,
    /// Streams of one caller at once, where callers are told apart.
    pub max_streams_per_caller: usize,
    /// Requests of one caller in a second, of whatever method, where callers are told apart; twice as many may come at
    /// once; 0: as many as it likes.
    pub requests_per_second: u32,
    /// The same for all callers of one tenant.
    pub requests_per_second_per_tenant: u32,
    /// How long a request's head may take to arrive, and how long a connection may wait for the next one.
    pub header_timeout: Duration,
    /// How long a request's body may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may take nothing of what is written to it, before its connection is closed.
    pub write_timeout: Duration,
    /// How often a quiet stream says that it is alive.
    pub keep_alive: Duration,
}

impl HttpLimits {
    /// The deepest nesting that can be allowed. What is stored has a few levels more than its request, and the
    /// parser that reads it again goes down 127.
    pub const DEEPEST: usize = 100;
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 8 * 1024 * 1024,
            max_json_depth: 64,
            max_header_bytes: 32 * 1024,
            max_headers: 100,
            max_connections: 16_384,
            max_connections_per_address: None,
            max_streams: 8_192,
            max_streams_per_caller: 1_024,
            // A client that waits for its answers sends some hundred a second; this machine answers some ten thousand.
            requests_per_second: 2_000,
            requests_per_second_per_tenant: 4_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
        }
    }
}
