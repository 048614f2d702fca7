//! The members of a card in each generation, as tables: `a2a.proto` of 1.0, `types.ts` of 0.3.
//!
//! A reader of a generation ignores the members of others, so a signature of that generation cannot cover them.
//! [`project`] leaves the members that it does cover, with the presence rules of 1.0, section 8.4.1.

use serde_json::{Map, Value};

/// A message: its members.
pub(super) type Schema = &'static [(&'static str, Presence, Shape)];

/// When a member is part of the signed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Whenever it is there: `REQUIRED`, `optional`, or a message.
    Explicit,
    /// Unless it has the default value, which a reader cannot distinguish from absence.
    Implicit,
}

/// What a member holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// A scalar, a list of scalars, or free JSON.
    Plain,
    /// A message.
    One(Schema),
    /// A list of messages.
    List(Schema),
    /// A map whose values are messages.
    Map(Schema),
}

use Presence::{Explicit, Implicit};
use Shape::{List, One, Plain};

pub(super) const CARD_V1: Schema = &[
    ("name", Explicit, Plain),
    ("description", Explicit, Plain),
    ("supportedInterfaces", Explicit, List(INTERFACE_V1)),
    ("provider", Explicit, One(PROVIDER)),
    ("version", Explicit, Plain),
    ("documentationUrl", Explicit, Plain),
    ("capabilities", Explicit, One(CAPABILITIES_V1)),
    ("securitySchemes", Implicit, Shape::Map(SECURITY_SCHEME_V1)),
    ("securityRequirements", Implicit, List(SECURITY_REQUIREMENT)),
    ("defaultInputModes", Explicit, Plain),
    ("defaultOutputModes", Explicit, Plain),
    ("skills", Explicit, List(SKILL_V1)),
    ("iconUrl", Explicit, Plain),
];
const INTERFACE_V1: Schema = &[
    ("url", Explicit, Plain),
    ("protocolBinding", Explicit, Plain),
    ("tenant", Implicit, Plain),
    ("protocolVersion", Explicit, Plain),
];
const PROVIDER: Schema = &[("url", Explicit, Plain), ("organization", Explicit, Plain)];
const CAPABILITIES_V1: Schema = &[
    ("streaming", Explicit, Plain),
    ("pushNotifications", Explicit, Plain),
    ("extensions", Implicit, List(EXTENSION_V1)),
    ("extendedAgentCard", Explicit, Plain),
];
const EXTENSION_V1: Schema = &[
    ("uri", Implicit, Plain),
    ("description", Implicit, Plain),
    ("required", Implicit, Plain),
    ("params", Explicit, Plain),
];
const SKILL_V1: Schema = &[
    ("id", Explicit, Plain),
    ("name", Explicit, Plain),
    ("description", Explicit, Plain),
    ("tags", Explicit, Plain),
    ("examples", Implicit, Plain),
    ("inputModes", Implicit, Plain),
    ("outputModes", Implicit, Plain),
    ("securityRequirements", Implicit, List(SECURITY_REQUIREMENT)),
];
const SECURITY_REQUIREMENT: Schema = &[("schemes", Implicit, Shape::Map(&[("list", Implicit, Plain)]))];
const SECURITY_SCHEME_V1: Schema = &[
    (
        "apiKeySecurityScheme",
        Explicit,
        One(&[("description", Implicit, Plain), ("location", Explicit, Plain), ("name", Explicit, Plain)]),
    ),
    (
        "httpAuthSecurityScheme",
        Explicit,
        One(&[
            ("description", Implicit, Plain),
            ("scheme", Explicit, Plain),
            ("bearerFormat", Implicit, Plain),
        ]),
    ),
    (
        "oauth2SecurityScheme",
        Explicit,
        One(&[
            ("description", Implicit, Plain),
            ("flows", Explicit, One(OAUTH_FLOWS_V1)),
            ("oauth2MetadataUrl", Implicit, Plain),
        ]),
    ),
    (
        "openIdConnectSecurityScheme",
        Explicit,
        One(&[("description", Implicit, Plain), ("openIdConnectUrl", Explicit, Plain)]),
    ),
    ("mtlsSecurityScheme", Explicit, One(&[("description", Implicit, Plain)])),
];
const OAUTH_FLOWS_V1: Schema = &[
    (
        "authorizationCode",
        Explicit,
        One(&[
            ("authorizationUrl", Explicit, Plain),
            ("tokenUrl", Explicit, Plain),
            ("refreshUrl", Implicit, Plain),
            ("scopes", Explicit, Plain),
            ("pkceRequired", Implicit, Plain),
        ]),
    ),
    (
        "clientCredentials",
        Explicit,
        One(&[("tokenUrl", Explicit, Plain), ("refreshUrl", Implicit, Plain), ("scopes", Explicit, Plain)]),
    ),
    (
        "implicit",
        Explicit,
        One(&[
            ("authorizationUrl", Implicit, Plain),
            ("refreshUrl", Implicit, Plain),
            ("scopes", Implicit, Plain),
        ]),
    ),
    (
        "password",
        Explicit,
        One(&[("tokenUrl", Implicit, Plain), ("refreshUrl", Implicit, Plain), ("scopes", Implicit, Plain)]),
    ),
    (
        "deviceCode",
        Explicit,
        One(&[
            ("deviceAuthorizationUrl", Explicit, Plain),
            ("tokenUrl", Explicit, Plain),
            ("refreshUrl", Implicit, Plain),
            ("scopes", Explicit, Plain),
        ]),
    ),
];

