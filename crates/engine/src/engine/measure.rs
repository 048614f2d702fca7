//! The measurement of what tenants store: all tasks in small steps, then memory and records, on a slow cycle.
//!
//! A pause many times as long follows each step, so that measuring takes a small share of the store's time
//! however much is stored. Every node measures on its own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Engine, EngineCore, wait_until_closing};
use crate::{
    access::tenant_of,
    error::Error,
    store::TaskNo,
    usage::{Measurement, MeteredResource},
};

/// Tasks measured in one step.
const TASKS: usize = 256;
/// The ratio of the pause after a step to the step.
const PAUSE: u32 = 19;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Measures something that tenants store and that another module owns.
#[async_trait]
pub trait StorageMeter: Send + Sync {
    /// The resource that it measures.
    fn resource(&self) -> MeteredResource;

    /// The stored amount of each tenant.
    async fn measure(&self) -> Result<Vec<(String, u64)>, Error>;
}

impl Engine {
    /// Registers a meter, and starts a new measurement.
    pub fn add_meter(&self, meter: Arc<dyn StorageMeter>) {
        self.0.meters.lock().push(meter);
        self.0.measure.notify_one();
    }
}

/// Measures at the start and then at an interval, until the engine stops.
pub(super) async fn measure_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        let measured = tokio::select! {
            measured = engine.measure_stored() => measured,
            () = wait_until_closing(&mut closing) => return,
        };
        if let Err(error) = measured {
            tracing::warn!(%error, "could not measure what tenants store; retrying at the next interval");
        }
        tokio::select! {
            () = engine.measure.notified() => {}
            () = tokio::time::sleep(engine.options.measure_interval) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

impl EngineCore {
    /// Measures what tenants store, and updates the usage ledger.
    async fn measure_stored(&self) -> Result<(), Error> {
        self.usage.begin_measurement();
        let (mut measured, tenants) = (Measurement::default(), self.store.tenants());
        let mut after = Some(TaskNo(0));
        while let Some(from) = after {
            let began = Instant::now();
            let page = tenants.measure_tasks(from, TASKS).await?;
            for owner in &page.owners {
                let tenant = tenant_of(&owner.owner);
                measured.add(tenant, MeteredResource::StoredBytes, owner.bytes);
                measured.add(tenant, MeteredResource::Webhooks, owner.webhooks);
            }
            after = page.next;
            if after.is_some() {
                tokio::time::sleep((began.elapsed() * PAUSE).min(LONGEST_PAUSE)).await;
            }
        }
        for (tenant, bytes) in tenants.measure_knowledge().await? {
            // Records of the server itself have a tenant name with a slash, and count for no tenant.
            if !tenant.contains('/') {
                measured.add(&tenant, MeteredResource::StoredBytes, bytes);
            }
        }
        let meters = self.meters.lock().clone();
        for meter in meters {
            for (tenant, amount) in meter.measure().await? {
                measured.add(&tenant, meter.resource(), amount);
            }
        }
        self.usage.end_measurement(measured, self.clock.now());
        Ok(())
    }
}
