//! The `nuncio` binary: the server, and a client that follows the community's `a2a-cli` specification.
//!
//! One file per subcommand, with its flags and its code. A command returns a [`CliError`]; only here does it
//! become a message and an exit code.

mod agent_names;
mod agents;
mod audit;
mod auth;
mod batch;
mod card;
mod card_folder;
mod cert;
mod chat;
mod client_config;
mod command_words;
mod completion;
mod config;
mod conformance;
mod connection;
mod console;
mod console_client;
mod credential_origin;
mod demo_server;
mod error;
mod follow;
mod form;
mod health;
mod init;
mod key;
mod listen;
mod logs;
mod mcp;
mod memory;
mod metrics_endpoint;
mod operator;
mod output;
mod parts;
mod plan;
mod progress;
mod push;
mod questions;
mod scratch_folder;
mod send;
mod serve;
mod server;
mod server_connection;
mod sparc;
mod store;
mod table;
mod task;
mod task_follower;
mod task_questions;
mod tenant;
mod text;
mod tls_flags;
mod token;
mod trust;
mod typed_answer;

use std::{io::Write as _, process::ExitCode};

use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind};
use nuncio_engine::duration;

use self::{error::CliError, output::Format};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An agent server with durable tasks, and a client for A2A agents.
#[derive(Parser)]
#[command(name = "nuncio", version, disable_version_flag = true, propagate_version = true)]
struct Cli {
    /// Print the version
    #[arg(short = 'v', visible_short_alias = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a server with agents
    Serve(serve::Flags),
    /// Write a nuncio.toml with every setting, its default and what it does
    Init(init::InitFlags),
    /// Serve MCP on standard input and output, for clients that start their servers as commands
    Mcp(serve::Flags),
    /// Send a message to an agent, to start a task or to continue one
    Send(send::Flags),
    /// Receive webhooks, verify their sender, and print them
    Listen(listen::Flags),
    /// Talk to agents and servers in this terminal
    Chat(chat::Flags),
    /// Show tasks, follow them, cancel them
    #[command(subcommand)]
    Task(task::Command),
    /// Trust a folder's configuration file, so that `nuncio mcp` starts the programs it names
    Trust(trust::Flags),
    /// Show agent cards
    #[command(subcommand)]
    Card(card::Command),
    /// Open the web console, signed in as the operator
    Console(console::ConsoleFlags),
    /// Create, list, rotate and retire the keys that sign agent cards
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// List webhook deliveries that failed for good, retry them, and manage signing keys
    #[command(subcommand)]
    Push(push::Command),
    /// Store values under keys, search them, export and import them
    Memory(memory::MemoryFlags),
    /// Run work through five phases, each with a gate
    Sparc(sparc::SparcFlags),
    /// Run many operations as one task
    Batch(batch::BatchFlags),
    /// Split work into tasks for several agents, run them, and combine the results
    Plan(plan::PlanFlags),
    /// Ask whether a server takes work: exit code 0, or 1
    Health(health::HealthFlags),
    /// List agents and servers, and their health
    Agents(agents::AgentListFlags),
    /// Make certificates for a look at TLS
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// Create, list and revoke tokens for callers
    #[command(subcommand)]
    Token(token::Command),
    /// Suspend and resume tenants, export and erase their data
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Show the audit log: who did what
    Audit(audit::AuditFlags),
    /// Back stores up, restore, copy, measure, compact and check them
    #[command(subcommand)]
    Store(store::Command),
    /// Sign in at an agent whose card asks for OAuth, and out again
    #[command(subcommand)]
    Auth(auth::AuthCommand),
    /// Show the settings of the client commands, and check those of a server
    #[command(subcommand)]
    Config(client_config::ConfigCommand),
    /// Check a live agent with the core cases of A2A's compatibility kit
    Conformance(conformance::ConformanceFlags),
    /// Run the built-in agents on this machine, to practise with; nothing is stored
    DemoServer(demo_server::DemoServerFlags),
    /// Print the completion script of a shell
    Completion(completion::CompletionFlags),
    /// Write the man pages into a folder
    Man(completion::ManFlags),
}

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let format = cli.command.format();
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => error.report(format),
    }
}

/// Parses the command line, with the values of the client's files as defaults. An error was reported.
fn parse() -> Result<Cli, ExitCode> {
    let arguments: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = client_config::with_file_defaults(Cli::command(), &arguments).map_err(|why| {
        let format = if wants_json() { Format::Json } else { Format::Text };
        CliError::Usage(why).report(format)
    })?;
    let parsed = command.try_get_matches().and_then(|mut matches| {
        Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Cli::command()))
    });
    parsed.map_err(|error| usage(&error))
}

