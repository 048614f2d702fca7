//! The audit as administrators read it: newest first, a page at a time. Written by the engine's guard.
//!
//! An administrator of the home tenant sees all of it, any other only what happened in its own tenant.

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Engine, Error,
    access::HOME_TENANT,
    knowledge::{AuditEntry, AuditQuery},
};
use nuncio_wire::timestamp;
use serde_json::{Map, Value, json};

/// Where it is read over MCP.
pub const URI: &str = "audit://log{?tenant,caller,type,refused,since,before,limit}";
/// Lines on a page, unless it is said otherwise.
const USUAL: usize = 100;
/// Lines on the longest page.
pub const MOST: usize = 1_000;

/// Reads what is asked for: the variables of [`URI`], as text.
pub fn read_query(arguments: &Map<String, Value>) -> Result<AuditQuery, String> {
    let mut query = AuditQuery { limit: USUAL, ..AuditQuery::default() };
    for (name, value) in arguments {
        let text = value.as_str().unwrap_or_default();
        let whole =
            || text.parse::<u64>().map_err(|_| format!("{name}: expected a whole number, not {text:?}"));
        match name.as_str() {
            "tenant" => query.tenant = Some(text.to_owned()),
            "caller" => query.caller = Some(text.to_owned()),
            "type" => {
                let kind = AccessKind::ALL.into_iter().find(|kind| kind.name() == text);
                let names = AccessKind::ALL.map(AccessKind::name).join(", ");
                query.kind = Some(kind.ok_or_else(|| format!("type: {text:?} is none of {names}"))?);
            }
            "refused" => {
                query.refused = match text {
                    "true" | "" => true,
                    "false" => false,
                    _ => return Err(format!("refused: expected true or false, not {text:?}")),
                };
            }
            "since" => {
                let time = timestamp::parse(text);
                let wrong = || format!("since: {text:?} is no time: write it as 2026-01-31T12:00:00Z");
                query.since = Some(time.ok_or_else(wrong)?);
            }
            "before" => query.before = Some(whole()?),
            "limit" => query.limit = usize::try_from(whole()?).unwrap_or(usize::MAX),
            _ => {
                return Err(format!(
                    "{name}: there is no such filter: there are tenant, caller, type, refused, since, before, limit"
                ));
            }
        }
    }
    match query.limit {
        1..=MOST => Ok(query),
        _ => Err(format!("limit: expected 1 to {MOST}")),
    }
}

/// A page of the audit, for a caller who may read it.
pub async fn read(engine: &Engine, caller: &Caller, mut query: AuditQuery) -> Result<Value, Error> {
    let (action, kind, operation) = (Action::Read, AccessKind::Admin, "audit.read");
    engine
        .allow(caller, &AccessRequest { action, kind, name: "audit", operation, resource: &"audit://log" })?;
    if caller.tenant() != HOME_TENANT {
        let own = query.tenant.as_deref().is_none_or(|tenant| tenant == caller.tenant());
        if !own {
            return Ok(page(&[], query.limit));
        }
        query.tenant = Some(caller.tenant().to_owned());
    }
    engine.flush_audit().await;
    let limit = query.limit;
    Ok(page(&engine.store().knowledge().audit(&query).await?, limit))
}

/// A page as it is shown; `next` is what `before` has to say for the one after it.
pub fn page(lines: &[(u64, AuditEntry)], limit: usize) -> Value {
    let next = lines.last().filter(|_| lines.len() >= limit).map(|(number, _)| *number);
    json!({ "entries": lines.iter().map(|(number, line)| entry(*number, line)).collect::<Vec<_>>(), "next": next })
}

fn entry(number: u64, line: &AuditEntry) -> Value {
    json!({
        "number": number,
        "at": timestamp::format(line.at),
        "tenant": line.tenant,
        "caller": line.caller,
        "token": line.credential,
        "from": line.from,
        "operation": line.operation,
        "action": line.action.name(),
        "type": line.kind.name(),
        "resource": line.resource,
        "allowed": line.refused.is_none(),
        "reason": line.refused,
    })
}

/// What a page looks like.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    let maybe = json!({ "type": ["string", "null"] });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A page of the audit, newest line first",
        "type": "object",
        "required": ["entries", "next"],
        "additionalProperties": false,
        "properties": {
            "next": { "type": ["integer", "null"], "description": "What `before` has to be for the next page; null on the last." },
            "entries": { "type": "array", "items": {
                "type": "object",
                "required": ["number", "at", "tenant", "caller", "token", "from", "operation", "action", "type", "resource", "allowed", "reason"],
                "additionalProperties": false,
                "properties": {
                    "number": { "type": "integer", "minimum": 0 },
                    "at": { "type": "string", "format": "date-time" },
                    "tenant": text,
                    "caller": text,
                    "token": maybe,
                    "from": maybe,
                    "operation": text,
                    "action": { "enum": Action::ALL.map(Action::name) },
                    "type": { "enum": AccessKind::ALL.map(AccessKind::name) },
                    "resource": text,
                    "allowed": { "type": "boolean" },
                    "reason": maybe,
                },
            } },
        },
    })
}
