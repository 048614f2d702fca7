//! A trace exporter: OTLP over HTTP, as JSON (`POST {endpoint}/v1/traces`).
//!
//! Spans wait in a bounded queue and are sent in batches. A slow or unreachable collector costs spans, which
//! are counted, and never delays a task.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    metric,
    trace::{Span, SpanKind, Tracer},
};
use nuncio_outbound::{Backoff, HttpClient, HttpClientOptions, HttpDestination, HttpRequest, ProxyRule};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// The capacity of the queue, in spans.
const QUEUE: usize = 8 * 1024;
/// The most spans in one request.
const TOGETHER: usize = 512;
/// Attempts for one request, when the collector is unreachable or overloaded.
const TRIES: u32 = 3;

/// Where traces are exported to.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// The collector's URL, without `/v1/traces`. `None`: traces are not exported.
    pub endpoint: Option<String>,
    /// Further headers, for collectors that require authentication.
    pub headers: Vec<(String, String)>,
    /// This server's `service.name` in traces.
    pub service_name: String,
    /// How long spans wait for others, to be sent in one batch.
    pub interval: Duration,
    /// How long one request may take.
    pub timeout: Duration,
}

impl Default for OtlpOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: vec![],
            service_name: "nuncio".into(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The tracer that the engine records spans with.
struct SpanQueue(mpsc::Sender<Span>);

impl Tracer for SpanQueue {
    fn record_span(&self, span: Span) {
        if self.0.try_send(span).is_err() {
            metric::TRACE_SPANS.counter(&["dropped"]).increment(1);
        }
    }
}

/// The background task that sends spans. When dropped, it sends what is queued, in the background.
pub(crate) struct SpanExporter {
    stop: Option<oneshot::Sender<()>>,
    sending: JoinHandle<()>,
}

/// The engine's end and the server's end of the exporter.
type TracerAndExporter = (Arc<dyn Tracer>, SpanExporter);

/// Starts the exporter, if an endpoint is set.
pub(crate) fn start(options: &OtlpOptions) -> Result<Option<TracerAndExporter>, String> {
    let Some(endpoint) = &options.endpoint else { return Ok(None) };
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let url = url::Url::parse(&url).map_err(|error| format!("otlp.endpoint: {endpoint:?}: {error}"))?;
    let mut headers = http::HeaderMap::new();
    for (name, value) in &options.headers {
        let name =
            http::HeaderName::try_from(name).map_err(|_| format!("otlp.headers: {name:?} is no header"))?;
        let mut value = http::HeaderValue::try_from(value)
            .map_err(|_| format!("otlp.headers: the value of {name} cannot be sent in a header"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let client = HttpClient::new(HttpClientOptions {
        timeout: Some(options.timeout),
        ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Environment))
    });
    let client = client.map_err(|error| format!("traces cannot be sent: {error}"))?;
    let (spans, waiting) = mpsc::channel(QUEUE);
    let (stop, stopped) = oneshot::channel();
    let sender = SpanSender {
        client,
        url,
        headers,
        service: options.service_name.clone(),
        interval: options.interval,
    };
    let sending = tokio::spawn(sender.run(waiting, stopped));
    Ok(Some((Arc::new(SpanQueue(spans)), SpanExporter { stop: Some(stop), sending })))
}

impl SpanExporter {
    /// Sends what is queued, and ends.
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.sending).await;
    }
}

struct SpanSender {
    client: HttpClient,
    url: url::Url,
    /// Further headers of every request.
    headers: http::HeaderMap,
    service: String,
    interval: Duration,
}

