//! The execution of one operation: its output, or its failure and whether a retry is worthwhile.

use std::{path::PathBuf, sync::Arc};

use nuncio_engine::{
    AgentError, Caller, Engine, Message, Part, Role, StepContext, Task, TaskContext,
    access::{AccessKind, Action, HOME_TENANT},
    access_control::AccessRequest,
    task::State,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    BatchOptions, NAME,
    attempt_slot::AttemptSlot,
    content,
    files::Folder,
    input::{BatchInput, BatchOperation, CallAgent, HashFile, OperationKind, ReadFile, SearchFiles},
    memory,
    retry::retry_briefly,
    task_operations,
};

/// The output of an operation that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationOutput {
    pub(crate) output: Value,
    /// Whether the output is incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    /// Why there was nothing to do: then the operation counts as skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
}

impl OperationOutput {
    pub(crate) fn of(output: Value) -> Self {
        Self { output, ..Self::default() }
    }

    /// The output of an operation that found nothing to do.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }
}

/// The failure of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationFailure {
    pub(crate) why: String,
    /// The wait before a retry, in milliseconds; `None`: a retry is useless.
    pub(crate) again: Option<u64>,
}

impl OperationFailure {
    /// A failure that a retry may not repeat.
    pub(crate) fn of(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Some(0) }
    }

    /// A failure that a retry would repeat.
    pub(crate) fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: None }
    }
}

impl From<nuncio_engine::Error> for OperationFailure {
    fn from(error: nuncio_engine::Error) -> Self {
        use nuncio_engine::Error;
        match &error {
            Error::TooFast { retry_after, .. } | Error::Busy { retry_after, .. } => {
                Self { again: Some(retry_after.as_millis() as u64), why: error.to_string() }
            }
            Error::Forbidden(_) | Error::NoSuchAgent(_) => Self::lasting(error.to_string()),
            _ => Self::of(error.to_string()),
        }
    }
}

/// The state that all operations of a batch share.
pub(crate) struct BatchContext {
    pub(crate) engine: Engine,
    pub(crate) caller: Caller,
    pub(crate) input: BatchInput,
    pub(crate) options: BatchOptions,
    pub(crate) batch: String,
    /// The contents that are already compressed, by hash.
    pub(crate) compressed: content::CompressedContents,
}

impl BatchContext {
    /// The folder for files of the caller's tenant.
    pub(crate) fn folder(&self) -> Result<PathBuf, OperationFailure> {
        files_dir(&self.options, &self.caller).map_err(OperationFailure::lasting)
    }

    /// Authorizes the caller's access to a file, with an audit entry that names the file.
    pub(crate) fn allow_file(
        &self,
        action: Action,
        operation: &'static str,
        path: &str,
    ) -> Result<(), OperationFailure> {
        let resource = &format_args!("file:{path}");
        let access = AccessRequest { action, kind: AccessKind::Batchtools, name: NAME, operation, resource };
        Ok(self.engine.allow(&self.caller, &access)?)
    }

    /// Authorizes each file that an operation names. The file of a chunk was authorized when the content was divided.
    fn allow_files(&self, operation: &BatchOperation) -> Result<(), OperationFailure> {
        let contents = |n: usize| self.input.optimize.as_ref().and_then(|optimize| optimize.contents.get(n));
        let (read, written) = match &operation.work {
            OperationKind::Read(ReadFile { path, .. })
            | OperationKind::Hash(HashFile { path })
            | OperationKind::Search(SearchFiles { path, .. }) => (Some(path), None),
            OperationKind::Write(write) => (None, Some(&write.path)),
            OperationKind::Copy(copy) => (Some(&copy.from), Some(&copy.to)),
            OperationKind::Optimize(n) => (
                contents(*n).and_then(|one| one.file.as_ref()),
                self.input.optimize.as_ref().and_then(|optimize| optimize.to.as_ref()),
            ),
            _ => (None, None),
        };
        for (action, path) in [(Action::Read, read), (Action::Write, written)] {
            if let Some(path) = path {
                self.allow_file(action, operation.r#type, path)?;
            }
        }
        Ok(())
    }

    /// Runs blocking work with the folder on a blocking thread.
    async fn in_folder<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Folder, &Self) -> Result<T, OperationFailure> + Send + 'static,
    ) -> Result<T, OperationFailure> {
        let folder = self.folder()?;
        let common = Arc::clone(self);
        blocking(move || work(&Folder::open(&folder, &common.options)?, &common)).await
    }
}

/// The folder for the files of a caller, or why there is none.
pub(crate) fn files_dir(options: &BatchOptions, caller: &Caller) -> Result<PathBuf, String> {
    let tenant = caller.tenant();
    let folder = match tenant {
        HOME_TENANT => options.files_dir.clone(),
        tenant => options.tenant_files.get(tenant).cloned(),
    };
    folder.ok_or_else(|| match tenant {
        HOME_TENANT => {
            "no folder for files is configured: an operator sets batch.files-dir (files_dir)".into()
        }
        _ => {
            "no folder for the files of this tenant is configured (tenant_files): an operator sets it".into()
        }
    })
}

/// Runs blocking work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationFailure> + Send + 'static,
) -> Result<T, OperationFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(OperationFailure::of(format!("the operation crashed: {error}"))))
}

