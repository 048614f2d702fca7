//! What a task may become, and what each event makes of it.

use nuncio_engine::{
    Answer, Artifact, Event, Level, Message, Part, Role, State, Task, TaskId,
    clock::Timestamp,
    event::{ArtifactChunk, Entry, LogLine, Progress, QuestionAnswer, Status},
    question::{Ask, Question},
    task::{Origin, state_while_asking},
};
use proptest::{prelude::*, sample::select};
use serde_json::json;
use uuid::Uuid;

use State::{AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Working};

#[test]
fn nothing_leaves_an_end_and_nothing_is_submitted_twice() {
    let live = [Submitted, Working, InputRequired, AuthRequired];
    let ends = [Completed, Failed, Canceled, Rejected];
    for from in State::ALL {
        for to in State::ALL {
            assert_eq!(from.may_become(to), live.contains(&from) && to != Submitted, "{from:?} -> {to:?}");
        }
        assert_eq!(from.is_terminal(), ends.contains(&from));
        assert_eq!(from.is_interrupted(), [InputRequired, AuthRequired].contains(&from));
    }
}

#[test]
fn a_state_keeps_its_number() {
    let numbers = State::ALL.map(State::code);
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7], "stores hold these");
    for state in State::ALL {
        assert_eq!(State::from_code(state.code()), Some(state));
    }
    assert_eq!((State::Replied.code(), State::from_code(8)), (8, Some(State::Replied)));
    assert_eq!(State::from_code(9), None);
    assert_eq!(
        serde_json::to_value(State::ALL).unwrap(),
        json!([
            "submitted",
            "working",
            "input-required",
            "auth-required",
            "completed",
            "failed",
            "canceled",
            "rejected"
        ])
    );
}

#[test]
fn a_task_id_is_the_hyphenated_form_and_no_other() {
    let id = TaskId(Uuid::now_v7());
    let text = id.to_string();
    assert_eq!(TaskId::parse(&text), Some(id));
    assert_eq!(TaskId::of_own_context(&id.own_context()), Some(id));
    let others = [id.0.simple().to_string(), id.0.braced().to_string(), id.0.urn().to_string(), "x".into()];
    for other in others.iter().chain([&format!("{text} "), &text[1..].to_owned()]) {
        assert_eq!(TaskId::parse(other), None, "{other}");
    }
}

// --------------------------------------------------------------------------------------------- the fold

#[test]
fn the_first_message_makes_a_submitted_task() {
    let task = told([message("m-1", "book a flight")]);
    assert_eq!((task.state, task.status_at, task.seq), (Submitted, Timestamp(1), 1));
    assert_eq!(task.history, [Message::text("m-1", Role::User, "book a flight")]);
    assert_eq!(task.status_message, None);
}

#[test]
fn a_message_changes_no_state() {
    let task = told([message("m-1", "go"), status(Working, None), message("m-2", "faster")]);
    assert_eq!((task.state, task.status_at), (Working, Timestamp(2)));
    assert_eq!(ids(&task), ["m-1", "m-2"]);
}

#[test]
fn what_was_said_about_a_state_becomes_history_when_it_is_left() {
    let mut task = told([message("m-1", "go"), status(Working, Some("s-1"))]);
    assert_eq!(task.status_message.as_ref().unwrap().id, "s-1");
    assert_eq!(ids(&task), ["m-1"], "not while it is said");
    task.apply(&Entry(Timestamp(9), status(Completed, Some("s-2"))));
    assert_eq!((task.state, task.status_at), (Completed, Timestamp(9)));
    assert_eq!(task.status_message.as_ref().unwrap().id, "s-2");
    assert_eq!(ids(&task), ["m-1", "s-1"]);
}

#[test]
fn progress_is_of_a_state_and_not_of_the_history() {
    let progress = Progress { done: 1.0, total: Some(4.0), text: Some("a quarter".into()), data: None };
    let mut task = told([message("m-1", "go"), status(Working, None), Event::Progress(progress.clone())]);
    assert_eq!(task.progress, Some((3, progress)));
    assert_eq!((task.state, task.status_at), (Working, Timestamp(3)), "as the stream has it");
    assert_eq!(ids(&task), ["m-1"]);
    task.apply(&Entry(Timestamp(4), status(Working, None)));
    assert_eq!(task.progress, None);
}

#[test]
fn a_log_line_changes_nothing_but_the_cursor() {
    let before = told([message("m-1", "go"), status(Working, None)]);
    let mut after = before.clone();
    after.apply(&Entry(Timestamp(3), Event::Log(LogLine { level: Level::Alert, text: "smoke".into() })));
    assert_eq!(after.seq, 3);
    after.seq = before.seq;
    assert_eq!(after, before);
}

