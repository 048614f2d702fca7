//! A program as an agent: it is started for every run of a task and exchanges lines of JSON over its pipes.
//!
//! It is started from the top after its own crash, after a crash of this server, and after a question that
//! the task waited for; the task's context replays what it did before. No process is held while a task
//! waits.

mod lines;
mod program;
mod session;
mod slots;
mod stderr;
mod text_only;

use std::{fs::Metadata, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Level, Outcome, Probe, Profile, TaskContext};
use nuncio_outbound::Backoff;

use self::{
    program::AgentProcess,
    session::{ProcessSession, ProcessSessionEnd},
    slots::{ProcessSlot, ProcessSlots},
};
use super::{
    protocol,
    spec::{AgentSpec, PipeFormat, ProcessSpec, SpecError},
};

/// The first backoff before a crashed program is restarted; it doubles up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// A program as an agent.
pub(super) struct ProcessAgent {
    profile: Profile,
    spec: ProcessSpec,
    slots: ProcessSlots,
}

impl ProcessAgent {
    pub(super) fn new(table: &AgentSpec, spec: &ProcessSpec) -> Result<Self, SpecError> {
        if spec.command.first().is_none_or(|program| program.expose().is_empty()) {
            return Err(table.wrong(
                "command",
                "expected a program and its arguments, such as [\"python3\", \"agent.py\"]",
            ));
        }
        let limits = [
            ("max-processes", spec.max_processes == 0),
            ("max-line-bytes", spec.max_line_bytes == 0),
            ("max-lines", spec.max_lines == 0),
        ];
        for (key, is_nothing) in limits {
            if is_nothing {
                return Err(table.wrong(key, "expected at least 1"));
            }
        }
        let profile = table.profile(&format!("The program {}.", table.name));
        Ok(Self { profile, slots: ProcessSlots::new(spec.max_processes), spec: spec.clone() })
    }

    /// One process, from its start to its end.
    async fn run_process(&self, cx: &TaskContext, attempt: u32) -> Result<ProcessSessionEnd, AgentError> {
        let mut variables = vec![
            ("NUNCIO_TASK", cx.task_id().to_string()),
            ("NUNCIO_CONTEXT", cx.context_digest()),
            ("NUNCIO_ATTEMPT", attempt.to_string()),
        ];
        variables.extend(program::caller_variables(&self.spec, cx));
        let mut place = self.slots.acquire(cx).await?;
        let mut program = AgentProcess::start(&self.spec, &variables)?;
        let stderr = Arc::clone(&program.stderr);
        let ended = tokio::select! {
            biased;
            ended = self.run_session(cx, &mut program, &mut place, attempt) => ended,
            Err(error) = stderr.pump(cx) => Err(error),
        };
        match ended {
            Ok(ProcessSessionEnd::With(outcome)) => {
                stderr.drain_what_is_there(cx).await?;
                program.release(self.spec.grace);
                Ok(ProcessSessionEnd::With(outcome))
            }
            Ok(ended @ ProcessSessionEnd::Canceled) => Ok(ended),
            Ok(ProcessSessionEnd::Crashed(why)) => {
                stderr.drain(cx).await?;
                Ok(ProcessSessionEnd::Crashed(format!("{why}{}", stderr.tail(cx))))
            }
            Ok(ProcessSessionEnd::Silent(why)) => {
                stderr.drain(cx).await?;
                Ok(ProcessSessionEnd::Silent(format!("{why}{}", stderr.tail(cx))))
            }
            Err(AgentError::Misuse(why)) => {
                stderr.drain_what_is_there(cx).await?;
                Err(AgentError::Misuse(format!("{why}{}", stderr.tail(cx))))
            }
            Err(error) => Err(error),
        }
    }

    async fn run_session(
        &self,
        cx: &TaskContext,
        program: &mut AgentProcess,
        place: &mut ProcessSlot,
        attempt: u32,
    ) -> Result<ProcessSessionEnd, AgentError> {
        let mut input = protocol::render_input(cx, cx.messages(), &self.profile.name, self.spec.tell_caller);
        input.insert("attempt".into(), attempt.into());
        program.send(&input).await?;
        let mut talk = ProcessSession::new(cx, program, place);
        let ended = talk.run().await;
        // A canceled question returns this error.
        if matches!(ended, Ok(ProcessSessionEnd::Canceled) | Err(AgentError::Canceled)) {
            return Ok(ProcessSessionEnd::With(talk.cancel(self.grace(cx)).await));
        }
        ended
    }

    /// How long the program may take to exit. The engine drops an agent that exceeds its own grace period,
    /// and the signal has to come before that.
    fn grace(&self, cx: &TaskContext) -> Duration {
        self.spec.grace.min(cx.engine().options().cancel_grace / 2)
    }

    async fn run_with_restarts(&self, mut cx: TaskContext) -> Result<Outcome, AgentError> {
        let (mut attempt, mut backoff) = (1, Backoff::unlimited(FIRST_BACKOFF, LONGEST_BACKOFF));
        loop {
            let why = match self.run_process(&cx, attempt).await? {
                ProcessSessionEnd::With(outcome) => return Ok(outcome),
                ProcessSessionEnd::Canceled => return Err(AgentError::Canceled),
                ProcessSessionEnd::Silent(why) => return Err(AgentError::Misuse(why)),
                ProcessSessionEnd::Crashed(why) => why,
            };
            if attempt > self.spec.restarts {
                let times = if attempt > 1 { format!(" (started {attempt} times)") } else { String::new() };
                return Err(AgentError::failed(format!("{why}{times}")));
            }
            let line =
                why.lines().next().unwrap_or_default().trim_end_matches("; the last lines of its stderr:");
            let remark = format!("{line}; it is started again ({attempt} of {})", self.spec.restarts);
            cx.report(Level::Warning, remark).await?;
            tokio::select! {
                () = cx.canceled() => return Err(AgentError::Canceled),
                () = tokio::time::sleep(backoff.take_pause(None)) => {}
            }
            attempt += 1;
            cx = cx.restart();
        }
    }
}

#[async_trait]
impl Agent for ProcessAgent {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        match self.spec.speaks {
            PipeFormat::Json => {
                cx.wait_until_durable().await;
                self.run_with_restarts(cx).await
            }
            PipeFormat::Lines => text_only::run(&self.spec, &self.slots, &cx).await,
        }
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(ProgramProbe(self.spec.clone())))
    }
}

/// Probes whether the program exists and can be executed.
struct ProgramProbe(ProcessSpec);

#[async_trait]
impl Probe for ProgramProbe {
    async fn check_reachable(&self) -> Result<(), String> {
        let Some(program) = self.0.command.first() else { return Err("there is no command".into()) };
        let beside = |dir: PathBuf| dir.join(program.expose());
        let found: Vec<PathBuf> = if program.expose().contains('/') {
            vec![beside(self.0.dir.as_ref().map(|dir| dir.path().to_owned()).unwrap_or_default())]
        } else {
            let path =
                self.0.env.get("PATH").map(|path| path.expose().into()).or_else(|| std::env::var_os("PATH"));
            std::env::split_paths(&path.unwrap_or_default()).map(beside).collect()
        };
        let found: Vec<Metadata> = found.iter().filter_map(|file| file.metadata().ok()).collect();
        let mut files = found.iter().filter(|file| file.is_file()).peekable();
        if files.peek().is_none() {
            return Err(format!("there is no program {program:?}: install it, or write its path in command"));
        }
        match files.any(|file| file.mode() & 0o111 != 0) {
            true => Ok(()),
            false => Err(format!("the program {program:?} is not executable: chmod +x it")),
        }
    }
}
