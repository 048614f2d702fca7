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

/// The properties of a card that come from the server and not from the agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardContext {
    /// The URL of the agent's endpoint.
    pub url: String,
    /// Whether there is an extended card for authenticated callers.
    pub extended_card: bool,
    /// Whether callers must send a bearer token.
    pub bearer: bool,
    /// The operator of the agent: an organization and its URL.
    pub provider: Option<(String, String)>,
    /// The URL of the documentation.
    pub documentation_url: Option<String>,
}

impl CardContext {
    /// An endpoint at that URL, without authentication.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), extended_card: false, bearer: false, provider: None, documentation_url: None }
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
    if let Some((organization, url)) = &cx.provider {
        card.insert("provider".to_owned(), json!({ "organization": organization, "url": url }));
    }
    if let Some(url) = &cx.documentation_url {
        card.insert("documentationUrl".to_owned(), url.as_str().into());
    }
    card.insert("defaultInputModes".to_owned(), profile.input_modes.clone().into());
    card.insert("defaultOutputModes".to_owned(), profile.output_modes.clone().into());
    card.insert("skills".to_owned(), profile.skills.iter().map(skill).collect());
    card
}

fn skill(skill: &Skill) -> Value {
    let Skill { id, name, description, tags, examples } = skill;
    let mut value = json!({ "id": id, "name": name, "description": description, "tags": tags });
    if !examples.is_empty() {
        value["examples"] = json!(examples);
    }
    value
}

fn add_v1(card: &mut Map<String, Value>, profile: &Profile, cx: &CardContext) {
    let interfaces = [Dialect::V1, Dialect::V0_3].map(|dialect| {
        json!({ "url": cx.url, "protocolBinding": "JSONRPC", "protocolVersion": dialect.version() })
    });
    card.insert("supportedInterfaces".to_owned(), json!(interfaces));
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
        let scheme = json!({ "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        card.insert("securitySchemes".to_owned(), scheme);
        card.insert("securityRequirements".to_owned(), json!([{ "schemes": { "bearer": { "list": [] } } }]));
    }
}

fn add_v0_3(card: &mut Map<String, Value>, profile: &Profile, cx: &CardContext) {
    card.insert("protocolVersion".to_owned(), "0.3.0".into());
    card.insert("url".to_owned(), cx.url.as_str().into());
    card.insert("preferredTransport".to_owned(), "JSONRPC".into());
    card.insert("additionalInterfaces".to_owned(), json!([{ "url": cx.url, "transport": "JSONRPC" }]));
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
        card.insert(
            "securitySchemes".to_owned(),
            json!({ "bearer": { "type": "http", "scheme": "Bearer" } }),
        );
        card.insert("security".to_owned(), json!([{ "bearer": [] }]));
    }
}

fn extensions(profile: &Profile) -> Value {
    if !profile.streaming {
        return json!([]);
    }
    json!([{
        "uri": CURSOR_EXTENSION,
        "description": "The ids of SSE events are cursors: a subscription that sends the last one it saw as Last-Event-ID continues right after it, also when the task has ended.",
        "required": false,
    }, {
        "uri": LOG_EXTENSION,
        "description": "A stream whose request activates it (A2A-Extensions) has log lines, too: a working status with the line as text and its level in a data part, {\"log\": \"info\"}.",
        "required": false,
    }])
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
