//! The `[[agent]]` tables of `nuncio.toml`: agents built from configuration.
//!
//! They are stored as raw TOML, and parsed only by a command that serves them: a client command that looks
//! for its server does not need the environment variables with the agents' secrets.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use nuncio::{
    agents::configured::{
        AgentKind, AgentSpec, SpecError,
        spec::{COMMON, FilledText, path_beside},
    },
    data_dir::AGENT_TOKENS,
    engine::redact::Redactor,
};
use nuncio_client::a2a::TrustedCardKeys;
use toml::{Table, Value};

use super::{ConfigError, Setting, nearest};

pub(super) const TABLE: &str = "agent";
/// A former name of a table that is only listed: kind `a2a` if it has none, and never served.
const FORMER_TABLE: &str = "remote";
const SERVE: &str = "serve";
/// The most characters of a name.
const MAX_NAME: usize = 64;
/// Keys whose values are secrets, or tables of values that may be.
const SECRETS: [&str; 5] = ["token", "api-key", "headers", "env", "client-secret"];
/// Replaces a secret that is written in the file itself.
const HIDDEN: &str = "(hidden)";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentTables {
    path: PathBuf,
    tables: Vec<Table>,
}

/// The tables of that name in a parsed file, which then has none.
fn take(path: &Path, file: &mut Table, name: &'static str) -> Result<Vec<Table>, ConfigError> {
    let wrong = |why: String| ConfigError::Table { path: path.to_owned(), table: name, why };
    let tables = match file.remove(name) {
        None => return Ok(vec![]),
        Some(Value::Array(tables)) => tables,
        Some(_) => {
            let why = format!("expected tables: write [[{name}]] with two brackets, one for each");
            return Err(wrong(why));
        }
    };
    let tables = tables.into_iter().map(|table| match table {
        Value::Table(table) => Ok(canonical(table)),
        _ => Err(wrong("expected a table".into())),
    });
    tables.collect()
}

fn is_served(table: &Table) -> bool {
    table.get(SERVE) != Some(&Value::Boolean(false))
}

/// TOML keys are commonly spelled with `-` or `_`. Keys of nested tables are not ours and stay unchanged.
fn canonical(table: Table) -> Table {
    table.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect()
}

impl AgentTables {
    /// Takes the tables from a parsed file.
    pub(super) fn take_from(path: &Path, file: &mut Table) -> Result<Self, ConfigError> {
        let mut tables = take(path, file, TABLE)?;
        for mut remote in take(path, file, FORMER_TABLE)? {
            remote.entry("kind").or_insert_with(|| "a2a".into());
            remote.insert(SERVE.into(), false.into());
            tables.push(remote);
        }
        Ok(Self { path: path.to_owned(), tables })
    }

    /// Whether there is one that is served.
    pub(crate) fn is_any_served(&self) -> bool {
        self.tables.iter().any(is_served)
    }

