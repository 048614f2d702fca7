//! Follows a task by its events (`dev.nuncio/events`). Each event arrives once, in order, with a number that
//! is the cursor for resuming. They are encoded as in A2A 1.0 and mean the same here.

use nuncio_engine::task::State;
use nuncio_wire::{
    a2a::{StatusUpdate, StreamEvent},
    mcp::TaskEventNotification,
};

use super::{McpCall, McpCallPhase};
use crate::{
    a2a::peer::event_translator::EventTranslator,
    mcp::peer::question::AnswerRoute,
    peer::{CallEvent, PeerCallEnd, PeerError},
};

/// The position in a task's events.
pub(super) struct TaskEventCursor {
    /// The number of the last event received.
    pub(super) after: u64,
    pub(super) translator: EventTranslator,
}

impl McpCall {
    /// Handles an event.
    pub(super) fn task_event(
        &mut self,
        event: &TaskEventNotification,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        let Some(events) = &mut task.events else { return Ok(None) };
        if event.task.as_ref() != Some(&task.id) {
            return Ok(None);
        }
        let malformed = |why: String| PeerError::Malformed { at: self.connection.at.clone(), why };
        let seq = event.seq.ok_or_else(|| malformed("an event without a number".into()))?;
        if seq <= events.after {
            return Ok(None);
        }
        let event = event.read_event();
        let event = event.map_err(|error| malformed(format!("the event {seq} of a task: {error}")))?;
        let happened = match &event {
            // A question arrives in the revision's own form.
            StreamEvent::Status(update) if update.state.is_interrupted() => vec![],
            event => events.translator.translate_event(event),
        };
        let mut ended = None;
        for happened in happened {
            match happened {
                CallEvent::Ended(end) => ended = Some(end),
                happened => self.outbox.push_back(happened),
            }
        }
        if ended.is_some() {
            // The cursor stays before the final event, so that a resumed call receives it again.
            return Ok(ended);
        }
        events.after = seq;
        if let StreamEvent::Status(StatusUpdate { state: State::Working, message: None, .. }) = event {
            self.nothing_is_asked();
        }
        self.emit_handle();
        Ok(None)
    }

    /// The task is working again, so its questions were answered, here or elsewhere (2025-11-25).
    fn nothing_is_asked(&mut self) {
        while let Some(at) = self.open.iter().position(|open| matches!(open.to, AnswerRoute::Request(_))) {
            let settled = self.close_question(at);
            self.outbox.push_back(CallEvent::QuestionClosed(settled.id));
        }
    }

    /// Requests the events after the last one received, because some were dropped.
    pub(super) async fn resume_task_stream(&mut self) {
        if let Some((id, _)) = self.exchange.take() {
            self.connection.cancel(&id, "events were dropped: requesting them again").await;
        }
        self.open_task_stream().await;
    }
}
