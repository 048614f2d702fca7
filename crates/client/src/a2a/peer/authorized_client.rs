//! Requests to one agent with the caller's token; a rejected token is renewed once and the request retried.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use nuncio_wire::a2a::{Dialect, TaskView, card::LOG_EXTENSION};

use url::Url;

use super::{A2aPeerOptions, agents::KnownAgent};
use crate::a2a::{A2aClient, A2aClientError, A2aCredentials, A2aTaskEvents, InterfacePreference};

/// Timeout of a request that changes nothing.
const SOON: Duration = Duration::from_secs(30);
/// The history is not needed: messages arrive as events.
const NO_HISTORY: Option<usize> = Some(0);

/// A client of one agent that authenticates its requests.
#[derive(Clone)]
pub(super) struct AuthorizedClient {
    pub(super) agent: Arc<KnownAgent>,
    pub(super) options: Arc<A2aPeerOptions>,
}

/// Additional headers of one request.
pub(super) type RequestHeaders = Vec<(HeaderName, HeaderValue)>;

impl AuthorizedClient {
    pub(super) fn new(agent: Arc<KnownAgent>, options: Arc<A2aPeerOptions>) -> Self {
        Self { agent, options }
    }

    pub(super) fn dialect(&self) -> Dialect {
        *self.agent.dialect.lock()
    }

    /// Switches to 0.1 for this agent.
    pub(super) fn fall_back(&self) {
        *self.agent.dialect.lock() = Dialect::V0_1;
        *self.agent.client.lock() = None;
    }

    /// Whether the agent's event ids are cursors and the message id is an idempotency key.
    pub(super) fn has_cursors(&self) -> bool {
        self.agent.offer.idempotent
    }

    pub(super) fn streams(&self) -> bool {
        self.agent.card.streaming
    }

    /// Sends a request. If the token is rejected and there is a new one, retries once.
    pub(super) async fn ask<T, F>(
        &self,
        headers: &RequestHeaders,
        request: impl Fn(A2aClient) -> F,
    ) -> Result<T, A2aClientError>
    where
        F: Future<Output = Result<T, A2aClientError>>,
    {
        let client = self.client(headers).await?;
        match request(client).await {
            Err(error @ A2aClientError::Unauthorized { .. }) => {
                self.challenged(error).await?;
                request(self.client(headers).await?).await
            }
            answered => answered,
        }
    }

    /// The current state of the task.
    pub(super) async fn get(&self, task: &str) -> Result<TaskView, A2aClientError> {
        let get = |client: A2aClient| async move { client.get(task, NO_HISTORY).await };
        Ok(self.soon(get).await?.value)
    }

    /// Cancels the task.
    pub(super) async fn cancel(&self, task: &str) -> Result<TaskView, A2aClientError> {
        let cancel = |client: A2aClient| async move { client.cancel(task).await };
        Ok(self.soon(cancel).await?.value)
    }

    /// Streams the task: after a cursor, or from now.
    pub(super) async fn subscribe(
        &self,
        task: &str,
        after: Option<&str>,
    ) -> Result<A2aTaskEvents, A2aClientError> {
        self.soon(|client| async move { client.subscribe(task, after).await }).await
    }

    async fn soon<T, F>(&self, request: impl Fn(A2aClient) -> F) -> Result<T, A2aClientError>
    where
        F: Future<Output = Result<T, A2aClientError>>,
    {
        match tokio::time::timeout(SOON, self.ask(&vec![], request)).await {
            Ok(answered) => answered,
            Err(_) => Err(A2aClientError::Timeout { at: self.agent.card.at.clone(), limit: SOON }),
        }
    }

    fn preference(&self) -> InterfacePreference {
        let bindings: Vec<String> =
            self.options.transport.iter().map(|binding| binding.name().to_owned()).collect();
        InterfacePreference { only: true, bindings, dialect: self.dialect() }
    }

    /// The address that tokens are for: that of the preferred interface.
    fn resource(&self, preference: &InterfacePreference) -> Result<Url, A2aClientError> {
        let chosen = self.agent.card.choose(preference)?;
        chosen.into_iter().next().map(|interface| interface.url).ok_or(A2aClientError::Ended)
    }

    async fn client(&self, headers: &RequestHeaders) -> Result<A2aClient, A2aClientError> {
        let KnownAgent { card, client: kept, .. } = &*self.agent;
        let preference = self.preference();
        let bearer = match &self.options.authorizer {
            Some(authorizer) => authorizer.token(&self.resource(&preference)?).await,
            None => None,
        };
        let mut kept = kept.lock();
        let mut client = match &*kept {
            Some((token, client)) if *token == bearer => client.clone(),
            _ => {
                let credentials = A2aCredentials { bearer: bearer.clone(), ..A2aCredentials::default() };
                let mut declared = card.declared_extensions(&self.options.extensions)?;
                let logs = self.options.logs && card.extensions.iter().any(|uri| uri == LOG_EXTENSION);
                if logs && !declared.iter().any(|uri| uri == LOG_EXTENSION) {
                    declared.push(LOG_EXTENSION.to_owned());
                }
                let client = A2aClient::new(card, &preference, &credentials, &self.options.http)?
                    .with_extensions(&declared);
                kept.insert((bearer, client)).1.clone()
            }
        };
        drop(kept);
        for (name, value) in headers {
            client = client.with_header(name, value);
        }
        Ok(client)
    }

    /// The agent rejected the token: requests another one. An error if there is none.
    async fn challenged(&self, error: A2aClientError) -> Result<(), A2aClientError> {
        let (Some(authorizer), A2aClientError::Unauthorized { at, status, supplied, challenge, body }) =
            (&self.options.authorizer, &error)
        else {
            return Err(error);
        };
        let resource = self.resource(&self.preference())?;
        match authorizer.challenged(&resource, *status, challenge.as_deref()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            Err(why) => {
                let body = if body.is_empty() { why } else { format!("{why} ({body})") };
                let (at, challenge) = (at.clone(), challenge.clone());
                Err(A2aClientError::Unauthorized {
                    at,
                    status: *status,
                    supplied: *supplied,
                    body,
                    challenge,
                })
            }
        }
    }
}
