//! One call of an agent, followed to its end: by a stream, across disconnects, and by polling as the last
//! resort.
//!
//! With cursors a disconnect loses and repeats nothing. Without them the task is read after a disconnect and
//! its artifacts are sent whole. Only a terminal state ends the call; an agent that is unreachable for too
//! long is an error.

mod commands;
mod reconnect;

use std::{collections::VecDeque, time::Duration};

use http::{HeaderName, HeaderValue};
use nuncio_engine::{
    content::{Message, Role},
    task::State,
};
use nuncio_outbound::Backoff;
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

/// The first backoff after a disconnect, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The first and the longest polling interval of a task that waits for an answer: another client may answer
/// it.
const ASKED_POLL: Duration = Duration::from_secs(5);
const ASKED_SLOWEST: Duration = Duration::from_secs(60);
/// After this many streams in a row that end without an event, the call switches to polling.
const EMPTY_STREAMS: u32 = 3;
/// The cursor before the first event.
const BEGINNING: &str = "0";

/// The position in a call, as a [`CallHandle`] stores it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct CallPosition {
    task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// The event to resume after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// The open question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<A2aQuestion>,
    /// The number of questions without ids before it.
    #[serde(default)]
    nameless: u32,
}

/// The event source of one call.
pub(super) struct CallFeed {
    client: AuthorizedClient,
    at: CallPosition,
    translator: EventTranslator,
    /// Events that the follower has not received yet.
    ready: VecDeque<CallEvent>,
    source: FeedSource,
    /// The final events, held back while the remaining artifacts are read.
    end: Vec<CallEvent>,
    /// The first message, until it is known that the agent received it.
    begun: Option<(SendMessage, RequestHeaders)>,
    /// The last answer, until it is known that the agent received it.
    sent_answer: Option<SentAnswer>,
    /// The current outage of the agent, if there is one.
    outage: Backoff,
    /// The pause before the next attempt or poll.
    pause: Duration,
    empty_streams: u32,
    /// Callers that wait to cancel a task whose id is not known yet.
    cancels: Vec<oneshot::Sender<Result<(), PeerError>>>,
}

/// An answer that was sent. An agent other than Nuncio may lose it and go on waiting.
struct SentAnswer {
    send: SendMessage,
    headers: RequestHeaders,
    at: Instant,
    /// How many more times it may be sent.
    resends: u32,
}

/// Where the next event comes from.
enum FeedSource {
    Stream(Box<A2aTaskEvents>),
    /// The stream was cut: reconnect.
    Lost,
    /// Without streams: poll the task.
    Poll,
    /// The task waits for an answer: poll it, but at long intervals.
    Asked,
    /// The task has ended and its artifacts remain to be read.
    Closing,
    /// All events were delivered.
    Over,
}

/// A handle for a task from its beginning, if the agent knows it.
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
        let outage = Backoff::new(FIRST_WAIT, LONGEST_WAIT, client.options.away);
        Self {
            client,
            translator: EventTranslator::default(),
            at,
            ready: VecDeque::new(),
            source,
            end: vec![],
            begun: None,
            sent_answer: None,
            outage,
            pause: FIRST_WAIT,
            empty_streams: 0,
            cancels: vec![],
        }
    }

    /// Sends the first message. When this returns, the stream has begun or the task exists.
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

    /// The first message was answered with an error. If the error means that the work was tried and failed,
    /// the call ends as failed: a retry is not this client's decision.
    fn not_begun(&mut self, error: A2aClientError) -> Result<(), PeerError> {
        let Some(why) = fault::tried(&error).filter(|_| !self.client.has_cursors()) else {
            return Err(peer_error(error));
        };
        let message = Message::text(digest(&["failed", why]), Role::Agent, why);
        self.ready.push_back(CallEvent::Ended(PeerCallEnd { state: State::Failed, message: Some(message) }));
        self.source = FeedSource::Over;
        Ok(())
    }

    /// Resumes a call.
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
        // The process before this one may have died before it stored the context.
        feed.ready.extend(feed.at.context.clone().map(CallEvent::Context));
        // Whether the call can be resumed must be known before this returns.
        let found = feed.client.get(&task).await;
        let found = found.map_err(|error| peer_error(error).into_read_error(&feed.client.agent.card.at))?;
        if let Some(asked) = feed.translator.asked.clone()
            && feed.translator.read(found.state, found.message.as_ref()).question.id == asked.question.id
            && found.state.is_interrupted()
        {
            feed.ready.push_back(CallEvent::Question(asked.question));
        } else if feed.by_cursor() {
            // The events that follow contain what became of the question.
            feed.translator.asked = None;
        }
        if !feed.by_cursor() {
            feed.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(feed)
    }

    /// Whether the card left the protocol version open.
    fn may_be_older(&self) -> bool {
        !self.client.agent.certain && self.client.dialect() == Dialect::V0_3
    }

    fn by_cursor(&self) -> bool {
        self.client.has_cursors() && self.at.cursor.is_some() && self.client.streams()
    }

    /// Sends a message, by stream if the agent has streams, and follows what it leads to.
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
        // With cursors the response need not stream: the events are read from the cursor.
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

    /// Waits for events and appends them to `ready`. Cancel safe: a dropped call has no effect.
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
                self.outage.reset();
                (self.pause, self.empty_streams) = (FIRST_WAIT, 0);
                self.take(&item.event.value, item.cursor);
                Ok(())
            }
            // Up to 0.3 a stream ends when the agent asks for input.
            Ok(None) if self.translator.asked.is_some() => {
                (self.source, self.pause) = (FeedSource::Asked, ASKED_POLL);
                Ok(())
            }
            Ok(None) => self.record_disconnect("the stream ended before the task had"),
            Err(error @ (A2aClientError::Malformed(_) | A2aClientError::NotAStream)) => {
                Err(peer_error(error))
            }
            // A JSON-RPC error in place of an event.
            Err(error @ A2aClientError::Rpc(_)) if self.at.task.is_none() && !self.client.has_cursors() => {
                self.not_begun(error)
            }
            Err(error @ A2aClientError::Rpc(_)) if !fault::is_transient(&error) => Err(peer_error(error)),
            Err(error) => self.record_disconnect(&error.to_string()),
        }
    }

    /// Applies an event: updates the position and queues call events.
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
        // After the handle, which a follower waits for first.
        self.ready.extend(named.map(CallEvent::Context));
        let happened = self.translator.translate_event(event);
        let ended = matches!(happened.last(), Some(CallEvent::Ended(_)));
        // 0.1 begins a stream with a status only; artifacts from before it are in the task.
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

    /// Queues the handle, if it has changed.
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
    /// Whether an event was received yet.
    fn cursor_moved(&self) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| cursor != BEGINNING)
    }
}

/// The task id for 0.1, where the client chooses it: derived from the message id, so that the same message
/// is the same task.
fn own_id(message: &str) -> String {
    match message.is_empty() {
        true => uuid::Uuid::now_v7().to_string(),
        false => digest(&[message]),
    }
}
