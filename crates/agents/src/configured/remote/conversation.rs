//! The peer's id of a conversation, stored per owner, context and agent.
//!
//! To the peer all callers of this server are one caller, and two of them may choose the same context id, so
//! these ids are not sent. The first message names no conversation; the id that the peer assigns is stored
//! and sent with the next message of the same owner and context.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{
    TaskContext,
    clock::Clock,
    knowledge::{ExpectedVersion, RecordWrite},
    records::{Records, VersionedRecord},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::RemoteSide;

/// The kind of these records.
const KIND: &str = "bridge.context";
/// How long a conversation is retained after its last message.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
/// The age at which the record of an active conversation is renewed.
const RENEWED_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Bytes of the peer's id.
const MAX_NAME: usize = 1024;

/// The stored record. Fields may only be added.
#[derive(Debug, Serialize, Deserialize)]
struct StoredConversation {
    context: String,
}

/// The record of the peer's conversation for a task.
pub(super) struct RemoteConversation {
    records: Records<StoredConversation>,
    clock: Arc<dyn Clock>,
    tenant: String,
    id: String,
}

impl RemoteConversation {
    pub(super) fn of(cx: &TaskContext, there: &RemoteSide) -> Self {
        let mut hash = Sha256::new();
        // The address, too: another server under the same agent name does not know the conversation.
        for text in [&cx.context_digest(), &there.spec.name, &there.peer().address()] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let id = BASE64_URL_SAFE_NO_PAD.encode(hash.finalize());
        let (engine, tenant) = (cx.engine(), cx.caller().tenant().to_owned());
        Self { records: engine.records(KIND), clock: Arc::clone(engine.clock()), tenant, id }
    }

    /// The peer's id, if it has assigned one. A record that cannot be read counts as none: the peer then
    /// starts a new conversation.
    pub(super) async fn name(&self) -> Option<String> {
        match self.records.get(&self.tenant, &self.id).await {
            Ok(record) => Some(record?.value.context),
            Err(error) => {
                tracing::warn!(%error, "the name of a conversation on another server cannot be read");
                None
            }
        }
    }

    /// Stores the id that the peer assigned.
    pub(super) async fn remember(&self, context: &str) {
        if context.is_empty() || context.len() > MAX_NAME {
            tracing::warn!(
                bytes = context.len(),
                "another server's name of a conversation is not kept: it has at most {MAX_NAME} bytes"
            );
            return;
        }
        let now = self.clock.now();
        let (found, expected) = match self.records.get(&self.tenant, &self.id).await {
            // Two concurrent first messages start two conversations at the peer; only one of them is continued.
            Ok(found) => {
                let expected = ExpectedVersion::of(found.as_ref());
                (found, expected)
            }
            Err(error) => {
                tracing::warn!(%error, "the id of a conversation cannot be read; it is replaced");
                (None, ExpectedVersion::Any)
            }
        };
        let is_known = |record: VersionedRecord<StoredConversation>| {
            record.value.context == context && now.since(record.updated_at) < RENEWED_AFTER
        };
        if found.is_some_and(is_known) {
            return;
        }
        let stored = StoredConversation { context: context.to_owned() };
        let written = match self.records.put(&self.tenant, &self.id, &stored, expected) {
            Ok(write) => {
                let write = RecordWrite { expires_at: Some(now.after(KEPT_FOR)), ..write };
                self.records.write(vec![write]).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "the name of a conversation on another server was not stored");
        }
    }
}
