//! The wait before a retry: as the provider requests, otherwise exponential backoff.
//!
//! A provider requests a wait by `retry-after-ms`, `Retry-After`, Google's `RetryInfo` in the body, or the
//! reset headers of exhausted rate limits. Time and randomness are parameters, so that tests control them.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use nuncio_engine::clock::Timestamp;
use serde_json::Value;

/// The first backoff; each one doubles the one before.
const FIRST: Duration = Duration::from_millis(500);
/// The longest backoff.
const LONGEST: Duration = Duration::from_secs(30);

/// The backoff after that many failures in a row, with a jitter of up to a quarter either way, so that
/// clients that failed together do not retry together.
pub(super) fn backoff(failures: u32, chance: f64) -> Duration {
    let wait = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST);
    wait.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
}

/// Whether the provider's headers ask for a retry, or against one, whatever the status is.
pub(super) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match text(headers, "x-should-retry")? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The wait that the provider requests.
pub(super) fn requested_wait(headers: &HeaderMap, body: &[u8], now: Timestamp) -> Option<Duration> {
    retry_after(headers, now).or_else(|| retry_info(body)).or_else(|| reset(headers, now))
}

fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let millis = text(headers, "retry-after-ms").and_then(|text| text.parse().ok());
    if let Some(wait) = millis.and_then(|millis: f64| seconds(millis / 1000.0)) {
        return Some(wait);
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now.0.try_into().unwrap_or_default());
    nuncio_outbound::retry_after(headers, now)
}

/// `{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "31s"}` among the details.
fn retry_info(body: &[u8]) -> Option<Duration> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = if body.is_array() { &body[0]["error"] } else { &body["error"] };
    let details = error["details"].as_array()?;
    let info = details
        .iter()
        .find(|detail| detail["@type"].as_str().is_some_and(|kind| kind.ends_with("google.rpc.RetryInfo")))?;
    seconds(info["retryDelay"].as_str()?.strip_suffix('s')?.parse().ok()?)
}

/// The time until the last of the exhausted rate limits resets.
fn reset(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let limits = ["requests", "tokens", "input-tokens", "output-tokens"];
    let used_up = |name: String| text(headers, &name) == Some("0");
    let openai = limits.iter().filter(|limit| used_up(format!("x-ratelimit-remaining-{limit}")));
    let openai = openai.filter_map(|limit| spelled(text(headers, &format!("x-ratelimit-reset-{limit}"))?));
    let anthropic = limits.iter().filter(|limit| used_up(format!("anthropic-ratelimit-{limit}-remaining")));
    let anthropic = anthropic.filter_map(|limit| {
        let text = text(headers, &format!("anthropic-ratelimit-{limit}-reset"))?;
        Some(Timestamp(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).since(now))
    });
    openai.chain(anthropic).max()
}

/// `6m0s`, `1.5s`, `20ms`, `1h2m3s`, or bare seconds.
fn spelled(text: &str) -> Option<Duration> {
    if let Ok(count) = text.parse() {
        return seconds(count);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let count: f64 = rest[..unit_at].parse().ok()?;
        let unit_end = rest[unit_at..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |length| unit_at + length);
        total += count
            * match &rest[unit_at..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    seconds(total)
}

fn seconds(count: f64) -> Option<Duration> {
    if count.is_nan() || count < 0.0 {
        return None;
    }
    Some(Duration::try_from_secs_f64(count).unwrap_or(Duration::MAX))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(named: &[(&'static str, &'static str)], body: &str) -> Option<Duration> {
        let headers: HeaderMap = named
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        // 2026-01-01T00:00:00Z
        requested_wait(&headers, body.as_bytes(), Timestamp(1_767_225_600_000))
    }

    #[test]
    fn a_provider_is_taken_at_its_word() {
        let check = |named: &[(&'static str, &'static str)], body: &str, expected: Option<u64>| {
            assert_eq!(of(named, body), expected.map(Duration::from_millis), "{named:?} {body}");
        };
        check(&[], "", None);
        check(&[("retry-after", "7")], "", Some(7_000));
        check(&[("retry-after", "0.5")], "", Some(500));
        check(&[("retry-after", "7"), ("retry-after-ms", "250")], "", Some(250));
        check(&[("retry-after", "Thu, 01 Jan 2026 00:00:09 GMT")], "", Some(9_000));
        check(&[("retry-after", "Wed, 31 Dec 2025 00:00:09 GMT")], "", Some(0));
        check(&[("retry-after", "soon")], "", None);
        check(&[("retry-after", "-1")], "", None);
        assert_eq!(of(&[("retry-after", "inf")], ""), Some(Duration::MAX), "longer than anybody waits");
    }

    #[test]
    fn google_says_it_in_the_body() {
        let body = r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.Help"},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.25s"}]}}"#;
        assert_eq!(of(&[], body), Some(Duration::from_millis(1250)));
        assert_eq!(of(&[], &format!("[{body}]")), Some(Duration::from_millis(1250)));
        assert_eq!(of(&[("retry-after", "2")], body), Some(Duration::from_secs(2)));
        assert_eq!(of(&[], "not JSON"), None);
    }

    #[test]
    fn limits_that_are_used_up_say_when_they_are_lifted() {
        let both = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "20ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "1m1.5s"),
        ];
        assert_eq!(of(&both, ""), Some(Duration::from_millis(61_500)));
        let one = [("x-ratelimit-remaining-tokens", "12"), ("x-ratelimit-reset-tokens", "6m0s")];
        assert_eq!(of(&one, ""), None, "there is some left");
        let anthropic = [
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z"),
        ];
        assert_eq!(of(&anthropic, ""), Some(Duration::from_secs(30)));
    }

    #[test]
    fn waits_that_nobody_asked_for_grow_and_are_spread() {
        assert_eq!(backoff(1, 0.5), FIRST);
        assert_eq!(backoff(3, 0.5), FIRST * 4);
        assert_eq!(backoff(1, 0.0), FIRST.mul_f64(0.75));
        assert_eq!(backoff(1, 1.0), FIRST.mul_f64(1.25));
        assert_eq!(backoff(1000, 0.5), LONGEST);
    }
}
