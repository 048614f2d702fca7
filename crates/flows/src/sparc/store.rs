//! How a workflow is kept: the workflow, its artifacts and its history are records, written together or not at all.

use bytes::Bytes;
use nuncio_engine::{
    Engine,
    clock::Timestamp,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    error::SparcError,
    gate::EarlierArtifacts,
    phase::SparcPhase,
    resources::workflow_uri,
    workflow::{Workflow, WorkflowArtifact, WorkflowChange, WorkflowEntry},
};

const WORKFLOW: &str = "sparc.workflow";
const ARTIFACT: &str = "sparc.artifact";
const HISTORY: &str = "sparc.history";

/// The last entry that a history can have, as its records are named.
const LAST_ENTRY: u64 = 999_999;

/// A workflow as it is kept.
#[derive(Debug, Clone)]
pub struct StoredWorkflow {
    /// The workflow.
    pub workflow: Workflow,
    /// When it last changed.
    pub updated_at: Timestamp,
    pub(super) version: u64,
}

/// The records of workflows in an engine's store. Asks nobody for permission: that is `workflows.rs`.
#[derive(Clone)]
pub(super) struct WorkflowRecords {
    engine: Engine,
}

impl WorkflowRecords {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A workflow that has to be there.
    pub(super) async fn find_existing(
        &self,
        tenant: &str,
        context_id: &str,
    ) -> Result<StoredWorkflow, SparcError> {
        let found = self.find(tenant, context_id).await?;
        found.ok_or_else(|| SparcError::NoWorkflow(context_id.into()))
    }

    /// A workflow, if it is there.
    pub(super) async fn find(
        &self,
        tenant: &str,
        context_id: &str,
    ) -> Result<Option<StoredWorkflow>, SparcError> {
        let key = RecordKey::new(tenant, WORKFLOW, context_id);
        let record = self.engine.store().knowledge().record(&key, self.engine.clock().now()).await?;
        record.as_ref().map(stored).transpose()
    }

    /// Workflows whose names begin so and come after that one; fewer than `limit` where there are no more.
    pub(super) async fn page(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredWorkflow>, SparcError> {
        self.records(tenant, WORKFLOW, prefix.into(), after.into(), limit).await?.iter().map(stored).collect()
    }

    /// The entry of a history that has that number.
    pub(super) async fn entry(
        &self,
        tenant: &str,
        context_id: &str,
        n: u64,
    ) -> Result<Option<WorkflowEntry>, SparcError> {
        self.record(tenant, HISTORY, entry_id(context_id, n)).await
    }

    /// Entries of a history after the one of that number.
    pub(super) async fn history(
        &self,
        tenant: &str,
        context_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<WorkflowEntry>, SparcError> {
        let (prefix, after) = (format!("{context_id}\n"), entry_id(context_id, after.min(LAST_ENTRY)));
        self.records(tenant, HISTORY, prefix, after, limit).await?.iter().map(read).collect()
    }

    /// One artifact.
    pub(super) async fn artifact(
        &self,
        tenant: &str,
        context_id: &str,
        phase: SparcPhase,
        version: u32,
    ) -> Result<Option<WorkflowArtifact>, SparcError> {
        self.record(tenant, ARTIFACT, artifact_id(context_id, phase, version)).await
    }

    /// The artifacts of the phases that have passed.
    pub(super) async fn earlier(
        &self,
        tenant: &str,
        workflow: &Workflow,
    ) -> Result<EarlierArtifacts, SparcError> {
        let mut earlier = EarlierArtifacts::new();
        for phase in workflow.current.earlier() {
            let Some(version) = workflow.phase(*phase).passed_version else { continue };
            if let Some(artifact) = self.artifact(tenant, &workflow.context_id, *phase, version).await? {
                earlier.insert(*phase, artifact.content);
            }
        }
        Ok(earlier)
    }

    /// Writes a change, all of it or nothing, and tells whoever follows the workflow. `None`: somebody else was
    /// faster.
    pub(super) async fn write(
        &self,
        tenant: &str,
        change: WorkflowChange,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<Option<StoredWorkflow>, SparcError> {
        let WorkflowChange { workflow, entry, artifact } = change;
        let context_id = &workflow.context_id;
        let write = |kind: &str, id: String, body: Bytes, expected| RecordWrite {
            key: RecordKey::new(tenant, kind, id),
            body: Some(body),
            expected,
            expires_at: None,
            now,
        };
        let mut writes = vec![
            write(WORKFLOW, context_id.clone(), body(&workflow)?, expected),
            write(HISTORY, entry_id(context_id, entry.n), body(&entry)?, ExpectedVersion::Absent),
        ];
        if let Some(artifact) = &artifact {
            let id = artifact_id(context_id, artifact.note.phase, artifact.note.version);
            writes.push(write(ARTIFACT, id, body(artifact)?, ExpectedVersion::Absent));
        }
        let versions = match self.engine.store().knowledge().write_records(writes).await {
            Ok(versions) => versions,
            Err(RecordError::Moved { .. }) => return Ok(None),
            Err(RecordError::Store(error)) => return Err(error.into()),
        };
        self.engine.notify_changed(tenant, &workflow_uri(context_id));
        let version = versions.first().copied().unwrap_or(0);
        Ok(Some(StoredWorkflow { workflow, updated_at: now, version }))
    }

    async fn record<T: DeserializeOwned>(
        &self,
        tenant: &str,
        kind: &str,
        id: String,
    ) -> Result<Option<T>, SparcError> {
        let key = RecordKey::new(tenant, kind, id);
        let record = self.engine.store().knowledge().record(&key, self.engine.clock().now()).await?;
        record.as_ref().map(read).transpose()
    }

    async fn records(
        &self,
        tenant: &str,
        kind: &str,
        prefix: String,
        after: String,
        limit: usize,
    ) -> Result<Vec<Record>, SparcError> {
        let (tenant, kind, now) = (Some(tenant.into()), kind.into(), self.engine.clock().now());
        let query = RecordQuery { tenant, kind, prefix, after, limit, now };
        Ok(self.engine.store().knowledge().records(&query).await?)
    }
}

fn entry_id(context_id: &str, n: u64) -> String {
    format!("{context_id}\n{n:06}")
}

fn artifact_id(context_id: &str, phase: SparcPhase, version: u32) -> String {
    format!("{context_id}\n{phase}\n{version:06}")
}

fn stored(record: &Record) -> Result<StoredWorkflow, SparcError> {
    Ok(StoredWorkflow { workflow: read(record)?, updated_at: record.updated_at, version: record.version })
}

fn read<T: DeserializeOwned>(record: &Record) -> Result<T, SparcError> {
    serde_json::from_slice(&record.body)
        .map_err(|error| SparcError::Internal(format!("the record {:?} cannot be read: {error}", record.id)))
}

fn body(value: &impl Serialize) -> Result<Bytes, SparcError> {
    let bytes = serde_json::to_vec(value).map_err(|error| SparcError::Internal(error.to_string()))?;
    Ok(bytes.into())
}
