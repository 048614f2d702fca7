//! What a process has used so far, from `/proc`: its own and that of its children, so that a server that
//! forks workers is not seen as cheap.

use std::fs;

/// `USER_HZ`, which is 100 on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Used by a process and its descendants.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_s: f64,
    pub(crate) rss_kib: u64,
}

/// A process that has ended counts as nothing.
pub(crate) fn usage(pid: u32) -> Usage {
    let mut total = Usage::default();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        total.cpu_s += cpu_ticks(pid).unwrap_or_default() as f64 / TICKS_PER_SECOND;
        total.rss_kib += rss_kib(pid).unwrap_or_default();
        open.extend(children(pid));
    }
    total
}

/// User and system time, with that of children that were waited for.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the fields after it begin with the third.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(4);
    times.map(|field| field.parse::<u64>().ok()).sum()
}

fn rss_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A child belongs to the thread that made it.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
