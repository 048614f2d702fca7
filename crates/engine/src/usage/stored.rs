//! The stored amounts of each tenant: the last measurement, plus what was accepted since.
//!
//! A measurement takes a while, and may or may not include what is accepted meanwhile. That is added until the
//! next measurement, so that a figure is too high rather than too low. Deletions count only at the next
//! measurement, too.

use std::collections::HashMap;

use super::{MeteredResource, ResourceCounts};
use crate::clock::Timestamp;

type Amounts = HashMap<String, ResourceCounts>;

/// The stored amounts of each tenant.
#[derive(Debug, Default)]
pub(super) struct StoredAmounts {
    measured: Amounts,
    measured_at: Option<Timestamp>,
    /// Accepted before the measurement in progress began.
    accepted_before: Amounts,
    /// Accepted since it began.
    accepted_since: Amounts,
}

impl StoredAmounts {
    /// The amount of a resource that a tenant stores.
    pub(super) fn of(&self, tenant: &str, resource: MeteredResource) -> u64 {
        self.parts().filter_map(|amounts| amounts.get(tenant)).map(|counts| counts[resource.index()]).sum()
    }

    /// All stored amounts, by tenant.
    pub(super) fn by_tenant(&self) -> HashMap<&str, ResourceCounts> {
        let mut all: HashMap<&str, ResourceCounts> = HashMap::new();
        for (tenant, counts) in self.parts().flatten() {
            let sums = all.entry(tenant).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        all
    }

    /// When the last measurement ended.
    pub(super) fn measured_at(&self) -> Option<Timestamp> {
        self.measured_at
    }

    pub(super) fn accept(&mut self, tenant: &str, resource: MeteredResource, amount: u64) {
        match self.accepted_since.get_mut(tenant) {
            Some(counts) => counts[resource.index()] += amount,
            None => {
                let mut counts = ResourceCounts::default();
                counts[resource.index()] = amount;
                self.accepted_since.insert(tenant.to_owned(), counts);
            }
        }
    }

    /// Starts a measurement: it will include what was accepted until now.
    pub(super) fn begin_measurement(&mut self) {
        for (tenant, counts) in self.accepted_since.drain() {
            let sums = self.accepted_before.entry(tenant).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Ends a measurement.
    pub(super) fn end_measurement(&mut self, measured: Measurement, at: Timestamp) {
        self.measured = measured.0;
        self.measured_at = Some(at);
        self.accepted_before.clear();
    }

    fn parts(&self) -> impl Iterator<Item = &Amounts> {
        [&self.measured, &self.accepted_before, &self.accepted_since].into_iter()
    }
}

/// The amounts found by a measurement in progress.
#[derive(Debug, Default)]
pub(crate) struct Measurement(Amounts);

impl Measurement {
    /// Adds an amount that a tenant stores.
    pub(crate) fn add(&mut self, tenant: &str, resource: MeteredResource, amount: u64) {
        if amount == 0 {
            return;
        }
        match self.0.get_mut(tenant) {
            Some(counts) => counts[resource.index()] += amount,
            None => {
                let mut counts = ResourceCounts::default();
                counts[resource.index()] = amount;
                self.0.insert(tenant.to_owned(), counts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_counts_until_a_measurement_that_began_later_has_ended() {
        let mut stored = StoredAmounts::default();
        let bytes = MeteredResource::StoredBytes;
        stored.accept("acme", bytes, 5);
        stored.begin_measurement();
        stored.accept("acme", bytes, 7);
        assert_eq!(stored.of("acme", bytes), 12);
        let mut measured = Measurement::default();
        measured.add("acme", bytes, 100);
        measured.add("other", bytes, 1);
        stored.end_measurement(measured, Timestamp(1));
        // The measured 100 may or may not include the 7.
        assert_eq!((stored.of("acme", bytes), stored.of("other", bytes)), (107, 1));
        assert_eq!(
            (stored.of("acme", MeteredResource::Webhooks), stored.measured_at()),
            (0, Some(Timestamp(1)))
        );
        stored.begin_measurement();
        stored.end_measurement(Measurement::default(), Timestamp(2));
        assert_eq!((stored.of("acme", bytes), stored.by_tenant().len()), (0, 0));
    }

    #[test]
    fn a_measurement_that_broke_loses_nothing() {
        let mut stored = StoredAmounts::default();
        stored.accept("acme", MeteredResource::Webhooks, 1);
        stored.begin_measurement();
        stored.accept("acme", MeteredResource::Webhooks, 2);
        stored.begin_measurement();
        assert_eq!(stored.of("acme", MeteredResource::Webhooks), 3);
    }
}
