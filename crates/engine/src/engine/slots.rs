//! Slots for the tasks that are in memory on this node.
//!
//! Tasks that a caller sent and tasks that another task called have slots apart, so that tasks that wait for the ones
//! they called never hold what those need. Called tasks share one pool over all depths; each depth may always have a
//! few beyond it: whatever waits at one depth, the next one gets on, and the deepest waits for nobody. A tree (a task
//! with all that was made below it) has a pool of its own, with the same rule, and a budget of tasks ever made.
//!
//! One tenant may use all of a pool. A tenant that has little finds a reserve beyond it. Called tasks without a slot
//! wait in memory, tenants in turn.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::oneshot, time::Instant};

use super::EngineCore;
use crate::{
    access::tenant_of,
    error::Error,
    task::TaskId,
    usage::{MeteredResource, UsagePermit},
};

/// Depths that are told apart; deeper ones share the last.
const DEPTHS: usize = 32;
/// How old a count of a tree's tasks may be where other nodes may make some, too.
const COUNT_AGAIN: Duration = Duration::from_secs(2);

/// All slots of a node.
#[derive(Default)]
pub(crate) struct Slots(Mutex<Pools>);

#[derive(Default)]
struct Pools {
    roots: Roots,
    called: CalledPool,
    /// Tasks that wait for one they called.
    calling: usize,
    tenants: HashMap<Arc<str>, TenantSlots>,
    trees: HashMap<TaskId, Tree>,
    queues: BTreeMap<Arc<str>, TenantQueue>,
    /// The tenant that got the last slot.
    served: Option<Arc<str>>,
}

/// Tasks that a caller sent.
#[derive(Default)]
struct Roots {
    held: usize,
    /// Those of them that wait for one they called, and count only against a wider cap meanwhile.
    calling: usize,
}

impl Roots {
    fn active(&self) -> usize {
        self.held.saturating_sub(self.calling)
    }

    fn fits(&self, most: usize) -> bool {
        self.active() < most && self.held < most + most.div_ceil(2)
    }
}

/// Tasks that another task called, by depth.
struct CalledPool {
    total: usize,
    at: [u32; DEPTHS],
}

impl Default for CalledPool {
    fn default() -> Self {
        Self { total: 0, at: [0; DEPTHS] }
    }
}

impl CalledPool {
    fn fits(&self, depth: usize, most: usize) -> bool {
        self.total < most || (self.at[depth] as usize) < (most / 64).max(1)
    }

    fn add(&mut self, depth: usize) {
        self.total += 1;
        self.at[depth] += 1;
    }

    fn remove(&mut self, depth: usize) {
        self.total = self.total.saturating_sub(1);
        self.at[depth] = self.at[depth].saturating_sub(1);
    }
}

#[derive(Default)]
struct TenantSlots {
    roots: Roots,
    called: CalledPool,
}

/// A task with all that was made below it, while some of that is in memory here.
#[derive(Default)]
struct Tree {
    called: CalledPool,
    /// Runs that call, here.
    users: usize,
    /// Tasks ever made below it: what the store said, and when, and those made here since.
    counted: Option<(u64, Instant)>,
    made_since: u64,
}

impl Tree {
    fn made(&self) -> u64 {
        self.counted.map_or(0, |(counted, _)| counted) + self.made_since
    }
}

/// Called tasks of one tenant that wait for a slot: the oldest tree first, in it the deepest.
struct TenantQueue {
    trees: BTreeMap<TaskId, BTreeMap<Reverse<usize>, VecDeque<CalledSlotWaiter>>>,
    /// How many wait at each depth.
    at: [usize; DEPTHS],
}

struct CalledSlotWaiter {
    owner: Arc<str>,
    slot: oneshot::Sender<Slot>,
}

/// The reserve beyond a cap, for tenants that have little, and how much of it one tenant may have.
fn reserve(most: usize) -> (usize, usize) {
    let all = most.div_ceil(4);
    (all, all.div_ceil(4))
}

fn at_depth(depth: u32) -> usize {
    (depth as usize).min(DEPTHS - 1)
}

