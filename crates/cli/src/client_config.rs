//! The configuration of the client commands: which value each setting has, and where it comes from.
//!
//! A flag overrides the environment (`A2ACLI_…`), the environment overrides the local file (`.env` in this folder or
//! above, or the one of `--config`), the local file overrides the user's (`~/.config/a2a-cli/.env`), and that one the
//! built-in default. `env_file` reads the files; the values become defaults of the command line, so that the flags are
//! parsed in one place. Files configure, they never hold a task or a conversation (`a2a-cli`, section 8.3).
//!
//! A `.env` that was found, not named, may have come with a cloned repository. It gets no credentials that it does not
//! bring itself, its credentials go to no other agent, and it cannot switch the verification of certificates off.

mod env_file;
mod show;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

pub(crate) use self::{
    env_file::ClientFiles,
    show::{ConfigCommand, ShownSetting},
};

/// A setting of the client that a file may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientSetting {
    /// The long flag.
    pub(crate) flag: &'static str,
    /// The flag's id in the parser.
    id: &'static str,
    /// The environment variable, and the name in a file.
    pub(crate) variable: &'static str,
    kind: SettingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingKind {
    Plain,
    /// Its value is never shown, and a file that others can read does not have it.
    Secret,
    /// A file that was found, not named, does not have it.
    Trusted,
}

const fn setting(
    flag: &'static str,
    id: &'static str,
    variable: &'static str,
    kind: SettingKind,
) -> ClientSetting {
    ClientSetting { flag, id, variable, kind }
}

pub(crate) const AGENT_CARD: &str = "A2ACLI_AGENT_CARD";
pub(crate) const BEARER: &str = "A2ACLI_BEARER";
pub(crate) const API_KEY: &str = "A2ACLI_API_KEY";

/// Every setting that a file may have, in the order in which they are shown.
pub(crate) const CLIENT_SETTINGS: [ClientSetting; 12] = [
    setting("agent-card", "agent_card", AGENT_CARD, SettingKind::Plain),
    setting("a2a-version", "a2a_version", "A2ACLI_A2A_VERSION", SettingKind::Plain),
    setting("transport", "transport", "A2ACLI_TRANSPORT", SettingKind::Plain),
    setting("bearer", "bearer", BEARER, SettingKind::Secret),
    setting("api-key", "api_key", API_KEY, SettingKind::Secret),
    setting("timeout", "timeout", "A2ACLI_TIMEOUT", SettingKind::Plain),
    setting("poll-interval", "poll_interval", "A2ACLI_POLL_INTERVAL", SettingKind::Plain),
    setting("history", "history", "A2ACLI_HISTORY", SettingKind::Plain),
    setting("output", "format", "A2ACLI_OUTPUT", SettingKind::Plain),
    setting("verbose", "verbose", "A2ACLI_VERBOSE", SettingKind::Plain),
    setting("debug", "debug", "A2ACLI_DEBUG", SettingKind::Plain),
    setting("insecure", "insecure", "A2ACLI_INSECURE", SettingKind::Trusted),
];

/// The commands that the files configure: those that talk to an agent.
const CLIENT_COMMANDS: [&str; 6] = ["send", "task", "card", "auth", "conformance", "config"];

/// Where a value of the client comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientSource {
    Flag,
    Environment,
    /// A file; whether it was found, not named.
    File {
        path: PathBuf,
        is_found: bool,
    },
    Default,
}

impl std::fmt::Display for ClientSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::File { path, .. } => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// `--config`, and the source of every value of one command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientSources {
    pub(crate) files: ClientFiles,
    given: BTreeMap<&'static str, ValueSource>,
}

impl ClientSources {
    /// The source of a setting, by its variable.
    pub(crate) fn of(&self, variable: &str) -> ClientSource {
        match self.given.get(variable) {
            Some(ValueSource::CommandLine) => ClientSource::Flag,
            Some(ValueSource::EnvVariable) => ClientSource::Environment,
            _ => match self.files.value(variable) {
                Some(value) => ClientSource::File { path: value.file.clone(), is_found: value.is_found },
                None => ClientSource::Default,
            },
        }
    }

