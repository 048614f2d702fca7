//! Failed authentications in the audit: each of them as long as they are few, then their number.
//!
//! Whoever can reach the server can make them, so they may not fill the store.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{AccessKind, AccessRequest, Action, Caller, Engine, clock::Timestamp};
use parking_lot::Mutex;

use super::{AuthError, ConnectionPeer};

/// Lines in a window.
const MOST: u64 = 10;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(1);
/// The longest address that a line tells.
const LONGEST: usize = 256;

/// Notes failed authentications.
#[derive(Default)]
pub(crate) struct AuthFailureLog(Arc<Mutex<AuthFailureWindow>>);

#[derive(Default)]
struct AuthFailureWindow {
    began: Timestamp,
    count: u64,
    /// Those without a line, not told of yet.
    more: u64,
}

impl AuthFailureLog {
    /// Notes one.
    pub(crate) fn record_failure(
        &self,
        engine: &Engine,
        peer: &ConnectionPeer,
        resource: &str,
        error: &AuthError,
    ) {
        metrics::counter!("nuncio_authentication_failures_total").increment(1);
        let now = engine.clock().now();
        let count = {
            let mut window = self.0.lock();
            // Also where the clock was set back.
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
        tracing::warn!(%error, "the audit misses a failed authentication");
    }
}
