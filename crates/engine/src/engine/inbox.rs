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
    pub question: Question,
    /// The tasks that passed it on, outermost first, and at last the task whose agent asks.
    pub path: Vec<(TaskId, String)>,
}

/// The open questions of a caller.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    /// The questions, oldest first.
    pub questions: Vec<InboxQuestion>,
    /// Whether more tasks wait than were read.
    pub is_cut: bool,
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
    /// The open questions of the caller's tasks.
    pub async fn open_questions(&self, caller: &Caller) -> Result<Inbox, Error> {
        self.watch_questions(caller)?.read().await
    }

    /// Access to the open questions for as long as a stream lasts: allowed and audited once, and not with each read.
    pub fn watch_questions(&self, caller: &Caller) -> Result<InboxWatch, Error> {
        self.allow_task(caller, Action::Read, "task.list", "")?;
        Ok(InboxWatch { engine: Arc::clone(&self.0), caller: caller.clone(), cache: HashMap::new() })
    }
}

/// A caller's access to its open questions. It remembers the questions of tasks that have not changed between two reads.
pub struct InboxWatch {
    engine: Arc<EngineCore>,
    caller: Caller,
    cache: HashMap<TaskId, CachedQuestions>,
}

#[derive(Debug)]
struct CachedQuestions {
    /// The version of the row that they were read from.
    version: u64,
    questions: Vec<(u64, Question)>,
}

impl InboxWatch {
    /// The open questions. Reads the logs of those tasks only that have changed since the last time.
    pub async fn read(&mut self) -> Result<Inbox, Error> {
        let Self { engine, caller, cache } = self;
        engine.admin.check_open(caller.tenant())?;
        let (rows, is_cut) = engine.waiting_rows(caller).await?;
        let known: HashSet<TaskId> = rows.iter().map(|row| row.id).collect();
        cache.retain(|id, _| known.contains(id));
        for row in &rows {
            if cache.get(&row.id).is_none_or(|cached| cached.version != row.version) {
                let _permit = engine.reserve_for(caller, row).await?;
                let outlined = engine.outline(row, Some(0)).await?;
                let questions = outlined.map(|outlined| outlined.task.questions).unwrap_or_default();
                cache.insert(row.id, CachedQuestions { version: row.version, questions });
            }
        }
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
                        question: question.clone(),
                        path: engine.path_of(row, question).await?,
                    });
                }
            }
        }
        Ok(Inbox { questions, is_cut })
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
        let range =
            |_| LogRange { after, until: u64::MAX, limit: 1, max_bytes: usize::MAX, max_read: usize::MAX };
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
