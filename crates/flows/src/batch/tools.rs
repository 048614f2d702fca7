//! The batch tools: submit, read, pause, cancel and repeat a batch, and change the settings.
//!
//! A batch of another caller is answered like one that does not exist, with the engine's own error.

use std::{collections::HashSet, sync::Arc};

use nuncio_engine::{
    Caller, Engine, Error, List, Message, Part, Role, State, Submit, Surface, Task,
    access::Action,
    surface::{
        ContentBlock, HandlerError, HandlerReply, HandlerRequest, SchemaError, ToolOutput, ToolProfile, tool,
    },
};
use serde_json::{Map, Value, json};

use super::{
    AGENT, BatchCore, QUEUE_URI, SETTINGS_URI,
    agent::RESULT,
    control::{self, Control},
    input::{BatchInput, Strategy, check_patterns},
    may_configure, metrics,
    report::OperationCounts,
    resources,
    running_batch::BatchProgress,
    schemas, settings,
};
use crate::resource::iso;

/// Operations that `batch_status` returns by default.
const PAGE: usize = 100;
/// Maximum operations that `batch_status` returns.
const MAX_PAGE: usize = 1_000;

type BatchToolResult = Result<HandlerReply<ToolOutput>, HandlerError>;

/// The state that all batch tools share.
#[derive(Clone)]
struct BatchTools {
    core: Arc<BatchCore>,
    engine: Engine,
}

/// Registers the tools on a surface.
pub(crate) fn install(core: &Arc<BatchCore>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let desk = BatchTools { core: Arc::clone(core), engine: engine.clone() };
    macro_rules! offer {
        ($profile:expr, $method:ident) => {{
            let desk = desk.clone();
            surface.add_tool(tool($profile, move |request| {
                let desk = desk.clone();
                async move { desk.$method(request).await }
            }))?;
        }};
    }
    let read_only = |mut profile: ToolProfile| {
        profile.annotations.insert("readOnlyHint".into(), true.into());
        profile
    };
    offer!(
        ToolProfile::new(
            "batch_submit",
            "Begins a batch of operations as a durable task and answers at once with its id. Follow it with \
             batch_status, or as the task of that id. Refused with the reason where the queue is full; while the machine is \
             too busy it waits.",
        )
        .input(schemas::batch(&core.options))
        .output(schemas::submitted()),
        submit
    );
    offer!(
        read_only(
            ToolProfile::new(
                "batch_status",
                "How far a batch is, and what it came to; with operations: true what became of each operation, in pages.",
            )
            .input(schemas::named(json!({
                "operations": { "type": "boolean" },
                "offset": { "type": "integer", "minimum": 0 },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_PAGE },
            })))
            .output(schemas::status())
        ),
        status
    );
    offer!(
        ToolProfile::new("batch_cancel", "Ends a batch. What is finished stays done; the rest is skipped.")
            .input(schemas::named(json!({})))
            .output(schemas::changed()),
        cancel
    );
    offer!(
        ToolProfile::new(
            "batch_pause",
            "Lets no operation of a batch begin until batch_resume; those that run go on. Also holds after a restart.",
        )
        .input(schemas::named(json!({})))
        .output(schemas::changed()),
        pause
    );
    offer!(
        ToolProfile::new("batch_resume", "Lets a paused batch go on.")
            .input(schemas::named(json!({})))
            .output(schemas::changed()),
        resume
    );
    offer!(
        ToolProfile::new(
            "batch_retry",
            "Begins a new batch of only those operations of an ended one that failed or were skipped.",
        )
        .input(schemas::named(json!({})))
        .output(schemas::submitted()),
        retry
    );
    offer!(
        ToolProfile::new(
            "batch_configure",
            "Changes the settings of the batch engine, for all callers and at once; what is not given stays.",
        )
        .input(schemas::settings(false))
        .output(schemas::settings(true)),
        configure
    );
    offer!(
        read_only(
            ToolProfile::new("batch_list", "Your batches, newest first, in pages.")
                .input(schemas::optional(json!({
                    "status": { "enum": ["submitted", "working", "completed", "failed", "canceled", "rejected"] },
                    "pageSize": { "type": "integer", "minimum": 1, "maximum": 100 },
                    "pageToken": { "type": "string", "maxLength": 64 },
                })))
                .output(schemas::list())
        ),
        list
    );
    Ok(())
}

