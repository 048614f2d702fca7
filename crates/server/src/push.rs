//! The webhook sender over HTTP: builds the payload in the dialect in which the webhook was registered, and the
//! headers that authenticate it to the receiver. The engine's outbox decides when and in which order to
//! deliver; `nuncio-outbound` decides which addresses are allowed.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use nuncio_engine::{
    access::tenant_of,
    clock::{Clock, Timestamp},
    outbox::{DeliveryResult, WebhookDelivery, WebhookSender},
    trace::{Span, SpanKind, Trace, Tracer},
    webhook::WebhookConfig,
};
use nuncio_outbound::{Outbound, OutboundError, OutboundResponse, Url};
use nuncio_wire::a2a::Dialect;

use crate::{signature::SigningSecret, webhook_keys::WebhookKeys};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Both header names are in use: the specification's text has one, its SDKs the other.
const TOKENS: [HeaderName; 2] =
    [HeaderName::from_static("x-a2a-notification-token"), HeaderName::from_static("a2a-notification-token")];

/// The longest token or credentials that are stored, in bytes; receivers refuse larger headers anyway.
const MAX_SECRET: usize = 4096;

/// Sends webhook deliveries over HTTP.
pub struct HttpWebhookSender {
    outbound: Outbound,
    keys: Arc<WebhookKeys>,
    https_only: bool,
    clock: Arc<dyn Clock>,
    tracer: Option<Arc<dyn Tracer>>,
}

