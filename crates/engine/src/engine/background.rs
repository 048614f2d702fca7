//! What an engine does beside its work: it says that it lives, looks after its tasks, hears what other nodes do,
//! and forgets what is old.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{EngineCore, wait_until_closing};
use crate::{
    clock::Timestamp,
    error::Error,
    memory::data_uri,
    store::{Change, CommitError, Precondition, RunChange, StoreNotification, TaskKey},
    task::TaskId,
};

/// How late an event of another node is at most, when the news of it was lost.
const FOLLOW_POLL: Duration = Duration::from_secs(5);
/// How often a tenant is told at most that it has other resources than before.
const LIST_POLL: Duration = Duration::from_secs(1);
/// Tasks that are asked for in one question.
const FOLLOWED_AT_ONCE: usize = 10_000;

/// Keeps this node's leases.
pub(super) async fn heartbeat_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    let mut strays = HashSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.options.lease / 3) => {}
            // The last beat stands until the lease is over; handed-back tasks do not depend on it.
            () = wait_until_closing(&mut closing) => return,
        }
        if let Err(error) = engine.beat().await {
            tracing::warn!(%error, "no sign of life reached the store");
            continue;
        }
        match engine.look_after(strays).await {
            Ok(found) => strays = found,
            Err(error) => {
                tracing::warn!(%error, "this node's tasks could not be looked through");
                strays = HashSet::new();
            }
        }
    }
}

/// Passes on what other nodes do. All of it is found by looking, too; this is only sooner.
pub(super) async fn news_loop(engine: Arc<EngineCore>, mut news: mpsc::UnboundedReceiver<StoreNotification>) {
    let mut closing = engine.closing();
    loop {
        let news = tokio::select! {
            news = news.recv() => news,
            () = wait_until_closing(&mut closing) => return,
        };
        match news {
            None => return,
            Some(StoreNotification::Task { no, id, seq }) => {
                engine.hub.note_external_write(no, seq);
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

/// Looks for events of followed tasks that no news came of: one question for all of them, however many follow.
pub(super) async fn follow_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_POLL) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        for tasks in engine.hub.followed().chunks(FOLLOWED_AT_ONCE) {
            match engine.store.seqs(tasks).await {
                Ok(seqs) => seqs.into_iter().for_each(|(no, seq)| engine.hub.note_external_write(no, seq)),
                Err(error) => tracing::warn!(%error, "followed tasks could not be looked at"),
            }
        }
    }
}

/// Tells other nodes how much callers do here.
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

/// Tells tenants, here and on other nodes, that they have other resources than before.
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

/// Writes the audit.
pub(super) async fn audit_loop(engine: Arc<EngineCore>) {
    engine.guard.keep_audit(&engine.store, engine.closing()).await;
}

/// Deletes tasks that ended long ago.
pub(super) async fn expiry_loop(engine: Arc<EngineCore>) {
    const AT_ONCE: usize = 256;
    let mut closing = engine.closing();
    loop {
        match engine.store.expire(engine.kept_since(), AT_ONCE).await {
            Ok(deleted) if deleted as usize == AT_ONCE => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "ended tasks could not be deleted"),
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.expiry_poll) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

/// Writes the counted reads of the memory bank. What is left at the end, the stop of the engine writes.
pub(super) async fn reads_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.options.reads_flush) => {}
            () = wait_until_closing(&mut closing) => return,
        }
        engine.reads.flush(&engine).await;
    }
}

/// Deletes what is kept for a time and has had it: entries of the memory bank, records, lines of the audit. A few
/// at once, so that writers wait for no more than that.
pub(super) async fn sweep_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        let more = engine.sweep().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what has expired could not be deleted");
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
    /// One round of a sweep; whether there may be more to delete.
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

    /// What ended before this is, or will be, deleted.
    pub(crate) fn kept_since(&self) -> Timestamp {
        self.clock.now().before(self.options.retention)
    }

    /// Says that this node lives.
    pub(super) async fn beat(&self) -> Result<(), Error> {
        let at = Instant::now();
        let until = self.clock.now().after(self.options.lease);
        self.store.heartbeat(self.node, until).await?;
        *self.beaten.lock() = Some(at);
        Ok(())
    }

    /// Says so where it has not been said for long: the store was away, or this process was stopped. What a node
    /// claims while it counts as dead is taken from it at once, and each time that counts as an attempt.
    pub(crate) async fn stay_alive(&self) -> Result<(), Error> {
        let beaten = *self.beaten.lock();
        match beaten.is_some_and(|at| at.elapsed() < self.options.lease / 2) {
            true => Ok(()),
            false => self.beat().await,
        }
    }

    /// Tells runs what others wrote to their tasks, in case no news came of it; and gives tasks back that this
    /// node holds without running them, which no living node would take otherwise. That happens where a commit
    /// was done although it seemed to have failed. `before`: those that were found like that the last time.
    async fn look_after(&self, before: HashSet<TaskId>) -> Result<HashSet<TaskId>, Error> {
        for id in self.store.externally_written_tasks(self.node).await? {
            if let Some(run) = self.local_run(id) {
                run.notify_external_write();
            }
        }
        let mut strays: HashSet<TaskId> = self.store.held_tasks(self.node).await?.into_iter().collect();
        strays.retain(|id| self.local_run(*id).is_none());
        let waiting = self.waiting_claims.lock().clone();
        strays.retain(|id| !waiting.contains(id));
        // One that was claimed a moment ago is about to be run.
        for id in strays.intersection(&before) {
            let Some(row) = self.store.row(&TaskKey::Id(*id)).await? else { continue };
            if row.node != Some(self.node) || self.local_run(*id).is_some() {
                continue;
            }
            tracing::warn!(task = %id, "a task that nobody here runs is given back");
            let mut change = Change::new(Precondition::Version { task: row.no, version: row.version })
                .of_owner(&row.owner);
            change.run = RunChange::Due(self.clock.now());
            match self.store.commit(change).await {
                Ok(_) => self.due(&row.owner, self.clock.now()),
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(strays)
    }
}
