//! A batch that is at work in this process: what its operations came to so far, and how many are engaged.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use nuncio_engine::{TaskId, clock::Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    input::BatchOperation,
    metrics::rounded,
    operation::{OperationFailure, OperationOutput},
    scheduler::{BatchHandle, Priority, SchedulerSlot},
    speedup::SampleCondition,
};
use crate::resource::iso;

/// One try of one operation, as the task's journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationAttempt {
    /// The run of the batch that it belongs to: when that began, in milliseconds.
    pub(crate) run: i64,
    /// How long the batch had been at work in that run when this ended, in milliseconds.
    pub(crate) worked: f64,
    pub(crate) started: Timestamp,
    pub(crate) ms: f64,
    /// How many operations of the batch ran when it began, itself included.
    pub(crate) beside: u64,
    pub(crate) result: Result<OperationOutput, OperationFailure>,
    /// Set for what began as part of the sequential sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampled: Option<SampleCondition>,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OperationOutcome {
    /// It was tried; the last try is what counts.
    Tried(Vec<OperationAttempt>),
    /// It was not tried, and why.
    Skipped(String),
}

impl OperationOutcome {
    pub(crate) fn last(&self) -> Option<&OperationAttempt> {
        match self {
            Self::Tried(attempts) => attempts.last(),
            Self::Skipped(_) => None,
        }
    }

    pub(crate) fn attempts(&self) -> &[OperationAttempt] {
        match self {
            Self::Tried(attempts) => attempts,
            Self::Skipped(_) => &[],
        }
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.last().is_some_and(|attempt| attempt.result.is_ok())
    }

    pub(crate) fn output(&self) -> Option<&Value> {
        self.last().and_then(|attempt| attempt.result.as_ref().ok()).map(|done| &done.output)
    }

    pub(crate) fn to_json(&self, operation: &BatchOperation) -> Value {
        let mut one =
            json!({ "id": operation.id, "type": operation.r#type, "attempts": self.attempts().len() });
        match self {
            Self::Skipped(why) => {
                one["status"] = json!("skipped");
                one["error"] = json!(why);
            }
            Self::Tried(attempts) => {
                let Some(last) = attempts.last() else { return one };
                one["startTime"] = json!(iso(last.started));
                one["durationMs"] = json!(rounded(last.ms));
                match &last.result {
                    Ok(done) => {
                        one["status"] = json!("succeeded");
                        one["output"] = done.output.clone();
                        if done.truncated {
                            one["truncated"] = json!(true);
                        }
                    }
                    Err(failure) => {
                        one["status"] = json!("failed");
                        one["error"] = json!(failure.why);
                    }
                }
            }
        }
        one
    }
}

/// A batch that is at work here.
pub(crate) struct RunningBatch {
    pub(crate) id: TaskId,
    pub(crate) tenant: String,
    /// When this run of it began.
    pub(crate) run: Timestamp,
    pub(crate) handle: BatchHandle,
    pub(crate) operations: Arc<[BatchOperation]>,
    /// Whether nothing more is to begin, after a failure.
    stopped: AtomicBool,
    stop: Notify,
    began: AtomicBool,
    /// Operations that wait for a place or have one.
    engaged: AtomicUsize,
    /// Somebody has given its place back.
    pub(crate) slot_released: Notify,
    /// Bytes of outputs that may still be kept.
    room: AtomicUsize,
    finished: Mutex<Vec<Option<OperationOutcome>>>,
}

/// How far a batch is.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchProgress {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// What is left, by type.
    pub(crate) remaining: HashMap<&'static str, u64>,
}

impl RunningBatch {
    pub(crate) fn new(
        id: TaskId,
        tenant: String,
        run: Timestamp,
        seat: BatchHandle,
        operations: Arc<[BatchOperation]>,
        room: usize,
    ) -> Arc<Self> {
        let finished = Mutex::new(vec![None; operations.len()]);
        Arc::new(Self {
            id,
            tenant,
            run,
            handle: seat,
            operations,
            stopped: AtomicBool::new(false),
            stop: Notify::new(),
            began: AtomicBool::new(false),
            engaged: AtomicUsize::new(0),
            slot_released: Notify::new(),
            room: AtomicUsize::new(room),
            finished,
        })
    }