impl Pools {
    fn root_fits(&self, tenant: &str, most: usize) -> bool {
        let (all, each) = reserve(most);
        self.roots.fits(most)
            || (self.tenants.get(tenant).is_none_or(|slots| slots.roots.held < each)
                && self.roots.held < most + most.div_ceil(2) + all)
    }

    fn called_fits(&self, tenant: &str, depth: usize, most: usize) -> bool {
        let (all, each) = reserve(most);
        let reserved = |slots: &TenantSlots| {
            slots.called.at[depth] == 0 || (slots.called.total < each && self.called.total < most + all)
        };
        self.called.fits(depth, most) || self.tenants.get(tenant).is_none_or(reserved)
    }

    fn tree_fits(&self, root: TaskId, depth: usize, most: usize) -> bool {
        self.trees.get(&root).is_none_or(|tree| tree.called.fits(depth, most))
    }

    fn tenant(&mut self, tenant: &str) -> &mut TenantSlots {
        self.tenants.entry(Arc::from(tenant)).or_default()
    }

    fn forget_if_unused(&mut self, tenant: &str) {
        let unused = |slots: &TenantSlots| slots.roots.held == 0 && slots.called.total == 0;
        if self.tenants.get(tenant).is_some_and(unused) {
            self.tenants.remove(tenant);
        }
    }

    fn add_called(&mut self, tenant: &str, root: TaskId, depth: usize) {
        self.called.add(depth);
        self.tenant(tenant).called.add(depth);
        self.trees.entry(root).or_default().called.add(depth);
    }

    fn leave_tree(&mut self, root: TaskId) {
        if self.trees.get(&root).is_some_and(|tree| tree.users == 0 && tree.called.total == 0) {
            self.trees.remove(&root);
        }
    }

    /// The next that may have a slot, tenants in turn. It is counted.
    fn next(&mut self, caps: Caps) -> Option<(CalledSlotWaiter, TaskId, usize)> {
        let after = self.served.clone();
        let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut tenants: Vec<Arc<str>> = self
            .queues
            .range::<Arc<str>, _>((after, Bound::Unbounded))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        tenants.extend(self.queues.keys().take(self.queues.len() - tenants.len()).cloned());
        for tenant in tenants {
            if let Some(next) = self.next_of(&tenant, caps) {
                self.served = Some(tenant);
                return Some(next);
            }
        }
        None
    }

    fn next_of(&mut self, tenant: &Arc<str>, caps: Caps) -> Option<(CalledSlotWaiter, TaskId, usize)> {
        let mut queue = self.queues.remove(tenant)?;
        // Where no depth with waiters has room, however many wait need not be looked at.
        let open: Vec<bool> = (0..DEPTHS)
            .map(|depth| queue.at[depth] > 0 && self.called_fits(tenant, depth, caps.running))
            .collect();
        let found = open.contains(&true).then(|| self.first_in(&mut queue, &open, caps)).flatten();
        if let Some((_, root, depth)) = &found {
            self.add_called(tenant, *root, *depth);
        }
        if queue.at.iter().any(|waiting| *waiting > 0) {
            self.queues.insert(Arc::clone(tenant), queue);
        }
        found
    }

    fn first_in(
        &self,
        queue: &mut TenantQueue,
        open: &[bool],
        caps: Caps,
    ) -> Option<(CalledSlotWaiter, TaskId, usize)> {
        let TenantQueue { trees, at } = queue;
        let mut found = None;
        trees.retain(|root, depths| {
            depths.retain(|Reverse(depth), waiters| {
                while found.is_none() && open[*depth] && self.tree_fits(*root, *depth, caps.per_root) {
                    let Some(waiter) = waiters.pop_front() else { break };
                    at[*depth] -= 1;
                    // One that does not wait any more is passed over.
                    if !waiter.slot.is_closed() {
                        found = Some((waiter, *root, *depth));
                    }
                }
                !waiters.is_empty()
            });
            !depths.is_empty()
        });
        found
    }
}

/// The caps that an operator set.
#[derive(Clone, Copy)]
struct Caps {
    running: usize,
    per_root: usize,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.0.lock()
    }

    /// How many tasks run, those not counted that wait for one they called.
    pub(super) fn running(&self) -> usize {
        let pools = self.lock();
        (pools.roots.held + pools.called.total).saturating_sub(pools.calling)
    }

    /// How many tasks are in memory.
    pub(super) fn held(&self) -> usize {
        let pools = self.lock();
        pools.roots.held + pools.called.total
    }
}

