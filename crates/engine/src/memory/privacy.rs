//! Protection of values that look like secrets: stored encrypted, masked, or as they are.
//!
//! A value is encrypted as a whole, with AES-256-GCM under a key derived from the database's own, so that every
//! node and every backup of the database can decrypt it. Tenant, namespace and key are authenticated with it: an
//! encrypted value that is copied into another row does not decrypt. Full-text words are always those of the
//! masked value.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::{error::Error, knowledge::MemoryKey};

/// What to do with values that look like secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Privacy {
    /// Stored encrypted, and decrypted for every caller that may read the entry.
    #[default]
    Encrypt,
    /// The secret parts are masked and not stored.
    Mask,
    /// Stored as they are.
    Off,
}

impl Privacy {
    /// All of them, with their names in the configuration.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Encrypt, "encrypt"), (Self::Mask, "mask"), (Self::Off, "off")];
}

/// The prefix of an encrypted value. No JSON starts with it.
const SEALED: &str = "sealed:1:";
/// The purpose for which the key is derived.
pub(crate) const PURPOSE: &str = "memory/value/1";

/// Encrypts a value for its key.
pub(super) fn seal(key: [u8; 32], place: &MemoryKey, json: &str) -> Result<String, Error> {
    let broken = |what: &str| Error::Internal(format!("a value cannot be encrypted: {what}"));
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|error| broken(&error.to_string()))?;
    let mut sealed = json.as_bytes().to_vec();
    opener(key)
        .and_then(|key| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_append_tag(nonce, Aad::from(bound_to(place)), &mut sealed).ok()
        })
        .ok_or_else(|| broken("the cipher refused it"))?;
    let mut stored = nonce.to_vec();
    stored.append(&mut sealed);
    Ok(format!("{SEALED}{}", STANDARD_NO_PAD.encode(stored)))
}

/// The JSON of a stored value, encrypted or not.
pub(crate) fn open(
    key: impl FnOnce() -> [u8; 32],
    place: &MemoryKey,
    stored: String,
) -> Result<String, Error> {
    let Some(sealed) = stored.strip_prefix(SEALED) else { return Ok(stored) };
    let opened = || {
        let mut bytes = STANDARD_NO_PAD.decode(sealed).ok()?;
        let mut sealed = bytes.split_off(NONCE_LEN.min(bytes.len()));
        let nonce = Nonce::try_assume_unique_for_key(&bytes).ok()?;
        let json = opener(key())?.open_in_place(nonce, Aad::from(bound_to(place)), &mut sealed).ok()?;
        String::from_utf8(json.to_vec()).ok()
    };
    opened().ok_or_else(|| {
        Error::Internal(format!(
            "the encrypted value of {:?} does not open: it was written under another database's key",
            place.key
        ))
    })
}

fn opener(key: [u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
}

/// Each part with its length, so that no two keys produce the same bytes.
fn bound_to(place: &MemoryKey) -> Vec<u8> {
    let parts = [&place.tenant, &place.namespace, &place.key];
    parts.iter().flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part.bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> MemoryKey {
        MemoryKey { tenant: "home".into(), namespace: "n".into(), key: key.into() }
    }

    #[test]
    fn a_sealed_value_opens_in_its_place_and_nowhere_else() {
        let sealed = seal([7; 32], &place("a"), r#"{"password":"hunter2"}"#).unwrap();
        assert!(sealed.starts_with(SEALED) && !sealed.contains("hunter2"), "{sealed}");
        assert_eq!(open(|| [7; 32], &place("a"), sealed.clone()).unwrap(), r#"{"password":"hunter2"}"#);
        assert!(open(|| [7; 32], &place("b"), sealed.clone()).is_err(), "another key of the namespace");
        assert!(open(|| [8; 32], &place("a"), sealed.clone()).is_err(), "another database");
        assert!(open(|| [7; 32], &place("a"), format!("{SEALED}AAAA")).is_err(), "damaged");
        assert_ne!(seal([7; 32], &place("a"), "1").unwrap(), seal([7; 32], &place("a"), "1").unwrap());
    }

    #[test]
    fn what_was_stored_before_is_read_as_it_is() {
        assert_eq!(open(|| [0; 32], &place("a"), "\"sealed:1:x\"".into()).unwrap(), "\"sealed:1:x\"");
    }
}
