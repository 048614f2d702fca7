//! Server-sent events: however the network cuts the bytes, the events are the same.

use std::time::Duration;

use nuncio_wire::sse::{self, ServerEvent, SseOverflow, SseParser};
use proptest::prelude::*;

use crate::text;

fn events(bytes: &[u8]) -> Vec<ServerEvent> {
    SseParser::new(1 << 20).feed(bytes).unwrap()
}

fn event(id: Option<&str>, name: Option<&str>, data: &str) -> ServerEvent {
    ServerEvent { id: id.map(str::to_owned), event: name.map(str::to_owned), data: data.to_owned() }
}

#[test]
fn streams_are_read_as_the_standard_says() {
    for (stream, expected) in [
        ("data: a\n\n", vec![event(None, None, "a")]),
        ("data:a\r\n\r\n", vec![event(None, None, "a")]),
        ("data: a\r\r", vec![event(None, None, "a")]),
        ("\u{feff}data: a\n\n", vec![event(None, None, "a")]),
        ("data: a\ndata:  b\ndata\n\n", vec![event(None, None, "a\n b\n")]),
        (": comment\n\ndata: a\n\n", vec![event(None, None, "a")]),
        ("event: error\ndata: a\n\n", vec![event(None, Some("error"), "a")]),
        ("event: lost\n\ndata: a\n\n", vec![event(None, None, "a")]),
        ("id: 1\ndata: a\n\ndata: b\n\n", vec![event(Some("1"), None, "a"), event(Some("1"), None, "b")]),
        ("id: 1\nid: 2\0\ndata: a\n\n", vec![event(Some("1"), None, "a")]),
        ("id: 1\n\ndata: a\n\n", vec![event(Some("1"), None, "a")]),
        ("data\n\n", vec![event(None, None, "")]),
        ("unknown: x\nretry: soon\n\n", vec![]),
        ("data: cut", vec![]),
        ("data: cut\n", vec![]),
    ] {
        assert_eq!(events(stream.as_bytes()), expected, "{stream:?}");
    }
}

#[test]
fn retry_and_the_last_id_are_kept() {
    let mut parser = SseParser::new(100);
    assert_eq!(parser.feed(b"retry: 1500\nid: 7\n\n"), Ok(vec![]));
    assert_eq!((parser.retry(), parser.last_id()), (Some(Duration::from_millis(1500)), Some("7")));
}

#[test]
fn an_endless_event_is_refused() {
    let mut parser = SseParser::new(64);
    assert_eq!(parser.feed(&[b'x'; 65]), Err(SseOverflow(64)));
    let mut parser = SseParser::new(64);
    let fed: Result<Vec<_>, _> = (0..20).map(|_| parser.feed(b"data: 12345678\n")).collect();
    assert_eq!(fed, Err(SseOverflow(64)));
    // Many small ones are no large one.
    let mut parser = SseParser::new(64);
    assert_eq!(parser.feed(&b"data: 12345678\n\n".repeat(100)).unwrap().len(), 100);
}

#[test]
fn an_id_counts_when_its_event_has_ended() {
    let mut parser = SseParser::new(100);
    assert_eq!(parser.feed(b"id: 1\n\nid: 2\ndata: half").unwrap(), vec![]);
    assert_eq!(parser.last_id(), Some("1"), "the second event has not been seen");
    assert_eq!(parser.feed(b"\n\n").unwrap().len(), 1);
    assert_eq!(parser.last_id(), Some("2"));
}

#[test]
fn frames_are_written() {
    let frame = |id, data: &str| {
        text(|out| sse::write_numbered_event(out, id, |out| out.extend_from_slice(data.as_bytes())))
    };
    assert_eq!(frame(Some(42), "{}"), "id: 42\ndata: {}\n\n");
    assert_eq!(frame(None, "{}"), "data: {}\n\n");
    assert_eq!(frame(None, "a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
    assert_eq!(events(sse::KEEP_ALIVE), vec![]);
}

proptest! {
    #[test]
    fn what_is_framed_is_read_back(frames in prop::collection::vec((1..1000_u64, "[^\r]{0,30}"), 0..5)) {
        let mut stream = vec![];
        for (id, data) in &frames {
            sse::write_numbered_event(&mut stream, Some(*id), |out| out.extend_from_slice(data.as_bytes()));
            stream.extend_from_slice(sse::KEEP_ALIVE);
        }
        let expected: Vec<_> = frames.iter().map(|(id, data)| event(Some(&id.to_string()), None, data)).collect();
        prop_assert_eq!(events(&stream), expected);
    }

    #[test]
    fn any_cut_gives_the_same_events(
        lines in prop::collection::vec(("(data|id|event|retry|)(:| |: )?[a-zé🦀 ]{0,5}", "\r|\n|\r\n|\n\n|\r\n\r\n|\r\r"), 0..12),
        mark in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut stream = if mark { "\u{feff}".to_owned() } else { String::new() };
        stream.extend(lines.into_iter().flat_map(|(line, end)| [line, end]));
        let bytes = stream.as_bytes();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut parser = SseParser::new(1 << 20);
        let mut pieces = vec![];
        for pair in cuts.windows(2) {
            pieces.extend(parser.feed(&bytes[pair[0]..pair[1]]).unwrap());
        }
        prop_assert_eq!(pieces, events(bytes));
    }
}
