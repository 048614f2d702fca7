//! Usage limits of each resource: per owner, per tenant and in total.

use std::collections::BTreeMap;

use super::{MeteredResource, RETRY_AFTER, ResourceUse};
use crate::error::Error;

/// How much of one resource may be used. `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Limit for one owner.
    pub owner: Option<u64>,
    /// Limit for all owners of one tenant together.
    pub tenant: Option<u64>,
    /// Limit for all tenants together.
    pub total: Option<u64>,
}

impl Share {
    /// The error if `amount` more would exceed a limit; it names the limit.
    pub(super) fn refuse(&self, resource: MeteredResource, used: ResourceUse, amount: u64) -> Option<Error> {
        let name = resource.name();
        let over = |limit: Option<u64>, used: u64| limit.filter(|limit| used.saturating_add(amount) > *limit);
        if let Some(limit) = over(self.owner, used.owner) {
            let why = format!("{name}-per-owner: one caller may use {limit} at once");
            return Some(Error::too_fast(&format!("{name}-per-owner"), why, RETRY_AFTER));
        }
        if let Some(limit) = over(self.tenant, used.tenant) {
            let why = format!("{name}-per-tenant: one tenant may use {limit} at once");
            return Some(Error::too_fast(&format!("{name}-per-tenant"), why, RETRY_AFTER));
        }
        let limit = over(self.total, used.total)?;
        let why = format!("max-{name}: there are {limit} for all callers together");
        Some(Error::busy(&format!("max-{name}"), why, RETRY_AFTER))
    }
}

/// The limits of all resources. A resource that is not set has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageLimits(BTreeMap<MeteredResource, Share>);

impl UsageLimits {
    /// Sets the limits of one resource.
    pub fn set(&mut self, resource: MeteredResource, share: Share) {
        self.0.insert(resource, share);
    }

    /// The limits of one resource.
    pub fn of(&self, resource: MeteredResource) -> Share {
        self.0.get(&resource).copied().unwrap_or_default()
    }
}
