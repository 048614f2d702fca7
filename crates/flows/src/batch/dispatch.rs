//! Starts the operations of one batch: what nothing stands in the way of, by priority, as places become free.
//!
//! Every operation is a branch of the task, and every try of it a step: one that ended before a restart is read
//! back without a place and without being done again. Only as many branches exist as may be engaged, and those
//! whose last word is being written, whose next try is some time off, or who wait for an answer.

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
    operation::{BatchContext, OperationFailure, perform},
    running_batch::{OperationAttempt, OperationOutcome, RunningBatch, SlotUseGuard},
    scheduler::Priority,
    speedup::{self, Calibrations, SAMPLE_TIME, SampleCondition},
};

/// Operations beyond those engaged that may exist: their results are being written, they wait for another try, or for
/// somebody's answer.
const IN_FLIGHT: usize = 256;
/// Operations beyond the cap that ask for a place: there is always one in the queue when a place becomes free, so that
/// a batch of a lower priority does not get it in between.
const LOOK_AHEAD: usize = 16;
/// Events that tell of a batch's progress.
const PROGRESS_EVENTS: usize = 100;
/// The wait before the second try; each further one doubles it.
const RETRY_BASE: Duration = Duration::from_millis(100);
/// The longest wait before another try.
const RETRY_MOST: Duration = Duration::from_secs(30);

/// One batch's operations, and how far they are.
pub(crate) struct BatchDispatch<'a> {
    pub(crate) cx: &'a TaskContext,
    pub(crate) core: &'a Arc<BatchCore>,
    pub(crate) common: &'a Arc<BatchContext>,
    pub(crate) live: &'a Arc<RunningBatch>,
    pub(crate) stop_on_failure: bool,
    /// Whether nothing but the sequential sample may run.
    sampling: AtomicBool,
    board: Mutex<DispatchState>,
}

/// What can begin, and what stands in the way of the rest.
struct DispatchState {
    ready: BinaryHeap<(Priority, Reverse<usize>)>,
    /// Needs that have not ended.
    left: Vec<usize>,
    /// Why an operation will not be tried, where that is known.
    doomed: Vec<Option<String>>,
    dependents: Vec<Vec<usize>>,
    /// What the sample has set free, for after it.
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

    /// Does all operations: first a sample one after another, then the rest.
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
            // What is left of a sample that was given up has its own priority again.
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

    /// Does what is ready, and what that sets free, until all of it is done or the time is over.
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

    /// Begins an operation. It is engaged from now on, not from when it is first looked at.
    /// `alone`: nothing else begins until it has ended.
    fn start(&self, n: usize, alone: bool) -> BoxFuture<'_, (usize, Result<OperationOutcome, AgentError>)> {
        let operation = &self.live.operations[n];
        let (branch, engaged) = (self.cx.branch(&operation.id), self.live.begin_slot_use());
        Box::pin(async move { (n, self.operate(&branch, operation, engaged, alone).await) })
    }

    /// Tries one operation until it is done or not worth another try.
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
                // Nothing more is to begin: `finish` takes it for what it is.
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
                    // Before the place is given to another.
                    live.stop();
                }
                drop(held);
                self.core.meter.note(&live.tenant, operation.r#type, ms, clock.now());
                let result = result.map(|done| live.reserve_output(done));
                Ok(OperationAttempt { run: live.run.0, worked, started, ms, beside, result, sampled })
            })
            .await
    }

    /// Waits until another try is due; false when there is to be none.
    async fn wait(&self, attempts: &[OperationAttempt], number: u32, after: u64) -> Result<bool, AgentError> {
        let Some(last) = attempts.last() else { return Ok(true) };
        let doubled = RETRY_BASE.saturating_mul(1 << number.min(16).saturating_sub(1));
        let pause = doubled.max(Duration::from_millis(after)).min(RETRY_MOST);
        let clock = self.common.engine.clock();
        // Spread, so that what failed together is not tried together; and from when it failed, so that a restart
        // does not begin the wait anew.
        let pause = pause.mul_f64(1.0 + 0.2 * clock.chance());
        let due = last.started.after(Duration::from_secs_f64(last.ms / 1_000.0) + pause);
        tokio::select! {
            biased;
            () = self.cx.canceled() => Err(AgentError::Canceled),
            () = self.live.until_stopped() => Ok(false),
            () = tokio::time::sleep(due.since(clock.now())) => Ok(true),
        }
    }

    /// Notes what became of an operation, and what that means for those that need it.
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
                        // While the sample runs, only the sample does.
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

    /// Says in the batch's record that it has begun. Nobody waits for it: the record only tells others.
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
                Err(error) => tracing::warn!(%error, batch = %id, "it is not noted that a batch has begun"),
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

    /// What is said after an operation: about a hundred times in a batch, and always as often, because a run that
    /// is taken up again has to say as much as the one before.
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

/// Whether there is no other try after this one.
fn is_last(failure: &OperationFailure, operation: &BatchOperation, number: u32) -> bool {
    failure.again.is_none() || number > operation.retries
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
