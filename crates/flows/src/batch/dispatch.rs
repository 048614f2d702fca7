//! The dispatcher of one batch: starts the operations whose dependencies are done, by priority, as slots become free.
//!
//! Every operation is a branch of the task, and every attempt is a step. An attempt that ended before a restart
//! is read back from the journal; it needs no slot and is not repeated. The number of branches is bounded:
//! those that hold or want a slot, plus those whose result is being written, whose next attempt is not due yet,
//! or that wait for an answer.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use nuncio_engine::{AgentError, TaskContext, context::Branch};
use parking_lot::Mutex;

use super::{
    BatchCore,
    attempt_slot::AttemptSlot,
    control,
    input::{BatchOperation, dependents},
    operation::{BatchContext, OperationFailure, OperationOutput, perform},
    running_batch::{OperationAttempt, OperationOutcome, RunningBatch, SlotUseGuard},
    scheduler::Priority,
    speedup::{self, Calibrations, SAMPLE_TIME, SampleCondition},
};

/// Maximum operations beyond those that hold or want a slot: their results are being written, or they wait for a
/// retry or for an answer.
const IN_FLIGHT: usize = 256;
/// Operations beyond the cap that queue for a slot. One is always queued when a slot becomes free, so a batch
/// of lower priority cannot take the slot in between.
const LOOK_AHEAD: usize = 16;
/// Progress events of one batch, approximately.
const PROGRESS_EVENTS: usize = 100;
/// The wait before the second attempt; it doubles before each further one.
const RETRY_BASE: Duration = Duration::from_millis(100);
/// The longest wait before a retry.
const RETRY_MOST: Duration = Duration::from_secs(30);

/// The operations of one batch and their progress.
pub(crate) struct BatchDispatch<'a> {
    pub(crate) cx: &'a TaskContext,
    pub(crate) core: &'a Arc<BatchCore>,
    pub(crate) common: &'a Arc<BatchContext>,
    pub(crate) live: &'a Arc<RunningBatch>,
    pub(crate) stop_on_failure: bool,
    /// Whether only operations of the sequential sample may run.
    sampling: AtomicBool,
    board: Mutex<DispatchState>,
}

/// The operations that can begin, and the dependencies of the others.
struct DispatchState {
    ready: BinaryHeap<(Priority, Reverse<usize>)>,
    /// The number of unfinished dependencies of each operation.
    left: Vec<usize>,
    /// Why an operation will be skipped, where that is known.
    doomed: Vec<Option<String>>,
    dependents: Vec<Vec<usize>>,
    /// Operations that became ready during the sample; they begin after it.
    freed: Vec<usize>,
    done: usize,
    failed: usize,
    skipped: usize,
}

type RunningOperations<'a> = FuturesUnordered<BoxFuture<'a, (usize, Result<OperationOutcome, AgentError>)>>;

impl<'a> BatchDispatch<'a> {
    pub(crate) fn new(
        cx: &'a TaskContext,
        core: &'a Arc<BatchCore>,
        common: &'a Arc<BatchContext>,
        live: &'a Arc<RunningBatch>,
    ) -> Self {
        let operations = &live.operations;
        let board = DispatchState {
            ready: BinaryHeap::new(),
            left: operations.iter().map(|operation| operation.needs.len()).collect(),
            doomed: vec![None; operations.len()],
            dependents: dependents(operations),
            freed: vec![],
            done: 0,
            failed: 0,
            skipped: 0,
        };
        let stop_on_failure = common.input.stop_on_failure;
        let sampling = AtomicBool::new(false);
        Self { cx, core, common, live, stop_on_failure, sampling, board: Mutex::new(board) }
    }

    /// Runs all operations: first a sequential sample, then the rest.
    pub(crate) async fn run(&self, calibrations: &Calibrations) -> Result<(), AgentError> {
        let (input, now) = (&self.common.input, self.common.engine.clock().now());
        let at_once = (*self.core.scheduler.cap().borrow()).min(input.max_concurrency.unwrap_or(usize::MAX));
        let sample = speedup::sample(&self.live.operations, input, at_once, calibrations, now);
        let mut flying: RunningOperations<'_> = FuturesUnordered::new();
        if !sample.is_empty() {
            for n in &sample {
                self.board().ready.push((Priority::High, Reverse(*n)));
            }
            self.sampling.store(true, Ordering::Release);
            let until = input.sequential_sample.is_none().then(|| tokio::time::Instant::now() + SAMPLE_TIME);
            self.phase(&mut flying, Some(1), until).await?;
            self.sampling.store(false, Ordering::Release);
            self.live.handle.next_phase();
        }
        {
            let mut board = self.board();
            // Operations left over from an abandoned sample get their own priority back.
            for (_, Reverse(n)) in std::mem::take(&mut board.ready) {
                board.ready.push((self.live.operations[n].priority, Reverse(n)));
            }
            for (n, operation) in self.live.operations.iter().enumerate() {
                if operation.needs.is_empty() && !sample.contains(&n) {
                    board.ready.push((operation.priority, Reverse(n)));
                }
            }
            for n in std::mem::take(&mut board.freed) {
                board.ready.push((self.live.operations[n].priority, Reverse(n)));
            }
        }
        self.phase(&mut flying, None, None).await
    }

