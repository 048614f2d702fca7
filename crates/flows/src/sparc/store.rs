//! Workflows in the store: who may touch them, reading them, and changing them one atomic write at a time.
//!
//! A workflow, its artifacts and its history are records. A change is decided on what was read and written under
//! its version; where somebody else was faster it is decided again. A change with a key is made once, however often
//! it is tried: an agent's step that is begun again after a crash finds what it did.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_engine::{
    Access, Action, Caller, Engine, Kind,
    clock::Timestamp,
    knowledge::{Expect, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    SparcOptions,
    command::{CommandReport, TestCommand},
    error::SparcError,
    gate::{self, Earlier, Verdict, Violation},
    phase::Phase,
    workflow::{Artifact, By, Change, Command, Entry, Workflow},
};

/// Bytes of a context's name.
pub const MAX_CONTEXT_ID: usize = 256;
/// Entries of a page.
pub const MAX_PAGE: usize = 200;
/// How often a change is decided again because somebody else was faster.
const DECIDE_AGAIN: usize = 32;
/// Workflows that one page of a list looks at, seen or not.
const MAX_LOOKED_AT: usize = 2000;

const WORKFLOW: &str = "sparc.workflow";
const ARTIFACT: &str = "sparc.artifact";
const HISTORY: &str = "sparc.history";

/// Who does something: a caller, by itself or through an agent.
#[derive(Debug, Clone)]
pub struct Who {
    /// The caller.
    pub caller: Caller,
    /// The agent and its task.
    pub agent: Option<(String, String)>,
}

impl Who {
    /// A caller by itself.
    pub fn caller(caller: &Caller) -> Self {
        Self { caller: caller.clone(), agent: None }
    }

    fn by(&self) -> By {
        let (agent, task) = self.agent.clone().unzip();
        By { caller: self.caller.owner().into(), agent, task }
    }
}

/// A workflow as it is kept.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The workflow.
    pub workflow: Workflow,
    /// When it last changed.
    pub updated_at: Timestamp,
    version: u64,
}

/// What came of an artifact.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submitted {
    /// The phase that it was for.
    pub phase: Phase,
    /// Which version it is.
    pub version: u32,
    /// What the gate said.
    pub verdict: Verdict,
    /// The phase that is worked on now.
    pub current: Phase,
    /// Whether all phases have passed.
    pub done: bool,
}

/// The workflows in an engine's store.
#[derive(Clone)]
pub struct Workflows {
    engine: Engine,
    options: Arc<SparcOptions>,
}

impl Workflows {
    /// Those of that engine.
    pub fn new(engine: Engine, options: Arc<SparcOptions>) -> Self {
        Self { engine, options }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A name for a workflow that has none.
    pub fn new_context(&self) -> String {
        format!("ctx-{}", self.engine.clock().new_id())
    }

    /// Starts a workflow; one without a name gets one.
    pub async fn start(
        &self,
        who: &Who,
        context_id: Option<&str>,
        goal: &str,
        batchtools_enabled: bool,
        key: Option<&str>,
    ) -> Result<Stored, SparcError> {
        let context_id = match context_id {
            Some(given) => given.to_owned(),
            None => self.new_context(),
        };
        self.allow(&who.caller, Action::Write, "sparc.start", &context_id)?;
        let (max, size) = (self.options.max_goal, goal.len());
        if goal.trim().is_empty() || size > max {
            return Err(SparcError::Invalid(format!("goal: 1 to {max} bytes (max_goal), not {size}")));
        }
        let now = self.engine.clock().now();
        let change = Workflow::start(&context_id, goal, batchtools_enabled, who.by(), key, now);
        let tenant = who.caller.tenant();
        match self.write(tenant, change, Expect::Absent, now).await? {
            Some(stored) => Ok(stored),
            None => {
                let stored = self.find(tenant, &context_id).await?;
                let ours = |stored: &Stored| key.is_some_and(|key| stored.workflow.made_by(key).is_some());
                stored.filter(ours).ok_or(SparcError::Exists(context_id))
            }
        }
    }

    /// A workflow, if there is one.
    pub async fn get(&self, caller: &Caller, context_id: &str) -> Result<Stored, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", context_id)?;
        let found = self.find(caller.tenant(), context_id).await?;
        found.ok_or_else(|| SparcError::NoWorkflow(context_id.into()))
    }

