//! Helpers for all resources: their required metadata, and the format of times.

pub use nuncio_engine::surface::{CachePolicy, STATIC_FRESH_MS};
use nuncio_engine::{
    AccessKind, Caller, Surface,
    clock::Timestamp,
    surface::{ResourceContent, ResourceDescription, ResourceProfile},
};
use serde::{Deserialize as _, Deserializer, Serialize};
use serde_json::Value;

/// The metadata of a resource beside its content.
pub struct ResourceDetails<'a> {
    /// The type of the resource.
    pub kind: AccessKind,
    /// The name that grants match: a namespace, a context, an agent.
    pub name: &'a str,
    /// The name of its schema on the surface.
    pub schema: &'a str,
    /// When the resource last changed.
    pub modified: Timestamp,
    /// How clients may cache it.
    pub policy: CachePolicy,
}

/// A JSON resource with its metadata.
pub fn content(
    surface: &Surface,
    caller: &Caller,
    uri: &str,
    about: &ResourceDetails<'_>,
    value: &impl Serialize,
) -> ResourceContent {
    let ResourceDetails { kind, name, schema, modified, policy } = *about;
    let described = ResourceDescription { kind, name, schema, modified: &iso(modified), policy };
    let meta = Some(surface.metadata(caller, uri, &described));
    ResourceContent { meta, ..ResourceContent::text(uri, "application/json", plain_text(value)) }
}

/// An answer as JSON. Answers are plain data with strings as keys: their serialization cannot fail.
pub fn plain_value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

/// [`plain_value`] as text, which is written without making a value of each part.
fn plain_text(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).unwrap_or_else(|_| "null".into())
}

/// Deserializes a member that may be any value: one that is given is there, also where it is null.
pub(crate) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The profile of a JSON resource.
pub fn profile(uri: &str, name: &str, description: &str, policy: CachePolicy) -> ResourceProfile {
    let profile = ResourceProfile::new(uri, name).described(description).media_type("application/json");
    let fresh_ms = (policy == CachePolicy::Static).then_some(STATIC_FRESH_MS);
    ResourceProfile { fresh_ms, ..profile }
}

/// A time as ISO 8601, in UTC, to the millisecond.
pub fn iso(time: Timestamp) -> String {
    nuncio_wire::timestamp::format(time)
}
