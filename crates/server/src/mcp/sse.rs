//! The HTTP+SSE transport of 2024-11-05: `GET /sse` is the output stream, and its first event names the URL for
//! input.
//!
//! The connection is the session, so both of its directions belong to one node; a client that loses it starts
//! over.

use std::{borrow::Cow, collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    http::{Request as HttpRequest, Response as HttpResponse, StatusCode},
};
use futures_util::stream;
use nuncio_engine::{Caller, Error};
use nuncio_wire::sse;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{
    mpsc::{self, error::SendTimeoutError},
    watch,
};

use super::{McpEndpoint, duplex::McpDuplex};
use crate::{
    app::{App, peer_of},
    auth::CredentialRecheck,
    open_streams::{OpenStream, STREAM_ID, type_of},
    request_checks::{self, HttpRefusal},
    responses,
    responses::event_stream,
};

/// Messages queued for a client that does not read.
const WAITING: usize = 64;
/// Messages of a client queued for processing, and how long the next one waits for space.
const INBOX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections of this node, by the id in their input URL.
#[derive(Default)]
pub(crate) struct SseConnections(Mutex<HashMap<String, SseConnection>>);

#[derive(Clone)]
struct SseConnection {
    owner: Caller,
    inbox: mpsc::Sender<Bytes>,
}

impl SseConnections {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<String, SseConnection>> {
        self.0.lock()
    }
}

/// Opens a connection.
pub(crate) async fn open(State(app): State<Arc<App>>, request: HttpRequest<Body>) -> HttpResponse<Body> {
    let peer = peer_of(&request);
    let caller = match app.caller(request.headers(), &peer, "/sse").await {
        Ok(caller) => caller,
        Err(error) => return app.challenge.refusal("/mcp", &error),
    };
    let endpoint = match McpEndpoint::find(&app.mcp, request.uri(), &caller) {
        Ok(endpoint) => endpoint,
        Err(refusal) => return responses::refuse(&refusal),
    };
    let place = match app.admit_request(&caller).await.and_then(|()| app.reserve_stream_slot(&caller)) {
        Ok(place) => place,
        Err(Error::Forbidden(_)) => {
            let message = "the token allows nothing, so there is nothing to stream".into();
            return responses::refuse(&HttpRefusal { status: StatusCode::FORBIDDEN, message });
        }
        Err(error) => return responses::refuse_busy(&error),
    };
    let live = place.open(&caller, "mcp-sse", request.headers());
    let stream_id = live.header();
    let clock = app.engine.clock();
    let name = format!("{}{}", clock.new_id().simple(), clock.new_id().simple());
    let (inbox, mut messages) = mpsc::channel::<Bytes>(INBOX);
    let (out, outbox) = mpsc::channel::<Vec<u8>>(WAITING);
    app.connections.lock().insert(name.clone(), SseConnection { owner: caller.clone(), inbox });
    let mut duplex = McpDuplex::new(Arc::clone(&app.mcp), caller, endpoint, out);
    let depth = app.options.limits.max_json_depth;
    // Ends when the input channel is closed, which happens when the output stream ends.
    tokio::spawn(async move {
        while let Some(body) = messages.recv().await {
            duplex.handle_body(&body, depth).await;
        }
        duplex.close().await;
    });
    let mut first = b"event: endpoint\n".to_vec();
    sse::write_event(&mut first, None, |out| {
        out.extend_from_slice(format!("/messages?sessionId={name}").as_bytes());
    });
    let writer = SseWriter {
        first: Some(first.into()),
        outbox,
        closing: app.engine.closing(),
        keep_alive: app.options.limits.keep_alive,
        recheck: app.start_recheck(request.headers(), &peer),
        _registration: SseRegistration { app, name },
        live,
    };
    let frames = stream::unfold(writer, |mut writer| async move {
        let bytes = writer.next().await?;
        Some((Ok::<_, Infallible>(bytes), writer))
    });
    let mut response = event_stream(Body::from_stream(frames));
    response.headers_mut().insert(STREAM_ID, stream_id);
    response
}

/// The output stream of a connection.
struct SseWriter {
    first: Option<Bytes>,
    outbox: mpsc::Receiver<Vec<u8>>,
    closing: watch::Receiver<bool>,
    keep_alive: Duration,
    recheck: CredentialRecheck,
    _registration: SseRegistration,
    live: OpenStream,
}

impl SseWriter {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            self.live.record_event(Cow::Borrowed("endpoint"), None, None);
            return Some(first);
        }
        tokio::select! {
            message = self.outbox.recv() => {
                let mut out = b"event: message\n".to_vec();
                let message = message?;
                self.live.record_event(type_of(&message), None, None);
                sse::write_event(&mut out, None, |out| out.extend_from_slice(&message));
                Some(out.into())
            }
            () = tokio::time::sleep(self.keep_alive) => Some(Bytes::from_static(sse::KEEP_ALIVE)),
            _ = self.closing.wait_for(|closing| *closing) => None,
            () = self.recheck.wait_until_invalid() => None,
        }
    }
}

/// The registration of a connection, so that messages find it; removed on drop.
struct SseRegistration {
    app: Arc<App>,
    name: String,
}

impl Drop for SseRegistration {
    fn drop(&mut self) {
        self.app.connections.lock().remove(&self.name);
    }
}

/// The connection that a message belongs to.
#[derive(Deserialize)]
pub(crate) struct SseMessageQuery {
    #[serde(rename = "sessionId")]
    session_id: String,
}

/// Accepts a message for a connection.
pub(crate) async fn message(
    State(app): State<Arc<App>>,
    Query(address): Query<SseMessageQuery>,
    request: HttpRequest<Body>,
) -> HttpResponse<Body> {
    let peer = peer_of(&request);
    let (parts, body) = request.into_parts();
    let limits = &app.options.limits;
    let caller = match app.caller(&parts.headers, &peer, "/messages").await {
        Ok(caller) => caller,
        Err(error) => return app.challenge.refusal("/mcp", &error),
    };
    if let Err(error) = app.admit_request(&caller).await {
        return responses::refuse_busy(&error);
    }
    let connection = app.connections.lock().get(&address.session_id).cloned();
    // Messages run with the grants of the caller that opened the connection, so the sender must have the same
    // grants.
    let same = |owner: &Caller| caller.sees(owner.owner()) && caller.grants() == owner.grants();
    let Some(connection) = connection.filter(|connection| same(&connection.owner)) else {
        let message = "there is no such connection, or it has ended: begin again with GET /sse".into();
        return responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message });
    };
    let body =
        match request_checks::read_body(&parts.headers, body, limits.max_body_bytes, limits.body_timeout)
            .await
        {
            Ok(body) => body,
            Err(refusal) => return responses::refuse(&refusal),
        };
    let (status, message) = match connection.inbox.send_timeout(body, PATIENCE).await {
        Ok(()) => {
            let mut response = HttpResponse::new(Body::from("Accepted"));
            *response.status_mut() = StatusCode::ACCEPTED;
            return response;
        }
        Err(SendTimeoutError::Timeout(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many messages wait, because their answers are not read")
        }
        Err(SendTimeoutError::Closed(_)) => (StatusCode::NOT_FOUND, "the connection has ended"),
    };
    responses::refuse(&HttpRefusal { status, message: message.into() })
}
