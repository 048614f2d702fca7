//! The other side's own name of a conversation, kept per owner, context and agent.
//!
//! All callers of this server are one caller over there, so what they call their conversations stays here: two of them
//! may choose the same word. The first message names no conversation; the one that the other side makes of it is
//! stored, and named with the next message of the same owner and context.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{
    Engine, TaskContext,
    knowledge::{ExpectedVersion, RecordKey, RecordWrite},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::RemoteSide;

/// The kind of these records.
const KIND: &str = "bridge.context";
/// How long a conversation is remembered after its last message.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
/// How old the record of a conversation that goes on may become before its time is counted anew.
const RENEWED_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The longest name, in bytes, that the other side may give.
const MAX_NAME: usize = 1024;

/// What is stored. Fields are only ever added.
#[derive(Debug, Serialize, Deserialize)]
struct StoredConversation {
    context: String,
}

/// Where the other side's name of a task's conversation is stored.
pub(super) struct RemoteConversation {
    engine: Engine,
    key: RecordKey,
}

impl RemoteConversation {
    pub(super) fn of(cx: &TaskContext, there: &RemoteSide) -> Self {
        let mut hash = Sha256::new();
        // The address, too: another server under the same agent's name knows nothing of it.
        for text in [&cx.context_digest(), &there.spec.name, &there.peer().address()] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let id = BASE64_URL_SAFE_NO_PAD.encode(hash.finalize());
        Self { engine: cx.engine(), key: RecordKey::new(cx.caller().tenant(), KIND, id) }
    }

    /// The other side's name, where it has given one. One that cannot be read is as good as none: the other side then
    /// makes another conversation.
    pub(super) async fn name(&self) -> Option<String> {
        let now = self.engine.clock().now();
        match self.engine.store().knowledge().record(&self.key, now).await {
            Ok(record) => {
                let stored: Option<StoredConversation> = serde_json::from_slice(&record?.body).ok();
                stored.map(|stored| stored.context)
            }
            Err(error) => {
                tracing::warn!(%error, "the name of a conversation on another server cannot be read");
                None
            }
        }
    }

    /// Stores the name that the other side has given.
    pub(super) async fn remember(&self, context: &str) {
        if context.is_empty() || context.len() > MAX_NAME {
            tracing::warn!(
                bytes = context.len(),
                "another server's name of a conversation is not kept: it has at most {MAX_NAME} bytes"
            );
            return;
        }
        let (now, knowledge) = (self.engine.clock().now(), self.engine.store().knowledge());
        let found = match knowledge.record(&self.key, now).await {
            Ok(found) => found,
            Err(error) => return tracing::warn!(%error, "the name of a conversation cannot be read"),
        };
        let is_known = found.as_ref().is_some_and(|record| {
            let stored: Result<StoredConversation, _> = serde_json::from_slice(&record.body);
            stored.is_ok_and(|stored| stored.context == context)
                && now.since(record.updated_at) < RENEWED_AFTER
        });
        if is_known {
            return;
        }
        let body =
            serde_json::to_vec(&StoredConversation { context: context.to_owned() }).unwrap_or_default();
        let write = RecordWrite {
            key: self.key.clone(),
            body: Some(body.into()),
            // Two first messages at once make two conversations over there: one of them is the one that goes on.
            expected: found
                .map_or(ExpectedVersion::Absent, |record| ExpectedVersion::Version(record.version)),
            expires_at: Some(now.after(KEPT_FOR)),
            now,
        };
        if let Err(error) = knowledge.write_records(vec![write]).await {
            tracing::debug!(%error, "the name of a conversation on another server was not stored");
        }
    }
}
