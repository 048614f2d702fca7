//! The parser of `nuncio.toml`: keys with their values as text, and the repeatable tables. An unknown key is
//! an error, because a limit that an operator wrongly believes to be set is worse than none.

use std::{collections::BTreeMap, path::Path};

use toml::{Table, Value};

use super::{
    AgentTables, ConfigError, SETTINGS, Setting, SettingShape, SettingSource, agents, nearest, same_setting,
};

#[derive(Default)]
pub(super) struct ConfigFile {
    /// The values by key, with sections as prefixes: `limits.events-per-task`.
    pub(super) values: BTreeMap<&'static str, String>,
    /// The `[[agent]]` tables, in order, and then the `[[remote]]` tables.
    pub(super) agents: AgentTables,
}

pub(super) fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        message: error.to_string(),
    })?;
    let agents = AgentTables::take_from(path, &mut table)?;
    let mut values = BTreeMap::new();
    collect(path, "", &table, &mut values)?;
    Ok(ConfigFile { values, agents })
}

fn collect(
    path: &Path,
    prefix: &str,
    table: &Table,
    values: &mut BTreeMap<&'static str, String>,
) -> Result<(), ConfigError> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        // TOML keys are commonly spelled with `-` or `_`; no two settings differ only in that.
        let canonical = key.replace('_', "-");
        if let Value::Table(section) = value
            && SETTINGS.iter().any(|setting| setting.section() == Some(&canonical))
        {
            collect(path, &format!("{key}."), section, values)?;
            continue;
        }
        let Some(setting) = Setting::find(&canonical) else {
            let known = SETTINGS.iter().map(|setting| setting.key).chain([agents::TABLE]);
            let nearest = nearest(&canonical, known);
            return Err(ConfigError::UnknownKey { path: path.to_owned(), key, nearest });
        };
        let text = text_of(value, setting.shape);
        if values.get(setting.key).is_some_and(|before| *before != text) {
            let from = SettingSource::File(path.to_owned());
            return Err(ConfigError::Value { key, from, why: same_setting(setting.key) });
        }
        values.insert(setting.key, text);
    }
    Ok(())
}

/// A value as text, as on the command line. A value without such a form is refused by its setting.
fn text_of(value: &Value, shape: SettingShape) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| text_of(item, shape)).collect();
            items.join(if shape == SettingShape::Lines { "\n" } else { "," })
        }
        other => other.to_string(),
    }
}
