//! Arbitrary engine types, as far as the engine makes them.

use nuncio_engine::{
    clock::Timestamp,
    content::{Artifact, Content, Message, Metadata, Part, Role},
    event::{ArtifactChunk, Entry, Event, Level, LogLine, Progress, QuestionAnswer, Status},
    question::{Answer, Ask, Question},
    task::{Origin, State, Task, TaskId},
    webhook::{Authentication, WebhookConfig},
};
use nuncio_wire::a2a::{A2aCall, Dialect, ListTasks, SendMessage};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};
use uuid::Uuid;

/// A name that says something: empty ones stand for absence in all dialects.
pub(crate) fn id() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 \"\\\\é🦀-]{1,12}"
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,20}", "\\PC{0,12}", Just("line\nbreak\r\n\u{2028}\u{0}".to_owned())]
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Quarters are exact in binary; how other fractions round is serde's business.
        (-4000..4000_i32).prop_map(|quarters| json!(f64::from(quarters) / 4.0)),
        words().prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((id(), inner), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

pub(crate) fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    option::weighted(0.3, vec((id(), any_json()), 0..3).prop_map(|members| members.into_iter().collect()))
}

fn some_text() -> impl Strategy<Value = Option<String>> {
    option::weighted(0.3, id())
}

pub(crate) fn timestamp() -> impl Strategy<Value = Timestamp> {
    (0..4_102_444_800_000_i64).prop_map(Timestamp)
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        3 => words().prop_map(Content::Text),
        1 => vec(any::<u8>(), 0..40).prop_map(Content::Bytes),
        1 => id().prop_map(|path| Content::Url(format!("https://example.com/{path}"))),
        2 => any_json().prop_map(Content::Data),
    ];
    (content, metadata(), some_text(), some_text()).prop_map(|(content, metadata, filename, media_type)| {
        Part { content, metadata, filename, media_type }
    })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    vec(part(), 1..4)
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let role = select(vec![Role::User, Role::Agent]);
    (id(), role, parts(), metadata(), vec(id(), 0..2), vec(id(), 0..2)).prop_map(
        |(id, role, parts, metadata, extensions, reference_task_ids)| Message {
            id,
            role,
            parts,
            metadata,
            extensions,
            reference_task_ids,
            by: None,
        },
    )
}

fn artifact() -> impl Strategy<Value = Artifact> {
    (id(), some_text(), some_text(), parts(), metadata(), vec(id(), 0..2), any::<bool>()).prop_map(
        |(id, name, description, parts, metadata, extensions, complete)| Artifact {
            id,
            name,
            description,
            parts,
            metadata,
            extensions,
            complete,
        },
    )
}

fn chunk() -> impl Strategy<Value = ArtifactChunk> {
    (artifact(), 0..5_u32, any::<bool>()).prop_map(|(artifact, index, append)| ArtifactChunk {
        id: artifact.id,
        index,
        parts: artifact.parts,
        append,
        last: artifact.complete,
        name: artifact.name,
        description: artifact.description,
        metadata: artifact.metadata,
        extensions: artifact.extensions,
    })
}

fn progress() -> impl Strategy<Value = Progress> {
    let figure = || (0..400_u32).prop_map(|quarters| f64::from(quarters) / 4.0);
    (figure(), option::of(figure()), some_text()).prop_map(|(done, total, text)| Progress {
        done,
        total,
        text,
        data: None,
    })
}

fn state() -> impl Strategy<Value = State> {
    select(State::ALL.to_vec())
}

