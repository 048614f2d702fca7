//! A server that asks callers who they are: the token of a test is the caller's name, and may say its scopes.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use http::HeaderMap;
use nuncio_engine::{AuditLevel, Caller, Grants, knowledge::AuditQuery};
use nuncio_server::{AuthError, Authenticator, ClientCertificate, auth::bearer};
use serde_json::{Value, json};

use crate::{
    site::{Setup, Site, message, request, version_header},
    socket::{Answer, bare, get, post},
};

/// Takes `name` and `name;scope+scope` for what they say (`name;nothing` has no scope at all), and nothing that
/// begins with `bad`.
#[derive(Default)]
pub(crate) struct Guests {
    /// Whether what begins with `passing` was taken back.
    pub(crate) revoked: Arc<AtomicBool>,
}

#[async_trait]
impl Authenticator for Guests {
    async fn authenticate(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Caller, AuthError> {
        assert!(from.is_some_and(|from| from.is_loopback()), "{from:?}");
        let shown = bearer(headers).ok_or(AuthError::Missing)?;
        let (name, scopes) = shown.split_once(';').unwrap_or((shown, ""));
        match name {
            "away" => Err(AuthError::Unavailable("the store is away".into())),
            name if name.starts_with("passing") && self.revoked.load(Ordering::SeqCst) => {
                Err(AuthError::Invalid("it was taken back".into()))
            }
            name if name.starts_with("bad") => Err(AuthError::Invalid("it is bad".into())),
            name if scopes == "nothing" => Ok(Caller::named(name).limited_to(Grants::only([]))),
            name if scopes.is_empty() => Ok(Caller::named(name)),
            name => Ok(Caller::named(name).limited_to(Grants::parse(&scopes.replace('+', " ")).unwrap())),
        }
    }

    async fn authenticate_certificate(&self, certificate: &ClientCertificate) -> Result<Caller, AuthError> {
        let name = certificate.name().map_err(|why| AuthError::Invalid(why.into()))?;
        Ok(Caller::named(format!("cert:{name}")))
    }

    fn issuers(&self) -> Vec<String> {
        vec!["https://issuer.example".into()]
    }
}

pub(crate) async fn site() -> Site {
    site_with(|_| {}).await
}

pub(crate) async fn site_with(change: impl FnOnce(&mut Setup)) -> Site {
    Site::with(|setup| {
        setup.server.authenticator = Some(Arc::new(Guests::default()));
        setup.server.admin_token = Some("operator".into());
        setup.options.access.audit = AuditLevel::All;
        change(setup);
    })
    .await
}

/// One way to call, as somebody.
#[derive(Clone, Copy)]
pub(crate) struct As<'a> {
    pub(crate) site: &'a Site,
    pub(crate) token: &'a str,
}

pub(crate) const STATELESS: &str = "2026-07-28";

impl As<'_> {
    fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// A call of A2A at the root.
    pub(crate) async fn a2a(&self, version: &str, method: &str, params: &Value) -> Answer {
        let mut headers = version_header(version);
        let authorization = self.authorization();
        headers.push(("authorization", &authorization));
        self.site.send(post("/", &headers, request(method, params))).await
    }

    /// Makes a task in 1.0 that says this; its id.
    pub(crate) async fn begin(&self, text: &str) -> String {
        let params = json!({ "message": message(text), "configuration": { "returnImmediately": true } });
        let sent = self.a2a("1.0", "SendMessage", &params).await.json();
        sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
    }

    /// A call of MCP: in a session, or without one where that is empty.
    pub(crate) async fn mcp(&self, session: &str, method: &str, params: Value) -> Answer {
        self.mcp_at("/mcp", session, method, params).await
    }

    /// The same at another endpoint.
    pub(crate) async fn mcp_at(&self, path: &str, session: &str, method: &str, mut params: Value) -> Answer {
        let authorization = self.authorization();
        let named = ["name", "uri", "taskId"].iter().find_map(|member| params[*member].as_str());
        let named = named.unwrap_or_default().to_owned();
        let mut headers =
            vec![("authorization", &*authorization), ("accept", "application/json, text/event-stream")];
        if session.is_empty() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = STATELESS.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
            headers.extend([
                ("mcp-protocol-version", STATELESS),
                ("mcp-method", method),
                ("mcp-name", &*named),
            ]);
        } else {
            headers.push(("mcp-session-id", session));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.site.send(post(path, &headers, body)).await
    }

    /// Begins a session of MCP; its id.
    pub(crate) async fn session(&self) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
        let authorization = self.authorization();
        let headers = [("authorization", &*authorization), ("accept", "application/json, text/event-stream")];
        let answer = self.site.send(post("/mcp", &headers, body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header("mcp-session-id").to_owned()
    }

    /// A request without a body.
    pub(crate) async fn bare(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let authorization = self.authorization();
        let mut all = vec![("authorization", &*authorization)];
        all.extend(headers);
        self.site.send(bare(method, path, &all)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.site.send(get(path, &[("authorization", &self.authorization())])).await
    }
}

/// The lines of the audit, newest first.
pub(crate) async fn audit(site: &Site) -> Vec<nuncio_engine::knowledge::AuditEntry> {
    site.engine.flush_audit().await;
    let query = AuditQuery { limit: 10_000, ..AuditQuery::default() };
    let lines = site.engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    lines.into_iter().map(|(_, line)| line).collect()
}
