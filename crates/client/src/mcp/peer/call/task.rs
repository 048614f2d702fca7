//! A call that has become a task: polled by its id, at the interval that the server names.
//!
//! In 2025-11-25 its questions and its result arrive on the stream of `tasks/result`, which is opened at
//! once and reopened when it breaks. In the tasks extension of 2026-07-28 they are part of the task, and
//! `subscriptions/listen` announces each change if the server supports it. The task is polled in either
//! case, so that nothing depends on a stream.

use std::{collections::HashSet, pin::Pin, sync::Arc, time::Duration};

use http::HeaderMap;
use nuncio_engine::{
    content::{Message, Role},
    task::State,
};
use nuncio_outbound::Backoff;
use nuncio_wire::{
    jsonrpc::INVALID_PARAMS,
    mcp::{ClientRequest, InputRequest, McpPeerResponse, McpTaskSnapshot, McpTaskStatus, ToolResult},
};
use tokio::time::Instant;

use super::{McpCall, McpCallPhase, events::TaskEventCursor};
use crate::{
    a2a::peer::event_translator::EventTranslator,
    mcp::peer::{
        error::McpRequestError,
        question::{AnswerRoute, OpenQuestion},
    },
    peer::{CallEvent, PeerCallEnd, PeerError},
};

/// The polling interval if the server names none, and the bounds of what it may name.
const POLL: Duration = Duration::from_secs(1);
const MIN_POLL: Duration = Duration::from_millis(20);
const MAX_POLL: Duration = Duration::from_secs(60);
/// How many times longer the interval is while the server announces changes.
const WHILE_TOLD: u32 = 10;

/// A pending `tasks/get`.
pub(super) type TaskPoll = Pin<Box<dyn Future<Output = Result<McpTaskSnapshot, McpRequestError>> + Send>>;

/// The state of a task.
pub(super) struct McpTask {
    pub(super) id: String,
    /// The polling interval.
    every: Duration,
    /// When to poll next.
    next: Instant,
    /// The pending poll.
    pub(super) polling: Option<TaskPoll>,
    /// When it began.
    polled_at: Instant,
    /// Whether the server announces changes by itself.
    is_pushed: bool,
    /// Keys of answered questions: the server may list them for a moment longer.
    pub(super) answered: HashSet<String>,
    /// The last status message, and how many different ones there were.
    last_message: Option<String>,
    message_count: u32,
    /// The current outage of the server, if there is one.
    outage: Backoff,
    /// The event cursor, if the task is followed by its events.
    pub(super) events: Option<TaskEventCursor>,
    /// Why `tasks/result` returned no result.
    no_result: Option<McpRequestError>,
    /// A result of `tasks/result` that reports a failure. Only the task itself shows whether it was
    /// cancelled.
    result: Option<ToolResult>,
}

impl McpTask {
    fn new(id: &str, outage: Backoff) -> Self {
        Self {
            id: id.to_owned(),
            every: POLL,
            next: Instant::now(),
            polling: None,
            polled_at: Instant::now(),
            is_pushed: false,
            answered: HashSet::new(),
            last_message: None,
            message_count: 0,
            outage,
            events: None,
            no_result: None,
            result: None,
        }
    }

    /// The number of the last event received.
    pub(super) fn after(&self) -> Option<u64> {
        self.events.as_ref().map(|events| events.after)
    }

    /// When to poll the task, unless a poll is pending.
    pub(super) fn due(&self) -> Option<Instant> {
        self.polling.is_none().then_some(self.next)
    }

    /// Polls soon, because a request has changed the task.
    pub(super) fn soon(&mut self) {
        self.next = Instant::now() + MIN_POLL;
    }

    /// Records a state of the task that the server sent.
    fn record_update(&mut self, seen: &McpTaskSnapshot) {
        self.outage.reset();
        if let Some(interval) = seen.poll_interval {
            self.every = interval.clamp(MIN_POLL, MAX_POLL);
        }
        self.later();
    }

