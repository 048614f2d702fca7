//! The background loops of an engine: heartbeat, notifications of other nodes, follower polling, usage exchange,
//! list changes, the audit, the deletion of expired data, and the end of tasks that nobody answers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{EngineCore, retention::RetentionWalk, wait_until_closing};
use crate::{
    commit::{Decision, Effect, Writer},
    error::Error,
    memory::data_uri,
    store::{Change, CommitError, Precondition, RunChange, StoreNotification, TaskKey, TaskNo},
    task::TaskId,
};

/// The longest delay of another node's event when its notification was lost.
const FOLLOW_POLL: Duration = Duration::from_secs(5);
/// The shortest interval between two list-changed notifications to a tenant.
const LIST_POLL: Duration = Duration::from_secs(1);
/// Followed tasks polled in one query.
const FOLLOWED_AT_ONCE: usize = 10_000;

/// Renews this node's leases.
pub(super) async fn heartbeat_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    let mut strays = HashSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.options.lease / 3) => {}
            // The last heartbeat is valid until the lease expires; handed-back tasks do not depend on it.
            () = wait_until_closing(&mut closing) => return,
        }
        if let Err(error) = engine.beat().await {
            tracing::warn!(%error, "the heartbeat did not reach the store; retrying");
            continue;
        }
        match engine.look_after(strays).await {
            Ok(found) => strays = found,
            Err(error) => {
                tracing::warn!(%error, "could not check this node's tasks; retrying");
                strays = HashSet::new();
            }
        }
    }
}

/// Forwards notifications of other nodes. Polling finds all of it too; a notification is only faster.
pub(super) async fn news_loop(engine: Arc<EngineCore>, mut news: mpsc::UnboundedReceiver<StoreNotification>) {
    let mut closing = engine.closing();
    loop {
        let news = tokio::select! {
            news = news.recv() => news,
            () = wait_until_closing(&mut closing) => return,
        };
        match news {
            None => return,
            Some(StoreNotification::Task { id, seq, .. }) => {
                engine.hub.note_external_write(id, seq);
                if let Some(run) = engine.local_run(id) {
                    run.notify_external_write();
                }
            }
            Some(StoreNotification::Due) => engine.claims.notify_one(),
            Some(StoreNotification::Deliveries) => engine.outbox.notify_one(),
            Some(StoreNotification::Knowledge(topic)) => engine.apply_notification(&topic),
            Some(StoreNotification::Gap) => {
                engine.hub.recheck_all();
                for run in engine.lock_runs().values() {
                    run.notify_external_write();
                }
                engine.claims.notify_one();
                engine.outbox.notify_one();
                engine.catalog.surface().missed();
                engine.forget_all_ended();
                engine.admin.wake();
            }
        }
    }
}

/// Polls for events of followed tasks whose notification was lost: one query for all tasks, however many
/// followers.
pub(super) async fn follow_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_POLL) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        for tasks in engine.hub.followed().chunks(FOLLOWED_AT_ONCE) {
            let ids: HashMap<TaskNo, TaskId> = tasks.iter().copied().collect();
            let numbers: Vec<TaskNo> = tasks.iter().map(|(no, _)| *no).collect();
            match engine.store.seqs(&numbers).await {
                Ok(seqs) => {
                    for (id, seq) in seqs.iter().filter_map(|(no, seq)| Some((ids.get(no)?, seq))) {
                        engine.hub.note_external_write(*id, *seq);
                    }
                }
                Err(error) => tracing::warn!(%error, "could not poll followed tasks; retrying"),
            }
        }
    }
}

/// Exchanges rate-limit usage with other nodes.
pub(super) async fn rates_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(crate::access_control::EXCHANGE) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        engine.guard.share_rates(&engine.store, &engine.clock).await;
    }
}

/// Notifies tenants, here and on other nodes, that their list of resources has changed.
pub(super) async fn list_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LIST_POLL) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        for tenant in engine.catalog.surface().list_changes().take() {
            engine.notify_changed(&tenant, crate::surface::LIST_URI);
        }
    }
}

/// Writes audit lines to the store.
pub(super) async fn audit_loop(engine: Arc<EngineCore>) {
    engine.guard.keep_audit(&engine.store, engine.closing()).await;
}

/// Deletes finished tasks past their retention.
pub(super) async fn expiry_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    let mut walk = RetentionWalk::default();
    loop {
        match engine.expire_some(&mut walk).await {
            Ok(true) if !engine.is_closing() => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "could not delete expired tasks; retrying"),
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.expiry_poll) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

