//! Clients of language models, by provider and name: one request, one reply that streams.
//!
//! `messages.rs` has the types that all providers share, each provider has a file that converts them to its
//! wire format and back, `call.rs` sends the request and retries it after the wait that `retry.rs` reads
//! from the error response. The operator chooses the address, so it may be this machine. The key appears in
//! no error and no log.

mod accumulator;
mod anthropic;
mod call;
mod error;
mod messages;
mod metrics;
mod openai;
mod retry;

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use nuncio_engine::Sampler;
use nuncio_outbound::{AddressPolicy, Outbound, OutboundError, OutboundOptions, Url};

use self::metrics::ModelMetrics;
pub use self::{
    call::{ModelCall, ModelEvent},
    error::ModelError,
    messages::{
        ModelReply, ModelRequest, ModelTool, ModelToolCall, ModelToolResult, ModelTurn, ModelUsage,
        StopReason,
    },
};

/// The API of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's chat completions, which many other servers implement.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini, by its OpenAI-compatible API.
    Gemini,
    /// Ollama, by its OpenAI-compatible API.
    Ollama,
}

/// The text that names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected openai, anthropic, gemini or ollama, not {0:?}")]
pub struct UnknownProvider(pub String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(name: &str) -> Result<Self, UnknownProvider> {
        match name {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            "gemini" => Ok(Self::Gemini),
            "ollama" => Ok(Self::Ollama),
            other => Err(UnknownProvider(other.to_owned())),
        }
    }
}

impl Provider {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The default base URL.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/openai",
            Self::Ollama => "http://127.0.0.1:11434/v1",
        }
    }

    /// Whether the provider rejects requests without a key.
    pub fn needs_key(self) -> bool {
        self != Self::Ollama
    }

    /// The header that carries the key.
    fn key_header(self, key: &str) -> (&'static str, String) {
        match self {
            Self::OpenAi | Self::Gemini | Self::Ollama => ("authorization", format!("Bearer {key}")),
            Self::Anthropic => ("x-api-key", key.to_owned()),
        }
    }
}

/// Which model to use, and how.
#[derive(Clone)]
pub struct ModelOptions {
    /// The API spoken there.
    pub provider: Provider,
    /// The base URL before the API's own path, such as `http://127.0.0.1:8080/v1`; `None`: the provider's.
    pub url: Option<String>,
    /// The model's name at the provider.
    pub name: String,
    /// Its name in metrics, where `name` is not to be shown: it may come from the environment.
    pub shown_name: Option<String>,
    /// The API key.
    pub key: Option<String>,
    /// Limit for one attempt, from the connection to the end of the reply.
    pub timeout: Duration,
    /// Bytes of a reply that are read.
    pub max_answer: usize,
    /// How many times a request is retried after a transient error.
    pub retries: u32,
    /// The longest wait before a retry that a provider may request; a longer one is an error.
    pub max_wait: Duration,
}

impl ModelOptions {
    /// A model with an OpenAI-compatible API at a URL, without a key.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(Provider::OpenAi, name) }
    }

    /// A model at the provider's own URL, without a key.
    pub fn of(provider: Provider, name: impl Into<String>) -> Self {
        Self {
            provider,
            url: None,
            name: name.into(),
            shown_name: None,
            key: None,
            timeout: Duration::from_secs(300),
            max_answer: 4 * 1024 * 1024,
            retries: 5,
            max_wait: Duration::from_secs(120),
        }
    }
}

impl fmt::Debug for ModelOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ModelOptions")
            .field("provider", &self.provider)
            .field("url", &self.url)
            .field("name", &self.name)
            .field("key", &self.key.as_ref().map(|_| "…"))
            .field("timeout", &self.timeout)
            .field("max_answer", &self.max_answer)
            .field("retries", &self.retries)
            .field("max_wait", &self.max_wait)
            .finish()
    }
}

/// A language model. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Model {
    http: Outbound,
    url: Url,
    headers: HeaderMap,
    options: ModelOptions,
    metrics: ModelMetrics,
}

impl fmt::Debug for Model {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Model").field(&self.options).finish()
    }
}

