//! `nuncio serve`: the server with its built-in agents and those of `nuncio.toml`.

mod reload;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use nuncio::{
    Nuncio, OtlpOptions, RunningServer, ServerEnd, ShutdownSignals, StartError, StoreLocation, engine::Agent,
};
use nuncio_agents::{AgentOptions, BenchAgent, built_in};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::reload::ConfigReloader;
use super::{error::CliError, output, program};
use crate::{
    config::{
        self, Config, ConfigError, FlagValues, LoadedConfig, LogFormat, SETTINGS, Setting, SettingShape,
    },
    logs,
    metrics_endpoint::{self, COMMIT},
};

/// The flag that serves the built-in agents, and the setting that it stands for.
const DEMO: &str = "demo";
const BUILTIN_AGENTS: &str = "builtin-agents";

/// The flags of one command line: as given, not the effective configuration.
pub(crate) struct Flags {
    pub(super) given: FlagValues,
    pub(super) config: Option<PathBuf>,
    print_config: bool,
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let command = command
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .help("The configuration file. Default: nuncio.toml, if there is one here"),
            )
            .arg(
                Arg::new("print-config")
                    .long("print-config")
                    .action(ArgAction::SetTrue)
                    .help("Print the effective configuration, with the source of each value, and end"),
            )
            .after_help(
                "Every setting can also be given as NUNCIO_… in the environment (NUNCIO_MAX_RUNNING) and in \
                 nuncio.toml (max-running); a flag overrides both. --print-config shows all of them, \
                 with those that have no flag.",
            );
        let command = command.arg(
            Arg::new(DEMO).long(DEMO).action(ArgAction::SetTrue).conflicts_with(BUILTIN_AGENTS).help(
                "Serve the built-in agents beside those of nuncio.toml: short for --builtin-agents true",
            ),
        );
        let defaults = Config::default();
        with_flags().fold(command, |command, setting| command.arg(flag(setting, &defaults)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Flags {
    /// Whether the flag or the variable asks for a log in JSON, where the configuration as a whole cannot be read.
    fn log_format_is_json(&self) -> bool {
        let given = self.given.get("log-format").cloned();
        given.or_else(|| std::env::var("NUNCIO_LOG_FORMAT").ok()).as_deref() == Some("json")
    }
}

fn with_flags() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| setting.section().is_none())
}

fn flag(setting: &'static Setting, defaults: &Config) -> Arg {
    let mut help = setting.about.to_owned();
    if let Some(default) = (setting.get)(defaults).filter(|text| !text.is_empty() && text != "false") {
        let _ = write!(help, " [default: {default}]");
    }
    let arg = Arg::new(setting.key).long(setting.key).help(help);
    if setting.shape == SettingShape::Switch {
        // The flag alone means true; `=false` switches off what the file switches on.
        return arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
            .hide_possible_values(true);
    }
    arg.value_name(setting.value_name)
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = with_flags()
            .filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone())))
            .collect::<BTreeMap<_, _>>();
        if matches.get_flag(DEMO) {
            given.insert(BUILTIN_AGENTS, "true".to_owned());
        }
        Ok(Self {
            given,
            config: matches.get_one::<String>("config").map(PathBuf::from),
            print_config: matches.get_flag("print-config"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) async fn run(flags: &Flags) -> Result<ExitCode, CliError> {
    nuncio::raise_descriptor_limit();
    let loaded = match config::load(&flags.given, flags.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(error) if flags.log_format_is_json() => {
            logs::start("info", LogFormat::Json, &Arc::default());
            return Ok(CliError::Config(error).log());
        }
        Err(error) => return Err(error.into()),
    };
    if flags.print_config {
        loaded.config.agents.specs(&loaded.config.data)?;
        output::text(&loaded.to_string())?;
        loaded.warnings.iter().for_each(|warning| output::note(warning));
        return Ok(ExitCode::SUCCESS);
    }
    let config = &loaded.config;
    logs::start(&config.log, config.log_format, &config.engine.access.redactor);
    log_start(&loaded);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match serve(flags, &loaded).await {
        Err(error) if config.log_format == LogFormat::Json => Ok(error.log()),
        ended => ended,
    }
}

/// The first line of the log: what was started, and with what.
fn log_start(loaded: &LoadedConfig) {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (version, commit) = (env!("CARGO_PKG_VERSION"), COMMIT);
    let (store, data) = match loaded.config.store_location() {
        StoreLocation::Sqlite(folder) if folder == loaded.config.data => ("sqlite", &loaded.config.data),
        StoreLocation::Sqlite(_) => ("sqlite, in a folder of its own", &loaded.config.data),
        StoreLocation::Postgres { .. } => ("postgres", &loaded.config.data),
    };
    let data = absolute(data);
    let config = match loaded.file.is_file() {
        true => absolute(&loaded.file).display().to_string(),
        false => "none".to_owned(),
    };
    tracing::info!(version, commit, store, data = %data.display(), config, "starting");
}

async fn serve(flags: &Flags, loaded: &LoadedConfig) -> Result<ExitCode, CliError> {
    let mut config = loaded.config.clone();
    config.server.settings = loaded.effective_settings();
    let signals = ShutdownSignals::new()?;
    let hangup = signal(SignalKind::hangup()).map_err(CliError::Runtime)?;
    let reload = ConfigReloader::new(&flags.given, loaded);
    let running = server(config)?.start().await.map_err(|error| match error {
        StartError::Configured(error) => CliError::Config(loaded.config.agents.wrong(&error)),
        error => CliError::Start(error),
    })?;
    tokio::spawn(reload.run(running.fleet().clone(), hangup));
    announce(&running, loaded.config.log_format)?;
    match running.until(signals).await {
        ServerEnd::Stopped => Ok(ExitCode::SUCCESS),
        // 128 + SIGINT, as a shell would have it.
        ServerEnd::AtOnce => std::process::exit(130),
    }
}

/// Prints where the server is reached: for people, or as one line of JSON.
fn announce(running: &RunningServer, format: LogFormat) -> Result<(), CliError> {
    if format == LogFormat::Text {
        let try_it = format!("\nTry it:\n  {} send -a {} \"Hello\"\n", program(), running.url());
        return output::text(&format!("{}{try_it}", running.places()));
    }
    let catalog = running.engine().catalog();
    let agents: Vec<String> = catalog.iter().map(|agent| agent.profile.name.clone()).collect();
    let default = catalog.default_agent().map(|agent| agent.profile.name.clone());
    let line = json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "level": "INFO",
        "message": "listening",
        "url": running.url(),
        "public_url": running.base_url(),
        "agents": agents,
        "default_agent": default,
    });
    output::json_text(&line.to_string())
}

