//! The credentials for a remote agent: which tokens the table names, and how to obtain them.
//!
//! A token is sent only to the origin of the table's URL, and a client certificate shown only there. OAuth tokens are the server's own (client
//! credentials), or those of a user that logged in once at the command line; no user is asked while a task
//! runs.

use std::{path::Path, sync::Arc};

use nuncio_client::{
    a2a::{A2aPeer, A2aPeerOptions},
    auth::{Authorizer, Bearer},
    mcp::{McpPeer, McpPeerOptions},
    oauth::{
        Consent, FileTokenStore, LoopbackConsent, MemoryTokenStore, NoConsent, OAuth, OAuthClient,
        OAuthOptions, TokenStore,
    },
    peer::{Peer as _, PeerError, PeerLocation},
};
use nuncio_outbound::{TlsClientFiles, TlsClientOptions};
use url::Url;

use crate::configured::{
    AgentKind, AgentSpec, SpecError,
    spec::{FilledText, FilledUrl, GrantKind, OAuthSpec, Secret},
};

/// The credentials in a table.
pub(super) struct RemoteCredentials<'a> {
    pub(super) url: Option<&'a Url>,
    pub(super) token: Option<&'a Secret>,
    pub(super) token_file: Option<&'a Path>,
    pub(super) oauth: Option<&'a OAuthSpec>,
}

impl<'a> RemoteCredentials<'a> {
    /// The credentials of a table whose kind has them.
    fn of(spec: &'a AgentSpec) -> Option<Self> {
        match &spec.kind {
            AgentKind::A2a(own) => Some(Self {
                url: Some(own.url.expose()),
                token: own.token.as_ref(),
                token_file: own.token_file.as_ref().map(FilledText::path),
                oauth: own.oauth.as_ref(),
            }),
            AgentKind::Mcp(own) => Some(Self {
                url: own.url.as_ref().map(FilledUrl::expose),
                token: own.token.as_ref(),
                token_file: own.token_file.as_ref().map(FilledText::path),
                oauth: own.oauth.as_ref(),
            }),
            _ => None,
        }
    }
}

/// The authorizer for the agent of that table, if it has credentials.
pub fn authorizer(spec: &AgentSpec) -> Result<Option<Arc<dyn Authorizer>>, SpecError> {
    let why = format!("nobody is signed in there: `nuncio agents login {}` does it", spec.name);
    build_authorizer(spec, Arc::new(NoConsent { why }))
}

/// Whom the agent of that table trusts beside the system's CAs, and the certificate that it shows. The files are read
/// once.
pub fn tls(spec: &AgentSpec) -> Result<TlsClientOptions, SpecError> {
    let (url, ca, certificate, key) = match &spec.kind {
        AgentKind::A2a(own) => (Some(&own.url), &own.ca_cert, &own.client_cert, &own.client_key),
        AgentKind::Mcp(own) => (own.url.as_ref(), &own.ca_cert, &own.client_cert, &own.client_key),
        _ => return Ok(TlsClientOptions::default()),
    };
    let path = |file: &Option<FilledText>| file.as_ref().map(|file| file.path().to_owned());
    let files = TlsClientFiles { ca: path(ca), certificate: path(certificate), key: path(key) };
    if files == TlsClientFiles::default() {
        return Ok(TlsClientOptions::default());
    }
    let named = if files.ca.is_some() { "ca-cert" } else { "client-cert" };
    let Some(url) = url else {
        return Err(spec.wrong(named, "a program has no TLS: this is for a url"));
    };
    let read = files.read().map_err(|why| spec.wrong(named, why))?;
    Ok(read.identity_for(url.expose()))
}

fn build_authorizer(
    spec: &AgentSpec,
    consent: Arc<dyn Consent>,
) -> Result<Option<Arc<dyn Authorizer>>, SpecError> {
    let Some(access) = RemoteCredentials::of(spec) else { return Ok(None) };
    let given = [
        (access.token.is_some(), "token"),
        (access.token_file.is_some(), "token-file"),
        (access.oauth.is_some(), "oauth"),
    ];
    let mut given = given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, key)| key);
    let Some(key) = given.next() else { return Ok(None) };
    if let Some(other) = given.next() {
        return Err(spec.wrong(other, format!("there is {key} already: one of them is enough")));
    }
    let Some(url) = access.url else {
        return Err(spec.wrong(key, "a program is shown no token: it has env"));
    };
    if let Some(Secret(token)) = access.token {
        return Ok(Some(Arc::new(Bearer::new(token.clone(), url))));
    }
    if let Some(path) = access.token_file {
        return Ok(Some(Arc::new(Bearer::in_file(path, url))));
    }
    let Some(own) = access.oauth else { return Ok(None) };
    let (options, token_store) = oauth(spec, own)?;
    let oauth = OAuth::new(options, token_store, consent).map_err(|why| spec.wrong("oauth", why))?;
    Ok(Some(Arc::new(oauth)))
}