impl Model {
    /// A client for these options. Sends no request yet.
    pub fn new(options: &ModelOptions) -> Result<Self, ModelError> {
        let http = Outbound::new(OutboundOptions {
            policy: AddressPolicy { allow_private: true },
            timeout: options.timeout,
            max_answer: options.max_answer,
            ..OutboundOptions::default()
        })?;
        let base = options.url.as_deref().unwrap_or_else(|| options.provider.base_url());
        let base = http.check_url(base.trim_end_matches('/'))?;
        let url = endpoint_url(options, base)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if options.provider == Provider::Anthropic {
            headers.insert(anthropic::VERSION.0, HeaderValue::from_static(anthropic::VERSION.1));
        }
        if let Some(key) = &options.key {
            let (name, value) = options.provider.key_header(key);
            let mut value = HeaderValue::from_str(&value).map_err(|_| ModelError::Key)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let metrics = ModelMetrics::new(options.shown_name.as_deref().unwrap_or(&options.name));
        Ok(Self { http, url, headers, options: options.clone(), metrics })
    }

    /// The API that it speaks.
    pub fn provider(&self) -> Provider {
        self.options.provider
    }

    /// Creates a call. Sends nothing before the first [`ModelCall::next`]; dropping the call drops the
    /// request.
    pub fn ask(&self, request: &ModelRequest) -> ModelCall {
        let (body, name) = (request, self.options.name.as_str());
        let body = match self.options.provider {
            Provider::Anthropic => anthropic::body(name, body),
            // Not every OpenAI-compatible server knows the successor of `max_tokens`.
            Provider::OpenAi => openai::body(name, body, self.options.url.is_none()),
            Provider::Gemini | Provider::Ollama => openai::body(name, body, false),
        };
        ModelCall::new(self.clone(), body.to_string().into())
    }

    /// Whether the server responds at all, with any status. The key is not sent.
    pub async fn check_reachable(&self) -> Result<(), ModelError> {
        let mut root = self.url.clone();
        root.set_path("/");
        root.set_query(None);
        self.http.send(Method::GET, &root, HeaderMap::new(), Bytes::new()).await?;
        Ok(())
    }

    /// The whole reply, with retries as configured.
    pub async fn answer(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let mut asking = self.ask(request);
        loop {
            if let ModelEvent::Reply(said) = asking.next().await? {
                return Ok(said);
            }
        }
    }

    /// The text of the reply to one prompt, of at most `max_tokens`.
    pub async fn complete(
        &self,
        system: Option<&str>,
        prompt: &str,
        max_tokens: u32,
    ) -> Result<String, ModelError> {
        let said = self.answer(&ModelRequest::prompt(system, prompt, max_tokens)).await?;
        match said.text.is_empty() {
            true => Err(ModelError::Answer(format!("it has no text in it ({})", said.stop))),
            false => Ok(said.text),
        }
    }
}

#[async_trait]
impl Sampler for Model {
    fn name(&self) -> &str {
        &self.options.name
    }

    async fn sample(&self, prompt: &str, system: Option<&str>, max_tokens: u32) -> Result<String, String> {
        self.complete(system, prompt, max_tokens).await.map_err(|error| error.to_string())
    }
}

/// The URL that requests go to.
fn endpoint_url(options: &ModelOptions, mut base: Url) -> Result<Url, ModelError> {
    let no_base = || OutboundError::Url("the URL cannot be a base".into());
    base.set_query(None);
    let last =
        base.path_segments().and_then(|mut path| path.rfind(|part| !part.is_empty()).map(str::to_owned));
    let ends_in = |part: &str| last.as_deref() == Some(part);
    {
        let mut path = base.path_segments_mut().map_err(|()| no_base())?;
        path.pop_if_empty();
        match options.provider {
            Provider::Anthropic => path.extend(["v1", "messages"]),
            // A base URL of the provider's own API, as configurations for it have it.
            Provider::Gemini if !ends_in("openai") => path.extend(["openai", "chat", "completions"]),
            Provider::Ollama if !ends_in("v1") => path.extend(["v1", "chat", "completions"]),
            Provider::OpenAi | Provider::Gemini | Provider::Ollama => path.extend(["chat", "completions"]),
        };
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_where_each_provider_wants_them() {
        let check = |provider, url: Option<&str>, expected: &str| {
            let options = ModelOptions { url: url.map(str::to_owned), ..ModelOptions::of(provider, "m-1") };
            assert_eq!(Model::new(&options).unwrap().url.as_str(), expected);
        };
        check(Provider::OpenAi, None, "https://api.openai.com/v1/chat/completions");
        check(
            Provider::OpenAi,
            Some("http://127.0.0.1:8080/v1/"),
            "http://127.0.0.1:8080/v1/chat/completions",
        );
        check(Provider::Anthropic, None, "https://api.anthropic.com/v1/messages");
        let ollama = "http://127.0.0.1:11434/v1/chat/completions";
        check(Provider::Ollama, None, ollama);
        check(Provider::Ollama, Some("http://127.0.0.1:11434/"), ollama);
        check(Provider::Ollama, Some("http://127.0.0.1:11434/v1"), ollama);
        check(Provider::Ollama, Some("http://box/ollama/v1"), "http://box/ollama/v1/chat/completions");
        check(Provider::Ollama, Some("http://box/ollama"), "http://box/ollama/v1/chat/completions");
        let gemini = "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions";
        check(Provider::Gemini, None, gemini);
        check(Provider::Gemini, Some("https://generativelanguage.googleapis.com/v1beta"), gemini);
        check(Provider::Gemini, Some("https://generativelanguage.googleapis.com/v1beta/openai/"), gemini);
    }

    #[test]
    fn a_key_is_shown_nowhere() {
        for provider in [Provider::OpenAi, Provider::Anthropic, Provider::Gemini, Provider::Ollama] {
            let options = ModelOptions { key: Some("k-secret".into()), ..ModelOptions::of(provider, "m") };
            let model = Model::new(&options).unwrap();
            let shown = format!("{options:?} {model:?} {:?} {}", model.headers, model.url);
            assert!(!shown.contains("k-secret"), "{shown}");
        }
    }

    #[test]
    fn an_unknown_provider_is_told_the_four() {
        let error = "mistral".parse::<Provider>().unwrap_err().to_string();
        assert_eq!(error, "expected openai, anthropic, gemini or ollama, not \"mistral\"");
        for name in ["openai", "anthropic", "gemini", "ollama"] {
            assert_eq!(name.parse::<Provider>().unwrap().name(), name);
        }
    }
}
