//! The seam to storage for the operator: what a store does across the owners of a tenant.
//!
//! Nothing here asks whose a thing is. Only the operator's methods of the engine (`crate::admin`) use it, after the
//! guard has let the caller through.

use async_trait::async_trait;

use crate::{
    clock::Timestamp,
    knowledge::{AuditEntry, Record},
    store::{ListCursor, StoreError, TaskNo, TaskRow},
    task::State,
};

/// What a store does across owners. Every store has one: [`crate::store::Store::tenants`].
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Names of tenants that have, or had, tasks, sessions, memory or records, in the order of their bytes, from the
    /// one after `after` on. The home tenant is always one of them.
    async fn tenant_names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Owners of a tenant that have, or had, tasks or sessions, in the order of their names, from the one after `after`
    /// on.
    async fn owners(&self, tenant: &str, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// A page of the rows of tasks, newest status first (ties: newest task first).
    async fn tenant_tasks(&self, query: &TenantTasks) -> Result<Vec<TaskRow>, StoreError>;

    /// Deletes these tasks with all that belongs to them, whatever their state; how many there were. A runner of one of
    /// them is told by its next commit.
    ///
    /// A crash on the way leaves the rest; repeating it does no harm.
    async fn delete_tasks(&self, tasks: &[TaskNo]) -> Result<u64, StoreError>;

    /// Forgets up to `limit` sessions of an owner; how many.
    async fn delete_sessions_of(&self, owner: &str, limit: usize) -> Result<u64, StoreError>;

    /// Records of a tenant of whatever kind, by kind and id (by bytes), from the one after `after` on. Expired ones
    /// too.
    async fn tenant_records(
        &self,
        tenant: &str,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<TenantRecord>, StoreError>;

    /// Deletes up to `limit` records of a tenant, whatever their kind; how many.
    async fn delete_tenant_records(&self, tenant: &str, limit: usize) -> Result<u64, StoreError>;

    /// Deletes the counters of how much callers of a tenant did ([`crate::knowledge::Knowledge::add_usage`]): those
    /// whose name is a word, a space and the caller's.
    async fn delete_usage_of(&self, tenant: &str) -> Result<(), StoreError>;

    /// Removes the words of entries that were deleted from what the store keeps for the full text, where deleting an
    /// entry leaves them there for a while. Takes as long as that is large, in steps that hold up no commit for long.
    async fn purge_deleted_words(&self) -> Result<(), StoreError>;

    /// What the next tasks weigh, by owner: up to `limit` of them in the order of their numbers, from the one after
    /// `after` on.
    async fn measure_tasks(&self, after: TaskNo, limit: usize) -> Result<MeasuredTasks, StoreError>;

    /// Bytes of memory and records of each tenant that has any. Memory counts as in
    /// [`crate::knowledge::MemoryPut::max_bytes`], a record with its id and its body.
    async fn measure_knowledge(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Replaces whom lines of a tenant's audit name: tenant, caller, credential, address, resource and the words of a
    /// refusal. The only change that a line ever sees; time, operation, action, type and whether it was refused stay,
    /// and a store refuses to change them. Lines of other tenants are passed over.
    async fn rewrite_audit(&self, tenant: &str, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError>;

    /// Gives an owner that has nothing any more another name, so that its own is nowhere in the store. Does nothing
    /// where there is no such owner.
    ///
    /// Numbers of owners are remembered by every process that uses the store: the old name must not be used before
    /// [`TenantStore::forget_names`] was called in each of them.
    async fn rename_owner(&self, owner: &str, name: &str) -> Result<(), StoreError>;

    /// Forgets the numbers of owners that this process remembers.
    async fn forget_names(&self);
}

/// Which tasks to list for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantTasks {
    /// Of this tenant; `None`: of all.
    pub tenant: Option<String>,
    /// Only of this owner.
    pub owner: Option<String>,
    /// Only those that have not ended.
    pub live: bool,
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this agent.
    pub agent: Option<String>,
    /// Continue after this place.
    pub after: Option<ListCursor>,
    /// How many, at most.
    pub limit: usize,
}

/// A record with its kind and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// What it is.
    pub kind: String,
    /// The record.
    pub record: Record,
    /// When it is gone by itself.
    pub expires_at: Option<Timestamp>,
}

/// What some tasks weigh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredTasks {
    /// By owner.
    pub owners: Vec<OwnerTasks>,
    /// The last of them, where there may be more after it.
    pub next: Option<TaskNo>,
}

/// What some tasks of one owner weigh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTasks {
    /// The owner.
    pub owner: String,
    /// How many there are.
    pub tasks: u64,
    /// Bytes of their heads, logs, journals and snapshots. What a store needs around them is not counted.
    pub bytes: u64,
    /// Their webhooks.
    pub webhooks: u64,
}
