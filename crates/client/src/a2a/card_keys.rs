//! The keys that a user trusts to sign an agent's card: pinned ones, or those at a URL that the user named.
//!
//! The threat is an agent, or a host between, that lies. So nothing in a card decides how it is verified: its `jku` is
//! never fetched (whoever can change the card can name another key set), the algorithm must be that of the key, and `none`
//! and HMAC do not exist here. What was verified is returned as a view, and only the view may be used: members that the
//! signature does not cover are not in it.

use std::path::Path;

use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_wire::a2a::{
    Dialect,
    card_signature::{CardSignature, SignedForm, signed_forms, signing_input, whole_form},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::{Map, Value};
use url::Url;

use super::{
    A2aClientError, A2aHttpOptions,
    http::{A2aHttp, is_private_transport},
};

/// Bytes of a key set.
const MAX_KEY_SET_BYTES: usize = 256 * 1024;
/// Keys of one set. Each costs a verification per signature that names no other.
const MAX_KEYS: usize = 100;
/// Ids of unknown keys in an error, and the characters of each.
const MAX_SHOWN: usize = 4;
const MAX_SHOWN_ID: usize = 64;
/// What precedes a public key in a PEM file of its kind (RFC 5480, RFC 8410).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The keys that may sign a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedCardKeys {
    /// These.
    Pinned(CardKeySet),
    /// Those of the key set at this URL, read for each card.
    Url(Url),
}

/// Public keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardKeySet(Vec<CardKey>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct CardKey {
    /// Signatures name it. A key from a PEM file has none, and may have made any signature.
    id: Option<String>,
    key: CardPublicKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CardPublicKey {
    Es256(Vec<u8>),
    EdDsa(Vec<u8>),
    Rs256 { n: Vec<u8>, e: Vec<u8> },
}

/// A card that was verified.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedCard {
    /// The members that valid signatures cover.
    pub view: Value,
    /// The id of the key of the first valid signature.
    pub key_id: String,
}

/// Why a card is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardVerificationError {
    /// The card has no signature.
    #[error("the card is not signed")]
    Absent,
    /// There are signatures, and no keys to verify them with.
    #[error("the card is signed, and no trusted keys are given")]
    NoKeys,
    /// No signature is by a trusted key.
    #[error("no signature is by a trusted key; it names {0}")]
    UnknownKey(String),
    /// A signature names a trusted key and does not fit the card.
    #[error("the signature does not fit the card: it was changed, or signed by another key")]
    Wrong,
}

impl TrustedCardKeys {
    /// Reads keys as a user names them: the URL of a key set (https, or http on this machine), the keys themselves (a JWK,
    /// a JWKS or PEM), or a file with them.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if Self::is_path(text) {
            let read = std::fs::read_to_string(Path::new(text));
            let read = read.map_err(|error| format!("the file {text:?} cannot be read: {error}"))?;
            return CardKeySet::parse(&read).map(Self::Pinned).map_err(|why| format!("{text:?}: {why}"));
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
            return match is_private_transport(&url) {
                true => Ok(Self::Url(url)),
                false => {
                    Err(format!("{text:?}: keys that come over http can be replaced on the way: use https"))
                }
            };
        }
        CardKeySet::parse(text).map(Self::Pinned)
    }

    /// Whether a text names a file, and is neither a URL nor the keys themselves.
    pub fn is_path(text: &str) -> bool {
        !["https://", "http://", "{", "-----BEGIN"].iter().any(|start| text.trim_start().starts_with(start))
    }

    /// Verifies a card that was read at `at`.
    pub(super) async fn verify(
        &self,
        card: &Value,
        at: &str,
        options: &A2aHttpOptions,
    ) -> Result<VerifiedCard, A2aClientError> {
        let fetched;
        let keys = match self {
            Self::Pinned(keys) => keys,
            Self::Url(url) => {
                fetched = fetch(url, options).await?;
                &fetched
            }
        };
        keys.verify(card).map_err(|why| A2aClientError::UntrustedCard { at: at.to_owned(), why })
    }
}

async fn fetch(url: &Url, options: &A2aHttpOptions) -> Result<CardKeySet, A2aClientError> {
    let options = A2aHttpOptions { max_answer: MAX_KEY_SET_BYTES, ..options.clone() };
    let body = A2aHttp::new(&options, url).get(url, "application/json").await?;
    let unusable =
        |why: String| A2aClientError::Unsupported(format!("the keys at {url} cannot be used: {why}"));
    let text = String::from_utf8(body).map_err(|_| unusable("they are not text".into()))?;
    CardKeySet::parse(&text).map_err(unusable)
}

