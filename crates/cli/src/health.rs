//! `nuncio health`: whether a server takes work, as an exit code: for the health check of a container, and for scripts.
//!
//! It reads `/readyz`, which needs no credentials and sends none.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, OutboundError, ProxyRule, TlsClientOptions,
};
use serde_json::{Value, json};
use url::Url;

use super::{
    error::CliError,
    output::{self, Format},
    server,
    text::{TextOutput, plain},
};
use crate::duration;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 * 1024;

#[derive(Args)]
pub(crate) struct HealthFlags {
    /// The address of the server. Default: that of the server of the data folder
    #[arg(short = 'a', long, value_name = "URL", conflicts_with = "data")]
    address: Option<String>,
    /// The data folder of the server. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How long to wait for the answer
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration::parse)]
    timeout: Duration,
    /// The output format
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    format: Format,
}

/// What a server says about itself.
enum ServerHealth {
    Ready,
    /// It answers, and takes no work: why.
    NotReady(String),
    /// It does not answer: why.
    Unreachable(String),
}

impl ServerHealth {
    fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady(_) => "not ready",
            Self::Unreachable(_) => "unreachable",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::NotReady(why) | Self::Unreachable(why) => Some(why),
        }
    }
}

impl HealthFlags {
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let data = server::configured_for(self.data).data;
        let is_guessed = self.address.is_none() && server::published(&data).is_none();
        let address = self.address.unwrap_or_else(|| server::address_of(&data));
        let address = if address.contains("://") { address } else { format!("http://{address}") };
        let url = Url::parse(&format!("{}/readyz", address.trim_end_matches('/')));
        let url = url.map_err(|error| CliError::Usage(format!("-a {address}: {error}")))?;
        let http = HttpClient::new(HttpClientOptions {
            timeout: Some(self.timeout),
            tls: server::trust_published(TlsClientOptions::default(), &data),
            ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Never))
        });
        let health = match http {
            Ok(http) => read(&http, url).await,
            Err(error) => ServerHealth::Unreachable(error.to_string()),
        };
        if is_guessed && !matches!(health, ServerHealth::Ready) {
            let data = data.display();
            output::note(&format!(
                "No server has published its address in {data}: the default address was asked. -a names another, --data another folder."
            ));
        }
        show(&address, &health, self.format)?;
        Ok(if matches!(health, ServerHealth::Ready) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

async fn read(http: &HttpClient, url: Url) -> ServerHealth {
    let mut response = match http.send(HttpRequest::get(url)).await {
        Ok(response) => response,
        Err(error) => return ServerHealth::Unreachable(error.to_string()),
    };
    let status = response.status();
    if status.is_success() {
        return ServerHealth::Ready;
    }
    let body: Result<_, OutboundError> = response.read_to_end(MAX_ANSWER).await;
    let body: Value = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let reason = body["reason"].as_str().map(plain);
    ServerHealth::NotReady(
        reason.map_or_else(|| format!("it answered HTTP {}", status.as_u16()), |text| text.to_string()),
    )
}

fn show(address: &str, health: &ServerHealth, format: Format) -> Result<(), CliError> {
    if format == Format::Json {
        let document = json!({ "server": address, "status": health.name(), "reason": health.reason() });
        return output::json_text(&document.to_string());
    }
    let mut text = TextOutput::default();
    text.field("Server", address);
    text.field("Status", health.name());
    if let Some(reason) = health.reason() {
        text.field("Reason", reason);
    }
    output::text(&text.0)
}
