//! The memory bank as an agent uses it: each operation is a step of its task.

use std::time::Duration;

use serde_json::Value;

use super::{BankEntry, BankError, BankSearchPage, data_uri, search_uri};
use crate::{
    agent::AgentError,
    context::TaskContext,
    knowledge::{ExpectedVersion, MemoryQuery},
};

/// A namespace, accessed in the name of the caller that created the task.
///
/// Reads are journaled, so that after a restart the agent gets the same values as before, whatever has been
/// written since. A crash between a write to the memory bank and the task's journal makes the write happen twice.
pub struct TaskMemory<'a> {
    cx: &'a TaskContext,
    namespace: String,
}

impl TaskContext {
    /// A namespace of the memory bank. Each operation there is a step.
    pub fn memory(&self, namespace: impl Into<String>) -> TaskMemory<'_> {
        TaskMemory { cx: self, namespace: namespace.into() }
    }
}

impl TaskMemory<'_> {
    /// The entry of that key.
    pub async fn get(&self, key: &str) -> Result<Option<BankEntry>, AgentError> {
        let (memory, caller) = (self.cx.engine().memory(), self.cx.caller());
        let step = async |_| memory.get(&caller, &self.namespace, key).await.map_err(AgentError::failed);
        self.cx.step(&self.name("get", key), step).await
    }

    /// Writes an entry. Returns its version.
    pub async fn store(&self, key: &str, value: &Value, ttl: Option<Duration>) -> Result<u64, AgentError> {
        let stored = self.store_if(key, value, ttl, ExpectedVersion::Any).await?;
        stored.ok_or_else(|| AgentError::failed("the entry was not written"))
    }

    /// Writes an entry if its version is as expected. Returns the new version, or `None` on a conflict: read it
    /// again then.
    ///
    /// A write that succeeded and was cut off before it was journaled conflicts with itself. An agent that must
    /// tell that from another writer's change puts its task's id into the value.
    pub async fn store_if(
        &self,
        key: &str,
        value: &Value,
        ttl: Option<Duration>,
        expected: ExpectedVersion,
    ) -> Result<Option<u64>, AgentError> {
        let (memory, caller) = (self.cx.engine().memory(), self.cx.caller());
        let step = async |_| match memory.store(&caller, &self.namespace, key, value, ttl, expected).await {
            Ok(stored) => Ok(Some(stored.version)),
            Err(BankError::Moved { .. }) => Ok(None),
            Err(error) => Err(AgentError::failed(error)),
        };
        self.cx.step(&self.name("store", key), step).await
    }

    /// Deletes an entry. Returns whether it existed.
    pub async fn delete(&self, key: &str) -> Result<bool, AgentError> {
        let (memory, caller) = (self.cx.engine().memory(), self.cx.caller());
        let step = async |_| {
            let deleted = memory.delete(&caller, &self.namespace, key, None).await;
            deleted.map(|version| version.is_some()).map_err(AgentError::failed)
        };
        self.cx.step(&self.name("delete", key), step).await
    }

    /// Searches the namespace. A page has `limit` results; pages count from 1.
    pub async fn search(
        &self,
        what: &MemoryQuery,
        page: u32,
        limit: usize,
    ) -> Result<BankSearchPage, AgentError> {
        let (memory, caller) = (self.cx.engine().memory(), self.cx.caller());
        let step = async |_| {
            memory.search(&caller, &self.namespace, what, page, limit).await.map_err(AgentError::failed)
        };
        self.cx.step(&format!("memory.search {}", search_uri(&self.namespace)), step).await
    }

    /// The step name includes the key, so that an agent that acts differently after a restart is detected.
    fn name(&self, operation: &str, key: &str) -> String {
        format!("memory.{operation} {}", data_uri(&self.namespace, key))
    }
}