    /// The found file that a setting comes from.
    fn found_file(&self, variable: &str) -> Option<PathBuf> {
        match self.of(variable) {
            ClientSource::File { path, is_found: true } => Some(path),
            _ => None,
        }
    }

    /// The found file that names the agent.
    pub(crate) fn found_agent(&self) -> Option<PathBuf> {
        self.found_file(AGENT_CARD)
    }

    /// Checks that a credential and the agent come from the same found file, or neither from one: the author of a
    /// found file must get no token of the user, and the user's requests must not be made in the author's name.
    pub(crate) fn check_credential(&self, variable: &str) -> Result<(), String> {
        let (agent, credential) = (self.found_agent(), self.found_file(variable));
        match (&agent, &credential) {
            (Some(agent), None) => Err(format!(
                "{} names the agent, and {variable} is not its own: it is not sent there; name the agent with -a, or \
                 the file with --config",
                agent.display()
            )),
            (None, Some(file)) => Err(format!(
                "{variable} of {} is not sent to an agent that the file does not name: name the file with --config",
                file.display()
            )),
            _ => Ok(()),
        }
    }
}

impl Args for ClientSources {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new("config").long("config").env("A2ACLI_CONFIG").value_name("FILE").help(
                "Read the settings A2ACLI_… of this file, in place of the .env in this folder or above",
            ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ClientSources {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = matches.get_one::<String>("config").map(PathBuf::from);
        // A file that cannot be read was reported before the command line was parsed.
        let files = ClientFiles::load(named.as_deref()).unwrap_or_default();
        let given = CLIENT_SETTINGS.iter().filter_map(|setting| {
            matches.try_contains_id(setting.id).ok()?;
            Some((setting.variable, matches.value_source(setting.id)?))
        });
        Ok(Self { files, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Makes the values of the files the defaults of the command line. Other commands stay as they are.
pub(crate) fn with_file_defaults(command: Command, arguments: &[String]) -> Result<Command, String> {
    let Some(first) = arguments.get(1).filter(|word| CLIENT_COMMANDS.contains(&word.as_str())) else {
        return Ok(command);
    };
    let files = ClientFiles::load(named_file(arguments).as_deref())?;
    if files.is_empty() {
        return Ok(command);
    }
    Ok(command.mut_subcommand(first, |command| with_defaults(command, &files)))
}

fn with_defaults(command: Command, files: &ClientFiles) -> Command {
    let set = |arg: Arg| {
        let variable = arg.get_env().and_then(|name| name.to_str()).map(str::to_owned);
        let value = variable.and_then(|variable| files.value(&variable).cloned());
        match value {
            // The parser takes texts that live as long as the process, which parses one command line.
            Some(value) => {
                let text: &'static str = Box::leak(value.text.into_boxed_str());
                // The help shows no value of a file, which may be a secret; a switch has none to show.
                let takes_value = arg.get_action().takes_values();
                let arg = arg.default_value(text);
                if takes_value { arg.hide_default_value(true) } else { arg }
            }
            None => arg,
        }
    };
    command.mut_args(set).mut_subcommands(|command| with_defaults(command, files))
}

/// The file that `--config` or the environment names, before the command line is parsed.
fn named_file(arguments: &[String]) -> Option<PathBuf> {
    let flags = arguments.iter().take_while(|word| *word != "--");
    let mut flags = flags.skip_while(|word| *word != "--config" && !word.starts_with("--config="));
    let named = flags.next().and_then(|word| match word.strip_prefix("--config=") {
        Some(path) => Some(path.to_owned()),
        None => flags.next().cloned(),
    });
    let named = named.or_else(|| std::env::var("A2ACLI_CONFIG").ok());
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The folder of the user's configuration or state: the variable's, or one in the home folder.
pub(crate) fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(in_home)))
}

/// The folder of agent cards that commands fetched.
pub(crate) fn card_folder() -> Option<PathBuf> {
    user_folder("XDG_CACHE_HOME", ".cache").map(|cache| cache.join(Path::new("nuncio/cards")))
}

/// The folder of tokens that `nuncio auth login` stored.
pub(crate) fn token_folder() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state").map(|state| state.join(Path::new("nuncio/tokens")))
}
