//! `nuncio listen`: a webhook receiver that verifies deliveries and prints them.
//!
//! A delivery is printed if its signature and token are valid. Others get a 401, and a note on the standard
//! error. A duplicate (a retry whose response was lost) is printed once.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use clap::Args;
use nuncio_server::signature::SigningSecret;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

use super::{
    error::CliError,
    output::{self, Format, note},
    text::TextOutput,
};
use crate::duration;

/// The maximum age of a delivery: an attacker who captured an older one may be replaying it.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// The largest delivery, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// How many delivery ids are remembered, to drop duplicates.
const REMEMBERED: usize = 10_000;
/// Deliveries that wait to be printed; beyond that senders wait (backpressure).
const WAITING: usize = 64;

#[derive(Args)]
pub(crate) struct Flags {
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// The token that deliveries must carry, as given to `nuncio send --webhook-token`
    #[arg(long, env = "NUNCIO_WEBHOOK_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// The file with the secret (whsec_…) that deliveries are signed with
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Exit after this many deliveries
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    /// Exit after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// The output format: with json, one object per line
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
}

/// Verifies deliveries.
struct DeliveryVerifier {
    token: Option<String>,
    secret: Option<SigningSecret>,
    seen: Mutex<VecDeque<String>>,
    out: mpsc::Sender<(String, Value)>,
}

impl Flags {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let secret = match &self.secret_file {
            Some(path) => {
                let wrong = |why: String| CliError::Usage(format!("--secret-file {}: {why}", path.display()));
                let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                Some(SigningSecret::parse(&text).map_err(|error| wrong(error.to_string()))?)
            }
            None => None,
        };
        if secret.is_none() && self.token.is_none() {
            return Err(CliError::Usage(
                "anyone could send what is printed here: --token or --secret-file verifies deliveries".into(),
            ));
        }
        let listener = TcpListener::bind(self.listen).await.map_err(CliError::Runtime)?;
        let address = listener.local_addr().map_err(CliError::Runtime)?;
        note(&format!("listening at http://{address}/"));
        let (out, mut deliveries) = mpsc::channel(WAITING);
        let verifier = Arc::new(DeliveryVerifier { token: self.token, secret, seen: Mutex::default(), out });
        let router = Router::new()
            .route("/", post(take))
            .route("/{*path}", post(take))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(verifier);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let print = async {
            let mut left = self.count.unwrap_or(usize::MAX);
            while left > 0 {
                let Some((id, body)) = deliveries.recv().await else { break };
                show(self.format, &id, &body)?;
                left -= 1;
            }
            Ok(())
        };
        let limit = self.timeout.unwrap_or(Duration::MAX);
        let done = tokio::select! {
            printed = tokio::time::timeout(limit, print) => printed.unwrap_or(Ok(())),
            _ = tokio::signal::ctrl_c() => Ok(()),
        };
        server.abort();
        done
    }
}

async fn take(State(verifier): State<Arc<DeliveryVerifier>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = match verifier.check(&headers, &body, now) {
        Ok(id) => id,
        Err(why) => {
            note(&format!("a delivery was refused: {why}"));
            return StatusCode::UNAUTHORIZED;
        }
    };
    let Ok(value) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    if !id.is_empty() && verifier.is_known(&id) {
        return StatusCode::OK;
    }
    // It counts as delivered once it is queued for printing; otherwise the sender retries it.
    match verifier.out.send((id.clone(), value)).await {
        Ok(()) => {
            verifier.remember(id);
            StatusCode::OK
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl DeliveryVerifier {
    /// The id of a valid delivery, or why it is invalid.
    fn check(&self, headers: &HeaderMap, body: &[u8], now: Duration) -> Result<String, &'static str> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = &self.token {
            let shown = text("x-a2a-notification-token").or_else(|| text("a2a-notification-token"));
            let shown = shown.ok_or("it has no token")?;
            if !is_same(shown.as_bytes(), token.as_bytes()) {
                return Err("it shows another token");
            }
        }
        let id = text("webhook-id").unwrap_or_default();
        if let Some(secret) = &self.secret {
            let timestamp: i64 = text("webhook-timestamp")
                .and_then(|time| time.parse().ok())
                .ok_or("it is not signed: no time")?;
            let age = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).abs_diff(timestamp);
            if age > MAX_AGE.as_secs() {
                return Err("its signature is too old, or from the future");
            }
            let expected = secret.sign(id, timestamp, body);
            // During a key rotation there are several signatures, separated by spaces.
            let given = text("webhook-signature").ok_or("it is not signed")?;
            if !given.split(' ').any(|given| is_same(given.as_bytes(), expected.as_bytes())) {
                return Err("its signature is not by this secret");
            }
        }
        Ok(id.to_owned())
    }

    fn is_known(&self, id: &str) -> bool {
        self.seen.lock().iter().any(|seen| seen == id)
    }

    fn remember(&self, id: String) {
        let mut seen = self.seen.lock();
        if seen.len() == REMEMBERED {
            seen.pop_front();
        }
        seen.push_back(id);
    }
}

