//! Typed records: small JSON documents with a version, each of one kind, changed by compare-and-set.
//!
//! A module that stores something beside tasks (a workflow, a batch's control record, a token) owns a kind and reads
//! and writes it through [`Records`]. Writes of several kinds that belong together are collected as [`RecordWrite`]s
//! and committed by [`Engine::write_records`], all or none.

use std::{fmt, marker::PhantomData, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Error,
    clock::{Clock, Timestamp},
    engine::Engine,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::Store,
};

/// The records of one kind, as values of `T`.
pub struct Records<T> {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    kind: &'static str,
    values: PhantomData<fn() -> T>,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedRecord<T> {
    /// The record's id; preceded by its tenant and a line feed in a listing of all tenants.
    pub id: String,
    /// The decoded body.
    pub value: T,
    /// Counts the changes of the record, from 1.
    pub version: u64,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

impl Engine {
    /// The records of one kind. A kind belongs to one module.
    pub fn records<T: Serialize + DeserializeOwned>(&self, kind: &'static str) -> Records<T> {
        Records::new(Arc::clone(&self.0.store), Arc::clone(&self.0.clock), kind)
    }

    /// Commits writes of any kinds in one transaction and returns the new versions in the same order, or `None`, with
    /// nothing written, if one of the records is not at its expected version.
    ///
    /// Returns after they are durable. A crash before the return may have kept all or none.
    pub async fn write_records(&self, writes: Vec<RecordWrite>) -> Result<Option<Vec<u64>>, Error> {
        write(&*self.0.store, writes).await
    }
}

impl<T: Serialize + DeserializeOwned> Records<T> {
    /// The records of one kind in a store that no engine runs on, as the command line opens it.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, kind: &'static str) -> Self {
        Self { store, clock, kind, values: PhantomData }
    }

    /// The record of that id, unless it has expired.
    pub async fn get(&self, tenant: &str, id: &str) -> Result<Option<VersionedRecord<T>>, Error> {
        let key = RecordKey::new(tenant, self.kind, id);
        let record = self.store.knowledge().record(&key, self.clock.now()).await?;
        record.map(|record| self.decode(record)).transpose()
    }

    /// Up to `limit` records whose ids begin with `prefix` and come after `after`, in the order of their ids. Without
    /// a tenant those of all tenants; `prefix` and `after` then begin with a tenant and a line feed.
    pub async fn page(
        &self,
        tenant: Option<&str>,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<VersionedRecord<T>>, Error> {
        let query = RecordQuery {
            tenant: tenant.map(str::to_owned),
            kind: self.kind.into(),
            prefix: prefix.into(),
            after: after.into(),
            limit,
            now: self.clock.now(),
        };
        let records = self.store.knowledge().records(&query).await?;
        records.into_iter().map(|record| self.decode(record)).collect()
    }

    /// A write of a value, for [`Engine::write_records`] or [`Records::write`].
    pub fn put(
        &self,
        tenant: &str,
        id: &str,
        value: &T,
        expected: ExpectedVersion,
    ) -> Result<RecordWrite, Error> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::Internal(format!("a record {} cannot be encoded: {error}", self.kind)))?;
        Ok(RecordWrite {
            key: RecordKey::new(tenant, self.kind, id),
            body: Some(body.into()),
            expected,
            expires_at: None,
            now: self.clock.now(),
        })
    }

    /// A deletion, for [`Engine::write_records`] or [`Records::write`].
    pub fn delete(&self, tenant: &str, id: &str, expected: ExpectedVersion) -> RecordWrite {
        let key = RecordKey::new(tenant, self.kind, id);
        RecordWrite { key, body: None, expected, expires_at: None, now: self.clock.now() }
    }

    /// As [`Engine::write_records`].
    pub async fn write(&self, writes: Vec<RecordWrite>) -> Result<Option<Vec<u64>>, Error> {
        write(&*self.store, writes).await
    }

    /// Changes a record by compare-and-set, up to `attempts` times. `change` gets the record as it is now and returns
    /// the value to store, or `None` to leave it. Returns the record as it is afterwards, with its new version.
    ///
    /// [`Error::Busy`] if other writers were faster each time.
    pub async fn update<E: From<Error>>(
        &self,
        tenant: &str,
        id: &str,
        attempts: usize,
        mut change: impl FnMut(Option<&VersionedRecord<T>>) -> Result<Option<T>, E>,
    ) -> Result<Option<VersionedRecord<T>>, E> {
        for _ in 0..attempts {
            let found = self.get(tenant, id).await?;
            let Some(value) = change(found.as_ref())? else { return Ok(found) };
            let write = self.put(tenant, id, &value, ExpectedVersion::of(found.as_ref()))?;
            let updated_at = write.now;
            if let Some(versions) = self.write(vec![write]).await? {
                let version = versions.first().copied().unwrap_or_default();
                return Ok(Some(VersionedRecord { id: id.to_owned(), value, version, updated_at }));
            }
        }
        let why = format!("the record {} {id} is being changed by others", self.kind);
        Err(Error::Busy { why, retry_after: std::time::Duration::from_secs(1) }.into())
    }

    fn decode(&self, record: Record) -> Result<VersionedRecord<T>, Error> {
        let Record { id, body, version, updated_at } = record;
        let value = serde_json::from_slice(&body).map_err(|error| {
            Error::Internal(format!("the record {} {id} cannot be read back: {error}", self.kind))
        })?;
        Ok(VersionedRecord { id, value, version, updated_at })
    }
}

impl<T> fmt::Debug for Records<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.kind).finish()
    }
}

impl<T> Clone for Records<T> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            kind: self.kind,
            values: PhantomData,
        }
    }
}

impl ExpectedVersion {
    /// The version that a record had when it was read; [`ExpectedVersion::Absent`] if there was none.
    pub fn of<T>(found: Option<&VersionedRecord<T>>) -> Self {
        found.map_or(Self::Absent, |found| Self::Version(found.version))
    }
}

async fn write(store: &dyn Store, writes: Vec<RecordWrite>) -> Result<Option<Vec<u64>>, Error> {
    match store.knowledge().write_records(writes).await {
        Ok(versions) => Ok(Some(versions)),
        Err(RecordError::Moved { .. }) => Ok(None),
        Err(RecordError::Store(error)) => Err(error.into()),
    }
}
