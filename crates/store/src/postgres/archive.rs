//! Export and import of whole tasks and sessions. See `crate::archive`.

use async_trait::async_trait;
use nuncio_engine::{
    clock::Timestamp,
    knowledge::{AuditEntry, MemoryKey, RecordKey},
    store::{DeadLetter, Session, StoreError, TaskNo},
    task::TaskId,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{PostgresStore, knowledge::archived, names::NameKind, read::number, session, tenant};
use crate::archive::{Archive, MemoryDump, RecordDump, TaskDetails, TaskDump, WebhookState};

#[async_trait]
impl Archive for PostgresStore {
    async fn ids(&self, after: Option<TaskId>, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let (after, limit) = (after.map_or(Uuid::nil(), |id| id.0), limit as i64);
        let rows = self
            .pool
            .read("SELECT id FROM task WHERE id > $1 ORDER BY id LIMIT $2", &[&after, &limit])
            .await?;
        Ok(rows.iter().map(|row| TaskId(row.get(0))).collect())
    }

    async fn details(&self, task: TaskNo) -> Result<TaskDetails, StoreError> {
        let (tenant, no) = (tenant(task), task.0);
        let sql = "SELECT t.due_at, t.node IS NOT NULL, i.key, i.digest FROM task t
             LEFT JOIN idempotency i ON i.tenant = t.tenant AND i.key = t.idempotency
             WHERE t.tenant = $1 AND t.no = $2";
        let Some(row) = self.pool.read_one(sql, &[&tenant, &no]).await? else {
            return Ok(TaskDetails::default());
        };
        let digest = row.get::<_, Option<&[u8]>>(3).and_then(|digest| digest.try_into().ok());
        let sql = "SELECT attempts, due_at, node IS NOT NULL FROM webhook
             WHERE tenant = $1 AND task = $2 ORDER BY id COLLATE \"C\"";
        let hooks = self.pool.read(sql, &[&tenant, &no]).await?;
        let hook = |row: &Row| WebhookState {
            attempts: row.get::<_, i32>(0).cast_unsigned(),
            due_at: due(row.get(1), row.get(2)),
        };
        let sql = "SELECT d.delivery, t.id, d.webhook, d.seq, d.reason, d.at FROM dead_letter d
             JOIN task t ON t.tenant = d.tenant AND t.no = d.task
             WHERE d.tenant = $1 AND d.task = $2 ORDER BY d.webhook COLLATE \"C\", d.seq";
        let letters = self.pool.read(sql, &[&tenant, &no]).await?;
        let letter = |row: &Row| DeadLetter {
            delivery: row.get(0),
            task: TaskId(row.get(1)),
            webhook: row.get(2),
            seq: number(row, 3),
            reason: row.get(4),
            at: Timestamp(row.get(5)),
        };
        Ok(TaskDetails {
            due_at: due(row.get(0), row.get(1)),
            idempotency: row.get::<_, Option<String>>(2).zip(digest),
            dead_letters: letters.iter().map(letter).collect(),
            hooks: hooks.iter().map(hook).collect(),
        })
    }

    async fn restore(&self, dump: TaskDump) -> Result<bool, StoreError> {
        let (row, details) = (&dump.row, &dump.details);
        let client = self.pool.client().await?;
        let owner = self.names.number(&client, NameKind::Owner, &row.owner).await?;
        let agent = self.names.number(&client, NameKind::Agent, &row.agent).await?;
        drop(client);
        let own = TaskId::of_own_context(&row.context) == Some(row.id);
        let context = Some(row.context.as_str()).filter(|_| !own);
        let (seqs, batches): (Vec<i64>, Vec<&[u8]>) =
            dump.log.iter().map(|batch| (batch.first_seq as i64, &*batch.bytes)).unzip();
        let journal: Vec<&[u8]> = dump.journal.iter().map(|record| &*record.0).collect();
        let hooks = &dump.webhooks;
        let hook_ids: Vec<&str> = hooks.iter().map(|(hook, _)| hook.id.as_str()).collect();
        let cursors: Vec<i64> = hooks.iter().map(|(hook, _)| hook.cursor as i64).collect();
        let attempts: Vec<i32> = hooks.iter().map(|(_, state)| state.attempts.cast_signed()).collect();
        let dues: Vec<Option<i64>> = hooks.iter().map(|(_, state)| state.due_at.map(|due| due.0)).collect();
        let configs: Vec<&[u8]> = hooks.iter().map(|(hook, _)| &*hook.config).collect();
        let letters = &details.dead_letters;
        let letter_hooks: Vec<&str> = letters.iter().map(|letter| letter.webhook.as_str()).collect();
        let letter_seqs: Vec<i64> = letters.iter().map(|letter| letter.seq as i64).collect();
        let deliveries: Vec<&str> = letters.iter().map(|letter| letter.delivery.as_str()).collect();
        let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
        let times: Vec<i64> = letters.iter().map(|letter| letter.at.0).collect();
        let rows = self
            .pool
            .run(
                "SELECT restore_task($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
                 $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)",
                &[
                    &owner,
                    &row.id.0,
                    &agent,
                    &i16::from(row.state.code()),
                    &row.status_at.0,
                    &row.created_at.0,
                    &(row.seq as i64),
                    &(row.version as i64),
                    &(row.epoch as i64),
                    &details.due_at.map(|due| due.0),
                    &row.attempts.cast_signed(),
                    &row.cancel,
                    &context,
                    &row.client_id,
                    &details.idempotency.as_ref().map(|(key, _)| key),
                    &details.idempotency.as_ref().map(|(_, digest)| &digest[..]),
                    &row.parent.map(|parent| parent.0),
                    &&*row.head,
                    &seqs,
                    &batches,
                    &journal,
                    &hook_ids,
                    &cursors,
                    &attempts,
                    &dues,
                    &configs,
                    &letter_hooks,
                    &letter_seqs,
                    &deliveries,
                    &reasons,
                    &times,
                ],
            )
            .await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn session_ids(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        session::ids(&self.pool, after.unwrap_or_default(), limit).await
    }

    async fn dump_session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        session::find_stored(&self.pool, id).await
    }

    async fn restore_session(&self, kept: Session) -> Result<bool, StoreError> {
        session::insert(&self.pool, &kept).await
    }

    async fn dump_memory(
        &self,
        after: Option<&MemoryKey>,
        limit: usize,
    ) -> Result<Vec<MemoryDump>, StoreError> {
        archived::memory(&self.pool, after, limit).await
    }

    async fn restore_memory(&self, dump: MemoryDump) -> Result<bool, StoreError> {
        archived::put_memory(&self.pool, &dump).await
    }

    async fn dump_records(
        &self,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<RecordDump>, StoreError> {
        archived::records(&self.pool, after, limit).await
    }

    async fn restore_record(&self, dump: RecordDump) -> Result<bool, StoreError> {
        archived::put_record(&self.pool, &dump).await
    }

    async fn dump_audit(&self, after: u64, limit: usize) -> Result<Vec<(u64, AuditEntry)>, StoreError> {
        archived::audit(&self.pool, after, limit).await
    }

    async fn restore_audit(&self, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError> {
        archived::put_audit(&self.pool, &lines).await
    }

    async fn in_use(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM node WHERE alive_until >= time_or($1))";
        let row = self.pool.read_one(sql, &[&self.clock.test_time()]).await?;
        Ok(row.is_some_and(|row| row.get(0)))
    }
}

/// A held task is due since the beginning of time.
fn due(at: Option<i64>, held: bool) -> Option<Timestamp> {
    at.map(|at| if held { Timestamp(0) } else { Timestamp(at) })
}
