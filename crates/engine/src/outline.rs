//! What a list shows of a task: its outline, which is the task without its artifacts, or the whole of it. An outline
//! is read from the beginning of the newest snapshot and from the log after that, in pieces, so that however large a
//! task is, a list holds no more of it than it shows.

use crate::{
    engine::EngineCore,
    error::Error,
    store::TaskRow,
    task::Task,
    task_header::{self, TaskHeader},
};

/// Bytes of a snapshot that are read first: nearly all outlines are shorter.
const BEGINNING: usize = 16 * 1024;
/// Bytes of log that are read at a time, or one batch.
const PIECE: usize = 256 * 1024;

/// A task as it is listed.
pub(crate) struct OutlinedTask {
    pub(crate) task: Task,
    /// Bytes of storage that were read for it.
    pub(crate) read: usize,
}

impl EngineCore {
    /// The outline of a task with the last `history` messages; `None` where the task is not there any more.
    pub(crate) async fn outline(
        &self,
        row: &TaskRow,
        history: Option<usize>,
    ) -> Result<Option<OutlinedTask>, Error> {
        let mut task = None;
        let mut read = 0;
        if row.state.is_terminal() && history == Some(0) {
            // The last batch of a task that has ended says how.
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
        // A newer one may have come between: then it is read to an end that is not its own, and left aside.
        let Some(whole) = self.store.snapshot_beginning(row.no, end).await? else { return Ok(None) };
        Ok(task_header::decode_outline(&whole).map(|task| (task, beginning.len() + whole.len())))
    }
}
