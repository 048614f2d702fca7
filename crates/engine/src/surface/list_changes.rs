//! The tenants whose list of resources has changed: debounced, so that a thousand new tasks cause one
//! notification.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The URI that stands for a tenant's list of resources in change notifications, also between nodes.
pub const LIST_URI: &str = "resources/list";

/// The most tenants that wait for a notification. Beyond it a tenant is notified at its next change.
const MOST: usize = 10_000;

/// Tenants whose list of resources has changed.
#[derive(Debug, Default)]
pub struct ListChanges {
    tenants: Mutex<BTreeSet<String>>,
}

impl ListChanges {
    /// Marks a tenant as changed.
    pub fn add(&self, tenant: &str) {
        let mut tenants = self.tenants.lock();
        if !tenants.contains(tenant) && tenants.len() < MOST {
            tenants.insert(tenant.to_owned());
        }
    }

    /// Takes the tenants marked since the last call.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.tenants.lock())
    }
}
