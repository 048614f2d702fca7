//! The table of settings: one row for each, with its parser and its formatter.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use nuncio::{
    AuthMode, PostgresOptions, Provider, StoreLocation, ToolListFilterError, TrustedProxy, UnknownProvider,
    engine::{
        AccessKind, AuditLevel, Grants, MeteredResource, QuestionLimit, Share, access_control::RateError,
        memory::Privacy, redact::Redactor,
    },
};

use super::{BuiltinAgents, Config, LogFormat, ModelConfig};
use crate::duration;

pub(crate) struct Setting {
    /// The key in `nuncio.toml`, with its section; a key without a section is also the flag.
    pub(crate) key: &'static str,
    /// The type of the value.
    pub(crate) shape: SettingShape,
    /// The placeholder of the value in the help.
    pub(crate) value_name: &'static str,
    /// The help text.
    pub(crate) about: &'static str,
    /// The value as text; `None` where it is not set.
    pub(crate) get: fn(&Config) -> Option<String>,
    /// Parses and sets a value; an error says why it is invalid.
    pub(crate) set: fn(&mut Config, &str) -> Result<(), String>,
}

/// The type of a setting's value in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingShape {
    /// A string.
    Text,
    /// A whole number.
    Whole,
    /// True or false; on the command line the flag alone means true.
    Switch,
    /// Several strings; separated by commas on the command line.
    List,
    /// Several strings that may contain commas; separated by line breaks where they are one text.
    Lines,
}

impl Setting {
    /// The section in `nuncio.toml`.
    pub(crate) fn section(&self) -> Option<&'static str> {
        self.key.split_once('.').map(|(section, _)| section)
    }

    /// The setting with that key, or with that former key.
    pub(crate) fn find(key: &str) -> Option<&'static Self> {
        let key = FORMER_KEYS.iter().find(|(former, _)| *former == key).map_or(key, |(_, key)| key);
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The names of the environment variable: the current one, then the former one if there is one.
    pub(crate) fn environment(&self) -> impl Iterator<Item = String> {
        let former = FORMER_KEYS.iter().filter(|(_, key)| *key == self.key).map(|(former, _)| *former);
        std::iter::once(self.key).chain(former).map(environment)
    }
}

/// Former keys of settings, each with the current one. They are read like it, and never printed.
const FORMER_KEYS: [(&str, &str); 3] = [
    ("sparc.model-url", "model.base-url"),
    ("sparc.model-name", "model.name"),
    ("sparc.model-key-variable", "model.key-variable"),
];

fn environment(key: &str) -> String {
    format!("NUNCIO_{}", key.replace(['-', '.'], "_").to_ascii_uppercase())
}

const fn row(
    key: &'static str,
    shape: SettingShape,
    value_name: &'static str,
    about: &'static str,
    get: fn(&Config) -> Option<String>,
    set: fn(&mut Config, &str) -> Result<(), String>,
) -> Setting {
    Setting { key, shape, value_name, about, get, set }
}

/// A row whose value is one field of the configuration.
macro_rules! field {
    ($key:literal, whole, $about:literal, $($field:ident).+) => {
        row($key, SettingShape::Whole, "N", $about,
            |config| Some(config.$($field).+.to_string()),
            |config, text| whole(text).map(|value| config.$($field).+ = value))
    };
    ($key:literal, switch, $about:literal, $($field:ident).+) => {
        row($key, SettingShape::Switch, "BOOL", $about,
            |config| Some(config.$($field).+.to_string()),
            |config, text| switch(text).map(|value| config.$($field).+ = value))
    };
    ($key:literal, duration, $about:literal, $($field:ident).+) => {
        row($key, SettingShape::Text, "DURATION", $about,
            |config| Some(duration::format(config.$($field).+)),
            |config, text| positive(text).map(|value| config.$($field).+ = value))
    };
}