    /// Waits for a place; `None` when nothing more is to begin.
    pub(crate) async fn acquire_slot(&self, priority: Priority) -> Option<SchedulerSlot> {
        tokio::select! {
            biased;
            () = self.until_stopped() => None,
            place = self.handle.acquire_slot(priority) => Some(place),
        }
    }

    /// Says that an operation wants a place or has one, until the guard is dropped.
    pub(crate) fn begin_slot_use(self: &Arc<Self>) -> SlotUseGuard {
        self.engaged.fetch_add(1, Ordering::AcqRel);
        SlotUseGuard(Arc::clone(self))
    }

    pub(crate) fn slots_in_use(&self) -> usize {
        self.engaged.load(Ordering::Acquire)
    }

    /// Lets nothing more begin.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) async fn until_stopped(&self) {
        let mut told = std::pin::pin!(self.stop.notified());
        told.as_mut().enable();
        if !self.is_stopped() {
            told.await;
        }
    }

    /// Whether this is the first operation that begins in this run.
    pub(crate) fn begins(&self) -> bool {
        !self.began.swap(true, Ordering::AcqRel)
    }

    /// Keeps an output as long as there is room for outputs of this batch.
    pub(crate) fn reserve_output(&self, done: OperationOutput) -> OperationOutput {
        let size = nuncio_engine::content::json_size(&done.output);
        let taken =
            self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| room.checked_sub(size));
        match taken {
            Ok(_) => done,
            Err(_) => OperationOutput { output: Value::Null, truncated: true },
        }
    }

    /// Counts what an earlier run kept.
    pub(crate) fn charge_stored_output(&self, finished: &OperationOutcome) {
        let size = finished.output().map_or(0, nuncio_engine::content::json_size);
        let _ = self
            .room
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| Some(room.saturating_sub(size)));
    }

    pub(crate) fn finish(&self, n: usize, finished: OperationOutcome) {
        if let Some(place) = self.finished.lock().get_mut(n) {
            *place = Some(finished);
        }
    }

    pub(crate) fn tally(&self) -> BatchProgress {
        let mut tally = BatchProgress::default();
        for (operation, finished) in self.operations.iter().zip(&*self.finished.lock()) {
            match finished {
                None => *tally.remaining.entry(operation.r#type).or_default() += 1,
                Some(OperationOutcome::Skipped(_)) => tally.skipped += 1,
                Some(finished) if finished.succeeded() => tally.succeeded += 1,
                Some(_) => tally.failed += 1,
            }
        }
        tally
    }

    /// Some operations as they stand.
    pub(crate) fn operations_json(&self, from: usize, count: usize) -> Vec<Value> {
        let finished = self.finished.lock();
        let some = self.operations.iter().zip(&*finished).skip(from).take(count);
        some.map(|(operation, finished)| match finished {
            Some(finished) => finished.to_json(operation),
            None => {
                json!({ "id": operation.id, "type": operation.r#type, "attempts": 0, "status": "pending" })
            }
        })
        .collect()
    }

    /// What all operations came to; what is not finished was skipped, for that reason.
    pub(crate) fn take(&self, otherwise: &str) -> Vec<OperationOutcome> {
        let finished = std::mem::take(&mut *self.finished.lock());
        finished
            .into_iter()
            .map(|one| one.unwrap_or_else(|| OperationOutcome::Skipped(otherwise.into())))
            .collect()
    }
}

/// An operation that wants a place or has one.
pub(crate) struct SlotUseGuard(Arc<RunningBatch>);

impl Drop for SlotUseGuard {
    fn drop(&mut self) {
        self.0.engaged.fetch_sub(1, Ordering::AcqRel);
        self.0.slot_released.notify_one();
    }
}
