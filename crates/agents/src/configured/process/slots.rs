//! A limit on the concurrent processes of one program. Further tasks wait for a slot.

use std::sync::Arc;

use nuncio_engine::{AgentError, TaskContext};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of one program.
pub(super) struct ProcessSlots(Arc<Semaphore>);

/// One acquired slot.
pub(super) struct ProcessSlot {
    all: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ProcessSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
    }

    /// Waits for a slot, unless the task is canceled.
    pub(super) async fn acquire(&self, cx: &TaskContext) -> Result<ProcessSlot, AgentError> {
        let mut place = ProcessSlot { all: Arc::clone(&self.0), permit: None };
        place.reacquire(cx).await?;
        Ok(place)
    }
}

impl ProcessSlot {
    /// Releases the slot for a while.
    pub(super) fn release(&mut self) {
        self.permit = None;
    }

    /// Waits until the slot is acquired again, unless the task is canceled.
    pub(super) async fn reacquire(&mut self, cx: &TaskContext) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = cx.canceled() => Err(AgentError::Canceled),
            taken = Arc::clone(&self.all).acquire_owned() => {
                // The semaphore is never closed.
                self.permit = taken.ok();
                Ok(())
            }
        }
    }
}
