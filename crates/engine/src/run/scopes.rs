//! The scopes of a run: which of them live, what each waits for, and whether the run can be parked.
//!
//! A scope is the root of an agent's work, or a branch of it. A run is parked only when all of its scopes wait and no step
//! or call is in progress.

use super::TaskRun;
use crate::{agent::AgentError, clock::Timestamp, journal::JournalEntry};

/// The state of one scope: the root, or a branch.
#[derive(Default)]
pub(super) struct ScopeState {
    /// The number of its live branches. While there are any, it waits for them and only they count.
    branches: usize,
    /// What it waits for, if it does.
    waits: Option<ScopeWait>,
}

/// What a scope waits for outside of the run.
pub(crate) enum ScopeWait {
    /// The answer to this question.
    Answer(String),
    /// This point in time.
    Until(Timestamp),
    /// The answer to this question, or this point in time.
    AnswerBy(String, Timestamp),
}

impl TaskRun {
    /// Marks a scope as waiting for an answer or a point in time, until the guard is dropped.
    pub(crate) fn wait_in<'a>(&'a self, scope: &'a str, wait: ScopeWait) -> ScopeWaitGuard<'a> {
        if let Some(line) = self.lock().lines.get_mut(scope) {
            line.waits = Some(wait);
        }
        self.driver.notify_one();
        ScopeWaitGuard { run: self, scope }
    }

    /// Marks work in progress, during which the driver must not park the run, until the guard is dropped.
    pub(crate) fn busy(&self) -> BusyGuard<'_> {
        self.lock().busy += 1;
        BusyGuard(self)
    }

    /// Marks work in progress as waiting, so that the run may be parked, until the guard is dropped.
    pub(crate) fn allow_parking(&self) -> ParkableGuard<'_> {
        self.lock().busy -= 1;
        self.driver.notify_one();
        ParkableGuard(self)
    }

    /// Marks the run as waiting for another task, until the guard is dropped.
    pub(crate) fn calling(&self) -> CallGuard<'_> {
        let mut shared = self.lock();
        shared.calls += 1;
        if shared.calls == 1 {
            self.engine.begin_calling(&self.origin.owner, self.depth);
        }
        drop(shared);
        CallGuard { _busy: self.busy(), run: self }
    }

    /// Begins a scope; returns false if one of that name existed in this run.
    pub(crate) fn enter_branch(&self, scope: &str) -> bool {
        let mut shared = self.lock();
        if !shared.scopes.insert(scope.to_owned()) {
            return false;
        }
        shared.lines.insert(scope.to_owned(), ScopeState::default());
        if let Some(outer) = shared.lines.get_mut(outer_scope(scope)) {
            outer.branches += 1;
        }
        true
    }

    /// Ends a scope. Its emit cursor moves from the header to the journal: a branch is not entered twice.
    pub(crate) fn leave_branch(&self, scope: &str) {
        let mut shared = self.lock();
        if let Some(mark) = shared.head.marks.remove(scope) {
            let left = JournalEntry::Left { scope: scope.to_owned(), mark };
            let encoded = left.encode();
            shared.put(left, encoded);
        }
        if shared.lines.remove(scope).is_some()
            && let Some(outer) = shared.lines.get_mut(outer_scope(scope))
        {
            outer.branches -= 1;
        }
        drop(shared);
        self.driver.notify_one();
    }

    /// Whether the agent does nothing but wait, so that the run can be parked; with the time at which it is
    /// due again by itself.
    pub(crate) fn parkable(&self) -> Option<Option<Timestamp>> {
        let shared = self.lock();
        let idle = shared.busy == 0 && shared.entries.is_empty() && shared.journal.is_empty();
        if !idle || !shared.is_created {
            return None;
        }
        let mut wake_at: Option<Timestamp> = None;
        for line in shared.lines.values().filter(|line| line.branches == 0) {
            match line.waits.as_ref()? {
                // Answered, but the agent has not taken the answer yet: do not park in between.
                ScopeWait::Answer(question) | ScopeWait::AnswerBy(question, _)
                    if shared.replay.outcome(question).is_some() =>
                {
                    return None;
                }
                ScopeWait::Answer(_) => {}
                ScopeWait::Until(at) | ScopeWait::AnswerBy(_, at) => {
                    wake_at = Some(wake_at.map_or(*at, |earlier| earlier.min(*at)));
                }
            }
        }
        Some(wake_at)
    }

    /// Records that a scope was dropped before it had emitted what an earlier run had.
    pub(crate) fn note_incomplete_scope(&self, scope: &str) {
        self.lock().incomplete_scope = Some(scope.to_owned());
    }

    /// An agent that returns after emitting less than before its restart is nondeterministic. A canceled
    /// agent may emit less.
    pub(crate) fn check_replayed(&self) -> Result<(), AgentError> {
        match &self.lock().incomplete_scope {
            _ if self.is_canceled() => Ok(()),
            None => Ok(()),
            Some(scope) => Err(AgentError::Nondeterministic(format!(
                "in scope {scope:?} it ended before it had emitted what it emitted before the restart"
            ))),
        }
    }
}

/// The scope from which a branch was made.
fn outer_scope(scope: &str) -> &str {
    scope.rsplit_once('/').map_or("", |(outer, _)| outer)
}

/// Marks a scope as waiting.
pub(crate) struct ScopeWaitGuard<'a> {
    run: &'a TaskRun,
    scope: &'a str,
}

impl Drop for ScopeWaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.run.lock().lines.get_mut(self.scope) {
            line.waits = None;
        }
    }
}

/// Marks a call in progress.
pub(crate) struct CallGuard<'a> {
    _busy: BusyGuard<'a>,
    run: &'a TaskRun,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut shared = self.run.lock();
        shared.calls -= 1;
        if shared.calls == 0 {
            self.run.engine.end_calling(&self.run.origin.owner, self.run.depth);
        }
    }
}

/// Marks a step that waits for a question of a branch; see [`crate::StepContext::allow_parking`].
pub struct ParkableGuard<'a>(&'a TaskRun);

impl Drop for ParkableGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy += 1;
    }
}

/// Marks work during which the run must not be parked.
pub(crate) struct BusyGuard<'a>(&'a TaskRun);

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.driver.notify_one();
    }
}
