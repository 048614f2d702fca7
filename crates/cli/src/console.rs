//! `nuncio console`: opens the web console of the server that holds the data folder, signed in as the operator.
//!
//! The address carries a one-time code in its fragment, which a browser sends to no server. Access to the data folder is
//! the credential.

use std::{
    io::IsTerminal as _,
    process::{Command, Stdio},
};

use clap::Args;
use serde_json::json;

use super::{
    error::CliError,
    operator::{OperatorBackend, OperatorFlags},
    output::{self, Format},
    server,
    text::TextOutput,
};

#[derive(Args)]
pub(crate) struct ConsoleFlags {
    /// Only print the address
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    operator: OperatorFlags,
}

impl ConsoleFlags {
    pub(crate) fn format(&self) -> Format {
        self.operator.format
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let server =
            OperatorBackend::find(&server::configured_for(self.operator.data)).await?.server().await?;
        let created = server.post("/console/api/codes", &json!({})).await?;
        let (code, expires) = (created["code"].as_str(), created["expires"].as_str());
        let (Some(code), Some(expires)) = (code, expires) else {
            return Err(CliError::Admin(
                "the server answered with no code: is it of another version?".into(),
            ));
        };
        let url = format!("{}/console/#code={code}", server.base_url());
        if !self.no_open && std::io::stdout().is_terminal() {
            open_browser(&url);
        }
        if self.operator.format == Format::Json {
            return output::json_text(&json!({ "url": url, "expires": expires }).to_string());
        }
        let mut text = TextOutput::default();
        text.field("Console", &url);
        text.field("Until", &format!("{expires}, once: the code is used up when the page opens"));
        output::text(&text.0)
    }
}

/// Asks the desktop to open a page. Where there is none, the printed address has to do.
fn open_browser(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        tracing::debug!(%error, "no browser was opened");
    }
}
