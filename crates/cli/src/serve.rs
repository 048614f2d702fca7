//! `nuncio serve`: the server with its built-in agents and those of `nuncio.toml`.

mod reload;

use std::{
    collections::BTreeMap, fmt::Write as _, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use nuncio::{Nuncio, OtlpOptions, ServerEnd, ShutdownSignals, StartError, engine::Agent};
use nuncio_agents::{AgentOptions, BenchAgent, built_in};
use tokio::signal::unix::{SignalKind, signal};

use self::reload::ConfigReloader;
use super::{error::CliError, output, program};
use crate::{
    config::{self, Config, ConfigError, FlagValues, SETTINGS, Setting, SettingShape},
    logs,
};

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
        let defaults = Config::default();
        with_flags().fold(command, |command, setting| command.arg(flag(setting, &defaults)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
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
        let given = with_flags()
            .filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone())))
            .collect::<BTreeMap<_, _>>();
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
    let loaded = config::load(&flags.given, flags.config.as_deref())?;
    if flags.print_config {
        loaded.config.agents.specs(&loaded.config.data)?;
        output::text(&loaded.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut config = loaded.config.clone();
    config.server.settings = loaded.effective_settings();
    logs::start(&config.log, config.log_format, &config.engine.access.redactor);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let signals = ShutdownSignals::new()?;
    let hangup = signal(SignalKind::hangup()).map_err(CliError::Runtime)?;
    let reload = ConfigReloader::new(&flags.given, &loaded);
    let running = server(config)?.start().await.map_err(|error| match error {
        StartError::Configured(error) => CliError::Config(loaded.config.agents.wrong(&error)),
        error => CliError::Start(error),
    })?;
    tokio::spawn(reload.run(running.fleet().clone(), hangup));
    let try_it = format!("\nTry it:\n  {} send -a {} \"Hello\"\n", program(), running.url());
    output::text(&format!("{}{try_it}", running.places()))?;
    match running.until(signals).await {
        ServerEnd::Stopped => Ok(ExitCode::SUCCESS),
        // 128 + SIGINT, as a shell would have it.
        ServerEnd::AtOnce => std::process::exit(130),
    }
}

/// Builds the server of a configuration, without starting it.
pub(super) fn server(config: Config) -> Result<Nuncio, ConfigError> {
    let place = config.store_location();
    let configured = config.agents.specs(&config.data)?;
    let Config { mut server, .. } = config;
    server.metrics = metrics().map(|handle| {
        let render: Arc<dyn Fn() -> String + Send + Sync> = Arc::new(move || handle.render());
        render
    });
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
        .agents(agents(&config.agent_step, config.bench_agent))
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

/// The built-in agents, the default one first.
fn agents(step: &Duration, bench: bool) -> Vec<Arc<dyn Agent>> {
    let bench = bench.then(|| Arc::new(BenchAgent) as Arc<dyn Agent>);
    bench.into_iter().chain(built_in(&AgentOptions { step: *step })).collect()
}

/// Starts to record the metrics of this process.
fn metrics() -> Option<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .install_recorder()
        .inspect_err(|error| tracing::warn!(%error, "there will be no figures at /metrics"))
        .ok()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Some(handle)
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
