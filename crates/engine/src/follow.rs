//! Cursors and live fan-out: a follower reads the log from a cursor and is live once it has caught up.
//!
//! The log is the truth; the hub only saves reading it again. It keeps a short ring of what was committed
//! last for tasks that somebody follows, and a follower that finds its next event there takes it, else it
//! reads the store. So a slow follower holds no memory, and batches that arrive out of order (two
//! committers of one task) cost a read and never an event.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::{
    error::Error,
    event::{self, EntryBatch, Event},
    store::{Store, TaskNo, TaskRow},
    task::TaskId,
};

/// Entries that the ring keeps per followed task, and bytes of content in them.
const RING_ENTRIES: usize = 256;
const RING_BYTES: usize = 256 * 1024;
/// What a follower reads from the store at once, about. Written out in some dialect it is several times that,
/// and held for as long as its reader does not read.
const READ_BYTES: usize = 32 * 1024;
/// What a follower gets next.
#[derive(Debug)]
pub enum Next {
    /// More of the log; never empty.
    Batch(EntryBatch),
    /// The task has ended and everything was delivered.
    End,
    /// The server stops. Continue elsewhere, or later, after [`Follower::cursor`].
    Closing,
    /// Somebody wants followers to do something. Whoever does not care goes on.
    Nudge(Nudge),
}

/// What followers of a task are asked for. Not kept: who does not follow here and now never hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nudge {
    /// To go away and to come again for more, where the protocol knows how.
    ReleaseFollowers,
    /// To put the open questions again: the last answer was none.
    AskAgain,
}

/// A reader of one task's events from a cursor, live after it has caught up.
pub struct Follower {
    store: Arc<dyn Store>,
    hub: Arc<FollowerHub>,
    closing: watch::Receiver<bool>,
    channel: Arc<TaskChannel>,
    task: TaskNo,
    id: TaskId,
    cursor: u64,
    /// What the log held when the follower was made.
    known: u64,
    /// Whether the log may hold more than the channel has told.
    look: bool,
    /// The channel's `shaken` when it last looked.
    shaken: u64,
    /// How many nudges of each kind it has heard.
    nudged: [u64; 2],
    ended: bool,
}

impl Follower {
    /// Follows the task of a row. The row may be old by now: the first thing that a follower does after
    /// joining the channel is to look into the log, so that nothing falls between the two.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        hub: Arc<FollowerHub>,
        closing: watch::Receiver<bool>,
        row: &TaskRow,
        after: u64,
    ) -> Result<Self, Error> {
        if after > row.seq {
            return Err(Error::UnknownCursor { asked: after, last: row.seq });
        }
        let ended = row.state.is_terminal() && after == row.seq;
        let channel = hub.join(row.no);
        let shaken = channel.rechecks.load(Ordering::Acquire);
        let nudged = channel.nudges();
        let (task, id, known) = (row.no, row.id, row.seq);
        Ok(Self {
            store,
            hub,
            closing,
            channel,
            task,
            id,
            cursor: after,
            known,
            look: true,
            shaken,
            nudged,
            ended,
        })
    }

    /// The sequence number after which it continues.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for what comes next. Safe to drop at any point: nothing is lost, the cursor stands where the
    /// last returned batch ended.
    pub async fn next(&mut self) -> Result<Next, Error> {
        loop {
            if self.ended {
                return Ok(Next::End);
            }
            if *self.closing.borrow() {
                return Ok(Next::Closing);
            }
            let channel = Arc::clone(&self.channel);
            let mut changed = std::pin::pin!(channel.changed.notified());
            changed.as_mut().enable();
            let shaken = channel.rechecks.load(Ordering::Acquire);
            self.look |= shaken != std::mem::replace(&mut self.shaken, shaken);
            let latest = match self.channel.after(self.cursor) {
                Ok(batch) => return Ok(self.deliver(batch)),
                Err(latest) => latest,
            };
            if let Some(nudge) = self.nudge() {
                return Ok(Next::Nudge(nudge));
            }
            if self.look || latest > self.cursor {
                if let Some(batch) = self.read_log().await? {
                    return Ok(self.deliver(batch));
                }
                if latest.max(self.known) > self.cursor {
                    // It ended and expired before this follower had read it: there is no more to wait for.
                    return Err(Error::NoSuchTask(self.id.to_string()));
                }
                self.look = false;
            }
            tokio::select! {
                () = changed => {}
                _ = self.closing.changed() => {}
            }
        }
    }

    fn nudge(&mut self) -> Option<Nudge> {
        let now = self.channel.nudges();
        [Nudge::ReleaseFollowers, Nudge::AskAgain].into_iter().find(|nudge| {
            let at = *nudge as usize;
            std::mem::replace(&mut self.nudged[at], now[at]) != now[at]
        })
    }

    fn deliver(&mut self, batch: EntryBatch) -> Next {
        self.cursor = batch.last_seq();
        self.ended = batch.entries.iter().any(|entry| ends(entry.event()));
        Next::Batch(batch)
    }

    async fn read_log(&self) -> Result<Option<EntryBatch>, Error> {
        let stored = self.store.log(self.task, self.cursor, READ_BYTES).await?;
        let mut entries = Vec::new();
        for batch in &stored {
            let all = event::decode(&batch.bytes).map_err(|e| Error::Internal(e.to_string()))?;
            let known = (self.cursor + 1).saturating_sub(batch.first_seq) as usize;
            entries.extend(all.into_iter().skip(known));
        }
        Ok((!entries.is_empty()).then(|| EntryBatch { first_seq: self.cursor + 1, entries: entries.into() }))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.hub.leave(self.task);
    }
}

