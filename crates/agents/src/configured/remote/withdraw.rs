//! A question of the other side that is open here, and how it is taken back when nobody over there waits for it any more.
//!
//! Somebody may answer at the other side, or end the work there. Then the question is withdrawn here, by its own id: the
//! task runs again and follows what came after. A withdrawal is no answer, and the other side is told nothing.

use std::{sync::Arc, time::Duration};

use nuncio_client::peer::{CallEvent, PeerError};
use nuncio_engine::{Error, QuestionWithdrawer, TaskContext, question::Question};
use parking_lot::Mutex;

/// How soon it is tried again to withdraw a question that is not in the log yet, at first, and how seldom.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The id of the question as it is put here. One that is put again, because its answer could not be read, has another.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalQuestionId(Arc<Mutex<Option<String>>>);

impl LocalQuestionId {
    /// The next question that is put in this context is the one.
    pub(super) fn set_to_next_question(&self, cx: &TaskContext) {
        *self.0.lock() = Some(cx.next_question_id());
    }

    fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// A question of the other side that is open here.
pub(super) struct RemoteQuestion {
    /// None in tests of the pool alone.
    withdrawer: Option<QuestionWithdrawer>,
    here: LocalQuestionId,
    /// The question's id over there.
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

    /// Whether nobody over there waits for an answer after that.
    pub(super) fn is_closed_by(&self, happened: &Result<CallEvent, PeerError>) -> bool {
        match happened {
            Ok(CallEvent::QuestionClosed(question)) => *question == self.remote_id,
            Ok(CallEvent::Ended(_)) => true,
            _ => false,
        }
    }

    /// Withdraws the question here. It may be on its way to the log still; whoever needs the call back stops this.
    pub(super) async fn withdraw(&self) {
        let Some(withdrawer) = &self.withdrawer else { return };
        let task = withdrawer.task();
        let mut pause = FIRST_RETRY;
        loop {
            if let Some(question) = self.here.get() {
                match withdrawer.withdraw(&question).await {
                    Ok(true) | Err(Error::Ended(_) | Error::NoSuchTask(_)) => return,
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%task, %error, "a question could not be withdrawn"),
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }
}
