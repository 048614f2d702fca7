//! The connection to a server's shared services (memory, workflows, batches, the registry): the flags that
//! choose the server, and the calls of its tools.
//!
//! A named server is called by its address, a local one is found through its data folder. Where none runs,
//! this process runs one until the command ends, so that the commands need only a folder.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use nuncio::{RunningServer, StoreLocation, data_dir::PublishedServer};
use nuncio_client::mcp::{ToolClient, ToolError, ToolOptions, ToolStart, ToolTaskView};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use url::Url;

use super::{
    connection::{AgentTarget, TargetOrigin, trace_from_environment},
    credential_origin::CredentialFlags,
    error::{CliError, TaskResumePoint},
    output::{self, Format, note},
    scratch_folder::ScratchFolder,
    server::{self, LocalServer},
};
use crate::{
    config::{self, Config, FlagValues, LogFormat, TlsConfig},
    duration, logs,
    tls_flags::TlsFlags,
};

/// The deadline for retries while the server is unreachable or refuses calls for the moment.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);

/// The flags that all commands for shared services have.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServerFlags {
    /// The server, such as http://127.0.0.1:8080. Default: NUNCIO_SERVER, else the one of the data folder; if none
    /// runs, the command works on the folder itself
    #[arg(short = 'a', long, alias = "agent-card", global = true, value_name = "URL")]
    server: Option<String>,
    /// The data folder of the local server. Default: the one that `nuncio serve` would use here
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "server")]
    pub(crate) data: Option<PathBuf>,
    /// A bearer token. Other users of this machine can see flags: prefer A2ACLI_BEARER
    #[arg(long, global = true, env = "A2ACLI_BEARER", hide_env_values = true, value_name = "TOKEN")]
    bearer: Option<String>,
    #[command(flatten)]
    credentials: CredentialFlags,
    #[command(flatten)]
    tls: TlsFlags,
    /// How long to wait before giving up, such as 30s. Default: no limit
    #[arg(long, global = true, env = "A2ACLI_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Log the messages exchanged with the server to the standard error, without credentials
    #[arg(long, global = true, env = "A2ACLI_DEBUG")]
    debug: bool,
    /// The output format
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

/// A connection to a server, with the output format.
pub(crate) struct ServerConnection {
    tools: ToolClient,
    target: AgentTarget,
    format: Format,
    /// The server, if it runs in this process.
    own: Option<RunningServer>,
    /// Where to resume if the command ends early.
    seen: RefCell<TaskResumePoint>,
    /// Whether the server has answered once.
    reached: Cell<bool>,
    /// The data folder whose operator token is sent. The token changes with every start of the server.
    folder: Option<PathBuf>,
}

/// The address of a server, and its credentials.
struct ServerEndpoint {
    url: String,
    bearer: Option<String>,
    target: AgentTarget,
    own: Option<RunningServer>,
    folder: Option<PathBuf>,
    /// The folder of a server in this process, where there was none. Dropped after the server has stopped.
    scratch: Option<ScratchFolder>,
}

/// What a command does with the data folder where no server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderAccess {
    /// It creates what is missing.
    Write,
    /// It creates nothing: where there is no store, it sees an empty one.
    Read,
}

impl ServerFlags {
    /// Runs the work with a server, within `--timeout` and until Ctrl-C.
    pub(crate) async fn run_with_server<T>(
        self,
        work: impl AsyncFnOnce(&ServerConnection) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.run_with_access(FolderAccess::Write, work).await
    }

    /// The same for work that only reads: it creates neither a folder nor a store.
    pub(crate) async fn run_to_read<T>(
        self,
        work: impl AsyncFnOnce(&ServerConnection) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.run_with_access(FolderAccess::Read, work).await
    }

    async fn run_with_access<T>(
        self,
        access: FolderAccess,
        work: impl AsyncFnOnce(&ServerConnection) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let limit = self.timeout.unwrap_or(Duration::MAX);
        let (shared, scratch) = self.open(access).await?;
        let done = shared.bounded(limit, work(&shared)).await;
        if let Some(own) = shared.own {
            own.stop().await;
        }
        drop(scratch);
        done
    }

