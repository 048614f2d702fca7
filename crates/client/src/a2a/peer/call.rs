//! One call of an agent, followed to its end: by a stream, through cuts, and by looking again and again where
//! nothing else is left.
//!
//! With cursors a cut loses nothing and repeats nothing. Without them the task itself is looked at after a cut, and
//! artifacts are told whole. Only a terminal state is an end; whoever is away for too long is an error.

use std::{collections::VecDeque, time::Duration};

use http::{HeaderName, HeaderValue};
use nuncio_engine::question::Answer;
use nuncio_wire::a2a::{Dialect, Send, StreamEvent};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::Instant};

use super::{
    fault::{self, peer_error},
    line::{Headers, Line},
    question::{Asked, digest},
    told::Told,
};
use crate::{
    a2a::{A2aClient, ClientError, Events},
    peer::{Begin, Call, CallDriver, Happened, Handle, Order, PeerError},
};

/// The first wait after a cut, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How soon a task that waits for an answer is looked at, because somebody else may have given it; and how seldom.
const ASKED_POLL: Duration = Duration::from_secs(5);
const ASKED_SLOWEST: Duration = Duration::from_secs(60);
/// So many streams in a row that end at once and say nothing are not worth another one.
const EMPTY_STREAMS: u32 = 3;
/// The cursor before the first event.
const BEGINNING: &str = "0";
/// Where a task cannot be canceled because it has ended.
const NOT_CANCELABLE: i64 = -32002;

/// Where a call stands, in the words of a [`Handle`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Standing {
    task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// After which event to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// The question that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Asked>,
}

/// What comes of a call.
pub(super) struct Feed {
    line: Line,
    at: Standing,
    told: Told,
    /// What was not handed over yet.
    ready: VecDeque<Happened>,
    source: Source,
    /// What it was begun with, until it is known that it was taken.
    begun: Option<(Send, Headers)>,
    /// Since when nothing was heard of the agent.
    silent: Option<Instant>,
    pause: Duration,
    empty_streams: u32,
    /// Whoever wanted the task to stop before it was known.
    cancels: Vec<oneshot::Sender<Result<(), PeerError>>>,
}

/// Where news comes from.
enum Source {
    Stream(Box<Events>),
    /// The stream was cut: find another way.
    Lost,
    /// No streams: the task is looked at.
    Poll,
    /// The task waits for an answer: it is looked at, but seldom.
    Asked,
    /// The task has ended and its artifacts have to be looked at.
    Closing,
    /// All was said.
    Over,
}

/// What leads back to a task from its beginning, where the agent knows it.
pub(super) async fn handle_of(line: &Line, task: &str) -> Result<Handle, PeerError> {
    let found = line.get(task).await.map_err(peer_error)?;
    let standing = Standing {
        task: Some(found.id),
        context: found.context,
        cursor: line.has_cursors().then(|| BEGINNING.to_owned()),
        ..Standing::default()
    };
    let state = serde_json::to_value(&standing).unwrap_or_default();
    Ok(Handle { offer: line.agent.offer.name.clone(), task: standing.task, state })
}

/// Drives a call in the background.
pub(super) fn follow(feed: Feed) -> Call {
    let (call, driver) = Call::new();
    tokio::spawn(drive(feed, driver));
    call
}

async fn drive(mut feed: Feed, mut side: CallDriver) {
    loop {
        let over = feed.ready.is_empty() && matches!(feed.source, Source::Over);
        if over {
            return;
        }
        tokio::select! {
            biased;
            order = side.orders.recv() => match order {
                Some(order) => feed.order(order).await,
                None => return,
            },
            place = side.happened.reserve(), if !feed.ready.is_empty() => {
                let Ok(place) = place else { return };
                if let Some(happened) = feed.ready.pop_front() {
                    place.send(Ok(happened));
                }
            }
            news = feed.next(), if feed.ready.is_empty() => if let Err(error) = news {
                let _ = side.happened.send(Err(error)).await;
                return;
            },
        }
    }
}

