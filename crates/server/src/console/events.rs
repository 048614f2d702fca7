//! The log of a task: pages of events, one event whole, and the task as of an event.

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, StatusCode, header},
};
use nuncio_engine::{
    Event, Task,
    engine::{LogPage, LogRange},
    event::Entry,
};
use nuncio_wire::timestamp;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    api::ConsoleRequest,
    problem::ConsoleProblem,
    sender::{SenderView, Senders},
};
use crate::responses;

/// The events of a page (`console.events`).
const EVENTS: u64 = 200;
pub(super) const MAX_EVENTS: u64 = 1000;
/// The bytes of content after which a page ends (`console.page-bytes`).
pub(super) const PAGE_BYTES: usize = 1024 * 1024;
/// The events that are read for one page with a filter (`console.scan`).
const MAX_SCAN: usize = 10_000;
/// The bytes of an event's data in a list (`console.preview`).
pub(super) const PREVIEW: u64 = 2048;
pub(super) const MAX_PREVIEW: u64 = 1024 * 1024;

/// The kinds of events, as they are named here and in `task_events`.
const KINDS: [&str; 8] =
    ["message", "status", "artifact", "progress", "log", "question", "answer", "withdrawn"];

/// One event as JSON.
#[derive(Serialize)]
pub(super) struct EventView {
    seq: u64,
    timestamp: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<SenderView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
}

impl EventView {
    /// The event, with at most that many bytes of its data.
    pub(super) fn of(seq: u64, entry: &Entry, preview: usize, senders: &Senders<'_>) -> Self {
        let text = data_of(entry.event());
        let size = text.len();
        let (data, preview) = match size <= preview {
            // Cannot fail: the text was just written as JSON.
            true => (RawValue::from_string(text).ok(), None),
            false => {
                let mut cut = text;
                cut.truncate(cut.floor_char_boundary(preview));
                cut.shrink_to_fit();
                (None, Some(cut))
            }
        };
        Self {
            seq,
            timestamp: timestamp::format(entry.at()),
            kind: kind_of(entry.event()),
            size,
            by: senders.of(seq, entry.event()),
            data,
            preview,
        }
    }

    /// How many bytes of content it carries.
    pub(super) fn weight(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.get().len()) + self.preview.as_ref().map_or(0, String::len)
    }
}

/// The content of an event as compact JSON. Serde writes an event as an object with one member, under its own name. Its
/// sender is left out: [`Senders`] knows who may read the name.
pub(super) fn data_of(event: &Event) -> String {
    match serde_json::to_value(event) {
        Ok(Value::Object(named)) => {
            let mut data = named.into_values().next().unwrap_or_default();
            if let Value::Object(data) = &mut data {
                data.remove("by");
            }
            data.to_string()
        }
        _ => "{}".to_owned(),
    }
}

pub(super) fn kind_of(event: &Event) -> &'static str {
    match event {
        Event::Message(_) => "message",
        Event::Status(_) => "status",
        Event::Artifact(_) => "artifact",
        Event::Progress(_) => "progress",
        Event::Log(_) => "log",
        Event::Question(_) => "question",
        Event::Answer(_) => "answer",
        Event::Withdrawn(_) => "withdrawn",
    }
}

