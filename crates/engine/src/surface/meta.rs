//! Metadata of every resource beside its content: its type, when it last changed, how long it may be cached, what
//! the caller may do with it, and where its schema is.

use serde_json::{Map, Value, json};

use super::Surface;
use crate::access::{AccessKind, Action, Caller, HOME_TENANT};

/// How long a static resource may be cached, in milliseconds.
pub const STATIC_FRESH_MS: u64 = 30_000;

/// How often a resource changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Never while the server runs. May be cached for 30 seconds.
    Static,
    /// On writes only.
    Dynamic,
    /// Continuously.
    Realtime,
}

impl CachePolicy {
    /// The policy's name in the metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Realtime => "realtime",
        }
    }
}

/// The properties of a resource from which its metadata is made.
#[derive(Debug, Clone, Copy)]
pub struct ResourceDescription<'a> {
    /// The access kind of the resource.
    pub kind: AccessKind,
    /// The name that grants refer to: a namespace, a context, an agent.
    pub name: &'a str,
    /// The name of its schema on the surface.
    pub schema: &'a str,
    /// When it last changed, as ISO 8601.
    pub modified: &'a str,
    /// How often it changes.
    pub policy: CachePolicy,
}

/// The actions that a resource of that schema supports, by reading it and through the tools related to it.
fn actions_on(schema: &str) -> &'static [Action] {
    match schema {
        // Workflows are submitted, started and tested; batches are started, paused and canceled.
        "sparc-workflow" | "batchtools-queue" => &[Action::Read, Action::Write, Action::Execute],
        "memory-keys" | "memory-data" | "batchtools-settings" | "a2a-task" => &[Action::Read, Action::Write],
        _ => &[Action::Read],
    }
}

impl Surface {
    /// The standard metadata of a resource for this caller.
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
            // The settings apply to all tenants, so only the home tenant may write them.
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
