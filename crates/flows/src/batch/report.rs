//! What a batch came to, as its artifact tells it.
//!
//! Times are measured, not derived: `operationMs` is the sum of all tries, `wallMs` how long the batch was at work.
//! A batch that was cut is at work again after the restart; each of its runs counts from its first operation to
//! the last one that ended in it, so neither the gap nor what was lost with the crash is counted. A pause counts
//! only as long as something still runs in it. The sequential sample has a watch of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    input::{Input, Operation},
    live::{Attempt, Finished},
    metrics::{Measured, reduction, rounded, success_rate},
};

/// What a batch came to.
pub(crate) struct Report {
    pub(crate) value: Value,
    pub(crate) measured: Measured,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) total: u64,
}

/// What a strategy made of all operations together.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Joined {
    pub(crate) content: Option<Value>,
    /// Bytes before and after, where they were measured.
    pub(crate) bytes: Option<(u64, u64)>,
}

impl Report {
    pub(crate) fn new(
        batch: &str,
        status: &str,
        input: &Input,
        operations: &[Operation],
        finished: &[Finished],
        sample: &BTreeSet<usize>,
        joined: Joined,
    ) -> Self {
        let succeeded = finished.iter().filter(|one| one.succeeded()).count() as u64;
        let skipped = finished.iter().filter(|one| matches!(one, Finished::Skipped(_))).count() as u64;
        let total = finished.len() as u64;
        let failed = total - succeeded - skipped;

        let of = |sampled: bool| {
            let some = finished.iter().enumerate().filter(move |(n, _)| sample.contains(n) == sampled);
            some.map(|(_, one)| one)
        };
        let attempts = || of(false).flat_map(Finished::attempts);
        let operation_ms: f64 = attempts().map(|attempt| attempt.ms).sum();
        let wall_ms = worked(attempts());
        let speedup = wall_ms.map(|wall| rounded(operation_ms / wall));
        let sequential_ms = worked(of(true).flat_map(Finished::attempts));
        let tried = |sampled| of(sampled).filter(|one| one.last().is_some()).count() as f64;
        // The mean time that an operation took the batch: one after another, and beside each other.
        let against_sample = match (sequential_ms, wall_ms) {
            (Some(sequential), Some(wall)) if tried(true) > 0.0 && tried(false) > 0.0 => {
                Some(rounded((sequential / tried(true)) / (wall / tried(false))))
            }
            _ => None,
        };
        let peak = finished.iter().flat_map(Finished::attempts).map(|attempt| attempt.beside).max();
        let (before, after) = joined.bytes.unzip();

        let mut value = json!({
            "batchId": batch,
            "status": status,
            "strategy": input.strategy.name(),
            "type": input.kind(),
            "priority": input.priority.name(),
            "counts": { "total": total, "succeeded": succeeded, "failed": failed, "skipped": skipped },
            "metrics": {
                "wallMs": wall_ms.map(rounded),
                "operationMs": wall_ms.map(|_| rounded(operation_ms)),
                "speedup": speedup,
                "sequentialMs": sequential_ms.map(rounded),
                "measuredSpeedup": against_sample,
                "successRate": success_rate(succeeded, failed),
                "bytesBefore": before,
                "bytesAfter": after,
                "memoryReduction": joined.bytes.and_then(|(before, after)| reduction(before, after)),
                "peakConcurrency": peak,
            },
            "operations": operations.iter().zip(finished).map(|(o, one)| one.shown(o)).collect::<Vec<Value>>(),
        });
        if let Some(content) = joined.content {
            value["content"] = content;
        }
        let measured = Measured { strategy: input.strategy, speedup, succeeded, failed, bytes: joined.bytes };
        Self { value, measured, failed, skipped, total }
    }
}

/// How long a batch was at work: in each of its runs until the last of these ended.
fn worked<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Option<f64> {
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
    use nuncio_engine::clock::Timestamp;

    use super::{
        super::{BatchOptions, operation::Done},
        *,
    };

    fn attempt(run: i64, worked: f64, ms: f64) -> Attempt {
        let result = Ok(Done::of(json!({})));
        Attempt { run, worked, started: Timestamp(run), ms, beside: 2, result }
    }

    fn report(finished: &[Finished], sample: &[usize]) -> Value {
        let asked: Vec<Value> = (0..finished.len())
            .map(|n| json!({ "id": format!("o{n}"), "type": "wait", "args": { "ms": 1 } }))
            .collect();
        let input = Input::read(&json!({ "operations": asked }), &BatchOptions::default())
            .unwrap_or_else(|why| panic!("{why}"));
        let operations = input.operations(&BatchOptions::default()).unwrap_or_else(|why| panic!("{why}"));
        let sample = sample.iter().copied().collect();
        Report::new("b", "completed", &input, &operations, finished, &sample, Joined::default()).value
    }

    #[test]
    fn the_gap_between_two_runs_is_not_counted() {
        // Two runs, an hour apart, of 100 ms each; four operations of 100 ms.
        let tried = |run, worked| Finished::Tried(vec![attempt(run, worked, 100.0)]);
        let finished =
            [tried(1_000, 100.0), tried(1_000, 98.0), tried(3_601_000, 99.0), tried(3_601_000, 100.0)];
        let metrics = &report(&finished, &[])["metrics"];
        assert_eq!(metrics["wallMs"].as_f64(), Some(200.0));
        assert_eq!(metrics["speedup"].as_f64(), Some(2.0));
        assert_eq!(metrics["peakConcurrency"].as_u64(), Some(2));
        assert_eq!(metrics["measuredSpeedup"], Value::Null, "no sample was asked for");
    }

    #[test]
    fn a_sample_is_compared_by_what_an_operation_takes() {
        // Two in the sample take 200 ms one after another; four take 100 ms beside each other.
        let tried = |worked, ms| Finished::Tried(vec![attempt(1, worked, ms)]);
        let finished = [
            tried(100.0, 100.0),
            tried(200.0, 100.0),
            tried(100.0, 100.0),
            tried(100.0, 100.0),
            tried(100.0, 100.0),
            tried(100.0, 100.0),
        ];
        let metrics = &report(&finished, &[0, 1])["metrics"];
        assert_eq!(metrics["sequentialMs"].as_f64(), Some(200.0));
        assert_eq!(metrics["wallMs"].as_f64(), Some(100.0));
        assert_eq!(metrics["measuredSpeedup"].as_f64(), Some(4.0));
        assert_eq!(metrics["speedup"].as_f64(), Some(4.0));
    }

    #[test]
    fn what_was_not_tried_measures_nothing() {
        let metrics = &report(&[Finished::Skipped("canceled".into())], &[])["metrics"];
        for name in ["wallMs", "speedup", "successRate", "memoryReduction", "peakConcurrency"] {
            assert_eq!(metrics[name], Value::Null, "{name}");
        }
    }
}
