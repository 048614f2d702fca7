//! The opening of connections: pragmas, the check that they took effect, and the migrations.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};

use super::SqliteOpenError;

/// The mode of files that hold tasks.
const PRIVATE: u32 = 0o600;

/// The migrations, in order; the position is the version. A released one is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_tasks.sql"),
    include_str!("../../migrations/0002_sessions.sql"),
    include_str!("../../migrations/0003_knowledge.sql"),
    include_str!("../../migrations/0004_memory_weight.sql"),
    include_str!("../../migrations/0005_operator.sql"),
    include_str!("../../migrations/0006_due_by_owner.sql"),
    include_str!("../../migrations/0007_failed_deliveries.sql"),
    include_str!("../../migrations/0008_failed_deliveries_by_tenant.sql"),
    include_str!("../../migrations/0009_lean_audit.sql"),
];

/// The newest version of the schema.
pub(super) const KNOWN_SCHEMA: usize = MIGRATIONS.len();

/// The page cache of a connection that writes. Allocated only as needed.
const CACHE_KIB: i64 = 32 << 10;

/// Opens a connection for the writer or the checkpoints. Durable, or an error.
pub(super) fn open_read_write(path: &Path) -> Result<Connection, SqliteOpenError> {
    make_private(path).map_err(|source| SqliteOpenError::Folder { dir: path.to_owned(), source })?;
    let conn = Connection::open(path)?;
    #[cfg(feature = "testing")]
    let conn = super::statement_log::watch(conn)?;
    compile_once(&conn)?;
    make_durable(&conn)?;
    // A batch fits into the cache (`writer.rs`): pages that do not fit are written to the log before the
    // commit, and often twice.
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Checkpoints are run by `checkpoint.rs`, not inside a commit that happens to pass a limit.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    // Only a checkpoint and the writer can conflict, and only briefly.
    conn.busy_timeout(Duration::from_millis(200))?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

/// Makes a database accessible to its owner only, whatever the folder's mode. SQLite creates the files beside
/// it with the same mode; those that exist already are changed.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE).open(path)?;
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match fs::metadata(&file) {
            Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                fs::set_permissions(&file, Permissions::from_mode(PRIVATE))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens a connection for reads beside the writer.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, SqliteOpenError> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    #[cfg(feature = "testing")]
    let conn = super::statement_log::watch(conn)?;
    compile_once(&conn)?;
    // A commit elsewhere empties this connection's page cache. So the cache is small, and pages come from the
    // memory map: without a system call, and shared by all readers.
    conn.pragma_update(None, "mmap_size", 1_i64 << 30)?;
    conn.pragma_update(None, "cache_size", -2_048)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// Lets plans not depend on the values of parameters. Otherwise a cached statement with `LIMIT ?`, or with a condition of
/// a partial index, is compiled anew in each use: its parameters are cleared when it returns to the cache, and SQLite takes that
/// for other values.
fn compile_once(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Requests durability and checks that it was granted: SQLite silently ignores a pragma that it cannot obey,
/// e.g. on file systems without shared memory.
pub(super) fn make_durable(conn: &Connection) -> Result<(), SqliteOpenError> {
    let journal: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if journal != "wal" {
        return Err(SqliteOpenError::NotDurable(format!(
            "SQLite cannot keep a write-ahead log here (journal mode {journal}); \
             use a folder on a local file system"
        )));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    // For systems where fsync alone does not reach the disk (macOS); elsewhere it changes nothing.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    let synchronous: i64 = conn.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if synchronous != 2 {
        return Err(SqliteOpenError::NotDurable(format!(
            "SQLite does not wait for the disk (synchronous is {synchronous}, not 2)"
        )));
    }
    Ok(())
}

/// Migrates the schema in one transaction.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), SqliteOpenError> {
    let known = MIGRATIONS.len() as i64;
    let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(SqliteOpenError::NewerSchema { found, known });
    }
    let done = usize::try_from(found).unwrap_or(0);
    for step in &MIGRATIONS[done..] {
        transaction.execute_batch(step)?;
    }
    if found < known {
        transaction.pragma_update(None, "user_version", known)?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_cached_statement_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut writer = open_read_write(&path).unwrap();
        migrate(&mut writer).unwrap();
        for (kind, conn) in [("writer", writer), ("reader", open_read_only(&path).unwrap())] {
            let sql = "SELECT no FROM task WHERE no > ?1 ORDER BY no LIMIT ?2";
            for limit in 1..=10 {
                let mut statement = conn.prepare_cached(sql).unwrap();
                statement.query_map([0, limit], |row| row.get::<_, i64>(0)).unwrap().for_each(drop);
            }
            let statement = conn.prepare_cached(sql).unwrap();
            assert_eq!(statement.get_status(StatementStatus::Run), 10, "{kind}: it is the cached one");
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{kind}");
        }
    }

    #[test]
    fn memory_is_not_durable() {
        let conn = Connection::open_in_memory().unwrap();
        let error = make_durable(&conn).unwrap_err();
        assert!(matches!(error, SqliteOpenError::NotDurable(_)), "{error}");
        assert!(error.to_string().contains("memory"), "{error}");
    }
}
