//! JWTs of an external issuer, verified with the keys that it publishes.
//!
//! The key determines the algorithm, never the token: so neither `none` nor a public key used as an HMAC
//! secret is accepted. Keys are fetched by the shared outbound client, and cached while the issuer is
//! unreachable. They are refetched when a token names an unknown key, but at most every half minute.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use nuncio_engine::{
    Caller, Grants,
    access::{Grant, HOME_TENANT},
    clock::{Clock, Timestamp},
};
use nuncio_outbound::{AddressPolicy, Outbound, OutboundError, OutboundOptions};
use nuncio_server::AuthError;
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

use super::{SecurityOptions, is_name, signature};
use crate::StartError;

/// The allowed clock skew between the issuer and this server.
const LEEWAY: Duration = Duration::from_secs(60);
/// The least time between two fetches of the keys.
const AGAIN: Duration = Duration::from_secs(30);
/// How long fetched keys are fresh.
const FRESH: Duration = Duration::from_secs(600);
/// The timeout of a fetch, and the largest key set in bytes.
const PATIENCE: Duration = Duration::from_secs(10);
const MAX_JWKS: usize = 256 * 1024;
/// The most keys in the cache.
const MAX_KEYS: usize = 64;
/// The longest token accepted, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// The longest subject, in bytes.
const MAX_SUBJECT: usize = 128;
/// The prefix of owners that the issuer vouches for. Names of the server's own tokens cannot contain a colon,
/// so the two never collide.
const OWNER_PREFIX: &str = "jwt:";
/// The most scopes read from one token.
const MAX_SCOPES: usize = 64;

/// Verifies the JWTs of one issuer.
pub struct JwtVerifier {
    issuer: String,
    audience: String,
    tenant_claim: String,
    scope_claim: String,
    tenant: String,
    allow_home: bool,
    default_scopes: Grants,
    clock: Arc<dyn Clock>,
    ring: Arc<JwtKeyRing>,
}

/// The cache of the issuer's keys, and their source.
struct JwtKeyRing {
    issuer: String,
    source: JwtKeySource,
    keys: Mutex<Arc<JwtKeys>>,
    /// Held during a fetch: one fetch serves all waiting requests.
    looking: tokio::sync::Mutex<()>,
}

enum JwtKeySource {
    File(PathBuf),
    Url { url: Url, outbound: Outbound },
}

#[derive(Default)]
struct JwtKeys {
    all: Vec<Jwk>,
    /// When they were fetched; `None`: never.
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
}

impl JwtVerifier {
    /// Creates the verifier; `None` where the options name no issuer.
    pub fn new(options: &SecurityOptions, clock: Arc<dyn Clock>) -> Result<Option<Self>, StartError> {
        let wrong = |why: &str| Err(StartError::Security(why.to_owned()));
        let Some(issuer) = options.issuer.clone().filter(|issuer| !issuer.is_empty()) else {
            return match options.jwks_url.is_some() || options.jwks_file.is_some() {
                true => wrong("there are keys for JWTs and no issuer: set jwt.issuer"),
                false => Ok(None),
            };
        };
        let Some(audience) = options.audience.clone().filter(|audience| !audience.is_empty()) else {
            return wrong("jwt.issuer needs jwt.audience: tokens for others must not be good here");
        };
        if !is_name(&options.tenant) {
            return wrong("jwt.tenant is no name: write 1 to 64 letters, digits, '.', '_', '-' or '@'");
        }
        let default_scopes = Grants::parse(&options.default_scopes.join(" "))
            .map_err(|error| StartError::Security(format!("jwt.default-scopes: {error}")))?;
        let source = match (&options.jwks_url, &options.jwks_file) {
            (None, Some(file)) => JwtKeySource::File(file.clone()),
            (Some(url), None) => {
                let policy = AddressPolicy { allow_private: options.allow_private_jwks };
                let outbound = Outbound::new(OutboundOptions {
                    policy,
                    timeout: PATIENCE,
                    max_answer: MAX_JWKS,
                    ..OutboundOptions::default()
                })?;
                let url = outbound.check_url(url).map_err(|error| {
                    StartError::Security(format!("jwt.jwks-url: {}", describe_outbound_error(&error)))
                })?;
                if url.scheme() != "https" && !options.allow_private_jwks {
                    return wrong("jwt.jwks-url: keys that come without TLS can be forged: use https");
                }
                JwtKeySource::Url { url, outbound }
            }
            _ => return wrong("jwt.issuer needs one of jwt.jwks-url and jwt.jwks-file"),
        };
        let ring = JwtKeyRing {
            issuer: issuer.clone(),
            source,
            keys: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        };
        let jwt = Self {
            issuer,
            audience,
            ring: Arc::new(ring),
            tenant_claim: options.tenant_claim.clone(),
            scope_claim: options.scope_claim.clone(),
            tenant: options.tenant.clone(),
            allow_home: options.allow_home,
            default_scopes,
            clock,
        };
        if let JwtKeySource::File(path) = &jwt.ring.source {
            let text = std::fs::read(path);
            let keys = text.map_err(|error| error.to_string()).and_then(|text| read_keys(&text));
            keys.map_err(|why| StartError::Security(format!("jwt.jwks-file: {}: {why}", path.display())))?;
        }
        Ok(Some(jwt))
    }

