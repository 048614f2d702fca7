//! The speed-up of a batch: the sequential time of its operations, divided by the time that they took together.
//!
//! The sum of the times of operations that compete for the same processors is not a sequential time, so nothing
//! is derived from it. The time of one operation alone is measured: in a small sample that runs one operation
//! at a time before the rest begins, or in the sample of an earlier batch (a calibration, published with its
//! age). A batch with an operation that has neither has no speed-up.

use std::collections::{BTreeMap, BTreeSet};

use nuncio_engine::{
    Engine, Error,
    clock::Timestamp,
    knowledge::{ExpectedVersion, RecordWrite},
    records::Records,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    api::{CalibrationAnswer, SpeedupBasis, UsedCalibration},
    input::{BatchInput, BatchOperation, ContentOperation, OperationKind},
    metrics::rounded,
    running_batch::{OperationAttempt, OperationOutcome},
};

const KIND: &str = "batch.calibration";
const ID: &str = "calibration";
/// By default, one operation in this many of the same class is part of the sample.
const SAMPLE_ONE_IN: usize = 20;
/// Maximum operations of one class in the default sample.
const SAMPLE_PER_CLASS: usize = 3;
/// The longest time that the default sample delays a batch; a longer one is abandoned, and measures nothing.
pub(crate) const SAMPLE_TIME: std::time::Duration = std::time::Duration::from_secs(1);
/// A calibration younger than this makes a default sample unnecessary.
const FRESH_MS: i64 = 3_600_000;
/// A calibration older than this is discarded.
const FORGOTTEN_MS: i64 = 7 * 24 * 3_600_000;
/// Maximum calibrations of a tenant; beyond it the oldest are discarded.
const CALIBRATIONS: usize = 100;

/// The condition under which an operation of the sequential sample was measured, as recorded in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SampleCondition {
    /// No operation of any batch of this process ran at the same time.
    Alone,
    /// No operation of its own batch ran at the same time, but some of other batches did: valid for this batch only.
    Beside,
    /// The rest of the batch began before it ended.
    Overrun,
}

/// The time of one operation of a class that runs alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    pub(crate) operations: u64,
    /// The mean, in milliseconds.
    pub(crate) ms: f64,
    pub(crate) at: Timestamp,
}

/// Calibrations by operation class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibrations {
    classes: BTreeMap<String, Calibration>,
}

/// The class of operations that take about the same time, as far as the request shows.
fn coarse_class(operation: &BatchOperation, input: &BatchInput) -> String {
    let r#type = operation.r#type;
    match &operation.work {
        OperationKind::Wait(wait) => format!("{type}:{}", wait.ms),
        OperationKind::Call(call) => format!("{type}:{}", call.agent),
        OperationKind::Write(write) => format!("{type}:{}", size_class(write.content.len() as u64)),
        OperationKind::Chunk(_, bytes) => {
            let operation = match input.process.as_ref().map(|process| process.operation) {
                Some(ContentOperation::Hash) => "hash",
                Some(ContentOperation::Count) => "count",
                Some(ContentOperation::Search) => "search",
                Some(ContentOperation::Compress) => "compress",
                None => "",
            };
            format!("{type}:{operation}:{}", size_class(*bytes))
        }
        _ => r#type.to_owned(),
    }
}

/// The class refined by the actual size of the operation; `None` where its time depends on an unknown size.
fn fine_class(operation: &BatchOperation, input: &BatchInput, output: Option<&Value>) -> Option<String> {
    let coarse = coarse_class(operation, input);
    match &operation.work {
        OperationKind::Read(_)
        | OperationKind::Copy(_)
        | OperationKind::Hash(_)
        | OperationKind::Search(_)
        | OperationKind::Optimize(_) => {
            let bytes = output?.get("bytes")?.as_u64()?;
            Some(format!("{coarse}:{}", size_class(bytes)))
        }
        _ => Some(coarse),
    }
}

fn is_size_dependent(operation: &BatchOperation) -> bool {
    matches!(
        operation.work,
        OperationKind::Read(_)
            | OperationKind::Copy(_)
            | OperationKind::Hash(_)
            | OperationKind::Search(_)
            | OperationKind::Optimize(_)
    )
}

/// Sizes are rounded up to a power of two.
fn size_class(bytes: u64) -> u64 {
    bytes.next_power_of_two()
}

