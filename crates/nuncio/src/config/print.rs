//! The effective configuration as a `nuncio.toml` that would give the same, with the source of each value. What is
//! secret is not shown: a password in the address of a database, and what agents are given.

use std::fmt::{self, Write as _};

use nuncio::engine::redact::Redactor;

use super::{Loaded, SETTINGS, Setting, Shape, Source, remotes};

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = None;
        for setting in SETTINGS {
            if setting.section() != section {
                section = setting.section();
                writeln!(f, "\n[{}]", section.unwrap_or_default())?;
            }
            let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
            let source = self.sources.get(setting.key).unwrap_or(&Source::Default);
            let line = match self.value(setting) {
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} ="),
            };
            writeln!(f, "{line:<44} # {source}")?;
        }
        f.write_str(&remotes::print(&self.config.flows.registry.remotes))?;
        f.write_str(&self.config.agents.print())
    }
}

impl Loaded {
    /// The value as TOML; `None` where there is none.
    fn value(&self, setting: &Setting) -> Option<String> {
        let text = (setting.get)(&self.config)?;
        Some(match setting.shape {
            Shape::Whole | Shape::Switch => text,
            Shape::Text if setting.key == "store" => {
                toml::Value::String(Redactor::default().text(&text).into_owned()).to_string()
            }
            Shape::Text => toml::Value::String(text).to_string(),
            Shape::List | Shape::Lines => {
                let mut list = String::from("[");
                let between = if setting.shape == Shape::Lines { '\n' } else { ',' };
                for (index, item) in text.split(between).filter(|item| !item.is_empty()).enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    let _ = write!(list, "{comma}{}", toml::Value::String(item.to_owned()));
                }
                list + "]"
            }
        })
    }
}
