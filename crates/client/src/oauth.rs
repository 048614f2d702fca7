//! OAuth 2.1 as MCP uses it: from a server's 401 to a token for it.
//!
//! The server names its metadata (RFC 9728), which names an authorization server, whose metadata (RFC 8414,
//! or OpenID Connect) lists the endpoints. The client is known there or registers itself (by the URL of its
//! own metadata, or dynamically), the user consents in a browser (PKCE), and the code is exchanged for a
//! token that is bound to the server (RFC 8707). Credentials belong to the issuer that gave them and are
//! sent to no other. A [`TokenStore`] retains grants, so that the user is not asked twice.

mod challenge;
mod consent;
mod discovery;
mod id_token;
mod login;
mod request;
mod token_store;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use url::Url;

use self::{challenge::OAuthChallenge, discovery::OAuthEndpoints, request::OAuthHttp};
pub use self::{
    consent::{Consent, ConsentVisit, LoopbackConsent, NoConsent},
    login::{DevicePrompt, OAuthFlow, OAuthLogin},
    token_store::{FileTokenStore, MemoryTokenStore, TokenStore},
};
use crate::auth::Authorizer;

/// A token that expires within this time is renewed before it is used.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// How many times the user is asked for one resource within [`ROUNDS_WITHIN`] before the client gives up.
const MOST_ROUNDS: u32 = 3;
/// The window of [`MOST_ROUNDS`].
const ROUNDS_WITHIN: Duration = Duration::from_secs(5 * 60);
/// The scope for a refresh token.
const OFFLINE: &str = "offline_access";

/// Options of the OAuth client.
#[derive(Debug, Clone)]
pub struct OAuthOptions {
    /// The name that the user sees when asked for consent.
    pub client_name: String,
    /// The URL of this client's metadata, for authorization servers that accept it as a client id.
    pub metadata_url: Option<Url>,
    /// A client id that the authorization server assigned earlier.
    pub client: Option<OAuthClient>,
    /// Whether the client uses its own secret (client credentials) and asks no user.
    pub for_itself: bool,
    /// The only accepted issuer. A server that names another gets no token. `None`: the one that the server
    /// names.
    pub issuer: Option<String>,
    /// The scopes to request; empty: those that the server names.
    pub scopes: BTreeSet<String>,
    /// Limit for one request.
    pub timeout: Duration,
}

impl Default for OAuthOptions {
    fn default() -> Self {
        Self {
            client_name: "Nuncio".into(),
            metadata_url: None,
            client: None,
            for_itself: false,
            issuer: None,
            scopes: BTreeSet::new(),
            timeout: Duration::from_secs(30),
        }
    }
}

/// A client registration at an authorization server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuthClient {
    /// The client id.
    pub id: String,
    /// The client secret, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The authentication method that was agreed on, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The registered redirect URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

impl std::fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is stored for a resource: client registrations and the grant.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OAuthRecord {
    /// Client registrations, by issuer.
    #[serde(default)]
    pub clients: BTreeMap<String, OAuthClient>,
    /// The current grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<OAuthGrant>,
}

/// A token, and what is needed to use and renew it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct OAuthGrant {
    /// The issuer of the token.
    pub issuer: String,
    /// The endpoint that renews it.
    pub token_endpoint: Url,
    /// The resource that it is bound to, by the resource's own identifier.
    pub resource: String,
    /// The bearer token.
    pub access_token: String,
    /// The refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// When the token expires, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The scopes requested and granted so far.
    #[serde(default)]
    pub scopes: BTreeSet<String>,
    /// Whom the server signed in, if a login by OpenID Connect said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The ID token, until a login has read it.
    #[serde(skip)]
    id_token: Option<String>,
}

impl OAuthGrant {
    fn is_ending(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= now() + RENEW_BEFORE.as_secs())
    }

    fn has_ended(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= now())
    }
}

