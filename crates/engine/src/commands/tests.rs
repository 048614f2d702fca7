//! Random sequences of everything that can happen to a task, decided and folded by the production functions,
//! without a store: fast enough for a hundred thousand of them (`NUNCIO_FULL=1`).

use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use serde_json::json;
use uuid::Uuid;

use super::{
    cancel::{Workplace, decide_cancel_request, decide_end, ended_by_request},
    reply::Reply,
    reply_decision::{ReplyRules, decide_reply},
    unanswered::unanswered_end,
    withdraw::decide_withdrawal,
};
use crate::{
    agent::Profile,
    clock::Timestamp,
    commit::{Decision, Effect},
    content::{Message, Part, Role},
    engine::Limits,
    error::Error,
    event::{self, ArtifactChunk, Entry, Event, Level, LogLine, Progress, Status},
    journal::JournalEntry,
    question::{Ask, Question, QuestionOutcome},
    sent_by::SentBy,
    store::{NodeId, OpenedTask, Precondition, RunChange, StoredBatch, TaskNo, TaskRow},
    task::{Origin, State, Task, TaskId, state_while_asking},
    task_header,
    webhook::WebhookConfig,
};

#[derive(Debug, Clone)]
enum Command {
    /// A message from a client. It may name a question by its position among all that were ever asked.
    Reply {
        text: &'static str,
        names: Option<usize>,
        place: Place,
    },
    /// A question, by its position among all that were ever asked.
    Withdraw(usize, Place),
    Cancel(Place),
    /// The limit of its question has passed.
    Unanswered(Place),
    /// The runner's actions: begin, emit, ask, end.
    Begin,
    Progress,
    Log,
    Chunk,
    Ask(u8),
    End(State),
}

/// Where the task is when a command arrives.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// A node runs it.
    is_held: bool,
    /// Another task called it.
    is_called: bool,
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
        6 => (select(texts), names, any_place())
            .prop_map(|(text, names, place)| Command::Reply { text, names, place }),
        2 => ((0..6_usize), any_place()).prop_map(|(question, place)| Command::Withdraw(question, place)),
        1 => any_place().prop_map(Command::Cancel),
        1 => any_place().prop_map(Command::Unanswered),
        4 => Just(Command::Begin),
        2 => Just(Command::Progress),
        1 => Just(Command::Log),
        2 => Just(Command::Chunk),
        6 => (0..6_u8).prop_map(Command::Ask),
        1 => select(ends).prop_map(Command::End),
    ]
}

