//! The effective configuration as an equivalent `nuncio.toml`, with the source of each value. Secrets are
//! left out: the password in a database URL, and the secrets of agents.

use std::fmt::{self, Write as _};

use nuncio::engine::redact::Redactor;

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
    /// The value as TOML; `None` where there is none.
    fn value(&self, setting: &Setting) -> Option<String> {
        let text = (setting.get)(&self.config)?;
        Some(match setting.shape {
            SettingShape::Whole | SettingShape::Switch => text,
            SettingShape::Text if setting.key == "store" => {
                toml::Value::String(Redactor::default().text(&text).into_owned()).to_string()
            }
            SettingShape::Text => toml::Value::String(text).to_string(),
            SettingShape::List | SettingShape::Lines => {
                let mut list = String::from("[");
                let between = if setting.shape == SettingShape::Lines { '\n' } else { ',' };
                for (index, item) in text.split(between).filter(|item| !item.is_empty()).enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    let _ = write!(list, "{comma}{}", toml::Value::String(item.to_owned()));
                }
                list + "]"
            }
        })
    }
}
