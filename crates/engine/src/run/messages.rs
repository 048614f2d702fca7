//! The messages that an agent receives while it works.
//!
//! The driver reads them from the log; the agent takes each where an earlier run received it, or beyond everything that
//! earlier runs did.

use std::sync::atomic::Ordering;

use super::{RunState, TaskRun};
use crate::{
    content::Message,
    journal::{MessageReceipt, ordinal_in},
};

/// A position within a scope, and how far the scope has come there.
#[derive(Clone)]
pub(crate) struct Position {
    pub(crate) scope: String,
    pub(crate) ordinal: u32,
    pub(crate) emitted: u64,
    /// The barrier of this ordinal is in progress, or its result has not been returned to the agent yet.
    pub(crate) within: bool,
    /// An earlier run came further.
    pub(crate) replays: bool,
}

impl Position {
    fn has_reached(&self, received: &MessageReceipt) -> bool {
        // A position in another scope can never be waited for.
        let Some(ordinal) = ordinal_in(&self.scope, &received.at) else { return true };
        match self.ordinal.cmp(&ordinal) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => {
                received.within || (!self.within && self.emitted >= received.emitted)
            }
        }
    }
}

/// A message to be delivered to the agent.
pub(crate) struct DueMessage {
    pub(crate) message: Message,
    /// Whether an earlier run received it.
    pub(crate) is_recorded: bool,
}

impl TaskRun {
    /// Starts delivering messages that arrive while the agent works, including those that arrived before.
    pub(crate) fn receive_messages(&self) {
        self.receives.store(true, Ordering::Release);
        if !self.messages_read.load(Ordering::Acquire) {
            self.notify_external_write();
        }
    }

    /// Waits until messages have been read at least once after `receive_messages`.
    pub(crate) async fn wait_for_messages(&self) {
        self.until(|_| self.messages_read.load(Ordering::Acquire).then_some(())).await;
    }

    /// The message of that number, if it is due at this position: where an earlier run received it, or
    /// anywhere beyond all that earlier runs did.
    pub(crate) fn due_message(&self, number: u64, here: &Position) -> Option<DueMessage> {
        self.lock().due_message(number, here)
    }

    /// Waits until the message of that number is due at this position.
    pub(crate) async fn wait_for_message(&self, number: u64, here: &Position) {
        self.until(|shared| shared.due_message(number, here).map(|_| ())).await;
    }

    /// Whether messages are to be read now. `has_news`: another process has written to the task.
    pub(crate) fn wants_messages(&self, has_news: bool) -> bool {
        if has_news {
            // Also while the agent does not receive: if it begins to later, they are read then.
            self.messages_read.store(false, Ordering::Release);
        }
        self.receives.load(Ordering::Acquire) && !self.messages_read.load(Ordering::Acquire)
    }

    /// Passes all messages of the caller so far, without answers, to the run.
    pub(crate) fn learn_messages(&self, messages: Vec<Message>) {
        {
            let mut shared = self.lock();
            if messages.len() > shared.received.len() {
                shared.received = messages;
            }
        }
        self.messages_read.store(true, Ordering::Release);
        self.agent.notify_waiters();
    }
}

impl RunState {
    fn due_message(&self, number: u64, here: &Position) -> Option<DueMessage> {
        let message = self.received.get(usize::try_from(number).ok()?)?;
        let (is_due, is_recorded) = match self.replay.received(number) {
            Some(received) => (here.has_reached(received), true),
            None => (!here.replays, false),
        };
        is_due.then(|| DueMessage { message: message.clone(), is_recorded })
    }
}
