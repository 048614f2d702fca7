//! A response whose headers have arrived, and the one reader of its body.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::BodyExt as _;
use jiff::{Timestamp, fmt::rfc2822};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{OutboundError, RequestLimits, classify};

/// A response. Its body has not been read.
pub struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: reqwest::Body,
    trailers: Option<HeaderMap>,
    /// Scheme, host and port of the server.
    to: String,
    limits: RequestLimits,
    limit: Option<BodyLimit>,
}

/// How long reading the body may take.
#[derive(Clone, Copy)]
enum BodyLimit {
    /// The wait for the next piece.
    Silence(Duration),
    /// The whole, until then.
    Whole(Instant, Duration),
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl HttpResponse {
    pub(crate) fn new(response: reqwest::Response, to: String, limits: RequestLimits) -> Self {
        let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
        Self { status: parts.status, headers: parts.headers, body, trailers: None, to, limits, limit: None }
    }

    /// Limits the time without any byte of the body.
    #[must_use]
    pub fn silence_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(BodyLimit::Silence(limit));
        self
    }

    /// Limits the time until the end of the body, from now.
    #[must_use]
    pub fn body_limit(mut self, limit: Duration) -> Self {
        // A limit beyond the clock's range is none.
        self.limit = Instant::now().checked_add(limit).map(|until| BodyLimit::Whole(until, limit));
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The response headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A header as text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Whether the body is a stream of server-sent events.
    pub fn is_event_stream(&self) -> bool {
        let kind = self.header(header::CONTENT_TYPE).unwrap_or_default();
        kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    }

    /// How long to wait before a retry, if the response names a time.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(self.headers(), SystemTime::now())
    }

    /// The trailers of the body, once it has been read to its end; `None` if there are none.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The next piece of the body; `None` at its regular end. Safe to cancel.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let limit = self.limit;
        let next = self.next_piece();
        let (chunk, limit) = match limit {
            None => (Ok(next.await), Duration::MAX),
            Some(BodyLimit::Silence(limit)) => (timeout(limit, next).await, limit),
            Some(BodyLimit::Whole(until, limit)) => (timeout_at(until, next).await, limit),
        };
        let Ok(chunk) = chunk else { return Err(OutboundError::Timeout { to: self.to.clone(), limit }) };
        chunk.map_err(|error| classify(&self.to, self.limits, error))
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        while let Some(frame) = self.body.frame().await.transpose()? {
            match frame.into_data() {
                Ok(piece) => return Ok(Some(piece)),
                Err(other) => self.trailers = other.into_trailers().ok().or(self.trailers.take()),
            }
        }
        Ok(None)
    }

    /// The body as a stream of pieces. It ends after an error.
    pub fn bytes_stream(self) -> BoxStream<'static, Result<Bytes, OutboundError>> {
        let pieces = stream::unfold(Some(self), |response| async move {
            let mut response = response?;
            match response.chunk().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(response))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        pieces.boxed()
    }

    /// The whole body. A longer one is an error, and the connection is dropped.
    pub async fn read_to_end(&mut self, max: usize) -> Result<Vec<u8>, OutboundError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > max {
                return Err(OutboundError::TooLarge { to: self.to.clone(), max });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The beginning of the body, and whether that is all of it: not cut at the limit, by a timeout, or by a broken
    /// connection. The status has arrived and is valid, so a body that breaks off is a short body, not an error.
    pub async fn read_beginning(&mut self, max: usize) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= max => body.extend_from_slice(&chunk),
                Ok(Some(chunk)) => {
                    body.extend_from_slice(&chunk[..max - body.len()]);
                    return (body, false);
                }
                Ok(None) => return (body, true),
                Err(_) => return (body, false),
            }
        }
    }

    /// The error for a status that the caller does not accept, with the beginning of the body.
    pub async fn into_status_error(mut self, max: usize) -> OutboundError {
        let (status, retry_after) = (self.status(), self.retry_after());
        let (body, _) = self.read_beginning(max).await;
        let body = String::from_utf8_lossy(&body).trim().to_owned();
        OutboundError::Status { to: self.to, status, body, retry_after }
    }
}

/// `Retry-After`: seconds, or a date, which is compared with `now`. A date in the past is no wait.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // Some providers send fractions. What no duration can hold is longer than any caller waits.
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let now = Timestamp::try_from(now).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_wait_is_read_in_seconds_and_from_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let check = |text: &'static str, expected: Option<Duration>| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers, now), expected, "{text}");
        };
        check("3", Some(Duration::from_secs(3)));
        check(" 0 ", Some(Duration::ZERO));
        check("1.5", Some(Duration::from_millis(1500)));
        check("18446744073709551615", Some(Duration::from_secs(u64::MAX)));
        check("Sun, 06 Nov 1994 08:50:37 GMT", Some(Duration::from_secs(60)));
        check("Sun, 06 Nov 1994 08:49:00 GMT", Some(Duration::ZERO));
        check("inf", Some(Duration::MAX));
        check("1e300", Some(Duration::MAX));
        for no_time in ["", "-1", "soon", "NaN"] {
            check(no_time, None);
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
