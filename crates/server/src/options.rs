//! The operator's options for the HTTP side. Every limit has a name and a default.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    Authenticator, McpOptions, ServerTls, auth::TokenAdmin, proxies::TrustedProxy, webhook_keys::WebhookKeys,
};

/// How the server presents itself, and its limits.
#[derive(Clone)]
pub struct ServerOptions {
    /// The base URL in cards, if clients reach the server at another address than the one it listens on.
    pub public_url: Option<String>,
    /// A path below which everything is served as well, such as `/a2a`: for a proxy that passes the path on, and for
    /// clients that know it from another server. gRPC has paths of its own. Cards do not name it unless `public_url` does.
    pub base_path: Option<String>,
    /// Host names that the server answers to, besides the loopback names and the host of `public_url`.
    pub allowed_hosts: Vec<String>,
    /// Whether requests are answered whatever `Host` they name. For servers that are meant to be public.
    pub any_host: bool,
    /// Whether `/.well-known/agent-card.json` is strictly 1.0 even for clients that do not ask for that
    /// version.
    pub strict_cards: bool,
    /// Whether cards and lists of agents are shown only to authenticated callers.
    pub private_cards: bool,
    /// Origins of browser pages that may call, such as `https://app.example.org`; `*` allows any.
    pub cors_origins: Vec<String>,
    /// Proxies whose headers are trusted to name the client. Where no credentials are required, requests that
    /// came through any other proxy are refused.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Authenticates callers. Without one, a request needs no credentials: it acts in the operator's name and cannot
    /// administer.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Where no credentials are required, authenticates the callers of requests that present some, so that a limited
    /// token is never more than it says, and a revoked one is refused. Without one, credentials are ignored there.
    pub optional_authenticator: Option<Arc<dyn Authenticator>>,
    /// Creates, lists and revokes the server's own tokens.
    pub tokens: Option<Arc<dyn TokenAdmin>>,
    /// The keys that webhooks are signed with.
    pub webhook_keys: Option<Arc<WebhookKeys>>,
    /// The operator's secret, valid for one run of the server: a request that presents it acts as the operator.
    /// Without a secret there is no `/admin`, unless there is an authenticator.
    pub admin_token: Option<String>,
    /// The certificate, where connections are encrypted. Those of the Unix socket are not.
    pub tls: Option<Arc<ServerTls>>,
    /// Limits on size, number and slowness.
    pub limits: HttpLimits,
    /// Options of the MCP binding.
    pub mcp: McpOptions,
    /// Renders the Prometheus text of `/metrics`.
    pub metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Whether each request is logged.
    pub access_log: bool,
    /// Whether the web console and its API are served at `/console/`.
    pub console: bool,
    /// The settings in force, which the console shows to the operator. The server does not read them.
    pub settings: Vec<EffectiveSetting>,
}

/// A setting in force, and where its value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveSetting {
    /// Its key in the configuration.
    pub key: String,
    /// Its value: text, a number, a switch or a list of texts; null where it is not set. Secrets are hidden when it is shown.
    pub value: Value,
    /// The layer that set it: `flag`, `environment`, `file` or `default`.
    pub source: &'static str,
    /// The flag, the variable or the file.
    pub from: Option<String>,
    /// What it is for.
    pub about: String,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            public_url: None,
            base_path: None,
            allowed_hosts: vec![],
            any_host: false,
            strict_cards: false,
            private_cards: false,
            cors_origins: vec![],
            trusted_proxies: vec![],
            authenticator: None,
            optional_authenticator: None,
            tokens: None,
            webhook_keys: None,
            admin_token: None,
            tls: None,
            limits: HttpLimits::default(),
            mcp: McpOptions::default(),
            metrics: None,
            access_log: false,
            console: true,
            settings: vec![],
        }
    }
}

impl ServerOptions {
    /// Whether a client certificate names a caller.
    pub(crate) fn takes_client_certificates(&self) -> bool {
        self.authenticator.is_some() && self.tls.as_ref().is_some_and(|tls| tls.takes_client_certificates())
    }
}

/// Limits on the size, number and slowness of requests, connections and streams.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Maximum bytes of a request body.
    pub max_body_bytes: usize,
    /// Maximum levels of nesting in a request's JSON; at most [`HttpLimits::DEEPEST`].
    pub max_json_depth: usize,
    /// Maximum bytes of a request head.
    pub max_header_bytes: usize,
    /// Maximum header fields of a request.
    pub max_headers: usize,
    /// Maximum concurrent connections.
    pub max_connections: usize,
    /// Maximum concurrent connections of one address; an IPv6 /64 network counts as one address. `None` means a
    /// quarter of `max_connections`, and no limit for this machine, whose proxies carry the connections of many
    /// clients. Trusted proxies have no limit.
    pub max_connections_per_address: Option<usize>,
    /// Maximum concurrent requests on one connection of HTTP/2.
    pub max_requests_per_connection: u32,
    /// Maximum concurrent streams.
    pub max_streams: usize,
    /// Maximum concurrent streams of one caller, where callers are distinguished.
    pub max_streams_per_caller: usize,
    /// Requests per second of one caller, over all methods, where callers are distinguished. Bursts of twice as
    /// many are allowed; 0 means no limit.
    pub requests_per_second: u32,
    /// Requests per second of all callers of one tenant together; 0 means no limit.
    pub requests_per_second_per_tenant: u32,
    /// Deadline for a TLS handshake, from the connection's beginning.
    pub handshake_timeout: Duration,
    /// Deadline for a request head to arrive, and for the next request on an idle connection.
    pub header_timeout: Duration,
    /// Deadline for a request body to arrive.
    pub body_timeout: Duration,
    /// Maximum bytes that are read and dropped of a body that was refused, so that a client which still sends reads the
    /// response and no reset.
    pub max_refused_body_bytes: usize,
    /// How long that takes at most.
    pub linger_timeout: Duration,
    /// How long a client may read nothing of what is written to it before its connection is closed.
    pub write_timeout: Duration,
    /// Interval of the keep-alive comments on a quiet stream.
    pub keep_alive: Duration,
}

impl HttpLimits {
    /// The deepest nesting that can be configured. A stored document has a few levels more than its request,
    /// and the parser that reads it back stops at 127.
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
            max_requests_per_connection: 256,
            max_streams: 8_192,
            max_streams_per_caller: 1_024,
            // A client that waits for each response sends some hundred requests a second; this machine answers
            // some ten thousand.
            requests_per_second: 2_000,
            requests_per_second_per_tenant: 4_000,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            max_refused_body_bytes: 32 * 1024 * 1024,
            linger_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
        }
    }
}
