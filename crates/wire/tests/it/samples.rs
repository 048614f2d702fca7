//! One of everything, for snapshots and schemas.

use nuncio_engine::{
    clock::Timestamp,
    content::{Content, Message, Part, Role},
    event::{ArtifactChunk, Entry, Event, Level, LogLine, Progress, QuestionAnswer, Status},
    question::{Answer, Ask, Question},
    task::{Origin, State, Task, TaskId},
    webhook::{Authentication, WebhookConfig},
};
use nuncio_wire::a2a::{A2aCall, Dialect, ListTasks, SendMessage};
use serde_json::json;
use uuid::Uuid;

pub(crate) fn origin() -> Origin {
    Origin {
        id: TaskId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001)),
        client_id: None,
        context: "c-1".to_owned(),
        agent: "travel".to_owned(),
        owner: "local".to_owned(),
        dialect: Dialect::V1.name().to_owned(),
        metadata: None,
        trace: None,
        accepts_reply: false,
    }
}

/// A message with a part of every kind.
pub(crate) fn message() -> Message {
    let mut message = Message::of(
        "m-1",
        Role::User,
        vec![
            Part::text("Book a flight"),
            Part {
                content: Content::Bytes(b"%PDF".to_vec()),
                metadata: None,
                filename: Some("pass.pdf".to_owned()),
                media_type: Some("application/pdf".to_owned()),
            },
            Content::Url("https://example.com/map.png".to_owned()).into(),
            Part::data(json!({ "seats": 2 })),
            Part::data(json!([1, 2])),
        ],
    );
    message.metadata = json!({ "lang": "en" }).as_object().cloned();
    message.extensions = vec!["https://example.com/ext".to_owned()];
    message.reference_task_ids = vec!["t-0".to_owned()];
    message
}

fn status(state: State, message: Option<&str>) -> Event {
    Event::Status(Status {
        state,
        message: message.map(|text| Message::text("s-1", Role::Agent, text)),
        by: None,
    })
}

fn chunk(text: &str, append: bool) -> Event {
    Event::Artifact(ArtifactChunk {
        id: "itinerary".to_owned(),
        index: 0,
        parts: vec![Part::text(text)],
        append,
        last: append,
        name: (!append).then(|| "Itinerary".to_owned()),
        description: None,
        metadata: None,
        extensions: vec![],
    })
}

/// Every kind of event, by name.
pub(crate) fn events() -> Vec<(&'static str, Entry)> {
    let ask = |id: &str, text: &str, ask| {
        Event::Question(Question { id: id.to_owned(), text: text.to_owned(), ask, callback: None })
    };
    let form =
        Ask::Form { schema: json!({ "type": "object", "properties": { "city": { "type": "string" } } }) };
    let link = Ask::Authorization { url: "https://example.com/login".to_owned() };
    let events = [
        ("message", Event::Message(message())),
        ("working", status(State::Working, None)),
        (
            "progress",
            Event::Progress(Progress {
                done: 1.0,
                total: Some(4.0),
                text: Some("searching".to_owned()),
                data: None,
            }),
        ),
        (
            "progress without words",
            Event::Progress(Progress { done: 0.5, total: None, text: None, data: None }),
        ),
        ("log", Event::Log(LogLine { level: Level::Info, text: "GET /flights".to_owned() })),
        ("artifact", chunk("Monday: ", false)),
        ("artifact, appended and last", chunk("Lisbon", true)),
        ("question", ask("q-1", "Where to?", form)),
        (
            "answer",
            Event::Answer(QuestionAnswer {
                question: "q-1".to_owned(),
                answer: Answer::Accept(json!({ "city": "Lisbon" })),
                more: false,
                by: None,
            }),
        ),
        ("sample", ask("q-2", "Name a city", Ask::Sample { system: None, max_tokens: 20 })),
        ("authorization", ask("q-3", "Please sign in", link)),
        ("completed", status(State::Completed, Some("Booked."))),
        ("failed", status(State::Failed, Some("No seats."))),
        ("canceled", status(State::Canceled, None)),
        ("rejected", status(State::Rejected, Some("I only do flights."))),
    ];
    let at = |index: usize| Timestamp(1_731_700_000_000 + 1000 * index as i64);
    events.into_iter().enumerate().map(|(index, (name, event))| (name, Entry(at(index), event))).collect()
}

/// A task after those of the events that are named.
pub(crate) fn task_after(names: &[&str]) -> Task {
    let events = events();
    let entries = names.iter().map(|name| &events.iter().find(|(given, _)| given == name).unwrap().1);
    Task::new(origin()).fold(entries)
}

pub(crate) fn finished_task() -> Task {
    task_after(&["message", "working", "artifact", "artifact, appended and last", "completed"])
}

pub(crate) fn webhook(dialect: Dialect) -> WebhookConfig {
    WebhookConfig {
        id: "hook-1".to_owned(),
        url: "https://example.com/hook".to_owned(),
        token: Some("secret-token".to_owned()),
        authentication: Some(Authentication {
            schemes: vec!["Bearer".to_owned()],
            credentials: Some("secret-credentials".to_owned()),
        }),
        dialect: dialect.name().to_owned(),
    }
}

/// Every kind of call.
pub(crate) fn calls(dialect: Dialect) -> Vec<A2aCall> {
    let task = || "t-1".to_owned();
    let send = SendMessage {
        client_task_id: Some(task()),
        context_id: Some("c-1".to_owned()),
        blocking: false,
        history_length: Some(3),
        accepted_output_modes: vec!["text/plain".to_owned()],
        webhook: Some(webhook(dialect)),
        metadata: json!({ "trace": "x" }).as_object().cloned(),
        ..SendMessage::new(message())
    };
    let reply =
        SendMessage { task_id: Some(task()), ..SendMessage::new(Message::text("m-2", Role::User, "Lisbon")) };
    let list = ListTasks {
        context: Some("c-1".to_owned()),
        state: Some(State::Working),
        since: Some(Timestamp(1_731_700_000_000)),
        include_artifacts: true,
        ..ListTasks::default()
    };
    vec![
        A2aCall::Send(Box::new(send)),
        A2aCall::Stream(Box::new(reply)),
        A2aCall::Get { task: task(), history_length: Some(2) },
        A2aCall::List(list),
        A2aCall::Cancel { task: task(), metadata: None },
        A2aCall::Subscribe { task: task() },
        A2aCall::SetWebhook { task: task(), config: webhook(dialect) },
        A2aCall::GetWebhook { task: task(), id: Some("hook-1".to_owned()) },
        A2aCall::ListWebhooks { task: task(), page_size: Some(10), page_token: None },
        A2aCall::DeleteWebhook { task: task(), id: "hook-1".to_owned() },
        A2aCall::ExtendedCard,
    ]
}
