//! Fair sharing of the processor among tenants: while several are active and the process is busy, a tenant
//! that uses more than its fair share is slowed down, and only that one.
//!
//! Work done in a tenant's name is metered where it is polled ([`CpuShares::meter`]). What the process uses
//! beyond that (the writer's thread, connections, timers) is charged in proportion. Every 100 ms the fair
//! share is recalculated: tenants that use little keep what they use, and the others divide the rest evenly.
//! A limited tenant waits where it holds nothing that others need: before a request is processed, and before
//! a run continues. A request is never refused for it and never waits longer than [`MAX_WAIT`]; a tenant that
//! is alone never waits.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use pin_project_lite::pin_project;

use crate::access::tenant_of;

/// How often fair shares are recalculated.
const WINDOW: Duration = Duration::from_millis(100);
/// A tenant that was idle for this long gets no share.
const IDLE: Duration = Duration::from_secs(2);
/// Below this utilization of the processors no tenant is limited.
const BUSY: f64 = 0.5;
/// The longest single sleep; after it the wait is recalculated.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
/// The longest that anything waits for its tenant's share.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// The lower bound of a rate, so that a wait stays finite.
const LEAST_RATE: f64 = 0.001;
/// The burst of a limited tenant, in seconds of its rate.
const BURST: f64 = 0.05;

/// The processor time that tenants use, and which of them have to wait.
pub struct CpuShares {
    /// How many processors tenants may use together while several are active; 0: all of them.
    capacity: f64,
    processors: f64,
    started: Instant,
    /// When the next window begins, in nanoseconds since `started`.
    next_window: AtomicU64,
    accounts: Mutex<CpuAccounts>,
}

#[derive(Default)]
struct CpuAccounts {
    by_tenant: HashMap<Arc<str>, Arc<CpuAccount>>,
    window_began: Duration,
    process_used: Duration,
}

/// The processor time of one tenant.
#[derive(Default)]
pub(crate) struct CpuAccount {
    /// Total, in nanoseconds.
    used: AtomicU64,
    is_limited: AtomicBool,
    pace: Mutex<CpuPace>,
}

/// A token bucket: how fast a limited tenant may go.
#[derive(Default)]
struct CpuPace {
    /// `used` at the last window.
    counted: u64,
    /// `used` when the balance was last updated.
    charged: u64,
    /// The refill rate, in processors.
    rate: f64,
    /// Seconds that the process uses for each metered second.
    overhead: f64,
    /// Seconds that it may use now; below 0 it waits.
    balance: f64,
    at: Duration,
    active_at: Duration,
    waiting: u32,
    /// Admissions since then, and what was deducted from the balance for them in advance.
    admitted: u64,
    advanced: f64,
    /// The average cost of one admission, in seconds.
    cost: f64,
}

impl CpuShares {
    /// `percent`: how much of the processors tenants may use together while several are active; 0: no limit.
    pub(crate) fn new(percent: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Self {
            capacity: processors * f64::from(percent.min(100)) / 100.0,
            processors,
            started: Instant::now(),
            next_window: AtomicU64::new(0),
            accounts: Mutex::default(),
        }
    }

    /// Charges the time of polling a future to an owner's tenant.
    pub fn meter<F: Future>(&self, owner: &str, future: F) -> Metered<F> {
        let account = (self.capacity > 0.0).then(|| self.account(tenant_of(owner)));
        Metered { future, account }
    }

    /// Charges work that was done on a separate thread.
    pub(crate) fn charge(&self, owner: &str, used: Duration) {
        if self.capacity > 0.0 {
            self.account(tenant_of(owner)).charge(used);
        }
    }

    /// Waits until an owner's tenant may use more of the processor.
    pub async fn admit(&self, owner: &str) {
        let began = Instant::now();
        while let Some(wait) = self.wait(owner) {
            if began.elapsed() >= MAX_WAIT {
                return;
            }
            tokio::time::sleep(wait.sleep).await;
        }
    }

