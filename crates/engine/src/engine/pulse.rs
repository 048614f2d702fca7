//! The pulse of a node: what it did in each interval of the last hour, in total and by agent.
//!
//! A commit adds to the counters of its agent: a read lock, a few relaxed additions, no allocation. At the end of an interval
//! one loop moves the counters into the history, which is a ring in memory: another node has a pulse of its own, and a restart
//! begins a new one. Memory is bounded by [`MAX_PULSE_AGENTS`]; agents beyond that are counted together.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::{
    Engine, EngineCore,
    task_log::{AgentMetrics, lasted_ms},
    wait_until_closing,
};
use crate::{
    access::Caller,
    clock::Timestamp,
    commit::Writer,
    content::Role,
    error::Error,
    event::{Entry, Event},
    metric::{AgentLabels, OTHER},
    store::{Change, Precondition},
    task::{State, TaskId},
};

/// The intervals of the history (`pulse.intervals`): an hour of the default length.
pub const PULSE_INTERVALS: usize = 360;
/// The agents that are counted by name (`pulse.agents`).
pub const MAX_PULSE_AGENTS: usize = 64;
/// The name under which all other agents are counted. No agent can have it: names have no spaces.
pub const OTHER_AGENTS: &str = "all others";
/// Buckets of durations, two for each power of two: up to 2^24 ms, which is more than four hours.
const BUCKETS: usize = 48;

/// What happened in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PulseCounts {
    /// Messages that were sent to agents, by callers and by other tasks.
    pub sends: u64,
    /// Events that were stored.
    pub events: u64,
    /// Changes that were stored.
    pub commits: u64,
    /// Tasks that ended, in whatever state.
    pub ended: u64,
    /// Tasks that ended in the state failed.
    pub failed: u64,
    durations: DurationCounts,
}

impl PulseCounts {
    /// The time from creation to end that this share of the ended tasks did not exceed, in milliseconds. `None` if none
    /// ended.
    pub fn duration_ms(&self, share: f64) -> Option<u64> {
        self.durations.quantile(share)
    }

    /// Adds the counts of another agent, or of another interval.
    pub fn add(&mut self, other: &Self) {
        self.sends += other.sends;
        self.events += other.events;
        self.commits += other.commits;
        self.ended += other.ended;
        self.failed += other.failed;
        for (sum, more) in self.durations.0.iter_mut().zip(other.durations.0) {
            *sum = sum.saturating_add(more);
        }
    }

    fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// How many durations fell into each bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DurationCounts([u32; BUCKETS]);

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl DurationCounts {
    fn quantile(&self, share: f64) -> Option<u64> {
        let total: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        if total == 0 {
            return None;
        }
        let wanted = (share * total as f64).max(1.0);
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let here = f64::from(*count);
            if below + here >= wanted {
                let (from, to) = (lower_bound(bucket) as f64, lower_bound(bucket + 1) as f64);
                return Some((from + (to - from) * (wanted - below) / here) as u64);
            }
            below += here;
        }
        None
    }
}

/// The bucket of a duration: two for each power of two from 2 ms on.
fn bucket_of(ms: u64) -> usize {
    let Some(power) = ms.checked_ilog2().filter(|power| *power > 0) else { return usize::from(ms == 1) };
    let upper_half = ms & (1 << (power - 1)) != 0;
    (2 * power as usize + usize::from(upper_half)).min(BUCKETS - 1)
}

fn lower_bound(bucket: usize) -> u64 {
    match (bucket, 1u64 << (bucket / 2)) {
        (0 | 1, _) => bucket as u64,
        (_, power) if bucket.is_multiple_of(2) => power,
        (_, power) => power + power / 2,
    }
}

/// One interval of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulseInterval {
    /// When it began.
    pub began: Timestamp,
    /// Tasks that waited for a slot at its end.
    pub queued: u64,
    /// Tasks that ran at its end.
    pub running: u64,
    /// What all agents did.
    pub total: PulseCounts,
    /// What each agent did, by name; agents that did nothing are left out.
    pub agents: Vec<(Arc<str>, PulseCounts)>,
}

/// The counters of one agent in the present interval, and its metrics, which count on.
struct AgentCounters {
    sends: AtomicU64,
    events: AtomicU64,
    commits: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    durations: [AtomicU32; BUCKETS],
    metrics: AgentMetrics,
}

impl AgentCounters {
    /// `label`: of its metrics.
    fn new(label: &str) -> Self {
        Self {
            sends: AtomicU64::default(),
            events: AtomicU64::default(),
            commits: AtomicU64::default(),
            ended: AtomicU64::default(),
            failed: AtomicU64::default(),
            durations: std::array::from_fn(|_| AtomicU32::default()),
            metrics: AgentMetrics::new(label),
        }
    }

