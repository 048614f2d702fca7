//! A task of 1.0 as a protobuf message, written straight from the engine's types.
//!
//! The answer to nearly every call is a task. To write its JSON and translate that takes a fifth of a small call, so the
//! few messages that a task consists of have a writer here, by the numbers of their fields. It writes the same bytes as
//! the translation, which a property test compares. Free data (`metadata`, `data`) is translated.

use nuncio_engine::{
    content::{Artifact, Content, Message, Metadata, Part, Role},
    task::Task,
};
use serde::Serialize;

use crate::{
    a2a::{TaskDetail, TaskIds, message::MessageIds, status, task},
    json,
    protobuf::{self, ProtobufError, write_bytes, write_nested, write_number},
    timestamp,
};

type Written = Result<(), ProtobufError>;

/// Writes a `SendMessageResponse`: the task, or the message with which the agent answered.
pub(super) fn write_sent(out: &mut Vec<u8>, task: &Task, view: TaskDetail) -> Written {
    match task.reply() {
        Some(message) => {
            let ids = MessageIds { task: None, context: Some(&task.origin.context) };
            write_nested(out, 2, |out| write_message(out, ids, message))
        }
        None => write_nested(out, 1, |out| write_task(out, task, view)),
    }
}

/// Writes a `Task`.
pub(super) fn write_task(out: &mut Vec<u8>, task: &Task, view: TaskDetail) -> Written {
    let id = task.origin.public_id();
    let ids = TaskIds { task: &id, context: &task.origin.context };
    write_text(out, 1, ids.task);
    write_text(out, 2, ids.context);
    write_nested(out, 3, |out| write_status(out, ids, task))?;
    for artifact in task.artifacts.iter().filter(|_| view.artifacts) {
        write_nested(out, 4, |out| write_artifact(out, artifact))?;
    }
    for message in task::shown_history(task, view) {
        write_nested(out, 5, |out| write_message(out, ids.into(), message))?;
    }
    write_metadata(out, 6, task.origin.metadata.as_ref())
}

fn write_status(out: &mut Vec<u8>, ids: TaskIds<'_>, task: &Task) -> Written {
    write_number(out, 1, status::state_number(task.state));
    if let Some(message) = task::status_message(task, ids.task) {
        write_nested(out, 2, |out| write_message(out, ids.into(), &message))?;
    }
    write_nested(out, 3, |out| {
        let millis = timestamp::shown_millis(task.status_at);
        for (number, value) in [(1, millis.div_euclid(1000)), (2, millis.rem_euclid(1000) * 1_000_000)] {
            if value != 0 {
                write_number(out, number, value as u64);
            }
        }
        Ok(())
    })
}

fn write_message(out: &mut Vec<u8>, ids: MessageIds<'_>, message: &Message) -> Written {
    write_text(out, 1, &message.id);
    write_text(out, 2, ids.context.unwrap_or_default());
    write_text(out, 3, ids.task.unwrap_or_default());
    write_number(out, 4, if message.role == Role::Agent { 2 } else { 1 });
    write_parts(out, 5, &message.parts)?;
    write_metadata(out, 6, message.metadata.as_ref())?;
    write_texts(out, 7, &message.extensions);
    write_texts(out, 8, &message.reference_task_ids);
    Ok(())
}

fn write_artifact(out: &mut Vec<u8>, artifact: &Artifact) -> Written {
    write_text(out, 1, &artifact.id);
    write_text(out, 2, artifact.name.as_deref().unwrap_or_default());
    write_text(out, 3, artifact.description.as_deref().unwrap_or_default());
    write_parts(out, 4, &artifact.parts)?;
    write_metadata(out, 5, artifact.metadata.as_ref())?;
    write_texts(out, 6, &artifact.extensions);
    Ok(())
}

fn write_parts(out: &mut Vec<u8>, number: u32, parts: &[Part]) -> Written {
    parts.iter().try_for_each(|part| write_nested(out, number, |out| write_part(out, part)))
}

fn write_part(out: &mut Vec<u8>, part: &Part) -> Written {
    // Also where it is empty: the field that is there names the kind of the part.
    match &part.content {
        Content::Text(text) => write_bytes(out, 1, text.as_bytes()),
        Content::Bytes(bytes) => write_bytes(out, 2, bytes),
        Content::Url(url) => write_bytes(out, 3, url.as_bytes()),
        Content::Data(data) => write_free(out, 4, "google.protobuf.Value", data)?,
    }
    write_text(out, 6, part.filename.as_deref().unwrap_or_default());
    write_text(out, 7, part.media_type.as_deref().unwrap_or_default());
    write_metadata(out, 5, part.metadata.as_ref())
}

fn write_metadata(out: &mut Vec<u8>, number: u32, metadata: Option<&Metadata>) -> Written {
    match metadata {
        Some(metadata) => write_free(out, number, "google.protobuf.Struct", metadata),
        None => Ok(()),
    }
}

/// Writes free data as the message of that name.
fn write_free(out: &mut Vec<u8>, number: u32, name: &str, data: &impl Serialize) -> Written {
    let message = protobuf::message(name).ok_or_else(|| ProtobufError(format!("there is no {name}")))?;
    let mut json = Vec::new();
    json::value(&mut json, data);
    write_nested(out, number, |out| message.write_from_json(out, &json))
}

/// Writes a text, unless it is empty: that is what absence means.
fn write_text(out: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        write_bytes(out, number, text.as_bytes());
    }
}

fn write_texts(out: &mut Vec<u8>, number: u32, texts: &[String]) {
    for text in texts {
        write_bytes(out, number, text.as_bytes());
    }
}
