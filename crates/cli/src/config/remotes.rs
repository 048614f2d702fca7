//! The `[[remote]]` tables of `nuncio.toml`: remote agents and servers for the registry.

use std::{fmt::Write as _, path::Path};

use nuncio::flows::registry::{RegistryRemote, RemoteKind};
use toml::Value;
use url::Url;

use super::{ConfigError, nearest};

pub(super) const TABLE: &str = "remote";
const KEYS: [&str; 3] = ["remote.name", "remote.url", "remote.kind"];
/// The most characters of a name, as for agents.
const MAX_NAME: usize = 64;

/// Parses all tables.
pub(super) fn read(path: &Path, tables: &Value) -> Result<Vec<RegistryRemote>, ConfigError> {
    let wrong = |why: String| ConfigError::Table { path: path.to_owned(), table: TABLE, why };
    let Some(tables) = tables.as_array() else {
        return Err(wrong("expected tables: write [[remote]] with two brackets, one for each".into()));
    };
    let mut remotes: Vec<RegistryRemote> = vec![];
    for table in tables {
        let remote = one(path, table)?;
        if remotes.iter().any(|other| other.name == remote.name) {
            return Err(wrong(format!("name: there are two remotes named {:?}", remote.name)));
        }
        remotes.push(remote);
    }
    Ok(remotes)
}

fn one(path: &Path, table: &Value) -> Result<RegistryRemote, ConfigError> {
    let wrong = |why: String| ConfigError::Table { path: path.to_owned(), table: TABLE, why };
    let Some(members) = table.as_table() else { return Err(wrong("expected a table".into())) };
    for key in members.keys() {
        let key = format!("{TABLE}.{key}");
        if !KEYS.contains(&key.as_str()) {
            let nearest = nearest(&key, KEYS.into_iter());
            return Err(ConfigError::UnknownKey { path: path.to_owned(), key, nearest });
        }
    }
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    let name = text("name").ok_or_else(|| wrong("name: is required, a text".into()))?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
        return Err(wrong(format!("name: 1 to {MAX_NAME} letters, digits, '-' and '_', not {name:?}")));
    }
    let kind = match members.get("kind").map(|kind| kind.as_str().unwrap_or_default()) {
        None | Some("a2a") => RemoteKind::A2a,
        Some("mcp") => RemoteKind::Mcp,
        Some(other) => return Err(wrong(format!("kind of {name:?}: expected a2a or mcp, not {other:?}"))),
    };
    let url = text("url").ok_or_else(|| wrong(format!("url of {name:?}: is required, a text")))?;
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        return Err(wrong(format!("url of {name:?}: expected a URL with http or https")));
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(format!(
            "url of {name:?}: it carries a user name or a password, which is not sent"
        )));
    }
    Ok(RegistryRemote { name: name.to_owned(), url, kind })
}

/// The tables as TOML.
pub(super) fn print(remotes: &[RegistryRemote]) -> String {
    let mut out = String::new();
    for RegistryRemote { name, url, kind } in remotes {
        let [name, url, kind] = [name, url.as_str(), kind.name()].map(|text| Value::String(text.into()));
        // Writing to a String cannot fail.
        let _ = write!(out, "\n[[{TABLE}]]\nname = {name}\nurl = {url}\nkind = {kind}\n");
    }
    out
}
