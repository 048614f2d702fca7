//! Which tenants have other resources than before: collected, so that a thousand new tasks are one notification.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The address that stands for the list of a tenant's resources where changes are passed on, also between nodes.
pub const LIST_URI: &str = "resources/list";

/// The most tenants that wait to be told. Beyond it a tenant is told by the next change.
const MOST: usize = 10_000;

/// Tenants that have other resources than before.
#[derive(Debug, Default)]
pub struct ListChanges {
    tenants: Mutex<BTreeSet<String>>,
}

impl ListChanges {
    /// Notes a tenant.
    pub fn add(&self, tenant: &str) {
        let mut tenants = self.tenants.lock();
        if !tenants.contains(tenant) && tenants.len() < MOST {
            tenants.insert(tenant.to_owned());
        }
    }

    /// Those noted since this was last called.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.tenants.lock())
    }
}
