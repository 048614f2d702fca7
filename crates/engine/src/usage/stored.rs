//! What tenants store, as it was last measured, with what was accepted since.
//!
//! A measurement takes a while, and what is accepted meanwhile may be in it or not. It is counted on top until the next
//! measurement, so that a figure is too high rather than too low. What was deleted since counts until then, too.

use std::collections::HashMap;

use super::{MeteredResource, ResourceCounts};
use crate::clock::Timestamp;

type Amounts = HashMap<String, ResourceCounts>;

/// What each tenant stores.
#[derive(Debug, Default)]
pub(super) struct StoredAmounts {
    measured: Amounts,
    measured_at: Option<Timestamp>,
    /// Accepted before the measurement that is under way began.
    accepted_before: Amounts,
    /// Accepted since.
    accepted_since: Amounts,
}

impl StoredAmounts {
    /// How much a tenant stores of a resource.
    pub(super) fn of(&self, tenant: &str, resource: MeteredResource) -> u64 {
        self.parts().filter_map(|amounts| amounts.get(tenant)).map(|counts| counts[resource.index()]).sum()
    }

    /// Everything that is stored, by tenant.
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

    /// A measurement begins: what was accepted until now will be in it.
    pub(super) fn begin_measurement(&mut self) {
        for (tenant, counts) in self.accepted_since.drain() {
            let sums = self.accepted_before.entry(tenant).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    /// A measurement has ended.
    pub(super) fn end_measurement(&mut self, measured: Measurement, at: Timestamp) {
        self.measured = measured.0;
        self.measured_at = Some(at);
        self.accepted_before.clear();
    }

    fn parts(&self) -> impl Iterator<Item = &Amounts> {
        [&self.measured, &self.accepted_before, &self.accepted_since].into_iter()
    }
}

/// What is found while it is measured.
#[derive(Debug, Default)]
pub(crate) struct Measurement(Amounts);

impl Measurement {
    /// Adds what a tenant stores.
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
        // The 7 may be among the 100, or not.
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
