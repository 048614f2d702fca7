//! An HTTP endpoint as an agent: it receives the input as a POST request, and responds with a body or a
//! stream.
//!
//! A request is a step. So a request with a response is not repeated after a restart, and one that a crash
//! cut off is repeated under the same `Idempotency-Key`. An endpoint asks by ending its response with a
//! question, and receives the next request with the answers so far. One that streams may accept further
//! messages of the caller: each is a separate POST request, concurrent with the stream.

mod answer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nuncio_engine::{Agent, AgentError, Level, Outcome, Probe, Profile, StepContext, TaskContext};
use nuncio_outbound::{
    Backoff, HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError,
    ProxyRule,
};
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use url::{Host, Url};

use self::answer::{HttpAnswerBody, HttpTurn};
use super::{
    protocol,
    spec::{AgentSpec, HttpSpec, SpecError},
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const ATTEMPT: HeaderName = HeaderName::from_static("nuncio-attempt");
/// Limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time after which TCP keep-alive probes a connection: a stream may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The first backoff before a retry; it doubles up to the longest. `Retry-After` replaces it, up to the
/// longest as well.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Questions that an endpoint may ask in one task.
const MAX_QUESTIONS: usize = 100;
/// The media types that are understood.
const ACCEPT: &str = "application/json, application/x-ndjson, text/event-stream, text/plain, */*;q=0.1";

/// An HTTP endpoint as an agent.
pub(super) struct HttpAgent {
    profile: Profile,
    spec: HttpSpec,
    headers: HeaderMap,
    client: HttpClient,
}

/// What to do about a failed request.
enum HttpRequestFailure {
    /// Retry it, after this time if the endpoint named one.
    Passing(String, Option<Duration>),
    /// Do not retry it.
    Final(AgentError),
}

impl HttpAgent {
    pub(super) fn new(table: &AgentSpec, spec: &HttpSpec) -> Result<Self, SpecError> {
        let url = spec.url.expose();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(table.wrong("url", "expected an address with http or https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(table.wrong("url", "credentials do not belong into an address: use headers"));
        }
        if spec.max_answer_bytes == 0 {
            return Err(table.wrong("max-answer-bytes", "expected at least 1"));
        }
        let profile = table.profile(&format!("The endpoint {}.", table.name));
        let client = client(url).map_err(|error| table.wrong("url", error.to_string()))?;
        Ok(Self { profile, spec: spec.clone(), headers: headers(table, spec)?, client })
    }

    /// One request, and what the endpoint wants next.
    async fn turn(
        &self,
        cx: &TaskContext,
        step: &StepContext,
        answers: &[Value],
    ) -> Result<HttpTurn, AgentError> {
        // An idempotency key must always have the same body, so later messages are not part of it.
        let said = cx.messages_until_answer();
        let mut input = protocol::render_input(cx, said, &self.profile.name, self.spec.tell_caller);
        input.insert("answers".into(), answers.into());
        let response = self.deliver(cx, step, None, &input).await?;
        let mut body = HttpAnswerBody::new(response, self.spec.timeout, self.spec.max_answer_bytes);
        body.read_turn(step, || cx.receive_messages(), self.pass_messages(cx, step)).await
    }

    /// Forwards messages of the caller, one request each. A rejected message becomes a log line. Returns
    /// only if the task cannot continue.
    async fn pass_messages(&self, cx: &TaskContext, step: &StepContext) -> AgentError {
        let mut given = 0;
        loop {
            cx.wait_for_message(given).await;
            let message = match cx.next_message(given) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(error) => return error,
            };
            given += 1;
            let mut body = protocol::heading(cx, &self.profile.name, self.spec.tell_caller, "message");
            body.extend(protocol::caller_message(&message, given));
            if let Err(error) = self.deliver(cx, step, Some(given), &body).await {
                let line = format!("the endpoint rejected message {given} while it worked: {error}");
                if let Err(error) = step.report(Level::Warning, line).await {
                    return error;
                }
            }
        }
    }

    /// Sends a request, with retries, and returns the response if it was accepted. `message`: it delivers the message of
    /// this number to a request that is being answered.
    async fn deliver(
        &self,
        cx: &TaskContext,
        step: &StepContext,
        message: Option<u64>,
        body: &Map<String, Value>,
    ) -> Result<HttpResponse, AgentError> {
        let mut backoff = Backoff::unlimited(FIRST_BACKOFF, LONGEST_BACKOFF);
        let key = match message {
            None => step.idempotency_key(),
            Some(number) => format!("{}/message-{number}", step.idempotency_key()),
        };
        let mut attempt = 1;
        loop {
            let counted = match message {
                // In all runs: the step is repeated until its request is answered.
                None => step.begin_attempt().await,
                Some(_) => attempt,
            };
            let (why, wait) = match self.request(cx, step, &key, body, counted).await {
                Ok(response) => return Ok(response),
                Err(HttpRequestFailure::Final(error)) => return Err(error),
                Err(HttpRequestFailure::Passing(why, wait)) => (why, wait),
            };
            if attempt > self.spec.retries {
                let times = if attempt > 1 { format!(" ({attempt} requests)") } else { String::new() };
                return Err(AgentError::failed(format!("the endpoint did not take it: {why}{times}")));
            }
            let wait = backoff.take_pause(wait.map(|wait| wait.min(LONGEST_BACKOFF)));
            let again = format!("{why}; again in {wait:?} ({attempt} of {})", self.spec.retries);
            step.report(Level::Warning, again).await?;
            step.sleep(wait).await?;
            attempt += 1;
        }
    }

    /// Sends one request and returns the response if it was accepted.
    async fn request(
        &self,
        cx: &TaskContext,
        step: &StepContext,
        key: &str,
        body: &Map<String, Value>,
        attempt: u32,
    ) -> Result<HttpResponse, HttpRequestFailure> {
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|error| failed(format!("a header cannot be sent: {error}")))
        };
        let body = serde_json::to_vec(body).map_err(|error| failed(error.to_string()))?;
        let limit = self.spec.timeout;
        let request = HttpRequest::post(self.spec.url.expose().clone())
            .json(body)
            .headers(self.headers.clone())
            .header(IDEMPOTENCY_KEY, value(key)?)
            .header(TRACEPARENT, value(&cx.trace().header())?)
            // Not in the body: an endpoint may reject a different body under the same idempotency key.
            .header(ATTEMPT, attempt.into())
            .response_timeout(limit);
        let sent = tokio::select! {
            biased;
            () = step.canceled() => return Err(HttpRequestFailure::Final(AgentError::Canceled)),
            sent = self.client.send(request) => sent,
        };
        let response = match sent {
            Ok(response) => response,
            Err(OutboundError::Timeout { .. }) => {
                return Err(failed(format!("the endpoint did not answer within {limit:?} (timeout)")));
            }
            Err(error) if error.is_unsent() => {
                return Err(HttpRequestFailure::Passing(format!("no connection: {}", error.reason()), None));
            }
            Err(error) => return Err(failed(format!("the request was cut: {}", error.reason()))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let wait = response.retry_after();
        let words = answer::read_refusal_text(response, limit).await;
        let why = format!("it answered {status}{words}");
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(HttpRequestFailure::Passing(why, wait));
        }
        let hint = if status.is_redirection() {
            "; redirects are not followed: name the address itself"
        } else {
            ""
        };
        Err(failed(format!("the endpoint refused: {why}{hint}")))
    }
}