    /// Takes what was counted, and begins at zero. A commit that is counted at the same moment is in this interval or in the
    /// next, never in both.
    fn take(&self) -> PulseCounts {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let mut durations = DurationCounts::default();
        for (count, counter) in durations.0.iter_mut().zip(&self.durations) {
            *count = counter.swap(0, Ordering::Relaxed);
        }
        PulseCounts {
            sends: take(&self.sends),
            events: take(&self.events),
            commits: take(&self.commits),
            ended: take(&self.ended),
            failed: take(&self.failed),
            durations,
        }
    }

    fn end(&self, id: TaskId, at: Timestamp, state: State) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if state == State::Failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        let lasted_ms = lasted_ms(id, at);
        if let Some(lasted_ms) = lasted_ms {
            self.durations[bucket_of(lasted_ms)].fetch_add(1, Ordering::Relaxed);
        }
        self.metrics.count_end(state, lasted_ms);
    }
}

/// The counters of this node, and their history.
pub(crate) struct Pulse {
    agents: RwLock<HashMap<Arc<str>, AgentCounters>>,
    others: AgentCounters,
    /// The labels of the metrics of all agents so far.
    labels: AgentLabels,
    history: Mutex<VecDeque<PulseInterval>>,
    /// When the newest interval began.
    newest: watch::Sender<Option<Timestamp>>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            agents: RwLock::default(),
            others: AgentCounters::new(OTHER),
            labels: AgentLabels::default(),
            history: Mutex::default(),
            newest: watch::Sender::new(None),
        }
    }
}

impl Pulse {
    /// Calls `count` with the counters of an agent.
    fn with_agent(&self, agent: &str, count: impl FnOnce(&AgentCounters)) {
        let agents = self.agents.read();
        if let Some(counters) = agents.get(agent) {
            return count(counters);
        }
        let is_full = agents.len() >= MAX_PULSE_AGENTS;
        drop(agents);
        if is_full {
            return count(&self.others);
        }
        let mut agents = self.agents.write();
        match agents.len() < MAX_PULSE_AGENTS || agents.contains_key(agent) {
            true => {
                let new = || AgentCounters::new(&self.labels.label(agent));
                count(agents.entry(agent.into()).or_insert_with(new));
            }
            false => count(&self.others),
        }
    }

    /// Ends the interval that began at `began`.
    fn end_interval(&self, began: Timestamp, queued: u64, running: u64) {
        let mut named: Vec<(Arc<str>, PulseCounts)> =
            self.agents.read().iter().map(|(name, counters)| (Arc::clone(name), counters.take())).collect();
        named.push((OTHER_AGENTS.into(), self.others.take()));
        named.retain(|(_, counts)| !counts.is_idle());
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut total = PulseCounts::default();
        for (_, counts) in &named {
            total.add(counts);
        }
        let mut history = self.history.lock();
        if history.len() >= PULSE_INTERVALS {
            history.pop_front();
        }
        history.push_back(PulseInterval { began, queued, running, total, agents: named });
        // An agent that did nothing in the whole history leaves its name to another one.
        let mut agents = self.agents.write();
        if agents.len() >= MAX_PULSE_AGENTS {
            let active = |name: &Arc<str>| {
                history.iter().any(|interval| interval.agents.iter().any(|(agent, _)| agent == name))
            };
            agents.retain(|name, counters| active(name) || counters.commits.load(Ordering::Relaxed) > 0);
        }
        drop((agents, history));
        self.newest.send_replace(Some(began));
    }
}

/// What a change adds to the pulse, known before it is committed.
pub(crate) struct PulseChange {
    pub(crate) creates: bool,
    events: u64,
}

impl PulseChange {
    pub(crate) fn of(change: &Change) -> Self {
        Self {
            creates: matches!(change.guard, Precondition::Create(_)),
            events: change.events.as_ref().map_or(0, |batch| u64::from(batch.count)),
        }
    }
}

impl EngineCore {
    /// Counts a change that is durable.
    pub(crate) fn count_commit(&self, writer: &Writer<'_>, change: &PulseChange, entries: &[Entry]) {
        self.pulse.with_agent(writer.agent(), |counters| {
            counters.commits.fetch_add(1, Ordering::Relaxed);
            counters.events.fetch_add(change.events, Ordering::Relaxed);
            let mut sends = u64::from(change.creates);
            if change.creates {
                counters.metrics.count_created();
            }
            for entry in entries {
                match entry.event() {
                    Event::Message(message) if !change.creates && message.role == Role::User => sends += 1,
                    Event::Status(status) if status.state.is_terminal() => {
                        counters.end(writer.task(), entry.at(), status.state);
                    }
                    _ => {}
                }
            }
            if sends > 0 {
                counters.sends.fetch_add(sends, Ordering::Relaxed);
            }
        });
    }
}

