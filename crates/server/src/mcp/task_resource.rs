//! A task as the resource `a2a://tasks/{taskId}`: the same state, history and results as in `GetTask`, in the
//! resource's own schema, with what the flows add.

use nuncio_engine::{
    AccessKind, Caller, Engine, Error, Task,
    access::TASKS,
    surface::{CachePolicy, ResourceContent, ResourceDescription, ResourceProfile, Surface},
};
use nuncio_wire::{a2a::write_task_resource, timestamp};
use serde_json::{Value, json};

/// The URI template of all tasks.
pub(super) const TEMPLATE: &str = "a2a://tasks/{taskId}";
const PREFIX: &str = "a2a://tasks/";
const SCHEMA: &str = "a2a-task";

/// The agents whose input may name a phase of a workflow.
const SPARC_AGENTS: [&str; 4] = ["researcher", "coder", "analyst", "coordinator"];
/// The SPARC agent that runs all phases.
const COORDINATOR: &str = "coordinator";
/// The phases of a workflow.
const PHASES: [&str; 5] = ["specification", "pseudocode", "architecture", "refinement", "completion"];
/// The artifact that holds the result of a batch.
const RESULT: &str = "result";
/// The agent whose tasks are batches.
const BATCH_AGENT: &str = "batch";

/// The profile of the template, for the list of resource templates.
pub(super) fn template() -> ResourceProfile {
    ResourceProfile::new(TEMPLATE, "task")
        .described(
            "A task with its state, history and results so far; messages and artifacts as A2A 1.0 has them.",
        )
        .media_type("application/json")
}

/// The URI of a task.
pub(super) fn task_uri(task: &str) -> String {
    format!("{PREFIX}{task}")
}

/// Parses the task's id from a URI.
pub(super) fn task_of(uri: &str) -> Option<&str> {
    uri.strip_prefix(PREFIX).filter(|id| !id.is_empty() && !id.contains('/'))
}

/// The content of the resource, under the URI of the request.
pub(super) async fn content(
    engine: &Engine,
    caller: &Caller,
    uri: &str,
    task: &Task,
) -> Result<ResourceContent, Error> {
    let optimized = was_batched(engine, task).await?;
    let mut json = Vec::with_capacity(1024);
    write_task_resource(&mut json, task, |metadata| {
        metadata.value("sparcPhase", &sparc_phase(task));
        metadata.value("batchtoolsOptimized", &optimized);
        metadata.value("agentType", &task.origin.agent);
    });
    let policy = if task.state.is_terminal() { CachePolicy::Dynamic } else { CachePolicy::Realtime };
    let modified = timestamp::format(task.modified_at());
    let described = ResourceDescription {
        kind: AccessKind::A2a,
        name: TASKS,
        schema: SCHEMA,
        modified: &modified,
        policy,
    };
    // Canonical, however the request spelled it: one task, one id.
    let id = task_uri(&task.origin.public_id());
    let meta = Some(engine.catalog().surface().metadata(caller, &id, &described));
    let content = ResourceContent::text(uri, "application/json", String::from_utf8_lossy(&json));
    Ok(ResourceContent { meta, ..content })
}

/// The workflow phase of the task: the one that a coordinator is in, the one that a SPARC agent was given, or
/// that of the task's attributes.
fn sparc_phase(task: &Task) -> Option<&str> {
    let said = attribute(task, "sparcPhase").and_then(Value::as_str);
    if task.origin.agent == COORDINATOR {
        let at = task.progress.as_ref().and_then(|(_, progress)| progress.data.as_ref());
        let at = at.and_then(|data| data["phase"].as_str());
        // A terminal task has no progress; use the last phase that has a result.
        let shown = || {
            let names = task.artifacts.iter().rev().filter_map(|artifact| artifact.id.split('-').next());
            names.into_iter().find_map(|name| PHASES.into_iter().find(|phase| *phase == name))
        };
        return at.or_else(shown).or(said);
    }
    let asked = || {
        let input = task.history.first().and_then(|message| message.data())?;
        input.get("phase").and_then(Value::as_str)
    };
    said.or_else(|| SPARC_AGENTS.contains(&&*task.origin.agent).then(asked).flatten())
}

