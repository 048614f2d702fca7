//! An issuer of JWTs: keys of its own, and a server that publishes them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::{Router, http::StatusCode, routing::get};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};

/// A key that signs, and how it is published.
pub(crate) struct Key {
    pub(super) kid: String,
    signing: Signing,
    pub(super) public: Value,
}

enum Signing {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signing {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Es256(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

impl Key {
    pub(crate) fn es256(kid: &str) -> Self {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random).unwrap();
        // An uncompressed point: a 4, x and y.
        let point = pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let public = json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256",
            "x": BASE64_URL_SAFE_NO_PAD.encode(x), "y": BASE64_URL_SAFE_NO_PAD.encode(y) });
        Self { kid: kid.into(), signing: Signing::Es256(pair), public }
    }

    pub(super) fn ed25519(kid: &str) -> Self {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": BASE64_URL_SAFE_NO_PAD.encode(pair.public_key().as_ref()) });
        Self { kid: kid.into(), signing: Signing::Ed25519(pair), public }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(Some(&self.kid), claims)
    }

    pub(super) fn sign_as(&self, kid: Option<&str>, claims: &Value) -> String {
        let mut header = json!({ "typ": "JWT", "alg": self.signing.algorithm() });
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        signed_by(&header, claims, |message| self.signing.sign(message))
    }
}

/// A token whose signature is made of its header and claims.
pub(super) fn signed_by(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let unsigned = forged(header, claims, b"");
    let message = unsigned.trim_end_matches('.');
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(sign(message.as_bytes())))
}

/// A token put together by hand, with any header and any signature.
pub(super) fn forged(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(header), part(claims), BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// Publishes keys, until it is away.
pub(super) struct Issuer {
    pub(super) url: String,
    keys: Arc<Mutex<Value>>,
    pub(super) asked: Arc<AtomicUsize>,
    pub(super) away: Arc<AtomicBool>,
}

impl Issuer {
    pub(super) async fn new(keys: &[&Key]) -> Self {
        let (kept, asked, away) = (
            Arc::new(Mutex::new(jwks(keys))),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let state = (Arc::clone(&kept), Arc::clone(&asked), Arc::clone(&away));
        let answer = move || {
            let (keys, asked, away) = state.clone();
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                match away.load(Ordering::SeqCst) {
                    true => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                    false => (StatusCode::OK, keys.lock().unwrap().to_string()),
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/jwks", get(answer))).await });
        Self { url, keys: kept, asked, away }
    }

    pub(super) fn publish(&self, keys: &[&Key]) {
        *self.keys.lock().unwrap() = jwks(keys);
    }
}

pub(crate) fn jwks(keys: &[&Key]) -> Value {
    let mut all: Vec<Value> = keys.iter().map(|key| key.public.clone()).collect();
    // Kinds that are not known here stand beside the others.
    all.push(json!({ "kty": "AKP", "alg": "ML-DSA-44", "kid": "strange", "pub": "AAAA" }));
    json!({ "keys": all })
}
