//! The way to what is shared (memory, workflows, batches, the registry): the flags that say which server, and the
//! calls of its tools.
//!
//! A server that is named is called by its address, a local one is found by what its data folder tells. Where none
//! runs, one runs in this process for as long as the command does, so that the commands work on a folder alone.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use nuncio::{RunningServer, data_dir::PublishedServer};
use nuncio_client::mcp::{ToolClient, ToolError, ToolOptions, ToolTaskView};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::Instant};
use url::Url;

use super::{
    connection::{AgentTarget, TargetOrigin, trace_from_environment},
    credential_origin::CredentialFlags,
    error::{CliError, TaskResumePoint},
    output::{self, Format, note},
    serve::server,
};
use crate::{
    config::{self, AgentTables, Config, FlagValues, LogFormat},
    duration, logs,
};

/// How long a server that went away, or that says that it is too early, is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);

/// The flags that all commands about shared things have.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServerFlags {
    /// The server, such as http://127.0.0.1:8080. Default: the local one; where none runs, one runs in this process
    #[arg(short = 'a', long, global = true, value_name = "URL")]
    server: Option<String>,
    /// The data folder of the local server. Default: as `nuncio serve` here would have it
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "server")]
    pub(crate) data: Option<PathBuf>,
    /// A bearer token. Others on this machine can see flags: better set A2ACLI_BEARER
    #[arg(long, global = true, env = "A2ACLI_BEARER", hide_env_values = true, value_name = "TOKEN")]
    bearer: Option<String>,
    #[command(flatten)]
    credentials: CredentialFlags,
    /// How long to wait before giving up, such as 30s. Default: as long as it takes
    #[arg(long, global = true, env = "A2ACLI_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Log to the standard error what is exchanged with the server, without credentials
    #[arg(long, global = true, env = "A2ACLI_DEBUG")]
    debug: bool,
    /// The form of the output
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
}

/// A server, and how the command speaks.
pub(crate) struct ServerConnection {
    tools: ToolClient,
    target: AgentTarget,
    format: Format,
    /// The server, where it runs in this process.
    own: Option<RunningServer>,
    /// What a command that ends early leaves to go on from.
    seen: RefCell<TaskResumePoint>,
    /// Whether it has answered.
    reached: Cell<bool>,
}

/// Where a server is, and what it is shown.
struct ServerEndpoint {
    url: String,
    bearer: Option<String>,
    target: AgentTarget,
    own: Option<RunningServer>,
}

impl ServerFlags {
    /// Does the work with a server, within `--timeout` and until Ctrl-C.
    pub(crate) async fn run_with_server<T>(
        self,
        work: impl AsyncFnOnce(&ServerConnection) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let limit = self.timeout.unwrap_or(Duration::MAX);
        let shared = self.open().await?;
        let done = shared.bounded(limit, work(&shared)).await;
        if let Some(own) = shared.own {
            own.stop().await;
        }
        done
    }

    async fn open(self) -> Result<ServerConnection, CliError> {
        // What a server in this process warns of is of no use to whoever asked for something else.
        let filter = if self.debug { "warn,nuncio_client=debug" } else { "error" };
        logs::start(filter, LogFormat::Text, &Arc::default());
        let place = match &self.server {
            Some(url) => {
                let url = server_url(url)?;
                if let (Some(_), Ok(address)) = (&self.bearer, Url::parse(&url)) {
                    self.credentials.check(&address, Some(&address)).map_err(CliError::Usage)?;
                }
                let target = AgentTarget { origin: TargetOrigin::Given, flags: format!(" -a {url}") };
                ServerEndpoint { url, bearer: None, target, own: None }
            }
            None => local(self.data).await?,
        };
        let options = ToolOptions {
            bearer: self.bearer.or(place.bearer),
            trace: trace_from_environment(),
            ..ToolOptions::default()
        };
        let target = place.target;
        let tools = ToolClient::new(&format!("{}/mcp", place.url), options)
            .map_err(|error| CliError::Tool { error: Box::new(error), target: target.clone() })?;
        // For commands that know nothing of `--data`.
        let agent_flags = format!(" -a {}", place.url);
        let seen = RefCell::new(TaskResumePoint { agent_flags, ..TaskResumePoint::default() });
        Ok(ServerConnection {
            tools,
            target,
            format: self.format,
            own: place.own,
            seen,
            reached: Cell::new(false),
        })
    }
}

