//! One call of an agent, followed to its end: by a stream, through cuts, and by looking again and again where
//! nothing else is left.
//!
//! With cursors a cut loses nothing and repeats nothing. Without them the task itself is looked at after a cut, and
//! artifacts are told whole. Only a terminal state is an end; whoever is away for too long is an error.

mod commands;
mod reconnect;

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
    authorized_client::{AuthorizedClient, RequestHeaders},
    event_translator::EventTranslator,
    fault::{self, peer_error},
    question::{A2aQuestion, digest},
};
use crate::{
    a2a::{A2aClient, A2aClientError, A2aTaskEvents},
    peer::{CallDriver, CallEvent, CallHandle, PeerCall, PeerCallEnd, PeerCallRequest, PeerError},
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

/// Where a call stands, in the words of a [`CallHandle`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct CallPosition {
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
    asked: Option<A2aQuestion>,
    /// How many questions without names went before it.
    #[serde(default)]
    nameless: u32,
}

/// What comes of a call.
pub(super) struct CallFeed {
    client: AuthorizedClient,
    at: CallPosition,
    translator: EventTranslator,
    /// What was not handed over yet.
    ready: VecDeque<CallEvent>,
    source: FeedSource,
    /// The end as it was heard, while it is looked what else there is.
    end: Vec<CallEvent>,
    /// What it was begun with, until it is known that it was taken.
    begun: Option<(SendMessage, RequestHeaders)>,
    /// The last answer, until it is known that it was heard.
    sent_answer: Option<SentAnswer>,
    /// Since when nothing was heard of the agent.
    silent: Option<Instant>,
    pause: Duration,
    empty_streams: u32,
    /// Whoever wanted the task to stop before it was known.
    cancels: Vec<oneshot::Sender<Result<(), PeerError>>>,
}

/// An answer that was sent. A stranger may lose it: the task then goes on waiting.
struct SentAnswer {
    send: SendMessage,
    headers: RequestHeaders,
    at: Instant,
    /// How often it is sent again.
    resends: u32,
}

/// Where news comes from.
enum FeedSource {
    Stream(Box<A2aTaskEvents>),
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
pub(super) async fn handle_of(line: &AuthorizedClient, task: &str) -> Result<CallHandle, PeerError> {
    let found =
        line.get(task).await.map_err(|error| peer_error(error).into_read_error(&line.agent.card.at))?;
    let standing = CallPosition {
        task: Some(found.id),
        context: found.context,
        cursor: line.has_cursors().then(|| BEGINNING.to_owned()),
        ..CallPosition::default()
    };
    let state = serde_json::to_value(&standing).unwrap_or_default();
    Ok(CallHandle { offer: line.agent.offer.name.clone(), task: standing.task, state })
}

/// Drives a call in the background.
pub(super) fn follow(feed: CallFeed) -> PeerCall {
    let (call, driver) = PeerCall::new();
    tokio::spawn(drive(feed, driver));
    call
}

async fn drive(mut feed: CallFeed, mut side: CallDriver) {
    loop {
        let over = feed.ready.is_empty() && matches!(feed.source, FeedSource::Over);
        if over {
            return;
        }
        tokio::select! {
            biased;
            order = side.commands.recv() => match order {
                Some(order) => feed.run_command(order).await,
                None => return,
            },
            permit = side.events.reserve(), if !feed.ready.is_empty() => {
                let Ok(permit) = permit else { return };
                permit.send_first(&mut feed.ready);
            }
            news = feed.next(), if feed.ready.is_empty() => if let Err(error) = news {
                let _ = side.events.send(Err(error)).await;
                return;
            },
        }
    }
}

impl CallFeed {
    fn new(client: AuthorizedClient, at: CallPosition, source: FeedSource) -> Self {
        Self {
            client,
            translator: EventTranslator::default(),
            at,
            ready: VecDeque::new(),
            source,
            end: vec![],
            begun: None,
            sent_answer: None,
            silent: None,
            pause: FIRST_WAIT,
            empty_streams: 0,
            cancels: vec![],
        }
    }

