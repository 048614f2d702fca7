//! Places for streams: so many in all, and so many for one caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use nuncio_engine::{Caller, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All places.
pub(super) struct Places {
    all: Arc<Semaphore>,
    most: usize,
    /// Where callers are told apart: how many each has, and may have.
    each: Option<(Arc<Taken>, usize)>,
}

type Taken = Mutex<HashMap<String, usize>>;

/// The place of one stream, until it is dropped.
pub(super) struct Permit {
    _permit: OwnedSemaphorePermit,
    _own: Option<Own>,
}

struct Own {
    taken: Arc<Taken>,
    owner: String,
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

impl Places {
    /// `each`: places of one caller, where callers are told apart.
    pub(super) fn new(most: usize, each: Option<usize>) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), most, each: each.map(|each| (Arc::default(), each)) }
    }

    /// A place for one more stream of that caller.
    pub(super) fn place(&self, caller: &Caller) -> Result<Permit, Error> {
        let full = |why| Error::Busy { why, retry_after: Duration::from_secs(1) };
        let own = match &self.each {
            None => None,
            Some((taken, most)) => {
                let mut held = taken.lock().unwrap_or_else(PoisonError::into_inner);
                if held.get(caller.owner()).is_some_and(|count| count >= most) {
                    return Err(full(format!("the caller has {most} streams open (max_streams_per_caller)")));
                }
                *held.entry(caller.owner().to_owned()).or_default() += 1;
                Some(Own { taken: Arc::clone(taken), owner: caller.owner().to_owned() })
            }
        };
        let permit = Arc::clone(&self.all).try_acquire_owned();
        let permit =
            permit.map_err(|_| full(format!("there are {} streams open (max_streams)", self.most)))?;
        Ok(Permit { _permit: permit, _own: own })
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.most - self.all.available_permits()
    }
}
