//! The signed request state: a stateless call hands it to its client, which returns it unchanged.
//!
//! Signed, not encrypted: nothing in it is secret. It names the caller, the request that it belongs to and its
//! expiry, so that it cannot be used by another caller or for another request.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use nuncio_engine::{Answer, Caller, clock::Timestamp};
use nuncio_wire::mcp::McpFault;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Signs and verifies request states with HMAC-SHA256.
pub(super) struct RequestStateSigner(Hmac<Sha256>);

/// The state that a call restores in its next round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestState {
    /// The agent's task that waits for the answer.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<String>,
    /// The answers that a handler has received so far.
    #[serde(rename = "a", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) answers: BTreeMap<String, Answer>,
    /// The handler's own state.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Value>,
}

#[derive(Serialize, Deserialize)]
struct SignedRequestState {
    c: String,
    d: String,
    /// Expiry, in milliseconds since 1970.
    e: i64,
    k: RequestState,
}

impl RequestStateSigner {
    pub(super) fn new(secret: &[u8]) -> Self {
        // A separate key, so that a webhook signature is never valid for a state.
        let key = [secret, b"\0mcp request state"].concat();
        #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
        Self(Hmac::new_from_slice(&key).expect("any key will do"))
    }

    /// Signs a state that is valid for that caller and that request until the expiry.
    pub(super) fn sign_state(
        &self,
        caller: &Caller,
        request: &str,
        until: Timestamp,
        kept: RequestState,
    ) -> String {
        let signed =
            SignedRequestState { c: caller.owner().to_owned(), d: request.to_owned(), e: until.0, k: kept };
        // Strings, numbers and values: it cannot fail, and an empty one would be refused.
        let body = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&signed).unwrap_or_default());
        let tag = BASE64_URL_SAFE_NO_PAD.encode(self.0.clone().chain_update(&body).finalize().into_bytes());
        format!("{body}.{tag}")
    }

    /// The content of a state, if this server signed it for this caller and this request and it has not
    /// expired.
    pub(super) fn verify_state(
        &self,
        caller: &Caller,
        request: &str,
        now: Timestamp,
        state: &str,
    ) -> Result<RequestState, McpFault> {
        let refused =
            || McpFault::invalid_params("requestState: it was not given by this server for this request");
        let (body, tag) = state.split_once('.').ok_or_else(refused)?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).map_err(|_| refused())?;
        self.0.clone().chain_update(body).verify_slice(&tag).map_err(|_| refused())?;
        let body = BASE64_URL_SAFE_NO_PAD.decode(body).map_err(|_| refused())?;
        let signed: SignedRequestState = serde_json::from_slice(&body).map_err(|_| refused())?;
        if signed.c != caller.owner() || signed.d != request {
            return Err(refused());
        }
        if now.0 > signed.e {
            return Err(McpFault::invalid_params("requestState: it has expired: begin again without it"));
        }
        Ok(signed.k)
    }
}

/// The digest that identifies a request: the method, the name it is addressed to, and its arguments.
pub(super) fn digest(method: &str, name: &str, arguments: &impl Serialize) -> String {
    let arguments = serde_json::to_vec(arguments).unwrap_or_default();
    let all = Sha256::new()
        .chain_update(method)
        .chain_update([0])
        .chain_update(name)
        .chain_update([0])
        .chain_update(arguments)
        .finalize();
    BASE64_URL_SAFE_NO_PAD.encode(&all[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_good_for_one_caller_one_request_and_some_time() {
        let (seal, me, now) = (RequestStateSigner::new(b"secret"), Caller::local(), Timestamp(1_000));
        let kept = RequestState { task: Some("t".into()), answers: BTreeMap::new(), state: None };
        let state = seal.sign_state(&me, "r", Timestamp(2_000), kept.clone());
        assert_eq!(seal.verify_state(&me, "r", now, &state), Ok(kept));
        let refused = |seal: &RequestStateSigner, me: &Caller, request: &str, now: i64, state: &str| {
            seal.verify_state(me, request, Timestamp(now), state).unwrap_err();
        };
        refused(&RequestStateSigner::new(b"other"), &me, "r", 1_000, &state);
        refused(&seal, &Caller::named("somebody"), "r", 1_000, &state);
        refused(&seal, &me, "another", 1_000, &state);
        refused(&seal, &me, "r", 2_001, &state);
        for at in 0..state.len() {
            let mut bytes = state.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            refused(&seal, &me, "r", 1_000, &String::from_utf8(bytes).unwrap());
        }
        refused(&seal, &me, "r", 1_000, "");
        refused(&seal, &me, "r", 1_000, "a.b");
    }
}
