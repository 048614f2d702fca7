//! What an operation holds while it is tried: a place of the scheduler, and a watch that runs as long as it has one.
//!
//! Waiting for a person is not work: meanwhile the place is another's, the watch stands still, and the task may be
//! parked. A try that was parked is begun again, and its watch with it, as one that was cut.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::{AgentError, StepContext};

use super::{
    running_batch::{RunningBatch, SlotUseGuard},
    scheduler::{Priority, SchedulerSlot},
};

/// What an operation holds while it is tried.
pub(crate) struct AttemptSlot<'a> {
    live: &'a Arc<RunningBatch>,
    priority: Priority,
    slot: Option<SchedulerSlot>,
    engaged: Option<SlotUseGuard>,
    /// Whether nothing else is to begin while it rests.
    alone: bool,
    since: Instant,
    before: Duration,
}

impl<'a> AttemptSlot<'a> {
    /// Waits for a place; `None` when nothing more is to begin.
    pub(crate) async fn acquire(
        live: &'a Arc<RunningBatch>,
        priority: Priority,
        engaged: SlotUseGuard,
        alone: bool,
        step: &StepContext,
    ) -> Result<Option<Self>, AgentError> {
        let place = tokio::select! {
            place = live.acquire_slot(priority) => place,
            () = step.canceled() => return Err(AgentError::Canceled),
        };
        let Some(place) = place else { return Ok(None) };
        let (since, before) = (Instant::now(), Duration::ZERO);
        let (place, engaged) = (Some(place), Some(engaged));
        Ok(Some(Self { live, priority, slot: place, engaged, alone, since, before }))
    }

    /// How long it has been at work.
    pub(crate) fn work_time(&self) -> Duration {
        self.before + if self.slot.is_some() { self.since.elapsed() } else { Duration::ZERO }
    }

    /// Waits for what somebody has to answer, without a place, and then for a place.
    pub(crate) async fn wait_for_answer(
        &mut self,
        step: &StepContext,
        answered: impl Future<Output = Result<(), AgentError>>,
    ) -> Result<(), AgentError> {
        self.before = self.work_time();
        let asking = self.live.handle.asking();
        self.slot = None;
        if !self.alone {
            self.engaged = None;
        }
        let resting = step.allow_parking();
        answered.await?;
        drop((resting, asking));
        self.engaged.get_or_insert_with(|| self.live.begin_slot_use());
        // It has begun, so it goes on even where nothing more is to begin.
        let place = tokio::select! {
            place = self.live.handle.acquire_slot(self.priority) => place,
            () = step.canceled() => return Err(AgentError::Canceled),
        };
        (self.slot, self.since) = (Some(place), Instant::now());
        Ok(())
    }
}
