//! The memory bank as an agent has it: each operation is a step of its task.

use std::time::Duration;

use serde_json::Value;

use super::{BankEntry, BankError, BankSearchPage, data_uri, search_uri};
use crate::{
    agent::AgentError,
    context::TaskContext,
    knowledge::{ExpectedVersion, MemoryQuery},
};

/// A namespace, in the name of the caller that made the task.
///
/// What was read is kept with the task, so that after a restart the agent finds what it found before, whatever
/// has been written since. A write may be cut off between the memory bank and the task's journal, and is then
/// done again.
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

    /// Writes an entry; its version.
    pub async fn store(&self, key: &str, value: &Value, ttl: Option<Duration>) -> Result<u64, AgentError> {
        let stored = self.store_if(key, value, ttl, ExpectedVersion::Any).await?;
        stored.ok_or_else(|| AgentError::failed("the entry was not written"))
    }

    /// Writes an entry that is as expected; its version, or `None` where it is not: read it again then.
    ///
    /// A write that was done and cut off before the task knew finds itself in its way. Who has to tell that from
    /// another's write puts the id of its task into the value.
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

    /// Forgets an entry; whether there was one.
    pub async fn delete(&self, key: &str) -> Result<bool, AgentError> {
        let (memory, caller) = (self.cx.engine().memory(), self.cx.caller());
        let step = async |_| {
            let deleted = memory.delete(&caller, &self.namespace, key, None).await;
            deleted.map(|version| version.is_some()).map_err(AgentError::failed)
        };
        self.cx.step(&self.name("delete", key), step).await
    }

    /// Searches the namespace; the pages have `limit` results and are counted from 1.
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

    /// Named by what it is about, so that an agent that does something else after a restart is found out.
    fn name(&self, operation: &str, key: &str) -> String {
        format!("memory.{operation} {}", data_uri(&self.namespace, key))
    }
}
