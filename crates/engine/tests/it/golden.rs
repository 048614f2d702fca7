//! Stored formats, byte for byte. What was ever written must be readable for ever: a file here is never
//! changed, a new format gets a new file.
//!
//! A file is the JSON behind the format byte, with a line break after each entry for those who read it. The
//! formats that are private to the engine (journal, head, snapshot) have their tests beside them in `src`.

use nuncio_engine::{
    Answer, Caller, Content, Event, Level, Message, Part, Role, State,
    clock::Timestamp,
    event::{
        self, ArtifactChunk, Entry, FormatError, LogLine, Progress, QuestionAnswer, QuestionWithdrawal,
        Status,
    },
    question::{Ask, Question},
    webhook::{Authentication, WebhookConfig},
};
use serde_json::json;

#[test]
fn events_in_format_1() {
    let golden = include_str!("golden/events-1.json").replace('\n', "");
    let mut stored = vec![1];
    stored.extend(golden.as_bytes());
    let expected = every_event();

    let read = event::decode(&stored).unwrap();
    for (read, expected) in read.iter().zip(&expected) {
        assert_eq!(read, expected);
    }
    assert_eq!(read.len(), expected.len());

    let written = event::encode(&expected);
    assert_eq!(written.count as usize, expected.len());
    assert_eq!(written.bytes[0], event::FORMAT);
    assert_eq!(std::str::from_utf8(&written.bytes[1..]).unwrap(), golden, "today's encoding");
}

/// Events that name their sender. A version before them ignores a member that it does not know, as this one does.
#[test]
fn events_in_format_1_with_senders() {
    let golden = include_str!("golden/events-1-by.json").replace('\n', "");
    let stored = [&[1][..], golden.as_bytes()].concat();
    let read = event::decode(&stored).unwrap();
    let senders: Vec<_> = read.iter().map(|entry| entry.event().by().unwrap().dialect()).collect();
    assert_eq!(senders, ["a2a/1.0", "mcp/2026-07-28", "console"]);
    let boss = Caller::named("acme/boss");
    let caller = |n: usize| read[n].event().by().unwrap().caller_for(&boss, "acme/ada");
    assert_eq!((caller(0), caller(2)), (Some("acme/ada"), Some("acme/boss")));
    assert_eq!(std::str::from_utf8(&event::encode(&read).bytes[1..]).unwrap(), golden, "today's encoding");

    let newer = golden.replace("\"by\":", "\"since_tomorrow\":");
    let read = event::decode(&[&[1][..], newer.as_bytes()].concat()).unwrap();
    assert!(read.iter().all(|entry| entry.event().by().is_none()));
}

#[test]
fn what_was_not_written_by_this_version_or_an_older_one_is_told_apart() {
    let newer = event::decode(&[2, b'[', b']']).unwrap_err();
    assert!(matches!(newer, FormatError::Newer(2)), "{newer}");
    assert!(newer.to_string().contains("run a newer nuncio"), "{newer}");
    for damaged in
        [&b""[..], &[0], &[1], &[1, b'{'], b"\x01[[1,{\"nonsense\":{}}]]", b"\x01[[1,{\"message\":{}}]]"]
    {
        let error = event::decode(damaged).unwrap_err();
        assert!(matches!(error, FormatError::Damaged(_)), "{damaged:?}: {error}");
    }
}

#[test]
fn a_stored_webhook() {
    let plain = WebhookConfig {
        id: "hook".into(),
        url: "https://a.example/hook".into(),
        token: None,
        authentication: None,
        dialect: "a2a/0.3".into(),
    };
    let full = WebhookConfig {
        token: Some("t".into()),
        authentication: Some(Authentication {
            schemes: vec!["Bearer".into()],
            credentials: Some("c".into()),
        }),
        ..plain.clone()
    };
    let golden = include_str!("golden/webhook.json").replace('\n', "");
    let expected = vec![plain, full];
    assert_eq!(serde_json::from_str::<Vec<WebhookConfig>>(&golden).unwrap(), expected);
    assert_eq!(serde_json::to_string(&expected).unwrap(), golden);
}

/// Every variant, with and without every optional field.
fn every_event() -> Vec<Entry> {
    let metadata = json!({"k": [1, 2.5, null, "v"]}).as_object().cloned();
    let bare = Message::text("m-1", Role::User, "hello");
    let full = Message {
        metadata: metadata.clone(),
        extensions: vec!["urn:ext".into()],
        reference_task_ids: vec!["t-1".into()],
        ..Message::of(
            "m-2",
            Role::Agent,
            vec![
                Part::text("päť\n\"quoted\""),
                Content::Bytes(vec![0, 1, 255]).into(),
                Content::Url("https://a.example/f".into()).into(),
                Part::data(json!({"n": null})),
                Part::data(json!(null)),
                Part {
                    content: Content::Text("named".into()),
                    metadata: metadata.clone(),
                    filename: Some("f.txt".into()),
                    media_type: Some("text/plain".into()),
                },
            ],
        )
    };
    let chunk = ArtifactChunk {
        id: "a".into(),
        index: 0,
        parts: vec![Part::text("x")],
        append: false,
        last: false,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    };
    let full_chunk = ArtifactChunk {
        index: 1,
        append: true,
        last: true,
        name: Some("A".into()),
        description: Some("about".into()),
        metadata: metadata.clone(),
        extensions: vec!["urn:ext".into()],
        ..chunk.clone()
    };
    let question = |id: &str, ask| {
        Event::Question(Question { id: id.into(), text: "which?".into(), ask, callback: None })
    };
    let answer =
        |answer, more| Event::Answer(QuestionAnswer { question: "q1".into(), answer, more, by: None });
    let mut events = vec![Event::Message(bare.clone()), Event::Message(full.clone())];
    events.extend(State::ALL.map(|state| Event::Status(Status { state, message: None, by: None })));
    events.push(Event::Status(Status { state: State::Working, message: Some(full), by: None }));
    events.extend([Event::Artifact(chunk), Event::Artifact(full_chunk)]);
    events.push(Event::Progress(Progress { done: 0.1, total: None, text: None, data: None }));
    events.push(Event::Progress(Progress {
        done: 3.0,
        total: Some(7.0),
        text: Some("three".into()),
        data: None,
    }));
    events.extend(
        [
            Level::Debug,
            Level::Info,
            Level::Notice,
            Level::Warning,
            Level::Error,
            Level::Critical,
            Level::Alert,
            Level::Emergency,
        ]
        .map(|level| Event::Log(LogLine { level, text: "line".into() })),
    );
    events.extend([
        question("q1", Ask::Form { schema: json!({"type": "object", "properties": {}}) }),
        question("q2", Ask::Sample { system: None, max_tokens: 10 }),
        question("q3", Ask::Sample { system: Some("be brief".into()), max_tokens: 10 }),
        question("q4", Ask::Authorization { url: "https://a.example/login".into() }),
        answer(Answer::Accept(json!({"x": 1})), false),
        answer(Answer::Accept(json!(null)), true),
        answer(Answer::Decline(None), false),
        answer(Answer::Cancel, false),
        answer(Answer::Unavailable, false),
        Event::Withdrawn(QuestionWithdrawal { question: "q1".into(), more: false }),
        Event::Withdrawn(QuestionWithdrawal { question: "q1".into(), more: true }),
    ]);
    events.into_iter().zip(1_700_000_000_000..).map(|(event, at)| Entry(Timestamp(at), event)).collect()
}
