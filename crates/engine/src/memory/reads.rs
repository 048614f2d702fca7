//! Read counters that are not in the store yet.
//!
//! A read costs no write: it is counted in memory, visible at once on this node, and flushed with others every
//! half minute, when many entries wait, and when the engine stops. Other nodes see it after that; a crash loses what
//! was not flushed.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, RwLockReadGuard};

use crate::{
    clock::Timestamp,
    engine::EngineCore,
    knowledge::{MemoryKey, MemoryReads},
};

/// The most entries whose reads wait to be flushed.
const WAITING: usize = 65_536;
/// The most entries whose reads are written at once.
const AT_ONCE: usize = 512;

/// Read counters that are not in the store yet.
pub(crate) struct Reads {
    counted: Mutex<HashMap<MemoryKey, (u64, Timestamp)>>,
    /// So many entries are flushed before it is time.
    many: usize,
    /// Notified when there are so many.
    are_many: Notify,
    /// Write-locked while counts move to the store, so that no reader sees them twice or not at all.
    moving: RwLock<()>,
}

impl Reads {
    /// No reads. `many` entries are flushed before it is time.
    pub(crate) fn new(many: usize) -> Self {
        Self {
            counted: Mutex::default(),
            many: many.clamp(1, WAITING),
            are_many: Notify::new(),
            moving: RwLock::default(),
        }
    }

    /// Waits until many entries have been read since the last flush.
    pub(crate) async fn wait_for_many(&self) {
        self.are_many.notified().await;
    }

    /// Until the guard is dropped, the store's count and the count here add up.
    pub(super) async fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().await
    }

    /// Counts one read.
    pub(super) fn add(&self, key: &MemoryKey, at: Timestamp) {
        let mut counted = self.counted.lock();
        if let Some((count, last)) = counted.get_mut(key) {
            *count += 1;
            *last = at.max(*last);
        } else if counted.len() < WAITING {
            counted.insert(key.clone(), (1, at));
            // Once, and not for each read above it: while the store fails, the rest waits for its time.
            if counted.len() == self.many {
                self.are_many.notify_one();
            }
        }
        // The buffer is full because the store fails; this read is lost, as in a crash.
    }

    /// The unflushed reads of an entry.
    pub(super) fn of(&self, key: &MemoryKey) -> Option<(u64, Timestamp)> {
        self.counted.lock().get(key).copied()
    }

    /// Drops the reads of a deleted entry.
    pub(crate) fn forget(&self, key: &MemoryKey) {
        self.counted.lock().remove(key);
    }

    /// Drops the reads of all entries of a namespace.
    pub(crate) fn forget_all(&self, tenant: &str, namespace: &str) {
        self.counted.lock().retain(|key, _| key.tenant != tenant || key.namespace != namespace);
    }

    /// Flushes if the buffer is full.
    pub(super) async fn make_room(&self, engine: &EngineCore) {
        if self.counted.lock().len() >= WAITING {
            self.flush(engine).await;
        }
    }

    /// Flushes all counted reads.
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
                tracing::warn!(%error, "reads of the memory bank could not be written; retrying");
                return;
            }
            let mut counted = self.counted.lock();
            for MemoryReads { key, .. } in &some {
                counted.remove(key);
            }
        }
    }
}
