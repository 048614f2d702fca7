//! One event in every protocol: the frame that a follower of each dialect gets for it, or why it gets none.

use nuncio_engine::{
    Event, State, Task,
    engine::LogRange,
    event::{Entry, Progress},
};
use nuncio_wire::{
    a2a::{Dialect, TaskDetail, TaskIds},
    jsonrpc::{self, RpcId},
    mcp::{self, ClientCapabilities, McpQuestion, McpVersion, ProgressToken, text_of_parts},
};
use serde_json::{Value, json};

use super::{
    api::ConsoleRequest,
    events::{event_at, kind_of},
    problem::ConsoleProblem,
};
use crate::mcp::{Mcp, ProgressNumbers};

const WEBHOOK: &str = "webhook";
const A2A: [Dialect; 3] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];

/// `GET /tasks/{id}/wire/{seq}`
pub(super) async fn show(request: &ConsoleRequest<'_>, id: &str, seq: u64) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["as"])?;
    let names: Vec<String> = A2A
        .map(|dialect| dialect.name().replace('/', "-"))
        .into_iter()
        .chain(McpVersion::ALL.map(|version| version.dialect().replace('/', "-")))
        .chain([WEBHOOK.to_owned()])
        .collect();
    let wanted = request.parameters("as");
    if let Some(unknown) = wanted.iter().find(|name| !names.iter().any(|known| known == *name)) {
        let message = format!("as: {unknown:?} is none of {}", names.join(", "));
        return Err(ConsoleProblem::bad_request("as", message));
    }
    // Three reads, of which none holds anything while the next one waits for its reservation.
    let kind = kind_of(event_at(request, id, seq).await?.0.event());
    let progress = match kind {
        "progress" | "artifact" => progress_at(request, id, seq).await?,
        _ => None,
    };
    let reader = request.reader_of(id).await?;
    let (task, Some(entry), _) = request.engine().task_and_event_at(&reader, id, seq).await? else {
        return Err(ConsoleProblem::not_found(format!("the task has no event {seq}")));
    };
    let event = LoggedEvent { seq, entry: &entry, task: &task, progress, mcp: &request.app.mcp };
    let mut frames = vec![];
    for (index, name) in names.iter().enumerate() {
        if !wanted.is_empty() && !wanted.contains(&name.as_str()) {
            continue;
        }
        let frame = match (A2A.get(index), McpVersion::ALL.get(index.wrapping_sub(A2A.len()))) {
            (Some(dialect), _) => event.in_a2a(*dialect),
            (None, Some(version)) => event.in_mcp(*version),
            (None, None) => event.as_webhook(),
        };
        frames.push(json!({ "as": name, "text": frame.text, "why": frame.why, "headers": frame.headers }));
    }
    Ok(json!({
        "seq": seq,
        "type": kind,
        "createdIn": task.origin.dialect,
        "frames": frames,
    }))
}

/// The number and the total of the progress notification that a plain call of MCP gets for this event, which follow from
/// all events before it.
async fn progress_at(
    request: &ConsoleRequest<'_>,
    id: &str,
    seq: u64,
) -> Result<Option<(f64, Option<f64>)>, ConsoleProblem> {
    let range = |_| LogRange { after: 0, until: seq, limit: 1, max_bytes: usize::MAX, max_read: usize::MAX };
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
