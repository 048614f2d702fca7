//! The topics `rows` and `questions` of a live stream: read again when a task of this node has changed its state, and from
//! time to time, for what other nodes did.

use std::{collections::HashMap, time::Duration};

use nuncio_engine::{
    AccessKind, Action, Caller, Engine, Error,
    access::TASKS,
    clock::Timestamp,
    engine::{Inbox, InboxQuestion, InboxWatch, OverviewQuery, OverviewWatch},
    task::TaskId,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    live::{FrameSender, ReaderGone, TopicEnd, end_frame},
    questions, tasks,
};

/// The shortest time between two frames of a topic: at most four a second.
const PAUSE: Duration = Duration::from_millis(250);
/// How often a topic reads without being notified: where other nodes write, and where none does.
const POLL_SHARED: Duration = Duration::from_secs(1);
const POLL_ALONE: Duration = Duration::from_secs(15);
/// How many times as long as a read took a topic pauses after it, so that it uses no more than a hundredth of a processor.
const REST: u32 = 100;
/// The longest pause, and the one after more has changed than a frame holds.
const LONG_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_AFTER_GAP: Duration = Duration::from_secs(2);
/// The rows of one frame; after more changes than that, the client reads its list again.
const MAX_CHANGED: usize = 100;
/// How far back a read goes behind its cursor: clocks of nodes differ, and a commit takes a while.
const OVERLAP: Duration = Duration::from_secs(5);

/// Rows that change.
pub(super) struct RowTopic {
    pub(super) key: String,
    pub(super) engine: Engine,
    pub(super) watch: OverviewWatch,
    pub(super) agents: Vec<String>,
    pub(super) after: Option<String>,
}

impl RowTopic {
    /// Refuses what may not be read.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let query = OverviewQuery { limit: 1, ..self.query(self.engine.clock().now()) };
        self.watch.read(&query).await.map(drop)
    }

    fn query(&self, since: Timestamp) -> OverviewQuery {
        OverviewQuery {
            agents: self.agents.clone(),
            since: Some(since),
            limit: MAX_CHANGED,
            ..OverviewQuery::default()
        }
    }
}

/// Sends rows that have changed since the cursor, until the reader has gone.
pub(super) async fn run_rows(topic: RowTopic, frames: &FrameSender) -> TopicEnd {
    match follow_rows(&topic, frames).await {
        Ok(()) | Err(ReaderGone) => TopicEnd::Done,
    }
}

async fn follow_rows(topic: &RowTopic, frames: &FrameSender) -> Result<(), ReaderGone> {
    let (key, engine) = (&topic.key, &topic.engine);
    let now = engine.clock().now();
    let named = topic.after.as_deref().map(|cursor| {
        let text = cursor.strip_prefix("r-").unwrap_or_default();
        i64::from_str_radix(text, 16).ok().map(Timestamp)
    });
    let mut since = match named {
        None => now,
        Some(Some(since)) => since,
        Some(None) => {
            let frame =
                json!({ "key": key, "cursor": tasks::live_cursor(now), "why": "the cursor cannot be read" });
            frames.send("gap", &frame).await?;
            now
        }
    };
    // What was sent of each task: its state and time.
    let mut sent: HashMap<TaskId, (Timestamp, u64)> = HashMap::new();
    let (mut caught_up, mut changes) = (false, Changes::of(engine));
    loop {
        changes.begin();
        let read_at = engine.clock().now();
        let from = Timestamp(since.0.saturating_sub(OVERLAP.as_millis() as i64));
        let page = match topic.watch.read(&topic.query(from)).await {
            Ok(page) => page,
            Err(Error::Forbidden(_) | Error::NotOperator(_) | Error::Suspended(..)) => {
                return frames.send("end", &end_frame(key, "scope")).await;
            }
            // Busy, or the store is away: the next read finds the same.
            Err(_) => {
                changes.wait(engine).await;
                continue;
            }
        };
        sent.retain(|_, (at, _)| *at >= from);
        let cursor = tasks::live_cursor(read_at);
        if page.next.is_some() {
            let frame =
                json!({ "key": key, "cursor": cursor, "why": "too much has changed: read the list again" });
            frames.send("gap", &frame).await?;
            changes.pause_for(PAUSE_AFTER_GAP);
        } else {
            let changed: Vec<&_> =
                page.rows.iter().filter(|row| sent.get(&row.id) != Some(&(row.status_at, row.seq))).collect();
            if !changed.is_empty() {
                let rows: Vec<Value> = changed.iter().map(|row| tasks::row(row)).collect();
                frames
                    .send("rows", &json!({ "key": key, "cursor": cursor, "rows": rows, "gone": [] }))
                    .await?;
            }
        }
        sent.extend(page.rows.iter().map(|row| (row.id, (row.status_at, row.seq))));
        since = read_at;
        if !caught_up {
            caught_up = true;
            frames.send("caught-up", &json!({ "key": key, "cursor": cursor })).await?;
        }
        changes.wait(engine).await;
    }
}

