//! Discovery of the authorization server of a resource, by their published metadata.

use std::collections::BTreeSet;

use serde::Deserialize;
use url::Url;

use super::request::OAuthHttp;

/// The endpoints and properties of a resource's authorization server.
#[derive(Debug, Clone)]
pub(super) struct OAuthEndpoints {
    /// The resource's own identifier.
    pub(super) resource: String,
    /// The scopes that it supports, if it lists them.
    pub(super) scopes: Option<BTreeSet<String>>,
    /// The authorization server's identifier.
    pub(super) issuer: String,
    /// Where users give consent; `None` if only client credentials are supported.
    pub(super) authorization_endpoint: Option<Url>,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    /// The supported client authentication methods; empty: not listed.
    pub(super) auth_methods: Vec<String>,
    pub(super) takes_metadata_urls: bool,
    pub(super) knows_pkce: bool,
    /// Whether redirects carry the issuer (RFC 9207).
    pub(super) names_itself: bool,
    pub(super) offers_offline: bool,
}

#[derive(Deserialize)]
struct OAuthResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<BTreeSet<String>>,
}

#[derive(Deserialize)]
struct OAuthServerMetadata {
    issuer: String,
    authorization_endpoint: Option<Url>,
    token_endpoint: Url,
    registration_endpoint: Option<Url>,
    #[serde(default)]
    scopes_supported: BTreeSet<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl OAuthHttp {
    /// Discovers the authorization server of a resource.
    pub(super) async fn discover(
        &self,
        resource: &Url,
        named: Option<&Url>,
    ) -> Result<OAuthEndpoints, String> {
        let metadata = self.resource_metadata(resource, named).await?;
        let Some(metadata) = metadata else { return self.as_of_old(resource).await };
        if !covers(&metadata.resource, resource) {
            return Err(format!(
                "{resource} presents the metadata of {:?}: a token for that would not be for this server",
                metadata.resource
            ));
        }
        let Some(issuer) = metadata.authorization_servers.first() else {
            return Err(format!("{resource} requires a token but names no authorization server"));
        };
        let at =
            Url::parse(issuer).map_err(|_| format!("{issuer:?} is not an authorization server's URL"))?;
        safe(&at, resource)?;
        let server = self.server_metadata(&at).await?;
        let server = server.ok_or_else(|| {
            format!("the authorization server {issuer} publishes no metadata (RFC 8414, OpenID Connect)")
        })?;
        if server.issuer != *issuer {
            return Err(format!(
                "the metadata of the authorization server {issuer:?} is that of {:?}: that may be an attack",
                server.issuer
            ));
        }
        found(resource, metadata.resource, metadata.scopes_supported, server)
    }

    async fn resource_metadata(
        &self,
        resource: &Url,
        named: Option<&Url>,
    ) -> Result<Option<OAuthResourceMetadata>, String> {
        if let Some(named) = named {
            safe(named, resource)?;
            return match self.fetch(named).await? {
                Some(metadata) => Ok(Some(metadata)),
                None => Err(format!("{resource} names {named} for its metadata, but there is none")),
            };
        }
        let path = resource.path().trim_end_matches('/');
        for path in [path, ""] {
            let at = at_path(resource, &format!("/.well-known/oauth-protected-resource{path}"));
            if let Some(metadata) = self.fetch(&at).await? {
                return Ok(Some(metadata));
            }
        }
        Ok(None)
    }

    async fn server_metadata(&self, issuer: &Url) -> Result<Option<OAuthServerMetadata>, String> {
        let path = issuer.path().trim_end_matches('/');
        let mut places = vec![
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
        ];
        if !path.is_empty() {
            places.push(format!("{path}/.well-known/openid-configuration"));
        }
        for place in places {
            if let Some(metadata) = self.fetch(&at_path(issuer, &place)).await? {
                return Ok(Some(metadata));
            }
        }
        Ok(None)
    }

    /// Discovery as in 2025-03-26: the server is its own authorization server, with or without metadata at
    /// its root.
    async fn as_of_old(&self, resource: &Url) -> Result<OAuthEndpoints, String> {
        safe(resource, resource)?;
        let origin = at_path(resource, "/");
        let name = origin.as_str().trim_end_matches('/').to_owned();
        let own = resource.as_str().to_owned();
        match self
            .fetch::<OAuthServerMetadata>(&at_path(&origin, "/.well-known/oauth-authorization-server"))
            .await?
        {
            Some(server) if server.issuer.trim_end_matches('/') != name => Err(format!(
                "the metadata of the authorization server {name:?} is that of {:?}: that may be an attack",
                server.issuer
            )),
            Some(server) => found(resource, own, None, server),
            None => Ok(OAuthEndpoints {
                resource: own,
                scopes: None,
                issuer: name,
                authorization_endpoint: Some(at_path(&origin, "/authorize")),
                token_endpoint: at_path(&origin, "/token"),
                registration_endpoint: Some(at_path(&origin, "/register")),
                auth_methods: vec![],
                takes_metadata_urls: false,
                // 2025-03-26 has no way to declare it.
                knows_pkce: true,
                names_itself: false,
                offers_offline: false,
            }),
        }
    }
}

fn found(
    at: &Url,
    resource: String,
    scopes: Option<BTreeSet<String>>,
    server: OAuthServerMetadata,
) -> Result<OAuthEndpoints, String> {
    let endpoints = [&server.authorization_endpoint, &server.registration_endpoint];
    for endpoint in endpoints.into_iter().flatten().chain([&server.token_endpoint]) {
        safe(endpoint, at)?;
    }
    Ok(OAuthEndpoints {
        resource,
        scopes: scopes.filter(|scopes| !scopes.is_empty()),
        issuer: server.issuer,
        authorization_endpoint: server.authorization_endpoint,
        token_endpoint: server.token_endpoint,
        registration_endpoint: server.registration_endpoint,
        auth_methods: server.token_endpoint_auth_methods_supported,
        takes_metadata_urls: server.client_id_metadata_document_supported,
        knows_pkce: server.code_challenge_methods_supported.iter().any(|method| method == "S256"),
        names_itself: server.authorization_response_iss_parameter_supported,
        offers_offline: server.scopes_supported.contains(super::OFFLINE),
    })
}

/// Whether metadata for that resource applies to this address: the same URL, or one above it.
fn covers(resource: &str, address: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    let path = address.path();
    resource.origin() == address.origin()
        && path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Requires TLS or loopback, because secrets are sent there; and only a resource on this machine may name a
/// loopback URL.
pub(super) fn safe(url: &Url, resource: &Url) -> Result<(), String> {
    if is_here(url) && !is_here(resource) {
        return Err(format!("{resource} sends us to {url}, which is on this machine: that may be an attack"));
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_here(url) => Ok(()),
        _ => Err(format!("{url} is not safe for credentials: https is wanted")),
    }
}

fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn at_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_speaks_for_its_own_place_and_what_is_beneath() {
        let check = |resource: &str, address: &str, expected: bool| {
            assert_eq!(covers(resource, &Url::parse(address).unwrap()), expected, "{resource} {address}");
        };
        check("https://a.org/mcp", "https://a.org/mcp", true);
        check("https://a.org/", "https://a.org/mcp", true);
        check("https://a.org", "https://a.org/x/mcp", true);
        check("https://a.org/mcp", "https://a.org/mcp2", false);
        check("https://a.org/mcp", "https://a.org/", false);
        check("http://a.org/mcp", "https://a.org/mcp", false);
        check("https://evil.org/mcp", "https://a.org/mcp", false);
        check("nonsense", "https://a.org/mcp", false);
    }

    #[test]
    fn credentials_go_nowhere_unencrypted_but_to_this_machine() {
        for good in ["https://a.org/", "http://localhost:1/", "http://127.0.0.1/", "http://[::1]/"] {
            let good = Url::parse(good).unwrap();
            assert!(safe(&good, &good).is_ok(), "{good}");
        }
        for bad in ["http://a.org/", "http://10.0.0.1/", "ftp://localhost/", "http://localhost.evil.org/"] {
            let bad = Url::parse(bad).unwrap();
            assert!(safe(&bad, &bad).is_err(), "{bad}");
        }
        let far = Url::parse("https://a.org/mcp").unwrap();
        for near in ["http://127.0.0.1/token", "https://localhost/token"] {
            let why = safe(&Url::parse(near).unwrap(), &far).unwrap_err();
            assert!(why.contains("on this machine"), "{why}");
        }
    }
}
