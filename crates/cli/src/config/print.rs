//! The effective configuration as an equivalent `nuncio.toml`, with the source of each value. Secrets are
//! left out: the password in a database URL, and the secrets of agents.

use std::fmt::{self, Write as _};

use nuncio::{EffectiveSetting, engine::redact::Redactor};
use serde_json::Value;

use super::{LoadedConfig, SETTINGS, Setting, SettingShape, SettingSource};

impl fmt::Display for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = None;
        for setting in SETTINGS {
            if setting.section() != section {
                section = setting.section();
                writeln!(f, "\n[{}]", section.unwrap_or_default())?;
            }
            let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
            let source = self.sources.get(setting.key).unwrap_or(&SettingSource::Default);
            let line = match self.value(setting) {
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} ="),
            };
            writeln!(f, "{line:<44} # {source}")?;
        }
        f.write_str(&self.config.agents.print())
    }
}

impl LoadedConfig {
    /// The settings in force with their sources, for the server's console.
    pub(crate) fn effective_settings(&self) -> Vec<EffectiveSetting> {
        let row = |setting: &Setting| {
            let source = self.sources.get(setting.key).unwrap_or(&SettingSource::Default);
            let (source, from) = match source {
                SettingSource::Default => ("default", None),
                SettingSource::File(path) => ("file", Some(path.display().to_string())),
                SettingSource::Environment(name) => ("environment", Some(name.clone())),
                SettingSource::Flag(name) => ("flag", Some(name.clone())),
            };
            EffectiveSetting {
                key: setting.key.to_owned(),
                value: json_value(setting, (setting.get)(&self.config)),
                source,
                from,
                about: setting.about.to_owned(),
            }
        };
        SETTINGS.iter().map(row).collect()
    }

    /// The value as TOML; `None` where there is none.
    fn value(&self, setting: &Setting) -> Option<String> {
        let text = (setting.get)(&self.config)?;
        Some(match setting.key {
            "store" => toml_value(setting, &Redactor::default().text(&text)),
            _ => toml_value(setting, &text),
        })
    }
}

/// The text of a value as TOML.
pub(super) fn toml_value(setting: &Setting, text: &str) -> String {
    match setting.shape {
        SettingShape::Whole | SettingShape::Switch => text.to_owned(),
        SettingShape::Text => toml::Value::String(text.to_owned()).to_string(),
        SettingShape::List | SettingShape::Lines => {
            let mut list = String::from("[");
            let between = if setting.shape == SettingShape::Lines { '\n' } else { ',' };
            for (index, item) in text.split(between).filter(|item| !item.is_empty()).enumerate() {
                let comma = if index > 0 { ", " } else { "" };
                let _ = write!(list, "{comma}{}", toml::Value::String(item.to_owned()));
            }
            list + "]"
        }
    }
}

/// The value of a setting as JSON; null where there is none.
fn json_value(setting: &Setting, text: Option<String>) -> Value {
    let Some(text) = text else { return Value::Null };
    let items =
        |between: char| text.split(between).filter(|item| !item.is_empty()).map(Value::from).collect();
    match setting.shape {
        SettingShape::Whole => text.parse::<u64>().map_or_else(|_| text.as_str().into(), Value::from),
        SettingShape::Switch => Value::Bool(text == "true"),
        SettingShape::Text => text.into(),
        SettingShape::List => items(','),
        SettingShape::Lines => items('\n'),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{FlagValues, load};

    #[test]
    fn every_setting_has_a_value_and_a_source() {
        let flags = FlagValues::from([("max-running", "5".to_owned()), ("allow-remote", "true".to_owned())]);
        let rows = load(&flags, None).unwrap().effective_settings();
        assert_eq!(rows.len(), SETTINGS.len());
        let of = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
        let running = of("max-running");
        assert_eq!((&running.value, running.source), (&json!(5), "flag"));
        assert_eq!(running.from.as_deref(), Some("--max-running"));
        assert_eq!(of("allow-remote").value, json!(true));
        assert_eq!((&of("socket").value, of("socket").source), (&Value::Null, "default"));
        assert_eq!(of("cors.origins").value, json!([]));
        assert!(rows.iter().all(|row| !row.about.is_empty()));
    }
}
