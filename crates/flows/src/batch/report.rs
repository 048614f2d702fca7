//! The report of a batch, published as its artifact.
//!
//! Times are measured, not derived: `operationMs` is the sum of all attempts, `wallMs` the time that the batch
//! ran. Their ratio is `concurrency`, the number of operations that ran at once. The gain is `speedup`,
//! measured against operations that ran alone (`speedup.rs`).
//!
//! An interrupted batch runs again after the restart. Each run counts from its first operation to the last one
//! that ended in it, so neither the downtime nor the work lost in the crash is counted. A pause counts only
//! while an operation still runs in it. The sequential sample has its own stopwatch.

use std::{collections::BTreeMap, fmt};

use nuncio_engine::clock::Timestamp;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    api::{BatchCounts, BatchMetrics, BatchResult},
    input::{BatchInput, BatchOperation},
    metrics::{BatchMeasurement, reduction, rounded, success_rate},
    running_batch::{OperationAttempt, OperationOutcome},
    speedup::{self, Calibrations, Speedup, is_sampled},
};
use crate::resource::plain_value;

/// The report of a batch.
pub(crate) struct BatchReport {
    pub(crate) value: Value,
    pub(crate) measured: BatchMeasurement,
    pub(crate) counts: OperationCounts,
}

/// The operations of a batch, counted by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationCounts {
    pub(crate) total: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl fmt::Display for OperationCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, succeeded, failed, skipped } = self;
        write!(f, "{succeeded} of {total} operations succeeded, {failed} failed, {skipped} skipped.")
    }
}

impl OperationCounts {
    /// Parses the counts from the final status sentence of a batch, so that a listing need not read whole results.
    pub(crate) fn in_sentence(text: &str) -> Option<Self> {
        let (before, after) = text.split_once(" operations succeeded, ")?;
        let mut before = before.rsplit(' ');
        let (total, of, succeeded) = (before.next()?, before.next()?, before.next()?);
        let (failed, after) = after.split_once(" failed, ")?;
        let (skipped, _) = after.split_once(" skipped.")?;
        (of == "of").then_some(())?;
        let number = |text: &str| text.parse().ok();
        let (total, succeeded) = (number(total)?, number(succeeded)?);
        Some(Self { total, succeeded, failed: number(failed)?, skipped: number(skipped)? })
    }
}

impl From<OperationCounts> for BatchCounts {
    fn from(counts: OperationCounts) -> Self {
        let OperationCounts { total, succeeded, failed, skipped } = counts;
        let [total, succeeded, failed, skipped] = [total, succeeded, failed, skipped].map(Some);
        Self { total, succeeded, failed, skipped }
    }
}

/// The output that a strategy joined from all operations.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct JoinedOutput {
    pub(crate) content: Option<Value>,
    /// Bytes before and after, where they were measured.
    pub(crate) bytes: Option<(u64, u64)>,
}

impl BatchReport {
    pub(crate) fn new(
        batch: &str,
        status: &str,
        input: &BatchInput,
        operations: &[BatchOperation],
        finished: &[OperationOutcome],
        (calibrations, now): (&Calibrations, Timestamp),
        joined: JoinedOutput,
    ) -> Self {
        let succeeded = finished.iter().filter(|one| one.succeeded()).count() as u64;
        let skipped =
            finished.iter().filter(|one| matches!(one, OperationOutcome::Skipped(_))).count() as u64;
        let total = finished.len() as u64;
        let failed = total - succeeded - skipped;
        let counts = OperationCounts { total, succeeded, failed, skipped };

        let rest = || finished.iter().filter(|one| !is_sampled(one)).flat_map(OperationOutcome::attempts);
        let operation_ms: f64 = rest().map(|attempt| attempt.ms).sum();
        let wall_ms = worked(rest());
        let Speedup { value: speedup, basis, sequential_ms, calibrations } =
            speedup::measure(input, operations, finished, wall_ms, calibrations, now);
        let peak = finished.iter().flat_map(OperationOutcome::attempts).map(|attempt| attempt.beside).max();
        let (before, after) = joined.bytes.unzip();

        let result = BatchResult {
            batch_id: batch.to_owned(),
            status: status.to_owned(),
            strategy: input.strategy,
            kind: input.kind().to_owned(),
            priority: input.priority,
            counts: counts.into(),
            metrics: BatchMetrics {
                wall_ms: wall_ms.map(rounded),
                operation_ms: wall_ms.map(|_| rounded(operation_ms)),
                concurrency: wall_ms.map(|wall| rounded(operation_ms / wall)),
                speedup,
                speedup_basis: basis,
                sequential_ms: sequential_ms.map(rounded),
                success_rate: success_rate(succeeded, failed),
                bytes_before: before,
                bytes_after: after,
                memory_reduction: joined.bytes.and_then(|(before, after)| reduction(before, after)),
                peak_concurrency: peak,
            },
            operations: operations.iter().zip(finished).map(|(o, one)| one.answer(o)).collect(),
            content: joined.content,
        };
        let value = plain_value(&result);
        let (strategy, bytes) = (input.strategy, joined.bytes);
        let measured = BatchMeasurement { strategy, speedup, succeeded, failed, bytes, calibrations };
        Self { value, measured, counts }
    }
}

