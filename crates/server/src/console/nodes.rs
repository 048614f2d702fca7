//! The nodes that share the store, for the operator.

use nuncio_engine::engine::NodeStatus;
use nuncio_wire::timestamp;
use serde_json::{Value, json};

use super::{api::ConsoleRequest, problem::ConsoleProblem};

/// `GET /nodes`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let engine = request.engine();
    let listed = engine.nodes(&request.caller).await?;
    Ok(json!({
        "nodes": listed.nodes.iter().map(node_view).collect::<Vec<_>>(),
        "more": listed.more,
        "shared": engine.is_shared(),
        "leaseMs": engine.options().lease.as_millis() as u64,
        "now": request.now(),
    }))
}

fn node_view(node: &NodeStatus) -> Value {
    let about = &node.description;
    json!({
        "node": node.id.0.to_string(),
        "this": node.is_this,
        "address": about.address,
        "version": about.version,
        "startedAt": timestamp::format(about.started_at),
        "running": about.running,
        "queued": about.queued,
        "heartbeatAt": timestamp::format(about.beaten_at),
        "aliveUntil": timestamp::format(about.alive_until),
        "gone": node.gone_since.is_some(),
        "goneSince": node.gone_since.map(timestamp::format),
        "stopped": about.stopped_at.is_some(),
    })
}
