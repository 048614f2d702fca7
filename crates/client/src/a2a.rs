//! An A2A client over JSON-RPC, HTTP+JSON and gRPC: resolves an agent's card, sends requests, follows streams.
//!
//! The card's order of interfaces applies (`interface.rs`). If the first cannot be reached at all, the next one is
//! used; never after a request that may have been carried out. How a call travels is up to its binding (`transport.rs`).
//! A response holds both the JSON as received and its decoded value, so that a program can show the one and
//! act on the other. A cut stream continues after the last event received ([`A2aTaskEvents`]). This client
//! connects to any address that its user names, loopback included; for addresses that a remote caller names
//! use [`nuncio_outbound`].

mod card;
mod card_cache;
mod card_keys;
mod catalog;
mod error;
mod extensions;
mod http;
mod interface;
pub(crate) mod peer;
mod task_events;
mod transport;
mod validation;
mod wait;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ::http::{HeaderName, HeaderValue};
use nuncio_engine::webhook::WebhookConfig;
use nuncio_wire::a2a::{A2aCall, card::CURSOR_EXTENSION};
/// The types of the requests and responses, as far as a caller of [`A2aClient`] names them.
pub use nuncio_wire::a2a::{
    ArtifactUpdate, Dialect, ListTasks, SendMessage, StatusUpdate, StreamEvent, TaskList, TaskView,
};
use serde_json::value::RawValue;
use url::Url;

pub use self::{
    card::{AgentCard, CardReference, WELL_KNOWN},
    card_cache::{CardCache, CardFreshness},
    card_keys::{CardKeySet, CardVerificationError, TrustedCardKeys, VerifiedCard},
    error::A2aClientError,
    http::{A2aCredentials, A2aHttpOptions, ApiKeyPlace, RenewedBearer},
    interface::{A2aBinding, AgentInterface, InterfacePreference},
    peer::{A2aPeer, A2aPeerOptions},
    task_events::{A2aTaskEvents, StreamItem},
    validation::problems,
    wait::WaitOptions,
};
use self::{
    http::A2aHttp,
    transport::{A2aEventSource, A2aRoute},
};

/// Pages of a task's webhooks that are read: a bound for a server that always names a next page.
const MAX_WEBHOOK_PAGES: usize = 100;

/// A response: the JSON as received, and its decoded value.
#[derive(Debug, Clone)]
pub struct A2aResponse<T> {
    /// The JSON as the server sent it.
    pub json: Box<RawValue>,
    /// The decoded JSON.
    pub value: T,
}

/// A client of one agent. Clones share which of the agent's interfaces is in use.
#[derive(Debug, Clone)]
pub struct A2aClient {
    /// Never empty. The dialect is the same in all.
    routes: Vec<A2aRoute>,
    /// The index of the route in use.
    used: Arc<AtomicUsize>,
    dialect: Dialect,
    /// How many times in a row a cut stream is resumed without a new event.
    resumes: u32,
    streaming: bool,
    push_notifications: bool,
    extended_card: bool,
    cursors: bool,
}

/// Fetches the card that a reference points to, without credentials: no card has been read yet that asks for
/// them.
pub async fn fetch_card(
    reference: &CardReference,
    options: &A2aHttpOptions,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    fetch_private_card(reference, options, &A2aCredentials::default()).await
}

/// Fetches a card that requires authentication. The credentials go to the address of the reference.
pub async fn fetch_private_card(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    CardCache::default().card(reference, options, credentials, CardFreshness::Fresh).await
}

/// Verifies a card that was received, with the keys that its user trusts. Returns the card as far as a signature covers
/// it, and the id of the key.
pub async fn verify_card(
    received: A2aResponse<AgentCard>,
    keys: &TrustedCardKeys,
    options: &A2aHttpOptions,
) -> Result<(A2aResponse<AgentCard>, String), A2aClientError> {
    let at = received.value.at;
    let bad = |why: serde_json::Error| A2aClientError::BadCard { at: at.clone(), why: why.to_string() };
    let card: serde_json::Value = serde_json::from_str(received.json.get()).map_err(bad)?;
    let verified = keys.verify(&card, &at, options).await?;
    let json = serde_json::value::to_raw_value(&verified.view).map_err(bad)?;
    let value = AgentCard::parse(&json, &at)?;
    Ok((A2aResponse { json, value }, verified.key_id))
}

