//! How a call continues without a stream: after a disconnect, with an agent that has no streams, and at the
//! end, when some artifacts may not have been received.

use std::time::Duration;

use nuncio_engine::event::{Level, LogLine};
use nuncio_outbound::Backoff;
use nuncio_wire::a2a::{Dialect, StreamEvent, TaskView};
use tokio::time::Instant;

use super::{CallFeed, EMPTY_STREAMS, FIRST_WAIT, FeedSource, LONGEST_WAIT};
use crate::{
    a2a::{
        A2aClientError, A2aTaskEvents,
        peer::fault::{self, peer_error},
    },
    peer::{CallEvent, PeerError},
};

impl CallFeed {
    /// Records that the stream was cut.
    pub(super) fn record_disconnect(&mut self, why: &str) -> Result<(), PeerError> {
        tracing::debug!(task = self.at.task, cursor = self.at.cursor, why, "the stream of a call was cut");
        if self.at.task.is_none() && !self.client.has_cursors() {
            return Err(PeerError::Cut(format!(
                "{why}; whether the agent has taken the message is not known"
            )));
        }
        if self.empty_streams == 0 {
            self.pause = Duration::ZERO;
        }
        self.empty_streams += 1;
        self.source = FeedSource::Lost;
        self.translator.unsure |= !self.by_cursor();
        Ok(())
    }

    /// One attempt to continue after a disconnect.
    pub(super) async fn reconnect(&mut self) -> Result<(), PeerError> {
        self.wait(LONGEST_WAIT).await;
        let Some(task) = self.at.task.clone() else {
            // No response arrived; sending the message again is safe, because its id is the idempotency key.
            let Some((send, headers)) = self.begun.clone() else {
                return Err(PeerError::Gone("the call was never begun".into()));
            };
            // Its time does not count as an outage: the agent may hold back the response while it works.
            let said = self.send_and_follow(&send, &headers).await;
            return self.accept_response(Instant::now(), said).map(|_| ());
        };
        if self.by_cursor() {
            let began = Instant::now();
            match self.subscribe(&task, self.at.cursor.as_deref()).await {
                Ok(events) => {
                    self.source = FeedSource::Stream(Box::new(events));
                    return self.accept_response(began, Ok(())).map(|_| ());
                }
                Err(error) if fault::is_transient(&error) || fault::is_gone(&error) => {
                    return self.accept_response(began, Err(error)).map(|_: Option<()>| ());
                }
                // The card declares cursors but the agent rejects them: continue without.
                Err(error) => {
                    tracing::debug!(task, %error, "the agent rejected the cursor");
                    (self.at.cursor, self.translator.unsure) = (None, true);
                }
            }
        }
        let Some(found) = self.read_task(&task).await? else { return Ok(()) };
        let rests = found.state.is_terminal() || found.state.is_interrupted();
        (self.source, self.pause) = (FeedSource::Poll, self.client.options.poll);
        self.take(&StreamEvent::Task(Box::new(found)), None);
        // Before 1.0 a second subscriber may do harm: the official Python SDK stores each chunk that is
        // appended to an artifact once per subscriber. So there the task is only polled.
        let subscribes = self.client.streams() && self.client.dialect() >= Dialect::V1;
        if rests || !subscribes || self.empty_streams >= EMPTY_STREAMS {
            return Ok(());
        }
        if let Ok(events) = self.subscribe(&task, None).await {
            self.source = FeedSource::Stream(Box::new(events));
            // An event between the read and the subscription is in neither.
            self.translator.unsure = true;
        }
        Ok(())
    }

    /// Polls the task.
    pub(super) async fn poll_task(&mut self, slowest: Duration) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else {
            return Err(PeerError::Malformed {
                at: self.client.agent.card.at.clone(),
                why: "it accepted a message but named no task".into(),
            });
        };
        self.wait(slowest).await;
        if let Some(found) = self.read_task(&task).await? {
            if matches!(self.source, FeedSource::Asked) && !found.state.is_interrupted() {
                (self.source, self.pause) = (FeedSource::Lost, FIRST_WAIT);
                if self.by_cursor() {
                    return Ok(());
                }
            }
            self.answer_again(&found).await?;
            self.take(&StreamEvent::Task(Box::new(found)), None);
        }
        Ok(())
    }

    /// The task has ended, and some of its artifacts may not have been received.
    pub(super) async fn close(&mut self) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else {
            self.source = FeedSource::Over;
            return Ok(());
        };
        match self.read_task(&task).await {
            Ok(Some(found)) => self.take(&StreamEvent::Task(Box::new(found)), None),
            Ok(None) => self.wait(LONGEST_WAIT).await,
            // The end stands all the same: some agents delete tasks that have ended.
            Err(error) => {
                let text = format!("the task cannot be looked at, and artifacts may be missing: {error}");
                self.ready.push_back(CallEvent::Log(LogLine { level: Level::Warning, text }));
                self.ready.extend(self.end.drain(..));
                self.source = FeedSource::Over;
            }
        }
        Ok(())
    }

    /// Backoff: waits, longer each time.
    async fn wait(&mut self, longest: Duration) {
        let pause = self.pause;
        tokio::time::sleep(pause).await;
        self.pause = (pause + pause / 2).min(longest.max(pause)).max(FIRST_WAIT);
    }

    /// Reads the task. `None`: no response; worth a retry.
    async fn read_task(&mut self, task: &str) -> Result<Option<TaskView>, PeerError> {
        let began = Instant::now();
        let found = self.within_outage(self.client.get(task)).await;
        self.accept_response(began, found)
    }

    async fn subscribe(&self, task: &str, after: Option<&str>) -> Result<A2aTaskEvents, A2aClientError> {
        self.within_outage(self.client.subscribe(task, after)).await
    }

    /// Bounds a read: an agent that accepts requests and does not answer them is unreachable.
    async fn within_outage<T>(
        &self,
        request: impl Future<Output = Result<T, A2aClientError>>,
    ) -> Result<T, A2aClientError> {
        let limit = self.outage.attempt_limit();
        match tokio::time::timeout(limit, request).await {
            Ok(answered) => answered,
            Err(_) => Err(A2aClientError::Timeout { at: self.client.agent.card.at.clone(), limit }),
        }
    }

    /// The response to a request that may be retried, and when the request began. `None`: no response; worth
    /// a retry after [`CallFeed::pause`].
    pub(super) fn accept_response<T>(
        &mut self,
        began: Instant,
        answer: Result<T, A2aClientError>,
    ) -> Result<Option<T>, PeerError> {
        match answer {
            Ok(answer) => {
                self.outage.reset();
                Ok(Some(answer))
            }
            Err(error) if fault::is_gone(&error) => Err(PeerError::Gone(error.to_string())),
            Err(error) if fault::is_transient(&error) => {
                let wanted = peer_error(error.clone()).retry_after();
                match self.outage.fail(began, wanted) {
                    Some(pause) => {
                        self.pause = pause;
                        Ok(None)
                    }
                    None => Err(self.outage_error(&self.outage, &error)),
                }
            }
            Err(error) => Err(peer_error(error)),
        }
    }

    /// The error of an outage that lasted too long.
    pub(super) fn outage_error(&self, outage: &Backoff, last: &A2aClientError) -> PeerError {
        let at = self.client.agent.card.at.clone();
        PeerError::Outage { at, lasted: outage.lasted(), why: last.to_string() }
    }
}
