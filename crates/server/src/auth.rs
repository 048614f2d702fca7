//! Authentication: the trait that verifies credentials, and the HTTP form of a refusal.
//!
//! Without an [`Authenticator`] a request needs no credentials: it acts in the operator's name, as on a server
//! that only this machine reaches, and cannot administer unless it presents the secret of the data folder. An
//! optional authenticator decides about the requests that present credentials nevertheless. With one that is
//! required, every binding authenticates before it parses a request. The authenticator defines what tokens are and
//! who issues them; the engine decides what a caller may do.

mod failures;
mod recheck;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use nuncio_engine::{AccessKind, Action, Caller, Engine, error::whole_seconds};
use nuncio_wire::mcp::{FORBIDDEN, McpFault, UNAUTHENTICATED};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::{failures::AuthFailureLog, recheck::CredentialRecheck};
use crate::{
    ClientCertificate,
    console::{SESSION_PREFIX, verify_session},
    proxies,
    request_checks::HttpRefusal,
    responses,
};

/// Resolves the credentials of a request to a caller.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Returns the caller whose credentials the headers carry.
    async fn authenticate(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Caller, AuthError>;

    /// Returns the caller that a client certificate names. The certificate is valid; a request that carries an
    /// `Authorization` or came through a proxy does not get here. By default certificates name no caller.
    async fn authenticate_certificate(&self, certificate: &ClientCertificate) -> Result<Caller, AuthError> {
        let _ = certificate;
        Err(AuthError::Missing)
    }

    /// Issuers whose tokens are accepted besides the server's own; clients discover them through the metadata.
    fn issuers(&self) -> Vec<String> {
        vec![]
    }
}

/// Why a request could not be authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request carries no credentials.
    #[error("the request carries no token")]
    Missing,
    /// The credentials are invalid. The text is for the audit; the caller does not learn what exactly is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The credentials are valid, but the caller's tenant is suspended. The text is for the caller.
    #[error("{0}")]
    Suspended(String),
    /// The credentials cannot be verified at the moment.
    #[error("{0}")]
    Unavailable(String),
}

/// Creates, lists and revokes the server's own tokens, for callers that may do so.
#[async_trait]
pub trait TokenAdmin: Send + Sync + 'static {
    /// Creates a token. The returned value is the only place where its secret ever appears.
    async fn create(&self, caller: &Caller, wish: NewToken) -> Result<Value, TokenAdminError>;
    /// Lists the tokens that the caller may see, without their secrets.
    async fn list(&self, caller: &Caller) -> Result<Value, TokenAdminError>;
    /// Revokes a token; with `stop`, also cancels all tasks that it created.
    async fn revoke(&self, caller: &Caller, id: &str, stop: bool) -> Result<Value, TokenAdminError>;
}

/// A request for a new token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct NewToken {
    /// The caller's name under this token.
    pub name: String,
    /// The tenant; by default that of the requesting caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The scopes it grants; empty grants everything but administration.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The lifetime in seconds; without one, the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// Why a token request failed.
#[derive(Debug, thiserror::Error)]
pub enum TokenAdminError {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// There is no such token, or the caller may not see it.
    #[error("there is no token {0:?}")]
    NoSuchToken(String),
    /// The engine refused the request, or failed.
    #[error(transparent)]
    Engine(#[from] nuncio_engine::Error),
}

/// The peer of a connection.
#[derive(Clone)]
pub(crate) struct ConnectionPeer {
    ip: Option<IpAddr>,
    text: Option<Arc<str>>,
    /// Whether the operating system reports a process of the server's own user.
    own_user: bool,
    over_tls: bool,
    /// The certificate that it showed in the TLS handshake.
    certificate: Option<Arc<ClientCertificate>>,
}

impl ConnectionPeer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of_client(address.ip().to_canonical())
    }

    /// The client that a trusted proxy names.
    pub(crate) fn of_client(ip: IpAddr) -> Self {
        Self { ip: Some(ip), text: Some(ip.to_string().into()), ..Self::unknown() }
    }

    /// A process of that user on a Unix socket.
    pub(crate) fn of_user(uid: u32, own_uid: u32) -> Self {
        let text = Some(format!("unix:uid={uid}").into());
        Self { text, own_user: uid == own_uid, ..Self::unknown() }
    }

    pub(crate) fn unknown() -> Self {
        Self { ip: None, text: None, own_user: false, over_tls: false, certificate: None }
    }

    /// The same peer after a TLS handshake.
    pub(crate) fn over_tls(self, certificate: Option<Arc<ClientCertificate>>) -> Self {
        Self { over_tls: true, certificate, ..self }
    }

    /// Whether the server itself encrypts the connection.
    pub(crate) fn is_over_tls(&self) -> bool {
        self.over_tls
    }

    /// Whether the connection is a Unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.ip.is_none() && self.text.is_some()
    }

    pub(crate) fn is_own_user(&self) -> bool {
        self.own_user
    }

    /// Its address as text.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("unknown")
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Adds this peer's address to the caller.
    pub(crate) fn attach_address(&self, caller: Caller) -> Caller {
        match &self.text {
            Some(text) => caller.from_address(Arc::clone(text)),
            None => caller,
        }
    }
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// The credentials that decide who a request's caller is.
pub(crate) enum RequestCredentials {
    /// An `Authorization`, or nothing. It decides where there is a certificate as well.
    Headers,
    /// The token of a session of the console.
    ConsoleSession(String),
    /// The certificate of the connection.
    Certificate(Arc<ClientCertificate>),
}