    async fn open(self, access: FolderAccess) -> Result<(ServerConnection, Option<ScratchFolder>), CliError> {
        // Warnings of an in-process server do not help a user who asked for something else.
        let filter = if self.debug { "warn,nuncio_client=debug" } else { "error" };
        logs::start(filter, LogFormat::Text, &Arc::default());
        let tls = self.tls.read()?;
        // A folder that the user named comes before the environment's server.
        let named =
            self.server.clone().or_else(|| self.data.is_none().then(server::from_environment).flatten());
        let place = match &named {
            Some(url) => {
                let url = server_url(url)?;
                if let (Some(_), Ok(address)) = (&self.bearer, Url::parse(&url)) {
                    self.credentials.check(&address, Some(&address)).map_err(CliError::Usage)?;
                }
                let target = AgentTarget { origin: TargetOrigin::Given, flags: format!(" -a {url}") };
                ServerEndpoint { url, bearer: None, target, own: None, folder: None, scratch: None }
            }
            None => local(self.data, access, self.format).await?,
        };
        let tls = match &place.folder {
            Some(data) => server::trust_published(tls, data),
            None => tls,
        };
        // A token that the user named is not replaced by another.
        let folder = place.folder.filter(|_| self.bearer.is_none());
        let options = ToolOptions {
            bearer: self.bearer.or(place.bearer),
            trace: trace_from_environment(),
            tls,
            ..ToolOptions::default()
        };
        let target = place.target;
        let tools = ToolClient::new(&format!("{}/mcp", place.url), options)
            .map_err(|error| CliError::Tool { error: Box::new(error), target: target.clone() })?;
        // For suggested commands that do not have `--data`.
        let agent_flags = format!(" -a {}", place.url);
        let seen = RefCell::new(TaskResumePoint { agent_flags, ..TaskResumePoint::default() });
        let connection = ServerConnection {
            tools,
            target,
            format: self.format,
            own: place.own,
            seen,
            reached: Cell::new(false),
            folder,
        };
        Ok((connection, place.scratch))
    }
}

