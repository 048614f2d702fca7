//! A batch that runs in this process: the outcomes of its operations so far, and the number that hold or want a slot.

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
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    api::{OperationAnswer, OperationStatus},
    input::BatchOperation,
    metrics::rounded,
    operation::{OperationFailure, OperationOutput},
    scheduler::{BatchHandle, Priority, SchedulerSlot},
    speedup::SampleCondition,
};
use crate::resource::iso;

/// One attempt of one operation, as recorded in the task's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationAttempt {
    /// The run of the batch, identified by its start time in milliseconds.
    pub(crate) run: i64,
    /// The time that the batch had worked in that run when this attempt ended, in milliseconds.
    pub(crate) worked: f64,
    pub(crate) started: Timestamp,
    pub(crate) ms: f64,
    /// The number of operations of the batch that ran when it began, itself included.
    pub(crate) beside: u64,
    pub(crate) result: Result<OperationOutput, OperationFailure>,
    /// Set for an attempt that began as part of the sequential sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampled: Option<SampleCondition>,
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OperationOutcome {
    /// It was attempted; the last attempt counts.
    Tried(Vec<OperationAttempt>),
    /// It was not attempted, with the reason.
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

    pub(crate) fn answer(&self, operation: &BatchOperation) -> OperationAnswer {
        let mut answer =
            OperationAnswer { attempts: self.attempts().len() as u64, ..OperationAnswer::pending(operation) };
        match self {
            Self::Skipped(why) => {
                answer.status = OperationStatus::Skipped;
                answer.error = Some(why.clone());
            }
            Self::Tried(attempts) => {
                let Some(last) = attempts.last() else { return answer };
                answer.start_time = Some(iso(last.started));
                answer.duration_ms = Some(rounded(last.ms));
                match &last.result {
                    Ok(done) => {
                        answer.status = OperationStatus::Succeeded;
                        answer.output = Some(done.output.clone());
                        answer.truncated = done.truncated.then_some(true);
                    }
                    Err(failure) => {
                        answer.status = OperationStatus::Failed;
                        answer.error = Some(failure.why.clone());
                    }
                }
            }
        }
        answer
    }
}

impl OperationAnswer {
    fn pending(operation: &BatchOperation) -> Self {
        Self {
            id: operation.id.clone(),
            kind: operation.r#type.to_owned(),
            attempts: 0,
            status: OperationStatus::Pending,
            start_time: None,
            duration_ms: None,
            output: None,
            truncated: None,
            error: None,
        }
    }
}

/// A batch that runs in this process.
pub(crate) struct RunningBatch {
    pub(crate) id: TaskId,
    pub(crate) tenant: String,
    /// When this run of the batch began.
    pub(crate) run: Timestamp,
    pub(crate) handle: BatchHandle,
    pub(crate) operations: Arc<[BatchOperation]>,
    /// Whether no further operations begin, because one failed.
    stopped: AtomicBool,
    stop: Notify,
    began: AtomicBool,
    /// The number of operations that hold or want a slot.
    engaged: AtomicUsize,
    /// Notified when an operation releases its slot.
    pub(crate) slot_released: Notify,
    /// Bytes of output that may still be stored.
    room: AtomicUsize,
    finished: Mutex<Vec<Option<OperationOutcome>>>,
}

/// The progress of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchProgress {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// The remaining operations, by type.
    pub(crate) remaining: HashMap<&'static str, u64>,
}

impl RunningBatch {
    pub(crate) fn new(
        id: TaskId,
        tenant: String,
        run: Timestamp,
        handle: BatchHandle,
        operations: Arc<[BatchOperation]>,
        room: usize,
    ) -> Arc<Self> {
        let finished = Mutex::new(vec![None; operations.len()]);
        Arc::new(Self {
            id,
            tenant,
            run,
            handle,
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

    /// Waits for a slot; `None` when the batch begins no further operations.
    pub(crate) async fn acquire_slot(&self, priority: Priority) -> Option<SchedulerSlot> {
        tokio::select! {
            biased;
            () = self.until_stopped() => None,
            place = self.handle.acquire_slot(priority) => Some(place),
        }
    }

    /// Counts an operation as holding or wanting a slot, until the guard is dropped.
    pub(crate) fn begin_slot_use(self: &Arc<Self>) -> SlotUseGuard {
        self.engaged.fetch_add(1, Ordering::AcqRel);
        SlotUseGuard(Arc::clone(self))
    }

    pub(crate) fn slots_in_use(&self) -> usize {
        self.engaged.load(Ordering::Acquire)
    }

    /// Stops the batch from beginning further operations.
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

    /// Stores an output while the batch's output budget lasts.
    pub(crate) fn reserve_output(&self, done: OperationOutput) -> OperationOutput {
        let size = nuncio_engine::content::json_size(&done.output);
        let taken =
            self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| room.checked_sub(size));
        match taken {
            Ok(_) => done,
            Err(_) => OperationOutput { output: Value::Null, truncated: true, skipped: done.skipped },
        }
    }

    /// Charges an output that an earlier run stored to the budget.
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

    /// A page of the operations and their current state.
    pub(crate) fn operation_answers(&self, from: usize, count: usize) -> Vec<OperationAnswer> {
        let finished = self.finished.lock();
        let some = self.operations.iter().zip(&*finished).skip(from).take(count);
        some.map(|(operation, finished)| match finished {
            Some(finished) => finished.answer(operation),
            None => OperationAnswer::pending(operation),
        })
        .collect()
    }

    /// The outcomes of all operations; an unfinished one counts as skipped, with that reason.
    pub(crate) fn take(&self, otherwise: &str) -> Vec<OperationOutcome> {
        let finished = std::mem::take(&mut *self.finished.lock());
        finished
            .into_iter()
            .map(|one| one.unwrap_or_else(|| OperationOutcome::Skipped(otherwise.into())))
            .collect()
    }
}

/// Counts an operation as holding or wanting a slot.
pub(crate) struct SlotUseGuard(Arc<RunningBatch>);

impl Drop for SlotUseGuard {
    fn drop(&mut self) {
        self.0.engaged.fetch_sub(1, Ordering::AcqRel);
        self.0.slot_released.notify_one();
    }
}
