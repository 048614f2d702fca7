//! Pages of a task's log, and the task as of any event.
//!
//! A follower reads forward and waits for more. A page is read anywhere in the log, once: it shows what there is.

use std::collections::VecDeque;

use crate::{
    access::{Action, Caller},
    byte_budget::BytePermit,
    engine::Engine,
    error::Error,
    event::{self, Entry, Event},
    store::TaskRow,
    task::{Origin, State, Task},
    task_header::{self, TaskHeader},
};

/// How many bytes of the log are read from the store at once.
const READ_BYTES: usize = 256 * 1024;

/// Which part of a log a page has. The default is the whole log.
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
    /// Whether the page has the last events of the range that match, and not the first: one that is full continues, and its
    /// first events are dropped.
    pub backward: bool,
}

impl Default for LogRange {
    fn default() -> Self {
        Self {
            after: 0,
            until: u64::MAX,
            limit: usize::MAX,
            max_bytes: usize::MAX,
            max_read: usize::MAX,
            backward: false,
        }
    }
}

/// A page of a log. What it holds is charged to its reader until it is dropped.
#[derive(Debug)]
pub struct LogPage {
    /// The events with their sequence numbers, ascending.
    pub entries: Vec<(u64, Entry)>,
    /// The sequence number after which the page begins: that of `after`, or that of the last event that was dropped.
    pub begins_after: u64,
    /// The last sequence number that was read: where the next page begins. That of `after` if nothing was.
    pub read_until: u64,
    /// The last sequence number of the log.
    pub last: u64,
    /// The task's state when the page was read.
    pub state: State,
    /// The task's immutable attributes.
    pub origin: Origin,
    _permit: BytePermit,
}

/// A task as of an event. What it holds is charged to its reader until it is dropped.
#[derive(Debug)]
pub struct TaskAt {
    /// The task.
    pub task: Task,
    /// The event; `None` before the first.
    pub event: Option<Entry>,
    /// The last sequence number of the log.
    pub last: u64,
    _permit: BytePermit,
}

impl Engine {
    /// A page of a task's events that match, each asked for once and in order. `range` is told the last number of the log.
    /// [`Error::UnknownCursor`] if the page would begin beyond the log.
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
        let permit = self.0.reserve_for(caller, &row).await?;
        let mut page = PageEntries { range, entries: VecDeque::new(), bytes: 0, begins_after: range.after };
        let (mut read_until, mut read) = (range.after, 0);
        let until = range.until.min(row.seq);
        'log: while read_until < until {
            let entries = self.read_entries(&row, read_until).await?;
            if entries.is_empty() {
                // It was deleted after its row was read.
                return Err(Error::NoSuchTask(task.to_owned()));
            }
            for entry in entries {
                if read_until >= until || read >= range.max_read || page.is_full() {
                    break 'log;
                }
                if matches(entry.event()) && !page.add(read_until + 1, entry) {
                    break 'log;
                }
                read_until += 1;
                read += 1;
            }
            // A store in this process reads without waiting.
            tokio::task::yield_now().await;
        }
        Ok(LogPage {
            entries: page.entries.into(),
            begins_after: page.begins_after,
            read_until,
            last: row.seq,
            state: row.state,
            origin,
            _permit: permit,
        })
    }

    /// The task as it was after its first `seq` events. `more`: how many further bytes its reader needs until it drops it,
    /// by the approximate size of the whole task; they are reserved with those of the task, before it is read.
    pub async fn task_at(
        &self,
        caller: &Caller,
        task: &str,
        seq: u64,
        more: impl FnOnce(u64) -> u64,
    ) -> Result<TaskAt, Error> {
        self.allow_task(caller, Action::Read, "task.get", task)?;
        let row = self.0.find_row(caller, task).await?;
        if seq > row.seq {
            return Err(Error::UnknownCursor { asked: seq, last: row.seq });
        }
        // As `reserve_for` does, in one reservation: nothing is held that another request of the caller waits for.
        let size = task_header::weight(&row.head);
        let permit = self.0.bytes.reserve(caller, (3 * size).saturating_add(more(size))).await?;
        let (mut folded, mut event) = (Task::new(TaskHeader::decode(&row.head)?.origin(&row)), None);
        while folded.seq < seq {
            let mut entries = self.read_entries(&row, folded.seq).await?;
            if entries.is_empty() {
                return Err(Error::NoSuchTask(task.to_owned()));
            }
            entries.truncate(usize::try_from(seq - folded.seq).unwrap_or(usize::MAX));
            folded = folded.fold(&entries);
            event = entries.pop();
            tokio::task::yield_now().await;
        }
        Ok(TaskAt { task: folded, event, last: row.seq, _permit: permit })
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

/// The events of a page while it is read, bounded by the range's limits.
struct PageEntries {
    range: LogRange,
    entries: VecDeque<(u64, Entry)>,
    bytes: usize,
    begins_after: u64,
}

impl PageEntries {
    fn is_full(&self) -> bool {
        !self.range.backward && self.entries.len() >= self.range.limit
    }

    /// Adds an event, unless the page is full.
    fn add(&mut self, seq: u64, entry: Entry) -> bool {
        let size = entry.event().size();
        if !self.range.backward && !self.entries.is_empty() && self.bytes + size > self.range.max_bytes {
            return false;
        }
        self.bytes += size;
        self.entries.push_back((seq, entry));
        while self.entries.len() > self.range.limit
            || (self.entries.len() > 1 && self.bytes > self.range.max_bytes)
        {
            let Some((first, entry)) = self.entries.pop_front() else { break };
            self.bytes -= entry.event().size();
            self.begins_after = first;
        }
        true
    }
}
