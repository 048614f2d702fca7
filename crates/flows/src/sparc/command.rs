//! The test command of refinement's gate: it runs in its own process group, and its exit code decides.
//!
//! Time and output are limited. All processes that the command has started are killed with it: at its timeout,
//! when it has exited and left some behind, and when the waiting future is dropped.

use std::{
    collections::VecDeque,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nuncio_engine::redact::Redactor;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

use super::{SparcOptions, api::Violation};

/// The longest wait for the last output of a command that was killed.
const DRAIN: Duration = Duration::from_secs(2);

/// Bytes of output before the published ones that are also searched for secrets.
const EDGE: usize = 4096;
/// Environment variables of the server that every test command gets: those that a program needs to be found and
/// to run. All others must be listed by the operator (`sparc.test-env`), because a model may have written the
/// code under test.
const TEST_ENV: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "TMPDIR",
    "SYSTEMROOT",
];
/// Maximum bytes of a context id that is passed to a command.
const MAX_CONTEXT: usize = 128;

/// A command that decides whether refinement passes.
#[derive(Debug, Clone)]
pub struct TestCommand {
    words: Vec<String>,
    folder: Option<PathBuf>,
    timeout: Duration,
    max_output: usize,
    env: Vec<String>,
    hidden: Vec<String>,
}

/// The report of a test run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReport {
    /// The command and its arguments; empty if none is configured.
    pub command: Vec<String>,
    /// The exit code; `None` if the command did not exit by itself.
    pub exit_code: Option<i32>,
    /// Whether the command exceeded its time limit.
    pub timed_out: bool,
    /// Why the command did not run or did not exit.
    pub failure: Option<String>,
    /// The duration of the run, in milliseconds.
    pub duration_ms: u64,
    /// The end of the output, with secrets redacted.
    pub output: String,
    /// Whether earlier output was discarded.
    pub truncated: bool,
}

impl CommandReport {
    /// The report when no command is configured.
    pub fn unconfigured() -> Self {
        let failure = "no test command is configured, so refinement cannot pass: set sparc.test-command (and \
                       sparc.test-dir, the folder that it runs in)";
        Self {
            command: vec![],
            exit_code: None,
            timed_out: false,
            failure: Some(failure.into()),
            duration_ms: 0,
            output: String::new(),
            truncated: false,
        }
    }

    /// The report when the command is not allowed for that tenant.
    pub fn other_tenant(tenant: &str) -> Self {
        let failure = format!(
            "the test command does not run for the tenant {tenant:?}, so refinement cannot pass: the operator names the \
             tenants that it is for (sparc.test-tenants)"
        );
        Self { failure: Some(failure), ..Self::unconfigured() }
    }

    /// The violation, if the tests did not pass.
    pub(super) fn violation(&self) -> Option<Violation> {
        let why = match (&self.failure, self.exit_code) {
            (Some(failure), _) => failure.clone(),
            (None, Some(0)) => return None,
            (None, code) => {
                let code = code.map_or_else(|| "by a signal".into(), |code| format!("with code {code}"));
                format!("the test command {:?} ended {code}", self.command.join(" "))
            }
        };
        let output = match self.output.trim() {
            "" => String::new(),
            output => format!("; the end of its output:\n{output}"),
        };
        Some(Violation { path: String::new(), message: format!("{why}{output}") })
    }
}

impl TestCommand {
    /// The configured command.
    pub fn configured(options: &SparcOptions) -> Option<Self> {
        let words = options.test_command.clone().filter(|words| !words.is_empty())?;
        Some(Self {
            words,
            folder: options.test_dir.clone(),
            timeout: options.test_timeout,
            max_output: options.test_output,
            env: options.test_env.clone(),
            hidden: options.secret_env.clone(),
        })
    }

