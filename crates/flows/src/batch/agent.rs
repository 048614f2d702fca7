//! The agent behind every batch: admits the batch, runs its operations, and reports the result.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Caller, Chunk, Engine, Error, Outcome, Profile, Task, TaskContext, TaskFacts, TaskUse,
    access::{AccessKind, Action},
    access_control::AccessRequest,
    surface::{ToolGroup, output_schema},
};
use serde_json::Value;

use super::{
    AGENT, BatchCore, METRICS_URI, NAME, QUEUE_URI,
    api::{self, BatchResult},
    content,
    content::ChunkBoundaries,
    control,
    dispatch::BatchDispatch,
    input::{BatchInput, BatchOperation, Strategy, check_patterns},
    operation::{BatchContext, OperationFailure, files_dir},
    report::{BatchReport, JoinedOutput},
    retry::{retry_briefly, retry_while_busy},
    running_batch::{OperationOutcome, RunningBatch},
    speedup,
};

/// The artifact that holds the result of a batch.
pub(crate) const RESULT: &str = "result";

pub(crate) struct BatchAgent {
    pub(crate) core: Arc<BatchCore>,
}

#[async_trait]
impl Agent for BatchAgent {
    /// A batch that was rejected did nothing: it has neither progress nor a result.
    fn describe_task(&self, task: &Task) -> TaskFacts {
        let has_result = task.artifacts.iter().any(|artifact| artifact.id == RESULT);
        TaskFacts { batched: task.progress.is_some() || has_result, ..TaskFacts::default() }
    }

    fn describe_called_task(&self, _task: &Task) -> TaskFacts {
        TaskFacts { batched: true, ..TaskFacts::default() }
    }

    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            AGENT,
            "Does many operations as one durable task: files, memory and agent calls, with priorities, needs and \
             retries, as many at a time as the batch settings allow. What is finished is not done again after a \
             restart; the result tells what became of every operation, and how long it took.",
        )
        .input(api::submit_schema(&self.core.options))
        .tool_group(ToolGroup::Batch);
        profile.output_schema = Some(output_schema::<BatchResult>());
        profile.tasks = TaskUse::Offered;
        profile.time_limit = Some(self.core.options.time_limit);
        let skill = &mut profile.skills[0];
        skill.id = "run_batch".into();
        skill.name = "Run a batch of operations".into();
        skill.tags = vec!["batch".into(), "files".into(), "memory".into(), "parallel".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let core = &self.core;
        let Some(data) = cx.input().data() else {
            return Ok(Outcome::rejected(
                "a batch is structured: send it as a data part, such as {\"operations\": [{\"id\": \"a\", \"type\": \"wait\", \"args\": {\"ms\": 10}}]}",
            ));
        };
        let read = BatchInput::read(data, &core.options)
            .and_then(|input| Ok((input.operations(&core.options)?, input)));
        let (operations, input) = match read {
            Ok(read) => read,
            Err(why) => return Ok(Outcome::rejected(why)),
        };
        let (engine, caller) = (cx.engine(), cx.caller());
        core.load(&engine).await;
        let admitted: Result<(), String> =
            cx.step("admit", async |_| core.admit(&engine, &caller, &cx, &input, &operations).await).await?;
        if let Err(why) = admitted {
            return Ok(Outcome::Rejected(why));
        }
        let common = Arc::new(BatchContext {
            engine,
            caller,
            input,
            options: core.options.clone(),
            batch: cx.task_id().to_string(),
            compressed: content::CompressedContents::default(),
        });
        let tenant = common.caller.tenant().to_owned();
        core.wait_for_load(&cx, &common.engine, &tenant).await?;
        let ended = self.work(&cx, &common, operations, &tenant).await;
        if ended.is_err() {
            // This batch is not measured, and leaves the queue. A run that is handed back is dropped before
            // this point.
            control::remove(&common.engine, &tenant, cx.task_id()).await;
        }
        common.engine.notify_changed(&tenant, QUEUE_URI);
        common.engine.notify_changed(&tenant, METRICS_URI);
        ended
    }
}

