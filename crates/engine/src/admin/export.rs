//! The export of a tenant's data, a page at a time: tasks, memory entries, records. The file is meant to be
//! read by others, so it contains no secrets of tokens.

use super::{ADMIN_TENANTS, AdminTask, reaches, tenants::no_such};
use crate::{
    access::{Action, Caller},
    engine::Engine,
    error::Error,
    knowledge::{MemoryEntry, MemoryKey, MemoryPageQuery},
    memory::privacy,
    store::{ListCursor, TaskKey},
    task::Task,
    tenant_store::{TenantRecord, TenantTasks},
};

/// Tasks per page. Each is folded whole, and may be large.
const TASKS: usize = 8;
/// Memory entries and records per page.
const PAGE: usize = 64;

/// Where the next page of an export begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportCursor {
    /// At the tasks after this one.
    Tasks(Option<ListCursor>),
    /// At the memory entries after this namespace and key.
    Memory(String, String),
    /// At the records after this kind and id.
    Records(String, String),
}

impl ExportCursor {
    /// The cursor of the first page.
    pub fn start() -> Self {
        Self::Tasks(None)
    }
}

/// One exported item.
#[derive(Debug, Clone)]
pub enum ExportItem {
    /// A task, with its administrative data and its fold.
    Task(Box<(AdminTask, Task)>),
    /// An entry of the memory bank.
    Memory {
        /// The namespace that contains it.
        namespace: String,
        /// The entry, with its value.
        entry: MemoryEntry,
    },
    /// A record: a workflow, an artifact, a setting.
    Record(TenantRecord),
}

/// A page of an export.
#[derive(Debug, Clone)]
pub struct ExportPage {
    /// The items; a page in the middle may be empty.
    pub items: Vec<ExportItem>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<ExportCursor>,
}

impl Engine {
    /// Checks that an administrator may export a tenant. Called once, before the first page.
    pub fn allow_export(&self, caller: &Caller, tenant: &str) -> Result<(), Error> {
        let resource = format!("admin://tenants/{tenant}/export");
        self.allow_admin(caller, Action::Read, ADMIN_TENANTS, "tenant.export", &resource)?;
        if reaches(caller, tenant) { Ok(()) } else { Err(no_such(tenant)) }
    }

    /// A page of a tenant's data, for an administrator that [`Engine::allow_export`] has allowed. Data that
    /// changes meanwhile may appear twice, and data created meanwhile may be missing.
    pub async fn export_page(
        &self,
        caller: &Caller,
        tenant: &str,
        at: ExportCursor,
    ) -> Result<ExportPage, Error> {
        if !reaches(caller, tenant)
            || !caller.may(Action::Read, crate::access::AccessKind::Admin, ADMIN_TENANTS)
        {
            return Err(no_such(tenant));
        }
        match at {
            ExportCursor::Tasks(after) => self.export_tasks(tenant, after).await,
            ExportCursor::Memory(namespace, key) => self.export_memory(tenant, namespace, key).await,
            ExportCursor::Records(kind, id) => self.export_records(tenant, &kind, &id).await,
        }
    }

    async fn export_tasks(&self, tenant: &str, after: Option<ListCursor>) -> Result<ExportPage, Error> {
        let tenant = Some(tenant.to_owned());
        let query = TenantTasks { tenant, after, limit: TASKS, ..TenantTasks::default() };
        let rows = self.0.store.tenants().tenant_tasks(&query).await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            // It may have been deleted since.
            if let Some(opened) = self.0.store.open(&TaskKey::Id(row.id)).await? {
                let task = self.0.fold(&opened).await?;
                items.push(ExportItem::Task(Box::new((AdminTask::of(&opened.row)?, task))));
            }
        }
        let next = match rows.last() {
            Some(last) => ExportCursor::Tasks(Some(ListCursor { status_at: last.status_at, no: last.no })),
            None => ExportCursor::Memory(String::new(), String::new()),
        };
        Ok(ExportPage { items, next: Some(next) })
    }

    async fn export_memory(
        &self,
        tenant: &str,
        mut namespace: String,
        key: String,
    ) -> Result<ExportPage, Error> {
        let (now, knowledge) = (self.clock().now(), self.0.store.knowledge());
        if key.is_empty() {
            let next = knowledge.namespaces(tenant, "", &namespace, 1, now).await?.into_iter().next();
            let Some(next) = next else {
                let next = Some(ExportCursor::Records(String::new(), String::new()));
                return Ok(ExportPage { items: vec![], next });
            };
            namespace = next;
        }
        let query = MemoryPageQuery {
            tenant: tenant.to_owned(),
            namespace: namespace.clone(),
            prefix: String::new(),
            after: key,
            limit: PAGE,
            values: true,
            now,
        };
        let entries = knowledge.memory_page(&query).await?;
        // After the last page of a namespace comes the next namespace.
        let last = entries.last().filter(|_| entries.len() == PAGE);
        let key = last.map(|entry| entry.key.clone()).unwrap_or_default();
        let next = Some(ExportCursor::Memory(namespace.clone(), key));
        let items = entries.into_iter().map(|entry| self.opened(tenant, &namespace, entry));
        Ok(ExportPage { items: items.collect::<Result<_, _>>()?, next })
    }

    /// An entry with its value in plain text, whether it is stored encrypted or not.
    fn opened(&self, tenant: &str, namespace: &str, mut entry: MemoryEntry) -> Result<ExportItem, Error> {
        let key =
            MemoryKey { tenant: tenant.to_owned(), namespace: namespace.to_owned(), key: entry.key.clone() };
        entry.value = privacy::open(|| self.derive_key(privacy::PURPOSE), &key, entry.value)?;
        entry.size = entry.value.len() as u64;
        Ok(ExportItem::Memory { namespace: key.namespace, entry })
    }

    async fn export_records(&self, tenant: &str, kind: &str, id: &str) -> Result<ExportPage, Error> {
        let after = (!kind.is_empty()).then_some((kind, id));
        let records = self.0.store.tenants().tenant_records(tenant, after, PAGE).await?;
        let last = records.last().filter(|_| records.len() == PAGE);
        let next = last.map(|last| ExportCursor::Records(last.kind.clone(), last.record.id.clone()));
        Ok(ExportPage { items: records.into_iter().map(ExportItem::Record).collect(), next })
    }
}
