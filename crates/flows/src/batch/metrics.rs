//! Batch metrics: totals per tenant, in the store, and the throughput of this node in the last minute.
//!
//! The speed-up of a batch comes from operations that ran alone (`speedup.rs`). Only values that are named
//! estimates are estimated; a value that was not measured is null.

use std::collections::{BTreeMap, HashMap, VecDeque};

use nuncio_engine::{
    Engine, Error,
    clock::Timestamp,
    knowledge::{ExpectedVersion, RecordWrite},
    records::Records,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    api::{
        OverallPerformance, PerformanceAnswer, PerformanceByStrategy, ReductionPerformance,
        SpeedupPerformance,
    },
    input::Strategy,
    speedup::{Calibration, Calibrations},
};
use crate::resource::iso;

const KIND: &str = "batch.totals";
const ID: &str = "totals";
/// The window of throughput and latency, in seconds.
pub const WINDOW_S: i64 = 60;

/// The measurements of one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchMeasurement {
    pub(crate) strategy: Strategy,
    pub(crate) speedup: Option<f64>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: Option<(u64, u64)>,
    /// Durations of operations that ran alone, by class.
    #[serde(default)]
    pub(crate) calibrations: Vec<(String, Calibration)>,
}

/// The totals of all batches of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchTotals {
    strategies: BTreeMap<Strategy, StrategyTotals>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct StrategyTotals {
    batches: u64,
    /// A value that earlier releases called speed-up and that was a concurrency: still parsed, no longer published.
    speedups: u64,
    speedup_sum: f64,
    #[serde(default, skip_serializing_if = "is_zero")]
    measured_speedups: u64,
    #[serde(default, skip_serializing_if = "is_none")]
    measured_speedup_sum: f64,
    succeeded: u64,
    failed: u64,
    bytes_before: u64,
    bytes_after: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_none(sum: &f64) -> bool {
    *sum == 0.0
}

impl StrategyTotals {
    fn add(&mut self, other: &Self) {
        self.batches += other.batches;
        self.measured_speedups += other.measured_speedups;
        self.measured_speedup_sum += other.measured_speedup_sum;
        self.speedups += other.speedups;
        self.speedup_sum += other.speedup_sum;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
    }

    fn speedup(&self) -> Option<f64> {
        (self.measured_speedups > 0)
            .then(|| rounded(self.measured_speedup_sum / self.measured_speedups as f64))
    }

    fn reduction(&self) -> Option<f64> {
        reduction(self.bytes_before, self.bytes_after)
    }

    fn success(&self) -> Option<f64> {
        success_rate(self.succeeded, self.failed)
    }
}

/// The share of bytes saved.
pub(crate) fn reduction(before: u64, after: u64) -> Option<f64> {
    (before > 0).then(|| rounded(1.0 - after as f64 / before as f64))
}

/// The share of attempted operations that succeeded.
pub(crate) fn success_rate(succeeded: u64, failed: u64) -> Option<f64> {
    let tried = succeeded + failed;
    (tried > 0).then(|| rounded(succeeded as f64 / tried as f64))
}

/// Rounds to three decimals: the measurement is not more precise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

impl BatchTotals {
    fn add(&mut self, batch: &BatchMeasurement) {
        let (before, after) = batch.bytes.unwrap_or_default();
        self.strategies.entry(batch.strategy).or_default().add(&StrategyTotals {
            batches: 1,
            speedups: 0,
            speedup_sum: 0.0,
            measured_speedups: u64::from(batch.speedup.is_some()),
            measured_speedup_sum: batch.speedup.unwrap_or_default(),
            succeeded: batch.succeeded,
            failed: batch.failed,
            bytes_before: before,
            bytes_after: after,
        });
    }

    /// The content of `batchtools://metrics/performance`.
    pub(crate) fn answer(
        &self,
        enabled: bool,
        calibrations: &Calibrations,
        now: Timestamp,
    ) -> PerformanceAnswer {
        let mut all = StrategyTotals::default();
        self.strategies.values().for_each(|sum| all.add(sum));
        let of = |strategy| self.strategies.get(&strategy).cloned().unwrap_or_default();
        let speedup = |sum: StrategyTotals| SpeedupPerformance {
            count: sum.batches,
            average_speedup: sum.speedup(),
            success_rate: sum.success(),
        };
        let optimized = of(Strategy::ResourceOptimization);
        PerformanceAnswer {
            overall: OverallPerformance {
                enabled,
                optimizations_applied: all.batches,
                average_speedup: all.speedup(),
                memory_reduction: all.reduction(),
            },
            by_type: PerformanceByStrategy {
                concurrent_processing: speedup(of(Strategy::ConcurrentProcessing)),
                parallel_content_processing: speedup(of(Strategy::ParallelContentProcessing)),
                resource_optimization: ReductionPerformance {
                    count: optimized.batches,
                    memory_reduction: optimized.reduction(),
                    success_rate: optimized.success(),
                },
            },
            calibration: calibrations.answer(now),
            timestamp: iso(now),
        }
    }

    /// Bytes before and after, over all batches that measured them.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        let mut all = StrategyTotals::default();
        self.strategies.values().for_each(|sum| all.add(sum));
        (all.bytes_before > 0).then_some((all.bytes_before, all.bytes_after))
    }
}