    /// Runs the command until it exits or its time limit is reached.
    pub async fn run(&self, context_id: &str, redactor: &Redactor) -> CommandReport {
        let began = Instant::now();
        let mut report =
            CommandReport { command: self.words.clone(), failure: None, ..CommandReport::unconfigured() };
        if !is_safe_context(context_id) {
            report.failure = Some(format!(
                "the test command does not run for this contextId, which it would be given: it takes 1 to {MAX_CONTEXT} \
                 letters, digits, '.', '_' and '-', the first a letter or a digit, without '..'; start a workflow \
                 with such a name"
            ));
            return report;
        }
        let mut child = match self.spawn(context_id) {
            Ok(child) => child,
            Err(error) => {
                report.failure = Some(format!(
                    "the test command {:?} cannot be run: {error}; check sparc.test-command and sparc.test-dir",
                    self.words.join(" ")
                ));
                return report;
            }
        };
        let group = TestProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        // A secret is recognized only from its beginning, so more output is retained than is published.
        let mut tail = OutputTail { bytes: VecDeque::new(), max: self.max_output + EDGE, cut: false };
        match tokio::time::timeout(self.timeout, follow(&mut child, &group, &mut tail)).await {
            Ok(Ok(status)) => report.exit_code = status.code(),
            Ok(Err(error)) => {
                report.failure = Some(format!("the test command could not be followed: {error}"));
            }
            Err(_) => {
                group.kill();
                // Reaped, so that no zombie remains; the process is already killed, so this does not block.
                let _ = tokio::time::timeout(DRAIN, child.wait()).await;
                report.timed_out = true;
                report.failure = Some(format!(
                    "the test command {:?} was killed after {} s (sparc.test-timeout)",
                    self.words.join(" "),
                    self.timeout.as_secs_f32()
                ));
            }
        }
        report.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let output = redactor.text(&tail.text()).into_owned();
        let from = output.ceil_char_boundary(output.len().saturating_sub(self.max_output));
        report.truncated = tail.cut || from > 0;
        report.output = output[from..].to_owned();
        report
    }

    fn spawn(&self, context_id: &str) -> std::io::Result<Child> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).env_clear();
        for (name, value) in std::env::vars_os() {
            let listed =
                |name: &str| is_listed(name, &self.env) && !self.hidden.iter().any(|hidden| hidden == name);
            if name.to_str().is_some_and(listed) {
                command.env(name, value);
            }
        }
        command.env("SPARC_CONTEXT_ID", context_id);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true).spawn()
    }
}

/// Whether a variable is on the list: by its name, or by a prefix where the entry ends with `*`.
fn is_listed(name: &str, list: &[String]) -> bool {
    let listed = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    };
    TEST_ENV.iter().any(|pattern| listed(pattern)) || list.iter().any(|pattern| listed(pattern))
}

/// Whether a context id is safe to pass to a command: it may end up in a path, an argument, or a script that
/// does not quote it. It must begin with a letter or a digit, so that it is neither an option nor a hidden
/// file, and contain no separators.
fn is_safe_context(context_id: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=MAX_CONTEXT).contains(&context_id.len())
        && context_id.chars().all(legal)
        && context_id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !context_id.contains("..")
}

/// Reads the command's output until it has exited and the output is closed.
async fn follow(
    child: &mut Child,
    group: &TestProcessGroup,
    tail: &mut OutputTail,
) -> std::io::Result<ExitStatus> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut out_bytes, mut err_bytes) = (vec![0; 8192], vec![0; 8192]);
    let mut ended = None;
    let mut drained = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    loop {
        tokio::select! {
            read = read(&mut out, &mut out_bytes), if out.is_some() => match read? {
                0 => out = None,
                n => tail.take(&out_bytes[..n]),
            },
            read = read(&mut err, &mut err_bytes), if err.is_some() => match read? {
                0 => err = None,
                n => tail.take(&err_bytes[..n]),
            },
            status = child.wait(), if ended.is_none() => {
                ended = Some(status?);
                // Processes that it left running would keep its output open.
                group.kill();
                drained.as_mut().reset(tokio::time::Instant::now() + DRAIN);
            }
            () = &mut drained, if ended.is_some() => (out, err) = (None, None),
        }
        if let (None, None, Some(status)) = (&out, &err, ended) {
            return Ok(status);
        }
    }
}

async fn read(pipe: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> std::io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(into).await,
        None => std::future::pending().await,
    }
}

/// The command's process group, killed when it is dropped.
struct TestProcessGroup(Option<Pid>);

impl TestProcessGroup {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // An error means that no process is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for TestProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last bytes of a long output.
struct OutputTail {
    bytes: VecDeque<u8>,
    max: usize,
    cut: bool,
}

impl OutputTail {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if self.bytes.len() > self.max {
            self.cut = true;
            self.bytes.drain(..self.bytes.len() - self.max);
        }
    }

    fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

#[cfg(test)]
mod tests;
