//! Keeps the write-ahead log short without making commits wait for it.
//!
//! When the log has grown, a thread with a connection of its own copies it into the database beside the
//! running commits (a passive checkpoint). Under constant load that alone would never let the log begin
//! again, because new pages arrive while old ones are copied; so when the thread is done the writer, between
//! two batches, copies the few that came meanwhile and begins again at the front. The file keeps its length:
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

use super::{OpenError, schema};

/// The writer's side of it.
pub(super) struct Checkpoints {
    /// Pages in the log, as the hook of the last commit said.
    pages: Arc<AtomicU32>,
    /// Whether the thread has been asked and has not finished.
    busy: Arc<AtomicBool>,
    /// Pages beyond which the next pass is due.
    next: u32,
    /// Whether a pass was asked for since the log began.
    asked: bool,
    limit: u32,
    ask: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// `limit` is in pages.
    pub(super) fn start(path: &Path, writer: &mut Connection, limit: u32) -> Result<Self, OpenError> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        writer.wal_hook(Some(move |_: &mut _, now: i32| {
            seen.store(now.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let conn = schema::open_read_write(path)?;
        let (ask, asked) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&busy);
        let thread = Builder::new()
            .name("nuncio-checkpoint".into())
            .spawn(move || {
                while asked.recv().is_ok() {
                    if let Err(error) = checkpoint(&conn, "PASSIVE") {
                        tracing::warn!(%error, "a checkpoint failed");
                    }
                    done.store(false, Ordering::Release);
                }
            })
            .map_err(OpenError::Thread)?;
        Ok(Self { pages, busy, next: limit, asked: false, limit, ask, thread })
    }

    /// To be called between two batches.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.next.min(self.limit) || self.busy.load(Ordering::Acquire) {
            return;
        }
        if self.asked {
            self.asked = false;
            self.begin_again(writer, pages);
        } else if pages >= self.next {
            self.asked = true;
            self.busy.store(true, Ordering::Release);
            // The channel has room: the thread is not busy.
            let _ = self.ask.try_send(());
        }
    }

    /// Readers that still look into the log get a moment (the busy timeout); if they stay, the next pass
    /// tries again.
    fn begin_again(&mut self, writer: &Connection, pages: u32) {
        match checkpoint(writer, "RESTART") {
            Ok(true) => {
                self.pages.store(0, Ordering::Relaxed);
                self.next = self.limit;
            }
            Ok(false) => self.next = pages + self.limit,
            Err(error) => {
                tracing::warn!(%error, "a checkpoint failed");
                self.next = pages + self.limit;
            }
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

/// Whether the checkpoint was complete.
fn checkpoint(conn: &Connection, mode: &str) -> Result<bool> {
    let busy: i64 =
        conn.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?.query_row([], |row| row.get(0))?;
    Ok(busy == 0)
}
