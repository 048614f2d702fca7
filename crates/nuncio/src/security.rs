//! Authentication: the server's own tokens, JWTs of an external issuer, and client certificates of a CA.
//!
//! This module decides who a caller is; the engine's access control decides what the caller may do. A server
//! that other machines can reach always requires authentication.

mod audit_log;
mod certificates;
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
    AuthError, Authenticator, ClientCertificate, ServerOptions,
    auth::{NewToken, TokenAdmin, TokenAdminError, bearer},
    order_json,
};
use serde_json::Value;

use self::certificates::CertificateCallers;
pub use self::{jwt::JwtVerifier, tokens::ServerTokens};
use crate::{StartError, data_dir};

/// When callers must authenticate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// When others than the operator may reach the server: on an address of other machines, under a public
    /// name, behind a proxy, on a Unix socket, with a JWT issuer, or with a data folder that other users can
    /// write. Otherwise a request without credentials acts as under `Off`, and credentials that a request presents
    /// are verified.
    #[default]
    Auto,
    /// Always: by a token of this server, a JWT of the issuer, or the secret of the data folder.
    On,
    /// Always: by the secret of the data folder, or a token of this server. For a machine with several users.
    File,
    /// Never: a request acts as the operator, without administration rights, and its credentials are ignored. Only for
    /// an address that no other machine can reach.
    Off,
}

/// How a server can be reached, as far as that decides about authentication.
pub(crate) struct ServerExposure<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) server: &'a ServerOptions,
    pub(crate) has_socket: bool,
    /// Whether client certificates name callers.
    pub(crate) has_client_ca: bool,
    pub(crate) data: &'a Path,
}

/// How callers authenticate, as the operator sets it.
#[derive(Debug, Clone)]
pub struct SecurityOptions {
    /// When callers must authenticate.
    pub auth: AuthMode,
    /// Which requests are audited; `None`: all where callers authenticate, else those that change something.
    pub audit: Option<AuditLevel>,
    /// The issuer (`iss`) whose JWTs are accepted beside the server's own tokens.
    pub issuer: Option<String>,
    /// The audience (`aud`) that such JWTs must name.
    pub audience: Option<String>,
    /// The URL of the issuer's key set (JWKS).
    pub jwks_url: Option<String>,
    /// A file with the issuer's key set, instead of `jwks_url`.
    pub jwks_file: Option<PathBuf>,
    /// Whether `jwks_url` may name this machine or a private network, and use plain HTTP.
    pub allow_private_jwks: bool,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that names the scopes.
    pub scope_claim: String,
    /// The tenant of callers whose JWT names none.
    pub tenant: String,
    /// Whether a JWT may name the operator's tenant, `home`.
    pub allow_home: bool,
    /// The scopes of callers whose JWT names no scopes of this server.
    pub default_scopes: Vec<String>,
    /// The tenant of callers that a client certificate names.
    pub certificate_tenant: String,
    /// The scopes of callers that a client certificate names.
    pub certificate_scopes: Vec<String>,
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
            certificate_tenant: "cert".into(),
            certificate_scopes: vec![],
        }
    }
}

