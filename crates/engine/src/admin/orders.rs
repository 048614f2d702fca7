//! The operator's orders about a token's work or a tenant: records that every node reads.
//!
//! One node at a time carries out an order, under a lease in the record itself. Each step can be repeated, so
//! another node continues an order whose lease has expired.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::stop::CancelTarget;
use crate::{
    access::{HOME_TENANT, tenant_of},
    clock::Timestamp,
    engine::{EngineCore, wait_until_closing},
    error::Error,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::NodeId,
};

/// The kind of the records.
const KIND: &str = "operator.order";
/// The id prefixes of orders about a tenant, and about a token.
const TENANT: &str = "tenant:";
const TOKEN: &str = "token:";
/// The poll interval: the longest delay until a node sees another node's order.
const POLL: Duration = Duration::from_secs(2);
/// How long after an order new work may still arrive: a node may cache a token for 5 s, and read orders late.
const SETTLE: Duration = Duration::from_secs(10);
/// The pause between two passes.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a node may carry out an order without renewing its lease.
const LEASE: Duration = Duration::from_secs(30);
/// How long a finished stop is still listed.
const SHOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// The page size when reading orders.
const PAGE: usize = 1_000;

/// The kind and the progress of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderState {
    /// A token's work is being canceled.
    Stopping,
    /// A token's work has been canceled.
    Stopped,
    /// A tenant's callers are refused, and its running tasks are canceled.
    Suspended,
    /// All data of a tenant is being deleted; its callers are refused.
    Erasing,
    /// All data of a tenant is deleted; its callers are refused until the name is opened again.
    Erased,
}

impl OrderState {
    /// The name in responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Suspended => "suspended",
            Self::Erasing => "erasing",
            Self::Erased => "erased",
        }
    }
}

/// What was done so far. After a crash the counts may lack the last step, although it was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrderCounts {
    /// Tasks whose cancelling was requested.
    pub canceled: u64,
    /// Tasks that were deleted.
    pub tasks: u64,
    /// Sessions that were deleted.
    pub sessions: u64,
    /// Memory entries that were deleted.
    pub memory: u64,
    /// Records that were deleted, including workflows.
    pub records: u64,
    /// Tokens that were deleted.
    pub tokens: u64,
    /// Audit entries whose personal data was removed.
    pub audit_lines: u64,
    /// Callers whose names were replaced by pseudonyms.
    pub callers: u64,
}

/// An order as stored. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorOrder {
    /// What is to be done, or was done.
    pub state: OrderState,
    /// When the state was entered.
    pub at: Timestamp,
    /// The name of the caller that gave the order.
    pub by: String,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The owner of the token, for an order about a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether nothing is left to do.
    #[serde(default)]
    pub done: bool,
    /// The number of complete passes over the data.
    #[serde(default)]
    pub passes: u64,
    /// What was done so far.
    #[serde(default)]
    pub counts: OrderCounts,
    /// The salt of the pseudonyms, stored only while they are made. Without it a pseudonym cannot be traced
    /// back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) salt: Option<String>,
    /// The node that carries it out, and the end of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<(NodeId, Timestamp)>,
}

impl OperatorOrder {
    pub(super) fn new(state: OrderState, at: Timestamp, by: &str) -> Self {
        Self {
            state,
            at,
            by: by.to_owned(),
            reason: None,
            owner: None,
            done: false,
            passes: 0,
            counts: OrderCounts::default(),
            salt: None,
            worker: None,
        }
    }

    fn read(record: &Record) -> Result<Self, Error> {
        serde_json::from_slice(&record.body)
            .map_err(|error| Error::Internal(format!("order {:?} is damaged: {error}", record.id)))
    }
}

