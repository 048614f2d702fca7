//! Who sent a message, gave an answer or canceled a task, and over which protocol, as far as the reader may know.

use nuncio_engine::{Caller, Event, SentBy, task::Origin};
use serde::Serialize;

/// A sender as JSON.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct SenderView {
    /// The caller's owner name; null where the reader may not know it.
    caller: Option<String>,
    dialect: String,
}

impl SenderView {
    pub(super) fn of(by: &SentBy, viewer: &Caller, task_owner: &str) -> Self {
        Self {
            caller: by.caller_for(viewer, task_owner).map(str::to_owned),
            dialect: by.dialect().to_owned(),
        }
    }
}

/// The senders of one task's events, for one reader.
pub(super) struct Senders<'a> {
    pub(super) viewer: &'a Caller,
    pub(super) origin: &'a Origin,
}

impl Senders<'_> {
    /// The sender of an event. The first message has none of its own: it is the task's owner, over the protocol in which
    /// the task was created.
    pub(super) fn of(&self, seq: u64, event: &Event) -> Option<SenderView> {
        let Origin { owner, dialect, .. } = self.origin;
        let first = (seq == 1).then(|| SentBy::owner_over(dialect.clone()));
        let by = event.by().or(first.as_ref())?;
        Some(SenderView::of(by, self.viewer, owner))
    }
}
