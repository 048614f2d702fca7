//! What stands in for a part of a store that is not there yet.

use async_trait::async_trait;
use nuncio_engine::{clock::Timestamp, knowledge::*, store::StoreError};

pub(crate) struct Unwritten;

fn unwritten() -> StoreError {
    StoreError::Unavailable("not there yet".into())
}

#[async_trait]
impl Knowledge for Unwritten {
    async fn put_memory(&self, _put: MemoryPut) -> Result<MemoryStored, MemoryError> {
        Err(unwritten().into())
    }
    async fn memory(&self, _key: &MemoryKey, _now: Timestamp) -> Result<Option<MemoryEntry>, StoreError> {
        Err(unwritten().into())
    }
    async fn delete_memory(
        &self,
        _key: &MemoryKey,
        _expected: Option<u64>,
        _now: Timestamp,
    ) -> Result<Option<u64>, MemoryError> {
        Err(unwritten().into())
    }
    async fn clear_memory(&self, _tenant: &str, _namespace: &str, _limit: usize) -> Result<u64, StoreError> {
        Err(unwritten().into())
    }
    async fn memory_stats(
        &self,
        _tenant: &str,
        _namespace: &str,
        _now: Timestamp,
    ) -> Result<Option<MemoryStats>, StoreError> {
        Err(unwritten().into())
    }
    async fn namespaces(
        &self,
        _tenant: &str,
        _prefix: &str,
        _after: &str,
        _limit: usize,
        _now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        Err(unwritten().into())
    }
    async fn memory_page(&self, _query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>, StoreError> {
        Err(unwritten().into())
    }
    async fn search_memory(&self, _query: &MemorySearch) -> Result<MemoryFound, StoreError> {
        Err(unwritten().into())
    }
    async fn count_reads(&self, _reads: &[MemoryReads]) -> Result<(), StoreError> {
        Err(unwritten().into())
    }
    async fn expire_memory(&self, _now: Timestamp, _limit: usize) -> Result<Vec<MemoryKey>, StoreError> {
        Err(unwritten().into())
    }
    async fn write_records(&self, _writes: Vec<RecordWrite>) -> Result<Vec<u64>, RecordError> {
        Err(unwritten().into())
    }
    async fn record(&self, _key: &RecordKey, _now: Timestamp) -> Result<Option<Record>, StoreError> {
        Err(unwritten().into())
    }
    async fn records(&self, _query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        Err(unwritten().into())
    }
    async fn expire_records(&self, _now: Timestamp, _limit: usize) -> Result<u64, StoreError> {
        Err(unwritten().into())
    }
    async fn append_audit(&self, _entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        Err(unwritten().into())
    }
    async fn audit(&self, _query: &AuditQuery) -> Result<Vec<(u64, AuditEntry)>, StoreError> {
        Err(unwritten().into())
    }
    async fn expire_audit(&self, _before: Timestamp, _limit: usize) -> Result<u64, StoreError> {
        Err(unwritten().into())
    }
    async fn add_usage(&self, _uses: &[(String, u64)], _now: Timestamp) -> Result<Vec<u64>, StoreError> {
        Err(unwritten().into())
    }
}