impl BatchAgent {
    async fn work(
        &self,
        cx: &TaskContext,
        common: &Arc<BatchContext>,
        mut operations: Vec<BatchOperation>,
        tenant: &str,
    ) -> Result<Outcome, AgentError> {
        let input = &common.input;
        if input.strategy == Strategy::ParallelContentProcessing {
            let cut: Result<ChunkBoundaries, OperationFailure> =
                cx.step("cut", async |step| retry_briefly(&step, || content::cut(common)).await).await?;
            operations = match cut {
                Ok(cut) => cut.operations(input),
                Err(failure) => return Err(AgentError::Failed(failure.why)),
            };
        }
        let live = &self.core.register_running_batch(cx, common, tenant, operations.into()).await?;
        let calibrations = speedup::calibrations(&common.engine, tenant).await.unwrap_or_default();
        let dispatched = BatchDispatch::new(cx, &self.core, common, live).run(&calibrations).await;
        let (status, otherwise) = match &dispatched {
            Ok(()) if live.is_stopped() => ("failed", "the batch stopped"),
            Ok(()) => ("completed", "the batch ended"),
            Err(AgentError::Canceled) => ("canceled", "the batch was canceled"),
            Err(_) => {
                content::remove_part_files(common, &live.operations).await;
                return dispatched.map(|()| Outcome::done());
            }
        };
        let finished = live.take(otherwise);
        let canceled = dispatched.is_err();
        let joined = match canceled {
            true => Ok(JoinedOutput::default()),
            // The output is written in a step, and the part files are removed only after the journal has
            // recorded that step.
            false if input.process.as_ref().is_some_and(|process| process.to.is_some()) => {
                cx.step("join", async |_| Ok(join(common, live, &finished).await)).await?
            }
            false => join(common, live, &finished).await,
        };
        content::remove_part_files(common, &live.operations).await;
        let joined = joined.map_err(|failure| AgentError::Failed(failure.why))?;
        let (operations, now) = (&live.operations, common.engine.clock().now());
        let known = (&calibrations, now);
        let report = BatchReport::new(&common.batch, status, input, operations, &finished, known, joined);
        let said = report.counts.to_string();
        if canceled {
            control::remove(&common.engine, tenant, cx.task_id()).await;
            cx.artifact(result(report.value)).await?;
            return Ok(Outcome::canceled(said));
        }
        let (engine, measured, id) = (&common.engine, &report.measured, cx.task_id());
        cx.step("settle", async |_| {
            retry_while_busy(cx, || control::close_record(engine, tenant, id, measured)).await
        })
        .await?;
        cx.artifact(result(report.value)).await?;
        Ok(match live.is_stopped() {
            true => Outcome::failed(format!("The batch stopped after a failure: {said}")),
            false => Outcome::said(said),
        })
    }
}

fn result(value: Value) -> Chunk {
    Chunk::data(RESULT, value).named("Result").described("What became of every operation").complete()
}

/// Joins the outputs of all operations, as the strategy requires.
async fn join(
    common: &Arc<BatchContext>,
    live: &RunningBatch,
    finished: &[OperationOutcome],
) -> Result<JoinedOutput, OperationFailure> {
    match common.input.strategy {
        Strategy::ConcurrentProcessing => Ok(JoinedOutput::default()),
        Strategy::ResourceOptimization => {
            let (content, before, after) =
                content::join_optimized(finished.iter().filter_map(OperationOutcome::output));
            Ok(JoinedOutput { content: Some(content), bytes: (before > 0).then_some((before, after)) })
        }
        Strategy::ParallelContentProcessing => {
            let outputs = live.operations.iter().zip(finished);
            let outputs = outputs.map(|(operation, one)| (operation.id.clone(), one.output().cloned()));
            let content = content::join(common, outputs.collect()).await?;
            let bytes = content
                .as_ref()
                .and_then(|content| Some((content["bytes"].as_u64()?, content["compressedBytes"].as_u64()?)));
            Ok(JoinedOutput { content, bytes })
        }
    }
}

