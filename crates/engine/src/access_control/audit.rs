//! The write buffer of the audit log.
//!
//! Lines are written in batches, a moment after the access they record: only a crash can lose the lines of that
//! moment. While the store cannot take them and the buffer is full, every audited access is refused.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{access::Action, engine::wait_until_closing, error::Error, knowledge::AuditEntry, store::Store};

/// How long a line waits for others of its batch.
const GATHER: Duration = Duration::from_millis(200);
/// The most lines written at once.
const CHUNK: usize = 1_024;
/// The most lines that wait for a store that fails. One tenant may use no more than are still free.
const BACKLOG: usize = 65_536;

/// Which accesses are audited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// None.
    Off,
    /// Refused ones.
    Refused,
    /// Refused ones, and all that write or execute something.
    #[default]
    Changes,
    /// All, reads included.
    All,
}

pub(super) struct Audit {
    level: AuditLevel,
    waiting: Mutex<Backlog>,
    came: Notify,
    /// One writer at a time, so that lines keep their order.
    writing: tokio::sync::Mutex<()>,
}

/// Waiting lines, in order.
#[derive(Default)]
struct Backlog {
    lines: VecDeque<AuditEntry>,
    by_tenant: HashMap<String, usize>,
}

impl Backlog {
    /// Whether a tenant may not add another line.
    fn is_full_for(&self, tenant: &str) -> bool {
        let free = BACKLOG.saturating_sub(self.lines.len());
        self.by_tenant.get(tenant).copied().unwrap_or(0) >= free
    }

    fn push(&mut self, entry: AuditEntry) {
        match self.by_tenant.get_mut(&*entry.tenant) {
            Some(count) => *count += 1,
            None => drop(self.by_tenant.insert(entry.tenant.clone().into_owned(), 1)),
        }
        self.lines.push_back(entry);
    }

    /// The first lines, which the store gets without a copy: those of a failed write are returned by `put_back`.
    fn take(&mut self, count: usize) -> Arc<[AuditEntry]> {
        let lines: Arc<[_]> = self.lines.drain(..count.min(self.lines.len())).collect();
        for line in &*lines {
            let left = self.by_tenant.get_mut(&*line.tenant).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                self.by_tenant.remove(&*line.tenant);
            }
        }
        lines
    }

    /// Returns lines that could not be written to the front.
    fn put_back(&mut self, lines: &[AuditEntry]) {
        for line in lines.iter().rev() {
            *self.by_tenant.entry(line.tenant.clone().into_owned()).or_default() += 1;
            self.lines.push_front(line.clone());
        }
    }
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
        let mut waiting = self.waiting.lock();
        if waiting.is_full_for(&entry.tenant) {
            return Err(Error::busy(
                "audit-backlog",
                format!(
                    "{} of at most {BACKLOG} audit lines wait to be written (audit backlog)",
                    waiting.lines.len()
                ),
                Duration::from_secs(2),
            ));
        }
        waiting.push(entry);
        if waiting.lines.len() == 1 || waiting.lines.len() == CHUNK {
            self.came.notify_one();
        }
        Ok(())
    }

    pub(super) async fn keep(&self, store: &Arc<dyn Store>, mut closing: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.came.notified() => {}
                () = wait_until_closing(&mut closing) => return self.flush(store).await,
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = self.full() => {}
                () = wait_until_closing(&mut closing) => {}
            }
            self.flush(store).await;
        }
    }

    async fn full(&self) {
        while self.waiting.lock().lines.len() < CHUNK {
            self.came.notified().await;
        }
    }

    pub(super) async fn flush(&self, store: &Arc<dyn Store>) {
        let _alone = self.writing.lock().await;
        loop {
            let lines = self.waiting.lock().take(CHUNK);
            if lines.is_empty() {
                return;
            }
            if let Err(error) = store.knowledge().append_audit(Arc::clone(&lines)).await {
                tracing::error!(%error, lines = lines.len(), "the audit could not be written; retrying");
                let mut waiting = self.waiting.lock();
                waiting.put_back(&lines);
                self.came.notify_one();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::AccessKind, clock::Timestamp};

    fn line(tenant: &str, number: usize) -> AuditEntry {
        AuditEntry {
            at: Timestamp(0),
            tenant: tenant.to_owned().into(),
            caller: tenant.into(),
            from: None,
            operation: "task.send".into(),
            action: Action::Execute,
            kind: AccessKind::A2a,
            resource: number.to_string(),
            refused: None,
            credential: None,
        }
    }

    #[test]
    fn a_tenant_that_fills_the_backlog_leaves_half_of_it_to_the_others() {
        let audit = Audit::new(AuditLevel::All);
        let accepted = (0..BACKLOG).take_while(|n| audit.add(line("evil", *n)).is_ok()).count();
        assert_eq!(accepted, BACKLOG / 2);
        let refused = audit.add(line("evil", 0)).unwrap_err();
        assert!(refused.to_string().contains("audit backlog"), "{refused}");
        audit.add(line("good", 0)).unwrap();
        audit.add(line("home", 0)).unwrap();
    }

    #[test]
    fn lines_that_could_not_be_written_keep_their_order() {
        let mut backlog = Backlog::default();
        for n in 0..10 {
            backlog.push(line(if n % 2 == 0 { "a" } else { "b" }, n));
        }
        let taken = backlog.take(6);
        assert_eq!(backlog.by_tenant["a"], 2);
        backlog.put_back(&taken);
        assert_eq!(backlog.by_tenant["a"], 5);
        let order: Vec<String> = backlog.take(10).iter().map(|line| line.resource.clone()).collect();
        assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert!(backlog.by_tenant.is_empty());
    }
}
