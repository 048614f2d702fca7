//! Agent cards from the client's view: what a reference points to, and how the agent can be reached.
//!
//! Only the fields that a client acts on are read; the rest stays JSON. `validation` checks a whole card.

use std::{path::PathBuf, sync::Arc};

use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    A2aClientError, A2aCredentials, A2aHttpOptions, A2aResponse, AgentInterface, ApiKeyPlace, CardCache,
    CardFreshness,
    catalog::{self, CatalogCard},
    interface::NamedInterfaces,
};

/// The well-known path of a host's agent card.
pub const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// A user's reference to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardReference {
    /// The exact URL of a card.
    Url(Url),
    /// A file on this machine.
    File(PathBuf),
    /// An entry of a catalog, which is at a URL or in a file.
    Entry {
        /// The catalog.
        catalog: Box<CardReference>,
        /// The name of the entry, or its identifier.
        name: String,
    },
}

impl CardReference {
    /// Parses a reference: a host or an origin (the well-known path is appended), the URL of a card, a
    /// file, or `CATALOG#NAME` for an entry of a catalog that is at a URL or in a file.
    ///
    /// Text without a scheme is a file if one of that name exists or if it looks like a path; otherwise it
    /// is a host.
    pub fn parse(text: &str) -> Result<Self, A2aClientError> {
        if let Some((catalog, name)) = text.rsplit_once('#').filter(|(_, name)| !name.is_empty())
            && !PathBuf::from(text).is_file()
        {
            let catalog = match Self::parse(catalog)? {
                // A catalog has no well-known path here: what was written is meant.
                Self::Url(url) if url.path() == WELL_KNOWN && !catalog.ends_with(WELL_KNOWN) => {
                    let mut url = url;
                    url.set_path("/");
                    Self::Url(url)
                }
                other => other,
            };
            return Ok(Self::Entry { catalog: Box::new(catalog), name: name.to_owned() });
        }
        let no_card = |why: String| A2aClientError::NoCard { at: text.to_owned(), why };
        if text.starts_with("file://") {
            let url = Url::parse(text).map_err(|error| no_card(error.to_string()))?;
            let path = url.to_file_path().map_err(|()| no_card("not a path on this machine".into()))?;
            return Ok(Self::File(path));
        }
        if !text.contains("://") {
            let path = PathBuf::from(text);
            if path.is_file() || text.starts_with(['/', '.', '~']) || text.ends_with(".json") {
                return Ok(Self::File(path));
            }
        }
        let with_scheme = if text.contains("://") { text.to_owned() } else { host_with_scheme(text) };
        let url = Url::parse(&with_scheme).map_err(|error| no_card(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(no_card("a reference is a host, a URL with http or https, or a file".into()));
        }
        Ok(Self::of_url(url))
    }

    /// The card of one agent on a server that has several.
    pub fn of_agent(server: &Url, agent: &str) -> Self {
        let mut url = server.clone();
        url.set_path(&format!("/agents/{agent}{WELL_KNOWN}"));
        url.set_query(None);
        Self::Url(url)
    }

    /// The URL that the user named: that of the card, or that of the catalog.
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url),
            Self::File(_) => None,
            Self::Entry { catalog, .. } => catalog.url(),
        }
    }

    fn of_url(mut url: Url) -> Self {
        if matches!(url.path(), "" | "/") && url.query().is_none() {
            url.set_path(WELL_KNOWN);
        }
        Self::Url(url)
    }
}

impl std::fmt::Display for CardReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url.as_str()),
            Self::File(path) => path.display().fmt(f),
            Self::Entry { catalog, name } => write!(f, "{catalog}#{name}"),
        }
    }
}

/// A host on this machine gets `http`, because it most likely has no TLS; any other gets `https`.
fn host_with_scheme(text: &str) -> String {
    let host = text.split(['/', '?']).next().unwrap_or(text);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let local = matches!(name, "localhost" | "127.0.0.1" | "[::1]");
    format!("{}://{text}", if local { "http" } else { "https" })
}

