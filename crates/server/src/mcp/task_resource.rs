//! A task as the resource `a2a://tasks/{taskId}`: the same state, history and results as in `GetTask`, in the
//! resource's own schema, with what the flows add.

use nuncio_engine::{
    AccessKind, Caller, Engine, Error, Task, TaskFacts,
    access::TASKS,
    surface::{CachePolicy, ResourceContent, ResourceDescription, ResourceProfile, Surface},
};
use nuncio_wire::{a2a::write_task_resource, timestamp};
use serde_json::{Value, json};

/// The URI template of all tasks.
pub(super) const TEMPLATE: &str = "a2a://tasks/{taskId}";
const PREFIX: &str = "a2a://tasks/";
const SCHEMA: &str = "a2a-task";

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
pub(crate) fn task_of(uri: &str) -> Option<&str> {
    uri.strip_prefix(PREFIX).filter(|id| !id.is_empty() && !id.contains('/'))
}

/// The content of the resource, under the URI of the request.
pub(super) async fn content(
    engine: &Engine,
    caller: &Caller,
    uri: &str,
    task: &Task,
) -> Result<ResourceContent, Error> {
    let facts = facts_of(engine, task).await?;
    let mut json = Vec::with_capacity(1024);
    write_task_resource(&mut json, task, |metadata| {
        metadata.value("sparcPhase", &facts.phase);
        metadata.value("batchtoolsOptimized", &facts.batched);
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

/// What the task's agent, and the agent that called it, say of the task. A phase that neither knows may be an attribute
/// that the task was created with; whether a task is batched is not for its caller to say.
async fn facts_of(engine: &Engine, task: &Task) -> Result<TaskFacts, Error> {
    let catalog = engine.catalog();
    let own =
        catalog.get(&task.origin.agent).map(|agent| agent.agent.describe_task(task)).unwrap_or_default();
    let by_caller = match engine.calling_agent(task.origin.id).await? {
        Some(name) => {
            catalog.get(&name).map(|agent| agent.agent.describe_called_task(task)).unwrap_or_default()
        }
        None => TaskFacts::default(),
    };
    let attribute = || attribute(task, "sparcPhase").and_then(Value::as_str).map(str::to_owned);
    Ok(TaskFacts {
        phase: own.phase.or_else(attribute).or(by_caller.phase),
        batched: own.batched || by_caller.batched,
    })
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