    /// How long an owner's tenant should wait before it continues; `None`: not at all.
    pub(crate) fn wait(&self, owner: &str) -> Option<CpuWait> {
        if self.capacity == 0.0 {
            return None;
        }
        let now = self.started.elapsed();
        self.roll(now);
        let account = self.account(tenant_of(owner));
        let sleep = account.is_limited.load(Ordering::Relaxed).then(|| account.wait(now)).flatten()?;
        Some(CpuWait { sleep, _waiting: CpuWaitGuard::enter(account) })
    }

    fn account(&self, tenant: &str) -> Arc<CpuAccount> {
        let mut accounts = self.lock();
        match accounts.by_tenant.get(tenant) {
            Some(account) => Arc::clone(account),
            None => Arc::clone(accounts.by_tenant.entry(tenant.into()).or_default()),
        }
    }

    /// Recalculates the fair shares if a window has passed.
    fn roll(&self, now: Duration) {
        let (next, due) = (nanos(now + WINDOW), self.next_window.load(Ordering::Relaxed));
        if nanos(now) < due
            || self.next_window.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let process_used = process_time();
        let mut accounts = self.lock();
        let passed = now.saturating_sub(accounts.window_began).as_secs_f64();
        let used = process_used.saturating_sub(accounts.process_used).as_secs_f64();
        accounts.window_began = now;
        accounts.process_used = process_used;
        accounts.divide(now, passed, used, self.capacity, self.processors);
    }

    fn lock(&self) -> MutexGuard<'_, CpuAccounts> {
        self.accounts.lock()
    }
}

impl CpuAccounts {
    /// `used`: what the process used of its `processors` in a window of length `passed`.
    fn divide(&mut self, now: Duration, passed: f64, used: f64, capacity: f64, processors: f64) {
        let mut uses = Vec::with_capacity(self.by_tenant.len());
        let mut metered = 0.0;
        self.by_tenant.retain(|_, account| {
            let mut pace = account.lock();
            let total = account.used.load(Ordering::Relaxed);
            let seconds = seconds(total - pace.counted);
            if total > pace.counted || pace.waiting > 0 || pace.active_at.is_zero() {
                pace.active_at = now.max(Duration::from_nanos(1));
            }
            pace.counted = total;
            drop(pace);
            metered += seconds;
            uses.push((seconds, Arc::clone(account)));
            let is_idle = now.saturating_sub(account.lock().active_at) > IDLE;
            // An account that is still referenced continues to meter, so it stays.
            if is_idle && Arc::strong_count(account) <= 2 {
                uses.pop();
                return false;
            }
            true
        });
        uses.retain(|(_, account)| now.saturating_sub(account.lock().active_at) <= IDLE);
        let is_contended = uses.len() > 1 && passed > 0.0 && used / passed > BUSY * processors;
        if !is_contended {
            for (_, account) in uses {
                account.is_limited.store(false, Ordering::Relaxed);
            }
            return;
        }
        // Time outside of metered futures is charged in proportion.
        let overhead = if metered > 0.0 { (used / metered).max(1.0) } else { 1.0 };
        uses.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (mut left, mut sharers) = (capacity, uses.len());
        for (metered, account) in uses {
            let wanted = metered * overhead / passed;
            let fair = left / sharers as f64;
            let mut pace = account.lock();
            // A tenant that waits would use more than it does.
            let is_over = wanted > fair || (pace.waiting > 0 && wanted > fair / 2.0);
            if is_over {
                pace.limit(account.used.load(Ordering::Relaxed), fair, overhead, now);
            }
            account.is_limited.store(is_over, Ordering::Relaxed);
            left -= wanted.min(fair);
            sharers -= 1;
        }
    }
}

