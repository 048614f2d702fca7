//! Slots for streams: so many in all, so many for one caller, and for a tenant no more than are still free. All of it
//! is counted in the ledger of what owners and tenants use.

use std::time::Duration;

use nuncio_engine::{Caller, Engine, Error, MeteredResource, UsagePermit};

/// Where there are fewer slots than this, tenants are not told apart: a share of them would be none.
const SHARED_FROM: u64 = 16;

/// All slots.
pub(super) struct StreamSlots {
    most: u64,
    /// Slots of one caller, where callers are told apart.
    each: Option<u64>,
}

/// The slot of one stream, until it is dropped.
pub(super) struct StreamPermit {
    _permit: UsagePermit,
}

impl StreamSlots {
    /// `each`: slots of one caller, where callers are told apart.
    pub(super) fn new(most: usize, each: Option<usize>) -> Self {
        Self { most: most as u64, each: each.map(|each| each as u64) }
    }

    /// A slot for one more stream of that caller.
    pub(super) fn reserve_slot(&self, engine: &Engine, caller: &Caller) -> Result<StreamPermit, Error> {
        let most = self.most;
        let mut refused = String::new();
        let permit = engine.usage().take_if(caller.owner(), MeteredResource::Streams, 1, |used| {
            let free = most.saturating_sub(used.total);
            if let Some(each) = self.each.filter(|each| used.owner >= *each) {
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
        let full = || Error::Busy { why: refused, retry_after: Duration::from_secs(1) };
        permit.map(|permit| StreamPermit { _permit: permit }).ok_or_else(full)
    }

    /// How many are taken.
    pub(super) fn count_used(engine: &Engine) -> usize {
        usize::try_from(engine.usage().used("", MeteredResource::Streams).total).unwrap_or(usize::MAX)
    }
}
