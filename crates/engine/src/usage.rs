//! A ledger of what owners and tenants use on this node: running and waiting tasks, streams, sessions, scans,
//! lists, bytes.
//!
//! A permit counts from the moment it is taken until it is dropped. A limit is per owner, per tenant or
//! global; a request over a limit is refused with the limit's name. The ledger is in memory: what outlives a
//! process (stored bytes, webhooks, tokens) is measured from the store periodically (`stored.rs`,
//! `engine/measure.rs`), per tenant.

mod limits;
mod stored;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, futures::Notified};

pub use self::limits::{Share, UsageLimits};
pub(crate) use self::stored::Measurement;
use self::stored::StoredAmounts;
use crate::{
    access::{Caller, tenant_of},
    clock::Timestamp,
    error::Error,
};

/// The retry delay suggested to a caller that is over its limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A resource whose use is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MeteredResource {
    /// Tasks that hold a slot on this node.
    RunningTasks,
    /// Tasks that wait for a slot.
    WaitingTasks,
    /// Streams that clients have open.
    Streams,
    /// Client sessions.
    Sessions,
    /// Searches of the memory bank in progress.
    Scans,
    /// Lists in progress that read many rows: overviews and selections of tasks, failed deliveries, the audit.
    Lists,
    /// Bytes of requests that were read, and of responses not sent yet.
    BytesInFlight,
    /// Bytes in the store.
    StoredBytes,
    /// Registered webhooks.
    Webhooks,
    /// Issued tokens.
    Tokens,
}

impl MeteredResource {
    /// All resources, in the order of their counters.
    pub const ALL: [Self; 10] = [
        Self::RunningTasks,
        Self::WaitingTasks,
        Self::Streams,
        Self::Sessions,
        Self::Scans,
        Self::Lists,
        Self::BytesInFlight,
        Self::StoredBytes,
        Self::Webhooks,
        Self::Tokens,
    ];

    /// The name in limits, reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::RunningTasks => "running-tasks",
            Self::WaitingTasks => "waiting-tasks",
            Self::Streams => "streams",
            Self::Sessions => "sessions",
            Self::Scans => "scans",
            Self::Lists => "lists",
            Self::BytesInFlight => "bytes-in-flight",
            Self::StoredBytes => "stored-bytes",
            Self::Webhooks => "webhooks",
            Self::Tokens => "tokens",
        }
    }

    /// The unit of a stored resource.
    fn unit(self) -> &'static str {
        match self {
            Self::StoredBytes => "bytes",
            other => other.name(),
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The amount used of each resource.
type ResourceCounts = [u64; MeteredResource::ALL.len()];

/// The current use of one resource, against which a request for more is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceUse {
    /// The use by the caller's owner.
    pub owner: u64,
    /// The use by all owners of its tenant.
    pub tenant: u64,
    /// The use by all tenants.
    pub total: u64,
}

/// What a tenant uses, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantUsage {
    /// The tenant's name.
    pub tenant: String,
    /// How many of its owners use something now.
    pub owners: usize,
    counts: ResourceCounts,
}

impl TenantUsage {
    /// The report of a tenant that uses nothing.
    pub fn none(tenant: &str) -> Self {
        Self { tenant: tenant.to_owned(), owners: 0, counts: ResourceCounts::default() }
    }

    /// How much it uses of one resource.
    pub fn of(&self, resource: MeteredResource) -> u64 {
        self.counts[resource.index()]
    }
}

/// The in-memory counters of what owners and tenants use.
#[derive(Debug, Default)]
pub struct UsageLedger {
    limits: UsageLimits,
    books: Mutex<UsageCounts>,
    stored: Mutex<StoredAmounts>,
    /// Wakes callers that wait for a release.
    released: Notify,
}

/// The counters. An owner or tenant that uses nothing has no entry, which bounds the maps by what is in use.
#[derive(Debug, Default)]
struct UsageCounts {
    owners: HashMap<Arc<str>, ResourceCounts>,
    tenants: HashMap<Arc<str>, ResourceCounts>,
    total: ResourceCounts,
}

impl UsageLedger {
    /// An empty ledger with these limits.
    pub fn new(limits: UsageLimits) -> Arc<Self> {
        Arc::new(Self { limits, ..Self::default() })
    }