fn ends(event: &Event) -> bool {
    matches!(event, Event::Status(status) if status.state.is_terminal())
}

/// Where committed batches meet those who follow.
#[derive(Default)]
pub(crate) struct FollowerHub {
    shards: [Mutex<HashMap<TaskNo, FollowedTask>>; 16],
}

/// A task that somebody follows, and how many do.
struct FollowedTask {
    channel: Arc<TaskChannel>,
    followers: usize,
}

impl FollowerHub {
    /// Tells followers what was committed. Does nothing when nobody follows.
    pub(crate) fn publish(&self, task: TaskNo, batch: impl FnOnce() -> EntryBatch) {
        let channel = lock(self.shard(task)).get(&task).map(|followed| Arc::clone(&followed.channel));
        if let Some(channel) = channel {
            channel.push(batch());
        }
    }

    /// Tells followers that the log goes up to `seq`, written elsewhere.
    pub(crate) fn note_external_write(&self, task: TaskNo, seq: u64) {
        let channel = lock(self.shard(task)).get(&task).map(|followed| Arc::clone(&followed.channel));
        if let Some(channel) = channel {
            let mut recent = channel.lock();
            recent.latest = recent.latest.max(seq);
            drop(recent);
            channel.changed.notify_waiters();
        }
    }

    /// Asks the followers of a task for something.
    pub(crate) fn nudge(&self, task: TaskNo, nudge: Nudge) {
        let channel = lock(self.shard(task)).get(&task).map(|followed| Arc::clone(&followed.channel));
        if let Some(channel) = channel {
            channel.nudged[nudge as usize].fetch_add(1, Ordering::AcqRel);
            channel.changed.notify_waiters();
        }
    }

