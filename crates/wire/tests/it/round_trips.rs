//! What one side writes the other reads back, but for the losses that are listed.

use nuncio_engine::{
    content::{Message, Part, Role},
    event::{Entry, Event},
    task::{State, state_while_asking},
};
use nuncio_wire::a2a::{
    ArtifactUpdate, Dialect, StatusUpdate, StreamEvent, TaskDetail, TaskIds, TaskListPage, TaskView,
};
use proptest::{prelude::*, sample::select};
use serde_json::json;

use crate::{losses, raw, strategies, text};

fn dialect() -> impl Strategy<Value = Dialect> {
    select(Dialect::ALL.to_vec())
}

const IDS: TaskIds<'static> = TaskIds { task: "t-1", context: "c-1" };

/// What a follower is to see of an event, in words of no dialect.
fn seen(seq: u64, entry: &Entry) -> Option<StreamEvent> {
    let (task, context) = (IDS.task.to_owned(), Some(IDS.context.to_owned()));
    let (state, message) = match entry.event().clone() {
        Event::Message(_) | Event::Log(_) => return None,
        Event::Artifact(chunk) => {
            return Some(StreamEvent::Artifact(ArtifactUpdate { task, context, chunk }));
        }
        Event::Status(status) => (status.state, status.message),
        Event::Question(question) => (state_while_asking(&question), Some(question.message(IDS.task, seq))),
        Event::Answer(answered) if answered.more => return None,
        Event::Withdrawn(withdrawn) if withdrawn.more => return None,
        Event::Answer(_) | Event::Withdrawn(_) => (State::Working, None),
        Event::Progress(progress) => {
            let figure =
                |number: f64| if number.fract() == 0.0 { json!(number as i64) } else { json!(number) };
            let mut figures = json!({ "progress": figure(progress.done) });
            if let Some(total) = progress.total {
                figures["total"] = figure(total);
            }
            let text = progress.text.map(Part::text);
            let parts = text.into_iter().chain([Part::data(figures)]).collect();
            (State::Working, Some(Message::of(format!("t-1-{seq}"), Role::Agent, parts)))
        }
    };
    let last = state.is_terminal() || state.is_interrupted();
    Some(StreamEvent::Status(StatusUpdate {
        task,
        context,
        state,
        unknown_state: None,
        message,
        at: Some(entry.at()),
        last,
    }))
}