/// Runs one operation, as the given attempt. The outer error ends the run of the batch: it was canceled or
/// interrupted.
pub(crate) async fn perform(
    common: &Arc<BatchContext>,
    operation: &BatchOperation,
    attempt: u32,
    line: &TaskContext,
    step: &StepContext,
    held: &mut AttemptSlot<'_>,
) -> Result<Result<OperationOutput, OperationFailure>, AgentError> {
    let done = match &operation.work {
        OperationKind::Call(call) => {
            // Each attempt has its own branch, so that a restarted attempt finds its journal.
            let line = line.branch(&format!("call{attempt}"));
            let allow = || std::future::ready(allow_call(common, &call.agent));
            let allowed: Result<(), OperationFailure> =
                line.step("allow", async |step| retry_briefly(&step, allow).await).await?;
            match allowed {
                Ok(()) => self::call(call, &line, step, held).await?,
                Err(refused) => Err(refused),
            }
        }
        OperationKind::Wait(wait) => {
            step.sleep(std::time::Duration::from_millis(wait.ms)).await?;
            Ok(OperationOutput::of(json!({ "ms": wait.ms })))
        }
        _ => retry_briefly(step, || at_once(common, operation)).await?,
    };
    Ok(done.map(|done| bounded(done, common.options.operation_output_bytes)))
}

/// Runs the operations that never wait for an answer.
async fn at_once(
    common: &Arc<BatchContext>,
    operation: &BatchOperation,
) -> Result<OperationOutput, OperationFailure> {
    common.allow_files(operation)?;
    match operation.work.clone() {
        OperationKind::Read(read) => common.in_folder(move |folder, _| folder.read(&read)).await,
        OperationKind::Write(write) => common.in_folder(move |folder, _| folder.write(&write)).await,
        OperationKind::Copy(copy) => common.in_folder(move |folder, _| folder.copy(&copy)).await,
        OperationKind::Hash(hash) => common.in_folder(move |folder, _| folder.hash(&hash)).await,
        OperationKind::Search(search) => common.in_folder(move |folder, _| folder.search(&search)).await,
        OperationKind::MemoryGet(name) => memory::get(common, &name).await,
        OperationKind::MemoryStore(store) => memory::store(common, store).await,
        OperationKind::MemoryDelete(name) => memory::delete(common, &name).await,
        OperationKind::MemorySearch(search) => memory::search(common, &search).await,
        OperationKind::Chunk(from, bytes) => content::chunk(common, &operation.id, from, bytes).await,
        OperationKind::Optimize(n) => content::optimize(common, n).await,
        OperationKind::CancelTask(named) => task_operations::cancel(common, &named.task).await,
        OperationKind::RerunTask(named) => task_operations::rerun(common, &operation.id, &named.task).await,
        OperationKind::Call(_) | OperationKind::Wait(_) => {
            Err(OperationFailure::lasting("this is done elsewhere"))
        }
    }
}

/// Calls an agent as a task of its own. The slot is released while that task waits for an answer.
async fn call(
    call: &CallAgent,
    line: &TaskContext,
    step: &StepContext,
    held: &mut AttemptSlot<'_>,
) -> Result<Result<OperationOutput, OperationFailure>, AgentError> {
    let part = match &call.input {
        Value::String(text) => Part::text(text.clone()),
        data => Part::data(data.clone()),
    };
    let mut calling = line.begin_call(&call.agent, Message::of("", Role::User, vec![part]))?;
    loop {
        let so_far = match calling.end_or_question().await {
            Ok(Some(task)) => return Ok(came_to(&task)),
            Ok(None) => held.wait_for_answer(step, calling.relay_question()).await,
            Err(error) => Err(error),
        };
        match so_far {
            Ok(()) => {}
            Err(AgentError::Failed(why)) => return Ok(Err(OperationFailure::of(why))),
            Err(error) => return Err(error),
        }
    }
}

/// Converts the result of a called task.
fn came_to(task: &Task) -> Result<OperationOutput, OperationFailure> {
    let said = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
    if task.state != State::Completed {
        let why = match said.is_empty() {
            true => format!("the task {} ended as {}", task.origin.id, task.state.name()),
            false => format!("the task {} ended as {}: {said}", task.origin.id, task.state.name()),
        };
        return Err(OperationFailure::of(why));
    }
    let mut output = json!({ "taskId": task.origin.id.to_string() });
    if !said.is_empty() {
        output["text"] = json!(said);
    }
    let artifacts: Vec<Value> = task
        .artifacts
        .iter()
        .map(|artifact| {
            let texts: Vec<&str> = artifact.parts.iter().filter_map(Part::as_text).collect();
            let data: Vec<&Value> = artifact
                .parts
                .iter()
                .filter_map(|part| match &part.content {
                    nuncio_engine::Content::Data(value) => Some(value),
                    _ => None,
                })
                .collect();
            let mut one = json!({ "id": artifact.id });
            if !texts.is_empty() {
                one["text"] = json!(texts.concat());
            }
            if !data.is_empty() {
                one["data"] = json!(data);
            }
            one
        })
        .collect();
    if !artifacts.is_empty() {
        output["artifacts"] = json!(artifacts);
    }
    Ok(OperationOutput::of(output))
}

/// The engine does not authorize a call that a task makes, so it is authorized here.
fn allow_call(common: &BatchContext, agent: &str) -> Result<(), OperationFailure> {
    let access = AccessRequest {
        action: Action::Execute,
        kind: AccessKind::A2a,
        name: agent,
        operation: "task.send",
        resource: &format_args!("a2a://agents/{agent}"),
    };
    Ok(common.engine.allow(&common.caller, &access)?)
}

/// Omits an output that is too large: the operation still succeeds, and the output is marked as truncated.
fn bounded(done: OperationOutput, most: usize) -> OperationOutput {
    // The content of a file is already truncated to its cap; the JSON around it does not count.
    match nuncio_engine::content::json_size(&done.output) > most + 4_096 {
        true => OperationOutput { output: Value::Null, truncated: true, skipped: done.skipped },
        false => done,
    }
}