impl SpanSender {
    async fn run(self, mut waiting: mpsc::Receiver<Span>, mut stopped: oneshot::Receiver<()>) {
        let mut stopping = false;
        while !stopping {
            let first = tokio::select! {
                first = waiting.recv() => first,
                _ = &mut stopped => { stopping = true; waiting.try_recv().ok() }
            };
            let Some(first) = first else { return };
            let mut spans = vec![first];
            let until = Instant::now() + self.interval;
            while spans.len() < TOGETHER && !stopping {
                tokio::select! {
                    more = timeout_at(until, waiting.recv()) => match more {
                        Ok(Some(span)) => spans.push(span),
                        Ok(None) | Err(_) => break,
                    },
                    _ = &mut stopped => stopping = true,
                }
            }
            self.send(&spans).await;
        }
        let mut rest = vec![];
        while let Ok(span) = waiting.try_recv() {
            rest.push(span);
        }
        for spans in rest.chunks(TOGETHER) {
            self.send(spans).await;
        }
    }

    async fn send(&self, spans: &[Span]) {
        let body = request(&self.service, spans).to_string();
        let mut why = String::new();
        let mut backoff = Backoff::unlimited(self.interval, self.interval * TRIES);
        for attempt in 1..=TRIES {
            let request =
                HttpRequest::post(self.url.clone()).headers(self.headers.clone()).json(body.clone());
            let passing = match self.client.send(request).await {
                Ok(answer) if answer.status().is_success() => {
                    count("sent", spans);
                    return;
                }
                Ok(answer) => {
                    why = format!("HTTP {}", answer.status().as_u16());
                    matches!(answer.status().as_u16(), 429 | 502..=504)
                }
                Err(error) => {
                    why = error.reason();
                    true
                }
            };
            if !passing {
                break;
            }
            if attempt < TRIES {
                tokio::time::sleep(backoff.take_pause(None)).await;
            }
        }
        count("dropped", spans);
        tracing::warn!(spans = spans.len(), why, "traces could not be sent to {}", self.url);
    }
}

fn count(outcome: &'static str, spans: &[Span]) {
    metric::TRACE_SPANS.counter(&[outcome]).increment(spans.len() as u64);
}

/// `ExportTraceServiceRequest`, as JSON.
fn request(service: &str, spans: &[Span]) -> Value {
    let resource = attributes([("service.name", service), ("service.version", env!("CARGO_PKG_VERSION"))]);
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "nuncio", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans.iter().map(written).collect::<Vec<_>>(),
        }],
    }] })
}

fn written(span: &Span) -> Value {
    // OTLP's JSON has hexadecimal ids, and times as strings.
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let mut out = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(span.attributes.iter().map(|(name, value)| (*name, value.as_str()))),
        "status": match &span.error {
            Some(why) => json!({ "code": 2, "message": why }),
            None => json!({}),
        },
    });
    if let Some(parent) = span.parent {
        out["parentSpanId"] = hex(&parent).into();
    }
    out
}

fn attributes<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    all.into_iter().map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect()
}

fn nanos(at: nuncio_engine::clock::Timestamp) -> String {
    (i128::from(at.0) * 1_000_000).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use nuncio_engine::clock::Timestamp;

    use super::*;

    #[test]
    fn spans_look_as_otlp_has_them() {
        let span = Span {
            trace: [0xab; 16],
            id: [1; 8],
            parent: Some([2; 8]),
            name: "task echo".into(),
            kind: SpanKind::Server,
            start: Timestamp(1_000),
            end: Timestamp(1_500),
            error: Some("no".into()),
            attributes: vec![("nuncio.agent", "echo".into())],
        };
        let request = request("here", &[span]);
        assert_eq!(
            request["resourceSpans"][0]["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "abababababababababababababababab",
                "spanId": "0101010101010101",
                "parentSpanId": "0202020202020202",
                "name": "task echo",
                "kind": 2,
                "startTimeUnixNano": "1000000000",
                "endTimeUnixNano": "1500000000",
                "attributes": [{ "key": "nuncio.agent", "value": { "stringValue": "echo" } }],
                "status": { "code": 2, "message": "no" },
            })
        );
        let service = &request["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(service["value"]["stringValue"], "here");
    }
}