/// All settings, grouped by section.
#[rustfmt::skip]
pub(crate) static SETTINGS: &[Setting] = &[
    row("listen", SettingShape::Text, "ADDR:PORT", "The address to listen on; port 0 picks a free port",
        |config| Some(config.listen.clone()),
        |config, text| { config.listen = text.into(); Ok(()) }),
    field!("allow-remote", switch, "Allow --listen to name an address that other machines can reach; callers must show a token there", allow_remote),
    row("socket", SettingShape::Text, "PATH", "A Unix socket to listen on as well, for a proxy; processes of the server's own user need no token there",
        |config| config.socket.as_ref().map(|path| path.display().to_string()),
        |config, text| { config.socket = some(text).map(PathBuf::from); Ok(()) }),
    row("tls-cert", SettingShape::Text, "FILE", "The server's certificate with its chain, in PEM: connections are then encrypted; it is loaded again when the file changes",
        |config| path(config.tls.certificate.as_ref()),
        |config, text| { config.tls.certificate = some(text).map(PathBuf::from); Ok(()) }),
    row("tls-key", SettingShape::Text, "FILE", "The private key of that certificate, in PEM",
        |config| path(config.tls.key.as_ref()),
        |config, text| { config.tls.key = some(text).map(PathBuf::from); Ok(()) }),
    row("tls-client-ca", SettingShape::Text, "FILE", "The CAs whose client certificates name a caller, in PEM; a caller without a certificate shows a token",
        |config| path(config.tls.client_ca.as_ref()),
        |config, text| { config.tls.client_ca = some(text).map(PathBuf::from); Ok(()) }),
    row("tls-client-scopes", SettingShape::Lines, "SCOPES", "What callers with a certificate may do, such as read:a2a; nothing by default",
        |config| Some(config.security.certificate_scopes.join("\n")),
        |config, text| scopes(text).map(|scopes| config.security.certificate_scopes = scopes)),
    row("tls-client-tenant", SettingShape::Text, "NAME", "The tenant of callers with a certificate",
        |config| Some(config.security.certificate_tenant.clone()),
        |config, text| { config.security.certificate_tenant = text.into(); Ok(()) }),
    field!("tls-reload-interval", duration, "How often the files of TLS are read to find out whether they have changed", tls.reload_interval),
    row("trusted-proxies", SettingShape::List, "ADDRESSES", "Proxies that are trusted to name the client, such as 127.0.0.1, 10.0.0.0/8 or unix (the socket)",
        |config| Some(joined(&config.server.trusted_proxies)),
        |config, text| proxies(text).map(|proxies| config.server.trusted_proxies = proxies)),
    row("auth", SettingShape::Text, "MODE", "Whether callers have to show a token: on, file (the secret of the data folder, or a token), off, or auto (on where more than the operator may reach the server: another machine, a public name, a proxy, a socket, an issuer, a folder that others write)",
        |config| Some(match config.security.auth { AuthMode::Auto => "auto", AuthMode::On => "on", AuthMode::File => "file", AuthMode::Off => "off" }.into()),
        |config, text| auth_mode(text).map(|mode| config.security.auth = mode)),
    row("audit", SettingShape::Text, "LEVEL", "What goes into the audit: off, refused, changes, all, or auto (all where callers show tokens, else changes)",
        |config| Some(config.security.audit.map_or("auto", audit_name).into()),
        |config, text| audit_level(text).map(|level| config.security.audit = level)),
    row("audit-retention", SettingShape::Text, "DURATION", "How long lines of the audit log are kept, or never to keep them forever",
        |config| Some(config.engine.access.audit_retention.map_or("never".into(), duration::format)),
        |config, text| retention(text).map(|kept| config.engine.access.audit_retention = kept)),
    row("privacy", SettingShape::Text, "MODE", "What happens to values of the memory bank that look like secrets: encrypt (stored encrypted, readable by callers who may read the entry), mask (not stored), or off",
        |config| Privacy::ALL.iter().find(|(mode, _)| *mode == config.engine.privacy).map(|(_, name)| (*name).into()),
        |config, text| privacy(text).map(|mode| config.engine.privacy = mode)),
    row("redact", SettingShape::Lines, "REGEX", "Further patterns of secrets, which are kept out of logs, audit and previews: regular expressions",
        |config| Some(config.redact.join("\n")),
        |config, text| redact(text).map(|(patterns, redactor)| {
            config.redact = patterns;
            config.engine.access.redactor = redactor;
        })),
    row("data", SettingShape::Text, "DIR", "The data folder, which holds everything unless store is set",
        |config| Some(config.data.display().to_string()),
        |config, text| { config.data = text.into(); Ok(()) }),
    row("store", SettingShape::Text, "URL", "Where tasks are kept, if not in the data folder: sqlite:DIR, or postgres://USER@HOST/DATABASE for many servers",
        |config| config.store.as_ref().map(ToString::to_string),
        |config, text| store(text).map(|place| config.store = Some(place))),
    row("store-schema", SettingShape::Text, "NAME", "The schema of the PostgreSQL database that holds the tables",
        |config| Some(config.postgres.schema.clone()),
        |config, text| { config.postgres.schema = text.into(); Ok(()) }),
    field!("store-readers", whole, "Connections to PostgreSQL for everything but commits", postgres.readers),
    field!("store-writers", whole, "Connections to PostgreSQL for commits", postgres.writers),
    field!("store-patience", duration, "How long a request waits for a PostgreSQL that is slow or unreachable", postgres.patience),
    row("allow-unsafe-store", SettingShape::List, "SETTINGS", "Settings of PostgreSQL that may be off although a crash can then lose what was acknowledged: fsync, full_page_writes, synchronous_commit",
        |config| Some(config.postgres.allow_unsafe.join(",")),
        |config, text| unsafe_settings(text).map(|names| config.postgres.allow_unsafe = names)),
    row("public-url", SettingShape::Text, "URL", "The address that cards name, where clients use another than the server listens on",
        |config| config.server.public_url.clone(),
        |config, text| public_url(text).map(|url| config.server.public_url = Some(url))),
    row("allowed-hosts", SettingShape::List, "NAMES", "Further host names under which the server answers, with commas between",
        |config| Some(config.server.allowed_hosts.join(",")),
        |config, text| { config.server.allowed_hosts = list(text); Ok(()) }),
    row("default-agent", SettingShape::Text, "NAME", "The agent that answers at the root; by default the first one of nuncio.toml, or echo where the built-in agents are served",
        |config| config.default_agent.clone(),
        |config, text| { config.default_agent = Some(text.into()); Ok(()) }),
    row("builtin-agents", SettingShape::Text, "WHEN", "Whether the built-in agents are served, which are demonstrations: true (or --demo), false, or auto (where no [[agent]] is served)",
        |config| Some(match config.builtin_agents { BuiltinAgents::Auto => "auto", BuiltinAgents::On => "true", BuiltinAgents::Off => "false" }.into()),
        |config, text| builtin_agents(text).map(|when| config.builtin_agents = when)),
    row("agent-step", SettingShape::Text, "DURATION", "How long one step of the built-in agents takes",
        |config| Some(duration::format(config.agent_step)),
        |config, text| duration::parse(text).map(|value| config.agent_step = value)),
    field!("bench-agent", switch, "Serve the agent `bench` too, for measurements, as the default one", bench_agent),
    row("cards", SettingShape::Text, "WHOM", "Who sees cards and lists of agents: public, or private for callers that show a token",
        |config| Some(if config.server.private_cards { "private" } else { "public" }.into()),
        |config, text| match text {
            "public" => { config.server.private_cards = false; Ok(()) }
            "private" => { config.server.private_cards = true; Ok(()) }
            other => Err(format!("expected public or private, not {other:?}")),
        }),
    row("console", SettingShape::Text, "WHETHER", "Whether the web console and its API are served at /console/: on or off",
        |config| Some(if config.server.console { "on" } else { "off" }.into()),
        |config, text| match text {
            "on" => { config.server.console = true; Ok(()) }
            "off" => { config.server.console = false; Ok(()) }
            other => Err(format!("expected on or off, not {other:?}")),
        }),
    field!("strict-cards", switch, "Make the well-known card strictly A2A 1.0, also for older clients", server.strict_cards),
    field!("idempotent-message-ids", switch, "Treat a message with a known id as a repeat of the first one", engine.idempotent_message_ids),
    field!("allow-private-webhooks", switch, "Allow webhooks to this machine and to private networks", allow_private_webhooks),
    field!("max-running", whole, "Tasks that callers sent and that run at once, and as many that other tasks called; a tenant that has few finds a quarter more", engine.max_running),
    field!("max-queued", whole, "Tasks that may wait for one of them to end; a tenant of which few wait is let in beyond", engine.max_queued),
    field!("time-limit", duration, "How long an agent may run, waiting not counted", engine.time_limit),
    field!(
        "missing-agent",
        duration,
        "How long a task waits for an agent that is not served any more, before it fails",
        engine.missing_agent
    ),
    field!(
        "probation",
        duration,
        "How long a task under which the server died twice has to live before others of that kind are started",
        engine.probation
    ),
    row("cancel-grace", SettingShape::Text, "DURATION", "How long a canceled agent may clean up",
        |config| Some(duration::format(config.engine.cancel_grace)),
        |config, text| duration::parse(text).map(|value| config.engine.cancel_grace = value)),
    row("question-limit", SettingShape::Text, "DURATION", "How long a task waits for an answer or an authorization that nobody gives, before it fails; or never",
        |config| Some(config.engine.question_limit.to_string()),
        |config, text| QuestionLimit::parse(text).map(|limit| config.engine.question_limit = limit)),
    field!("retention", duration, "How long ended tasks are kept", engine.retention),
    row("retention-completed", SettingShape::Text, "DURATION", "The same for tasks that completed",
        |config| config.engine.retention_by_state.completed.map(duration::format),
        |config, text| positive(text).map(|kept| config.engine.retention_by_state.completed = Some(kept))),
    row("retention-failed", SettingShape::Text, "DURATION", "The same for tasks that failed",
        |config| config.engine.retention_by_state.failed.map(duration::format),
        |config, text| positive(text).map(|kept| config.engine.retention_by_state.failed = Some(kept))),
    row("retention-canceled", SettingShape::Text, "DURATION", "The same for tasks that were canceled",
        |config| config.engine.retention_by_state.canceled.map(duration::format),
        |config, text| positive(text).map(|kept| config.engine.retention_by_state.canceled = Some(kept))),
    row("retention-rejected", SettingShape::Text, "DURATION", "The same for tasks that were rejected",
        |config| config.engine.retention_by_state.rejected.map(duration::format),
        |config, text| positive(text).map(|kept| config.engine.retention_by_state.rejected = Some(kept))),
    field!("ended-cache-bytes", whole, "Bytes of ended tasks that are cached in memory", engine.ended_cache_bytes),
    field!("stop-within", duration, "How long a graceful stop may take", engine.stop_within),
    field!("lease", duration, "How long a node keeps its tasks without a heartbeat", engine.lease),
    field!("claim-poll", duration, "The longest interval between two polls for due tasks", engine.claim_poll),
    field!("expiry-poll", duration, "How often tasks are searched that ended, or asked, too long ago", engine.expiry_poll),
    row("log", SettingShape::Text, "FILTER", "What is logged: error, warn, info, debug, trace, or a filter by module",
        |config| Some(config.log.clone()),
        |config, text| log_filter(text).map(|()| config.log = text.into())),
    row("log-format", SettingShape::Text, "FORMAT", "How log lines look: text or json",
        |config| Some(match config.log_format { LogFormat::Text => "text", LogFormat::Json => "json" }.into()),
        |config, text| log_format(text).map(|value| config.log_format = value)),
    field!("access-log", switch, "Log each request, with its path, status and time", server.access_log),

    field!("limits.events-per-task", whole, "Events in a task's log", engine.limits.events_per_task),
    field!("limits.bytes-per-task", whole, "Bytes of content in a task's log", engine.limits.bytes_per_task),
    field!("limits.page-bytes", whole, "Bytes of content on a page of a list of tasks, or one task whatever its size", engine.page_bytes),
    field!("limits.bytes-in-flight", whole, "Bytes that all requests together hold in memory: bodies, tasks being read, answers not sent yet", engine.bytes_in_flight),
    field!("limits.bytes-in-flight-per-caller", whole, "The same for one caller, at most half of all", engine.bytes_in_flight_per_caller),
    field!("limits.messages-per-task", whole, "Messages in a task's history", engine.limits.messages_per_task),
    field!("limits.parts-per-message", whole, "Parts of one message", engine.limits.parts_per_message),
    field!("limits.metadata-bytes", whole, "Bytes of the metadata of a request, and of a message with its parts", engine.limits.metadata_bytes),
    field!("limits.webhooks-per-task", whole, "Webhooks of a task", engine.limits.webhooks_per_task),
    field!("limits.call-depth", whole, "Tasks that call each other in a row", engine.calls.call_depth),
    field!("limits.tasks-per-root", whole, "Tasks that are ever made below one that a caller sent, by calls within calls", engine.calls.tasks_per_root),
    field!("limits.running-per-root", whole, "Of those, how many are at work on one node at once", engine.calls.running_per_root),
    field!("limits.cpu-percent", whole, "How much of the processors tenants use together while several are active: one that uses more than its fair part of it waits; 0: as much as there is", engine.cpu_percent),
    row("limits.stored-bytes-per-tenant", SettingShape::Text, "N", "Bytes of tasks, memory and workflows that one tenant may store, or off; measured every measure-interval",
        |config| tenant_share(config, MeteredResource::StoredBytes),
        |config, text| set_tenant_share(config, MeteredResource::StoredBytes, text)),
    row("limits.webhooks-per-tenant", SettingShape::Text, "N", "Webhooks of all tasks of one tenant, or off",
        |config| tenant_share(config, MeteredResource::Webhooks),
        |config, text| set_tenant_share(config, MeteredResource::Webhooks, text)),
    row("limits.tokens-per-tenant", SettingShape::Text, "N", "Tokens of one tenant, those included that are revoked or have ended and are still listed, or off",
        |config| tenant_share(config, MeteredResource::Tokens),
        |config, text| set_tenant_share(config, MeteredResource::Tokens, text)),
    field!("limits.measure-interval", duration, "How long after the last time it is measured again what tenants store", engine.measure_interval),
    field!("limits.id-bytes", whole, "Bytes of an id that a client chooses", engine.limits.id_bytes),
    field!("limits.schema-cost", whole, "Schemas that one value is held against for a tool of another MCP server, with references multiplied out; a tool above it is not called", engine.schema_cost),

    field!("http.max-body-bytes", whole, "Bytes of a request's body", server.limits.max_body_bytes),
    field!("http.max-json-depth", whole, "Levels of nesting in a request's JSON", server.limits.max_json_depth),
    field!("http.max-header-bytes", whole, "Bytes of a request's head", server.limits.max_header_bytes),
    field!("http.max-headers", whole, "Fields of a request's head", server.limits.max_headers),
    field!("http.max-connections", whole, "Connections at once; at most three quarters of the files that the process may open", server.limits.max_connections),
    row("http.max-connections-per-address", SettingShape::Text, "N", "Connections of one address at once, or auto: a quarter of max-connections, and no bound for this machine and trusted proxies",
        |config| Some(config.server.limits.max_connections_per_address.map_or("auto".into(), |limit| limit.to_string())),
        |config, text| match text {
            "auto" => { config.server.limits.max_connections_per_address = None; Ok(()) }
            text => whole(text).map(|limit| config.server.limits.max_connections_per_address = Some(limit)),
        }),
    field!("http.max-requests-per-connection", whole, "Requests at once on one connection of HTTP/2", server.limits.max_requests_per_connection),
    field!("http.max-streams", whole, "Streams at once", server.limits.max_streams),
    field!("http.max-streams-per-caller", whole, "Streams of one caller at once, where callers show tokens", server.limits.max_streams_per_caller),
    field!("http.requests-per-second", whole, "Requests of one caller in a second, of whatever method, where callers show tokens; 0: no limit", server.limits.requests_per_second),
    field!("http.requests-per-second-per-tenant", whole, "The same for all callers of one tenant", server.limits.requests_per_second_per_tenant),
    field!("http.handshake-timeout", duration, "How long a TLS handshake may take", server.limits.handshake_timeout),
    field!("http.header-timeout", duration, "How long a request's head may take to arrive", server.limits.header_timeout),
    field!("http.body-timeout", duration, "How long a request's body may take to arrive", server.limits.body_timeout),
    field!("http.max-refused-body-bytes", whole, "Bytes that are read and dropped of a body that was refused, so that a client which still sends reads the response", server.limits.max_refused_body_bytes),
    field!("http.linger-timeout", duration, "How long that takes at most", server.limits.linger_timeout),
    field!("http.write-timeout", duration, "How long a client may read nothing of a response before its connection is closed", server.limits.write_timeout),
    field!("http.keep-alive", duration, "How often a quiet stream sends a keep-alive", server.limits.keep_alive),

    row("cors.origins", SettingShape::List, "ORIGINS", "Origins whose pages may call from a browser, such as https://app.example.org, or * for all; none by default",
        |config| Some(config.server.cors_origins.join(",")),
        |config, text| origins(text).map(|origins| config.server.cors_origins = origins)),

    row("rate.a2a", SettingShape::Text, "RATE", "How often one caller may send, read or change tasks, such as 100/s, 600/m or 10000/h; empty: no limit",
        |config| Some(rate_of(config, AccessKind::A2a)),
        |config, text| set_rate(config, AccessKind::A2a, text)),
    row("rate.memory", SettingShape::Text, "RATE", "The same for the memory bank",
        |config| Some(rate_of(config, AccessKind::Memory)),
        |config, text| set_rate(config, AccessKind::Memory, text)),
    row("rate.sparc", SettingShape::Text, "RATE", "The same for SPARC workflows",
        |config| Some(rate_of(config, AccessKind::Sparc)),
        |config, text| set_rate(config, AccessKind::Sparc, text)),
    row("rate.batchtools", SettingShape::Text, "RATE", "The same for the batch engine",
        |config| Some(rate_of(config, AccessKind::Batchtools)),
        |config, text| set_rate(config, AccessKind::Batchtools, text)),

    row("jwt.issuer", SettingShape::Text, "URL", "The issuer whose JWTs are accepted as tokens: their iss",
        |config| config.security.issuer.clone(),
        |config, text| { config.security.issuer = some(text); Ok(()) }),
    row("jwt.audience", SettingShape::Text, "NAME", "The audience that they must be issued for: one of their aud",
        |config| config.security.audience.clone(),
        |config, text| { config.security.audience = some(text); Ok(()) }),
    row("jwt.jwks-url", SettingShape::Text, "URL", "Where the issuer publishes its keys",
        |config| config.security.jwks_url.clone(),
        |config, text| { config.security.jwks_url = some(text); Ok(()) }),
    row("jwt.jwks-file", SettingShape::Text, "FILE", "A file with the issuer's keys, instead of jwks-url",
        |config| config.security.jwks_file.as_ref().map(|file| file.display().to_string()),
        |config, text| { config.security.jwks_file = some(text).map(PathBuf::from); Ok(()) }),
    field!("jwt.allow-private-jwks", switch, "Allow jwks-url to name this machine or a private network, and http", security.allow_private_jwks),
    row("jwt.tenant-claim", SettingShape::Text, "NAME", "The claim that names the caller's tenant",
        |config| Some(config.security.tenant_claim.clone()),
        |config, text| { config.security.tenant_claim = text.into(); Ok(()) }),
    row("jwt.tenant", SettingShape::Text, "NAME", "The tenant of callers whose token names none",
        |config| Some(config.security.tenant.clone()),
        |config, text| { config.security.tenant = text.into(); Ok(()) }),
    field!("jwt.allow-home", switch, "Allow JWTs to name the tenant home, which is the operator's", security.allow_home),
    row("jwt.scope-claim", SettingShape::Text, "NAME", "The claim that names what the caller may do",
        |config| Some(config.security.scope_claim.clone()),
        |config, text| { config.security.scope_claim = text.into(); Ok(()) }),
    row("jwt.default-scopes", SettingShape::Lines, "SCOPES", "What callers may do whose token names no scopes of this server, such as read:a2a; nothing by default",
        |config| Some(config.security.default_scopes.join("\n")),
        |config, text| scopes(text).map(|scopes| config.security.default_scopes = scopes)),

    row("mcp.tools", SettingShape::List, "NAMES", "What tools/list at /mcp shows: groups of tools (agents, tasks, registry, memory, batch, plan, sparc), agent:NAME for one agent, or all or none alone; what is not listed can still be called",
        |config| Some(config.server.mcp.tools.to_string()),
        |config, text| text.parse().map(|tools| config.server.mcp.tools = tools).map_err(|error: ToolListFilterError| error.to_string())),
    field!("mcp.max-sessions", whole, "Sessions of one caller at once", server.mcp.max_sessions),
    field!("mcp.session-idle", duration, "How long a session may be unused before it is deleted", server.mcp.session_idle),
    field!("mcp.max-subscriptions", whole, "Resources and tasks that one session, or one subscription, may follow", server.mcp.max_subscriptions),
    field!("mcp.page-size", whole, "Entries on one page of a list", server.mcp.page_size),
    field!("mcp.max-batch", whole, "Messages in one batch of 2025-03-26", server.mcp.max_batch),
    field!("mcp.state-ttl", duration, "For how long a question of a stateless call can be answered", server.mcp.state_ttl),
    field!("mcp.poll-interval", duration, "How often clients should poll a task", server.mcp.poll_interval),
    field!("mcp.retry", duration, "How long a client waits before it resumes a stream that the server closed", server.mcp.retry),
    field!("mcp.list-ttl", duration, "How long clients may cache lists", server.mcp.list_ttl),

    field!("webhooks.https-only", switch, "Refuse webhooks that are reached without TLS", https_only_webhooks),
    field!("webhooks.concurrency", whole, "Deliveries under way at one time", outbox.concurrency),
    field!("webhooks.per-endpoint", whole, "The same, to one endpoint", outbox.per_endpoint),
    field!("webhooks.timeout", duration, "How long one attempt may take", outbox.timeout),
    field!("webhooks.first-retry", duration, "The wait after the first failure; each further one is twice as long", outbox.schedule.first),
    field!("webhooks.longest-retry", duration, "The longest wait between two attempts", outbox.schedule.longest),
    field!("webhooks.give-up-after", duration, "The sum of the waits after which a delivery becomes a dead letter", outbox.schedule.give_up_after),

    field!("memory.value-bytes", whole, "Bytes of a value in the memory bank", engine.memory.value_bytes),
    field!("memory.search-keys", whole, "Keys that one search of the memory bank looks at; a search that needs more is refused", engine.memory.search_keys),
    field!("memory.search-within", duration, "How long one search of the memory bank may take; a longer one is refused", engine.memory.search_within),
    field!("memory.entries-per-namespace", whole, "Entries of one namespace", engine.memory.entries_per_namespace),
    field!("memory.bytes-per-tenant", whole, "Bytes of all entries of a tenant: values, keys and namespaces, and 200 for each", engine.memory.bytes_per_tenant),
    field!("memory.namespaces-per-tenant", whole, "Namespaces of a tenant", engine.memory.namespaces_per_tenant),
    field!("memory.longest-ttl", duration, "The longest time that an entry with an end may be kept", engine.memory.longest_ttl),
    field!("memory.export-bytes", whole, "Bytes of values on one page of an export", flows.memory.export_bytes),
    field!("memory.import-bytes", whole, "Bytes that one import takes", flows.memory.import_bytes),

    row("model.provider", SettingShape::Text, "NAME", "Whose API the server's own model speaks, which is asked where a caller has none: openai (and compatible APIs), anthropic, gemini or ollama",
        |config| config.model.as_ref().map(|model| model.provider.name().into()),
        |config, text| text.parse().map(|provider| own_model(config).provider = provider).map_err(|error: UnknownProvider| error.to_string())),
    row("model.name", SettingShape::Text, "NAME", "The name of that model",
        |config| config.model.as_ref().map(|model| model.name.clone()),
        |config, text| { own_model(config).name = text.into(); Ok(()) }),
    row("model.base-url", SettingShape::Text, "URL", "Where it is, if not where its provider is",
        |config| config.model.as_ref().and_then(|model| model.base_url.clone()),
        |config, text| public_url(text).map(|url| own_model(config).base_url = Some(url))),
    row("model.key-variable", SettingShape::Text, "NAME", "The environment variable that holds its key",
        |config| config.model.as_ref().and_then(|model| model.key_variable.clone()),
        |config, text| { own_model(config).key_variable = Some(text.into()); Ok(()) }),
    row("model.timeout", SettingShape::Text, "DURATION", "How long one reply of it may take, to its end; 5m where it is not set",
        |config| config.model.as_ref().and_then(|model| model.timeout).map(duration::format),
        |config, text| positive(text).map(|limit| own_model(config).timeout = Some(limit))),
    row("model.retries", SettingShape::Whole, "N", "How often a request is sent again after an error that may be temporary, such as that limit; 5 where it is not set",
        |config| config.model.as_ref().and_then(|model| model.retries).map(|retries| retries.to_string()),
        |config, text| whole(text).map(|retries| own_model(config).retries = Some(retries))),

    row("sparc.test-command", SettingShape::Lines, "WORDS", "The command that decides whether refinement has passed, with its arguments; without one it cannot pass",
        |config| Some(config.flows.sparc.test_command.as_ref().map(|words| words.join("\n")).unwrap_or_default()),
        |config, text| { config.flows.sparc.test_command = words(text); Ok(()) }),
    row("sparc.test-dir", SettingShape::Text, "DIR", "The folder that the test command runs in; the server's own by default",
        |config| config.flows.sparc.test_dir.as_ref().map(|dir| dir.display().to_string()),
        |config, text| { config.flows.sparc.test_dir = Some(text.into()); Ok(()) }),
    row("sparc.test-env", SettingShape::Lines, "NAMES", "Variables of the server's environment that the test command has beside PATH, HOME, LANG and the like; CARGO_* stands for all that begin so",
        |config| Some(config.flows.sparc.test_env.join("\n")),
        |config, text| { config.flows.sparc.test_env = text.lines().map(str::to_owned).collect(); Ok(()) }),
    row("sparc.test-tenants", SettingShape::Lines, "TENANTS", "Tenants whose workflows the test command runs for; * stands for all",
        |config| Some(config.flows.sparc.test_tenants.join("\n")),
        |config, text| { config.flows.sparc.test_tenants = text.lines().map(str::to_owned).collect(); Ok(()) }),
    field!("sparc.test-timeout", duration, "How long the test command may run", flows.sparc.test_timeout),
    field!("sparc.test-commands", whole, "Test commands that run at once, of all workflows; at least one", flows.sparc.test_commands),
    field!("sparc.test-output", whole, "Bytes of the test command's output that are kept, from the end", flows.sparc.test_output),

    row("batch.files-dir", SettingShape::Text, "DIR", "The only folder whose files batches may read and write; without one they touch no files",
        |config| config.flows.batch.files_dir.as_ref().map(|dir| dir.display().to_string()),
        |config, text| { config.flows.batch.files_dir = Some(text.into()); Ok(()) }),
    field!("batch.max-concurrency", whole, "Operations of all batches that run at once, until batch_configure says something else", flows.batch.settings.max_concurrency),
    field!("batch.resource-monitoring", switch, "Delay batches while the machine is busier than the thresholds say, until batch_configure says something else", flows.batch.settings.resource_monitoring),
    field!("batch.load-wait", duration, "How long a batch waits for a busy machine; then it begins with one operation at a time", flows.batch.load_wait),
    field!("batch.queue-size", whole, "Batches of one tenant that may wait or be at work, until batch_configure says something else", flows.batch.settings.thresholds.queue_size),
    field!("batch.operations-per-batch", whole, "Operations of one batch", flows.batch.operations_per_batch),
    field!("batch.batch-bytes", whole, "Bytes of one batch as it is asked for", flows.batch.batch_bytes),
    field!("batch.file-bytes", whole, "Bytes of a file that a batch reads, copies, hashes or searches", flows.batch.file_bytes),

    row("otlp.endpoint", SettingShape::Text, "URL", "Where traces go: the address of an OpenTelemetry collector before /v1/traces; headers for it are taken from OTEL_EXPORTER_OTLP_HEADERS",
        |config| config.otlp.endpoint.clone(),
        |config, text| match text { "" => { config.otlp.endpoint = None; Ok(()) } text => public_url(text).map(|url| config.otlp.endpoint = Some(url)) }),
    row("otlp.service-name", SettingShape::Text, "NAME", "What this server is called in traces",
        |config| Some(config.otlp.service_name.clone()),
        |config, text| { config.otlp.service_name = text.into(); Ok(()) }),
    field!("otlp.interval", duration, "How long spans wait to be sent in one batch", otlp.interval),
    field!("otlp.timeout", duration, "How long the collector may take to answer", otlp.timeout),

    row("resources.alias-hosts", SettingShape::List, "NAMES", "Hosts of mcp://HOST/memory/… and the like, which stand for memory://…",
        |config| Some(config.flows.alias_hosts.join(",")),
        |config, text| { config.flows.alias_hosts = list(text); Ok(()) }),

    field!("registry.interval", duration, "How often a remote is probed, give or take a fifth", flows.registry.interval),
    field!("registry.longest-pause", duration, "The longest pause before a remote that stays silent is probed again", flows.registry.longest_pause),
    field!("registry.timeout", duration, "How long one probe of a remote may take", flows.registry.timeout),
];

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    digits.parse().map_err(|_| format!("expected a whole number, not {text:?}"))
}

