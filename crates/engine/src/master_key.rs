//! The server's master key: 32 random bytes in the database, the same on all nodes and part of every backup.
//!
//! It is never used directly. Each purpose derives a key of its own (HMAC-SHA256), so that no two uses can be
//! confused: digests of contexts, webhook signatures, encrypted values.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    clock::Clock,
    error::Error,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordWrite},
    store::Store,
};

/// No tenant's name contains a slash, so erasing a tenant never deletes the key.
const TENANT: &str = "/server";
const KIND: &str = "server.key";
const ID: &str = "master";
/// The length of every key, in bytes.
const BYTES: usize = 32;

/// The random key from which all others are derived.
pub(crate) struct MasterKey([u8; BYTES]);

impl MasterKey {
    /// The key of this database; created by the first node that reads it.
    pub(crate) async fn load(store: &dyn Store, clock: &dyn Clock) -> Result<Self, Error> {
        let (key, knowledge, now) = (RecordKey::new(TENANT, KIND, ID), store.knowledge(), clock.now());
        if let Some(record) = knowledge.record(&key, now).await? {
            return Self::read(&record);
        }
        let fresh = clock.random_bytes();
        let write = RecordWrite {
            key: key.clone(),
            body: Some(fresh.to_vec().into()),
            expected: ExpectedVersion::Absent,
            expires_at: None,
            now,
        };
        match knowledge.write_records(vec![write]).await {
            Ok(_) => Ok(Self(fresh)),
            // Another node was first.
            Err(RecordError::Moved { .. }) => match knowledge.record(&key, now).await? {
                Some(record) => Self::read(&record),
                None => Err(Error::Internal("the server's master key is missing from the database".into())),
            },
            Err(RecordError::Store(error)) => Err(error.into()),
        }
    }

    fn read(record: &Record) -> Result<Self, Error> {
        let damaged = |_| {
            Error::Internal(format!(
                "the server's master key in the database has {} bytes instead of {BYTES}: restore it from a backup",
                record.body.len()
            ))
        };
        record.body.as_ref().try_into().map(Self).map_err(damaged)
    }

    /// The key for one purpose.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; BYTES] {
        #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key will do");
        mac.chain_update(purpose).finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_a_key_of_its_own_and_always_the_same() {
        let (one, other) = (MasterKey([1; BYTES]), MasterKey([2; BYTES]));
        assert_eq!(one.derive("context"), one.derive("context"));
        assert_ne!(one.derive("context"), one.derive("webhook"));
        assert_ne!(one.derive("context"), other.derive("context"));
    }
}