impl CardKeySet {
    /// Parses a JWK, a JWKS (RFC 7517), or PEM blocks with public keys.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys = match text.trim_start().starts_with('{') {
            true => parse_json(text)?,
            false => parse_pem(text)?,
        };
        match keys.len() {
            0 => Err("there is no key for ES256, EdDSA or RS256".into()),
            1..=MAX_KEYS => Ok(Self(keys)),
            _ => Err(format!("at most {MAX_KEYS} keys")),
        }
    }

    /// Verifies a card: at least one signature by one of these keys must fit (A2A 1.0, section 8.4.3). In a document for
    /// several generations each is verified on its own, and the view has the members of those that are.
    pub fn verify(&self, card: &Value) -> Result<VerifiedCard, CardVerificationError> {
        let signatures = CardSignature::all_of(card);
        if signatures.is_empty() {
            return Err(CardVerificationError::Absent);
        }
        let whole = [whole_form(card)];
        let newer = signed_forms(card, Dialect::V1);
        let older = signed_forms(card, Dialect::V0_3);
        let (mut found, mut is_known, mut named) = (Vec::new(), false, Vec::new());
        for forms in [&whole[..], &newer, &older] {
            let verified = signatures.iter().find_map(|signature| {
                let header = signature.header()?;
                let bytes = signature.bytes()?;
                let keys: Vec<_> =
                    self.0.iter().filter(|key| key.may_be(&header.key_id, &header.algorithm)).collect();
                is_known |= !keys.is_empty();
                let fits = |form: &&SignedForm| {
                    let input = signing_input(&signature.protected, &form.payload);
                    keys.iter().any(|key| key.key.fits(input.as_bytes(), &bytes))
                };
                let form = forms.iter().find(fits);
                named.push(shown(&header.key_id));
                form.map(|form| (form.view.clone(), header.key_id))
            });
            let is_whole = forms.len() == 1 && forms[0] == whole[0];
            found.extend(verified);
            if is_whole && !found.is_empty() {
                break;
            }
        }
        named.sort();
        named.dedup();
        let mut found = found.into_iter();
        let Some((mut view, key_id)) = found.next() else {
            return Err(match is_known {
                true => CardVerificationError::Wrong,
                false => CardVerificationError::UnknownKey(match named.is_empty() {
                    true => "none".to_owned(),
                    false => named[..named.len().min(MAX_SHOWN)].join(", "),
                }),
            });
        };
        for (more, _) in found {
            merge(&mut view, more);
        }
        Ok(VerifiedCard { view, key_id })
    }
}

/// The id of a key for an error. It is the agent's text, so it is escaped and short.
fn shown(id: &str) -> String {
    format!("{:?}", id.chars().take(MAX_SHOWN_ID).collect::<String>())
}

/// Adds the members that are missing, and those of list items: both views are of one document, so lists have the same
/// items.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(&name) {
                    Some(known) => merge(known, value),
                    None => drop(into.insert(name, value)),
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        _ => {}
    }
}

impl CardKey {
    /// Whether a signature with this header may be by this key. A key has one algorithm: the header does not choose it.
    fn may_be(&self, key_id: &str, algorithm: &str) -> bool {
        let own = match &self.key {
            CardPublicKey::Es256(_) => "ES256",
            CardPublicKey::EdDsa(_) => "EdDSA",
            CardPublicKey::Rs256 { .. } => "RS256",
        };
        algorithm == own && self.id.as_ref().is_none_or(|id| id == key_id)
    }

    /// A key of a set; `None` if it is of another kind, or not for signatures.
    fn of_jwk(key: &Value) -> Option<Self> {
        let text = |member: &str| key[member].as_str();
        let bytes = |member: &str| BASE64_URL_SAFE_NO_PAD.decode(text(member)?).ok();
        if text("use").is_some_and(|used| used != "sig") {
            return None;
        }
        let (algorithm, public) = match (text("kty")?, text("crv")) {
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                let is_point = x.len() == 32 && y.len() == 32;
                ("ES256", CardPublicKey::Es256(is_point.then(|| [vec![4], x, y].concat())?))
            }
            ("OKP", Some("Ed25519")) => {
                let x = bytes("x")?;
                ("EdDSA", CardPublicKey::EdDsa((x.len() == 32).then_some(x)?))
            }
            ("RSA", _) => ("RS256", CardPublicKey::Rs256 { n: bytes("n")?, e: bytes("e")? }),
            _ => return None,
        };
        let is_allowed = text("alg").is_none_or(|named| named == algorithm);
        is_allowed.then(|| Self { id: text("kid").map(str::to_owned), key: public })
    }
}

impl CardPublicKey {
    fn fits(&self, input: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Es256(key) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(input, signature)
            }
            Self::EdDsa(key) => UnparsedPublicKey::new(&ED25519, key).verify(input, signature),
            Self::Rs256 { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, input, signature)
            }
        }
        .is_ok()
    }
}

fn parse_json(text: &str) -> Result<Vec<CardKey>, String> {
    let members: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let has_secret = |key: &Value| key.get("d").is_some() || key["kty"] == "oct";
    let listed = match members.get("keys") {
        Some(Value::Array(keys)) => keys.clone(),
        Some(_) => return Err("keys: expected a list".into()),
        None => vec![Value::Object(members)],
    };
    if listed.iter().any(has_secret) {
        return Err("a private key does not belong here: only its public half does".into());
    }
    Ok(listed.iter().filter_map(CardKey::of_jwk).collect())
}

fn parse_pem(text: &str) -> Result<Vec<CardKey>, String> {
    const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
    const END: &str = "-----END PUBLIC KEY-----";
    if text.contains("PRIVATE KEY") {
        return Err("a private key does not belong here: only its public half does".into());
    }
    let mut keys = vec![];
    for block in text.split(BEGIN).skip(1) {
        let base64 = block.split(END).next().unwrap_or_default();
        let base64: String = base64.chars().filter(|c| !c.is_whitespace()).collect();
        let der = BASE64_STANDARD.decode(base64).map_err(|error| format!("PEM: {error}"))?;
        let key = if let Some(point) = der.strip_prefix(&P256_PREFIX) {
            CardPublicKey::Es256(point.to_vec())
        } else if let Some(key) = der.strip_prefix(&ED25519_PREFIX) {
            CardPublicKey::EdDsa(key.to_vec())
        } else {
            return Err("PEM: expected keys for P-256 or Ed25519; others as JWK".into());
        };
        keys.push(CardKey { id: None, key });
    }
    Ok(keys)
}

#[cfg(test)]
mod tests;
