//! Refusals by the name of their limit or rule: counted for `/metrics`, and logged as one line per rule and interval.
//!
//! Anybody who can reach the server causes refusals, so a line for each would let an attacker fill the disk. The rules are names
//! of settings and words of this program, so there are few, and the counts are those of the process, as the metrics are.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use crate::metric;

/// How often refusals are logged (`refusals.log-interval`).
pub const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Refusals since the last lines.
static UNLOGGED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Counts a refusal by the limit or rule of that name.
pub fn count_refusal(rule: &str) {
    metric::REFUSALS.counter(&[rule]).increment(1);
    let mut unlogged = UNLOGGED.lock();
    match unlogged.get_mut(rule) {
        Some(count) => *count += 1,
        None => {
            unlogged.insert(rule.to_owned(), 1);
        }
    }
}

/// Logs what was refused since the last call, a line per rule.
pub(crate) fn log_refusals() {
    for (rule, count) in std::mem::take(&mut *UNLOGGED.lock()) {
        tracing::warn!(rule, count, "refused");
    }
}
