//! The resumption of disconnected streams (to 2025-11-25). An event id names the task and a position in its
//! log; the task stores what else the stream needs.

use std::sync::Arc;

use nuncio_engine::TaskId;
use nuncio_wire::{
    jsonrpc::RpcId,
    mcp::{McpFault, McpVersion, ProgressToken},
};

use super::{
    Mcp,
    call::OriginalRequest,
    client::McpClient,
    task_stream::{TaskStream, TaskStreamPurpose},
};

/// Events before the cursor that are read again to find the last progress number. Numbers must grow, also after
/// interrupted work has started over.
const LOOKED_AT: u64 = 1000;

/// The id of an event: of a call, or of `tasks/result`, which also includes its request.
pub(super) fn event_id(task: TaskId, seq: u64, result: Option<&RpcId>) -> String {
    match result {
        None => format!("{task}.{seq}"),
        Some(id) => {
            let id = id.as_json().bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("{task}.{seq}.{id}")
        }
    }
}

impl Mcp {
    /// The stream of a call, after the events that its client has seen. Only of this session's own call.
    pub(super) async fn resume(
        self: &Arc<Self>,
        client: &McpClient,
        cursor: &str,
    ) -> Result<TaskStream, McpFault> {
        let unknown = || {
            McpFault::invalid_request(format!("Last-Event-ID: {cursor:?} is not an event of this session"))
        };
        let mut words = cursor.splitn(3, '.');
        let (task, seq, request) = (words.next(), words.next(), words.next());
        let (Some(task), Some(Ok(seq))) = (task, seq.map(str::parse::<u64>)) else { return Err(unknown()) };
        let engine = &self.engine;
        let about =
            engine.task_summary(&client.caller, task).await.map_err(|error| {
                match McpFault::from(&error) {
                    fault if fault.status == 503 => fault,
                    _ => unknown(),
                }
            })?;
        let made = about.request.as_ref().and_then(OriginalRequest::read);
        // `tasks/result` may be requested from any session; a call belongs to the session that made it.
        let (id, purpose) = match (request, &made) {
            (Some(hex), _) if client.version == McpVersion::V2025_11_25 => {
                (request_in(hex).ok_or_else(unknown)?, TaskStreamPurpose::Result)
            }
            (None, Some(made)) if made.session == client.context() => {
                (RpcId::from_json(&made.id).ok_or_else(unknown)?, TaskStreamPurpose::Call)
            }
            _ => return Err(unknown()),
        };
        if seq > about.seq {
            return Err(unknown());
        }
        let token = made.and_then(|made| made.token).as_deref().and_then(ProgressToken::from_json);
        let named = (about.origin.id, about.origin.agent.clone());
        let mut stream = TaskStream::new(Arc::clone(self), client.clone(), id, named, token, purpose);
        if about.state.is_terminal() && seq == about.seq {
            // The response is the end of the log: a client that received it has everything.
            stream.close();
            return Ok(stream);
        }
        let known = engine.get(&client.caller, task).await?;
        stream.resume(&known, seq);
        let from = seq.saturating_sub(LOOKED_AT);
        stream.follow(Some(engine.follow(&client.caller, task, from).await?));
        Ok(stream)
    }
}

/// Parses the request from an event id.
fn request_in(hex: &str) -> Option<RpcId> {
    if !hex.len().is_multiple_of(2) || hex.len() > 2 * RpcId::MAX_LEN || !hex.is_ascii() {
        return None;
    }
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    RpcId::from_json(std::str::from_utf8(&bytes).ok()?)
}
