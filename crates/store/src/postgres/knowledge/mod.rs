//! Knowledge in the shared store. Decisions that need a lock are made by functions in the database
//! (`migrations/postgres/0003_knowledge.sql`). Times come from the nodes and are used as they are: an entry
//! with a lifetime of an hour gets its expiry by the clock of the node that writes it, and expires by the clock
//! of the node that reads it.

pub(super) mod archived;
mod audit;
mod memory;
mod page;
mod put;
mod records;
mod search;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    clock::Timestamp,
    knowledge::{
        AuditEntry, AuditPage, AuditQuery, ExpectedVersion, Knowledge, MemoryEntry, MemoryError, MemoryKey,
        MemoryPageQuery, MemoryPut, MemoryReads, MemorySearch, MemorySearchPage, MemoryStats,
        MemoryWriteResult, Record, RecordError, RecordKey, RecordQuery, RecordWrite,
    },
    store::{StoreError, StoreNotification},
};

pub(super) use self::{audit::plain, put::MemoryWriteQueue};
use super::{
    PostgresStore,
    pool::{Param, PostgresPool},
    read::number,
};

/// Maximum rows changed in one transaction, so that others do not wait long for its locks.
const CHUNK: usize = 256;

#[async_trait]
impl Knowledge for PostgresStore {
    async fn put_memory(&self, put: MemoryPut) -> Result<MemoryWriteResult, MemoryError> {
        self.puts.put(put).await
    }

    async fn memory(&self, key: &MemoryKey, now: Timestamp) -> Result<Option<MemoryEntry>, StoreError> {
        page::one(&self.pool, key, now).await
    }

    async fn delete_memory(
        &self,
        key: &MemoryKey,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<u64>, MemoryError> {
        memory::delete(&self.pool, key, expected, now).await
    }

    async fn clear_memory(&self, tenant: &str, namespace: &str, limit: usize) -> Result<u64, StoreError> {
        memory::clear(&self.pool, tenant, namespace, limit).await
    }

    async fn memory_stats(
        &self,
        tenant: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Option<MemoryStats>, StoreError> {
        page::stats(&self.pool, tenant, namespace, now).await
    }

    async fn namespaces(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        page::namespaces(&self.pool, tenant, prefix, after, limit, now).await
    }

    async fn memory_page(&self, query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>, StoreError> {
        page::page(&self.pool, query).await
    }

    async fn memory_stats_and_page(
        &self,
        query: &MemoryPageQuery,
    ) -> Result<Option<(MemoryStats, Vec<MemoryEntry>)>, StoreError> {
        page::stats_and_page(&self.pool, query).await
    }

    async fn search_memory(&self, query: &MemorySearch) -> Result<MemorySearchPage, StoreError> {
        search::search(&self.searches, query).await
    }

    async fn count_reads(&self, reads: &[MemoryReads]) -> Result<(), StoreError> {
        memory::count_reads(&self.pool, reads).await
    }

    async fn expire_memory(&self, now: Timestamp, limit: usize) -> Result<Vec<MemoryKey>, StoreError> {
        memory::expire(&self.pool, now, limit).await
    }

    async fn write_records(&self, writes: Vec<RecordWrite>) -> Result<Vec<u64>, RecordError> {
        records::write(&self.pool, &writes).await
    }

    async fn record(&self, key: &RecordKey, now: Timestamp) -> Result<Option<Record>, StoreError> {
        records::one(&self.pool, key, now).await
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        records::list(&self.pool, query).await
    }

    async fn expire_records(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        in_chunks(&self.pool, "SELECT expire_records($1, $2)", &[&now.0], limit).await
    }

    async fn append_audit(&self, entries: Arc<[AuditEntry]>) -> Result<(), StoreError> {
        audit::append(&self.pool, &entries).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        audit::query(&self.pool, query).await
    }

    async fn expire_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        in_chunks(&self.pool, "SELECT expire_audit($1, $2)", &[&before.0], limit).await
    }

    async fn add_usage(&self, uses: &[(String, u64)], now: Timestamp) -> Result<Vec<u64>, StoreError> {
        audit::add_usage(&self.pool, uses, now).await
    }

    fn notify_nodes(&self, topic: String) {
        self.notifier.notify(StoreNotification::Knowledge(topic));
    }
}

/// Runs a statement that deletes a chunk and returns its size, until nothing is left or the limit is reached.
/// Its last parameter is the size of the chunk.
async fn in_chunks(
    pool: &PostgresPool,
    sql: &str,
    params: &[Param<'_>],
    limit: usize,
) -> Result<u64, StoreError> {
    let mut deleted = 0;
    while deleted < limit as u64 {
        let chunk = CHUNK.min(limit - deleted as usize);
        let size = chunk as i32;
        let mut params = params.to_vec();
        params.push(&size);
        let gone = pool.run(sql, &params).await?.first().map_or(0, |row| number(row, 0));
        deleted += gone;
        if gone < chunk as u64 {
            break;
        }
    }
    Ok(deleted)
}

/// A count, a size or a limit as the database stores it.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The expected version as the functions take it: a version, 0 for absent, -1 for any.
fn expected(expect: ExpectedVersion) -> i64 {
    match expect {
        ExpectedVersion::Any => -1,
        ExpectedVersion::Absent => 0,
        // No entry is ever at version 0, nor at this one.
        ExpectedVersion::Version(0) => i64::MAX,
        ExpectedVersion::Version(version) => whole(version),
    }
}
