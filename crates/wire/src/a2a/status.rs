//! Task states and their names, and the status object.

use nuncio_engine::{
    clock::Timestamp,
    content::{Message, Part, Role},
    event::{LogLine, Progress},
    task::State,
};
use serde::Deserialize;
use serde_json::{Map, Value, json as value};

use super::{
    Dialect, TaskIds,
    input::{EnumValue, JsonPath, MalformedInput},
    message::{self, MessageIn},
};
use crate::{json, timestamp};

/// State names and numbers of 1.0.
const PROTO: [(State, &str, i64); 8] = [
    (State::Submitted, "TASK_STATE_SUBMITTED", 1),
    (State::Working, "TASK_STATE_WORKING", 2),
    (State::InputRequired, "TASK_STATE_INPUT_REQUIRED", 6),
    (State::AuthRequired, "TASK_STATE_AUTH_REQUIRED", 8),
    (State::Completed, "TASK_STATE_COMPLETED", 3),
    (State::Failed, "TASK_STATE_FAILED", 4),
    (State::Canceled, "TASK_STATE_CANCELED", 5),
    (State::Rejected, "TASK_STATE_REJECTED", 7),
];

/// State names of 0.3, without numbers.
const PLAIN: [(State, &str, i64); 8] = [
    (State::Submitted, "submitted", i64::MIN),
    (State::Working, "working", i64::MIN),
    (State::InputRequired, "input-required", i64::MIN),
    (State::AuthRequired, "auth-required", i64::MIN),
    (State::Completed, "completed", i64::MIN),
    (State::Failed, "failed", i64::MIN),
    (State::Canceled, "canceled", i64::MIN),
    (State::Rejected, "rejected", i64::MIN),
];

/// The names of an unknown state.
const UNKNOWN: [((), &str, i64); 2] = [((), "TASK_STATE_UNSPECIFIED", 0), ((), "unknown", i64::MIN)];

fn states(dialect: Dialect) -> &'static [(State, &'static str, i64); 8] {
    if dialect >= Dialect::V1 { &PROTO } else { &PLAIN }
}

/// The nearest state that the dialect has: 0.1 has neither rejected nor auth-required.
pub(super) fn nearest_state(dialect: Dialect, state: State) -> State {
    match (dialect, state) {
        // Clients get the message alone; only its operator sees the record.
        (_, State::Replied) => State::Completed,
        (Dialect::V0_1, State::Rejected) => State::Failed,
        (Dialect::V0_1, State::AuthRequired) => State::InputRequired,
        _ => state,
    }
}

pub(super) fn state_name(dialect: Dialect, state: State) -> &'static str {
    states(dialect)[usize::from(nearest_state(dialect, state).code())].1
}

/// The number of a state in 1.0.
pub(super) fn state_number(state: State) -> u64 {
    PROTO[usize::from(nearest_state(Dialect::V1, state).code())].2.unsigned_abs()
}

/// The state of that name; `None` for the name of an unknown state.
pub(super) fn read_name(
    dialect: Dialect,
    word: &EnumValue<'_>,
    at: &JsonPath<'_>,
) -> Result<Option<State>, MalformedInput> {
    let table = states(dialect);
    match word.find(table) {
        Some(state) => Ok(Some(state)),
        None if word.find(&UNKNOWN).is_some() => Ok(None),
        None => {
            let names: Vec<_> = table.iter().map(|(_, name, _)| *name).collect();
            Err(at.malformed(format!("expected one of {}", names.join(", "))))
        }
    }
}

/// The name of a state that this version does not know: the one for an unknown state, or one of a later version.
fn unknown_name(dialect: Dialect, word: &EnumValue<'_>) -> Option<String> {
    let EnumValue::Name(name) = word else { return None };
    let is_later = dialect >= Dialect::V1 && name.starts_with("TASK_STATE_") && word.find(&PROTO).is_none();
    (is_later || word.find(&UNKNOWN).is_some()).then(|| name.to_string())
}

/// A status to be written.
pub(super) struct StatusOut<'a> {
    pub(super) state: State,
    pub(super) message: Option<&'a Message>,
    pub(super) at: Timestamp,
}

impl StatusOut<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>, dialect: Dialect, ids: TaskIds<'_>) {
        json::object(out, |status| {
            status.value("state", state_name(dialect, self.state));
            if let Some(message) = self.message {
                message::write(status.key("message"), dialect, ids.into(), message);
            }
            timestamp::write(status.key("timestamp"), self.at);
        });
    }
}

/// Progress as a message: text for people, figures for programs.
pub(super) fn progress_message(progress: &Progress, task: &str, seq: u64) -> Message {
    let mut figures = Map::new();
    figures.insert("progress".to_owned(), figure(progress.done));
    if let Some(total) = progress.total {
        figures.insert("total".to_owned(), figure(total));
    }
    if let Some(data) = &progress.data {
        figures.insert("event".to_owned(), data.clone());
    }
    let text = progress.text.as_ref().map(Part::text);
    let parts = text.into_iter().chain([Part::data(Value::Object(figures))]).collect();
    Message::of(format!("{task}-{seq}"), Role::Agent, parts)
}

/// A log line as a message: the line for people, its level for programs.
pub(super) fn log_message(line: &LogLine, task: &str, seq: u64) -> Message {
    let level = Part::data(value!({ "log": line.level }));
    Message::of(format!("{task}-{seq}"), Role::Agent, vec![Part::text(&line.text), level])
}

/// A whole figure without a fraction: `3`, not `3.0`.
fn figure(number: f64) -> Value {
    let whole = number as i64;
    if whole as f64 == number && whole.unsigned_abs() < 1 << 53 { whole.into() } else { number.into() }
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct StatusIn<'a> {
    #[serde(borrow)]
    state: Option<EnumValue<'a>>,
    #[serde(borrow)]
    message: Option<MessageIn<'a>>,
    timestamp: Option<String>,
}

/// A status as a client reads it.
pub(super) struct StatusView {
    pub(super) state: State,
    pub(super) unknown_state: Option<String>,
    pub(super) message: Option<Message>,
    pub(super) at: Option<Timestamp>,
}

impl StatusIn<'_> {
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<StatusView, MalformedInput> {
        let state = at.required("state", self.state)?;
        // Unknown is not ended: a client that waits for the task continues to wait.
        let (state, unknown_state) = match unknown_name(dialect, &state) {
            Some(name) => (State::Working, Some(name)),
            None => match read_name(dialect, &state, &at.member("state"))? {
                Some(state) => (state, None),
                None => (State::Working, Some(UNKNOWN[0].1.to_owned())),
            },
        };
        let message = self.message.map(|message| message.read(dialect, at.member("message"))).transpose()?;
        let read_time = |text: &String| {
            timestamp::parse(text)
                .ok_or_else(|| at.member("timestamp").malformed("expected an ISO 8601 time"))
        };
        let read_at = self.timestamp.as_ref().filter(|text| !text.is_empty()).map(read_time).transpose()?;
        Ok(StatusView {
            state,
            unknown_state,
            message: message.map(|addressed| addressed.message),
            at: read_at,
        })
    }
}