fn question() -> impl Strategy<Value = Question> {
    let ask = prop_oneof![
        Just(Ask::Form { schema: json!({ "type": "object", "required": ["city"] }) }),
        (1..100_u32).prop_map(|max_tokens| Ask::Sample { system: None, max_tokens }),
        id().prop_map(|path| Ask::Authorization { url: format!("https://example.com/{path}") }),
    ];
    (id(), words(), ask).prop_map(|(id, text, ask)| Question { id, text, ask, callback: None })
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    let event = prop_oneof![
        message().prop_map(Event::Message),
        (state(), option::of(message())).prop_map(|(state, message)| Event::Status(Status {
            state,
            message,
            by: None
        })),
        chunk().prop_map(Event::Artifact),
        progress().prop_map(Event::Progress),
        words().prop_map(|text| Event::Log(LogLine { level: Level::Info, text })),
        question().prop_map(Event::Question),
        id().prop_map(|question| Event::Answer(QuestionAnswer {
            question,
            answer: Answer::Decline(None),
            more: false,
            by: None,
        })),
    ];
    (timestamp(), event).prop_map(|(at, event)| Entry(at, event))
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let origin = (any::<u128>(), option::of(id()), id(), metadata()).prop_map(
        |(uuid, client_id, context, metadata)| Origin {
            id: TaskId(Uuid::from_u128(uuid)),
            client_id,
            context,
            agent: "echo".to_owned(),
            owner: "local".to_owned(),
            dialect: Dialect::V1.name().to_owned(),
            metadata,
            trace: None,
            accepts_reply: false,
        },
    );
    let said = (option::of(message()), option::weighted(0.2, progress()), vec(message(), 0..3));
    (origin, state(), timestamp(), said, vec(artifact(), 0..3), 1..1000_u64).prop_map(
        |(origin, state, status_at, (status_message, progress, history), artifacts, seq)| Task {
            state,
            status_at,
            status_message,
            progress: progress.map(|progress| (seq, progress)),
            artifacts,
            history,
            seq,
            ..Task::new(origin)
        },
    )
}

pub(crate) fn webhook(dialect: Dialect) -> impl Strategy<Value = WebhookConfig> {
    let authentication = (vec(id(), 0..3), some_text())
        .prop_map(|(schemes, credentials)| Authentication { schemes, credentials });
    (id(), id(), some_text(), option::of(authentication)).prop_map(move |(id, url, token, authentication)| {
        WebhookConfig { id, url, token, authentication, dialect: dialect.name().to_owned() }
    })
}

fn send(dialect: Dialect) -> impl Strategy<Value = SendMessage> {
    let ids = (id(), option::of(id()), option::of(id()));
    let how = (any::<bool>(), option::of(0..9_usize), vec(id(), 0..2), option::of(webhook(dialect)));
    let message = message().prop_map(|message| Message { role: Role::User, ..message });
    (ids, message, how, metadata()).prop_map(
        |((client_task_id, task_id, context_id), message, how, metadata)| SendMessage {
            client_task_id: Some(client_task_id),
            task_id,
            context_id,
            message,
            blocking: how.0,
            history_length: how.1,
            accepted_output_modes: how.2,
            webhook: how.3,
            metadata,
        },
    )
}

fn list() -> impl Strategy<Value = ListTasks> {
    let which = (option::of(id()), option::of(state()), option::of(timestamp()));
    (which, 1..=100_usize, option::of(id()), option::of(0..9_usize), any::<bool>()).prop_map(
        |((context, state, since), page_size, page_token, history_length, include_artifacts)| ListTasks {
            context,
            state,
            page_size,
            page_token,
            history_length,
            since,
            include_artifacts,
        },
    )
}

pub(crate) fn call(dialect: Dialect) -> impl Strategy<Value = A2aCall> {
    prop_oneof![
        3 => send(dialect).prop_map(|send| A2aCall::Send(Box::new(send))),
        1 => send(dialect).prop_map(|send| A2aCall::Stream(Box::new(send))),
        1 => (id(), option::of(0..9_usize)).prop_map(|(task, history_length)| A2aCall::Get { task, history_length }),
        1 => list().prop_map(A2aCall::List),
        1 => (id(), metadata()).prop_map(|(task, metadata)| A2aCall::Cancel { task, metadata }),
        1 => id().prop_map(|task| A2aCall::Subscribe { task }),
        1 => (id(), webhook(dialect)).prop_map(|(task, config)| A2aCall::SetWebhook { task, config }),
        1 => (id(), id()).prop_map(|(task, id)| A2aCall::GetWebhook { task, id: Some(id) }),
        1 => (id(), option::of(1..9_usize), option::of(id()))
            .prop_map(|(task, page_size, page_token)| A2aCall::ListWebhooks { task, page_size, page_token }),
        1 => (id(), id()).prop_map(|(task, id)| A2aCall::DeleteWebhook { task, id }),
        1 => Just(A2aCall::ExtendedCard),
    ]
}
