//! Followers: cursors into a task's log, with live fan-out once they have caught up.
//!
//! The log is the source of truth; the hub only saves reads. It keeps a short ring buffer of the latest
//! commits of each followed task. A follower takes its next event from there if it can, and reads the store
//! otherwise. So a slow follower holds no memory, and batches that arrive out of order (two committers of one
//! task) cost a read and never lose an event.
//!
//! A channel is keyed by the task's id, which is known before the task is created. The submit command joins the channel
//! before the first commit, so no event falls between the two, and its caller then follows the task without a read.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::{
    error::Error,
    event::{self, Entry, EntryBatch, Event},
    store::{Store, TaskNo, TaskRow},
    task::{Task, TaskId},
};

/// The ring buffer's capacity per followed task: entries, and bytes of their content.
const RING_ENTRIES: usize = 256;
const RING_BYTES: usize = 256 * 1024;
/// About how much a follower reads from the store at once. Rendered in a dialect it is several times that,
/// and is held until the client has read it.
const READ_BYTES: usize = 32 * 1024;
/// The next thing that a follower receives.
#[derive(Debug)]
pub enum Next {
    /// More of the log; never empty.
    Batch(EntryBatch),
    /// The task has ended and everything was delivered.
    End,
    /// The server is stopping. Continue elsewhere, or later, after [`Follower::cursor`].
    Closing,
    /// A request to all followers. A follower that does not support it ignores it.
    Nudge(Nudge),
}

/// A request to the followers of a task. Not stored: only those connected to this node now receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nudge {
    /// Disconnect and reconnect later, if the protocol supports it.
    ReleaseFollowers,
    /// Ask the open questions again: the last answer was not valid.
    AskAgain,
}

/// A reader of one task's events from a cursor, live after it has caught up.
pub struct Follower {
    store: Arc<dyn Store>,
    closing: watch::Receiver<bool>,
    joined: JoinedChannel,
    no: TaskNo,
    /// The end of the log when the follower was created.
    known: u64,
    cursor: u64,
    /// Events that follow the cursor and need no read.
    ahead: Option<EntryBatch>,
    /// Whether the log may hold more than the channel has published.
    look: bool,
    /// The channel's `rechecks` at the last read.
    shaken: u64,
    /// How many nudges of each kind it has received.
    nudged: [u64; 2],
    ended: bool,
}

