//! A stream of one task's events that reconnects.
//!
//! A stream is over when the task has ended, when the task waits for the caller and the server closes, or
//! when the agent answered with a message. Anything else that stops it is a disconnect: the stream resumes
//! after the last event received (`Last-Event-ID`), a bounded number of times in a row. If that fails the
//! caller gets an error; a disconnect never looks like an end.

use std::time::Duration;

use nuncio_engine::task::State;
use nuncio_outbound::Backoff;
use nuncio_wire::a2a::{Dialect, StreamEvent};

use super::{
    A2aClient, A2aClientError, A2aResponse,
    transport::{A2aEventSource, ReceivedEvent},
};

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The code for an operation that the task's state does not allow, such as a subscription to an ended task.
const UNSUPPORTED_OPERATION: i64 = -32004;

/// The code that the official servers of 0.3 have for a subscription to an ended task.
const INVALID_PARAMS: i64 = -32602;

/// One event, with the cursor after it.
#[derive(Debug, Clone)]
pub struct StreamItem {
    /// The decoded event.
    pub event: A2aResponse<StreamEvent>,
    /// The event's id on the stream; a subscription resumes after it.
    pub cursor: Option<String>,
}

/// The events of a task, in order.
pub struct A2aTaskEvents {
    client: A2aClient,
    /// `None` between a disconnect and the next reconnect.
    source: Option<A2aEventSource>,
    task: Option<String>,
    cursor: Option<String>,
    /// `None` until an event carried a state.
    state: Option<State>,
    /// The agent answered with a message: there is no task.
    answered: bool,
    limit: u32,
    /// Attempts to reconnect since the cursor last moved.
    tries: u32,
    backoff: Backoff,
    last_error: A2aClientError,
}

impl A2aTaskEvents {
    pub(super) fn new(
        client: A2aClient,
        opened: A2aEventSource,
        task: Option<String>,
        cursor: Option<String>,
    ) -> Self {
        let limit = client.resumes;
        Self {
            client,
            source: Some(opened),
            task,
            cursor,
            state: None,
            answered: false,
            limit,
            tries: 0,
            backoff: Backoff::unlimited(FIRST_WAIT, LONGEST_WAIT),
            last_error: A2aClientError::Ended,
        }
    }

    /// The task's id, once it is known.
    pub fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// The event to resume after.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, A2aClientError> {
        loop {
            if self.answered || self.state.is_some_and(State::is_terminal) {
                return Ok(None);
            }
            let Some(source) = &mut self.source else {
                if let Some(task) = self.resume().await? {
                    return Ok(Some(task));
                }
                continue;
            };
            match source.next().await {
                Ok(Some(event)) => return self.take(event).map(Some),
                Ok(None) if self.state.is_some_and(State::is_interrupted) => return Ok(None),
                Ok(None) => self.cut(A2aClientError::Ended),
                Err(error) if error.is_transient() => self.cut(error),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, event: ReceivedEvent) -> Result<StreamItem, A2aClientError> {
        let received = self.client.read_event(event.json)?;
        // Only an event that moves the cursor is progress. A server that repeats itself after every
        // disconnect, or has no cursors, must not be retried for ever.
        if event.id.is_some() && event.id != self.cursor {
            self.cursor = event.id;
            self.tries = 0;
            self.backoff.reset();
        }
        match &received.value {
            StreamEvent::Task(task) => {
                self.task = Some(task.id.clone());
                self.state = Some(task.state);
            }
            StreamEvent::Message(_) => self.answered = true,
            StreamEvent::Status(update) => {
                self.task = Some(update.task.clone());
                self.state = Some(update.state);
            }
            StreamEvent::Artifact(update) => self.task = Some(update.task.clone()),
        }
        Ok(StreamItem { event: received, cursor: self.cursor.clone() })
    }

    fn cut(&mut self, why: A2aClientError) {
        tracing::debug!(task = self.task, cursor = self.cursor, %why, "the stream was cut");
        self.source = None;
        self.last_error = why;
    }

    /// One attempt to reconnect. `Some`: the task has ended meanwhile, and this is its final state.
    async fn resume(&mut self) -> Result<Option<StreamItem>, A2aClientError> {
        let Some(task) = self.task.clone().filter(|_| self.tries < self.limit) else {
            return Err(A2aClientError::Cut {
                task: self.task.clone(),
                cursor: self.cursor.clone(),
                tries: self.tries,
                last: Box::new(self.last_error.clone()),
            });
        };
        tokio::time::sleep(self.backoff.take_pause(None)).await;
        self.tries += 1;
        let call = nuncio_wire::a2a::A2aCall::Subscribe { task: task.clone() };
        match self.client.open(&call, self.cursor.as_deref()).await {
            Ok(opened) => self.source = Some(opened),
            // Servers without cursors reject a subscription to a task that has ended.
            Err(error) if self.may_have_ended(&error) => {
                let ended = self.client.get(&task, None).await?;
                if !ended.value.state.is_terminal() {
                    return Err(error);
                }
                return self.take_ended(ended).map(Some);
            }
            Err(error) if error.is_transient() => self.last_error = error,
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn may_have_ended(&self, refusal: &A2aClientError) -> bool {
        match refusal.rpc_code() {
            Some(UNSUPPORTED_OPERATION) => true,
            Some(INVALID_PARAMS) => self.client.dialect() < Dialect::V1,
            _ => false,
        }
    }

    /// Converts a task that was read to the stream item that would carry it.
    fn take_ended(
        &mut self,
        task: A2aResponse<nuncio_wire::a2a::TaskView>,
    ) -> Result<StreamItem, A2aClientError> {
        self.state = Some(task.value.state);
        let json = self.client.as_sent(&task.json)?;
        let event = A2aResponse { json, value: StreamEvent::Task(Box::new(task.value)) };
        Ok(StreamItem { event, cursor: self.cursor.clone() })
    }
}
