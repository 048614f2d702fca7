//! Probation: finds the run that crashes the process, and quarantines its task.
//!
//! A crash under a hundred runs does not show which of them caused it, or whether any did: the process may have
//! been killed from outside. A single crash is therefore not counted against any run. A task under which
//! processes died twice in a row, and which committed nothing meanwhile, is a *suspect*. Suspects are then
//! started so that further crashes identify the cause:
//!
//! 1. Suspects start in groups of 1, 2, 4 … while the other suspects wait. The next group starts when each run of
//!    the last one has lived for `probation`, has committed something, or has ended. Such a run is cleared.
//! 2. The start on trial is durable before the agent is polled. The next process reads what was on trial when the
//!    last one died, and starts the smallest such group first: each crash at least halves it.
//! 3. A crash counts against a run that was on trial alone, and only when the next process has lived *without* it
//!    to an age at which the last one was dead. A process that crashes for another reason dies within that time
//!    too, which clears the run.
//! 4. After [`MAX_DEATHS`] of them in a row the task is quarantined.
//!
//! Suspects wait only for each other; every other task runs as usual.

use std::{cmp::Reverse, convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    engine::{EngineCore, wait_until_closing},
    store::TaskRow,
};

/// Attempts in a row that committed nothing and ended with their process, before a task becomes a suspect.
const SUSPECT_ATTEMPTS: u32 = 2;
/// The age that a process must reach without a run, in trial lengths. A process that was older when it died did
/// not die because of its start, and the next one is not delayed for that long.
const OLDEST_TRIALS: u32 = 12;
/// The fraction of a trial for which suspects are collected before the first of them starts.
const GATHERED: u32 = 10;
/// Crashes counted against a task before it is quarantined.
pub(super) const MAX_DEATHS: u32 = 3;

/// The evidence against a task's runs. Stored in the task's header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspicion {
    /// Processes in a row that died while the run was on trial alone, each followed by one that lived without it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) deaths: u32,
    /// The trial in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
}

/// A start on trial. It is stored for as long as the trial lasts, and therefore also after the crash that ended
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trial {
    /// The lease under which it runs. A gap of more than one means that the task was claimed since and not
    /// started.
    epoch: u64,
    /// How many suspects started with it.
    beside: usize,
    /// The age that its process reaches if the run survives its trial, in milliseconds.
    until_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Suspicion {
    /// The evidence against a task that has just been claimed, if any.
    pub(super) fn of(row: &TaskRow, kept: Option<Self>) -> Option<Self> {
        if row.attempts < SUSPECT_ATTEMPTS && kept.is_none() {
            return None;
        }
        let mut suspicion = kept.unwrap_or_default();
        // A process died, but not under this run: the task was claimed after its trial and only waited.
        if suspicion.trial.as_ref().is_some_and(|trial| row.attempts == 0 || trial.epoch + 1 != row.epoch) {
            suspicion = Self::default();
        }
        Some(suspicion)
    }

    /// The age that a process must reach without the run before its last crash counts against it.
    fn control(&self) -> Option<Duration> {
        let trial = self.trial.as_ref().filter(|trial| trial.beside == 0)?;
        Some(Duration::from_millis(trial.until_ms))
    }

    /// Sort key, most suspicious first: those that were on trial when the process died, in the smallest group.
    fn rank(&self) -> impl Ord + use<> {
        let group = self.trial.as_ref().map_or(usize::MAX, |trial| trial.beside);
        (Reverse(self.deaths), group)
    }

    /// The evidence against the run without its current trial.
    pub(super) fn without_trial(self) -> Option<Self> {
        (self.deaths > 0).then_some(Self { trial: None, ..self })
    }
}

/// The suspects of this node that wait for their trial.
pub(crate) struct Probation {
    began: Instant,
    queue: Mutex<SuspectQueue>,
}

#[derive(Default)]
struct SuspectQueue {
    waiting: Vec<WaitingSuspect>,
    /// Whether a task is starting groups; only one does at a time.
    conducted: bool,
}

struct WaitingSuspect {
    suspicion: Suspicion,
    /// The time until which the process must live without the run.
    not_before: Option<Instant>,
    turn: oneshot::Sender<TrialTurn>,
}

/// The turn of a group. The next group waits until all members of this one have dropped theirs.
struct TrialTurn {
    beside: usize,
    _group: mpsc::Sender<Infallible>,
}

/// The right of a suspect to start.
pub(crate) struct TrialPermit {
    /// The evidence against the run, including this trial.
    pub(super) suspicion: Suspicion,
    /// How long the trial lasts.
    pub(super) length: Duration,
    _turn: TrialTurn,
}

impl Probation {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), queue: Mutex::default() }
    }

    /// Waits until a suspect may start. `None`: the engine is stopping.
    pub(super) async fn admit(
        &self,
        engine: &Arc<EngineCore>,
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

    /// When the next group may start. `None`: no suspect waits, and the starting task ends.
    fn next_turn(&self) -> Option<Instant> {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|waiting| !waiting.turn.is_closed());
        queue.conducted = !queue.waiting.is_empty();
        let controls = queue.waiting.iter().filter_map(|waiting| waiting.not_before);
        queue.conducted.then(|| controls.max().unwrap_or(self.began))
    }

    /// Starts the most suspicious ones. The receiver closes when all of them have survived their trial, or ended.
    fn start(&self, size: usize) -> mpsc::Receiver<Infallible> {
        let (group, all_left) = mpsc::channel(1);
        let mut queue = self.queue.lock();
        queue.waiting.sort_by_key(|waiting| waiting.suspicion.rank());
        let size = size.min(queue.waiting.len());
        for waiting in queue.waiting.drain(..size) {
            // A suspect that was canceled in this moment no longer receives.
            let _ = waiting.turn.send(TrialTurn { beside: size - 1, _group: group.clone() });
        }
        all_left
    }
}

/// Starts groups of suspects until none waits.
async fn conduct(engine: Arc<EngineCore>) {
    let (probation, length) = (&engine.probation, engine.options.probation);
    let mut closing = engine.closing();
    let mut size = 1;
    // Tasks that died together are claimed together, but the most suspicious may not be claimed first: collect
    // them.
    let mut gathered = Instant::now() + length / GATHERED;
    while let Some(next) = probation.next_turn() {
        if next.max(gathered) > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(next.max(gathered)) => continue,
                () = wait_until_closing(&mut closing) => return,
            }
        }
        let mut all_left = probation.start(size);
        // Bounded: a run that blocks its thread is alive but cannot report it.
        let _ = tokio::time::timeout(length * 2, all_left.recv()).await;
        (size, gathered) = (size.saturating_mul(2), next);
    }
}
