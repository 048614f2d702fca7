//! Calls that go on while their task waits for an answer.
//!
//! A task that waits holds nothing, and its agent is dropped. But a call may live on its connection, as a plain MCP
//! call does. So it waits here, in this process, until its task is run again. What does not fit any more is let go:
//! the oldest first, and then the call is taken up by its handle, or made again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use nuncio_client::peer::{Call, Happened, PeerError};
use nuncio_engine::TaskId;

use super::There;

/// How many calls wait.
pub(super) const WAITING_CALLS: usize = 1024;

/// A call, with what was read of it already.
pub(super) struct Live {
    pub(super) call: Call,
    pub(super) ahead: VecDeque<Happened>,
    /// How it broke off after that.
    pub(super) broken: Option<PeerError>,
    /// The other side stays as long as the call does.
    _hold: Arc<()>,
}

impl Live {
    pub(super) fn new(call: Call, there: &There) -> Self {
        Self { call, ahead: VecDeque::new(), broken: None, _hold: there.hold() }
    }
}

/// The calls that wait, oldest first, each with its task and which of the task's calls it is.
static WAITING: Mutex<VecDeque<(TaskId, u32, Live)>> = Mutex::new(VecDeque::new());

/// Keeps a call until its task is run again.
pub(super) fn keep(task: TaskId, nth: u32, live: Live) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.retain(|(known, ..)| *known != task);
    while waiting.len() >= WAITING_CALLS {
        waiting.pop_front();
    }
    waiting.push_back((task, nth, live));
}

/// Takes a task's call back, if it is here: that one of its calls, or whichever it is.
pub(super) fn take(task: TaskId, nth: Option<u32>) -> Option<Live> {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |kept: u32| nth.is_none_or(|nth| nth == kept);
    let at = waiting.iter().position(|(known, kept, _)| *known == task && is_it(*kept))?;
    waiting.remove(at).map(|(.., live)| live)
}