    /// Takes one unit of a resource for a caller, until the permit is dropped.
    pub fn take(self: &Arc<Self>, caller: &Caller, resource: MeteredResource) -> Result<UsagePermit, Error> {
        self.take_amount(caller.owner(), resource, 1)
    }

    /// Takes an amount of a resource for an owner, until the permit is dropped.
    pub fn take_amount(
        self: &Arc<Self>,
        owner: &str,
        resource: MeteredResource,
        amount: u64,
    ) -> Result<UsagePermit, Error> {
        let mut refused = None;
        let permit = self.take_if(owner, resource, amount, |used| {
            refused = self.limits.of(resource).refuse(resource, used, amount);
            refused.is_none()
        });
        let full = || Error::Internal("a limit refused without a reason".into());
        permit.ok_or_else(|| refused.unwrap_or_else(full))
    }

    /// Like [`UsageLedger::take_amount`]; if the limit is reached, waits up to a deadline for a release.
    pub async fn acquire(
        self: &Arc<Self>,
        owner: &str,
        resource: MeteredResource,
        amount: u64,
        patience: Duration,
    ) -> Result<UsagePermit, Error> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            let refused = match self.take_amount(owner, resource, amount) {
                Ok(permit) => return Ok(permit),
                Err(refused) => refused,
            };
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return Err(refused);
            }
        }
    }

    /// Takes an amount if a rule allows it. The rule sees the use before; the ledger stays locked meanwhile.
    pub fn take_if(
        self: &Arc<Self>,
        owner: &str,
        resource: MeteredResource,
        amount: u64,
        fits: impl FnOnce(ResourceUse) -> bool,
    ) -> Option<UsagePermit> {
        let mut books = self.books.lock();
        if !fits(books.used(owner, resource)) {
            return None;
        }
        let owner = books.add(owner, resource, amount);
        Some(UsagePermit { ledger: Arc::clone(self), owner, resource, amount })
    }

    /// Completes at the next release of anything after it is enabled.
    pub(crate) fn released(&self) -> Notified<'_> {
        self.released.notified()
    }

    /// How much of a resource is used, by owner, tenant and in total.
    pub fn used(&self, owner: &str, resource: MeteredResource) -> ResourceUse {
        self.books.lock().used(owner, resource)
    }

    /// Lets a tenant store an additional amount, or refuses it with the limit's name. The amount counts until
    /// the next measurement replaces it with what the store really holds.
    pub fn accept_stored(&self, tenant: &str, resource: MeteredResource, amount: u64) -> Result<(), Error> {
        self.check_stored(tenant, resource, amount)?;
        self.add_stored(tenant, resource, amount);
        Ok(())
    }

    /// Refuses, with the limit's name, if the tenant may not store this additional amount.
    pub fn check_stored(&self, tenant: &str, resource: MeteredResource, amount: u64) -> Result<(), Error> {
        if self.limits.of(resource).tenant.is_none() {
            return Ok(());
        }
        let has = self.lock_stored().of(tenant, resource);
        self.check_counted(tenant, resource, has, amount)
    }

    /// Like [`UsageLedger::check_stored`], where the caller has just counted what the tenant has.
    pub fn check_counted(
        &self,
        tenant: &str,
        resource: MeteredResource,
        has: u64,
        amount: u64,
    ) -> Result<(), Error> {
        let Some(limit) = self.limits.of(resource).tenant else { return Ok(()) };
        if has.saturating_add(amount) <= limit {
            return Ok(());
        }
        let (name, unit) = (resource.name(), resource.unit());
        let why = format!(
            "{name}-per-tenant: the tenant {tenant:?} has {has} {unit} and may have {limit}: delete some, which counts \
             after the next measurement, or ask the operator for more"
        );
        Err(Error::limit(&format!("{name}-per-tenant"), why))
    }

    /// Counts what a tenant has stored, until the next measurement includes it.
    pub fn add_stored(&self, tenant: &str, resource: MeteredResource, amount: u64) {
        self.lock_stored().accept(tenant, resource, amount);
    }

    /// When tenants' storage was last measured; `None` before the first measurement.
    pub fn measured_at(&self) -> Option<Timestamp> {
        self.lock_stored().measured_at()
    }

    pub(crate) fn begin_measurement(&self) {
        self.lock_stored().begin_measurement();
    }

    pub(crate) fn end_measurement(&self, measured: Measurement, at: Timestamp) {
        self.lock_stored().end_measurement(measured, at);
    }

    /// What each tenant uses on this node, and what it stores, sorted by name.
    pub fn report(&self) -> Vec<TenantUsage> {
        let mut report: BTreeMap<String, TenantUsage> = BTreeMap::new();
        {
            let books = self.books.lock();
            for (tenant, counts) in &books.tenants {
                report.insert(
                    tenant.to_string(),
                    TenantUsage { tenant: tenant.to_string(), owners: 0, counts: *counts },
                );
            }
            for owner in books.owners.keys() {
                if let Some(usage) = report.get_mut(tenant_of(owner)) {
                    usage.owners += 1;
                }
            }
        }
        let stored = self.lock_stored();
        for (tenant, counts) in stored.by_tenant() {
            let usage = report.entry(tenant.to_owned()).or_insert_with(|| TenantUsage::none(tenant));
            usage.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        report.into_values().collect()
    }

    /// The limits that the ledger enforces.
    pub fn limits(&self) -> &UsageLimits {
        &self.limits
    }

    fn release(&self, owner: &Arc<str>, resource: MeteredResource, amount: u64) {
        self.books.lock().subtract(owner, resource, amount);
        self.released.notify_waiters();
    }

    fn lock_stored(&self) -> MutexGuard<'_, StoredAmounts> {
        self.stored.lock()
    }
}