    fn later(&mut self) {
        let every = if self.is_pushed { self.every * WHILE_TOLD } else { self.every };
        self.next = Instant::now() + every.min(MAX_POLL);
    }
}

impl McpCall {
    /// The call has become that task.
    pub(super) async fn enter(&mut self, task: McpTaskSnapshot) -> Result<Option<PeerCallEnd>, PeerError> {
        let Some(id) = &task.id else {
            return Err(self.malformed("a task without an id"));
        };
        let mut entered = McpTask::new(id, self.connection.options.outage());
        entered.events = self
            .connection
            .has_events()
            .then(|| TaskEventCursor { after: 0, translator: EventTranslator::default() });
        entered.later();
        self.phase = McpCallPhase::Task(entered);
        self.inbox.set_task(id);
        self.emit_handle();
        self.open_task_stream().await;
        if task.status == Ok(McpTaskStatus::Working) {
            return self.task_told(task).await;
        }
        // A new task comes without its questions or its result.
        if let McpCallPhase::Task(entered) = &mut self.phase {
            entered.soon();
        }
        Ok(None)
    }

    /// Follows a task that another process began.
    pub(super) async fn join(&mut self, id: &str, after: Option<u64>) {
        let mut joined = McpTask::new(id, self.connection.options.outage());
        joined.events =
            after.map(|after| TaskEventCursor { after, translator: EventTranslator::after_others() });
        self.phase = McpCallPhase::Task(joined);
        self.inbox.set_task(id);
        self.open_task_stream().await;
    }

    /// Opens the stream that announces changes of the task.
    pub(super) async fn open_task_stream(&mut self) {
        let McpCallPhase::Task(task) = &self.phase else { return };
        let (id, after) = (task.id.clone(), task.after());
        let follow = ClientRequest::FollowTask { task: &id, after };
        match self.connection.exchange(follow, HeaderMap::new()).await {
            Ok(exchange) => (self.exchange, self.cursor) = (Some(exchange), None),
            // The task is polled in any case.
            Err(fail) => tracing::debug!(?fail, "{}: no stream of task {id}", self.connection.at),
        }
    }

    /// Starts a poll.
    pub(super) fn poll(&mut self) {
        if let McpCallPhase::Task(task) = &mut self.phase {
            let (connection, id) = (Arc::clone(&self.connection), task.id.clone());
            let limit = task.outage.attempt_limit();
            task.polled_at = Instant::now();
            task.polling = Some(Box::pin(async move {
                match tokio::time::timeout(limit, connection.request(ClientRequest::GetTask(&id))).await {
                    Ok(polled) => polled.map(McpTaskSnapshot::read),
                    Err(_) => Err(McpRequestError::cut(format!(
                        "{} did not answer within {} s",
                        connection.at,
                        limit.as_secs_f32()
                    ))),
                }
            }));
        }
    }

    pub(super) async fn polled(
        &mut self,
        polled: Result<McpTaskSnapshot, McpRequestError>,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        task.polling = None;
        match polled {
            Ok(seen) if task.events.is_some() => {
                // The events carry the state, in order; the poll only shows that the server is reachable.
                task.record_update(&seen);
                if self.exchange.is_none() {
                    self.open_task_stream().await;
                }
                Ok(None)
            }
            Ok(seen) => self.task_told(seen).await,
            Err(fail) if fail.is_transient() || matches!(fail, McpRequestError::SessionLost) => {
                self.poll_failed(fail).await.map(|()| None)
            }
            Err(McpRequestError::Rpc(_)) if task.result.is_some() => {
                let result = task.result.take().unwrap_or_default();
                Ok(Some(self.completed(&result)))
            }
            Err(McpRequestError::Rpc(error)) => {
                let why = format!("{} does not know the task: {}", self.connection.at, error.message);
                Err(PeerError::Gone(why))
            }
            Err(fail) => Err(fail.into_peer(&self.connection.at)),
        }
    }

