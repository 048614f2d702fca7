//! The claim queue: how many tasks of each tenant wait for a slot, and which are claimed next.
//!
//! One tenant may fill the whole queue. A tenant with few waiting tasks is admitted beyond the limit, so that no
//! tenant is refused because of another. Due tasks are claimed round-robin: one of each tenant, then the next of
//! each.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{EngineCore, Slot};
use crate::{
    access::tenant_of,
    clock::Timestamp,
    error::Error,
    store::{DueTasks, OwnerClaim},
};
use parking_lot::{Mutex, MutexGuard};

/// The most tasks claimed at once; applies separately to sent and to called tasks.
const CLAIMED_AT_ONCE: usize = 64;

/// An approximate count of the tasks that wait to be claimed; the claim loop corrects it.
#[derive(Default)]
pub(super) struct ClaimQueue {
    counts: Mutex<QueueCounts>,
    /// The round-robin position of the next claim.
    turn: AtomicUsize,
}

#[derive(Default)]
struct QueueCounts {
    total: u64,
    tenants: HashMap<String, TenantBacklog>,
}

#[derive(Default, Clone, Copy)]
struct TenantBacklog {
    queued: u64,
    /// Those that are reserved but not in the store yet.
    queueing: u64,
    /// Tasks added since this entry was created; never decremented.
    ever: u64,
}

impl ClaimQueue {
    fn lock(&self) -> MutexGuard<'_, QueueCounts> {
        self.counts.lock()
    }
}

impl QueueCounts {
    fn add(&mut self, tenant: &str) -> &mut TenantBacklog {
        self.total += 1;
        let waiting = self.tenants.entry(tenant.to_owned()).or_default();
        waiting.queued += 1;
        waiting.ever += 1;
        waiting
    }
}

impl EngineCore {
    pub(super) fn wake_queue(&self) {
        if self.queued() > 0 {
            self.claims.notify_one();
        }
    }

    /// The approximate number of waiting tasks.
    pub(crate) fn queued(&self) -> u64 {
        self.queue.lock().total
    }

    /// Reserves a position in the queue, if the tenant may have one.
    pub(crate) fn enqueue(self: &Arc<Self>, owner: &str) -> Option<QueueReservation> {
        let (most, tenant) = (self.options.max_queued, tenant_of(owner));
        let mut counts = self.queue.lock();
        let waiting = counts.tenants.get(tenant).map_or(0, |waiting| waiting.queued);
        if counts.total >= most && waiting >= most.div_ceil(16) {
            return None;
        }
        counts.add(tenant).queueing += 1;
        drop(counts);
        Some(QueueReservation { engine: Arc::clone(self), tenant: tenant.to_owned(), confirmed: false })
    }

    /// Counts a task of that owner that became due and that no node holds, and wakes the claim loop.
    pub(crate) fn due(&self, owner: &str, at: Timestamp) {
        if at <= self.clock.now() {
            self.queue.lock().add(tenant_of(owner));
        }
        self.claims.notify_one();
    }

    /// Counts the queue again and returns the due tasks. A task added meanwhile may or may not be in the store's
    /// count, so the retained count is only clamped to the possible range. Otherwise a full queue would admit one
    /// more, or a free one none.
    pub(crate) async fn recount(&self) -> Result<Vec<DueTasks>, Error> {
        let before = self.queue.lock().tenants.clone();
        let due = self.store.due_tasks(self.node, self.clock.now()).await?;
        let mut least = HashMap::<&str, u64>::new();
        for tasks in &due {
            *least.entry(tenant_of(&tasks.owner)).or_default() += tasks.waiting;
        }
        let mut counts = self.queue.lock();
        for tenant in least.keys() {
            counts.tenants.entry((*tenant).to_owned()).or_default();
        }
        for (tenant, waiting) in &mut counts.tenants {
            let least = least.get(tenant.as_str()).copied().unwrap_or(0);
            let before = before.get(tenant).copied().unwrap_or_default();
            let most = least + before.queueing + waiting.ever.saturating_sub(before.ever);
            waiting.queued = waiting.queued.clamp(least, most);
        }
        counts.tenants.retain(|_, waiting| waiting.queued > 0 || waiting.queueing > 0);
        counts.total = counts.tenants.values().map(|waiting| waiting.queued).sum();
        Ok(due)
    }

