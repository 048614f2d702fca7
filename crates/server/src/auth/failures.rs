//! Failed authentications in the audit, rate limited: one line each while they are few, then only their number.
//!
//! Anyone who can reach the server can cause them, so they must not fill the store.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Engine, clock::Timestamp, count_refusal, metric,
};
use parking_lot::Mutex;

use super::{AuthError, ConnectionPeer};

/// Maximum audit lines per window.
const MOST: u64 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// The longest resource path that a line records, in bytes.
const LONGEST: usize = 256;

/// Records failed authentications in the audit.
#[derive(Default)]
pub(crate) struct AuthFailureLog(Arc<Mutex<AuthFailureWindow>>);

#[derive(Default)]
struct AuthFailureWindow {
    began: Timestamp,
    count: u64,
    /// Failures without a line of their own that are not yet reported as a number.
    more: u64,
}

impl AuthFailureLog {
    pub(crate) fn record_failure(
        &self,
        engine: &Engine,
        peer: &ConnectionPeer,
        resource: &str,
        error: &AuthError,
    ) {
        metric::AUTHENTICATION_FAILURES.counter(&[]).increment(1);
        count_refusal("authentication");
        let now = engine.clock().now();
        let count = {
            let mut window = self.0.lock();
            // Also starts a new window when the clock was set back.
            if now >= window.began.after(WINDOW) || now < window.began {
                *window = AuthFailureWindow { began: now, count: 0, more: window.more };
            }
            window.count += 1;
            window.more += u64::from(window.count > MOST);
            window.count
        };
        if count <= MOST {
            let end = resource.floor_char_boundary(LONGEST.min(resource.len()));
            write(engine, &peer.attach_address(anonymous()), &resource[..end], &error.to_string());
        } else if count == MOST + 1 {
            let (engine, window) = (engine.clone(), Arc::clone(&self.0));
            tokio::spawn(async move {
                tokio::time::sleep(WINDOW).await;
                let more = {
                    let mut window = window.lock();
                    std::mem::take(&mut window.more)
                };
                if more > 0 {
                    let why =
                        format!("{more} more failed at about that time, and have no lines of their own");
                    write(&engine, &anonymous(), "", &why);
                }
            });
        }
    }
}

fn anonymous() -> Caller {
    Caller::named("anonymous")
}

fn write(engine: &Engine, caller: &Caller, resource: &str, why: &str) {
    let (action, kind, operation) = (Action::Execute, AccessKind::Admin, "authenticate");
    let access = AccessRequest { action, kind, name: "authentication", operation, resource: &resource };
    if let Err(error) = engine.note_refused(caller, &access, why) {
        tracing::warn!(%error, "could not record a failed authentication in the audit");
    }
}