/// The limit of a resource for one tenant.
fn tenant_share(config: &Config, resource: MeteredResource) -> Option<String> {
    Some(config.engine.usage.of(resource).tenant.map_or("off".into(), |limit| limit.to_string()))
}

fn set_tenant_share(config: &mut Config, resource: MeteredResource, text: &str) -> Result<(), String> {
    let tenant = match text {
        "off" => None,
        text => Some(whole(text).map_err(|why| format!("{why}, or off"))?),
    };
    let share = config.engine.usage.of(resource);
    config.engine.usage.set(resource, Share { tenant, ..share });
    Ok(())
}

fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("expected true or false, not {text:?}")),
    }
}

/// A duration above zero: a loop that waits for zero would not wait.
fn positive(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("expected more than no time".into()),
        duration => Ok(duration),
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// One word per line; `None` for an empty text.
fn words(text: &str) -> Option<Vec<String>> {
    let words: Vec<String> = text.lines().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// The server's own model, created by the first of its settings.
fn own_model(config: &mut Config) -> &mut ModelConfig {
    let unset = || ModelConfig {
        provider: Provider::OpenAi,
        name: String::new(),
        base_url: None,
        key_variable: None,
        timeout: None,
        retries: None,
    };
    config.model.get_or_insert_with(unset)
}

/// Parses a store URL. The options of PostgreSQL are settings of their own.
fn store(text: &str) -> Result<StoreLocation, String> {
    StoreLocation::parse(text, PostgresOptions::default()).map_err(|error| error.to_string())
}

fn unsafe_settings(text: &str) -> Result<Vec<String>, String> {
    let known = ["fsync", "full_page_writes", "synchronous_commit"];
    match list(text).into_iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(format!("{unknown:?} is none of {}", known.join(", "))),
        None => Ok(list(text)),
    }
}

fn public_url(text: &str) -> Result<String, String> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            Ok(text.trim_end_matches('/').into())
        }
        _ => Err(format!("expected a URL with http or https, not {text:?}")),
    }
}