/// An [`Authorizer`] that obtains its tokens by OAuth.
pub struct OAuth(Arc<OAuthInner>);

struct OAuthInner {
    options: OAuthOptions,
    http: OAuthHttp,
    token_store: Arc<dyn TokenStore>,
    consent: Arc<dyn Consent>,
    /// One attempt at a time per resource, so that a token is renewed once; other resources do not wait.
    rounds: parking_lot::Mutex<BTreeMap<Url, Arc<Mutex<OAuthAttempts>>>>,
    /// The user is asked one thing at a time.
    person: Mutex<()>,
}

/// The attempts for one resource since it last accepted a token.
#[derive(Default)]
struct OAuthAttempts {
    sought: Vec<Instant>,
    /// The token that was sent last; a different one resets the attempts.
    shown: Option<String>,
    /// The token that replaced a rejected one, and when. If it is rejected as well it is not renewed again.
    renewed: Option<(String, Instant)>,
}

impl OAuth {
    /// An authorizer that stores grants in `keeper` and asks the user through `consent`.
    pub fn new(
        options: OAuthOptions,
        token_store: Arc<dyn TokenStore>,
        consent: Arc<dyn Consent>,
    ) -> Result<Self, String> {
        let http = OAuthHttp::new(options.timeout)?;
        Ok(Self(Arc::new(OAuthInner {
            options,
            http,
            token_store,
            consent,
            rounds: Default::default(),
            person: Mutex::default(),
        })))
    }
}

impl OAuthInner {
    /// The known registration of this client at an issuer.
    fn known_at(&self, issuer: &str, kept: &OAuthRecord) -> Option<OAuthClient> {
        self.options.client.clone().or_else(|| kept.clients.get(issuer).cloned())
    }

