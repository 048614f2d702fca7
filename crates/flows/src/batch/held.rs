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
    live::{Engaged, Live},
    scheduler::{Place, Priority},
};

/// What an operation holds while it is tried.
pub(crate) struct Held<'a> {
    live: &'a Arc<Live>,
    priority: Priority,
    place: Option<Place>,
    engaged: Option<Engaged>,
    /// Whether nothing else is to begin while it rests.
    alone: bool,
    since: Instant,
    before: Duration,
}

impl<'a> Held<'a> {
    /// Waits for a place; `None` when nothing more is to begin.
    pub(crate) async fn wait(
        live: &'a Arc<Live>,
        priority: Priority,
        engaged: Engaged,
        alone: bool,
        step: &StepContext,
    ) -> Result<Option<Self>, AgentError> {
        let place = tokio::select! {
            place = live.place(priority) => place,
            () = step.canceled() => return Err(AgentError::Canceled),
        };
        let Some(place) = place else { return Ok(None) };
        let (since, before) = (Instant::now(), Duration::ZERO);
        let (place, engaged) = (Some(place), Some(engaged));
        Ok(Some(Self { live, priority, place, engaged, alone, since, before }))
    }

    /// How long it has been at work.
    pub(crate) fn worked(&self) -> Duration {
        self.before + if self.place.is_some() { self.since.elapsed() } else { Duration::ZERO }
    }

    /// Waits for what somebody has to answer, without a place, and then for a place.
    pub(crate) async fn rest(
        &mut self,
        step: &StepContext,
        answered: impl Future<Output = Result<(), AgentError>>,
    ) -> Result<(), AgentError> {
        self.before = self.worked();
        let asking = self.live.seat.asking();
        self.place = None;
        if !self.alone {
            self.engaged = None;
        }
        let resting = step.rest();
        answered.await?;
        drop((resting, asking));
        self.engaged.get_or_insert_with(|| self.live.engage());
        // It has begun, so it goes on even where nothing more is to begin.
        let place = tokio::select! {
            place = self.live.seat.place(self.priority) => place,
            () = step.canceled() => return Err(AgentError::Canceled),
        };
        (self.place, self.since) = (Some(place), Instant::now());
        Ok(())
    }
}
