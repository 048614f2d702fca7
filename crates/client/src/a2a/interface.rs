//! An agent's interfaces: where a card says that it can be called, and which of them a client uses, in which order.
//!
//! The card's order is its author's preference. A client leaves out what it does not speak and what its user did not
//! choose; what remains is tried in that order, see [`A2aClient`](super::A2aClient).

use nuncio_outbound::ProxyRule;
use nuncio_wire::a2a::Dialect;
use serde_json::Value;
use url::Url;

use super::{A2aClientError, AgentCard};

/// A binding of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum A2aBinding {
    /// `JSONRPC`
    JsonRpc,
    /// `HTTP+JSON`
    HttpJson,
    /// `GRPC`
    Grpc,
}

impl A2aBinding {
    /// The bindings that this client speaks.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// Its name in a card.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }

    /// The binding of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|binding| binding.name().eq_ignore_ascii_case(name))
    }

    /// Whether a protocol version has this binding, and this client speaks it.
    fn speaks(self, dialect: Dialect) -> bool {
        match self {
            Self::JsonRpc => true,
            Self::HttpJson | Self::Grpc => dialect >= Dialect::V0_3,
        }
    }

    /// The names of the bindings that this client speaks, for messages.
    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
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
}

/// Which of an agent's interfaces to use.
#[derive(Debug, Clone)]
pub struct InterfacePreference {
    /// Names of bindings, best first; empty: the card's order.
    pub bindings: Vec<String>,
    /// Whether only these bindings may be used. Otherwise the card's order applies if it has none of them.
    pub only: bool,
    /// The protocol version to speak.
    pub dialect: Dialect,
}

impl Default for InterfacePreference {
    fn default() -> Self {
        Self { bindings: vec![], only: false, dialect: Dialect::V1 }
    }
}

/// The interfaces that a card names.
pub(super) struct NamedInterfaces {
    /// Those that this client can use, in the card's order.
    pub(super) usable: Vec<AgentInterface>,
    /// The protocol versions of those that it could use if it spoke them.
    pub(super) unknown_versions: Vec<String>,
    /// All bindings.
    pub(super) bindings: Vec<String>,
    /// Whether the card was fetched over TLS; `None`: it was not fetched.
    is_secure: Option<bool>,
}

impl NamedInterfaces {
    /// Reads the interfaces of a card that was read from there.
    pub(super) fn read(card: &Value, from: &str) -> Result<Self, String> {
        let is_secure = is_secure(from);
        let mut named = Self { usable: vec![], unknown_versions: vec![], bindings: vec![], is_secure };
        for (index, entry) in listed(card, "supportedInterfaces").enumerate() {
            let at = format!("supportedInterfaces[{index}].url");
            named.add(entry, "protocolBinding", text(entry, "protocolVersion").unwrap_or("1.0"), &at)?;
        }
        // The members of cards before 1.0. A card for both generations has its interfaces of 0.3 twice.
        let version = text(card, "protocolVersion").unwrap_or("0.3");
        if Dialect::from_version(version).is_none_or(|dialect| dialect < Dialect::V1) {
            // A URL that is none is no reason to refuse a card that names others.
            let _ = named.add(card, "preferredTransport", version, "url");
            for entry in listed(card, "additionalInterfaces") {
                let _ = named.add(entry, "transport", version, "additionalInterfaces");
            }
        }
        Ok(named)
    }