impl SecurityOptions {
    /// Whether callers must authenticate. An error if the address must not be served that way.
    pub(crate) fn requires_auth(&self, reach: &ServerExposure<'_>) -> Result<bool, StartError> {
        match self.auth {
            AuthMode::File if self.issuer.is_some() => Err(StartError::Security(
                "auth = \"file\" takes no tokens of an issuer: set auth = \"on\", or remove jwt.issuer"
                    .into(),
            )),
            AuthMode::File if reach.has_client_ca => Err(StartError::Security(
                "auth = \"file\" takes no client certificates: set auth = \"on\", or remove tls-client-ca"
                    .into(),
            )),
            AuthMode::Off if reach.has_client_ca => Err(StartError::Security(
                "auth = \"off\" asks nobody for a certificate: set auth = \"on\", or remove tls-client-ca"
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

    /// Why others than the operator may reach the server, if they may.
    fn reason(&self, reach: &ServerExposure<'_>) -> Option<String> {
        if !reach.address.ip().is_loopback() {
            return Some(format!("{} can be reached from other machines", reach.address));
        }
        if self.issuer.is_some() {
            return Some("jwt.issuer is set".into());
        }
        if reach.has_client_ca {
            return Some("tls-client-ca is set".into());
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
            return Some("socket is set".into());
        }
        data_dir::shared_with(reach.data)
    }

    /// The audit level. A program that embeds the server may have set one in the engine's options.
    pub(crate) fn audit_level(&self, secured: bool, given: AuditLevel) -> AuditLevel {
        match self.audit {
            Some(level) => level,
            None if secured && given == AuditLevel::default() => AuditLevel::All,
            None => given,
        }
    }
}

/// Whether a URL names this machine.
fn is_local_url(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(is_local_host))
}

/// The same for a host, with or without a port.
fn is_local_host(host: &str) -> bool {
    let url = url::Url::parse(&format!("http://{host}"));
    url.is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    })
}

/// Whether a text is a valid name of a caller or a tenant: names appear in tables and in identities.
pub(crate) fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=64).contains(&text.len()) && text.chars().all(legal)
}

/// Installs the authenticator and token administration, and serves the audit log as a resource.
pub(crate) fn install(
    options: &SecurityOptions,
    secured: bool,
    engine: &Engine,
    server: &mut ServerOptions,
) -> Result<(), StartError> {
    let clock = Arc::clone(engine.clock());
    let tokens = Arc::new(ServerTokens::of(engine));
    let jwt = JwtVerifier::new(options, clock)?;
    let takes_certificates = server.tls.as_ref().is_some_and(|tls| tls.takes_client_certificates());
    let certificates = takes_certificates.then(|| CertificateCallers::new(options)).transpose()?;
    let tokens_to_erase = Arc::clone(&tokens);
    server.tokens =
        Some(Arc::new(AuthorizedTokenAdmin { engine: engine.clone(), tokens: Arc::clone(&tokens) }));
    // A program that embeds the server may have an authenticator of its own.
    let is_own = server.authenticator.is_none() && server.optional_authenticator.is_none();
    if is_own && (secured || options.auth != AuthMode::Off) {
        tokio::spawn(tokens::record_uses_periodically(Arc::clone(&tokens), engine.closing()));
        let authenticator = Some(Arc::new(CallerAuthenticator { tokens, jwt, certificates }) as _);
        match secured {
            true => server.authenticator = authenticator,
            // A token that is shown nevertheless is judged: it must not turn into the operator's rights.
            false => server.optional_authenticator = authenticator,
        }
    }
    engine.add_meter(Arc::clone(&tokens_to_erase) as Arc<dyn StorageMeter>);
    engine.add_eraser(tokens_to_erase as Arc<dyn Eraser>);
    audit_log::install(engine);
    Ok(())
}

/// Authenticates callers by their tokens, the server's own or the issuer's, or by their certificates.
struct CallerAuthenticator {
    tokens: Arc<ServerTokens>,
    jwt: Option<JwtVerifier>,
    certificates: Option<CertificateCallers>,
}

#[async_trait]
impl Authenticator for CallerAuthenticator {
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

    async fn authenticate_certificate(&self, certificate: &ClientCertificate) -> Result<Caller, AuthError> {
        self.certificates.as_ref().ok_or(AuthError::Missing)?.caller(certificate)
    }

    fn issuers(&self) -> Vec<String> {
        self.jwt.iter().map(|jwt| jwt.issuer().to_owned()).collect()
    }
}

/// Token administration for callers that the engine's access control allows.
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
        // A caller that may not create tokens in this tenant is refused below, without learning how many
        // there are.
        if caller.tenant() == HOME_TENANT || caller.tenant() == tenant {
            // Counted now, not taken from the last measurement: tokens are created seldom, and their limit is
            // small.
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
