//! The operator's storage interface: operations across the owners of a tenant.
//!
//! Nothing here checks ownership. Only the operator's methods of the engine (`crate::admin`) use it, after
//! the access check.

use async_trait::async_trait;

use crate::{
    clock::Timestamp,
    knowledge::{AuditEntry, Record},
    store::{ListCursor, StoreError, TaskNo, TaskRow},
    task::State,
};

/// Storage operations across owners. Every store has one: [`crate::store::Store::tenants`].
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Names of tenants that have, or had, tasks, sessions, memory or records, in byte order, after `after`.
    /// Always includes the home tenant.
    async fn tenant_names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Owners of a tenant that have, or had, tasks or sessions, in the order of their names, after `after`.
    async fn owners(&self, tenant: &str, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// A page of the rows of tasks, newest status first (ties: newest task first).
    async fn tenant_tasks(&self, query: &TenantTasks) -> Result<Vec<TaskRow>, StoreError>;

    /// Deletes these tasks with all their data, in any state; returns how many existed. The next commit of a
    /// runner of one of them fails.
    ///
    /// A crash on the way leaves the rest; repeating the call does no harm.
    async fn delete_tasks(&self, tasks: &[TaskNo]) -> Result<u64, StoreError>;

    /// Deletes up to `limit` sessions of an owner; returns how many.
    async fn delete_sessions_of(&self, owner: &str, limit: usize) -> Result<u64, StoreError>;

    /// Records of a tenant of all kinds, in the byte order of kind and id, after `after`. Includes expired
    /// ones.
    async fn tenant_records(
        &self,
        tenant: &str,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<TenantRecord>, StoreError>;

    /// Deletes up to `limit` records of a tenant, of all kinds; returns how many.
    async fn delete_tenant_records(&self, tenant: &str, limit: usize) -> Result<u64, StoreError>;

    /// Deletes the usage counters of a tenant's callers ([`crate::knowledge::Knowledge::add_usage`]): those
    /// whose name is a word, a space and the caller's name.
    async fn delete_usage_of(&self, tenant: &str) -> Result<(), StoreError>;

    /// Removes the words of deleted entries from the full-text index, if deleting an entry leaves them there
    /// for a while. The time grows with the index, but it works in steps that block no commit for long.
    async fn purge_deleted_words(&self) -> Result<(), StoreError>;

    /// The sizes of the next `limit` tasks, summed by owner, in the order of their numbers, after `after`.
    async fn measure_tasks(&self, after: TaskNo, limit: usize) -> Result<MeasuredTasks, StoreError>;

    /// Bytes of memory and records of each tenant that has any. Memory counts as in
    /// [`crate::knowledge::MemoryPut::max_bytes`], a record as its id and its body.
    async fn measure_knowledge(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Replaces the personal data in entries of a tenant's audit: tenant, caller, credential, address,
    /// resource and the reason of a refusal. This is the only change ever made to an entry. Time, operation,
    /// action, type and whether it was refused stay; a store refuses to change them. Entries of other tenants
    /// are skipped.
    async fn rewrite_audit(&self, tenant: &str, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError>;

    /// Renames an owner that has no data left, so that the old name is nowhere in the store. Does nothing if
    /// there is no such owner.
    ///
    /// Every process that uses the store caches the numbers of owners: the old name must not be used before
    /// [`TenantStore::forget_names`] was called in each of them.
    async fn rename_owner(&self, owner: &str, name: &str) -> Result<(), StoreError>;

    /// Clears this process's cache of owner numbers.
    async fn forget_names(&self);
}

/// A filter and a page position for the operator's list of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantTasks {
    /// Only tasks of this tenant; `None`: of all tenants.
    pub tenant: Option<String>,
    /// Only tasks of this owner.
    pub owner: Option<String>,
    /// Only tasks that have not ended.
    pub live: bool,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// Continue after this position.
    pub after: Option<ListCursor>,
    /// The maximum number of tasks on the page.
    pub limit: usize,
}

/// A record with its kind and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// Its type, such as `sparc.workflow`.
    pub kind: String,
    /// The record itself.
    pub record: Record,
    /// When it expires; `None`: never.
    pub expires_at: Option<Timestamp>,
}

/// The sizes of a page of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredTasks {
    /// The sums, by owner.
    pub owners: Vec<OwnerTasks>,
    /// The last task measured, if there may be more after it.
    pub next: Option<TaskNo>,
}

/// The total size of some tasks of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTasks {
    /// The owner's name.
    pub owner: String,
    /// The number of tasks.
    pub tasks: u64,
    /// Bytes of their headers, logs, journals and snapshots, without the store's overhead.
    pub bytes: u64,
    /// The number of their webhooks.
    pub webhooks: u64,
}
