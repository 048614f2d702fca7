//! The slots for streams: a total, a limit per caller, and for a tenant no more than are still free. They are
//! counted in the engine's usage ledger of owners and tenants.

use std::time::Duration;

use nuncio_engine::{Caller, Engine, Error, MeteredResource, UsagePermit};

/// Below this many slots, tenants are not distinguished: a share of them would be zero.
const SHARED_FROM: u64 = 16;

/// The limits on slots.
pub(super) struct StreamSlots {
    most: u64,
    /// Slots of one caller, where callers are distinguished.
    each: Option<u64>,
}

/// The permit of one stream; released on drop.
pub(super) struct StreamPermit {
    _permit: UsagePermit,
}

impl StreamSlots {
    /// `each`: the slots of one caller, where callers are distinguished.
    pub(super) fn new(most: usize, each: Option<usize>) -> Self {
        Self { most: most as u64, each: each.map(|each| each as u64) }
    }

    /// Reserves a slot for one more stream of that caller.
    pub(super) fn reserve_slot(&self, engine: &Engine, caller: &Caller) -> Result<StreamPermit, Error> {
        let most = self.most;
        let (mut refused, mut rule) = (String::new(), "http.max-streams");
        let permit = engine.usage().take_if(caller.owner(), MeteredResource::Streams, 1, |used| {
            let free = most.saturating_sub(used.total);
            if let Some(each) = self.each.filter(|each| used.owner >= *each) {
                rule = "http.max-streams-per-caller";
                refused = format!("the caller has {each} streams open (max_streams_per_caller)");
            } else if free == 0 {
                refused = format!("there are {most} streams open (max_streams)");
            } else if self.each.is_some() && most >= SHARED_FROM && used.tenant >= free {
                let (open, most) = (used.tenant, most);
                refused =
                    format!("the tenant has {open} of {most} streams open, which is its share (max_streams)");
            }
            refused.is_empty()
        });
        let full = || Error::busy(rule, refused, Duration::from_secs(1));
        permit.map(|permit| StreamPermit { _permit: permit }).ok_or_else(full)
    }

    /// The number of slots in use.
    pub(super) fn count_used(engine: &Engine) -> usize {
        usize::try_from(engine.usage().used("", MeteredResource::Streams).total).unwrap_or(usize::MAX)
    }
}
