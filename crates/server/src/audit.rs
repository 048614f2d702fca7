//! The audit as administrators read it: newest first, in pages. The engine's access control writes it.
//!
//! An administrator of the home tenant sees all of it, any other only the lines of its own tenant.

use nuncio_engine::{
    AccessKind, Action, Caller, Engine, Error,
    knowledge::{AuditEntry, AuditPage, AuditQuery},
};
use nuncio_wire::timestamp;
use serde_json::{Map, Value, json};

/// The URI template of the audit as an MCP resource.
pub const URI: &str = "audit://log{?tenant,caller,type,resource,refused,since,until,before,limit}";
/// Default lines per page.
const USUAL: usize = 100;
/// Maximum lines per page.
pub const MOST: usize = 1_000;

/// Parses a query from the variables of [`URI`], given as text.
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
            "since" | "until" => {
                let wrong = || format!("{name}: {text:?} is no time: write it as 2026-01-31T12:00:00Z");
                let time = Some(timestamp::parse(text).ok_or_else(wrong)?);
                *(if name == "since" { &mut query.since } else { &mut query.until }) = time;
            }
            "resource" => query.resource = Some(text.to_owned()).filter(|text| !text.is_empty()),
            "before" => query.before = Some(whole()?),
            "limit" => query.limit = usize::try_from(whole()?).unwrap_or(usize::MAX),
            _ => {
                return Err(format!(
                    "{name}: there is no such filter: there are tenant, caller, type, resource, refused, since, until, before, limit"
                ));
            }
        }
    }
    match query.limit {
        1..=MOST => Ok(query),
        _ => Err(format!("limit: expected 1 to {MOST}")),
    }
}

/// A page of the audit, for a caller that may read it.
pub async fn read(engine: &Engine, caller: &Caller, query: AuditQuery) -> Result<Value, Error> {
    Ok(page(&engine.audit_log(caller, query).await?))
}

/// Renders a page as JSON; its `next` is the `before` of the following page.
pub fn page(page: &AuditPage) -> Value {
    let entries: Vec<Value> = page.entries.iter().map(|(number, line)| entry(*number, line)).collect();
    json!({ "entries": entries, "next": page.next })
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

/// The JSON Schema of a page.
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
            "next": { "type": ["integer", "null"], "description": "What `before` has to be for the next page; null on the last. A page for which many lines were read ends early: it may be shorter than its limit, or empty." },
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
