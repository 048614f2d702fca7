//! Export and import of a whole store. See `crate::archive`.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nuncio_engine::{
    clock::Timestamp,
    store::{DeadLetter, StoreError, TaskNo},
    task::TaskId,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{PostgresStore, knowledge::archived, names::NameKind, read::number, session, tenant};
use crate::archive::{
    AT_ONCE, Archive, ArchiveItem, ArchiveKey, ArchiveKind, TaskDetails, TaskDump, WebhookState, read_task,
};

#[async_trait]
impl Archive for PostgresStore {
    async fn keys(
        &self,
        kind: ArchiveKind,
        after: Option<&ArchiveKey>,
        limit: usize,
    ) -> Result<Vec<ArchiveKey>, StoreError> {
        match kind {
            ArchiveKind::Tasks => {
                let after = if let Some(ArchiveKey::Task(id)) = after { id.0 } else { Uuid::nil() };
                let sql = "SELECT id FROM task WHERE id > $1 ORDER BY id LIMIT $2";
                let rows = self.pool.read(sql, &[&after, &(limit as i64)]).await?;
                Ok(rows.iter().map(|row| ArchiveKey::Task(TaskId(row.get(0)))).collect())
            }
            ArchiveKind::Sessions => {
                let after = if let Some(ArchiveKey::Session(id)) = after { id.as_str() } else { "" };
                let ids = session::ids(&self.pool, after, limit).await?;
                Ok(ids.into_iter().map(ArchiveKey::Session).collect())
            }
            ArchiveKind::Memory => archived::memory_keys(&self.pool, after, limit).await,
            ArchiveKind::Records => archived::record_keys(&self.pool, after, limit).await,
            ArchiveKind::Audit => archived::audit_keys(&self.pool, after, limit).await,
        }
    }

    async fn read_item(&self, key: &ArchiveKey) -> Result<Option<ArchiveItem>, StoreError> {
        match key {
            ArchiveKey::Task(id) => read_task(self, *id, async |no| self.details(no).await).await,
            ArchiveKey::Session(id) => {
                Ok(session::find_stored(&self.pool, id).await?.map(ArchiveItem::Session))
            }
            ArchiveKey::Memory(key) => archived::memory(&self.pool, key).await,
            ArchiveKey::Record(key) => archived::record(&self.pool, key).await,
            ArchiveKey::Audit(no) => archived::audit_line(&self.pool, *no).await,
        }
    }

    async fn restore(&self, items: Vec<ArchiveItem>) -> Result<u64, StoreError> {
        // Lines of the audit move the sequence of their numbers, entries of memory the counters of their namespace:
        // one after another. Tasks are the many, and independent.
        let independent = items.iter().all(|item| matches!(item, ArchiveItem::Task(_)));
        let inserted = stream::iter(items)
            .map(async |item| match item {
                ArchiveItem::Task(dump) => self.restore_task(&dump).await,
                ArchiveItem::Session(kept) => session::insert(&self.pool, &kept).await,
                ArchiveItem::Memory(dump) => archived::put_memory(&self.pool, &dump).await,
                ArchiveItem::Record(dump) => archived::put_record(&self.pool, &dump).await,
                ArchiveItem::Audit(no, line) => archived::put_audit(&self.pool, no, &line).await,
            })
            .buffer_unordered(if independent { AT_ONCE } else { 1 });
        inserted.try_fold(0, async |sum, inserted| Ok(sum + u64::from(inserted))).await
    }

    async fn in_use(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM node WHERE alive_until >= time_or($1))";
        let row = self.pool.read_one(sql, &[&self.clock.test_time()]).await?;
        Ok(row.is_some_and(|row| row.get(0)))
    }
}

impl PostgresStore {
    async fn details(&self, task: TaskNo) -> Result<TaskDetails, StoreError> {
        let (tenant, no) = (tenant(task), task.0);
        let sql = "SELECT t.due_at, t.node IS NOT NULL, i.key, i.digest FROM task t
             LEFT JOIN idempotency i ON i.tenant = t.tenant AND i.key = t.idempotency
             WHERE t.tenant = $1 AND t.no = $2";
        let Some(row) = self.pool.read_one(sql, &[&tenant, &no]).await? else {
            return Ok(TaskDetails::default());
        };
        let digest = row.get::<_, Option<&[u8]>>(3).and_then(|digest| digest.try_into().ok());
        let sql = "SELECT attempts, due_at, node IS NOT NULL, reason, failing_since FROM webhook
             WHERE tenant = $1 AND task = $2 ORDER BY id COLLATE \"C\"";
        let hooks = self.pool.read(sql, &[&tenant, &no]).await?;
        let hook = |row: &Row| WebhookState {
            attempts: row.get::<_, i32>(0).cast_unsigned(),
            due_at: due(row.get(1), row.get(2)),
            reason: row.get(3),
            failing_since: row.get::<_, Option<i64>>(4).map(Timestamp),
        };
        let sql = "SELECT d.delivery, t.id, d.webhook, d.seq, d.reason, d.at, d.attempts FROM dead_letter d
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
            attempts: row.get::<_, i32>(6).cast_unsigned(),
        };
        Ok(TaskDetails {
            due_at: due(row.get(0), row.get(1)),
            idempotency: row.get::<_, Option<String>>(2).zip(digest),
            dead_letters: letters.iter().map(letter).collect(),
            hooks: hooks.iter().map(hook).collect(),
        })
    }

    async fn restore_task(&self, dump: &TaskDump) -> Result<bool, StoreError> {
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
        let hook_reasons: Vec<Option<&str>> =
            hooks.iter().map(|(_, state)| state.reason.as_deref()).collect();
        let hook_since: Vec<Option<i64>> =
            hooks.iter().map(|(_, state)| state.failing_since.map(|since| since.0)).collect();
        let letters = &details.dead_letters;
        let letter_attempts: Vec<i32> = letters.iter().map(|letter| letter.attempts.cast_signed()).collect();
        let letter_hooks: Vec<&str> = letters.iter().map(|letter| letter.webhook.as_str()).collect();
        let letter_seqs: Vec<i64> = letters.iter().map(|letter| letter.seq as i64).collect();
        let deliveries: Vec<&str> = letters.iter().map(|letter| letter.delivery.as_str()).collect();
        let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
        let times: Vec<i64> = letters.iter().map(|letter| letter.at.0).collect();
        let rows = self
            .pool
            .run(
                "SELECT restore_task($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
                 $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)",
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
                    &hook_reasons,
                    &hook_since,
                    &letter_attempts,
                ],
            )
            .await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

/// A held task is due since the beginning of time.
fn due(at: Option<i64>, held: bool) -> Option<Timestamp> {
    at.map(|at| if held { Timestamp(0) } else { Timestamp(at) })
}
