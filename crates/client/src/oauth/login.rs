//! A login whose endpoints are named beforehand, as A2A's cards do it (1.0, section 4.5.4): with a code and PKCE, with
//! the client's own secret, or by the device flow (RFC 8628).
//!
//! The author of a card names the endpoints. So all of them have one origin, unless the authorization server's own
//! metadata names them: a code of one server must not be brought to another (RFC 9700, section 4.4).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde::Deserialize;
use url::Url;

use super::{
    OAuth, OAuthClient, OAuthGrant, OAuthInner, OAuthRecord,
    discovery::{OAuthEndpoints, safe},
    id_token, joined, now,
};

/// The pause between two polls, where the server names none (RFC 8628, section 3.2).
const POLL: Duration = Duration::from_secs(5);
/// The shortest pause, whatever the server names.
const LEAST_POLL: Duration = Duration::from_secs(1);
/// How much longer the pause becomes when the server says that it is too short.
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// The longest time that a user may take, whatever the server names.
const MAX_WAIT: Duration = Duration::from_secs(30 * 60);
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The way to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OAuthFlow {
    /// The user consents in a browser on this machine; PKCE protects the code.
    Code,
    /// The client uses its own secret, and asks no user.
    ClientCredentials,
    /// The user consents on any device, with a code that is shown here.
    Device,
}

/// The endpoints of a login, and what it is for.
#[derive(Debug, Clone)]
pub struct OAuthLogin {
    /// The address that the token is for.
    pub resource: Url,
    /// The authorization server's identifier, if its metadata names it.
    pub issuer: Option<String>,
    /// Where users give consent.
    pub authorization_endpoint: Option<Url>,
    /// Where the device flow begins.
    pub device_endpoint: Option<Url>,
    /// Where tokens come from.
    pub token_endpoint: Url,
    /// The scopes to ask for.
    pub scopes: BTreeSet<String>,
}

/// What the user is shown in the device flow.
#[derive(Debug, Clone, Deserialize)]
pub struct DevicePrompt {
    /// The code to type.
    pub user_code: String,
    /// Where to type it.
    pub verification_uri: Url,
    /// The same with the code in it.
    pub verification_uri_complete: Option<Url>,
}

#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: String,
    #[serde(flatten)]
    prompt: DevicePrompt,
    expires_in: u64,
    interval: Option<u64>,
}

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery), as far as a login needs it.
#[derive(Deserialize)]
struct LoginMetadata {
    issuer: String,
    authorization_endpoint: Option<Url>,
    token_endpoint: Url,
    device_authorization_endpoint: Option<Url>,
}

impl OAuth {
    /// Reads the endpoints from an authorization server's metadata, by its URL.
    pub async fn login_by_metadata(&self, metadata: &Url, resource: &Url) -> Result<OAuthLogin, String> {
        safe(metadata, resource)?;
        let found: Option<LoginMetadata> = self.0.http.fetch(metadata).await?;
        let found = found.ok_or_else(|| format!("there is no metadata at {metadata}"))?;
        // The document speaks for the origin that it is served from.
        let speaks = Url::parse(&found.issuer).is_ok_and(|issuer| issuer.origin() == metadata.origin());
        if !speaks {
            return Err(format!(
                "the metadata at {metadata} is that of {:?}: that may be an attack",
                found.issuer
            ));
        }
        Ok(OAuthLogin {
            resource: resource.clone(),
            issuer: Some(found.issuer),
            authorization_endpoint: found.authorization_endpoint,
            device_endpoint: found.device_authorization_endpoint,
            token_endpoint: found.token_endpoint,
            scopes: BTreeSet::new(),
        })
    }

