//! Agent cards from the client's view: what a reference points to, and how the agent can be reached.
//!
//! Only the fields that a client acts on are read; the rest stays JSON. `problems` validates a card against
//! A2A 1.0.

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

/// The only binding that this client implements.
const JSONRPC: &str = "JSONRPC";

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
    /// The interfaces that this client can use, in the server's order of preference.
    pub interfaces: Vec<AgentInterface>,
    /// All bindings that the card names.
    pub bindings: Vec<String>,
    /// Whether the agent streams.
    pub streaming: bool,
    /// URIs of the protocol extensions that the card names.
    pub extensions: Vec<String>,
    /// Where the agent expects an API key.
    pub api_key_place: Option<ApiKeyPlace>,
    /// The URL or path that the card was read from.
    pub at: String,
}

/// One JSON-RPC endpoint of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInterface {
    /// The endpoint.
    pub url: Url,
    /// The protocol version spoken there.
    pub dialect: Dialect,
    /// A routing identifier that every request must carry.
    pub tenant: Option<String>,
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
    let value: Value = serde_json::from_str(json.get()).map_err(|error| bad(error.to_string()))?;
    let card = AgentCard::read(&value, &at).map_err(bad)?;
    Ok(A2aResponse { json, value: card })
}

impl AgentCard {
    fn read(card: &Value, at: &str) -> Result<Self, String> {
        if !card.is_object() {
            return Err("expected an object".into());
        }
        let name = card["name"].as_str().ok_or("name: is required")?.to_owned();
        let interfaces: Vec<_> = interfaces_v1(card)?.into_iter().chain(interface_v0_3(card)).collect();
        let bindings = card["supportedInterfaces"].as_array().into_iter().flatten();
        let bindings = bindings.filter_map(|interface| interface["protocolBinding"].as_str());
        let bindings = bindings.chain(card["preferredTransport"].as_str()).map(str::to_owned);
        let extensions = card["capabilities"]["extensions"].as_array().into_iter().flatten();
        let extensions = extensions.filter_map(|extension| extension["uri"].as_str().map(str::to_owned));
        Ok(Self {
            name,
            interfaces,
            bindings: bindings.collect(),
            streaming: card["capabilities"]["streaming"].as_bool().unwrap_or(false),
            extensions: extensions.collect(),
            api_key_place: api_key_place(card),
            at: at.to_owned(),
        })
    }

    /// The first interface in the card's order that both sides can use.
    pub(super) fn pick(&self, preference: &InterfacePreference) -> Result<AgentInterface, A2aClientError> {
        let wanted = &preference.bindings;
        if !wanted.is_empty() && !wanted.iter().any(|binding| binding.eq_ignore_ascii_case(JSONRPC)) {
            // A preference is no reason to fail: if no preferred binding is usable, the card's order
            // applies.
            tracing::warn!("this client supports none of the requested bindings: using {JSONRPC}");
        }
        if let Some(found) = self.interfaces.iter().find(|interface| interface.dialect == preference.dialect)
        {
            return Ok(found.clone());
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
        if self.interfaces.is_empty() {
            let offered =
                if self.bindings.is_empty() { "no interface".into() } else { self.bindings.join(", ") };
            let why = format!("the agent offers {offered}; this client speaks {JSONRPC}");
            return Err(A2aClientError::NoCommonBinding(why));
        }
        let offered: Vec<_> = self.interfaces.iter().map(|interface| interface.dialect.version()).collect();
        let (offered, wanted) = (offered.join(", "), preference.dialect.version());
        Err(A2aClientError::NoCommonVersion(format!("the agent speaks A2A {offered}, not {wanted}")))
    }
}

fn interfaces_v1(card: &Value) -> Result<Vec<AgentInterface>, String> {
    let mut interfaces = vec![];
    for (index, entry) in card["supportedInterfaces"].as_array().into_iter().flatten().enumerate() {
        let text = |member: &str| entry[member].as_str().filter(|text| !text.is_empty());
        let version = text("protocolVersion").unwrap_or("1.0");
        // Other bindings may have addresses of another form, and later versions are for later clients.
        let (JSONRPC, Some(dialect)) = (text("protocolBinding").unwrap_or(JSONRPC), dialect_of(version))
        else {
            continue;
        };
        let member = format!("supportedInterfaces[{index}].url");
        let url = text("url").ok_or_else(|| format!("{member}: is required"))?;
        let url = Url::parse(url).map_err(|error| format!("{member}: {error}"))?;
        interfaces.push(AgentInterface { url, dialect, tenant: text("tenant").map(str::to_owned) });
    }
    Ok(interfaces)
}

/// The single interface that a card before 1.0 has.
fn interface_v0_3(card: &Value) -> Option<AgentInterface> {
    let url = Url::parse(card["url"].as_str()?).ok()?;
    let dialect =
        dialect_of(card["protocolVersion"].as_str().unwrap_or("0.3")).filter(|d| *d < Dialect::V1)?;
    let binding = card["preferredTransport"].as_str().unwrap_or(JSONRPC);
    (binding == JSONRPC).then_some(AgentInterface { url, dialect, tenant: None })
}

fn dialect_of(version: &str) -> Option<Dialect> {
    match version.split('.').next()? {
        "1" => Some(Dialect::V1),
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

/// What A2A 1.0 requires and the card lacks, each with its JSON path.
pub fn problems(card: &Value) -> Vec<String> {
    let mut problems = vec![];
    let mut require = |at: String, fits: bool, what: &str| {
        if !fits {
            problems.push(format!("{at}: expected {what}"));
        }
    };
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    for member in ["name", "description", "version"] {
        require(member.into(), text(&card[member]), "a string");
    }
    require("capabilities".into(), card["capabilities"].is_object(), "an object");
    for member in ["defaultInputModes", "defaultOutputModes"] {
        require(member.into(), texts(&card[member]), "a list of media types");
    }
    let listed = |member: &str| card[member].as_array().cloned().unwrap_or_default();
    require(
        "supportedInterfaces".into(),
        !listed("supportedInterfaces").is_empty(),
        "at least one interface",
    );
    for (index, interface) in listed("supportedInterfaces").iter().enumerate() {
        for member in ["url", "protocolBinding", "protocolVersion"] {
            require(format!("supportedInterfaces[{index}].{member}"), text(&interface[member]), "a string");
        }
    }
    require("skills".into(), card["skills"].is_array(), "a list");
    for (index, skill) in listed("skills").iter().enumerate() {
        for member in ["id", "name", "description"] {
            require(format!("skills[{index}].{member}"), text(&skill[member]), "a string");
        }
        require(format!("skills[{index}].tags"), texts(&skill["tags"]), "a list of strings");
    }
    problems
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

    #[test]
    fn problems_have_places() {
        let found = problems(&json!({ "name": "a", "skills": [{ "id": "s", "name": "s", "tags": [1] }] }));
        for expected in ["description: expected a string", "skills[0].tags: expected a list of strings"] {
            assert!(found.iter().any(|problem| problem == expected), "{found:?}");
        }
    }
}