    /// The issuer (`iss`) whose tokens are accepted.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Verifies a token and returns its caller.
    pub async fn verify(&self, token: &str) -> Result<Caller, AuthError> {
        let refused = |why: &str| AuthError::Invalid(format!("JWT: {why}"));
        if token.len() > MAX_TOKEN {
            return Err(refused("it is too long"));
        }
        let header =
            jsonwebtoken::decode_header(token).map_err(|_| refused("it has no header that is known"))?;
        if has_critical(token) {
            return Err(refused("it has critical headers that are not known here"));
        }
        let key = self.key(header.kid.as_deref(), header.alg).await?;
        let claims = signature::verified_claims(token, &key, header.alg)
            .ok_or_else(|| refused("its signature is not the issuer's"))?;
        self.check(&claims).map_err(|why| refused(&why))?;
        self.caller(&claims).map_err(|why| refused(&why))
    }

    /// Checks the claims: issuer, audience and times.
    fn check(&self, claims: &Value) -> Result<(), String> {
        if claims["iss"].as_str() != Some(&self.issuer) {
            return Err("it is of another issuer".into());
        }
        let named = match &claims["aud"] {
            Value::String(audience) => *audience == self.audience,
            Value::Array(audiences) => audiences.iter().any(|audience| *audience == self.audience.as_str()),
            _ => false,
        };
        if !named {
            return Err("it is for another audience".into());
        }
        let now = self.clock.now();
        // Seconds since 1970, which may have fractions.
        let time = |claim: &str| claims[claim].as_f64().map(|seconds| Timestamp((seconds * 1000.0) as i64));
        match time("exp") {
            None => return Err("it does not say when it expires".into()),
            Some(expires) if now >= expires.after(LEEWAY) => return Err("it has expired".into()),
            Some(_) => {}
        }
        if !claims["nbf"].is_null() && time("nbf").is_none_or(|from| now < from.before(LEEWAY)) {
            return Err("it is not good yet".into());
        }
        Ok(())
    }

