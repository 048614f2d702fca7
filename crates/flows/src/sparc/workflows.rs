//! The operations on workflows, shared by tools and agents: each is authorized, read, decided and written.
//!
//! A change is decided on the version that was read, and written only if that version is still current; after a
//! conflict it is decided again. A change with an idempotency key is made once, however often it is attempted:
//! an agent's step that restarts after a crash finds its earlier change.

use std::sync::Arc;

use nuncio_engine::{AccessKind, AccessRequest, Action, Caller, Engine, knowledge::ExpectedVersion};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    SparcShared,
    api::Violation,
    command::{CommandReport, TestCommand},
    error::SparcError,
    gate::{self, EarlierArtifacts, GateVerdict},
    phase::SparcPhase,
    resources::workflow_uri,
    store::{StoredWorkflow, WorkflowRecords},
    workflow::{RecordedActor, Workflow, WorkflowArtifact, WorkflowCommand, WorkflowEntry},
};

/// Maximum bytes of a context id.
pub const MAX_CONTEXT_ID: usize = 256;
/// Maximum entries of a page.
pub const MAX_PAGE: usize = 200;
/// Maximum attempts of a change that conflicts with concurrent changes.
const DECIDE_AGAIN: usize = 32;
/// Maximum workflows that one page of a list reads, whether the caller may see them or not.
const MAX_LOOKED_AT: usize = 2000;

/// The author of a change: a caller, directly or through an agent.
#[derive(Debug, Clone)]
pub struct WorkflowActor {
    /// The caller, whose permissions apply.
    pub caller: Caller,
    /// The names of the agent and of its task, if an agent acts for the caller.
    pub agent: Option<(String, String)>,
}

impl WorkflowActor {
    /// A caller that acts directly.
    pub fn caller(caller: &Caller) -> Self {
        Self { caller: caller.clone(), agent: None }
    }

    fn by(&self) -> RecordedActor {
        let (agent, task) = self.agent.clone().unzip();
        RecordedActor { caller: self.caller.owner().into(), agent, task }
    }
}

/// The result of a submission.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmissionResult {
    /// The phase of the artifact.
    pub phase: SparcPhase,
    /// The version that the artifact got.
    pub version: u32,
    /// The gate's verdict on it.
    pub verdict: GateVerdict,
    /// The current phase after the submission.
    pub current: SparcPhase,
    /// Whether all phases have passed.
    pub done: bool,
}

/// The workflows in an engine's store.
#[derive(Clone)]
pub struct Workflows {
    records: WorkflowRecords,
    options: Arc<SparcShared>,
}

impl Workflows {
    /// The workflows of that engine.
    pub(super) fn new(engine: Engine, options: Arc<SparcShared>) -> Self {
        Self { records: WorkflowRecords::new(engine), options }
    }

    /// The engine that stores the workflows.
    pub fn engine(&self) -> &Engine {
        self.records.engine()
    }

    /// A fresh name for a workflow.
    pub fn new_context(&self) -> String {
        format!("ctx-{}", self.engine().clock().new_id())
    }

    /// Starts a workflow; one without a name gets a fresh one.
    pub async fn start(
        &self,
        who: &WorkflowActor,
        context_id: Option<&str>,
        goal: &str,
        batchtools_enabled: bool,
        key: Option<&str>,
    ) -> Result<StoredWorkflow, SparcError> {
        let context_id = match context_id {
            Some(given) => given.to_owned(),
            None => self.new_context(),
        };
        self.allow(&who.caller, Action::Write, "sparc.start", &context_id)?;
        let (max, size) = (self.options.max_goal, goal.len());
        if goal.trim().is_empty() || size > max {
            return Err(SparcError::Invalid(format!("goal: 1 to {max} bytes (max_goal), not {size}")));
        }
        let now = self.engine().clock().now();
        let change = Workflow::start(&context_id, goal, batchtools_enabled, who.by(), key, now);
        let tenant = who.caller.tenant();
        match self.records.write(tenant, change, ExpectedVersion::Absent, now).await? {
            Some(stored) => {
                self.engine().list_changed(tenant);
                Ok(stored)
            }
            None => {
                let stored = self.records.find(tenant, &context_id).await?;
                let ours =
                    |stored: &StoredWorkflow| key.is_some_and(|key| stored.workflow.made_by(key).is_some());
                stored.filter(ours).ok_or(SparcError::Exists(context_id))
            }
        }
    }

