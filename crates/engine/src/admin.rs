//! The operator's operations: tasks of any tenant, stopping a token's work, and suspending, resuming,
//! exporting and erasing tenants.
//!
//! Every method checks access to `AccessKind::Admin`, so that it is granted by name, audited, and refused
//! before anything is looked up. An administrator of a tenant other than `home` reaches only its own tenant;
//! other tenants' data is reported as nonexistent. Ordinary methods give an administrator no additional
//! access: `Caller::sees` makes no exception for the operator.
//!
//! A long operation is an order: a record in the store (`orders.rs`) that every node reads and one of them
//! carries out. After a crash it continues at the next start, and a node that missed the notification finds
//! it by polling.

mod dead_letters;
mod deliveries;
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
    dead_letters::{ListedDeadLetter, list_dead_letters},
    deliveries::{
        DeliveryAct, DeliveryActResult, DeliveryList, DeliveryPage, FailedDeliveryView,
        MAX_DELIVERIES_PER_ACT, WebhookView,
    },
    export::{ExportCursor, ExportItem, ExportPage},
    orders::{OperatorOrder, OrderCounts, OrderState},
    tasks::{AdminList, AdminPage, AdminTask},
    tenants::TenantStatus,
};
use crate::{
    access::{AccessKind, Action, Caller, Grants, HOME_TENANT},
    access_control::AccessRequest,
    engine::Engine,
    error::Error,
};

/// The name of other callers' tasks in grants.
pub const ADMIN_TASKS: &str = "tasks";
/// The name of the server itself in grants: its nodes, its pulse and its configuration.
pub const ADMIN_SERVER: &str = "server";
/// The name of webhooks of other callers' tasks in grants.
pub const ADMIN_WEBHOOKS: &str = "webhooks";
/// The name of tenants in grants.
pub const ADMIN_TENANTS: &str = "tenants";

/// Deletes data of a tenant that a module stores under another name than the tenant's own.
#[async_trait]
pub trait Eraser: Send + Sync {
    /// Deletes all of it; returns how many items. Called again after a crash, until it returns 0.
    async fn erase(&self, tenant: &str) -> Result<u64, Error>;
}

/// The engine's in-memory state of orders.
#[derive(Default)]
pub(crate) struct Admin {
    /// Tenants whose callers are refused.
    closed: RwLock<HashMap<String, OrderState>>,
    /// Held from reading the orders to applying them: of two readers the one with the older orders applies them
    /// first, so a tenant that was just suspended or resumed stays so.
    following: tokio::sync::Mutex<()>,
    /// Wakes the loop that carries out orders.
    wake: Notify,
    /// Orders in progress on this node.
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

    /// Refuses callers of exactly these tenants; returns whether one of them has been erased since the last
    /// call.
    fn close(&self, tenants: HashMap<String, OrderState>) -> bool {
        let mut closed = self.closed.write();
        let erased = |state: Option<&OrderState>| state == Some(&OrderState::Erased);
        let more = tenants.iter().any(|(tenant, state)| erased(Some(state)) && !erased(closed.get(tenant)));
        *closed = tenants;
        more
    }

    /// Triggers a read of the orders.
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
    /// Registers an eraser, which is called when a tenant is erased.
    pub fn add_eraser(&self, eraser: Arc<dyn Eraser>) {
        self.0.admin.erasers.lock().push(eraser);
    }

    /// Refuses callers of a tenant that is suspended or erased, as every method does. For bindings that keep
    /// a connection open.
    pub fn check_tenant(&self, tenant: &str) -> Result<(), Error> {
        self.0.admin.check_open(tenant)
    }

    /// Whether a caller may read what concerns the whole server. It shows what all tenants do together, so an administrator
    /// of a tenant other than `home` may not.
    pub fn may_read_server(caller: &Caller) -> bool {
        caller.tenant() == HOME_TENANT && caller.may(Action::Read, AccessKind::Admin, ADMIN_SERVER)
    }

    /// Checks, and audits, that a caller may read what concerns the whole server; see [`Engine::may_read_server`].
    pub fn allow_server(
        &self,
        caller: &Caller,
        operation: &'static str,
        resource: &str,
    ) -> Result<(), Error> {
        if caller.tenant() == HOME_TENANT {
            return self.allow_admin(caller, Action::Read, ADMIN_SERVER, operation, resource);
        }
        // Refused as without the scope, so that the audit has the refusal.
        let caller = caller.clone().limited_to(Grants::only([]));
        self.allow_admin(&caller, Action::Read, ADMIN_SERVER, operation, resource).map_err(
            |error| match error {
                Error::Forbidden(scope) => Error::Forbidden(format!("{scope} of the tenant {HOME_TENANT}")),
                error => error,
            },
        )
    }

    pub(crate) fn allow_admin(
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

/// Whether an administrator may access that tenant's data.
pub(crate) fn reaches(caller: &Caller, tenant: &str) -> bool {
    caller.tenant() == HOME_TENANT || caller.tenant() == tenant
}