impl CpuAccount {
    fn lock(&self) -> MutexGuard<'_, CpuPace> {
        self.pace.lock()
    }

    fn charge(&self, used: Duration) {
        self.used.fetch_add(nanos(used), Ordering::Relaxed);
    }

    /// How long until the next caller may continue, behind those that wait already.
    fn wait(&self, now: Duration) -> Option<Duration> {
        let mut pace = self.lock();
        pace.update_balance(self.used.load(Ordering::Relaxed), now);
        if pace.balance > 0.0 {
            pace.admitted += 1;
            // Deducted until it is metered, so that not all of them continue at once.
            pace.advanced += pace.cost;
            pace.balance -= pace.cost;
            return None;
        }
        let owed = f64::from(pace.waiting).mul_add(pace.cost, -pace.balance);
        let wait = owed / pace.rate.max(LEAST_RATE);
        Some(Duration::from_secs_f64(wait.clamp(0.001, LONGEST_SLEEP.as_secs_f64())))
    }
}

impl CpuPace {
    /// Sets the rate from now on.
    fn limit(&mut self, used: u64, rate: f64, overhead: f64, now: Duration) {
        if self.at.is_zero() {
            (self.charged, self.at, self.balance) = (used, now, 0.0);
        }
        self.update_balance(used, now);
        (self.rate, self.overhead) = (rate, overhead);
    }

    /// Updates the balance.
    fn update_balance(&mut self, used: u64, now: Duration) {
        let spent = seconds(used - self.charged) * self.overhead;
        let passed = now.saturating_sub(self.at).as_secs_f64();
        if self.admitted > 0 {
            let cost = spent / self.admitted as f64;
            self.cost = if self.cost > 0.0 { 0.9 * self.cost + 0.1 * cost } else { cost };
        }
        // Return what was deducted in advance, and deduct what was really used.
        self.balance = (self.balance + self.advanced - spent + passed * self.rate).min(self.rate * BURST);
        // A debt of many windows would punish the tenant for long for what was metered late.
        self.balance = self.balance.max(-self.rate * WINDOW.as_secs_f64() * 5.0);
        (self.charged, self.at) = (used, now);
        (self.admitted, self.advanced) = (0, 0.0);
    }
}

/// A wait to be done. It counts while this value is alive, so that later callers wait longer.
pub(crate) struct CpuWait {
    pub(crate) sleep: Duration,
    _waiting: CpuWaitGuard,
}

/// Counts a waiting caller until it is dropped.
struct CpuWaitGuard(Arc<CpuAccount>);

impl CpuWaitGuard {
    fn enter(account: Arc<CpuAccount>) -> Self {
        account.lock().waiting += 1;
        Self(account)
    }
}

impl Drop for CpuWaitGuard {
    fn drop(&mut self) {
        let mut pace = self.0.lock();
        pace.waiting = pace.waiting.saturating_sub(1);
    }
}

