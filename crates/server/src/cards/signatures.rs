//! The signatures of an agent's cards. They are stored: a signature contains a random number, and every node, also after
//! a restart, must serve the same bytes under the same tag.

use std::collections::BTreeMap;

use nuncio_engine::{Engine, Error};
use nuncio_wire::a2a::{
    Dialect,
    card_signature::{CardSignature, CardSignatureHeader, add_signatures, signed_forms, signing_input},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::card_keys::{ALGORITHM, ActiveCardKeys, CardSigningKey, TENANT};

const KIND: &str = "card.signatures";
/// Nodes that start together write the same record.
const ATTEMPTS: usize = 5;

/// Signatures, by the digest of what they sign.
type SignatureStore = BTreeMap<String, String>;

/// A card to sign, and the generations whose readers use it.
pub(super) struct UnsignedCard<'a> {
    pub(super) card: &'a mut Value,
    pub(super) readers: &'static [Dialect],
}

/// Signs cards with the active keys.
pub(super) struct CardSigner<'a> {
    engine: &'a Engine,
    keys: &'a ActiveCardKeys,
    key_set_url: String,
    /// Whether the store answered so far. A card must not wait for a store that does not, once for every agent.
    reachable: bool,
}

/// One signature to be: its key and protected header, what it signs, and the digest of that.
struct SignatureRequest<'a> {
    key: &'a CardSigningKey,
    protected: String,
    input: String,
    digest: String,
}

impl<'a> CardSigner<'a> {
    pub(super) fn new(engine: &'a Engine, keys: &'a ActiveCardKeys, key_set_url: String) -> Self {
        Self { engine, keys, key_set_url, reachable: true }
    }

    /// Signs the cards of one agent: for each key and each generation that reads the card, every form of its view.
    pub(super) async fn sign(&mut self, agent: &str, cards: Vec<UnsignedCard<'_>>) {
        if self.keys.is_empty() {
            return;
        }
        let requests: Vec<_> = cards.iter().map(|unsigned| self.requests(unsigned)).collect();
        let stored = match self.reachable {
            true => self.stored(agent, requests.iter().flatten()).await.unwrap_or_else(|error| {
                tracing::warn!(agent, %error, "the signatures of the cards could not be stored; others are made");
                self.reachable = false;
                SignatureStore::new()
            }),
            false => SignatureStore::new(),
        };
        for (UnsignedCard { card, .. }, requests) in cards.into_iter().zip(requests) {
            let signatures = requests.into_iter().filter_map(|request| request.finish(&stored));
            add_signatures(card, &signatures.collect::<Vec<_>>());
        }
    }

    fn requests(&self, unsigned: &UnsignedCard<'_>) -> Vec<SignatureRequest<'a>> {
        let forms: Vec<_> =
            unsigned.readers.iter().flat_map(|reader| signed_forms(unsigned.card, *reader)).collect();
        let of_key = |key: &'a CardSigningKey| {
            let header = CardSignatureHeader {
                algorithm: ALGORITHM.to_owned(),
                key_id: key.kid.clone(),
                key_set_url: Some(self.key_set_url.clone()),
            };
            let protected = header.encode();
            let requests = forms.iter().map(move |form| {
                let input = signing_input(&protected, &form.payload);
                let digest = Sha256::digest(&input).iter().map(|byte| format!("{byte:02x}")).collect();
                SignatureRequest { key, protected: protected.clone(), input, digest }
            });
            requests.collect::<Vec<_>>()
        };
        self.keys.iter().flat_map(|key| of_key(key)).collect()
    }

    /// The signatures from the store, with the missing ones added. Those that are no longer needed are deleted.
    async fn stored<'r>(
        &self,
        agent: &str,
        requests: impl Iterator<Item = &'r SignatureRequest<'a>>,
    ) -> Result<SignatureStore, Error>
    where
        'a: 'r,
    {
        let requests: Vec<_> = requests.collect();
        let records = self.engine.records::<SignatureStore>(KIND);
        let updated = records.update(TENANT, agent, ATTEMPTS, |found| {
            let known = found.map(|found| &found.value);
            let mut next = SignatureStore::new();
            for request in &requests {
                let signature = match known.and_then(|known| known.get(&request.digest)) {
                    Some(signature) => signature.clone(),
                    None => request.sign()?.signature,
                };
                next.insert(request.digest.clone(), signature);
            }
            Ok::<_, Error>((known != Some(&next)).then_some(next))
        });
        Ok(updated.await?.map(|record| record.value).unwrap_or_default())
    }
}

impl SignatureRequest<'_> {
    fn sign(&self) -> Result<CardSignature, Error> {
        Ok(CardSignature::new(self.protected.clone(), &self.key.sign(&self.input)?))
    }

    /// The stored signature, or a new one.
    fn finish(self, stored: &SignatureStore) -> Option<CardSignature> {
        match stored.get(&self.digest) {
            Some(signature) => {
                Some(CardSignature { protected: self.protected, signature: signature.clone() })
            }
            None => self.sign().inspect_err(|error| tracing::error!(%error, "a card is not signed")).ok(),
        }
    }
}
