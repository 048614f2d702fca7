//! An A2A client over JSON-RPC and HTTP+JSON: resolves an agent's card, sends requests, follows streams.
//!
//! A response holds both the JSON as received and its decoded value, so that a program can show the one and
//! act on the other. A cut stream continues after the last event received ([`A2aTaskEvents`]). This client
//! connects to any address that its user names, loopback included; for addresses that a remote caller names
//! use [`nuncio_outbound`].

mod card;
mod card_keys;
mod error;
mod http;
pub(crate) mod peer;
mod rest;
mod task_events;
mod validation;
mod wait;

use ::http::{HeaderName, HeaderValue};
use nuncio_engine::webhook::WebhookConfig;
use nuncio_wire::{
    a2a::{
        A2aCall, Dialect, ListTasks, SendMessage, StreamEvent, TaskList, TaskView, card::CURSOR_EXTENSION,
    },
    jsonrpc::{self, RpcId},
};
use serde_json::value::RawValue;
use url::Url;

use self::http::A2aHttp;
pub use self::{
    card::{A2aBinding, AgentCard, AgentInterface, CardReference, WELL_KNOWN},
    card_keys::{CardKeySet, CardVerificationError, TrustedCardKeys, VerifiedCard},
    error::A2aClientError,
    http::{A2aCredentials, A2aHttpOptions, ApiKeyPlace},
    peer::{A2aPeer, A2aPeerOptions},
    task_events::{A2aTaskEvents, StreamItem},
    validation::problems,
    wait::WaitOptions,
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

/// Which of an agent's interfaces to use.
#[derive(Debug, Clone)]
pub struct InterfacePreference {
    /// Bindings, best first; empty: the card's order.
    pub bindings: Vec<String>,
    /// The protocol version to speak.
    pub dialect: Dialect,
    /// Whether HTTP+JSON may be spoken, beside JSON-RPC. The dialects before 1.0 have JSON-RPC only.
    pub http_json: bool,
}

impl Default for InterfacePreference {
    fn default() -> Self {
        Self { bindings: vec![], dialect: Dialect::V1, http_json: false }
    }
}

/// A client of one agent.
#[derive(Debug, Clone)]
pub struct A2aClient {
    http: A2aHttp,
    endpoint: Url,
    binding: A2aBinding,
    dialect: Dialect,
    tenant: Option<String>,
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
    card::fetch(reference, options, &A2aCredentials::default()).await
}

/// Fetches a card that requires authentication. The credentials go to the address of the reference.
pub async fn fetch_private_card(
    reference: &CardReference,
    options: &A2aHttpOptions,
    credentials: &A2aCredentials,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    card::fetch(reference, options, credentials).await
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
        let interface = card.pick(preference)?;
        let (endpoint, dialect) = (interface.url.clone(), interface.dialect);
        let credentials = credentials.clone().placed_by(card);
        let http = A2aHttp::new(options, &endpoint)?.with_credentials(&credentials)?;
        Ok(Self {
            http,
            endpoint,
            binding: interface.binding,
            dialect,
            tenant: interface.tenant.clone(),
            streaming: card.streaming,
            push_notifications: card.push_notifications,
            extended_card: card.extended_card,
            cursors: card.extensions.iter().any(|uri| uri == CURSOR_EXTENSION),
        })
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.http.set_header(name, value);
        self
    }

    /// The protocol version in use.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The binding in use.
    pub fn binding(&self) -> A2aBinding {
        self.binding
    }

    /// The URL that requests go to.
    pub fn endpoint(&self) -> &Url {
        &self.endpoint
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
        let value = AgentCard::parse(&json, self.endpoint.as_str())?;
        Ok(A2aResponse { json, value })
    }

    /// Deletes a webhook. 0.1 has no such method.
    pub async fn delete_webhook(&self, task: &str, id: &str) -> Result<(), A2aClientError> {
        self.call(&A2aCall::DeleteWebhook { task: task.to_owned(), id: id.to_owned() }).await.map(drop)
    }

    async fn call(&self, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
        if self.binding == A2aBinding::HttpJson {
            let answer = self.http.exchange(self.rest_request(call)?, self.dialect).await?;
            // A deleted configuration may be answered without a body.
            let text =
                if answer.is_empty() { "{}".into() } else { String::from_utf8_lossy(&answer).into_owned() };
            return RawValue::from_string(text).map_err(|error| A2aClientError::Malformed(error.to_string()));
        }
        let body = self.request(call)?;
        let answer = self.http.post(&self.endpoint, self.dialect, body).await?;
        result_of(&answer)
    }

    fn rest_request(&self, call: &A2aCall) -> Result<rest::RestClientRequest, A2aClientError> {
        let (_, params) = self.params(call)?;
        rest::request(&self.endpoint, self.tenant.as_deref(), call, &params)
    }

    async fn open(
        &self,
        call: &A2aCall,
        after: Option<&str>,
    ) -> Result<http::OpenedEventStream, A2aClientError> {
        if self.binding == A2aBinding::HttpJson {
            return self.http.open_rest(self.rest_request(call)?, self.dialect, after).await;
        }
        let body = self.request(call)?;
        self.http.open(&self.endpoint, self.dialect, body, after).await
    }

    /// The method of a call, and its params with the routing identifier.
    fn params(&self, call: &A2aCall) -> Result<(&'static str, Vec<u8>), A2aClientError> {
        let mut params = Vec::new();
        let Some(method) = self.dialect.write_call(&mut params, call) else {
            let version = self.dialect.version();
            return Err(A2aClientError::Unsupported(format!("A2A {version} has no method for this")));
        };
        if let Some(tenant) = &self.tenant {
            params = with_tenant(&params, tenant);
        }
        Ok((method, params))
    }

    fn request(&self, call: &A2aCall) -> Result<Vec<u8>, A2aClientError> {
        let (method, params) = self.params(call)?;
        let mut body = Vec::with_capacity(params.len() + 96);
        jsonrpc::write_request(&mut body, &RpcId::number(1), method, |out| out.extend_from_slice(&params));
        Ok(body)
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

    fn read_event(&self, data: &str) -> Result<A2aResponse<StreamEvent>, A2aClientError> {
        let json = match self.binding {
            A2aBinding::JsonRpc => result_of(data.as_bytes())?,
            A2aBinding::HttpJson => match rest::error_of(data.as_bytes()) {
                Some(error) => return Err(error),
                None => RawValue::from_string(data.to_owned())
                    .map_err(|error| A2aClientError::Malformed(error.to_string()))?,
            },
        };
        self.received(json, |json| self.dialect.read_event(json))
    }
}

/// The result of a JSON-RPC response, or its error.
fn result_of(body: &[u8]) -> Result<Box<RawValue>, A2aClientError> {
    let response =
        jsonrpc::parse_response(body).map_err(|error| A2aClientError::Malformed(error.to_string()))?;
    response.outcome.map(ToOwned::to_owned).map_err(A2aClientError::Rpc)
}

/// Adds the card's routing identifier, which every request must carry (A2A 1.0, section 8.3.2).
fn with_tenant(params: &[u8], tenant: &str) -> Vec<u8> {
    let mut out = format!("{{\"tenant\":{}", serde_json::Value::from(tenant)).into_bytes();
    let rest = params.strip_prefix(b"{").unwrap_or(b"}");
    if rest != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::with_tenant;

    #[test]
    fn the_tenant_goes_first() {
        let check = |params: &str, expected: &str| {
            let got = String::from_utf8(with_tenant(params.as_bytes(), "a\"b")).unwrap();
            assert_eq!(got, expected);
        };
        check("{}", r#"{"tenant":"a\"b"}"#);
        check(r#"{"id":"1"}"#, r#"{"tenant":"a\"b","id":"1"}"#);
    }
}
