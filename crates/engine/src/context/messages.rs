//! Messages that an agent is given while it works, at places that a restart finds again.
//!
//! A message reaches an agent at some point of what it does. The journal keeps that point, so that a run after a
//! restart is given the same message there: after the same emissions, or within the same step. A message that no run
//! was given is given only beyond everything that earlier runs did.

use super::TaskContext;
use crate::{agent::AgentError, content::Message, journal::JournalEntry, run::Position};

impl TaskContext {
    /// Begins to receive what the caller says while the agent works. Until this is called nothing is read.
    pub fn receive_messages(&self) {
        self.run.receive_messages();
    }

    /// Waits until the messages of earlier runs are known, after [`TaskContext::receive_messages`]: before that none of
    /// them is due anywhere, not even where an earlier run was given it.
    pub async fn wait_for_messages(&self) {
        self.run.wait_for_messages().await;
    }

    /// How many messages were given to this line of work before its present step, call or sleep.
    pub fn messages_before(&self) -> u64 {
        let ordinal = self.lock().ordinal;
        self.run.replayed(|replay| replay.received_before(&self.scope, ordinal))
    }

    /// The next message after the `given` ones that this agent was given since it began, if it is due here. It is
    /// journaled with what is written next. Answers to questions, and the message that made the task, are none.
    pub fn next_message(&self, given: u64) -> Result<Option<Message>, AgentError> {
        self.take_message(given, self.position(false))
    }

    /// The same, for an agent that has not been told yet how its last step, call or sleep ended: what an earlier run was
    /// given within it is due, and nothing else.
    pub fn next_message_within(&self, given: u64) -> Result<Option<Message>, AgentError> {
        // An agent that is told of a step which was done before has not caught up with itself.
        self.take_message(given, Position { replays: true, ..self.position(true) })
    }

    /// Waits until [`TaskContext::next_message`] has one. It is to be asked again when the agent has done anything.
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