impl Follower {
    /// Follows the task of a row. The row may be stale: after joining the channel a follower first reads the
    /// log, so that no event falls between the two.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        hub: &Arc<FollowerHub>,
        closing: watch::Receiver<bool>,
        row: &TaskRow,
        after: u64,
    ) -> Result<Self, Error> {
        check_cursor(after, row.seq)?;
        let ended = row.state.is_terminal() && after == row.seq;
        let joined = hub.join(row.id);
        Ok(Self { look: true, ended, ..Self::at(store, closing, joined, row.no, row.seq, after) })
    }

    /// Follows a task that this node has just created, without a read. `task` is the fold of `entries`, which
    /// are all events of its first commit.
    pub(crate) fn of_created(
        store: Arc<dyn Store>,
        hub: &Arc<FollowerHub>,
        closing: watch::Receiver<bool>,
        created: CreatedTask,
        (task, entries): (&Task, &Arc<[Entry]>),
        after: u64,
    ) -> Result<Self, Error> {
        check_cursor(after, task.seq)?;
        let ahead = EntryBatch { first_seq: 1, entries: Arc::clone(entries) };
        let ended = task.state.is_terminal() && after == task.seq;
        let joined = created.joined.unwrap_or_else(|| hub.join(task.origin.id));
        let follower = Self::at(store, closing, joined, created.no, task.seq, after);
        Ok(Self { ahead: (after < task.seq).then(|| ahead.after(after)), ended, ..follower })
    }

    fn at(
        store: Arc<dyn Store>,
        closing: watch::Receiver<bool>,
        joined: JoinedChannel,
        no: TaskNo,
        known: u64,
        cursor: u64,
    ) -> Self {
        joined.channel.no.get_or_init(|| no);
        // As of the join, not of now: what was published since then is news to this follower.
        let (shaken, nudged) = (joined.rechecks, joined.nudges);
        Self {
            store,
            closing,
            joined,
            no,
            known,
            cursor,
            ahead: None,
            look: false,
            shaken,
            nudged,
            ended: false,
        }
    }

    /// The sequence number after which it continues.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for the next batch. Cancel-safe: nothing is lost if it is dropped, and the cursor stays at the
    /// end of the last returned batch.
    pub async fn next(&mut self) -> Result<Next, Error> {
        loop {
            if let Some(next) = self.try_next().await? {
                return Ok(next);
            }
            self.wait_for_more().await;
        }
    }

    /// The next batch, if there is one now. Cancel-safe as [`Follower::next`] is.
    pub async fn try_next(&mut self) -> Result<Option<Next>, Error> {
        if self.ended {
            return Ok(Some(Next::End));
        }
        if *self.closing.borrow() {
            return Ok(Some(Next::Closing));
        }
        if let Some(batch) = self.ahead.take() {
            return Ok(Some(self.deliver(batch)));
        }
        let shaken = self.channel().rechecks.load(Ordering::Acquire);
        self.look |= shaken != std::mem::replace(&mut self.shaken, shaken);
        let latest = match self.channel().after(self.cursor) {
            Ok(batch) => return Ok(Some(self.deliver(batch))),
            Err(latest) => latest,
        };
        if let Some(nudge) = self.nudge() {
            return Ok(Some(Next::Nudge(nudge)));
        }
        if self.look || latest > self.cursor {
            if let Some(batch) = self.read_log().await? {
                return Ok(Some(self.deliver(batch)));
            }
            if latest.max(self.known) > self.cursor {
                // It ended and expired before this follower had read it: no more will come.
                return Err(Error::NoSuchTask(self.joined.task.to_string()));
            }
            self.look = false;
        }
        Ok(None)
    }

    /// Waits until [`Follower::try_next`] may return something, and reads nothing: a follower that waits here holds no
    /// events.
    pub async fn wait_for_more(&mut self) {
        let channel = Arc::clone(self.channel());
        let mut changed = std::pin::pin!(channel.changed.notified());
        // Before the checks, so that no change between the two is missed.
        changed.as_mut().enable();
        let is_there = self.ended
            || self.look
            || self.ahead.is_some()
            || *self.closing.borrow()
            || channel.rechecks.load(Ordering::Acquire) != self.shaken
            || channel.nudges() != self.nudged
            || channel.lock().latest > self.cursor;
        if !is_there {
            tokio::select! {
                () = changed => {}
                _ = self.closing.changed() => {}
            }
        }
    }

    fn channel(&self) -> &Arc<TaskChannel> {
        &self.joined.channel
    }

    fn nudge(&mut self) -> Option<Nudge> {
        let now = self.channel().nudges();
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
        let stored = self.store.log(self.no, self.cursor, READ_BYTES).await?;
        let mut entries = Vec::new();
        for batch in &stored {
            let all = event::decode(&batch.bytes).map_err(|e| Error::Internal(e.to_string()))?;
            let known = (self.cursor + 1).saturating_sub(batch.first_seq) as usize;
            entries.extend(all.into_iter().skip(known));
        }
        Ok((!entries.is_empty()).then(|| EntryBatch { first_seq: self.cursor + 1, entries: entries.into() }))
    }
}

fn check_cursor(asked: u64, last: u64) -> Result<(), Error> {
    if asked > last { Err(Error::UnknownCursor { asked, last }) } else { Ok(()) }
}

fn ends(event: &Event) -> bool {
    matches!(event, Event::Status(status) if status.state.is_terminal())
}

/// A task that this node has just created, for its first follower.
pub(crate) struct CreatedTask {
    pub(crate) no: TaskNo,
    /// Joined before the task was committed. `None`: that commit ended the task, so its log does not grow.
    pub(crate) joined: Option<JoinedChannel>,
}

/// A membership in a task's channel, from its creation until it is dropped.
pub(crate) struct JoinedChannel {
    hub: Arc<FollowerHub>,
    task: TaskId,
    channel: Arc<TaskChannel>,
    /// The channel's `rechecks` and `nudged` when it was joined.
    rechecks: u64,
    nudges: [u64; 2],
}

impl Drop for JoinedChannel {
    fn drop(&mut self) {
        self.hub.leave(self.task);
    }
}

/// Fans committed batches out to followers.
#[derive(Default)]
pub(crate) struct FollowerHub {
    shards: [Mutex<HashMap<TaskId, FollowedTask>>; 16],
}

/// A followed task, and the number of its followers.
struct FollowedTask {
    channel: Arc<TaskChannel>,
    followers: usize,
}

impl FollowerHub {
    /// Joins the channel of a task, which need not exist yet.
    pub(crate) fn join(self: &Arc<Self>, task: TaskId) -> JoinedChannel {
        let mut shard = lock(self.shard(task));
        let followed =
            shard.entry(task).or_insert_with(|| FollowedTask { channel: Arc::default(), followers: 0 });
        followed.followers += 1;
        let channel = Arc::clone(&followed.channel);
        drop(shard);
        let (rechecks, nudges) = (channel.rechecks.load(Ordering::Acquire), channel.nudges());
        JoinedChannel { hub: Arc::clone(self), task, channel, rechecks, nudges }
    }

    /// Publishes a commit to the task's followers. Does nothing if there are none.
    pub(crate) fn publish(&self, task: TaskId, batch: impl FnOnce() -> EntryBatch) {
        if let Some(channel) = self.channel(task) {
            channel.push(batch());
        }
    }