    /// The task could not be read: polls it again after a pause, unless the server has been unreachable for
    /// too long.
    async fn poll_failed(&mut self, fail: McpRequestError) -> Result<(), PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(()) };
        let is_lost = matches!(fail, McpRequestError::SessionLost);
        let error = fail.into_peer(&self.connection.at);
        let Some(pause) = task.outage.fail(task.polled_at, error.retry_after()) else {
            let (at, lasted) = (self.connection.at.clone(), task.outage.lasted());
            return Err(if is_lost {
                error
            } else {
                PeerError::Outage { at, lasted, why: error.to_string() }
            });
        };
        task.next = Instant::now() + pause;
        if !is_lost && self.connection.closed().is_none() {
            return Ok(());
        }
        let limit = task.outage.attempt_limit();
        match tokio::time::timeout(limit, self.reconnect()).await {
            Ok(Ok(())) if is_lost => self.open_task_stream().await,
            Ok(Ok(())) => {}
            // If there is no connection, the next poll retries.
            Ok(Err(error)) if error.is_transient() || matches!(error, PeerError::Cut(_)) => {
                tracing::debug!(%error, "{}: still unreachable", self.connection.at);
            }
            Ok(Err(error)) if is_lost => return Err(error),
            Ok(Err(_)) | Err(_) => tracing::debug!("{}: still unreachable", self.connection.at),
        }
        Ok(())
    }

    /// Handles a state of the task.
    pub(super) async fn task_told(
        &mut self,
        seen: McpTaskSnapshot,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        if seen.id.as_ref() != Some(&task.id) {
            return Ok(None);
        }
        task.record_update(&seen);
        if task.events.is_some() {
            // Questions arrive in the revision's own form; the rest is in the events.
            match (self.connection.version.is_stateless(), &seen.status) {
                (true, Ok(McpTaskStatus::InputRequired)) => self.ask_for(seen.input_requests),
                (true, Ok(McpTaskStatus::Working)) => self.ask_for(vec![]),
                _ => {}
            }
            return Ok(None);
        }
        let status = match seen.status {
            Ok(status) => status,
            Err(other) => return Err(self.malformed(&format!("a task with the status {other:?}"))),
        };
        let said = seen.message.as_deref();
        if let Some(said) = said
            .filter(|said| task.last_message.as_deref() != Some(*said) && status == McpTaskStatus::Working)
        {
            task.last_message = Some(said.to_owned());
            task.message_count += 1;
            let message = Message::text(format!("{}-{}", self.token, task.message_count), Role::Agent, said);
            self.outbox.push_back(CallEvent::Message(message));
        }
        match (self.connection.version.is_stateless(), status) {
            (_, McpTaskStatus::Working | McpTaskStatus::Submitted) => {
                task.no_result = None;
                self.ask_for(vec![]);
                Ok(None)
            }
            (true, McpTaskStatus::InputRequired) => {
                self.ask_for(seen.input_requests);
                Ok(None)
            }
            (true, McpTaskStatus::Completed) => Ok(Some(self.completed(&seen.result))),
            (true, McpTaskStatus::Failed) => {
                let why = seen.error.as_deref().or(said).unwrap_or("the task failed");
                Ok(Some(self.failed(why)))
            }
            (_, McpTaskStatus::Cancelled) => {
                let message = said.map(|said| Message::text(&*self.token, Role::Agent, said));
                Ok(Some(PeerCallEnd { state: State::Canceled, message }))
            }
            (false, McpTaskStatus::InputRequired | McpTaskStatus::Completed | McpTaskStatus::Failed) => {
                // Questions and the result arrive on the stream of `tasks/result`.
                if let Some(result) = task.result.take() {
                    return Ok(Some(self.completed(&result)));
                }
                let failed = task.no_result.take();
                match (failed, status) {
                    (Some(fail), McpTaskStatus::Completed | McpTaskStatus::Failed) => {
                        return self.no_result(fail, status, said);
                    }
                    _ if self.exchange.is_none() => self.open_task_stream().await,
                    _ => {}
                }
                Ok(None)
            }
        }
    }

    /// Sends new questions of a task (2026-07-28) to the follower, and closes those that it no longer lists.
    fn ask_for(&mut self, requests: Vec<(String, InputRequest)>) {
        let McpCallPhase::Task(task) = &self.phase else { return };
        let answered = task.answered.clone();
        let is_asked = |key: &str| requests.iter().any(|(asked, _)| asked == key);
        while let Some(at) =
            self.open.iter().position(|open| matches!(&open.to, AnswerRoute::Input(key) if !is_asked(key)))
        {
            let settled = self.close_question(at);
            self.outbox.push_back(CallEvent::QuestionClosed(settled.id));
            self.emit_handle();
        }
        for (key, request) in requests {
            let route = AnswerRoute::Input(key.clone());
            if self.open.iter().any(|open| open.to == route) || answered.contains(&key) {
                continue;
            }
            let open = OpenQuestion::new(key, request, route);
            if let Err(why) = self.put_question(open) {
                tracing::warn!(why, "{}: the task asks an unsupported question", self.connection.at);
            }
        }
    }

    /// The server acknowledges which tasks it announces.
    pub(super) fn listened(&mut self, tasks: &[String]) {
        if let McpCallPhase::Task(task) = &mut self.phase {
            task.is_pushed = tasks.contains(&task.id);
        }
    }

    /// The stream of the task has ended with a response.
    pub(super) fn task_answered(
        &mut self,
        answer: McpPeerResponse,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        let stateless = self.connection.version.is_stateless();
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        task.is_pushed = false;
        if let (Some(_), Err(error)) = (&task.events, &answer.outcome) {
            if error.code == i64::from(INVALID_PARAMS) {
                // The server no longer knows the cursor: its log was replaced.
                tracing::warn!(%error, "{}: no events of {}: polling it", self.connection.at, task.id);
                task.events = None;
            }
            task.soon();
            return Ok(None);
        }
        match answer.outcome {
            Ok(result) if !stateless => {
                let result = ToolResult::read(result);
                if !result.is_error {
                    return Ok(Some(self.completed(&result)));
                }
                task.result = Some(result);
                task.soon();
                Ok(None)
            }
            Err(error) if !stateless => {
                // The task failed, or is not done yet: the task itself shows which.
                task.no_result = Some(McpRequestError::Rpc(error));
                task.soon();
                Ok(None)
            }
            _ => {
                task.soon();
                Ok(None)
            }
        }
    }

    /// The stream of the task broke. The task goes on.
    pub(super) fn task_broke(&mut self, fail: McpRequestError) -> Result<Option<PeerCallEnd>, PeerError> {
        let McpCallPhase::Task(task) = &mut self.phase else { return Ok(None) };
        tracing::debug!(?fail, "{}: the stream of task {} broke: polling it", self.connection.at, task.id);
        task.is_pushed = false;
        task.soon();
        if let McpRequestError::Peer(PeerError::Outage { lasted, .. }) = &fail {
            task.outage.record_outage(*lasted);
        }
        if let (McpRequestError::Rpc(_), false) = (&fail, self.connection.version.is_stateless()) {
            task.no_result = Some(fail);
        }
        for open in &mut self.open {
            open.again = true;
        }
        Ok(None)
    }

    fn no_result(
        &mut self,
        fail: McpRequestError,
        status: McpTaskStatus,
        said: Option<&str>,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        match (fail, status) {
            (McpRequestError::Rpc(error), McpTaskStatus::Failed) => {
                let why =
                    if error.message.is_empty() { said.unwrap_or("the task failed") } else { &error.message };
                Ok(Some(self.failed(why)))
            }
            (fail, _) => Err(fail.into_peer(&self.connection.at)),
        }
    }

    fn malformed(&self, why: &str) -> PeerError {
        PeerError::Malformed { at: self.connection.at.clone(), why: why.to_owned() }
    }
}
