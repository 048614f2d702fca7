//! What is said of every resource beside its content: what it is, when it last changed, how long it may be kept,
//! what the caller may do with it, and where its schema is.

use serde_json::{Map, Value, json};

use super::Surface;
use crate::access::{AccessKind, Action, Caller, HOME_TENANT};

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
    /// Its name in the metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Realtime => "realtime",
        }
    }
}

/// What is known of a resource.
#[derive(Debug, Clone, Copy)]
pub struct ResourceDescription<'a> {
    /// The type of the resource.
    pub kind: AccessKind,
    /// What grants go by: a namespace, a context, an agent.
    pub name: &'a str,
    /// The name of its schema on the surface.
    pub schema: &'a str,
    /// When it last changed, as ISO 8601.
    pub modified: &'a str,
    /// How it changes.
    pub policy: CachePolicy,
}

/// What can be done at all with a resource of that schema, by reading it and with the tools that are about it.
fn actions_on(schema: &str) -> &'static [Action] {
    match schema {
        // It is submitted to, started and tested; batches are begun, paused and canceled.
        "sparc-workflow" | "batchtools-queue" => &[Action::Read, Action::Write, Action::Execute],
        "memory-keys" | "memory-data" | "batchtools-settings" | "a2a-task" => &[Action::Read, Action::Write],
        _ => &[Action::Read],
    }
}

impl Surface {
    /// The standard metadata of a resource, as this caller sees it.
    pub fn metadata(
        &self,
        caller: &Caller,
        uri: &str,
        described: &ResourceDescription<'_>,
    ) -> Map<String, Value> {
        let ResourceDescription { kind, name, schema, modified, policy } = *described;
        let uri = super::normalized(&self.canonical(uri));
        let permissions: Vec<&str> = actions_on(schema)
            .iter()
            .filter(|action| caller.may(**action, kind, name))
            // The settings hold for all tenants.
            .filter(|action| {
                **action != Action::Write || schema != "batchtools-settings" || caller.tenant() == HOME_TENANT
            })
            .map(|action| action.name())
            .collect();
        Map::from_iter([
            ("resourceId".to_owned(), json!(uri)),
            ("type".to_owned(), json!(kind.name())),
            ("lastModified".to_owned(), json!(modified)),
            ("cachePolicy".to_owned(), json!(policy.name())),
            ("permissions".to_owned(), json!(permissions)),
            ("schema".to_owned(), json!(self.schema_url(schema))),
        ])
    }
}
