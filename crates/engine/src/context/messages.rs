//! Messages that an agent receives while it works, at positions that a restart reproduces.
//!
//! A message reaches an agent at some point of its work. The journal records that point, so that a run after a
//! restart receives the same message there: after the same emissions, or within the same step. A message that no
//! run has received is delivered only beyond everything that earlier runs did.

use super::TaskContext;
use crate::{agent::AgentError, content::Message, journal::JournalEntry, run::Position};

impl TaskContext {
    /// Starts to receive the messages that the caller sends while the agent works. Nothing is read before this
    /// call.
    pub fn receive_messages(&self) {
        self.run.receive_messages();
    }

    /// Waits until the messages of earlier runs are loaded, after [`TaskContext::receive_messages`]. Before that
    /// none of them is due anywhere, not even where an earlier run received it.
    pub async fn wait_for_messages(&self) {
        self.run.wait_for_messages().await;
    }

    /// How many messages this scope received before its current step, call or sleep.
    pub fn messages_before(&self) -> u64 {
        let ordinal = self.lock().ordinal;
        self.run.replayed(|replay| replay.received_before(&self.scope, ordinal))
    }

    /// The next message after the `given` ones that this agent has received since it began, if it is due here.
    /// Its receipt is journaled with the next write. Answers to questions, and the message that created the task,
    /// are not included.
    pub fn next_message(&self, given: u64) -> Result<Option<Message>, AgentError> {
        self.take_message(given, self.position(false))
    }

    /// Like [`TaskContext::next_message`], for an agent that does not know yet how its last step, call or sleep
    /// ended: only messages that an earlier run received within it are due.
    pub fn next_message_within(&self, given: u64) -> Result<Option<Message>, AgentError> {
        // An agent that gets a replayed step has not caught up with its earlier run.
        self.take_message(given, Position { replays: true, ..self.position(true) })
    }

    /// Waits until [`TaskContext::next_message`] has one. Call it again after the agent has done anything.
    pub async fn wait_for_message(&self, given: u64) {
        self.run.wait_for_message(given + 1, &self.position(false)).await;
    }

    fn take_message(&self, given: u64, here: Position) -> Result<Option<Message>, AgentError> {
        let number = given + 1;
        let Some(due) = self.run.due_message(number, &here) else { return Ok(None) };
        if !due.is_recorded {
            let Position { scope, ordinal, emitted, within, .. } = here;
            self.note(JournalEntry::Received { at: format!("{scope}#{ordinal}"), number, emitted, within })?;
        }
        Ok(Some(due.message))
    }

    fn position(&self, within: bool) -> Position {
        let known = self.lock().last_before;
        let last_before =
            known.unwrap_or_else(|| self.run.replayed(|replay| replay.last_ordinal(&self.scope)));
        let mut line = self.lock();
        line.last_before = Some(last_before);
        Position {
            scope: self.scope.clone(),
            ordinal: line.ordinal,
            emitted: line.emitted.n,
            within: within || line.occupied,
            replays: line.emitted.n < line.before.n || line.ordinal < last_before,
        }
    }
}