fn proxies(text: &str) -> Result<Vec<TrustedProxy>, String> {
    list(text).iter().map(|item| item.parse()).collect()
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn auth_mode(text: &str) -> Result<AuthMode, String> {
    match text {
        "auto" => Ok(AuthMode::Auto),
        "on" | "true" => Ok(AuthMode::On),
        "file" => Ok(AuthMode::File),
        "off" | "false" => Ok(AuthMode::Off),
        _ => Err(format!("expected auto, on, file or off, not {text:?}")),
    }
}

fn audit_name(level: AuditLevel) -> &'static str {
    match level {
        AuditLevel::Off => "off",
        AuditLevel::Refused => "refused",
        AuditLevel::Changes => "changes",
        AuditLevel::All => "all",
    }
}

fn audit_level(text: &str) -> Result<Option<AuditLevel>, String> {
    let levels = [AuditLevel::Off, AuditLevel::Refused, AuditLevel::Changes, AuditLevel::All];
    match levels.into_iter().find(|level| audit_name(*level) == text) {
        None if text == "auto" => Ok(None),
        None => Err(format!("expected auto, off, refused, changes or all, not {text:?}")),
        level => Ok(level),
    }
}

fn retention(text: &str) -> Result<Option<Duration>, String> {
    if text == "never" { Ok(None) } else { positive(text).map(Some) }
}

