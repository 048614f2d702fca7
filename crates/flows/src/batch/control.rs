//! The control record of a batch that has not ended: its queue entry, and whether it is paused.
//!
//! The record is created when the batch is admitted, and deleted in the same write that adds the batch to its
//! tenant's totals. A batch is therefore counted once, however often its last step is restarted. A batch that
//! ended without its last step (it was canceled first) leaves a record behind; listing the batches removes it.

use std::collections::BTreeMap;

use nuncio_engine::{
    Engine, Error, TaskId,
    clock::Timestamp,
    knowledge::ExpectedVersion,
    records::{Records, VersionedRecord},
};
use serde::{Deserialize, Serialize};

use super::{
    input::{BatchInput, BatchOperation, Strategy},
    metrics,
    scheduler::Priority,
    settings, speedup,
};

const KIND: &str = "batch.control";
/// Maximum attempts to write a change that conflicts with concurrent changes.
const TRIES: usize = 64;

/// The state of a batch that is stored beside its task until the batch ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Control {
    pub(crate) owner: String,
    pub(crate) kind: String,
    pub(crate) strategy: Strategy,
    pub(crate) priority: Priority,
    pub(crate) taken_at: Timestamp,
    /// When the first operation began.
    pub(crate) began_at: Option<Timestamp>,
    pub(crate) paused: bool,
    /// The number of operations of each type; empty until it is known.
    pub(crate) types: BTreeMap<String, u64>,
    /// The batch's own concurrency cap, where it is below the global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own_cap: Option<usize>,
    /// Why the batch has not begun: which load threshold the machine exceeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<String>,
}

impl Control {
    /// The record of a batch that is being admitted.
    pub(crate) fn new(
        owner: &str,
        input: &BatchInput,
        operations: &[BatchOperation],
        now: Timestamp,
    ) -> Self {
        let mut types = BTreeMap::new();
        for operation in operations {
            *types.entry(operation.r#type.to_owned()).or_default() += 1;
        }
        Self {
            owner: owner.into(),
            kind: input.kind().into(),
            strategy: input.strategy,
            priority: input.priority,
            taken_at: now,
            began_at: None,
            paused: false,
            types,
            own_cap: input.max_concurrency,
            waiting: None,
        }
    }
}

fn records(engine: &Engine) -> Records<Control> {
    engine.records(KIND)
}

/// Creates the record. An existing one belongs to the same batch, written before it was interrupted.
pub(crate) async fn make(engine: &Engine, tenant: &str, id: TaskId, control: &Control) -> Result<(), Error> {
    let records = records(engine);
    let write = records.put(tenant, &id.to_string(), control, ExpectedVersion::Absent)?;
    records.write(vec![write]).await.map(drop)
}

/// The record of a batch that has not ended.
pub(crate) async fn read(
    engine: &Engine,
    tenant: &str,
    id: TaskId,
) -> Result<Option<VersionedRecord<Control>>, Error> {
    records(engine).get(tenant, &id.to_string()).await
}

/// Changes the record and returns the new one, or `None` if the batch has ended.
pub(crate) async fn change(
    engine: &Engine,
    tenant: &str,
    id: TaskId,
    change: impl Fn(&mut Control),
) -> Result<Option<Control>, Error> {
    let updated = records(engine)
        .update(tenant, &id.to_string(), TRIES, |found| {
            let Some(found) = found else { return Ok::<_, Error>(None) };
            let mut changed = found.value.clone();
            change(&mut changed);
            Ok((changed != found.value).then_some(changed))
        })
        .await?;
    Ok(updated.map(|record| record.value))
}

/// Deletes the record and adds the batch to its tenant's totals, atomically.
pub(crate) async fn close_record(
    engine: &Engine,
    tenant: &str,
    id: TaskId,
    batch: &metrics::BatchMeasurement,
) -> Result<(), Error> {
    for _ in 0..TRIES {
        // The record is absent because an earlier attempt succeeded.
        let Some(found) = read(engine, tenant, id).await? else { return Ok(()) };
        let expected = ExpectedVersion::Version(found.version);
        let done = records(engine).delete(tenant, &id.to_string(), expected);
        let mut writes = vec![done, metrics::added(engine, tenant, batch).await?];
        if !batch.calibrations.is_empty() {
            writes.push(speedup::added(engine, tenant, &batch.calibrations).await?);
        }
        if engine.write_records(writes).await?.is_some() {
            return Ok(());
        }
    }
    Err(busy())
}

/// Deletes the record of a batch that ended and is not measured.
pub(crate) async fn remove(engine: &Engine, tenant: &str, id: TaskId) {
    let records = records(engine);
    let deletion = records.delete(tenant, &id.to_string(), ExpectedVersion::Any);
    if let Err(error) = records.write(vec![deletion]).await {
        tracing::warn!(%error, batch = %id, "the record of a batch that has ended could not be deleted");
    }
}

/// The batches that have not ended, oldest first; of one tenant, or of all.
pub(crate) async fn list(engine: &Engine, tenant: Option<&str>) -> Result<Vec<(TaskId, Control)>, Error> {
    let mut batches = vec![];
    for record in records(engine).page(tenant, "", "", settings::MAX_QUEUE as usize + 1).await? {
        let id = record.id.rsplit('\n').next().and_then(TaskId::parse);
        let Some(id) = id else { continue };
        let control = record.value;
        match engine.state_of(id).await? {
            Some(state) if !state.is_terminal() => batches.push((id, control)),
            _ => remove(engine, nuncio_engine::access::tenant_of(&control.owner), id).await,
        }
    }
    batches.sort_by_key(|(id, _)| *id);
    Ok(batches)
}

fn busy() -> Error {
    Error::Busy {
        why: "the record of the batch is being changed by others".into(),
        retry_after: std::time::Duration::from_secs(1),
    }
}
