//! The batch tools: submit, read, pause, cancel and repeat a batch, and change the settings.
//!
//! A batch of another caller is answered like one that does not exist, with the engine's own error.

use std::{collections::HashSet, sync::Arc};

use nuncio_engine::{
    Caller, Content, Engine, Error, List, Message, Part, Role, State, Submit, Surface, Task, TaskId,
    access::Action,
    surface::{
        HandlerError, HandlerReply, SchemaError, ToolCall, ToolGroup, TypedOutput, TypedReply, typed_reply,
        typed_tool,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    AGENT, BatchCore, QUEUE_URI, SETTINGS_URI,
    agent::RESULT,
    api::{
        BatchChangeAnswer, BatchConfigureRequest, BatchCounts, BatchIdRequest, BatchListAnswer,
        BatchListRequest, BatchMetrics, BatchSettings, BatchState, BatchStatusAnswer, BatchStatusRequest,
        BatchSubmitAnswer, BatchSubmitRequest, BatchSummary, MAX_PAGE, OperationAnswer, limits,
    },
    control::{self, Control},
    input::{BatchInput, Strategy, check_patterns},
    may_configure, metrics,
    report::OperationCounts,
    resources,
    running_batch::{BatchProgress, RunningBatch},
    scheduler::Priority,
    selection, settings,
};
use crate::resource::{given, iso};

/// Operations that `batch_status` returns by default.
const PAGE: usize = 100;
/// Batches on a page of a list by default.
const LIST_PAGE: usize = 20;

/// The state that all batch tools share.
#[derive(Clone)]
struct BatchTools {
    core: Arc<BatchCore>,
    engine: Engine,
}

/// Registers the tools on a surface.
pub(crate) fn install(core: &Arc<BatchCore>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let tools = BatchTools { core: Arc::clone(core), engine: engine.clone() };
    let mut submit = typed_tool(
        "batch_submit",
        "Begins a batch of operations as a durable task and answers at once with its id. Follow it with \
         batch_status, or as the task of that id. Refused with the reason where the queue is full; while the machine is \
         too busy it waits.",
        &tools,
        BatchTools::submit,
    );
    for (field, keyword, limit) in limits(&core.options) {
        submit = submit.limit(field, keyword, limit);
    }
    submit.install(ToolGroup::Batch, surface)?;
    let about = "How far a batch is, and what it came to; with operations: true what became of each operation, in pages.";
    typed_tool("batch_status", about, &tools, BatchTools::status)
        .read_only()
        .install(ToolGroup::Batch, surface)?;
    let about = "Ends a batch. What is finished stays done; the rest is skipped.";
    typed_tool("batch_cancel", about, &tools, BatchTools::cancel).install(ToolGroup::Batch, surface)?;
    typed_tool(
        "batch_pause",
        "Lets no operation of a batch begin until batch_resume; those that run go on. Also holds after a restart.",
        &tools,
        BatchTools::pause,
    )
    .install(ToolGroup::Batch, surface)?;
    typed_tool("batch_resume", "Lets a paused batch go on.", &tools, BatchTools::resume)
        .install(ToolGroup::Batch, surface)?;
    let about = "Begins a new batch of only those operations of an ended one that failed or were skipped.";
    typed_tool("batch_retry", about, &tools, BatchTools::retry).install(ToolGroup::Batch, surface)?;
    let about =
        "Changes the settings of the batch engine, for all callers and at once; what is not given stays.";
    typed_tool("batch_configure", about, &tools, BatchTools::configure).install(ToolGroup::Batch, surface)?;
    let about = "Your batches, newest first, in pages.";
    typed_tool("batch_list", about, &tools, BatchTools::list).read_only().install(ToolGroup::Batch, surface)
}

impl BatchTools {
    async fn submit(self, call: ToolCall<BatchSubmitRequest>) -> TypedReply<BatchSubmitAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Execute, "batch.submit", QUEUE_URI)?;
        self.begin(&call.caller, call.input.0).await
    }

    async fn begin(
        &self,
        caller: &Caller,
        mut arguments: Map<String, Value>,
    ) -> TypedReply<BatchSubmitAnswer> {
        let options = &self.core.options;
        selection::expand(&self.engine, caller, &mut arguments, options).await?;
        let value = Value::Object(arguments);
        let input = BatchInput::read(&value, options).map_err(HandlerError::Invalid)?;
        let operations = input.operations(options).map_err(HandlerError::Invalid)?;
        self.core.load(&self.engine).await;
        self.core.may_run(&self.engine, caller, &input, &operations).map_err(HandlerError::Failed)?;
        check_patterns(&input, &operations).await.map_err(HandlerError::Invalid)?;
        // Within this process no two admissions may count the same queue. The batch is in the queue before the
        // reply is sent.
        let _alone = self.core.admitting.lock().await;
        let there = control::list(&self.engine, Some(caller.tenant())).await?.len();
        self.core.check_queue(&input, there)?;
        let count = (input.strategy != Strategy::ParallelContentProcessing).then_some(operations.len());
        // The caller is authorized here, so the agent does not authorize it again.
        let known = self.core.let_through(&self.engine);
        let message = Message::of(known.clone(), Role::User, vec![Part::data(value)]);
        let submitted = self.engine.submit(caller, Submit::new(AGENT, message)).await;
        if submitted.is_err() {
            self.core.known_senders().remove(&known);
        }
        let task = submitted?;
        let id = task.origin.id.to_string();
        let mut answer = BatchSubmitAnswer {
            uri: format!("a2a://tasks/{id}"),
            batch_id: id.clone(),
            status: task.state.name().to_owned(),
            operations: count.map(|count| count as u64),
            waiting: None,
            reason: None,
        };
        if task.state.is_terminal() {
            let words = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
            if task.state != State::Rejected {
                return typed_reply(words, answer);
            }
            let text = format!("Batch {id} was rejected: {words}");
            answer.reason = Some(words);
            return Ok(HandlerReply::Done(TypedOutput { text, value: answer, is_error: true }));
        }
        let control = Control::new(caller.owner(), &input, &operations, self.engine.clock().now());
        control::make(&self.engine, caller.tenant(), task.origin.id, &control).await?;
        self.engine.notify_changed(caller.tenant(), QUEUE_URI);
        match self.core.overload() {
            None => typed_reply(format!("Batch {id} has begun."), answer),
            Some(why) => {
                let text = format!("Batch {id} is admitted and waits: {why}.");
                answer.waiting = Some(why);
                typed_reply(text, answer)
            }
        }
    }

    async fn status(self, call: ToolCall<BatchStatusRequest>) -> TypedReply<BatchStatusAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Read, "batch.status", QUEUE_URI)?;
        let BatchStatusRequest { batch_id, operations, offset, limit } = call.input;
        let task = self.find(&call.caller, &batch_id).await?;
        let id = task.origin.id;
        let result = result_of(&task);
        let live = self.core.live(id);
        let mut answer = match result {
            Some(result) => EndedBatch::read(result).answer(id),
            None => BatchStatusAnswer {
                batch_id: id.to_string(),
                counts: live.as_ref().map_or_else(|| unknown_counts(&task), |live| live_counts(live)),
                ..BatchStatusAnswer::default()
            },
        };
        answer.status = task.state.name().to_owned();
        answer.message =
            task.status_message.as_ref().map(Message::joined_text).filter(|text| !text.is_empty());
        if !task.state.is_terminal()
            && let Some(record) = control::read(&self.engine, call.caller.tenant(), id).await?
        {
            let control = record.value;
            let cap = self.core.settings().max_concurrency;
            answer.paused = control.paused;
            answer.estimated_duration = resources::estimate(&self.core, id, &control, cap);
            answer.done = Some(task.progress.as_ref().map_or(0.0, |(_, progress)| progress.done));
            answer.strategy = Some(control.strategy);
            answer.kind = Some(control.kind);
            answer.priority = Some(control.priority);
            answer.waiting = control.waiting;
        }
        if let Some(live) = live.as_ref().filter(|_| result.is_none()) {
            let tally = live.tally();
            answer.done = Some((tally.succeeded + tally.failed + tally.skipped) as f64);
        }
        if operations == Some(true) {
            let (from, count) = (offset.unwrap_or(0), limit.unwrap_or(PAGE).min(MAX_PAGE));
            let (page, total) = match (result.and_then(|result| result["operations"].as_array()), &live) {
                (Some(all), _) => (stored_operations(&all[from.min(all.len())..], count), all.len()),
                (None, Some(live)) => (live.operation_answers(from, count), live.operations.len()),
                (None, None) => (vec![], 0),
            };
            let next = from + page.len();
            answer.next_offset = (next < total).then_some(next as u64);
            answer.operations = Some(page);
        }
        typed_reply(format!("Batch {id} is {}: {}.", answer.status, in_words(answer.counts)), answer)
    }

    async fn cancel(self, call: ToolCall<BatchIdRequest>) -> TypedReply<BatchChangeAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Write, "batch.cancel", QUEUE_URI)?;
        let task = self.find(&call.caller, &call.input.batch_id).await?;
        let id = task.origin.id.to_string();
        let task = self.engine.cancel(&call.caller, &id).await?;
        let status = task.state.name().to_owned();
        let text = format!("Batch {id} is {status}.");
        typed_reply(text, BatchChangeAnswer { batch_id: id, status, paused: false })
    }

    async fn pause(self, call: ToolCall<BatchIdRequest>) -> TypedReply<BatchChangeAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Write, "batch.pause", QUEUE_URI)?;
        self.set_paused(&call, true).await
    }

    async fn resume(self, call: ToolCall<BatchIdRequest>) -> TypedReply<BatchChangeAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Write, "batch.resume", QUEUE_URI)?;
        self.set_paused(&call, false).await
    }

    async fn set_paused(
        &self,
        call: &ToolCall<BatchIdRequest>,
        paused: bool,
    ) -> TypedReply<BatchChangeAnswer> {
        let task = self.find(&call.caller, &call.input.batch_id).await?;
        let (id, tenant) = (task.origin.id, call.caller.tenant());
        let changed = control::change(&self.engine, tenant, id, |control| control.paused = paused).await?;
        if changed.is_none() {
            let what = match task.state.is_terminal() {
                true => "has ended and cannot be paused or resumed",
                false => "has not been taken yet: try again in a moment",
            };
            return Err(HandlerError::Failed(format!("batch {id} {what}")));
        }
        self.core.scheduler.set_paused(id, paused);
        self.engine.notify_changed(tenant, QUEUE_URI);
        let word = if paused { "paused" } else { "going on" };
        let answer =
            BatchChangeAnswer { batch_id: id.to_string(), status: task.state.name().to_owned(), paused };
        typed_reply(format!("Batch {id} is {word}."), answer)
    }

    async fn retry(self, call: ToolCall<BatchIdRequest>) -> TypedReply<BatchSubmitAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Execute, "batch.retry", QUEUE_URI)?;
        let task = self.find(&call.caller, &call.input.batch_id).await?;
        let id = task.origin.id;
        if !task.state.is_terminal() {
            return Err(HandlerError::Failed(format!("batch {id} has not ended: wait for it, or cancel it")));
        }
        let asked = task.history.iter().find(|message| message.role == Role::User).and_then(Message::data);
        let (Some(result), Some(Value::Object(asked))) = (result_of(&task), asked) else {
            return Err(HandlerError::Failed(format!("batch {id} did nothing: submit it again")));
        };
        let failed: HashSet<&str> = result["operations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|operation| operation["status"] != "succeeded")
            .filter_map(|operation| operation["id"].as_str())
            .collect();
        if failed.is_empty() {
            return Err(HandlerError::Failed(format!("all operations of batch {id} succeeded")));
        }
        let mut again = asked.clone();
        if again.contains_key("process") {
            return Err(HandlerError::Failed(format!(
                "batch {id} is about one content, whose chunks belong together: submit it again"
            )));
        }
        let only = |all: Option<&mut Value>| {
            let Some(Value::Array(all)) = all else { return };
            all.retain(|one| one["id"].as_str().is_some_and(|id| failed.contains(id)));
            for one in all {
                // Dependencies that have succeeded are removed.
                if let Some(Value::Array(needs)) = one.get_mut("needs") {
                    needs.retain(|need| need.as_str().is_some_and(|need| failed.contains(need)));
                }
            }
        };
        only(again.get_mut("operations"));
        only(again.get_mut("optimize").and_then(|optimize| optimize.get_mut("contents")));
        self.begin(&call.caller, again).await
    }

    async fn configure(self, call: ToolCall<BatchConfigureRequest>) -> TypedReply<BatchSettings> {
        resources::allow(&self.engine, &call.caller, Action::Write, "batch.configure", SETTINGS_URI)?;
        if !may_configure(call.caller.tenant()) {
            return Err(HandlerError::Failed(
                "the settings hold for all tenants and are changed by the operator's own".into(),
            ));
        }
        let known = settings::change(&self.engine, &self.core.options.settings, &call.input).await?;
        // Notifies the subscribers on this node; other nodes poll for the change.
        self.core.apply_settings(&self.engine, &known);
        let text = format!("{} operations run at once.", known.settings.max_concurrency);
        typed_reply(text, known.settings)
    }

    async fn list(self, call: ToolCall<BatchListRequest>) -> TypedReply<BatchListAnswer> {
        resources::allow(&self.engine, &call.caller, Action::Read, "batch.list", QUEUE_URI)?;
        let BatchListRequest { status, page_size, page_token } = call.input;
        let list = List {
            agent: Some(AGENT.into()),
            state: status.map(State::from),
            page_token,
            page_size: page_size.unwrap_or(LIST_PAGE),
            without_artifacts: true,
            ..List::default()
        };
        let listed = self.engine.list(&call.caller, list).await?;
        let queue = control::list(&self.engine, Some(call.caller.tenant())).await?;
        let summary = |task: &Task| {
            let id = task.origin.id;
            // Taken from the last progress event, or from the sentence at the end: the result may be large, and is not
            // read.
            let counts = self.counts(task);
            let counted = counts.succeeded.zip(counts.failed).zip(counts.skipped);
            let (done, total) = match &task.progress {
                Some((_, progress)) => (Some(progress.done), progress.total),
                None => (
                    counted.map(|((succeeded, failed), skipped)| (succeeded + failed + skipped) as f64),
                    counts.total.map(|total| total as f64),
                ),
            };
            let control = queue.iter().find(|(queued, _)| *queued == id);
            BatchSummary {
                batch_id: id.to_string(),
                status: task.state.name().to_owned(),
                done,
                total,
                counts,
                waiting: control.and_then(|(_, control)| control.waiting.clone()),
                changed: iso(task.status_at),
                uri: format!("a2a://tasks/{id}"),
            }
        };
        let batches: Vec<BatchSummary> = listed.tasks.iter().map(summary).collect();
        let (totals, _) = metrics::totals(&self.engine, call.caller.tenant()).await?;
        let (bytes_before, bytes_after) = totals.bytes().unzip();
        let (total, next_page_token) = (listed.total as u64, listed.next_page_token);
        let text = format!("{} of {total} batches.", batches.len());
        typed_reply(text, BatchListAnswer { batches, total, bytes_before, bytes_after, next_page_token })
    }

    /// The outcomes of a batch's operations, as far as they are known without reading its result.
    fn counts(&self, task: &Task) -> BatchCounts {
        if let Some(live) = self.core.live(task.origin.id) {
            return live_counts(&live);
        }
        let sentence = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
        OperationCounts::in_sentence(&sentence).map_or_else(|| unknown_counts(task), BatchCounts::from)
    }

    /// The batch with that id, if the caller owns it.
    async fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Task>, HandlerError> {
        match self.engine.get(caller, id).await {
            Ok(task) if task.origin.agent == AGENT => Ok(task),
            Ok(_) | Err(Error::NoSuchTask(_)) => Err(HandlerError::Failed(format!("there is no batch {id}"))),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<BatchState> for State {
    fn from(state: BatchState) -> Self {
        match state {
            BatchState::Submitted => Self::Submitted,
            BatchState::Working => Self::Working,
            BatchState::Completed => Self::Completed,
            BatchState::Failed => Self::Failed,
            BatchState::Canceled => Self::Canceled,
            BatchState::Rejected => Self::Rejected,
        }
    }
}

/// The result of a batch that has ended.
fn result_of(task: &Task) -> Option<&Value> {
    let artifact = task.artifacts.iter().find(|artifact| artifact.id == RESULT)?;
    artifact.parts.iter().find_map(|part| match &part.content {
        Content::Data(value) => Some(value),
        _ => None,
    })
}

/// Converts metrics of an earlier release, whose speed-up was a concurrency.
fn as_of_now(metrics: &mut Value) {
    let Some(metrics) = metrics.as_object_mut().filter(|metrics| !metrics.contains_key("concurrency")) else {
        return;
    };
    let measured = metrics.remove("measuredSpeedup").unwrap_or_default();
    let concurrency = metrics.insert("speedup".into(), measured).unwrap_or_default();
    metrics.insert("concurrency".into(), concurrency);
    metrics.insert("speedupBasis".into(), Value::Null);
}

/// The result of a batch that has ended, without its operations: they may be many, and are read in pages.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EndedBatch {
    strategy: Option<Strategy>,
    #[serde(rename = "type")]
    kind: Option<String>,
    priority: Option<Priority>,
    counts: BatchCounts,
    metrics: Value,
    #[serde(deserialize_with = "given")]
    content: Option<Value>,
}

impl EndedBatch {
    fn read(result: &Value) -> Self {
        Self::deserialize(result).unwrap_or_default()
    }

    fn answer(mut self, id: TaskId) -> BatchStatusAnswer {
        as_of_now(&mut self.metrics);
        BatchStatusAnswer {
            batch_id: id.to_string(),
            strategy: self.strategy,
            kind: self.kind,
            priority: self.priority,
            counts: self.counts,
            metrics: BatchMetrics::deserialize(self.metrics).ok(),
            content: self.content,
            ..BatchStatusAnswer::default()
        }
    }
}

/// Stored operations. One that cannot be read, which no release has written, is left out.
fn stored_operations(operations: &[Value], count: usize) -> Vec<OperationAnswer> {
    operations.iter().take(count).filter_map(|one| OperationAnswer::deserialize(one).ok()).collect()
}

fn unknown_counts(task: &Task) -> BatchCounts {
    let total = task.progress.as_ref().and_then(|(_, progress)| progress.total).map(|total| total as u64);
    BatchCounts { total, ..BatchCounts::default() }
}

fn live_counts(live: &RunningBatch) -> BatchCounts {
    let BatchProgress { succeeded, failed, skipped, .. } = live.tally();
    OperationCounts { total: live.operations.len() as u64, succeeded, failed, skipped }.into()
}

fn in_words(counts: BatchCounts) -> String {
    let BatchCounts { total, succeeded, failed, skipped } = counts;
    let [total, succeeded, failed, skipped] = [total, succeeded, failed, skipped]
        .map(|count| count.map_or_else(|| "null".to_owned(), |count| count.to_string()));
    format!("{succeeded} succeeded, {failed} failed, {skipped} skipped of {total}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_earlier_release_called_a_speed_up_is_shown_as_what_it_was() {
        let mut metrics = json!({ "wallMs": 10.0, "operationMs": 48.0, "speedup": 4.8, "sequentialMs": null,
            "measuredSpeedup": null });
        as_of_now(&mut metrics);
        let wanted = json!({ "wallMs": 10.0, "operationMs": 48.0, "concurrency": 4.8, "speedup": null,
            "sequentialMs": null, "speedupBasis": null });
        assert_eq!(metrics, wanted);
        as_of_now(&mut metrics);
        assert_eq!(metrics, wanted, "once");
    }
}