    /// What is wrong with an artifact for the current phase, as far as that can be seen without running anything;
    /// and which phase that is. Changes nothing.
    pub async fn inspect(
        &self,
        caller: &Caller,
        context_id: &str,
        phase: Option<Phase>,
        artifact: &Value,
    ) -> Result<(Phase, Vec<Violation>), SparcError> {
        self.allow(caller, Action::Write, "sparc.submit", context_id)?;
        self.check_size(artifact)?;
        let stored = self.known(caller.tenant(), context_id).await?;
        let phase = phase.unwrap_or(stored.workflow.current);
        stored.workflow.check_current(phase)?;
        let earlier = self.earlier(caller.tenant(), &stored.workflow).await?;
        Ok((phase, gate::inspect(phase, artifact, &earlier)))
    }

    /// Runs the test command of refinement's gate.
    pub async fn test(&self, caller: &Caller, context_id: &str) -> Result<CommandReport, SparcError> {
        self.allow(caller, Action::Execute, "sparc.test", context_id)?;
        Ok(match TestCommand::configured(&self.options) {
            Some(command) => command.run(context_id, self.engine.redactor()).await,
            None => CommandReport::unconfigured(),
        })
    }

    /// Submits an artifact; the gate decides. Refinement's takes the report of its tests: without one it fails.
    pub async fn submit(
        &self,
        who: &Who,
        context_id: &str,
        phase: Option<Phase>,
        artifact: &Value,
        tests: Option<CommandReport>,
        key: Option<&str>,
    ) -> Result<Submitted, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.submit", context_id)?;
        let size = self.check_size(artifact)?;
        let tenant = who.caller.tenant();
        for _ in 0..DECIDE_AGAIN {
            let stored = self.known(tenant, context_id).await?;
            if let Some(n) = key.and_then(|key| stored.workflow.made_by(key)) {
                return self.submitted_before(tenant, &stored.workflow, n).await;
            }
            let phase = phase.unwrap_or(stored.workflow.current);
            stored.workflow.check_current(phase)?;
            let earlier = self.earlier(tenant, &stored.workflow).await?;
            let violations = gate::inspect(phase, artifact, &earlier);
            // What is wrong anyway needs no tests; what is right passes only with them.
            let tests = match (phase, violations.is_empty()) {
                (Phase::Refinement, true) => tests.clone().or_else(|| Some(CommandReport::unconfigured())),
                _ => None,
            };
            let now = self.engine.clock().now();
            let verdict = Verdict::new(violations, tests, now);
            let command =
                Command::Submit { phase, artifact: artifact.clone(), size, verdict: verdict.clone() };
            let change = stored.workflow.decide(command, who.by(), key, now, self.options.max_history)?;
            let version = change.artifact.as_ref().map_or(0, |artifact| artifact.note.version);
            if let Some(stored) = self.write(tenant, change, Expect::Version(stored.version), now).await? {
                let (current, done) = (stored.workflow.current, stored.workflow.is_done());
                return Ok(Submitted { phase, version, verdict, current, done });
            }
        }
        Err(SparcError::MovedTooOften)
    }

    /// Goes back to an earlier phase.
    pub async fn back(
        &self,
        who: &Who,
        context_id: &str,
        to: Phase,
        reason: &str,
        key: Option<&str>,
    ) -> Result<Stored, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.back", context_id)?;
        self.check_reason(reason)?;
        let command = Command::Back { to, reason: reason.into() };
        self.command(who, context_id, &command, key).await
    }

    /// Notes that whoever worked on a phase has given up on it.
    pub async fn block(
        &self,
        who: &Who,
        context_id: &str,
        phase: Phase,
        reason: &str,
        key: Option<&str>,
    ) -> Result<Stored, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.block", context_id)?;
        self.check_reason(reason)?;
        let command = Command::Block { phase, reason: reason.into() };
        self.command(who, context_id, &command, key).await
    }

    /// One artifact of a workflow.
    pub async fn artifact(
        &self,
        caller: &Caller,
        context_id: &str,
        phase: Phase,
        version: u32,
    ) -> Result<Artifact, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", context_id)?;
        self.known(caller.tenant(), context_id).await?;
        let found = self.load_artifact(caller.tenant(), context_id, phase, version).await?;
        found.ok_or_else(|| SparcError::NoArtifact { context_id: context_id.into(), phase, version })
    }

    /// The artifacts of phases that have passed, for whoever works on the next one.
    pub async fn passed(&self, caller: &Caller, workflow: &Workflow) -> Result<Earlier, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", &workflow.context_id)?;
        self.earlier(caller.tenant(), workflow).await
    }

    /// A page of a workflow's history, oldest first, after that entry; with when the workflow last changed.
    pub async fn history(
        &self,
        caller: &Caller,
        context_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<(Stored, Vec<Entry>), SparcError> {
        self.allow(caller, Action::Read, "sparc.history", context_id)?;
        let stored = self.known(caller.tenant(), context_id).await?;
        let query = RecordQuery {
            tenant: Some(caller.tenant().into()),
            kind: HISTORY.into(),
            prefix: format!("{context_id}\n"),
            after: entry_id(context_id, after),
            limit: limit.clamp(1, MAX_PAGE),
            now: self.engine.clock().now(),
        };
        let records = self.engine.store().knowledge().records(&query).await?;
        Ok((stored, records.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// A page of the workflows that the caller may read, by name, and the name to go on after where there may be
    /// more.
    pub async fn list(
        &self,
        caller: &Caller,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Stored>, Option<String>), SparcError> {
        self.allow_any(caller, "sparc.list", "sparc://workflow/")?;
        let limit = limit.clamp(1, MAX_PAGE);
        let (mut seen, mut after, mut looked_at) = (vec![], after.to_owned(), 0);
        loop {
            let query = RecordQuery {
                tenant: Some(caller.tenant().into()),
                kind: WORKFLOW.into(),
                prefix: prefix.into(),
                after: after.clone(),
                limit: MAX_PAGE,
                now: self.engine.clock().now(),
            };
            let records = self.engine.store().knowledge().records(&query).await?;
            let last = records.len() < query.limit;
            for record in &records {
                if seen.len() == limit {
                    return Ok((seen, Some(after)));
                }
                looked_at += 1;
                after.clone_from(&record.id);
                if caller.may(Action::Read, Kind::Sparc, &record.id) {
                    seen.push(stored(record)?);
                }
            }
            if last || looked_at >= MAX_LOOKED_AT {
                return Ok((seen, (!last).then_some(after)));
            }
        }
    }

    /// Lets a caller have all of a workflow done.
    pub fn allow_run(&self, caller: &Caller, context_id: &str) -> Result<(), SparcError> {
        self.allow(caller, Action::Execute, "sparc.run", context_id)
    }

    /// Lets a caller through to something that belongs to no workflow, if there is anything here that it may read.
    pub fn allow_any(
        &self,
        caller: &Caller,
        operation: &'static str,
        resource: &str,
    ) -> Result<(), SparcError> {
        let (action, kind) = (Action::Read, Kind::Sparc);
        Ok(self
            .engine
            .allow_some(caller, &Access { action, kind, name: "", operation, resource: &resource })?)
    }

    fn allow(
        &self,
        caller: &Caller,
        action: Action,
        operation: &'static str,
        context_id: &str,
    ) -> Result<(), SparcError> {
        if context_id.is_empty()
            || context_id.len() > MAX_CONTEXT_ID
            || context_id.chars().any(char::is_control)
        {
            let why = format!("contextId: 1 to {MAX_CONTEXT_ID} bytes without control characters");
            return Err(SparcError::Invalid(why));
        }
        let resource = workflow_uri(context_id);
        let access = Access { action, kind: Kind::Sparc, name: context_id, operation, resource: &resource };
        Ok(self.engine.allow(caller, &access)?)
    }

    fn check_size(&self, artifact: &Value) -> Result<u64, SparcError> {
        let (size, max) = (artifact.to_string().len(), self.options.max_artifact);
        if size > max {
            let why = format!("artifact: it has {size} bytes, and may have {max} (max_artifact)");
            return Err(SparcError::Invalid(why));
        }
        Ok(size as u64)
    }

    fn check_reason(&self, reason: &str) -> Result<(), SparcError> {
        let (size, max) = (reason.len(), self.options.max_goal);
        if size > max {
            return Err(SparcError::Invalid(format!(
                "reason: it has {size} bytes, and may have {max} (max_goal)"
            )));
        }
        Ok(())
    }

    async fn command(
        &self,
        who: &Who,
        context_id: &str,
        command: &Command,
        key: Option<&str>,
    ) -> Result<Stored, SparcError> {
        let tenant = who.caller.tenant();
        for _ in 0..DECIDE_AGAIN {
            let stored = self.known(tenant, context_id).await?;
            if key.is_some_and(|key| stored.workflow.made_by(key).is_some()) {
                return Ok(stored);
            }
            let now = self.engine.clock().now();
            let max = self.options.max_history;
            let change = stored.workflow.decide(command.clone(), who.by(), key, now, max)?;
            if let Some(stored) = self.write(tenant, change, Expect::Version(stored.version), now).await? {
                return Ok(stored);
            }
        }
        Err(SparcError::MovedTooOften)
    }

    /// What an earlier try of the same submission came to.
    async fn submitted_before(
        &self,
        tenant: &str,
        workflow: &Workflow,
        n: u64,
    ) -> Result<Submitted, SparcError> {
        let broken = || SparcError::Internal(format!("entry {n} of {} is gone", workflow.context_id));
        let key = RecordKey::new(tenant, HISTORY, entry_id(&workflow.context_id, n));
        let now = self.engine.clock().now();
        let record = self.engine.store().knowledge().record(&key, now).await?.ok_or_else(broken)?;
        let entry: Entry = read(&record)?;
        let version = entry.version.ok_or_else(broken)?;
        let kept = self.load_artifact(tenant, &workflow.context_id, entry.phase, version).await?;
        let verdict = kept.ok_or_else(broken)?.gate;
        let (current, done) = (workflow.current, workflow.is_done());
        Ok(Submitted { phase: entry.phase, version, verdict, current, done })
    }

    async fn known(&self, tenant: &str, context_id: &str) -> Result<Stored, SparcError> {
        let found = self.find(tenant, context_id).await?;
        found.ok_or_else(|| SparcError::NoWorkflow(context_id.into()))
    }

    async fn find(&self, tenant: &str, context_id: &str) -> Result<Option<Stored>, SparcError> {
        let key = RecordKey::new(tenant, WORKFLOW, context_id);
        let record = self.engine.store().knowledge().record(&key, self.engine.clock().now()).await?;
        record.as_ref().map(stored).transpose()
    }

    async fn earlier(&self, tenant: &str, workflow: &Workflow) -> Result<Earlier, SparcError> {
        let mut earlier = Earlier::new();
        for phase in workflow.current.earlier() {
            let Some(version) = workflow.phase(*phase).passed_version else { continue };
            if let Some(artifact) = self.load_artifact(tenant, &workflow.context_id, *phase, version).await? {
                earlier.insert(*phase, artifact.content);
            }
        }
        Ok(earlier)
    }

    async fn load_artifact(
        &self,
        tenant: &str,
        context_id: &str,
        phase: Phase,
        version: u32,
    ) -> Result<Option<Artifact>, SparcError> {
        let key = RecordKey::new(tenant, ARTIFACT, artifact_id(context_id, phase, version));
        let record = self.engine.store().knowledge().record(&key, self.engine.clock().now()).await?;
        record.as_ref().map(read).transpose()
    }

    /// Writes a change, all of it or nothing, and tells whoever follows the workflow. `None`: somebody else was
    /// faster.
    async fn write(
        &self,
        tenant: &str,
        change: Change,
        expected: Expect,
        now: Timestamp,
    ) -> Result<Option<Stored>, SparcError> {
        let Change { workflow, entry, artifact } = change;
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
            write(HISTORY, entry_id(context_id, entry.n), body(&entry)?, Expect::Absent),
        ];
        if let Some(artifact) = &artifact {
            let id = artifact_id(context_id, artifact.note.phase, artifact.note.version);
            writes.push(write(ARTIFACT, id, body(artifact)?, Expect::Absent));
        }
        let versions = match self.engine.store().knowledge().write_records(writes).await {
            Ok(versions) => versions,
            Err(RecordError::Moved { .. }) => return Ok(None),
            Err(RecordError::Store(error)) => return Err(error.into()),
        };
        self.engine.changed(tenant, &workflow_uri(context_id));
        let version = versions.first().copied().unwrap_or(0);
        Ok(Some(Stored { workflow, updated_at: now, version }))
    }
}

/// The address of a workflow.
pub(super) fn workflow_uri(context_id: &str) -> String {
    super::resources::expand(super::resources::WORKFLOW, &[("contextId", context_id)])
}

/// The address of an artifact.
pub(super) fn artifact_uri(context_id: &str, phase: Phase, version: u32) -> String {
    let version = version.to_string();
    let values = [("contextId", context_id), ("phase", phase.name()), ("version", &version)];
    super::resources::expand(super::resources::ARTIFACT, &values)
}

fn entry_id(context_id: &str, n: u64) -> String {
    format!("{context_id}\n{n:06}")
}

fn artifact_id(context_id: &str, phase: Phase, version: u32) -> String {
    format!("{context_id}\n{phase}\n{version:06}")
}

fn stored(record: &Record) -> Result<Stored, SparcError> {
    Ok(Stored { workflow: read(record)?, updated_at: record.updated_at, version: record.version })
}

fn read<T: DeserializeOwned>(record: &Record) -> Result<T, SparcError> {
    serde_json::from_slice(&record.body)
        .map_err(|error| SparcError::Internal(format!("the record {:?} cannot be read: {error}", record.id)))
}

fn body(value: &impl Serialize) -> Result<Bytes, SparcError> {
    let bytes = serde_json::to_vec(value).map_err(|error| SparcError::Internal(error.to_string()))?;
    Ok(bytes.into())
}
