//! One event in every protocol: the frame that a follower of each dialect gets for it, or why it gets none.

use axum::{body::Body, http::Response};
use nuncio_engine::{
    Event, State, Task,
    engine::{LogRange, TaskAt},
    event::{Entry, Progress},
};
use nuncio_wire::{
    a2a::{Dialect, TaskDetail, TaskIds},
    jsonrpc::{self, RpcId},
    mcp::{self, ClientCapabilities, McpQuestion, McpVersion, ProgressToken, text_of_parts},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    api::ConsoleRequest,
    events::{data_of, event_at, kind_of},
    problem::ConsoleProblem,
};
use crate::{
    mcp::{Mcp, ProgressNumbers},
    responses,
};

const WEBHOOK: &str = "webhook";
/// How many times as long as its content a frame is held: itself, and as text in the answer, which escapes its quotes.
const COPIES: u64 = 3;
const A2A: [Dialect; 3] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];

/// `GET /tasks/{id}/wire/{seq}`
pub(super) async fn show(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<Response<Body>, ConsoleProblem> {
    request.check_parameters(&["as"])?;
    let known: Vec<String> = A2A
        .map(|dialect| dialect.name().replace('/', "-"))
        .into_iter()
        .chain(McpVersion::ALL.map(|version| version.dialect().replace('/', "-")))
        .chain([WEBHOOK.to_owned()])
        .collect();
    let wanted = request.parameters("as");
    if let Some(unknown) = wanted.iter().find(|name| !known.iter().any(|known| known == *name)) {
        let message = format!("as: {unknown:?} is none of {}", known.join(", "));
        return Err(ConsoleProblem::bad_request("as", message));
    }
    let names: Vec<(usize, &str)> = known
        .iter()
        .map(String::as_str)
        .enumerate()
        .filter(|(_, name)| wanted.is_empty() || wanted.contains(name))
        .collect();
    // Three reads, of which none holds anything while the next one waits for its reservation.
    let (kind, size, is_older) = {
        let (entry, page) = event_at(request, id, seq).await?;
        let is_older = page.origin.dialect != Dialect::V1.name();
        (kind_of(entry.event()), data_of(entry.event()).len() as u64, is_older)
    };
    let progress = match kind {
        "progress" | "artifact" => progress_at(request, id, seq).await?,
        _ => None,
    };
    let reader = request.reader_of(id).await?;
    let room = |whole: u64| {
        let holds_task = |name: &str| kind == "status" || (name == WEBHOOK && is_older);
        let frame = |name: &str| size + if holds_task(name) { whole } else { 0 };
        names.iter().map(|(_, name)| COPIES * frame(name)).sum()
    };
    let found = request.engine().task_at(&reader, id, seq, room).await?;
    let TaskAt { task, event: Some(entry), .. } = &found else {
        return Err(ConsoleProblem::not_found(format!("the task has no event {seq}")));
    };
    let event = LoggedEvent { seq, entry, task, progress, mcp: &request.app.mcp };
    let named_frame = |(index, name): (usize, _)| {
        let frame = match (A2A.get(index), McpVersion::ALL.get(index.wrapping_sub(A2A.len()))) {
            (Some(dialect), _) => event.in_a2a(*dialect),
            (None, Some(version)) => event.in_mcp(*version),
            (None, None) => event.as_webhook(),
        };
        NamedFrame { name, frame }
    };
    let frames = names.into_iter().map(named_frame).collect();
    let body = WireView { seq, kind, created_in: &task.origin.dialect, frames };
    // Types of ours with text keys: it cannot fail.
    Ok(responses::json(serde_json::to_vec(&body).unwrap_or_default()))
}

/// The frames of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireView<'a> {
    seq: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    created_in: &'a str,
    frames: Vec<NamedFrame<'a>>,
}

#[derive(Serialize)]
struct NamedFrame<'a> {
    #[serde(rename = "as")]
    name: &'a str,
    #[serde(flatten)]
    frame: WireFrame,
}

/// The number and the total of the progress notification that a plain call of MCP gets for this event, which follow from
/// all events before it.
async fn progress_at(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<Option<(f64, Option<f64>)>, ConsoleProblem> {
    let range = |_| LogRange { until: seq, ..LogRange::default() };
    let (mut numbers, mut number, mut at) = (ProgressNumbers::default(), None, 0);
    // One pass that keeps no event.
    let count = |event: &Event| {
        at += 1;
        match event {
            Event::Progress(progress) => number = numbers.of_progress(at, progress),
            Event::Artifact(_) => number = Some(numbers.of_chunk(at)),
            _ => {}
        }
        false
    };
    request.engine().log_page(&request.reader_of(id).await?, id, range, count).await?;
    Ok(number.map(|number| (number, numbers.total)))
}

/// A frame, or the reason why there is none.
#[derive(Serialize)]
struct WireFrame {
    text: Option<String>,
    why: Option<&'static str>,
    headers: Option<Value>,
}

impl WireFrame {
    fn of(bytes: &[u8]) -> Self {
        Self { text: Some(String::from_utf8_lossy(bytes).into_owned()), why: None, headers: None }
    }

    fn none(why: &'static str) -> Self {
        Self { text: None, why: Some(why), headers: None }
    }
}

/// An event with the task as of it.
struct LoggedEvent<'a> {
    seq: u64,
    entry: &'a Entry,
    task: &'a Task,
    /// See [`progress_at`].
    progress: Option<(f64, Option<f64>)>,
    mcp: &'a Mcp,
}