/// Questions that are asked and closed.
pub(super) struct QuestionTopic {
    pub(super) key: String,
    pub(super) engine: Engine,
    pub(super) caller: Caller,
    pub(super) after: Option<String>,
    pub(super) open: Inbox,
    pub(super) watch: InboxWatch,
}

/// Sends questions that were asked or closed, until the reader has gone.
pub(super) async fn run_questions(topic: QuestionTopic, frames: &FrameSender) -> TopicEnd {
    match follow_questions(topic, frames).await {
        Ok(()) | Err(ReaderGone) => TopicEnd::Done,
    }
}

async fn follow_questions(topic: QuestionTopic, frames: &FrameSender) -> Result<(), ReaderGone> {
    let QuestionTopic { key, engine, caller, after, mut open, mut watch } = topic;
    let may_answer = caller.may(Action::Write, AccessKind::A2a, TASKS);
    let mut cursor = questions::live_cursor(&open);
    if after.is_some_and(|after| after != cursor) {
        let frame =
            json!({ "key": key, "cursor": cursor, "why": "questions were asked or closed meanwhile" });
        frames.send("gap", &frame).await?;
    }
    frames.send("caught-up", &json!({ "key": key, "cursor": cursor })).await?;
    let mut changes = Changes::of(&engine);
    loop {
        changes.begin();
        match watch.read().await {
            Ok(now) => {
                let asked = now.questions.iter().filter(|question| {
                    !open
                        .questions
                        .iter()
                        .any(|old| (old.task, &old.question.id) == (question.task, &question.question.id))
                });
                let asked: Vec<Value> =
                    asked.map(|question| questions::question_view(question, may_answer)).collect();
                let closed = open.questions.iter().filter(|old| {
                    !now.questions.iter().any(|question| {
                        (old.task, &old.question.id) == (question.task, &question.question.id)
                    })
                });
                let closed: Vec<&InboxQuestion> = closed.collect();
                let mut closures = Vec::with_capacity(closed.len());
                for old in closed {
                    closures.push(questions::closed_view(&engine, &caller, old).await);
                }
                if !asked.is_empty() || !closures.is_empty() {
                    cursor = questions::live_cursor(&now);
                    let frame = json!({ "key": key, "cursor": cursor, "asked": asked, "closed": closures });
                    frames.send("questions", &frame).await?;
                }
                open = now;
            }
            Err(Error::Forbidden(_) | Error::NotOperator(_) | Error::Suspended(..)) => {
                return frames.send("end", &end_frame(&key, "scope")).await;
            }
            Err(_) => {}
        }
        changes.wait(&engine).await;
    }
}

/// When to read again.
struct Changes {
    notified: tokio::sync::watch::Receiver<()>,
    began: Instant,
    /// The shortest pause after the present read.
    pause: Duration,
}

impl Changes {
    fn of(engine: &Engine) -> Self {
        Self { notified: engine.state_changes(), began: Instant::now(), pause: PAUSE }
    }

    /// Before a read: what changes from now on is not in it for sure, and will be read again.
    fn begin(&mut self) {
        self.notified.mark_unchanged();
        (self.began, self.pause) = (Instant::now(), PAUSE);
    }

    fn pause_for(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Waits until a task of this node has changed since the read began, or until it is time to look for what other nodes
    /// did; never less than the pause.
    async fn wait(&mut self, engine: &Engine) {
        let read = self.began.elapsed();
        let pause = self.pause.max((read * REST).min(LONG_PAUSE));
        let poll = if engine.is_shared() { POLL_SHARED } else { POLL_ALONE };
        // Either end of the wait is a reason to read.
        let _ = tokio::time::timeout_at(self.began + poll, self.notified.changed()).await;
        tokio::time::sleep_until(self.began + pause).await;
    }
}
