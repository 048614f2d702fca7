//! Agent cards, in each generation and as one document for two of them.
//!
//! Cards are read once per client and are not on a hot path, so they are plain JSON values.

use nuncio_engine::agent::{Profile, Skill};
use serde_json::{Map, Value, json};

use super::Dialect;

/// The extension that makes streams resumable: SSE ids are cursors.
pub const CURSOR_EXTENSION: &str = "https://nuncio.dev/extensions/cursor/v1";

/// The extension that adds log lines to a stream, for clients that activate it.
pub const LOG_EXTENSION: &str = "https://nuncio.dev/extensions/log/v1";

/// The bindings at an agent's URL, in the order of preference. Clients append the paths of REST to it, in 0.3 with `/v1`.
/// gRPC follows them; its paths have no room for an agent, see [`GrpcAddress`].
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// Where an agent is reached over gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcAddress {
    /// The host and the port: gRPC clients take no scheme and no path.
    pub authority: String,
    /// The agent's name, which every request has to repeat; `None` for the default agent. 0.3 has no such field: it
    /// reaches the default agent alone.
    pub tenant: Option<String>,
}

/// The properties of a card that come from the server and not from the agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardContext {
    /// The URL of the agent's endpoint.
    pub url: String,
    /// Whether there is an extended card for authenticated callers.
    pub extended_card: bool,
    /// Whether callers must send a bearer token.
    pub bearer: bool,
    /// The scopes that a caller's token needs for the agent; on the card, those of each of its skills.
    pub scopes: Vec<String>,
    /// Whether callers may show a client certificate in place of the token.
    pub mutual_tls: bool,
    /// The operator of the agent: an organization and its URL.
    pub provider: Option<(String, String)>,
    /// The URL of the documentation.
    pub documentation_url: Option<String>,
    /// Where gRPC is served; `None` if it cannot be reached there.
    pub grpc: Option<GrpcAddress>,
}

impl CardContext {
    /// An endpoint at that URL, without authentication.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            extended_card: false,
            bearer: false,
            mutual_tls: false,
            scopes: vec![],
            provider: None,
            documentation_url: None,
            grpc: None,
        }
    }
}

/// The profile behind an agent's extended card, if it has one.
pub fn extended(profile: &Profile) -> Option<Profile> {
    let more = profile.extended_card.as_ref()?;
    let mut extended = profile.clone();
    if let Some(description) = &more.description {
        extended.description.clone_from(description);
    }
    extended.skills.extend(more.skills.iter().cloned());
    Some(extended)
}

/// The card of A2A 1.0.
pub fn v1(profile: &Profile, cx: &CardContext) -> Value {
    let mut card = shared(profile, cx);
    add_v1(&mut card, profile, cx);
    Value::Object(card)
}

/// The card of A2A 0.3 and 0.2.
pub fn v0_3(profile: &Profile, cx: &CardContext) -> Value {
    let mut card = shared(profile, cx);
    add_v0_3(&mut card, profile, cx);
    Value::Object(card)
}

/// The card of A2A 0.1.
pub fn v0_1(profile: &Profile, cx: &CardContext) -> Value {
    let mut card = shared(profile, cx);
    card.insert("url".to_owned(), cx.url.as_str().into());
    card.insert(
        "capabilities".to_owned(),
        json!({
            "streaming": profile.streaming,
            "pushNotifications": profile.push_notifications,
            "stateTransitionHistory": false,
        }),
    );
    if cx.bearer {
        card.insert("authentication".to_owned(), json!({ "schemes": ["bearer"] }));
    }
    Value::Object(card)
}

/// One document that clients of 0.3 and of 1.0 both accept: each uses the members of its generation.
pub fn combined(profile: &Profile, cx: &CardContext) -> Value {
    let mut card = shared(profile, cx);
    add_v0_3(&mut card, profile, cx);
    let older = card.clone();
    add_v1(&mut card, profile, cx);
    for (key, value) in older {
        merge(card.entry(key).or_insert(Value::Null), value);
    }
    Value::Object(card)
}

/// The members that are the same in all generations.
fn shared(profile: &Profile, cx: &CardContext) -> Map<String, Value> {
    let mut card = Map::new();
    card.insert("name".to_owned(), profile.name.as_str().into());
    card.insert("description".to_owned(), profile.description.as_str().into());
    card.insert("version".to_owned(), profile.version.as_str().into());
    let own = profile.provider.as_ref().map(|provider| (&provider.organization, &provider.url));
    if let Some((organization, url)) = own.or(cx.provider.as_ref().map(|(name, url)| (name, url))) {
        card.insert("provider".to_owned(), json!({ "organization": organization, "url": url }));
    }
    if let Some(url) = profile.documentation_url.as_ref().or(cx.documentation_url.as_ref()) {
        card.insert("documentationUrl".to_owned(), url.as_str().into());
    }
    card.insert("defaultInputModes".to_owned(), profile.input_modes.clone().into());
    card.insert("defaultOutputModes".to_owned(), profile.output_modes.clone().into());
    card.insert("skills".to_owned(), profile.skills.iter().map(skill).collect());
    card
}

/// Cards have an icon since 0.3.
fn add_icon(card: &mut Map<String, Value>, profile: &Profile) {
    if let Some(url) = &profile.icon_url {
        card.insert("iconUrl".to_owned(), url.as_str().into());
    }
}

fn skill(skill: &Skill) -> Value {
    let Skill { id, name, description, tags, examples, input_modes, output_modes } = skill;
    let mut value = json!({ "id": id, "name": name, "description": description, "tags": tags });
    for (name, list) in [("examples", examples), ("inputModes", input_modes), ("outputModes", output_modes)] {
        if !list.is_empty() {
            value[name] = json!(list);
        }
    }
    value
}