/// JSON distinguishes an absent member from any value, so all presence is explicit.
pub(super) const CARD_V0_3: Schema = &[
    ("protocolVersion", Explicit, Plain),
    ("name", Explicit, Plain),
    ("description", Explicit, Plain),
    ("url", Explicit, Plain),
    ("preferredTransport", Explicit, Plain),
    ("additionalInterfaces", Explicit, List(&[("url", Explicit, Plain), ("transport", Explicit, Plain)])),
    ("iconUrl", Explicit, Plain),
    ("provider", Explicit, One(PROVIDER)),
    ("version", Explicit, Plain),
    ("documentationUrl", Explicit, Plain),
    ("capabilities", Explicit, One(CAPABILITIES_V0_3)),
    ("securitySchemes", Explicit, Shape::Map(SECURITY_SCHEME_V0_3)),
    ("security", Explicit, Plain),
    ("defaultInputModes", Explicit, Plain),
    ("defaultOutputModes", Explicit, Plain),
    ("skills", Explicit, List(SKILL_V0_3)),
    ("supportsAuthenticatedExtendedCard", Explicit, Plain),
];
const CAPABILITIES_V0_3: Schema = &[
    ("streaming", Explicit, Plain),
    ("pushNotifications", Explicit, Plain),
    ("stateTransitionHistory", Explicit, Plain),
    ("extensions", Explicit, List(EXTENSION_V0_3)),
];
const EXTENSION_V0_3: Schema = &[
    ("uri", Explicit, Plain),
    ("description", Explicit, Plain),
    ("required", Explicit, Plain),
    ("params", Explicit, Plain),
];
const SKILL_V0_3: Schema = &[
    ("id", Explicit, Plain),
    ("name", Explicit, Plain),
    ("description", Explicit, Plain),
    ("tags", Explicit, Plain),
    ("examples", Explicit, Plain),
    ("inputModes", Explicit, Plain),
    ("outputModes", Explicit, Plain),
    ("security", Explicit, Plain),
];
const SECURITY_SCHEME_V0_3: Schema = &[
    ("type", Explicit, Plain),
    ("description", Explicit, Plain),
    ("in", Explicit, Plain),
    ("name", Explicit, Plain),
    ("scheme", Explicit, Plain),
    ("bearerFormat", Explicit, Plain),
    ("flows", Explicit, Plain),
    ("oauth2MetadataUrl", Explicit, Plain),
    ("openIdConnectUrl", Explicit, Plain),
];

/// The members of a message that a reader of its schema sees and a signature covers.
pub(super) fn project(message: &Map<String, Value>, schema: Schema) -> Map<String, Value> {
    let mut projected = Map::new();
    for (name, presence, shape) in schema {
        // In ProtoJSON null is absence.
        let Some(value) = message.get(*name).filter(|value| !value.is_null()) else { continue };
        let value = project_value(value, *shape);
        if *presence == Implicit && is_default(&value) {
            continue;
        }
        projected.insert((*name).to_owned(), value);
    }
    projected
}

/// A value of another shape than the schema's stays as it is: the card is wrong, and still signed as a whole.
fn project_value(value: &Value, shape: Shape) -> Value {
    match (shape, value) {
        (One(schema), Value::Object(message)) => Value::Object(project(message, schema)),
        (List(schema), Value::Array(items)) => {
            items.iter().map(|item| project_value(item, One(schema))).collect()
        }
        (Shape::Map(schema), Value::Object(entries)) => {
            entries.iter().map(|(key, value)| (key.clone(), project_value(value, One(schema)))).collect()
        }
        (_, value) => value.clone(),
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
