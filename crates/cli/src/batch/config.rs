//! `nuncio batch config|metrics`: the settings and the measurements of the batch engine.

use clap::Args;
use serde_json::{Map, Value};

use crate::{
    error::CliError,
    server_connection::ServerConnection,
    table::{Table, cell, figure},
    text::TextOutput,
};

#[derive(Args)]
pub(super) struct BatchConfigFlags {
    /// Change a setting, such as maxConcurrency=10 or thresholds.queueSize=500; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl BatchConfigFlags {
    /// The settings to change, as a JSON object.
    pub(super) fn changes(&self) -> Result<Map<String, Value>, CliError> {
        let mut changes = Value::Object(Map::new());
        for given in &self.set {
            let (path, value) = given
                .split_once('=')
                .filter(|(path, _)| !path.is_empty() && path.split('.').all(|part| !part.is_empty()))
                .ok_or_else(|| CliError::Usage(format!("--set {given:?}: expected KEY=VALUE")))?;
            // A bare word is a string.
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            let parts: Vec<&str> = path.split('.').collect();
            put(&mut changes, &parts, value)
                .ok_or_else(|| CliError::Usage(format!("--set {given:?}: {path} is set already")))?;
        }
        match changes {
            Value::Object(changes) => Ok(changes),
            _ => Ok(Map::new()),
        }
    }
}

/// Sets the value at a path; `None` where another value blocks the path.
fn put(into: &mut Value, path: &[&str], value: Value) -> Option<()> {
    let [first, rest @ ..] = path else { return None };
    let members = into.as_object_mut()?;
    if rest.is_empty() {
        let before = members.insert((*first).to_owned(), value);
        return before.is_none().then_some(());
    }
    put(members.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest, value)
}

pub(super) async fn run(shared: &ServerConnection, changes: Map<String, Value>) -> Result<(), CliError> {
    let settings = if changes.is_empty() {
        shared.read("batchtools://config/settings").await?
    } else {
        shared.call("batch_configure", changes.into()).await?
    };
    shared.print(&settings, figures)
}

pub(super) async fn metrics(shared: &ServerConnection) -> Result<(), CliError> {
    let metrics = shared.read("batchtools://metrics/performance").await?;
    shared.print(&metrics, |metrics| {
        let mut text = TextOutput(figures(&metrics["overall"]));
        let mut table = Table::new(&["STRATEGY", "COUNT ", "SPEED-UP ", "MEMORY SAVED ", "SUCCEEDED "]);
        for (strategy, measured) in metrics["byType"].as_object().into_iter().flatten() {
            table.row([
                strategy.clone(),
                cell(&measured["count"]),
                figure(&measured["averageSpeedup"]),
                percent(&measured["memoryReduction"]),
                percent(&measured["successRate"]),
            ]);
        }
        text.gap();
        text.0.push_str(&table.show());
        text.0
    })
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| cell(value), |share| format!("{:.1} %", share * 100.0))
}

/// Every number of a document, one per line, by its path.
fn figures(document: &Value) -> String {
    let mut table = Table::new(&["NAME", "VALUE"]);
    add(&mut table, "", document);
    table.show()
}

fn add(table: &mut Table, path: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add(table, &path, value);
            }
        }
        Value::Array(items) => {
            table.row([path.to_owned(), items.iter().map(cell).collect::<Vec<_>>().join(", ")]);
        }
        other => table.row([path.to_owned(), figure(other)]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_set_by_their_path() {
        let changes = |set: &[&str]| {
            BatchConfigFlags { set: set.iter().map(|given| (*given).to_owned()).collect() }
                .changes()
                .ok()
                .map(Value::from)
        };
        assert_eq!(
            changes(&["maxConcurrency=10", "thresholds.queueSize=5", "thresholds.cpuUsage=0.5", "name=a=b"]),
            Some(json!({
                "maxConcurrency": 10,
                "thresholds": { "queueSize": 5, "cpuUsage": 0.5 },
                "name": "a=b",
            }))
        );
        for wrong in [&["x"][..], &["=1"], &["a..b=1"], &["a=1", "a=2"], &["a=1", "a.b=2"]] {
            assert_eq!(changes(wrong), None, "{wrong:?}");
        }
    }
}
