//! The open questions of a caller's tasks, oldest first: an inbox.
//!
//! A question that a called task asks is relayed by the tasks above it, under an id that begins with the called task's id.
//! So one question may be open at several tasks; it is listed once, at the outermost, with the path that it came.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    access::{Action, Caller},
    byte_budget::BytePermit,
    clock::Timestamp,
    engine::{Engine, EngineCore, LogRange},
    error::Error,
    event::Event,
    question::{Answer, Question},
    sent_by::SentBy,
    store::{ListCursor, ListQuery, TaskKey, TaskRow},
    task::{State, TaskId},
};

/// The maximum number of waiting tasks whose questions are read at once; of more, the oldest.
pub const MAX_WAITING_TASKS: usize = 500;
/// The maximum number of rows that are read to find them.
const MAX_ROWS: usize = 10_000;
/// Rows that are read at once.
const PAGE: usize = 100;
/// How many bytes of questions are read before they are charged to the caller.
const MAX_UNCHARGED: u64 = 1024 * 1024;

/// An open question, with the task at which it is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxQuestion {
    /// The task at which it is answered: the outermost that asks it.
    pub task: TaskId,
    /// Its agent.
    pub agent: String,
    /// Its owner.
    pub owner: String,
    /// Its conversation.
    pub context: String,
    /// The event that asks it.
    pub seq: u64,
    /// When that task began to wait.
    pub asked_at: Timestamp,
    /// The question.
    pub question: Arc<Question>,
    /// The tasks that passed it on, outermost first, and at last the task whose agent asks.
    pub path: Vec<(TaskId, String)>,
}

/// The open questions of a caller.
#[derive(Debug, Default)]
pub struct Inbox {
    /// The questions, oldest first.
    pub questions: Vec<InboxQuestion>,
    /// Whether more tasks wait than were read.
    pub is_cut: bool,
    /// The charge for the questions, unless the watch that read them has it.
    _permit: BytePermit,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedQuestion {
    /// How it was closed.
    pub how: QuestionClosure,
    /// When it was closed.
    pub at: Timestamp,
    /// Who closed it: by an answer, or by canceling the task. `None`: its agent, or it is not recorded.
    pub by: Option<SentBy>,
}

/// How a question was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionClosure {
    /// It was answered.
    Answered,
    /// It was declined.
    Declined,
    /// It was dismissed without a choice.
    Canceled,
    /// The caller could not answer it.
    Unavailable,
    /// The agent no longer needs the answer.
    Withdrawn,
    /// Its task ended first.
    Ended,
}

impl QuestionClosure {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Declined => "declined",
            Self::Canceled => "canceled",
            Self::Unavailable => "unavailable",
            Self::Withdrawn => "withdrawn",
            Self::Ended => "ended",
        }
    }

    /// How this event closes the question, if it does.
    fn of(event: &Event, question: &str) -> Option<Self> {
        match event {
            Event::Answer(answered) if answered.question == question => Some(match answered.answer {
                Answer::Accept(_) => Self::Answered,
                Answer::Decline(_) => Self::Declined,
                Answer::Cancel => Self::Canceled,
                Answer::Unavailable => Self::Unavailable,
            }),
            Event::Withdrawn(withdrawn) if withdrawn.question == question => Some(Self::Withdrawn),
            Event::Status(status) if status.state.is_terminal() => Some(Self::Ended),
            _ => None,
        }
    }
}

impl Engine {
    /// The open questions of the caller's tasks. What they hold is charged to the caller until they are dropped.
    pub async fn open_questions(&self, caller: &Caller) -> Result<Inbox, Error> {
        let mut watch = self.watch_questions(caller)?;
        let found = watch.read().await?;
        Ok(Inbox { _permit: watch.charged.permit, ..found })
    }

    /// Access to the open questions for as long as a stream lasts: allowed and audited once, and not with each read.
    pub fn watch_questions(&self, caller: &Caller) -> Result<InboxWatch, Error> {
        self.allow_task(caller, Action::Read, "task.list", "")?;
        let (engine, caller) = (Arc::clone(&self.0), caller.clone());
        Ok(InboxWatch { engine, caller, cache: HashMap::new(), charged: ChargedBytes::default() })
    }
}

/// A caller's access to its open questions. It remembers the questions of tasks that have not changed between two reads, and
/// what they hold is charged to the caller.
pub struct InboxWatch {
    engine: Arc<EngineCore>,
    caller: Caller,
    cache: HashMap<TaskId, CachedQuestions>,
    charged: ChargedBytes,
}

/// The charge for the questions of a cache.
#[derive(Default)]
struct ChargedBytes {
    bytes: u64,
    permit: BytePermit,
}

#[derive(Debug)]
struct CachedQuestions {
    /// The version of the row that they were read from.
    version: u64,
    questions: Vec<(u64, Arc<Question>)>,
}

impl CachedQuestions {
    fn bytes(&self) -> u64 {
        self.questions.iter().map(|(_, question)| question.size() as u64).sum()
    }
}

