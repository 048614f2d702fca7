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

impl Engine {
    /// A page of a task's events that match, each asked for once and in order. [`Error::UnknownCursor`] if it would begin beyond the log.
    pub async fn log_page(
        &self,
        caller: &Caller,
        task: &str,
        range: impl FnOnce(u64) -> LogRange,
        matches: impl FnMut(&Event) -> bool,
    ) -> Result<LogPage, Error> {
        self.read_page(caller, task, range, matches, false).await
    }

    /// Like [`Engine::log_page`], but of the last events of the range that match: a page that is full continues, and its
    /// first events are dropped.
    pub async fn log_page_backward(
        &self,
        caller: &Caller,
        task: &str,
        range: impl FnOnce(u64) -> LogRange,
        matches: impl FnMut(&Event) -> bool,
    ) -> Result<LogPage, Error> {
        self.read_page(caller, task, range, matches, true).await
    }

    async fn read_page(
        &self,
        caller: &Caller,
        task: &str,
        range: impl FnOnce(u64) -> LogRange,
        mut matches: impl FnMut(&Event) -> bool,
        backward: bool,
    ) -> Result<LogPage, Error> {
        self.allow_task(caller, Action::Read, "task.events", task)?;
        let row = self.0.find_row(caller, task).await?;
        let range = range(row.seq);
        if range.after > row.seq {
            return Err(Error::UnknownCursor { asked: range.after, last: row.seq });
        }
        let origin = TaskHeader::decode(&row.head)?.origin(&row);
        let permit = self.0.reserve_for(caller, &row).await?;
        let mut page =
            PageEntries { backward, range, entries: VecDeque::new(), bytes: 0, begins_after: range.after };
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

    /// The task as it was after its first `seq` events, and the last number of its log.
    pub async fn task_at(&self, caller: &Caller, task: &str, seq: u64) -> Result<(Task, u64), Error> {
        let (folded, _, last) = self.task_and_event_at(caller, task, seq).await?;
        Ok((folded, last))
    }

    /// Like [`Engine::task_at`], with the last one of those events; `None` before the first.
    pub async fn task_and_event_at(
        &self,
        caller: &Caller,
        task: &str,
        seq: u64,
    ) -> Result<(Task, Option<Entry>, u64), Error> {
        self.allow_task(caller, Action::Read, "task.get", task)?;
        let row = self.0.find_row(caller, task).await?;
        if seq > row.seq {
            return Err(Error::UnknownCursor { asked: seq, last: row.seq });
        }
        let _permit = self.0.reserve_for(caller, &row).await?;
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
        Ok((folded, event, row.seq))
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
    /// Whether the last events of the range are wanted, and not the first.
    backward: bool,
    entries: VecDeque<(u64, Entry)>,
    bytes: usize,
    begins_after: u64,
}

impl PageEntries {
    fn is_full(&self) -> bool {
        !self.backward && self.entries.len() >= self.range.limit
    }

    /// Adds an event, unless the page is full.
    fn add(&mut self, seq: u64, entry: Entry) -> bool {
        let size = entry.event().size();
        if !self.backward && !self.entries.is_empty() && self.bytes + size > self.range.max_bytes {
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
