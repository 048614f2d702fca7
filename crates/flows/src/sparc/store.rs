//! The storage of workflows: a workflow, its artifacts and its history are records that are written atomically.

use nuncio_engine::{
    Engine,
    clock::Timestamp,
    knowledge::ExpectedVersion,
    records::{Records, VersionedRecord},
};

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

/// The highest number of a history entry that a record name can hold.
const LAST_ENTRY: u64 = 999_999;

/// A workflow as stored.
#[derive(Debug, Clone)]
pub struct StoredWorkflow {
    /// The state of the workflow.
    pub workflow: Workflow,
    /// When it last changed.
    pub updated_at: Timestamp,
    pub(super) version: u64,
}

/// The records of workflows in an engine's store. It does not authorize: `workflows.rs` does.
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

    /// A workflow; an error if it does not exist.
    pub(super) async fn find_existing(
        &self,
        tenant: &str,
        context_id: &str,
    ) -> Result<StoredWorkflow, SparcError> {
        let found = self.find(tenant, context_id).await?;
        found.ok_or_else(|| SparcError::NoWorkflow(context_id.into()))
    }

    /// A workflow, if it exists.
    pub(super) async fn find(
        &self,
        tenant: &str,
        context_id: &str,
    ) -> Result<Option<StoredWorkflow>, SparcError> {
        Ok(self.workflows().get(tenant, context_id).await?.map(StoredWorkflow::from))
    }

    /// A page of workflows by name prefix, after the given name; fewer than `limit` if there are no more.
    pub(super) async fn page(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredWorkflow>, SparcError> {
        let workflows = self.workflows().page(Some(tenant), prefix, after, limit).await?;
        Ok(workflows.into_iter().map(StoredWorkflow::from).collect())
    }

    /// The history entry with that number.
    pub(super) async fn entry(
        &self,
        tenant: &str,
        context_id: &str,
        n: u64,
    ) -> Result<Option<WorkflowEntry>, SparcError> {
        Ok(self.entries().get(tenant, &entry_id(context_id, n)).await?.map(|record| record.value))
    }

    /// History entries after that number.
    pub(super) async fn history(
        &self,
        tenant: &str,
        context_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<WorkflowEntry>, SparcError> {
        let (prefix, after) = (format!("{context_id}\n"), entry_id(context_id, after.min(LAST_ENTRY)));
        let entries = self.entries().page(Some(tenant), &prefix, &after, limit).await?;
        Ok(entries.into_iter().map(|record| record.value).collect())
    }

    /// One artifact of a workflow.
    pub(super) async fn artifact(
        &self,
        tenant: &str,
        context_id: &str,
        phase: SparcPhase,
        version: u32,
    ) -> Result<Option<WorkflowArtifact>, SparcError> {
        let record = self.artifacts().get(tenant, &artifact_id(context_id, phase, version)).await?;
        Ok(record.map(|record| record.value))
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

    /// Writes a change atomically, and notifies the workflow's subscribers. `None`: a concurrent change came first.
    pub(super) async fn write(
        &self,
        tenant: &str,
        change: WorkflowChange,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<Option<StoredWorkflow>, SparcError> {
        let WorkflowChange { workflow, entry, artifact } = change;
        let context_id = &workflow.context_id;
        let mut writes = vec![
            self.workflows().put(tenant, context_id, &workflow, expected)?,
            self.entries().put(tenant, &entry_id(context_id, entry.n), &entry, ExpectedVersion::Absent)?,
        ];
        if let Some(artifact) = &artifact {
            let id = artifact_id(context_id, artifact.note.phase, artifact.note.version);
            writes.push(self.artifacts().put(tenant, &id, artifact, ExpectedVersion::Absent)?);
        }
        writes.iter_mut().for_each(|write| write.now = now);
        let Some(versions) = self.engine.write_records(writes).await? else { return Ok(None) };
        self.engine.notify_changed(tenant, &workflow_uri(context_id));
        let version = versions.first().copied().unwrap_or(0);
        Ok(Some(StoredWorkflow { workflow, updated_at: now, version }))
    }

    fn workflows(&self) -> Records<Workflow> {
        self.engine.records(WORKFLOW)
    }

    fn entries(&self) -> Records<WorkflowEntry> {
        self.engine.records(HISTORY)
    }

    fn artifacts(&self) -> Records<WorkflowArtifact> {
        self.engine.records(ARTIFACT)
    }
}

impl From<VersionedRecord<Workflow>> for StoredWorkflow {
    fn from(record: VersionedRecord<Workflow>) -> Self {
        Self { workflow: record.value, updated_at: record.updated_at, version: record.version }
    }
}

fn entry_id(context_id: &str, n: u64) -> String {
    format!("{context_id}\n{n:06}")
}

fn artifact_id(context_id: &str, phase: SparcPhase, version: u32) -> String {
    format!("{context_id}\n{phase}\n{version:06}")
}
