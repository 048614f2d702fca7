//! What a request costs, counted and not timed: allocations, statements that SQLite compiles, commits, and reads of the store.
//! No number here depends on the machine or on what else it does, so each has a bound that a change is held to.
//!
//! The requests go over a socket to a whole server, with the default options. They are sent one after another, from a thread
//! that allocates nothing. Syscalls are not counted: that needs a tracer, which not every machine has.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures")]

mod connection;
mod hot_paths;
mod server;

use std::{
    alloc::System,
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nuncio_engine::{Caller, knowledge::AuditQuery};
use nuncio_store::{record_statements, take_statements};
use nuncio_testkit::fault_injection::StoreUse;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::{
    hot_paths::{HotPath, hot_paths, send_and_leave},
    server::{EVENTS, TestServer},
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What is counted is counted for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How often each request is sent before anything is counted: caches and connections are as they remain.
const WARM_UP: usize = 30;
/// How often a count is repeated. The lowest counts: what the server does in the background only adds.
const ROUNDS: usize = 6;
/// Requests of one count.
const REQUESTS: usize = 40;

/// The most allocations per request (reallocations included), by hot path: what was measured and a tenth.
const ALLOCATIONS: [(&str, f64); 12] = [
    ("A2A send", 120.0),
    ("A2A get", 20.0),
    ("A2A list of 20", 750.0),
    ("A2A stream without events", 262.0),
    ("A2A stream of 100 events", 2700.0),
    ("MCP durable call, session", 158.0),
    ("MCP durable call, stateless", 166.0),
    ("MCP plain call", 58.0),
    ("memory_store", 191.0),
    ("memory_get", 124.0),
    ("memory keys page", 2271.0),
    ("memory data", 176.0),
];

/// The most allocations of one event of a stream, beyond those of the stream.
const ALLOCATIONS_PER_EVENT: f64 = 24.5;

fn allocations() -> usize {
    let counted = INSTRUMENTED_SYSTEM.stats();
    counted.allocations + counted.reallocations
}

#[test]
fn a_request_allocates_no_more_than_it_did() {
    let _one = one_at_a_time(false);
    let server = TestServer::start();
    let mut connection = server.connect();
    let mut counts = BTreeMap::new();
    let mut exceeded = vec![];
    for path in hot_paths(&server, &mut connection) {
        let HotPath { name, .. } = path;
        (0..WARM_UP).for_each(|_| connection.expect(&path.request()));
        let mut lowest = f64::MAX;
        for _ in 0..ROUNDS {
            let requests: Vec<Vec<u8>> = (0..REQUESTS).map(|_| path.request()).collect();
            let before = allocations();
            requests.iter().for_each(|request| connection.expect(request));
            lowest = lowest.min((allocations() - before) as f64 / REQUESTS as f64);
        }
        let bound = ALLOCATIONS.iter().find(|(of, _)| *of == name).map_or(0.0, |(_, bound)| *bound);
        println!("{name}: {lowest:.1} allocations (at most {bound})");
        if lowest > bound {
            exceeded.push(format!("{name}: {lowest:.1} > {bound}"));
        }
        counts.insert(name, lowest);
    }
    let event = (counts["A2A stream of 100 events"] - counts["A2A stream without events"]) / EVENTS as f64;
    println!("an event of a stream: {event:.1} allocations (at most {ALLOCATIONS_PER_EVENT})");
    if event > ALLOCATIONS_PER_EVENT {
        exceeded.push(format!("an event: {event:.1} > {ALLOCATIONS_PER_EVENT}"));
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}

#[test]
fn a_request_asks_the_store_for_what_it_needs_and_compiles_no_statement() {
    let _one = one_at_a_time(true);
    let (server, store) = TestServer::counting();
    let mut connection = server.connect();
    let mut wrong = vec![];
    for path in hot_paths(&server, &mut connection) {
        (0..WARM_UP).for_each(|_| connection.expect(&path.request()));
        server.wait_until_idle();
        drop(take_statements());
        let before = store.used();
        (0..REQUESTS).for_each(|_| connection.expect(&path.request()));
        server.wait_until_idle();
        let used = store.used() - before;
        let mut expected = path.store.times(REQUESTS as u64);
        // At most so many: they are read only because a task may have called others.
        expected.children = expected.children.min(used.children);
        let statements = take_statements();
        let runs: u64 = statements.values().map(|used| used.runs).sum();
        println!(
            "{}: {:.1} statements, {used:?} of {REQUESTS} requests",
            path.name,
            runs as f64 / REQUESTS as f64
        );
        if used != expected {
            wrong.push(format!("{}: {used:?} instead of {expected:?}", path.name));
        }
        for (sql, used) in &statements {
            // A background task may have run its own statement for the first time.
            let is_compiled = used.compiled as usize >= REQUESTS / 2 && !is_compiled_each_time(sql);
            if used.recompiled > 0 || is_compiled {
                wrong.push(format!("{}: {used:?}: {sql}", path.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn neither_a_claim_nor_a_page_of_the_audit_compiles_a_statement() {
    let _one = one_at_a_time(true);
    let server = TestServer::queueing();
    let mut connection = server.connect();
    let mut round = || {
        (0..REQUESTS).for_each(|_| connection.expect(&send_and_leave(&connection)));
        server.wait_until_idle();
        server.block_on(async |engine| {
            for _ in 0..WARM_UP {
                let page = engine.audit_log(&Caller::local(), AuditQuery::default()).await.unwrap();
                assert!(!page.entries.is_empty());
            }
        });
    };
    round();
    drop(take_statements());
    round();
    let statements = take_statements();
    for part in ["UPDATE task SET node = ?1, epoch = epoch + 1", "FROM audit"] {
        assert!(statements.keys().any(|sql| sql.contains(part)), "{part}: {statements:#?}");
    }
    let compiled: Vec<_> = statements.iter().filter(|(_, used)| used.recompiled > 0).collect();
    assert!(compiled.is_empty(), "{compiled:#?}");
}

/// Waits for the other tests, whose servers would be counted too.
fn one_at_a_time(records_statements: bool) -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    record_statements(records_statements);
    guard
}

/// Statements that begin or end a transaction, which rusqlite compiles in each use.
fn is_compiled_each_time(sql: &str) -> bool {
    ["BEGIN DEFERRED", "COMMIT", "ROLLBACK"].contains(&sql)
}

/// Waits for a condition with a deadline.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

trait Times {
    fn times(self, times: u64) -> Self;
}

impl Times for StoreUse {
    fn times(self, times: u64) -> Self {
        Self {
            commits: self.commits * times,
            rows: self.rows * times,
            logs: self.logs * times,
            opens: self.opens * times,
            journals: self.journals * times,
            keys: self.keys * times,
            children: self.children * times,
            lists: self.lists * times,
        }
    }
}