impl LoggedEvent<'_> {
    /// The data of the server-sent event, as a response to the request 1.
    fn in_a2a(&self, dialect: Dialect) -> WireFrame {
        let id = self.task.origin.public_id();
        let ids = TaskIds { task: &id, context: &self.task.origin.context };
        let (mut out, mut written) = (vec![], None);
        jsonrpc::write_result(&mut out, &RpcId::number(1), |out| {
            written = match self.seq {
                // A stream begins with the task.
                1 => Some(dialect.write_stream_start(out, self.task, TaskDetail::default())),
                _ => dialect.write_event(out, &ids, self.seq, self.entry),
            };
        });
        match written {
            Some(_) => WireFrame::of(&out),
            None => WireFrame::none(match self.entry.event() {
                Event::Log(_) => "A2A has no log lines; clients of the extension dev.nuncio/events get them",
                Event::Message(_) | Event::Answer(_) => "what a client says is not sent back to it",
                _ => "this dialect has no frame for this event",
            }),
        }
    }

    /// The message of a plain call with the progress token 1, at the log level debug.
    fn in_mcp(&self, version: McpVersion) -> WireFrame {
        let mut out = vec![];
        let Some(token) = ProgressToken::from_json("1") else { return WireFrame::none("there is no token") };
        match self.entry.event() {
            Event::Progress(progress) => {
                let Some((done, _)) = self.progress else {
                    return WireFrame::none(
                        "it is no further than the progress before it: MCP's numbers only rise",
                    );
                };
                mcp::write_progress(&mut out, &token, &Progress { done, ..progress.clone() }, None);
            }
            Event::Log(line) => mcp::write_log(&mut out, &self.task.origin.agent, line, None),
            Event::Artifact(chunk) => {
                let text = text_of_parts(&chunk.parts);
                if text.is_empty() {
                    return WireFrame::none("a piece without text is part of the result alone");
                }
                let (done, total) = self.progress.unwrap_or_default();
                let progress = Progress { done, total, text: Some(text), data: None };
                mcp::write_progress(&mut out, &token, &progress, None);
            }
            Event::Question(question) => {
                let asked = McpQuestion::Question(question);
                if !asked.is_supported_by(capabilities(version)) {
                    return WireFrame::none(
                        "this revision cannot ask it: the agent goes on without an answer",
                    );
                }
                if version.is_stateless() {
                    return WireFrame::of(&self.mcp.result_of(
                        version,
                        &RpcId::number(1),
                        "input_required",
                        |result| {
                            mcp::write_input_requests(result, version, [(question.id.as_str(), asked)]);
                            result.value("requestState", "(signed for the caller)");
                        },
                        |_| {},
                    ));
                }
                jsonrpc::write_request(&mut out, &RpcId::number(1), asked.method(), |out| {
                    asked.write_params(out, version, &question.id, None);
                });
            }
            Event::Status(status) if status.state.is_terminal() => return self.result_in_mcp(version),
            Event::Status(_) => {
                return WireFrame::none("a plain call has no states; a task of this revision is polled");
            }
            Event::Message(_) => return WireFrame::none("what the client sent is not sent back to it"),
            Event::Answer(_) => {
                return WireFrame::none("the answer came from the client, or another one gave it");
            }
            Event::Withdrawn(_) => {
                return WireFrame::none(
                    "the request is cancelled on the stream that carried it, by its own id",
                );
            }
        }
        WireFrame::of(&out)
    }

    fn result_in_mcp(&self, version: McpVersion) -> WireFrame {
        let Some(output) = mcp::output_of(self.task) else {
            return WireFrame::none("the call ends with an error that names the reason");
        };
        let id = self.task.origin.id.to_string();
        WireFrame::of(&self.mcp.result_of(
            version,
            &RpcId::number(1),
            "complete",
            |result| mcp::write_output(result, version, output),
            |meta| meta.value("nuncio/taskId", &id),
        ))
    }

    fn as_webhook(&self) -> WireFrame {
        let dialect = Dialect::from_name(&self.task.origin.dialect).unwrap_or(Dialect::V1);
        let mut out = vec![];
        match dialect.push_body(&mut out, self.task, self.seq, self.entry) {
            None if self.task.state == State::Working => {
                WireFrame::none("a webhook of this dialect gets the task when a turn ends")
            }
            None => WireFrame::none("this event is not sent to webhooks"),
            Some(media_type) => {
                let headers = json!({
                    "content-type": media_type,
                    "webhook-id": "(of the delivery)",
                    "webhook-timestamp": "(of the attempt)",
                    "webhook-signature": "(hidden)",
                    "x-a2a-notification-token": "(hidden)",
                });
                WireFrame { headers: Some(headers), ..WireFrame::of(&out) }
            }
        }
    }
}

/// What a client of a revision can be asked at most.
fn capabilities(version: McpVersion) -> ClientCapabilities {
    let everything = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    ClientCapabilities::read(&everything, version)
}
