//! One process of a program: its pipes, and its end. It leads a process group of its own, which is killed when this
//! is dropped, so that nothing of it outlives the run that it belongs to.

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

/// What a program finds in its environment without being given it.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Lines for the program that wait to be read by it.
const WAITING: usize = 16;
/// How long a program that has closed its output may take to end.
const CLOSING: Duration = Duration::from_secs(1);
/// How much of a line that is no message is shown.
const SHOWN: usize = 200;

/// One process.
pub(super) struct AgentProcess {
    child: Child,
    group: AgentProcessGroup,
    input: Option<mpsc::Sender<Vec<u8>>>,
    writer: JoinHandle<()>,
    output: BoundedLines<ChildStdout>,
    pub(super) stderr: Arc<StderrReader>,
    /// It has ended; what it printed may not have been read yet.
    gone: bool,
    lines: u64,
    max_lines: u64,
    max_line_bytes: usize,
}

impl AgentProcess {
    /// Starts it. `variables`: what it finds in its environment about its task.
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
                // A program need not read what it is told; one that has closed its input is told no more.
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

    /// Tells it something.
    pub(super) async fn send(&self, what: &impl Serialize) -> Result<(), AgentError> {
        let mut line = serde_json::to_vec(what).map_err(AgentError::failed)?;
        line.push(b'\n');
        self.write(line).await;
        Ok(())
    }

    /// What says when it has read enough to be told more.
    pub(super) fn room(&self) -> ProcessInputCapacity {
        ProcessInputCapacity(self.input.clone())
    }

    /// Gives it bytes to read.
    pub(super) async fn write(&self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            // Nobody reads there any more: what that means is seen at its output.
            let _ = input.send(bytes).await;
        }
    }

    /// Closes its input, behind what it has been told.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line that it prints; `None` when it prints no more.
    pub(super) async fn next_line(&mut self) -> Result<Option<String>, AgentError> {
        let read = loop {
            tokio::select! {
                biased;
                read = self.output.next() => break read,
                _ = self.child.wait(), if !self.gone => {
                    // What it left running would hold its output open.
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

    /// The next thing that it says; `None` when it says no more.
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

    /// Waits for its end, after it has printed its last; not for long.
    pub(super) async fn wait_for_exit(&mut self) -> io::Result<Option<ExitStatus>> {
        match tokio::time::timeout(CLOSING, self.child.wait()).await {
            Ok(status) => status.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) {
        // An error would say that somebody else has waited for it.
        let _ = self.child.wait().await;
    }

    /// Asks it, and whatever it has started, to end.
    pub(super) fn terminate(&self) {
        self.group.signal(Signal::TERM);
    }

    /// Ends it, and whatever it has started, at once.
    pub(super) fn kill(&self) {
        self.group.signal(Signal::KILL);
    }

    /// Lets it tidy up in its own time, since its work is done; then it is killed.
    pub(super) fn release(mut self, grace: Duration) {
        self.close_input();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(grace, self.child.wait()).await;
        });
    }
}

/// Room for a line that a program is told.
pub(super) struct ProcessInputCapacity(Option<mpsc::Sender<Vec<u8>>>);

impl ProcessInputCapacity {
    /// Waits for it; for ever, where the program has closed its input.
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
            // An error says that nobody is left.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Whose task it is, where the program may be told.
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
        // Beside its folder, wherever this process stands.
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

/// How a program ended, in words.
pub(super) fn describe(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        None => "closed its output and goes on".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (_, Some(signal)) => format!("was killed by signal {signal}"),
            _ => "ended".into(),
        },
    }
}
