//! One pass of the erasure of a tenant. Every step deletes what it finds, so that a pass can be repeated at
//! any point.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{orders::OperatorOrder, stop::CancelTarget};
use crate::{
    clock::Timestamp,
    engine::EngineCore,
    error::Error,
    knowledge::{AuditEntry, AuditQuery},
    memory::data_prefix,
    tenant_store::TenantTasks,
};

/// The batch size: tasks, entries, records, sessions, audit entries or owners.
const AT_ONCE: usize = 256;

impl EngineCore {
    /// Deletes what exists; returns whether there was nothing.
    pub(super) async fn erase_pass(
        self: &Arc<Self>,
        tenant: &str,
        order: &mut OperatorOrder,
    ) -> Result<bool, Error> {
        let before = order.counts;
        let pseudonyms = Pseudonyms { salt: order.salt.clone().unwrap_or_default() };
        order.counts.canceled += self.cancel_all(&CancelTarget::Tenant(tenant)).await?.canceled;
        let (store, tenants) = (&self.store, self.store.tenants());
        loop {
            let query =
                TenantTasks { tenant: Some(tenant.to_owned()), limit: AT_ONCE, ..TenantTasks::default() };
            let rows = tenants.tenant_tasks(&query).await?;
            if rows.is_empty() {
                break;
            }
            order.counts.tasks += self.delete_tasks(&rows).await?;
        }
        // At the earliest time nothing has expired: entries that wait to be swept are found, too.
        let always = Timestamp(i64::MIN);
        while let Some(namespace) =
            store.knowledge().namespaces(tenant, "", "", 1, always).await?.into_iter().next()
        {
            loop {
                let gone = store.knowledge().clear_memory(tenant, &namespace, AT_ONCE).await?;
                order.counts.memory += gone;
                if gone == 0 {
                    break;
                }
            }
            self.reads.forget_all(tenant, &namespace);
            self.notify_changed_within(tenant, &data_prefix(&namespace));
            self.namespace_changed(tenant, &namespace);
        }
        loop {
            let gone = tenants.delete_tenant_records(tenant, AT_ONCE).await?;
            order.counts.records += gone;
            if gone == 0 {
                break;
            }
        }
        order.counts.records += self.delete_token_orders(tenant).await?;
        tenants.delete_usage_of(tenant).await?;
        for eraser in self.admin.erasers() {
            order.counts.tokens += eraser.erase(tenant).await?;
        }
        self.guard.flush_audit(store).await;
        loop {
            let query =
                AuditQuery { tenant: Some(tenant.to_owned()), limit: AT_ONCE, ..AuditQuery::default() };
            let lines = store.knowledge().audit(&query).await?.entries;
            if lines.is_empty() {
                break;
            }
            order.counts.audit_lines += lines.len() as u64;
            let lines = lines.into_iter().map(|(no, line)| (no, pseudonyms.of_line(tenant, line))).collect();
            tenants.rewrite_audit(tenant, lines).await?;
        }
        loop {
            let owners = tenants.owners(tenant, "", AT_ONCE).await?;
            if owners.is_empty() {
                break;
            }
            for owner in owners {
                loop {
                    let gone = tenants.delete_sessions_of(&owner, AT_ONCE).await?;
                    order.counts.sessions += gone;
                    if gone == 0 {
                        break;
                    }
                }
                tenants.rename_owner(&owner, &pseudonyms.of_owner(tenant, &owner)).await?;
                order.counts.callers += 1;
            }
        }
        tenants.forget_names().await;
        Ok(before == order.counts)
    }
}

/// Pseudonyms, the same for the same name within one erasure. They contain a colon, which no tenant's name
/// does.
struct Pseudonyms {
    salt: String,
}

impl Pseudonyms {
    fn digest(&self, text: &str) -> String {
        let digest = Sha256::digest(format!("{}\n{text}", self.salt));
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    fn of_tenant(&self, tenant: &str) -> String {
        format!("erased:{}", self.digest(tenant))
    }

    fn of_owner(&self, tenant: &str, owner: &str) -> String {
        format!("{}/{}", self.of_tenant(tenant), self.digest(owner))
    }

    /// An audit entry without personal data. The resource may be named after a person as well.
    fn of_line(&self, tenant: &str, line: AuditEntry) -> AuditEntry {
        AuditEntry {
            tenant: self.of_tenant(tenant).into(),
            caller: self.of_owner(tenant, &line.caller).into(),
            from: None,
            resource: format!("erased:{}", self.digest(&line.resource)),
            refused: line.refused.map(|_| "refused".to_owned()),
            credential: line.credential.map(|id| format!("erased:{}", self.digest(&id)).into()),
            ..line
        }
    }
}