fn failed(why: String) -> HttpRequestFailure {
    HttpRequestFailure::Final(AgentError::Failed(why))
}

#[async_trait]
impl Agent for HttpAgent {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let mut answers: Vec<Value> = vec![];
        loop {
            let name = format!("request-{}", answers.len() + 1);
            // Committed together with the question or the end that it leads to.
            let turn = cx.step_unwaited(&name, async |step| self.turn(&cx, &step, &answers).await).await?;
            let (question, answer) = match turn {
                HttpTurn::Done { text: Some(text) } => return Ok(Outcome::said(text)),
                HttpTurn::Done { text: None } => return Ok(Outcome::done()),
                HttpTurn::Replied { message } => return Ok(Outcome::Replied(message)),
                HttpTurn::Failed { text } => return Ok(Outcome::Failed(text)),
                HttpTurn::Rejected { text } => return Ok(Outcome::Rejected(text)),
                HttpTurn::Ask { text, schema } => {
                    let answer = cx.ask(text.clone(), protocol::form(schema)).await?;
                    (text, answer)
                }
                HttpTurn::Sample { text, system, max_tokens } => {
                    let tokens = protocol::sample_tokens(max_tokens);
                    let answer = cx.sample(text.clone(), system, tokens).await?;
                    (text, answer)
                }
                HttpTurn::Authorize { text, url } => {
                    let answer = cx.authorize(text.clone(), url).await?;
                    (text, answer)
                }
            };
            let mut heard: Map<String, Value> = protocol::render_answer(&answer);
            heard.insert("question".into(), question.into());
            answers.push(Value::Object(heard));
            if answers.len() > MAX_QUESTIONS {
                return Err(AgentError::Misuse(format!(
                    "an endpoint asks at most {MAX_QUESTIONS} questions in one task"
                )));
            }
        }
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(HttpEndpointProbe(self.spec.url.expose().clone())))
    }
}

/// Probes the endpoint's port. Sends no request, because a request would start work.
struct HttpEndpointProbe(Url);

#[async_trait]
impl Probe for HttpEndpointProbe {
    async fn check_reachable(&self) -> Result<(), String> {
        let port = self.0.port_or_known_default().unwrap_or(80);
        let connected = match self.0.host() {
            Some(Host::Domain(name)) => TcpStream::connect((name, port)).await,
            Some(Host::Ipv4(address)) => TcpStream::connect((address, port)).await,
            Some(Host::Ipv6(address)) => TcpStream::connect((address, port)).await,
            None => return Err("the address has no host".into()),
        };
        connected.map(|_| ()).map_err(|error| format!("no connection: {error}"))
    }
}

fn client(url: &Url) -> Result<HttpClient, OutboundError> {
    HttpClient::new(HttpClientOptions {
        connect_timeout: Some(CONNECT_TIMEOUT),
        keep_alive: Some(KEEP_ALIVE),
        ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::unless_loopback(url)))
    })
}

fn headers(table: &AgentSpec, spec: &HttpSpec) -> Result<HeaderMap, SpecError> {
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(ACCEPT))]);
    for (name, value) in &spec.headers {
        let wrong = |what: &str| table.wrong("headers", format!("{name:?}: that is no {what} of a header"));
        let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::try_from(value.expose()).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}
