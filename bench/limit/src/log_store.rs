//! L2's store: the least that a durable server with a log has to write, and the cheapest way to write it.
//!
//! One thread takes all that waits, commits it with one fsync (WAL, `synchronous=FULL`), and only then
//! answers. A task is two rows: the events of its one commit, and the task itself with an index to find it
//! by id and one to list it by time. Ids are ordered by time, so every insert goes to the right edge.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use anyhow::Context;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Tasks in one transaction at most, as in the product.
const BATCH: usize = 512;
/// Bits of a log row's key that number the events of a task.
const SEQ_BITS: u32 = 20;
/// A task's three events, each about this long, stand in one row.
const EVENTS: usize = 3;
const EVENT_BYTES: usize = 300;

const FILE: &str = "limit.db";
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 4000;
    CREATE TABLE IF NOT EXISTS event (key INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS task (
        no INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        context BLOB NOT NULL,
        at INTEGER NOT NULL,
        json BLOB NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS task_at ON task (at);
";

/// The way to the writer thread, and a connection that reads.
pub(crate) struct LogStore {
    jobs: mpsc::Sender<Job>,
    reader: Mutex<Connection>,
}

struct Job {
    id: Uuid,
    context: Uuid,
    json: String,
    durable: oneshot::Sender<()>,
}

impl LogStore {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let writer = connect(dir)?;
        let reader = Mutex::new(Connection::open(dir.join(FILE))?);
        let (jobs, queue) = mpsc::channel();
        thread::Builder::new().name("limit-writer".into()).spawn(move || {
            // Whoever waits learns of the end from the dropped channel.
            if let Err(error) = write(writer, &queue) {
                eprintln!("the writer ended: {error}");
            }
        })?;
        Ok(Self { jobs, reader })
    }

    /// Returns when the task is durable.
    pub(crate) async fn put(&self, id: Uuid, context: Uuid, json: String) -> anyhow::Result<()> {
        let (durable, done) = oneshot::channel();
        self.jobs.send(Job { id, context, json, durable }).ok().context("the writer has ended")?;
        done.await.context("the writer has ended")
    }

    pub(crate) fn get(&self, id: Uuid) -> anyhow::Result<Option<Arc<str>>> {
        let conn = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut select = conn.prepare_cached("SELECT CAST(json AS TEXT) FROM task WHERE id = ?1")?;
        Ok(select.query_row([id.as_bytes()], |row| row.get(0)).optional()?)
    }
}

/// A connection that may write, to a database in that folder.
pub(crate) fn connect(dir: &Path) -> anyhow::Result<Connection> {
    std::fs::create_dir_all(dir)?;
    let conn = Connection::open(dir.join(FILE))?;
    conn.execute_batch(SCHEMA)?;
    Ok(conn)
}

fn write(mut conn: Connection, queue: &mpsc::Receiver<Job>) -> rusqlite::Result<()> {
    let mut no = 0_i64;
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        batch.extend(queue.try_iter().take(BATCH - 1));
        let transaction = conn.transaction()?;
        for job in &batch {
            no += 1;
            insert(&transaction, no, (job.id, job.context), &job.json)?;
        }
        transaction.commit()?;
        for job in batch {
            let _ = job.durable.send(());
        }
    }
    Ok(())
}

/// Writes a task with its id and its context.
pub(crate) fn insert(conn: &Connection, no: i64, ids: (Uuid, Uuid), json: &str) -> rusqlite::Result<()> {
    let json = json.as_bytes();
    let events = json[..json.len().min(EVENT_BYTES)].repeat(EVENTS);
    conn.prepare_cached("INSERT INTO event VALUES (?1, ?2)")?.execute(params![no << SEQ_BITS | 1, events])?;
    conn.prepare_cached("INSERT INTO task VALUES (?1, ?2, ?3, ?1, ?4)")?.execute(params![
        no,
        ids.0.as_bytes(),
        ids.1.as_bytes(),
        json
    ])?;
    Ok(())
}