/// The operations that run in sequence before the rest begins: as many as `sequential_sample` requests, else a
/// small part of every class that is large enough and has no fresh calibration.
pub(crate) fn sample(
    operations: &[BatchOperation],
    input: &BatchInput,
    at_once: usize,
    calibrations: &Calibrations,
    now: Timestamp,
) -> BTreeSet<usize> {
    let free = || operations.iter().enumerate().filter(|(_, operation)| operation.needs.is_empty());
    if let Some(count) = input.sequential_sample {
        let free: Vec<usize> = free().map(|(n, _)| n).collect();
        return spread(&free, count);
    }
    if at_once <= 1 || operations.len() < SAMPLE_ONE_IN {
        return BTreeSet::new();
    }
    // A sample of low priority would run before urgent operations.
    let Some(highest) = free().map(|(_, operation)| operation.priority).max() else { return BTreeSet::new() };
    let mut classes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, operation) in free().filter(|(_, operation)| operation.priority == highest) {
        let class = coarse_class(operation, input);
        if is_size_dependent(operation) || !calibrations.is_fresh(&class, now) {
            classes.entry(class).or_default().push(n);
        }
    }
    let most = operations.len() / SAMPLE_ONE_IN;
    let chosen =
        classes.values().flat_map(|class| spread(class, (class.len() / SAMPLE_ONE_IN).min(SAMPLE_PER_CLASS)));
    chosen.take(most).collect()
}

/// Picks `count` of them, evenly spread, because neighboring operations are often alike.
fn spread(from: &[usize], count: usize) -> BTreeSet<usize> {
    let count = count.min(from.len());
    (0..count).map(|n| from[n * from.len() / count]).collect()
}

/// The speed-up of a batch and its basis; both are null where it was not measured.
pub(crate) struct Speedup {
    pub(crate) value: Option<f64>,
    pub(crate) basis: Option<SpeedupBasis>,
    /// The time that the sample took.
    pub(crate) sequential_ms: Option<f64>,
    /// Calibrations for later batches.
    pub(crate) calibrations: Vec<(String, Calibration)>,
}

#[derive(Default)]
struct Mean {
    count: u64,
    ms: f64,
}

impl Mean {
    fn add(&mut self, ms: f64) {
        self.count += 1;
        self.ms += ms;
    }

    fn value(&self) -> f64 {
        self.ms / self.count as f64
    }
}

/// Whether an operation was part of the sample.
pub(crate) fn is_sampled(finished: &OperationOutcome) -> bool {
    finished
        .last()
        .is_some_and(|last| matches!(last.sampled, Some(SampleCondition::Alone | SampleCondition::Beside)))
}

pub(crate) fn measure(
    input: &BatchInput,
    operations: &[BatchOperation],
    finished: &[OperationOutcome],
    wall_ms: Option<f64>,
    known: &Calibrations,
    now: Timestamp,
) -> Speedup {
    let alone = sample_times(finished);
    let (mut coarse, mut fine, mut calibrated) =
        (BTreeMap::<_, Mean>::new(), BTreeMap::<_, Mean>::new(), BTreeMap::<_, Mean>::new());
    for (n, ms) in &alone {
        let (operation, one) = (&operations[*n], &finished[*n]);
        coarse.entry(coarse_class(operation, input)).or_default().add(*ms);
        if let Some(class) = fine_class(operation, input, one.output()) {
            let undisturbed =
                one.attempts().iter().all(|attempt| attempt.sampled == Some(SampleCondition::Alone));
            // A failure may be faster or slower than the work.
            if undisturbed && one.succeeded() {
                calibrated.entry(class.clone()).or_default().add(*ms);
            }
            fine.entry(class).or_default().add(*ms);
        }
    }
    let sequential_ms = (!alone.is_empty()).then(|| alone.values().sum());
    let calibrations = calibrated
        .into_iter()
        .map(|(class, mean)| (class, Calibration { operations: mean.count, ms: mean.value(), at: now }))
        .collect();
    let unmeasured = |calibrations| Speedup { value: None, basis: None, sequential_ms, calibrations };
    let attempts = || finished.iter().flat_map(OperationOutcome::attempts);
    if attempts().any(|attempt: &OperationAttempt| attempt.sampled == Some(SampleCondition::Overrun)) {
        return unmeasured(calibrations);
    }
    let (mut sum, mut rest, mut used) = (0.0, 0u64, BTreeMap::new());
    for (n, one) in finished.iter().enumerate() {
        if alone.contains_key(&n) || one.last().is_none() {
            continue;
        }
        let operation = &operations[n];
        let class = fine_class(operation, input, one.output());
        let by_class = class.as_ref().and_then(|class| fine.get(class)).map(Mean::value);
        let by_calibration = || {
            let (class, calibration) = known.classes.get_key_value(class.as_ref()?)?;
            used.insert(class.clone(), calibration.clone());
            Some(calibration.ms)
        };
        let by_type = || coarse.get(&coarse_class(operation, input)).map(Mean::value);
        let Some(ms) = by_class.or_else(by_calibration).or_else(by_type) else {
            return unmeasured(calibrations);
        };
        sum += ms;
        rest += 1;
    }
    let (Some(wall), true) = (wall_ms, rest > 0) else { return unmeasured(calibrations) };
    let sampled = alone.len() as u64;
    let calibration = |(class, one): (&String, &Calibration)| UsedCalibration {
        kind: class.clone(),
        operations: one.operations,
        age_seconds: age_seconds(one, now),
    };
    let basis = Some(SpeedupBasis {
        sample_operations: sampled,
        sample_share: rounded(sampled as f64 / (sampled + rest) as f64),
        calibrations: used.iter().map(calibration).collect(),
    });
    Speedup { value: Some(rounded(sum / wall)), basis, sequential_ms, calibrations }
}