impl Feed {
    fn new(line: Line, at: Standing, source: Source) -> Self {
        Self {
            line,
            told: Told::default(),
            at,
            ready: VecDeque::new(),
            source,
            begun: None,
            silent: None,
            pause: FIRST_WAIT,
            empty_streams: 0,
            cancels: vec![],
        }
    }

    /// Says what is to be said. The stream begins, or the task is there, when this returns.
    pub(super) async fn begin(line: Line, begin: Begin) -> Result<Self, PeerError> {
        let mut headers = vec![];
        if let Ok(key) = HeaderValue::from_str(&begin.input.id) {
            headers.push((HeaderName::from_static("idempotency-key"), key));
        }
        if let Some(trace) = begin.trace.as_deref().and_then(|trace| HeaderValue::from_str(trace).ok()) {
            headers.push((HeaderName::from_static("traceparent"), trace));
        }
        let context = begin.context.clone();
        let send = Send { blocking: false, context_id: context.clone(), ..Send::new(begin.input) };
        let mut feed = Self::new(line, Standing { context, ..Standing::default() }, Source::Lost);
        match feed.say(&send, &headers).await {
            Err(error) if fault::is_unknown_method(&error) && feed.may_be_older() => {
                feed.line.fall_back();
                feed.say(&send, &headers).await.map_err(peer_error)?;
            }
            said => said.map_err(peer_error)?,
        }
        feed.begun = Some((send, headers));
        if let (Dialect::V0_1, Some(_)) = (feed.line.dialect(), &feed.at.task) {
            feed.keep();
        }
        Ok(feed)
    }

