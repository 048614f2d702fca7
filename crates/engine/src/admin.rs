//! What the operator does: tasks of any tenant, the stop of a token's work, and tenants that are suspended, resumed,
//! exported and erased.
//!
//! Every method asks the guard for `AccessKind::Admin`, so that it is granted by name, audited, and refused before anything
//! is looked up. An administrator of another tenant than `home` reaches its own tenant only; what lies beyond is
//! answered as what does not exist. Ordinary methods see no more than before: `Caller::sees` knows no operator.
//!
//! What takes long is an order: a record of the store (`orders.rs`) that every node reads and one of them carries out,
//! so that a crash in the middle goes on with the next start, and a node that was told nothing finds it by polling.

mod erase;
mod export;
mod orders;
mod salt;
mod stop;
mod tasks;
mod tenants;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

pub(crate) use self::orders::orders_loop;
pub use self::{
    export::{ExportCursor, ExportItem, ExportPage},
    orders::{OperatorOrder, OrderCounts, OrderState},
    tasks::{AdminList, AdminPage, AdminTask},
    tenants::TenantStatus,
};
use crate::{
    access::{AccessKind, Action, Caller, HOME_TENANT},
    access_control::AccessRequest,
    engine::Engine,
    error::Error,
};

/// What grants call other callers' tasks.
pub const ADMIN_TASKS: &str = "tasks";
/// What grants call tenants.
pub const ADMIN_TENANTS: &str = "tenants";

/// Deletes what a module keeps of a tenant under another name than the tenant's own.
#[async_trait]
pub trait Eraser: Send + Sync {
    /// Deletes all of it; how many things. Called again after a crash, until it finds nothing.
    async fn erase(&self, tenant: &str) -> Result<u64, Error>;
}

/// What an engine knows of orders.
#[derive(Default)]
pub(crate) struct Admin {
    /// Tenants whose callers are refused.
    closed: RwLock<HashMap<String, OrderState>>,
    /// Wakes the loop that carries orders out.
    wake: Notify,
    /// Orders that are carried out here now.
    under_way: Mutex<HashSet<String>>,
    erasers: Mutex<Vec<Arc<dyn Eraser>>>,
    /// Salts of tenants whose name was used before.
    salts: salt::TenantSalts,
}

impl Admin {
    /// Refuses callers of a tenant that is suspended or erased.
    pub(crate) fn check_open(&self, tenant: &str) -> Result<(), Error> {
        let closed = self.closed.read();
        match closed.get(tenant) {
            None => Ok(()),
            Some(OrderState::Suspended) => Err(Error::Suspended(tenant.to_owned(), "suspended")),
            Some(_) => Err(Error::Suspended(tenant.to_owned(), "erased")),
        }
    }

    /// Refuses callers of these tenants and of no others; whether one of them has been erased since.
    fn close(&self, tenants: HashMap<String, OrderState>) -> bool {
        let mut closed = self.closed.write();
        let erased = |state: Option<&OrderState>| state == Some(&OrderState::Erased);
        let more = tenants.iter().any(|(tenant, state)| erased(Some(state)) && !erased(closed.get(tenant)));
        *closed = tenants;
        more
    }

    /// Has orders read now.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn lock_under_way(&self) -> MutexGuard<'_, HashSet<String>> {
        self.under_way.lock()
    }

    fn erasers(&self) -> Vec<Arc<dyn Eraser>> {
        self.erasers.lock().clone()
    }
}

impl Engine {
    /// Has that asked, too, when a tenant is erased.
    pub fn add_eraser(&self, eraser: Arc<dyn Eraser>) {
        self.0.admin.erasers.lock().push(eraser);
    }

    /// Refuses callers of a tenant that is suspended or erased, as every method does: for bindings that keep a
    /// connection open.
    pub fn check_tenant(&self, tenant: &str) -> Result<(), Error> {
        self.0.admin.check_open(tenant)
    }

    fn allow_admin(
        &self,
        caller: &Caller,
        action: Action,
        name: &str,
        operation: &'static str,
        resource: &str,
    ) -> Result<(), Error> {
        self.allow(
            caller,
            &AccessRequest { action, kind: AccessKind::Admin, name, operation, resource: &resource },
        )
    }
}

/// Whether an administrator reaches things of that tenant.
fn reaches(caller: &Caller, tenant: &str) -> bool {
    caller.tenant() == HOME_TENANT || caller.tenant() == tenant
}