#[test]
fn chunks_grow_an_artifact_and_adjacent_texts_are_one_part() {
    let mut first = chunk("a", 0, vec![Part::text("one ")]);
    first.name = Some("A".into());
    first.description = Some("about a".into());
    first.metadata = json!({"k": 1}).as_object().cloned();
    first.extensions = vec!["urn:x".into()];
    let second = ArtifactChunk { append: true, ..chunk("a", 0, vec![Part::text("two")]) };
    let mixed = vec![Part::text("!"), Part::data(json!(3))];
    let mixed = ArtifactChunk { append: true, ..chunk("a", 0, mixed) };
    let third = ArtifactChunk { append: true, last: true, ..chunk("a", 0, vec![Part::text("four")]) };
    let task = told([
        message("m-1", "go"),
        Event::Artifact(first.clone()),
        Event::Artifact(chunk("b", 1, vec![Part::text("other")])),
        Event::Artifact(second),
        Event::Artifact(mixed),
        Event::Artifact(third),
    ]);
    let [a, b] = &task.artifacts[..] else { panic!("{:?}", task.artifacts) };
    assert_eq!(
        *a,
        Artifact {
            id: "a".into(),
            name: Some("A".into()),
            description: Some("about a".into()),
            parts: vec![Part::text("one two"), Part::text("!"), Part::data(json!(3)), Part::text("four")],
            metadata: first.metadata,
            extensions: vec!["urn:x".into()],
            complete: true,
        }
    );
    assert_eq!((b.parts.as_slice(), b.complete), ([Part::text("other")].as_slice(), false));
}

#[test]
fn the_parts_of_one_chunk_are_parts_of_their_own() {
    let mut named = Part::text("report");
    named.filename = Some("report.txt".into());
    let parts = vec![Part::text("a"), named.clone(), Part::text("b"), Part::text("c")];
    let task = told([message("m-1", "go"), Event::Artifact(chunk("a", 0, parts))]);
    assert_eq!(task.artifacts[0].parts, [Part::text("a"), named, Part::text("b"), Part::text("c")]);
}

#[test]
fn a_chunk_that_does_not_append_begins_anew() {
    let done = ArtifactChunk { last: true, ..chunk("a", 0, vec![Part::text("draft")]) };
    let task = told([
        message("m-1", "go"),
        Event::Artifact(done),
        Event::Artifact(chunk("a", 0, vec![Part::text("final")])),
    ]);
    assert_eq!(task.artifacts[0].parts, [Part::text("final")]);
    assert!(!task.artifacts[0].complete, "until its last chunk comes again");
}

#[test]
fn a_question_is_the_status_until_it_is_answered() {
    let form = question("q1", Ask::Form { schema: json!({"type": "object", "properties": {}}) });
    let mut task = told([message("m-1", "go"), status(Working, None), Event::Question(form.clone())]);
    assert_eq!((task.state, task.status_at), (InputRequired, Timestamp(3)));
    assert_eq!(task.questions, [(3, form.clone())]);
    assert_eq!(task.status_message, Some(form.message(&task.origin.public_id(), 3)));

    task.apply(&Entry(Timestamp(4), answer("q1", false)));
    assert_eq!((task.state, task.status_at, task.questions.len()), (Working, Timestamp(4), 0));
    assert_eq!(task.status_message, None);
    assert_eq!(task.history.last().unwrap().joined_text(), "What about q1?", "the question is history now");
}

#[test]
fn each_kind_of_question_has_its_state() {
    let sample = Ask::Sample { system: None, max_tokens: 5 };
    let link = Ask::Authorization { url: "https://a.example".into() };
    for (ask, state) in [(sample, InputRequired), (link, AuthRequired)] {
        let question = question("q1", ask);
        assert_eq!(state_while_asking(&question), state);
        assert_eq!(told([message("m-1", "go"), Event::Question(question)]).state, state);
    }
}

#[test]
fn of_several_questions_the_oldest_is_shown() {
    let old = question("q1", Ask::Authorization { url: "https://a.example".into() });
    let young = question("q2", Ask::Sample { system: None, max_tokens: 5 });
    let mut task = told([message("m-1", "go"), Event::Question(old.clone()), Event::Question(young)]);
    assert_eq!((task.state, task.status_at), (AuthRequired, Timestamp(2)));
    assert_eq!(task.status_message, Some(old.message(&task.origin.public_id(), 2)));
    // The younger one is answered: nothing to see of it.
    task.apply(&Entry(Timestamp(4), answer("q2", true)));
    assert_eq!((task.state, task.status_at, task.questions.len()), (AuthRequired, Timestamp(2), 1));
}