/// The time of each operation of the sample: from the end of the previous one to its own end.
fn sample_times(finished: &[OperationOutcome]) -> BTreeMap<usize, f64> {
    let mut runs: BTreeMap<i64, Vec<(f64, usize)>> = BTreeMap::new();
    for (n, one) in finished.iter().enumerate().filter(|(_, one)| is_sampled(one)) {
        let Some(last) = one.last() else { continue };
        runs.entry(last.run).or_default().push((last.worked, n));
    }
    let mut times = BTreeMap::new();
    for mut run in runs.into_values() {
        run.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut before = 0.0;
        for (worked, n) in run {
            times.insert(n, worked - before);
            before = worked;
        }
    }
    times
}

fn age_seconds(calibration: &Calibration, now: Timestamp) -> u64 {
    (now.0 - calibration.at.0).max(0) as u64 / 1_000
}

impl Calibrations {
    fn is_fresh(&self, class: &str, now: Timestamp) -> bool {
        self.classes.get(class).is_some_and(|one| now.0 - one.at.0 < FRESH_MS)
    }

    fn add(&mut self, more: &[(String, Calibration)], now: Timestamp) {
        self.classes.extend(more.iter().cloned());
        self.classes.retain(|_, one| now.0 - one.at.0 < FORGOTTEN_MS);
        while self.classes.len() > CALIBRATIONS {
            let oldest = self.classes.iter().min_by_key(|(_, one)| one.at).map(|(class, _)| class.clone());
            let Some(oldest) = oldest else { return };
            self.classes.remove(&oldest);
        }
    }

    /// The calibrations in `batchtools://metrics/performance`.
    pub(crate) fn answer(&self, now: Timestamp) -> Vec<CalibrationAnswer> {
        let one = |(class, one): (&String, &Calibration)| CalibrationAnswer {
            kind: class.clone(),
            sequential_ms: rounded(one.ms),
            operations: one.operations,
            age_seconds: age_seconds(one, now),
        };
        self.classes.iter().map(one).collect()
    }
}

fn records(engine: &Engine) -> Records<Calibrations> {
    engine.records(KIND)
}

/// The calibrations of a tenant.
pub(crate) async fn calibrations(engine: &Engine, tenant: &str) -> Result<Calibrations, Error> {
    Ok(records(engine).get(tenant, ID).await?.map(|record| record.value).unwrap_or_default())
}