/// The fields of a card that a client acts on.
#[derive(Debug, Clone)]
pub struct AgentCard {
    /// The agent's name.
    pub name: String,
    /// The interfaces that this client can use, in the server's order of preference.
    pub interfaces: Vec<AgentInterface>,
    /// All bindings that the card names.
    pub bindings: Vec<String>,
    /// The protocol versions of interfaces that this client could use if it spoke them.
    pub unknown_versions: Vec<String>,
    /// Whether the agent streams.
    pub streaming: bool,
    /// Whether the agent sends push notifications.
    pub push_notifications: bool,
    /// Whether the agent has an extended card for authenticated callers.
    pub extended_card: bool,
    /// URIs of the protocol extensions that the card names.
    pub extensions: Vec<String>,
    /// Those of them without which the agent takes no request.
    pub required_extensions: Vec<String>,
    /// Whether a declared security scheme takes a bearer token.
    pub takes_bearer: bool,
    /// Where the agent expects an API key.
    pub api_key_place: Option<ApiKeyPlace>,
    /// The URL or path that the card was read from.
    pub at: String,
}

pub(super) async fn fetch(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
    cache: &CardCache,
    freshness: CardFreshness,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    if let CardReference::Entry { catalog, name } = reference {
        let bytes = fetch_bytes(catalog, options, credentials, cache, freshness).await?;
        let at = reference.to_string();
        return match catalog::find(&bytes, name, &at, catalog.url())? {
            CatalogCard::Here(json) => AgentCard::parse(&json, &at).map(|value| A2aResponse { json, value }),
            CatalogCard::At(url) => {
                // The credentials are for the catalog's origin, which the user named.
                let same = catalog.url().is_some_and(|catalog| catalog.origin() == url.origin());
                let none = A2aCredentials::default();
                let credentials = if same { credentials } else { &none };
                read(&CardReference::Url(url), options, credentials, cache, freshness).await
            }
        };
    }
    read(reference, options, credentials, cache, freshness).await
}

/// The card that is at a URL or in a file.
async fn read(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
    cache: &CardCache,
    freshness: CardFreshness,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    let at = reference.to_string();
    let bytes = fetch_bytes(reference, options, credentials, cache, freshness).await?;
    let bad = |why: String| A2aClientError::BadCard { at: at.clone(), why };
    let json: Box<RawValue> =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("not JSON: {error}")))?;
    let value = AgentCard::parse(&json, &at)?;
    Ok(A2aResponse { json, value })
}

async fn fetch_bytes(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
    cache: &CardCache,
    freshness: CardFreshness,
) -> Result<Arc<[u8]>, A2aClientError> {
    let at = reference.to_string();
    let no_card = |why: String| A2aClientError::NoCard { at: at.clone(), why };
    match reference {
        CardReference::File(path) => {
            std::fs::read(path).map(Arc::from).map_err(|error| no_card(error.to_string()))
        }
        CardReference::Url(url) => {
            let fetched = cache.fetch(url, options, credentials, freshness).await;
            fetched.map_err(|error| match error {
                A2aClientError::Http { status, body, .. } => {
                    let why =
                        if body.is_empty() || status == 404 { String::new() } else { format!(": {body}") };
                    no_card(format!("HTTP {status}{why}"))
                }
                other => other,
            })
        }
        CardReference::Entry { .. } => Err(no_card("a catalog is not an entry of another one".to_owned())),
    }
}

impl AgentCard {
    /// Parses a card that was read from that URL or path.
    pub(super) fn parse(json: &RawValue, at: &str) -> Result<Self, A2aClientError> {
        let value: Result<Value, _> = serde_json::from_str(json.get());
        let card = value.map_err(|error| error.to_string()).and_then(|value| Self::read(&value, at));
        card.map_err(|why| A2aClientError::BadCard { at: at.to_owned(), why })
    }

