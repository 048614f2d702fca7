//! Language models by provider and name: one question, one answer that streams.
//!
//! `talk.rs` has the words that all providers share, each provider has one file that converts them to its wire and
//! back, `asking.rs` makes the request, and makes it again by the rule that `retry.rs` reads out of a refusal. The
//! address is the operator's own choice, so it may be this machine. The key is in no error and in no log.

mod accumulator;
mod anthropic;
mod call;
mod error;
mod gemini;
mod messages;
mod ollama;
mod openai;
mod retry;

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use nuncio_engine::Sampler;

pub use self::{
    call::{ModelCall, ModelEvent},
    error::ModelError,
    messages::{
        ModelReply, ModelRequest, ModelTool, ModelToolCall, ModelToolResult, ModelTurn, ModelUsage,
        StopReason,
    },
};
use crate::{
    address::AddressPolicy,
    outbound::{Outbound, OutboundError, OutboundOptions, Url},
};

/// Whose API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Chat completions, which many servers speak besides OpenAI's.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// Ollama's `/api/chat`.
    Ollama,
}

/// The name of no provider.
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
    /// Its name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Where its API is, if nobody says otherwise.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// Whether nobody is answered there without a key.
    pub fn needs_key(self) -> bool {
        self != Self::Ollama
    }

    /// How it wants the key to be sent.
    fn key_header(self, key: &str) -> (&'static str, String) {
        match self {
            Self::OpenAi | Self::Ollama => ("authorization", format!("Bearer {key}")),
            Self::Anthropic => ("x-api-key", key.to_owned()),
            Self::Gemini => ("x-goog-api-key", key.to_owned()),
        }
    }
}

/// Which model, and where.
#[derive(Clone)]
pub struct ModelOptions {
    /// Whose API is spoken there.
    pub provider: Provider,
    /// The address before the API's own path, such as `http://127.0.0.1:8080/v1`; `None`: the provider's.
    pub url: Option<String>,
    /// The model's name there.
    pub name: String,
    /// What proves who asks.
    pub key: Option<String>,
    /// How long one try may take, from the connection to the end of the answer.
    pub timeout: Duration,
    /// How much of an answer is read, in bytes.
    pub max_answer: usize,
    /// How often a request is made again that failed in a way that may pass.
    pub retries: u32,
    /// The longest that a provider may ask to wait before it is asked again; where it wants more, that is the error.
    pub max_wait: Duration,
}

impl ModelOptions {
    /// A model that speaks like OpenAI's at an address, without a key.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::of(Provider::OpenAi, name) }
    }

    /// A model of a provider, where the provider is, without a key.
    pub fn of(provider: Provider, name: impl Into<String>) -> Self {
        Self {
            provider,
            url: None,
            name: name.into(),
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
}

impl fmt::Debug for Model {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Model").field(&self.options).finish()
    }
}

impl Model {
    /// The model of these options. Nobody is called yet.
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
        Ok(Self { http, url, headers, options: options.clone() })
    }

    /// Whose API it speaks.
    pub fn provider(&self) -> Provider {
        self.options.provider
    }

    /// Asks. Nothing is sent before the first [`ModelCall::next`], and dropping it drops the request.
    pub fn ask(&self, request: &ModelRequest) -> ModelCall {
        let (body, name) = (request, self.options.name.as_str());
        let body = match self.options.provider {
            // What has replaced `max_tokens` is not known to all who speak like OpenAI.
            Provider::OpenAi => openai::body(name, body, self.options.url.is_none()),
            Provider::Anthropic => anthropic::body(name, body),
            Provider::Gemini => gemini::body(body),
            Provider::Ollama => ollama::body(name, body),
        };
        ModelCall::new(self.clone(), body.to_string().into())
    }

    /// Whether somebody answers there, whatever the answer is. The key is not shown for it.
    pub async fn check_reachable(&self) -> Result<(), ModelError> {
        let mut root = self.url.clone();
        root.set_path("/");
        root.set_query(None);
        self.http.send(Method::GET, &root, HeaderMap::new(), Bytes::new()).await?;
        Ok(())
    }

    /// The whole answer, tried as often as the options say.
    pub async fn answer(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let mut asking = self.ask(request);
        loop {
            if let ModelEvent::Reply(said) = asking.next().await? {
                return Ok(said);
            }
        }
    }

    /// The text of an answer to one question, of at most `max_tokens`.
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
    async fn sample(&self, prompt: &str, system: Option<&str>, max_tokens: u32) -> Result<String, String> {
        self.complete(system, prompt, max_tokens).await.map_err(|error| error.to_string())
    }
}

/// Where the requests go.
fn endpoint_url(options: &ModelOptions, mut base: Url) -> Result<Url, ModelError> {
    let no_base = || OutboundError::Url("the URL cannot be a base".into());
    base.set_query(None);
    {
        let mut path = base.path_segments_mut().map_err(|()| no_base())?;
        path.pop_if_empty();
        match options.provider {
            Provider::OpenAi => path.extend(["chat", "completions"]),
            Provider::Anthropic => path.extend(["v1", "messages"]),
            Provider::Gemini => {
                let name = options.name.strip_prefix("models/").unwrap_or(&options.name);
                path.extend(["models", &format!("{name}:streamGenerateContent")])
            }
            Provider::Ollama => path.extend(["api", "chat"]),
        };
    }
    if options.provider == Provider::Gemini {
        base.set_query(Some("alt=sse"));
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
        check(Provider::Ollama, None, "http://127.0.0.1:11434/api/chat");
        check(
            Provider::Gemini,
            None,
            "https://generativelanguage.googleapis.com/v1beta/models/m-1:streamGenerateContent?alt=sse",
        );
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