    /// Says what is to be said. The stream begins, or the task is there, when this returns.
    pub(super) async fn begin(line: AuthorizedClient, begin: PeerCallRequest) -> Result<Self, PeerError> {
        let mut headers = vec![];
        if let Ok(key) = HeaderValue::from_str(&begin.input.id) {
            headers.push((HeaderName::from_static("idempotency-key"), key));
        }
        if let Some(trace) = begin.trace.as_deref().and_then(|trace| HeaderValue::from_str(trace).ok()) {
            headers.push((HeaderName::from_static("traceparent"), trace));
        }
        let context = begin.context.clone();
        let send =
            SendMessage { blocking: false, context_id: context.clone(), ..SendMessage::new(begin.input) };
        let mut feed = Self::new(line, CallPosition { context, ..CallPosition::default() }, FeedSource::Lost);
        let mut said = feed.send_and_follow(&send, &headers).await;
        if matches!(&said, Err(error) if fault::is_unknown_method(error)) && feed.may_be_older() {
            feed.client.fall_back();
            said = feed.send_and_follow(&send, &headers).await;
        }
        if let Err(error) = said {
            feed.not_begun(error)?;
        }
        feed.begun = Some((send, headers));
        if let (Dialect::V0_1, Some(_)) = (feed.client.dialect(), &feed.at.task) {
            feed.emit_handle();
        }
        Ok(feed)
    }

    /// The message was answered with an error. Where that says that it was tried and failed, the call has ended so:
    /// it is not for this side to try it once more.
    fn not_begun(&mut self, error: A2aClientError) -> Result<(), PeerError> {
        let Some(why) = fault::tried(&error).filter(|_| !self.client.has_cursors()) else {
            return Err(peer_error(error));
        };
        let message = Message::text(digest(&["failed", why]), Role::Agent, why);
        self.ready.push_back(CallEvent::Ended(PeerCallEnd { state: State::Failed, message: Some(message) }));
        self.source = FeedSource::Over;
        Ok(())
    }