    /// Runs the ready operations, and those that become ready, until all have ended or the time is up.
    async fn phase<'f>(
        &'f self,
        flying: &mut RunningOperations<'f>,
        at_most: Option<usize>,
        until: Option<tokio::time::Instant>,
    ) -> Result<(), AgentError> {
        let sampling = at_most.is_some();
        let mut cap = self.core.scheduler.cap();
        let time_is_over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mut time_is_over = std::pin::pin!(time_is_over);
        loop {
            let cap_now = *cap.borrow_and_update();
            let own = self.common.input.max_concurrency.unwrap_or(usize::MAX);
            let limit = at_most.unwrap_or(cap_now.min(own) + LOOK_AHEAD);
            while self.live.slots_in_use() < limit && flying.len() < limit.saturating_add(IN_FLIGHT) {
                let Some((_, Reverse(n))) = self.board().ready.pop() else { break };
                flying.push(self.start(n, sampling));
            }
            if flying.is_empty() && self.board().ready.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.cx.canceled() => return Err(AgentError::Canceled),
                Some((n, result)) = flying.next() => self.finish(n, result, sampling).await?,
                () = &mut time_is_over => return Ok(()),
                () = self.live.slot_released.notified() => {}
                _ = cap.changed() => {}
            }
        }
    }

    /// Starts an operation. It counts as engaged from now on, not from its first poll. `alone`: nothing else
    /// begins until it has ended.
    fn start(&self, n: usize, alone: bool) -> BoxFuture<'_, (usize, Result<OperationOutcome, AgentError>)> {
        let operation = &self.live.operations[n];
        let (branch, engaged) = (self.cx.branch(&operation.id), self.live.begin_slot_use());
        Box::pin(async move { (n, self.operate(&branch, operation, engaged, alone).await) })
    }

    /// Attempts one operation until it succeeds or is not worth a retry.
    async fn operate(
        &self,
        branch: &Branch,
        operation: &BatchOperation,
        engaged: SlotUseGuard,
        alone: bool,
    ) -> Result<OperationOutcome, AgentError> {
        let mut attempts = vec![];
        let mut engaged = Some(engaged);
        loop {
            let number = attempts.len() as u32 + 1;
            let engaged = engaged.take().unwrap_or_else(|| self.live.begin_slot_use());
            let attempt = self.attempt(branch, operation, number, engaged, alone).await?;
            let again = match &attempt.result {
                Err(failure) if !is_last(failure, operation, number) => failure.again,
                _ => None,
            };
            if let Ok(OperationOutput { skipped: Some(why), .. }) = &attempt.result {
                return Ok(OperationOutcome::Skipped(why.clone()));
            }
            attempts.push(attempt);
            let Some(after) = again else { return Ok(OperationOutcome::Tried(attempts)) };
            if !self.wait(&attempts, number, after).await? {
                return Ok(OperationOutcome::Tried(attempts));
            }
        }
    }

    async fn attempt(
        &self,
        branch: &Branch,
        operation: &BatchOperation,
        number: u32,
        engaged: SlotUseGuard,
        alone: bool,
    ) -> Result<OperationAttempt, AgentError> {
        let (common, live) = (self.common, self.live);
        branch
            .step("try", async move |step| {
                let held = AttemptSlot::acquire(live, operation.priority, engaged, alone, &step).await?;
                // The batch begins no further operations; `finish` handles this case.
                let Some(mut held) = held else { return Err(AgentError::Canceled) };
                if live.begins() {
                    self.note_begun();
                }
                let (beside, clock) = (live.handle.running() as u64, common.engine.clock());
                let mark = live.handle.alone();
                let started = clock.now();
                let result = perform(common, operation, number, branch, &step, &mut held).await?;
                let ms = milliseconds(held.work_time());
                let worked = milliseconds(live.handle.work_time());
                let sampled = alone.then(|| match self.sampling.load(Ordering::Acquire) {
                    false => SampleCondition::Overrun,
                    true if live.handle.was_alone(mark) => SampleCondition::Alone,
                    true => SampleCondition::Beside,
                });
                if self.stop_on_failure
                    && result.as_ref().is_err_and(|failure| is_last(failure, operation, number))
                {
                    // Must happen before the slot is released to another operation.
                    live.stop();
                }
                drop(held);
                self.core.meter.note(&live.tenant, operation.r#type, ms, clock.now());
                let result = result.map(|done| live.reserve_output(done));
                Ok(OperationAttempt { run: live.run.0, worked, started, ms, beside, result, sampled })
            })
            .await
    }

    /// Waits until the next attempt is due; false when there is none.
    async fn wait(&self, attempts: &[OperationAttempt], number: u32, after: u64) -> Result<bool, AgentError> {
        let Some(last) = attempts.last() else { return Ok(true) };
        let doubled = RETRY_BASE.saturating_mul(1 << number.min(16).saturating_sub(1));
        let pause = doubled.max(Duration::from_millis(after)).min(RETRY_MOST);
        let clock = self.common.engine.clock();
        // Jittered, so that operations that failed together are not retried together. Counted from the failure,
        // so that a restart does not restart the wait.
        let pause = pause.mul_f64(1.0 + 0.2 * clock.chance());
        let due = last.started.after(Duration::from_secs_f64(last.ms / 1_000.0) + pause);
        tokio::select! {
            biased;
            () = self.cx.canceled() => Err(AgentError::Canceled),
            () = self.live.until_stopped() => Ok(false),
            () = tokio::time::sleep(due.since(clock.now())) => Ok(true),
        }
    }

    /// Records the outcome of an operation, and its consequences for the operations that depend on it.
    async fn finish(
        &self,
        n: usize,
        result: Result<OperationOutcome, AgentError>,
        sampling: bool,
    ) -> Result<(), AgentError> {
        let finished = match result {
            Ok(finished) => finished,
            Err(AgentError::Canceled) if self.live.is_stopped() && !self.cx.is_canceled() => {
                OperationOutcome::Skipped("the batch stopped after a failure (stopOnFailure)".into())
            }
            Err(error) => return Err(error),
        };
        if finished.last().is_some_and(|last| last.run != self.live.run.0) {
            self.live.charge_stored_output(&finished);
        }
        if finished.attempts().last().is_some_and(|last| last.result.is_err()) && self.stop_on_failure {
            self.live.stop();
        }
        let mut ended = vec![(n, finished)];
        while let Some((n, finished)) = ended.pop() {
            let said = {
                let mut board = self.board();
                board.note(&finished);
                let why = (!finished.succeeded()).then(|| self.why(n, &finished));
                self.live.finish(n, finished);
                for dependent in std::mem::take(&mut board.dependents[n]) {
                    board.left[dependent] -= 1;
                    if let Some(why) = &why {
                        board.doomed[dependent].get_or_insert_with(|| why.clone());
                    }
                    if board.left[dependent] > 0 {
                        continue;
                    }
                    match board.doomed[dependent].take() {
                        Some(why) => ended.push((dependent, OperationOutcome::Skipped(why))),
                        // While the sample runs, nothing else may begin.
                        None if sampling => board.freed.push(dependent),
                        None => {
                            let priority = self.live.operations[dependent].priority;
                            board.ready.push((priority, Reverse(dependent)));
                        }
                    }
                }
                board.progress(self.live.operations.len())
            };
            if let Some((done, text)) = said {
                self.cx.progress(done as f64, Some(self.live.operations.len() as f64), text).await?;
            }
        }
        Ok(())
    }

    fn why(&self, n: usize, finished: &OperationOutcome) -> String {
        let id = &self.live.operations[n].id;
        match finished {
            OperationOutcome::Skipped(_) => format!("it needs {id}, which was skipped"),
            OperationOutcome::Tried(_) => format!("it needs {id}, which failed"),
        }
    }

    /// Records in the control record that the batch has begun. No caller waits for it: the record is informational.
    fn note_begun(&self) {
        let (engine, tenant) = (self.common.engine.clone(), self.live.tenant.clone());
        let id = self.live.id;
        tokio::spawn(async move {
            let now = engine.clock().now();
            let begin = |control: &mut control::Control| {
                control.began_at.get_or_insert(now);
            };
            match control::change(&engine, &tenant, id, begin).await {
                Ok(_) => engine.notify_changed(&tenant, super::QUEUE_URI),
                Err(error) => tracing::warn!(%error, batch = %id, "could not record that a batch began"),
            }
        });
    }

    fn board(&self) -> parking_lot::MutexGuard<'_, DispatchState> {
        self.board.lock()
    }
}

impl DispatchState {
    fn note(&mut self, finished: &OperationOutcome) {
        self.done += 1;
        match finished {
            OperationOutcome::Skipped(_) => self.skipped += 1,
            finished if !finished.succeeded() => self.failed += 1,
            OperationOutcome::Tried(_) => {}
        }
    }

    /// The progress message after an operation: about a hundred per batch. The count is deterministic, because
    /// a resumed run must emit as many events as the run before.
    fn progress(&self, total: usize) -> Option<(usize, String)> {
        let every = total.div_ceil(PROGRESS_EVENTS).max(1);
        if !self.done.is_multiple_of(every) && self.done != total {
            return None;
        }
        let Self { done, failed, skipped, .. } = self;
        let mut text = format!("{done} of {total} operations");
        if failed + skipped > 0 {
            text.push_str(&format!(", {failed} failed, {skipped} skipped"));
        }
        Some((*done, text))
    }
}

/// Whether there is no further attempt after this one.
fn is_last(failure: &OperationFailure, operation: &BatchOperation, number: u32) -> bool {
    failure.again.is_none() || number > operation.retries
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
