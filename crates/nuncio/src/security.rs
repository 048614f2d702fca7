//! Who may call: the server's own tokens, and tokens of another issuer.
//!
//! What a caller may do is decided by the engine's guard; what is decided here is who it is. A server that other
//! machines can reach always asks.

mod audit_log;
mod jwt;
mod signature;
mod tokens;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use http::HeaderMap;
use nuncio_engine::{
    AccessKind, AccessRequest, Action, AuditLevel, Caller, Engine, MeteredResource, StorageMeter,
    access::HOME_TENANT, admin::Eraser,
};
use nuncio_server::{
    AuthError, Authenticator, ServerOptions,
    auth::{NewToken, TokenAdmin, TokenAdminError, bearer},
    order_json,
};
use serde_json::Value;

pub use self::{jwt::JwtVerifier, tokens::ServerTokens};
use crate::{StartError, data_dir};

/// Whether callers have to say who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Where more than the operator may reach the server: on an address of other machines, under a public name,
    /// behind a proxy, on a Unix socket, with an issuer, or with a data folder that others write.
    #[default]
    Auto,
    /// Always: tokens of this server, JWTs of the issuer, or the secret of the data folder.
    On,
    /// Always: the secret of the data folder, or tokens of this server. For a machine with several users.
    File,
    /// Never: a request without credentials acts in the operator's name, and administers nothing. Only for an address
    /// that no other machine reaches.
    Off,
}

/// What is known of the way to a server.
pub(crate) struct ServerExposure<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) server: &'a ServerOptions,
    pub(crate) has_socket: bool,
    pub(crate) data: &'a Path,
}

/// What an operator may set about who calls.
#[derive(Debug, Clone)]
pub struct SecurityOptions {
    /// Whether callers have to say who they are.
    pub auth: AuthMode,
    /// What goes into the audit; `None`: everything where callers are known, else what changes something.
    pub audit: Option<AuditLevel>,
    /// Whose tokens are taken beside the server's own.
    pub issuer: Option<String>,
    /// For whom such tokens have to be issued.
    pub audience: Option<String>,
    /// Where the issuer's keys are.
    pub jwks_url: Option<String>,
    /// A file with the issuer's keys, instead.
    pub jwks_file: Option<PathBuf>,
    /// Whether the keys may be on this machine or a private network, and come without TLS.
    pub allow_private_jwks: bool,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that names the scopes.
    pub scope_claim: String,
    /// The tenant of callers whose token names none.
    pub tenant: String,
    /// Whether a token may name the operator's tenant, `home`.
    pub allow_home: bool,
    /// What callers may do whose token names no scopes of this server.
    pub default_scopes: Vec<String>,
}

impl Default for SecurityOptions {
    fn default() -> Self {
        Self {
            auth: AuthMode::Auto,
            audit: None,
            issuer: None,
            audience: None,
            jwks_url: None,
            jwks_file: None,
            allow_private_jwks: false,
            tenant_claim: "tenant".into(),
            scope_claim: "scope".into(),
            tenant: "jwt".into(),
            allow_home: false,
            default_scopes: vec![],
        }
    }
}

impl SecurityOptions {
    /// Whether callers are asked who they are, if the address may be listened on like that.
    pub(crate) fn requires_auth(&self, reach: &ServerExposure<'_>) -> Result<bool, StartError> {
        match self.auth {
            AuthMode::File if self.issuer.is_some() => Err(StartError::Security(
                "auth = \"file\" takes no tokens of an issuer: set auth = \"on\", or remove jwt.issuer"
                    .into(),
            )),
            AuthMode::On | AuthMode::File => Ok(true),
            AuthMode::Auto => {
                let why = self.reason(reach);
                if let Some(why) = &why {
                    tracing::info!("callers have to show a token, because {why} (auth = \"auto\")");
                }
                Ok(why.is_some())
            }
            AuthMode::Off if reach.address.ip().is_loopback() => Ok(false),
            AuthMode::Off => Err(StartError::Open(reach.address)),
        }
    }

    /// Why more than the operator may reach the server, if so.
    fn reason(&self, reach: &ServerExposure<'_>) -> Option<String> {
        if !reach.address.ip().is_loopback() {
            return Some(format!("{} can be reached from other machines", reach.address));
        }
        if self.issuer.is_some() {
            return Some("jwt.issuer is set".into());
        }
        if let Some(url) = reach.server.public_url.as_deref().filter(|url| !is_local_url(url)) {
            return Some(format!("public-url names {url}"));
        }
        if let Some(host) = reach.server.allowed_hosts.iter().find(|host| !is_local_host(host)) {
            return Some(format!("allowed-hosts names {host}"));
        }
        if !reach.server.trusted_proxies.is_empty() {
            return Some("trusted-proxies is set".into());
        }
        if reach.has_socket {
            return Some("a Unix socket is there for others".into());
        }
        data_dir::shared_with(reach.data)
    }

    /// What goes into the audit, where a program that embeds the server may have said so, too.
    pub(crate) fn audit_level(&self, secured: bool, given: AuditLevel) -> AuditLevel {
        match self.audit {
            Some(level) => level,
            None if secured && given == AuditLevel::default() => AuditLevel::All,
            None => given,
        }
    }
}

