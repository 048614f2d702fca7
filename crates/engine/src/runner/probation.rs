//! Which run took the process down with it.
//!
//! A process that dies under a hundred runs does not say which of them did it, or whether any did: it may have been
//! killed from outside. So a death alone is held against nobody. A task under which processes have died twice in a row,
//! and which committed nothing meanwhile, is a *suspect*, and from then on the order of things is made to tell:
//!
//! 1. Suspects start in groups of 1, 2, 4 … while the other suspects wait; the next group starts when each run of the
//!    last one has lived for `probation`, has committed something, or has ended. A run that got so far is cleared.
//! 2. That a run starts on trial is durable before its agent is polled. The next process finds what was on trial when
//!    the last one died, and starts the smallest such group first: each death at least halves it.
//! 3. A death is held against a run that was on trial alone, and only when the next process has lived *without* it to
//!    an age at which the last one was dead. A process that dies on its own account dies in that time, too, which
//!    clears the run.
//! 4. After [`MAX_DEATHS`] of them in a row the task is quarantined.
//!
//! Suspects wait for each other only; every other task runs as usual.

use std::{cmp::Reverse, convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    engine::{EngineCore as Engine, wait_until_closing},
    store::TaskRow,
};

/// Attempts in a row that committed nothing and ended with their process, before a task is a suspect.
const SUSPECT_ATTEMPTS: u32 = 2;
/// The age up to which a process has to live without a run, in trials. A process that was older when it died did not
/// die of its start, and the next one is not held up for that long.
const OLDEST_TRIALS: u32 = 12;
/// The part of a trial for which suspects are gathered before the first of them starts.
const GATHERED: u32 = 10;
/// Deaths held against a task before it is quarantined.
pub(super) const MAX_DEATHS: u32 = 3;

/// What is held against a task's runs. A part of the task's head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspicion {
    /// Processes in a row that died while the run was on trial alone, each followed by one that lived without it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) deaths: u32,
    /// The trial under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
}

/// A start on trial. It stands in the store while the trial goes on, and so after the death that ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trial {
    /// The lease under which it runs: a later one but the next means that the task was claimed and not started.
    epoch: u64,
    /// How many suspects started with it.
    beside: usize,
    /// The age that its process reaches if the run lives, in milliseconds.
    until_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Suspicion {
    /// What is held against a task that has just been claimed; `None`: nothing.
    pub(super) fn of(row: &TaskRow, kept: Option<Self>) -> Option<Self> {
        if row.attempts < SUSPECT_ATTEMPTS && kept.is_none() {
            return None;
        }
        let mut suspicion = kept.unwrap_or_default();
        // A process died, but not under this run: it had been claimed since, and waited.
        if suspicion.trial.as_ref().is_some_and(|trial| row.attempts == 0 || trial.epoch + 1 != row.epoch) {
            suspicion = Self::default();
        }
        Some(suspicion)
    }

    /// The age that a process has to reach without the run before its last death is held against it.
    fn control(&self) -> Option<Duration> {
        let trial = self.trial.as_ref().filter(|trial| trial.beside == 0)?;
        Some(Duration::from_millis(trial.until_ms))
    }

    /// The most suspicious first: those that were on trial when the process died, in the smallest group.
    fn rank(&self) -> impl Ord + use<> {
        let group = self.trial.as_ref().map_or(usize::MAX, |trial| trial.beside);
        (Reverse(self.deaths), group)
    }

    /// What was held against the run before its trial.
    pub(super) fn without_trial(self) -> Option<Self> {
        (self.deaths > 0).then_some(Self { trial: None, ..self })
    }
}

/// The suspects of this node that wait for their turn.
pub(crate) struct Probation {
    began: Instant,
    queue: Mutex<SuspectQueue>,
}

#[derive(Default)]
struct SuspectQueue {
    waiting: Vec<WaitingSuspect>,
    /// Whether groups are being started: by one task at a time.
    conducted: bool,
}

