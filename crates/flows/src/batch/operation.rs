//! Doing one operation: what it comes to, and whether it is worth another try.

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
};

/// An operation that was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationOutput {
    pub(crate) output: Value,
    /// Whether the output is only a part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
}

impl OperationOutput {
    pub(crate) fn of(output: Value) -> Self {
        Self { output, ..Self::default() }
    }
}

/// An operation that was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationFailure {
    pub(crate) why: String,
    /// When another try is worth it, in milliseconds; `None`: never.
    pub(crate) again: Option<u64>,
}

impl OperationFailure {
    /// Another try may come to something else.
    pub(crate) fn of(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Some(0) }
    }

    /// Another try would come to the same.
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

/// What every operation of a batch has in common.
pub(crate) struct BatchContext {
    pub(crate) engine: Engine,
    pub(crate) caller: Caller,
    pub(crate) input: BatchInput,
    pub(crate) options: BatchOptions,
    pub(crate) batch: String,
    /// Contents that are compressed already, by their hash.
    pub(crate) compressed: content::CompressedContents,
}

impl BatchContext {
    /// The folder that the caller's tenant has for files.
    pub(crate) fn folder(&self) -> Result<PathBuf, OperationFailure> {
        files_dir(&self.options, &self.caller).map_err(OperationFailure::lasting)
    }

    /// Lets the caller through to a file, with a line in the audit that names it.
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

    /// The same for each file that an operation names. A chunk's was asked for when the content was cut.
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

    /// Does blocking work with the folder, elsewhere.
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

/// Runs what blocks where blocking is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationFailure> + Send + 'static,
) -> Result<T, OperationFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(OperationFailure::of(format!("the operation broke: {error}"))))
}

/// Does one operation, as the given try of it. An error of the outer kind ends the batch's run: it is canceled, or
/// cut.
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
            // A branch to itself, so that a try that is begun again finds what it did.
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

/// What waits for nothing but its own work.
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
        OperationKind::Call(_) | OperationKind::Wait(_) => {
            Err(OperationFailure::lasting("this is done elsewhere"))
        }
    }
}

/// Calls an agent as a task of its own, and holds nothing while that one asks something.
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

/// What a called task came to.
fn came_to(task: &Task) -> Result<OperationOutput, OperationFailure> {
    let said = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
    if task.state != State::Completed {
        let why = match said.is_empty() {
            true => format!("the task {} ended as {:?}", task.origin.id, task.state),
            false => format!("the task {} ended as {:?}: {said}", task.origin.id, task.state),
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

/// A call out of a task asks nobody, so this does.
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

/// An output that is too large is left out: the operation was done, and says so.
fn bounded(done: OperationOutput, most: usize) -> OperationOutput {
    // A file's content is cut to its cap; what stands around it does not count.
    match nuncio_engine::content::json_size(&done.output) > most + 4_096 {
        true => OperationOutput { output: Value::Null, truncated: true },
        false => done,
    }
}
