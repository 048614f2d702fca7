//! An MCP server in a child process, over its pipes, one message per line.
//!
//! The process has its own process group, so that its children end with it, and an environment without this
//! process's secrets. Its stderr is logged, and the last lines appear in errors. When the process exits,
//! pending requests are lost.

use std::{collections::VecDeque, process::Stdio, sync::Arc, time::Duration};

use nuncio_wire::mcp::{
    DiscoverReply, McpMessage, McpPeerResponse, McpVersion, ServerDescription, read_messages,
};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot, watch},
};

use super::{
    connection::{McpConnection, McpTransport},
    duplex::{DuplexChannel, OUTGOING, OutgoingMessage},
    error::McpRequestError,
    exchange::{AbortOnDrop, ExchangeEvent, McpPeerExchange},
    handshake::{discover_error, discover_request, initialize_request, initialized, read_initialized},
    options::McpPeerOptions,
    router::MessageRouter,
};
use crate::peer::{PeerError, PeerProgram};

/// The inherited environment variables, in addition to all that begin with `LC_`.
const ENVIRONMENT: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "USER"];
/// Lines of stderr that an error quotes, and bytes of each.
const LAST_LINES: usize = 8;
const LINE: usize = 500;
/// How long to wait for the exit status after the pipe has closed.
const HOW_IT_ENDED: Duration = Duration::from_millis(200);

/// Starts the program and performs the handshake.
pub(super) async fn start(
    program: &PeerProgram,
    at: &str,
    options: &Arc<McpPeerOptions>,
    changes: &watch::Sender<u64>,
) -> Result<McpConnection, McpRequestError> {
    let wire = launch(program, at, options, changes)?;
    let mut version = options.version;
    if version.is_none_or(McpVersion::is_stateless) {
        match discover(&wire, at, options).await {
            Ok(PipeHandshake::Newest(about)) => {
                let (link, hub) = (McpTransport::Wire(Arc::clone(&wire)), &wire.hub);
                return Ok(McpConnection::new(at, (McpVersion::V2026_07_28, about), link, hub, options));
            }
            Ok(PipeHandshake::Session(answer)) => return session(wire, at, options, answer).await,
            Ok(PipeHandshake::Before(before)) if version.is_none() => version = before,
            Ok(PipeHandshake::Before(_)) => {
                let why = format!("{at} does not support MCP 2026-07-28, only an older revision");
                return Err(PeerError::Unsupported(why).into());
            }
            // Some older servers exit on an unknown method.
            Err(fail) if version.is_none() && wire.hub.closed().is_some() => {
                tracing::debug!(?fail, "{at} exited on server/discover: restarting it for initialize");
                let wire = launch(program, at, options, changes)?;
                return open(wire, at, options, McpVersion::NEWEST_WITH_SESSIONS).await;
            }
            Err(fail) => return Err(fail),
        }
    }
    open(wire, at, options, version.unwrap_or(McpVersion::NEWEST_WITH_SESSIONS)).await
}

/// The outcome of the handshake.
enum PipeHandshake {
    /// The server speaks the newest revision.
    Newest(ServerDescription),
    /// The server speaks an older revision, and may have named it.
    Before(Option<McpVersion>),
    /// The server did not answer `server/discover` but accepted `initialize`.
    Session(McpPeerResponse),
}

async fn discover(
    wire: &DuplexChannel,
    at: &str,
    options: &McpPeerOptions,
) -> Result<PipeHandshake, McpRequestError> {
    let mut discover = wire.exchange(&discover_request(options)).await?;
    let read = |answer: McpPeerResponse| match DiscoverReply::read(answer.outcome) {
        DiscoverReply::Newest(about) => Ok(PipeHandshake::Newest(about)),
        DiscoverReply::Older(older) => Ok(PipeHandshake::Before(older)),
        reply => Err(discover_error(at, reply)),
    };
    if let Ok(answer) = tokio::time::timeout(options.probe_timeout, answer(&mut discover)).await {
        return read(answer?);
    }
    if options.version.is_some() {
        return read(within(at, options, answer(&mut discover)).await?);
    }
    // The server may be slow, or may ignore unknown methods: the first response decides.
    let mut initialize =
        wire.exchange(&initialize_request(options, McpVersion::NEWEST_WITH_SESSIONS)).await?;
    let either = async {
        tokio::select! {
            // If both responses are here already, the first request's takes precedence.
            biased;
            discovered = answer(&mut discover) => match read(discovered?)? {
                PipeHandshake::Before(_) => answer(&mut initialize).await.map(PipeHandshake::Session),
                newest => Ok(newest),
            },
            initialized = answer(&mut initialize) => initialized.map(PipeHandshake::Session),
        }
    };
    within(at, options, either).await
}

