//! The resources `batchtools://…`: metrics, queue and settings of the batch engine.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Caller, Engine, Surface,
    access::{AccessKind, Action},
    access_control::AccessRequest,
    clock::Timestamp,
    surface::{HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile},
};
use serde_json::{Value, json};

use super::{BatchCore, METRICS_URI, NAME, QUEUE_URI, SETTINGS_URI, control, metrics, schemas, speedup};
use crate::resource::{CachePolicy, ResourceDetails, content, iso, profile};

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

/// Registers the resources on a surface.
pub(crate) fn install(core: &Arc<BatchCore>, engine: &Engine, surface: &Surface) {
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
            Self::Performance => schemas::PERFORMANCE,
            Self::Queue => schemas::QUEUE,
            Self::Settings => schemas::SETTINGS,
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
                (queue(&self.core, &self.engine, caller).await?, self.engine.clock().now())
            }
            BatchResourceKind::Settings => {
                let known = self.core.known().clone();
                let value = serde_json::to_value(&known.settings);
                (value.map_err(|error| HandlerError::Internal(error.to_string()))?, known.changed_at)
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
        Ok((totals.to_json(enabled, &calibrations, self.engine.clock().now()), modified))
    }
}

/// The JSON of `batchtools://queue/status`.
async fn queue(core: &BatchCore, engine: &Engine, caller: &Caller) -> Result<Value, HandlerError> {
    let cap = core.settings().max_concurrency;
    let batches = control::list(engine, Some(caller.tenant())).await?;
    let active = batches.iter().filter(|(_, batch)| batch.began_at.is_some() && !batch.paused).count();
    // The batches of other owners are private, so only their counts are published.
    let own = batches.iter().filter(|(_, batch)| batch.owner == caller.owner());
    let shown: Vec<Value> = own
        .map(|(id, batch)| {
            json!({
                "id": id.to_string(),
                "type": batch.kind,
                "priority": batch.priority.name(),
                "estimatedDuration": estimate(core, *id, batch, cap),
                "startTime": batch.began_at.map(iso),
                "status": match () {
                    () if batch.paused => "paused",
                    () if batch.waiting.is_some() => "waiting",
                    () if batch.began_at.is_some() => "running",
                    () => "queued",
                },
                "waiting": batch.waiting,
            })
        })
        .collect();
    let (per_second, latency) = core.meter.throughput(caller.tenant(), engine.clock().now());
    Ok(json!({
        "queueSize": batches.len() - active,
        "activeBatches": active,
        "maxConcurrency": cap,
        "operations": shown,
        "throughput": { "operationsPerSecond": per_second, "averageLatency": latency },
    }))
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
