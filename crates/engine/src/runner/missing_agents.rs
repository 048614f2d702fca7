//! Tasks whose agent is not served here just now.
//!
//! A table may be out of the configuration for a minute, and of two nodes one reads a new one first. So such a task
//! is given back, to be looked at again soon, and fails only when its agent has been missing for long.

use std::{collections::HashMap, time::Duration};

use crate::{clock::Timestamp, store::TaskRow, task::TaskId};
use parking_lot::Mutex;

/// How long such a task is left alone before it is looked at again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What this node has given back, and since when.
#[derive(Default)]
pub(crate) struct MissingAgents {
    tasks: Mutex<HashMap<TaskId, MissingSince>>,
}

struct MissingSince {
    since: Timestamp,
    /// The lease under which it was given back. The next one is ours too, unless somebody ran it meanwhile.
    epoch: u64,
}

impl MissingAgents {
    /// Whether to give the task back once more: not when its agent has been missing for as long as `patience`.
    pub(super) fn should_retry(&self, row: &TaskRow, now: Timestamp, patience: Duration) -> bool {
        let mut tasks = self.tasks.lock();
        // Others may have taken and ended what stands here.
        tasks.retain(|_, given| now < given.since.after(patience + 10 * LOOK_AGAIN));
        let given = tasks.entry(row.id).or_insert(MissingSince { since: now, epoch: row.epoch });
        if given.epoch.abs_diff(row.epoch) > 1 {
            given.since = now;
        }
        given.epoch = row.epoch;
        let again = now < given.since.after(patience);
        if !again {
            tasks.remove(&row.id);
        }
        again
    }
}