/// The write that adds the measurements of a batch to the current calibrations.
pub(crate) async fn added(
    engine: &Engine,
    tenant: &str,
    more: &[(String, Calibration)],
) -> Result<RecordWrite, Error> {
    let found = records(engine).get(tenant, ID).await?;
    let expected = ExpectedVersion::of(found.as_ref());
    let mut known = found.map(|record| record.value).unwrap_or_default();
    known.add(more, engine.clock().now());
    records(engine).put(tenant, ID, &known, expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{BatchOptions, operation::OperationOutput},
        *,
    };

    fn input(value: &Value) -> (BatchInput, Vec<BatchOperation>) {
        let input = BatchInput::read(value, &BatchOptions::default()).unwrap_or_else(|why| panic!("{why}"));
        let operations = input.operations(&BatchOptions::default()).unwrap_or_else(|why| panic!("{why}"));
        (input, operations)
    }

    fn waits(count: usize) -> (BatchInput, Vec<BatchOperation>) {
        let asked: Vec<Value> = (0..count)
            .map(|n| json!({ "id": format!("o{n}"), "type": "wait", "args": { "ms": 1 } }))
            .collect();
        input(&json!({ "operations": asked }))
    }

    fn tried(worked: f64, ms: f64, sampled: Option<SampleCondition>) -> OperationOutcome {
        let result = Ok(OperationOutput::of(json!({})));
        OperationOutcome::Tried(vec![OperationAttempt {
            run: 1,
            worked,
            started: Timestamp(1),
            ms,
            beside: 1,
            result,
            sampled,
        }])
    }

    #[test]
    fn operations_that_stand_in_each_others_way_are_no_faster_together() {
        // Two operations of 100 ms alone; then four at once that compete: 400 ms together, 250 ms each.
        let (input, operations) = waits(6);
        let alone = Some(SampleCondition::Alone);
        let mut finished = vec![tried(100.0, 100.0, alone), tried(200.0, 100.0, alone)];
        finished.extend((0..4).map(|_| tried(400.0, 250.0, None)));
        let known = Calibrations::default();
        let said = measure(&input, &operations, &finished, Some(400.0), &known, Timestamp(5));
        assert_eq!(said.value, Some(1.0));
        assert_eq!(said.sequential_ms, Some(200.0));
        let basis = said.basis.unwrap_or_else(|| panic!("there is no basis"));
        assert_eq!((basis.sample_operations, basis.sample_share), (2, 0.333));
        assert_eq!(said.calibrations.len(), 1);
        assert_eq!((said.calibrations[0].0.as_str(), said.calibrations[0].1.ms), ("wait:1", 100.0));
    }

    #[test]
    fn without_a_sample_a_calibration_counts_with_its_age_and_nothing_else_does() {
        let (input, operations) = waits(2);
        let finished = [tried(50.0, 50.0, None), tried(50.0, 50.0, None)];
        let mut known = Calibrations::default();
        let none = measure(&input, &operations, &finished, Some(50.0), &known, Timestamp(0));
        assert_eq!((none.value, none.basis), (None, None));
        let one = Calibration { operations: 3, ms: 40.0, at: Timestamp(1_000) };
        known.add(&[("wait:1".into(), one)], Timestamp(1_000));
        let said = measure(&input, &operations, &finished, Some(50.0), &known, Timestamp(61_000));
        assert_eq!(said.value, Some(1.6));
        let used = UsedCalibration { kind: "wait:1".into(), operations: 3, age_seconds: 60 };
        assert_eq!(said.basis.map(|basis| basis.calibrations), Some(vec![used]));
        known.add(&[], Timestamp(1_000 + FORGOTTEN_MS));
        assert_eq!(known, Calibrations::default(), "forgotten");
    }

    #[test]
    fn a_sample_that_was_given_up_measures_nothing() {
        let (input, operations) = waits(2);
        let finished = [
            tried(50.0, 50.0, Some(SampleCondition::Overrun)),
            tried(50.0, 50.0, Some(SampleCondition::Alone)),
        ];
        let known = Calibrations::default();
        let said = measure(&input, &operations, &finished, Some(50.0), &known, Timestamp(0));
        assert_eq!(said.value, None);
    }

    #[test]
    fn the_default_sample_is_small_spread_and_left_out_where_it_is_known() {
        let known = Calibrations::default();
        let chosen = |count, at_once, known: &Calibrations, now| {
            let (input, operations) = waits(count);
            sample(&operations, &input, at_once, known, Timestamp(now))
        };
        assert_eq!(chosen(19, 5, &known, 0), BTreeSet::new());
        assert_eq!(chosen(40, 5, &known, 0), BTreeSet::from([0, 20]));
        assert_eq!(chosen(1_000, 5, &known, 0).len(), SAMPLE_PER_CLASS);
        assert_eq!(chosen(40, 1, &known, 0), BTreeSet::new(), "nothing will run beside it");
        let mut known = known;
        known.add(
            &[("wait:1".into(), Calibration { operations: 1, ms: 1.0, at: Timestamp(0) })],
            Timestamp(0),
        );
        assert_eq!(chosen(40, 5, &known, FRESH_MS - 1), BTreeSet::new());
        assert_eq!(chosen(40, 5, &known, FRESH_MS).len(), 2, "no longer fresh");
    }

    #[test]
    fn calibrations_are_bounded_and_keep_the_newest() {
        let mut known = Calibrations::default();
        for n in 0..2 * CALIBRATIONS as i64 {
            let one = Calibration { operations: 1, ms: 1.0, at: Timestamp(n) };
            known.add(&[(format!("wait:{n}"), one)], Timestamp(n));
        }
        assert_eq!(known.classes.len(), CALIBRATIONS);
        assert!(!known.classes.contains_key("wait:0") && known.classes.contains_key("wait:199"));
    }
}
