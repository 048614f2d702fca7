//! Agent cards from the client's view: what a reference points to, and how the agent can be reached.
//!
//! Only the fields that a client acts on are read; the rest stays JSON. `validation` checks a whole card.

use std::path::PathBuf;

use nuncio_wire::a2a::Dialect;
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    A2aClientError, A2aCredentials, A2aResponse, ApiKeyPlace, InterfacePreference,
    http::{A2aHttp, A2aHttpOptions},
};

/// The well-known path of a host's agent card.
pub const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// The names of the bindings that this client implements.
const JSONRPC: &str = "JSONRPC";
const HTTP_JSON: &str = "HTTP+JSON";

/// A binding of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum A2aBinding {
    /// `JSONRPC`
    JsonRpc,
    /// `HTTP+JSON`
    HttpJson,
}

impl A2aBinding {
    /// Its name in a card.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => JSONRPC,
            Self::HttpJson => HTTP_JSON,
        }
    }
}

/// A user's reference to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardReference {
    /// The exact URL of a card.
    Url(Url),
    /// A file on this machine.
    File(PathBuf),
}

impl CardReference {
    /// Parses a reference: a host or an origin (the well-known path is appended), the URL of a card, or a
    /// file.
    ///
    /// Text without a scheme is a file if one of that name exists or if it looks like a path; otherwise it
    /// is a host.
    pub fn parse(text: &str) -> Result<Self, A2aClientError> {
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
    /// The JSON-RPC interfaces that this client can use, in the server's order of preference.
    pub interfaces: Vec<AgentInterface>,
    /// The HTTP+JSON interfaces of 1.0.
    pub http_json: Vec<AgentInterface>,
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

/// One endpoint of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInterface {
    /// The endpoint.
    pub url: Url,
    /// The protocol version spoken there.
    pub dialect: Dialect,
    /// A routing identifier that every request must carry.
    pub tenant: Option<String>,
    /// The binding spoken there.
    pub binding: A2aBinding,
    /// Its place in the card's order of preference.
    pub position: usize,
}

pub(super) async fn fetch(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    let at = reference.to_string();
    let bytes = match reference {
        CardReference::File(path) => std::fs::read(path)
            .map_err(|error| A2aClientError::NoCard { at: at.clone(), why: error.to_string() })?,
        CardReference::Url(url) => {
            let http = A2aHttp::new(options, url)?.with_credentials(credentials)?;
            let fetched = http.get(url, "application/json").await;
            fetched.map_err(|error| match error {
                A2aClientError::Http { status, body, .. } => {
                    let why =
                        if body.is_empty() || status == 404 { String::new() } else { format!(": {body}") };
                    A2aClientError::NoCard { at: at.clone(), why: format!("HTTP {status}{why}") }
                }
                other => other,
            })?
        }
    };
    let bad = |why: String| A2aClientError::BadCard { at: at.clone(), why };
    let json: Box<RawValue> =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("not JSON: {error}")))?;
    let value = AgentCard::parse(&json, &at)?;
    Ok(A2aResponse { json, value })
}

impl AgentCard {
    /// Parses a card that was read from that URL or path.
    pub(super) fn parse(json: &RawValue, at: &str) -> Result<Self, A2aClientError> {
        let value: Result<Value, _> = serde_json::from_str(json.get());
        let card = value.map_err(|error| error.to_string()).and_then(|value| Self::read(&value, at));
        card.map_err(|why| A2aClientError::BadCard { at: at.to_owned(), why })
    }

