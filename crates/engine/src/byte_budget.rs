//! A budget of the bytes that requests hold in memory: bodies that were read, tasks that are being folded,
//! responses that are not sent yet. It is bounded in total and per caller, so that neither many large
//! requests nor clients that do not read their responses can exhaust the memory of the process.
//!
//! A tenant holds at most as much as is still free: alone it gets half, the second gets a third, and there is
//! always something left for the next one. A reservation waits for a limited time until other permits are
//! released. The bytes are counted in the usage ledger (`usage.rs`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    access::Caller,
    error::Error,
    usage::{MeteredResource, UsageLedger, UsagePermit},
};

/// Smaller amounts are not counted: the number of connections bounds them.
const UNCOUNTED: u64 = 16 * 1024;
/// How long a reservation waits before it is refused.
const WAIT: Duration = Duration::from_secs(10);
/// The maximum number of waiting reservations per caller; more are refused immediately.
const MAX_WAITING: usize = 256;

/// Reserves bytes in flight.
pub(crate) struct ByteBudget {
    ledger: Arc<UsageLedger>,
    in_all: u64,
    per_caller: u64,
    /// The number of waiting reservations, by owner.
    waiting: Mutex<HashMap<String, usize>>,
}

/// Bytes that a caller holds, until this is dropped.
#[derive(Debug, Default)]
pub struct BytePermit(Option<UsagePermit>);

impl ByteBudget {
    pub(crate) fn new(ledger: &Arc<UsageLedger>, in_all: u64, per_caller: u64) -> Self {
        let per_caller = per_caller.min(in_all / 2).max(1);
        Self { ledger: Arc::clone(ledger), in_all, per_caller, waiting: Mutex::default() }
    }

    /// Reserves bytes before they are read. An amount above a caller's whole limit counts as that limit, so
    /// that one large request at a time is always possible.
    pub(crate) async fn reserve(&self, caller: &Caller, bytes: u64) -> Result<BytePermit, Error> {
        if bytes < UNCOUNTED {
            return Ok(BytePermit(None));
        }
        let bytes = bytes.min(self.per_caller);
        if let Some(permit) = self.take_if_free(caller, bytes) {
            return Ok(permit);
        }
        let _waiting = self.wait_in_line(caller)?;
        let deadline = Instant::now() + WAIT;
        loop {
            let mut released = std::pin::pin!(self.ledger.released());
            // Before the next attempt, so that no release between the two is missed.
            released.as_mut().enable();
            if let Some(permit) = self.take_if_free(caller, bytes) {
                return Ok(permit);
            }
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return Err(self.refusal());
            }
        }
    }

    /// Counts bytes that are in memory already. It may exceed the budget; reservations then wait.
    pub(crate) fn charge(&self, caller: &Caller, bytes: u64) -> BytePermit {
        if bytes < UNCOUNTED {
            return BytePermit(None);
        }
        BytePermit(self.ledger.take_if(caller.owner(), MeteredResource::BytesInFlight, bytes, |_| true))
    }

    /// How many bytes are in flight.
    pub(crate) fn held(&self) -> u64 {
        self.ledger.used("", MeteredResource::BytesInFlight).total
    }

    fn take_if_free(&self, caller: &Caller, bytes: u64) -> Option<BytePermit> {
        let fits = |used: crate::usage::ResourceUse| {
            let free = self.in_all.saturating_sub(used.total);
            used.owner + bytes <= self.per_caller && used.tenant + bytes <= free
        };
        let permit = self.ledger.take_if(caller.owner(), MeteredResource::BytesInFlight, bytes, fits)?;
        Some(BytePermit(Some(permit)))
    }

    fn refusal(&self) -> Error {
        let why = format!(
            "requests and answers of this caller or tenant hold as many bytes as they may (bytes-in-flight: {} in all, \
             bytes-in-flight-per-caller: {}): read the answers that are under way, or ask for less",
            self.in_all, self.per_caller
        );
        Error::busy("limits.bytes-in-flight", why, Duration::from_secs(1))
    }

    fn wait_in_line(&self, caller: &Caller) -> Result<WaitingReservation<'_>, Error> {
        let mut waiting = self.lock_waiting();
        let count = waiting.entry(caller.owner().to_owned()).or_default();
        if *count >= MAX_WAITING {
            return Err(self.refusal());
        }
        *count += 1;
        Ok(WaitingReservation { budget: self, owner: caller.owner().to_owned() })
    }

    fn lock_waiting(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.waiting.lock()
    }
}

impl BytePermit {
    /// Releases all but this many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(permit) = &mut self.0
            && permit.amount() > bytes
        {
            permit.shrink(permit.amount() - bytes);
        }
    }
}

/// Counts a waiting reservation until it is dropped.
struct WaitingReservation<'a> {
    budget: &'a ByteBudget,
    owner: String,
}

impl Drop for WaitingReservation<'_> {
    fn drop(&mut self) {
        let mut waiting = self.budget.lock_waiting();
        if let Some(count) = waiting.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn budget(in_all: u64, per_caller: u64) -> ByteBudget {
        ByteBudget::new(&UsageLedger::new(crate::usage::UsageLimits::default()), in_all, per_caller)
    }

    fn caller(owner: &str) -> Caller {
        Caller::named(owner)
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_its_own_bytes_and_is_refused_in_the_end() {
        let budget = budget(100 * MIB, 10 * MIB);
        let a = caller("acme/a");
        let first = budget.reserve(&a, 8 * MIB).await.unwrap();
        let mut second = Box::pin(budget.reserve(&a, 8 * MIB));
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        // Another caller does not wait.
        drop(budget.reserve(&caller("acme/b"), 8 * MIB).await.unwrap());
        drop(first);
        let second = second.await.unwrap();
        let error = budget.reserve(&a, 8 * MIB).await.err().unwrap();
        assert!(matches!(&error, Error::Busy { why, .. } if why.contains("bytes-in-flight")), "{error}");
        drop(second);
        assert_eq!(budget.held(), 0);
        assert!(budget.lock_waiting().is_empty(), "nothing is remembered");
    }

    #[tokio::test]
    async fn a_tenant_with_many_callers_leaves_something_for_the_next() {
        let budget = budget(90 * MIB, 5 * MIB);
        let mut held = vec![];
        for n in 0.. {
            match budget.reserve(&caller(&format!("acme/{n}")), 5 * MIB).now_or_never() {
                Some(permit) => held.push(permit.unwrap()),
                None => break,
            }
        }
        assert_eq!(held.len(), 9, "half of it");
        for n in 0..4 {
            let name = format!("beta/{n}");
            held.push(budget.reserve(&caller(&name), 5 * MIB).now_or_never().expect("free at once").unwrap());
        }
        let late = budget.reserve(&caller("gamma/x"), 5 * MIB).now_or_never();
        assert!(late.is_some_and(|permit| permit.is_ok()), "and for the third");
    }

    #[tokio::test]
    async fn what_is_there_already_is_counted_and_what_is_larger_than_the_share_takes_all_of_it() {
        let budget = budget(40 * MIB, 10 * MIB);
        let a = caller("acme/a");
        let mut one = budget.reserve(&a, 1_000 * MIB).now_or_never().unwrap().unwrap();
        assert_eq!(budget.held(), 10 * MIB);
        one.shrink_to(MIB);
        assert_eq!(budget.held(), MIB);
        let there = budget.charge(&a, 100 * MIB);
        assert_eq!(budget.held(), 101 * MIB);
        assert!(budget.reserve(&caller("beta/b"), MIB).now_or_never().is_none(), "nothing is free");
        drop((one, there));
        assert_eq!(budget.held(), 0);
    }
}
