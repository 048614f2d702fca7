//! How many processes of one program there may be at once. Whoever finds no place waits for one.

use std::sync::Arc;

use nuncio_engine::{AgentError, TaskContext};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of one program.
pub(super) struct ProcessSlots(Arc<Semaphore>);

/// One of them, while it is taken.
pub(super) struct ProcessSlot {
    all: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ProcessSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
    }

    /// Waits for a place, unless the task is to end.
    pub(super) async fn acquire(&self, cx: &TaskContext) -> Result<ProcessSlot, AgentError> {
        let mut place = ProcessSlot { all: Arc::clone(&self.0), permit: None };
        place.reacquire(cx).await?;
        Ok(place)
    }
}

impl ProcessSlot {
    /// Gives it back for a while.
    pub(super) fn release(&mut self) {
        self.permit = None;
    }

    /// Waits until it is taken again, unless the task is to end.
    pub(super) async fn reacquire(&mut self, cx: &TaskContext) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = cx.canceled() => Err(AgentError::Canceled),
            taken = Arc::clone(&self.all).acquire_owned() => {
                // They are never closed.
                self.permit = taken.ok();
                Ok(())
            }
        }
    }
}