pin_project! {
    /// A future whose polls are charged to a tenant.
    pub struct Metered<F> {
        #[pin]
        future: F,
        account: Option<Arc<CpuAccount>>,
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(account) = this.account else { return this.future.poll(cx) };
        let began = Instant::now();
        let polled = this.future.poll(cx);
        account.charge(began.elapsed());
        polled
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

/// The processor time of this process.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn accounts(used: &[(&str, Duration)]) -> CpuAccounts {
        let mut accounts = CpuAccounts::default();
        for (tenant, used) in used {
            let account = accounts.by_tenant.entry((*tenant).into()).or_default();
            account.charge(*used);
        }
        accounts
    }

    /// The rate of each tenant after one window of a second on two processors.
    fn rates(used: &[(&str, Duration)], process: Duration) -> Vec<Option<f64>> {
        let mut accounts = accounts(used);
        accounts.divide(Duration::from_secs(1), 1.0, process.as_secs_f64(), 1.5, 2.0);
        let rate = |tenant: &str| {
            let account = &accounts.by_tenant[tenant];
            account.is_limited.load(Ordering::Relaxed).then(|| account.lock().rate)
        };
        used.iter().map(|(tenant, _)| rate(tenant)).collect()
    }

    #[test]
    fn those_that_use_little_keep_it_and_the_others_divide_the_rest() {
        let one = rates(&[("evil", 1_800 * MS), ("good", 100 * MS)], 1_900 * MS);
        assert!(one[0].is_some_and(|rate| (rate - 1.4).abs() < 1e-9), "{one:?}");
        assert_eq!(one[1], None);
        let two = rates(&[("a", 900 * MS), ("b", 800 * MS), ("good", 100 * MS)], 1_800 * MS);
        assert!(two[0].is_some_and(|rate| (rate - 0.7).abs() < 1e-9), "{two:?}");
        assert_eq!((two[0], two[2]), (two[1], None));
        // Half of what the process does is metered, so each counts twice.
        let halved = rates(&[("evil", 900 * MS), ("good", 50 * MS)], 1_900 * MS);
        assert!(halved[0].is_some_and(|rate| (rate - 1.4).abs() < 1e-9), "{halved:?}");
    }

    #[test]
    fn nobody_waits_alone_or_where_there_is_room() {
        assert_eq!(rates(&[("evil", 2_000 * MS)], 2_000 * MS), [None]);
        assert_eq!(rates(&[("a", 500 * MS), ("b", 400 * MS)], 900 * MS), [None, None]);
    }

    #[test]
    fn a_limited_tenant_goes_on_at_its_rate() {
        let mut accounts = accounts(&[("evil", 1_900 * MS), ("good", 600 * MS)]);
        accounts.divide(Duration::from_secs(1), 1.0, 2.0, 1.5, 2.0);
        let evil = Arc::clone(&accounts.by_tenant["evil"]);
        let rate = evil.lock().rate;
        let (mut used, mut now, mut longest) = (Duration::ZERO, Duration::from_secs(1), Duration::ZERO);
        while now < Duration::from_secs(11) {
            match evil.wait(now) {
                None => {
                    evil.charge(2 * MS);
                    used += 2 * MS;
                    // Two processors: it takes half as long.
                    now += MS;
                }
                Some(wait) => {
                    longest = longest.max(wait);
                    now += wait;
                }
            }
        }
        let wanted = rate / evil.lock().overhead * 10.0;
        assert!((used.as_secs_f64() / wanted - 1.0).abs() < 0.05, "{used:?} in 10 s, not {wanted}");
        assert!(longest <= LONGEST_SLEEP, "{longest:?}");
    }

    #[test]
    fn a_wait_is_finite_before_there_is_a_rate() {
        assert_eq!(CpuAccount::default().wait(Duration::from_secs(1)), Some(MS));
    }

    #[test]
    fn a_tenant_that_left_is_forgotten() {
        let mut accounts = accounts(&[("a", MS), ("b", MS)]);
        accounts.divide(Duration::from_secs(1), 1.0, 0.1, 1.5, 2.0);
        assert_eq!(accounts.by_tenant.len(), 2);
        accounts.by_tenant["b"].charge(MS);
        accounts.divide(Duration::from_secs(4), 3.0, 0.1, 1.5, 2.0);
        assert_eq!(accounts.by_tenant.keys().map(|name| &**name).collect::<Vec<_>>(), ["b"]);
    }

    #[tokio::test]
    async fn what_is_polled_is_counted_as_the_tenants() {
        let shares = CpuShares::new(75);
        let busy = async {
            let began = Instant::now();
            while began.elapsed() < 20 * MS {}
            tokio::task::yield_now().await;
        };
        shares.meter("acme/ada", busy).await;
        let used = shares.account("acme").used.load(Ordering::Relaxed);
        assert!(used >= nanos(20 * MS), "{used} ns");
        assert!(shares.wait("acme/ada").is_none(), "it is alone");
    }
}
