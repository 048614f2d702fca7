//! The engine's header of a task, stored in its row: what is needed to continue without the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    access::{Caller, Grants},
    commands::fork::ForkPoint,
    content::Metadata,
    error::Error,
    event,
    runner::Suspicion,
    sent_by::SentBy,
    store::{NodeId, OpenedTask, StoredBatch, TaskRow},
    stored_json,
    task::{Origin, Task, TaskId},
};

/// The protocol of what a task does in its caller's name, such as passing an answer on to a task that it called.
pub(crate) const CALLING_TASK: &str = "task";

/// The engine's part of the row. Stored as JSON; fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskHeader {
    /// The protocol dialect in which the task was created.
    pub(crate) dialect: String,
    /// The version of the agent that started it.
    pub(crate) agent_version: String,
    /// Whether the caller can answer questions; otherwise `ask` returns Unavailable at once.
    pub(crate) can_ask: bool,
    /// Whether the caller has a model that can be asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) can_sample: bool,
    /// Whether the server's own model is used instead. Decided once: a run after a restart, under another
    /// configuration, must find the same positions in its journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own_model: bool,
    /// Whether the caller can open a link.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub(crate) can_authorize: bool,
    /// Attributes that the caller sent with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Metadata>,
    /// Whether the caller waits for the answer, and takes a message instead of the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) accepts_reply: bool,
    /// Media types that the caller accepts; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted_output_modes: Vec<String>,
    /// URIs of the protocol extensions that the request activated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) extensions: Vec<String>,
    /// Data that the binding stored when it created the task, to read back later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<Value>,
    /// How long its caller waits for a response, on a connection that dies with the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_ms: Option<u64>,
    /// W3C `traceparent` of the request that created the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// The caller's grants, unless it has all: the agent may do no more in its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grants: Option<String>,
    /// The id of the token with which the task, or the task that called it, was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credential: Option<String>,
    /// The depth in the call chain: how many tasks are above this one.
    #[serde(default, skip_serializing_if = "is_none_deep")]
    pub(crate) depth: u32,
    /// The task at the top of the call chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<TaskId>,
    /// The agents of the call chain, from the top down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) called_by: Vec<String>,
    /// The node whose first run began with the task itself; none if the task was queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_node: Option<NodeId>,
    /// Per scope: how much of what the agent emitted is in the log.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) marks: BTreeMap<String, EmitCursor>,
    /// Per step in progress, by its idempotency key: the attempts at its request that were begun, in all runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attempts: BTreeMap<String, u32>,
    /// How long the agent has run, not counting time spent waiting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) ran_ms: u64,
    /// The approximate size of the log in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) bytes: u64,
    /// The suspicion that its runs crash the process, after processes died during them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspicion: Option<Suspicion>,
    /// Who requested the cancelling, until the event that ends the task has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) canceled_by: Option<Box<SentBy>>,
    /// Why it is being stopped, if nobody answered its question in time. The event that ends the task then has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unanswered: Option<String>,
    /// Where it was forked off another task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forked_from: Option<ForkPoint>,
}

/// A scope's position: a restarted agent emits again from its start, and what lies before the cursor is
/// already in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmitCursor {
    /// The number of emissions.
    pub(crate) n: u64,
    /// A hash of the kinds of emissions, to detect an agent that does something else after a restart.
    pub(crate) trail: u32,
}

