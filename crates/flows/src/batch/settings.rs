//! What may be changed while the server runs: one record for all tenants, in the home tenant.
//!
//! It is read when the batch engine is first used, changed by `batch_configure`, and looked at every few seconds,
//! so that a change made on another node holds here as well.

use nuncio_engine::{
    Engine,
    access::HOME_TENANT,
    clock::Timestamp,
    knowledge::{ExpectedVersion, RecordError, RecordKey, RecordWrite},
    surface::HandlerError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::Strategy;

const KIND: &str = "batch.settings";
const ID: &str = "settings";
/// The largest cap on operations at once.
pub const MAX_CONCURRENCY: usize = 1_000;
/// The largest cap on batches that wait or are at work.
pub const MAX_QUEUE: u64 = 1_000;
/// How often a change is tried against others.
const TRIES: usize = 16;

/// How the batch engine works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchSettings {
    /// Whether batches are taken.
    pub enabled: bool,
    /// Operations of all batches that run at once, on each node.
    pub max_concurrency: usize,
    /// Whether the memory and CPU thresholds apply.
    pub resource_monitoring: bool,
    /// Beyond which no batch is taken.
    pub thresholds: BatchThresholds,
    /// The strategies that may be used.
    pub optimization_strategies: Vec<Strategy>,
}

/// Beyond which no batch is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchThresholds {
    /// The share of the machine's memory in use.
    pub memory_usage: f64,
    /// The share of the processors' time in use.
    pub cpu_usage: f64,
    /// Batches of one tenant that wait or are at work: what one tenant has does not keep another from having some.
    pub queue_size: u64,
}

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

/// The settings with how often and when they were changed; version 0: never.
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

    /// The same with what is given changed.
    fn with(&self, change: &Map<String, Value>) -> Result<Self, String> {
        let mut value = serde_json::to_value(self).map_err(|error| error.to_string())?;
        for (field, given) in change {
            match (field.as_str(), given) {
                ("thresholds", Value::Object(thresholds)) => {
                    for (field, given) in thresholds {
                        value["thresholds"][field] = given.clone();
                    }
                }
                _ => value[field] = given.clone(),
            }
        }
        let settings: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }
}

fn key() -> RecordKey {
    RecordKey::new(HOME_TENANT, KIND, ID)
}

/// The settings as they are kept, or what an operator began with.
pub(crate) async fn load(
    engine: &Engine,
    usual: &BatchSettings,
) -> Result<VersionedBatchSettings, nuncio_engine::Error> {
    let record = engine.store().knowledge().record(&key(), engine.clock().now()).await?;
    Ok(match record {
        None => {
            VersionedBatchSettings { settings: usual.clone(), version: 0, changed_at: Timestamp::default() }
        }
        Some(record) => VersionedBatchSettings {
            settings: serde_json::from_slice(&record.body).map_err(|error| {
                nuncio_engine::Error::Internal(format!("the batch settings cannot be read back: {error}"))
            })?,
            version: record.version,
            changed_at: record.updated_at,
        },
    })
}

/// Changes what is given and leaves the rest.
pub(crate) async fn change(
    engine: &Engine,
    usual: &BatchSettings,
    change: &Map<String, Value>,
) -> Result<VersionedBatchSettings, HandlerError> {
    for _ in 0..TRIES {
        let known = load(engine, usual).await?;
        let settings = known.settings.with(change).map_err(HandlerError::Invalid)?;
        if settings == known.settings {
            return Ok(known);
        }
        let now = engine.clock().now();
        let write = RecordWrite {
            key: key(),
            body: Some(serde_json::to_vec(&settings).unwrap_or_default().into()),
            expected: if known.version == 0 {
                ExpectedVersion::Absent
            } else {
                ExpectedVersion::Version(known.version)
            },
            expires_at: None,
            now,
        };
        match engine.store().knowledge().write_records(vec![write]).await {
            Ok(versions) => {
                let version = versions.first().copied().unwrap_or_default();
                return Ok(VersionedBatchSettings { settings, version, changed_at: now });
            }
            Err(RecordError::Moved { .. }) => {}
            Err(RecordError::Store(error)) => return Err(nuncio_engine::Error::from(error).into()),
        }
    }
    Err(HandlerError::Failed("the settings are being changed by others all the time: try again".into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_checked_and_leaves_the_rest() {
        let with = |change: Value| {
            BatchSettings::default().with(change.as_object().unwrap_or_else(|| panic!("an object")))
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
