//! Looks now and then whether the credentials with which a stream was opened are still good. A request is done before
//! that matters; a stream that only tells what changes has no end of its own.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::http::{HeaderMap, header};
use nuncio_engine::Engine;
use tokio::time::Instant;

use super::{AuthError, Authenticator, ConnectionPeer};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(3);

/// The credentials of one stream.
pub(crate) struct CredentialRecheck {
    /// `None`: nobody was asked for any, or it is the operator.
    credentials: Option<PresentedCredentials>,
    next: Instant,
}

struct PresentedCredentials {
    authenticator: Arc<dyn Authenticator>,
    engine: Engine,
    headers: HeaderMap,
    from: Option<IpAddr>,
}

impl CredentialRecheck {
    /// Where there is nothing to look at.
    pub(crate) fn none() -> Self {
        Self { credentials: None, next: Instant::now() }
    }

    /// Over what a request shows.
    pub(crate) fn of_request(
        authenticator: &Arc<dyn Authenticator>,
        engine: &Engine,
        headers: &HeaderMap,
        peer: &ConnectionPeer,
    ) -> Self {
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        let headers = authorization.map(|shown| (header::AUTHORIZATION, shown)).into_iter().collect();
        let shown = PresentedCredentials {
            authenticator: Arc::clone(authenticator),
            engine: engine.clone(),
            headers,
            from: peer.ip(),
        };
        Self { credentials: Some(shown), next: Instant::now() + LOOK }
    }

    /// Waits until they are not good any more. Dropped meanwhile, nothing is lost: the next one goes on.
    pub(crate) async fn wait_until_invalid(&mut self) {
        let Some(PresentedCredentials { authenticator, engine, headers, from }) = &self.credentials else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep_until(self.next).await;
            match authenticator.authenticate(headers, *from).await {
                // While nobody can tell, what was good is.
                Ok(caller) => {
                    if let Err(why) = engine.check_tenant(caller.tenant()) {
                        tracing::info!(%why, "a stream is closed");
                        return;
                    }
                }
                Err(AuthError::Unavailable(_)) => {}
                Err(why) => {
                    tracing::info!(%why, "a stream is closed");
                    return;
                }
            }
            self.next = Instant::now() + LOOK;
        }
    }
}
