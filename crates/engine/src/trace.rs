//! One trace through a task, its children, its resumed work and its webhooks (W3C Trace Context).
//!
//! Nothing of it has to be remembered but the `traceparent` of the request that made a task: the ids of spans are
//! made of what they stand for, so that whoever goes on after a crash names the same ones. A task that was made
//! without a trace begins one, under its own id. What ended is told to a [`Tracer`], where there is one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{
    clock::Timestamp,
    event::{Entry, Event},
    task::{Origin, State, TaskId},
};

/// Takes what ended, and sends it to wherever traces are looked at. It must not wait.
pub trait Tracer: Send + Sync + 'static {
    /// A piece of work has ended.
    fn record_span(&self, span: Span);
}

/// The trace that a task belongs to, and the task's own place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub id: [u8; 16],
    /// Who asked for the task, if somebody did who takes part in the trace.
    pub parent: Option<[u8; 8]>,
    /// The task's own span.
    pub span: [u8; 8],
    /// Whether somebody wants to see it.
    pub sampled: bool,
}

/// A piece of work that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: [u8; 16],
    /// Its own id.
    pub id: [u8; 8],
    /// What it is a part of.
    pub parent: Option<[u8; 8]>,
    /// What was done.
    pub name: String,
    /// Which side of a request it is.
    pub kind: SpanKind,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What there is to know about it.
    pub attributes: Vec<(&'static str, String)>,
}

/// Which side of a request a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of its own.
    Internal,
    /// Somebody asked for it.
    Server,
    /// It asks somebody else.
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

    /// `traceparent` for whatever the task asks of others.
    pub fn header(&self) -> String {
        self.header_under(self.span)
    }

    /// `traceparent` for what that span asks of others.
    pub fn header_under(&self, span: [u8; 8]) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        for byte in self.id {
            // A String takes everything.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in span {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }

    /// The id of a part of the task's work that has this name, whoever does it and however often.
    pub fn part(&self, name: &str) -> [u8; 8] {
        derived(&[&self.span, name.as_bytes()])
    }

    /// A part of the task's work.
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

    /// The whole of a task that ended with that event; `None` if it did not.
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
        ]);
        Some(span)
    }
}

/// Reads a `traceparent`: the trace, the span that asks, whether it is wanted. `None`: it is none.
pub fn parse(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let bytes = text.trim().as_bytes();
    let version = bytes.get(..2)?;
    // Later versions may say more behind what is known of them; this one may not, and ff is none.
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

/// An id that is made of what it stands for.
fn derived(of: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    for piece in of {
        hash.update(piece);
        hash.update([0xff]);
    }
    let digest = hash.finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // All zeros would be no id.
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
