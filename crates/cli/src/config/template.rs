//! A commented `nuncio.toml`, written from the table of settings. A line with `#` and no space is a setting: without the
//! `#` it is in force.

use std::fmt::Write as _;

use super::{Config, SETTINGS, Setting, print::toml_value};

/// Characters of a line of prose.
const WIDTH: usize = 110;

const HEAD: &str = "\
# The settings of nuncio. Remove the # before a line to change a setting; the value shown is the default, or an example
# where there is none.
#
#   nuncio serve --print-config     every setting with its value, and where that comes from
#
# Agents are read again within a second after a change, everything else at the next start.
";

const AGENTS: &str = r#"
# Agents: a table [[agent]] for each. This one is a program that reads the message from its standard input and prints the
# answer.
#[[agent]]
#name = "shout"
#kind = "process"
#command = ["tr", "a-z", "A-Z"]
#speaks = "lines"
"#;

/// Examples for settings without a default, by key.
const EXAMPLES: [(&str, &str); 7] = [
    ("store", "postgres://nuncio@localhost/nuncio"),
    ("default-agent", "echo"),
    ("trusted-proxies", "127.0.0.1"),
    ("model.provider", "openai"),
    ("model.name", "gpt-5"),
    ("redact", "internal-[0-9]+"),
    ("jwt.jwks-url", "https://login.example.com/jwks.json"),
];

/// Examples for other settings without a default, by the placeholder of their value.
const PLACEHOLDERS: [(&str, &str); 13] = [
    ("PATH", "nuncio.sock"),
    ("FILE", "file.pem"),
    ("DIR", "folder"),
    ("URL", "https://agents.example.com"),
    ("NAME", "name"),
    ("NAMES", "name"),
    ("ORIGINS", "https://app.example.com"),
    ("RATE", "100/s"),
    ("SCOPES", "read:a2a"),
    ("TENANTS", "acme"),
    ("WORDS", "make"),
    ("DURATION", "30s"),
    ("N", "1"),
];

/// The file's content.
pub(crate) fn commented_settings() -> String {
    let (mut out, mut section) = (HEAD.to_owned(), None);
    let defaults = Config::default();
    for setting in SETTINGS {
        if setting.section() != section {
            section = setting.section();
            let _ = write!(out, "\n[{}]\n", section.unwrap_or_default());
        }
        out.push('\n');
        out.push_str(&prose(setting.about));
        let _ = writeln!(out, "#{}", assignment(setting, &defaults));
    }
    out + AGENTS
}

fn assignment(setting: &Setting, defaults: &Config) -> String {
    let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
    let text = (setting.get)(defaults).filter(|text| !text.is_empty());
    let text = text.unwrap_or_else(|| example(setting).to_owned());
    format!("{name} = {}", toml_value(setting, &text))
}

fn example(setting: &Setting) -> &'static str {
    let by_key = EXAMPLES.iter().find(|(key, _)| *key == setting.key);
    let by_placeholder = || PLACEHOLDERS.iter().find(|(name, _)| *name == setting.value_name);
    by_key.or_else(by_placeholder).map_or("", |(_, example)| example)
}

/// A sentence as comment lines.
fn prose(sentence: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::file;

    /// The file with every setting in force.
    fn uncommented() -> String {
        let is_setting = |line: &str| {
            line.strip_prefix('#').is_some_and(|rest| !rest.starts_with([' ', '#']) && !rest.is_empty())
        };
        let line = |line: &str| if is_setting(line) { line[1..].to_owned() } else { line.to_owned() };
        commented_settings().lines().map(line).collect::<Vec<_>>().join("\n")
    }

    fn parsed(content: &str) -> file::ConfigFile {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nuncio.toml");
        std::fs::write(&path, content).unwrap();
        file::read(Path::new(&path)).unwrap_or_else(|error| panic!("{error}\n{content}"))
    }

    #[test]
    fn a_new_file_sets_nothing() {
        let read = parsed(&commented_settings());
        assert!(read.values.is_empty(), "{:?}", read.values);
        assert!(!read.agents.is_any_served());
    }

    #[test]
    fn every_commented_setting_is_one_and_its_value_is_taken() {
        let read = parsed(&uncommented());
        let missing: Vec<_> =
            SETTINGS.iter().map(|setting| setting.key).filter(|key| !read.values.contains_key(key)).collect();
        assert!(missing.is_empty(), "not in the file: {missing:?}");
        for setting in SETTINGS {
            let text = &read.values[setting.key];
            let set = (setting.set)(&mut Config::default(), text);
            assert_eq!(set, Ok(()), "{} = {text:?}", setting.key);
        }
        assert!(read.agents.is_any_served(), "the example of an agent is there");
    }
}
