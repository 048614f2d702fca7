//! Who is calling: the seam where credentials are verified, and how a refusal looks over HTTP.
//!
//! Without an [`Authenticator`] every request acts in the operator's name, as on a server that only this machine
//! reaches, and administers nothing unless it shows the secret of the data folder. With one, every binding asks here
//! before it looks into a request. What tokens are, and who issues them, is the
//! authenticator's business; what a caller may do is the engine's.

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
use nuncio_engine::{AccessKind, Action, Caller, error::whole_seconds};
use nuncio_wire::mcp::{FORBIDDEN, McpFault, UNAUTHENTICATED};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::{failures::AuthFailureLog, recheck::CredentialRecheck};
use crate::{request_checks::HttpRefusal, rpc};

/// Says who is behind a request.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// The caller whose credentials the headers carry.
    async fn authenticate(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Caller, AuthError>;

    /// Those whose tokens are taken beside the server's own, for clients that want to know where to get one.
    fn issuers(&self) -> Vec<String> {
        vec![]
    }
}

/// Why nobody is behind a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// It shows no credentials.
    #[error("the request shows no token")]
    Missing,
    /// It shows some that are not good. The text is for the audit: callers are not told what exactly is wrong.
    #[error("{0}")]
    Invalid(String),
    /// They are good, and the caller's tenant is not served. The text is for the caller.
    #[error("{0}")]
    Suspended(String),
    /// They cannot be verified now.
    #[error("{0}")]
    Unavailable(String),
}

/// Makes, shows and takes back the server's own tokens, for callers that may do so.
#[async_trait]
pub trait TokenAdmin: Send + Sync + 'static {
    /// Makes a token. What is returned is the only place that ever shows it.
    async fn create(&self, caller: &Caller, wish: NewToken) -> Result<Value, TokenAdminError>;
    /// All tokens that the caller may know of, without their secrets.
    async fn list(&self, caller: &Caller) -> Result<Value, TokenAdminError>;
    /// Takes a token back; `stop` has all that it made canceled, too.
    async fn revoke(&self, caller: &Caller, id: &str, stop: bool) -> Result<Value, TokenAdminError>;
}

/// A token that is wished for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct NewToken {
    /// Who will call with it.
    pub name: String,
    /// The tenant; without one, that of whoever asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it allows; empty: everything but administration.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// For how long it is good, in seconds; without, for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
}

/// Why the desk did not do it.
#[derive(Debug, thiserror::Error)]
pub enum TokenAdminError {
    /// The wish is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is none, or the caller may not know of it.
    #[error("there is no token {0:?}")]
    NoSuchToken(String),
    /// The caller may not, or not now.
    #[error(transparent)]
    Engine(#[from] nuncio_engine::Error),
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPeer {
    ip: Option<IpAddr>,
    text: Option<Arc<str>>,
    /// Whether the system says that it is a process of the server's own user.
    own_user: bool,
}

impl ConnectionPeer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of_client(address.ip().to_canonical())
    }

    /// The client that a trusted proxy names.
    pub(crate) fn of_client(ip: IpAddr) -> Self {
        Self { ip: Some(ip), text: Some(ip.to_string().into()), own_user: false }
    }

    /// The process of that user at the other end of a Unix socket.
    pub(crate) fn of_user(uid: u32, own_uid: u32) -> Self {
        Self { ip: None, text: Some(format!("unix:uid={uid}").into()), own_user: uid == own_uid }
    }

    pub(crate) fn unknown() -> Self {
        Self { ip: None, text: None, own_user: false }
    }

    /// Whether it is at the other end of a Unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.ip.is_none() && self.text.is_some()
    }

    pub(crate) fn is_own_user(&self) -> bool {
        self.own_user
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The caller, reached from there.
    pub(crate) fn attach_address(&self, caller: Caller) -> Caller {
        match &self.text {
            Some(text) => caller.from_address(Arc::clone(text)),
            None => caller,
        }
    }
}

/// The token that a request shows.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Compares without telling by its time where the difference is.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// What clients are told about the way in (RFC 6750 and RFC 9728).
pub(crate) struct BearerChallenge {
    base_url: String,
}

/// How long to wait where credentials cannot be verified.
const AGAIN: Duration = Duration::from_secs(2);

impl BearerChallenge {
    pub(crate) fn new(base_url: &str) -> Self {
        Self { base_url: base_url.to_owned() }
    }

    fn header(&self, path: &str, details: &str) -> HeaderValue {
        let text = format!(
            "Bearer realm=\"nuncio\", resource_metadata=\"{}/.well-known/oauth-protected-resource{path}\"{details}",
            self.base_url
        );
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Marks an answer to a request whose caller is not known.
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
            // RFC 6750, section 3.1: nothing was wrong with what was not there.
            AuthError::Missing => "",
            AuthError::Invalid(_) => ", error=\"invalid_token\"",
        };
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.headers_mut().insert(header::WWW_AUTHENTICATE, self.header(path, details));
    }

    /// Marks an answer to a caller that may not do what it asked for.
    pub(crate) fn forbid(&self, response: &mut Response<Body>, path: &str, scope: &str) {
        *response.status_mut() = StatusCode::FORBIDDEN;
        let legal = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        // What no scope can hold is a `*` in it, which allows it, too.
        let scope: String = scope.chars().map(|c| if legal(c) { c } else { '*' }).take(256).collect();
        let details = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, self.header(path, &details));
    }

    /// The answer where neither JSON-RPC nor a dialect was spoken.
    pub(crate) fn refusal(&self, path: &str, error: &AuthError) -> Response<Body> {
        let message = message(error).to_owned();
        let mut response = rpc::refuse(&HttpRefusal { status: StatusCode::UNAUTHORIZED, message });
        self.refuse(&mut response, path, error);
        response
    }

    /// RFC 9728: what the resource at that path is, and whose tokens it takes.
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

/// What a caller that is not known is told. What was wrong with its token is not.
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

/// The same for MCP.
pub(crate) fn fault(error: &AuthError) -> McpFault {
    match error {
        AuthError::Suspended(why) => McpFault::new(FORBIDDEN, why.as_str()).with_status(403),
        _ => McpFault::new(UNAUTHENTICATED, message(error)).with_status(401),
    }
}
