//! The keys that sign cards: a record of the store, so that every node signs with the same ones.
//!
//! One key is current. A rotation creates another; until the overlap ends, cards carry signatures of both, and both are
//! in the key set at `/.well-known/jwks.json`. A retired key signs and verifies nothing from then on. The private halves
//! are in the database beside the master key, and have its protection: access to the store is access to the keys.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Engine, Error, access::HOME_TENANT, clock::Timestamp,
    records::Records,
};
use nuncio_wire::timestamp;
use parking_lot::Mutex;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// No tenant's name contains a slash, so erasing a tenant never deletes the keys.
pub(crate) const TENANT: &str = "/server";
const KIND: &str = "card.keys";
const ID: &str = "signing";
/// The path of the key set.
pub(crate) const KEY_SET_PATH: &str = "/.well-known/jwks.json";
/// The algorithm of the signatures.
pub(crate) const ALGORITHM: &str = "ES256";
/// How long the keys are cached: the time until every node signs with a rotated one.
const BELIEVED: Duration = Duration::from_secs(5);
/// The default overlap. Clients that pin a key have this time to learn the next one.
const OVERLAP: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MAX_OVERLAP: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Most keys that are valid at a time: each adds signatures to every card.
const MAX_KEYS: usize = 4;
/// Most attempts to write a change that conflicts with concurrent ones.
const ATTEMPTS: usize = 64;

/// The stored keys, the current one first. Fields are only ever added.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct StoredCardKeys {
    keys: Vec<StoredCardKey>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCardKey {
    kid: String,
    /// The key pair as PKCS #8, in base64url.
    pkcs8: String,
    created_at: Timestamp,
    /// The end of the overlap, once there is a newer key.
    until: Option<Timestamp>,
}

impl std::fmt::Debug for StoredCardKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredCardKey({})", self.kid)
    }
}

/// A key that signs.
pub(crate) struct CardSigningKey {
    pub(crate) kid: String,
    pair: EcdsaKeyPair,
    created_at: Timestamp,
    until: Option<Timestamp>,
}

/// The keys that are valid at a time, the current one first.
pub(crate) type ActiveCardKeys = Vec<Arc<CardSigningKey>>;

/// The keys that sign this server's cards.
#[derive(Default)]
pub(crate) struct CardSigningKeys {
    /// The keys that were last read, and when.
    known: Mutex<Option<(ActiveCardKeys, Timestamp)>>,
}

impl CardSigningKey {
    fn load(stored: &StoredCardKey) -> Result<Self, Error> {
        let damaged = || {
            Error::Internal(format!(
                "the card key {} in the store is damaged: restore it, or run nuncio key retire {} and nuncio key create",
                stored.kid, stored.kid
            ))
        };
        let pkcs8 = BASE64_URL_SAFE_NO_PAD.decode(&stored.pkcs8).map_err(|_| damaged())?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &SystemRandom::new());
        let pair = pair.map_err(|_| damaged())?;
        let StoredCardKey { kid, created_at, until, .. } = stored.clone();
        Ok(Self { kid, pair, created_at, until })
    }

    /// Signs the input of a JWS. Two signatures of one input differ: they contain a random number.
    pub(crate) fn sign(&self, input: &str) -> Result<Vec<u8>, Error> {
        let signature = self.pair.sign(&SystemRandom::new(), input.as_bytes());
        let signature = signature.map_err(|_| Error::Internal("the card could not be signed".into()))?;
        Ok(signature.as_ref().to_vec())
    }

    fn public_key(&self) -> Value {
        let mut key = public_key(&self.pair);
        for (member, value) in [("kid", self.kid.as_str()), ("alg", ALGORITHM), ("use", "sig")] {
            key[member] = value.into();
        }
        key
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn shown(&self) -> Value {
        json!({
            "kid": self.kid,
            "state": if self.until.is_none() { "current" } else { "previous" },
            "createdAt": timestamp::format(self.created_at),
            "until": self.until.map(timestamp::format),
            "key": self.public_key(),
        })
    }
}

/// The public half as a JWK, with the members that a thumbprint has.
fn public_key(pair: &EcdsaKeyPair) -> Value {
    // An uncompressed point: 4, x, y.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let [x, y] = [x, y].map(|half| BASE64_URL_SAFE_NO_PAD.encode(half));
    json!({ "crv": "P-256", "kty": "EC", "x": x, "y": y })
}

/// Creates a key. Its id is its thumbprint (RFC 7638), so that no two keys share one.
fn generate(now: Timestamp) -> Result<StoredCardKey, Error> {
    let failed = |_| Error::Internal("no key could be created: the system has no randomness".into());
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(failed)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
    let pair = pair.map_err(|error| Error::Internal(format!("the new card key is not usable: {error}")))?;
    let thumbprint = Sha256::digest(public_key(&pair).to_string());
    Ok(StoredCardKey {
        kid: BASE64_URL_SAFE_NO_PAD.encode(thumbprint),
        pkcs8: BASE64_URL_SAFE_NO_PAD.encode(pkcs8.as_ref()),
        created_at: now,
        until: None,
    })
}

impl StoredCardKeys {
    fn drop_expired(&mut self, now: Timestamp) {
        self.keys.retain(|key| key.until.is_none_or(|until| now < until));
    }

    fn load(&self) -> Result<ActiveCardKeys, Error> {
        self.keys.iter().map(|key| CardSigningKey::load(key).map(Arc::new)).collect()
    }
}