async fn open(
    wire: Arc<DuplexChannel>,
    at: &str,
    options: &Arc<McpPeerOptions>,
    version: McpVersion,
) -> Result<McpConnection, McpRequestError> {
    let mut exchange = wire.exchange(&initialize_request(options, version)).await?;
    let answer = within(at, options, answer(&mut exchange)).await?;
    session(wire, at, options, answer).await
}

async fn session(
    wire: Arc<DuplexChannel>,
    at: &str,
    options: &Arc<McpPeerOptions>,
    answer: McpPeerResponse,
) -> Result<McpConnection, McpRequestError> {
    let spoken = read_initialized(at, options, answer)?;
    let hub = Arc::clone(&wire.hub);
    let connection = McpConnection::new(at, spoken, McpTransport::Wire(wire), &hub, options);
    initialized(&connection).await?;
    Ok(connection)
}

async fn answer(exchange: &mut McpPeerExchange) -> Result<McpPeerResponse, McpRequestError> {
    loop {
        if let ExchangeEvent::Message(McpMessage::Answer(answer)) = exchange.next().await? {
            return Ok(answer);
        }
    }
}

async fn within<T>(
    at: &str,
    options: &McpPeerOptions,
    work: impl Future<Output = Result<T, McpRequestError>>,
) -> Result<T, McpRequestError> {
    let limit = options.request_timeout;
    let late = || McpRequestError::cut(format!("{at} did not answer within {} s", limit.as_secs_f32()));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

fn launch(
    program: &PeerProgram,
    at: &str,
    options: &Arc<McpPeerOptions>,
    changes: &watch::Sender<u64>,
) -> Result<Arc<DuplexChannel>, McpRequestError> {
    let unreachable = |why: String| PeerError::Unreachable { at: at.to_owned(), why };
    let Some((name, arguments)) = program.command.split_first() else {
        return Err(unreachable("the command is empty: name a program".into()).into());
    };
    let mut command = Command::new(name);
    command.args(arguments).env_clear();
    let passed = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| ENVIRONMENT.contains(&name) || name.starts_with("LC_"))
    });
    command.envs(passed).envs(&program.env);
    if let Some(dir) = &program.dir {
        command.current_dir(dir);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| unreachable(format!("it cannot be started: {error}")))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(unreachable("it has no pipes".into()).into());
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (exited, exit) = watch::channel(None);
    let (stopping, stop) = watch::channel(false);
    let last = Arc::new(StderrTail::default());
    let hub = MessageRouter::new(changes.clone());
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let process = PipeServerProcess { group, exit: exit.clone(), stopping, options: Arc::clone(options) };

    tokio::spawn(reap(child, group, exited));
    tokio::spawn(listen(stderr, Arc::clone(&last), at.to_owned()));
    let writer = tokio::spawn(write(stdin, outgoing, stop));
    let reader = PipeReader { at: at.to_owned(), hub: Arc::clone(&hub), out: out.clone(), last, exit };
    let reader = tokio::spawn(reader.read(stdout, options.max_message));
    let work = [writer, reader].map(|work| AbortOnDrop(work.abort_handle())).into();
    Ok(Arc::new(DuplexChannel::new(out, hub, work).of(process)))
}

/// A started process. Dropping it kills the process group.
pub(super) struct PipeServerProcess {
    group: Option<Pid>,
    /// How the process ended.
    exit: watch::Receiver<Option<String>>,
    /// Closes the process's input.
    stopping: watch::Sender<bool>,
    options: Arc<McpPeerOptions>,
}

impl PipeServerProcess {
    /// Stops the process: closes its input, then sends SIGTERM, then kills it.
    pub(super) async fn stop(&self) {
        self.stopping.send_replace(true);
        if self.ended(self.options.exit_grace).await {
            return;
        }
        self.signal(Signal::TERM);
        if !self.ended(self.options.term_grace).await {
            self.signal(Signal::KILL);
        }
    }