/// Builds the server of a configuration, without starting it.
pub(super) fn server(config: Config) -> Result<Nuncio, ConfigError> {
    let place = config.store_location();
    let configured = config.agents.specs(&config.data)?;
    let agents = built_in_agents(&config);
    let Config { mut server, .. } = config;
    server.metrics = metrics_endpoint::start();
    let nuncio = match config.socket {
        Some(path) => Nuncio::new().socket(path),
        None => Nuncio::new(),
    };
    let nuncio = match config.tls.options() {
        Some(tls) => nuncio.tls(tls),
        None => nuncio,
    };
    let nuncio = nuncio
        .configured(configured)
        .agents(agents)
        .listen(config.listen)
        .allow_remote(config.allow_remote)
        .data(config.data)
        .store(place)
        .allow_private_webhooks(config.allow_private_webhooks)
        .https_only_webhooks(config.https_only_webhooks)
        .options(config.engine)
        .outbox_options(config.outbox)
        .server_options(server)
        .flows(config.flows)
        .security(config.security)
        .otlp(otlp(config.otlp));
    let nuncio = match config.model.map(|model| model.options()) {
        Some(model) => nuncio.model(model),
        None => nuncio,
    };
    Ok(match config.default_agent {
        Some(name) => nuncio.default_agent(name),
        None => nuncio,
    })
}

/// The trace options, with headers from the environment: headers may contain a key, which does not belong in
/// a file.
fn otlp(options: OtlpOptions) -> OtlpOptions {
    let headers = std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let headers = headers.split(',').filter_map(|header| header.split_once('='));
    let headers = headers.map(|(name, value)| (decoded(name.trim()), decoded(value.trim()))).collect();
    OtlpOptions { headers, ..options }
}

/// Decodes percent-encoding, as that variable has it. An invalid code is left as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        let code = (byte == b'%').then(|| more.get(..2)).flatten().and_then(|code| str::from_utf8(code).ok());
        let code =
            code.filter(|code| !code.starts_with('+')).and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The built-in agents that the configuration wants, the default one first.
fn built_in_agents(config: &Config) -> Vec<Arc<dyn Agent>> {
    let bench = config.bench_agent.then(|| Arc::new(BenchAgent) as Arc<dyn Agent>);
    let demo = config.serves_builtin_agents().then(|| built_in(&AgentOptions { step: config.agent_step }));
    bench.into_iter().chain(demo.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_environment_are_percent_encoded() {
        for (text, meant) in [
            ("Basic%20abc%3D", "Basic abc="),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%c3%a9", "é"),
            ("%ff", "%ff"),
            ("", ""),
        ] {
            assert_eq!(decoded(text), meant);
        }
    }
}
