//! The engine's commands, one file each: decide on what is stored, commit, notify.

pub mod cancel;
pub(crate) mod child_questions;
pub mod list;
pub mod reply;
pub mod submit;
#[cfg(test)]
mod tests;
pub mod webhooks;
pub mod withdraw;

use std::sync::Arc;

use crate::{
    engine::{EngineCore, Limits},
    error::Error,
    event::{self, Entry},
    store::{Change, CommitError, CommitReceipt},
};

/// How often a decision is retried because the task has changed.
const DECIDE_AGAIN: usize = 32;

impl EngineCore {
    /// Commits a decision and notifies followers. `Ok(None)`: the task has changed; read and decide again.
    pub(crate) async fn decide(
        &self,
        mut change: Change,
        entries: Vec<Entry>,
        task: &str,
    ) -> Result<Option<CommitReceipt>, Error> {
        let entries: Arc<[Entry]> = entries.into();
        change.events = (!entries.is_empty()).then(|| event::encode(&entries));
        match self.store.commit(change).await {
            Ok(committed) => {
                if !entries.is_empty() {
                    self.publish(&committed, &entries);
                    self.outbox.notify_one();
                }
                Ok(Some(committed))
            }
            Err(CommitError::Moved) => Ok(None),
            Err(CommitError::Gone) => Err(Error::NoSuchTask(task.to_owned())),
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(error @ CommitError::LogFull(_)) => Err(Error::Limit(error.to_string())),
            Err(error) => Err(Error::Internal(error.to_string())),
        }
    }
}

/// Refuses a client-chosen id that is too long, or that has characters which are unsafe in headers and logs.
fn check_id(what: &str, id: &str, limits: &Limits) -> Result<(), Error> {
    if id.is_empty() || id.len() > limits.id_bytes || id.chars().any(char::is_control) {
        return Err(Error::Invalid(format!(
            "{what}: an id has 1 to {} bytes (id_bytes) and no control characters",
            limits.id_bytes
        )));
    }
    Ok(())
}

fn moved_too_often() -> Error {
    Error::Busy {
        why: "the task changes faster than this request could be decided".into(),
        retry_after: std::time::Duration::from_secs(1),
    }
}