impl EngineCore {
    fn caps(&self) -> Caps {
        Caps { running: self.options.max_running, per_root: self.options.limits.running_per_root }
    }

    fn slot(self: &Arc<Self>, owner: &str, place: SlotScope) -> Slot {
        // Counted for the report; whether there is room was decided by the pools.
        let used = self.usage.take_if(owner, MeteredResource::RunningTasks, 1, |_| true);
        Slot { engine: Arc::clone(self), owner: Arc::from(owner), place, _used: used }
    }

    /// A slot for a task that a caller sent, if there is one.
    pub(crate) fn root_slot(self: &Arc<Self>, owner: &str) -> Option<Slot> {
        let tenant = tenant_of(owner);
        let mut pools = self.slots.lock();
        if !pools.root_fits(tenant, self.options.max_running) {
            return None;
        }
        pools.roots.held += 1;
        pools.tenant(tenant).roots.held += 1;
        drop(pools);
        Some(self.slot(owner, SlotScope::Root))
    }

    /// The same for a task that is just being sent: not before others that wait, where slots are scarce.
    pub(crate) fn root_slot_now(self: &Arc<Self>, owner: &str) -> Option<Slot> {
        let most = self.options.max_running;
        if self.queued() > 0 {
            let pools = self.slots.lock();
            let has = pools.tenants.get(tenant_of(owner)).map_or(0, |slots| slots.roots.held);
            if pools.roots.active() > most / 2 && has >= reserve(most).1 {
                return None;
            }
        }
        self.root_slot(owner)
    }

    /// A slot for a called task: now, or when there is one.
    pub(crate) fn called_slot(self: &Arc<Self>, owner: &str, root: TaskId, depth: u32) -> CalledSlot {
        let (tenant, depth, caps) = (tenant_of(owner), at_depth(depth), self.caps());
        let mut pools = self.slots.lock();
        if pools.called_fits(tenant, depth, caps.running) && pools.tree_fits(root, depth, caps.per_root) {
            pools.add_called(tenant, root, depth);
            drop(pools);
            return CalledSlot::Now(self.slot(owner, SlotScope::Called { root, depth }));
        }
        let (slot, granted) = oneshot::channel();
        if !pools.queues.contains_key(tenant) {
            let queue = TenantQueue { trees: BTreeMap::new(), at: [0; DEPTHS] };
            pools.queues.insert(Arc::from(tenant), queue);
        }
        if let Some(queue) = pools.queues.get_mut(tenant) {
            queue.at[depth] += 1;
            let waiters = queue.trees.entry(root).or_default().entry(Reverse(depth)).or_default();
            waiters.push_back(CalledSlotWaiter { owner: Arc::from(owner), slot });
        }
        CalledSlot::Later(granted)
    }

    /// Hands free slots to called tasks that wait. A grant that is not taken comes back by its drop.
    fn grant_called(self: &Arc<Self>) {
        loop {
            let next = self.slots.lock().next(self.caps());
            let Some((waiter, root, depth)) = next else { return };
            let slot = self.slot(&waiter.owner, SlotScope::Called { root, depth });
            // Not in the lock: one that was given up meanwhile is dropped here.
            drop(waiter.slot.send(slot));
        }
    }

    /// A task waits for one that it called.
    pub(crate) fn begin_calling(&self, owner: &str, depth: u32) {
        let mut pools = self.slots.lock();
        pools.calling += 1;
        if depth == 0 {
            pools.roots.calling += 1;
            pools.tenant(tenant_of(owner)).roots.calling += 1;
        }
        drop(pools);
        if depth == 0 {
            self.wake_queue();
        }
    }

    /// It goes on, also where its slot is beyond the cap now: what it holds it holds already.
    pub(crate) fn end_calling(&self, owner: &str, depth: u32) {
        let mut pools = self.slots.lock();
        pools.calling = pools.calling.saturating_sub(1);
        if depth == 0 {
            pools.roots.calling = pools.roots.calling.saturating_sub(1);
            let roots = &mut pools.tenant(tenant_of(owner)).roots;
            roots.calling = roots.calling.saturating_sub(1);
        }
    }