impl Default for TaskHeader {
    fn default() -> Self {
        Self {
            dialect: String::new(),
            agent_version: String::new(),
            can_ask: false,
            can_sample: false,
            own_model: false,
            can_authorize: true,
            metadata: None,
            accepts_reply: false,
            accepted_output_modes: vec![],
            extensions: vec![],
            request: None,
            waiting_ms: None,
            trace: None,
            grants: None,
            credential: None,
            depth: 0,
            root: None,
            called_by: vec![],
            first_node: None,
            marks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ran_ms: 0,
            bytes: 0,
            suspicion: None,
            canceled_by: None,
            unanswered: None,
            forked_from: None,
        }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_none_deep(depth: &u32) -> bool {
    *depth == 0
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl TaskHeader {
    /// The caller that created the task, with its grants at that time. Scopes that cannot be parsed allow
    /// nothing.
    pub(crate) fn caller(&self, owner: &str) -> Caller {
        let caller = Caller::named(owner).over(CALLING_TASK);
        let caller = match &self.credential {
            Some(id) => caller.with_credential(id.as_str()),
            None => caller,
        };
        match &self.grants {
            None => caller,
            Some(scopes) => caller.limited_to(Grants::parse(scopes).unwrap_or_else(|_| Grants::only([]))),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        stored_json::read(bytes).map_err(|e| Error::Internal(format!("a task's header is damaged: {e}")))
    }

    pub(crate) fn encode(&self) -> Bytes {
        // Strings, numbers and string keys: it cannot fail, and decoding would refuse an empty header.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub(crate) fn origin(&self, row: &TaskRow) -> Origin {
        Origin {
            id: row.id,
            client_id: row.client_id.clone(),
            context: row.context.clone(),
            agent: row.agent.clone(),
            owner: row.owner.clone(),
            dialect: self.dialect.clone(),
            metadata: self.metadata.clone(),
            trace: self.trace.clone(),
            accepts_reply: self.accepts_reply,
        }
    }
}

/// The version of a stored snapshot. 1: the task as JSON. 2: the length of the outline (four bytes,
/// little-endian), the outline (the task without its artifacts) as JSON, and the artifacts as JSON. A list
/// reads only the beginning.
const SNAPSHOT_FORMAT: u8 = 2;
/// The length of what precedes an outline: the version and the length field.
const OUTLINE_AT: usize = 5;

/// Encodes a snapshot. See `TaskStore::put_snapshot`.
pub(crate) fn encode_snapshot(task: &Task) -> Bytes {
    let mut bytes = vec![SNAPSHOT_FORMAT, 0, 0, 0, 0];
    // As in `event::encode`, a failure is not possible; an unreadable snapshot is skipped on reading.
    let _ = serde_json::to_writer(&mut bytes, &outline_of(task));
    let length = u32::try_from(bytes.len() - OUTLINE_AT).unwrap_or(u32::MAX);
    bytes[1..OUTLINE_AT].copy_from_slice(&length.to_le_bytes());
    let _ = serde_json::to_writer(&mut bytes, &task.artifacts);
    bytes.into()
}

/// The task without its artifacts, which are not copied.
pub(crate) fn outline_of(task: &Task) -> Task {
    Task {
        origin: task.origin.clone(),
        state: task.state,
        status_at: task.status_at,
        status_message: task.status_message.clone(),
        progress: task.progress.clone(),
        artifacts: vec![],
        history: task.history.clone(),
        questions: task.questions.clone(),
        seq: task.seq,
        changed_at: task.changed_at,
    }
}

fn decode_snapshot(bytes: &[u8]) -> Option<Task> {
    match bytes.split_first()? {
        (1, json) => stored_json::read(json).ok(),
        (&SNAPSHOT_FORMAT, _) => {
            let end = outline_end(bytes)?;
            let mut task: Task = stored_json::read(bytes.get(OUTLINE_AT..end)?).ok()?;
            task.artifacts = stored_json::read(bytes.get(end..)?).ok()?;
            Some(task)
        }
        _ => None,
    }
}

/// Where the outline of a snapshot with this beginning ends; `None` if it has no outline.
pub(crate) fn outline_end(beginning: &[u8]) -> Option<usize> {
    let (&SNAPSHOT_FORMAT, rest) = beginning.split_first()? else { return None };
    let length = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
    usize::try_from(length).ok()?.checked_add(OUTLINE_AT)
}

/// The outline at the beginning of a snapshot; `None` if there is none, or if it is cut off.
pub(crate) fn decode_outline(beginning: &[u8]) -> Option<Task> {
    let end = outline_end(beginning)?;
    stored_json::read(beginning.get(OUTLINE_AT..end)?).ok()
}

/// The approximate size of a task's log in bytes, from its header.
pub(crate) fn weight(head: &[u8]) -> u64 {
    #[derive(Deserialize)]
    struct Weight {
        #[serde(default)]
        bytes: u64,
    }
    serde_json::from_slice::<Weight>(head).map_or(0, |weight| weight.bytes)
}

/// Folds what a store returned. `Ok(None)`: this version cannot read the snapshot's format, and the log
/// before it was not fetched; the caller folds from the start instead.
pub(crate) fn fold(opened: &OpenedTask) -> Result<Option<Task>, Error> {
    let mut task = match &opened.snapshot {
        Some((_, bytes)) => match decode_snapshot(bytes) {
            Some(task) => task,
            None => return Ok(None),
        },
        None => Task::new(TaskHeader::decode(&opened.row.head)?.origin(&opened.row)),
    };
    fold_onto(&mut task, &opened.log)?;
    Ok(Some(task))
}

/// Applies the stored batches after the task's cursor, without artifacts and log lines. Only the last
/// `history` messages of the history are retained.
pub(crate) fn fold_outline_onto(
    task: &mut Task,
    log: &[StoredBatch],
    history: Option<usize>,
) -> Result<(), Error> {
    for batch in log {
        let entries = event::decode_outline(&batch.bytes).map_err(|e| Error::Internal(e.to_string()))?;
        let known = (task.seq + 1).saturating_sub(batch.first_seq) as usize;
        for entry in entries.into_iter().skip(known) {
            match entry.shown() {
                Some(entry) => task.take(entry),
                None => task.seq += 1,
            }
            shorten(task, history);
        }
    }
    Ok(())
}

/// Drops all but the last messages of the history.
pub(crate) fn shorten(task: &mut Task, history: Option<usize>) {
    if let Some(surplus) = history.and_then(|most| task.history.len().checked_sub(most)) {
        task.history.drain(..surplus);
    }
}

/// Applies the stored batches after the task's cursor.
pub(crate) fn fold_onto(task: &mut Task, log: &[StoredBatch]) -> Result<(), Error> {
    for batch in log {
        let entries = event::decode(&batch.bytes).map_err(|e| Error::Internal(e.to_string()))?;
        let known = (task.seq + 1).saturating_sub(batch.first_seq) as usize;
        for entry in entries.into_iter().skip(known) {
            task.take(entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{
        clock::Timestamp,
        content::{Artifact, Message, Part, Role},
        event::Progress,
        question::{Ask, Question},
        task::State,
    };

    /// The oldest header there is, and one with every field. The file is never changed: see
    /// `tests/it/golden.rs`.
    #[test]
    fn heads() {
        let bare = TaskHeader {
            dialect: "a2a/1.0".into(),
            agent_version: "1".into(),
            can_ask: true,
            ..TaskHeader::default()
        };
        let full = TaskHeader {
            can_sample: true,
            metadata: json!({"k": [1, "v"]}).as_object().cloned(),
            trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            depth: 2,
            marks: BTreeMap::from([
                (String::new(), EmitCursor { n: 3, trail: 7 }),
                ("left/inner".into(), EmitCursor { n: 1, trail: 4_294_967_295 }),
            ]),
            ran_ms: 1_500,
            bytes: 4_096,
            ..bare.clone()
        };
        let golden = include_str!("../tests/it/golden/head.json");
        let lines: Vec<&str> = golden.lines().map(|line| line.trim_end_matches(',')).collect();
        for (line, expected) in lines[1..lines.len() - 1].iter().zip([bare, full]) {
            assert_eq!(TaskHeader::decode(line.as_bytes()).unwrap(), expected);
            assert_eq!(std::str::from_utf8(&expected.encode()).unwrap(), *line);
        }
    }

    #[test]
    fn snapshots_in_formats_1_and_2() {
        let id = TaskId(Uuid::from_u128(7));
        let task = Task {
            origin: Origin {
                id,
                client_id: Some("chosen".into()),
                context: "ctx".into(),
                agent: "a".into(),
                owner: "local".into(),
                dialect: "a2a/0.1".into(),
                metadata: json!({"k": 1}).as_object().cloned(),
                trace: None,
                accepts_reply: false,
            },
            state: State::InputRequired,
            status_at: Timestamp(1_700_000_000_000),
            status_message: Some(Message::text("s-1", Role::Agent, "which?")),
            progress: Some((
                4,
                Progress { done: 1.0, total: Some(2.0), text: Some("half".into()), data: None },
            )),
            artifacts: vec![Artifact {
                id: "a".into(),
                name: Some("A".into()),
                description: Some("about".into()),
                parts: vec![Part::text("x"), Part::data(json!({"n": null}))],
                metadata: json!({"k": 1}).as_object().cloned(),
                extensions: vec!["urn:ext".into()],
                complete: true,
            }],
            history: vec![Message::text("m-1", Role::User, "go")],
            questions: vec![(
                5,
                Question {
                    id: "q1".into(),
                    text: "which?".into(),
                    ask: Ask::Form { schema: json!({"type": "object"}) },
                    callback: None,
                },
            )],
            seq: 5,
            changed_at: Timestamp::default(),
        };
        let golden = include_str!("../tests/it/golden/snapshot-1.json").trim_end();
        let mut stored = vec![1];
        stored.extend(golden.as_bytes());
        assert_eq!(decode_snapshot(&stored), Some(task.clone()));
        assert_eq!(decode_outline(&stored), None, "it has no outline");
        let golden = include_str!("../tests/it/golden/snapshot-2.json").trim_end();
        let (outline, artifacts) = golden.split_once('\n').unwrap();
        let mut stored = vec![2];
        stored.extend((outline.len() as u32).to_le_bytes());
        stored.extend(outline.as_bytes());
        let beginning = stored.clone();
        stored.extend(artifacts.as_bytes());
        assert_eq!(decode_snapshot(&stored), Some(task.clone()));
        assert_eq!(encode_snapshot(&task), stored, "today's encoding");
        assert_eq!(
            decode_outline(&beginning),
            Some(outline_of(&task)),
            "the artifacts are not needed for it"
        );
        assert_eq!(decode_outline(&beginning[..beginning.len() - 1]), None);
    }

    #[test]
    fn a_snapshot_of_another_format_is_left_aside() {
        for bytes in [&b""[..], b"\x02{}", b"\x02\x02\0\0\0{}[]", b"\x03{}", b"\x01{", b"\x00"] {
            assert_eq!(decode_snapshot(bytes), None, "{bytes:?}");
        }
    }
}
