//! Stream frames: at most one per event of the log, with the same bytes at every read.

use nuncio_engine::{
    clock::Timestamp,
    event::{ArtifactChunk, Entry, Event, LogLine, QuestionAnswer, QuestionWithdrawal},
    task::{State, state_while_asking},
};

use super::{
    Dialect, TaskIds, artifact,
    status::{self, StatusOut},
};
use crate::json;

/// The effect of a frame on the stream that it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A2aFrame {
    /// No frame follows: the stream closes.
    pub ends_stream: bool,
    /// The agent's turn is over: the task ended, or it waits for the caller. Up to 0.3 this ends every stream.
    /// 1.0 leaves it open; a server may close the stream of the *message* that led here. It does not where an
    /// authorization is awaited, which may be given without a message (1.0 §7.6.1).
    pub ends_turn: bool,
}

impl A2aFrame {
    pub(super) fn for_state(dialect: Dialect, state: State) -> Self {
        let closes_at = |state: State| state.is_terminal() || state.is_interrupted();
        if dialect < Dialect::V1 {
            // 0.3 §4.5: also what was asked for at auth-required comes with a further message.
            return Self { ends_turn: closes_at(state), ends_stream: closes_at(state) };
        }
        let ends_turn = closes_at(state) && state != State::AuthRequired;
        Self { ends_turn, ends_stream: state.is_terminal() }
    }
}

/// Writes an event. `None`: it has no frame in A2A, and nothing was written.
pub(super) fn write(
    out: &mut Vec<u8>,
    dialect: Dialect,
    ids: TaskIds<'_>,
    seq: u64,
    entry: &Entry,
) -> Option<A2aFrame> {
    let made;
    let (state, message) = match entry.event() {
        Event::Status(status) => (status.state, status.message.as_ref()),
        Event::Progress(progress) => {
            made = status::progress_message(progress, ids.task, seq);
            (State::Working, Some(&made))
        }
        Event::Question(question) => {
            made = question.message(ids.task, seq);
            (state_while_asking(question), Some(&made))
        }
        // While other questions are open the task still waits, and a status names the next one.
        Event::Answer(QuestionAnswer { more: true, .. })
        | Event::Withdrawn(QuestionWithdrawal { more: true, .. }) => {
            return None;
        }
        // Answered or withdrawn: the task no longer waits.
        Event::Answer(_) | Event::Withdrawn(_) => (State::Working, None),
        Event::Artifact(chunk) => {
            write_artifact(out, dialect, ids, chunk);
            return Some(A2aFrame { ends_stream: false, ends_turn: false });
        }
        Event::Message(_) | Event::Log(_) => return None,
    };
    let frame = A2aFrame::for_state(dialect, state);
    write_status(out, dialect, ids, frame.ends_stream, |out| {
        StatusOut { state, message, at: entry.at() }.write(out, dialect, ids);
    });
    Some(frame)
}

/// Writes a log line, for a client that activated the extension (`card::LOG_EXTENSION`).
pub(super) fn write_log(
    out: &mut Vec<u8>,
    dialect: Dialect,
    ids: TaskIds<'_>,
    seq: u64,
    (at, line): (Timestamp, &LogLine),
) -> A2aFrame {
    let message = status::log_message(line, ids.task, seq);
    write_status(out, dialect, ids, false, |out| {
        StatusOut { state: State::Working, message: Some(&message), at }.write(out, dialect, ids);
    });
    A2aFrame { ends_stream: false, ends_turn: false }
}

/// Writes a status update around the status that the closure writes.
pub(super) fn write_status(
    out: &mut Vec<u8>,
    dialect: Dialect,
    ids: TaskIds<'_>,
    last: bool,
    status: impl FnOnce(&mut Vec<u8>),
) {
    write_update(out, dialect, ids, "statusUpdate", "status-update", |update| {
        status(update.key("status"));
        if dialect < Dialect::V1 {
            update.value("final", &last);
        }
    });
}

fn write_artifact(out: &mut Vec<u8>, dialect: Dialect, ids: TaskIds<'_>, chunk: &ArtifactChunk) {
    write_update(out, dialect, ids, "artifactUpdate", "artifact-update", |update| {
        artifact::write_chunk(update.key("artifact"), dialect, chunk);
        if dialect > Dialect::V0_1 {
            update.optional("append", chunk.append.then_some(&true));
            update.optional("lastChunk", chunk.last.then_some(&true));
        }
    });
}

/// The envelope of an update: in 1.0 a member of that name, in 0.3 an object of that kind, in 0.1 a bare object.
fn write_update(
    out: &mut Vec<u8>,
    dialect: Dialect,
    ids: TaskIds<'_>,
    name: &'static str,
    kind: &'static str,
    members: impl FnOnce(&mut json::JsonObject<'_>),
) {
    let with_ids = |object: &mut json::JsonObject<'_>| {
        if dialect == Dialect::V0_1 {
            object.value("id", ids.task);
        } else {
            object.value("taskId", ids.task);
            object.value("contextId", ids.context);
        }
        members(object);
    };
    json::object(out, |object| match dialect {
        Dialect::V0_1 => with_ids(object),
        Dialect::V0_3 => {
            object.value("kind", kind);
            with_ids(object);
        }
        Dialect::V1 => object.object(name, with_ids),
    });
}

/// Whether this event ends the agent's turn: the task ended, or it waits for the caller.
pub(super) fn ends_turn(event: &Event) -> bool {
    match event {
        Event::Status(status) => A2aFrame::for_state(Dialect::V0_3, status.state).ends_turn,
        Event::Question(_) => true,
        _ => false,
    }
}
