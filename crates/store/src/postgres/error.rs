//! The errors of the shared store: at open, texts for the operator; afterwards, the variants of `StoreError`.

use nuncio_engine::store::StoreError;
use tokio_postgres::error::{Error, SqlState};

/// Why the shared store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The database URL is invalid.
    #[error("{0}")]
    Url(String),
    /// The server is unreachable, or refuses the connection.
    #[error("cannot reach the database: {}", render_error(.0))]
    Connect(Error),
    /// There is no store in the schema.
    #[error("there is no store in the schema {0}: --store-schema names another one")]
    NoStore(String),
    /// Acknowledged writes would not survive a crash of the server.
    #[error(
        "the database would not be durable: {name} is {value}. Turn it on, or name it in --allow-unsafe-store \
         if losing what was acknowledged is acceptable"
    )]
    NotDurable {
        /// The name of the unsafe setting.
        name: String,
        /// The value of the unsafe setting.
        value: String,
    },
    /// The database was written by a newer version.
    #[error(
        "the database has schema {found}, and this version knows schemas up to {known}: run a newer nuncio"
    )]
    NewerSchema {
        /// The schema version of the database.
        found: i32,
        /// The newest schema version that this version supports.
        known: i32,
    },
    /// The schema cannot be created or migrated.
    #[error("cannot prepare the database: {}", render_error(.0))]
    Database(#[from] Error),
}

/// Renders an error of the client, with the server's message if there is one.
pub(super) fn render_error(error: &Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// What an error means for the statement in progress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostgresErrorKind {
    /// The connection is lost, and the outcome unknown.
    Lost,
    /// The database rolled it back because of a conflict; a retry succeeds.
    Again,
    /// The database cannot serve any request now.
    Away,
    /// The disk is full.
    Full,
    /// Any other error: it was rolled back, and a retry would fail again.
    Broken,
}

pub(super) fn error_kind(error: &Error) -> PostgresErrorKind {
    let Some(code) = error.code() else {
        // Not an error of the server: the connection failed, or the response is invalid.
        return PostgresErrorKind::Lost;
    };
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => PostgresErrorKind::Again,
        SqlState::DISK_FULL => PostgresErrorKind::Full,
        // The server sends it before it closes the connection, and the outcome is unknown.
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN => PostgresErrorKind::Lost,
        SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::QUERY_CANCELED
        | SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::OUT_OF_MEMORY => PostgresErrorKind::Away,
        _ => PostgresErrorKind::Broken,
    }
}

/// Maps a failure to a `StoreError`.
pub(super) fn store_error(error: &Error) -> StoreError {
    match error_kind(error) {
        PostgresErrorKind::Full => StoreError::Full(render_error(error)),
        PostgresErrorKind::Lost | PostgresErrorKind::Away | PostgresErrorKind::Again => {
            StoreError::Unavailable(render_error(error))
        }
        PostgresErrorKind::Broken => StoreError::Broken(render_error(error)),
    }
}
