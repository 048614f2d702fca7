//! `nuncio chat`: a client for many servers in one terminal, over any protocol they support.
//!
//! `command` and `arguments` parse a typed line, `session` executes it. `servers` and `follower` keep the
//! connections to servers and runs, `run_store` saves what is needed to resume runs. `line_renderer` formats
//! output; `screen` and `input` are the terminal.

mod arguments;
mod calls;
mod command;
mod commands;
mod complete;
mod follower;
mod input;
mod line_renderer;
mod login;
mod prompt_printer;
mod questions;
mod run_store;
mod sampling;
mod screen;
mod server_address;
mod servers;
mod session;
mod split_line;
mod updates;
mod word_wrap;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{IsTerminal as _, stdin, stdout},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use nuncio_client::{
    mcp::McpLogLevel,
    model::{Model, ModelOptions},
};
use nuncio_engine::Level;
use nuncio_wire::mcp::McpVersion;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

use self::{
    input::ChatInput,
    line_renderer::{ScreenItem, level_name},
    login::LoginOptions,
    prompt_printer::PromptPrinter,
    run_store::RunStore,
    sampling::{Sampling, SamplingPolicy},
    screen::Screen,
    server_address::ChatServerAddress,
    servers::ChatServer,
    session::{ChatInbox, ChatSession, NEWS},
};
use super::{credential_origin::CredentialFlags, error::CliError, output::Format, server};
use crate::{config::LogFormat, logs, tls_flags::TlsFlags};

/// All levels, lowest first.
const LEVELS: [Level; 8] = [
    Level::Debug,
    Level::Info,
    Level::Notice,
    Level::Warning,
    Level::Error,
    Level::Critical,
    Level::Alert,
    Level::Emergency,
];

#[derive(Args)]
pub(crate) struct Flags {
    /// A server: its URL (A2A or MCP), or the command that starts it (MCP). NAME=URL and NAME=COMMAND give it
    /// a name. Repeatable. Default: the local server
    #[arg(short = 's', long = "server", value_name = "URL|COMMAND")]
    servers: Vec<String>,
    /// The revision of MCP to speak. Default: the newest one that the server supports
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    mcp_revision: Option<String>,
    /// The data folder of the local server. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR", conflicts_with = "servers")]
    data: Option<PathBuf>,
    /// Run this one command and exit
    #[arg(short = 'c', long = "command", value_name = "COMMAND")]
    command: Option<String>,
    /// Who answers when a server asks for text from a model
    #[arg(long, default_value = "ask", value_name = "POLICY")]
    sampling: SamplingPolicy,
    /// The model for that: the base URL, without /chat/completions, of an OpenAI-compatible API. Default: the
    /// model of the configuration (model.name)
    #[arg(long, env = "NUNCIO_CHAT_MODEL_URL", value_name = "URL", requires = "model_name")]
    model_url: Option<String>,
    /// The name of that model
    #[arg(long, env = "NUNCIO_CHAT_MODEL_NAME", value_name = "NAME", requires = "model_url")]
    model_name: Option<String>,
    /// The environment variable that holds the key for that model
    #[arg(long, env = "NUNCIO_CHAT_MODEL_KEY_VARIABLE", value_name = "NAME")]
    model_key_variable: Option<String>,
    /// The lowest level of log lines to show
    #[arg(long, default_value = "info", value_name = "LEVEL", value_parser = level)]
    log: Level,
    /// The folder that stores what is needed to resume runs. Default: nuncio/chat in $XDG_STATE_HOME, or in
    /// ~/.local/state
    #[arg(long, env = "NUNCIO_CHAT_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Store nothing of runs, and take up nothing that was stored: a task goes on without this program, and `attach`
    /// with its id comes back to it
    #[arg(long, env = "NUNCIO_CHAT_STATELESS")]
    stateless: bool,
    /// A bearer token for the server; with several servers, NAME=TOKEN with the name of the server. Other
    /// users of this machine can see flags: prefer A2ACLI_BEARER, which takes one or several, separated by
    /// spaces
    #[arg(
        long,
        env = "A2ACLI_BEARER",
        hide_env_values = true,
        value_name = "[NAME=]TOKEN",
        value_delimiter = ' '
    )]
    bearer: Vec<String>,
    #[command(flatten)]
    credentials: CredentialFlags,
    #[command(flatten)]
    tls: TlsFlags,
    /// The account to sign in with, if you have several on one server: tokens and runs are stored separately
    /// for each
    #[arg(long, env = "NUNCIO_CHAT_ACCOUNT", value_name = "NAME", conflicts_with = "bearer")]
    account: Option<String>,
    /// Open the sign-in link (xdg-open) as well as showing it
    #[arg(long, env = "NUNCIO_CHAT_OPEN_LINKS")]
    open_links: bool,
    /// Log the messages exchanged with the servers to the standard error, without credentials
    #[arg(long, env = "A2ACLI_DEBUG")]
    debug: bool,
    /// The output format: with json, one object per line for every event
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
}

