//! The JSON of 0.3 over REST: the ProtoJSON of `a2a.v1`, in both directions and for both sides.
//!
//! The specification of 0.3 asks for objects that are "structurally equivalent" to those of JSON-RPC. The official
//! servers and clients use the ProtoJSON of the gRPC messages instead, and read nothing else. So requests and results
//! are read in both forms, and written in this one. It differs from the JSON of JSON-RPC in a few members, and is
//! translated from and to it: 0.3 is not worth a second set of readers and writers.
//!
//! What this form cannot express is listed in [`v0_3`](crate::a2a::v0_3).

mod card;
mod message;
mod request;
mod result;

use serde_json::{Map, Value};

pub(in crate::a2a) use self::{
    card::write_card,
    request::{read_send, read_task_name, read_webhook_name, read_webhook_request},
};
use super::{AT, params};

/// State names of JSON-RPC and of ProtoJSON, and the number that ProtoJSON takes, too.
const STATES: [(&str, &str, i64); 9] = [
    ("unknown", "TASK_STATE_UNSPECIFIED", 0),
    ("submitted", "TASK_STATE_SUBMITTED", 1),
    ("working", "TASK_STATE_WORKING", 2),
    ("completed", "TASK_STATE_COMPLETED", 3),
    ("failed", "TASK_STATE_FAILED", 4),
    ("canceled", "TASK_STATE_CANCELLED", 5),
    ("input-required", "TASK_STATE_INPUT_REQUIRED", 6),
    ("rejected", "TASK_STATE_REJECTED", 7),
    ("auth-required", "TASK_STATE_AUTH_REQUIRED", 8),
];

/// Role names of JSON-RPC and of ProtoJSON, and the number that ProtoJSON takes, too.
const ROLES: [(&str, &str, i64); 2] = [("user", "ROLE_USER", 1), ("agent", "ROLE_AGENT", 2)];

type Members = Map<String, Value>;
/// Translates an object.
type Translation = fn(Members) -> Members;

/// Replaces a name of JSON-RPC by that of ProtoJSON.
fn write_name(members: &mut Members, member: &str, table: &[(&str, &str, i64)]) {
    if let Some(Value::String(text)) = members.get_mut(member)
        && let Some((_, name, _)) = table.iter().find(|(plain, ..)| plain == text)
    {
        *text = (*name).to_owned();
    }
}

/// Replaces a name or a number of ProtoJSON by the name of JSON-RPC.
fn read_name(members: &mut Members, member: &str, table: &[(&str, &str, i64)]) {
    if let Some(value) = members.get_mut(member)
        && let Some((plain, ..)) =
            table.iter().find(|(_, name, number)| *value == **name || *value == *number)
    {
        *value = (*plain).into();
    }
}

/// The members of those names. Official peers refuse a member that they do not know.
fn pick(mut members: Members, names: &[&str]) -> Members {
    members.retain(|name, _| names.contains(&name.as_str()));
    members
}

/// The members after one that names their type, as JSON-RPC has it.
fn tagged(kind: &str, members: Members) -> Members {
    let mut out = Members::new();
    out.insert("kind".to_owned(), kind.into());
    out.extend(members.into_iter().filter(|(name, _)| name != "kind"));
    out
}

fn change(members: &mut Members, name: &str, change: impl FnOnce(Members) -> Members) {
    if let Some(Value::Object(inner)) = members.get_mut(name) {
        *inner = change(std::mem::take(inner));
    }
}

fn change_each(members: &mut Members, name: &str, change: Translation) {
    for item in members.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(inner) = item {
            *inner = change(std::mem::take(inner));
        }
    }
}

/// Renames a member, unless there is one of the new name.
fn rename(members: &mut Members, from: &str, to: &str) {
    if !members.contains_key(to)
        && let Some(value) = members.shift_remove(from)
    {
        members.insert(to.to_owned(), value);
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}