    fn read(card: &Value, at: &str) -> Result<Self, String> {
        if !card.is_object() {
            return Err("expected an object".into());
        }
        let name = card["name"].as_str().ok_or("name: is required")?.to_owned();
        let (mut interfaces, unknown_versions) = interfaces_v1(card)?;
        let is_http_json = |one: &AgentInterface| one.binding == A2aBinding::HttpJson;
        let http_json = interfaces.iter().filter(|one| is_http_json(one)).cloned().collect();
        interfaces.retain(|one| !is_http_json(one));
        interfaces.extend(interface_v0_3(card));
        let bindings = card["supportedInterfaces"].as_array().into_iter().flatten();
        let bindings = bindings.filter_map(|interface| interface["protocolBinding"].as_str());
        let bindings = bindings.chain(card["preferredTransport"].as_str()).map(str::to_owned);
        let capabilities = &card["capabilities"];
        let extensions: Vec<_> = capabilities["extensions"].as_array().into_iter().flatten().collect();
        let uri = |extension: &&Value| extension["uri"].as_str().map(str::to_owned);
        let required = extensions.iter().filter(|extension| extension["required"] == true).filter_map(uri);
        let has = |capability: &Value| capability.as_bool().unwrap_or(false);
        Ok(Self {
            name,
            interfaces,
            http_json,
            bindings: bindings.collect(),
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

    /// The first interface in the card's order that both sides can use.
    pub(super) fn pick(&self, preference: &InterfacePreference) -> Result<AgentInterface, A2aClientError> {
        let spoken = if preference.http_json { "JSONRPC and HTTP+JSON" } else { JSONRPC };
        let mut usable: Vec<_> = self.interfaces.iter().collect();
        usable.extend(self.http_json.iter().filter(|_| preference.http_json));
        usable.retain(|interface| interface.dialect == preference.dialect);
        usable.sort_by_key(|interface| interface.position);
        let preferred = preference.bindings.iter().find_map(|wanted| {
            usable.iter().find(|interface| wanted.eq_ignore_ascii_case(interface.binding.name()))
        });
        if preferred.is_none() && !preference.bindings.is_empty() {
            // A preference is no reason to fail: if no preferred binding is usable, the card's order
            // applies.
            tracing::warn!("none of the requested bindings can be used: the card's order applies");
        }
        if let Some(found) = preferred.or(usable.first()) {
            return Ok((*found).clone());
        }
        // Cards of 0.1 name no version. A caller that asks for 0.1 takes the card's only address to speak
        // it.
        let unnamed =
            |interface: &&AgentInterface| interface.dialect == Dialect::V0_3 && interface.tenant.is_none();
        if preference.dialect == Dialect::V0_1
            && let Some(found) = self.interfaces.iter().rev().find(unnamed)
        {
            return Ok(AgentInterface { dialect: Dialect::V0_1, ..found.clone() });
        }
        if self.interfaces.is_empty() && self.unknown_versions.is_empty() {
            let offered =
                if self.bindings.is_empty() { "no interface".into() } else { self.bindings.join(", ") };
            let why = format!("the agent offers {offered}; this client speaks {spoken}");
            return Err(A2aClientError::NoCommonBinding(why));
        }
        let offered = self.interfaces.iter().map(|interface| interface.dialect.version());
        let offered: Vec<_> = offered.chain(self.unknown_versions.iter().map(String::as_str)).collect();
        Err(A2aClientError::NoCommonVersion {
            offered: offered.join(", "),
            wanted: preference.dialect.version(),
            is_known: !self.interfaces.is_empty(),
        })
    }
}

/// The usable interfaces of a card of 1.0, and the versions of those that only another client can use.
fn interfaces_v1(card: &Value) -> Result<(Vec<AgentInterface>, Vec<String>), String> {
    let (mut interfaces, mut unknown) = (vec![], vec![]);
    for (index, entry) in card["supportedInterfaces"].as_array().into_iter().flatten().enumerate() {
        let text = |member: &str| entry[member].as_str().filter(|text| !text.is_empty());
        let version = text("protocolVersion").unwrap_or("1.0");
        // Other bindings may have addresses of another form.
        let binding = match text("protocolBinding").unwrap_or(JSONRPC) {
            JSONRPC => A2aBinding::JsonRpc,
            HTTP_JSON => A2aBinding::HttpJson,
            _ => continue,
        };
        let dialect = match (dialect_of(version), binding) {
            (Some(Dialect::V1), A2aBinding::HttpJson) => Dialect::V1,
            (Some(dialect), A2aBinding::JsonRpc) => dialect,
            (None, A2aBinding::JsonRpc) => {
                unknown.push(version.to_owned());
                continue;
            }
            (_, A2aBinding::HttpJson) => continue,
        };
        let member = format!("supportedInterfaces[{index}].url");
        let url = text("url").ok_or_else(|| format!("{member}: is required"))?;
        let url = Url::parse(url).map_err(|error| format!("{member}: {error}"))?;
        let tenant = text("tenant").map(str::to_owned);
        interfaces.push(AgentInterface { url, dialect, tenant, binding, position: index });
    }
    Ok((interfaces, unknown))
}

/// The single interface that a card before 1.0 has.
fn interface_v0_3(card: &Value) -> Option<AgentInterface> {
    let url = Url::parse(card["url"].as_str()?).ok()?;
    let dialect =
        dialect_of(card["protocolVersion"].as_str().unwrap_or("0.3")).filter(|d| *d < Dialect::V1)?;
    let binding = card["preferredTransport"].as_str().unwrap_or(JSONRPC);
    (binding == JSONRPC).then_some(AgentInterface {
        url,
        dialect,
        tenant: None,
        binding: A2aBinding::JsonRpc,
        position: usize::MAX,
    })
}

/// The dialect of a version. A patch version changes nothing on the wire (A2A 1.0, section 3.6); a later minor version
/// may, and is not taken for 1.0.
fn dialect_of(version: &str) -> Option<Dialect> {
    let mut numbers = version.split('.');
    match numbers.next()? {
        "1" if numbers.next().is_none_or(|minor| minor == "0") => Some(Dialect::V1),
        "0" if version.starts_with("0.1") => Some(Dialect::V0_1),
        "0" => Some(Dialect::V0_3),
        _ => None,
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
        check(
            "ftp://agent.example",
            "there is no agent card at ftp://agent.example: a reference is a host, a URL with http or https, or a file",
        );
    }

    fn card(interfaces: &Value) -> AgentCard {
        AgentCard::read(&json!({ "name": "a", "supportedInterfaces": interfaces }), "here").unwrap()
    }

    #[test]
    fn the_first_usable_interface_is_picked() {
        let interface = |url: &str, binding: &str, version: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version, "tenant": "t" });
        let card = card(&json!([
            interface("grpc.example:443", "GRPC", "1.0"),
            interface("http://a/old", "JSONRPC", "0.3"),
            interface("http://a/new", "JSONRPC", "1.0"),
        ]));
        let picked = card.pick(&InterfacePreference::default()).unwrap();
        assert_eq!((picked.url.as_str(), picked.tenant.as_deref()), ("http://a/new", Some("t")));
        let older = InterfacePreference { dialect: Dialect::V0_3, ..InterfacePreference::default() };
        assert_eq!(card.pick(&older).unwrap().url.as_str(), "http://a/old");
    }

    #[test]
    fn what_cannot_be_spoken_is_said() {
        let interfaces =
            json!([{ "url": "http://a/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" }]);
        let refused = card(&interfaces).pick(&InterfacePreference::default()).unwrap_err();
        assert_eq!(refused.to_string(), "the agent speaks A2A 0.3, not 1.0");
        let interfaces =
            json!([{ "url": "http://a/", "protocolBinding": "JSONRPC", "protocolVersion": "1.1" }]);
        let refused = card(&interfaces).pick(&InterfacePreference::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the agent speaks A2A 1.1, not 1.0; this client speaks 1.0, 0.3 and 0.1"
        );
        let refused = card(&json!([])).pick(&InterfacePreference::default()).unwrap_err();
        assert_eq!(refused.to_string(), "the agent offers no interface; this client speaks JSONRPC");
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
