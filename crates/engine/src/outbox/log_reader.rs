//! A reader of a task's log, event by event, with the task as of each event.
//!
//! Payloads of older dialects show the whole task as it was at the event, not as it is now.

use std::{collections::VecDeque, sync::Arc, vec};

use crate::{
    error::Error,
    event::{self, Entry},
    store::{OpenedTask, Store, StoredBatch, TaskKey, TaskNo},
    task::{Task, TaskId},
    task_header::{self, TaskHeader},
};

/// Bytes read from the store at once.
const READ_BYTES: usize = 256 * 1024;

pub(super) struct TaskLogReader {
    store: Arc<dyn Store>,
    no: TaskNo,
    /// The task as of the last event that was returned.
    task: Task,
    /// The last sequence number at the time the reader was opened.
    end: u64,
    batches: VecDeque<StoredBatch>,
    entries: vec::IntoIter<Entry>,
}

impl TaskLogReader {
    /// Opens a reader positioned after `cursor`; `None` when the task no longer exists.
    pub(super) async fn open(store: &Arc<dyn Store>, id: TaskId, cursor: u64) -> Result<Option<Self>, Error> {
        let Some(mut opened) = store.open(&TaskKey::Id(id)).await? else { return Ok(None) };
        let batches = std::mem::take(&mut opened.log);
        let (task, batches) = match begin(&opened, cursor)? {
            Some(task) => (task, batches),
            // The snapshot is beyond the cursor, or unusable: fold the log from its start.
            None => (Task::new(TaskHeader::decode(&opened.row.head)?.origin(&opened.row)), vec![]),
        };
        let mut log_reader = Self {
            store: Arc::clone(store),
            no: opened.row.no,
            task,
            end: opened.row.seq,
            batches: batches.into(),
            entries: vec![].into_iter(),
        };
        while log_reader.task.seq < cursor {
            if log_reader.next().await?.is_none() {
                break;
            }
        }
        Ok(Some(log_reader))
    }

    /// The next event. Afterwards [`TaskLogReader::task`] is the task as of that event.
    pub(super) async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.entries.next() {
                self.task.apply(&entry);
                return Ok(Some(entry));
            }
            if self.task.seq >= self.end {
                return Ok(None);
            }
            if self.batches.is_empty() {
                self.batches = self.store.log(self.no, self.task.seq, READ_BYTES).await?.into();
            }
            let Some(batch) = self.batches.pop_front() else { return Ok(None) };
            // A long log is folded in one go: yield to other tasks in between.
            tokio::task::coop::consume_budget().await;
            let mut entries = event::decode(&batch.bytes).map_err(|e| Error::Internal(e.to_string()))?;
            let known = (self.task.seq + 1).saturating_sub(batch.first_seq) as usize;
            entries.drain(..known.min(entries.len()));
            self.entries = entries.into_iter();
        }
    }

    pub(super) fn task(&self) -> &Task {
        &self.task
    }
}

/// The task to start folding from, unless the store's snapshot is beyond the cursor. `opened.log` is empty.
fn begin(opened: &OpenedTask, cursor: u64) -> Result<Option<Task>, Error> {
    if opened.snapshot.as_ref().is_some_and(|(seq, _)| *seq > cursor) {
        return Ok(None);
    }
    task_header::fold(opened)
}
