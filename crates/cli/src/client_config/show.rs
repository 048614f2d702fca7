//! `nuncio config show`: the effective settings of the client commands, each with its source. It changes nothing, and
//! secrets are not shown.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    CLIENT_SETTINGS, ClientSource, ClientSources, SettingKind, card_folder, env_file::user_file, token_folder,
};
use crate::{
    chat,
    config::{self, FlagValues},
    connection::AgentFlags,
    error::CliError,
    output::{self, Format},
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective settings of the client commands, and where each value comes from
    Show(Box<ShowFlags>),
    /// Check the configuration of a server as `nuncio serve` reads it here, and start nothing
    Check(CheckFlags),
}

#[derive(Args)]
pub(crate) struct CheckFlags {
    /// The file. Default: the one that `nuncio serve` would read here
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl CheckFlags {
    fn run(self) -> Result<(), CliError> {
        let loaded = config::load(&FlagValues::new(), self.file.as_deref())?;
        loaded.config.agents.specs(&loaded.config.data)?;
        loaded.warnings.iter().for_each(|warning| output::note(warning));
        output::text(&match loaded.file.is_file() {
            true => format!("{} is valid.\n", loaded.file.display()),
            false => format!("There is no {}: every setting has its default.\n", loaded.file.display()),
        })
    }
}

#[derive(Args)]
pub(crate) struct ShowFlags {
    #[command(flatten)]
    agent: AgentFlags,
    /// The maximum number of history messages that `task get` and `task list` show
    #[arg(long, env = "A2ACLI_HISTORY", value_name = "N")]
    history: Option<usize>,
}

/// A setting and its effective value.
pub(crate) struct ShownSetting {
    pub(crate) variable: &'static str,
    pub(crate) value: Option<String>,
}

impl ConfigCommand {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Show(flags) => flags.agent.output.format,
            Self::Check(_) => Format::Text,
        }
    }

    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Show(flags) => flags.run(),
            Self::Check(flags) => flags.run(),
        }
    }
}

impl ShowFlags {
    fn run(self) -> Result<(), CliError> {
        let Self { history, agent } = self;
        let mut values = agent.shown_settings();
        values.push(ShownSetting { variable: "A2ACLI_HISTORY", value: history.map(|n| n.to_string()) });
        let sources = agent.sources();
        let rows = CLIENT_SETTINGS.iter().map(|setting| {
            let value = values.iter().find(|value| value.variable == setting.variable);
            let value = value.and_then(|value| value.value.clone());
            let is_secret = setting.kind == SettingKind::Secret;
            (setting, value.map(|value| if is_secret { "(hidden)".to_owned() } else { value }))
        });
        // What the program itself stores for its user, to be looked at and removed.
        let folders = [
            ("chat-state", chat::default_state().ok()),
            ("tokens", token_folder()),
            ("cards", card_folder()),
        ];
        if agent.output.is_json() {
            let settings: Vec<_> = rows
                .map(|(setting, value)| {
                    let source = sources.of(setting.variable);
                    json!({
                        "name": setting.flag, "variable": setting.variable, "value": value,
                        "source": source_name(&source), "file": source_file(&source),
                        "secret": setting.kind == SettingKind::Secret,
                    })
                })
                .collect();
            let folders: serde_json::Map<_, _> =
                folders.into_iter().map(|(name, path)| (name.to_owned(), json!(path))).collect();
            let document = json!({
                "settings": settings, "files": sources.files.read, "userFile": user_file(),
                "folders": folders, "notes": sources.files.notes,
            });
            return output::json_text(&document.to_string());
        }
        output::text(&text(
            sources,
            rows.map(|(setting, value)| (setting.flag, setting.variable, value)),
            &folders,
        ))
    }
}

fn text<'a>(
    sources: &ClientSources,
    rows: impl Iterator<Item = (&'a str, &'a str, Option<String>)>,
    folders: &[(&str, Option<PathBuf>)],
) -> String {
    let mut text = TextOutput::default();
    for (flag, variable, value) in rows {
        let source = match sources.of(variable) {
            ClientSource::Flag => format!("flag --{flag}"),
            ClientSource::Environment => format!("environment {variable}"),
            source => source.to_string(),
        };
        text.field(flag, &format!("{} ({source})", value.as_deref().unwrap_or("not set")));
    }
    text.gap();
    for path in &sources.files.read {
        text.field("File", &path.display().to_string());
    }
    if let Some(path) = user_file() {
        text.field("User file", &path.display().to_string());
    }
    for (name, path) in folders {
        if let Some(path) = path {
            text.field(name, &path.display().to_string());
        }
    }
    for note in &sources.files.notes {
        text.field("Note", note);
    }
    text.0
}

fn source_name(source: &ClientSource) -> &'static str {
    match source {
        ClientSource::Flag => "flag",
        ClientSource::Environment => "environment",
        ClientSource::File { .. } => "file",
        ClientSource::Default => "default",
    }
}

fn source_file(source: &ClientSource) -> Option<&PathBuf> {
    match source {
        ClientSource::File { path, .. } => Some(path),
        _ => None,
    }
}
