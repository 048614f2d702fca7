//! `nuncio memory get|set|delete`: one entry.

use std::time::Duration;

use clap::Args;
use nuncio_flows::memory::api::{
    MemoryDeleteAnswer, MemoryDeleteRequest, MemoryEntryAnswer, MemoryGetRequest, MemoryStoreAnswer,
    MemoryStoreRequest,
};
use serde_json::Value;

use super::value::MemoryValueSource;
use crate::{
    duration,
    error::CliError,
    output,
    server_connection::ServerConnection,
    table::{age, bytes, seconds},
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
        let request = MemoryGetRequest { namespace: self.namespace, key: self.key };
        let found = shared.call_typed::<MemoryEntryAnswer>("memory_get", &request).await?;
        if shared.is_json() {
            return output::json_text(&found.json.to_string());
        }
        let MemoryEntryAnswer { key, value, metadata } = found.value;
        if self.verbose {
            let mut text = TextOutput::default();
            text.field("Namespace", &metadata.namespace);
            text.field("Key", &key);
            text.field("Version", &metadata.version.to_string());
            text.field("Created", &age(&metadata.created));
            text.field("Accessed", &age(&metadata.accessed));
            text.field("Reads", &metadata.access_count.to_string());
            text.field("Size", &bytes(&metadata.size));
            text.field("TTL", &seconds(&metadata.ttl));
            output::text(&text.0)?;
        }
        // A string is printed without quotes, for use in a pipe.
        let value = match &value {
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
        let request = MemoryStoreRequest {
            namespace: self.namespace,
            key: self.key,
            value,
            ttl: self.ttl.map(|ttl| ttl.as_secs()),
            expected_version: self.expect,
        };
        let stored = shared.call_typed::<MemoryStoreAnswer>("memory_store", &request).await?;
        shared.print_typed(&stored, |stored| {
            let (key, namespace) = (plain(&request.key), plain(&request.namespace));
            format!("{key} is at version {} in {namespace}.\n", stored.version)
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
        let Self { namespace, key, expect: expected_version } = self;
        let request = MemoryDeleteRequest { namespace, key, expected_version };
        let deleted = shared.call_typed::<MemoryDeleteAnswer>("memory_delete", &request).await?;
        shared.print_typed(&deleted, |answer| {
            let (key, namespace) = (plain(&request.key), plain(&request.namespace));
            match answer.deleted {
                false => format!("There is no {key} in {namespace}.\n"),
                true => format!("{key} is gone from {namespace}.\n"),
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