impl UsageCounts {
    fn used(&self, owner: &str, resource: MeteredResource) -> ResourceUse {
        let at = resource.index();
        ResourceUse {
            owner: self.owners.get(owner).map_or(0, |counts| counts[at]),
            tenant: self.tenants.get(tenant_of(owner)).map_or(0, |counts| counts[at]),
            total: self.total[at],
        }
    }

    /// Returns the ledger's own copy of the owner's name, which permits of one owner share.
    fn add(&mut self, owner: &str, resource: MeteredResource, amount: u64) -> Arc<str> {
        let at = resource.index();
        let name = match self.owners.get_key_value(owner) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(owner),
        };
        self.owners.entry(Arc::clone(&name)).or_default()[at] += amount;
        match self.tenants.get_mut(tenant_of(owner)) {
            Some(counts) => counts[at] += amount,
            None => {
                let mut counts = ResourceCounts::default();
                counts[at] = amount;
                self.tenants.insert(Arc::from(tenant_of(owner)), counts);
            }
        }
        self.total[at] += amount;
        name
    }

    fn subtract(&mut self, owner: &Arc<str>, resource: MeteredResource, amount: u64) {
        let at = resource.index();
        let less = |counts: &mut ResourceCounts| {
            counts[at] = counts[at].saturating_sub(amount);
            counts.iter().all(|count| *count == 0)
        };
        if self.owners.get_mut(owner).is_some_and(less) {
            self.owners.remove(owner);
        }
        let tenant = tenant_of(owner);
        if self.tenants.get_mut(tenant).is_some_and(less) {
            self.tenants.remove(tenant);
        }
        self.total[at] = self.total[at].saturating_sub(amount);
    }
}

/// An amount of a resource in use. Dropping it releases the amount.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub struct UsagePermit {
    ledger: Arc<UsageLedger>,
    owner: Arc<str>,
    resource: MeteredResource,
    amount: u64,
}

impl UsagePermit {
    /// The amount that it holds.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The owner for whom it was taken.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Increases the amount; if that is refused, leaves it unchanged.
    pub fn grow(&mut self, by: u64) -> Result<(), Error> {
        let mut more = self.ledger.take_amount(&self.owner, self.resource, by)?;
        // Counted in this permit from now on.
        self.amount += std::mem::take(&mut more.amount);
        Ok(())
    }

    /// Releases a part of the amount.
    pub fn shrink(&mut self, by: u64) {
        let by = by.min(self.amount);
        self.amount -= by;
        self.ledger.release(&self.owner, self.resource, by);
    }
}

