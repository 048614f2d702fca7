//! Random sequences of everything that can happen to a task, decided and folded by the production functions,
//! without a store: fast enough for a hundred thousand of them (`NUNCIO_FULL=1`).

use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use serde_json::json;
use uuid::Uuid;

use super::{cancel::ended_by_request, reply_decision::apply_message};
use crate::{
    clock::Timestamp,
    content::{Message, Part, Role},
    error::Error,
    event::{self, ArtifactChunk, Entry, Event, Level, LogLine, Progress, Status},
    question::{Ask, Question},
    store::{NodeId, OpenedTask, StoredBatch, TaskNo, TaskRow},
    task::{Origin, State, Task, TaskId, state_while_asking},
    task_header,
};

#[derive(Debug, Clone)]
enum Command {
    /// A message from a client. It may name a question by its position among all that were ever asked.
    Reply {
        text: &'static str,
        names: Option<usize>,
    },
    Cancel,
    /// The runner's actions: begin, emit, ask, end.
    Begin,
    Progress,
    Log,
    Chunk,
    Ask(u8),
    End(State),
}

#[test]
fn no_sequence_of_commands_makes_an_illegal_log() {
    let cases = if std::env::var_os("NUNCIO_FULL").is_some() { 100_000 } else { 5_000 };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let commands = prop::collection::vec(any_command(), 0..24);
    TestRunner::new(config)
        .run(&commands, |commands| {
            let mut model = Model::new();
            for command in commands {
                model.take(&command);
            }
            model.read_back();
            Ok(())
        })
        .unwrap();
}

fn any_command() -> impl Strategy<Value = Command> {
    let texts = vec!["fine", "{\"x\": 1}", "{\"x\": \"y\"}", "{\"action\": \"decline\"}", ""];
    let names = prop_oneof![3 => Just(None), 1 => (0..6_usize).prop_map(Some)];
    let ends = vec![State::Completed, State::Failed, State::Rejected, State::Canceled];
    prop_oneof![
        6 => (select(texts), names).prop_map(|(text, names)| Command::Reply { text, names }),
        1 => Just(Command::Cancel),
        4 => Just(Command::Begin),
        2 => Just(Command::Progress),
        1 => Just(Command::Log),
        2 => Just(Command::Chunk),
        6 => (0..6_u8).prop_map(Command::Ask),
        1 => select(ends).prop_map(Command::End),
    ]
}

/// One task and its whole log.
struct Model {
    task: Task,
    log: Vec<Entry>,
    asked: usize,
}

impl Model {
    fn new() -> Self {
        let mut model = Self { task: Task::new(origin()), log: vec![], asked: 0 };
        model.commit(vec![Entry(Timestamp(0), Event::Message(Message::text("m", Role::User, "go")))]);
        model
    }

    fn take(&mut self, command: &Command) {
        let now = Timestamp(self.log.len() as i64);
        let ended = self.task.state.is_terminal();
        let entries = match command {
            // The preconditions of the commits: nothing is written to a task that has ended.
            _ if ended => return,
            Command::Reply { text, names } => match apply_message(&self.task, &reply(text, *names), now) {
                Ok(heard) => heard.entries,
                Err(Error::Answer(_) | Error::Invalid(_) | Error::NotAsked(_)) => return,
                Err(other) => panic!("{command:?}: {other}"),
            },
            Command::Cancel => vec![ended_by_request(now)],
            Command::Begin if self.task.state != State::Submitted => return,
            Command::Begin => vec![Entry(now, status(State::Working))],
            Command::End(state) => vec![Entry(now, status(*state))],
            Command::Progress => {
                vec![Entry(now, Event::Progress(Progress { done: 1.0, total: None, text: None, data: None }))]
            }
            Command::Log => vec![Entry(now, Event::Log(LogLine { level: Level::Info, text: "l".into() }))],
            Command::Chunk => vec![Entry(now, Event::Artifact(chunk()))],
            Command::Ask(kind) => {
                self.asked += 1;
                vec![Entry(now, Event::Question(question(self.asked - 1, *kind)))]
            }
        };
        self.commit(entries);
    }

    fn commit(&mut self, entries: Vec<Entry>) {
        for entry in &entries {
            let before = self.task.state;
            assert!(!before.is_terminal(), "{entry:?} after the end");
            self.task.apply(entry);
            let after = self.task.state;
            assert!(after == before || before.may_become(after), "{before:?} -> {after:?}");
        }
        self.log.extend(entries);
        // While a question is open, the oldest one is the status; otherwise no question is.
        match self.task.questions.first() {
            Some((seq, question)) => {
                assert_eq!(self.task.state, state_while_asking(question));
                let shown = question.message(&self.task.origin.public_id(), *seq);
                assert_eq!(self.task.status_message, Some(shown));
            }
            None => assert!(!self.task.state.is_interrupted(), "{:?} and nothing is asked", self.task.state),
        }
    }

    /// Folds from the stored log, and from a snapshot in the middle of it.
    fn read_back(&self) {
        assert_eq!(self.task.seq, self.log.len() as u64, "no gap");
        let whole = self.opened(0);
        assert_eq!(task_header::fold(&whole).unwrap().unwrap(), self.task);
        let half = self.opened(self.log.len() / 2);
        assert_eq!(task_header::fold(&half).unwrap().unwrap(), self.task);
    }

    /// The task as a store returns it, with a snapshot of its first events; the log begins a little before.
    fn opened(&self, snapshot: usize) -> OpenedTask {
        let fold = Task::new(origin()).fold(&self.log[..snapshot]);
        let before = snapshot.saturating_sub(1);
        let batches = self.log[before..].chunks(3).enumerate().map(|(n, entries)| StoredBatch {
            first_seq: (before + n * 3) as u64 + 1,
            bytes: event::encode(entries).bytes,
        });
        OpenedTask {
            row: row(),
            snapshot: (snapshot > 0).then(|| (snapshot as u64, task_header::encode_snapshot(&fold))),
            log: batches.collect(),
        }
    }
}

fn reply(text: &str, names: Option<usize>) -> Message {
    match names {
        None => Message::text("r", Role::User, text),
        Some(n) => {
            let answer = json!({"questionId": format!("q{n}"), "action": "accept", "content": {"x": text}});
            Message::of("r", Role::User, vec![Part::data(answer)])
        }
    }
}

fn question(n: usize, kind: u8) -> Question {
    let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
    let ask = match kind {
        0 => Ask::Form { schema: form },
        1 => Ask::Sample { system: None, max_tokens: 1 },
        _ => Ask::Authorization { url: "https://a.example".into() },
    };
    Question { id: format!("q{n}"), text: "?".into(), ask }
}

fn status(state: State) -> Event {
    let message = state.is_terminal().then(|| Message::text("s", Role::Agent, "the end"));
    Event::Status(Status { state, message })
}

fn chunk() -> ArtifactChunk {
    ArtifactChunk {
        id: "a".into(),
        index: 0,
        parts: vec![Part::text("x")],
        append: true,
        last: false,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    }
}

fn row() -> TaskRow {
    let Origin { id, client_id, context, agent, owner, dialect, .. } = origin();
    TaskRow {
        no: TaskNo(1),
        id,
        client_id,
        owner,
        context,
        agent,
        parent: None,
        state: State::Working,
        status_at: Timestamp(0),
        created_at: Timestamp(0),
        seq: 0,
        version: 1,
        epoch: 1,
        node: Some(NodeId(Uuid::nil())),
        attempts: 0,
        cancel: false,
        head: task_header::TaskHeader { dialect, ..task_header::TaskHeader::default() }.encode(),
    }
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
    }
}
