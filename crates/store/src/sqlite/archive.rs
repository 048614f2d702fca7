//! Export and import of a whole store. See `crate::archive`.

use std::path::Path;

use async_trait::async_trait;
use nuncio_engine::{
    clock::Timestamp,
    store::{DeadLetter, StoreError},
    task::TaskId,
};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::{SqliteStore, knowledge::archived, read, schema, session, write_session::WriteSession};
use crate::{
    SqliteOpenError,
    archive::{
        Archive, ArchiveItem, ArchiveKey, ArchiveKind, TaskDetails, TaskDump, WebhookState, read_task,
    },
};

#[async_trait]
impl Archive for SqliteStore {
    async fn keys(
        &self,
        kind: ArchiveKind,
        after: Option<&ArchiveKey>,
        limit: usize,
    ) -> std::result::Result<Vec<ArchiveKey>, StoreError> {
        let after = after.cloned();
        self.scan(move |conn, _| match kind {
            ArchiveKind::Tasks => task_keys(conn, after.as_ref(), limit),
            ArchiveKind::Sessions => {
                let after = if let Some(ArchiveKey::Session(id)) = &after { id.as_str() } else { "" };
                let ids = session::ids(conn, after, limit)?;
                Ok(ids.into_iter().map(ArchiveKey::Session).collect())
            }
            ArchiveKind::Memory => archived::memory_keys(conn, after.as_ref(), limit),
            ArchiveKind::Records => archived::record_keys(conn, after.as_ref(), limit),
            ArchiveKind::Audit => archived::audit_keys(conn, after.as_ref(), limit),
        })
        .await
    }

    async fn read_item(&self, key: &ArchiveKey) -> std::result::Result<Option<ArchiveItem>, StoreError> {
        if let ArchiveKey::Task(id) = key {
            return read_task(self, *id, async |no| self.read(|conn, _| details(conn, no.0))).await;
        }
        self.read(|conn, names| match key {
            ArchiveKey::Task(_) => Ok(None),
            // The embedded store has no clock of its own, so no time needs translation.
            ArchiveKey::Session(id) => Ok(session::find(conn, names, id)?.map(ArchiveItem::Session)),
            ArchiveKey::Memory(key) => archived::memory(conn, key),
            ArchiveKey::Record(key) => archived::record(conn, key),
            ArchiveKey::Audit(no) => archived::audit_line(conn, names, *no),
        })
    }

    async fn restore(&self, items: Vec<ArchiveItem>) -> std::result::Result<u64, StoreError> {
        let weight = items.iter().map(ArchiveItem::weight).sum();
        let insert = |session: &mut WriteSession, item: &ArchiveItem| match item {
            ArchiveItem::Task(dump) => restore(session, dump),
            ArchiveItem::Session(kept) => session::insert(session, kept),
            ArchiveItem::Memory(dump) => archived::put_memory(session, dump),
            ArchiveItem::Record(dump) => archived::put_record(session, dump),
            ArchiveItem::Audit(no, line) => archived::put_audit(session, *no, line),
        };
        let write = move |session: &mut WriteSession| {
            items.iter().try_fold(0, |inserted, item| Ok(inserted + u64::from(insert(session, item)?)))
        };
        self.writer.write(weight, write).await
    }

    async fn in_use(&self) -> std::result::Result<bool, StoreError> {
        // The folder is locked, so this process is the only one that has it open.
        Ok(false)
    }
}

fn task_keys(conn: &Connection, after: Option<&ArchiveKey>, limit: usize) -> Result<Vec<ArchiveKey>> {
    let after: &[u8] = match after {
        Some(ArchiveKey::Task(id)) => id.0.as_bytes(),
        _ => &[],
    };
    conn.prepare_cached("SELECT id FROM task WHERE id > ?1 ORDER BY id LIMIT ?2")?
        .query_map(params![after, limit as i64], |row| read::task_id(row, 0).map(ArchiveKey::Task))?
        .collect()
}

/// Copies the database of a folder to a file, also while a server writes to it: the copy is a consistent
/// snapshot.
pub(crate) fn back_up(dir: &Path, to: &Path) -> std::result::Result<(), SqliteOpenError> {
    let conn = schema::open_read_only(&dir.join("nuncio.db"))?;
    let Some(name) = to.to_str() else {
        let why = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the name is not UTF-8");
        return Err(SqliteOpenError::Folder { dir: to.to_owned(), source: why });
    };
    // SQLite treats an empty file as a new database, and keeps its mode.
    schema::make_private(to).map_err(|source| SqliteOpenError::Folder { dir: to.to_owned(), source })?;
    conn.execute("VACUUM INTO ?1", [name])?;
    Ok(())
}