impl A2aClient {
    /// A client of the agent that this card describes.
    pub fn new(
        card: &AgentCard,
        preference: &InterfacePreference,
        credentials: &A2aCredentials,
        options: &A2aHttpOptions,
    ) -> Result<Self, A2aClientError> {
        let mut interfaces = card.choose(preference)?;
        let credentials = credentials.clone().placed_by(card);
        if credentials.is_any() {
            // They are for the origin of the interface that the caller can see, and for no other.
            let first = interfaces.first().map(|interface| interface.url.origin());
            interfaces.retain(|interface| Some(interface.url.origin()) == first);
        }
        let route = |interface: AgentInterface| {
            let mut http = A2aHttp::new(options, &interface.url).with_credentials(&credentials)?;
            if interface.binding == A2aBinding::Grpc {
                http = http.over_http2();
            }
            Ok::<_, A2aClientError>(A2aRoute { interface, http })
        };
        Ok(Self {
            routes: interfaces.into_iter().map(route).collect::<Result<_, _>>()?,
            used: Arc::default(),
            dialect: preference.dialect,
            resumes: options.resumes,
            streaming: card.streaming,
            push_notifications: card.push_notifications,
            extended_card: card.extended_card,
            cursors: card.extensions.iter().any(|uri| uri == CURSOR_EXTENSION),
        })
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: &HeaderName, value: &HeaderValue) -> Self {
        for route in &mut self.routes {
            route.http.set_header(name.clone(), value.clone());
        }
        self
    }

    /// The protocol version in use.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The binding in use.
    pub fn binding(&self) -> A2aBinding {
        self.route().interface.binding
    }

    /// The URL that requests go to.
    pub fn endpoint(&self) -> &Url {
        &self.route().interface.url
    }

    fn route(&self) -> &A2aRoute {
        &self.routes[self.used.load(Ordering::Relaxed)]
    }

    /// Whether the card declares streaming.
    pub fn streams(&self) -> bool {
        self.streaming
    }

    /// Whether the card declares push notifications.
    pub fn has_push_notifications(&self) -> bool {
        self.push_notifications
    }

    /// Whether the card declares an extended card for authenticated callers.
    pub fn has_extended_card(&self) -> bool {
        self.extended_card
    }

    /// Whether the card declares that event ids are cursors.
    pub fn has_cursors(&self) -> bool {
        self.cursors
    }

    /// Sends a message. The response is a task, or a message if the agent created no task.
    pub async fn send(&self, send: SendMessage) -> Result<A2aResponse<StreamEvent>, A2aClientError> {
        let json = self.call(&A2aCall::Send(Box::new(send))).await?;
        self.received(json, |json| self.dialect.read_sent(json))
    }

    /// Sends a message and streams the resulting events.
    pub async fn send_streaming(&self, send: SendMessage) -> Result<A2aTaskEvents, A2aClientError> {
        let task = send.task_id.clone();
        let source = self.open(&A2aCall::Stream(Box::new(send)), None).await?;
        Ok(A2aTaskEvents::new(self.clone(), source, task, None))
    }

    /// Streams an existing task: after a cursor, or from now.
    pub async fn subscribe(&self, task: &str, after: Option<&str>) -> Result<A2aTaskEvents, A2aClientError> {
        let source = self.open(&A2aCall::Subscribe { task: task.to_owned() }, after).await?;
        Ok(A2aTaskEvents::new(self.clone(), source, Some(task.to_owned()), after.map(str::to_owned)))
    }

    /// The current state of a task.
    pub async fn get(
        &self,
        task: &str,
        history: Option<usize>,
    ) -> Result<A2aResponse<TaskView>, A2aClientError> {
        let call = A2aCall::Get { task: task.to_owned(), history_length: history };
        let json = self.call(&call).await?;
        self.received(json, |json| self.dialect.read_task(json))
    }

    /// A page of tasks.
    pub async fn list(&self, list: ListTasks) -> Result<A2aResponse<TaskList>, A2aClientError> {
        let json = self.call(&A2aCall::List(list)).await?;
        self.received(json, |json| self.dialect.read_list(json))
    }

    /// Cancels a task.
    pub async fn cancel(&self, task: &str) -> Result<A2aResponse<TaskView>, A2aClientError> {
        let json = self.call(&A2aCall::Cancel { task: task.to_owned(), metadata: None }).await?;
        self.received(json, |json| self.dialect.read_task(json))
    }

    /// Registers a webhook for a task. Returns the configuration as the agent stores it, without its
    /// secrets.
    pub async fn set_webhook(
        &self,
        task: &str,
        config: WebhookConfig,
    ) -> Result<A2aResponse<WebhookConfig>, A2aClientError> {
        let json = self.call(&A2aCall::SetWebhook { task: task.to_owned(), config }).await?;
        self.received(json, |json| self.dialect.read_webhook(json).map(|(_, config)| config))
    }

