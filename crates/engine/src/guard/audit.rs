//! Lines of the audit on their way to the store.
//!
//! They are written together, a moment after what they tell of: a crash can lose the lines of that moment, and
//! nothing else can. When they cannot be written for long, nobody is let through any more.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};

use crate::{access::Action, engine::closed, error::Error, knowledge::AuditEntry, store::Store};

/// How long a line waits for others.
const GATHER: Duration = Duration::from_millis(200);
/// Lines that are written at once.
const CHUNK: usize = 1_024;
/// Lines that may wait for a store that does not take them.
const BACKLOG: usize = 65_536;

/// What goes into the audit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// Nothing.
    Off,
    /// What was refused.
    Refused,
    /// That, and everything that changed something or made it do something.
    #[default]
    Changes,
    /// Everything.
    All,
}

pub(super) struct Audit {
    level: AuditLevel,
    waiting: Mutex<Vec<AuditEntry>>,
    came: Notify,
    /// One writer at a time, so that lines keep their order.
    writing: tokio::sync::Mutex<()>,
}

impl Audit {
    pub(super) fn new(level: AuditLevel) -> Self {
        Self { level, waiting: Mutex::default(), came: Notify::new(), writing: tokio::sync::Mutex::default() }
    }

    pub(super) fn wants(&self, action: Action, refused: bool) -> bool {
        self.level
            >= match (refused, action) {
                (true, _) => AuditLevel::Refused,
                (false, Action::Write | Action::Execute) => AuditLevel::Changes,
                (false, Action::Read) => AuditLevel::All,
            }
    }

    pub(super) fn add(&self, entry: AuditEntry) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= BACKLOG {
            return Err(Error::Busy {
                why: format!("{BACKLOG} lines of the audit wait to be written (audit backlog)"),
                retry_after: Duration::from_secs(2),
            });
        }
        waiting.push(entry);
        if waiting.len() == 1 || waiting.len() == CHUNK {
            self.came.notify_one();
        }
        Ok(())
    }

    pub(super) async fn keep(&self, store: &Arc<dyn Store>, mut closing: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.came.notified() => {}
                () = closed(&mut closing) => return self.flush(store).await,
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = self.full() => {}
                () = closed(&mut closing) => {}
            }
            self.flush(store).await;
        }
    }

    async fn full(&self) {
        while self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len() < CHUNK {
            self.came.notified().await;
        }
    }

    pub(super) async fn flush(&self, store: &Arc<dyn Store>) {
        let _alone = self.writing.lock().await;
        loop {
            let lines: Vec<AuditEntry> = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = waiting.len().min(CHUNK);
                waiting.drain(..count).collect()
            };
            if lines.is_empty() {
                return;
            }
            if let Err(error) = store.knowledge().append_audit(lines.clone()).await {
                tracing::error!(%error, lines = lines.len(), "the audit could not be written; trying again");
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.splice(0..0, lines);
                self.came.notify_one();
                return;
            }
        }
    }
}
