//! Server-sent events, written once for every protocol that streams.

mod parser;

pub use parser::{ServerEvent, SseOverflow, SseParser};

use std::{fmt::Display, io::Write as _};

/// A comment: it keeps proxies from closing a quiet stream, and no client hands it to anybody.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Writes one event whose id is a number: the id, where there is one, then what the closure writes as its data.
pub fn write_numbered_event(out: &mut Vec<u8>, id: Option<u64>, data: impl FnOnce(&mut Vec<u8>)) {
    write_event(out, id.as_ref().map(|id| id as &dyn Display), data);
}

/// Writes one event: the id, where there is one, then what the closure writes as its data.
pub fn write_event(out: &mut Vec<u8>, id: Option<&dyn Display>, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(id) = id {
        // A Vec takes everything.
        let _ = writeln!(out, "id: {id}");
    }
    out.extend_from_slice(b"data: ");
    let start = out.len();
    data(out);
    // Compact JSON is one line. What is not would end the event early, so each line gets a field of its own.
    if out[start..].iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let lines = out.split_off(start);
        let text = String::from_utf8_lossy(&lines).replace("\r\n", "\n").replace('\r', "\n");
        out.extend_from_slice(text.replace('\n', "\ndata: ").as_bytes());
    }
    out.extend_from_slice(b"\n\n");
}
