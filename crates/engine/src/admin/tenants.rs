//! The operator's management of tenants (list, suspend, resume, erase), and stopping a token's work.

use std::{collections::HashMap, time::Duration};

use super::{
    ADMIN_TENANTS,
    orders::{OperatorOrder, OrderState, about_tenant, about_token},
    reaches,
    salt::salt_write,
};
use crate::{
    access::{Action, Caller, HOME_TENANT},
    engine::Engine,
    error::Error,
    knowledge::ExpectedVersion,
    usage::TenantUsage,
};

/// How long a request waits for the first pass of an order.
const FIRST_PASS: Duration = Duration::from_secs(20);
/// The poll interval of that wait.
const LOOK: Duration = Duration::from_millis(50);
/// How long after its erasure a name stays closed, so that every node has cleared its caches of it.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// The maximum length of a reason, in bytes.
const MAX_REASON: usize = 512;
/// The page size when reading tenants.
const PAGE: usize = 1_000;

/// A tenant, and the operator's order about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantStatus {
    /// The tenant's name.
    pub tenant: String,
    /// The current order, if there is one; otherwise the tenant is served.
    pub order: Option<OperatorOrder>,
    /// What it uses on this node, and what it stores.
    pub usage: TenantUsage,
}

impl Engine {
    /// The tenants that the caller may access, sorted by name.
    pub async fn tenants(&self, caller: &Caller) -> Result<Vec<TenantStatus>, Error> {
        self.allow_admin(caller, Action::Read, ADMIN_TENANTS, "tenant.list", "admin://tenants")?;
        let mut names = std::collections::BTreeMap::new();
        let mut after = String::new();
        loop {
            let page = self.0.store.tenants().tenant_names(&after, PAGE).await?;
            let more = page.len() == PAGE;
            let last = page.last().cloned();
            names.extend(page.into_iter().map(|name| (name, None)));
            match last.filter(|_| more) {
                Some(last) => after = last,
                None => break,
            }
        }
        for (id, order) in self.0.all_orders().await? {
            if let Some(tenant) = id.strip_prefix("tenant:") {
                names.insert(tenant.to_owned(), Some(order));
            }
        }
        let mut usage: HashMap<String, TenantUsage> =
            self.usage_report().into_iter().map(|usage| (usage.tenant.clone(), usage)).collect();
        // A tenant that has only tokens so far is known from the usage ledger.
        for tenant in usage.keys() {
            names.entry(tenant.clone()).or_insert(None);
        }
        // Pseudonyms of erased tenants are not tenants, and the server's own records belong to none.
        let shown = |name: &str| reaches(caller, name) && !name.contains([':', '/']);
        Ok(names
            .into_iter()
            .filter(|(name, _)| shown(name))
            .map(|(tenant, order)| {
                let usage = usage.remove(&tenant).unwrap_or_else(|| TenantUsage::none(&tenant));
                TenantStatus { tenant, order, usage }
            })
            .collect())
    }

