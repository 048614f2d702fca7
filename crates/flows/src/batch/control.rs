//! One record for every batch that has not ended: what the queue shows of it, and whether it is paused.
//!
//! It is made when the batch is taken, and deleted in the same write that adds the batch to its tenant's totals;
//! so a batch is counted once, however often its last step is begun. A batch that ended without its last step
//! (it was canceled before it could) leaves a record behind, which whoever lists the batches takes away.

use std::collections::BTreeMap;

use nuncio_engine::{
    Engine, Error, TaskId,
    clock::Timestamp,
    knowledge::{ExpectedVersion, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::TaskKey,
};
use serde::{Deserialize, Serialize};

use super::{
    input::{BatchInput, BatchOperation, Strategy},
    metrics,
    scheduler::Priority,
    settings, speedup,
};

const KIND: &str = "batch.control";
/// How often a change is tried against others.
const TRIES: usize = 64;

/// What is kept of a batch beside its task, until it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Control {
    pub(crate) owner: String,
    pub(crate) kind: String,
    pub(crate) strategy: Strategy,
    pub(crate) priority: Priority,
    pub(crate) taken_at: Timestamp,
    /// When its first operation began.
    pub(crate) began_at: Option<Timestamp>,
    pub(crate) paused: bool,
    /// How many operations of each type it has; empty until that is known.
    pub(crate) types: BTreeMap<String, u64>,
    /// Operations of this batch that may run at once, where that is less than the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own_cap: Option<usize>,
    /// Why it does not begin yet: the machine is busier than a threshold says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<String>,
}

impl Control {
    /// The record of a batch that is taken now.
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

fn key(tenant: &str, id: TaskId) -> RecordKey {
    RecordKey::new(tenant, KIND, id.to_string())
}

fn write(
    key: RecordKey,
    control: Option<&Control>,
    expected: ExpectedVersion,
    now: Timestamp,
) -> RecordWrite {
    let body = control.map(|control| serde_json::to_vec(control).unwrap_or_default().into());
    RecordWrite { key, body, expected, expires_at: None, now }
}

fn decode(body: &[u8]) -> Result<Control, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::Internal(format!("a batch's record cannot be read back: {error}")))
}

/// Makes the record; one that is there already is this batch's own, made before it was cut.
pub(crate) async fn make(engine: &Engine, tenant: &str, id: TaskId, control: &Control) -> Result<(), Error> {
    let write = write(key(tenant, id), Some(control), ExpectedVersion::Absent, engine.clock().now());
    match engine.store().knowledge().write_records(vec![write]).await {
        Ok(_) | Err(RecordError::Moved { .. }) => Ok(()),
        Err(RecordError::Store(error)) => Err(error.into()),
    }
}

/// The record of a batch that has not ended, and its version.
pub(crate) async fn read(engine: &Engine, tenant: &str, id: TaskId) -> Result<Option<(Control, u64)>, Error> {
    let record = engine.store().knowledge().record(&key(tenant, id), engine.clock().now()).await?;
    record.map(|record| Ok((decode(&record.body)?, record.version))).transpose()
}

/// Changes the record; what it is afterwards, or `None` where the batch has ended.
pub(crate) async fn change(
    engine: &Engine,
    tenant: &str,
    id: TaskId,
    change: impl Fn(&mut Control),
) -> Result<Option<Control>, Error> {
    for _ in 0..TRIES {
        let Some((control, version)) = read(engine, tenant, id).await? else { return Ok(None) };
        let mut changed = control.clone();
        change(&mut changed);
        if changed == control {
            return Ok(Some(control));
        }
        let write =
            write(key(tenant, id), Some(&changed), ExpectedVersion::Version(version), engine.clock().now());
        match engine.store().knowledge().write_records(vec![write]).await {
            Ok(_) => return Ok(Some(changed)),
            Err(RecordError::Moved { .. }) => {}
            Err(RecordError::Store(error)) => return Err(error.into()),
        }
    }
    Err(busy())
}

/// Takes the record away and adds the batch to its tenant's totals, both or neither.
pub(crate) async fn close_record(
    engine: &Engine,
    tenant: &str,
    id: TaskId,
    batch: &metrics::BatchMeasurement,
) -> Result<(), Error> {
    for _ in 0..TRIES {
        // Gone: an earlier attempt at this came through.
        let Some((_, version)) = read(engine, tenant, id).await? else { return Ok(()) };
        let now = engine.clock().now();
        let done = write(key(tenant, id), None, ExpectedVersion::Version(version), now);
        let mut writes = vec![done, metrics::added(engine, tenant, batch).await?];
        if !batch.calibrations.is_empty() {
            writes.push(speedup::added(engine, tenant, &batch.calibrations).await?);
        }
        match engine.store().knowledge().write_records(writes).await {
            Ok(_) => return Ok(()),
            Err(RecordError::Moved { .. }) => {}
            Err(RecordError::Store(error)) => return Err(error.into()),
        }
    }
    Err(busy())
}

/// Takes the record away: the batch ended and is not measured.
pub(crate) async fn remove(engine: &Engine, tenant: &str, id: TaskId) {
    let write = write(key(tenant, id), None, ExpectedVersion::Any, engine.clock().now());
    if let Err(error) = engine.store().knowledge().write_records(vec![write]).await {
        tracing::warn!(%error, batch = %id, "the record of a batch that ended is left behind");
    }
}

/// The batches that have not ended, oldest first; of a tenant, or all.
pub(crate) async fn list(engine: &Engine, tenant: Option<&str>) -> Result<Vec<(TaskId, Control)>, Error> {
    let query = RecordQuery {
        tenant: tenant.map(str::to_owned),
        kind: KIND.into(),
        prefix: String::new(),
        after: String::new(),
        limit: settings::MAX_QUEUE as usize + 1,
        now: engine.clock().now(),
    };
    let mut batches = vec![];
    for record in engine.store().knowledge().records(&query).await? {
        let id = record.id.rsplit('\n').next().and_then(TaskId::parse);
        let Some(id) = id else { continue };
        let control = decode(&record.body)?;
        match engine.store().row(&TaskKey::Id(id)).await? {
            Some(row) if !row.state.is_terminal() => batches.push((id, control)),
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
