//! The ID token of a login by OpenID Connect: whom the server signed in.
//!
//! It comes from the token endpoint itself, over the connection that the client opened: then TLS speaks for it, and its
//! signature need not be checked (OpenID Connect Core, section 3.1.3.7). Its claims are.

use base64::Engine as _;
use serde::Deserialize;

/// Seconds that the clocks of two machines may differ by.
const LEEWAY: u64 = 60;

#[derive(Deserialize)]
struct IdTokenClaims {
    iss: String,
    sub: String,
    aud: IdTokenAudience,
    exp: u64,
    azp: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IdTokenAudience {
    One(String),
    Several(Vec<String>),
}

/// The subject of an ID token that is for this client, from this issuer, and not expired.
pub(super) fn subject(token: &str, issuer: &str, client: &str, now: u64) -> Result<String, String> {
    let wrong = |why: &str| format!("the ID token of {issuer} is not valid: {why}");
    let payload = token.split('.').nth(1).ok_or_else(|| wrong("it is not a JWT"))?;
    let payload = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(payload);
    let payload = payload.map_err(|_| wrong("its claims are not base64url"))?;
    let claims: IdTokenClaims =
        serde_json::from_slice(&payload).map_err(|error| wrong(&error.to_string()))?;
    if claims.iss != issuer {
        return Err(wrong(&format!("its issuer is {:?}", claims.iss)));
    }
    let is_alone = match &claims.aud {
        IdTokenAudience::One(audience) => audience == client,
        IdTokenAudience::Several(audiences) => {
            // With several, the one that the token was made for is named.
            audiences.iter().any(|audience| audience == client)
                && (audiences.len() == 1 || claims.azp.as_deref() == Some(client))
        }
    };
    if !is_alone || claims.azp.as_deref().is_some_and(|party| party != client) {
        return Err(wrong("it is for another client"));
    }
    if claims.exp.saturating_add(LEEWAY) <= now {
        return Err(wrong("it has expired"));
    }
    Ok(claims.sub)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_token_for_this_client_from_this_issuer_names_a_subject() {
        let check = |claims: Value, expected: Result<&str, &str>| {
            let claims = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
            let got = subject(&format!("e30.{claims}.x"), "https://i.example", "cli", 1000);
            match expected {
                Ok(subject) => assert_eq!(got.as_deref(), Ok(subject)),
                Err(word) => assert!(got.as_ref().is_err_and(|why| why.contains(word)), "{got:?}"),
            }
        };
        let token = |more: Value| {
            let mut claims = json!({ "iss": "https://i.example", "sub": "ada", "aud": "cli", "exp": 1001 });
            for (name, value) in more.as_object().unwrap() {
                claims[name] = value.clone();
            }
            claims
        };
        check(token(json!({})), Ok("ada"));
        check(token(json!({ "aud": ["cli"] })), Ok("ada"));
        check(token(json!({ "aud": ["cli", "other"], "azp": "cli" })), Ok("ada"));
        check(token(json!({ "aud": ["cli", "other"] })), Err("another client"));
        check(token(json!({ "aud": "other" })), Err("another client"));
        check(token(json!({ "azp": "other" })), Err("another client"));
        check(token(json!({ "iss": "https://evil.example" })), Err("evil.example"));
        check(token(json!({ "exp": 900 })), Err("expired"));
        check(token(json!({ "sub": 7 })), Err("invalid type"));
        assert!(subject("nonsense", "i", "c", 0).is_err());
    }
}