proptest! {
    #[test]
    fn tasks(dialect in dialect(), task in strategies::task()) {
        let expected = losses::task(dialect, TaskView::from(&task));
        let written = raw(|out| dialect.write_task(out, &task, TaskDetail::default()));
        prop_assert_eq!(dialect.read_task(&written).unwrap(), expected.clone());

        let written = raw(|out| dialect.write_sent(out, &task, TaskDetail::default()));
        prop_assert_eq!(dialect.read_sent(&written).unwrap(), StreamEvent::Task(Box::new(expected)));
    }

    #[test]
    fn beginnings_of_streams(dialect in dialect(), task in strategies::task()) {
        let view = losses::task(dialect, TaskView::from(&task));
        let mut frame = None;
        let written = raw(|out| frame = Some(dialect.write_stream_start(out, &task, TaskDetail::default())));
        let expected = if dialect == Dialect::V0_1 {
            let TaskView { id, state, message, at, .. } = view;
            // What the frame tells the server is what it tells the client.
            let last = frame.is_some_and(|frame| frame.ends_stream);
            prop_assert_eq!(last, task.state.is_terminal() || task.state.is_interrupted());
            let (task, context, unknown_state) = (id, None, None);
            StreamEvent::Status(StatusUpdate { task, context, state, unknown_state, message, at, last })
        } else {
            StreamEvent::Task(Box::new(view))
        };
        prop_assert_eq!(dialect.read_event(&written).unwrap(), expected);
    }

    #[test]
    fn events(dialect in dialect(), seq in 1..u64::MAX, entry in strategies::entry()) {
        let mut frame = None;
        let written = text(|out| frame = dialect.write_event(out, &IDS, seq, &entry));
        let Some(expected) = seen(seq, &entry) else {
            prop_assert_eq!((frame, written.as_str()), (None, ""));
            return Ok(());
        };
        let read = dialect.read_event(&serde_json::from_str::<Box<_>>(&written).unwrap()).unwrap();
        prop_assert_eq!(&read, &losses::event(dialect, expected));

        // One line, and the same line whenever the log is read again.
        prop_assert!(!written.contains(['\n', '\r']));
        prop_assert_eq!(&written, &text(|out| { dialect.write_event(out, &IDS, seq, &entry.clone()); }));

        // What ends a stream says so on the wire, where the dialect has a word for it.
        let frame = frame.unwrap();
        if let (StreamEvent::Status(update), true) = (&read, dialect != Dialect::V1) {
            prop_assert_eq!(update.last, frame.ends_stream);
        }
    }

    #[test]
    fn pushes(dialect in dialect(), task in strategies::task(), entry in strategies::entry()) {
        let mut media_type = None;
        let body = text(|out| media_type = dialect.push_body(out, &task, task.seq, &entry));
        let id = task.origin.public_id();
        let ids = TaskIds { task: &id, context: &task.origin.context };
        let mut frame = None;
        let event = text(|out| frame = dialect.write_event(out, &ids, task.seq, &entry));
        if dialect == Dialect::V1 {
            prop_assert_eq!(media_type, frame.map(|_| "application/a2a+json"));
            prop_assert_eq!(body, event);
        } else if frame.is_some_and(|frame| frame.ends_turn) {
            prop_assert_eq!(media_type, Some("application/json"));
            let read = dialect.read_task(&serde_json::from_str::<Box<_>>(&body).unwrap()).unwrap();
            prop_assert_eq!(read, losses::task(dialect, TaskView::from(&task)));
        } else {
            prop_assert_eq!((media_type, body.as_str()), (None, ""));
        }
    }

    #[test]
    fn calls((dialect, call) in dialect().prop_flat_map(|dialect| (Just(dialect), strategies::call(dialect)))) {
        let mut method = None;
        let params = text(|out| method = dialect.write_call(out, &call));
        let Some(expected) = losses::call(dialect, call) else {
            prop_assert_eq!((method, params.as_str()), (None, ""));
            return Ok(());
        };
        let params = serde_json::from_str::<Box<_>>(&params).unwrap();
        prop_assert_eq!(dialect.read_call(method.unwrap(), Some(&params)).unwrap(), expected);
    }

    #[test]
    fn webhooks((dialect, config) in dialect().prop_flat_map(|dialect| (Just(dialect), strategies::webhook(dialect)))) {
        // Secrets go one way.
        let expected = losses::webhook(dialect, config.clone().redacted());
        let written = raw(|out| dialect.write_webhook(out, "t-1", &config));
        prop_assert_eq!(dialect.read_webhook(&written).unwrap(), ("t-1".to_owned(), expected.clone()));

        let configs = [config.clone(), config];
        let written = raw(|out| dialect.write_webhooks(out, "t-1", &configs, Some("next")));
        let next = (dialect == Dialect::V1).then(|| "next".to_owned());
        prop_assert_eq!(dialect.read_webhooks(&written).unwrap(), (vec![expected; 2], next));
    }

    #[test]
    fn lists(tasks in prop::collection::vec(strategies::task(), 0..3), next in prop::option::of(strategies::id())) {
        let dialect = Dialect::V1;
        let page = TaskListPage { tasks: &tasks, view: TaskDetail::default(), page_size: 7, total: 11, next: next.as_deref() };
        let read = dialect.read_list(&raw(|out| dialect.write_list(out, &page))).unwrap();
        let expected: Vec<_> = tasks.iter().map(|task| losses::task(dialect, TaskView::from(task))).collect();
        prop_assert_eq!((read.tasks, read.next, read.total), (expected, next, Some(11)));
    }

    #[test]
    fn histories(task in strategies::task(), length in 0..4_usize) {
        let view = TaskDetail { history_length: Some(length), artifacts: false };
        let written = raw(|out| Dialect::V1.write_task(out, &task, view));
        let read = Dialect::V1.read_task(&written).unwrap();
        let latest = &task.history[task.history.len().saturating_sub(length)..];
        prop_assert_eq!((&read.history[..], read.artifacts.len()), (latest, 0));
        let object: serde_json::Value = serde_json::from_str(written.get()).unwrap();
        prop_assert!(object.get("artifacts").is_none());
        prop_assert_eq!(object.get("history").is_some(), !latest.is_empty());
    }
}
