//! What can go wrong: at open, for people; afterwards, in the words of the trait.

use nuncio_engine::store::StoreError;
use tokio_postgres::error::{Error, SqlState};

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The address is not one.
    #[error("{0}")]
    Url(String),
    /// The server does not answer, or not to us.
    #[error("cannot reach the database: {}", render_error(.0))]
    Connect(Error),
    /// What is acknowledged would not survive a crash of the server.
    #[error(
        "the database would not be durable: {name} is {value}. Turn it on, or name it in --allow-unsafe-store \
         if losing what was acknowledged is acceptable"
    )]
    NotDurable {
        /// The setting.
        name: String,
        /// What it is set to.
        value: String,
    },
    /// A newer version has been here.
    #[error(
        "the database has schema {found}, and this version knows schemas up to {known}: run a newer nuncio"
    )]
    NewerSchema {
        /// What the database says.
        found: i32,
        /// The newest that this version knows.
        known: i32,
    },
    /// The schema cannot be made or brought up to date.
    #[error("cannot prepare the database: {}", render_error(.0))]
    Database(#[from] Error),
}

/// An error of the client, with what the server said where it said something.
pub(super) fn render_error(error: &Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// What an error means for what was under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostgresErrorKind {
    /// The connection is gone, and with it the knowledge of what happened.
    Lost,
    /// The database undid it for the sake of others; it works the next time.
    Again,
    /// The database cannot do anything now.
    Away,
    /// There is no room.
    Full,
    /// Something else: it was undone, and would be again.
    Broken,
}

pub(super) fn error_kind(error: &Error) -> PostgresErrorKind {
    let Some(code) = error.code() else {
        // Not a word of the server: the connection, or an answer that is none.
        return PostgresErrorKind::Lost;
    };
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => PostgresErrorKind::Again,
        SqlState::DISK_FULL => PostgresErrorKind::Full,
        // The server says so before it goes, and whether it had finished is not known.
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN => PostgresErrorKind::Lost,
        SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::QUERY_CANCELED
        | SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::OUT_OF_MEMORY => PostgresErrorKind::Away,
        _ => PostgresErrorKind::Broken,
    }
}

/// The trait's word for a failure.
pub(super) fn store_error(error: &Error) -> StoreError {
    match error_kind(error) {
        PostgresErrorKind::Full => StoreError::Full(render_error(error)),
        PostgresErrorKind::Lost | PostgresErrorKind::Away | PostgresErrorKind::Again => {
            StoreError::Unavailable(render_error(error))
        }
        PostgresErrorKind::Broken => StoreError::Broken(render_error(error)),
    }
}
