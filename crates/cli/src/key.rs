//! `nuncio key …`: the keys that sign the server's agent cards. For the operator: access to the data folder is the
//! credential.
//!
//! The keys belong to the store, so that all nodes share them; the command calls the running server.

use clap::Subcommand;
use serde_json::Value;

use super::{
    error::CliError,
    operator::{OperatorBackend, OperatorFlags},
    output::{self, Format},
    server,
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Create the first key: from then on cards are signed
    Create(OperatorFlags),
    /// List the keys that sign cards and are in the key set at /.well-known/jwks.json
    List(OperatorFlags),
    /// Create the next key: during the overlap, cards carry the signatures of both
    Rotate {
        /// How long the previous key stays valid
        #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = crate::duration::parse)]
        overlap: std::time::Duration,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Invalidate a key at once; cards are no longer signed if it was the only one
    Retire {
        /// The key's id
        #[arg(value_name = "KID", allow_hyphen_values = true)]
        kid: String,
        #[command(flatten)]
        flags: OperatorFlags,
    },
}

impl KeyCommand {
    fn flags(&self) -> &OperatorFlags {
        match self {
            Self::Create(flags)
            | Self::List(flags)
            | Self::Rotate { flags, .. }
            | Self::Retire { flags, .. } => flags,
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.flags().format
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let OperatorFlags { data, format } = self.flags();
        let server = OperatorBackend::find(&server::configured_for(data.clone())).await?.server().await?;
        let keys = match &self {
            Self::List(_) => server.get("/admin/card-keys", &[]).await?,
            Self::Create(_) => server.post("/admin/card-keys", &Value::Null).await?,
            Self::Rotate { overlap, .. } => {
                let path = format!("/admin/card-keys/rotate?overlapSeconds={}", overlap.as_secs());
                server.post(&path, &Value::Null).await?
            }
            Self::Retire { kid, .. } => {
                // An id is base64url; anything else could be another path.
                let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if kid.is_empty() || !kid.chars().all(legal) {
                    return Err(CliError::Usage(format!(
                        "{kid:?} is no id of a key: nuncio key list shows them"
                    )));
                }
                server.delete(&format!("/admin/card-keys/{kid}")).await?
            }
        };
        if *format == Format::Json {
            return output::json_text(&keys.to_string());
        }
        let mut text = TextOutput::default();
        show(&mut text, &keys["keys"]);
        output::text(&text.0)
    }
}

fn show(text: &mut TextOutput, keys: &Value) {
    let keys = keys.as_array().map(Vec::as_slice).unwrap_or_default();
    for key in keys {
        for (label, member) in
            [("Key", "kid"), ("State", "state"), ("Created", "createdAt"), ("Until", "until")]
        {
            if let Some(value) = key[member].as_str() {
                text.field(label, value);
            }
        }
        text.gap();
    }
    if !keys.iter().any(|key| key["state"] == "current") {
        text.field("Cards", "not signed by a current key: nuncio key create makes one");
    }
    text.field("Total", &keys.len().to_string());
}