    pub(super) fn read(card: &Value, at: &str) -> Result<Self, String> {
        if !card.is_object() {
            return Err("expected an object".into());
        }
        let name = card["name"].as_str().ok_or("name: is required")?.to_owned();
        let NamedInterfaces { usable, unknown_versions, bindings, .. } = NamedInterfaces::read(card, at)?;
        let capabilities = &card["capabilities"];
        let extensions: Vec<_> = capabilities["extensions"].as_array().into_iter().flatten().collect();
        let uri = |extension: &&Value| extension["uri"].as_str().map(str::to_owned);
        let required = extensions.iter().filter(|extension| extension["required"] == true).filter_map(uri);
        let has = |capability: &Value| capability.as_bool().unwrap_or(false);
        Ok(Self {
            name,
            interfaces: usable,
            bindings,
            unknown_versions,
            streaming: has(&capabilities["streaming"]),
            push_notifications: has(&capabilities["pushNotifications"]),
            extended_card: has(&capabilities["extendedAgentCard"])
                || has(&card["supportsAuthenticatedExtendedCard"]),
            required_extensions: required.collect(),
            extensions: extensions.iter().filter_map(uri).collect(),
            takes_bearer: takes_bearer(card),
            api_key_place: api_key_place(card),
            at: at.to_owned(),
        })
    }
}

fn api_key_place(card: &Value) -> Option<ApiKeyPlace> {
    let schemes = card["securitySchemes"].as_object()?;
    schemes.values().find_map(|scheme| {
        let (place, name) = match &scheme["apiKeySecurityScheme"] {
            Value::Object(key) => (key.get("location")?.as_str()?, key.get("name")?.as_str()?),
            _ if scheme["type"] == "apiKey" => (scheme["in"].as_str()?, scheme["name"].as_str()?),
            _ => return None,
        };
        match place {
            "header" => Some(ApiKeyPlace::Header(name.to_owned())),
            "query" => Some(ApiKeyPlace::Query(name.to_owned())),
            "cookie" => Some(ApiKeyPlace::Cookie(name.to_owned())),
            _ => None,
        }
    })
}

/// Whether a scheme of the card takes a bearer token: HTTP authentication, OAuth, or OpenID Connect.
fn takes_bearer(card: &Value) -> bool {
    let schemes = card["securitySchemes"].as_object().into_iter().flatten();
    schemes.into_iter().any(|(_, scheme)| {
        let http = &scheme["httpAuthSecurityScheme"]["scheme"];
        let http = http.as_str().or_else(|| scheme["scheme"].as_str().filter(|_| scheme["type"] == "http"));
        http.is_some_and(|name| name.eq_ignore_ascii_case("bearer"))
            || scheme["oauth2SecurityScheme"].is_object()
            || scheme["openIdConnectSecurityScheme"].is_object()
            || scheme["type"] == "oauth2"
            || scheme["type"] == "openIdConnect"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references() {
        let check = |text: &str, expected: &str| {
            let got = CardReference::parse(text).map_or_else(|error| error.to_string(), |r| r.to_string());
            assert_eq!(got, expected, "{text}");
        };
        check("http://127.0.0.1:8080", "http://127.0.0.1:8080/.well-known/agent-card.json");
        check("https://agent.example/", "https://agent.example/.well-known/agent-card.json");
        check("localhost:9", "http://localhost:9/.well-known/agent-card.json");
        check("127.0.0.1:9", "http://127.0.0.1:9/.well-known/agent-card.json");
        check("agent.example", "https://agent.example/.well-known/agent-card.json");
        check("https://agent.example/my/card.json", "https://agent.example/my/card.json");
        check("https://agent.example/?x=1", "https://agent.example/?x=1");
        check("./card.json", "./card.json");
        check("file:///tmp/card.json", "/tmp/card.json");
        check("https://r.example/agents#weather", "https://r.example/agents#weather");
        check("https://r.example#weather", "https://r.example/#weather");
        check("./catalog.json#weather", "./catalog.json#weather");
        check(
            "ftp://agent.example",
            "there is no agent card at ftp://agent.example: a reference is a host, a URL with http or https, or a file",
        );
    }

    #[test]
    fn an_api_key_goes_where_the_card_says() {
        let check = |scheme: Value, expected: Option<ApiKeyPlace>| {
            let card = json!({ "name": "a", "securitySchemes": { "k": scheme } });
            assert_eq!(AgentCard::read(&card, "").unwrap().api_key_place, expected);
        };
        check(
            json!({ "apiKeySecurityScheme": { "location": "query", "name": "key" } }),
            Some(ApiKeyPlace::Query("key".into())),
        );
        check(
            json!({ "type": "apiKey", "in": "header", "name": "X-K" }),
            Some(ApiKeyPlace::Header("X-K".into())),
        );
        check(json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } }), None);
    }
}