/// Ends an interval at each multiple of its length, until the engine stops.
pub(super) async fn pulse_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    let length = i64::try_from(engine.options.pulse_interval.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut began = engine.clock.now().0 / length * length;
    loop {
        // The clock may be set, and the process suspended: an interval may last longer, and some may be missing.
        let left = Timestamp(began + length).since(engine.clock.now());
        tokio::select! {
            () = tokio::time::sleep(left.max(std::time::Duration::from_millis(1))) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        let now = engine.clock.now().0 / length * length;
        if now != began {
            engine.pulse.end_interval(Timestamp(began), engine.queued(), engine.slots.running() as u64);
            began = now;
        }
    }
}

impl Engine {
    /// The intervals of this node that have ended, oldest first. It shows what all tenants do together, so it is for the
    /// operator.
    pub fn pulse(&self, caller: &Caller) -> Result<Vec<PulseInterval>, Error> {
        self.allow_server(caller, "server.pulse", "admin://server/pulse")?;
        Ok(self.0.pulse.history.lock().iter().cloned().collect())
    }

    /// Follows the pulse: one access, however long it lasts.
    pub fn watch_pulse(&self, caller: &Caller) -> Result<PulseWatch, Error> {
        self.allow_server(caller, "server.pulse", "admin://server/pulse")?;
        Ok(PulseWatch { newest: self.0.pulse.newest.subscribe(), engine: Arc::clone(&self.0) })
    }
}

/// The intervals of this node as they end.
pub struct PulseWatch {
    engine: Arc<EngineCore>,
    newest: watch::Receiver<Option<Timestamp>>,
}

impl PulseWatch {
    /// When the newest interval began; `None` before the first has ended.
    pub fn newest(&self) -> Option<Timestamp> {
        *self.newest.borrow()
    }

    /// Waits for the end of the present interval. Of several that ended meanwhile, the last. `None`: the engine is gone.
    pub async fn next(&mut self) -> Option<PulseInterval> {
        self.newest.changed().await.ok()?;
        self.newest.mark_unchanged();
        self.engine.pulse.history.lock().back().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_found_again_in_its_bucket() {
        for ms in [0, 1, 2, 3, 5, 9, 100, 999, 60_000, 3_600_000] {
            let bucket = bucket_of(ms);
            assert!(lower_bound(bucket) <= ms && ms < lower_bound(bucket + 1), "{ms}: {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|bucket| lower_bound(bucket) > lower_bound(bucket - 1)));
    }

    #[test]
    fn quantiles_are_near_what_was_measured() {
        let mut counts = DurationCounts::default();
        assert_eq!(counts.quantile(0.5), None);
        for ms in 1..=1000 {
            counts.0[bucket_of(ms)] += 1;
        }
        let (half, most) = (counts.quantile(0.5).unwrap(), counts.quantile(0.99).unwrap());
        assert!((400..=600).contains(&half) && (900..=1100).contains(&most), "{half} {most}");
    }

    #[test]
    fn agents_beyond_the_limit_are_counted_together() {
        let pulse = Pulse::default();
        for n in 0..MAX_PULSE_AGENTS + 10 {
            pulse.with_agent(&format!("agent-{n}"), |agent| {
                agent.commits.fetch_add(1, Ordering::Relaxed);
            });
        }
        pulse.end_interval(Timestamp(0), 3, 4);
        {
            let history = pulse.history.lock();
            let interval = history.back().unwrap();
            assert_eq!(interval.agents.len(), MAX_PULSE_AGENTS + 1);
            assert_eq!(interval.total.commits, MAX_PULSE_AGENTS as u64 + 10);
            let others = interval.agents.iter().find(|(name, _)| &**name == OTHER_AGENTS).unwrap();
            assert_eq!(others.1.commits, 10);
        }
        // Nothing for an hour: the history is bounded, and the names are free again.
        for n in 1..=PULSE_INTERVALS as i64 {
            pulse.end_interval(Timestamp(n), 0, 0);
        }
        assert_eq!(pulse.history.lock().len(), PULSE_INTERVALS);
        assert!(pulse.agents.read().is_empty());
        pulse.with_agent("new", |agent| {
            agent.sends.fetch_add(1, Ordering::Relaxed);
        });
        pulse.end_interval(Timestamp(9999), 0, 0);
        assert_eq!(&*pulse.history.lock().back().unwrap().agents[0].0, "new");
    }
}
