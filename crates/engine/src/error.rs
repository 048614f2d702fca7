//! The engine's errors. Each protocol maps each case to its own code, in one table.

use std::time::Duration;

use crate::{
    question::AnswerError,
    refusal_log::count_refusal,
    store::{StoreError, WebhookError},
    task::State,
};

/// Why an operation failed. Unless a case states otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The task does not exist, or the caller may not see it: the two are indistinguishable.
    #[error("there is no task {0}")]
    NoSuchTask(String),
    /// No agent of that name is served here.
    #[error("there is no agent {0:?} here")]
    NoSuchAgent(String),
    /// The task has ended; it takes no more messages.
    #[error(
        "the task has ended ({}) and takes no more messages: start a new task, in the same context if it belongs together",
        .0.name()
    )]
    Ended(State),
    /// The task's question was open for longer than its limit. The task ends for that reason, which is the text.
    #[error("{0}, and the task has ended: start a new task, in the same context if it belongs together")]
    Unanswered(String),
    /// The task has ended; there is nothing to cancel.
    #[error("the task has ended ({}) and can no longer be canceled", .0.name())]
    NotCancelable(State),
    /// The request contradicts itself or the task.
    #[error("{0}")]
    Invalid(String),
    /// The answer does not match the question's schema.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The question is not, or no longer, open.
    #[error("questionId: the task does not ask {0:?}, or not any more")]
    NotAsked(String),
    /// The task waits for no authorization, or not for this one.
    #[error("the task {task} waits for no authorization, or not for this one: it is {}", .state.name())]
    NoAuthorization {
        /// The task's id.
        task: String,
        /// Its state.
        state: State,
    },
    /// The agent does not accept this kind of content.
    #[error("{0}")]
    ContentType(String),
    /// The agent's card requires this extension, and the request does not name it.
    #[error("the agent requires the extension {0}: name it in the header A2A-Extensions")]
    ExtensionRequired(String),
    /// The agent does not support this, as its card states.
    #[error("{0}")]
    Unsupported(String),
    /// The agent's card does not advertise streaming.
    #[error("this agent does not stream: its card says streaming: false; send without a stream instead")]
    StreamingUnsupported,
    /// The agent's card does not advertise webhooks.
    #[error("this agent sends no push notifications: its card says pushNotifications: false")]
    PushUnsupported,
    /// The task has no webhook of that id.
    #[error("the task has no push notification config {0:?}")]
    NoSuchWebhook(String),
    /// The task has no webhook at all.
    #[error("the task {0:?} has no push notification config: set one first")]
    NoWebhooks(String),
    /// The idempotency key was used with another request.
    #[error(
        "the idempotency key was used before with another request: use a new key, or repeat the first request unchanged"
    )]
    KeyReused,
    /// A follower's cursor lies beyond the log.
    #[error("there is no event {asked} to continue after: the task's last event is {last}")]
    UnknownCursor {
        /// The requested cursor.
        asked: u64,
        /// The last sequence number of the log.
        last: u64,
    },
    /// A limit was reached; the text has its name and value.
    #[error("{0}")]
    Limit(String),
    /// The caller may not do this. The text is the scope that would allow it.
    #[error("this needs the scope {0}, which the caller does not have: use a token that has it")]
    Forbidden(String),
    /// Only the operator may do this, and the request does not prove that it is the operator's. The text is
    /// the scope that would allow it.
    #[error(
        "administration needs the secret of the data folder: run this command as the user who owns that folder, \
         or use a token with the scope {0}"
    )]
    NotOperator(String),
    /// The caller's tenant is not served; the second field is what the operator did to it.
    #[error("the tenant {0:?} is {1} by the operator of this server and not served: ask the operator")]
    Suspended(String, &'static str),
    /// The caller exceeds its rate limit. Nothing was done.
    #[error("{why}: try again in {} s", whole_seconds(*.retry_after))]
    TooFast {
        /// The limit that was exceeded.
        why: String,
        /// The suggested delay before a retry.
        retry_after: Duration,
    },
    /// The server is overloaded. Nothing was accepted.
    #[error("{why}: try again in {} s", whole_seconds(*.retry_after))]
    Busy {
        /// The limit that was reached.
        why: String,
        /// The suggested delay before a retry.
        retry_after: Duration,
    },
    /// An internal failure. The log has more.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// A refusal by the limit of that name, which counts it ([`count_refusal`]).
    pub fn limit(limit: &str, why: impl Into<String>) -> Self {
        count_refusal(limit);
        Self::Limit(why.into())
    }

    /// A refusal by a limit of one caller or tenant, which counts it.
    pub fn too_fast(limit: &str, why: impl Into<String>, retry_after: Duration) -> Self {
        count_refusal(limit);
        Self::TooFast { why: why.into(), retry_after }
    }

    /// A refusal by a limit of the whole server, which counts it.
    pub fn busy(limit: &str, why: impl Into<String>, retry_after: Duration) -> Self {
        count_refusal(limit);
        Self::Busy { why: why.into(), retry_after }
    }
}

/// A delay in whole seconds, rounded up so that clients never retry too early.
pub fn whole_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000).max(1)).unwrap_or(u64::MAX)
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(_) => Self::busy("store-full", error.to_string(), Duration::from_secs(30)),
            StoreError::Unavailable(_) => {
                Self::busy("store-unavailable", error.to_string(), Duration::from_secs(2))
            }
            StoreError::Broken(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<WebhookError> for Error {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::TooMany(_) => Self::limit("limits.webhooks-per-task", error.to_string()),
            WebhookError::Gone => Self::Invalid(error.to_string()),
            WebhookError::Store(error) => error.into(),
        }
    }
}
