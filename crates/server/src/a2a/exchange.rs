//! One request of any binding of A2A: who calls which agent, and what the headers say beside the call.
//!
//! A binding is one file that reads a call from its wire, gives it to the handler of its [`A2aExchange`], and writes what
//! comes back. The order before that is the same in all of them: the caller is authenticated before any of the body is
//! read, then [`serve_as`] admits, meters and charges the request.

use std::{borrow::Cow, future::Future, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, request::Parts},
};
use nuncio_engine::{Caller, Error, catalog::RegisteredAgent};
use nuncio_wire::a2a::{A2aCall, A2aFault, A2aProblem, Dialect, card::LOG_EXTENSION};

use super::{
    event_stream::{A2aEventStream, StreamFraming},
    extensions::ActiveExtensions,
    handler::{A2aEvents, A2aHandler, A2aRequestMeta},
};
use crate::{
    app::App,
    auth::{AuthError, ConnectionPeer},
    charged_body::charge_response,
    responses::refuse_busy,
};

/// Serves a request in its caller's name: within the caller's rate and share of the processor, and with the response
/// charged to its budget of bytes.
pub(super) async fn serve_as<F>(app: &App, caller: Caller, serve: impl FnOnce(Caller) -> F) -> Response<Body>
where
    F: Future<Output = Response<Body>>,
{
    if let Err(error) = app.admit_request(&caller).await {
        return refuse_busy(&error);
    }
    let response = app.engine.cpu().meter(caller.owner(), serve(caller.clone())).await;
    charge_response(&app.engine, &caller, response)
}

/// One request and the context of its response.
pub(super) struct A2aExchange<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) agent: &'a RegisteredAgent,
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: &'a ConnectionPeer,
    pub(super) caller: Caller,
    pub(super) extensions: ActiveExtensions,
}

impl A2aExchange<'_> {
    pub(super) fn handler(&self) -> A2aHandler<'_> {
        A2aHandler { app: self.app, agent: self.agent, caller: &self.caller }
    }

    /// The stream of a task's events for this client.
    pub(super) fn open_stream(
        &self,
        dialect: Dialect,
        events: A2aEvents,
        framing: Box<dyn StreamFraming>,
    ) -> A2aEventStream {
        let A2aEvents { origin, follower, start, one_turn, slot } = events;
        A2aEventStream {
            dialect,
            framing,
            task_id: origin.public_id().into(),
            origin,
            follower,
            start,
            one_turn,
            logs: self.extensions.contains(LOG_EXTENSION),
            keep_alive: self.app.options.limits.keep_alive,
            live: slot.open(&self.caller, "a2a", self.headers),
            recheck: self.app.start_recheck(self.headers, self.peer),
            ended: false,
        }
    }

    /// The headers that matter to this call.
    pub(super) fn meta(&self, call: &A2aCall) -> Result<A2aRequestMeta, Error> {
        Ok(match call {
            A2aCall::Send(_) | A2aCall::Stream(_) => A2aRequestMeta {
                idempotency_key: self.idempotency_key()?,
                trace: header_text(self.headers, "traceparent").map(Cow::into_owned),
                last_event_id: None,
                extensions: self.extensions.uris().to_vec(),
            },
            A2aCall::Subscribe { .. } => {
                A2aRequestMeta { last_event_id: self.last_event_id()?, ..A2aRequestMeta::default() }
            }
            _ => A2aRequestMeta::default(),
        })
    }

    /// The cursor after which a stream continues.
    pub(super) fn last_event_id(&self) -> Result<Option<u64>, Error> {
        let Some(id) = header_text(self.headers, "last-event-id").filter(|id| !id.is_empty()) else {
            return Ok(None);
        };
        match id.parse() {
            Ok(cursor) => Ok(Some(cursor)),
            Err(_) => {
                Err(Error::Invalid(format!("Last-Event-ID: {id:?} is not an id of this server's events")))
            }
        }
    }

    /// The idempotency key of a send. An invalid key is refused: without it a repeat would create a second
    /// task, or answer another question.
    fn idempotency_key(&self) -> Result<Option<String>, Error> {
        match self.headers.get("idempotency-key").map(HeaderValue::to_str) {
            None => Ok(None),
            Some(Ok(key)) if !key.is_empty() => Ok(Some(format!("key:{key}"))),
            Some(_) => {
                Err(Error::Invalid("Idempotency-Key: expected printable ASCII, for example a UUID".into()))
            }
        }
    }
}

/// The problem that a request without valid credentials has.
pub(super) fn authentication_problem(error: &AuthError) -> A2aProblem {
    match error {
        AuthError::Unavailable(_) => A2aProblem::Unavailable,
        AuthError::Suspended(_) => A2aProblem::Forbidden,
        AuthError::Missing | AuthError::Invalid(_) => A2aProblem::Unauthenticated,
    }
}

/// Renders an engine error for the caller; an internal error is also logged for the operator.
pub(crate) fn fault_of(dialect: Dialect, error: &Error) -> A2aFault {
    if let Error::Internal(why) = error {
        tracing::error!(%why, "a request failed with an internal error");
    }
    dialect.fault(error)
}

/// A header as text. Invalid bytes are shown as such, so that the value is refused and not ignored.
pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// The version of A2A that a request names, in its header or its query.
pub(super) fn version_of(parts: &Parts) -> Option<Cow<'_, str>> {
    let in_query = || parts.uri.query().and_then(version_in_query).map(Cow::Borrowed);
    header_text(&parts.headers, "a2a-version").or_else(in_query)
}

fn version_in_query(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version")).map(|(_, value)| value)
}
