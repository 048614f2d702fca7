//! The binary as a command: what it printed, and how it ended.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

/// The binary in a folder, with nothing of this process's settings.
pub(crate) fn nuncio_in(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuncio"));
    command.current_dir(dir);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("NUNCIO_") || name.starts_with("A2ACLI_") {
            command.env_remove(&*name);
        }
    }
    // The tests themselves keep the machine busy, which a batch would wait for.
    command.env("NUNCIO_BATCH_LOAD_WAIT", "1s");
    // Tests use ports of one another, and have the home folder of their user.
    command.env("NUNCIO_CARD_CACHE", "off");
    command
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    run_with_input(command, "")
}

/// The same, with something on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Ran {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input has closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The one JSON document on the standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {:?}", self.stdout))
    }

    /// One JSON document a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The value of the last line with that label.
    #[track_caller]
    pub(crate) fn field(&self, label: &str) -> &str {
        let found = self.stdout.lines().rev().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("no {label} in:\n{}", self.stdout))
    }
}

/// A command that runs while the test looks at what it prints.
pub(crate) struct Live {
    pub(crate) child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Live {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line; waits for it.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    /// What it prints from here on, and how it ends.
    pub(crate) fn finish(mut self) -> Ran {
        let mut stdout = String::new();
        while let Some(line) = self.line() {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let output = self.child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), stdout, stderr }
    }
}
