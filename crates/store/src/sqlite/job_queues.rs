//! A queue of jobs per tenant for the writer, served round-robin: a tenant with a thousand queued jobs delays
//! those of other tenants by at most one batch.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long after a change of tenant two tenants count as writing concurrently.
const SHARED: Duration = Duration::from_secs(1);

/// The tenant of a job; `None` for the server's own.
pub(super) type JobTenant = Option<Arc<str>>;

/// The queued jobs of all tenants.
pub(super) struct TenantJobQueues<J> {
    jobs: HashMap<JobTenant, VecDeque<J>>,
    /// Tenants with queued jobs, the next one first.
    order: VecDeque<JobTenant>,
    len: usize,
    /// The tenant that wrote last, and when the tenant last changed.
    last: JobTenant,
    changed: Option<Instant>,
}

impl<J> Default for TenantJobQueues<J> {
    fn default() -> Self {
        Self { jobs: HashMap::new(), order: VecDeque::new(), len: 0, last: None, changed: None }
    }
}

impl<J> TenantJobQueues<J> {
    pub(super) fn push(&mut self, tenant: JobTenant, job: J) {
        self.len += 1;
        if let Some(jobs) = self.jobs.get_mut(&tenant) {
            return jobs.push_back(job);
        }
        self.order.push_back(tenant.clone());
        self.jobs.insert(tenant, VecDeque::from([job]));
    }

    /// The next job, tenants in turn.
    pub(super) fn pop(&mut self, now: Instant) -> Option<J> {
        let tenant = self.order.pop_front()?;
        let jobs = self.jobs.get_mut(&tenant)?;
        let job = jobs.pop_front();
        self.len -= usize::from(job.is_some());
        if tenant.is_some() && tenant != self.last {
            self.changed = self.last.is_some().then_some(now);
            self.last.clone_from(&tenant);
        }
        match jobs.is_empty() {
            true => drop(self.jobs.remove(&tenant)),
            false => self.order.push_back(tenant),
        }
        job
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether several tenants write concurrently.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.changed.is_some_and(|changed| now.saturating_duration_since(changed) < SHARED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> JobTenant {
        (!name.is_empty()).then(|| name.into())
    }

    #[test]
    fn lanes_take_turns_and_each_keeps_its_order() {
        let (mut lanes, now) = (TenantJobQueues::default(), Instant::now());
        for n in 0..100 {
            lanes.push(tenant("evil"), ("evil", n));
        }
        for n in 0..3 {
            lanes.push(tenant("good"), ("good", n));
        }
        lanes.push(None, ("server", 0));
        assert_eq!(lanes.len(), 104);
        let first: Vec<_> = (0..8).filter_map(|_| lanes.pop(now)).collect();
        let wanted = [
            ("evil", 0),
            ("good", 0),
            ("server", 0),
            ("evil", 1),
            ("good", 1),
            ("evil", 2),
            ("good", 2),
            ("evil", 3),
        ];
        assert_eq!(first, wanted);
        let rest: Vec<_> = std::iter::from_fn(|| lanes.pop(now)).collect();
        assert_eq!(rest, (4..100).map(|n| ("evil", n)).collect::<Vec<_>>());
        assert!(lanes.is_empty() && lanes.jobs.is_empty());
    }

    #[test]
    fn it_is_shared_while_two_tenants_write() {
        let (mut lanes, now) = (TenantJobQueues::default(), Instant::now());
        let mut write = |name: &str, at: Instant| {
            lanes.push(tenant(name), ());
            lanes.pop(at);
            lanes.is_shared(at)
        };
        assert!(!write("a", now));
        assert!(!write("", now), "the server's own jobs are nobody's");
        assert!(!write("a", now));
        assert!(write("b", now));
        assert!(write("b", now + SHARED / 2));
        assert!(!write("b", now + SHARED), "the other one has not come back");
    }
}