/// Reads orders and carries them out, until the engine stops.
pub(crate) async fn orders_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        if let Err(error) = engine.follow_orders().await {
            tracing::warn!(%error, "could not read the operator's orders; retrying");
        }
        tokio::select! {
            () = engine.admin.wake.notified() => {}
            () = tokio::time::sleep(POLL) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

impl EngineCore {
    /// Reads all orders: refuses callers of the tenants concerned, and begins orders that no node carries
    /// out.
    pub(crate) async fn follow_orders(self: &Arc<Self>) -> Result<(), Error> {
        let _following = self.admin.following.lock().await;
        let mut shut = HashMap::new();
        let now = self.clock.now();
        for (id, order) in self.all_orders().await? {
            if let Some(tenant) = id.strip_prefix(TENANT) {
                shut.insert(tenant.to_owned(), order.state);
            }
            let held = order.worker.is_some_and(|(node, until)| node != self.node && until > now);
            if !order.done && !held && self.admin.lock_under_way().insert(id.clone()) {
                let engine = Arc::clone(self);
                tokio::spawn(async move {
                    if let Err(error) = engine.carry_out(&id).await {
                        tracing::warn!(%error, order = id, "an operator's order failed and is retried");
                    }
                    engine.admin.lock_under_way().remove(&id);
                });
            }
        }
        self.admin.salts.replace(self.read_tenant_salts().await?);
        if self.admin.close(shut) {
            self.store.tenants().forget_names().await;
        }
        Ok(())
    }

    async fn carry_out(self: &Arc<Self>, id: &str) -> Result<(), Error> {
        let mut closing = self.closing();
        loop {
            let Some((mut order, version)) = self.order(id).await? else { return Ok(()) };
            let now = self.clock.now();
            if order.done || order.worker.is_some_and(|(node, until)| node != self.node && until > now) {
                return Ok(());
            }
            order.worker = Some((self.node, now.after(LEASE)));
            let Some(version) = self.put_order(id, &order, ExpectedVersion::Version(version)).await? else {
                continue;
            };
            let settled = self.clock.now() >= order.at.after(SETTLE);
            let empty = match (id.strip_prefix(TOKEN), id.strip_prefix(TENANT)) {
                (Some(token), _) => {
                    let owner = order.owner.clone().unwrap_or_default();
                    let pass = self.cancel_all(&CancelTarget::Token { owner: &owner, id: token }).await?;
                    order.counts.canceled += pass.canceled;
                    if pass.found == 0 && settled {
                        order.state = OrderState::Stopped;
                    }
                    pass.found == 0
                }
                (None, Some(tenant)) if order.state == OrderState::Suspended => {
                    let pass = self.cancel_all(&CancelTarget::Running(tenant)).await?;
                    order.counts.canceled += pass.canceled;
                    pass.found == 0
                }
                (None, Some(tenant)) => self.erase_pass(tenant, &mut order).await?,
                (None, None) => return Ok(()),
            };
            order.passes += 1;
            order.done = empty && settled;
            if order.done {
                order.worker = None;
                if order.state == OrderState::Erasing {
                    // Once, at the end: it reads the whole index.
                    self.store.tenants().purge_deleted_words().await?;
                    (order.state, order.salt) = (OrderState::Erased, None);
                }
            }
            // Another order has replaced this one: start over with that.
            if self.put_order(id, &order, ExpectedVersion::Version(version)).await?.is_some() && order.done {
                tracing::info!(order = id, ?order.counts, "an operator's order is complete");
                self.admin.wake.notify_one();
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = wait_until_closing(&mut closing) => return Ok(()),
            }
        }
    }

    /// All orders, with their ids.
    pub(super) async fn all_orders(&self) -> Result<Vec<(String, OperatorOrder)>, Error> {
        let (mut all, mut after) = (vec![], String::new());
        loop {
            let query = RecordQuery {
                tenant: Some(HOME_TENANT.to_owned()),
                kind: KIND.to_owned(),
                prefix: String::new(),
                after,
                limit: PAGE,
                now: self.clock.now(),
            };
            let page = self.store.knowledge().records(&query).await?;
            let more = page.len() == PAGE;
            for record in page {
                all.push((record.id.clone(), OperatorOrder::read(&record)?));
            }
            match all.last().filter(|_| more) {
                Some((last, _)) => after = last.clone(),
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn order(&self, id: &str) -> Result<Option<(OperatorOrder, u64)>, Error> {
        let key = RecordKey::new(HOME_TENANT, KIND, id);
        let found = self.store.knowledge().record(&key, self.clock.now()).await?;
        found.map(|record| Ok((OperatorOrder::read(&record)?, record.version))).transpose()
    }

    /// Writes an order; returns its version, or `None` if the precondition does not hold.
    pub(super) async fn put_order(
        &self,
        id: &str,
        order: &OperatorOrder,
        expected: ExpectedVersion,
    ) -> Result<Option<u64>, Error> {
        let body = serde_json::to_vec(order).map_err(|error| Error::Internal(error.to_string()))?;
        let now = self.clock.now();
        let expires_at = (order.state == OrderState::Stopped).then(|| now.after(SHOWN));
        self.write_order(vec![self.order_write(id, Some(body), expected, expires_at)]).await
    }

    /// Deletes an order, and optionally writes another record in the same commit; returns whether it was at
    /// that version.
    pub(super) async fn delete_order(
        &self,
        id: &str,
        version: u64,
        with: Option<RecordWrite>,
    ) -> Result<bool, Error> {
        let delete = self.order_write(id, None, ExpectedVersion::Version(version), None);
        Ok(self.write_order(std::iter::once(delete).chain(with).collect()).await?.is_some())
    }

    /// Deletes the orders about tokens of a tenant's callers, or given by them; returns how many.
    pub(super) async fn delete_token_orders(&self, tenant: &str) -> Result<u64, Error> {
        let mut deleted = 0;
        for (id, listed) in self.all_orders().await? {
            let names = |order: &OperatorOrder| {
                let owner = order.owner.as_deref().is_some_and(|owner| tenant_of(owner) == tenant);
                owner || tenant_of(&order.by) == tenant
            };
            if !id.starts_with(TOKEN) || !names(&listed) {
                continue;
            }
            // Its worker may write it meanwhile; then that version is deleted, too.
            while let Some((order, version)) = self.order(&id).await? {
                if !names(&order) {
                    break;
                }
                if self.delete_order(&id, version, None).await? {
                    deleted += 1;
                    break;
                }
            }
        }
        Ok(deleted)
    }

    fn order_write(
        &self,
        id: &str,
        body: Option<Vec<u8>>,
        expected: ExpectedVersion,
        expires_at: Option<Timestamp>,
    ) -> RecordWrite {
        let key = RecordKey::new(HOME_TENANT, KIND, id);
        RecordWrite { key, body: body.map(Into::into), expected, expires_at, now: self.clock.now() }
    }

    /// Writes an order with the records that belong to it; returns the order's version, or `None` if the
    /// precondition does not hold.
    async fn write_order(&self, writes: Vec<RecordWrite>) -> Result<Option<u64>, Error> {
        match self.store.knowledge().write_records(writes).await {
            Ok(versions) => Ok(versions.first().copied()),
            Err(RecordError::Moved { .. }) => Ok(None),
            Err(RecordError::Store(error)) => Err(error.into()),
        }
    }
}

/// The id of the order about a tenant.
pub(super) fn about_tenant(tenant: &str) -> String {
    format!("{TENANT}{tenant}")
}

/// The id of the order about a token.
pub(super) fn about_token(token: &str) -> String {
    format!("{TOKEN}{token}")
}
