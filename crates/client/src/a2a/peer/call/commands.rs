//! The follower's commands to a call: answers, further messages, and cancellation.

use http::{HeaderName, HeaderValue};
use nuncio_engine::{content::Message, question::Answer};
use nuncio_outbound::Backoff;
use nuncio_wire::a2a::{Dialect, SendMessage, StreamEvent, TaskView};
use tokio::{sync::oneshot, time::Instant};

use super::{CallFeed, FIRST_WAIT, FeedSource, LONGEST_WAIT, SentAnswer};
use crate::{
    a2a::{
        A2aClient,
        peer::{
            authorized_client::RequestHeaders,
            fault::{self, peer_error},
        },
    },
    peer::{CallCommand, PeerError},
};

/// How many times an answer is sent again to an agent that does not react to it.
const ANSWERS_AGAIN: u32 = 3;
/// The code of "task cannot be canceled", because it has ended.
const NOT_CANCELABLE: i64 = -32002;

impl CallFeed {
    pub(super) async fn run_command(&mut self, order: CallCommand) {
        match order {
            CallCommand::Answer { question, answer, taken } => {
                let _ = taken.send(self.answer(&question, &answer).await);
            }
            CallCommand::Message { message, taken } => self.send_message(message, taken),
            CallCommand::Cancel { told } => match &self.at.task {
                Some(_) => drop(told.send(self.cancel().await)),
                None => self.cancels.push(told),
            },
        }
    }

    async fn answer(&mut self, question: &str, answer: &Answer) -> Result<(), PeerError> {
        let (Some(task), Some(asked)) = (self.at.task.clone(), self.translator.asked.clone()) else {
            return Err(PeerError::Gone(format!("the agent does not ask {question:?}, or not any more")));
        };
        if asked.question.id != question {
            return Err(PeerError::Gone(format!("the agent does not ask {question:?}, or not any more")));
        }
        let message = asked.answer(&task, answer);
        let key =
            HeaderValue::from_str(&message.id).map(|key| (HeaderName::from_static("idempotency-key"), key));
        let context_id = self.at.context.clone();
        let send =
            SendMessage { task_id: Some(task), context_id, blocking: false, ..SendMessage::new(message) };
        let headers: RequestHeaders = key.into_iter().collect();
        let mut outage = Backoff::new(FIRST_WAIT, LONGEST_WAIT, self.client.options.away);
        // Before the answer is sent, because every event after it belongs to the time after the answer.
        self.translator.mark_answered(question);
        loop {
            let error = match self.send_and_follow(&send, &headers).await {
                Ok(()) => break,
                Err(error) => error,
            };
            let again = match self.client.has_cursors() {
                true => fault::is_transient(&error),
                // Without idempotency keys, an answer is only sent again if it certainly did not arrive.
                false => peer_error(error.clone()).is_transient() || !self.was_answer_received(&send).await,
            };
            if !again || !fault::is_transient(&error) {
                self.translator.reopen(asked);
                return Err(peer_error(error));
            }
            let wanted = peer_error(error.clone()).retry_after();
            let Some(pause) = outage.fail(Instant::now(), wanted) else {
                self.translator.reopen(asked);
                return Err(self.outage_error(&outage, &error));
            };
            tokio::time::sleep(pause).await;
        }
        self.sent_answer = Some(SentAnswer { send, headers, at: Instant::now(), resends: ANSWERS_AGAIN });
        self.emit_handle();
        Ok(())
    }

    /// Sends the last answer again if the task still waits for it some time after it was sent.
    pub(super) async fn answer_again(&mut self, found: &TaskView) -> Result<(), PeerError> {
        let patience = self.client.options.slowest;
        let Some(given) = self.sent_answer.as_mut().filter(|_| self.translator.waits_still(found)) else {
            self.sent_answer = None;
            return Ok(());
        };
        if given.at.elapsed() < patience {
            return Ok(());
        }
        if given.resends == 0 {
            return Err(PeerError::Cut("the agent goes on waiting for an answer that it was given".into()));
        }
        let (send, headers) = (given.send.clone(), given.headers.clone());
        tracing::debug!(task = self.at.task, "the task still waits for an answer: sending it again");
        let said = self.send_and_follow(&send, &headers).await;
        // Only now: if a command interrupts the send, the answer remains to be sent.
        if let Some(given) = &mut self.sent_answer {
            (given.at, given.resends) = (Instant::now(), given.resends.saturating_sub(1));
        }
        self.accept_response(Instant::now(), said).map(|_| ())
    }

    /// Whether an answer whose request was cut has arrived: the task no longer waits.
    async fn was_answer_received(&mut self, send: &SendMessage) -> bool {
        let Some(task) = &send.task_id else { return true };
        match self.client.get(task).await {
            Ok(found) => !found.state.is_interrupted(),
            Err(_) => true,
        }
    }

    async fn cancel(&mut self) -> Result<(), PeerError> {
        let Some(task) = self.at.task.clone() else { return Ok(()) };
        match self.client.cancel(&task).await {
            Ok(found) => {
                let streams = matches!(self.source, FeedSource::Stream(_));
                // A stream reports the end itself, after everything that came before it.
                if !streams && found.state.is_terminal() && !self.by_cursor() {
                    self.take(&StreamEvent::Task(Box::new(found)), None);
                } else if !streams {
                    (self.source, self.pause) = (FeedSource::Lost, FIRST_WAIT);
                }
                Ok(())
            }
            Err(error) if error.rpc_code() == Some(NOT_CANCELABLE) => Ok(()),
            Err(error) => Err(peer_error(error)),
        }
    }

    /// Sends a message to the running task, concurrently with reading its events. The response contains
    /// nothing that does not also arrive as an event.
    fn send_message(&self, message: Message, taken: oneshot::Sender<Result<(), PeerError>>) {
        let Some(task) = self.at.task.clone() else {
            let _ = taken.send(Err(PeerError::Gone("the agent has not named its task yet".into())));
            return;
        };
        let key = HeaderValue::from_str(&message.id);
        let headers: RequestHeaders =
            key.map(|key| (HeaderName::from_static("idempotency-key"), key)).into_iter().collect();
        let mut send =
            SendMessage { context_id: self.at.context.clone(), blocking: false, ..SendMessage::new(message) };
        match self.client.dialect() {
            Dialect::V0_1 => send.client_task_id = Some(task),
            _ => send.task_id = Some(task),
        }
        let line = self.client.clone();
        tokio::spawn(async move {
            let ask = |client: A2aClient| {
                let send = send.clone();
                async move { client.send(send).await }
            };
            let _ = taken.send(line.ask(&headers, ask).await.map(|_| ()).map_err(peer_error));
        });
    }

    /// The task id is known now: cancels the task if that was requested.
    pub(super) fn cancel_known(&mut self) {
        let Some(task) = self.at.task.clone().filter(|_| !self.cancels.is_empty()) else { return };
        let (line, waiting) = (self.client.clone(), std::mem::take(&mut self.cancels));
        tokio::spawn(async move {
            let told = line.cancel(&task).await.map(|_| ()).map_err(peer_error);
            for waits in waiting {
                let _ = waits.send(told.clone());
            }
        });
    }
}