    /// The tasks that somebody follows.
    pub(crate) fn followed(&self) -> Vec<TaskNo> {
        self.shards.iter().flat_map(|shard| lock(shard).keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Tells all followers that something may have been written that nobody told of.
    pub(crate) fn recheck_all(&self) {
        for shard in &self.shards {
            for followed in lock(shard).values() {
                followed.channel.rechecks.fetch_add(1, Ordering::AcqRel);
                followed.channel.changed.notify_waiters();
            }
        }
    }

    fn join(&self, task: TaskNo) -> Arc<TaskChannel> {
        let mut shard = lock(self.shard(task));
        let followed =
            shard.entry(task).or_insert_with(|| FollowedTask { channel: Arc::default(), followers: 0 });
        followed.followers += 1;
        Arc::clone(&followed.channel)
    }

    fn leave(&self, task: TaskNo) {
        let mut shard = lock(self.shard(task));
        let Some(followed) = shard.get_mut(&task) else { return };
        followed.followers -= 1;
        if followed.followers == 0 {
            shard.remove(&task);
        }
    }

    fn shard(&self, task: TaskNo) -> &Mutex<HashMap<TaskNo, FollowedTask>> {
        &self.shards[task.0 as usize % self.shards.len()]
    }
}

#[derive(Default)]
struct TaskChannel {
    recent: Mutex<RecentBatches>,
    changed: Notify,
    /// How often the log had to be looked at whatever was told.
    rechecks: AtomicU64,
    /// How often followers were asked for something, by what it was.
    nudged: [AtomicU64; 2],
}

#[derive(Default)]
struct RecentBatches {
    /// Each with the bytes that it holds.
    ring: VecDeque<(EntryBatch, usize)>,
    entries: usize,
    bytes: usize,
    /// The highest sequence number that was published.
    latest: u64,
}

impl TaskChannel {
    fn nudges(&self) -> [u64; 2] {
        [&self.nudged[0], &self.nudged[1]].map(|count| count.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, RecentBatches> {
        lock(&self.recent)
    }

    fn push(&self, batch: EntryBatch) {
        let bytes = batch.entries.iter().map(|entry| entry.event().size()).sum();
        let mut recent = self.lock();
        let expected = recent.ring.back().map(|(last, _)| last.last_seq() + 1);
        if expected.is_some_and(|expected| expected != batch.first_seq) {
            // Out of order: whoever needs the rest reads the log.
            recent.clear();
        }
        recent.latest = recent.latest.max(batch.last_seq());
        recent.entries += batch.entries.len();
        recent.bytes += bytes;
        recent.ring.push_back((batch, bytes));
        while (recent.entries > RING_ENTRIES || recent.bytes > RING_BYTES) && recent.ring.len() > 1 {
            recent.drop_oldest();
        }
        drop(recent);
        self.changed.notify_waiters();
    }

    /// What follows the cursor, if the ring has it; else the highest number that was published.
    fn after(&self, cursor: u64) -> Result<EntryBatch, u64> {
        let recent = self.lock();
        let next = recent.ring.iter().map(|(batch, _)| batch).find(|batch| batch.last_seq() > cursor);
        let Some(batch) = next.filter(|batch| batch.first_seq <= cursor + 1) else {
            return Err(recent.latest);
        };
        Ok(match (cursor + 1 - batch.first_seq) as usize {
            0 => batch.clone(),
            known => EntryBatch { first_seq: cursor + 1, entries: batch.entries[known..].into() },
        })
    }
}

impl RecentBatches {
    fn drop_oldest(&mut self) {
        let Some((batch, bytes)) = self.ring.pop_front() else { return };
        self.entries -= batch.entries.len();
        self.bytes -= bytes;
    }

    fn clear(&mut self) {
        self.ring.clear();
        (self.entries, self.bytes) = (0, 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        event::{Entry, Level, LogLine},
    };

    fn batch(first_seq: u64, count: usize, bytes: usize) -> EntryBatch {
        let line = LogLine { level: Level::Info, text: "x".repeat(bytes) };
        EntryBatch { first_seq, entries: vec![Entry(Timestamp(0), Event::Log(line)); count].into() }
    }

    fn held(channel: &TaskChannel) -> (usize, usize) {
        let recent = channel.lock();
        let entries = recent.ring.iter().map(|(batch, _)| batch.entries.len()).sum();
        let bytes = recent.ring.iter().flat_map(|(batch, _)| batch.entries.iter());
        (entries, bytes.map(|entry| entry.event().size()).sum())
    }

    #[test]
    fn a_follower_that_does_not_read_costs_a_ring_and_no_more() {
        for (count, bytes) in [(1, 10), (7, 100), (100, 10), (1, 100_000), (3, 90_000)] {
            let (hub, task) = (FollowerHub::default(), TaskNo(1));
            let channel = hub.join(task);
            let mut next = 1;
            while next <= 10_000 {
                hub.publish(task, || batch(next, count, bytes));
                next += count as u64;
                let (entries, held) = held(&channel);
                assert!(entries <= RING_ENTRIES.max(count), "{entries} entries");
                assert!(held <= RING_BYTES.max(count * bytes), "{held} bytes");
            }
            assert_eq!(channel.after(next - 2).unwrap().first_seq, next - 1, "the newest is there");
            assert_eq!(channel.after(0).unwrap_err(), next - 1, "and the oldest is to be read from the log");
        }
    }

    #[test]
    fn batches_out_of_order_leave_nothing_wrong_in_the_ring() {
        let channel = TaskChannel::default();
        channel.push(batch(3, 2, 1));
        assert_eq!(channel.after(0).unwrap_err(), 4, "what comes before it is not there yet");
        assert_eq!(channel.after(3).unwrap().first_seq, 4);
        channel.push(batch(1, 2, 1));
        assert_eq!(channel.after(0).unwrap().first_seq, 1);
        assert_eq!(channel.after(2).unwrap_err(), 4);
        channel.push(batch(5, 1, 1));
        assert_eq!(channel.after(4).unwrap().first_seq, 5);
        assert_eq!(channel.after(5).unwrap_err(), 5);
    }

    #[test]
    fn when_the_last_follower_has_left_nothing_of_the_task_is_kept() {
        let hub = FollowerHub::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..5_000 {
                        let task = TaskNo(n % 3);
                        let channel = hub.join(task);
                        hub.publish(task, || batch(1, 1, 1));
                        hub.leave(task);
                        drop(channel);
                    }
                });
            }
        });
        assert!(hub.shards.iter().all(|shard| lock(shard).is_empty()));
        hub.publish(TaskNo(1), || batch(1, 1, 1));
        assert!(hub.shards.iter().all(|shard| lock(shard).is_empty()), "nobody follows, nothing is kept");
    }
}
