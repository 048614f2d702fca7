//! A periodic recheck of the credentials that opened a stream. A request finishes before an expiry or
//! revocation matters; a stream of changes has no end of its own.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::http::{HeaderMap, header};
use nuncio_engine::Engine;
use tokio::time::Instant;

use super::{AuthError, Authenticator, ConnectionPeer, RequestCredentials};

/// How often the credentials are verified.
const LOOK: Duration = Duration::from_secs(3);

/// The credentials of one stream.
pub(crate) struct CredentialRecheck {
    /// `None`: no credentials were required, or they are the operator's.
    credentials: Option<PresentedCredentials>,
    next: Instant,
}

struct PresentedCredentials {
    authenticator: Arc<dyn Authenticator>,
    engine: Engine,
    headers: HeaderMap,
    from: Option<IpAddr>,
    credentials: RequestCredentials,
}

impl CredentialRecheck {
    /// For streams without credentials to recheck.
    pub(crate) fn none() -> Self {
        Self { credentials: None, next: Instant::now() }
    }

    /// Rechecks the credentials that a request presents.
    pub(crate) fn of_request(
        authenticator: &Arc<dyn Authenticator>,
        engine: &Engine,
        headers: &HeaderMap,
        peer: &ConnectionPeer,
    ) -> Self {
        let credentials = RequestCredentials::of_request(headers, peer);
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        let headers = authorization.map(|shown| (header::AUTHORIZATION, shown)).into_iter().collect();
        let shown = PresentedCredentials {
            authenticator: Arc::clone(authenticator),
            engine: engine.clone(),
            headers,
            from: peer.ip(),
            credentials,
        };
        Self { credentials: Some(shown), next: Instant::now() + LOOK }
    }

    /// Waits until the credentials are no longer valid. Safe to drop: the next call continues.
    pub(crate) async fn wait_until_invalid(&mut self) {
        let Some(shown) = &self.credentials else { return std::future::pending().await };
        let PresentedCredentials { authenticator, engine, headers, from, credentials } = shown;
        loop {
            tokio::time::sleep_until(self.next).await;
            match credentials.authenticate(&**authenticator, engine, headers, *from).await {
                Ok(caller) => {
                    if let Err(why) = engine.check_tenant(caller.tenant()) {
                        tracing::info!(%why, "closed a stream: its tenant is not served");
                        return;
                    }
                }
                // Credentials that cannot be verified at the moment stay valid.
                Err(AuthError::Unavailable(_)) => {}
                Err(why) => {
                    tracing::info!(%why, "closed a stream: its credentials are no longer valid");
                    return;
                }
            }
            self.next = Instant::now() + LOOK;
        }
    }
}
