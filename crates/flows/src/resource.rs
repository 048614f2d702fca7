//! What all resources have in common: the metadata that the source asks for, and how their times are written.

use nuncio_engine::{
    Caller, Kind, Surface,
    clock::Timestamp,
    surface::{ResourceContent, ResourceProfile},
};
use serde_json::{Map, Value, json};

/// For how long a static resource may be kept.
pub const STATIC_FRESH_MS: u64 = 30_000;

/// How a resource changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Never while the server runs. May be kept for 30 seconds.
    Static,
    /// When somebody changes it.
    Dynamic,
    /// All the time.
    Realtime,
}

impl CachePolicy {
    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Realtime => "realtime",
        }
    }
}

/// What is said about a resource beside its content.
pub struct About<'a> {
    /// The type of the resource.
    pub kind: Kind,
    /// What grants go by: a namespace, a context, an agent.
    pub name: &'a str,
    /// The name of its schema on the surface.
    pub schema: &'a str,
    /// When it last changed.
    pub modified: Timestamp,
    /// How it changes.
    pub policy: CachePolicy,
}

/// A JSON resource with its metadata.
pub fn content(
    surface: &Surface,
    caller: &Caller,
    uri: &str,
    about: &About<'_>,
    value: &Value,
) -> ResourceContent {
    let permissions: Vec<&str> = caller
        .grants()
        .actions(about.kind, about.name)
        .into_iter()
        .map(nuncio_engine::Action::name)
        .collect();
    let meta = json!({
        "resourceId": uri,
        "type": about.kind.name(),
        "lastModified": iso(about.modified),
        "cachePolicy": about.policy.name(),
        "permissions": permissions,
        "schema": surface.schema_url(about.schema),
    });
    let meta: Option<Map<String, Value>> = match meta {
        Value::Object(meta) => Some(meta),
        _ => None,
    };
    ResourceContent { meta, ..ResourceContent::json(uri, value) }
}

/// How a JSON resource presents itself.
pub fn profile(uri: &str, name: &str, description: &str, policy: CachePolicy) -> ResourceProfile {
    let profile = ResourceProfile::new(uri, name).described(description).media_type("application/json");
    let fresh_ms = (policy == CachePolicy::Static).then_some(STATIC_FRESH_MS);
    ResourceProfile { fresh_ms, ..profile }
}

/// A time as ISO 8601, in UTC, to the millisecond.
pub fn iso(time: Timestamp) -> String {
    nuncio_wire::timestamp::format(time)
}
