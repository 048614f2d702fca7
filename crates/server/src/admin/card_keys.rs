//! The admin endpoints for the keys that sign cards, for callers of the tenant `home` with the scopes `read:admin:cards`
//! and `write:admin:cards`.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{Request, Response, Uri},
};
use nuncio_engine::Caller;
use serde::Deserialize;

use super::{answer_engine, authenticate_admin, invalid};
use crate::app::{App, peer_of};

const PATH: &str = "/admin/card-keys";

/// How long the previous key stays valid.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotationQuery {
    overlap_seconds: Option<u64>,
}

/// `GET /admin/card-keys`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    match admin(&app, request).await {
        Ok((caller, _)) => answer_engine(&app, app.cards.keys.list(&app.engine, &caller).await),
        Err(refused) => refused,
    }
}

/// `POST /admin/card-keys`
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    match admin(&app, request).await {
        Ok((caller, _)) => answer_engine(&app, app.cards.keys.create(&app.engine, &caller).await),
        Err(refused) => refused,
    }
}

/// `POST /admin/card-keys/rotate?overlapSeconds=…`
pub(crate) async fn rotate(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let (caller, uri) = match admin(&app, request).await {
        Ok(admitted) => admitted,
        Err(refused) => return refused,
    };
    match Query::<RotationQuery>::try_from_uri(&uri) {
        Ok(Query(query)) => {
            let overlap = query.overlap_seconds.map(Duration::from_secs);
            answer_engine(&app, app.cards.keys.rotate(&app.engine, &caller, overlap).await)
        }
        Err(error) => invalid(&app, error.body_text()),
    }
}

/// `DELETE /admin/card-keys/{kid}`
pub(crate) async fn retire(
    State(app): State<Arc<App>>,
    Path(kid): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    match admin(&app, request).await {
        Ok((caller, _)) => answer_engine(&app, app.cards.keys.retire(&app.engine, &caller, &kid).await),
        Err(refused) => refused,
    }
}

async fn admin(app: &App, request: Request<Body>) -> Result<(Caller, Uri), Response<Body>> {
    // The body is not `Sync`, so it must not be held across an await.
    let peer = peer_of(&request);
    let (parts, _) = request.into_parts();
    let caller = authenticate_admin(app, &parts.headers, &peer, PATH).await?;
    Ok((caller, parts.uri))
}
