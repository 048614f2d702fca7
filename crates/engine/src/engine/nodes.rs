//! The nodes of a store: what each says about itself, and until when it is alive.
//!
//! Where several nodes share a store, each writes a record with every heartbeat; the lease itself is in the store's table of
//! nodes, so a record that was not written costs nothing but its display. A single node writes none and knows itself.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Engine, EngineCore};
use crate::{
    access::Caller,
    clock::Timestamp,
    error::Error,
    knowledge::{ExpectedVersion, RecordWrite},
    records::Records,
    store::NodeId,
};

/// The most nodes of a listing (`console.nodes`): those that are alive first, then the newest.
pub const MAX_NODES: usize = 100;
/// How long a node is listed after it has gone.
const LISTED: Duration = Duration::from_secs(24 * 3600);
/// Records per read of the store, and how many reads a listing makes at most: a node that restarts all the time leaves a
/// record each time.
const PAGE: usize = 1_000;
const MAX_PAGES: usize = 10;
const KIND: &str = "node";
/// The tenant of the server's own records. A tenant's name has no slash.
const SERVER_RECORDS: &str = "server/nodes";
/// The longest address that is stored, in characters.
const MAX_ADDRESS: usize = 256;

/// What a node says about itself. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDescription {
    /// Where it listens; `None` before it does.
    #[serde(default)]
    pub address: Option<String>,
    /// The version of the server.
    pub version: String,
    /// When the process began.
    pub started_at: Timestamp,
    /// Tasks that run there, and tasks that wait there for a slot.
    #[serde(default)]
    pub running: u64,
    /// Tasks that wait to be claimed, as this node counts them.
    #[serde(default)]
    pub queued: u64,
    /// When it sent its last heartbeat.
    pub beaten_at: Timestamp,
    /// How long its tasks stay its own without another one.
    pub alive_until: Timestamp,
    /// When it was stopped, unless it died.
    #[serde(default)]
    pub stopped_at: Option<Timestamp>,
}

/// A node in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node.
    pub id: NodeId,
    /// Whether it is the node that answers.
    pub is_this: bool,
    /// What it says about itself.
    pub description: NodeDescription,
    /// Since when it has gone: when it was stopped, or else its last heartbeat. `None`: it is alive.
    pub gone_since: Option<Timestamp>,
}

/// A listing of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeList {
    /// The nodes that are alive first, the newest first.
    pub nodes: Vec<NodeStatus>,
    /// Whether there are more than are listed.
    pub more: bool,
}

impl Engine {
    /// Sets the address that other nodes and the operator see for this node.
    pub fn set_node_address(&self, address: &str) {
        *self.0.address.lock() = Some(address.chars().take(MAX_ADDRESS).collect());
    }

    /// The nodes that use this store, and those that did a day ago or later.
    pub async fn nodes(&self, caller: &Caller) -> Result<NodeList, Error> {
        self.allow_server(caller, "server.nodes", "admin://server/nodes")?;
        let now = self.0.clock.now();
        let this = NodeStatus {
            id: self.0.node,
            is_this: true,
            description: self.0.describe_node(now),
            gone_since: None,
        };
        let mut nodes = vec![this];
        let (records, mut after) = (self.0.node_records(), String::new());
        for _ in 0..MAX_PAGES {
            let page = records.page(Some(SERVER_RECORDS), "", &after, PAGE).await?;
            let is_last = page.len() < PAGE;
            for record in page {
                after.clone_from(&record.id);
                // Written by a newer version: an id of another form names no node.
                let Ok(id) = record.id.parse() else { continue };
                if NodeId(id) != self.0.node {
                    nodes.push(NodeStatus::of(NodeId(id), record.value, now));
                }
            }
            if is_last {
                break;
            }
        }
        nodes.sort_by_key(|node| {
            (node.gone_since.is_some(), std::cmp::Reverse(node.description.started_at), node.id.0)
        });
        let more = nodes.len() > MAX_NODES;
        nodes.truncate(MAX_NODES);
        Ok(NodeList { nodes, more })
    }
}

impl NodeStatus {
    fn of(id: NodeId, description: NodeDescription, now: Timestamp) -> Self {
        let expired = (description.alive_until < now).then_some(description.beaten_at);
        let gone_since = description.stopped_at.or(expired);
        Self { id, is_this: false, description, gone_since }
    }
}

impl EngineCore {
    fn node_records(&self) -> Records<NodeDescription> {
        Records::new(Arc::clone(&self.store), Arc::clone(&self.clock), KIND)
    }

    fn describe_node(&self, now: Timestamp) -> NodeDescription {
        let beaten = *self.beaten.lock();
        let beaten_at = beaten.map_or(now, |at| now.before(at.elapsed()));
        NodeDescription {
            address: self.address.lock().clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            running: self.slots.running() as u64,
            queued: self.queued(),
            beaten_at,
            alive_until: beaten_at.after(self.options.lease),
            stopped_at: None,
        }
    }

    /// Stores what other nodes show of this one, if there can be others. A failure is no reason to stop: it is shown as it
    /// was.
    pub(super) async fn record_node(&self, stopped: bool) {
        if !self.store.is_shared() {
            return;
        }
        if let Err(error) = self.write_node(stopped).await {
            tracing::debug!(%error, "could not store what other nodes show of this one");
        }
    }

    async fn write_node(&self, stopped: bool) -> Result<(), Error> {
        let now = self.clock.now();
        let mut description = self.describe_node(now);
        if stopped {
            (description.stopped_at, description.alive_until, description.running) = (Some(now), now, 0);
        }
        let records = self.node_records();
        let id = self.node.0.to_string();
        let write = records.put(SERVER_RECORDS, &id, &description, ExpectedVersion::Any)?;
        let expires_at = Some(description.alive_until.after(LISTED));
        records.write(vec![RecordWrite { expires_at, ..write }]).await?;
        Ok(())
    }
}
