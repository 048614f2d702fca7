//! The errors of workflow operations, and their mapping to tools, resources and agents.

use std::time::Duration;

use nuncio_engine::{AgentError, Error, store::StoreError, surface::HandlerError};

use super::{phase::SparcPhase, workflow::WorkflowRefusal};
use crate::retry::RetryableError;

/// Why a workflow operation failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SparcError {
    /// The workflow does not exist, or belongs to another caller: the error does not reveal which.
    #[error("there is no workflow {0:?}: start it with sparc_start")]
    NoWorkflow(String),
    /// A workflow with that name already exists.
    #[error(
        "contextId: there is a workflow {0:?} already: read it with sparc_status, or choose another name"
    )]
    Exists(String),
    /// The artifact does not exist.
    #[error("the workflow {context_id:?} has no artifact {phase} version {version}")]
    NoArtifact {
        /// The workflow's name.
        context_id: String,
        /// The phase of the artifact.
        phase: SparcPhase,
        /// The version that was requested.
        version: u32,
    },
    /// An argument is invalid; the message names it.
    #[error("{0}")]
    Invalid(String),
    /// The workflow's state does not allow it.
    #[error(transparent)]
    Refused(#[from] WorkflowRefusal),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// Concurrent changes caused a conflict on every attempt.
    #[error("the workflow has too many concurrent changes: try again in 1 s")]
    MovedTooOften,
    /// An internal error, such as a missing record.
    #[error("{0}")]
    Internal(String),
}

impl From<StoreError> for SparcError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl RetryableError for SparcError {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Engine(error) => error.retry_after(),
            Self::MovedTooOften => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl From<SparcError> for HandlerError {
    fn from(error: SparcError) -> Self {
        match error {
            SparcError::Invalid(why) => Self::Invalid(why),
            SparcError::Engine(error) => error.into(),
            SparcError::Internal(why) => Self::Internal(why),
            error @ SparcError::MovedTooOften => {
                Self::Later { why: error.to_string(), retry_after: Duration::from_secs(1), too_fast: false }
            }
            // A model may read the reason, and act on it.
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<SparcError> for AgentError {
    fn from(error: SparcError) -> Self {
        Self::failed(error)
    }
}

impl SparcError {
    /// The error for the reader of a resource: a missing workflow or artifact becomes a missing resource.
    pub(super) fn of_resource(self, uri: &str) -> HandlerError {
        match self {
            Self::NoWorkflow(_) | Self::NoArtifact { .. } => HandlerError::NotFound(uri.into()),
            error => error.into(),
        }
    }
}