    /// Notifies followers that another process has extended the log up to `seq`.
    pub(crate) fn note_external_write(&self, task: TaskId, seq: u64) {
        if let Some(channel) = self.channel(task) {
            let mut recent = channel.lock();
            recent.latest = recent.latest.max(seq);
            drop(recent);
            channel.changed.notify_waiters();
        }
    }

    /// Sends a nudge to the followers of a task.
    pub(crate) fn nudge(&self, task: TaskId, nudge: Nudge) {
        if let Some(channel) = self.channel(task) {
            channel.nudged[nudge as usize].fetch_add(1, Ordering::AcqRel);
            channel.changed.notify_waiters();
        }
    }

    /// All tasks that have followers, without those that are being created.
    pub(crate) fn followed(&self) -> Vec<(TaskNo, TaskId)> {
        let mut tasks = vec![];
        for shard in &self.shards {
            let shard = lock(shard);
            tasks.extend(shard.iter().filter_map(|(id, followed)| Some((*followed.channel.no.get()?, *id))));
        }
        tasks
    }

    /// How many tasks have a channel.
    #[cfg(feature = "testing")]
    pub(crate) fn count_channels(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Makes all followers read the log: a notification may have been lost.
    pub(crate) fn recheck_all(&self) {
        for shard in &self.shards {
            for followed in lock(shard).values() {
                followed.channel.rechecks.fetch_add(1, Ordering::AcqRel);
                followed.channel.changed.notify_waiters();
            }
        }
    }

    fn channel(&self, task: TaskId) -> Option<Arc<TaskChannel>> {
        lock(self.shard(task)).get(&task).map(|followed| Arc::clone(&followed.channel))
    }

    fn leave(&self, task: TaskId) {
        let mut shard = lock(self.shard(task));
        let Some(followed) = shard.get_mut(&task) else { return };
        followed.followers -= 1;
        if followed.followers == 0 {
            shard.remove(&task);
        }
    }

    fn shard(&self, task: TaskId) -> &Mutex<HashMap<TaskId, FollowedTask>> {
        &self.shards[task.0.as_u128() as usize % self.shards.len()]
    }
}

#[derive(Default)]
struct TaskChannel {
    /// The task's number, once it is created.
    no: OnceLock<TaskNo>,
    recent: Mutex<RecentBatches>,
    changed: Notify,
    /// How often followers were made to read the log, whatever was published.
    rechecks: AtomicU64,
    /// How many nudges were sent, by kind.
    nudged: [AtomicU64; 2],
}

#[derive(Default)]
struct RecentBatches {
    /// Each batch with its size in bytes.
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
            // Out of order: followers read the missing part from the log.
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

    /// The batch after the cursor, if the ring has it; else the highest sequence number that was published.
    fn after(&self, cursor: u64) -> Result<EntryBatch, u64> {
        let recent = self.lock();
        let next = recent.ring.iter().map(|(batch, _)| batch).find(|batch| batch.last_seq() > cursor);
        let Some(batch) = next.filter(|batch| batch.first_seq <= cursor + 1) else {
            return Err(recent.latest);
        };
        Ok(batch.after(cursor))
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
        event::{Level, LogLine},
    };

    fn batch(first_seq: u64, count: usize, bytes: usize) -> EntryBatch {
        let line = LogLine { level: Level::Info, text: "x".repeat(bytes) };
        EntryBatch { first_seq, entries: vec![Entry(Timestamp(0), Event::Log(line)); count].into() }
    }

    fn id(n: u128) -> TaskId {
        TaskId(uuid::Uuid::from_u128(n))
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
            let (hub, task) = (Arc::new(FollowerHub::default()), id(1));
            let joined = hub.join(task);
            let channel = &joined.channel;
            let mut next = 1;
            while next <= 10_000 {
                hub.publish(task, || batch(next, count, bytes));
                next += count as u64;
                let (entries, held) = held(channel);
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
        let hub = Arc::new(FollowerHub::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..5_000 {
                        let joined = hub.join(id(n % 3));
                        hub.publish(joined.task, || batch(1, 1, 1));
                    }
                });
            }
        });
        assert!(hub.shards.iter().all(|shard| lock(shard).is_empty()));
        hub.publish(id(1), || batch(1, 1, 1));
        assert!(hub.shards.iter().all(|shard| lock(shard).is_empty()), "nobody follows, nothing is kept");
    }

    #[test]
    fn a_task_is_polled_for_once_it_has_a_number() {
        let hub = Arc::new(FollowerHub::default());
        let joined = hub.join(id(7));
        assert!(hub.followed().is_empty(), "it does not exist yet");
        joined.channel.no.set(TaskNo(70)).unwrap();
        assert_eq!(hub.followed(), [(TaskNo(70), id(7))]);
    }
}