fn records(engine: &Engine) -> Records<BatchTotals> {
    engine.records(KIND)
}

/// The totals of a tenant, and when they last changed.
pub(crate) async fn totals(engine: &Engine, tenant: &str) -> Result<(BatchTotals, Timestamp), Error> {
    let found = records(engine).get(tenant, ID).await?;
    Ok(found.map(|record| (record.value, record.updated_at)).unwrap_or_default())
}

/// The write that adds a batch to the current totals.
pub(crate) async fn added(
    engine: &Engine,
    tenant: &str,
    batch: &BatchMeasurement,
) -> Result<RecordWrite, Error> {
    let found = records(engine).get(tenant, ID).await?;
    let expected = ExpectedVersion::of(found.as_ref());
    let mut totals = found.map(|record| record.value).unwrap_or_default();
    totals.add(batch);
    records(engine).put(tenant, ID, &totals, expected)
}

/// The recent throughput of this node, and the duration of each operation type here.
#[derive(Default)]
pub(crate) struct OperationMeter {
    seen: Mutex<OperationMeterState>,
}

#[derive(Default)]
struct OperationMeterState {
    /// Per tenant, one entry per second.
    windows: HashMap<String, VecDeque<MeterSecond>>,
    /// Per type: the count, and the total milliseconds.
    types: HashMap<&'static str, (u64, f64)>,
}

struct MeterSecond {
    second: i64,
    count: u64,
    ms: f64,
}

