//! The stderr of a program: lines for the task's log, and the last ones for the error. Callers of tenants
//! other than `home` see neither; the server's log has both.
//!
//! A program may print without end, so lines are capped in length, number and rate. Omitted lines are
//! counted and reported.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::{AgentError, Level, TaskContext};
use parking_lot::Mutex;
use tokio::{process::ChildStderr, sync::mpsc, task::JoinHandle};

use super::lines::BoundedLines;

/// Bytes of one line.
pub(super) const STDERR_LINE_BYTES: usize = 2_000;
/// Lines that go into the task's log, per process.
pub(super) const STDERR_LINES: u32 = 1_000;
/// Lines that go into the task's log within one second.
pub(super) const STDERR_LINES_PER_SECOND: u32 = 100;
/// Last lines that are retained for the error.
const TAIL: usize = 20;
/// Lines that are buffered for the log.
const WAITING: usize = 256;
/// How long to wait for the last lines after the program has exited: a child that it left may hold the pipe
/// open.
const DRAIN: Duration = Duration::from_millis(500);

/// A reader of a program's stderr.
pub(super) struct StderrReader {
    lines: tokio::sync::Mutex<mpsc::Receiver<String>>,
    tail: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl StderrReader {
    pub(super) fn read(pipe: ChildStderr) -> Self {
        let (sender, lines) = mpsc::channel(WAITING);
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&tail);
        let reader = tokio::spawn(async move {
            let (mut lines, mut valve) = (BoundedLines::new(pipe, STDERR_LINE_BYTES), LineRateLimit::new());
            // An error counts as the end: the pipe can no longer be read.
            while let Ok(Some(line)) = lines.next().await {
                let text = if line.cut { format!("{} …", line.text) } else { line.text };
                push_tail(&kept, &text);
                if valve.passes(Instant::now()) && sender.try_send(text).is_err() {
                    valve.passed_over();
                }
            }
            if valve.left_out > 0 {
                let _ = sender.send(format!("… {} lines of stderr were left out", valve.left_out)).await;
            }
        });
        Self { lines: tokio::sync::Mutex::new(lines), tail, reader }
    }

    /// Copies lines to the task's log as long as there are any; then waits for ever.
    pub(super) async fn pump(&self, cx: &TaskContext) -> Result<(), AgentError> {
        self.pass_on(cx).await?;
        std::future::pending().await
    }

    /// Copies the remaining lines of a program that has exited.
    pub(super) async fn drain(&self, cx: &TaskContext) -> Result<(), AgentError> {
        tokio::time::timeout(DRAIN, self.pass_on(cx)).await.unwrap_or(Ok(()))
    }

    /// Copies the lines so far of a program that may still run.
    pub(super) async fn drain_what_is_there(&self, cx: &TaskContext) -> Result<(), AgentError> {
        let engine = cx.engine();
        let mut lines = self.lines.lock().await;
        while let Ok(line) = lines.try_recv() {
            cx.report(Level::Info, engine.redactor().text(&line)).await?;
        }
        Ok(())
    }

    async fn pass_on(&self, cx: &TaskContext) -> Result<(), AgentError> {
        let engine = cx.engine();
        let mut lines = self.lines.lock().await;
        while let Some(line) = lines.recv().await {
            cx.report(Level::Info, engine.redactor().text(&line)).await?;
        }
        Ok(())
    }

    /// The last lines, to be appended to an error, without anything that looks like a secret; empty if there
    /// are none.
    pub(super) fn tail(&self, cx: &TaskContext) -> String {
        let tail = self.tail.lock();
        if tail.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = tail.iter().map(String::as_str).collect();
        let lines = lines.join("\n");
        format!("; the last lines of its stderr:\n{}", cx.engine().redactor().text(&lines))
    }
}

impl Drop for StderrReader {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn push_tail(tail: &Mutex<VecDeque<String>>, line: &str) {
    let mut tail = tail.lock();
    if tail.len() == TAIL {
        tail.pop_front();
    }
    tail.push_back(line.to_owned());
}

/// Limits lines by number and by rate.
struct LineRateLimit {
    passed: u32,
    second: Instant,
    in_second: u32,
    left_out: u64,
}

impl LineRateLimit {
    fn new() -> Self {
        Self { passed: 0, second: Instant::now(), in_second: 0, left_out: 0 }
    }

    fn passes(&mut self, now: Instant) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.in_second) = (now, 0);
        }
        let passes = self.passed < STDERR_LINES && self.in_second < STDERR_LINES_PER_SECOND;
        if passes {
            self.passed += 1;
            self.in_second += 1;
        } else {
            self.left_out += 1;
        }
        passes
    }

    fn passed_over(&mut self) {
        self.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_up_to_a_rate_and_up_to_a_number() {
        let mut valve = LineRateLimit::new();
        let start = Instant::now();
        let burst = (0..150).filter(|_| valve.passes(start)).count();
        assert_eq!((burst, valve.left_out), (100, 50));
        let mut passed = burst;
        for second in 1..20 {
            let now = start + Duration::from_secs(second);
            passed += (0..100).filter(|_| valve.passes(now)).count();
        }
        assert_eq!(passed, 1_000);
    }
}
