//! The effective configuration of `nuncio serve`, and the source of each value.
//!
//! The layers (flags, environment, file) are text by key; the effective configuration is a [`Config`].
//! `settings.rs` converts between them, with one row per setting. A flag overrides the environment, the
//! environment overrides the file, and the file overrides the default, which is `Config::default()`.

mod agents;
mod file;
mod print;
mod settings;
mod template;
mod trust;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use nuncio::{
    FlowsOptions, ModelOptions, OtlpOptions, PostgresOptions, Provider, SecurityOptions, ServerOptions,
    StoreLocation, TlsOptions, ToolListFilter,
    engine::{Options, outbox::OutboxOptions},
};

use crate::{
    card_folder::CARD_CACHE,
    server::SERVER_VARIABLE,
    tls_flags::{CA_CERT, CLIENT_CERT, CLIENT_KEY},
};

pub(crate) use agents::AgentTables;
pub(crate) use settings::{SETTINGS, Setting, SettingShape};
pub(crate) use template::commented_settings;
pub(crate) use trust::{is_trusted, trust, writable_by_others};

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) listen: String,
    pub(crate) allow_remote: bool,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) tls: TlsConfig,
    pub(crate) data: PathBuf,
    pub(crate) store: Option<StoreLocation>,
    pub(crate) postgres: PostgresOptions,
    pub(crate) default_agent: Option<String>,
    pub(crate) agent_step: Duration,
    pub(crate) bench_agent: bool,
    pub(crate) builtin_agents: BuiltinAgents,
    pub(crate) allow_private_webhooks: bool,
    pub(crate) https_only_webhooks: bool,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    pub(crate) engine: Options,
    pub(crate) outbox: OutboxOptions,
    pub(crate) server: ServerOptions,
    pub(crate) flows: FlowsOptions,
    pub(crate) security: SecurityOptions,
    pub(crate) otlp: OtlpOptions,
    /// Patterns of secrets, beside the built-in ones.
    pub(crate) redact: Vec<String>,
    /// Agents built from configuration.
    pub(crate) agents: AgentTables,
    pub(crate) model: Option<ModelConfig>,
}

/// The files of TLS. The certificate and the key are set together or not at all.
#[derive(Debug, Clone)]
pub(crate) struct TlsConfig {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) reload_interval: Duration,
}

impl Default for TlsConfig {
    fn default() -> Self {
        let reload_interval = TlsOptions::RELOAD_INTERVAL;
        Self { certificate: None, key: None, client_ca: None, reload_interval }
    }
}

impl TlsConfig {
    /// The server's options, where it has a certificate.
    pub(crate) fn options(&self) -> Option<TlsOptions> {
        let (certificate, key) = (self.certificate.as_ref()?, self.key.as_ref()?);
        Some(TlsOptions {
            client_ca: self.client_ca.clone(),
            reload_interval: self.reload_interval,
            ..TlsOptions::new(certificate, key)
        })
    }

    /// The setting that is missing, and one that needs it.
    fn missing(&self) -> Option<(&'static str, &'static str)> {
        match (&self.certificate, &self.key) {
            (Some(_), None) => Some(("tls-key", "tls-cert")),
            (None, Some(_)) => Some(("tls-cert", "tls-key")),
            (None, None) if self.client_ca.is_some() => Some(("tls-cert", "tls-client-ca")),
            _ => None,
        }
    }
}

/// The server's own model, which answers when a caller has none.
#[derive(Debug, Clone)]
pub(crate) struct ModelConfig {
    pub(crate) provider: Provider,
    pub(crate) name: String,
    pub(crate) base_url: Option<String>,
    pub(crate) key_variable: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retries: Option<u32>,
}

impl ModelConfig {
    /// The client options, with the key from the environment.
    pub(crate) fn options(&self) -> ModelOptions {
        let key = self.key_variable.as_ref().and_then(|name| std::env::var(name).ok());
        if let (Some(name), None) = (&self.key_variable, &key) {
            tracing::warn!("model.key-variable: the variable {name} of the environment is not set");
        }
        let default = ModelOptions::of(self.provider, &self.name);
        ModelOptions {
            url: self.base_url.clone(),
            key,
            timeout: self.timeout.unwrap_or(default.timeout),
            retries: self.retries.unwrap_or(default.retries),
            ..default
        }
    }
}