impl OperationMeter {
    /// Records an operation that was attempted.
    pub(crate) fn note(&self, tenant: &str, r#type: &'static str, ms: f64, now: Timestamp) {
        let mut seen = self.seen.lock();
        let (count, sum) = seen.types.entry(r#type).or_default();
        *count += 1;
        *sum += ms;
        let second = now.0.div_euclid(1_000);
        seen.windows.retain(|_, window| window.back().is_some_and(|last| last.second > second - WINDOW_S));
        let window = seen.windows.entry(tenant.to_owned()).or_default();
        while window.front().is_some_and(|first| first.second <= second - WINDOW_S) {
            window.pop_front();
        }
        match window.back_mut().filter(|last| last.second >= second) {
            Some(last) => {
                last.count += 1;
                last.ms += ms;
            }
            None => window.push_back(MeterSecond { second, count: 1, ms }),
        }
    }

    /// Operations per second and their mean duration, over the last minute or since the first operation within it.
    pub(crate) fn throughput(&self, tenant: &str, now: Timestamp) -> (Option<f64>, Option<f64>) {
        let seen = self.seen.lock();
        let second = now.0.div_euclid(1_000);
        let recent = |one: &&MeterSecond| one.second > second - WINDOW_S;
        let window = seen.windows.get(tenant);
        let mut within = window.into_iter().flatten().filter(recent).peekable();
        let Some(first) = within.peek().map(|first| first.second) else { return (None, None) };
        let (count, ms) = within.fold((0, 0.0), |(count, ms), one| (count + one.count, ms + one.ms));
        let span = (second - first + 1).clamp(1, WINDOW_S);
        (Some(rounded(count as f64 / span as f64)), Some(rounded(ms / count as f64)))
    }

    /// The estimated duration of operations of these types at the given concurrency: at least that of one
    /// operation of the slowest type. `None` if one of the types never ran here.
    pub(crate) fn estimate<'a>(
        &self,
        remaining: impl IntoIterator<Item = (&'a str, u64)>,
        at_once: usize,
    ) -> Option<f64> {
        let seen = self.seen.lock();
        let (mut sum, mut slowest) = (0.0, 0.0_f64);
        for (r#type, count) in remaining.into_iter().filter(|(_, count)| *count > 0) {
            let (measured, ms) = seen.types.get(r#type)?;
            let mean = ms / *measured as f64;
            sum += mean * count as f64;
            slowest = slowest.max(mean);
        }
        Some((sum / at_once.max(1) as f64).max(slowest).round())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::resource::plain_value;

    #[test]
    fn what_was_not_measured_is_null() {
        let shown = plain_value(&BatchTotals::default().answer(true, &Calibrations::default(), Timestamp(0)));
        assert_eq!(shown["overall"]["averageSpeedup"], Value::Null);
        assert_eq!(shown["overall"]["memoryReduction"], Value::Null);
        assert_eq!(shown["byType"]["concurrent_processing"]["successRate"], Value::Null);
        assert_eq!(shown["overall"]["optimizationsApplied"], 0);
        let meter = OperationMeter::default();
        assert_eq!(meter.throughput("home", Timestamp(0)), (None, None));
        assert_eq!(meter.estimate([("wait", 3)], 5), None);
        assert_eq!(meter.estimate([("wait", 0)], 5), Some(0.0), "nothing remains");
    }

    #[test]
    fn totals_are_means_of_what_was_measured() {
        let mut totals = BatchTotals::default();
        let batch = |strategy, speedup, succeeded, failed, bytes| BatchMeasurement {
            strategy,
            speedup,
            succeeded,
            failed,
            bytes,
            calibrations: vec![],
        };
        totals.add(&batch(Strategy::ConcurrentProcessing, Some(4.0), 9, 1, None));
        totals.add(&batch(Strategy::ConcurrentProcessing, Some(2.0), 10, 0, None));
        totals.add(&batch(Strategy::ConcurrentProcessing, None, 0, 0, None));
        totals.add(&batch(Strategy::ResourceOptimization, Some(3.0), 1, 0, Some((1_000, 250))));
        let shown = plain_value(&totals.answer(true, &Calibrations::default(), Timestamp(0)));
        let concurrent = &shown["byType"]["concurrent_processing"];
        assert_eq!(
            (concurrent["count"].as_u64(), concurrent["averageSpeedup"].as_f64()),
            (Some(3), Some(3.0))
        );
        assert_eq!(concurrent["successRate"].as_f64(), Some(0.95));
        assert_eq!(shown["byType"]["resource_optimization"]["memoryReduction"].as_f64(), Some(0.75));
        assert_eq!(shown["overall"]["averageSpeedup"].as_f64(), Some(3.0));
        assert_eq!(shown["overall"]["optimizationsApplied"].as_u64(), Some(4));
    }

    #[test]
    fn what_was_once_called_a_speed_up_is_read_back_and_not_shown() {
        let old = r#"{"strategies":{"concurrent_processing":{"batches":2,"speedups":2,"speedup_sum":9.6,"succeeded":80,"failed":0,"bytes_before":0,"bytes_after":0}}}"#;
        let totals: BatchTotals = serde_json::from_str(old).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(serde_json::to_string(&totals).unwrap_or_default(), old, "written as it was read");
        let shown = plain_value(&totals.answer(true, &Calibrations::default(), Timestamp(0)));
        assert_eq!(shown["overall"]["averageSpeedup"], Value::Null);
        assert_eq!(shown["overall"]["optimizationsApplied"], 2);
    }

    #[test]
    fn the_window_moves_on_and_is_each_tenants_own() {
        let meter = OperationMeter::default();
        let at = |seconds: i64| Timestamp(seconds * 1_000);
        for second in 0..10 {
            meter.note("a", "wait", 20.0, at(second));
            meter.note("a", "wait", 40.0, at(second));
        }
        assert_eq!(meter.throughput("a", at(9)), (Some(2.0), Some(30.0)));
        assert_eq!(meter.throughput("b", at(9)), (None, None));
        assert_eq!(meter.throughput("a", at(19)), (Some(1.0), Some(30.0)));
        assert_eq!(meter.throughput("a", at(64)).0, Some(0.167), "ten of twenty are out of the window");
        assert_eq!(meter.throughput("a", at(100)), (None, None));
        assert_eq!(meter.estimate([("wait", 10)], 5), Some(60.0));
        assert_eq!(meter.estimate([("wait", 1)], 5), Some(30.0), "one operation is not done in parts");
        assert_eq!(meter.estimate([("wait", 10), ("files.read", 1)], 5), None);
    }
}