#[test]
fn an_end_leaves_nothing_to_answer() {
    let form = question("q1", Ask::Form { schema: json!({}) });
    let task = told([message("m-1", "go"), Event::Question(form), status(Canceled, None)]);
    assert_eq!((task.state, task.questions.len()), (Canceled, 0));
}

// ------------------------------------------------------------------------------------------- properties

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// A snapshot taken anywhere, written down and read again, and the rest of the log on top.
    #[test]
    fn a_fold_goes_on_from_any_point(events in prop::collection::vec(any_event(), 1..40), cut in any::<prop::sample::Index>()) {
        let entries: Vec<Entry> =
            events.into_iter().enumerate().map(|(n, event)| Entry(Timestamp(n as i64), event)).collect();
        let whole = Task::new(origin()).fold(&entries);
        let (before, after) = entries.split_at(cut.index(entries.len()));
        let half = Task::new(origin()).fold(before);
        let half: Task = serde_json::from_slice(&serde_json::to_vec(&half).unwrap()).unwrap();
        prop_assert_eq!(half.fold(after), whole);
    }
}

/// Any event that may come while a task lives.
fn any_event() -> impl Strategy<Value = Event> {
    let ask = select(vec![
        Ask::Form { schema: json!({"type": "object", "properties": {"x": {"type": "string"}}}) },
        Ask::Sample { system: Some("be brief".into()), max_tokens: 7 },
        Ask::Authorization { url: "https://a.example".into() },
    ]);
    let part = prop_oneof![
        ".{0,8}".prop_map(Part::text),
        any::<f64>().prop_map(|n| Part::data(json!({ "n": n }))),
        any::<Vec<u8>>().prop_map(|bytes| nuncio_engine::Content::Bytes(bytes).into()),
    ];
    let id = select(vec!["q1", "q2", "q3"]);
    prop_oneof![
        ".{0,8}".prop_map(|text| message("m", &text)),
        select(vec![Working, InputRequired, AuthRequired]).prop_map(|state| status(state, Some("s"))),
        (0..3_u32, prop::collection::vec(part, 0..3), any::<bool>(), any::<bool>()).prop_map(
            |(index, parts, append, last)| {
                Event::Artifact(ArtifactChunk { append, last, ..chunk(&format!("a{index}"), index, parts) })
            }
        ),
        (any::<f64>().prop_filter("progress is finite", |n| n.is_finite()), any::<Option<u8>>()).prop_map(
            |(done, total)| Event::Progress(Progress {
                done,
                total: total.map(f64::from),
                text: None,
                data: None
            })
        ),
        Just(Event::Log(LogLine { level: Level::Info, text: "line".into() })),
        (id.clone(), ask).prop_map(|(id, ask)| Event::Question(question(id, ask))),
        (id, any::<bool>()).prop_map(|(id, more)| answer(id, more)),
    ]
}

// --------------------------------------------------------------------------------------------- shorthand

/// The task after these events, each a millisecond after the one before.
fn told<const N: usize>(events: [Event; N]) -> Task {
    let entries: Vec<Entry> = (1..).zip(events).map(|(n, event)| Entry(Timestamp(n), event)).collect();
    Task::new(origin()).fold(&entries)
}

fn origin() -> Origin {
    let id = TaskId(Uuid::from_u128(7));
    Origin {
        id,
        client_id: None,
        context: id.own_context(),
        agent: "a".into(),
        owner: "local".into(),
        dialect: "engine".into(),
        metadata: None,
        trace: None,
        accepts_reply: false,
    }
}

fn ids(task: &Task) -> Vec<&str> {
    task.history.iter().map(|message| message.id.as_str()).collect()
}

fn message(id: &str, text: &str) -> Event {
    Event::Message(Message::text(id, Role::User, text))
}

fn status(state: State, message: Option<&str>) -> Event {
    Event::Status(Status {
        state,
        message: message.map(|id| Message::text(id, Role::Agent, "so it is")),
        by: None,
    })
}

fn chunk(id: &str, index: u32, parts: Vec<Part>) -> ArtifactChunk {
    ArtifactChunk {
        id: id.into(),
        index,
        parts,
        append: false,
        last: false,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    }
}

fn question(id: &str, ask: Ask) -> Question {
    Question { id: id.into(), text: format!("What about {id}?"), ask, callback: None }
}

fn answer(question: &str, more: bool) -> Event {
    Event::Answer(QuestionAnswer { question: question.into(), answer: Answer::Decline(None), more, by: None })
}
