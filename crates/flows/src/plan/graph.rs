//! The dependency graph of a plan: topological order, levels and the critical path.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::file::Plan;

/// The tasks of a plan by index, and the dependencies of each. Dependencies on unknown tasks are omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanGraph {
    needs: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
}

/// The transitive predecessors of each task.
#[derive(Debug, Clone)]
pub struct PlanPredecessors {
    sets: Vec<Vec<u64>>,
    ordered: Vec<bool>,
}

impl PlanPredecessors {
    /// Whether a task precedes another. If `other` is in a cycle, or after one, the order is undefined, and the
    /// answer is true.
    pub fn is_before(&self, task: usize, other: usize) -> bool {
        !self.ordered[other] || self.sets[other][task / 64] & (1 << (task % 64)) != 0
    }
}

impl PlanGraph {
    /// The graph of a plan.
    pub fn of(plan: &Plan) -> Self {
        let positions: std::collections::HashMap<&str, usize> =
            plan.tasks.iter().enumerate().map(|(n, task)| (task.id.as_str(), n)).collect();
        let mut needs: Vec<Vec<usize>> = vec![];
        let mut dependents = vec![vec![]; plan.tasks.len()];
        for (n, task) in plan.tasks.iter().enumerate() {
            let mut own: Vec<usize> =
                task.needs.iter().filter_map(|need| positions.get(need.as_str()).copied()).collect();
            own.sort_unstable();
            own.dedup();
            for need in &own {
                dependents[*need].push(n);
            }
            needs.push(own);
        }
        Self { needs, dependents }
    }

    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.needs.len()
    }

    /// Whether the plan has no tasks.
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// The dependencies of a task, by index.
    pub fn needs(&self, task: usize) -> &[usize] {
        &self.needs[task]
    }

    /// The tasks that depend on a task, by index.
    pub fn dependents(&self, task: usize) -> &[usize] {
        &self.dependents[task]
    }

    /// All tasks in topological order, otherwise in file order. Tasks in a cycle, and after one, are omitted.
    pub fn order(&self) -> Vec<usize> {
        let mut left: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let free = left.iter().enumerate().filter(|(_, left)| **left == 0);
        let mut ready: BinaryHeap<Reverse<usize>> = free.map(|(n, _)| Reverse(n)).collect();
        let mut order = vec![];
        while let Some(Reverse(n)) = ready.pop() {
            order.push(n);
            for dependent in &self.dependents[n] {
                left[*dependent] -= 1;
                if left[*dependent] == 0 {
                    ready.push(Reverse(*dependent));
                }
            }
        }
        order
    }

    /// A cycle of tasks, as a path that ends where it began.
    pub fn find_cycle(&self) -> Option<Vec<usize>> {
        let mut in_order = vec![false; self.len()];
        for n in self.order() {
            in_order[n] = true;
        }
        // Every remaining task depends on another remaining one, so following dependencies ends in a cycle.
        let start = in_order.iter().position(|sorted| !sorted)?;
        let mut path = vec![start];
        loop {
            let here = *path.last()?;
            let next = *self.needs[here].iter().find(|need| !in_order[**need])?;
            if let Some(at) = path.iter().position(|seen| *seen == next) {
                path.drain(..at);
                path.push(next);
                return Some(path);
            }
            path.push(next);
        }
    }

    /// The level of each task: the length of its longest chain of predecessors.
    pub fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.len()];
        for n in self.order() {
            levels[n] = self.needs[n].iter().map(|need| levels[*need] + 1).max().unwrap_or(0);
        }
        levels
    }

    /// The predecessors of each task, direct and transitive.
    pub fn before(&self) -> PlanPredecessors {
        let mut sets = vec![vec![0_u64; self.len().div_ceil(64)]; self.len()];
        let mut ordered = vec![false; self.len()];
        for n in self.order() {
            let mut own = std::mem::take(&mut sets[n]);
            for need in &self.needs[n] {
                own[need / 64] |= 1 << (need % 64);
                for (bits, theirs) in own.iter_mut().zip(&sets[*need]) {
                    *bits |= theirs;
                }
            }
            (sets[n], ordered[n]) = (own, true);
        }
        PlanPredecessors { sets, ordered }
    }

    /// The critical path and its length, where `takes` gives the duration of each task.
    pub fn critical_path(&self, takes: impl Fn(usize) -> f64) -> (Vec<usize>, f64) {
        let mut done: Vec<(f64, Option<usize>)> = vec![(0.0, None); self.len()];
        for n in self.order() {
            let mut last = (0.0, None);
            for need in &self.needs[n] {
                if last.1.is_none() || done[*need].0 > last.0 {
                    last = (done[*need].0, Some(*need));
                }
            }
            done[n] = (last.0 + takes(n), last.1);
        }
        let mut here = None;
        for n in 0..self.len() {
            if here.is_none_or(|here: usize| done[n].0 > done[here].0) {
                here = Some(n);
            }
        }
        let length = here.map_or(0.0, |n| done[n].0);
        let mut path = vec![];
        while let Some(n) = here {
            path.push(n);
            here = done[n].1;
        }
        path.reverse();
        (path, length)
    }
}
