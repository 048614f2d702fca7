//! The one route: parses a JSON-RPC request and answers it from wherever tasks are kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use uuid::Uuid;

use crate::{log_store::LogStore, stream, task_json};

/// Where tasks are kept.
pub(crate) enum Tasks {
    /// L0.
    Memory(Mutex<HashMap<Uuid, Arc<str>>>),
    /// L2.
    Log(LogStore),
}

/// Answers one request.
pub(crate) async fn answer(State(tasks): State<Arc<Tasks>>, body: Bytes) -> Response {
    match reply(&tasks, &body).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn reply(tasks: &Tasks, body: &[u8]) -> anyhow::Result<Response> {
    let request: Value = serde_json::from_slice(body)?;
    let (id, params) = (&request["id"], &request["params"]);
    let text = params["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    match request["method"].as_str() {
        Some("SendMessage") => {
            let (task, context) = (Uuid::now_v7(), Uuid::now_v7());
            let json = task_json::completed(&task.to_string(), &context.to_string(), text);
            let result = format!(r#"{{"task":{json}}}"#);
            tasks.put(task, context, json).await?;
            Ok(result_of(id, &result))
        }
        Some("GetTask") => {
            let task = Uuid::parse_str(params["id"].as_str().unwrap_or_default())?;
            Ok(result_of(id, tasks.get(task)?.as_deref().unwrap_or("null")))
        }
        Some("SendStreamingMessage") => Ok(stream::events(id, text.starts_with("wait"))),
        method => anyhow::bail!("no such method: {method:?}"),
    }
}

pub(crate) fn result_of(id: &Value, result: &str) -> Response {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl Tasks {
    async fn put(&self, task: Uuid, context: Uuid, json: String) -> anyhow::Result<()> {
        match self {
            Self::Log(log) => log.put(task, context, json).await,
            Self::Memory(map) => {
                map.lock().unwrap_or_else(PoisonError::into_inner).insert(task, json.into());
                Ok(())
            }
        }
    }

    fn get(&self, task: Uuid) -> anyhow::Result<Option<Arc<str>>> {
        match self {
            Self::Log(log) => log.get(task),
            Self::Memory(map) => Ok(map.lock().unwrap_or_else(PoisonError::into_inner).get(&task).cloned()),
        }
    }
}