/// Whether the built-in agents, which are demonstrations, are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinAgents {
    /// Where the configuration has no agent.
    Auto,
    /// Beside those of the configuration.
    On,
    Off,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".into(),
            allow_remote: false,
            socket: None,
            tls: TlsConfig::default(),
            data: "./nuncio-data".into(),
            store: None,
            postgres: PostgresOptions::default(),
            default_agent: None,
            agent_step: nuncio_agents::AgentOptions::default().step,
            bench_agent: false,
            builtin_agents: BuiltinAgents::Auto,
            allow_private_webhooks: false,
            https_only_webhooks: false,
            log: "info".into(),
            log_format: LogFormat::Text,
            engine: Options::default(),
            outbox: OutboxOptions::default(),
            server: ServerOptions::default(),
            flows: FlowsOptions::default(),
            security: SecurityOptions::default(),
            otlp: OtlpOptions::default(),
            redact: vec![],
            agents: AgentTables::default(),
            model: None,
        }
    }
}

impl Config {
    /// Whether the built-in agents are served.
    pub(crate) fn serves_builtin_agents(&self) -> bool {
        match self.builtin_agents {
            BuiltinAgents::Auto => !self.agents.is_any_served(),
            BuiltinAgents::On => true,
            BuiltinAgents::Off => false,
        }
    }

    /// Leaves out the agents of the file, and the settings that name them.
    pub(crate) fn forget_agents(&mut self) {
        self.agents = AgentTables::default();
        self.default_agent = None;
        self.builtin_agents = BuiltinAgents::Auto;
        self.server.mcp.tools = ToolListFilter::default();
    }

