//! Why the memory bank did not do what it was asked.

use crate::{
    error::Error, knowledge::MemoryError, memory::MemoryLimits, store::StoreError, surface::HandlerError,
};

/// Why the memory bank did not do what it was asked. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// Something that was given is wrong.
    #[error("{field}: {why}")]
    Invalid {
        /// What.
        field: &'static str,
        /// How.
        why: String,
    },
    /// The entry is not as expected.
    #[error("{}", moved(*.found))]
    Moved {
        /// The version that is there.
        found: Option<u64>,
    },
    /// There is no more room; the text names the limit.
    #[error("{0}")]
    Full(String),
    /// The caller was not let through, or the store failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl BankError {
    pub(super) fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { field, why: why.into() }
    }

    pub(super) fn from_store(error: MemoryError, limits: &MemoryLimits) -> Self {
        match error {
            MemoryError::Moved { found } => Self::Moved { found },
            MemoryError::TooManyEntries(count) => Self::Full(format!(
                "the namespace has {count} entries, and may have {} (entries_per_namespace): delete some, or use another",
                limits.entries_per_namespace
            )),
            MemoryError::TooManyBytes(bytes) => Self::Full(format!(
                "the tenant has {bytes} bytes, and may have {} (bytes_per_tenant): delete some, or store less",
                limits.bytes_per_tenant
            )),
            MemoryError::TooManyNamespaces(count) => Self::Full(format!(
                "the tenant has {count} namespaces, and may have {} (namespaces_per_tenant): clear one, or use another",
                limits.namespaces_per_tenant
            )),
            MemoryError::Store(error) => error.into(),
        }
    }
}

fn moved(found: Option<u64>) -> String {
    match found {
        Some(version) => format!(
            "the entry is at version {version}, which is not what was expected: read it again, and repeat the change with expectedVersion {version} if it still makes sense"
        ),
        None => {
            "there is no such entry any more, so it has no version: to write it anew, say expectedVersion 0"
                .into()
        }
    }
}

impl From<StoreError> for BankError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<BankError> for HandlerError {
    fn from(error: BankError) -> Self {
        match error {
            BankError::Invalid { .. } => Self::Invalid(error.to_string()),
            BankError::Moved { .. } | BankError::Full(_) => Self::Failed(error.to_string()),
            BankError::Engine(error) => error.into(),
        }
    }
}
