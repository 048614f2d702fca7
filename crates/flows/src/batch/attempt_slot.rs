//! The scheduler slot and the stopwatch of one operation attempt.
//!
//! Waiting for a person's answer is not work. During the wait the slot is released to other operations, the
//! stopwatch stands still, and the task may be parked. A parked attempt starts again from the beginning, with a
//! new stopwatch, like an interrupted one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::{AgentError, StepContext};

use super::{
    running_batch::{RunningBatch, SlotUseGuard},
    scheduler::{Priority, SchedulerSlot},
};

/// The scheduler slot and the stopwatch of one operation attempt.
pub(crate) struct AttemptSlot<'a> {
    live: &'a Arc<RunningBatch>,
    priority: Priority,
    slot: Option<SchedulerSlot>,
    engaged: Option<SlotUseGuard>,
    /// Whether no other operation of the batch may begin while this attempt waits for an answer.
    alone: bool,
    since: Instant,
    before: Duration,
}

impl<'a> AttemptSlot<'a> {
    /// Waits for a slot; `None` when the batch begins no further operations.
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

    /// The time that the attempt has spent at work, waits excluded.
    pub(crate) fn work_time(&self) -> Duration {
        self.before + if self.slot.is_some() { self.since.elapsed() } else { Duration::ZERO }
    }

    /// Releases the slot, waits for an answer, and then waits for a slot again.
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
        // The operation has already begun, so it continues even if the batch begins no further ones.
        let place = tokio::select! {
            place = self.live.handle.acquire_slot(self.priority) => place,
            () = step.canceled() => return Err(AgentError::Canceled),
        };
        (self.slot, self.since) = (Some(place), Instant::now());
        Ok(())
    }
}
