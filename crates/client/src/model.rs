//! A small client of a language model: one question, one text, over the chat completions that most providers and
//! local servers speak. The address is the operator's own choice, so it may be this machine.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use serde_json::json;

use crate::{
    address::AddressPolicy,
    outbound::{Outbound, OutboundError, OutboundOptions, Url},
};

/// How much of an error's body is repeated.
const MAX_QUOTED: usize = 300;

/// Which model, and where.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// The address before `/chat/completions`, such as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// The model's name there.
    pub name: String,
    /// What is sent as a bearer token.
    pub key: Option<String>,
    /// How long one answer may take.
    pub timeout: Duration,
    /// How much of an answer is read, in bytes.
    pub max_answer: usize,
}

impl ModelOptions {
    /// A model at an address, without a key.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: name.into(),
            key: None,
            timeout: Duration::from_secs(300),
            max_answer: 4 * 1024 * 1024,
        }
    }
}

/// A language model.
#[derive(Debug, Clone)]
pub struct Model {
    http: Outbound,
    url: Url,
    name: String,
    headers: HeaderMap,
}

/// Why there is no text. None of these shows the key.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It could not be reached.
    #[error("the model could not be asked: {0}")]
    Outbound(#[from] OutboundError),
    /// The key cannot be sent.
    #[error("the model's key has characters that no header takes")]
    Key,
    /// It answered with an error.
    #[error("the model answered {status}: {text}")]
    Status {
        /// Its status.
        status: StatusCode,
        /// The beginning of what it said.
        text: String,
    },
    /// It answered with something else than a text.
    #[error("the model's answer cannot be used: {0}")]
    Answer(String),
}

impl ModelError {
    /// Whether another try may end better.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Outbound(error) => !error.is_permanent(),
            Self::Status { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Key | Self::Answer(_) => false,
        }
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
}

impl Model {
    /// The model of these options.
    pub fn new(options: &ModelOptions) -> Result<Self, ModelError> {
        let http = Outbound::new(OutboundOptions {
            policy: AddressPolicy { allow_private: true },
            timeout: options.timeout,
            max_answer: options.max_answer,
            ..OutboundOptions::default()
        })?;
        let url = http.check_url(&format!("{}/chat/completions", options.url.trim_end_matches('/')))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &options.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| ModelError::Key)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Self { http, url, name: options.name.clone(), headers })
    }

    /// Asks for a text of at most `max_tokens`.
    pub async fn complete(
        &self,
        system: Option<&str>,
        prompt: &str,
        max_tokens: u32,
    ) -> Result<String, ModelError> {
        let mut messages = vec![];
        messages.extend(system.map(|text| json!({ "role": "system", "content": text })));
        messages.push(json!({ "role": "user", "content": prompt }));
        let body = json!({ "model": self.name, "messages": messages, "max_tokens": max_tokens }).to_string();
        let answer = self.http.send(Method::POST, &self.url, self.headers.clone(), body.into()).await?;
        if !answer.status.is_success() {
            let text = String::from_utf8_lossy(&answer.body).chars().take(MAX_QUOTED).collect();
            return Err(ModelError::Status { status: answer.status, text });
        }
        if !answer.complete {
            return Err(ModelError::Answer("it broke off, or is longer than may be read".into()));
        }
        let completion: Completion = serde_json::from_slice(&answer.body)
            .map_err(|error| ModelError::Answer(format!("not a chat completion: {error}")))?;
        let said = completion.choices.into_iter().next().and_then(|choice| choice.message.content);
        said.ok_or_else(|| ModelError::Answer("it has no text in it".into()))
    }
}
