//! Errors of the memory bank.

use crate::{
    error::Error, knowledge::MemoryError, memory::MemoryLimits, store::StoreError, surface::HandlerError,
};

/// Why the memory bank refused an operation. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// An argument is invalid.
    #[error("{field}: {why}")]
    Invalid {
        /// The name of the argument.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The entry's version is not the expected one.
    #[error("{}", moved(*.found))]
    Moved {
        /// The current version; `None` if there is no such entry.
        found: Option<u64>,
    },
    /// A limit is reached; the text names it.
    #[error("{0}")]
    Full(String),
    /// Access was refused, or the store failed.
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