    /// Divides free slots among due tasks: how many to claim of each owner, and the slots of those sent by
    /// callers.
    pub(crate) fn divide(
        self: &Arc<Self>,
        due: &[DueTasks],
    ) -> (Vec<OwnerClaim>, HashMap<String, Vec<Slot>>) {
        let turn = self.queue.turn.fetch_add(1, Ordering::Relaxed);
        let mut slots = HashMap::<String, Vec<Slot>>::new();
        in_turn(due.iter().filter(|due| !due.called), turn, |owner| match self.root_slot(owner) {
            Some(slot) => {
                slots.entry(owner.to_owned()).or_default().push(slot);
                true
            }
            None => false,
        });
        // Whether a called task gets a slot depends on its depth and root, which are known only once it is
        // claimed.
        let mut called = HashMap::<String, usize>::new();
        in_turn(due.iter().filter(|due| due.called), turn, |owner| {
            *called.entry(owner.to_owned()).or_default() += 1;
            true
        });
        let roots = slots.iter().map(|(owner, slots)| (owner, false, slots.len()));
        let called = called.iter().map(|(owner, limit)| (owner, true, *limit));
        let of = roots.chain(called).map(|(owner, called, limit)| OwnerClaim {
            owner: owner.clone(),
            called,
            limit,
        });
        (of.collect(), slots)
    }
}

/// Takes due tasks one by one, tenants in turn and owners of a tenant in turn, until there are enough, none is
/// left, or no tenant gets another.
fn in_turn<'a>(due: impl Iterator<Item = &'a DueTasks>, turn: usize, mut take: impl FnMut(&'a str) -> bool) {
    let mut tenants = BTreeMap::<&str, VecDeque<(&str, u64)>>::new();
    for tasks in due {
        let left = tasks.waiting + tasks.orphaned;
        tenants.entry(tenant_of(&tasks.owner)).or_default().push_back((&tasks.owner, left));
    }
    let mut tenants: VecDeque<_> = tenants.into_values().collect();
    if !tenants.is_empty() {
        let first = turn % tenants.len();
        tenants.rotate_left(first);
    }
    let mut taken = 0;
    while taken < CLAIMED_AT_ONCE
        && let Some(mut owners) = tenants.pop_front()
    {
        let Some((owner, left)) = owners.pop_front() else { continue };
        if !take(owner) {
            continue;
        }
        taken += 1;
        if left > 1 {
            owners.push_back((owner, left - 1));
        }
        tenants.push_back(owners);
    }
}

/// A task that is about to wait: counted, but not in the store yet.
pub(crate) struct QueueReservation {
    engine: Arc<EngineCore>,
    tenant: String,
    confirmed: bool,
}

impl QueueReservation {
    /// The task is in the store and waits.
    pub(crate) fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        let mut counts = self.engine.queue.lock();
        let Some(waiting) = counts.tenants.get_mut(&self.tenant) else { return };
        waiting.queueing = waiting.queueing.saturating_sub(1);
        if !self.confirmed && waiting.queued > 0 {
            waiting.queued -= 1;
            counts.total = counts.total.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_take_turns_and_so_do_owners_of_one() {
        let due =
            |owner: &str, waiting: u64| DueTasks { owner: owner.into(), called: false, waiting, orphaned: 0 };
        let due = [due("acme/a", 10_000), due("acme/b", 2), due("beta/c", 3), due("local", 1)];
        let mut order = vec![];
        in_turn(due.iter(), 0, |owner| {
            order.push(owner);
            true
        });
        assert_eq!(order.len(), CLAIMED_AT_ONCE);
        let first = ["acme/a", "beta/c", "local", "acme/b", "beta/c", "acme/a", "beta/c", "acme/b", "acme/a"];
        assert_eq!(order[..9], first);
        let mut order = vec![];
        in_turn(due.iter(), 1, |owner| {
            order.push(owner);
            !owner.starts_with("acme")
        });
        assert_eq!(order, ["beta/c", "local", "acme/a", "beta/c", "beta/c"], "a full tenant is passed over");
    }
}
