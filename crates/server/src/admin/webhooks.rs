//! The admin endpoints for webhook signing keys, for callers with the scopes `read:admin:webhooks` and
//! `write:admin:webhooks`.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Query, State},
    http::{Request, Response},
};
use nuncio_engine::Caller;
use serde::Deserialize;

use super::{answer_engine, authenticate_admin, invalid, nothing_here};
use crate::{
    app::{App, peer_of},
    webhook_keys::WebhookKeys,
};

/// The tenant, and how long the previous key stays valid.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookKeyQuery {
    tenant: Option<String>,
    overlap_seconds: Option<u64>,
}

/// `GET /admin/webhook-key?tenant=…`
pub(crate) async fn show(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    match asked(&app, request).await {
        Ok((caller, keys, wish)) => answer_engine(&app, keys.show(&caller, wish.tenant.as_deref()).await),
        Err(refused) => refused,
    }
}

/// `POST /admin/webhook-key/rotate?tenant=…&overlapSeconds=…`
pub(crate) async fn rotate(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    match asked(&app, request).await {
        Ok((caller, keys, wish)) => {
            let overlap = wish.overlap_seconds.map(Duration::from_secs);
            answer_engine(&app, keys.rotate(&caller, wish.tenant.as_deref(), overlap).await)
        }
        Err(refused) => refused,
    }
}

async fn asked(
    app: &App,
    request: Request<Body>,
) -> Result<(Caller, &WebhookKeys, WebhookKeyQuery), Response<Body>> {
    // The body is not `Sync`, so it must not be held across an await.
    let peer = peer_of(&request);
    let (parts, _) = request.into_parts();
    let caller = authenticate_admin(app, &parts.headers, &peer, "/admin/webhook-key").await?;
    let keys = app.options.webhook_keys.as_deref().ok_or_else(nothing_here)?;
    match Query::try_from_uri(&parts.uri) {
        Ok(Query(wish)) => Ok((caller, keys, wish)),
        Err(error) => Err(invalid(app, error.body_text())),
    }
}
