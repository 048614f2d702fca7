//! Who is calling, and what the caller may do here.

use nuncio_engine::{
    AccessKind, Action, Engine,
    access::TASKS,
    admin::{ADMIN_SERVER, ADMIN_WEBHOOKS, MAX_DELIVERIES_PER_ACT},
};
use nuncio_wire::timestamp;
use serde_json::{Map, Value, json};

use super::{
    api::ConsoleRequest,
    events::{MAX_EVENTS, MAX_PREVIEW, PAGE_BYTES},
    live::{HEARTBEAT, MAX_TOPICS},
    problem::ConsoleProblem,
    session::{self, SESSION_PREFIX},
    tasks::MAX_ROWS,
};
use crate::auth;

/// The scopes that a screen asks for.
const SCOPES: [(Action, AccessKind, &str); 11] = [
    (Action::Read, AccessKind::A2a, TASKS),
    (Action::Write, AccessKind::A2a, TASKS),
    (Action::Read, AccessKind::Admin, "tasks"),
    (Action::Write, AccessKind::Admin, "tasks"),
    (Action::Execute, AccessKind::Batchtools, "batchtools"),
    (Action::Read, AccessKind::Admin, ADMIN_WEBHOOKS),
    (Action::Write, AccessKind::Admin, ADMIN_WEBHOOKS),
    (Action::Read, AccessKind::Admin, "audit"),
    (Action::Read, AccessKind::Admin, "tokens"),
    (Action::Write, AccessKind::Admin, "tokens"),
    (Action::Read, AccessKind::Admin, ADMIN_SERVER),
];

/// `GET /me`
pub(super) fn show(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let (caller, engine) = (&request.caller, request.engine());
    let bearer = auth::bearer(request.headers);
    let by = match bearer {
        Some(token) if token.starts_with(SESSION_PREFIX) => "session",
        Some(token) if token.bytes().filter(|byte| *byte == b'.').count() == 2 => "jwt",
        Some(_) if request.app.is_operator(request.headers) => "operator",
        Some(_) if request.app.authenticator_of(request.headers).is_some() => "token",
        _ if request.app.options.takes_client_certificates() => "certificate",
        _ => "local",
    };
    let expires = bearer.and_then(|token| session::expiry_of(engine, token)).map(timestamp::format);
    let may = SCOPES.map(|(action, kind, name)| {
        let scope = format!("{}:{}:{name}", action.name(), kind.name());
        let may = match name {
            ADMIN_SERVER => Engine::may_read_server(caller),
            _ => caller.may(action, kind, name),
        };
        (scope, Value::from(may))
    });
    // Only the agents that this caller may send to: a name of another is not its business.
    let names = engine.catalog().iter().map(|agent| agent.profile.name.clone());
    let usable = names.filter(|name| caller.may(Action::Execute, AccessKind::A2a, name));
    let sends = usable.map(|name| (format!("execute:a2a:{name}"), Value::from(true)));
    // Agents that only other nodes serve.
    let any = ("execute:a2a".to_owned(), Value::from(caller.may(Action::Execute, AccessKind::A2a, "*")));
    let owner = caller.owner();
    let scopes = caller.grants().to_string();
    Ok(json!({
        "caller": { "name": owner.split_once('/').map_or(owner, |(_, name)| name), "tenant": caller.tenant() },
        "by": by,
        "scopes": scopes.split_whitespace().collect::<Vec<_>>(),
        "may": Map::from_iter(may.into_iter().chain(sends).chain([any])),
        "expires": expires,
        "node": engine.node().0.to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "now": request.now(),
        "publicUrl": request.app.challenge.base_url(),
        "limits": {
            "page": MAX_ROWS,
            "events": MAX_EVENTS,
            "pageBytes": PAGE_BYTES,
            "preview": MAX_PREVIEW,
            "liveTopics": MAX_TOPICS,
            "deliveries": MAX_DELIVERIES_PER_ACT,
            "selection": engine.options().limits.selected_tasks,
            "selections": engine.options().limits.selections_per_caller,
            "selectionLifeMs": engine.options().limits.selection_life.as_millis() as u64,
            "heartbeatMs": HEARTBEAT.as_millis() as u64,
        },
    }))
}