    /// A workflow that the caller may read.
    pub async fn get(&self, caller: &Caller, context_id: &str) -> Result<StoredWorkflow, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", context_id)?;
        let found = self.records.find(caller.tenant(), context_id).await?;
        found.ok_or_else(|| SparcError::NoWorkflow(context_id.into()))
    }

    /// The violations of an artifact for the current phase, as far as they can be found without running
    /// anything; and the current phase. Changes nothing.
    pub async fn inspect(
        &self,
        caller: &Caller,
        context_id: &str,
        phase: Option<SparcPhase>,
        artifact: &Value,
    ) -> Result<(SparcPhase, Vec<Violation>), SparcError> {
        self.allow(caller, Action::Write, "sparc.submit", context_id)?;
        self.check_size(artifact)?;
        let stored = self.records.find_existing(caller.tenant(), context_id).await?;
        let phase = phase.unwrap_or(stored.workflow.current);
        stored.workflow.check_current(phase)?;
        let earlier = self.records.earlier(caller.tenant(), &stored.workflow).await?;
        Ok((phase, gate::inspect(phase, artifact, &earlier)))
    }

    /// Runs the test command of refinement's gate, as soon as a permit is free.
    pub async fn test(&self, caller: &Caller, context_id: &str) -> Result<CommandReport, SparcError> {
        self.allow(caller, Action::Execute, "sparc.test", context_id)?;
        let tenant = caller.tenant();
        Ok(match TestCommand::configured(&self.options) {
            Some(_) if !self.options.test_tenants.iter().any(|given| given == "*" || given == tenant) => {
                CommandReport::other_tenant(tenant)
            }
            Some(command) => {
                // Dropping the future during the wait has no side effects.
                let _place = self.options.test_permits.acquire().await;
                command.run(context_id, self.engine().redactor()).await
            }
            None => CommandReport::unconfigured(),
        })
    }

    /// Submits an artifact; the gate decides. Refinement needs the report of its tests, and fails without one.
    pub async fn submit(
        &self,
        who: &WorkflowActor,
        context_id: &str,
        phase: Option<SparcPhase>,
        artifact: &Value,
        tests: Option<CommandReport>,
        key: Option<&str>,
    ) -> Result<SubmissionResult, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.submit", context_id)?;
        let size = self.check_size(artifact)?;
        let tenant = who.caller.tenant();
        for _ in 0..DECIDE_AGAIN {
            let stored = self.records.find_existing(tenant, context_id).await?;
            if let Some(n) = key.and_then(|key| stored.workflow.made_by(key)) {
                return self.submitted_before(tenant, &stored.workflow, n).await;
            }
            let phase = phase.unwrap_or(stored.workflow.current);
            stored.workflow.check_current(phase)?;
            let earlier = self.records.earlier(tenant, &stored.workflow).await?;
            let violations = gate::inspect(phase, artifact, &earlier);
            // An artifact with violations needs no tests; one without violations passes only with them.
            let tests = match (phase, violations.is_empty()) {
                (SparcPhase::Refinement, true) => {
                    tests.clone().or_else(|| Some(CommandReport::unconfigured()))
                }
                _ => None,
            };
            let now = self.engine().clock().now();
            let verdict = GateVerdict::new(violations, tests, now);
            let command =
                WorkflowCommand::Submit { phase, artifact: artifact.clone(), size, verdict: verdict.clone() };
            let change = stored.workflow.decide(command, who.by(), key, now, self.options.max_history)?;
            let version = change.artifact.as_ref().map_or(0, |artifact| artifact.note.version);
            if let Some(stored) =
                self.records.write(tenant, change, ExpectedVersion::Version(stored.version), now).await?
            {
                let (current, done) = (stored.workflow.current, stored.workflow.is_done());
                return Ok(SubmissionResult { phase, version, verdict, current, done });
            }
        }
        Err(SparcError::MovedTooOften)
    }

    /// Goes back to an earlier phase.
    pub async fn go_back(
        &self,
        who: &WorkflowActor,
        context_id: &str,
        to: SparcPhase,
        reason: &str,
        key: Option<&str>,
    ) -> Result<StoredWorkflow, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.back", context_id)?;
        self.check_reason(reason)?;
        let command = WorkflowCommand::Back { to, reason: reason.into() };
        self.command(who, context_id, &command, key).await
    }

    /// Records that work on a phase was given up.
    pub async fn block(
        &self,
        who: &WorkflowActor,
        context_id: &str,
        phase: SparcPhase,
        reason: &str,
        key: Option<&str>,
    ) -> Result<StoredWorkflow, SparcError> {
        self.allow(&who.caller, Action::Write, "sparc.block", context_id)?;
        self.check_reason(reason)?;
        let command = WorkflowCommand::Block { phase, reason: reason.into() };
        self.command(who, context_id, &command, key).await
    }

    /// One artifact of a workflow.
    pub async fn artifact(
        &self,
        caller: &Caller,
        context_id: &str,
        phase: SparcPhase,
        version: u32,
    ) -> Result<WorkflowArtifact, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", context_id)?;
        self.records.find_existing(caller.tenant(), context_id).await?;
        let found = self.records.artifact(caller.tenant(), context_id, phase, version).await?;
        found.ok_or_else(|| SparcError::NoArtifact { context_id: context_id.into(), phase, version })
    }

    /// The artifacts of the phases that have passed, as input for the next one.
    pub async fn passed(&self, caller: &Caller, workflow: &Workflow) -> Result<EarlierArtifacts, SparcError> {
        self.allow(caller, Action::Read, "sparc.read", &workflow.context_id)?;
        self.records.earlier(caller.tenant(), workflow).await
    }

    /// A page of a workflow's history, oldest first, after that entry; and when the workflow last changed.
    pub async fn history(
        &self,
        caller: &Caller,
        context_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<(StoredWorkflow, Vec<WorkflowEntry>), SparcError> {
        self.allow(caller, Action::Read, "sparc.history", context_id)?;
        let stored = self.records.find_existing(caller.tenant(), context_id).await?;
        let limit = limit.clamp(1, MAX_PAGE);
        let entries = self.records.history(caller.tenant(), context_id, after, limit).await?;
        Ok((stored, entries))
    }

    /// A page of the workflows that the caller may read, by name, and the cursor of the next page if there may
    /// be more.
    pub async fn list(
        &self,
        caller: &Caller,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<StoredWorkflow>, Option<String>), SparcError> {
        self.allow_any(caller, "sparc.list", "sparc://workflow/")?;
        let limit = limit.clamp(1, MAX_PAGE);
        let Some(prefix) = caller.narrowed(Action::Read, AccessKind::Sparc, prefix) else {
            return Ok((vec![], None));
        };
        // A caller must not learn a name that it may not read, not even from the cursor.
        let last_of = |seen: &[StoredWorkflow]| seen.last().map(|stored| stored.workflow.context_id.clone());
        let (mut seen, mut after, mut looked_at) = (vec![], after.to_owned(), 0);
        loop {
            let page = self.records.page(caller.tenant(), &prefix, &after, MAX_PAGE).await?;
            let last = page.len() < MAX_PAGE;
            for stored in page {
                looked_at += 1;
                after.clone_from(&stored.workflow.context_id);
                if caller.may(Action::Read, AccessKind::Sparc, &after) {
                    if seen.len() == limit {
                        let next = last_of(&seen);
                        return Ok((seen, next));
                    }
                    seen.push(stored);
                }
            }
            match last_of(&seen) {
                _ if last => return Ok((seen, None)),
                _ if looked_at < MAX_LOOKED_AT => {}
                Some(next) => return Ok((seen, Some(next))),
                None => {
                    return Err(SparcError::Invalid(format!(
                        "prefix: you may read none of {MAX_LOOKED_AT} workflows in a row: give a prefix to \
                         search among fewer"
                    )));
                }
            }
        }
    }

    /// Authorizes a caller to run a whole workflow.
    pub fn allow_run(&self, caller: &Caller, context_id: &str) -> Result<(), SparcError> {
        self.allow(caller, Action::Execute, "sparc.run", context_id)
    }

    /// Authorizes access to a resource that belongs to no workflow: the caller needs read access to at least
    /// one workflow.
    pub fn allow_any(
        &self,
        caller: &Caller,
        operation: &'static str,
        resource: &str,
    ) -> Result<(), SparcError> {
        let (action, kind) = (Action::Read, AccessKind::Sparc);
        Ok(self
            .engine()
            .allow_some(caller, &AccessRequest { action, kind, name: "", operation, resource: &resource })?)
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
        let access = AccessRequest {
            action,
            kind: AccessKind::Sparc,
            name: context_id,
            operation,
            resource: &resource,
        };
        Ok(self.engine().allow(caller, &access)?)
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
        who: &WorkflowActor,
        context_id: &str,
        command: &WorkflowCommand,
        key: Option<&str>,
    ) -> Result<StoredWorkflow, SparcError> {
        let tenant = who.caller.tenant();
        for _ in 0..DECIDE_AGAIN {
            let stored = self.records.find_existing(tenant, context_id).await?;
            if key.is_some_and(|key| stored.workflow.made_by(key).is_some()) {
                return Ok(stored);
            }
            let now = self.engine().clock().now();
            let max = self.options.max_history;
            let change = stored.workflow.decide(command.clone(), who.by(), key, now, max)?;
            if let Some(stored) =
                self.records.write(tenant, change, ExpectedVersion::Version(stored.version), now).await?
            {
                return Ok(stored);
            }
        }
        Err(SparcError::MovedTooOften)
    }

    /// The result of an earlier attempt of the same submission.
    async fn submitted_before(
        &self,
        tenant: &str,
        workflow: &Workflow,
        n: u64,
    ) -> Result<SubmissionResult, SparcError> {
        let broken = || SparcError::Internal(format!("entry {n} of {} is missing", workflow.context_id));
        let entry = self.records.entry(tenant, &workflow.context_id, n).await?.ok_or_else(broken)?;
        let version = entry.version.ok_or_else(broken)?;
        let kept = self.records.artifact(tenant, &workflow.context_id, entry.phase, version).await?;
        let verdict = kept.ok_or_else(broken)?.gate;
        let (current, done) = (workflow.current, workflow.is_done());
        Ok(SubmissionResult { phase: entry.phase, version, verdict, current, done })
    }
}
