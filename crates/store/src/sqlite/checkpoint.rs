//! Checkpoints that keep the write-ahead log short without delaying commits.
//!
//! When the log has grown, a thread with its own connection copies it into the database beside the running
//! commits (a passive checkpoint). Under constant load that alone would never let the log restart, because new
//! pages arrive while old ones are copied. So the thread also copies what arrived meanwhile, until that is
//! little; then the writer, between two batches, copies the few pages that are left and restarts the log at the
//! front. The file keeps its length: overwriting allocated blocks makes the fsync cheaper.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};

use rusqlite::{Connection, Result};

use super::{SqliteOpenError, schema};

/// If the thread cannot keep up or has died, the writer copies everything itself at this many times the limit.
const PATIENCE: u32 = 4;
/// Pages that the thread leaves to the writer, unless more arrive than it can copy in the maximum number of
/// rounds.
const FEW: u32 = 256;
const ROUNDS: u32 = 4;

/// The writer's side of checkpoints.
pub(super) struct Checkpoints {
    /// Pages in the log, as reported by the hook of the last commit.
    pages: Arc<AtomicU32>,
    /// Whether the thread is copying.
    copying: Arc<AtomicBool>,
    /// Whether the thread was asked for a copy since the log restarted.
    asked: bool,
    /// The size of the log, in pages, at which the next checkpoint is due.
    due: u32,
    limit: u32,
    ask: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// Starts the thread; `limit` is in pages.
    pub(super) fn start(path: &Path, writer: &mut Connection, limit: u32) -> Result<Self, SqliteOpenError> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        writer.wal_hook(Some(move |_: &mut _, now: i32| {
            seen.store(now.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let conn = schema::open_read_write(path)?;
        let (ask, asked) = sync_channel(1);
        let copying = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&copying);
        let thread = Builder::new()
            .name("nuncio-checkpoint".into())
            .spawn(move || {
                while asked.recv().is_ok() {
                    copy(&conn);
                    done.store(false, Ordering::Release);
                }
            })
            .map_err(SqliteOpenError::Thread)?;
        Ok(Self { pages, copying, asked: false, due: limit, limit, ask, thread })
    }

    /// Must be called between two batches.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.due {
            return;
        }
        if !self.asked {
            self.asked = true;
            self.copying.store(true, Ordering::Release);
            if self.ask.try_send(()).is_ok() {
                return;
            }
        } else if self.copying.load(Ordering::Acquire) && pages < self.limit.saturating_mul(PATIENCE) {
            return;
        }
        self.restart_log(writer, pages);
    }

    /// Restarts the log. Readers that still use it get a moment to finish (the busy timeout); if they do not,
    /// this is retried after as many pages more.
    fn restart_log(&mut self, writer: &Connection, pages: u32) {
        self.asked = false;
        let begun = match checkpoint(writer, "RESTART") {
            Ok(done) => done.is_complete,
            Err(error) => {
                tracing::warn!(%error, "a checkpoint failed");
                false
            }
        };
        self.due = if begun { self.limit } else { pages.saturating_add(self.limit) };
        if begun {
            self.pages.store(0, Ordering::Relaxed);
        }
    }

    /// Stops the thread; with `truncate` the log is emptied as well.
    pub(super) fn finish(self, writer: &Connection, truncate: bool) {
        drop(self.ask);
        let _ = self.thread.join();
        if truncate && let Err(error) = checkpoint(writer, "TRUNCATE") {
            tracing::warn!(%error, "the last checkpoint failed");
        }
    }
}

/// The thread's part of a checkpoint.
fn copy(conn: &Connection) {
    let mut before = 0;
    for _ in 0..ROUNDS {
        match checkpoint(conn, "PASSIVE") {
            // About as few arrived while these were copied.
            Ok(done) if done.copied.saturating_sub(before) < FEW => return,
            Ok(done) => before = done.copied,
            Err(error) => return tracing::warn!(%error, "a checkpoint failed"),
        }
    }
}

/// The progress of a checkpoint.
struct CheckpointProgress {
    is_complete: bool,
    /// Pages of the log that are in the database, since the log restarted.
    copied: u32,
}

fn checkpoint(conn: &Connection, mode: &str) -> Result<CheckpointProgress> {
    conn.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?.query_row([], |row| {
        // SQLite returns -1 if there is no log.
        let copied = row.get::<_, i64>(2)?.try_into().unwrap_or(0);
        Ok(CheckpointProgress { is_complete: row.get::<_, i64>(0)? == 0, copied })
    })
}
