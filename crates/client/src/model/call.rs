//! One call of a model: the request, its streaming reply, and the retries.
//!
//! A reply that is cut is discarded, and [`ModelEvent::Retry`] voids its text. Only a complete reply is
//! returned.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};
use nuncio_engine::clock::{Clock as _, SystemClock};
use nuncio_outbound::{HttpResponse, OutboundError};
use nuncio_wire::sse::SseParser;

use super::{
    Model, ModelError, Provider, accumulator::ReplyAccumulator, anthropic, messages::ModelReply,
    metrics::MeteredCall, openai, retry,
};

/// Bytes of an error response that are read.
const MAX_REFUSAL: usize = 64 * 1024;
/// How long to wait for the end of the response after the reply has ended, so that the connection can be
/// reused.
const DRAIN: Duration = Duration::from_millis(50);

/// An event of a model call.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// More text of the reply.
    Text(String),
    /// The attempt failed and will be retried: the text so far is void.
    Retry {
        /// The error of the failed attempt.
        why: String,
        /// The wait before the retry.
        wait: Duration,
    },
    /// The whole reply. No event follows.
    Reply(ModelReply),
}

/// A call of a model.
pub struct ModelCall {
    model: Model,
    body: Bytes,
    failures: u32,
    wait: Option<Duration>,
    stream: Option<ModelStream>,
    metered: MeteredCall,
}

impl ModelCall {
    pub(super) fn new(model: Model, body: Bytes) -> Self {
        let metered = MeteredCall::new(model.metrics.clone());
        Self { model, body, failures: 0, wait: None, stream: None, metered }
    }

    /// The next event. An error is final: it is permanent, or the retries are used up.
    pub async fn next(&mut self) -> Result<ModelEvent, ModelError> {
        self.metered.begin();
        let happened = self.next_unmetered().await;
        match &happened {
            Ok(ModelEvent::Reply(reply)) => self.metered.reply(reply),
            Ok(ModelEvent::Retry { .. }) => self.model.metrics.count_retry(),
            Ok(ModelEvent::Text(_)) => {}
            Err(_) => self.metered.fail(),
        }
        happened
    }

    async fn next_unmetered(&mut self) -> Result<ModelEvent, ModelError> {
        loop {
            if let Some(wait) = self.wait {
                tokio::time::sleep(wait).await;
                self.wait = None;
            }
            let happened = match &mut self.stream {
                Some(stream) => stream.next().await.map_err(|error| (error, None)),
                None => match open(&self.model, &self.body).await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(refused) => Err(refused),
                },
            };
            match happened {
                Ok(happening) => return Ok(happening),
                Err((error, wanted)) => {
                    return self.failed(error.without_key(self.model.options.key.as_deref()), wanted);
                }
            }
        }
    }

    fn failed(&mut self, error: ModelError, wanted: Option<Duration>) -> Result<ModelEvent, ModelError> {
        self.stream = None;
        self.failures += 1;
        if !error.is_transient() || self.failures > self.model.options.retries {
            return Err(error);
        }
        let most = self.model.options.max_wait;
        let wait = match wanted {
            Some(wanted) if wanted > most => {
                return Err(ModelError::Wait { text: error.to_string(), wanted, most });
            }
            Some(wanted) => wanted,
            None => retry::backoff(self.failures, SystemClock.chance()).min(most),
        };
        self.wait = Some(wait);
        let why = error.to_string();
        tracing::debug!(at = origin(&self.model), why, ?wait, "retrying a model request");
        Ok(ModelEvent::Retry { why, wait })
    }
}