/// Compares in constant time, so that timing reveals nothing about the secret.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn show(format: Format, id: &str, body: &Value) -> Result<(), CliError> {
    if format == Format::Json {
        return output::json_text(&json!({ "deliveryId": id, "body": body }).to_string());
    }
    let mut text = TextOutput::default();
    let event = ["task", "statusUpdate", "artifactUpdate", "message"].iter().find_map(|name| body.get(*name));
    let event = event.unwrap_or(body);
    if !id.is_empty() {
        text.field("Delivery", id);
    }
    let field = |names: [&str; 2]| names.iter().find_map(|name| event[*name].as_str());
    if let Some(task) = field(["taskId", "id"]) {
        text.field("Task", task);
    }
    if let Some(state) = event["status"]["state"].as_str() {
        text.field("State", &state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-"));
    }
    let parts =
        event["status"]["message"]["parts"].as_array().or_else(|| event["artifact"]["parts"].as_array());
    for part in parts.into_iter().flatten().filter_map(|part| part["text"].as_str()) {
        text.field("Message", part);
    }
    text.gap();
    output::text(&text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_bnVuY2lvLXRlc3RzLXNpZ24td2l0aC10aGlz";

    #[test]
    fn only_what_is_signed_and_shows_the_token_is_believed() {
        let secret = SigningSecret::parse(SECRET).unwrap_or_else(|error| panic!("{error}"));
        let (out, _deliveries) = mpsc::channel(1);
        let verifier = DeliveryVerifier {
            token: Some("t-1".into()),
            secret: Some(secret.clone()),
            seen: Mutex::default(),
            out,
        };
        let now = Duration::from_secs(1_700_000_000);
        let body = br#"{"id":"1"}"#;
        let headers = |token: &str, time: i64, signature: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("x-a2a-notification-token", token),
                ("webhook-id", "d-1"),
                ("webhook-timestamp", &time.to_string()),
                ("webhook-signature", signature),
            ] {
                headers.insert(
                    http::HeaderName::try_from(name).unwrap_or_else(|e| panic!("{e}")),
                    value.parse().unwrap_or_else(|e| panic!("{e}")),
                );
            }
            headers
        };
        let time = 1_700_000_000;
        let good = secret.sign("d-1", time, body);
        assert_eq!(verifier.check(&headers("t-1", time, &good), body, now), Ok("d-1".into()));
        let rotated = format!("v1,other {good}");
        assert_eq!(verifier.check(&headers("t-1", time, &rotated), body, now), Ok("d-1".into()));
        let refused = |headers: HeaderMap, body: &[u8], word: &str| {
            let why = verifier.check(&headers, body, now);
            assert!(why.as_ref().is_err_and(|why| why.contains(word)), "{why:?}");
        };
        refused(headers("t-2", time, &good), body, "another token");
        refused(headers("t-1", time, &good), b"{}", "not by this secret");
        refused(headers("t-1", time + 1, &good), body, "not by this secret");
        refused(headers("t-1", time - 301, &secret.sign("d-1", time - 301, body)), body, "too old");
        refused(HeaderMap::new(), body, "no token");
    }
}
