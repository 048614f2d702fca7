//! One trace through a task, its children, its resumed work and its webhooks (W3C Trace Context).
//!
//! Only the `traceparent` of the request that created a task is stored. Span ids are derived from what they
//! stand for, so that a node that continues after a crash uses the same ones. A task created without a trace
//! begins one, under its own id. Finished spans are sent to a [`Tracer`], if there is one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{
    clock::Timestamp,
    event::{Entry, Event},
    task::{Origin, State, TaskId},
};

/// Exports finished spans to a tracing backend. It must not block.
pub trait Tracer: Send + Sync + 'static {
    /// Records a finished span.
    fn record_span(&self, span: Span);
}

/// The trace that a task belongs to, and the task's own span in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The trace id.
    pub id: [u8; 16],
    /// The span of the request that created the task, if the request had a trace.
    pub parent: Option<[u8; 8]>,
    /// The id of the task's own span.
    pub span: [u8; 8],
    /// Whether the trace is to be recorded.
    pub sampled: bool,
}

/// A finished piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The id of its trace.
    pub trace: [u8; 16],
    /// The span's own id.
    pub id: [u8; 8],
    /// The id of the enclosing span.
    pub parent: Option<[u8; 8]>,
    /// The operation, for display.
    pub name: String,
    /// Which side of a request it is.
    pub kind: SpanKind,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The error, if it failed.
    pub error: Option<String>,
    /// Key-value attributes of the span.
    pub attributes: Vec<(&'static str, String)>,
}

/// Which side of a request a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Internal work, not a request.
    Internal,
    /// The serving side of a request.
    Server,
    /// The requesting side of a call to another server.
    Client,
}

impl Trace {
    /// The trace of a task.
    pub fn of(origin: &Origin) -> Self {
        let span = derived(&[origin.id.0.as_bytes()]);
        match origin.trace.as_deref().and_then(parse) {
            Some((id, parent, sampled)) => Self { id, parent: Some(parent), span, sampled },
            None => Self { id: origin.id.0.into_bytes(), parent: None, span, sampled: true },
        }
    }

    /// The `traceparent` of the task's outgoing requests.
    pub fn header(&self) -> String {
        self.header_under(self.span)
    }

    /// The `traceparent` of outgoing requests of that span.
    pub fn header_under(&self, span: [u8; 8]) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        for byte in self.id {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in span {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }

    /// The span id of a named part of the task's work: the same on every node and every attempt.
    pub fn part(&self, name: &str) -> [u8; 8] {
        derived(&[&self.span, name.as_bytes()])
    }

    /// The span of a part of the task's work.
    pub(crate) fn span(&self, task: TaskId, name: String, start: Timestamp, end: Timestamp) -> Span {
        Span {
            trace: self.id,
            id: self.span,
            parent: Some(self.span),
            name,
            kind: SpanKind::Internal,
            start,
            end,
            error: None,
            attributes: vec![("nuncio.task", task.to_string())],
        }
    }

    /// The span of a whole task that ended with that event; `None` if it did not end.
    pub(crate) fn whole(origin: &Origin, last: &Entry) -> Option<Span> {
        let Entry(at, Event::Status(status)) = last else { return None };
        if !status.state.is_terminal() {
            return None;
        }
        let trace = Self::of(origin);
        if !trace.sampled {
            return None;
        }
        let words = || status.message.as_ref().map(crate::content::Message::joined_text).unwrap_or_default();
        let mut span = trace.span(origin.id, format!("task {}", origin.agent), origin.id.made_at(), *at);
        (span.id, span.parent, span.kind) = (trace.span, trace.parent, SpanKind::Server);
        span.error = (status.state == State::Failed).then(words);
        span.attributes.extend([
            ("nuncio.agent", origin.agent.clone()),
            ("nuncio.context", origin.context.clone()),
            ("nuncio.state", status.state.name().to_owned()),
            ("nuncio.dialect", origin.dialect.clone()),
            // The semantic conventions of OpenTelemetry for generative AI.
            ("gen_ai.operation.name", "invoke_agent".to_owned()),
            ("gen_ai.agent.name", origin.agent.clone()),
            ("gen_ai.conversation.id", origin.context.clone()),
        ]);
        Some(span)
    }
}

/// Parses a `traceparent`: trace id, parent span id, sampled flag. `None` if it is invalid.
pub fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let bytes = text.trim().as_bytes();
    let version = bytes.get(..2)?;
    // Later versions may append fields; version 00 may not, and ff is invalid.
    let legal = version != b"ff" && (bytes.len() == 55 || (version != b"00" && bytes.get(55) == Some(&b'-')));
    let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
    if !legal || !dashes {
        return None;
    }
    hex::<1>(version)?;
    let (trace, span) = (hex::<16>(&bytes[3..35])?, hex::<8>(&bytes[36..52])?);
    let [flags] = hex::<1>(&bytes[53..55])?;
    (trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags & 1 == 1))
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = digit(*text.get(2 * at)?)? << 4 | digit(*text.get(2 * at + 1)?)?;
    }
    Some(out)
}

/// An id derived from what it stands for.
fn derived(of: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    for piece in of {
        hash.update(piece);
        hash.update([0xff]);
    }
    let digest = hash.finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // All zeros is not a valid id.
    id[7] |= u8::from(id == [0; 8]);
    id
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn origin(trace: Option<&str>) -> Origin {
        let id = TaskId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001));
        Origin {
            id,
            client_id: None,
            context: id.own_context(),
            agent: "echo".into(),
            owner: "local".into(),
            dialect: "engine".into(),
            metadata: None,
            trace: trace.map(str::to_owned),
            accepts_reply: false,
        }
    }

    #[test]
    fn a_task_goes_on_with_the_trace_that_it_was_given() {
        let trace = Trace::of(&origin(Some(GIVEN)));
        let (id, parent, _) = parse(GIVEN).unwrap();
        assert_eq!((trace.id, trace.parent), (id, Some(parent)));
        let (again, under, sampled) = parse(&trace.header()).unwrap();
        assert_eq!((again, under, sampled), (id, trace.span, true));
        assert_eq!(Trace::of(&origin(Some(GIVEN))), trace, "the same after a restart");
        assert!(Trace::of(&origin(Some(&GIVEN.replace("-01", "-00")))).header().ends_with("-00"));
    }

    #[test]
    fn a_task_without_a_trace_begins_one() {
        for nothing in [None, Some("nonsense")] {
            let trace = Trace::of(&origin(nothing));
            assert_eq!((trace.id, trace.parent), (origin(None).id.0.into_bytes(), None));
            assert!(parse(&trace.header()).is_some());
        }
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        assert!(parse(GIVEN).is_some());
        assert!(parse(&format!("cc{}-what-comes", &GIVEN[2..])).is_some(), "of a version that is to come");
        for wrong in [
            "",
            "00",
            &GIVEN.to_uppercase(),
            &format!("{GIVEN}-more"),
            &format!("ff{}", &GIVEN[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "00-0af7651916cd43dd8448eb211c80319cxb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b716920333-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
