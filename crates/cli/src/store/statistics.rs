//! `nuncio store stats` and `nuncio store compact`: the size of a store, and less of it.

use nuncio::StoreLocation;
use nuncio_engine::clock::Timestamp;
use nuncio_store::{KindStatistics, StoreStatistics};
use nuncio_wire::timestamp;
use serde_json::{Value, json};

use super::failed;
use crate::{
    error::CliError,
    output::{self, Format},
    table::{Table, bytes, cell},
    text::TextOutput,
};

pub(super) async fn show(place: &StoreLocation, format: Format) -> Result<(), CliError> {
    let found = place.statistics().await.map_err(failed)?;
    match format {
        Format::Json => output::json_text(&as_json(&found).to_string()),
        Format::Text => output::text(&as_text(&found)),
    }
}

pub(super) async fn compact(place: &StoreLocation, format: Format) -> Result<(), CliError> {
    let done = place.compact().await.map_err(failed)?;
    match format {
        Format::Json => output::json_text(&json!({ "before": done.before, "after": done.after }).to_string()),
        Format::Text => {
            let mut text = TextOutput::default();
            text.field("Before", &bytes(&done.before));
            text.field("After", &bytes(&done.after));
            output::text(&text.0)
        }
    }
}

fn as_json(found: &StoreStatistics) -> Value {
    let kinds = found.kinds.iter().map(|kind| {
        json!({
            "kind": kind.kind, "count": kind.count, "bytes": kind.bytes,
            "oldest": kind.oldest.map(timestamp::format), "newest": kind.newest.map(timestamp::format),
        })
    });
    let states = found.states.iter().map(|(state, count)| (state.name().to_owned(), json!(count)));
    json!({
        "bytes": found.bytes, "logBytes": found.log_bytes, "freeBytes": found.free_bytes,
        "schema": found.schema, "knownSchema": found.known_schema,
        "kinds": kinds.collect::<Vec<_>>(),
        "tasksByState": states.collect::<serde_json::Map<_, _>>(),
    })
}

fn as_text(found: &StoreStatistics) -> String {
    let mut text = TextOutput::default();
    text.field("Database", &bytes(&found.bytes));
    if let Some(log) = found.log_bytes {
        text.field("Write-ahead log", &bytes(&log));
    }
    if let Some(free) = found.free_bytes {
        text.field("Free in it", &format!("{} (nuncio store compact returns it)", bytes(&free)));
    }
    let migration = match found.schema < found.known_schema {
        true => format!(" (the next start migrates it to {})", found.known_schema),
        false => String::new(),
    };
    text.field("Schema", &format!("{}{migration}", found.schema));
    let mut table = Table::new(&["KIND", "COUNT ", "CONTENT ", "OLDEST", "NEWEST"]).whole(&["KIND"]);
    for KindStatistics { kind, count, bytes: content, oldest, newest } in &found.kinds {
        let time = |at: &Option<Timestamp>| cell(&at.map(timestamp::format));
        table.row([(*kind).to_owned(), count.to_string(), bytes(content), time(oldest), time(newest)]);
    }
    text.gap();
    text.0.push_str(&table.show());
    if !found.states.is_empty() {
        let states: Vec<String> =
            found.states.iter().map(|(state, count)| format!("{count} {}", state.name())).collect();
        text.gap();
        text.field("Tasks", &states.join(", "));
    }
    text.0
}