fn add_v1(card: &mut Map<String, Value>, profile: &Profile, cx: &CardContext) {
    // In the order of preference: all bindings of the newer generation first.
    let interfaces: Vec<Value> =
        [Dialect::V1, Dialect::V0_3].into_iter().flat_map(|dialect| interfaces(dialect, cx)).collect();
    card.insert("supportedInterfaces".to_owned(), json!(interfaces));
    add_icon(card, profile);
    card.insert(
        "capabilities".to_owned(),
        json!({
            "streaming": profile.streaming,
            "pushNotifications": profile.push_notifications,
            "extendedAgentCard": cx.extended_card,
            "extensions": extensions(profile),
        }),
    );
    if cx.bearer {
        let requirements = |scopes: &[String]| {
            let mut all = vec![json!({ "schemes": { "bearer": { "list": scopes } } })];
            if cx.mutual_tls {
                all.push(json!({ "schemes": { "mtls": { "list": scopes } } }));
            }
            Value::Array(all)
        };
        let mut schemes = json!({ "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        if cx.mutual_tls {
            schemes["mtls"] = json!({ "mtlsSecurityScheme": {} });
        }
        card.insert("securitySchemes".to_owned(), schemes);
        card.insert("securityRequirements".to_owned(), requirements(&[]));
        require_scopes(card, cx, "securityRequirements", &requirements(&cx.scopes));
    }
}

/// The interfaces of one generation, as 1.0 lists them.
fn interfaces(dialect: Dialect, cx: &CardContext) -> Vec<Value> {
    let version = dialect.version();
    let interface = |url: &str, binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version });
    let mut all: Vec<Value> = BINDINGS.into_iter().map(|binding| interface(&cx.url, binding)).collect();
    match &cx.grpc {
        Some(GrpcAddress { authority, tenant: None }) => all.push(interface(authority, "GRPC")),
        Some(GrpcAddress { authority, tenant: Some(tenant) }) if dialect >= Dialect::V1 => {
            let mut grpc = interface(authority, "GRPC");
            grpc["tenant"] = tenant.as_str().into();
            all.push(grpc);
        }
        _ => {}
    }
    all
}

fn add_v0_3(card: &mut Map<String, Value>, profile: &Profile, cx: &CardContext) {
    card.insert("protocolVersion".to_owned(), "0.3.0".into());
    add_icon(card, profile);
    card.insert("url".to_owned(), cx.url.as_str().into());
    card.insert("preferredTransport".to_owned(), "JSONRPC".into());
    let mut interfaces = BINDINGS.map(|binding| json!({ "url": cx.url, "transport": binding })).to_vec();
    if let Some(GrpcAddress { authority, tenant: None }) = &cx.grpc {
        interfaces.push(json!({ "url": authority, "transport": "GRPC" }));
    }
    card.insert("additionalInterfaces".to_owned(), json!(interfaces));
    card.insert("supportsAuthenticatedExtendedCard".to_owned(), cx.extended_card.into());
    card.insert(
        "capabilities".to_owned(),
        json!({
            "streaming": profile.streaming,
            "pushNotifications": profile.push_notifications,
            "stateTransitionHistory": false,
            "extensions": extensions(profile),
        }),
    );
    if cx.bearer {
        let requirements = |scopes: &[String]| {
            let mut all = vec![json!({ "bearer": scopes })];
            if cx.mutual_tls {
                all.push(json!({ "mtls": scopes }));
            }
            Value::Array(all)
        };
        let mut schemes = json!({ "bearer": { "type": "http", "scheme": "Bearer" } });
        if cx.mutual_tls {
            schemes["mtls"] = json!({ "type": "mutualTLS" });
        }
        card.insert("securitySchemes".to_owned(), schemes);
        card.insert("security".to_owned(), requirements(&[]));
        require_scopes(card, cx, "security", &requirements(&cx.scopes));
    }
}

/// Adds the security of each skill. A skill has no address, so it needs what a message to its agent needs.
fn require_scopes(card: &mut Map<String, Value>, cx: &CardContext, member: &str, needed: &Value) {
    if cx.scopes.is_empty() {
        return;
    }
    for skill in card.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten() {
        skill[member] = needed.clone();
    }
}

/// The extensions that an agent's card declares: those of its profile, then those that the server adds to every
/// agent that streams.
fn extensions(profile: &Profile) -> Value {
    let own = profile.extensions.iter().map(|extension| {
        let mut value = json!({ "uri": extension.uri, "required": extension.required });
        if let Some(description) = &extension.description {
            value["description"] = description.as_str().into();
        }
        if let Some(params) = &extension.params {
            value["params"] = Value::Object(params.clone());
        }
        value
    });
    let mut all: Vec<Value> = own.collect();
    if profile.streaming {
        all.push(json!({
            "uri": CURSOR_EXTENSION,
            "description": "The ids of SSE events are cursors: a subscription that sends the last one it saw as Last-Event-ID continues right after it, also when the task has ended.",
            "required": false,
        }));
        all.push(json!({
            "uri": LOG_EXTENSION,
            "description": "A stream whose request activates it (A2A-Extensions) has log lines, too: a working status with the line as text and its level in a data part, {\"log\": \"info\"}.",
            "required": false,
        }));
    }
    Value::Array(all)
}

/// Whether an agent's card declares the extension of that URI.
pub fn declares_extension(profile: &Profile, uri: &str) -> bool {
    profile.extensions.iter().any(|extension| extension.uri == uri)
        || (profile.streaming && [CURSOR_EXTENSION, LOG_EXTENSION].contains(&uri))
}

/// Adds the missing members, recursively.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into @ Value::Null, from) => *into = from,
        _ => {}
    }
}