    /// Renews a grant. `None`: it can no longer be renewed.
    async fn renewed(&self, kept: &OAuthRecord, grant: &OAuthGrant) -> Option<OAuthGrant> {
        let refresh = grant.refresh_token.as_deref()?;
        let client = self.known_at(&grant.issuer, kept)?;
        let parameters = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh),
            ("resource", grant.resource.as_str()),
        ];
        let methods = client.method.iter().cloned().collect::<Vec<_>>();
        match self.http.token(&grant.token_endpoint, &client, &methods, &parameters).await {
            Ok(token) => {
                let mut renewed = grant.clone();
                renewed.access_token = token.access_token;
                renewed.expires_at = token.expires_in.map(|seconds| now().saturating_add(seconds));
                // A new refresh token replaces the old one, which may be void then.
                if token.refresh_token.is_some() {
                    renewed.refresh_token = token.refresh_token;
                }
                Some(renewed)
            }
            Err(why) => {
                tracing::info!(why, "a token could not be renewed: a new login is needed");
                None
            }
        }
    }

    async fn seek(
        &self,
        resource: &Url,
        challenge: &OAuthChallenge,
        kept: &mut OAuthRecord,
    ) -> Result<(), String> {
        let found = self.http.discover(resource, challenge.metadata.as_ref()).await?;
        let is_other = |wanted: &String| wanted.trim_end_matches('/') != found.issuer.trim_end_matches('/');
        if let Some(wanted) = self.options.issuer.as_ref().filter(|wanted| is_other(wanted)) {
            return Err(format!(
                "{resource} wants tokens of {:?}, and the ones to be used are of {wanted:?}: nothing was shown to it",
                found.issuer
            ));
        }
        let before = kept.grant.take().filter(|grant| grant.issuer == found.issuer);
        let mut scopes = challenge.scopes.clone().or_else(|| found.scopes.clone()).unwrap_or_default();
        if !self.options.scopes.is_empty() {
            scopes.clone_from(&self.options.scopes);
        }
        // The new token must keep the scopes granted before.
        scopes.extend(before.into_iter().flat_map(|grant| grant.scopes));
        let grant = match self.options.for_itself {
            true => self.as_itself(&found, &scopes).await?,
            false => self.by_consent(&found, scopes, kept).await?,
        };
        kept.grant = Some(grant);
        Ok(())
    }

    async fn as_itself(
        &self,
        found: &OAuthEndpoints,
        scopes: &BTreeSet<String>,
    ) -> Result<OAuthGrant, String> {
        let client = self.options.client.clone();
        let client = client.ok_or("a client that acts for itself has an id and a secret: none was given")?;
        let scope = joined(scopes);
        let mut parameters =
            vec![("grant_type", "client_credentials"), ("resource", found.resource.as_str())];
        if !scope.is_empty() {
            parameters.push(("scope", &scope));
        }
        let token = self.http.token(&found.token_endpoint, &client, &found.auth_methods, &parameters).await?;
        Ok(token.granted(found, scopes.clone()))
    }

    async fn by_consent(
        &self,
        found: &OAuthEndpoints,
        mut scopes: BTreeSet<String>,
        kept: &mut OAuthRecord,
    ) -> Result<OAuthGrant, String> {
        if !found.knows_pkce {
            return Err(format!(
                "the authorization server {} does not say that it takes PKCE with S256: a code would not be safe there",
                found.issuer
            ));
        }
        let registered = self.known_at(&found.issuer, kept);
        let wanted = registered.as_ref().and_then(|client| client.redirect_uri.clone());
        let visit = self.consent.prepare(wanted.as_deref()).await?;
        let redirect_uri = visit.redirect_uri().to_owned();
        let client = match registered {
            Some(client) if client.redirect_uri.as_ref().is_none_or(|uri| *uri == redirect_uri) => client,
            _ => self.client_at(found, &redirect_uri).await?,
        };
        // A configured client id is given at every start and may change, so it is not stored.
        if self.options.client.is_none() {
            kept.clients.insert(found.issuer.clone(), client.clone());
        }
        if found.offers_offline && !scopes.is_empty() {
            scopes.insert(OFFLINE.into());
        }

        let (verifier, state) = (request::secret()?, request::secret()?);
        let mut url = found.authorization_endpoint.clone().ok_or_else(|| {
            format!("the authorization server {} has no place to ask a person for consent", found.issuer)
        })?;
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client.id)
                .append_pair("redirect_uri", &redirect_uri)
                .append_pair("state", &state)
                .append_pair("code_challenge", &request::challenge_of(&verifier))
                .append_pair("code_challenge_method", "S256")
                .append_pair("resource", &found.resource);
            if !scopes.is_empty() {
                query.append_pair("scope", &joined(&scopes));
            }
        }
        let one = self.person.lock().await;
        let back = visit.ask(&url).await?;
        drop(one);
        let code = consent::code_in(&back, &state, found)?;
        let parameters = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &redirect_uri),
            ("code_verifier", &verifier),
            ("resource", &found.resource),
        ];
        let token = self.http.token(&found.token_endpoint, &client, &found.auth_methods, &parameters).await?;
        Ok(token.granted(found, scopes))
    }

    /// Registers this client: by its metadata URL, or dynamically.
    async fn client_at(&self, found: &OAuthEndpoints, redirect_uri: &str) -> Result<OAuthClient, String> {
        if let (true, Some(url)) = (found.takes_metadata_urls, &self.options.metadata_url) {
            return Ok(OAuthClient {
                id: url.to_string(),
                secret: None,
                method: Some("none".into()),
                redirect_uri: None,
            });
        }
        match &found.registration_endpoint {
            Some(endpoint) => {
                self.http.register(endpoint, &self.options.client_name, redirect_uri, found).await
            }
            None => Err(format!(
                "the authorization server {} knows no way to register: give a client id that it has issued",
                found.issuer
            )),
        }
    }
}

#[async_trait]
impl Authorizer for OAuth {
    async fn token(&self, resource: &Url) -> Option<String> {
        self.0.token(resource).await
    }

