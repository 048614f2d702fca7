//! `nuncio memory get|set|delete`: one entry.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::value::MemoryValueSource;
use crate::{
    duration,
    error::CliError,
    output,
    server_connection::ServerConnection,
    table::{age, bytes, cell, seconds},
    text::{TextOutput, plain},
};

#[derive(Args)]
pub(super) struct MemoryGetFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    /// Show the entry's metadata as well
    #[arg(long)]
    verbose: bool,
}

impl MemoryGetFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let found =
            shared.call("memory_get", json!({ "namespace": self.namespace, "key": self.key })).await?;
        if shared.is_json() {
            return output::json_text(&found.to_string());
        }
        if self.verbose {
            let mut text = TextOutput::default();
            let about = &found["metadata"];
            text.field("Namespace", &cell(&about["namespace"]));
            text.field("Key", &cell(&found["key"]));
            text.field("Version", &cell(&about["version"]));
            text.field("Created", &age(&about["created"]));
            text.field("Accessed", &age(&about["accessed"]));
            text.field("Reads", &cell(&about["accessCount"]));
            text.field("Size", &bytes(&about["size"]));
            text.field("TTL", &seconds(&about["ttl"]));
            output::text(&text.0)?;
        }
        // A string is printed without quotes, for use in a pipe.
        let value = match &found["value"] {
            Value::String(text) => plain(text),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        output::text(&format!("{}\n", value.trim_end_matches('\n')))
    }
}

#[derive(Args)]
pub(super) struct MemorySetFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    /// The value: JSON; a bare word that is not JSON is stored as a string
    #[arg(
        value_name = "VALUE",
        required_unless_present = "file",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    value: Option<String>,
    /// A file with the value, or - for the standard input
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Store the value as a string, whatever it looks like
    #[arg(long)]
    text: bool,
    /// How long the entry is stored, such as 1h. Default: until it is deleted
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Only if the entry has this version; 0: only if it does not exist
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
}

impl MemorySetFlags {
    /// The value to store.
    pub(super) fn value(&self) -> Result<Value, CliError> {
        MemoryValueSource { inline: self.value.as_deref(), file: self.file.as_deref(), text: self.text }
            .read()
    }

    pub(super) async fn run(self, shared: &ServerConnection, value: Value) -> Result<(), CliError> {
        let mut arguments = Map::new();
        arguments.insert("namespace".into(), self.namespace.as_str().into());
        arguments.insert("key".into(), self.key.as_str().into());
        arguments.insert("value".into(), value);
        if let Some(ttl) = self.ttl {
            arguments.insert("ttl".into(), ttl.as_secs().into());
        }
        if let Some(version) = self.expect {
            arguments.insert("expectedVersion".into(), version.into());
        }
        let stored = shared.call("memory_store", arguments.into()).await?;
        shared.print(&stored, |stored| {
            let version = cell(&stored["version"]);
            format!("{} is at version {version} in {}.\n", plain(&self.key), plain(&self.namespace))
        })
    }
}

#[derive(Args)]
pub(super) struct MemoryDeleteFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    /// Only if the entry has this version
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
}

impl MemoryDeleteFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let mut arguments = json!({ "namespace": self.namespace, "key": self.key });
        if let Some(version) = self.expect {
            arguments["expectedVersion"] = version.into();
        }
        let deleted = shared.call("memory_delete", arguments).await?;
        shared.print(&deleted, |deleted| {
            let (key, namespace) = (plain(&self.key), plain(&self.namespace));
            match deleted["deleted"].as_bool() {
                Some(false) => format!("There is no {key} in {namespace}.\n"),
                _ => format!("{key} is gone from {namespace}.\n"),
            }
        })
    }
}

/// Whole seconds, and at least one.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text)?;
    match ttl.subsec_millis() == 0 && !ttl.is_zero() {
        true => Ok(ttl),
        false => Err("expected whole seconds, at least one".to_owned()),
    }
}
