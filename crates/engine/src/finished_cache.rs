//! A FIFO cache of finished tasks, bounded by bytes.
//!
//! A finished task never changes, so an entry needs no validation with other nodes. An entry is removed to make
//! room, when its task is deleted, or with all others when a notification of a deletion may have been lost.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    content::{Message, Part},
    task::{State, Task, TaskId},
};
use parking_lot::Mutex;

/// One task may take at most this fraction (1/8) of the cache.
const SHARE: usize = 8;
/// The approximate overhead of a task, a message and a part beside their content. Measured: with 256 bytes
/// for each, 72,000 small tasks took 2.6 times the estimate.
const TASK: usize = 1_536;
const MESSAGE: usize = 640;
const PART: usize = 320;

/// Holds at most `room` bytes of finished tasks.
pub(crate) struct FinishedTaskCache {
    room: usize,
    finished: Mutex<FinishedTasks>,
}

#[derive(Default)]
struct FinishedTasks {
    tasks: HashMap<TaskId, Arc<Task>>,
    /// Oldest first, with their sizes.
    order: VecDeque<(TaskId, usize)>,
    bytes: usize,
}

impl FinishedTaskCache {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, finished: Mutex::default() }
    }

    /// The task, if it is cached.
    pub(crate) fn get(&self, id: TaskId) -> Option<Arc<Task>> {
        self.finished.lock().tasks.get(&id).cloned()
    }

    /// Caches a task, if it has ended as a task and is not too large, and evicts the oldest to make room.
    pub(crate) fn insert(&self, task: &Arc<Task>) {
        let (id, size) = (task.origin.id, size(task));
        if !task.state.is_terminal() || task.state == State::Replied || size > self.room / SHARE {
            return;
        }
        let mut kept = self.finished.lock();
        if kept.tasks.insert(id, Arc::clone(task)).is_some() {
            return;
        }
        kept.order.push_back((id, size));
        kept.bytes += size;
        while kept.bytes > self.room
            && let Some((oldest, size)) = kept.order.pop_front()
        {
            kept.tasks.remove(&oldest);
            kept.bytes -= size;
        }
    }

    /// Removes a task that was deleted.
    pub(crate) fn forget(&self, id: TaskId) {
        let mut kept = self.finished.lock();
        if kept.tasks.remove(&id).is_some()
            && let Some(place) = kept.order.iter().position(|(known, _)| *known == id)
            && let Some((_, size)) = kept.order.remove(place)
        {
            kept.bytes -= size;
        }
    }

    /// Removes all tasks.
    pub(crate) fn clear(&self) {
        *self.finished.lock() = FinishedTasks::default();
    }
}

/// The approximate memory use of a task.
pub(crate) fn size(task: &Task) -> usize {
    let messages = task.history.iter().chain(&task.status_message);
    let artifacts: usize = task.artifacts.iter().map(|artifact| sizes(&artifact.parts)).sum();
    TASK + messages.map(|message: &Message| MESSAGE + sizes(&message.parts)).sum::<usize>() + artifacts
}

fn sizes(parts: &[Part]) -> usize {
    parts.iter().map(|part| PART + part.size()).sum()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{clock::Timestamp, content::Role, task::Origin};

    fn task(n: u128, state: State, text: usize) -> Arc<Task> {
        let id = TaskId(Uuid::from_u128(n));
        let mut task = Task::new(Origin {
            id,
            client_id: None,
            context: id.own_context(),
            agent: "echo".into(),
            owner: "local".into(),
            dialect: "engine".into(),
            metadata: None,
            trace: None,
            accepts_reply: false,
        });
        task.history.push(Message::text("m", Role::User, "x".repeat(text)));
        (task.state, task.status_at) = (state, Timestamp(n as i64));
        Arc::new(task)
    }

    fn get(ended: &FinishedTaskCache, n: u128) -> bool {
        ended.get(TaskId(Uuid::from_u128(n))).is_some()
    }

    #[test]
    fn the_last_ones_that_fit_are_kept() {
        let ended = FinishedTaskCache::new(10 * size(&task(0, State::Completed, 1_000)));
        for n in 1..=100 {
            ended.insert(&task(n, State::Completed, 1_000));
            ended.insert(&task(n, State::Completed, 1_000));
        }
        let kept: Vec<u128> = (1..=100).filter(|n| get(&ended, *n)).collect();
        assert_eq!(kept, (91..=100).collect::<Vec<_>>());
        assert!(ended.finished.lock().bytes <= ended.room);
        // A task that is too large for the cache does not evict the others.
        ended.insert(&task(200, State::Completed, ended.room / SHARE));
        assert!(!get(&ended, 200) && get(&ended, 91));
    }

    #[test]
    fn a_task_that_may_change_is_not_kept() {
        let ended = FinishedTaskCache::new(1 << 20);
        for (n, state) in (1..).zip(State::ALL) {
            ended.insert(&task(n, state, 10));
            assert_eq!(get(&ended, n), state.is_terminal(), "{state:?}");
        }
        ended.insert(&task(99, State::Replied, 10));
        assert!(!get(&ended, 99), "an answer by a message is no task");
    }
}
