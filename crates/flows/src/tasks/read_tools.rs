//! The tools that read tasks: get, list, and the event log from a cursor.

use nuncio_engine::{
    Engine, Error, Event, List, Next,
    commands::list::MAX_PAGE,
    event::Entry,
    surface::{HandlerError, HandlerRequest, Tool, ToolProfile},
    task::State,
};
use serde_json::{Value, json};

use super::{
    TaskToolReply, arguments, name, of_engine,
    view::{self, TaskViewOptions},
};
use crate::resource::iso;

/// Tasks on a page by default.
const PAGE: u64 = 20;
/// Events on a page by default, and the maximum.
const EVENTS: u64 = 100;
const MAX_EVENTS: u64 = 500;
/// Bytes of content after which a page of events ends, whatever its limit.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

pub(super) fn get(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new(
        "task_get",
        "Tells how a task stands, what it asks, and what has come of it.",
    )
    .input(arguments(
        &json!({
            "taskId": name("The task."),
            "history": { "type": "boolean", "description": "With everything that was said. Default: false." },
            "artifacts": { "type": "boolean", "description": "With the results so far. Default: true." },
        }),
        &["taskId"],
    ))
    .output(view::schema());
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let task = engine.get(&request.caller, request.text("taskId").unwrap_or_default()).await?;
        let flag =
            |name: &str, default| request.arguments.get(name).and_then(Value::as_bool).unwrap_or(default);
        let parts = TaskViewOptions { history: flag("history", false), artifacts: flag("artifacts", true) };
        Ok(TaskToolReply { text: view::line(&task), value: view::task(&task, parts) })
    })
}

pub(super) fn list(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new("task_list", "Lists the caller's tasks, newest status first, in pages.")
        .input(arguments(
            &json!({
                "agent": name("Only of this agent."),
                "state": { "enum": view::state_names(), "description": "Only in this state." },
                "contextId": name("Only of this conversation."),
                "pageToken": name("Where the page before ended."),
                "pageSize": {
                    "type": "integer", "minimum": 1, "maximum": MAX_PAGE,
                    "description": format!("How many. Default: {PAGE}."),
                },
            }),
            &[],
        ))
        .output(json!({
            "type": "object",
            "properties": {
                "tasks": { "type": "array", "items": view::schema() },
                "nextPageToken": { "type": ["string", "null"] },
                "total": { "type": "integer", "minimum": 0 },
            },
            "required": ["tasks", "nextPageToken", "total"],
            "additionalProperties": false,
        }));
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let text = |name: &str| request.text(name).map(str::to_owned);
        let state = request.text("state");
        let query = List {
            context: text("contextId"),
            state: State::ALL.into_iter().find(|known| view::state_name(*known).as_str() == state),
            agent: text("agent"),
            since: None,
            page_token: text("pageToken"),
            page_size: number(&request, "pageSize", PAGE) as usize,
            without_artifacts: true,
            history: Some(0),
        };
        let listed = engine.list(&request.caller, query).await.map_err(|error| match error {
            Error::Invalid(why) => HandlerError::Invalid(why),
            error => error.into(),
        })?;
        let parts = TaskViewOptions { history: false, artifacts: false };
        let lines: Vec<String> = listed.tasks.iter().map(view::line).collect();
        let text = if lines.is_empty() { "there is no such task".to_owned() } else { lines.join("\n") };
        let value = json!({
            "tasks": listed.tasks.iter().map(|task| view::task(task, parts)).collect::<Vec<_>>(),
            "nextPageToken": listed.next_page_token,
            "total": listed.total,
        });
        Ok(TaskToolReply { text, value })
    })
}

pub(super) fn events(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new(
        "task_events",
        "Reads a page of a task's log after a cursor: what was said, done, asked and answered, with numbers.",
    )
    .input(arguments(
        &json!({
            "taskId": name("The task."),
            "after": { "type": "integer", "minimum": 0, "description": "The number of the last event that is known. Default: 0." },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": MAX_EVENTS,
                "description": format!("How many. Default: {EVENTS}."),
            },
        }),
        &["taskId"],
    ))
    .output(json!({
        "type": "object",
        "properties": {
            "taskId": { "type": "string" },
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "seq": { "type": "integer", "minimum": 1 },
                        "timestamp": { "type": "string", "format": "date-time" },
                        "type": { "enum": ["message", "status", "artifact", "progress", "log", "question", "answer"] },
                        "data": { "type": "object" },
                    },
                    "required": ["seq", "timestamp", "type", "data"],
                    "additionalProperties": false,
                },
            },
            "after": { "type": "integer", "description": "The cursor for the next page." },
            "last": { "type": "integer", "description": "The number of the last event that there is." },
            "ended": { "type": "boolean", "description": "Whether there will be no more than that." },
        },
        "required": ["taskId", "events", "after", "last", "ended"],
        "additionalProperties": false,
    }));
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let (caller, task) = (&request.caller, request.text("taskId").unwrap_or_default());
        let (after, limit) = (number(&request, "after", 0), number(&request, "limit", EVENTS));
        let mut follower = engine.follow(caller, task, after).await.map_err(|error| match error {
            Error::UnknownCursor { .. } => HandlerError::Invalid(format!("after: {error}")),
            error => error.into(),
        })?;
        let about = engine.task_summary(caller, task).await?;
        let (mut events, mut cursor, mut bytes) = (vec![], after, 0);
        // Only existing events are read: this never waits for new ones.
        'page: while follower.cursor() < about.seq {
            let batch = match follower.next().await? {
                Next::Batch(batch) => batch,
                Next::Nudge(_) => continue,
                Next::End | Next::Closing => break,
            };
            for (seq, entry) in batch.iter() {
                if events.len() as u64 >= limit || bytes > MAX_EVENT_BYTES {
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
        let value = json!({
            "taskId": about.origin.public_id(),
            "events": events,
            "after": cursor,
            "last": last,
            "ended": about.state.is_terminal(),
        });
        Ok(TaskToolReply { text, value })
    })
}

fn number(request: &HandlerRequest, name: &str, default: u64) -> u64 {
    request.arguments.get(name).and_then(Value::as_u64).unwrap_or(default)
}

fn event(seq: u64, entry: &Entry) -> Value {
    let kind = match entry.event() {
        Event::Message(_) => "message",
        Event::Status(_) => "status",
        Event::Artifact(_) => "artifact",
        Event::Progress(_) => "progress",
        Event::Log(_) => "log",
        Event::Question(_) => "question",
        Event::Answer(_) => "answer",
        Event::Withdrawn(_) => "withdrawn",
    };
    // Serde writes each event under its own name, which is `kind`.
    let data = serde_json::to_value(entry.event()).map(|mut event| event[kind].take()).unwrap_or_default();
    json!({ "seq": seq, "timestamp": iso(entry.at()), "type": kind, "data": data })
}
