//! The runtime settings of the batch engine: one record for all tenants, stored in the home tenant.
//!
//! The record is read when the batch engine is first used, changed by `batch_configure`, and polled every few
//! seconds, so that a change made on another node applies here as well.

use super::{
    api::{BatchConfigureRequest, BatchSettings, BatchThresholds},
    input::Strategy,
};
use nuncio_engine::{
    Engine,
    access::HOME_TENANT,
    clock::Timestamp,
    records::{Records, VersionedRecord},
    surface::HandlerError,
};

const KIND: &str = "batch.settings";
const ID: &str = "settings";
/// The highest concurrency cap that can be set.
pub const MAX_CONCURRENCY: usize = 1_000;
/// The highest limit on unfinished batches that can be set.
pub const MAX_QUEUE: u64 = 1_000;
/// Maximum attempts to write a change that conflicts with concurrent changes.
const TRIES: usize = 16;

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            max_concurrency: 5,
            resource_monitoring: true,
            thresholds: BatchThresholds { memory_usage: 0.8, cpu_usage: 0.8, queue_size: 100 },
            optimization_strategies: Strategy::ALL.to_vec(),
        }
    }
}

/// The settings, with their version and the time of the last change; version 0: never changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VersionedBatchSettings {
    pub(crate) settings: BatchSettings,
    pub(crate) version: u64,
    pub(crate) changed_at: Timestamp,
}

impl BatchSettings {
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_CONCURRENCY).contains(&self.max_concurrency) {
            return Err(format!("maxConcurrency: it is 1 to {MAX_CONCURRENCY} (max_concurrency)"));
        }
        for (field, share) in
            [("memoryUsage", self.thresholds.memory_usage), ("cpuUsage", self.thresholds.cpu_usage)]
        {
            if !(share > 0.0 && share <= 1.0) {
                return Err(format!("thresholds.{field}: it is a share above 0 and up to 1"));
            }
        }
        if !(1..=MAX_QUEUE).contains(&self.thresholds.queue_size) {
            return Err(format!("thresholds.queueSize: it is 1 to {MAX_QUEUE} (max_queue)"));
        }
        let known = &self.optimization_strategies;
        match known.iter().enumerate().find(|(n, one)| known[..*n].contains(one)) {
            Some((_, twice)) => Err(format!("optimizationStrategies: {} is there twice", twice.name())),
            None => Ok(()),
        }
    }

    /// A copy of the settings with the given fields changed.
    fn with(&self, change: &BatchConfigureRequest) -> Result<Self, String> {
        let mut settings = self.clone();
        fn set<T: Clone>(setting: &mut T, change: Option<&T>) {
            if let Some(change) = change {
                setting.clone_from(change);
            }
        }
        set(&mut settings.enabled, change.enabled.as_ref());
        set(&mut settings.max_concurrency, change.max_concurrency.as_ref());
        set(&mut settings.resource_monitoring, change.resource_monitoring.as_ref());
        set(&mut settings.optimization_strategies, change.optimization_strategies.as_ref());
        if let Some(change) = &change.thresholds {
            set(&mut settings.thresholds.memory_usage, change.memory_usage.as_ref());
            set(&mut settings.thresholds.cpu_usage, change.cpu_usage.as_ref());
            set(&mut settings.thresholds.queue_size, change.queue_size.as_ref());
        }
        settings.check().map(|()| settings)
    }
}

fn records(engine: &Engine) -> Records<BatchSettings> {
    engine.records(KIND)
}

/// The stored settings, or the operator's initial ones.
pub(crate) async fn load(
    engine: &Engine,
    usual: &BatchSettings,
) -> Result<VersionedBatchSettings, nuncio_engine::Error> {
    let record = records(engine).get(HOME_TENANT, ID).await?;
    Ok(record.map_or_else(|| VersionedBatchSettings::unchanged(usual), VersionedBatchSettings::from))
}

/// Changes the given fields and leaves the rest.
pub(crate) async fn change(
    engine: &Engine,
    usual: &BatchSettings,
    change: &BatchConfigureRequest,
) -> Result<VersionedBatchSettings, HandlerError> {
    let updated = records(engine)
        .update(HOME_TENANT, ID, TRIES, |found| {
            let known = found.map_or(usual, |record| &record.value);
            let settings = known.with(change).map_err(HandlerError::Invalid)?;
            Ok::<_, HandlerError>((settings != *known).then_some(settings))
        })
        .await?;
    Ok(updated.map_or_else(|| VersionedBatchSettings::unchanged(usual), VersionedBatchSettings::from))
}

impl VersionedBatchSettings {
    /// The operator's initial settings, which no record has replaced.
    fn unchanged(usual: &BatchSettings) -> Self {
        Self { settings: usual.clone(), version: 0, changed_at: Timestamp::default() }
    }
}

impl From<VersionedRecord<BatchSettings>> for VersionedBatchSettings {
    fn from(record: VersionedRecord<BatchSettings>) -> Self {
        Self { settings: record.value, version: record.version, changed_at: record.updated_at }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_change_is_checked_and_leaves_the_rest() {
        let with = |change: Value| {
            let change = serde_json::from_value(change).map_err(|error| error.to_string());
            change.and_then(|change: BatchConfigureRequest| BatchSettings::default().with(&change))
        };
        let changed = with(json!({ "maxConcurrency": 7, "thresholds": { "queueSize": 3 } }));
        let changed = changed.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((changed.max_concurrency, changed.thresholds.queue_size), (7, 3));
        assert_eq!(changed.thresholds.memory_usage, 0.8, "untouched");
        for (change, words) in [
            (json!({ "maxConcurrency": 0 }), "maxConcurrency"),
            (json!({ "maxConcurrency": 1_001 }), "max_concurrency"),
            (json!({ "thresholds": { "cpuUsage": 1.5 } }), "thresholds.cpuUsage"),
            (json!({ "thresholds": { "cpuUsage": 0 } }), "thresholds.cpuUsage"),
            (json!({ "thresholds": { "queueSize": 0 } }), "thresholds.queueSize"),
            (json!({ "thresholds": { "discs": 0 } }), "unknown field `discs`"),
            (json!({ "optimizationStrategies": ["magic"] }), "unknown variant"),
            (
                json!({ "optimizationStrategies": ["resource_optimization", "resource_optimization"] }),
                "twice",
            ),
            (json!({ "speed": 1 }), "unknown field `speed`"),
        ] {
            assert!(with(change.clone()).is_err_and(|why| why.contains(words)), "{change}");
        }
    }
}
