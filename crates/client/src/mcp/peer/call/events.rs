//! A task that is followed by its events (`dev.nuncio/events`): each comes once, in order, with its number, which is
//! the cursor to come back with. They are written as A2A 1.0 writes them, and mean the same here.

use nuncio_engine::task::State;
use nuncio_wire::a2a::{Dialect, StatusUpdate, StreamEvent};
use serde_json::{Value, value::to_raw_value};

use super::{McpCall, McpCallPhase};
use crate::{
    a2a::peer::event_translator::EventTranslator,
    mcp::peer::question::AnswerRoute,
    peer::{CallEvent, PeerCallEnd, PeerError},
};

/// How far a task has been followed.
pub(super) struct TaskEventCursor {
    /// The last event that was seen.
    pub(super) after: u64,
    pub(super) translator: EventTranslator,
}

impl McpCall {
    /// Takes an event.
    pub(super) fn task_event(&mut self, params: &Value) -> Result<Option<PeerCallEnd>, PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        let Some(events) = &mut task.events else { return Ok(None) };
        if params["taskId"].as_str() != Some(&task.id) {
            return Ok(None);
        }
        let malformed = |why: String| PeerError::Malformed { at: self.connection.at.clone(), why };
        let seq = params["seq"].as_u64().ok_or_else(|| malformed("an event without a number".into()))?;
        if seq <= events.after {
            return Ok(None);
        }
        let event = to_raw_value(&params["event"]).map_err(|error| malformed(error.to_string()))?;
        let event = Dialect::V1.read_event(&event);
        let event = event.map_err(|error| malformed(format!("the event {seq} of a task: {error}")))?;
        let happened = match &event {
            // A question comes as the revision has it.
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
            // Whoever comes back after this point is told once more how it ended.
            return Ok(ended);
        }
        events.after = seq;
        if let StreamEvent::Status(StatusUpdate { state: State::Working, message: None, .. }) = event {
            self.nothing_is_asked();
        }
        self.emit_handle();
        Ok(None)
    }

    /// The task goes on, so that what it asked has been answered, here or elsewhere (2025-11-25).
    fn nothing_is_asked(&mut self) {
        while let Some(at) = self.open.iter().position(|open| matches!(open.to, AnswerRoute::Request(_))) {
            let settled = self.close_question(at);
            self.outbox.push_back(CallEvent::QuestionClosed(settled.id));
        }
    }

    /// Asks for the events after the last one that was seen, because some were dropped.
    pub(super) async fn resume_task_stream(&mut self) {
        if let Some((id, _)) = self.exchange.take() {
            self.connection.cancel(&id, "events were dropped: they are asked for again").await;
        }
        self.open_task_stream().await;
    }
}