/// The time that a batch ran: the sum over its runs, each until the last of these attempts ended.
fn worked<'a>(attempts: impl Iterator<Item = &'a OperationAttempt>) -> Option<f64> {
    let mut runs: BTreeMap<i64, f64> = BTreeMap::new();
    for attempt in attempts {
        let longest = runs.entry(attempt.run).or_default();
        *longest = longest.max(attempt.worked);
    }
    let sum: f64 = runs.values().sum();
    (sum > 0.0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{BatchOptions, operation::OperationOutput, speedup::SampleCondition},
        *,
    };

    fn attempt(run: i64, worked: f64, ms: f64, sampled: Option<SampleCondition>) -> OperationAttempt {
        let result = Ok(OperationOutput::of(json!({})));
        OperationAttempt { run, worked, started: Timestamp(run), ms, beside: 2, result, sampled }
    }

    fn report(finished: &[OperationOutcome]) -> Value {
        let asked: Vec<Value> = (0..finished.len())
            .map(|n| json!({ "id": format!("o{n}"), "type": "wait", "args": { "ms": 1 } }))
            .collect();
        let input = BatchInput::read(&json!({ "operations": asked }), &BatchOptions::default())
            .unwrap_or_else(|why| panic!("{why}"));
        let operations = input.operations(&BatchOptions::default()).unwrap_or_else(|why| panic!("{why}"));
        let known = (&Calibrations::default(), Timestamp(0));
        BatchReport::new("b", "completed", &input, &operations, finished, known, JoinedOutput::default())
            .value
    }

    #[test]
    fn the_gap_between_two_runs_is_not_counted() {
        // Two runs, an hour apart, of 100 ms each; four operations of 100 ms.
        let tried = |run, worked| OperationOutcome::Tried(vec![attempt(run, worked, 100.0, None)]);
        let finished =
            [tried(1_000, 100.0), tried(1_000, 98.0), tried(3_601_000, 99.0), tried(3_601_000, 100.0)];
        let metrics = &report(&finished)["metrics"];
        assert_eq!(metrics["wallMs"].as_f64(), Some(200.0));
        assert_eq!(metrics["concurrency"].as_f64(), Some(2.0));
        assert_eq!(metrics["peakConcurrency"].as_u64(), Some(2));
        assert_eq!(metrics["speedup"], Value::Null, "nothing ran alone");
    }

    #[test]
    fn a_sample_is_compared_by_what_an_operation_takes() {
        // Two operations of the sample take 200 ms in sequence; four take 100 ms concurrently.
        let tried = |worked, sampled| OperationOutcome::Tried(vec![attempt(1, worked, 100.0, sampled)]);
        let alone = Some(SampleCondition::Alone);
        let mut finished = vec![tried(100.0, alone), tried(200.0, alone)];
        finished.extend((0..4).map(|_| tried(100.0, None)));
        let metrics = &report(&finished)["metrics"];
        assert_eq!(metrics["sequentialMs"].as_f64(), Some(200.0));
        assert_eq!(metrics["wallMs"].as_f64(), Some(100.0));
        assert_eq!(metrics["speedup"].as_f64(), Some(4.0));
    }

    #[test]
    fn what_was_not_tried_measures_nothing() {
        let metrics = &report(&[OperationOutcome::Skipped("canceled".into())])["metrics"];
        for name in ["wallMs", "concurrency", "speedup", "successRate", "memoryReduction", "peakConcurrency"]
        {
            assert_eq!(metrics[name], Value::Null, "{name}");
        }
    }

    #[test]
    fn counts_are_read_back_from_the_sentence_that_tells_them() {
        let counts = OperationCounts { total: 51, succeeded: 40, failed: 1, skipped: 10 };
        assert_eq!(OperationCounts::in_sentence(&counts.to_string()), Some(counts));
        let stopped = format!("The batch stopped after a failure: {counts}");
        assert_eq!(OperationCounts::in_sentence(&stopped), Some(counts));
        for other in ["", "3 operations succeeded, 1 failed, 1 skipped.", "no batch is taken: 3 wait"] {
            assert_eq!(OperationCounts::in_sentence(other), None, "{other}");
        }
    }
}
