//! Sessions of the console: a one-time code of the operator, exchanged for a token that lives for hours.
//!
//! Codes and tokens are signed tickets, so any node verifies them. That a code was used, and that a session was ended, is
//! a record in the store until the ticket would have expired. A session has the operator's rights: only the operator, who
//! holds the secret of the data folder, gets a code. Everybody else signs in with a token of their own.

use std::time::Duration;

use axum::http::StatusCode;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use nuncio_engine::{
    Caller, Engine, Error, access::HOME_TENANT, clock::Timestamp, knowledge::ExpectedVersion,
};
use nuncio_wire::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use super::problem::ConsoleProblem;
use crate::auth::AuthError;

/// How long a code can be exchanged (`console.code-life`).
pub(super) const CODE_LIFE: Duration = Duration::from_secs(60);
/// How long a session lasts (`console.session-life`).
pub(super) const SESSION_LIFE: Duration = Duration::from_secs(8 * 60 * 60);

/// The beginning of every session token.
pub(crate) const SESSION_PREFIX: &str = "nuncs_";
const CODE_PREFIX: &str = "nuncc_";

/// The kinds of records: tickets that are no longer good before they expire.
const USED_CODES: &str = "console-code";
const ENDED_SESSIONS: &str = "console-session";

/// What is signed.
#[derive(Serialize, Deserialize)]
struct ConsoleTicket {
    /// Unique.
    n: String,
    /// Expiry, in milliseconds since 1970.
    e: i64,
}

/// The record of a ticket that is no longer good.
#[derive(Serialize, Deserialize)]
struct SpentTicket {}

/// A new code, as the command line prints it.
pub(super) fn create_code(engine: &Engine) -> Value {
    let (code, expires) = sign(engine, CODE_PREFIX, CODE_LIFE);
    json!({ "code": code, "expires": timestamp::format(expires) })
}

/// Exchanges a code, which is used up by it.
pub(super) async fn exchange(engine: &Engine, code: &str) -> Result<Value, ConsoleProblem> {
    // One message for a code that is unknown, used or expired: nothing is learned from it.
    let refused = || {
        let message = "the code is not good, or not any more: run nuncio console again";
        ConsoleProblem::new(StatusCode::UNAUTHORIZED, "bad_code", message)
    };
    let ticket = verify(engine, CODE_PREFIX, code).ok_or_else(refused)?;
    if !spend(engine, USED_CODES, &ticket).await? {
        return Err(refused());
    }
    let (token, expires) = sign(engine, SESSION_PREFIX, SESSION_LIFE);
    let caller = Caller::local();
    Ok(json!({
        "token": token,
        "expires": timestamp::format(expires),
        "caller": { "name": caller.owner(), "tenant": caller.tenant() },
    }))
}

/// The caller of a session token.
pub(crate) async fn verify_session(engine: &Engine, token: &str) -> Result<Caller, AuthError> {
    let invalid = || AuthError::Invalid("no session of the console, or one that has ended".into());
    let ticket = verify(engine, SESSION_PREFIX, token).ok_or_else(invalid)?;
    match engine.records::<SpentTicket>(ENDED_SESSIONS).get(HOME_TENANT, &ticket.n).await {
        Ok(None) => Ok(Caller::local()),
        Ok(Some(_)) => Err(invalid()),
        Err(error) => Err(AuthError::Unavailable(error.to_string())),
    }
}

/// When the session of a token ends.
pub(super) fn expiry_of(engine: &Engine, token: &str) -> Option<Timestamp> {
    verify(engine, SESSION_PREFIX, token).map(|ticket| Timestamp(ticket.e))
}

/// Ends the session of a token. Does nothing to a token of another kind: that is its owner's, and outlives a sign-out.
pub(super) async fn end(engine: &Engine, token: &str) -> Result<(), Error> {
    if let Some(ticket) = verify(engine, SESSION_PREFIX, token) {
        spend(engine, ENDED_SESSIONS, &ticket).await?;
    }
    Ok(())
}

/// Records that a ticket is no longer good; false if it was so before.
async fn spend(engine: &Engine, kind: &'static str, ticket: &ConsoleTicket) -> Result<bool, Error> {
    let records = engine.records::<SpentTicket>(kind);
    let mut write = records.put(HOME_TENANT, &ticket.n, &SpentTicket {}, ExpectedVersion::Absent)?;
    write.expires_at = Some(Timestamp(ticket.e).after(CODE_LIFE));
    Ok(records.write(vec![write]).await?.is_some())
}

fn sign(engine: &Engine, prefix: &str, life: Duration) -> (String, Timestamp) {
    let expires = engine.clock().now().after(life);
    let ticket = ConsoleTicket { n: engine.clock().new_id().simple().to_string(), e: expires.0 };
    // A text and a number: it cannot fail, and an empty ticket would be refused.
    let body = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&ticket).unwrap_or_default());
    let tag = BASE64_URL_SAFE_NO_PAD.encode(mac(engine, prefix, &body).finalize().into_bytes());
    (format!("{prefix}{body}.{tag}"), expires)
}

fn verify(engine: &Engine, prefix: &str, text: &str) -> Option<ConsoleTicket> {
    let (body, tag) = text.strip_prefix(prefix)?.split_once('.')?;
    mac(engine, prefix, body).verify_slice(&BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?).ok()?;
    let ticket: ConsoleTicket = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    (engine.clock().now().0 < ticket.e).then_some(ticket)
}

/// Each prefix has a key of its own, so that a code is never a session.
fn mac(engine: &Engine, prefix: &str, body: &str) -> Hmac<Sha256> {
    let key = engine.derive_key(&format!("console ticket {prefix}"));
    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mac: Hmac<Sha256> = Hmac::new_from_slice(&key).expect("any key will do");
    mac.chain_update(body)
}