/// The server that holds the data folder: another process, or this one.
async fn local(data: Option<PathBuf>) -> Result<ServerEndpoint, CliError> {
    let loaded = config::load(&FlagValues::new(), None)?;
    let mut config = loaded.config;
    if loaded.is_found {
        // A command that asks for something else starts no programs of the folder that it happens to stand in.
        config.agents = AgentTables::default();
        if !config::is_trusted(&loaded.file) {
            config.flows.sparc.test_command = None;
        }
    }
    let flags = data
        .as_ref()
        .map(|data| format!(" --data {}", quoted(&data.display().to_string())))
        .unwrap_or_default();
    if let Some(data) = data {
        config.data = data;
        config.store = None;
    }
    if let Some(place) = published(&config, &flags).await {
        return Ok(place);
    }
    config.listen = "127.0.0.1:0".into();
    // The folder's lock says whether somebody holds it: an address that was left behind says nothing.
    match server(config.clone())?.start().await {
        Ok(running) => {
            let token = PublishedServer::read(&config.data).map(|published| published.admin_token);
            let target = AgentTarget { origin: TargetOrigin::Default, flags };
            Ok(ServerEndpoint { url: running.url().to_owned(), bearer: token, target, own: Some(running) })
        }
        // Somebody was quicker.
        Err(error) => published(&config, &flags).await.ok_or(CliError::Start(error)),
    }
}

async fn published(config: &Config, flags: &str) -> Option<ServerEndpoint> {
    let published = PublishedServer::read(&config.data)?;
    TcpStream::connect(published.url.strip_prefix("http://")?).await.ok()?;
    let origin = TargetOrigin::Published(config.data.join("server.json"));
    let target = AgentTarget { origin, flags: flags.to_owned() };
    Some(ServerEndpoint { url: published.url, bearer: Some(published.admin_token), target, own: None })
}

/// The address of a server, without the path of its endpoint.
fn server_url(text: &str) -> Result<String, CliError> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let wrong = |why: &str| CliError::Usage(format!("--server {text:?}: {why}"));
    let url = Url::parse(&full).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("expected an address such as http://127.0.0.1:8080"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("credentials do not belong into an address: set A2ACLI_BEARER"));
    }
    let whole = full.trim_end_matches('/');
    Ok(whole.strip_suffix("/mcp").unwrap_or(whole).to_owned())
}

impl ServerConnection {
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether the server ends with this command.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// The flags that name the server, for commands that are shown; with a space before.
    pub(crate) fn flags(&self) -> &str {
        &self.target.flags
    }

    /// Keeps what the command is about, for the case that it ends early and the server does not.
    pub(crate) fn record_task(&self, task: &str) {
        if !self.is_own() {
            self.seen.borrow_mut().task = Some(task.to_owned());
        }
    }

    /// The same, with the command that goes on from there. One that ends with its own server is taken up by it again.
    pub(crate) fn record_task_command(&self, task: &str, command: String) {
        self.record_task(task);
        self.seen.borrow_mut().command = Some(command);
    }

