//! Orders of the operator: what is to be done to a token's work or to a tenant, as a record that every node reads.
//!
//! An order is carried out by one node at a time, under a lease in the record itself. Each step can be repeated, so
//! that a node that finds an order whose lease is over goes on with it.

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
/// What the id of an order about a tenant, or about a token, begins with.
const TENANT: &str = "tenant:";
const TOKEN: &str = "token:";
/// How late a node reads an order of another one at most.
const POLL: Duration = Duration::from_secs(2);
/// For how long after an order something may still come in: a node may believe a token for 5 s, and read orders late.
const SETTLE: Duration = Duration::from_secs(10);
/// How long to wait between two passes.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a node may carry an order out without a word.
const LEASE: Duration = Duration::from_secs(30);
/// How long a stop that is done is still shown.
const SHOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// Orders that are read at a time.
const PAGE: usize = 1_000;

/// What is to be done, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderState {
    /// A token's work is being canceled.
    Stopping,
    /// It is.
    Stopped,
    /// A tenant's callers are refused, and what ran is canceled.
    Suspended,
    /// All that a tenant has is being deleted; its callers are refused.
    Erasing,
    /// It is; its callers are refused until the name is opened again.
    Erased,
}

impl OrderState {
    /// Its name in answers.
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

/// What was done so far. After a crash in the middle the last step may be missing here, never in what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrderCounts {
    /// Tasks whose end was asked for.
    pub canceled: u64,
    /// Tasks that were deleted.
    pub tasks: u64,
    /// Sessions that were deleted.
    pub sessions: u64,
    /// Entries of memory that were deleted.
    pub memory: u64,
    /// Records that were deleted, workflows among them.
    pub records: u64,
    /// Tokens that were deleted.
    pub tokens: u64,
    /// Lines of the audit that name nobody any more.
    pub audit_lines: u64,
    /// Callers whose names were replaced.
    pub callers: u64,
}

/// An order as it is kept. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorOrder {
    /// What is to be done.
    pub state: OrderState,
    /// Since when.
    pub at: Timestamp,
    /// Who gave it.
    pub by: String,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whose token it is, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether nothing is left to do.
    #[serde(default)]
    pub done: bool,
    /// How often all of it was looked through.
    #[serde(default)]
    pub passes: u64,
    /// What was done.
    #[serde(default)]
    pub counts: OrderCounts,
    /// What pseudonyms are made with, while they are made. Without it nobody can tell whom one stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) salt: Option<String>,
    /// Who carries it out, and until when that counts.
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
            tracing::warn!(%error, "the operator's orders could not be read");
        }
        tokio::select! {
            () = engine.admin.wake.notified() => {}
            () = tokio::time::sleep(POLL) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

impl EngineCore {
    /// Reads all orders: refuses whom they are about, and begins what nobody carries out.
    pub(crate) async fn follow_orders(self: &Arc<Self>) -> Result<(), Error> {
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
                        tracing::warn!(%error, order = id, "an order of the operator is not done yet");
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
            // Another order took the place of this one: begun again with that.
            if self.put_order(id, &order, ExpectedVersion::Version(version)).await?.is_some() && order.done {
                tracing::info!(order = id, ?order.counts, "an order of the operator is carried out");
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

    /// Writes an order; its version, or `None` where it is not as expected.
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

    /// Deletes an order, with another record in the same commit where one is given; whether it was at that version.
    pub(super) async fn delete_order(
        &self,
        id: &str,
        version: u64,
        with: Option<RecordWrite>,
    ) -> Result<bool, Error> {
        let delete = self.order_write(id, None, ExpectedVersion::Version(version), None);
        Ok(self.write_order(std::iter::once(delete).chain(with).collect()).await?.is_some())
    }

    /// Deletes what was ordered of tokens of a tenant's callers, or by them; how many orders.
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
            // Its worker may write it meanwhile, which then has to be deleted, too.
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

    /// Writes an order with what belongs to it: the order's version, or `None` where it is not as expected.
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