    /// Keeps the count of a tree while a run calls.
    pub(crate) fn enter_tree(self: &Arc<Self>, root: TaskId) -> TreeUse {
        self.slots.lock().trees.entry(root).or_default().users += 1;
        TreeUse { engine: Arc::clone(self), root }
    }

    /// Takes one of the tasks that may ever be made below a root. The caller holds a [`TreeUse`] of it. What the
    /// budget has left is counted from the store where it is not known, so it survives a restart; where other nodes
    /// may make some too, it is counted again from time to time.
    pub(crate) async fn make_below(self: &Arc<Self>, root: TaskId) -> Result<DescendantReservation, Error> {
        let most = self.options.limits.tasks_per_root;
        let known = self.slots.lock().trees.get(&root).and_then(|tree| tree.counted);
        let shared = self.store.is_shared();
        if known.is_none_or(|(_, at)| shared && at.elapsed() > COUNT_AGAIN) {
            let counted = self.store.descendants(root, most + 1).await?;
            let mut pools = self.slots.lock();
            let tree = pools.trees.entry(root).or_default();
            // Of those that count at the same time the first one is right: the others may see what it made since.
            if tree.counted.map(|(_, at)| at) == known.map(|(_, at)| at) {
                tree.counted = Some((counted.max(tree.made()), Instant::now()));
                tree.made_since = 0;
            }
        }
        let mut pools = self.slots.lock();
        let tree = pools.trees.entry(root).or_default();
        if tree.made() >= most {
            return Err(Error::Limit(format!(
                "tasks_per_root: at most {most} tasks are made below one task, by calls within calls"
            )));
        }
        tree.made_since += 1;
        Ok(DescendantReservation { engine: Arc::clone(self), root, confirmed: false })
    }
}

/// What becomes of the wish for a slot.
pub(crate) enum CalledSlot {
    /// There is one.
    Now(Slot),
    /// It comes.
    Later(oneshot::Receiver<Slot>),
}

enum SlotScope {
    Root,
    Called { root: TaskId, depth: usize },
}

/// A slot that is taken. Dropping it gives it back.
pub(crate) struct Slot {
    engine: Arc<EngineCore>,
    owner: Arc<str>,
    place: SlotScope,
    _used: Option<UsagePermit>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let tenant = tenant_of(&self.owner);
        let mut pools = self.engine.slots.lock();
        match self.place {
            SlotScope::Root => {
                pools.roots.held = pools.roots.held.saturating_sub(1);
                let roots = &mut pools.tenant(tenant).roots;
                roots.held = roots.held.saturating_sub(1);
            }
            SlotScope::Called { root, depth } => {
                pools.called.remove(depth);
                pools.tenant(tenant).called.remove(depth);
                if let Some(tree) = pools.trees.get_mut(&root) {
                    tree.called.remove(depth);
                }
                pools.leave_tree(root);
            }
        }
        pools.forget_if_unused(tenant);
        let called_wait = !pools.queues.is_empty();
        drop(pools);
        if called_wait {
            self.engine.grant_called();
        }
        self.engine.wake_queue();
    }
}

/// A run that calls, by which the count of its tree is kept.
pub(crate) struct TreeUse {
    engine: Arc<EngineCore>,
    root: TaskId,
}

impl Drop for TreeUse {
    fn drop(&mut self) {
        let mut pools = self.engine.slots.lock();
        if let Some(tree) = pools.trees.get_mut(&self.root) {
            tree.users = tree.users.saturating_sub(1);
        }
        pools.leave_tree(self.root);
    }
}

/// One of the tasks that may be made below a root; given back where none was made.
pub(crate) struct DescendantReservation {
    engine: Arc<EngineCore>,
    root: TaskId,
    confirmed: bool,
}

impl DescendantReservation {
    /// It was made.
    pub(crate) fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for DescendantReservation {
    fn drop(&mut self) {
        if !self.confirmed
            && let Some(tree) = self.engine.slots.lock().trees.get_mut(&self.root)
        {
            tree.made_since = tree.made_since.saturating_sub(1);
        }
    }
}