impl Command {
    /// The output format of the command, errors included.
    fn format(&self) -> Format {
        match self {
            Self::Serve(_)
            | Self::Mcp(_)
            | Self::Init(_)
            | Self::Trust(_)
            | Self::Cert(_)
            | Self::Completion(_)
            | Self::DemoServer(_)
            | Self::Man(_) => Format::Text,
            Self::Store(command) => command.format(),
            Self::Conformance(flags) => flags.agent.output.format,
            Self::Auth(command) => command.agent().output.format,
            Self::Config(command) => command.format(),
            Self::Send(flags) => flags.agent.output.format,
            Self::Listen(flags) => flags.format,
            Self::Chat(flags) => flags.format,
            Self::Task(command) => command.format(),
            Self::Card(command) => command.agent().output.format,
            Self::Console(flags) => flags.format(),
            Self::Health(flags) => flags.format(),
            Self::Key(command) => command.format(),
            Self::Push(command) => command.format(),
            Self::Memory(memory) => memory.server.format,
            Self::Sparc(sparc) => sparc.server.format,
            Self::Batch(batch) => batch.server.format,
            Self::Plan(plan) => plan.server.format,
            Self::Agents(agents) => agents.server.format,
            Self::Token(command) => command.format(),
            Self::Tenant(command) => command.format(),
            Self::Audit(flags) => flags.format(),
        }
    }

    fn run(self) -> Result<ExitCode, CliError> {
        let mut builder = match self {
            Self::Send(_)
            | Self::Task(_)
            | Self::Card(_)
            | Self::Auth(_)
            | Self::Config(_)
            | Self::Conformance(_)
            | Self::Cert(_)
            | Self::Completion(_)
            | Self::Man(_)
            | Self::Console(_)
            | Self::Health(_)
            | Self::Key(_)
            | Self::Push(_)
            | Self::Token(_)
            | Self::Tenant(_)
            | Self::Audit(_) => tokio::runtime::Builder::new_current_thread(),
            // These run a server, or may run one.
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder.enable_all().build().map_err(CliError::Runtime)?;
        let code = runtime.block_on(async {
            match self {
                Self::Serve(flags) => serve::run(&flags).await,
                Self::Mcp(flags) => mcp::run(&flags).await,
                Self::Init(flags) => done(flags.run()),
                Self::Send(flags) => send::run(flags).await,
                Self::Listen(flags) => done(flags.run().await),
                Self::Chat(flags) => flags.run().await,
                Self::Task(command) => done(command.run().await),
                Self::Card(command) => done(command.run().await),
                Self::Console(flags) => done(flags.run().await),
                Self::Health(flags) => flags.run().await,
                Self::Key(command) => done(command.run().await),
                Self::Push(command) => done(command.run().await),
                Self::Memory(memory) => done(memory.run().await),
                Self::Sparc(sparc) => sparc.run().await,
                Self::Batch(batch) => batch.run().await,
                Self::Plan(plan) => plan.run().await,
                Self::Agents(agents) => done(agents.run().await),
                Self::Token(command) => done(command.run().await),
                Self::Tenant(command) => done(command.run().await),
                Self::Audit(flags) => done(flags.run().await),
                Self::Store(command) => command.run().await,
                Self::Trust(flags) => done(flags.run()),
                Self::Cert(command) => done(command.run()),
                Self::Auth(command) => done(command.run().await),
                Self::Config(command) => done(command.run()),
                Self::Conformance(flags) => flags.run().await,
                Self::DemoServer(flags) => flags.run().await,
                Self::Completion(flags) => done(flags.run(Cli::command())),
                Self::Man(flags) => done(flags.run(Cli::command())),
            }
        });
        // Background work that still blocks has nothing left to report.
        runtime.shutdown_background();
        code
    }
}

fn done(result: Result<(), CliError>) -> Result<ExitCode, CliError> {
    result.map(|()| ExitCode::SUCCESS)
}

/// Reports what clap returned: help and the version are no errors, and with `-o json` an error is JSON.
fn usage(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    if is_error && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && wants_json() {
        let text = error.render().to_string();
        let text = text.trim().strip_prefix("error: ").unwrap_or(&text).to_owned();
        return CliError::Usage(text).report(Format::Json);
    }
    let _ = error.print();
    let _ = std::io::stdout().flush();
    if is_error { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// Whether a command line that clap could not parse asks for JSON.
fn wants_json() -> bool {
    let args: Vec<String> = std::env::args().collect();
    let pair = |pair: &[String]| matches!(&*pair[0], "-o" | "--output") && pair[1] == "json";
    args.iter().any(|arg| matches!(&**arg, "-ojson" | "-o=json" | "--output=json"))
        || args.windows(2).any(pair)
        || std::env::var("A2ACLI_OUTPUT").is_ok_and(|format| format == "json")
}

/// The name this program was called by, so that a suggested command can be pasted.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    if !called.is_empty() && !called.contains('/') {
        return called;
    }
    let path = std::env::current_exe().map_or(called, |path| path.display().to_string());
    if path.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '$' | '(' | ')' | '&')) {
        return format!("'{}'", path.replace('\'', r"'\''"));
    }
    path
}
