//! Reads that were counted here and not in the store yet.
//!
//! A read costs no write: it is counted in memory, shown at once by this node, and written with others every few
//! seconds and when the engine stops. Another node sees it after that; a crash loses what was not written.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::{
    clock::Timestamp,
    engine::EngineCore,
    knowledge::{MemoryKey, MemoryReads},
};

/// Entries whose reads may wait to be written.
const WAITING: usize = 65_536;
/// Entries whose reads are written at once.
const AT_ONCE: usize = 512;

/// Reads that were counted here and not in the store yet.
#[derive(Default)]
pub(crate) struct Reads {
    counted: Mutex<HashMap<MemoryKey, (u64, Timestamp)>>,
    /// Held for writing while counts go from here to the store, so that nobody sees them twice or not at all.
    moving: RwLock<()>,
}

impl Reads {
    /// Until it is dropped, what the store says and what is counted here add up.
    pub(super) async fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().await
    }

    /// Counts one.
    pub(super) fn add(&self, key: &MemoryKey, at: Timestamp) {
        let mut counted = self.counted.lock();
        if let Some((count, last)) = counted.get_mut(key) {
            *count += 1;
            *last = at.max(*last);
        } else if counted.len() < WAITING {
            counted.insert(key.clone(), (1, at));
        }
        // Else they cannot be written, and this one is lost, as in a crash.
    }

    /// What is counted of an entry.
    pub(super) fn of(&self, key: &MemoryKey) -> Option<(u64, Timestamp)> {
        self.counted.lock().get(key).copied()
    }

    /// Forgets reads of an entry that is gone.
    pub(crate) fn forget(&self, key: &MemoryKey) {
        self.counted.lock().remove(key);
    }

    /// Forgets reads of all entries of a namespace.
    pub(crate) fn forget_all(&self, tenant: &str, namespace: &str) {
        self.counted.lock().retain(|key, _| key.tenant != tenant || key.namespace != namespace);
    }

    /// Writes what waits, where it is too much.
    pub(super) async fn make_room(&self, engine: &EngineCore) {
        if self.counted.lock().len() >= WAITING {
            self.flush(engine).await;
        }
    }

    /// Writes what waits.
    pub(crate) async fn flush(&self, engine: &EngineCore) {
        loop {
            let _moving = self.moving.write().await;
            let some: Vec<MemoryReads> = {
                let counted = self.counted.lock();
                let read = |(key, (reads, at)): (&MemoryKey, &(u64, Timestamp))| MemoryReads {
                    key: key.clone(),
                    reads: *reads,
                    at: *at,
                };
                counted.iter().take(AT_ONCE).map(read).collect()
            };
            if some.is_empty() {
                return;
            }
            if let Err(error) = engine.store.knowledge().count_reads(&some).await {
                tracing::warn!(%error, "reads of the memory bank could not be written; trying again");
                return;
            }
            let mut counted = self.counted.lock();
            for MemoryReads { key, .. } in &some {
                counted.remove(key);
            }
        }
    }
}
