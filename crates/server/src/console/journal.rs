//! The journal of a task: its runs, and the steps, sleeps, calls and questions of its agent with their times.

use nuncio_engine::{
    AccessKind, Action,
    access::HOME_TENANT,
    clock::Timestamp,
    engine::{EffectKind, JournaledEffect, RunEnd, RunSpan},
};
use nuncio_wire::timestamp;
use serde_json::{Value, json};

use super::{
    api::ConsoleRequest,
    events::{MAX_EVENTS, PREVIEW},
    problem::ConsoleProblem,
};

/// `GET /tasks/{id}/journal`
pub(super) async fn show(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["after", "limit"])?;
    let after = request.number("after", u64::from(u32::MAX))?.unwrap_or(0) as usize;
    let limit = request.number("limit", MAX_EVENTS)?.unwrap_or(MAX_EVENTS) as usize;
    // What a step returned is the agent's own, and may hold what it fetched with the operator's keys: neither its caller
    // nor the administrator of another tenant may see it.
    let results = request.caller.tenant() == HOME_TENANT
        && request.caller.may(Action::Read, AccessKind::Admin, "tasks");
    let journal = request.engine().task_journal(&request.reader_of(id).await?, id).await?;
    let total = journal.effects.len();
    let shown = journal.effects.iter().skip(after).take(limit);
    let effects: Vec<Value> = shown.map(|effect| effect_view(effect, results)).collect();
    let next = (after + effects.len() < total).then_some(after + effects.len());
    Ok(json!({
        "runs": journal.runs.iter().map(run_view).collect::<Vec<_>>(),
        "moreRuns": journal.more_runs,
        "effects": effects,
        "total": total,
        "next": next,
        "results": results,
        "last": journal.last,
        "now": request.now(),
    }))
}

fn time(at: Option<Timestamp>) -> Option<String> {
    at.map(timestamp::format)
}

fn run_view(run: &RunSpan) -> Value {
    let end = match run.end {
        RunEnd::Running => "running",
        RunEnd::Parked => "parked",
        RunEnd::Ended => "ended",
        RunEnd::Lost => "lost",
        RunEnd::HandedBack => "handed-back",
    };
    json!({
        "epoch": run.epoch,
        "node": run.node.0.to_string(),
        "beganAt": timestamp::format(run.began),
        "endedAt": time(run.ended),
        "end": end,
        "attempts": run.attempts,
    })
}

fn effect_view(effect: &JournaledEffect, results: bool) -> Value {
    let mut view = match &effect.kind {
        EffectKind::Step { name, result } => {
            let (ok, text) = match result {
                Ok(value) => (true, value.to_string()),
                Err(why) => (false, why.clone()),
            };
            let mut view = json!({ "kind": "step", "name": name, "ok": ok });
            if results {
                view["size"] = text.len().into();
                view["result"] = text[..text.floor_char_boundary(PREVIEW as usize)].into();
            }
            view
        }
        EffectKind::Sleep { until } => json!({ "kind": "sleep", "until": timestamp::format(*until) }),
        EffectKind::Call { agent, task, state } => {
            json!({ "kind": "call", "agent": agent, "taskId": task.to_string(), "state": state })
        }
        EffectKind::RefusedCall { agent, why } => {
            json!({ "kind": "refused-call", "agent": agent, "why": why })
        }
        EffectKind::Question { text } => json!({ "kind": "question", "text": text }),
    };
    view["position"] = effect.position.as_str().into();
    view["beganAt"] = time(effect.began).into();
    view["endedAt"] = time(effect.ended).into();
    view
}
