//! The resources `batchtools://…`: metrics, queue and settings of the batch engine.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Caller, Engine, Surface,
    access::{AccessKind, Action},
    access_control::AccessRequest,
    clock::Timestamp,
    surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, output_schema,
    },
};
use serde_json::Value;

use super::{
    BatchCore, METRICS_URI, NAME, QUEUE_URI, SETTINGS_URI,
    api::{BatchSettings, PerformanceAnswer, QueueAnswer, QueueStatus, QueuedBatch, ThroughputAnswer},
    control, metrics, speedup,
};
use crate::resource::{CachePolicy, ResourceDetails, content, iso, plain_value, profile};

/// The name of the schema of `batchtools://metrics/performance`.
const PERFORMANCE: &str = "batchtools-performance";
/// The name of the schema of `batchtools://queue/status`.
const QUEUE: &str = "batchtools-queue";
/// The name of the schema of `batchtools://config/settings`.
const SETTINGS: &str = "batchtools-settings";

/// One of the three resources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchResourceKind {
    Performance,
    Queue,
    Settings,
}

struct BatchResource {
    shown: BatchResourceKind,
    core: Arc<BatchCore>,
    engine: Engine,
}

/// Registers the resources and their schemas on a surface.
pub(crate) fn install(core: &Arc<BatchCore>, engine: &Engine, surface: &Surface) {
    let mut performance = output_schema::<PerformanceAnswer>();
    performance["description"] = "What the batches of the tenant came to. Null: not measured.".into();
    surface.add_schema(PERFORMANCE, performance);
    surface.add_schema(QUEUE, output_schema::<QueueAnswer>());
    surface.add_schema(SETTINGS, output_schema::<BatchSettings>());
    for shown in [BatchResourceKind::Performance, BatchResourceKind::Queue, BatchResourceKind::Settings] {
        surface.add_resource(BatchResource { shown, core: Arc::clone(core), engine: engine.clone() });
    }
}

impl BatchResourceKind {
    fn uri(self) -> &'static str {
        match self {
            Self::Performance => METRICS_URI,
            Self::Queue => QUEUE_URI,
            Self::Settings => SETTINGS_URI,
        }
    }

    fn schema(self) -> &'static str {
        match self {
            Self::Performance => PERFORMANCE,
            Self::Queue => QUEUE,
            Self::Settings => SETTINGS,
        }
    }

    fn policy(self) -> CachePolicy {
        match self {
            Self::Queue => CachePolicy::Realtime,
            Self::Performance | Self::Settings => CachePolicy::Dynamic,
        }
    }
}

#[async_trait]
impl Resource for BatchResource {
    fn profile(&self) -> ResourceProfile {
        let (name, description) = match self.shown {
            BatchResourceKind::Performance => (
                "batch_performance",
                "What the batches of your tenant came to: speed-up, success and memory saved, as measured.",
            ),
            BatchResourceKind::Queue => (
                "batch_queue",
                "How many batches of your tenant have not ended, which of them are yours, and what this node did in the last \
                 minute.",
            ),
            BatchResourceKind::Settings => {
                ("batch_settings", "How the batch engine works; batch_configure changes it.")
            }
        };
        profile(self.shown.uri(), name, description, self.shown.policy())
    }

    async fn read(
        &self,
        request: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        let (caller, uri) = (&request.caller, self.shown.uri());
        allow(&self.engine, caller, Action::Read, "batch.read", uri)?;
        self.core.load(&self.engine).await;
        let (value, modified) = match self.shown {
            BatchResourceKind::Performance => self.performance(caller).await?,
            BatchResourceKind::Queue => {
                (plain_value(&queue(&self.core, &self.engine, caller).await?), self.engine.clock().now())
            }
            BatchResourceKind::Settings => {
                let known = self.core.known().clone();
                (plain_value(&known.settings), known.changed_at)
            }
        };
        // A value that was never changed dates from the start of this server.
        let modified = modified.max(self.core.since.get().copied().unwrap_or_default());
        let about = ResourceDetails {
            kind: AccessKind::Batchtools,
            name: NAME,
            schema: self.shown.schema(),
            modified,
            policy: self.shown.policy(),
        };
        let surface = self.engine.catalog().surface();
        Ok(HandlerReply::Done(vec![content(surface, caller, uri, &about, &value)]))
    }
}

impl BatchResource {
    async fn performance(&self, caller: &Caller) -> Result<(Value, Timestamp), HandlerError> {
        let (totals, modified) = metrics::totals(&self.engine, caller.tenant()).await?;
        let calibrations = speedup::calibrations(&self.engine, caller.tenant()).await?;
        let enabled = self.core.settings().enabled;
        let modified = modified.max(self.core.known().changed_at);
        Ok((plain_value(&totals.answer(enabled, &calibrations, self.engine.clock().now())), modified))
    }
}

/// The content of `batchtools://queue/status`.
async fn queue(core: &BatchCore, engine: &Engine, caller: &Caller) -> Result<QueueAnswer, HandlerError> {
    let cap = core.settings().max_concurrency;
    let batches = control::list(engine, Some(caller.tenant())).await?;
    let active = batches.iter().filter(|(_, batch)| batch.began_at.is_some() && !batch.paused).count();
    // The batches of other owners are private, so only their counts are published.
    let own = batches.iter().filter(|(_, batch)| batch.owner == caller.owner());
    let operations = own
        .map(|(id, batch)| QueuedBatch {
            id: id.to_string(),
            kind: batch.kind.clone(),
            priority: batch.priority,
            estimated_duration: estimate(core, *id, batch, cap),
            start_time: batch.began_at.map(iso),
            status: match () {
                () if batch.paused => QueueStatus::Paused,
                () if batch.waiting.is_some() => QueueStatus::Waiting,
                () if batch.began_at.is_some() => QueueStatus::Running,
                () => QueueStatus::Queued,
            },
            waiting: batch.waiting.clone(),
        })
        .collect();
    let (operations_per_second, average_latency) =
        core.meter.throughput(caller.tenant(), engine.clock().now());
    Ok(QueueAnswer {
        queue_size: (batches.len() - active) as u64,
        active_batches: active as u64,
        max_concurrency: cap as u64,
        operations,
        throughput: ThroughputAnswer { operations_per_second, average_latency },
    })
}

/// The estimated duration of a batch, where its remaining operations are known here and their types were measured.
pub(crate) fn estimate(
    core: &BatchCore,
    id: nuncio_engine::TaskId,
    batch: &control::Control,
    cap: usize,
) -> Option<f64> {
    let cap = cap.min(batch.own_cap.unwrap_or(usize::MAX));
    if let Some(live) = core.live(id) {
        return core.meter.estimate(live.tally().remaining, cap);
    }
    // The batch runs on another node, so its remaining operations are not known here.
    if batch.began_at.is_some() || batch.types.is_empty() {
        return None;
    }
    core.meter.estimate(batch.types.iter().map(|(name, count)| (name.as_str(), *count)), cap)
}

/// Authorizes a caller's access to the batch engine.
pub(crate) fn allow(
    engine: &Engine,
    caller: &Caller,
    action: Action,
    operation: &'static str,
    uri: &str,
) -> Result<(), HandlerError> {
    let access =
        AccessRequest { action, kind: AccessKind::Batchtools, name: NAME, operation, resource: &uri };
    Ok(engine.allow(caller, &access)?)
}
