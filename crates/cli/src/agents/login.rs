//! `nuncio agents login` and `logout`: the user signs in for an agent whose server requires authentication.
//!
//! The granted tokens are stored in the data folder, readable only by its owner. A running server uses them
//! from its next call on.

use std::{path::Path, process::Stdio, sync::Arc};

use nuncio::agents::configured::{
    AgentSpec,
    remote::{sign_in, sign_out},
};
use serde_json::json;
use url::Url;

use crate::{
    config::{self, FlagValues},
    error::CliError,
    output::{self, Format},
};

pub(super) async fn login(
    data: Option<&Path>,
    name: &str,
    opens: bool,
    format: Format,
) -> Result<(), CliError> {
    let spec = spec(data, name)?;
    let show = move |url: &Url| {
        if opens {
            let mut opener = std::process::Command::new("xdg-open");
            opener.arg(url.as_str()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // Without a program that opens links, the user opens it.
            let _ = opener.spawn();
        }
        let text = match format {
            Format::Json => format!("{}\n", json!({ "visit": url })),
            _ => format!("Open this link on this machine, and come back:\n  {url}\n"),
        };
        // If the text cannot be printed the user cannot follow the link, and the wait below ends by its
        // deadline.
        let _ = output::text(&text);
    };
    sign_in(&spec, Arc::new(show)).await.map_err(|why| CliError::Usage(format!("{name}: {why}")))?;
    output::text(&match format {
        Format::Json => format!("{}\n", json!({ "agent": name, "signedIn": true })),
        _ => format!("Signed in: {name} can be called.\n"),
    })
}

pub(super) fn logout(data: Option<&Path>, name: &str, format: Format) -> Result<(), CliError> {
    let was = sign_out(&spec(data, name)?).map_err(CliError::Runtime)?;
    output::text(&match format {
        Format::Json => format!("{}\n", json!({ "agent": name, "signedIn": false })),
        _ if was => format!("Signed out: the access granted to {name} is deleted.\n"),
        _ => format!("Nobody was signed in for {name}.\n"),
    })
}

/// The `[[agent]]` table of this name.
fn spec(data: Option<&Path>, name: &str) -> Result<AgentSpec, CliError> {
    let config = config::load(&FlagValues::new(), None)?.config;
    let specs = config.agents.specs(data.unwrap_or(&config.data))?;
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    specs.into_iter().find(|spec| spec.name == name).ok_or_else(|| {
        CliError::Usage(match &names[..] {
            [] => format!("there is no agent {name:?}: there are no tables [[agent]] in nuncio.toml here"),
            names => format!("there is no agent {name:?} in nuncio.toml, but {}", names.join(", ")),
        })
    })
}