    /// Goes on with a call.
    pub(super) async fn resume(line: AuthorizedClient, handle: &CallHandle) -> Result<Self, PeerError> {
        let at: CallPosition = serde_json::from_value(handle.state.clone())
            .map_err(|error| PeerError::Gone(format!("the handle is not one of an A2A call: {error}")))?;
        let Some(task) = at.task.clone() else {
            return Err(PeerError::Gone("the handle names no task".into()));
        };
        let mut feed = Self::new(line, at, FeedSource::Lost);
        feed.translator = EventTranslator::resumed(feed.at.asked.clone(), feed.at.nameless);
        feed.translator.unsure = !feed.by_cursor();
        feed.pause = Duration::ZERO;
        // Whoever was to remember it may have died before.
        feed.ready.extend(feed.at.context.clone().map(CallEvent::Context));
        // Whether there is a way back is known before the call is given out.
        let found = feed.client.get(&task).await;
        let found = found.map_err(|error| peer_error(error).into_read_error(&feed.client.agent.card.at))?;
        if let Some(asked) = feed.translator.asked.clone()
            && feed.translator.read(found.state, found.message.as_ref()).question.id == asked.question.id
            && found.state.is_interrupted()
        {
            feed.ready.push_back(CallEvent::Question(asked.question));
        } else if feed.by_cursor() {
            // What came of it is in what follows.
            feed.translator.asked = None;
        }
        if !feed.by_cursor() {
            feed.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(feed)
    }

    /// Whether the card left open of which generation the agent is.
    fn may_be_older(&self) -> bool {
        !self.client.agent.certain && self.client.dialect() == Dialect::V0_3
    }

    fn by_cursor(&self) -> bool {
        self.client.has_cursors() && self.at.cursor.is_some() && self.client.streams()
    }

    /// Sends a message, by stream where there are any. What it leads to becomes the source.
    async fn send_and_follow(
        &mut self,
        send: &SendMessage,
        headers: &RequestHeaders,
    ) -> Result<(), A2aClientError> {
        let mut send = send.clone();
        if self.client.dialect() == Dialect::V0_1 {
            let own = send.task_id.take().unwrap_or_else(|| own_id(&send.message.id));
            send.client_task_id = Some(own.clone());
            self.at.task = Some(own);
        }
        // With cursors the answer need not stream: what follows is read where it was left.
        if self.client.streams() && !(self.by_cursor() && self.begun.is_none() && self.at.cursor_moved()) {
            let stream = |client: A2aClient| {
                let send = send.clone();
                async move { client.send_streaming(send).await }
            };
            match self.client.ask(headers, stream).await {
                Ok(events) => {
                    self.source = FeedSource::Stream(Box::new(events));
                    return Ok(());
                }
                Err(error)
                    if fault::has_no_streams(&error, self.client.dialect()) && !self.may_be_older() => {}
                Err(error) => return Err(error),
            }
        }
        let ask = |client: A2aClient| {
            let send = send.clone();
            async move { client.send(send).await }
        };
        let sent = self.client.ask(headers, ask).await?;
        match self.by_cursor() {
            true => (self.source, self.pause) = (FeedSource::Lost, Duration::ZERO),
            false => {
                (self.source, self.pause) = (FeedSource::Poll, self.client.options.poll);
                self.take(&sent.value, None);
            }
        }
        Ok(())
    }

    /// Waits for news and puts it into `ready`. Dropped on the way it is as if it had not been called.
    async fn next(&mut self) -> Result<(), PeerError> {
        match &mut self.source {
            FeedSource::Stream(events) => {
                let next = events.next().await;
                self.streamed(next)
            }
            FeedSource::Lost => self.reconnect().await,
            FeedSource::Poll => self.poll_task(self.client.options.slowest).await,
            FeedSource::Asked => self.poll_task(ASKED_SLOWEST).await,
            FeedSource::Closing => self.close().await,
            FeedSource::Over => std::future::pending().await,
        }
    }

    fn streamed(
        &mut self,
        next: Result<Option<crate::a2a::StreamItem>, A2aClientError>,
    ) -> Result<(), PeerError> {
        match next {
            Ok(Some(item)) => {
                (self.silent, self.pause, self.empty_streams) = (None, FIRST_WAIT, 0);
                self.take(&item.event.value, item.cursor);
                Ok(())
            }
            // Up to 0.3 a stream ends when the agent asks.
            Ok(None) if self.translator.asked.is_some() => {
                (self.source, self.pause) = (FeedSource::Asked, ASKED_POLL);
                Ok(())
            }
            Ok(None) => self.record_disconnect("the stream ended before the task had"),
            Err(error @ A2aClientError::Malformed(_)) => Err(peer_error(error)),
            // The agent's own words, in place of an event.
            Err(error @ A2aClientError::Rpc(_)) if self.at.task.is_none() && !self.client.has_cursors() => {
                self.not_begun(error)
            }
            Err(error @ A2aClientError::Rpc(_)) if !fault::is_transient(&error) => Err(peer_error(error)),
            Err(error) => self.record_disconnect(&error.to_string()),
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
            if self.client.has_cursors() {
                self.at.cursor = Some(BEGINNING.into());
            }
            self.emit_handle();
            self.cancel_known();
        }
        // After what leads back to the call, which is waited for first.
        self.ready.extend(named.map(CallEvent::Context));
        let happened = self.translator.translate_event(event);
        let ended = matches!(happened.last(), Some(CallEvent::Ended(_)));
        // 0.1 begins a stream with a status alone, and what had happened by then is in the task.
        let blind = self.client.dialect() == Dialect::V0_1 && !self.translator.has_artifacts();
        let streamed = matches!(event, StreamEvent::Status(_));
        if ended && streamed && (self.translator.unsure || (blind && !self.by_cursor())) {
            (self.source, self.end) = (FeedSource::Closing, happened);
            return;
        }
        self.ready.extend(happened);
        if ended {
            self.source = FeedSource::Over;
            return;
        }
        if self.translator.asked.is_some() && matches!(self.source, FeedSource::Poll | FeedSource::Lost) {
            (self.source, self.pause) = (FeedSource::Asked, ASKED_POLL);
        }
        if cursor.is_some() && self.client.has_cursors() {
            self.at.cursor = cursor;
        }
        if task.is_some() {
            self.emit_handle();
        }
    }

    /// Tells where the call stands, if that is news.
    fn emit_handle(&mut self) {
        self.at.asked.clone_from(&self.translator.asked);
        self.at.nameless = self.translator.nameless;
        self.at.endpoint.get_or_insert_with(|| self.client.agent.card.at.clone());
        let state = serde_json::to_value(&self.at).unwrap_or_default();
        let handle =
            CallHandle { offer: self.client.agent.offer.name.clone(), task: self.at.task.clone(), state };
        if self.ready.back() != Some(&CallEvent::HandleUpdated(handle.clone())) {
            self.ready.push_back(CallEvent::HandleUpdated(handle));
        }
    }
}

impl CallPosition {
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