/// Whether the batch engine ran the task: it is an accepted batch, or an operation of one. Attributes set by
/// the caller do not count.
async fn was_batched(engine: &Engine, task: &Task) -> Result<bool, Error> {
    if task.origin.agent == BATCH_AGENT {
        let worked = task.progress.is_some() || task.artifacts.iter().any(|artifact| artifact.id == RESULT);
        return Ok(worked);
    }
    Ok(engine.calling_agent(task.origin.id).await?.is_some_and(|agent| agent == BATCH_AGENT))
}

fn attribute<'a>(task: &'a Task, name: &str) -> Option<&'a Value> {
    task.origin.metadata.as_ref().and_then(|metadata| metadata.get(name))
}

/// Publishes the schema.
pub(super) fn publish(surface: &Surface) {
    surface.add_schema(SCHEMA, schema());
}

fn schema() -> Value {
    let part = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "raw": { "type": "string", "description": "Bytes, in base64." },
            "url": { "type": "string" },
            "data": {},
            "metadata": { "type": "object" },
            "filename": { "type": "string" },
            "mediaType": { "type": "string" },
        },
    });
    let message = json!({
        "type": "object",
        "properties": {
            "messageId": { "type": "string" },
            "contextId": { "type": "string" },
            "taskId": { "type": "string" },
            "role": { "enum": ["ROLE_USER", "ROLE_AGENT"] },
            "parts": { "type": "array", "items": { "$ref": "#/$defs/part" } },
            "metadata": { "type": "object" },
            "extensions": { "type": "array", "items": { "type": "string" } },
            "referenceTaskIds": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["messageId", "role", "parts"],
    });
    let artifact = json!({
        "type": "object",
        "properties": {
            "artifactId": { "type": "string" },
            "name": { "type": "string" },
            "description": { "type": "string" },
            "parts": { "type": "array", "items": { "$ref": "#/$defs/part" } },
            "metadata": { "type": "object" },
            "extensions": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["artifactId", "parts"],
    });
    json!({
        "title": "A task",
        "$defs": { "part": part, "message": message, "artifact": artifact },
        "type": "object",
        "properties": {
            "taskId": { "type": "string" },
            "contextId": { "type": "string" },
            "status": {
                "type": "object",
                "properties": {
                    "state": { "enum": [
                        "submitted", "working", "input-required", "auth-required",
                        "completed", "failed", "canceled", "rejected",
                    ] },
                    "timestamp": { "type": "string", "format": "date-time" },
                    "message": { "anyOf": [{ "$ref": "#/$defs/message" }, { "type": "null" }] },
                },
                "required": ["state", "timestamp", "message"],
                "additionalProperties": false,
            },
            "history": { "type": "array", "items": { "$ref": "#/$defs/message" } },
            "artifacts": { "type": "array", "items": { "$ref": "#/$defs/artifact" } },
            "metadata": {
                "type": "object",
                "properties": {
                    "sparcPhase": { "type": ["string", "null"] },
                    "batchtoolsOptimized": { "type": "boolean" },
                    "agentType": { "type": "string" },
                },
                "required": ["sparcPhase", "batchtoolsOptimized", "agentType"],
                "additionalProperties": false,
            },
        },
        "required": ["taskId", "contextId", "status", "history", "artifacts", "metadata"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{
        Event, Message, Role, TaskId,
        clock::Timestamp,
        event::{Entry, Progress},
        task::Origin,
    };

    use super::*;

    #[test]
    fn a_coordinators_task_is_about_the_phase_that_it_is_at() {
        let id = TaskId::parse("0190a5a5-0000-7000-8000-000000000000");
        let mut task = Task::new(Origin {
            id: id.unwrap_or_else(|| panic!("an id")),
            client_id: None,
            context: "c".into(),
            agent: COORDINATOR.into(),
            owner: "local".into(),
            dialect: "a2a/1.0".into(),
            metadata: json!({ "sparcPhase": "specification" }).as_object().cloned(),
            trace: None,
        });
        task.apply(&Entry(Timestamp(1), Event::Message(Message::text("m", Role::User, "go"))));
        assert_eq!(
            sparc_phase(&task),
            Some("specification"),
            "as its caller says, while nothing else is known"
        );
        for phase in ["architecture", "refinement"] {
            let data = Some(json!({ "type": "sparc_phase_started", "phase": phase }));
            let progress = Progress { done: 2.0, total: Some(5.0), text: None, data };
            task.apply(&Entry(Timestamp(2), Event::Progress(progress)));
            assert_eq!(sparc_phase(&task), Some(phase));
        }
    }
}
