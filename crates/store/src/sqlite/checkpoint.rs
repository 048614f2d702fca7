//! Keeps the write-ahead log short without making commits wait for it.
//!
//! When the log has grown, a thread with a connection of its own copies it into the database beside the
//! running commits (a passive checkpoint). Under constant load that alone would never let the log begin
//! again, because new pages arrive while old ones are copied; so the thread copies what came meanwhile, too, until that
//! is little, and then the writer, between two batches, copies the few that are left and begins again at the front. The file keeps its length:
//! overwriting allocated blocks is the cheaper fsync.

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

/// Where the thread cannot keep up or has died, the writer copies all by itself at this many times the limit.
const PATIENCE: u32 = 4;
/// So few pages are left to the writer, unless more come than the thread can copy in so many rounds.
const FEW: u32 = 256;
const ROUNDS: u32 = 4;

/// The writer's side of it.
pub(super) struct Checkpoints {
    /// Pages in the log, as the hook of the last commit said.
    pages: Arc<AtomicU32>,
    /// Whether the thread is copying.
    copying: Arc<AtomicBool>,
    /// Whether it has been asked to since the log began.
    asked: bool,
    /// How many pages the log may have before something is done about it.
    due: u32,
    limit: u32,
    ask: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// `limit` is in pages.
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

    /// To be called between two batches.
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

    /// Readers that still look into the log get a moment (the busy timeout); if they stay, this is tried
    /// again after as many pages more.
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

    /// Ends the thread; with `truncate` the log is emptied as well.
    pub(super) fn finish(self, writer: &Connection, truncate: bool) {
        drop(self.ask);
        let _ = self.thread.join();
        if truncate && let Err(error) = checkpoint(writer, "TRUNCATE") {
            tracing::warn!(%error, "the last checkpoint failed");
        }
    }
}

/// The thread's part.
fn copy(conn: &Connection) {
    let mut before = 0;
    for _ in 0..ROUNDS {
        match checkpoint(conn, "PASSIVE") {
            // About as few came while they were copied.
            Ok(done) if done.copied.saturating_sub(before) < FEW => return,
            Ok(done) => before = done.copied,
            Err(error) => return tracing::warn!(%error, "a checkpoint failed"),
        }
    }
}

/// How far a checkpoint came.
struct CheckpointProgress {
    is_complete: bool,
    /// Pages of the log that are in the database, since the log began.
    copied: u32,
}

fn checkpoint(conn: &Connection, mode: &str) -> Result<CheckpointProgress> {
    conn.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?.query_row([], |row| {
        // It is -1 where there is no log.
        let copied = row.get::<_, i64>(2)?.try_into().unwrap_or(0);
        Ok(CheckpointProgress { is_complete: row.get::<_, i64>(0)? == 0, copied })
    })
}
