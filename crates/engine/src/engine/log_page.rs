//! Pages of a task's log, and the task as of any event.
//!
//! A follower reads forward and waits for more. A page is read anywhere in the log, once: it shows what there is.

use crate::{
    access::{Action, Caller},
    engine::Engine,
    error::Error,
    event::{self, Entry, Event},
    store::TaskRow,
    task::{Origin, State, Task},
    task_header::TaskHeader,
};

/// How many bytes of the log are read from the store at once.
const READ_BYTES: usize = 256 * 1024;

/// Which part of a log a page has.
#[derive(Debug, Clone, Copy)]
pub struct LogRange {
    /// Events after this sequence number.
    pub after: u64,
    /// Events up to this sequence number.
    pub until: u64,
    /// The maximum number of events on the page.
    pub limit: usize,
    /// The bytes of content after which a page ends; at least one event is on it.
    pub max_bytes: usize,
    /// The maximum number of events that are read for the page.
    pub max_read: usize,
}

/// A page of a log.
#[derive(Debug, Clone)]
pub struct LogPage {
    /// The events with their sequence numbers, ascending.
    pub entries: Vec<(u64, Entry)>,
    /// The last sequence number that was read: where the next page begins. That of `after` if nothing was.
    pub read_until: u64,
    /// The last sequence number of the log.
    pub last: u64,
    /// The task's state when the page was read.
    pub state: State,
    /// The task's immutable attributes.
    pub origin: Origin,
}

impl Engine {
    /// A page of a task's events that match, each asked for once and in order. [`Error::UnknownCursor`] if it would begin beyond the log.
    pub async fn log_page(
        &self,
        caller: &Caller,
        task: &str,
        range: impl FnOnce(u64) -> LogRange,
        mut matches: impl FnMut(&Event) -> bool,
    ) -> Result<LogPage, Error> {
        self.allow_task(caller, Action::Read, "task.events", task)?;
        let row = self.0.find_row(caller, task).await?;
        let range = range(row.seq);
        if range.after > row.seq {
            return Err(Error::UnknownCursor { asked: range.after, last: row.seq });
        }
        let origin = TaskHeader::decode(&row.head)?.origin(&row);
        let mut page =
            LogPage { entries: vec![], read_until: range.after, last: row.seq, state: row.state, origin };
        let (mut bytes, mut read) = (0, 0);
        let until = range.until.min(row.seq);
        while page.read_until < until {
            let entries = self.read_entries(&row, page.read_until).await?;
            if entries.is_empty() {
                // It was deleted after its row was read.
                return Err(Error::NoSuchTask(task.to_owned()));
            }
            for entry in entries {
                if page.read_until >= until || page.entries.len() >= range.limit || read >= range.max_read {
                    return Ok(page);
                }
                if matches(entry.event()) {
                    let size = entry.event().size();
                    if !page.entries.is_empty() && bytes + size > range.max_bytes {
                        return Ok(page);
                    }
                    bytes += size;
                    page.entries.push((page.read_until + 1, entry));
                }
                page.read_until += 1;
                read += 1;
            }
        }
        Ok(page)
    }

    /// The task as it was after its first `seq` events.
    pub async fn task_at(&self, caller: &Caller, task: &str, seq: u64) -> Result<(Task, u64), Error> {
        self.allow_task(caller, Action::Read, "task.get", task)?;
        let row = self.0.find_row(caller, task).await?;
        if seq > row.seq {
            return Err(Error::UnknownCursor { asked: seq, last: row.seq });
        }
        let _permit = self.0.reserve_for(caller, &row).await?;
        let mut folded = Task::new(TaskHeader::decode(&row.head)?.origin(&row));
        while folded.seq < seq {
            let entries = self.read_entries(&row, folded.seq).await?;
            if entries.is_empty() {
                return Err(Error::NoSuchTask(task.to_owned()));
            }
            let wanted = (seq - folded.seq).min(entries.len() as u64) as usize;
            folded = folded.fold(&entries[..wanted]);
        }
        Ok((folded, row.seq))
    }

    async fn read_entries(&self, row: &TaskRow, after: u64) -> Result<Vec<Entry>, Error> {
        let stored = self.0.store.log(row.no, after, READ_BYTES).await?;
        let mut entries = Vec::new();
        for batch in &stored {
            let all = event::decode(&batch.bytes).map_err(|error| Error::Internal(error.to_string()))?;
            let known = (after + 1).saturating_sub(batch.first_seq) as usize;
            entries.extend(all.into_iter().skip(known));
        }
        Ok(entries)
    }
}