    fn caller(&self, claims: &Value) -> Result<Caller, String> {
        let subject = claims["sub"].as_str().unwrap_or_default();
        if subject.is_empty() || subject.len() > MAX_SUBJECT || subject.chars().any(char::is_control) {
            return Err(format!("its subject is not valid: expected 1 to {MAX_SUBJECT} bytes of text"));
        }
        let tenant = match &claims[self.tenant_claim.as_str()] {
            Value::Null => &self.tenant,
            Value::String(tenant) if is_name(tenant) => tenant,
            _ => return Err("its tenant is no name".into()),
        };
        if tenant == HOME_TENANT && self.tenant != HOME_TENANT && !self.allow_home {
            return Err("its tenant is home, which is the operator's: jwt.allow-home allows it".into());
        }
        let scopes = &claims[self.scope_claim.as_str()];
        let words: Vec<&str> = match scopes {
            Value::String(text) => text.split_whitespace().collect(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        // A scope with white space would be stored as two scopes, and read back as something else.
        if words.iter().any(|word| word.contains(char::is_whitespace)) {
            return Err("one of its scopes has white space in it".into());
        }
        // The token may also contain scopes of other services.
        let ours: Vec<Grant> = words.iter().filter_map(|word| word.parse().ok()).take(MAX_SCOPES).collect();
        let grants = if ours.is_empty() { self.default_scopes.clone() } else { Grants::only(ours) };
        Ok(Caller::named(format!("{tenant}/{OWNER_PREFIX}{subject}")).limited_to(grants))
    }

    /// The key that a token names, if it is valid for the token's algorithm.
    async fn key(&self, kid: Option<&str>, alg: Algorithm) -> Result<Jwk, AuthError> {
        let keys = self.ring.current_keys();
        let now = self.clock.now();
        let stale = keys.read_at.is_none_or(|read| now >= read.after(FRESH));
        if let Some(key) = keys.find(kid, alg) {
            // A known key stays valid during a refresh: a slow issuer blocks no request.
            if stale {
                let ring = Arc::clone(&self.ring);
                tokio::spawn(async move { ring.refresh_keys(now).await });
            }
            return Ok(key);
        }
        let keys = self.ring.refresh_keys(now).await;
        match keys.find(kid, alg) {
            Some(key) => Ok(key),
            None if keys.read_at.is_none() => {
                Err(AuthError::Unavailable("the issuer's keys could not be read yet".into()))
            }
            None => Err(AuthError::Invalid("JWT: the issuer has no such key for this algorithm".into())),
        }
    }
}

impl JwtKeyRing {
    fn current_keys(&self) -> Arc<JwtKeys> {
        Arc::clone(&self.keys.lock())
    }

    /// Refetches the keys, unless that was tried a moment ago. On failure the cached keys stay.
    async fn refresh_keys(&self, now: Timestamp) -> Arc<JwtKeys> {
        let _alone = self.looking.lock().await;
        let known = self.current_keys();
        if known.tried_at.is_some_and(|tried| tried <= now && now < tried.after(AGAIN)) {
            return known;
        }
        let keys = match self.fetch().await {
            Ok(all) => JwtKeys { all, read_at: Some(now), tried_at: Some(now) },
            Err(why) => {
                tracing::warn!(issuer = self.issuer, %why, "the issuer's keys could not be read; those that are known stay");
                JwtKeys { all: known.all.clone(), read_at: known.read_at, tried_at: Some(now) }
            }
        };
        let keys = Arc::new(keys);
        *self.keys.lock() = Arc::clone(&keys);
        keys
    }

    async fn fetch(&self) -> Result<Vec<Jwk>, String> {
        match &self.source {
            JwtKeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
                let text = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
                read_keys(&text)
            }
            JwtKeySource::Url { url, outbound } => {
                let answer = outbound
                    .send(http::Method::GET, url, http::HeaderMap::new(), Vec::new().into())
                    .await
                    .map_err(|error| describe_outbound_error(&error))?;
                match answer.status.is_success() && answer.complete {
                    true => read_keys(&answer.body),
                    false => Err(format!("the answer is {} or not complete", answer.status)),
                }
            }
        }
    }
}

impl JwtKeys {
    fn find(&self, kid: Option<&str>, alg: Algorithm) -> Option<Jwk> {
        let mut fitting = self.all.iter().filter(|key| goes_with(key, alg));
        match kid {
            Some(kid) => fitting.find(|key| key.common.key_id.as_deref() == Some(kid)).cloned(),
            // A token without a key id is accepted only where there is one key.
            None => fitting.next().filter(|_| self.all.len() == 1).cloned(),
        }
    }
}

/// Whether a key may verify signatures of this algorithm: by its type, and by its own `alg`.
fn goes_with(key: &Jwk, alg: Algorithm) -> bool {
    use Algorithm as A;
    let by_type = match &key.algorithm {
        AlgorithmParameters::RSA(_) => {
            matches!(alg, A::RS256 | A::RS384 | A::RS512 | A::PS256 | A::PS384 | A::PS512)
        }
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => alg == A::ES256,
            EllipticCurve::P384 => alg == A::ES384,
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(pair) => pair.curve == EllipticCurve::Ed25519 && alg == A::EdDSA,
        // A symmetric secret, known to both sides, does not prove who signed.
        _ => false,
    };
    let said = key.common.key_algorithm.is_none_or(|said| format!("{said:?}") == format!("{alg:?}"));
    let signs = key.common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature);
    by_type && said && signs
}

/// The usable keys of a JWKS; others are ignored.
fn read_keys(text: &[u8]) -> Result<Vec<Jwk>, String> {
    if text.len() > MAX_JWKS {
        return Err(format!("a JWKS has at most {MAX_JWKS} bytes"));
    }
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("it is no JWKS: {error}"))?;
    let keys = set["keys"].as_array().ok_or("it is no JWKS: it has no keys")?;
    Ok(keys.iter().filter_map(|key| serde_json::from_value(key.clone()).ok()).take(MAX_KEYS).collect())
}

/// Whether the token has critical headers, none of which are supported (RFC 7515, section 4.1.11).
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let header = BASE64_URL_SAFE_NO_PAD.decode(header).ok();
    let header = header.and_then(|header| serde_json::from_slice::<Value>(&header).ok());
    header.is_none_or(|header| header.get("crit").is_some())
}

fn describe_outbound_error(error: &OutboundError) -> String {
    match error {
        OutboundError::Refused { host, .. } | OutboundError::Localhost(host) => {
            format!("{host} is not a public address: jwt.allow-private-jwks allows it")
        }
        error => error.to_string(),
    }
}