/// `GET /tasks/{id}/events`
pub(super) async fn page(request: &ConsoleRequest<'_>, id: &str) -> Result<Response<Body>, ConsoleProblem> {
    request.check_parameters(&["after", "before", "limit", "kind", "preview"])?;
    let (after, before) = (request.number("after", u64::MAX)?, request.number("before", u64::MAX)?);
    if after.is_some() && before.is_some() {
        return Err(ConsoleProblem::bad_request("before", "before: it goes instead of after, not with it"));
    }
    let limit = request.number("limit", MAX_EVENTS)?.unwrap_or(EVENTS);
    if limit == 0 {
        return Err(ConsoleProblem::bad_request(
            "limit",
            format!("limit: a page has 1 to {MAX_EVENTS} events"),
        ));
    }
    let preview = request.number("preview", MAX_PREVIEW)?.unwrap_or(PREVIEW) as usize;
    let kinds = request.parameters("kind");
    if let Some(unknown) = kinds.iter().find(|kind| !KINDS.contains(kind)) {
        let message = format!("kind: {unknown:?} is none of {}", KINDS.join(", "));
        return Err(ConsoleProblem::bad_request("kind", message));
    }
    let scan = if kinds.is_empty() { limit as usize } else { MAX_SCAN };
    let range = |last: u64| {
        // The log has no gaps: the events before a number are found by counting back from it.
        let until = before.map_or(u64::MAX, |before| before.saturating_sub(1)).min(last.max(1));
        let back = if kinds.is_empty() { limit } else { MAX_SCAN as u64 };
        let after = match (after, before) {
            (_, Some(_)) => until.saturating_sub(back),
            (after, None) => after.unwrap_or_default(),
        };
        let limit = limit as usize;
        LogRange { after, until, limit, max_bytes: PAGE_BYTES, max_read: scan, backward: before.is_some() }
    };
    let shown = |event: &Event| kinds.is_empty() || kinds.contains(&kind_of(event));
    let reader = request.reader_of(id).await?;
    let found = request.engine().log_page(&reader, id, range, shown).await?;
    let senders = Senders { viewer: &request.caller, origin: &found.origin };
    let events = found.entries.iter().map(|(seq, entry)| EventView::of(*seq, entry, preview, &senders));
    let events: Vec<EventView> = events.collect();
    let body = PageView {
        task_id: id,
        events,
        after: found.read_until,
        before: found.begins_after + 1,
        last: found.last,
        ended: found.state.is_terminal(),
    };
    // Types of ours with text keys: it cannot fail.
    Ok(responses::json(serde_json::to_vec(&body).unwrap_or_default()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageView<'a> {
    task_id: &'a str,
    events: Vec<EventView>,
    after: u64,
    before: u64,
    last: u64,
    ended: bool,
}

/// `GET /tasks/{id}/events/{seq}`, whole; with `part=data` only its data, of which a range may be asked for.
pub(super) async fn one(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<Response<Body>, ConsoleProblem> {
    request.check_parameters(&["part"])?;
    let (entry, page) = event_at(request, id, seq).await?;
    match request.parameter("part")? {
        None => {
            let senders = Senders { viewer: &request.caller, origin: &page.origin };
            let view = EventView::of(seq, &entry, usize::MAX, &senders);
            Ok(responses::json(serde_json::to_vec(&view).unwrap_or_default()))
        }
        Some("data") => Ok(ranged(data_of(entry.event()).into(), request)),
        Some(other) => {
            Err(ConsoleProblem::bad_request("part", format!("part: there is only data, not {other:?}")))
        }
    }
}

/// The event of that number, and the page that it was read in: until that is dropped, the event is charged to its reader.
pub(super) async fn event_at(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<(Entry, LogPage), ConsoleProblem> {
    let missing = || ConsoleProblem::not_found(format!("the task has no event {seq}"));
    let after = seq.checked_sub(1).ok_or_else(missing)?;
    let range = |last: u64| LogRange { after: after.min(last), until: seq, ..LogRange::default() };
    let reader = request.reader_of(id).await?;
    let mut page = request.engine().log_page(&reader, id, range, |_| true).await?;
    let entry = page.entries.pop().filter(|(found, _)| *found == seq);
    entry.map(|(_, entry)| (entry, page)).ok_or_else(missing)
}

/// `GET /tasks/{id}/at/{seq}`
pub(super) async fn task_at(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<Response<Body>, ConsoleProblem> {
    #[derive(Serialize)]
    struct TaskAtView<'a> {
        at: u64,
        last: u64,
        task: &'a Task,
    }

    request.check_parameters(&[])?;
    let found = request.engine().task_at(&request.reader_of(id).await?, id, seq, |_| 0).await?;
    let body = TaskAtView { at: seq, last: found.last, task: &found.task };
    Ok(responses::json(serde_json::to_vec(&body).unwrap_or_default()))
}

/// The bytes, or the range of them that the request names. A range that cannot be read or kept means the whole.
fn ranged(bytes: Bytes, request: &ConsoleRequest<'_>) -> Response<Body> {
    let total = bytes.len();
    let asked = request.headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let range = asked.and_then(|range| parse_range(range, total));
    let body = match range {
        Some((first, last)) => bytes.slice(first..=last),
        None => bytes,
    };
    let mut response = responses::json(body);
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some((first, last)) = range
        && let Ok(shown) = HeaderValue::from_str(&format!("bytes {first}-{last}/{total}"))
    {
        headers.insert(header::CONTENT_RANGE, shown);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// One range of bytes, such as `bytes=0-99`, `bytes=100-` or `bytes=-100`.
fn parse_range(range: &str, total: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = total.checked_sub(1)?;
    match (first, last) {
        ("", suffix) => {
            let suffix: usize = suffix.parse().ok()?;
            (suffix > 0).then(|| (total.saturating_sub(suffix), end))
        }
        (first, last) => {
            let first: usize = first.parse().ok()?;
            let last: usize = if last.is_empty() { end } else { last.parse().ok()? };
            (first <= last && first <= end).then(|| (first, last.min(end)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_bytes() {
        let check = |range: &str, expected: Option<(usize, usize)>| {
            assert_eq!(parse_range(range, 10), expected, "{range}");
        };
        check("bytes=0-3", Some((0, 3)));
        check("bytes=4-", Some((4, 9)));
        check("bytes=4-99", Some((4, 9)));
        check("bytes=-3", Some((7, 9)));
        check("bytes=-30", Some((0, 9)));
        check("bytes=10-", None);
        check("bytes=5-4", None);
        check("bytes=-0", None);
        check("bytes=0-1,3-4", None);
        check("items=0-1", None);
        assert_eq!(parse_range("bytes=0-", 0), None);
    }
}
