//! One call of an agent, followed to its end: by a stream, through cuts, and by looking again and again where
//! nothing else is left.
//!
//! With cursors a cut loses nothing and repeats nothing. Without them the task itself is looked at after a cut, and
//! artifacts are told whole. Only a terminal state is an end; whoever is away for too long is an error.

mod mend;
mod orders;

use std::{collections::VecDeque, time::Duration};

use http::{HeaderName, HeaderValue};
use nuncio_engine::{
    content::{Message, Role},
    task::State,
};
use nuncio_wire::a2a::{Dialect, SendMessage, StreamEvent};
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
    peer::{Begin, Call, CallDriver, Ended, Handle, Happened, PeerError},
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
    /// How many questions without names went before it.
    #[serde(default)]
    nameless: u32,
}

/// What comes of a call.
pub(super) struct Feed {
    line: Line,
    at: Standing,
    told: Told,
    /// What was not handed over yet.
    ready: VecDeque<Happened>,
    source: Source,
    /// The end as it was heard, while it is looked what else there is.
    end: Vec<Happened>,
    /// What it was begun with, until it is known that it was taken.
    begun: Option<(SendMessage, Headers)>,
    /// The last answer, until it is known that it was heard.
    given: Option<Given>,
    /// Since when nothing was heard of the agent.
    silent: Option<Instant>,
    pause: Duration,
    empty_streams: u32,
    /// Whoever wanted the task to stop before it was known.
    cancels: Vec<oneshot::Sender<Result<(), PeerError>>>,
}

/// An answer that was sent. A stranger may lose it: the task then goes on waiting.
struct Given {
    send: SendMessage,
    headers: Headers,
    at: Instant,
    /// How often it is sent again.
    again: u32,
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
    let found = line.get(task).await.map_err(|error| peer_error(error).of_a_look(&line.agent.card.at))?;
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
            permit = side.happened.reserve(), if !feed.ready.is_empty() => {
                let Ok(permit) = permit else { return };
                permit.send_first(&mut feed.ready);
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
            end: vec![],
            begun: None,
            given: None,
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
        let send = SendMessage { blocking: false, context_id: context.clone(), ..SendMessage::new(begin.input) };
        let mut feed = Self::new(line, Standing { context, ..Standing::default() }, Source::Lost);
        let mut said = feed.say(&send, &headers).await;
        if matches!(&said, Err(error) if fault::is_unknown_method(error)) && feed.may_be_older() {
            feed.line.fall_back();
            said = feed.say(&send, &headers).await;
        }
        if let Err(error) = said {
            feed.not_begun(error)?;
        }
        feed.begun = Some((send, headers));
        if let (Dialect::V0_1, Some(_)) = (feed.line.dialect(), &feed.at.task) {
            feed.keep();
        }
        Ok(feed)
    }

    /// The message was answered with an error. Where that says that it was tried and failed, the call has ended so:
    /// it is not for this side to try it once more.
    fn not_begun(&mut self, error: ClientError) -> Result<(), PeerError> {
        let Some(why) = fault::tried(&error).filter(|_| !self.line.has_cursors()) else {
            return Err(peer_error(error));
        };
        let message = Message::text(digest(&["failed", why]), Role::Agent, why);
        self.ready.push_back(Happened::Ended(Ended { state: State::Failed, message: Some(message) }));
        self.source = Source::Over;
        Ok(())
    }

    /// Goes on with a call.
    pub(super) async fn resume(line: Line, handle: &Handle) -> Result<Self, PeerError> {
        let at: Standing = serde_json::from_value(handle.state.clone())
            .map_err(|error| PeerError::Gone(format!("the handle is not one of an A2A call: {error}")))?;
        let Some(task) = at.task.clone() else {
            return Err(PeerError::Gone("the handle names no task".into()));
        };
        let mut feed = Self::new(line, at, Source::Lost);
        feed.told = Told::resumed(feed.at.asked.clone(), feed.at.nameless);
        feed.told.unsure = !feed.by_cursor();
        feed.pause = Duration::ZERO;
        // Whoever was to remember it may have died before.
        feed.ready.extend(feed.at.context.clone().map(Happened::Context));
        // Whether there is a way back is known before the call is given out.
        let found = feed.line.get(&task).await;
        let found = found.map_err(|error| peer_error(error).of_a_look(&feed.line.agent.card.at))?;
        if let Some(asked) = feed.told.asked.clone()
            && feed.told.read(found.state, found.message.as_ref()).question.id == asked.question.id
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
    async fn say(&mut self, send: &SendMessage, headers: &Headers) -> Result<(), ClientError> {
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
                Err(error) if fault::has_no_streams(&error, self.line.dialect()) && !self.may_be_older() => {}
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

    fn streamed(
        &mut self,
        next: Result<Option<crate::a2a::StreamItem>, ClientError>,
    ) -> Result<(), PeerError> {
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
            Err(error @ ClientError::Rpc(_)) if self.at.task.is_none() && !self.line.has_cursors() => {
                self.not_begun(error)
            }
            Err(error @ ClientError::Rpc(_)) if !fault::is_passing(&error) => Err(peer_error(error)),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Takes an event: where the call stands now, and what is to be told.
    fn take(&mut self, event: &StreamEvent, cursor: Option<String>) {
        let (task, context) = match event {
            StreamEvent::Task(task) => (Some(&task.id), task.context.as_ref()),
            StreamEvent::Status(update) => (Some(&update.task), update.context.as_ref()),
            StreamEvent::Artifact(update) => (Some(&update.task), update.context.as_ref()),
            StreamEvent::Message(said) => (None, said.context.as_ref()),
        };
        let first = self.at.task.is_none();
        if let Some(task) = task {
            self.at.task.get_or_insert_with(|| task.clone());
            self.begun = None;
        }
        let named = context.filter(|context| self.at.context.as_ref() != Some(*context)).cloned();
        if let Some(context) = &named {
            self.at.context = Some(context.clone());
        }
        if first && task.is_some() {
            if self.line.has_cursors() {
                self.at.cursor = Some(BEGINNING.into());
            }
            self.keep();
            self.cancel_known();
        }
        // After what leads back to the call, which is waited for first.
        self.ready.extend(named.map(Happened::Context));
        let happened = self.told.event(event);
        let ended = matches!(happened.last(), Some(Happened::Ended(_)));
        // 0.1 begins a stream with a status alone, and what had happened by then is in the task.
        let blind = self.line.dialect() == Dialect::V0_1 && !self.told.has_artifacts();
        let streamed = matches!(event, StreamEvent::Status(_));
        if ended && streamed && (self.told.unsure || (blind && !self.by_cursor())) {
            (self.source, self.end) = (Source::Closing, happened);
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
        self.at.nameless = self.told.nameless;
        self.at.endpoint.get_or_insert_with(|| self.line.agent.card.at.clone());
        let state = serde_json::to_value(&self.at).unwrap_or_default();
        let handle = Handle { offer: self.line.agent.offer.name.clone(), task: self.at.task.clone(), state };
        if self.ready.back() != Some(&Happened::Kept(handle.clone())) {
            self.ready.push_back(Happened::Kept(handle));
        }
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
