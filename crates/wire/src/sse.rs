//! Server-sent events, shared by every protocol that streams.

mod parser;

pub use parser::{ServerEvent, SseOverflow, SseParser};

use std::{fmt::Display, io::Write as _};

/// A comment line: it prevents proxies from closing an idle stream, and clients ignore it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Writes one event with an optional numeric id; the closure writes its data.
pub fn write_numbered_event(out: &mut Vec<u8>, id: Option<u64>, data: impl FnOnce(&mut Vec<u8>)) {
    write_event(out, id.as_ref().map(|id| id as &dyn Display), data);
}

/// Writes the type of the event that is written next.
pub fn write_event_type(out: &mut Vec<u8>, kind: &str) {
    let _ = writeln!(out, "event: {kind}");
}

/// Writes one event with an optional id; the closure writes its data.
pub fn write_event(out: &mut Vec<u8>, id: Option<&dyn Display>, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(id) = id {
        // Writing to a Vec cannot fail.
        let _ = writeln!(out, "id: {id}");
    }
    out.extend_from_slice(b"data: ");
    let start = out.len();
    data(out);
    // Compact JSON is one line. A newline would end the event early, so each line becomes a `data` field of its
    // own.
    if out[start..].iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let lines = out.split_off(start);
        let text = String::from_utf8_lossy(&lines).replace("\r\n", "\n").replace('\r', "\n");
        out.extend_from_slice(text.replace('\n', "\ndata: ").as_bytes());
    }
    out.extend_from_slice(b"\n\n");
}