    /// Refuses a tenant's callers from now on, on all nodes within seconds, and cancels its running tasks.
    /// Tasks that wait for an answer keep waiting. Returns after the first pass.
    pub async fn suspend_tenant(
        &self,
        caller: &Caller,
        tenant: &str,
        reason: Option<String>,
    ) -> Result<TenantStatus, Error> {
        self.allow_tenant(caller, Action::Write, "tenant.suspend", tenant)?;
        if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
            return Err(Error::Invalid(format!("reason: at most {MAX_REASON} bytes")));
        }
        let give = |standing: Option<OperatorOrder>| match standing {
            Some(order) if order.state != OrderState::Suspended => Err(Error::Invalid(format!(
                "the tenant {tenant:?} is {}: it is not served anyway",
                order.state.name()
            ))),
            // A repeated order examines the tasks again.
            _ => {
                let mut order = OperatorOrder::new(OrderState::Suspended, self.clock().now(), caller.owner());
                order.reason.clone_from(&reason);
                Ok(order)
            }
        };
        let order = self.put_order_and_wait(&about_tenant(tenant), give).await?;
        Ok(self.status(tenant, Some(order)))
    }

    /// Serves a suspended tenant again, or opens the name of an erased one.
    pub async fn resume_tenant(&self, caller: &Caller, tenant: &str) -> Result<TenantStatus, Error> {
        self.allow_tenant(caller, Action::Write, "tenant.resume", tenant)?;
        let id = about_tenant(tenant);
        loop {
            let Some((order, version)) = self.0.order(&id).await? else { break };
            match order.state {
                OrderState::Erasing => {
                    return Err(Error::Invalid(format!(
                        "the tenant {tenant:?} is being erased: wait until that is done"
                    )));
                }
                OrderState::Erased if self.clock().now() < order.at.after(COOL_DOWN * 2) => {
                    return Err(Error::Busy {
                        why: format!("the tenant {tenant:?} was erased a moment ago"),
                        retry_after: COOL_DOWN,
                    });
                }
                _ => {}
            }
            // The next tenant of the name is another one: none of its derived keys may equal those of its
            // predecessor.
            let salt = match order.state {
                OrderState::Erased => {
                    let salt = format!("{}{}", self.clock().new_id(), self.clock().new_id());
                    Some(salt_write(tenant, salt, self.clock().now())?)
                }
                _ => None,
            };
            if self.0.delete_order(&id, version, salt).await? {
                break;
            }
        }
        self.0.follow_orders().await?;
        Ok(self.status(tenant, None))
    }

    /// Deletes all data of a tenant: tasks, sessions, memory, workflows and other records, tokens. Audit
    /// entries stay, without personal data. The tenant's callers are refused from now on. Returns after the
    /// first pass; after a crash it continues.
    pub async fn erase_tenant(&self, caller: &Caller, tenant: &str) -> Result<TenantStatus, Error> {
        self.allow_tenant(caller, Action::Write, "tenant.erase", tenant)?;
        let give = |standing: Option<OperatorOrder>| match standing {
            // The salt stays: one caller has one pseudonym, however often the erasure is restarted.
            Some(order) if order.state == OrderState::Erasing => Ok(order),
            _ => {
                let mut order = OperatorOrder::new(OrderState::Erasing, self.clock().now(), caller.owner());
                order.salt = Some(format!("{}{}", self.clock().new_id(), self.clock().new_id()));
                Ok(order)
            }
        };
        let order = self.put_order_and_wait(&about_tenant(tenant), give).await?;
        Ok(self.status(tenant, Some(order)))
    }

    /// The status of a tenant and of the order about it.
    pub async fn tenant(&self, caller: &Caller, tenant: &str) -> Result<TenantStatus, Error> {
        let resource = format!("admin://tenants/{tenant}");
        self.allow_admin(caller, Action::Read, ADMIN_TENANTS, "tenant.get", &resource)?;
        if !reaches(caller, tenant) {
            return Err(no_such(tenant));
        }
        let order = self.0.order(&about_tenant(tenant)).await?.map(|(order, _)| order);
        Ok(self.status(tenant, order))
    }

    /// Cancels all tasks created with a token of that owner, and continues for as long as another node may
    /// still accept the token. The calling code has revoked the token and has checked access. Returns after
    /// the first pass.
    pub async fn stop_token(
        &self,
        caller: &Caller,
        token: &str,
        owner: &str,
    ) -> Result<OperatorOrder, Error> {
        let give = |_| {
            let mut order = OperatorOrder::new(OrderState::Stopping, self.clock().now(), caller.owner());
            order.owner = Some(owner.to_owned());
            Ok(order)
        };
        self.put_order_and_wait(&about_token(token), give).await
    }

    fn status(&self, tenant: &str, order: Option<OperatorOrder>) -> TenantStatus {
        let found = self.usage_report().into_iter().find(|usage| usage.tenant == tenant);
        let usage = found.unwrap_or_else(|| TenantUsage::none(tenant));
        TenantStatus { tenant: tenant.to_owned(), order, usage }
    }

    fn allow_tenant(
        &self,
        caller: &Caller,
        action: Action,
        operation: &'static str,
        tenant: &str,
    ) -> Result<(), Error> {
        self.allow_admin(caller, action, ADMIN_TENANTS, operation, &format!("admin://tenants/{tenant}"))?;
        if caller.tenant() != HOME_TENANT {
            return Err(no_such(tenant));
        }
        if tenant == HOME_TENANT || tenant.is_empty() || tenant.contains(['/', ':']) || tenant.len() > 64 {
            return Err(Error::Invalid(format!(
                "{tenant:?} cannot be suspended or erased: name a tenant other than {HOME_TENANT:?}, which is the server's own"
            )));
        }
        Ok(())
    }

    /// Replaces the current order, starts it, and waits for the first pass.
    async fn put_order_and_wait(
        &self,
        id: &str,
        make: impl Fn(Option<OperatorOrder>) -> Result<OperatorOrder, Error>,
    ) -> Result<OperatorOrder, Error> {
        let given = loop {
            let standing = self.0.order(id).await?;
            let expected = standing
                .as_ref()
                .map_or(ExpectedVersion::Absent, |(_, version)| ExpectedVersion::Version(*version));
            let order = make(standing.map(|(order, _)| order))?;
            if self.0.put_order(id, &order, expected).await?.is_some() {
                break order;
            }
        };
        self.0.follow_orders().await?;
        self.0.store.knowledge().notify_nodes("!orders\n".into());
        let first = async {
            loop {
                match self.0.order(id).await? {
                    Some((order, _)) if order.at == given.at && order.passes > given.passes => {
                        return Ok(order);
                    }
                    Some(_) => tokio::time::sleep(LOOK).await,
                    None => return Ok(given.clone()),
                }
            }
        };
        match tokio::time::timeout(FIRST_PASS, first).await {
            Ok(order) => order,
            Err(_) => Ok(self.0.order(id).await?.map_or(given, |(order, _)| order)),
        }
    }
}

pub(super) fn no_such(tenant: &str) -> Error {
    Error::Invalid(format!("there is no tenant {tenant:?}"))
}