impl BatchTools {
    async fn submit(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Execute, "batch.submit", QUEUE_URI)?;
        self.begin(&request.caller, request.arguments).await
    }

    async fn begin(&self, caller: &Caller, arguments: Map<String, Value>) -> BatchToolResult {
        let value = Value::Object(arguments);
        let options = &self.core.options;
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
        let mut said = json!({
            "batchId": id,
            "status": state_name(task.state),
            "operations": count,
            "uri": format!("a2a://tasks/{id}"),
            "waiting": null,
        });
        if task.state.is_terminal() {
            let words = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
            if task.state != State::Rejected {
                return tool_reply(said, words);
            }
            let text = format!("Batch {id} was rejected: {words}");
            said["reason"] = json!(words);
            let content = vec![ContentBlock::Text(text)];
            return Ok(HandlerReply::Done(ToolOutput { content, structured: Some(said), is_error: true }));
        }
        let control = Control::new(caller.owner(), &input, &operations, self.engine.clock().now());
        control::make(&self.engine, caller.tenant(), task.origin.id, &control).await?;
        self.engine.notify_changed(caller.tenant(), QUEUE_URI);
        match self.core.overload() {
            None => tool_reply(said, format!("Batch {id} has begun.")),
            Some(why) => {
                let text = format!("Batch {id} is admitted and waits: {why}.");
                said["waiting"] = json!(why);
                tool_reply(said, text)
            }
        }
    }

    async fn status(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Read, "batch.status", QUEUE_URI)?;
        let task = self.find(&request).await?;
        let id = task.origin.id;
        let result = result_of(&task);
        let control = match task.state.is_terminal() {
            true => None,
            false => {
                control::read(&self.engine, request.caller.tenant(), id).await?.map(|record| record.value)
            }
        };
        let mut said = match result {
            Some(result) => {
                let mut said = result.clone();
                if let Some(said) = said.as_object_mut() {
                    said.remove("operations");
                }
                as_of_now(&mut said["metrics"]);
                said
            }
            None => json!({ "batchId": id.to_string(), "counts": unknown_counts(&task), "metrics": null }),
        };
        said["status"] = json!(state_name(task.state));
        said["paused"] = json!(control.as_ref().is_some_and(|control| control.paused));
        said["estimatedDuration"] = Value::Null;
        said["waiting"] = json!(control.as_ref().and_then(|control| control.waiting.as_ref()));
        if let Some(words) = task.status_message.as_ref().map(Message::joined_text).filter(|w| !w.is_empty())
        {
            said["message"] = json!(words);
        }
        if let Some(control) = &control {
            said["strategy"] = json!(control.strategy.name());
            said["type"] = json!(control.kind);
            said["priority"] = json!(control.priority.name());
            let cap = self.core.settings().max_concurrency;
            said["estimatedDuration"] = json!(resources::estimate(&self.core, id, control, cap));
            said["done"] = json!(task.progress.as_ref().map_or(0.0, |(_, progress)| progress.done));
        }
        let live = self.core.live(id);
        if let Some(live) = live.as_ref().filter(|_| result.is_none()) {
            let tally = live.tally();
            said["counts"] = json!({
                "total": live.operations.len(),
                "succeeded": tally.succeeded,
                "failed": tally.failed,
                "skipped": tally.skipped,
            });
            said["done"] = json!(tally.succeeded + tally.failed + tally.skipped);
        }
        if request.arguments.get("operations") == Some(&Value::Bool(true)) {
            let number = |name: &str| request.arguments.get(name).and_then(Value::as_u64).map(|n| n as usize);
            let (from, count) =
                (number("offset").unwrap_or(0), number("limit").unwrap_or(PAGE).min(MAX_PAGE));
            let (page, total) = match (result.and_then(|result| result["operations"].as_array()), &live) {
                (Some(all), _) => (all.iter().skip(from).take(count).cloned().collect(), all.len()),
                (None, Some(live)) => (live.operations_json(from, count), live.operations.len()),
                (None, None) => (vec![], 0),
            };
            if from + page.len() < total {
                said["nextOffset"] = json!(from + page.len());
            }
            said["operations"] = json!(page);
        }
        let counts = &said["counts"];
        let text = format!(
            "Batch {id} is {}: {} succeeded, {} failed, {} skipped of {}.",
            state_name(task.state),
            counts["succeeded"],
            counts["failed"],
            counts["skipped"],
            counts["total"]
        );
        tool_reply(said, text)
    }

    async fn cancel(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Write, "batch.cancel", QUEUE_URI)?;
        let task = self.find(&request).await?;
        let id = task.origin.id.to_string();
        let task = self.engine.cancel(&request.caller, &id).await?;
        let status = state_name(task.state);
        tool_reply(
            json!({ "batchId": id, "status": status, "paused": false }),
            format!("Batch {id} is {status}."),
        )
    }

    async fn pause(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Write, "batch.pause", QUEUE_URI)?;
        self.set_paused(&request, true).await
    }

    async fn resume(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Write, "batch.resume", QUEUE_URI)?;
        self.set_paused(&request, false).await
    }

    async fn set_paused(&self, request: &HandlerRequest, paused: bool) -> BatchToolResult {
        let task = self.find(request).await?;
        let (id, tenant) = (task.origin.id, request.caller.tenant());
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
        let said = json!({ "batchId": id.to_string(), "status": state_name(task.state), "paused": paused });
        tool_reply(said, format!("Batch {id} is {word}."))
    }

    async fn retry(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Execute, "batch.retry", QUEUE_URI)?;
        let task = self.find(&request).await?;
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
        self.begin(&request.caller, again).await
    }

    async fn configure(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Write, "batch.configure", SETTINGS_URI)?;
        if !may_configure(request.caller.tenant()) {
            return Err(HandlerError::Failed(
                "the settings hold for all tenants and are changed by the operator's own".into(),
            ));
        }
        let known = settings::change(&self.engine, &self.core.options.settings, &request.arguments).await?;
        // Notifies the subscribers on this node; other nodes poll for the change.
        self.core.apply_settings(&self.engine, &known);
        let said = serde_json::to_value(&known.settings);
        let said = said.map_err(|error| HandlerError::Internal(error.to_string()))?;
        tool_reply(said, format!("{} operations run at once.", known.settings.max_concurrency))
    }

    async fn list(self, request: HandlerRequest) -> BatchToolResult {
        resources::allow(&self.engine, &request.caller, Action::Read, "batch.list", QUEUE_URI)?;
        let state =
            request.text("status").and_then(|name| State::ALL.into_iter().find(|s| state_name(*s) == name));
        let list = List {
            agent: Some(AGENT.into()),
            state,
            page_token: request.text("pageToken").map(str::to_owned),
            page_size: request.arguments.get("pageSize").and_then(Value::as_u64).unwrap_or(20) as usize,
            without_artifacts: true,
            ..List::default()
        };
        let listed = self.engine.list(&request.caller, list).await?;
        let queue = control::list(&self.engine, Some(request.caller.tenant())).await?;
        let batches: Vec<Value> = listed
            .tasks
            .iter()
            .map(|task| {
                let id = task.origin.id.to_string();
                // Taken from the last progress event: the result may be large, and is not read.
                let (done, all) = match &task.progress {
                    Some((_, progress)) => (Some(progress.done), progress.total),
                    None => (None, None),
                };
                json!({
                    "batchId": id,
                    "status": state_name(task.state),
                    "done": done,
                    "total": all,
                    "counts": self.counts(task),
                    "waiting": queue.iter().find_map(|(id, control)| {
                        control.waiting.as_ref().filter(|_| *id == task.origin.id)
                    }),
                    "changed": iso(task.status_at),
                    "uri": format!("a2a://tasks/{id}"),
                })
            })
            .collect();
        let (totals, _) = metrics::totals(&self.engine, request.caller.tenant()).await?;
        let (before, after) = totals.bytes().unzip();
        let text = format!("{} of {} batches.", batches.len(), listed.total);
        let mut said = json!({
            "batches": batches, "total": listed.total, "bytesBefore": before, "bytesAfter": after,
        });
        if let Some(token) = listed.next_page_token {
            said["nextPageToken"] = json!(token);
        }
        tool_reply(said, text)
    }

    /// The outcomes of a batch's operations, as far as they are known without reading its result.
    fn counts(&self, task: &Task) -> Value {
        if let Some(live) = self.core.live(task.origin.id) {
            let tally = live.tally();
            let total = live.operations.len() as u64;
            let BatchProgress { succeeded, failed, skipped, .. } = tally;
            return OperationCounts { total, succeeded, failed, skipped }.to_json();
        }
        let sentence = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
        OperationCounts::in_sentence(&sentence).map_or_else(|| unknown_counts(task), OperationCounts::to_json)
    }

    /// The batch that a request names, if the caller owns it.
    async fn find(&self, request: &HandlerRequest) -> Result<Arc<Task>, HandlerError> {
        let name = request.text("batchId").unwrap_or_default();
        let missing = || HandlerError::Failed(format!("there is no batch {name}"));
        match self.engine.get(&request.caller, name).await {
            Ok(task) if task.origin.agent == AGENT => Ok(task),
            Ok(_) | Err(Error::NoSuchTask(_)) => Err(missing()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The result of a batch that has ended.
fn result_of(task: &Task) -> Option<&Value> {
    let artifact = task.artifacts.iter().find(|artifact| artifact.id == RESULT)?;
    artifact.parts.iter().find_map(|part| match &part.content {
        nuncio_engine::Content::Data(value) => Some(value),
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

fn unknown_counts(task: &Task) -> Value {
    let total = task.progress.as_ref().and_then(|(_, progress)| progress.total).map(|total| total as u64);
    json!({ "total": total, "succeeded": null, "failed": null, "skipped": null })
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Submitted => "submitted",
        State::Working => "working",
        State::InputRequired => "input-required",
        State::AuthRequired => "auth-required",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Canceled => "canceled",
        State::Rejected => "rejected",
    }
}

fn tool_reply(value: Value, text: String) -> BatchToolResult {
    let content = vec![ContentBlock::Text(text)];
    Ok(HandlerReply::Done(ToolOutput { content, structured: Some(value), is_error: false }))
}

#[cfg(test)]
mod tests {
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