/// The server that holds the data folder: another process, or this one.
async fn local(
    data: Option<PathBuf>,
    access: FolderAccess,
    format: Format,
) -> Result<ServerEndpoint, CliError> {
    let loaded = config::load(&FlagValues::new(), None)?;
    let service = server::service_folder(&loaded);
    let mut config = loaded.config;
    if let Some(folder) = service {
        config.data = folder;
        config.store = None;
    }
    if loaded.is_found {
        // A client command must not start programs that the current folder's configuration happens to name.
        config.forget_agents();
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
    config.listen = "127.0.0.1:0".into();
    // A server in this process is for this process: it needs no certificate, and no client shows one.
    config.tls = TlsConfig::default();
    let scratch = match access {
        FolderAccess::Read => scratch_for_missing(&mut config, format).await?,
        FolderAccess::Write => None,
    };
    let found = server::find_or_start(&config).await?;
    if matches!(found, LocalServer::Own(_)) && scratch.is_none() && format == Format::Text {
        note(&server::note_of_direct_access(&config.store_location()));
    }
    let PublishedServer { url, admin_token, .. } = found.published().clone();
    let (origin, own) = match found {
        LocalServer::Own(running) => (TargetOrigin::Default, Some(*running)),
        LocalServer::Other(_) => (TargetOrigin::Published(config.data.join("server.json")), None),
    };
    let target = AgentTarget { origin, flags };
    Ok(ServerEndpoint { url, bearer: Some(admin_token), target, own, folder: Some(config.data), scratch })
}

/// A folder in place of the configured one, if no server runs there and there is nothing to read in it.
async fn scratch_for_missing(config: &mut Config, format: Format) -> Result<Option<ScratchFolder>, CliError> {
    let is_missing = match config.store_location() {
        StoreLocation::Sqlite(folder) => !folder.join("nuncio.db").is_file(),
        StoreLocation::Postgres { .. } => !config.data.is_dir(),
    };
    // A file in the folder's place is an error of the server that would be started there.
    let is_no_folder = config.data.exists() && !config.data.is_dir();
    if !is_missing || is_no_folder || server::find_running(&config.data).await.is_some() {
        return Ok(None);
    }
    let scratch = ScratchFolder::new().map_err(CliError::Runtime)?;
    if let StoreLocation::Sqlite(folder) = config.store_location() {
        if format == Format::Text {
            note(&format!(
                "note: there is no server and no store in {}: -a names a server, --data a folder",
                folder.display()
            ));
        }
        config.store = None;
    }
    config.data = scratch.path().to_owned();
    Ok(Some(scratch))
}

/// The base URL of a server, without the path of its endpoint.
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
    /// A connection to a server at a URL, without credentials.
    #[cfg(test)]
    pub(crate) fn to(url: &str) -> Self {
        Self {
            tools: ToolClient::new(&format!("{url}/mcp"), ToolOptions::default()).unwrap(),
            target: AgentTarget { origin: TargetOrigin::Given, flags: String::new() },
            format: Format::Text,
            own: None,
            seen: RefCell::default(),
            reached: Cell::new(false),
            folder: None,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether the server runs in this process and ends with the command.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// The flags that name the server, for suggested commands; with a leading space.
    pub(crate) fn flags(&self) -> &str {
        &self.target.flags
    }

    /// Records the task, in case the command ends early and the server does not.
    pub(crate) fn record_task(&self, task: &str) {
        if !self.is_own() {
            self.seen.borrow_mut().task = Some(task.to_owned());
        }
    }

    /// The same, with the command that resumes. It is recorded for an in-process server too: the command
    /// starts a server again, which resumes the task.
    pub(crate) fn record_task_command(&self, task: &str, command: String) {
        self.record_task(task);
        self.seen.borrow_mut().command = Some(command);
    }

    /// Calls a tool; returns its structured result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, CliError> {
        let called = self.tools.call(tool, arguments).await.map_err(|error| self.failed(error))?;
        Ok(called.structured.unwrap_or_else(|| json!({ "text": called.text })))
    }

    /// Calls a tool whose work may take long: the result may be a running task.
    pub(crate) async fn start(&self, tool: &str, arguments: Value) -> Result<ToolStart, CliError> {
        let started = self.tools.start(tool, arguments).await.map_err(|error| self.failed(error))?;
        self.reached.set(true);
        Ok(started)
    }

    /// The same for one of many calls: retries a call that was certainly not executed.
    pub(crate) async fn call_with_retry(&self, tool: &str, arguments: &Value) -> Result<Value, CliError> {
        let called = self
            .retry_call(ToolError::is_transient, async || self.tools.call(tool, arguments.clone()).await)
            .await?;
        Ok(called.structured.unwrap_or_default())
    }

    /// Calls a read-only tool, with retries, so that it survives a restart of the server.
    pub(crate) async fn poll_tool(&self, tool: &str, arguments: &Value) -> Result<Value, CliError> {
        let called =
            self.retry_call(may_pass, async || self.tools.call(tool, arguments.clone()).await).await?;
        Ok(called.structured.unwrap_or_default())
    }

    /// The current state of a task. Survives a restart of the server.
    pub(crate) async fn task(&self, task: &str) -> Result<ToolTaskView, CliError> {
        self.retry_call(may_pass, async || self.tools.task(task).await).await
    }

    /// Retries while that may help. A server that was never reached is not retried.
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
            let helps = helps(&error) || self.renew_token(&error);
            if !is_there || !helps || Instant::now() >= until {
                return Err(self.failed(error));
            }
            pause(&error).await;
        }
    }

    /// Answers questions of a task. Survives a restart of the server, because an answer that was not taken changes
    /// nothing.
    pub(crate) async fn answer(&self, task: &str, answers: Map<String, Value>) -> Result<(), CliError> {
        let send = async || self.tools.answer(task, answers.clone()).await;
        self.retry_call(ToolError::is_transient, send).await
    }

    /// Whether the request was refused because the local server has started again, with another token. That token is
    /// sent from now on, to the same address only.
    pub(crate) fn renew_token(&self, error: &ToolError) -> bool {
        let (ToolError::Unauthorized { status: 401, .. }, Some(folder)) = (error, &self.folder) else {
            return false;
        };
        // It may not have published its token yet: then the next attempt finds it.
        server::published(folder).is_none_or(|published| {
            format!("{}/mcp", published.url) == self.tools.endpoint()
                && self.tools.set_bearer(&published.admin_token).is_ok()
        })
    }

    /// Whether the server has answered once, so that an outage may be waited out.
    pub(crate) fn was_reached(&self) -> bool {
        self.reached.get()
    }

    /// The client itself.
    pub(crate) fn tools(&self) -> &ToolClient {
        &self.tools
    }

    /// Reads a resource as JSON.
    pub(crate) async fn read(&self, uri: &str) -> Result<Value, CliError> {
        self.tools.read_json(uri).await.map_err(|error| self.failed(error))
    }

    /// The error of a response that broke off.
    pub(crate) fn cut(&self, why: &str) -> ToolError {
        ToolError::Cut { at: self.tools.endpoint().to_owned(), why: why.to_owned() }
    }

    pub(crate) fn failed(&self, error: ToolError) -> CliError {
        CliError::Tool { error: Box::new(error), target: self.target.clone() }
    }

    /// Prints a result: as JSON, or as text.
    pub(crate) fn print(&self, answer: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), CliError> {
        match self.format {
            Format::Json => output::json_text(&answer.to_string()),
            Format::Text => output::text(&text(answer)),
        }
    }

    /// Prints a note for people on the standard error.
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

/// Whether retrying a read-only call may help.
pub(crate) fn may_pass(error: &ToolError) -> bool {
    error.is_transient() || matches!(error, ToolError::Cut { .. })
}

async fn pause(error: &ToolError) {
    let wanted = match error {
        ToolError::TooFast { retry_after, .. } => *retry_after,
        _ => None,
    };
    tokio::time::sleep(wanted.unwrap_or(AGAIN).min(PATIENCE)).await;
}

/// Quotes a word for a shell.
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