/// The non-empty lines of a text.
fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn privacy(text: &str) -> Result<Privacy, String> {
    let found = Privacy::ALL.iter().find(|(_, name)| *name == text).map(|(mode, _)| *mode);
    found.ok_or_else(|| format!("expected encrypt, mask or off, not {text:?}"))
}

fn redact(text: &str) -> Result<(Vec<String>, Arc<Redactor>), String> {
    let patterns = lines(text);
    let redactor = Redactor::with(&patterns)?;
    Ok((patterns, Arc::new(redactor)))
}

fn scopes(text: &str) -> Result<Vec<String>, String> {
    let scopes: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    Grants::parse(&scopes.join(" ")).map_err(|error| error.to_string())?;
    Ok(scopes)
}

fn origins(text: &str) -> Result<Vec<String>, String> {
    let origins = list(text);
    let legal = |origin: &String| {
        let parsed = url::Url::parse(origin);
        *origin == "*"
            || parsed.is_ok_and(|url| url.has_host() && url.origin().ascii_serialization() == *origin)
    };
    match origins.iter().find(|origin| !legal(origin)) {
        Some(wrong) => Err(format!("expected origins such as https://app.example.org, or *, not {wrong:?}")),
        None => Ok(origins),
    }
}

fn rate_of(config: &Config, kind: AccessKind) -> String {
    let rate = config.engine.access.rates.iter().find(|(limited, _)| *limited == kind);
    rate.map(|(_, rate)| rate.to_string()).unwrap_or_default()
}

fn set_rate(config: &mut Config, kind: AccessKind, text: &str) -> Result<(), String> {
    let rates = &mut config.engine.access.rates;
    rates.retain(|(limited, _)| *limited != kind);
    if !text.is_empty() {
        rates.push((kind, text.parse().map_err(|error: RateError| error.to_string())?));
    }
    Ok(())
}

fn builtin_agents(text: &str) -> Result<BuiltinAgents, String> {
    match switch(text) {
        Ok(true) => Ok(BuiltinAgents::On),
        Ok(false) => Ok(BuiltinAgents::Off),
        Err(_) if text == "auto" => Ok(BuiltinAgents::Auto),
        Err(_) => Err(format!("expected true, false or auto, not {text:?}")),
    }
}

fn log_filter(text: &str) -> Result<(), String> {
    let parsed = tracing_subscriber::EnvFilter::try_new(text);
    parsed.map(drop).map_err(|error| format!("{text:?} is no filter: {error}"))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("expected text or json, not {text:?}")),
    }
}