    /// Where the tasks are stored.
    pub(crate) fn store_location(&self) -> StoreLocation {
        match &self.store {
            Some(StoreLocation::Postgres { url, .. }) => {
                StoreLocation::Postgres { url: url.clone(), options: self.postgres.clone() }
            }
            Some(place) => place.clone(),
            None => StoreLocation::Sqlite(self.data.clone()),
        }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingSource {
    /// No layer set it.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// The command line.
    Flag(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why the configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The named file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not TOML.
    #[error("{} is not TOML: {message}", path.display())]
    Syntax { path: PathBuf, message: String },
    /// The file has an unknown key.
    #[error("{}: there is no setting {key:?}{}", path.display(), did_you_mean(nearest.as_deref()))]
    UnknownKey { path: PathBuf, key: String, nearest: Option<String> },
    /// Other users can write the file found in the current folder.
    #[error("{} is not used: {why}; remove the write access of others, or name the file with --config", path.display())]
    Untrusted { path: PathBuf, why: String },
    /// A table is invalid.
    #[error("{}: [[{table}]]: {why}", path.display())]
    Table { path: PathBuf, table: &'static str, why: String },
    /// A value is invalid for its setting.
    #[error("{}: {why}", place(key, from))]
    Value { key: String, from: SettingSource, why: String },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

/// Where an invalid value was set.
fn place(key: &str, from: &SettingSource) -> String {
    match from {
        SettingSource::File(path) => format!("{}: {key}", path.display()),
        SettingSource::Flag(name) | SettingSource::Environment(name) => name.clone(),
        SettingSource::Default => key.to_owned(),
    }
}

/// A configuration with the source of each value.
pub(crate) struct LoadedConfig {
    pub(crate) config: Config,
    sources: BTreeMap<&'static str, SettingSource>,
    /// Warnings about settings that are probably mistakes.
    pub(crate) warnings: Vec<String>,
    /// The file that was read, or would have been if it existed.
    pub(crate) file: PathBuf,
    /// Whether the file was found in the current folder, rather than named.
    pub(crate) is_found: bool,
}

impl LoadedConfig {
    /// Whether a layer names the data folder or the store.
    pub(crate) fn names_data(&self) -> bool {
        ["data", "store"].iter().any(|key| self.sources.contains_key(key))
    }

    /// Whether the file names programs to start, or tests to run.
    pub(crate) fn runs_code(&self) -> bool {
        self.config.agents.is_any_served()
            || matches!(self.sources.get("sparc.test-command"), Some(SettingSource::File(_)))
    }
}

/// The command line's values: text by key.
pub(crate) type FlagValues = BTreeMap<&'static str, String>;

/// The file that is read when none is named.
const FILE: &str = "nuncio.toml";

/// Merges the layers. A named file must exist; without a name `nuncio.toml` is read if it exists.
pub(crate) fn load(flags: &FlagValues, file: Option<&Path>) -> Result<LoadedConfig, ConfigError> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| name.starts_with("NUNCIO_") && !value.is_empty())
        .collect();
    let named = file.map(Path::to_owned).or_else(|| environment.get("NUNCIO_CONFIG").map(PathBuf::from));
    let is_found = named.is_none();
    let path = named.or_else(|| Path::new(FILE).is_file().then(|| FILE.into()));
    if let (true, Some(path)) = (is_found, &path) {
        let others = writable_by_others(path);
        if let Some(why) = others.map_err(|source| ConfigError::Read { path: path.clone(), source })? {
            return Err(ConfigError::Untrusted { path: path.clone(), why });
        }
    }
    let from_file = path.as_deref().map(file::read).transpose()?.unwrap_or_default();

    let (mut config, mut sources) = (Config::default(), BTreeMap::new());
    for setting in SETTINGS {
        let (text, source) = if let Some(text) = flags.get(setting.key) {
            (text, SettingSource::Flag(format!("--{}", setting.key)))
        } else if let Some((name, text)) = one_variable(setting, &environment)? {
            (text, SettingSource::Environment(name))
        } else if let (Some(text), Some(path)) = (from_file.values.get(setting.key), &path) {
            (text, SettingSource::File(path.clone()))
        } else {
            continue;
        };
        (setting.set)(&mut config, text).map_err(|why| ConfigError::Value {
            key: setting.key.into(),
            from: source.clone(),
            why,
        })?;
        sources.insert(setting.key, source);
    }
    config.agents = from_file.agents;
    complete(&config, &sources)?;
    let key_variable = config.model.as_ref().and_then(|model| model.key_variable.clone());
    config.flows.sparc.secret_env.extend(key_variable);
    let file = path.unwrap_or_else(|| FILE.into());
    Ok(LoadedConfig { config, sources, warnings: unknown_variables(environment.keys()), file, is_found })
}

/// Checks settings that are valid only together.
fn complete(config: &Config, sources: &BTreeMap<&'static str, SettingSource>) -> Result<(), ConfigError> {
    if config.model.as_ref().is_some_and(|model| model.name.is_empty()) {
        let set = ["model.provider", "model.base-url", "model.key-variable"];
        let key = set.into_iter().find(|key| sources.contains_key(key)).unwrap_or("model.name");
        let from = sources.get(key).cloned().unwrap_or(SettingSource::Default);
        return Err(ConfigError::Value {
            key: key.into(),
            from,
            why: "a model also needs model.name: set it".into(),
        });
    }
    if let Some((missing, set)) = config.tls.missing() {
        let from = sources.get(set).cloned().unwrap_or(SettingSource::Default);
        let why =
            format!("it needs {missing} as well: name the PEM file (nuncio cert self-signed makes a pair)");
        return Err(ConfigError::Value { key: set.into(), from, why });
    }
    Ok(())
}

/// The environment variable of a setting, if it is set. Its former name may be set as well, to the same value.
fn one_variable<'a>(
    setting: &Setting,
    environment: &'a BTreeMap<String, String>,
) -> Result<Option<(String, &'a String)>, ConfigError> {
    let mut set = setting.environment().filter_map(|name| environment.get(&name).map(|text| (name, text)));
    let first = set.next();
    match (&first, set.next()) {
        (Some((name, text)), Some((former, other))) if other != *text => Err(ConfigError::Value {
            key: setting.key.into(),
            from: SettingSource::Environment(former),
            why: same_setting(name),
        }),
        _ => Ok(first),
    }
}

/// Why a setting that is given twice, with two values, is invalid.
fn same_setting(key: &str) -> String {
    format!("{key} is the same setting and has another value: remove one of the two")
}

/// The environment is shared with other programs, so an unknown variable is only a warning.
fn unknown_variables<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let known: Vec<String> = SETTINGS.iter().flat_map(Setting::environment).collect();
    let client = ["NUNCIO_CONFIG", SERVER_VARIABLE, CARD_CACHE, CA_CERT, CLIENT_CERT, CLIENT_KEY];
    // Of `nuncio chat`, of the tests of this program, and of its build script, which `cargo run` passes on.
    let others = ["NUNCIO_CHAT_", "NUNCIO_TEST_", "NUNCIO_COMMIT"];
    let is_other =
        |name: &str| client.contains(&name) || others.iter().any(|prefix| name.starts_with(prefix));
    let unknown = names.filter(|name| !is_other(name) && !known.contains(name));
    unknown
        .map(|name| match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("{name} means nothing here: did you mean {near}?"),
            None => format!("{name} means nothing here"),
        })
        .collect()
}

/// The known name most similar to an unknown one.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate.to_owned())
}

#[cfg(test)]
mod tests {
    use super::unknown_variables;

    #[test]
    fn a_variable_of_client_commands_is_no_unknown_setting() {
        let names = ["NUNCIO_CARDS_CACHE", "NUNCIO_CARD_CACHE", "NUNCIO_CA_CERT"].map(str::to_owned);
        let warnings = unknown_variables(names.iter());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("NUNCIO_CARDS_CACHE means nothing here"), "{warnings:?}");
    }

    #[test]
    fn what_cargo_run_passes_on_is_no_unknown_setting() {
        assert!(unknown_variables(["NUNCIO_COMMIT".to_owned()].iter()).is_empty());
    }
}