fn any_place() -> impl Strategy<Value = Place> {
    (any::<bool>(), any::<bool>()).prop_map(|(is_held, is_called)| Place { is_held, is_called })
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
        let entries = match command {
            Command::Reply { text, names, place } => {
                let reply = to_task(reply(text, *names));
                let decided =
                    self.decide(*place, now, |row, task| decide_reply(&rules(), row, task, &[], &reply, now));
                match decided {
                    Ok(entries) => entries,
                    Err(Error::Ended(_) | Error::Unanswered(_)) if self.task.state.is_terminal() => return,
                    Err(Error::Answer(_) | Error::Invalid(_) | Error::NotAsked(_)) => return,
                    Err(other) => panic!("{command:?}: {other}"),
                }
            }
            Command::Withdraw(question, place) => {
                let question = format!("q{question}");
                let decided =
                    self.decide(*place, now, |row, task| decide_withdrawal(row, task, &question, now));
                match decided {
                    Ok(entries) => entries,
                    Err(Error::Ended(_)) if self.task.state.is_terminal() => return,
                    Err(other) => panic!("{command:?}: {other}"),
                }
            }
            // The preconditions of the commits: nothing is written to a task that has ended.
            _ if self.task.state.is_terminal() => return,
            Command::Cancel(place) if place.is_held => {
                let row = self.row(*place);
                let decision = decide_cancel_request(&row, Workplace::Run, by(), now);
                assert_eq!((decision.change.cancel, decision.entries.len()), (Some(true), 0));
                assert_eq!(decision.effects, [Effect::CancelRun { by: Some(Box::new(by())) }]);
                return;
            }
            Command::Cancel(place) => self
                .decide(*place, now, |row, task| {
                    Ok(Some(decide_end(row, task, true, ended_by_request(by(), now))))
                })
                .unwrap(),
            Command::Unanswered(_) if !self.task.state.is_interrupted() => return,
            Command::Unanswered(place) => self
                .decide(*place, now, |row, task| {
                    let end = Entry(now, unanswered_end("end".into(), "nobody".into()));
                    Ok(Some(decide_end(row, task, true, end)))
                })
                .unwrap(),
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

    /// Decides a command on the task as it is, and checks what holds of every decision. Returns its events.
    fn decide(
        &self,
        place: Place,
        now: Timestamp,
        decide: impl FnOnce(&TaskRow, &mut Task) -> Result<Option<Decision>, Error>,
    ) -> Result<Vec<Entry>, Error> {
        let (row, mut after) = (self.row(place), self.task.clone());
        let Some(decision) = decide(&row, &mut after)? else {
            assert_eq!(after, self.task, "without a decision nothing changes");
            return Ok(vec![]);
        };
        assert!(!self.task.state.is_terminal(), "a task that has ended stays as it is: {decision:?}");
        let Decision { change, entries, effects } = &decision;
        // Another command, or the run, may have written meanwhile: then it is decided again.
        assert!(
            matches!(change.guard, Precondition::Version { task, version } if (task, version) == (row.no, row.version)),
            "{change:?}"
        );
        // What is stored, what followers get, and what the caller is told, is one thing.
        let stored = change.events.as_ref().map(|batch| event::decode(&batch.bytes).unwrap());
        assert_eq!(stored.as_deref().unwrap_or_default(), &entries[..]);
        assert_eq!(self.task.clone().fold(&**entries), after);
        let state = (after.state, after.status_at);
        assert_eq!(change.state.unwrap_or((self.task.state, self.task.status_at)), state);
        // The outcome of a question is in the log, in the journal, and with the run; without a run the task is due.
        let ended = |entry: &Entry| match entry.event() {
            Event::Answer(answer) => Some((answer.question.clone(), Some(answer.answer.clone()))),
            Event::Withdrawn(withdrawal) => Some((withdrawal.question.clone(), None)),
            _ => None,
        };
        let ended: Vec<_> = entries.iter().filter_map(ended).collect();
        let journal: Vec<JournalEntry> =
            change.journal.iter().map(|record| JournalEntry::decode(record).unwrap()).collect();
        let records: Vec<JournalEntry> = ended
            .iter()
            .map(|(question, answer)| match answer.clone() {
                Some(answer) => JournalEntry::Answered { question: question.clone(), answer },
                None => JournalEntry::Withdrawn { question: question.clone() },
            })
            .collect();
        assert_eq!(journal, records);
        for (question, answer) in &ended {
            let outcome = answer.clone().map_or(QuestionOutcome::Withdrawn, QuestionOutcome::Answered);
            let told = Effect::EndQuestion { question: question.clone(), outcome };
            assert_eq!(effects.contains(&told), place.is_held);
            assert_eq!(effects.contains(&Effect::Due(now)), !place.is_held);
            assert_eq!(change.run == RunChange::Due(now), !place.is_held);
            let passed = effects.iter().any(|effect| match effect {
                Effect::AnswerCaller { question: passed, .. } => passed == question,
                Effect::WithdrawFromCaller { questions, .. } => questions.contains(question),
                _ => false,
            });
            assert_eq!(passed, place.is_called);
        }
        // A task that has ended is not scheduled, and its caller no longer asks for it.
        if after.state.is_terminal() {
            assert_eq!(change.run, RunChange::Rest);
            assert!(effects.contains(&Effect::CancelRun { by: None }));
            let withdrawn = effects.iter().any(|effect| matches!(effect, Effect::WithdrawFromCaller { .. }));
            assert_eq!(withdrawn, place.is_called && !self.task.questions.is_empty());
        }
        Ok(entries.to_vec())
    }

    fn row(&self, place: Place) -> TaskRow {
        TaskRow {
            parent: place.is_called.then(|| TaskId(Uuid::from_u128(3))),
            node: place.is_held.then(|| NodeId(Uuid::nil())),
            state: self.task.state,
            status_at: self.task.status_at,
            seq: self.task.seq,
            version: self.task.seq,
            ..row()
        }
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

#[test]
fn webhooks_of_a_reply_begin_with_its_message_and_a_repeat_changes_nothing() {
    let model = Model::new();
    let row = TaskRow { seq: model.task.seq, ..row() };
    let hook = WebhookConfig {
        id: "w".into(),
        url: "https://a.example".into(),
        token: None,
        authentication: None,
        dialect: "engine".into(),
    };
    let reply = Reply {
        idempotency_key: Some("k".into()),
        webhooks: vec![hook],
        ..to_task(Message::text("r", Role::User, "more"))
    };
    let profile = Profile::new("a", "an agent of a test");
    let rules = ReplyRules { profile: Some(&profile), ..rules() };
    let decide = |journal: &[JournalEntry], reply: &Reply| {
        decide_reply(&rules, &row, &mut model.task.clone(), journal, reply, Timestamp(1))
    };
    let decision = decide(&[], &reply).unwrap().unwrap();
    let added = decision.change.webhooks.unwrap();
    assert_eq!((added.hooks.len(), added.cap), (1, rules.limits.webhooks_per_task));
    assert_eq!(added.hooks[0].cursor, row.seq, "the message is the first event that it gets");
    assert_eq!(decision.effects, [Effect::WatchWebhooks, Effect::NotifyRun]);
    let journal: Vec<JournalEntry> =
        decision.change.journal.iter().map(|record| JournalEntry::decode(record).unwrap()).collect();
    assert!(decide(&journal, &reply).unwrap().is_none(), "the same message under the same key");
    let other = Reply { message: Message::text("r", Role::User, "other"), ..reply.clone() };
    assert!(matches!(decide(&journal, &other), Err(Error::KeyReused)));
    let silent = Profile { push_notifications: false, ..profile.clone() };
    let rules = ReplyRules { profile: Some(&silent), ..rules };
    let refused = decide_reply(&rules, &row, &mut model.task.clone(), &[], &reply, Timestamp(1));
    assert!(matches!(refused, Err(Error::PushUnsupported)));
}

fn rules() -> ReplyRules<'static> {
    static LIMITS: std::sync::LazyLock<Limits> = std::sync::LazyLock::new(Limits::default);
    ReplyRules {
        limits: &LIMITS,
        idempotent_message_ids: false,
        profile: None,
        webhook_policy: &|_| Ok(()),
        passes_up: true,
        by: Box::new(by()),
    }
}

fn to_task(message: Message) -> Reply {
    let task = origin().id.to_string();
    Reply { task, context: None, message, idempotency_key: None, webhooks: vec![] }
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
    Question { id: format!("q{n}"), text: "?".into(), ask, callback: None }
}

fn status(state: State) -> Event {
    let message = state.is_terminal().then(|| Message::text("s", Role::Agent, "the end"));
    Event::Status(Status { state, message, by: None })
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
        accepts_reply: false,
    }
}

fn by() -> SentBy {
    SentBy::owner_over("test")
}