/// Ends tasks that wait for an answer longer than their limit.
pub(super) async fn unanswered_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        if let Err(error) = engine.end_unanswered().await {
            tracing::warn!(%error, "could not search for tasks that nobody answers; retrying");
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.expiry_poll) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

/// Flushes counted reads of the memory bank. Stopping the engine flushes the rest.
pub(super) async fn reads_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.options.reads_flush) => {}
            () = engine.reads.wait_for_many() => {}
            () = wait_until_closing(&mut closing) => return,
        }
        engine.reads.flush(&engine).await;
    }
}

/// Deletes expired memory entries, records and audit lines, a few at once, so that writers wait for no more than
/// that.
pub(super) async fn sweep_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        let more = engine.sweep().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not delete expired memory, records or audit lines; retrying");
            false
        });
        if more && !engine.is_closing() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.sweep_poll) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

impl EngineCore {
    /// One round of the sweep. Returns whether there may be more to delete.
    async fn sweep(&self) -> Result<bool, Error> {
        const AT_ONCE: usize = 256;
        let (now, knowledge) = (self.clock.now(), self.store.knowledge());
        let expired = knowledge.expire_memory(now, AT_ONCE).await?;
        let mut namespaces = BTreeSet::new();
        for key in &expired {
            self.reads.forget(key);
            self.notify_changed(&key.tenant, &data_uri(&key.namespace, &key.key));
            namespaces.insert((&*key.tenant, &*key.namespace));
        }
        for (tenant, namespace) in namespaces {
            self.namespace_changed(tenant, namespace);
        }
        let mut more = expired.len() == AT_ONCE;
        more |= knowledge.expire_records(now, AT_ONCE).await? as usize == AT_ONCE;
        if let Some(kept) = self.options.access.audit_retention {
            more |= knowledge.expire_audit(now.before(kept), AT_ONCE).await? as usize == AT_ONCE;
        }
        Ok(more)
    }

    /// Sends this node's heartbeat.
    pub(super) async fn beat(&self) -> Result<(), Error> {
        let at = Instant::now();
        let until = self.clock.now().after(self.options.lease);
        self.store.heartbeat(self.node, until).await?;
        *self.beaten.lock() = Some(at);
        self.record_node(false).await;
        Ok(())
    }

    /// Sends a heartbeat if the last one is old: the store was unreachable, or this process was suspended. A task
    /// that a node claims while it counts as dead is taken away at once, and each time counts as an attempt.
    pub(crate) async fn stay_alive(&self) -> Result<(), Error> {
        let beaten = *self.beaten.lock();
        match beaten.is_some_and(|at| at.elapsed() < self.options.lease / 2) {
            true => Ok(()),
            false => self.beat().await,
        }
    }

    /// Notifies runs of external writes whose notification was lost. Also gives back tasks that this node holds
    /// without running them, which no live node would claim otherwise; they result from a commit that succeeded
    /// although it reported an error. `before`: those found in the previous round.
    async fn look_after(self: &Arc<Self>, before: HashSet<TaskId>) -> Result<HashSet<TaskId>, Error> {
        for id in self.store.externally_written_tasks(self.node).await? {
            if let Some(run) = self.local_run(id) {
                run.notify_external_write();
            }
        }
        let mut strays: HashSet<TaskId> = self.store.held_tasks(self.node).await?.into_iter().collect();
        strays.retain(|id| self.local_run(*id).is_none());
        let waiting = self.waiting_claims.lock().clone();
        strays.retain(|id| !waiting.contains(id));
        // A task claimed a moment ago is about to run; only one found twice is given back.
        for id in strays.intersection(&before) {
            let Some(row) = self.store.row(&TaskKey::Id(*id)).await? else { continue };
            if row.node != Some(self.node) || self.local_run(*id).is_some() {
                continue;
            }
            tracing::warn!(task = %id, "this node holds a task that it does not run; giving it back");
            let mut change = Change::new(Precondition::Version { task: row.no, version: row.version })
                .of_owner(&row.owner);
            let now = self.clock.now();
            change.run = RunChange::Due(now);
            let decision = Decision { effects: vec![Effect::Due(now)], ..Decision::silent(change) };
            match self.commit_and_apply(Writer::Node(&row), decision).await {
                Ok(_) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(strays)
    }
}