    /// One webhook of a task, by `id`. 0.1 has one webhook per task, without an id.
    pub async fn get_webhook(
        &self,
        task: &str,
        id: Option<&str>,
    ) -> Result<A2aResponse<WebhookConfig>, A2aClientError> {
        let call = A2aCall::GetWebhook { task: task.to_owned(), id: id.map(str::to_owned) };
        let json = self.call(&call).await?;
        self.received(json, |json| self.dialect.read_webhook(json).map(|(_, config)| config))
    }

    /// The webhooks of a task, from all pages.
    pub async fn list_webhooks(&self, task: &str) -> Result<Vec<WebhookConfig>, A2aClientError> {
        let (mut all, mut page_token) = (vec![], None);
        for _ in 0..MAX_WEBHOOK_PAGES {
            let (more, next) = self.list_webhook_page(task, page_token).await?.value;
            all.extend(more);
            page_token = next;
            if page_token.is_none() {
                return Ok(all);
            }
        }
        Err(A2aClientError::Malformed(format!("more than {MAX_WEBHOOK_PAGES} pages of webhooks")))
    }

    /// A page of the webhooks of a task, and the token of the next page.
    pub async fn list_webhook_page(
        &self,
        task: &str,
        page_token: Option<String>,
    ) -> Result<A2aResponse<(Vec<WebhookConfig>, Option<String>)>, A2aClientError> {
        let call = A2aCall::ListWebhooks { task: task.to_owned(), page_size: None, page_token };
        let json = self.call(&call).await?;
        self.received(json, |json| self.dialect.read_webhooks(json))
    }

    /// The extended card, for authenticated callers.
    pub async fn extended_card(&self) -> Result<A2aResponse<AgentCard>, A2aClientError> {
        let json = self.call(&A2aCall::ExtendedCard).await?;
        let value = AgentCard::parse(&json, self.endpoint().as_str())?;
        Ok(A2aResponse { json, value })
    }

    /// Deletes a webhook. 0.1 has no such method.
    pub async fn delete_webhook(&self, task: &str, id: &str) -> Result<(), A2aClientError> {
        self.call(&A2aCall::DeleteWebhook { task: task.to_owned(), id: id.to_owned() }).await.map(drop)
    }

    async fn call(&self, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
        let mut unserved = None;
        for (index, route) in self.routes_from_used() {
            match route.call(call).await {
                Err(error) if error.is_unserved() => drop(unserved.get_or_insert(error)),
                answered => return self.answered_by(index, answered),
            }
        }
        Err(unserved.unwrap_or(A2aClientError::Ended))
    }

    async fn open(&self, call: &A2aCall, after: Option<&str>) -> Result<A2aEventSource, A2aClientError> {
        let mut unserved = None;
        for (index, route) in self.routes_from_used() {
            match route.open(call, after).await {
                Err(error) if error.is_unserved() => drop(unserved.get_or_insert(error)),
                answered => return self.answered_by(index, answered),
            }
        }
        Err(unserved.unwrap_or(A2aClientError::Ended))
    }

    /// The route in use, then the others in the order of preference.
    fn routes_from_used(&self) -> impl Iterator<Item = (usize, &A2aRoute)> {
        let used = self.used.load(Ordering::Relaxed);
        let others = self.routes.iter().enumerate().filter(move |(index, _)| *index != used);
        std::iter::once((used, &self.routes[used])).chain(others)
    }

    /// Records that an interface answers.
    fn answered_by<T>(&self, index: usize, answered: Result<T, A2aClientError>) -> Result<T, A2aClientError> {
        if self.used.swap(index, Ordering::Relaxed) != index {
            let AgentInterface { url, binding, .. } = &self.routes[index].interface;
            tracing::debug!(to = %nuncio_outbound::origin(url), binding = binding.name(), "another interface is used");
        }
        answered
    }

    fn received<T>(
        &self,
        json: Box<RawValue>,
        read: impl FnOnce(&RawValue) -> Result<T, nuncio_wire::a2a::MalformedInput>,
    ) -> Result<A2aResponse<T>, A2aClientError> {
        match read(&json) {
            Ok(value) => Ok(A2aResponse { json, value }),
            Err(malformed) => Err(A2aClientError::Malformed(malformed.to_string())),
        }
    }

    /// Converts a task to the response of a send, or the stream item, that would carry it.
    pub fn as_sent(&self, task: &RawValue) -> Result<Box<RawValue>, A2aClientError> {
        let json =
            if self.dialect >= Dialect::V1 { format!("{{\"task\":{task}}}") } else { task.to_string() };
        RawValue::from_string(json).map_err(|error| A2aClientError::Malformed(error.to_string()))
    }

    fn read_event(&self, json: Box<RawValue>) -> Result<A2aResponse<StreamEvent>, A2aClientError> {
        self.received(json, |json| self.dialect.read_event(json))
    }
}