/// Whether a URL names this machine to itself.
fn is_local_url(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(is_local_host))
}

/// The same for a host, which may have a port.
fn is_local_host(host: &str) -> bool {
    let url = url::Url::parse(&format!("http://{host}"));
    url.is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    })
}

/// Whether a name can be that of a caller or a tenant: it is shown in tables and stands in identities.
pub(crate) fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=64).contains(&text.len()) && text.chars().all(legal)
}

/// Gives the server what it needs to know callers by, and offers the audit to those who may read it.
pub(crate) fn install(
    options: &SecurityOptions,
    secured: bool,
    engine: &Engine,
    server: &mut ServerOptions,
) -> Result<(), StartError> {
    let clock = Arc::clone(engine.clock());
    let tokens = Arc::new(ServerTokens::new(Arc::clone(engine.store()), Arc::clone(&clock)));
    let jwt = JwtVerifier::new(options, clock)?;
    let tokens_to_erase = Arc::clone(&tokens);
    server.tokens =
        Some(Arc::new(AuthorizedTokenAdmin { engine: engine.clone(), tokens: Arc::clone(&tokens) }));
    // A program that embeds the server may know callers by other means.
    if secured && server.authenticator.is_none() {
        tokio::spawn(tokens::record_uses_periodically(Arc::clone(&tokens), engine.closing()));
        server.authenticator = Some(Arc::new(TokenAuthenticator { tokens, jwt }));
    }
    engine.add_meter(Arc::clone(&tokens_to_erase) as Arc<dyn StorageMeter>);
    engine.add_eraser(tokens_to_erase as Arc<dyn Eraser>);
    audit_log::install(engine);
    Ok(())
}

/// Knows callers by their tokens, whoever issued them.
struct TokenAuthenticator {
    tokens: Arc<ServerTokens>,
    jwt: Option<JwtVerifier>,
}

#[async_trait]
impl Authenticator for TokenAuthenticator {
    async fn authenticate(&self, headers: &HeaderMap, _from: Option<IpAddr>) -> Result<Caller, AuthError> {
        let shown = match bearer(headers) {
            Some(shown) => shown,
            None if headers.contains_key(http::header::AUTHORIZATION) => {
                return Err(AuthError::Invalid("the Authorization header is no bearer token".into()));
            }
            None => return Err(AuthError::Missing),
        };
        match &self.jwt {
            Some(jwt) if !shown.starts_with(tokens::PREFIX) => jwt.verify(shown).await,
            _ => self.tokens.verify(shown).await,
        }
    }

    fn issuers(&self) -> Vec<String> {
        self.jwt.iter().map(|jwt| jwt.issuer().to_owned()).collect()
    }
}

/// Tokens for callers that the guard lets through to them.
struct AuthorizedTokenAdmin {
    engine: Engine,
    tokens: Arc<ServerTokens>,
}

impl AuthorizedTokenAdmin {
    fn allow(
        &self,
        caller: &Caller,
        action: Action,
        operation: &'static str,
        resource: &str,
    ) -> Result<(), TokenAdminError> {
        let access =
            AccessRequest { action, kind: AccessKind::Admin, name: "tokens", operation, resource: &resource };
        Ok(self.engine.allow(caller, &access)?)
    }
}

#[async_trait]
impl TokenAdmin for AuthorizedTokenAdmin {
    async fn create(&self, caller: &Caller, wish: NewToken) -> Result<Value, TokenAdminError> {
        let id = tokens::draw_id()?;
        let tenant = wish.tenant.as_deref().unwrap_or(caller.tenant());
        self.allow(caller, Action::Write, "token.create", &ServerTokens::created_address(&id, tenant))?;
        // Who makes one elsewhere is refused below, and is not told how many there are.
        if caller.tenant() == HOME_TENANT || caller.tenant() == tenant {
            // Counted, not measured: tokens are made seldom, and their limit is small.
            let counts = self.tokens.measure().await?;
            let has = counts.iter().find(|(name, _)| name == tenant).map_or(0, |(_, count)| *count);
            self.engine.usage().check_counted(tenant, MeteredResource::Tokens, has, 1)?;
        }
        self.tokens.create_as(&id, caller, wish).await
    }

    async fn list(&self, caller: &Caller) -> Result<Value, TokenAdminError> {
        self.allow(caller, Action::Read, "token.list", "admin://tokens")?;
        self.tokens.list(caller).await
    }

    async fn revoke(&self, caller: &Caller, id: &str, stop: bool) -> Result<Value, TokenAdminError> {
        self.allow(caller, Action::Write, "token.revoke", &format!("admin://tokens/{id}"))?;
        let mut revoked = self.tokens.revoke(caller, id).await?;
        if stop {
            let owner = self.tokens.owner(id).await?;
            let order = self.engine.stop_token(caller, id, &owner).await?;
            revoked["stopped"] = order_json(&order);
        }
        Ok(revoked)
    }
}
