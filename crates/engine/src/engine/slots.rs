//! Slots for the tasks that are in memory on this node.
//!
//! Tasks that a caller sent and tasks that another task called have separate pools, so that a task that waits for
//! one it called never holds the slot that one needs. Called tasks share one pool over all depths, and each depth
//! may exceed it by a few. Whatever waits at one depth, the next depth makes progress, and the deepest waits for
//! no other. A call tree (a root task with all tasks below it) has a pool of its own with the same rule, and a
//! budget of tasks ever created.
//!
//! One tenant may use all of a pool; a reserve beyond it is for tenants with few tasks. Called tasks without a
//! slot wait in memory, tenants in turn.

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

/// Depths that are counted separately; deeper ones share the last.
const DEPTHS: usize = 32;
/// The maximum age of the count of a tree's tasks when other nodes may create some too.
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
    /// The tenant that got the last slot; the next turn starts after it.
    served: Option<Arc<str>>,
}

/// Tasks that a caller sent.
#[derive(Default)]
struct Roots {
    held: usize,
    /// Those that wait for a task they called. Meanwhile they count only against a wider cap.
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

/// A call tree: a root task with all tasks below it, while some of it is in memory on this node.
#[derive(Default)]
struct Tree {
    called: CalledPool,
    /// Runs of this tree on this node that call other tasks.
    users: usize,
    /// Tasks ever created below the root: the store's count with its time, and those created on this node since.
    counted: Option<(u64, Instant)>,
    made_since: u64,
}

impl Tree {
    fn made(&self) -> u64 {
        self.counted.map_or(0, |(counted, _)| counted) + self.made_since
    }
}

/// Called tasks of one tenant that wait for a slot: the oldest tree first, in it the deepest first.
struct TenantQueue {
    trees: BTreeMap<TaskId, BTreeMap<Reverse<usize>, VecDeque<CalledSlotWaiter>>>,
    /// The number of waiters at each depth.
    at: [usize; DEPTHS],
}

struct CalledSlotWaiter {
    owner: Arc<str>,
    slot: oneshot::Sender<Slot>,
}

/// The reserve beyond a cap for tenants with few tasks, and how much of it one tenant may use.
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

    /// The next waiter that may have a slot, tenants in turn. Its slot is already counted.
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
        // Only depths with waiters and free slots are searched, however many tasks wait.
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
                    // Skip waiters that have given up.
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

/// The caps set by the operator.
#[derive(Clone, Copy)]
struct Caps {
    running: usize,
    per_root: usize,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.0.lock()
    }

    /// The number of running tasks, without those that wait for one they called.
    pub(super) fn running(&self) -> usize {
        let pools = self.lock();
        (pools.roots.held + pools.called.total).saturating_sub(pools.calling)
    }

    /// The number of tasks in memory.
    pub(super) fn held(&self) -> usize {
        let pools = self.lock();
        pools.roots.held + pools.called.total
    }
}

impl EngineCore {
    fn caps(&self) -> Caps {
        Caps { running: self.options.max_running, per_root: self.options.calls.running_per_root }
    }

    fn slot(self: &Arc<Self>, owner: &str, place: SlotScope) -> Slot {
        // Counted for the usage report only; the pools have already decided.
        let used = self.usage.take_if(owner, MeteredResource::RunningTasks, 1, |_| true);
        Slot { engine: Arc::clone(self), owner: Arc::from(owner), place, _used: used }
    }

    /// A slot for a task that a caller sent, if one is free.
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

    /// A slot for a task that is just being sent. When slots are scarce, waiting tasks go first.
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

    /// A slot for a called task: now, or later through a channel.
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

    /// Grants free slots to waiting called tasks. A grant that is not taken returns its slot when it is dropped.
    fn grant_called(self: &Arc<Self>) {
        loop {
            let next = self.slots.lock().next(self.caps());
            let Some((waiter, root, depth)) = next else { return };
            let slot = self.slot(&waiter.owner, SlotScope::Called { root, depth });
            // Outside of the lock: if the waiter has given up, this drops the slot, which takes the lock.
            drop(waiter.slot.send(slot));
        }
    }

    /// Marks a task as waiting for one that it called.
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

    /// Ends that wait. The task continues even if its slot now exceeds the cap: it already holds it.
    pub(crate) fn end_calling(&self, owner: &str, depth: u32) {
        let mut pools = self.slots.lock();
        pools.calling = pools.calling.saturating_sub(1);
        if depth == 0 {
            pools.roots.calling = pools.roots.calling.saturating_sub(1);
            let roots = &mut pools.tenant(tenant_of(owner)).roots;
            roots.calling = roots.calling.saturating_sub(1);
        }
    }

    /// Retains the count of a tree while a run calls.
    pub(crate) fn enter_tree(self: &Arc<Self>, root: TaskId) -> TreeUse {
        self.slots.lock().trees.entry(root).or_default().users += 1;
        TreeUse { engine: Arc::clone(self), root }
    }

    /// Reserves one of the tasks that may ever be created below a root. The caller holds a [`TreeUse`] of it. An
    /// unknown count is read from the store, so the budget survives a restart. It is read again from time to time
    /// when other nodes may create tasks too.
    pub(crate) async fn make_below(self: &Arc<Self>, root: TaskId) -> Result<DescendantReservation, Error> {
        let most = self.options.calls.tasks_per_root;
        let known = self.slots.lock().trees.get(&root).and_then(|tree| tree.counted);
        let shared = self.store.is_shared();
        if known.is_none_or(|(_, at)| shared && at.elapsed() > COUNT_AGAIN) {
            let counted = self.store.descendants(root, most + 1).await?;
            let mut pools = self.slots.lock();
            let tree = pools.trees.entry(root).or_default();
            // Of concurrent counts only the first is used: a later one may include tasks counted in `made_since`.
            if tree.counted.map(|(_, at)| at) == known.map(|(_, at)| at) {
                tree.counted = Some((counted.max(tree.made()), Instant::now()));
                tree.made_since = 0;
            }
        }
        let mut pools = self.slots.lock();
        let tree = pools.trees.entry(root).or_default();
        if tree.made() >= most {
            let why = format!(
                "limits.tasks-per-root: at most {most} tasks are made below one task, by calls within calls"
            );
            return Err(Error::limit("limits.tasks-per-root", why));
        }
        tree.made_since += 1;
        Ok(DescendantReservation { engine: Arc::clone(self), root, confirmed: false })
    }
}

/// The result of requesting a slot for a called task.
pub(crate) enum CalledSlot {
    /// A slot is free.
    Now(Slot),
    /// Receives the slot when one is free.
    Later(oneshot::Receiver<Slot>),
}

enum SlotScope {
    Root,
    Called { root: TaskId, depth: usize },
}

/// A slot that is taken; dropping it releases it.
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

/// Retains the count of a call tree while a run calls.
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

/// A reservation of one task below a root; released on drop unless the task was created.
pub(crate) struct DescendantReservation {
    engine: Arc<EngineCore>,
    root: TaskId,
    confirmed: bool,
}

impl DescendantReservation {
    /// The task was created.
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