impl RequestCredentials {
    /// A certificate is the caller's where nothing else is shown. The certificate of a proxy is not that of the clients
    /// whose requests it forwards.
    pub(crate) fn of_request(headers: &HeaderMap, peer: &ConnectionPeer) -> Self {
        if let Some(token) = bearer(headers).filter(|token| token.starts_with(SESSION_PREFIX)) {
            return Self::ConsoleSession(token.to_owned());
        }
        match &peer.certificate {
            Some(certificate)
                if !headers.contains_key(header::AUTHORIZATION)
                    && proxies::forwarding_header(headers).is_none() =>
            {
                Self::Certificate(Arc::clone(certificate))
            }
            _ => Self::Headers,
        }
    }

    /// The caller whose credentials they are.
    pub(crate) async fn authenticate(
        &self,
        authenticator: &dyn Authenticator,
        engine: &Engine,
        headers: &HeaderMap,
        from: Option<IpAddr>,
    ) -> Result<Caller, AuthError> {
        match self {
            Self::Headers => authenticator.authenticate(headers, from).await,
            Self::ConsoleSession(token) => verify_session(engine, token).await,
            Self::Certificate(certificate) => {
                certificate.check(engine.clock().now()).map_err(AuthError::Invalid)?;
                authenticator.authenticate_certificate(certificate).await
            }
        }
    }
}

/// Compares in constant time, so that the duration does not reveal where the inputs differ.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// The `WWW-Authenticate` challenge and the resource metadata (RFC 6750 and RFC 9728).
pub(crate) struct BearerChallenge {
    base_url: String,
    /// Whether the resource metadata is served. Where no credentials are required, it would lead clients to sign in.
    has_metadata: bool,
}

/// `Retry-After` where credentials cannot be verified.
const AGAIN: Duration = Duration::from_secs(2);

impl BearerChallenge {
    pub(crate) fn new(base_url: &str, has_metadata: bool) -> Self {
        Self { base_url: base_url.to_owned(), has_metadata }
    }

    /// Where clients reach the server.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    fn header(&self, path: &str, details: &str) -> HeaderValue {
        let metadata = match self.has_metadata {
            true => format!(
                ", resource_metadata=\"{}/.well-known/oauth-protected-resource{path}\"",
                self.base_url
            ),
            false => String::new(),
        };
        let text = format!("Bearer realm=\"nuncio\"{metadata}{details}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Marks a response to an unauthenticated request.
    pub(crate) fn refuse(&self, response: &mut Response<Body>, path: &str, error: &AuthError) {
        let details = match error {
            AuthError::Unavailable(_) => {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(AGAIN).into());
                return;
            }
            AuthError::Suspended(_) => {
                *response.status_mut() = StatusCode::FORBIDDEN;
                return;
            }
            // RFC 6750, section 3.1: a request without credentials gets no error code.
            AuthError::Missing => "",
            AuthError::Invalid(_) => ", error=\"invalid_token\"",
        };
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.headers_mut().insert(header::WWW_AUTHENTICATE, self.header(path, details));
    }

    /// Marks a response to a caller that lacks a scope.
    pub(crate) fn forbid(&self, response: &mut Response<Body>, path: &str, scope: &str) {
        *response.status_mut() = StatusCode::FORBIDDEN;
        let legal = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        // A character that is illegal in a scope becomes `*`, which also grants it.
        let scope: String = scope.chars().map(|c| if legal(c) { c } else { '*' }).take(256).collect();
        let details = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, self.header(path, &details));
    }

    /// The refusal for requests outside JSON-RPC, without a dialect.
    pub(crate) fn refusal(&self, path: &str, error: &AuthError) -> Response<Body> {
        let message = message(error).to_owned();
        let mut response = responses::refuse(&HttpRefusal { status: StatusCode::UNAUTHORIZED, message });
        self.refuse(&mut response, path, error);
        response
    }

    /// RFC 9728: describes the resource at that path and the issuers whose tokens it accepts.
    pub(crate) fn metadata(&self, path: &str, issuers: &[String]) -> Value {
        let scopes: Vec<String> = AccessKind::ALL
            .into_iter()
            .flat_map(|kind| Action::ALL.map(|action| format!("{}:{}", action.name(), kind.name())))
            .collect();
        let mut metadata = json!({
            "resource": format!("{}{path}", self.base_url),
            "resource_name": "nuncio",
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        });
        if !issuers.is_empty() {
            metadata["authorization_servers"] = json!(issuers);
        }
        metadata
    }
}

/// The message for an unauthenticated caller. It does not reveal what was wrong with the token.
pub(crate) fn message(error: &AuthError) -> &str {
    match error {
        AuthError::Missing => {
            "this needs a token, or the secret of the data folder: send it as Authorization: Bearer …"
        }
        AuthError::Invalid(_) => "the token is not good, or not any more: use another one",
        AuthError::Suspended(why) => why,
        AuthError::Unavailable(_) => "the token cannot be verified now: try again soon",
    }
}

/// The refusal as an MCP fault.
pub(crate) fn fault(error: &AuthError) -> McpFault {
    match error {
        AuthError::Suspended(why) => McpFault::new(FORBIDDEN, why.as_str()).with_status(403),
        _ => McpFault::new(UNAUTHENTICATED, message(error)).with_status(401),
    }
}
