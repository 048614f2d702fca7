//! The tasks whose agent this node does not serve at the moment.
//!
//! An agent can be missing briefly: while `nuncio.toml` is being edited, or when one of two nodes has reloaded it
//! and the other has not. The task is therefore given back and retried soon; it fails only when its agent has
//! been missing for a long time.

use std::{collections::HashMap, time::Duration};

use crate::{clock::Timestamp, store::TaskRow, task::TaskId};
use parking_lot::Mutex;

/// The delay before such a task is claimed again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The tasks that this node has given back, and since when.
#[derive(Default)]
pub(crate) struct MissingAgents {
    tasks: Mutex<HashMap<TaskId, MissingSince>>,
}

struct MissingSince {
    since: Timestamp,
    /// The lease under which it was given back. The next one is ours too, unless another node ran the task
    /// meanwhile.
    epoch: u64,
}

impl MissingAgents {
    /// Whether to give the task back once more: false when its agent has been missing for as long as `patience`.
    pub(super) fn should_retry(&self, row: &TaskRow, now: Timestamp, patience: Duration) -> bool {
        let mut tasks = self.tasks.lock();
        // Other nodes may have claimed and ended the tasks listed here.
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
