//! Delivery queues, one per endpoint, so that an endpoint that hangs delays only its own deliveries.
//!
//! An endpoint starts with half of the concurrency that one endpoint may have. Each round that was slow to fail
//! halves that, down to one; each other round doubles it again. A host that hangs therefore soon costs one
//! delivery at a time, and as many hosts as the total concurrency would have to hang before another one waits.
//! Endpoints take turns.

use std::collections::{HashMap, VecDeque};

use super::round::EndpointSpeed;

pub(super) struct EndpointQueues<J> {
    queues: HashMap<String, EndpointQueue<J>>,
    /// Endpoints that have a job and may start it, each listed once.
    ready: VecDeque<String>,
    running: usize,
    max_running: usize,
    max_per_lane: usize,
    max_waiting: usize,
}

struct EndpointQueue<J> {
    waiting: VecDeque<J>,
    running: usize,
    allowed: usize,
    is_ready: bool,
}

impl<J> EndpointQueues<J> {
    pub(super) fn new(max_running: usize, max_per_lane: usize, max_waiting: usize) -> Self {
        let (max_running, max_per_lane) = (max_running.max(1), max_per_lane.max(1));
        Self {
            queues: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            max_running,
            max_per_lane,
            max_waiting,
        }
    }

    /// Adds a job to the queue of its endpoint. Returns false and drops the job when that queue is full.
    pub(super) fn offer(&mut self, endpoint: &str, job: J) -> bool {
        let allowed = self.max_per_lane.div_ceil(2);
        let fresh = || EndpointQueue { waiting: VecDeque::new(), running: 0, allowed, is_ready: false };
        let queue = self.queues.entry(endpoint.to_owned()).or_insert_with(fresh);
        if queue.waiting.len() >= self.max_waiting.max(1) {
            return false;
        }
        queue.waiting.push_back(job);
        self.ready_up(endpoint);
        true
    }

    /// The next job that may run now, with its endpoint.
    pub(super) fn next(&mut self) -> Option<(String, J)> {
        if self.running >= self.max_running {
            return None;
        }
        let endpoint = self.ready.pop_front()?;
        let queue = self.queues.get_mut(&endpoint)?;
        queue.is_ready = false;
        let job = queue.waiting.pop_front()?;
        queue.running += 1;
        self.running += 1;
        self.ready_up(&endpoint);
        Some((endpoint, job))
    }

    /// Records the end of a job that `next` returned.
    pub(super) fn finished(&mut self, endpoint: &str, pace: EndpointSpeed) {
        let Some(queue) = self.queues.get_mut(endpoint) else { return };
        self.running -= 1;
        queue.running -= 1;
        queue.allowed = match pace {
            EndpointSpeed::Slow => (queue.allowed / 2).max(1),
            EndpointSpeed::Even => (queue.allowed * 2).min(self.max_per_lane),
            EndpointSpeed::Untried => queue.allowed,
        };
        if queue.running == 0 && queue.waiting.is_empty() {
            self.queues.remove(endpoint);
        } else {
            self.ready_up(endpoint);
        }
    }

    fn ready_up(&mut self, endpoint: &str) {
        let Some(queue) = self.queues.get_mut(endpoint) else { return };
        if !queue.is_ready && !queue.waiting.is_empty() && queue.running < queue.allowed {
            queue.is_ready = true;
            self.ready.push_back(endpoint.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(lanes: &mut EndpointQueues<u32>) -> Vec<(String, u32)> {
        std::iter::from_fn(|| lanes.next()).collect()
    }

    fn offer(lanes: &mut EndpointQueues<u32>, endpoint: &str, jobs: impl IntoIterator<Item = u32>) {
        for job in jobs {
            assert!(lanes.offer(endpoint, job));
        }
    }

    #[test]
    fn lanes_take_turns_and_keep_their_order() {
        let mut lanes = EndpointQueues::new(5, 8, 100);
        offer(&mut lanes, "a", 0..10);
        offer(&mut lanes, "b", 100..102);
        let order: Vec<u32> = take_all(&mut lanes).into_iter().map(|(_, job)| job).collect();
        assert_eq!(order, [0, 100, 1, 101, 2]);
        lanes.finished("b", EndpointSpeed::Even);
        assert_eq!(take_all(&mut lanes), [("a".to_owned(), 3)]);
    }

    #[test]
    fn a_lane_that_hangs_narrows_to_one_and_recovers() {
        let mut lanes = EndpointQueues::new(64, 8, 100);
        offer(&mut lanes, "a", 0..100);
        assert_eq!(take_all(&mut lanes).len(), 4);
        for _ in 0..4 {
            lanes.finished("a", EndpointSpeed::Slow);
        }
        assert_eq!(take_all(&mut lanes).len(), 1);
        lanes.finished("a", EndpointSpeed::Slow);
        assert_eq!(take_all(&mut lanes).len(), 1);
        for expected in [2, 3, 5, 1] {
            lanes.finished("a", EndpointSpeed::Even);
            assert_eq!(take_all(&mut lanes).len(), expected);
        }
    }

    #[test]
    fn a_lane_is_bounded_and_leaves_nothing_behind() {
        let mut lanes = EndpointQueues::new(64, 2, 3);
        offer(&mut lanes, "a", 0..3);
        assert!(!lanes.offer("a", 3));
        offer(&mut lanes, "b", 0..3);
        while let Some((endpoint, _)) = lanes.next() {
            lanes.finished(&endpoint, EndpointSpeed::Even);
        }
        assert!(lanes.queues.is_empty() && lanes.ready.is_empty() && lanes.running == 0);
    }
}