impl Drop for UsagePermit {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.ledger.release(&self.owner, self.resource, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(share: Share) -> Arc<UsageLedger> {
        let mut limits = UsageLimits::default();
        limits.set(MeteredResource::Streams, share);
        UsageLedger::new(limits)
    }

    #[test]
    fn an_owner_a_tenant_and_all_together_have_each_their_limit() {
        let ledger = ledger(Share { owner: Some(2), tenant: Some(3), total: Some(4) });
        let take = |owner: &str| ledger.take(&Caller::named(owner), MeteredResource::Streams);
        let mut held = vec![take("acme/ada").unwrap(), take("acme/ada").unwrap()];
        let refused = take("acme/ada").unwrap_err();
        assert!(matches!(refused, Error::TooFast { .. }), "{refused}");
        assert!(refused.to_string().contains("streams-per-owner"), "{refused}");
        held.push(take("acme/bob").unwrap());
        assert!(take("acme/bob").unwrap_err().to_string().contains("streams-per-tenant"));
        held.push(take("beta/eve").unwrap());
        let refused = take("beta/eve").unwrap_err();
        assert!(matches!(refused, Error::Busy { .. }), "{refused}");
        assert!(refused.to_string().contains("max-streams"), "{refused}");
        drop(held.remove(0));
        held.push(take("beta/eve").unwrap());
        drop(held);
        assert_eq!(ledger.report(), [], "what is given back leaves nothing behind");
        assert!(ledger.books.lock().owners.is_empty());
    }

    #[test]
    fn a_permit_of_many_grows_and_shrinks_and_is_counted_once() {
        let ledger = ledger(Share { owner: Some(10), ..Share::default() });
        let mut permit = ledger.take_amount("ada", MeteredResource::Streams, 4).unwrap();
        permit.grow(6).unwrap();
        assert!(permit.grow(1).is_err());
        permit.shrink(3);
        assert_eq!(ledger.used("ada", MeteredResource::Streams).owner, 7);
        assert_eq!(ledger.report()[0].of(MeteredResource::Streams), 7);
        drop(permit);
        assert_eq!(ledger.used("ada", MeteredResource::Streams).total, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_over_its_share_waits_for_its_own_and_not_for_ever() {
        let ledger = ledger(Share { owner: Some(1), ..Share::default() });
        let held = ledger.take_amount("ada", MeteredResource::Streams, 1).unwrap();
        let wait = |owner: &'static str| {
            let ledger = Arc::clone(&ledger);
            async move { ledger.acquire(owner, MeteredResource::Streams, 1, Duration::from_secs(5)).await }
        };
        assert!(wait("ada").await.is_err(), "the deadline passed");
        assert!(wait("bob").await.is_ok());
        let waiting = tokio::spawn(wait("ada"));
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap().is_ok());
    }

    #[test]
    fn a_tenant_that_stores_as_much_as_it_may_is_refused_and_others_are_not() {
        let mut limits = UsageLimits::default();
        limits.set(MeteredResource::StoredBytes, Share { tenant: Some(100), ..Share::default() });
        let ledger = UsageLedger::new(limits);
        let accept = |tenant: &str, bytes| ledger.accept_stored(tenant, MeteredResource::StoredBytes, bytes);
        accept("acme", 60).unwrap();
        let refused = accept("acme", 41).unwrap_err();
        assert!(matches!(refused, Error::Limit(_)), "{refused}");
        for part in ["stored-bytes-per-tenant", "\"acme\" has 60 bytes and may have 100"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        accept("acme", 40).unwrap();
        accept("other", 100).unwrap();
        ledger.accept_stored("acme", MeteredResource::Webhooks, 1_000_000).unwrap();
        let held = ledger.take(&Caller::named("acme/ada"), MeteredResource::Streams).unwrap();
        let report = ledger.report();
        let shown: Vec<_> = report
            .iter()
            .map(|one| {
                (
                    &*one.tenant,
                    one.owners,
                    one.of(MeteredResource::StoredBytes),
                    one.of(MeteredResource::Streams),
                )
            })
            .collect();
        assert_eq!(shown, [("acme", 1, 100, 1), ("other", 0, 100, 0)]);
        drop(held);
        // The next measurement notices what was deleted.
        ledger.begin_measurement();
        ledger.end_measurement(Measurement::default(), Timestamp(1));
        assert_eq!((ledger.report(), ledger.measured_at()), (vec![], Some(Timestamp(1))));
        accept("acme", 100).unwrap();
    }
}