/// Why a webhook cannot be registered, or cannot be delivered to as configured. The text is for the caller that
/// registered it, and quotes no secret.
#[derive(Debug, thiserror::Error)]
pub enum WebhookConfigError {
    /// The address is invalid or not allowed.
    #[error("the webhook's url cannot be used: {0}")]
    Url(#[from] OutboundError),
    /// The address is plain HTTP, and the operator requires TLS.
    #[error("the webhook's url must begin with https:// here (webhooks.https-only)")]
    NotHttps,
    /// The signing key could not be read. A retry may succeed.
    #[error("the webhook signing key cannot be read now: {0}")]
    Key(String),
    /// A value that is sent in a header has illegal characters or is too long.
    #[error("the webhook's {0} must be printable ASCII characters, at most {MAX_SECRET} of them")]
    Header(&'static str),
    /// The name of the authentication scheme is not legal in a header.
    #[error("the webhook's authentication scheme must be the name of an HTTP scheme, e.g. Bearer")]
    Scheme,
    /// There are credentials without an authentication scheme.
    #[error("the webhook has credentials but names no authentication scheme, e.g. Bearer")]
    NoScheme,
    /// The webhook was registered in a dialect that this version does not support.
    #[error("the webhook is of the protocol {0:?}, which this server does not speak")]
    Dialect(String),
}

impl HttpWebhookSender {
    /// A sender that signs with `secret` for every tenant.
    pub fn new(outbound: Outbound, secret: SigningSecret, clock: Arc<dyn Clock>) -> Self {
        Self::with_keys(outbound, WebhookKeys::new(secret), clock)
    }

    /// A sender that signs with the key of each tenant.
    pub fn with_keys(outbound: Outbound, keys: Arc<WebhookKeys>, clock: Arc<dyn Clock>) -> Self {
        Self { outbound, keys, https_only: false, clock, tracer: None }
    }

    /// Delivers over TLS only, so that no host on the way can read the payload.
    #[must_use]
    pub fn https_only(mut self, only: bool) -> Self {
        self.https_only = only;
        self
    }

    /// Reports every attempt to that tracer.
    #[must_use]
    pub fn traced(mut self, tracer: Option<Arc<dyn Tracer>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Checks whether this webhook can be delivered to, as far as that is known without an attempt.
    pub fn check_config(&self, config: &WebhookConfig) -> Result<(), WebhookConfigError> {
        dialect(config)?;
        self.check_url(&config.url)?;
        header_value("id", &config.id)?;
        known_by(config)?;
        Ok(())
    }

    fn check_url(&self, url: &str) -> Result<Url, WebhookConfigError> {
        let url = self.outbound.check_url(url)?;
        match self.https_only && url.scheme() != "https" {
            true => Err(WebhookConfigError::NotHttps),
            false => Ok(url),
        }
    }

    async fn headers(
        &self,
        delivery: &WebhookDelivery<'_>,
        media_type: &'static str,
        body: &[u8],
    ) -> Result<HeaderMap, WebhookConfigError> {
        // Each attempt has its own timestamp: receivers refuse one that is older than some minutes.
        let timestamp = self.clock.now().0.div_euclid(1000);
        let tenant = tenant_of(&delivery.task.origin.owner);
        let signed = self.keys.sign(tenant, delivery.delivery_id, timestamp, body).await;
        let signature = signed.map_err(|error| WebhookConfigError::Key(error.to_string()))?;
        let mut headers = known_by(delivery.webhook)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(WEBHOOK_ID, header_value("id", delivery.delivery_id)?);
        headers.insert(WEBHOOK_TIMESTAMP, timestamp.into());
        headers.insert(WEBHOOK_SIGNATURE, header_value("signature", &signature)?);
        let trace = Trace::of(&delivery.task.origin);
        let traceparent = trace.header_under(trace.part(&attempt_name(delivery)));
        headers.insert(TRACEPARENT, header_value("traceparent", &traceparent)?);
        Ok(headers)
    }

    /// Traces an attempt. An event that the webhook's protocol cannot express was not sent, so it is not
    /// traced.
    fn trace(
        &self,
        delivery: &WebhookDelivery<'_>,
        began: Timestamp,
        posted: &Result<Option<OutboundResponse>, WebhookConfigError>,
    ) {
        let (Some(tracer), trace) = (&self.tracer, Trace::of(&delivery.task.origin)) else { return };
        let error = match posted {
            Ok(None) => return,
            Ok(Some(answer)) if answer.status.is_success() => None,
            Ok(Some(answer)) => Some(format!("HTTP {}", answer.status.as_u16())),
            Err(error) => Some(error.to_string()),
        };
        if !trace.sampled {
            return;
        }
        tracer.record_span(Span {
            trace: trace.id,
            id: trace.part(&attempt_name(delivery)),
            parent: Some(trace.span),
            name: "webhook".into(),
            kind: SpanKind::Client,
            start: began,
            end: self.clock.now(),
            error,
            attributes: vec![
                ("nuncio.task", delivery.task.origin.id.to_string()),
                ("nuncio.delivery", delivery.delivery_id.to_owned()),
                ("nuncio.attempt", delivery.attempt.to_string()),
            ],
        });
    }

    async fn post(
        &self,
        delivery: &WebhookDelivery<'_>,
    ) -> Result<Option<OutboundResponse>, WebhookConfigError> {
        let mut body = Vec::new();
        let dialect = dialect(delivery.webhook)?;
        let Some(media_type) = dialect.push_body(&mut body, delivery.task, delivery.seq, delivery.entry)
        else {
            return Ok(None);
        };
        let url = self.check_url(&delivery.webhook.url)?;
        let headers = self.headers(delivery, media_type, &body).await?;
        Ok(Some(self.outbound.send(Method::POST, &url, headers, body.into()).await?))
    }
}

#[async_trait]
impl WebhookSender for HttpWebhookSender {
    async fn deliver(&self, delivery: &WebhookDelivery<'_>) -> DeliveryResult {
        let began = self.clock.now();
        let posted = self.post(delivery).await;
        self.trace(delivery, began, &posted);
        match posted {
            Ok(Some(answer)) => judge(&answer, self.clock.now()),
            Ok(None) => DeliveryResult::NothingToSend,
            Err(WebhookConfigError::Key(reason)) => DeliveryResult::Retry { after: None, reason },
            // For example a name that did not resolve, or a refused connection: a retry may succeed.
            Err(WebhookConfigError::Url(error)) if !error.is_permanent() => {
                DeliveryResult::Retry { after: None, reason: error.to_string() }
            }
            Err(error) => DeliveryResult::Dead { reason: error.to_string() },
        }
    }
}

/// The id of one attempt in traces.
fn attempt_name(delivery: &WebhookDelivery<'_>) -> String {
    format!("webhook {} {}", delivery.delivery_id, delivery.attempt)
}

/// How the reason of a refused delivery begins.
const ANSWERED: &str = "the receiver answered ";

/// Maps a response to a result. Its body is not quoted: a receiver may echo what it was sent, secrets included.
fn judge(answer: &OutboundResponse, now: Timestamp) -> DeliveryResult {
    let status = answer.status;
    if status.is_success() {
        return DeliveryResult::Delivered;
    }
    if status == StatusCode::GONE {
        return DeliveryResult::Dead { reason: format!("{ANSWERED}410 Gone") };
    }
    let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
    let reason = format!("{ANSWERED}{status}{note}");
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now.0.try_into().unwrap_or_default());
    DeliveryResult::Retry { after: nuncio_outbound::retry_after(&answer.headers, now), reason }
}

/// What of a stored reason callers of every tenant may read: what the receiver itself answered. How an address was
/// reached, and whether, is for the operator: by webhooks and their errors a caller could otherwise probe the network.
pub(crate) fn public_reason(reason: &str) -> &str {
    let answered = reason.find(ANSWERED).map(|at| &reason[at..]);
    answered.unwrap_or("the receiver did not answer; the operator's log says more")
}

fn dialect(config: &WebhookConfig) -> Result<Dialect, WebhookConfigError> {
    Dialect::from_name(&config.dialect).ok_or_else(|| WebhookConfigError::Dialect(config.dialect.clone()))
}

/// The headers that authenticate the delivery to its receiver: the token and the credentials.
fn known_by(config: &WebhookConfig) -> Result<HeaderMap, WebhookConfigError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = &config.token {
        for name in TOKENS {
            headers.insert(name, secret_value("token", token)?);
        }
    }
    let Some(authentication) = &config.authentication else { return Ok(headers) };
    if authentication.schemes.iter().any(|scheme| !is_token(scheme)) {
        return Err(WebhookConfigError::Scheme);
    }
    if let Some(credentials) = &authentication.credentials {
        let scheme = authentication.schemes.first().ok_or(WebhookConfigError::NoScheme)?;
        let value = secret_value("credentials", &format!("{scheme} {credentials}"))?;
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

fn secret_value(what: &'static str, text: &str) -> Result<HeaderValue, WebhookConfigError> {
    let mut value = header_value(what, text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Accepts printable ASCII only, which all receivers read alike.
fn header_value(what: &'static str, text: &str) -> Result<HeaderValue, WebhookConfigError> {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !printable || text.len() > MAX_SECRET || text.trim() != text {
        return Err(WebhookConfigError::Header(what));
    }
    HeaderValue::from_str(text).map_err(|_| WebhookConfigError::Header(what))
}

/// A `token` of RFC 9110.
fn is_token(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{clock::SystemClock, webhook::Authentication};
    use nuncio_outbound::OutboundOptions;

    use super::*;

    fn config() -> WebhookConfig {
        WebhookConfig {
            id: "hook".into(),
            url: "https://example.com/hook".into(),
            token: Some("t0ken".into()),
            authentication: Some(Authentication {
                schemes: vec!["Bearer".into(), "Basic".into()],
                credentials: Some("s3cret".into()),
            }),
            dialect: "a2a/0.3".into(),
        }
    }

    fn check(change: impl FnOnce(&mut WebhookConfig)) -> Result<(), String> {
        let outbound = Outbound::new(OutboundOptions::default()).unwrap();
        let secret = SigningSecret::from_random([1; 32]);
        let sender = HttpWebhookSender::new(outbound, secret, Arc::new(SystemClock));
        let mut config = config();
        change(&mut config);
        sender.check_config(&config).map_err(|error| error.to_string())
    }

    fn authenticate(schemes: &[&str], credentials: Option<&str>) -> Result<(), String> {
        let schemes = schemes.iter().map(ToString::to_string).collect();
        let credentials = credentials.map(ToOwned::to_owned);
        check(|config| config.authentication = Some(Authentication { schemes, credentials }))
    }

    #[test]
    fn a_config_that_could_not_be_delivered_to_is_refused_with_the_reason() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|config| (config.token, config.authentication) = (None, None)), Ok(()));
        let cases = [
            (check(|config| config.url = "http://169.254.169.254/".into()), "metadata"),
            (check(|config| config.url = "http://localhost/".into()), "--allow-private-webhooks"),
            (check(|config| config.url = "not a url".into()), "not a URL"),
            (check(|config| config.id = "a\u{e9}".into()), "webhook's id"),
            (check(|config| config.token = Some("a\r\nx: y".into())), "webhook's token"),
            (check(|config| config.token = Some("\u{2713}".into())), "webhook's token"),
            (check(|config| config.token = Some("x".repeat(5000))), "webhook's token"),
            (authenticate(&["Bearer"], Some("a\nb")), "webhook's credentials"),
            (authenticate(&["Bearer\r\nx:"], Some("a")), "scheme"),
            (authenticate(&["Be arer"], Some("a")), "scheme"),
            (authenticate(&[""], Some("a")), "scheme"),
            (authenticate(&[], Some("a")), "names no authentication scheme"),
            (check(|config| config.dialect = "a2a/9".into()), "a2a/9"),
        ];
        for (got, expected) in cases {
            let error = got.unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret") && !error.contains("t0ken"), "{error}");
        }
        assert_eq!(authenticate(&[], None), Ok(()));
    }

    #[test]
    fn secrets_are_marked_as_such() {
        let headers = known_by(&config()).unwrap();
        assert_eq!(headers[header::AUTHORIZATION], "Bearer s3cret");
        let shown = format!("{headers:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
    }

    #[test]
    fn a_reason_for_every_tenant_says_what_the_receiver_answered_and_nothing_of_the_network() {
        let given_up = "given up after 36 attempts: the receiver answered 500 Internal Server Error";
        assert_eq!(public_reason(given_up), "the receiver answered 500 Internal Server Error");
        for reason in ["10.0.0.5 refused the connection", "no answer within 20 s", ""] {
            let shown = public_reason(reason);
            assert!(shown.starts_with("the receiver did not answer") && !shown.contains("10.0"), "{shown}");
        }
    }

    #[test]
    fn answers_and_what_they_mean() {
        let now = Timestamp(784_111_777_000);
        let judged = |status: u16, retry_after: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(retry_after.map(|text| (header::RETRY_AFTER, HeaderValue::from_static(text))));
            let status = StatusCode::from_u16(status).unwrap();
            judge(&OutboundResponse { status, headers, body: "s3cret".into(), complete: true }, now)
        };
        for status in [200, 201, 202, 204] {
            assert_eq!(judged(status, None), DeliveryResult::Delivered);
        }
        assert!(matches!(judged(410, None), DeliveryResult::Dead { .. }));
        for status in [100, 301, 307, 400, 401, 403, 404, 429, 500, 503] {
            assert!(matches!(judged(status, None), DeliveryResult::Retry { after: None, .. }), "{status}");
        }
        let cases = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-5", None),
        ];
        for (text, expected) in cases {
            let DeliveryResult::Retry { after, .. } = judged(503, Some(text)) else { panic!("{text}") };
            assert_eq!(after, expected.map(Duration::from_secs), "{text}");
        }
    }
}
