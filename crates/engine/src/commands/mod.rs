//! The engine's commands, one file each.
//!
//! A command reads the task, decides in a pure function (`decide_*`), and hands the decision to
//! `EngineCore::commit_and_apply`. If the task has changed meanwhile, it reads and decides again.

pub mod cancel;
pub(crate) mod child_questions;
pub mod fork;
pub mod list;
pub mod reply;
mod reply_decision;
pub mod submit;
#[cfg(test)]
mod tests;
pub(crate) mod unanswered;
pub mod webhooks;
pub mod withdraw;

use crate::{engine::Limits, error::Error};

/// How often a decision is retried because the task has changed.
const DECIDE_AGAIN: usize = 32;

/// Refuses a client-chosen id that is too long, or that has characters which are unsafe in headers and logs.
fn check_id(what: &str, id: &str, limits: &Limits) -> Result<(), Error> {
    if id.is_empty() || id.len() > limits.id_bytes || id.chars().any(char::is_control) {
        return Err(Error::Invalid(format!(
            "{what}: an id has 1 to {} bytes (limits.id-bytes) and no control characters",
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