/// Authorizes a caller that sent its batch directly to the agent, bypassing the tools.
async fn check_submit_access(
    engine: &Engine,
    caller: &Caller,
    cx: &TaskContext,
) -> Result<Result<(), String>, AgentError> {
    let ask = || {
        let access = AccessRequest {
            action: Action::Execute,
            kind: AccessKind::Batchtools,
            name: NAME,
            operation: "batch.submit",
            resource: &QUEUE_URI,
        };
        match engine.allow(caller, &access) {
            Ok(()) => Ok(Ok(())),
            Err(busy @ Error::Busy { .. }) => Err(busy),
            Err(refused) => Ok(Err(refused.to_string())),
        }
    };
    retry_while_busy(cx, || std::future::ready(ask())).await
}

impl BatchCore {
    /// Admits a batch or returns why not. Admission is decided once: an admitted batch is not refused after a
    /// restart.
    async fn admit(
        &self,
        engine: &Engine,
        caller: &Caller,
        cx: &TaskContext,
        input: &BatchInput,
        operations: &[BatchOperation],
    ) -> Result<Result<(), String>, AgentError> {
        if !self.known_senders().remove(&cx.input().id)
            && let Err(why) = check_submit_access(engine, caller, cx).await?
        {
            return Ok(Err(why));
        }
        if let Err(why) = self.may_run(engine, caller, input, operations) {
            return Ok(Err(why));
        }
        if let Err(why) = check_patterns(input, operations).await {
            return Ok(Err(why));
        }
        // Within this process, no two admissions may count the same queue.
        let _alone = self.admitting.lock().await;
        let (tenant, id) = (caller.tenant(), cx.task_id());
        // The tool has admitted it already, or this step was interrupted after the record was written.
        if retry_while_busy(cx, || control::read(engine, tenant, id)).await?.is_some() {
            return Ok(Ok(()));
        }
        let there = retry_while_busy(cx, || control::list(engine, Some(tenant))).await?;
        if let Err(refused) = self.check_queue(input, there.len()) {
            return Ok(Err(refused.to_string()));
        }
        let control = control::Control::new(caller.owner(), input, operations, engine.clock().now());
        retry_while_busy(cx, || control::make(engine, tenant, id, &control)).await?;
        engine.notify_changed(caller.tenant(), QUEUE_URI);
        Ok(Ok(()))
    }

    /// Checks whether the caller may run such a batch. The task itself is already authorized; a refusal here is
    /// written to the audit log.
    pub(crate) fn may_run(
        &self,
        engine: &Engine,
        caller: &Caller,
        input: &BatchInput,
        operations: &[BatchOperation],
    ) -> Result<(), String> {
        let files = input.files(operations);
        if (files.reads || files.writes)
            && let Err(why) = files_dir(&self.options, caller)
        {
            return Err(why);
        }
        for (action, wanted) in
            [(Action::Execute, true), (Action::Read, files.reads), (Action::Write, files.writes)]
        {
            if wanted && !caller.may(action, AccessKind::Batchtools, NAME) {
                let scope = format!("{}:batchtools:{NAME}", action.name());
                let why = Error::Forbidden(scope).to_string();
                let access = AccessRequest {
                    action,
                    kind: AccessKind::Batchtools,
                    name: NAME,
                    operation: "batch.run",
                    resource: &QUEUE_URI,
                };
                return match engine.note_refused(caller, &access, &why) {
                    Ok(()) => Err(why),
                    Err(error) => Err(error.to_string()),
                };
            }
        }
        Ok(())
    }
}