struct WaitingSuspect {
    suspicion: Suspicion,
    /// The end of the time that the process has to live without the run.
    not_before: Option<Instant>,
    turn: oneshot::Sender<TrialTurn>,
}

/// The turn of a group. The next one waits until all of this have dropped theirs.
struct TrialTurn {
    beside: usize,
    _group: mpsc::Sender<Infallible>,
}

/// The right of a suspect to start.
pub(crate) struct TrialPermit {
    /// What is held against the run by now, with this trial in it.
    pub(super) suspicion: Suspicion,
    /// How long the trial goes on.
    pub(super) length: Duration,
    _turn: TrialTurn,
}

impl Probation {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), queue: Mutex::default() }
    }

    /// Waits until a suspect may start. `None`: the engine stops.
    pub(super) async fn admit(
        &self,
        engine: &Arc<Engine>,
        row: &TaskRow,
        mut suspicion: Suspicion,
    ) -> Option<TrialPermit> {
        let length = engine.options.probation;
        let control = suspicion.control().map(|age| age.min(length * OLDEST_TRIALS));
        let not_before = control.map(|age| (self.began + age).max(Instant::now() + length));
        let (turn, its_turn) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            queue.waiting.push(WaitingSuspect { suspicion: suspicion.clone(), not_before, turn });
            if !std::mem::replace(&mut queue.conducted, true) {
                tokio::spawn(conduct(Arc::clone(engine)));
            }
        }
        let mut closing = engine.closing();
        let turn = tokio::select! {
            turn = its_turn => turn.ok()?,
            () = wait_until_closing(&mut closing) => return None,
        };
        if not_before.is_some() {
            suspicion.deaths += 1;
        }
        let until = self.began.elapsed() + length;
        suspicion.trial = Some(Trial {
            epoch: row.epoch,
            beside: turn.beside,
            until_ms: u64::try_from(until.as_millis()).unwrap_or(u64::MAX),
        });
        Some(TrialPermit { suspicion, length, _turn: turn })
    }

    /// When the next group may start; `None` when no suspect waits, and then nobody conducts any more.
    fn next_turn(&self) -> Option<Instant> {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|waiting| !waiting.turn.is_closed());
        queue.conducted = !queue.waiting.is_empty();
        let controls = queue.waiting.iter().filter_map(|waiting| waiting.not_before);
        queue.conducted.then(|| controls.max().unwrap_or(self.began))
    }

    /// Starts the most suspicious; what ends when all of them have lived, or ended.
    fn start(&self, size: usize) -> mpsc::Receiver<Infallible> {
        let (group, all_left) = mpsc::channel(1);
        let mut queue = self.queue.lock();
        queue.waiting.sort_by_key(|waiting| waiting.suspicion.rank());
        let size = size.min(queue.waiting.len());
        for waiting in queue.waiting.drain(..size) {
            // One that was canceled in this moment starts nothing.
            let _ = waiting.turn.send(TrialTurn { beside: size - 1, _group: group.clone() });
        }
        all_left
    }
}

/// Starts groups of suspects until none waits.
async fn conduct(engine: Arc<Engine>) {
    let (probation, length) = (&engine.probation, engine.options.probation);
    let mut closing = engine.closing();
    let mut size = 1;
    // What died together is claimed together: the most suspicious of it may not be the first.
    let mut gathered = Instant::now() + length / GATHERED;
    while let Some(next) = probation.next_turn() {
        if next.max(gathered) > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(next.max(gathered)) => continue,
                () = wait_until_closing(&mut closing) => return,
            }
        }
        let mut all_left = probation.start(size);
        // A run that blocks its thread is not waited for: it lives, and cannot say so.
        let _ = tokio::time::timeout(length * 2, all_left.recv()).await;
        (size, gathered) = (size.saturating_mul(2), next);
    }
}