    fn add(&mut self, entry: &Value, binding: &str, version: &str, at: &str) -> Result<(), String> {
        if entry["url"].is_null() && binding == "preferredTransport" {
            return Ok(());
        }
        let name = text(entry, binding).unwrap_or(A2aBinding::JsonRpc.name());
        self.bindings.push(name.to_owned());
        // Other bindings may have addresses of another form.
        let Some(binding) = A2aBinding::ALL.into_iter().find(|known| known.name() == name) else {
            return Ok(());
        };
        let Some(dialect) = Dialect::from_version(version) else {
            self.unknown_versions.push(version.to_owned());
            return Ok(());
        };
        let tenant = text(entry, "tenant").map(str::to_owned);
        // A routing identifier has no place in the requests of 0.3 over these bindings.
        let is_addressable = tenant.is_none() || dialect >= Dialect::V1 || binding == A2aBinding::JsonRpc;
        if !binding.speaks(dialect) || !is_addressable {
            return Ok(());
        }
        let url = text(entry, "url").ok_or_else(|| format!("{at}: is required"))?;
        let url = match binding {
            A2aBinding::Grpc => match grpc_url(url, self.is_secure) {
                Some(url) => url,
                // A name that another resolver knows: no reason to refuse the other interfaces.
                None => return Ok(()),
            },
            _ => Url::parse(url).map_err(|error| format!("{at}: {error}"))?,
        };
        let found = AgentInterface { url, dialect, tenant, binding };
        if !self.usable.contains(&found) {
            self.usable.push(found);
        }
        Ok(())
    }
}

/// Whether a card was fetched over TLS, by the URL that it was read from.
fn is_secure(from: &str) -> Option<bool> {
    match Url::parse(from).ok()?.scheme() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    }
}

/// The URL of a gRPC interface, whose address is `host:port`: with TLS where the card came with it, so that nobody who
/// can read the network can turn it off; and for a card from a file wherever the port or the host does not say otherwise.
fn grpc_url(text: &str, is_secure: Option<bool>) -> Option<Url> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let scheme = match scheme {
            "http" | "grpc" => "http",
            "https" | "grpcs" => "https",
            _ => return None,
        };
        return Url::parse(&format!("{scheme}://{rest}")).ok().filter(Url::has_host);
    }
    // A path is one of a socket, or of another kind of name.
    let text = text.trim_end_matches('/');
    let url =
        Url::parse(&format!("https://{text}")).ok().filter(|url| url.has_host() && !text.contains('/'))?;
    let is_here = matches!(ProxyRule::unless_loopback(&url), ProxyRule::Never);
    let plain = match is_secure {
        // The default port is left out of a parsed URL.
        _ if url.port().is_none() => false,
        Some(is_secure) => !is_secure,
        None => is_here,
    };
    if plain { Url::parse(&format!("http://{text}")).ok() } else { Some(url) }
}

fn text<'a>(entry: &'a Value, member: &str) -> Option<&'a str> {
    entry[member].as_str().filter(|text| !text.is_empty())
}

fn listed<'a>(card: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    card[member].as_array().into_iter().flatten()
}

impl AgentCard {
    /// The interfaces that both sides can use, best first: never none.
    pub(super) fn choose(
        &self,
        preference: &InterfacePreference,
    ) -> Result<Vec<AgentInterface>, A2aClientError> {
        let mut usable: Vec<AgentInterface> =
            self.interfaces.iter().filter(|one| one.dialect == preference.dialect).cloned().collect();
        // Cards of 0.1 name no version. A caller that asks for 0.1 takes the card's only address to speak it.
        if usable.is_empty() && preference.dialect == Dialect::V0_1 {
            usable.extend(self.unnamed_version());
        }
        if usable.is_empty() {
            return Err(self.nothing_in_common(preference));
        }
        if preference.bindings.is_empty() {
            return Ok(usable);
        }
        let wanted = |name: &String| {
            usable
                .iter()
                .filter(|one| name.eq_ignore_ascii_case(one.binding.name()))
                .cloned()
                .collect::<Vec<_>>()
        };
        let chosen: Vec<_> = preference.bindings.iter().flat_map(wanted).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        if preference.only {
            let offered: Vec<_> = usable.iter().map(|one| one.binding.name()).collect();
            let (offered, wanted) = (offered.join(", "), preference.bindings.join(", "));
            return Err(A2aClientError::NoCommonBinding(format!("the agent offers {offered}, not {wanted}")));
        }
        // A preference is no reason to fail.
        tracing::warn!("none of the requested bindings can be used: the card's order applies");
        Ok(usable)
    }