impl CardSigningKeys {
    /// The keys that are valid now. If the store does not answer, those that were last read.
    pub(crate) async fn active(&self, engine: &Engine) -> ActiveCardKeys {
        let now = engine.clock().now();
        let known = self.known.lock().clone();
        let keys = match known {
            Some((keys, at)) if at <= now && now < at.after(BELIEVED) => keys,
            known => match self.read(engine, now).await {
                Ok(keys) => keys,
                Err(error) => {
                    tracing::warn!(%error, "the keys of cards could not be read; cards are signed with the last known ones");
                    match known {
                        Some((keys, _)) => {
                            // Not asked again at once: cards must not wait for the store, one after another.
                            *self.known.lock() = Some((keys.clone(), now));
                            keys
                        }
                        None => vec![],
                    }
                }
            },
        };
        keys.into_iter().filter(|key| key.is_valid(now)).collect()
    }

    async fn read(&self, engine: &Engine, now: Timestamp) -> Result<ActiveCardKeys, Error> {
        let record = records(engine).get(TENANT, ID).await?;
        let keys = record.map(|record| record.value).unwrap_or_default().load()?;
        *self.known.lock() = Some((keys.clone(), now));
        Ok(keys)
    }

    /// The public key set (RFC 7517).
    pub(crate) async fn key_set(&self, engine: &Engine) -> Value {
        let keys = self.active(engine).await;
        json!({ "keys": keys.iter().map(|key| key.public_key()).collect::<Vec<_>>() })
    }

    /// Lists the keys for a caller that may see them; never the private halves.
    pub(crate) async fn list(&self, engine: &Engine, caller: &Caller) -> Result<Value, Error> {
        allow(engine, caller, Action::Read, "card.key.list")?;
        self.read(engine, engine.clock().now()).await?;
        Ok(self.shown(engine).await)
    }

    /// Creates the first key.
    pub(crate) async fn create(&self, engine: &Engine, caller: &Caller) -> Result<Value, Error> {
        allow(engine, caller, Action::Write, "card.key.create")?;
        self.update(engine, |stored, now| match stored.keys.iter().any(|key| key.until.is_none()) {
            true => Err(Error::Invalid("cards have a key already: nuncio key rotate replaces it".into())),
            false => {
                stored.keys.insert(0, generate(now)?);
                Ok(())
            }
        })
        .await
    }

    /// Creates the next key. The current one stays valid until the overlap ends.
    pub(crate) async fn rotate(
        &self,
        engine: &Engine,
        caller: &Caller,
        overlap: Option<Duration>,
    ) -> Result<Value, Error> {
        allow(engine, caller, Action::Write, "card.key.rotate")?;
        let overlap = overlap.unwrap_or(OVERLAP);
        if overlap > MAX_OVERLAP {
            let days = MAX_OVERLAP.as_secs() / 86_400;
            return Err(Error::Invalid(format!("overlapSeconds: at most {days} days")));
        }
        self.update(engine, |stored, now| {
            let Some(current) = stored.keys.iter_mut().find(|key| key.until.is_none()) else {
                return Err(Error::Invalid("cards have no key yet: nuncio key create makes one".into()));
            };
            current.until = Some(now.after(overlap));
            stored.drop_expired(now);
            if stored.keys.len() >= MAX_KEYS {
                let message = format!(
                    "at most {MAX_KEYS} keys are valid at a time: retire one (nuncio key retire), or wait until its overlap ends"
                );
                return Err(Error::Invalid(message));
            }
            stored.keys.insert(0, generate(now)?);
            Ok(())
        })
        .await
    }

    /// Invalidates a key at once. Without a current key, cards are not signed.
    pub(crate) async fn retire(&self, engine: &Engine, caller: &Caller, kid: &str) -> Result<Value, Error> {
        allow(engine, caller, Action::Write, "card.key.retire")?;
        self.update(engine, |stored, _| {
            let before = stored.keys.len();
            stored.keys.retain(|key| key.kid != kid);
            match stored.keys.len() < before {
                true => Ok(()),
                false => Err(Error::Invalid(format!("there is no key {kid:?}: nuncio key list shows them"))),
            }
        })
        .await
    }

    async fn update(
        &self,
        engine: &Engine,
        change: impl Fn(&mut StoredCardKeys, Timestamp) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        let now = engine.clock().now();
        let records = records(engine);
        let updated = records.update(TENANT, ID, ATTEMPTS, |found| {
            let mut stored = found.map(|record| record.value.clone()).unwrap_or_default();
            stored.drop_expired(now);
            change(&mut stored, now)?;
            Ok::<_, Error>(Some(stored))
        });
        let stored = updated.await?.map(|record| record.value).unwrap_or_default();
        *self.known.lock() = Some((stored.load()?, now));
        Ok(self.shown(engine).await)
    }

    async fn shown(&self, engine: &Engine) -> Value {
        let keys = self.active(engine).await;
        json!({ "keys": keys.iter().map(|key| key.shown()).collect::<Vec<_>>() })
    }
}

fn records(engine: &Engine) -> Records<StoredCardKeys> {
    engine.records(KIND)
}

/// The keys sign the cards of all tenants' agents, so only administrators of the home tenant reach them.
fn allow(engine: &Engine, caller: &Caller, action: Action, operation: &'static str) -> Result<(), Error> {
    let resource = "admin://card-keys";
    let access =
        AccessRequest { action, kind: AccessKind::Admin, name: "cards", operation, resource: &resource };
    engine.allow(caller, &access)?;
    match caller.tenant() == HOME_TENANT {
        true => Ok(()),
        false => Err(Error::Forbidden(format!("{}:admin:cards of the tenant home", action.name()))),
    }
}
