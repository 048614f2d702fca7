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

/// The bindings of an agent, in the order of preference. All are at the agent's URL: clients append the paths of REST
/// to it, in 0.3 with `/v1`.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// The properties of a card that come from the server and not from the agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardContext {
    /// The URL of the agent's endpoint.
    pub url: String,
    /// Whether there is an extended card for authenticated callers.
    pub extended_card: bool,
    /// Whether callers must send a bearer token.
    pub bearer: bool,
    /// Whether callers may show a client certificate in place of the token.
    pub mutual_tls: bool,
    /// The operator of the agent: an organization and its URL.
    pub provider: Option<(String, String)>,
    /// The URL of the documentation.
    pub documentation_url: Option<String>,
}

impl CardContext {
    /// An endpoint at that URL, without authentication.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            extended_card: false,
            bearer: false,
            mutual_tls: false,
            provider: None,
            documentation_url: None,
        }
    }
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
    // In the order of preference; the newer generation first in every binding.
    let interfaces: Vec<Value> = [Dialect::V1, Dialect::V0_3]
        .into_iter()
        .flat_map(|dialect| BINDINGS.map(|binding| (dialect.version(), binding)))
        .map(|(version, binding)| {
            json!({ "url": cx.url, "protocolBinding": binding, "protocolVersion": version })
        })
        .collect();
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
        let mut schemes = json!({ "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        let mut requirements = vec![json!({ "schemes": { "bearer": { "list": [] } } })];
        if cx.mutual_tls {
            schemes["mtls"] = json!({ "mtlsSecurityScheme": {} });
            requirements.push(json!({ "schemes": { "mtls": { "list": [] } } }));
        }
        card.insert("securitySchemes".to_owned(), schemes);
        card.insert("securityRequirements".to_owned(), requirements.into());
    }
}

fn add_v0_3(card: &mut Map<String, Value>, profile: &Profile, cx: &CardContext) {
    card.insert("protocolVersion".to_owned(), "0.3.0".into());
    add_icon(card, profile);
    card.insert("url".to_owned(), cx.url.as_str().into());
    card.insert("preferredTransport".to_owned(), "JSONRPC".into());
    let interfaces = BINDINGS.map(|binding| json!({ "url": cx.url, "transport": binding }));
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
        let mut schemes = json!({ "bearer": { "type": "http", "scheme": "Bearer" } });
        let mut requirements = vec![json!({ "bearer": [] })];
        if cx.mutual_tls {
            schemes["mtls"] = json!({ "type": "mutualTLS" });
            requirements.push(json!({ "mtls": [] }));
        }
        card.insert("securitySchemes".to_owned(), schemes);
        card.insert("security".to_owned(), requirements.into());
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
