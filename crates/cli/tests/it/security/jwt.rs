//! Tokens of another issuer: good ones, and everything that is tried instead.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use nuncio::{
    SecurityOptions,
    engine::{AccessKind, Action, Caller, clock::Clock as _},
    security::JwtVerifier,
};
use nuncio_server::AuthError;
use ring::hmac;
use serde_json::{Value, json};

use super::{
    Hands,
    issuer::{Issuer, Key, forged, jwks, signed_by},
};

const ISSUER: &str = "https://issuer.example";

fn options(url: &str) -> SecurityOptions {
    SecurityOptions {
        issuer: Some(ISSUER.into()),
        audience: Some("nuncio".into()),
        jwks_url: Some(url.into()),
        allow_private_jwks: true,
        ..SecurityOptions::default()
    }
}

fn claims(clock: &Hands) -> Value {
    let now = clock.now().0 / 1000;
    json!({ "iss": ISSUER, "aud": ["other", "nuncio"], "sub": "ada@example.org", "exp": now + 300, "nbf": now - 1,
        "scope": "openid read:a2a write:memory:x", "tenant": "acme" })
}

async fn verifier(issuer: &Issuer) -> (Arc<Hands>, JwtVerifier) {
    let clock = Arc::new(Hands::new());
    let jwt = JwtVerifier::new(&options(&issuer.url), Arc::clone(&clock) as _).unwrap().unwrap();
    (clock, jwt)
}

#[track_caller]
#[allow(clippy::needless_pass_by_value, reason = "a result that is looked at and let go")]
fn refused(verified: Result<Caller, AuthError>, what: &str) {
    assert!(matches!(verified, Err(AuthError::Invalid(_))), "{what}: {verified:?}");
}

#[tokio::test]
async fn a_good_token_says_who_calls_and_what_it_may() {
    let (ec, ed) = (Key::es256("ec"), Key::ed25519("ed"));
    let issuer = Issuer::new(&[&ec, &ed]).await;
    let (clock, jwt) = verifier(&issuer).await;
    for key in [&ec, &ed] {
        let caller = jwt.verify(&key.sign(&claims(&clock))).await.unwrap();
        assert_eq!((caller.owner(), caller.tenant()), ("acme/jwt:ada@example.org", "acme"));
        assert!(
            caller.may(Action::Read, AccessKind::A2a, "tasks")
                && caller.may(Action::Write, AccessKind::Memory, "x")
        );
        assert!(!caller.may(Action::Execute, AccessKind::A2a, "echo"));
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "keys are fetched once");
    let mut plain = claims(&clock);
    plain["tenant"] = Value::Null;
    plain["scope"] = json!(["execute:a2a"]);
    plain["aud"] = json!("nuncio");
    let caller = jwt.verify(&ec.sign(&plain)).await.unwrap();
    assert_eq!(caller.owner(), "jwt/jwt:ada@example.org");
    assert!(caller.may(Action::Execute, AccessKind::A2a, "echo"));
    plain["scope"] = json!("openid profile");
    let caller = jwt.verify(&ec.sign(&plain)).await.unwrap();
    assert!(!caller.may(Action::Read, AccessKind::A2a, "tasks"), "nothing is allowed that nobody said");
}

#[tokio::test]
async fn what_is_tried_instead_is_refused() {
    let (key, stranger) = (Key::es256("key"), Key::es256("key"));
    let issuer = Issuer::new(&[&key]).await;
    let (clock, jwt) = verifier(&issuer).await;
    let good = claims(&clock);
    jwt.verify(&key.sign(&good)).await.unwrap();

    refused(jwt.verify(&stranger.sign(&good)).await, "another's key under the same name");
    refused(jwt.verify(&forged(&json!({ "alg": "none" }), &good, b"")).await, "none");
    refused(
        jwt.verify(&forged(&json!({ "alg": "none", "kid": "key" }), &good, b"")).await,
        "none, with a name",
    );
    // The public key taken for a password.
    for secret in [key.public.to_string(), key.public["x"].as_str().unwrap().to_owned()] {
        let password = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let header = json!({ "alg": "HS256", "kid": "key" });
        let token = signed_by(&header, &good, |message| hmac::sign(&password, message).as_ref().to_vec());
        refused(jwt.verify(&token).await, "HS256 with the public key");
    }
    let signed = key.sign(&good);
    let parts: Vec<&str> = signed.split('.').collect();
    let mut other = good.clone();
    other["sub"] = json!("root");
    let payload = forged(&json!({}), &other, b"");
    refused(
        jwt.verify(&format!("{}.{}.{}", parts[0], payload.split('.').nth(1).unwrap(), parts[2])).await,
        "other claims",
    );
    let critical = json!({ "alg": "ES256", "kid": "key", "crit": ["b64"], "b64": false });
    refused(jwt.verify(&forged(&critical, &good, b"x")).await, "critical headers");
    for garbage in ["", ".", "..", "a.b.c", "nun_x", &"x".repeat(20_000)] {
        refused(jwt.verify(garbage).await, garbage);
    }

    let check = async |member: &str, value: Value| {
        let mut wrong = good.clone();
        wrong[member] = value.clone();
        refused(jwt.verify(&key.sign(&wrong)).await, &format!("{member} {value}"));
    };
    let now = clock.now().0 / 1000;
    check("iss", json!("https://evil.example")).await;
    check("iss", Value::Null).await;
    check("aud", json!("somebody else")).await;
    check("aud", json!(["x"])).await;
    check("aud", Value::Null).await;
    check("exp", json!(now - 61)).await;
    check("exp", Value::Null).await;
    check("exp", json!("soon")).await;
    check("nbf", json!(now + 61)).await;
    check("nbf", json!("now")).await;
    check("sub", Value::Null).await;
    check("sub", json!("a\nb")).await;
    check("sub", json!("x".repeat(129))).await;
    check("tenant", json!("a/b")).await;
    check("tenant", json!("")).await;
    check("tenant", json!(["acme"])).await;
    // The operator's own, whose knowledge and figures the issuer has no say in.
    check("tenant", json!("home")).await;
    check("scope", json!(["read:memory:a execute:a2a"])).await;
    check("scope", json!(["read:a2a", "read:memory:a\u{a0}b"])).await;
    // Clocks differ a little.
    for (member, value) in [("exp", now - 59), ("nbf", now + 59)] {
        let mut close = good.clone();
        close[member] = json!(value);
        jwt.verify(&key.sign(&close)).await.unwrap();
    }
}