/// Sends the request. The error comes with the wait that the provider requested.
async fn open(model: &Model, body: &Bytes) -> Result<ModelStream, (ModelError, Option<Duration>)> {
    let request = model.http.open(Method::POST, &model.url, model.headers.clone(), body.clone());
    let mut response = request.await.map_err(|error| (error.into(), None))?;
    let status = response.status();
    tracing::debug!(at = origin(model), status = status.as_u16(), "received a model response");
    if !status.is_success() {
        let headers = response.headers().clone();
        let (said, _) = response.read_beginning(MAX_REFUSAL).await;
        let key = model.options.key.as_deref();
        let wanted = retry::requested_wait(&headers, &said, SystemClock.now());
        return Err((ModelError::refused(status, retry::should_retry(&headers), &said, key), wanted));
    }
    ModelStream::new(model, response).map_err(|error| (error, None))
}

fn origin(model: &Model) -> String {
    model.url.origin().ascii_serialization()
}

/// How a response is split into messages.
enum ModelFraming {
    /// Server-sent events.
    Events(SseParser),
    /// A single body.
    Whole(Vec<u8>),
}

/// A reply that streams in.
struct ModelStream {
    model: Model,
    response: HttpResponse,
    framing: ModelFraming,
    collector: ReplyAccumulator,
    bytes: usize,
    /// The response has ended.
    at_end: bool,
}

impl ModelStream {
    fn new(model: &Model, response: HttpResponse) -> Result<Self, ModelError> {
        let (provider, max) = (model.options.provider, model.options.max_answer);
        let content_type = response.header(header::CONTENT_TYPE).unwrap_or("something unnamed");
        let framing = match provider {
            _ if response.is_event_stream() => ModelFraming::Events(SseParser::new(max)),
            Provider::OpenAi | Provider::Gemini | Provider::Ollama => ModelFraming::Whole(vec![]),
            Provider::Anthropic => {
                return Err(ModelError::Answer(format!("expected a stream of events, not {content_type}")));
            }
        };
        let collector = ReplyAccumulator::default();
        Ok(Self { model: model.clone(), response, framing, collector, bytes: 0, at_end: false })
    }

    async fn next(&mut self) -> Result<ModelEvent, ModelError> {
        loop {
            if let Some(text) = self.collector.take_fresh() {
                return Ok(ModelEvent::Text(text));
            }
            if self.at_end || self.collector.has_ended() {
                if !self.at_end {
                    let _ = tokio::time::timeout(DRAIN, self.response.chunk()).await;
                }
                // Not every OpenAI-compatible server sends the end marker.
                let stop_is_end = self.model.options.provider != Provider::Anthropic;
                return std::mem::take(&mut self.collector).finish(stop_is_end).map(ModelEvent::Reply);
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.feed(&bytes)?,
                Ok(None) => {
                    self.at_end = true;
                    self.end()?;
                }
                Err(error @ OutboundError::Timeout { .. }) => return Err(error.into()),
                Err(_) => return Err(ModelError::Cut),
            }
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        self.bytes += bytes.len();
        let max = self.model.options.max_answer;
        let too_long = || ModelError::Answer(format!("it is longer than {max} bytes (max_answer)"));
        if self.bytes > max {
            return Err(too_long());
        }
        match &mut self.framing {
            ModelFraming::Whole(whole) => whole.extend_from_slice(bytes),
            ModelFraming::Events(parser) => {
                for event in parser.feed(bytes).map_err(|_| too_long())? {
                    self.read(&event.data)?;
                }
            }
        }
        Ok(())
    }

    /// The response has ended.
    fn end(&mut self) -> Result<(), ModelError> {
        match &mut self.framing {
            ModelFraming::Events(_) => Ok(()),
            ModelFraming::Whole(whole) => {
                let whole = std::mem::take(whole);
                openai::read_whole(&mut self.collector, &String::from_utf8_lossy(&whole))
            }
        }
    }

    fn read(&mut self, data: &str) -> Result<(), ModelError> {
        match self.model.options.provider {
            Provider::Anthropic => anthropic::read(&mut self.collector, data),
            Provider::OpenAi | Provider::Gemini | Provider::Ollama => openai::read(&mut self.collector, data),
        }
    }
}