impl Flags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let filter = if self.debug { "warn,nuncio_client=debug" } else { "error" };
        logs::start(filter, LogFormat::Text, &Arc::default());
        let state = self.state.clone().map_or_else(default_state, Ok)?;
        let is_one = self.command.is_some();
        let is_terminal =
            stdin().is_terminal() && stdout().is_terminal() && self.format == Format::Text && !is_one;
        let places = match &self.servers[..] {
            [] => vec![ChatServerAddress::local(self.data.clone())],
            servers => servers
                .iter()
                .map(|text| ChatServerAddress::parse(text))
                .collect::<Result<_, _>>()
                .map_err(CliError::Usage)?,
        };
        let (mut screen, input) = self.terminal(is_terminal, &state)?;
        let (tell_servers, servers_news) = mpsc::channel(NEWS);
        let (tell, runs_news) = mpsc::channel(NEWS);
        let (mut servers, mut books, mut taken) = (vec![], vec![], BTreeSet::new());
        let log_level = McpLogLevel::from(self.log);
        let (account, opens) = (self.account.clone(), self.open_links);
        let signing = LoginOptions { account, opens, is_terminal };
        let names: Vec<String> = places.iter().map(|place| place.name(&mut taken)).collect();
        let bearers = server_address::bearers(&places, &names, &self.bearer).map_err(CliError::Usage)?;
        let tls = self.tls.read()?;
        for (number, (place, bearer)) in places.iter().zip(&bearers).enumerate() {
            let tls = place.trust(&tls);
            let bearer = bearer.as_deref();
            if let (ChatServerAddress::Url { url, .. }, Some(_)) = (place, bearer) {
                self.credentials.check(url, Some(url)).map_err(CliError::Usage)?;
            }
            let mut authorizer = place.authorizer(bearer);
            let mut sign_in = None;
            if let (ChatServerAddress::Url { url, .. }, None) = (place, &authorizer) {
                let (oauth, one) =
                    signing.at(number, (place, url), &state, &tell_servers).map_err(CliError::Usage)?;
                (authorizer, sign_in) = (Some(oauth), Some(one));
            }
            let caller = place.caller(bearer, self.account.as_deref());
            let (run_store, remarks) = match self.stateless {
                true => (RunStore::in_memory(&place.key()), vec![]),
                false => RunStore::open(&state, &place.key(), &caller)
                    .map_err(|error| CliError::Usage(format!("{error}; --state names another folder")))?,
            };
            remarks.iter().for_each(|remark| screen.show(&ScreenItem::Wrong(remark), false));
            books.push(run_store);
            let dial = place.dial(authorizer.clone(), &tls, &log_level, self.mcp_revision.as_deref());
            servers.push(ChatServer {
                name: names[number].clone(),
                peer: watch::Sender::new(None),
                offers: vec![],
                away: None,
                known: false,
                _touch: servers::keep_connected(
                    number,
                    dial,
                    place.is_url(),
                    sign_in.clone(),
                    tell_servers.clone(),
                ),
                at: place.clone(),
                authorizer,
                tls,
                sign_in,
                asks: false,
            });
        }
        let mut session = ChatSession {
            servers,
            run_stores: books,
            runs: BTreeMap::new(),
            questions: VecDeque::new(),
            screen,
            input,
            sampling: Sampling { policy: self.sampling, model: self.model()? },
            interrupts: signal(SignalKind::interrupt()).map_err(CliError::Runtime)?,
            news: ChatInbox { servers: servers_news, runs: runs_news, tell },
            watched: BTreeSet::new(),
            asking: None,
            is_unprompted: false,
            put_off: BTreeSet::new(),
            unshown: BTreeSet::new(),
            failed: false,
            resumes: !is_one,
            tasks: vec![],
            contexts: BTreeMap::new(),
            greeted: false,
            log_level,
        };
        let well = session.run().await;
        session.close().await;
        Ok(if well || is_terminal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn terminal(&self, is_terminal: bool, state: &std::path::Path) -> Result<(Screen, ChatInput), CliError> {
        if is_terminal {
            let no = |error: &dyn std::fmt::Display| {
                CliError::Usage(format!("{}: {error}; --state names another folder", state.display()))
            };
            let history = state.join("history");
            let history = (!self.stateless).then_some(history);
            if history.is_some() {
                run_store::private_folder(state).map_err(|error| no(&error))?;
            }
            let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
            let colour = set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
            // A terminal that does not support line editing is read line by line.
            let above = PromptPrinter::default();
            return Ok(match ChatInput::terminal(history, above.clone()) {
                Ok(input) => (Screen::terminal(self.log, colour, above), input),
                Err(_) => (Screen::plain(self.log), ChatInput::plain()),
            });
        }
        let screen =
            if self.format == Format::Json { Screen::json(self.log) } else { Screen::plain(self.log) };
        let input = match &self.command {
            Some(command) => ChatInput::after(command.clone()),
            None => ChatInput::plain(),
        };
        Ok((screen, input))
    }

    /// The model that answers sampling requests, if there is one.
    fn model(&self) -> Result<Option<(Model, String)>, CliError> {
        let configured = server::configured_for(self.data.clone()).model;
        let (options, what) = match (&self.model_url, &self.model_name, configured) {
            (Some(url), Some(name), _) => {
                let mut options = ModelOptions::new(url, name);
                let variable = self.model_key_variable.as_ref();
                options.key = variable.and_then(|variable| std::env::var(variable).ok());
                (options, "--model-url")
            }
            (_, _, Some(model)) => (model.options(), "model.base-url"),
            _ => return Ok(None),
        };
        let model = Model::new(&options).map_err(|error| CliError::Usage(format!("{what}: {error}")))?;
        Ok(Some((model, options.name)))
    }
}

/// The folder that stores what is needed to resume runs, where no flag names one.
pub(crate) fn default_state() -> Result<PathBuf, CliError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        CliError::Usage("neither XDG_STATE_HOME nor HOME is set: --state names a folder".to_owned())
    })?;
    Ok(state.join("nuncio").join("chat"))
}

/// The names of the levels, lowest first.
fn levels() -> impl Iterator<Item = &'static str> {
    LEVELS.into_iter().map(level_name)
}

fn revision(text: &str) -> Result<String, String> {
    let names: Vec<&str> = McpVersion::ALL.iter().map(|version| version.name()).collect();
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("MCP has the revisions {}", names.join(", "))),
    }
}

fn level(text: &str) -> Result<Level, String> {
    let found = LEVELS.into_iter().find(|level| level_name(*level) == text.to_lowercase());
    found.ok_or_else(|| {
        format!("there is no level {text}: one of {}", levels().collect::<Vec<_>>().join(", "))
    })
}