    /// The address of a card that may be one of 0.1.
    fn unnamed_version(&self) -> Option<AgentInterface> {
        let may_be = |one: &&AgentInterface| {
            one.dialect == Dialect::V0_3 && one.tenant.is_none() && one.binding == A2aBinding::JsonRpc
        };
        let found = self.interfaces.iter().rev().find(may_be)?;
        Some(AgentInterface { dialect: Dialect::V0_1, ..found.clone() })
    }

    fn nothing_in_common(&self, preference: &InterfacePreference) -> A2aClientError {
        if self.interfaces.is_empty() && self.unknown_versions.is_empty() {
            let offered =
                if self.bindings.is_empty() { "no interface".into() } else { self.bindings.join(", ") };
            let spoken = A2aBinding::names();
            return A2aClientError::NoCommonBinding(format!(
                "the agent offers {offered}; this client speaks {spoken}"
            ));
        }
        let mut offered: Vec<&str> = vec![];
        let known = self.interfaces.iter().map(|interface| interface.dialect.version());
        for version in known.chain(self.unknown_versions.iter().map(String::as_str)) {
            if !offered.contains(&version) {
                offered.push(version);
            }
        }
        A2aClientError::NoCommonVersion {
            offered: offered.join(", "),
            wanted: preference.dialect.version(),
            is_known: !self.interfaces.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(members: &Value) -> AgentCard {
        let mut card = json!({ "name": "a" });
        for (name, value) in members.as_object().unwrap() {
            card[name] = value.clone();
        }
        AgentCard::read(&card, "http://a/card").unwrap()
    }

    fn interface(url: &str, binding: &str, version: &str) -> Value {
        json!({ "url": url, "protocolBinding": binding, "protocolVersion": version, "tenant": "t" })
    }

    fn preference(bindings: &[&str], only: bool, dialect: Dialect) -> InterfacePreference {
        InterfacePreference {
            bindings: bindings.iter().map(|&name| name.to_owned()).collect(),
            only,
            dialect,
        }
    }

    #[test]
    fn the_cards_order_applies_to_what_both_sides_speak() {
        let card = card(&json!({ "supportedInterfaces": [
            interface("carrier-pigeon", "PIGEON", "1.0"),
            interface("http://a/old", "JSONRPC", "0.3"),
            interface("http://a/rest", "HTTP+JSON", "1.0.1"),
            interface("http://a/new", "JSONRPC", "1.0"),
        ] }));
        let check = |preference: &InterfacePreference, expected: Result<&[&str], &str>| {
            let chosen = card.choose(preference).map_err(|error| error.to_string());
            let urls = chosen.map(|all| all.iter().map(|one| one.url.to_string()).collect::<Vec<_>>());
            assert_eq!(
                urls,
                expected.map(|all| all.iter().map(|&url| url.to_owned()).collect()).map_err(str::to_owned)
            );
        };
        check(&preference(&[], false, Dialect::V1), Ok(&["http://a/rest", "http://a/new"]));
        check(&preference(&[], false, Dialect::V0_3), Ok(&["http://a/old"]));
        check(&preference(&["jsonrpc"], false, Dialect::V1), Ok(&["http://a/new"]));
        check(
            &preference(&["JSONRPC", "HTTP+JSON"], true, Dialect::V1),
            Ok(&["http://a/new", "http://a/rest"]),
        );
        check(&preference(&["PIGEON"], false, Dialect::V1), Ok(&["http://a/rest", "http://a/new"]));
        check(
            &preference(&["HTTP+JSON"], true, Dialect::V0_3),
            Err("the agent offers JSONRPC, not HTTP+JSON"),
        );
        assert_eq!(card.choose(&InterfacePreference::default()).unwrap()[0].tenant.as_deref(), Some("t"));
    }

    #[test]
    fn what_cannot_be_spoken_is_refused_by_its_name() {
        let check = |interfaces: Value, expected: &str| {
            let card = card(&json!({ "supportedInterfaces": interfaces }));
            let refused = card.choose(&InterfacePreference::default()).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        };
        check(json!([interface("http://a/", "JSONRPC", "0.3")]), "the agent speaks A2A 0.3, not 1.0");
        for version in ["1.1", "0.9", "2.0", "one"] {
            check(
                json!([interface("http://a/", "HTTP+JSON", version)]),
                &format!("the agent speaks A2A {version}, not 1.0; this client speaks 1.0, 0.3 and 0.1"),
            );
        }
        check(json!([]), "the agent offers no interface; this client speaks JSONRPC, HTTP+JSON, GRPC");
        check(
            json!([interface("x", "PIGEON", "1.0")]),
            "the agent offers PIGEON; this client speaks JSONRPC, HTTP+JSON, GRPC",
        );
    }

    #[test]
    fn a_grpc_interface_is_a_host_and_a_port_and_has_tls_where_the_card_had_it() {
        let check = |text: &str, is_secure: Option<bool>, expected: Option<&str>| {
            assert_eq!(grpc_url(text, is_secure).as_ref().map(Url::as_str), expected, "{text}");
        };
        check("a.example:50051", Some(true), Some("https://a.example:50051/"));
        check("a.example:50051", Some(false), Some("http://a.example:50051/"));
        check("a.example:443", Some(false), Some("https://a.example/"));
        check("a.example:50051", None, Some("https://a.example:50051/"));
        check("127.0.0.1:50051", None, Some("http://127.0.0.1:50051/"));
        check("[::1]:50051", Some(false), Some("http://[::1]:50051/"));
        check("http://a.example:50051", Some(true), Some("http://a.example:50051/"));
        check("grpcs://a.example:1", Some(false), Some("https://a.example:1/"));
        check("dns:///a.example", Some(true), None);
        check("unix:/run/a.sock", Some(true), None);
        check("", Some(true), None);
    }

    #[test]
    fn a_tenant_that_no_request_can_name_is_no_interface() {
        let tenants = card(&json!({ "supportedInterfaces": [
            interface("http://a/rest", "HTTP+JSON", "0.3"),
            interface("a:50051", "GRPC", "0.3"),
            interface("http://a/rpc", "JSONRPC", "0.3"),
        ] }));
        let chosen = tenants.choose(&preference(&[], false, Dialect::V0_3)).unwrap();
        assert_eq!(chosen.iter().map(|one| one.binding).collect::<Vec<_>>(), [A2aBinding::JsonRpc]);
    }

    #[test]
    fn a_card_of_an_older_generation_has_its_interfaces_elsewhere() {
        let older = json!({
            "protocolVersion": "0.3.0", "url": "http://a/rpc", "preferredTransport": "JSONRPC",
            "additionalInterfaces": [
                { "url": "http://a/rpc", "transport": "JSONRPC" }, { "url": "nonsense", "transport": "JSONRPC" },
            ],
        });
        let chosen = card(&older).choose(&preference(&[], false, Dialect::V0_3)).unwrap();
        assert_eq!(chosen.iter().map(|one| one.url.as_str()).collect::<Vec<_>>(), ["http://a/rpc"]);
        let every = json!({
            "protocolVersion": "0.3.0", "url": "http://a/rpc", "preferredTransport": "JSONRPC",
            "additionalInterfaces": [
                { "url": "http://a/rest", "transport": "HTTP+JSON" }, { "url": "a:50051", "transport": "GRPC" },
            ],
        });
        let chosen = card(&every).choose(&preference(&["GRPC", "HTTP+JSON"], true, Dialect::V0_3)).unwrap();
        let shown: Vec<_> = chosen.iter().map(|one| (one.binding, one.url.as_str())).collect();
        assert_eq!(shown, [(A2aBinding::Grpc, "http://a:50051/"), (A2aBinding::HttpJson, "http://a/rest")]);
        let oldest =
            card(&json!({ "url": "http://a/" })).choose(&preference(&[], false, Dialect::V0_1)).unwrap();
        assert_eq!(oldest[0].dialect, Dialect::V0_1);
    }
}
