//! What a card must be signed with to be trusted, and what of it is trusted then.

use nuncio_engine::{Profile, Skill};
use nuncio_wire::a2a::{
    card::{self, CardContext},
    card_signature::{CardSignatureHeader, add_signatures},
};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use super::*;

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
    }

    fn jwk(&self, kid: &str) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| BASE64_URL_SAFE_NO_PAD.encode(half));
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": kid })
    }

    fn pem(&self) -> String {
        let der = [&P256_PREFIX[..], self.0.public_key().as_ref()].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64_STANDARD.encode(der))
    }

    fn sign(&self, kid: &str, payload: &str) -> CardSignature {
        let protected = header("ES256", kid);
        let signature = self.0.sign(&SystemRandom::new(), signing_input(&protected, payload).as_bytes());
        CardSignature::new(protected, signature.unwrap().as_ref())
    }

    /// Signs a card for the readers of these generations, in all forms.
    fn signed(&self, kid: &str, mut card: Value, readers: &[Dialect]) -> Value {
        let forms = readers.iter().flat_map(|reader| signed_forms(&card, *reader));
        let signatures: Vec<_> = forms.map(|form| self.sign(kid, &form.payload)).collect();
        add_signatures(&mut card, &signatures);
        card
    }
}

fn header(algorithm: &str, kid: &str) -> String {
    let header = CardSignatureHeader {
        algorithm: algorithm.into(),
        key_id: kid.into(),
        key_set_url: Some("https://evil.example/jwks.json".into()),
    };
    header.encode()
}

fn keys(keys: &[Value]) -> CardKeySet {
    CardKeySet::parse(&json!({ "keys": keys }).to_string()).unwrap()
}

type WriteCard = fn(&Profile, &CardContext) -> Value;

/// The documents that a server of ours serves, and who reads them.
const DOCUMENTS: [(WriteCard, &[Dialect]); 3] = [
    (card::v1, &[Dialect::V1]),
    (card::v0_3, &[Dialect::V0_3]),
    (card::combined, &[Dialect::V1, Dialect::V0_3]),
];

fn sample(write: WriteCard) -> Value {
    let mut profile = Profile::new("travel", "Bücht Reisen 😀");
    profile.skills = vec![Skill::new("book", "Book", "")];
    let cx = CardContext {
        bearer: true,
        scopes: vec!["execute:a2a:travel".into()],
        provider: Some(("Example".into(), "https://example.com".into())),
        ..CardContext::new("https://example.com/agents/travel")
    };
    write(&profile, &cx)
}

#[test]
fn what_is_signed_for_a_generation_is_verified_in_every_document_of_it() {
    let signer = Signer::new();
    for (write, readers) in DOCUMENTS {
        let card = signer.signed("k", sample(write), readers);
        for keys in [keys(&[signer.jwk("k")]), CardKeySet::parse(&signer.pem()).unwrap()] {
            let verified = keys.verify(&card).unwrap();
            assert_eq!(verified.key_id, "k");
            assert_eq!(verified.view["name"], "travel");
            assert!(verified.view.get("signatures").is_none());
            for member in ["supportedInterfaces", "url"] {
                assert_eq!(verified.view.get(member), card.get(member), "{member}");
            }
        }
    }
}

/// All places in a document: the pointers of its members and items.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    let mut inner = |name: &str, value: &Value| {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        places(value, &at, out);
        out.push(at);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| inner(name, value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| inner(&index.to_string(), value));
        }
        _ => {}
    }
}

/// Changes each value of a card in turn: it is refused, or what was changed is not in the view.
#[test]
fn nothing_that_was_changed_is_trusted() {
    let signer = Signer::new();
    let keys = keys(&[signer.jwk("k")]);
    for (write, readers) in DOCUMENTS {
        let card = signer.signed("k", sample(write), readers);
        let honest = keys.verify(&card).unwrap().view;
        let mut all = vec![];
        places(&card, "", &mut all);
        assert!(all.len() > 40, "{all:?}");
        for place in all.iter().filter(|place| !place.starts_with("/signatures")) {
            let mut changed = card.clone();
            *changed.pointer_mut(place).unwrap() = json!("changed");
            if let Ok(verified) = keys.verify(&changed) {
                assert!(!verified.view.to_string().contains("changed"), "{place}: {}", verified.view);
                assert_eq!(readers.len(), 2, "{place}: a card of one generation is refused as a whole");
            }
        }
        // What is added is not signed: it is refused, or left out.
        for (name, value) in
            [("iconUrl", json!("https://evil.example")), ("url", json!("https://evil.example"))]
        {
            let mut changed = card.clone();
            changed[name] = value;
            if let Ok(verified) = keys.verify(&changed) {
                assert!(!verified.view.to_string().contains("evil"), "{name}: {}", verified.view);
            }
        }
        let mut more = card.clone();
        more["x-unknown"] = json!({ "endpoint": "https://evil.example" });
        assert_eq!(keys.verify(&more).unwrap().view, honest, "unknown members are not signed, and not used");
    }
}

