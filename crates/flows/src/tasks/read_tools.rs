//! The tools that read tasks: get, list, and the event log from a cursor.

use nuncio_engine::{
    Engine, Error, Event, List, Next,
    event::Entry,
    surface::{HandlerError, SchemaError, Surface, ToolCall, ToolGroup, TypedReply, typed_reply, typed_tool},
};
use serde_json::Value;

use super::{
    api::{
        TaskAnswer, TaskEventAnswer, TaskEventKind, TaskEventsAnswer, TaskEventsRequest, TaskGetRequest,
        TaskListAnswer, TaskListRequest,
    },
    view::{self, TaskViewOptions},
};
use crate::resource::iso;

/// Tasks on a page by default.
const PAGE: usize = 20;
/// Events on a page by default.
const EVENTS: usize = 100;
/// Bytes of content after which a page of events ends, whatever its limit.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

pub(super) fn install(engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let about = "Tells how a task stands, what it asks, and what has come of it.";
    typed_tool("task_get", about, engine, get).install(ToolGroup::Tasks, surface)?;
    let about = "Lists the caller's tasks, newest status first, in pages.";
    typed_tool("task_list", about, engine, list).install(ToolGroup::Tasks, surface)?;
    let about =
        "Reads a page of a task's log after a cursor: what was said, done, asked and answered, with numbers.";
    typed_tool("task_events", about, engine, events).install(ToolGroup::Tasks, surface)
}

async fn get(engine: Engine, call: ToolCall<TaskGetRequest>) -> TypedReply<TaskAnswer> {
    let TaskGetRequest { task_id, history, artifacts } = call.input;
    let task = engine.get(&call.caller, &task_id).await?;
    let parts = TaskViewOptions { history: history.unwrap_or(false), artifacts: artifacts.unwrap_or(true) };
    typed_reply(view::line(&task), view::task(&task, parts))
}

async fn list(engine: Engine, call: ToolCall<TaskListRequest>) -> TypedReply<TaskListAnswer> {
    let TaskListRequest { agent, state, context_id, page_token, page_size } = call.input;
    let query = List {
        context: context_id,
        state,
        agent,
        since: None,
        page_token,
        page_size: page_size.unwrap_or(PAGE),
        without_artifacts: true,
        history: Some(0),
    };
    let listed = engine.list(&call.caller, query).await.map_err(|error| match error {
        Error::Invalid(why) => HandlerError::Invalid(why),
        error => error.into(),
    })?;
    let parts = TaskViewOptions { history: false, artifacts: false };
    let lines: Vec<String> = listed.tasks.iter().map(view::line).collect();
    let text = if lines.is_empty() { "there is no such task".to_owned() } else { lines.join("\n") };
    let tasks = listed.tasks.iter().map(|task| view::task(task, parts)).collect();
    let (next_page_token, total) = (listed.next_page_token, listed.total as u64);
    typed_reply(text, TaskListAnswer { tasks, next_page_token, total })
}

async fn events(engine: Engine, call: ToolCall<TaskEventsRequest>) -> TypedReply<TaskEventsAnswer> {
    let TaskEventsRequest { task_id, after, limit } = call.input;
    let (after, limit) = (after.unwrap_or(0), limit.unwrap_or(EVENTS));
    let mut follower = engine.follow(&call.caller, &task_id, after).await.map_err(|error| match error {
        Error::UnknownCursor { .. } => HandlerError::Invalid(format!("after: {error}")),
        error => error.into(),
    })?;
    let about = engine.task_summary(&call.caller, &task_id).await?;
    let (mut events, mut cursor, mut bytes) = (vec![], after, 0);
    // Only existing events are read: this never waits for new ones.
    'page: while follower.cursor() < about.seq {
        let batch = match follower.next().await? {
            Next::Batch(batch) => batch,
            Next::Nudge(_) => continue,
            Next::End | Next::Closing => break,
        };
        for (seq, entry) in batch.iter() {
            if events.len() >= limit || bytes > MAX_EVENT_BYTES {
                break 'page;
            }
            bytes += entry.event().size();
            cursor = seq;
            events.push(event(seq, entry));
        }
    }
    let last = about.seq.max(cursor);
    let text = match events.len() {
        0 => format!("there is no event after {after}"),
        many => format!("{many} events, up to {cursor} of {last}"),
    };
    let (task_id, ended) = (about.origin.public_id(), about.state.is_terminal());
    typed_reply(text, TaskEventsAnswer { task_id, events, after: cursor, last, ended })
}

fn event(seq: u64, entry: &Entry) -> TaskEventAnswer {
    let kind = match entry.event() {
        Event::Message(_) => TaskEventKind::Message,
        Event::Status(_) => TaskEventKind::Status,
        Event::Artifact(_) => TaskEventKind::Artifact,
        Event::Progress(_) => TaskEventKind::Progress,
        Event::Log(_) => TaskEventKind::Log,
        Event::Question(_) => TaskEventKind::Question,
        Event::Answer(_) => TaskEventKind::Answer,
        Event::Withdrawn(_) => TaskEventKind::Withdrawn,
    };
    // Serde writes each event as an object with one member, under the event's own name.
    let data = match serde_json::to_value(entry.event()) {
        Ok(Value::Object(event)) => event.into_values().next(),
        _ => None,
    };
    let mut data = data.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    // Who sent it is for the console, which knows who may read the name.
    data.remove("by");
    TaskEventAnswer { seq, timestamp: iso(entry.at()), kind, data }
}
