//! A fixed set of read-only connections beside the writer.
//!
//! Point reads run on the calling thread: a few pages from the cache of the operating system, some
//! microseconds, less than a thread switch would cost. Scans run on blocking threads with their own
//! connections, so that a point read never waits for a long scan.

use std::{
    cell::Cell,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, Result};
use tokio::{
    sync::Semaphore,
    task::{JoinError, spawn_blocking},
};

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

/// Connections for reads on blocking threads.
pub(super) struct SlowReaders {
    connections: Arc<ReadConnections>,
    /// One permit per connection: a read that waits occupies no thread, however many there are.
    slots: Arc<Semaphore>,
}

impl SlowReaders {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, SqliteOpenError> {
        let connections = Arc::new(ReadConnections::open(path, count)?);
        Ok(Self { connections, slots: Arc::new(Semaphore::new(count)) })
    }

    /// Runs a read as soon as a connection is free, in the order of arrival; `None` after `close`.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Connection, &mut SqliteNameCache) -> Result<T> + Send + 'static,
    ) -> Result<Option<Result<T>>, JoinError> {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return Ok(None) };
        let connections = Arc::clone(&self.connections);
        spawn_blocking(move || {
            // A caller that stops waiting does not stop the read: the permit is for as long as the connection is used.
            let _slot = slot;
            connections.read(run)
        })
        .await
    }

    /// [`ReadConnections::forget_names`], off the runtime's workers.
    pub(super) async fn forget_names(&self) {
        self.each(ReadConnections::forget_names).await;
    }

    /// [`ReadConnections::close`], off the runtime's workers.
    pub(super) async fn close(&self) {
        self.each(ReadConnections::close).await;
    }

    async fn each(&self, run: impl FnOnce(&ReadConnections) + Send + 'static) {
        let connections = Arc::clone(&self.connections);
        let _ = spawn_blocking(move || run(&connections)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn reads_that_wait_occupy_no_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nuncio.db");
        schema::open_read_write(&path).unwrap();
        // A thread for each of the two connections, and one that waiting reads must leave free.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(3).build().unwrap();
        runtime.block_on(async {
            let readers = Arc::new(SlowReaders::open(&path, 2).unwrap());
            let (started, starts) = mpsc::channel();
            let mut ends = Vec::new();
            let mut reads = Vec::new();
            for _ in 0..2 {
                let ((end, ended), started, readers) =
                    (mpsc::channel::<()>(), started.clone(), Arc::clone(&readers));
                ends.push(end);
                reads.push(tokio::spawn(async move {
                    let busy = move |_: &mut Connection, _: &mut SqliteNameCache| {
                        started.send(()).unwrap();
                        let _ = ended.recv();
                        Ok(())
                    };
                    readers.read(busy).await.unwrap().unwrap().unwrap();
                }));
            }
            for _ in 0..2 {
                while starts.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
            }
            for _ in 0..50 {
                let readers = Arc::clone(&readers);
                reads.push(tokio::spawn(async move {
                    readers.read(|_, _| Ok(())).await.unwrap().unwrap().unwrap();
                }));
            }
            tokio::task::yield_now().await;
            let (free, is_free) = mpsc::channel();
            drop(spawn_blocking(move || free.send(())));
            is_free.recv_timeout(Duration::from_secs(10)).expect("a thread is free");
            drop(ends);
            for read in reads {
                read.await.unwrap();
            }
        });
    }
}