    async fn ended(&self, limit: Duration) -> bool {
        let mut exit = self.exit.clone();
        tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group.filter(|_| self.exit.borrow().is_none()) {
            // Fails if no process is left in the group.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for PipeServerProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for the process to exit, then kills what is left of its group.
async fn reap(mut child: Child, group: Option<Pid>, exited: watch::Sender<Option<String>>) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => format!("lost: {error}"),
    };
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    exited.send_replace(Some(how));
}

/// The last lines of stderr.
#[derive(Default)]
struct StderrTail(Mutex<VecDeque<String>>);

impl StderrTail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn joined(&self) -> String {
        let lines = self.0.lock();
        lines.iter().map(String::as_str).collect::<Vec<_>>().join(" / ")
    }
}

async fn listen(stderr: impl AsyncRead + Unpin, last: Arc<StderrTail>, at: String) {
    let mut stderr = BufReader::new(stderr);
    let mut line = vec![];
    // A longer line arrives in pieces.
    while let Ok(1..) = (&mut stderr).take(LINE as u64).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !text.is_empty() {
            tracing::debug!(target: "nuncio_client::mcp::stderr", "{at}: {text}");
            last.push(text);
        }
        line.clear();
    }
}

async fn write(
    mut stdin: ChildStdin,
    mut outgoing: mpsc::Receiver<OutgoingMessage>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let (mut message, told) = tokio::select! {
            next = outgoing.recv() => match next {
                Some(next) => next,
                None => return,
            },
            _ = stop.wait_for(|stop| *stop) => return,
        };
        message.push(b'\n');
        let written = async {
            stdin.write_all(&message).await?;
            stdin.flush().await
        };
        let written = tokio::select! {
            written = written => written,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        // The reader reports whether the process has ended.
        let _ = told.send(
            written.map_err(|error| McpRequestError::cut(format!("it no longer reads its input: {error}"))),
        );
    }
}

/// The task that reads the process's output.
struct PipeReader {
    at: String,
    hub: Arc<MessageRouter>,
    out: mpsc::Sender<OutgoingMessage>,
    last: Arc<StderrTail>,
    exit: watch::Receiver<Option<String>>,
}

impl PipeReader {
    async fn read(self, stdout: ChildStdout, most: usize) {
        let mut stdout = BufReader::new(stdout);
        let mut line = vec![];
        let fail = loop {
            line.clear();
            match (&mut stdout).take(most as u64).read_until(b'\n', &mut line).await {
                Ok(0) => break self.ended().await,
                Err(error) => break McpRequestError::cut(format!("{} cannot be read: {error}", self.at)),
                Ok(read) if read == most && line.last() != Some(&b'\n') => {
                    break McpRequestError::malformed(
                        &self.at,
                        format!("a message longer than {most} bytes"),
                    );
                }
                Ok(_) => self.take(&line).await,
            }
        };
        self.hub.close(&fail);
    }

    async fn take(&self, line: &[u8]) {
        match read_messages(line) {
            Ok(messages) => {
                let replies: Vec<Value> =
                    messages.into_iter().filter_map(|message| self.hub.route(message)).collect();
                for reply in replies {
                    let _ = self.out.send((reply.to_string().into_bytes(), oneshot::channel().0)).await;
                }
            }
            // Programs print other text to stdout, too; only lines that are messages count.
            Err(why) if !line.trim_ascii().is_empty() => {
                let line = String::from_utf8_lossy(&line[..line.len().min(LINE)]).into_owned();
                tracing::debug!(why, line, "{}: ignoring a line that is not a message", self.at);
            }
            Err(_) => {}
        }
    }

    /// The error for a process that has exited, with the last lines of its stderr.
    async fn ended(&self) -> McpRequestError {
        let mut exit = self.exit.clone();
        let how = match tokio::time::timeout(HOW_IT_ENDED, exit.wait_for(Option::is_some)).await {
            Ok(Ok(how)) => how.clone().unwrap_or_default(),
            _ => "it closed its output".to_owned(),
        };
        let last = self.last.joined();
        let last = if last.is_empty() { String::new() } else { format!("; its last output: {last}") };
        McpRequestError::cut(format!("{} has ended ({how}){last}", self.at))
    }
}
