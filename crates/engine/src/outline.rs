//! The outline of a task for lists: the task without its artifacts, or the whole task.
//!
//! An outline is read from the beginning of the newest snapshot and from the log after that, in pieces.
//! However large a task is, a list holds no more of it than it returns.

use crate::{
    engine::EngineCore,
    error::Error,
    store::TaskRow,
    task::Task,
    task_header::{self, TaskHeader},
};

/// How many bytes of a snapshot are read first: nearly all outlines are shorter.
const BEGINNING: usize = 16 * 1024;
/// How many bytes of the log are read at a time (at least one batch).
const PIECE: usize = 256 * 1024;

/// A task as listed.
pub(crate) struct OutlinedTask {
    pub(crate) task: Task,
    /// The number of bytes read from storage for it.
    pub(crate) read: usize,
}

impl EngineCore {
    /// The outline of a task with the last `history` messages; `None` if the task was deleted.
    pub(crate) async fn outline(
        &self,
        row: &TaskRow,
        history: Option<usize>,
    ) -> Result<Option<OutlinedTask>, Error> {
        let mut task = None;
        let mut read = 0;
        if row.state.is_terminal() && history == Some(0) {
            // The last batch of a task that has ended holds its final status.
            let mut ending = Task::new(TaskHeader::decode(&row.head)?.origin(row));
            ending.seq = row.seq.saturating_sub(1);
            task = Some(ending);
        } else if let Some((beginning, bytes)) = self.outline_of_snapshot(row).await? {
            read += bytes;
            task = Some(beginning);
        }
        let mut task = match task {
            Some(task) => task,
            None => Task::new(TaskHeader::decode(&row.head)?.origin(row)),
        };
        task_header::shorten(&mut task, history);
        let mut found = task.seq > 0 && task.seq >= row.seq;
        loop {
            let log = self.store.log(row.no, task.seq, PIECE).await?;
            if log.is_empty() {
                return Ok(found.then_some(OutlinedTask { task, read }));
            }
            found = true;
            read += log.iter().map(|batch| batch.bytes.len()).sum::<usize>();
            task_header::fold_outline_onto(&mut task, &log, history)?;
        }
    }

    /// The outline in the newest snapshot, and how many bytes were read for it.
    async fn outline_of_snapshot(&self, row: &TaskRow) -> Result<Option<(Task, usize)>, Error> {
        let Some(beginning) = self.store.snapshot_beginning(row.no, BEGINNING).await? else {
            return Ok(None);
        };
        let Some(end) = task_header::outline_end(&beginning) else { return Ok(None) };
        if end <= beginning.len() {
            return Ok(task_header::decode_outline(&beginning).map(|task| (task, beginning.len())));
        }
        // A newer snapshot may have been written in between: it is then cut at the wrong length, fails to
        // decode, and is ignored.
        let Some(whole) = self.store.snapshot_beginning(row.no, end).await? else { return Ok(None) };
        Ok(task_header::decode_outline(&whole).map(|task| (task, beginning.len() + whole.len())))
    }
}