#[tokio::test]
async fn keys_change_and_the_issuer_may_be_away() {
    let (old, new) = (Key::es256("old"), Key::es256("new"));
    let issuer = Issuer::new(&[&old]).await;
    let (clock, jwt) = verifier(&issuer).await;
    let asked = || issuer.asked.load(Ordering::SeqCst);
    jwt.verify(&old.sign(&claims(&clock))).await.unwrap();

    issuer.publish(&[&new]);
    // A name that is not known is looked for, but not by everybody who makes one up.
    refused(jwt.verify(&new.sign(&claims(&clock))).await, "not known yet");
    for _ in 0..10 {
        refused(jwt.verify(&new.sign_as(Some("made-up"), &claims(&clock))).await, "made up");
    }
    assert_eq!(asked(), 1);
    clock.pass(Duration::from_secs(30));
    jwt.verify(&new.sign(&claims(&clock))).await.unwrap();
    assert_eq!(asked(), 2);
    refused(jwt.verify(&old.sign(&claims(&clock))).await, "withdrawn");

    issuer.away.store(true, Ordering::SeqCst);
    clock.pass(Duration::from_secs(3600));
    jwt.verify(&new.sign(&claims(&clock))).await.unwrap();
    // It is looked for meanwhile, and what is known stays.
    let started = Instant::now();
    while asked() < 3 {
        assert!(started.elapsed() < Duration::from_secs(30), "it was not looked for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    jwt.verify(&new.sign(&claims(&clock))).await.unwrap();
    assert_eq!(asked(), 3, "nor again at once");

    let never = Issuer::new(&[&new]).await;
    never.away.store(true, Ordering::SeqCst);
    let (clock, jwt) = verifier(&never).await;
    let verified = jwt.verify(&new.sign(&claims(&clock))).await;
    assert!(matches!(verified, Err(AuthError::Unavailable(_))), "{verified:?}");
}

#[tokio::test]
async fn keys_can_be_in_a_file() {
    let (key, dir) = (Key::es256("key"), tempfile::tempdir().unwrap());
    let file = dir.path().join("jwks.json");
    std::fs::write(&file, jwks(&[&key]).to_string()).unwrap();
    let options = SecurityOptions { jwks_url: None, jwks_file: Some(file), ..options("") };
    let clock = Arc::new(Hands::new());
    let jwt = JwtVerifier::new(&options, Arc::clone(&clock) as _).unwrap().unwrap();
    jwt.verify(&key.sign(&claims(&clock))).await.unwrap();
}

#[tokio::test]
async fn a_subject_is_never_the_owner_that_a_token_of_that_name_is() {
    let key = Key::es256("key");
    let issuer = Issuer::new(&[&key]).await;
    let (clock, jwt) = verifier(&issuer).await;
    for subject in ["ada", "local", "acme/ada", "jwt:ada", "../ada"] {
        let mut claims = claims(&clock);
        claims["sub"] = json!(subject);
        let caller = jwt.verify(&key.sign(&claims)).await.unwrap();
        let (tenant, name) = caller.owner().split_once('/').unwrap();
        assert_eq!((tenant, caller.tenant()), ("acme", "acme"), "{subject}");
        // No name that a token of this server can have has a colon.
        assert_eq!(name, format!("jwt:{subject}"));
        assert!(!caller.is_local());
    }
}

#[tokio::test]
async fn the_home_tenant_is_for_issuers_that_were_told_so() {
    let key = Key::es256("key");
    let issuer = Issuer::new(&[&key]).await;
    let clock = Arc::new(Hands::new());
    for changed in [
        SecurityOptions { allow_home: true, ..options(&issuer.url) },
        SecurityOptions { tenant: "home".into(), ..options(&issuer.url) },
    ] {
        let jwt = JwtVerifier::new(&changed, Arc::clone(&clock) as _).unwrap().unwrap();
        let mut claims = claims(&clock);
        claims["tenant"] = json!("home");
        let caller = jwt.verify(&key.sign(&claims)).await.unwrap();
        assert_eq!((caller.owner(), caller.tenant()), ("home/jwt:ada@example.org", "home"));
        assert!(!caller.is_local());
    }
}
