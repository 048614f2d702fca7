//! Knowledge in the embedded store. Writes are jobs of the writer, like commits; reads of one row run on the
//! calling thread; all other reads run on blocking threads. A sweep finds expired rows beside the writer, and
//! the writer checks again before it deletes them, in chunks.

pub(super) mod archived;
mod audit;
mod memory;
mod page;
mod records;
mod search;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    clock::Timestamp,
    knowledge::{
        AuditEntry, AuditPage, AuditQuery, Knowledge, MemoryEntry, MemoryError, MemoryKey, MemoryPageQuery,
        MemoryPut, MemoryReads, MemorySearch, MemorySearchPage, MemoryStats, MemoryWriteResult, Record,
        RecordError, RecordKey, RecordQuery, RecordWrite,
    },
    store::StoreError,
};

use super::{SqliteStore, write_session::WriteSession};

/// Maximum rows changed in one job, so that commits in the same batch do not wait long.
const CHUNK: usize = 256;

#[async_trait]
impl Knowledge for SqliteStore {
    async fn put_memory(&self, put: MemoryPut) -> Result<MemoryWriteResult, MemoryError> {
        let weight = put.value.len() + 2 * put.text.len();
        let tenant = Some(put.key.tenant.as_str().into());
        self.writer.write_for(tenant, weight, move |session| memory::put(session, &put)).await?
    }

    async fn memory(&self, key: &MemoryKey, now: Timestamp) -> Result<Option<MemoryEntry>, StoreError> {
        self.read(|conn, names| page::one(conn, names, key, now))
    }

    async fn delete_memory(
        &self,
        key: &MemoryKey,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<u64>, MemoryError> {
        let key = key.clone();
        self.writer.write(0, move |session| memory::delete(session, &key, expected, now)).await?
    }

    async fn clear_memory(&self, tenant: &str, namespace: &str, limit: usize) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while deleted < limit {
            let chunk = CHUNK.min(limit - deleted);
            let (tenant, namespace) = (tenant.to_owned(), namespace.to_owned());
            let clear = move |session: &mut WriteSession| memory::clear(session, &tenant, &namespace, chunk);
            let gone = self.writer.write(0, clear).await?;
            deleted += gone;
            if gone < chunk {
                break;
            }
        }
        Ok(deleted as u64)
    }

    async fn memory_stats(
        &self,
        tenant: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Option<MemoryStats>, StoreError> {
        let (tenant, namespace) = (tenant.to_owned(), namespace.to_owned());
        self.scan(move |conn, names| page::stats(conn, names, &tenant, &namespace, now)).await
    }

    async fn namespaces(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let (tenant, prefix, after) = (tenant.to_owned(), prefix.to_owned(), after.to_owned());
        self.scan(move |conn, names| page::namespaces(conn, names, &tenant, &prefix, &after, limit, now))
            .await
    }

    async fn memory_page(&self, query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| page::page(conn, names, &query)).await
    }

    async fn memory_stats_and_page(
        &self,
        query: &MemoryPageQuery,
    ) -> Result<Option<(MemoryStats, Vec<MemoryEntry>)>, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| page::stats_and_page(conn, names, &query)).await
    }

    async fn search_memory(&self, query: &MemorySearch) -> Result<MemorySearchPage, StoreError> {
        let query = query.clone();
        self.search(move |conn, names| search::search(conn, names, &query)).await
    }

    async fn count_reads(&self, reads: &[MemoryReads]) -> Result<(), StoreError> {
        for chunk in reads.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            self.writer.write(0, move |session| memory::count_reads(session, &chunk)).await?;
        }
        Ok(())
    }

    async fn expire_memory(&self, now: Timestamp, limit: usize) -> Result<Vec<MemoryKey>, StoreError> {
        let over = self.scan(move |conn, _| page::expired_entries(conn, now, limit)).await?;
        let mut gone = vec![];
        for chunk in over.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            gone.extend(self.writer.write(0, move |session| memory::expire(session, &chunk, now)).await?);
        }
        Ok(gone)
    }

    async fn write_records(&self, writes: Vec<RecordWrite>) -> Result<Vec<u64>, RecordError> {
        let weight = writes.iter().filter_map(|write| write.body.as_ref()).map(bytes::Bytes::len).sum();
        self.writer.write(weight, move |session| records::write(session, &writes)).await?
    }

    async fn record(&self, key: &RecordKey, now: Timestamp) -> Result<Option<Record>, StoreError> {
        self.read(|conn, names| records::one(conn, names, key, now))
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| records::list(conn, names, &query)).await
    }

    async fn expire_records(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let over = self.scan(move |conn, _| records::expired_records(conn, now, limit)).await?;
        let mut gone = 0;
        for chunk in over.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            gone += self.writer.write(0, move |session| records::expire(session, &chunk, now)).await?;
        }
        Ok(gone)
    }

    async fn append_audit(&self, entries: Arc<[AuditEntry]>) -> Result<(), StoreError> {
        self.writer.write(256 * entries.len(), move |session| audit::append(session, &entries)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| audit::query(conn, names, &query)).await
    }

    async fn expire_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while deleted < limit {
            let chunk = CHUNK.min(limit - deleted);
            let gone = self.writer.write(0, move |session| audit::expire(session, before, chunk)).await?;
            deleted += gone;
            if gone < chunk {
                break;
            }
        }
        Ok(deleted as u64)
    }

    async fn add_usage(&self, uses: &[(String, u64)], now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let uses = uses.to_vec();
        self.writer.write(0, move |session| usage::add(session, &uses, now)).await
    }
}

/// A count, a size or a limit as SQLite stores it.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
