//! The few messages of gRPC that the workloads need, by the numbers of their fields.

use anyhow::{Context, ensure};

/// The fields of `StreamResponse` and `SendMessageResponse`.
const TASK: u8 = 1;
const ARTIFACT_UPDATE: u8 = 4;

/// `SendMessageRequest { message: { message_id, role: ROLE_USER, parts: [{ text }] } }`
pub(crate) fn send(id: &str, text: &str) -> Vec<u8> {
    let part = field(1, text.as_bytes());
    let message = [field(1, id.as_bytes()), vec![4 << 3, 1], field(5, &part)].concat();
    field(2, &message)
}

/// `GetTaskRequest { id }`
pub(crate) fn get(task: &str) -> Vec<u8> {
    field(2, task.as_bytes())
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// The id of the task in the answer to a message.
pub(crate) fn task_id(body: &[u8]) -> anyhow::Result<String> {
    let message = messages(body)?.into_iter().next().context("no message")?;
    let (number, task) = first_field(message)?;
    ensure!(number == TASK, "not a task");
    let (number, id) = first_field(task)?;
    ensure!(number == 1, "a task without an id");
    Ok(String::from_utf8(id.to_vec())?)
}

/// How many chunks of artifacts a stream brought.
pub(crate) fn chunks(body: &[u8]) -> anyhow::Result<usize> {
    let events = messages(body)?;
    let kinds: Vec<u8> =
        events.into_iter().map(|event| first_field(event).map(|(kind, _)| kind)).collect::<Result<_, _>>()?;
    Ok(kinds.into_iter().filter(|kind| *kind == ARTIFACT_UPDATE).count())
}

fn messages(mut body: &[u8]) -> anyhow::Result<Vec<&[u8]>> {
    let mut messages = vec![];
    while let Some((prefix, rest)) = body.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let (message, rest) = rest.split_at_checked(length).context("a message that ends early")?;
        messages.push(message);
        body = rest;
    }
    ensure!(body.is_empty(), "a prefix that ends early");
    Ok(messages)
}

fn first_field(message: &[u8]) -> anyhow::Result<(u8, &[u8])> {
    let (tag, mut rest) = message.split_first().context("an empty message")?;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let (byte, after) = rest.split_first().context("a field that ends early")?;
        rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        ensure!(shift < 35, "a length that is too long");
    }
    Ok((tag >> 3, rest.get(..length).context("a field that ends early")?))
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}