    /// Goes on with a call.
    pub(super) async fn resume(line: Line, handle: &Handle) -> Result<Self, PeerError> {
        let at: Standing = serde_json::from_value(handle.state.clone())
            .map_err(|error| PeerError::Gone(format!("the handle is not one of an A2A call: {error}")))?;
        let Some(task) = at.task.clone() else {
            return Err(PeerError::Gone("the handle names no task".into()));
        };
        let mut feed = Self::new(line, at, Source::Lost);
        feed.told = Told::resumed(feed.at.asked.clone());
        feed.told.unsure = !feed.by_cursor();
        feed.pause = Duration::ZERO;
        // Whether there is a way back is known before the call is given out.
        let found = feed.line.get(&task).await.map_err(peer_error)?;
        if let Some(asked) = feed.told.asked.clone()
            && Asked::read(found.state, found.message.as_ref()).question.id == asked.question.id
            && found.state.is_interrupted()
        {
            feed.ready.push_back(Happened::Asks(asked.question));
        } else if feed.by_cursor() {
            // What came of it is in what follows.
            feed.told.asked = None;
        }
        if !feed.by_cursor() {
            feed.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(feed)
    }

    /// Whether the card left open of which generation the agent is.
    fn may_be_older(&self) -> bool {
        !self.line.agent.certain && self.line.dialect() == Dialect::V0_3
    }

    fn by_cursor(&self) -> bool {
        self.line.has_cursors() && self.at.cursor.is_some() && self.line.streams()
    }

    /// Sends a message, by stream where there are any. What it leads to becomes the source.
    async fn say(&mut self, send: &Send, headers: &Headers) -> Result<(), ClientError> {
        let mut send = send.clone();
        if self.line.dialect() == Dialect::V0_1 {
            let own = send.task_id.take().unwrap_or_else(|| own_id(&send.message.id));
            send.client_task_id = Some(own.clone());
            self.at.task = Some(own);
        }
        // With cursors the answer need not stream: what follows is read where it was left.
        if self.line.streams() && !(self.by_cursor() && self.begun.is_none() && self.at.cursor_moved()) {
            let stream = |client: A2aClient| {
                let send = send.clone();
                async move { client.send_streaming(send).await }
            };
            match self.line.ask(headers, stream).await {
                Ok(events) => {
                    self.source = Source::Stream(Box::new(events));
                    return Ok(());
                }
                Err(error) if fault::has_no_streams(&error) && !self.may_be_older() => {}
                Err(error) => return Err(error),
            }
        }
        let ask = |client: A2aClient| {
            let send = send.clone();
            async move { client.send(send).await }
        };
        let sent = self.line.ask(headers, ask).await?;
        match self.by_cursor() {
            true => (self.source, self.pause) = (Source::Lost, Duration::ZERO),
            false => {
                (self.source, self.pause) = (Source::Poll, self.line.options.poll);
                self.take(&sent.value, None);
            }
        }
        Ok(())
    }

    /// Waits for news and puts it into `ready`. Dropped on the way it is as if it had not been called.
    async fn next(&mut self) -> Result<(), PeerError> {
        match &mut self.source {
            Source::Stream(events) => {
                let next = events.next().await;
                self.streamed(next)
            }
            Source::Lost => self.mend().await,
            Source::Poll => self.look(self.line.options.slowest).await,
            Source::Asked => self.look(ASKED_SLOWEST).await,
            Source::Closing => self.close().await,
            Source::Over => std::future::pending().await,
        }
    }

    fn streamed(&mut self, next: Result<Option<crate::a2a::StreamItem>, ClientError>) -> Result<(), PeerError> {
        match next {
            Ok(Some(item)) => {
                (self.silent, self.pause, self.empty_streams) = (None, FIRST_WAIT, 0);
                self.take(&item.event.value, item.cursor);
                Ok(())
            }
            // Up to 0.3 a stream ends when the agent asks.
            Ok(None) if self.told.asked.is_some() => {
                (self.source, self.pause) = (Source::Asked, ASKED_POLL);
                Ok(())
            }
            Ok(None) => self.lose("the stream ended before the task had"),
            Err(error @ ClientError::Malformed(_)) => Err(peer_error(error)),
            // The agent's own words, in place of an event.
            Err(error @ ClientError::Rpc(_)) if !fault::is_passing(&error) || self.at.task.is_none() => {
                Err(peer_error(error))
            }
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// The stream was cut.
    fn lose(&mut self, why: &str) -> Result<(), PeerError> {
        tracing::debug!(task = self.at.task, cursor = self.at.cursor, why, "a call was cut");
        if self.at.task.is_none() && !self.line.has_cursors() {
            return Err(PeerError::Cut(format!(
                "{why}; whether the agent has taken the message is not known"
            )));
        }
        if self.empty_streams == 0 {
            self.pause = Duration::ZERO;
        }
        self.empty_streams += 1;
        self.source = Source::Lost;
        self.told.unsure |= !self.by_cursor();
        Ok(())
    }

    /// One attempt to go on after a cut.
    async fn mend(&mut self) -> Result<(), PeerError> {
        self.wait(LONGEST_WAIT).await;
        let Some(task) = self.at.task.clone() else {
            // Nothing came back, and the same message under the same key is one message.
            let Some((send, headers)) = self.begun.take() else {
                return Err(PeerError::Gone("the call was never begun".into()));
            };
            let said = self.say(&send, &headers).await;
            self.begun = Some((send, headers));
            return self.heard(said).map(|_| ());
        };
        if self.by_cursor() {
            match self.line.subscribe(&task, self.at.cursor.as_deref()).await {
                Ok(events) => {
                    self.source = Source::Stream(Box::new(events));
                    return self.heard(Ok(())).map(|_| ());
                }
                Err(error) if fault::is_passing(&error) || fault::is_gone(&error) => {
                    return self.heard(Err(error)).map(|_: Option<()>| ());
                }
                // Cursors were announced and are not taken: then without.
                Err(error) => {
                    tracing::debug!(task, %error, "the cursor is not taken");
                    (self.at.cursor, self.told.unsure) = (None, true);
                }
            }
        }
        let found = self.line.get(&task).await;
        let Some(found) = self.heard(found)? else { return Ok(()) };
        let rests = found.state.is_terminal() || found.state.is_interrupted();
        (self.source, self.pause) = (Source::Poll, self.line.options.poll);
        self.take(&StreamEvent::Task(Box::new(found)), None);
        if rests || !self.line.streams() || self.empty_streams >= EMPTY_STREAMS {
            return Ok(());
        }
        if let Ok(events) = self.line.subscribe(&task, None).await {
            self.source = Source::Stream(Box::new(events));
            // What happened between the look and the subscription was seen by neither.
            self.told.unsure = true;
        }
        Ok(())
    }

    /// Looks at the task.
    async fn look(&mut self, slowest: Duration) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else {
            return Err(PeerError::Malformed {
                at: self.line.agent.card.at.clone(),
                why: "it has taken a message and named no task".into(),
            });
        };
        self.wait(slowest).await;
        let found = self.line.get(&task).await;
        if let Some(found) = self.heard(found)? {
            if matches!(self.source, Source::Asked) && !found.state.is_interrupted() {
                (self.source, self.pause) = (Source::Lost, FIRST_WAIT);
                if self.by_cursor() {
                    return Ok(());
                }
            }
            self.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(())
    }

    /// The task has ended, and some of its artifacts may not have been heard of.
    async fn close(&mut self) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else {
            self.source = Source::Over;
            return Ok(());
        };
        let found = self.line.get(&task).await;
        if found.is_err() {
            self.wait(LONGEST_WAIT).await;
        }
        if let Some(found) = self.heard(found)? {
            self.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(())
    }

    /// Waits a little, longer each time.
    async fn wait(&mut self, longest: Duration) {
        let pause = self.pause;
        tokio::time::sleep(pause).await;
        self.pause = (pause + pause / 2).min(longest.max(pause)).max(FIRST_WAIT);
    }

    /// What came of a request that may be made again. `None`: it did not come through, and is worth another try.
    fn heard<T>(&mut self, answer: Result<T, ClientError>) -> Result<Option<T>, PeerError> {
        match answer {
            Ok(answer) => {
                self.silent = None;
                Ok(Some(answer))
            }
            Err(error) if fault::is_gone(&error) => Err(PeerError::Gone(error.to_string())),
            Err(error) if fault::is_passing(&error) => {
                let since = *self.silent.get_or_insert_with(Instant::now);
                if since.elapsed() < self.line.options.away {
                    return Ok(None);
                }
                Err(PeerError::Cut(format!(
                    "the agent has been away for {} s: {error}",
                    since.elapsed().as_secs()
                )))
            }
            Err(error) => Err(peer_error(error)),
        }
    }

    /// Takes an event: where the call stands now, and what is to be told.
    fn take(&mut self, event: &StreamEvent, cursor: Option<String>) {
        let (task, context) = match event {
            StreamEvent::Task(task) => (Some(&task.id), task.context.as_ref()),
            StreamEvent::Status(update) => (Some(&update.task), update.context.as_ref()),
            StreamEvent::Artifact(update) => (Some(&update.task), update.context.as_ref()),
            StreamEvent::Message(_) => (None, None),
        };
        let first = self.at.task.is_none();
        if let Some(task) = task {
            self.at.task.get_or_insert_with(|| task.clone());
            self.begun = None;
        }
        if let Some(context) = context {
            self.at.context = Some(context.clone());
        }
        if first && task.is_some() {
            if self.line.has_cursors() {
                self.at.cursor = Some(BEGINNING.into());
            }
            self.keep();
            self.cancel_known();
        }
        let happened = self.told.event(event);
        let ended = matches!(happened.last(), Some(Happened::Ended(_)));
        // 0.1 begins a stream with a status alone, and what had happened by then is in the task.
        let blind = self.line.dialect() == Dialect::V0_1 && !self.told.has_artifacts();
        let streamed = matches!(event, StreamEvent::Status(_));
        if ended && streamed && (self.told.unsure || (blind && !self.by_cursor())) {
            self.source = Source::Closing;
            return;
        }
        self.ready.extend(happened);
        if ended {
            self.source = Source::Over;
            return;
        }
        if self.told.asked.is_some() && matches!(self.source, Source::Poll | Source::Lost) {
            (self.source, self.pause) = (Source::Asked, ASKED_POLL);
        }
        if cursor.is_some() && self.line.has_cursors() {
            self.at.cursor = cursor;
        }
        if task.is_some() {
            self.keep();
        }
    }

    /// Tells where the call stands, if that is news.
    fn keep(&mut self) {
        self.at.asked.clone_from(&self.told.asked);
        self.at.endpoint.get_or_insert_with(|| self.line.agent.card.at.clone());
        let state = serde_json::to_value(&self.at).unwrap_or_default();
        let handle = Handle { offer: self.line.agent.offer.name.clone(), task: self.at.task.clone(), state };
        if self.ready.back() != Some(&Happened::Kept(handle.clone())) {
            self.ready.push_back(Happened::Kept(handle));
        }
    }

    async fn order(&mut self, order: Order) {
        match order {
            Order::Answer { question, answer, taken } => {
                let _ = taken.send(self.answer(&question, &answer).await);
            }
            Order::Cancel { told } => match &self.at.task {
                Some(_) => drop(told.send(self.cancel().await)),
                None => self.cancels.push(told),
            },
        }
    }

    async fn answer(&mut self, question: &str, answer: &Answer) -> Result<(), PeerError> {
        let (Some(task), Some(asked)) = (self.at.task.clone(), self.told.asked.clone()) else {
            return Err(PeerError::Gone(format!("the agent does not ask {question:?}, or not any more")));
        };
        if asked.question.id != question {
            return Err(PeerError::Gone(format!("the agent does not ask {question:?}, or not any more")));
        }
        let message = asked.answer(&task, answer);
        let key = HeaderValue::from_str(&message.id).map(|key| (HeaderName::from_static("idempotency-key"), key));
        let context_id = self.at.context.clone();
        let send = Send { task_id: Some(task), context_id, blocking: false, ..Send::new(message) };
        let headers: Headers = key.into_iter().collect();
        let since = Instant::now();
        let mut pause = FIRST_WAIT;
        // Before the answer is on its way: what comes back speaks of the time after it.
        self.told.settle(question);
        loop {
            let error = match self.say(&send, &headers).await {
                Ok(()) => break,
                Err(error) => error,
            };
            let again = match self.line.has_cursors() {
                true => fault::is_passing(&error),
                // A stranger may have heard it: only what was certainly not heard is said again.
                false => peer_error(error.clone()).is_passing() || !self.was_heard(&send).await,
            };
            if !again || !fault::is_passing(&error) || since.elapsed() > self.line.options.away {
                self.told.reopen(asked);
                return Err(peer_error(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_WAIT);
        }
        self.keep();
        Ok(())
    }

    /// Whether an answer that was cut off has arrived: the task does not wait any more.
    async fn was_heard(&mut self, send: &Send) -> bool {
        let Some(task) = &send.task_id else { return true };
        match self.line.get(task).await {
            Ok(found) => !found.state.is_interrupted(),
            Err(_) => true,
        }
    }

    async fn cancel(&mut self) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else { return Ok(()) };
        match self.line.cancel(&task).await {
            Ok(found) => {
                let streams = matches!(self.source, Source::Stream(_));
                // A stream says it in its own time, with everything that came before.
                if !streams && found.state.is_terminal() && !self.by_cursor() {
                    self.take(&StreamEvent::Task(Box::new(found)), None);
                } else if !streams {
                    (self.source, self.pause) = (Source::Lost, FIRST_WAIT);
                }
                Ok(())
            }
            Err(error) if error.rpc_code() == Some(NOT_CANCELABLE) => Ok(()),
            Err(error) => Err(peer_error(error)),
        }
    }

    /// The task is known now: whoever wanted it stopped gets that.
    fn cancel_known(&mut self) {
        let Some(task) = self.at.task.clone().filter(|_| !self.cancels.is_empty()) else { return };
        let (line, waiting) = (self.line.clone(), std::mem::take(&mut self.cancels));
        tokio::spawn(async move {
            let told = line.cancel(&task).await.map(|_| ()).map_err(peer_error);
            for waits in waiting {
                let _ = waits.send(told.clone());
            }
        });
    }
}

impl Standing {
    /// Whether anything was heard yet.
    fn cursor_moved(&self) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| cursor != BEGINNING)
    }
}

/// In 0.1 the caller names the task: after its message, so that the same message is the same task.
fn own_id(message: &str) -> String {
    match message.is_empty() {
        true => uuid::Uuid::now_v7().to_string(),
        false => digest(&[message]),
    }
}