    /// Calls a tool; what it answers for programs.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, CliError> {
        let called = self.tools.call(tool, arguments).await.map_err(|error| self.failed(error))?;
        Ok(called.structured.unwrap_or_else(|| json!({ "text": called.text })))
    }

    /// The same for one call of many: what was certainly not done is asked for again.
    pub(crate) async fn call_with_retry(&self, tool: &str, arguments: &Value) -> Result<Value, CliError> {
        let called = self
            .retry_call(ToolError::is_transient, async || self.tools.call(tool, arguments.clone()).await)
            .await?;
        Ok(called.structured.unwrap_or_default())
    }

    /// Calls a tool that only looks: the server may go and come back meanwhile.
    pub(crate) async fn poll_tool(&self, tool: &str, arguments: &Value) -> Result<Value, CliError> {
        let called =
            self.retry_call(may_pass, async || self.tools.call(tool, arguments.clone()).await).await?;
        Ok(called.structured.unwrap_or_default())
    }

    /// A task as it stands. The server may go and come back meanwhile.
    pub(crate) async fn task(&self, task: &str) -> Result<ToolTaskView, CliError> {
        self.retry_call(may_pass, async || self.tools.task(task).await).await
    }

    /// Asks again while it may help. A server that was never reached is not waited for.
    async fn retry_call<T>(
        &self,
        helps: impl Fn(&ToolError) -> bool,
        ask: impl AsyncFn() -> Result<T, ToolError>,
    ) -> Result<T, CliError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    self.reached.set(true);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let is_there = self.reached.get() || matches!(error, ToolError::TooFast { .. });
            if !is_there || !helps(&error) || Instant::now() >= until {
                return Err(self.failed(error));
            }
            pause(&error).await;
        }
    }

    /// The client itself.
    pub(crate) fn tools(&self) -> &ToolClient {
        &self.tools
    }

    /// The JSON that a resource holds.
    pub(crate) async fn read(&self, uri: &str) -> Result<Value, CliError> {
        self.tools.read_json(uri).await.map_err(|error| self.failed(error))
    }

    pub(crate) fn failed(&self, error: ToolError) -> CliError {
        CliError::Tool { error: Box::new(error), target: self.target.clone() }
    }

    /// Prints what was answered: the document itself, or as text.
    pub(crate) fn print(&self, answer: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), CliError> {
        match self.format {
            Format::Json => output::json_text(&answer.to_string()),
            Format::Text => output::text(&text(answer)),
        }
    }

    /// Says something beside the output, to people.
    pub(crate) fn remark(&self, text: &str) {
        if !self.is_json() {
            note(text);
        }
    }

    async fn bounded<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            done = tokio::time::timeout(limit, work) => {
                done.unwrap_or_else(|_| Err(CliError::Timeout { limit, seen: Box::new(self.seen.borrow().clone()) }))
            }
            _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted { seen: Box::new(self.seen.borrow().clone()) }),
        }
    }
}

/// Whether a question that changes nothing is worth asking again.
fn may_pass(error: &ToolError) -> bool {
    error.is_transient() || matches!(error, ToolError::Cut { .. })
}

async fn pause(error: &ToolError) {
    let wanted = match error {
        ToolError::TooFast { retry_after, .. } => *retry_after,
        _ => None,
    };
    tokio::time::sleep(wanted.unwrap_or(AGAIN).min(PATIENCE)).await;
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | ',' | '@');
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_their_address() {
        let check =
            |text: &str, url: Option<&str>| assert_eq!(server_url(text).ok().as_deref(), url, "{text}");
        check("http://127.0.0.1:8080", Some("http://127.0.0.1:8080"));
        check("127.0.0.1:8080/", Some("http://127.0.0.1:8080"));
        check("https://a.example/team/mcp", Some("https://a.example/team"));
        check("ftp://a.example", None);
        check("http://me:secret@a.example", None);
        check("http://", None);
    }

    #[test]
    fn a_command_that_is_shown_can_be_pasted() {
        let check = |word: &str, shown: &str| assert_eq!(quoted(word), shown);
        check("task:1/a", "task:1/a");
        check("", "''");
        check("it's", r"'it'\''s'");
        check("$HOME *", "'$HOME *'");
    }
}
