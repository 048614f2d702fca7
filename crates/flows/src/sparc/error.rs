//! Why something was not done to a workflow, and what tools, resources and agents make of it.

use std::time::Duration;

use nuncio_engine::{AgentError, Error, store::StoreError, surface::HandlerError};

use super::{phase::SparcPhase, workflow::WorkflowRefusal};
use crate::retry::RetryableError;

/// Why something was not done. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SparcError {
    /// There is none, or it belongs to somebody else: the two are not told apart.
    #[error("there is no workflow {0:?}: start it with sparc_start")]
    NoWorkflow(String),
    /// There is one already.
    #[error(
        "contextId: there is a workflow {0:?} already: read it with sparc_status, or choose another name"
    )]
    Exists(String),
    /// There is no such artifact.
    #[error("the workflow {context_id:?} has no artifact {phase} version {version}")]
    NoArtifact {
        /// Of this workflow.
        context_id: String,
        /// Of this phase.
        phase: SparcPhase,
        /// This one.
        version: u32,
    },
    /// An argument is wrong; it is named.
    #[error("{0}")]
    Invalid(String),
    /// The workflow does not allow it.
    #[error(transparent)]
    Refused(#[from] WorkflowRefusal),
    /// The engine says no.
    #[error(transparent)]
    Engine(#[from] Error),
    /// Others change the workflow all the time.
    #[error("the workflow changes faster than this could be decided: try again in 1 s")]
    MovedTooOften,
    /// Something inside.
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
            // A model may read why, and do something else.
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
    /// As the reader of a resource is told: what is not there is not there.
    pub(super) fn of_resource(self, uri: &str) -> HandlerError {
        match self {
            Self::NoWorkflow(_) | Self::NoArtifact { .. } => HandlerError::NotFound(uri.into()),
            error => error.into(),
        }
    }
}
