//! A fixed set of read-only connections beside the writer.
//!
//! Point reads run on the calling thread: a few pages from the cache of the operating system, some
//! microseconds, less than a thread switch would cost. Scans run on blocking threads with their own
//! connections, so that a point read never waits for a long scan.

use std::{
    cell::Cell,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, Result};

use super::{SqliteOpenError, names::SqliteNameCache, schema};

/// One connection, with its cache of names.
struct ReadConnection {
    conn: Connection,
    names: SqliteNameCache,
}

/// Connections for reads of one kind.
pub(super) struct ReadConnections {
    readers: Vec<Mutex<Option<ReadConnection>>>,
}

impl ReadConnections {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, SqliteOpenError> {
        let reader = || -> Result<_, SqliteOpenError> {
            Ok(Mutex::new(Some(ReadConnection {
                conn: schema::open_read_only(path)?,
                names: SqliteNameCache::default(),
            })))
        };
        Ok(Self { readers: (0..count.max(1)).map(|_| reader()).collect::<Result<_, _>>()? })
    }

    /// Runs a read on a free connection; `None` after `close`.
    pub(super) fn read<T>(
        &self,
        run: impl FnOnce(&mut Connection, &mut SqliteNameCache) -> Result<T>,
    ) -> Option<Result<T>> {
        self.pick().as_mut().map(|ReadConnection { conn, names }| run(conn, names))
    }

    /// Each thread prefers its own connection, whose cache is warm; it uses another if that is busy.
    fn pick(&self) -> MutexGuard<'_, Option<ReadConnection>> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! { static HOME: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed)); }
        let home = HOME.get();
        let count = self.readers.len();
        for place in (home..).take(count) {
            if let Some(reader) = self.readers[place % count].try_lock() {
                return reader;
            }
        }
        self.readers[home % count].lock()
    }

    /// Clears the caches of names, once running reads are done.
    pub(super) fn forget_names(&self) {
        for reader in &self.readers {
            if let Some(reader) = reader.lock().as_mut() {
                reader.names = SqliteNameCache::default();
            }
        }
    }

    /// Waits for running reads and closes all connections.
    pub(super) fn close(&self) {
        for reader in &self.readers {
            reader.lock().take();
        }
    }
}
