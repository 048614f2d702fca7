//! One process of a program: its pipes, and its exit. It leads its own process group, which is killed when
//! this is dropped, so that none of its children outlives the run.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nuncio_engine::{AgentError, TaskContext};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    task::JoinHandle,
};

use super::{
    super::{
        protocol::ProgramMessage,
        spec::{FilledText, ProcessSpec},
    },
    lines::BoundedLines,
    stderr::StderrReader,
};

/// Environment variables that every program inherits.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Lines that are buffered for the program's input.
const WAITING: usize = 16;
/// How long a program may take to exit after it has closed its output.
const CLOSING: Duration = Duration::from_secs(1);
/// Bytes of an invalid line that are shown.
const SHOWN: usize = 200;

/// One running process.
pub(super) struct AgentProcess {
    child: Child,
    group: AgentProcessGroup,
    input: Option<mpsc::Sender<Vec<u8>>>,
    writer: JoinHandle<()>,
    output: BoundedLines<ChildStdout>,
    pub(super) stderr: Arc<StderrReader>,
    /// The process has exited; its output may not have been read yet.
    gone: bool,
    lines: u64,
    max_lines: u64,
    max_line_bytes: usize,
}

impl AgentProcess {
    /// Starts the process. `variables`: environment variables about its task.
    pub(super) fn start(spec: &ProcessSpec, variables: &[(&str, String)]) -> Result<Self, AgentError> {
        let mut child = command(spec, variables).spawn().map_err(|error| cannot_start(spec, &error))?;
        let group = AgentProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(AgentError::failed("the program has no pipes"));
        };
        let (input, mut lines) = mpsc::channel::<Vec<u8>>(WAITING);
        let writer = tokio::spawn(async move {
            let mut stdin = stdin;
            while let Some(line) = lines.recv().await {
                // A program need not read its input; after it has closed it, nothing more is written.
                if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            group,
            input: Some(input),
            writer,
            output: BoundedLines::new(stdout, spec.max_line_bytes),
            stderr: Arc::new(StderrReader::read(stderr)),
            gone: false,
            lines: 0,
            max_lines: spec.max_lines,
            max_line_bytes: spec.max_line_bytes,
        })
    }

    /// Sends a message to the program.
    pub(super) async fn send(&self, what: &impl Serialize) -> Result<(), AgentError> {
        let mut line = serde_json::to_vec(what).map_err(AgentError::failed)?;
        line.push(b'\n');
        self.write(line).await;
        Ok(())
    }

    /// A handle that waits for free capacity of the program's input.
    pub(super) fn room(&self) -> ProcessInputCapacity {
        ProcessInputCapacity(self.input.clone())
    }