    /// Those that are only listed in the registry.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| !is_served(table))
    }

    /// Parses the tables, with this process's environment, for a server with this data folder.
    pub(crate) fn specs(&self, data: &Path) -> Result<Vec<AgentSpec>, ConfigError> {
        let mut specs: Vec<AgentSpec> = vec![];
        for table in &self.tables {
            let spec = self.one(table, data).map_err(|error| self.wrong(&error))?;
            if specs.iter().any(|other| other.name == spec.name) {
                return Err(self.wrong(&spec.wrong("name", "there are two agents of that name")));
            }
            specs.push(spec);
        }
        Ok(specs)
    }

    fn one(&self, table: &Table, data: &Path) -> Result<AgentSpec, SpecError> {
        let unusable = |why: String| SpecError { agent: String::new(), key: "table".into(), why };
        let json = match serde_json::to_value(table).map_err(|error| unusable(error.to_string()))? {
            serde_json::Value::Object(json) => json,
            _ => return Err(unusable("expected a table".into())),
        };
        let mut spec = AgentSpec::read(&json, &|name| std::env::var(name).ok())?;
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if spec.name.is_empty() || spec.name.len() > MAX_NAME || !spec.name.chars().all(legal) {
            return Err(spec.wrong("name", format!("1 to {MAX_NAME} letters, digits, '-' and '_'")));
        }
        // A program's working directory is the folder of the file that names it, wherever the server was
        // started.
        let folder = self.path.parent().map(std::path::absolute);
        let folder = match folder {
            Some(Ok(folder)) => folder,
            _ => std::env::current_dir().unwrap_or_default(),
        };
        let beside = |dir: &mut Option<FilledText>| *dir = Some(path_beside(&folder, dir.take()));
        let beside_too = |file: &mut Option<FilledText>| *file = file.take().map(|file| file.beside(&folder));
        if let AgentKind::A2a(own) = &mut spec.kind
            && own.card_keys.as_ref().is_some_and(|keys| TrustedCardKeys::is_path(keys.expose()))
        {
            own.card_keys = own.card_keys.take().map(|file| file.beside(&folder));
        }
        let access = match &mut spec.kind {
            AgentKind::Mcp(own) => {
                let files =
                    [&mut own.token_file, &mut own.ca_cert, &mut own.client_cert, &mut own.client_key];
                Some((files, &mut own.oauth))
            }
            AgentKind::A2a(own) => {
                let files =
                    [&mut own.token_file, &mut own.ca_cert, &mut own.client_cert, &mut own.client_key];
                Some((files, &mut own.oauth))
            }
            _ => None,
        };
        if let Some((files, oauth)) = access {
            files.into_iter().for_each(beside_too);
            if let Some(oauth) = oauth {
                beside_too(&mut oauth.client_secret_file);
                oauth.tokens = Some(data.join(AGENT_TOKENS).join(&spec.name));
            }
        }
        match &mut spec.kind {
            AgentKind::Process(process) => beside(&mut process.dir),
            AgentKind::Mcp(mcp) if !mcp.command.is_empty() => beside(&mut mcp.dir),
            _ => {}
        }
        Ok(spec)
    }

    /// The error with its location, and the key that was probably meant.
    pub(crate) fn wrong(&self, error: &SpecError) -> ConfigError {
        let SpecError { agent, key, why } = error;
        let mut text = match agent.as_str() {
            "" => format!("{key}: {why}"),
            name => format!("{name:?}: {key}: {why}"),
        };
        if let Some((_, expected)) =
            why.split_once("unknown field").and_then(|(_, why)| why.split_once("expected"))
        {
            // serde's message has the names of the keys between backticks.
            let known = expected.split('`').skip(1).step_by(2).chain(COMMON);
            if Setting::find(key).is_some() {
                text.push_str(
                    ": it is a setting of the server, and belongs above the first table: what stands below \
                     [[agent]] is a part of that agent",
                );
            } else if let Some(near) = nearest(key, known) {
                let _ = write!(text, ": did you mean {near:?}?");
            }
        }
        ConfigError::Table { path: self.path.clone(), table: TABLE, why: text }
    }

    /// The tables as TOML, without secrets.
    pub(super) fn print(&self) -> String {
        let mut out = String::new();
        for table in &self.tables {
            let shown: Table = table.iter().map(|(key, value)| (key.clone(), shown(key, value))).collect();
            let shown = Table::from_iter([(TABLE.to_owned(), Value::Array(vec![Value::Table(shown)]))]);
            // Writing to a String cannot fail.
            let _ = write!(out, "\n{shown}");
        }
        out
    }
}

/// A value that is safe to show: for a secret, only which variables it comes from.
fn shown(key: &str, value: &Value) -> Value {
    let secret = SECRETS.contains(&key);
    match value {
        Value::Table(table) if secret => {
            table.iter().map(|(name, value)| (name.clone(), shown("token", value))).collect::<Table>().into()
        }
        Value::Table(table) => {
            table.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect::<Table>().into()
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| shown(key, item)).collect()),
        Value::String(text) if secret => Value::String(without_secret(text)),
        Value::String(text) => Value::String(Redactor::default().text(text).into_owned()),
        other => other.clone(),
    }
}

/// A secret reduced to the names of its variables.
fn without_secret(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (literal, variable) = match rest.find("${") {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if !literal.is_empty() {
            out.push_str(HIDDEN);
        }
        let end = variable.find('}').map_or(variable.len(), |end| end + 1);
        out.push_str(&variable[..end]);
        rest = &variable[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_secret_the_variable_is_shown() {
        let check = |text: &str, left: &str| assert_eq!(without_secret(text), left);
        check("${KEY}", "${KEY}");
        check("Bearer ${KEY}", "(hidden)${KEY}");
        check("sk-12345", "(hidden)");
        check("${A}${B}x", "${A}${B}(hidden)");
        check("${A", "${A");
        check("", "");
    }
}