impl InboxWatch {
    /// The open questions. Reads the logs of those tasks only that have changed since the last time.
    pub async fn read(&mut self) -> Result<Inbox, Error> {
        self.engine.admin.check_open(self.caller.tenant())?;
        let (rows, is_cut) = self.engine.waiting_rows(&self.caller).await?;
        let known: HashSet<TaskId> = rows.iter().map(|row| row.id).collect();
        self.cache.retain(|id, _| known.contains(id));
        let mut uncharged = 0;
        for row in &rows {
            if self.cache.get(&row.id).is_none_or(|cached| cached.version != row.version) {
                let cached = self.read_questions(row).await?;
                uncharged += cached.bytes();
                self.cache.insert(row.id, cached);
            }
            if uncharged >= MAX_UNCHARGED {
                self.charge().await?;
                uncharged = 0;
            }
        }
        self.charge().await?;
        let Self { engine, cache, .. } = &*self;
        let relayed = relayed_questions(cache);
        let mut questions = vec![];
        for row in &rows {
            let Some(cached) = cache.get(&row.id) else { continue };
            for (seq, question) in &cached.questions {
                if !relayed.contains(&(row.id, question.id.as_str())) {
                    questions.push(InboxQuestion {
                        task: row.id,
                        agent: row.agent.clone(),
                        owner: row.owner.clone(),
                        context: row.context.clone(),
                        seq: *seq,
                        asked_at: row.status_at,
                        question: Arc::clone(question),
                        path: engine.path_of(row, question).await?,
                    });
                }
            }
        }
        Ok(Inbox { questions, is_cut, _permit: BytePermit::default() })
    }

    async fn read_questions(&self, row: &TaskRow) -> Result<CachedQuestions, Error> {
        let _permit = self.engine.reserve_for(&self.caller, row).await?;
        let outlined = self.engine.outline(row, Some(0)).await?;
        let questions = outlined.map(|outlined| outlined.task.questions).unwrap_or_default();
        let questions = questions.into_iter().map(|(seq, question)| (seq, Arc::new(question))).collect();
        Ok(CachedQuestions { version: row.version, questions })
    }

    /// Charges what the cache holds to the caller. Where the caller has no bytes left for it, the cache is emptied.
    async fn charge(&mut self) -> Result<(), Error> {
        let bytes = self.cache.values().map(CachedQuestions::bytes).sum();
        if bytes == self.charged.bytes {
            return Ok(());
        }
        // The old charge is given back first, or a watch of more than half of the caller's bytes would wait for itself.
        self.charged = ChargedBytes::default();
        match self.engine.bytes.reserve(&self.caller, bytes).await {
            Ok(permit) => {
                self.charged = ChargedBytes { bytes, permit };
                Ok(())
            }
            Err(error) => {
                self.cache.clear();
                Err(error)
            }
        }
    }
}

impl Engine {
    /// How, when and by whom a question was closed; `None` while it is open. `after`: the event that asked it, or any before.
    pub async fn question_closure(
        &self,
        caller: &Caller,
        task: &str,
        question: &str,
        after: u64,
    ) -> Result<Option<ClosedQuestion>, Error> {
        let range = |_| LogRange { after, limit: 1, ..LogRange::default() };
        let closes = |event: &Event| QuestionClosure::of(event, question).is_some();
        let page = self.log_page(caller, task, range, closes).await?;
        let closed = page.entries.into_iter().next();
        Ok(closed.and_then(|(_, entry)| {
            let how = QuestionClosure::of(entry.event(), question)?;
            Some(ClosedQuestion { how, at: entry.at(), by: entry.event().by().cloned() })
        }))
    }
}

/// The questions that the calling task asks as well.
fn relayed_questions(cache: &HashMap<TaskId, CachedQuestions>) -> HashSet<(TaskId, &str)> {
    let asked = cache.values().flat_map(|cached| &cached.questions);
    asked.filter_map(|(_, question)| split_relayed(&question.id)).collect()
}

/// The called task and its own question, of a question that is relayed.
fn split_relayed(id: &str) -> Option<(TaskId, &str)> {
    let (called, question) = id.split_once('.')?;
    Some((TaskId::parse(called)?, question))
}

impl EngineCore {
    /// The rows of tasks that wait for an answer, oldest first, and whether there are more.
    async fn waiting_rows(&self, caller: &Caller) -> Result<(Vec<TaskRow>, bool), Error> {
        let (mut rows, mut is_cut) = (vec![], false);
        for state in [State::InputRequired, State::AuthRequired] {
            let mut after: Option<ListCursor> = None;
            loop {
                let query = ListQuery {
                    owner: caller.owner().to_owned(),
                    context: None,
                    state: Some(state),
                    agent: caller.only_agent().map(str::to_owned),
                    since: None,
                    after,
                    limit: PAGE,
                    only_rows: true,
                };
                let page = self.store.list(&query).await?;
                rows.extend(page.tasks.into_iter().map(|opened| opened.row));
                after = page.next;
                if after.is_none() || rows.len() >= MAX_ROWS {
                    is_cut |= after.is_some();
                    break;
                }
            }
        }
        rows.sort_by_key(|row| (row.status_at, row.no));
        is_cut |= rows.len() > MAX_WAITING_TASKS;
        rows.truncate(MAX_WAITING_TASKS);
        Ok((rows, is_cut))
    }

    async fn path_of(&self, row: &TaskRow, question: &Question) -> Result<Vec<(TaskId, String)>, Error> {
        let mut path = vec![(row.id, row.agent.clone())];
        let mut id = question.id.as_str();
        while let Some((called, asked)) = split_relayed(id) {
            let Some(row) = self.store.row(&TaskKey::Id(called)).await? else { break };
            path.push((row.id, row.agent));
            id = asked;
        }
        Ok(path)
    }
}
