//! What bindings and flows read and write beside tasks: sessions, dead letters, the audit log, the store's health.
//!
//! The store itself stays inside the engine, so that nothing can write around its permission checks and its caches.

use std::sync::Arc;

use super::{Engine, EngineCore};
use crate::{
    AccessKind, AccessRequest, Action, Caller, Error,
    access::HOME_TENANT,
    admin::{ListedDeadLetter, list_dead_letters},
    knowledge::{AuditPage, AuditQuery},
    outbox::{Outbox, OutboxOptions, WebhookSender},
    store::{SessionStore, StoreError, TaskKey},
    task::{State, TaskId},
    usage::{MeteredResource, UsagePermit},
};

impl EngineCore {
    /// A permit to read the rows of one list. A caller has one, so that it cannot occupy all connections that lists are
    /// read on: its next list waits for it.
    pub(crate) async fn list_permit(&self, caller: &Caller) -> Result<UsagePermit, Error> {
        let within = self.options.limits.list_wait;
        self.usage.acquire(caller.owner(), MeteredResource::Lists, 1, within).await
    }
}

impl Engine {
    /// The sessions of clients.
    pub fn sessions(&self) -> &dyn SessionStore {
        &*self.0.store
    }

    /// Whether other nodes use the same store.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    /// Whether the store can take new work now; [`StoreError::Full`] while its disk is full.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.0.store.ready().await
    }

    /// The state of a task, for code that acts for the server and not for a caller. `None` if it is deleted.
    pub async fn state_of(&self, task: TaskId) -> Result<Option<State>, Error> {
        Ok(self.0.store.row(&TaskKey::Id(task)).await?.map(|row| row.state))
    }

    /// The name of the agent that called this task as a part of its own work.
    pub async fn calling_agent(&self, task: TaskId) -> Result<Option<String>, Error> {
        let row = self.0.store.row(&TaskKey::Id(task)).await?;
        let Some(parent) = row.and_then(|row| row.parent) else { return Ok(None) };
        Ok(self.0.store.row(&TaskKey::Id(parent)).await?.map(|row| row.agent))
    }

    /// Webhook deliveries that were given up, the newest first. For the operator.
    pub async fn dead_letters(&self, limit: usize) -> Result<Vec<ListedDeadLetter>, StoreError> {
        list_dead_letters(&*self.0.store, &self.0.options.access.redactor, limit).await
    }

    /// Makes one dead letter due again, or all of them, and wakes the outbox; returns how many. For the operator.
    pub async fn replay_dead_letters(&self, delivery: Option<&str>) -> Result<u64, StoreError> {
        let replayed = self.0.store.replay_dead_letters(delivery, self.0.clock.now()).await?;
        self.0.outbox.notify_one();
        Ok(replayed)
    }

    /// A page of the audit log, newest first, for which at most `Limits::audit_lines_read` lines are read. A caller of another
    /// tenant than the home tenant sees the entries of its own tenant only.
    pub async fn audit_log(&self, caller: &Caller, mut query: AuditQuery) -> Result<AuditPage, Error> {
        let (action, kind, operation) = (Action::Read, AccessKind::Admin, "audit.read");
        self.allow(
            caller,
            &AccessRequest { action, kind, name: "audit", operation, resource: &"audit://log" },
        )?;
        if caller.tenant() != HOME_TENANT {
            if query.tenant.as_deref().is_some_and(|tenant| tenant != caller.tenant()) {
                return Ok(AuditPage::default());
            }
            query.tenant = Some(caller.tenant().to_owned());
        }
        query.max_read = Some(self.0.options.limits.audit_lines_read);
        let _permit = self.0.list_permit(caller).await?;
        self.flush_audit().await;
        Ok(self.0.store.knowledge().audit(&query).await?)
    }

    /// The outbox of this engine's webhooks; the caller runs it.
    pub fn new_outbox(&self, sender: Arc<dyn WebhookSender>, options: OutboxOptions) -> Outbox {
        let (store, clock) = (Arc::clone(&self.0.store), Arc::clone(&self.0.clock));
        Outbox::new(store, clock, sender, self.0.node, Arc::clone(&self.0.outbox), options)
    }

    /// The store behind the engine, for tests that compare it with what the engine says. Product code goes through the
    /// engine.
    #[cfg(feature = "testing")]
    pub fn store_for_tests(&self) -> &Arc<dyn crate::store::Store> {
        &self.0.store
    }

    /// How many tasks have a follower on this node, or are being created with one.
    #[cfg(feature = "testing")]
    pub fn followed_for_tests(&self) -> usize {
        self.0.hub.count_channels()
    }
}