#[test]
fn keys_and_algorithms_that_are_not_trusted_verify_nothing() {
    let (signer, other) = (Signer::new(), Signer::new());
    let card = signer.signed("k", sample(card::v1), &[Dialect::V1]);
    let unknown = CardVerificationError::UnknownKey("\"k\"".into());
    let check = |keys: &[Value], expected: &CardVerificationError| {
        let keys = CardKeySet(keys.iter().filter_map(CardKey::of_jwk).collect());
        assert_eq!(keys.verify(&card).unwrap_err(), *expected);
    };
    // The right key under another id, another key under the right id, and a retired one.
    check(&[signer.jwk("other")], &unknown);
    check(&[other.jwk("k")], &CardVerificationError::Wrong);
    check(&[], &unknown);
    let mut unsigned = card.clone();
    unsigned.as_object_mut().unwrap().remove("signatures");
    assert_eq!(keys(&[signer.jwk("k")]).verify(&unsigned), Err(CardVerificationError::Absent));

    // `none`, and HMAC with the public key as its secret.
    let payload = &signed_forms(&unsigned, Dialect::V1)[0].payload;
    let secret = hmac::Key::new(hmac::HMAC_SHA256, signer.0.public_key().as_ref());
    for (algorithm, bytes) in [
        ("none", vec![]),
        (
            "HS256",
            hmac::sign(&secret, signing_input(&header("HS256", "k"), payload).as_bytes()).as_ref().to_vec(),
        ),
        ("ES256", vec![]),
        ("ES256", vec![0; 64]),
        ("ES512", vec![0; 64]),
    ] {
        let mut forged = unsigned.clone();
        add_signatures(&mut forged, &[CardSignature::new(header(algorithm, "k"), &bytes)]);
        for keys in [keys(&[signer.jwk("k")]), CardKeySet::parse(&signer.pem()).unwrap()] {
            assert!(keys.verify(&forged).is_err(), "{algorithm}");
        }
    }
    // A signature that fits counts, whatever stands before it.
    let mut several = unsigned;
    let signatures =
        [CardSignature::new(header("none", "k"), b""), other.sign("k", payload), signer.sign("k", payload)];
    add_signatures(&mut several, &signatures);
    assert!(keys(&[signer.jwk("k")]).verify(&several).is_ok());
    // But not one after very many: each costs a verification.
    let mut many: Vec<_> = (0..40).map(|_| CardSignature::new(header("none", "k"), b"")).collect();
    many.push(signer.sign("k", payload));
    add_signatures(&mut several, &many);
    assert!(keys(&[signer.jwk("k")]).verify(&several).is_err());
}

#[test]
fn ed25519_is_verified_too() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut card = sample(card::v1);
    let protected = header("EdDSA", "e");
    let payload = &signed_forms(&card, Dialect::V1)[0].payload;
    let signature = pair.sign(signing_input(&protected, payload).as_bytes());
    add_signatures(&mut card, &[CardSignature::new(protected, signature.as_ref())]);
    let x = BASE64_URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    assert!(keys(&[json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "e" })]).verify(&card).is_ok());
    let der = [&ED25519_PREFIX[..], pair.public_key().as_ref()].concat();
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64_STANDARD.encode(der));
    assert!(CardKeySet::parse(&pem).unwrap().verify(&card).is_ok());
}

#[test]
fn keys_are_read_as_a_user_names_them() {
    let signer = Signer::new();
    let dir = tempfile::tempdir().unwrap();
    let pinned = TrustedCardKeys::Pinned(keys(&[signer.jwk("k")]));
    let set = json!({ "keys": [signer.jwk("k"), { "kty": "oct2" }] }).to_string();
    let file = dir.path().join("keys.json");
    std::fs::write(&file, &set).unwrap();
    for text in [set.as_str(), &signer.jwk("k").to_string(), file.to_str().unwrap()] {
        assert_eq!(TrustedCardKeys::read(text), Ok(pinned.clone()), "{text}");
    }
    for url in ["https://a.example/jwks.json", "http://127.0.0.1:1/jwks.json", "http://localhost/jwks.json"] {
        assert!(matches!(TrustedCardKeys::read(url), Ok(TrustedCardKeys::Url(_))), "{url}");
    }
    let private = json!({ "kty": "EC", "crv": "P-256", "x": "", "y": "", "d": "" }).to_string();
    for (text, why) in [
        ("http://a.example/jwks.json", "use https"),
        ("nowhere.json", "cannot be read"),
        ("{", "not JSON"),
        (r#"{"keys":[]}"#, "there is no key"),
        (r#"{"keys":[{"kty":"oct","k":"x"}]}"#, "private key"),
        (&private, "private key"),
        ("-----BEGIN PRIVATE KEY-----", "private key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "P-256 or Ed25519"),
        ("-----BEGIN CERTIFICATE-----", "there is no key"),
    ] {
        let refused = TrustedCardKeys::read(text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    // Keys for other purposes, and of algorithms that are not verified here, are none.
    for change in
        [json!({ "use": "enc" }), json!({ "alg": "ES384" }), json!({ "crv": "P-384" }), json!({ "x": "AA" })]
    {
        let mut key = signer.jwk("k");
        key.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert!(CardKeySet::parse(&key.to_string()).is_err(), "{change}");
    }
}