fn oauth(spec: &AgentSpec, own: &OAuthSpec) -> Result<(OAuthOptions, Arc<dyn TokenStore>), SpecError> {
    let secret = match (&own.client_secret, &own.client_secret_file) {
        (Some(_), Some(_)) => {
            let why = "client-secret and client-secret-file: one of them is enough";
            return Err(spec.wrong("oauth", why));
        }
        (Some(Secret(secret)), None) => Some(secret.clone()),
        (None, Some(path)) => Some(secret_in(path.path()).map_err(|why| spec.wrong("oauth", why))?),
        (None, None) => None,
    };
    let for_itself = own.for_itself();
    if for_itself && (secret.is_none() || own.client_id.is_none()) {
        let why = "client credentials are a client-id and a client-secret (or client-secret-file)";
        return Err(spec.wrong("oauth", why));
    }
    if secret.is_some() && own.issuer.is_none() {
        let why = "a client-secret is shown to one issuer only: name it (issuer = \"https://…\")";
        return Err(spec.wrong("oauth", why));
    }
    let client = own.client_id.as_ref().map(|id| OAuthClient {
        id: id.expose().to_owned(),
        secret,
        method: None,
        redirect_uri: None,
    });
    let options = OAuthOptions {
        client_name: format!("Nuncio ({})", spec.name),
        client,
        for_itself,
        issuer: own.issuer.as_ref().map(|issuer| issuer.expose().to_owned()),
        scopes: own.scopes.iter().cloned().collect(),
        ..OAuthOptions::default()
    };
    let token_store: Arc<dyn TokenStore> = match &own.tokens {
        // Client credentials can be obtained again, so their tokens are not stored.
        Some(dir) if !for_itself => Arc::new(FileTokenStore::new(dir)),
        _ => Arc::new(MemoryTokenStore::default()),
    };
    Ok((options, token_store))
}

fn secret_in(path: &Path) -> Result<String, String> {
    let wrong = |why: &str| format!("client-secret-file: {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("it is empty")),
        secret => Ok(secret.to_owned()),
    }
}

/// Logs a user in for the agent of a table: `show` receives the link to visit. Returns when the user has
/// consented and the grant is stored.
pub async fn sign_in(spec: &AgentSpec, show: Arc<dyn Fn(&Url) + Send + Sync>) -> Result<(), String> {
    let own = RemoteCredentials::of(spec).and_then(|access| access.oauth).filter(|own| !own.for_itself());
    let Some(own) = own else {
        return Err(format!("{:?} has no login: its table has no [agent.oauth] for one", spec.name));
    };
    let Some(tokens) = &own.tokens else { return Err("there is no folder to keep tokens in".into()) };
    let authorizer = build_authorizer(spec, Arc::new(LoopbackConsent { open: show }))
        .map_err(|error| error.to_string())?;
    let tls = tls(spec).map_err(|error| error.to_string())?;
    let called = match &spec.kind {
        AgentKind::Mcp(own) => {
            let url =
                own.url.as_ref().map(|url| url.expose().clone()).ok_or("a program is shown no token")?;
            let peer = McpPeer::new(
                PeerLocation::Url(url),
                McpPeerOptions { authorizer, tls, ..McpPeerOptions::default() },
            );
            let called = peer.list_capabilities().await.map(drop);
            peer.close().await;
            called
        }
        AgentKind::A2a(own) => {
            let card_keys = super::card_keys(spec).map_err(|error| error.to_string())?;
            let mut options =
                A2aPeerOptions { authorizer, card_keys, whole_server: false, ..A2aPeerOptions::default() };
            options.http.tls = tls;
            // Cards are public; reading a task requires authentication.
            A2aPeer::new(own.url.expose().clone(), options).task("0").await.map(drop)
        }
        _ => Ok(()),
    };
    let is_kept = std::fs::read_dir(tokens).is_ok_and(|mut entries| entries.next().is_some());
    match called {
        // The stored grant may be outdated.
        Err(error @ PeerError::Unauthorized { .. }) => Err(error.to_string()),
        _ if is_kept => Ok(()),
        Ok(()) => Err("it accepts requests without a token: no login is needed".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Deletes the grant for the agent of a table; returns whether there was one.
pub fn sign_out(spec: &AgentSpec) -> std::io::Result<bool> {
    let tokens =
        RemoteCredentials::of(spec).and_then(|access| access.oauth).and_then(|own| own.tokens.as_ref());
    match tokens {
        Some(dir) => Ok(FileTokenStore::new(dir).forget_all()? > 0),
        None => Ok(false),
    }
}

impl OAuthSpec {
    fn for_itself(&self) -> bool {
        match self.grant {
            Some(GrantKind::ClientCredentials) => true,
            Some(GrantKind::Login) => false,
            None => self.client_secret.is_some() || self.client_secret_file.is_some(),
        }
    }
}
