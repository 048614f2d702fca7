//! A question of the peer that is open here, and its withdrawal when the peer no longer waits for it.
//!
//! The question may be answered at the peer, or the work may end there. Then it is withdrawn here, by its
//! local id: the task runs again and follows the events after it. A withdrawal is not an answer, and nothing
//! is sent to the peer.

use std::{sync::Arc, time::Duration};

use nuncio_client::peer::{CallEvent, PeerError};
use nuncio_engine::{Error, QuestionWithdrawer, TaskContext, question::Question};
use nuncio_outbound::Backoff;
use parking_lot::Mutex;

/// The first and the longest backoff for withdrawing a question that is not in the log yet.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The local id of the question. It changes when the question is asked again because its answer could not be
/// parsed.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalQuestionId(Arc<Mutex<Option<String>>>);

impl LocalQuestionId {
    /// Sets it to the id of the next question in this context.
    pub(super) fn set_to_next_question(&self, cx: &TaskContext) {
        *self.0.lock() = Some(cx.next_question_id());
    }

    fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// A question of the peer that is open here.
pub(super) struct RemoteQuestion {
    /// `None` in tests of the parked calls alone.
    withdrawer: Option<QuestionWithdrawer>,
    here: LocalQuestionId,
    /// The peer's id of the question.
    remote_id: String,
}

impl RemoteQuestion {
    pub(super) fn new(cx: &TaskContext, question: &Question, here: LocalQuestionId) -> Self {
        Self { withdrawer: Some(cx.withdrawer()), here, remote_id: question.id.clone() }
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { withdrawer: None, here: LocalQuestionId::default(), remote_id: String::new() }
    }

    /// Whether the peer no longer waits for an answer after that event.
    pub(super) fn is_closed_by(&self, happened: &Result<CallEvent, PeerError>) -> bool {
        match happened {
            Ok(CallEvent::QuestionClosed(question)) => *question == self.remote_id,
            Ok(CallEvent::Ended(_)) => true,
            _ => false,
        }
    }

    /// Withdraws the question here. Retries while it is not in the log yet; taking the call back aborts
    /// this.
    pub(super) async fn withdraw(&self) {
        let Some(withdrawer) = &self.withdrawer else { return };
        let task = withdrawer.task();
        let mut backoff = Backoff::unlimited(FIRST_RETRY, LONGEST_RETRY);
        loop {
            if let Some(question) = self.here.get() {
                match withdrawer.withdraw(&question).await {
                    Ok(true) | Err(Error::Ended(_) | Error::NoSuchTask(_)) => return,
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%task, %error, "a question could not be withdrawn"),
                }
            }
            tokio::time::sleep(backoff.take_pause(None)).await;
        }
    }
}