    /// Writes bytes to the program's input.
    pub(super) async fn write(&self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            // The program no longer reads; its output shows why.
            let _ = input.send(bytes).await;
        }
    }

    /// Closes the program's input after the buffered lines.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line of the program's output; `None` at its end.
    pub(super) async fn next_line(&mut self) -> Result<Option<String>, AgentError> {
        let read = loop {
            tokio::select! {
                biased;
                read = self.output.next() => break read,
                _ = self.child.wait(), if !self.gone => {
                    // Children that it left running could hold its output open.
                    self.gone = true;
                    self.group.signal(Signal::KILL);
                }
            }
        };
        let Some(line) = read.map_err(|e| AgentError::failed(format!("cannot read its output: {e}")))? else {
            return Ok(None);
        };
        self.lines += 1;
        if line.cut {
            return Err(AgentError::Misuse(format!(
                "max-line-bytes: line {} of its output is longer than {} bytes",
                self.lines, self.max_line_bytes
            )));
        }
        if self.lines > self.max_lines {
            return Err(AgentError::Misuse(format!(
                "max-lines: it printed more than {} lines",
                self.max_lines
            )));
        }
        Ok(Some(line.text))
    }

    /// The next message of the program; `None` at the end of its output.
    pub(super) async fn next_message(&mut self) -> Result<Option<ProgramMessage>, AgentError> {
        loop {
            let Some(line) = self.next_line().await? else { return Ok(None) };
            if line.trim().is_empty() {
                continue;
            }
            return serde_json::from_str(&line).map(Some).map_err(|error| self.no_message(&line, &error));
        }
    }

    fn no_message(&self, line: &str, error: &serde_json::Error) -> AgentError {
        let shown: String = line.chars().take(SHOWN).collect();
        let dots = if shown.len() < line.len() { " …" } else { "" };
        let hint = if line.trim_start().starts_with('{') {
            ""
        } else {
            ". A program says {\"type\":\"done\",\"text\":\"…\"} and the like, one object a line; what is not \
             meant for the protocol goes to stderr, and speaks = \"lines\" publishes a program that prints plain text"
        };
        AgentError::Misuse(format!(
            "line {} of its output is no message ({error}): {shown:?}{dots}{hint}",
            self.lines
        ))
    }

    /// Waits, for a short time, for the process to exit after its output has ended.
    pub(super) async fn wait_for_exit(&mut self) -> io::Result<Option<ExitStatus>> {
        match tokio::time::timeout(CLOSING, self.child.wait()).await {
            Ok(status) => status.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Waits for the process to exit.
    pub(super) async fn wait(&mut self) {
        // An error would mean that it was already waited for.
        let _ = self.child.wait().await;
    }

    /// Sends SIGTERM to the process group.
    pub(super) fn terminate(&self) {
        self.group.signal(Signal::TERM);
    }

    /// Kills the process group.
    pub(super) fn kill(&self) {
        self.group.signal(Signal::KILL);
    }

    /// Lets the process exit on its own for a grace period, because its work is done; then kills it.
    pub(super) fn release(mut self, grace: Duration) {
        self.close_input();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(grace, self.child.wait()).await;
        });
    }
}

/// The capacity of a program's input.
pub(super) struct ProcessInputCapacity(Option<mpsc::Sender<Vec<u8>>>);

impl ProcessInputCapacity {
    /// Waits for capacity; for ever if the program has closed its input.
    pub(super) async fn wait(&self) {
        if let Some(input) = &self.0
            && input.reserve().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.writer.abort();
        self.group.signal(Signal::KILL);
    }
}

/// The process group of a program.
struct AgentProcessGroup(Option<Pid>);

impl AgentProcessGroup {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // An error means that no process is left.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Variables about the task's caller, if the program may receive them.
pub(super) fn caller_variables(spec: &ProcessSpec, cx: &TaskContext) -> Vec<(&'static str, String)> {
    if !spec.tell_caller {
        return vec![];
    }
    let caller = cx.caller();
    vec![("NUNCIO_CALLER", caller.owner().to_owned()), ("NUNCIO_TENANT", caller.tenant().to_owned())]
}

fn command(spec: &ProcessSpec, variables: &[(&str, String)]) -> Command {
    let program = spec.command.first().map(FilledText::expose).unwrap_or_default();
    let mut command = match &spec.dir {
        // Relative to its folder, whatever this process's working directory is.
        Some(dir) if program.contains('/') => Command::new(dir.path().join(program)),
        _ => Command::new(program),
    };
    command.args(spec.command.iter().skip(1).map(FilledText::expose)).env_clear();
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value.expose())));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(dir) = &spec.dir {
        command.current_dir(dir.path());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    command
}

fn cannot_start(spec: &ProcessSpec, error: &io::Error) -> AgentError {
    let place = spec.dir.as_ref().map_or_else(String::new, |dir| format!(" in {dir}"));
    let command: Vec<String> = spec.command.iter().map(ToString::to_string).collect();
    AgentError::failed(format!(
        "the program {:?} cannot be started{place}: {error}; see command and dir of the agent's table",
        command.join(" ")
    ))
}

/// An exit status as text.
pub(super) fn describe(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        None => "closed its output but keeps running".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (_, Some(signal)) => format!("was killed by signal {signal}"),
            _ => "ended".into(),
        },
    }
}
