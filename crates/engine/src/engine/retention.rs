//! How long ended tasks are retained, and the deletion of those that are older.
//!
//! With one retention for all tasks the store finds them by itself. Otherwise a reader walks over the ended tasks that are
//! older than the shortest retention, some of them at each poll, and picks those past their own.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{Engine, EngineCore};
use crate::{
    error::Error,
    store::{AgedPhase, AgedTask, AgedTaskCursor, AgedTaskQuery},
    task::{State, Task, TaskId},
};

/// Tasks deleted, or read, at once.
const PAGE: usize = 256;
/// Ended tasks that one poll reads where their retention differs. What is beyond is for the next poll.
const READ_PER_POLL: usize = 64 * PAGE;

/// The retention of tasks that ended in one state, where it is not that of all. Only an agent's own goes before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionByState {
    /// Of tasks that completed, and of those that were answered by a message.
    pub completed: Option<Duration>,
    /// Of tasks that failed.
    pub failed: Option<Duration>,
    /// Of tasks that were canceled.
    pub canceled: Option<Duration>,
    /// Of tasks that were rejected.
    pub rejected: Option<Duration>,
}

impl RetentionByState {
    fn of(&self, state: State) -> Option<Duration> {
        match state {
            State::Completed | State::Replied => self.completed,
            State::Failed => self.failed,
            State::Canceled => self.canceled,
            State::Rejected => self.rejected,
            State::Submitted | State::Working | State::InputRequired | State::AuthRequired => None,
        }
    }
}

/// The position of the walk over ended tasks, from one poll to the next.
#[derive(Default)]
pub(super) struct RetentionWalk {
    after: Option<AgedTaskCursor>,
    /// Tasks read in this poll.
    read: usize,
}

/// The retention of every kind of task, as of now.
struct RetentionRules {
    default: Duration,
    by_state: RetentionByState,
    by_agent: HashMap<String, Duration>,
}

impl RetentionRules {
    fn of(&self, agent: &str, state: State) -> Duration {
        let own = self.by_agent.get(agent).copied();
        own.or_else(|| self.by_state.of(state)).unwrap_or(self.default)
    }

    fn shortest(&self) -> Duration {
        let RetentionByState { completed, failed, canceled, rejected } = self.by_state;
        let by_state = [completed, failed, canceled, rejected].into_iter().flatten();
        self.by_agent.values().copied().chain(by_state).chain([self.default]).min().unwrap_or(self.default)
    }

    fn is_due(&self, task: &AgedTask) -> bool {
        task.age > self.of(&task.agent, task.state)
    }

    fn is_one_for_all(&self) -> bool {
        self.by_agent.is_empty() && self.by_state == RetentionByState::default()
    }
}

impl Engine {
    /// How long a task of that agent is retained after it has ended in that state.
    pub fn retention_of(&self, agent: &str, state: State) -> Duration {
        self.0.retention_of(agent, state)
    }
}

impl EngineCore {
    /// How long a task of that agent is retained after it has ended in that state.
    pub(crate) fn retention_of(&self, agent: &str, state: State) -> Duration {
        let own = self.catalog.get(agent).ok().and_then(|registered| registered.profile.retention);
        own.or_else(|| self.options.retention_by_state.of(state)).unwrap_or(self.options.retention)
    }

    /// The ended task, if it is cached and not past its retention: then it is deleted, or will be.
    pub(crate) fn finished(&self, id: TaskId) -> Option<Arc<Task>> {
        let task = self.ended.get(id)?;
        let retention = self.retention_of(&task.origin.agent, task.state);
        (task.status_at >= self.clock.now().before(retention)).then_some(task)
    }

    fn retention_rules(&self) -> RetentionRules {
        let own = self.catalog.iter().filter_map(|registered| {
            registered.profile.retention.map(|retention| (registered.profile.name.clone(), retention))
        });
        RetentionRules {
            default: self.options.retention,
            by_state: self.options.retention_by_state,
            by_agent: own.collect(),
        }
    }

    /// Deletes some of the tasks past their retention. Returns whether there may be more for this poll.
    pub(super) async fn expire_some(&self, walk: &mut RetentionWalk) -> Result<bool, Error> {
        let (rules, now) = (self.retention_rules(), self.clock.now());
        if rules.is_one_for_all() {
            *walk = RetentionWalk::default();
            return Ok(self.store.expire(now.before(rules.default), PAGE).await? as usize == PAGE);
        }
        let query = AgedTaskQuery {
            phase: AgedPhase::Ended,
            now,
            older_than: rules.shortest(),
            after: walk.after,
            limit: PAGE,
        };
        let page = self.store.aged_tasks(&query).await?;
        let due = page.iter().filter(|task| rules.is_due(task));
        let due: Vec<_> = due.map(|task| (task.cursor.no, task.cursor.status_at)).collect();
        if !due.is_empty() {
            self.store.delete_ended(&due).await?;
        }
        walk.after = page.last().filter(|_| page.len() == PAGE).map(|last| last.cursor);
        walk.read += page.len();
        let more = walk.after.is_some() && walk.read < READ_PER_POLL;
        if !more {
            walk.read = 0;
        }
        Ok(more)
    }
}
