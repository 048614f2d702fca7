//! What SQLite did with each statement, for tests that count. Only with the feature `testing`.
//!
//! SQLite itself reports every statement that ends, whatever part of the store has run it: a statement that is added
//! later is counted too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use rusqlite::{
    Connection, StatementStatus,
    trace::{TraceEvent, TraceEventCodes},
};

static RECORDS: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<BTreeMap<String, StatementUse>> = Mutex::new(BTreeMap::new());

/// How often a statement was run, and what that took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementUse {
    /// How often it has ended.
    pub runs: u64,
    /// How often it was not in its connection's cache, and was compiled.
    pub compiled: u64,
    /// How often SQLite compiled it anew within a run.
    pub recompiled: u64,
}

/// Whether to record the statements of connections that this process opens from now on.
pub fn record_statements(yes: bool) {
    RECORDS.store(yes, Ordering::SeqCst);
}

/// The statements that ended since the last call, by their SQL text.
pub fn take_statements() -> BTreeMap<String, StatementUse> {
    std::mem::take(&mut LOG.lock())
}

/// Records the statements of a connection, if that was requested.
pub(super) fn watch(mut conn: Connection) -> rusqlite::Result<Connection> {
    if RECORDS.load(Ordering::SeqCst) {
        // The counters of each statement of this connection when it last ended: runs, and compilations within one.
        let mut last: HashMap<String, (i32, i32)> = HashMap::new();
        let record = move |event: TraceEvent<'_>| {
            let TraceEvent::Profile(statement, _) = event else { return };
            let sql = statement.sql().into_owned();
            let now = [StatementStatus::Run, StatementStatus::RePrepare]
                .map(|counter| statement.get_status(counter));
            let (runs, recompiled) = last.insert(sql.clone(), (now[0], now[1])).unwrap_or_default();
            // A statement that is compiled begins to count from zero.
            let is_new = now[0] <= runs;
            let recompiled = if is_new { now[1] } else { now[1] - recompiled };
            let mut log = LOG.lock();
            let used = log.entry(sql).or_default();
            used.runs += 1;
            used.compiled += u64::from(is_new || runs == 0);
            used.recompiled += u64::from(recompiled.unsigned_abs());
        };
        conn.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(record))?;
    }
    Ok(conn)
}