    /// Obtains a token and stores it. `show` is called with what the user of the device flow has to do.
    pub async fn login(
        &self,
        login: &OAuthLogin,
        flow: OAuthFlow,
        show: impl Fn(&DevicePrompt),
    ) -> Result<OAuthGrant, String> {
        let inner = &self.0;
        let endpoints = login.endpoints()?;
        let mut kept = inner.token_store.load(&login.resource).await.unwrap_or_default();
        let mut grant = match flow {
            OAuthFlow::ClientCredentials => inner.as_itself(&endpoints, &login.scopes).await?,
            OAuthFlow::Code => inner.by_consent(&endpoints, login.scopes.clone(), &mut kept).await?,
            OAuthFlow::Device => inner.by_device(login, &endpoints, show).await?,
        };
        // Only where the metadata of OpenID Connect names the issuer there is one to compare with.
        let id_token =
            grant.id_token.take().filter(|_| login.issuer.is_some() && flow != OAuthFlow::ClientCredentials);
        if let (Some(token), Some(client)) = (id_token, &inner.options.client) {
            grant.subject = Some(id_token::subject(&token, &endpoints.issuer, &client.id, now())?);
        }
        // The client renews the token with its id. The secret of a client that acts for itself is not stored.
        let client = inner.options.client.clone().filter(|_| flow != OAuthFlow::ClientCredentials);
        let clients = client.map(|client| (endpoints.issuer.clone(), client)).into_iter().collect();
        let record = OAuthRecord { clients, grant: Some(grant.clone()) };
        inner.token_store.store(&login.resource, &record).await;
        match inner.token_store.load(&login.resource).await {
            Some(stored) if stored == record => Ok(grant),
            _ => Err("the token could not be stored".to_owned()),
        }
    }
}

impl OAuthLogin {
    /// The endpoints, each safe for credentials, and all of one origin if no metadata names them.
    fn endpoints(&self) -> Result<OAuthEndpoints, String> {
        let others = [&self.authorization_endpoint, &self.device_endpoint].into_iter().flatten();
        for endpoint in others.chain([&self.token_endpoint]) {
            safe(endpoint, &self.resource)?;
            if self.issuer.is_none() && endpoint.origin() != self.token_endpoint.origin() {
                return Err(format!(
                    "{endpoint} and {} are not of one server: a code of one would be brought to the other",
                    self.token_endpoint
                ));
            }
        }
        Ok(OAuthEndpoints {
            resource: self.resource.to_string(),
            scopes: None,
            issuer: self.issuer.clone().unwrap_or_else(|| self.token_endpoint.origin().ascii_serialization()),
            authorization_endpoint: self.authorization_endpoint.clone(),
            token_endpoint: self.token_endpoint.clone(),
            registration_endpoint: None,
            auth_methods: vec![],
            takes_metadata_urls: false,
            // A card has no way to declare it (only to require it); a server that does not know it ignores it.
            knows_pkce: true,
            names_itself: false,
            offers_offline: false,
        })
    }
}

impl OAuthInner {
    /// The device flow: shows the user a code, and polls until it was used.
    async fn by_device(
        &self,
        login: &OAuthLogin,
        found: &OAuthEndpoints,
        show: impl Fn(&DevicePrompt),
    ) -> Result<OAuthGrant, String> {
        let client: &OAuthClient =
            self.options.client.as_ref().ok_or("the device flow needs a client id: none was given")?;
        let endpoint = login.device_endpoint.as_ref();
        let endpoint = endpoint.ok_or_else(|| format!("{} has no device flow", found.issuer))?;
        let scope = joined(&login.scopes);
        let mut form = vec![("client_id", client.id.as_str()), ("resource", found.resource.as_str())];
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        let begun: DeviceAuthorization = self.http.post_form(endpoint, &form).await?;
        // The link is shown, and perhaps opened: it leads to a page, not to a program of this machine.
        let DevicePrompt { verification_uri, verification_uri_complete, .. } = &begun.prompt;
        let links = verification_uri_complete.iter().chain([verification_uri]);
        if let Some(link) = links.into_iter().find(|link| !matches!(link.scheme(), "http" | "https")) {
            return Err(format!(
                "{endpoint} sends the user to {link}, which is no page: that may be an attack"
            ));
        }
        show(&begun.prompt);
        let until = Instant::now() + Duration::from_secs(begun.expires_in).min(MAX_WAIT);
        let mut pause = begun.interval.map_or(POLL, Duration::from_secs).clamp(LEAST_POLL, MAX_WAIT);
        let parameters = [
            ("grant_type", DEVICE_GRANT),
            ("device_code", begun.device_code.as_str()),
            ("resource", found.resource.as_str()),
        ];
        loop {
            tokio::time::sleep(pause).await;
            let asked = self.http.try_token(&found.token_endpoint, client, &[], &parameters).await;
            let refusal = match asked {
                Ok(token) => return Ok(token.granted(found, login.scopes.clone())),
                Err(refusal) => refusal,
            };
            match refusal.code.as_deref() {
                Some("authorization_pending") => {}
                Some("slow_down") => pause += SLOW_DOWN,
                _ => return Err(refusal.why),
            }
            if Instant::now() >= until {
                return Err("the code was not used in time: begin again".to_owned());
            }
        }
    }
}
