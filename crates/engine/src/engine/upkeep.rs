//! What an engine does by the clock: it says that it lives, and forgets what is old.

use std::sync::Arc;

use super::{Inner, closed};
use crate::{clock::Timestamp, error::Error};

/// Keeps this node's leases.
pub(super) async fn heartbeat_loop(engine: Arc<Inner>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.options.lease / 3) => {}
            // The last beat stands until the lease is over; handed-back tasks do not depend on it.
            () = closed(&mut closing) => return,
        }
        if let Err(error) = engine.beat().await {
            tracing::warn!(%error, "no sign of life reached the store");
        }
    }
}

/// Deletes tasks that ended long ago.
pub(super) async fn expiry_loop(engine: Arc<Inner>) {
    const AT_ONCE: usize = 256;
    let mut closing = engine.closing();
    loop {
        match engine.store.expire(engine.kept_since(), AT_ONCE).await {
            Ok(deleted) if deleted as usize == AT_ONCE => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "ended tasks could not be deleted"),
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.expiry_poll) => {}
            () = closed(&mut closing) => return,
        }
    }
}

impl Inner {
    /// What ended before this is, or will be, deleted.
    pub(super) fn kept_since(&self) -> Timestamp {
        self.clock.now().before(self.options.retention)
    }

    /// Says that this node lives.
    pub(super) async fn beat(&self) -> Result<(), Error> {
        let until = self.clock.now().after(self.options.lease);
        Ok(self.store.heartbeat(self.node, until).await?)
    }
}