fn details(conn: &Connection, no: i64) -> Result<TaskDetails> {
    let row = conn
        .prepare_cached("SELECT due_at, node IS NOT NULL, idempotency, owner FROM task WHERE no = ?1")?
        .query_row([no], |row| {
            let key: Option<String> = row.get(2)?;
            Ok((due(row.get(0)?, row.get(1)?), key, row.get::<_, i64>(3)?))
        })
        .optional()?;
    let Some((due_at, key, owner)) = row else { return Ok(TaskDetails::default()) };
    let idempotency = match key {
        None => None,
        Some(key) => conn
            .prepare_cached("SELECT digest FROM idempotency WHERE owner = ?1 AND key = ?2")?
            .query_row(params![owner, key], |row| row.get(0))
            .optional()?
            .map(|digest| (key, digest)),
    };
    let hooks = conn
        .prepare_cached(
            "SELECT attempts, due_at, node IS NOT NULL, reason, failing_since FROM webhook
             WHERE task = ?1 ORDER BY id",
        )?
        .query_map([no], |row| {
            Ok(WebhookState {
                attempts: row.get(0)?,
                due_at: due(row.get(1)?, row.get(2)?),
                reason: row.get(3)?,
                failing_since: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            })
        })?
        .collect::<Result<_>>()?;
    let dead_letters = conn
        .prepare_cached(
            "SELECT delivery, task.id, webhook, dead_letter.seq, reason, at, dead_letter.attempts FROM dead_letter
             JOIN task ON task.no = dead_letter.task WHERE dead_letter.task = ?1 ORDER BY webhook, dead_letter.seq",
        )?
        .query_map([no], |row| {
            Ok(DeadLetter {
                delivery: row.get(0)?,
                task: read::task_id(row, 1)?,
                webhook: row.get(2)?,
                seq: read::number(row, 3)?,
                reason: row.get(4)?,
                at: Timestamp(row.get(5)?),
                attempts: row.get(6)?,
            })
        })?
        .collect::<Result<_>>()?;
    Ok(TaskDetails { due_at, idempotency, dead_letters, hooks })
}

/// A held task is due since the beginning of time.
fn due(at: Option<i64>, held: bool) -> Option<Timestamp> {
    at.map(|at| if held { Timestamp(0) } else { Timestamp(at) })
}

fn restore(session: &mut WriteSession, dump: &TaskDump) -> Result<bool> {
    let (row, details) = (&dump.row, &dump.details);
    let owner = session.names.owner_no(&session.conn, &row.owner)?;
    let agent = session.names.agent_no(&session.conn, &row.agent)?;
    let no = session.next_no;
    let context =
        Some(row.context.as_str()).filter(|context| TaskId::of_own_context(context) != Some(row.id));
    let unfolded: usize = dump.log.iter().map(|batch| batch.bytes.len()).sum();
    let inserted = session
        .conn
        .prepare_cached(
            "INSERT INTO task (no, id, owner, agent, state, status_at, created_at, seq, version, epoch, node,
               due_at, attempts, cancel, snap_seq, unfolded, journaled, hooks, context, client_id, idempotency,
               parent, head)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL, ?11, ?12, ?13, 0, ?14, ?15, ?16, ?17, ?18,
               ?19, ?20, ?21)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            no,
            row.id.0.as_bytes(),
            owner,
            agent,
            row.state.code(),
            row.status_at.0,
            row.created_at.0,
            row.seq as i64,
            row.version as i64,
            row.epoch as i64,
            details.due_at.map(|due| due.0),
            row.attempts,
            row.cancel,
            unfolded as i64,
            dump.journal.len() as i64,
            dump.webhooks.len() as i64,
            context,
            row.client_id,
            details.idempotency.as_ref().map(|(key, _)| key),
            row.parent.as_ref().map(|parent| parent.0.as_bytes()),
            &*row.head,
        ])?;
    if inserted == 0 {
        return Ok(false);
    }
    session.next_no += 1;
    session.count(owner, agent, row.state, 1);
    let conn = &session.conn;
    for batch in &dump.log {
        conn.prepare_cached("INSERT INTO log (key, bytes) VALUES (?1, ?2)")?
            .execute(params![read::key(no, batch.first_seq), &*batch.bytes])?;
    }
    for (n, record) in (1..).zip(&dump.journal) {
        conn.prepare_cached("INSERT INTO journal (key, bytes) VALUES (?1, ?2)")?
            .execute(params![read::key(no, n), &*record.0])?;
    }
    if let Some(id) = &row.client_id {
        conn.prepare_cached("INSERT INTO client_id (owner, id, task) VALUES (?1, ?2, ?3)")?
            .execute(params![owner, id, no])?;
    }
    if let Some((key, digest)) = &details.idempotency {
        conn.prepare_cached("INSERT INTO idempotency (owner, key, task, digest) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner, key, no, digest])?;
    }
    for (hook, state) in &dump.webhooks {
        conn.prepare_cached(
            "INSERT INTO webhook (task, id, cursor, attempts, due_at, config, reason, failing_since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            no,
            hook.id,
            hook.cursor as i64,
            state.attempts,
            state.due_at.map(|due| due.0),
            &*hook.config,
            state.reason,
            state.failing_since.map(|since| since.0),
        ])?;
    }
    for letter in &details.dead_letters {
        conn.prepare_cached(
            "INSERT INTO dead_letter (task, webhook, seq, delivery, reason, at, attempts)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            no,
            letter.webhook,
            letter.seq as i64,
            letter.delivery,
            letter.reason,
            letter.at.0,
            letter.attempts,
        ])?;
    }
    Ok(true)
}