    async fn challenged(
        &self,
        resource: &Url,
        status: u16,
        www_authenticate: Option<&str>,
    ) -> Result<bool, String> {
        let (inner, resource) = (Arc::clone(&self.0), resource.clone());
        let challenge = OAuthChallenge::read(www_authenticate.unwrap_or_default());
        // In a task of its own, because the caller's timeout is shorter than the user may take. The next
        // caller waits for the same consent.
        let asked = tokio::spawn(async move { inner.challenged(&resource, status, &challenge).await });
        asked.await.unwrap_or_else(|_| Err("the way to a token broke off".into()))
    }
}

impl OAuthInner {
    fn round(&self, resource: &Url) -> Arc<Mutex<OAuthAttempts>> {
        let mut rounds = self.rounds.lock();
        Arc::clone(rounds.entry(resource.clone()).or_default())
    }

    async fn token(&self, resource: &Url) -> Option<String> {
        let round = self.round(resource);
        let mut round = round.lock().await;
        let mut kept = self.token_store.load(resource).await?;
        let mut grant = kept.grant.clone()?;
        if grant.is_ending()
            && let Some(renewed) = self.renewed(&kept, &grant).await
        {
            grant = renewed;
            let replaced = kept.clone();
            kept.grant = Some(grant.clone());
            self.token_store.renew(resource, &replaced, &kept).await;
        }
        // An expired token is not sent.
        if grant.has_ended() {
            return None;
        }
        round.shown = Some(grant.access_token.clone());
        Some(grant.access_token)
    }

    async fn challenged(
        &self,
        resource: &Url,
        status: u16,
        challenge: &OAuthChallenge,
    ) -> Result<bool, String> {
        if status == 403 && challenge.error.as_deref() != Some("insufficient_scope") {
            return Ok(false);
        }
        let round = self.round(resource);
        let round = &mut *round.lock().await;
        let mut kept = self.token_store.load(resource).await.unwrap_or_default();
        // Another caller obtained a new token while this one waited for the lock.
        if let Some(grant) = &kept.grant
            && status == 401
            && !grant.has_ended()
            && round.shown.as_ref() != Some(&grant.access_token)
        {
            return Ok(true);
        }
        if let Some(grant) = &kept.grant
            && status == 403
            && challenge.scopes.as_ref().is_none_or(|wanted| wanted.is_subset(&grant.scopes))
        {
            return Err(format!(
                "{resource} wants {}, which was granted and is not enough for it",
                challenge.scopes.as_ref().map_or_else(|| "another scope".into(), joined)
            ));
        }
        let in_vain = |grant: &OAuthGrant| {
            round.renewed.as_ref().is_some_and(|(token, at)| {
                *token == grant.access_token && at.elapsed() < ROUNDS_WITHIN && !grant.has_ended()
            })
        };
        if status == 401
            && let Some(grant) = kept.grant.clone().filter(|grant| !in_vain(grant))
            && let Some(renewed) = self.renewed(&kept, &grant).await
        {
            // The renewed token is tried once; if it is rejected, too, the user is asked.
            round.renewed = Some((renewed.access_token.clone(), Instant::now()));
            let replaced = kept.clone();
            kept.grant = Some(renewed);
            self.token_store.renew(resource, &replaced, &kept).await;
            return Ok(true);
        }
        round.sought.retain(|at| at.elapsed() < ROUNDS_WITHIN);
        // An expired token was not rejected by the server.
        if kept.grant.as_ref().is_some_and(OAuthGrant::has_ended) {
            round.sought.clear();
        }
        if round.sought.len() >= MOST_ROUNDS as usize {
            return Err(format!("{resource} rejected {MOST_ROUNDS} tokens in a row"));
        }
        self.seek(resource, challenge, &mut kept).await?;
        round.sought.push(Instant::now());
        self.token_store.store(resource, &kept).await;
        Ok(true)
    }
}

fn joined(scopes: &BTreeSet<String>) -> String {
    scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
