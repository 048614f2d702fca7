//! How many processes of one program there may be at once. Whoever finds no place waits for one.

use std::sync::Arc;

use nuncio_engine::{AgentError, TaskContext};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of one program.
pub(super) struct Places(Arc<Semaphore>);

/// One of them, while it is taken.
pub(super) struct Place {
    all: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
    }

    /// Waits for a place, unless the task is to end.
    pub(super) async fn take(&self, cx: &TaskContext) -> Result<Place, AgentError> {
        let mut place = Place { all: Arc::clone(&self.0), taken: None };
        place.take(cx).await?;
        Ok(place)
    }
}

impl Place {
    /// Gives it back for a while.
    pub(super) fn give_back(&mut self) {
        self.taken = None;
    }

    /// Waits until it is taken again, unless the task is to end.
    pub(super) async fn take(&mut self, cx: &TaskContext) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = cx.canceled() => Err(AgentError::Canceled),
            taken = Arc::clone(&self.all).acquire_owned() => {
                // They are never closed.
                self.taken = taken.ok();
                Ok(())
            }
        }
    }
}
