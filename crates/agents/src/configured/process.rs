//! A program as an agent: it is started for every run of a task and speaks lines of JSON on its pipes.
//!
//! It is started from the top after a crash of its own, after a crash of this server, and after a question that was
//! waited for; what it did before is replayed by the task's context. Nothing of it is kept while a task waits.

mod lines;
mod places;
mod plain;
mod program;
mod stderr;
mod talk;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Level, Outcome, Probe, Profile, TaskContext};

use self::{
    places::{Place, Places},
    program::Program,
    talk::{Ended, Talk},
};
use super::{
    protocol,
    spec::{AgentSpec, ProcessSpec, Speaks, SpecError},
};

/// The wait before a program that crashed is started again; it doubles up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// A program as an agent.
pub(super) struct ProcessAgent {
    profile: Profile,
    spec: ProcessSpec,
    places: Places,
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
        Ok(Self { profile, places: Places::new(spec.max_processes), spec: spec.clone() })
    }

    /// One process, from its start to its end.
    async fn once(&self, cx: &TaskContext, attempt: u32) -> Result<Ended, AgentError> {
        let mut variables = vec![
            ("NUNCIO_TASK", cx.task_id().to_string()),
            ("NUNCIO_CONTEXT", cx.context_digest()),
            ("NUNCIO_ATTEMPT", attempt.to_string()),
        ];
        variables.extend(program::caller_variables(&self.spec, cx));
        let mut place = self.places.take(cx).await?;
        let mut program = Program::start(&self.spec, &variables)?;
        let stderr = Arc::clone(&program.stderr);
        let ended = tokio::select! {
            biased;
            ended = self.talk(cx, &mut program, &mut place, attempt) => ended,
            Err(error) = stderr.pump(cx) => Err(error),
        };
        match ended {
            Ok(Ended::With(outcome)) => {
                stderr.drain_what_is_there(cx).await?;
                program.let_go(self.spec.grace);
                Ok(Ended::With(outcome))
            }
            Ok(ended @ Ended::Canceled) => Ok(ended),
            Ok(Ended::Crashed(why)) => {
                stderr.drain(cx).await?;
                Ok(Ended::Crashed(format!("{why}{}", stderr.tail(cx))))
            }
            Ok(Ended::Silent(why)) => {
                stderr.drain(cx).await?;
                Ok(Ended::Silent(format!("{why}{}", stderr.tail(cx))))
            }
            Err(AgentError::Misuse(why)) => {
                stderr.drain_what_is_there(cx).await?;
                Err(AgentError::Misuse(format!("{why}{}", stderr.tail(cx))))
            }
            Err(error) => Err(error),
        }
    }

    async fn talk(
        &self,
        cx: &TaskContext,
        program: &mut Program,
        place: &mut Place,
        attempt: u32,
    ) -> Result<Ended, AgentError> {
        let mut input = protocol::input(cx, cx.messages(), &self.profile.name, self.spec.tell_caller);
        input.insert("attempt".into(), attempt.into());
        program.tell(&input).await?;
        let mut talk = Talk::new(cx, program, place);
        let ended = talk.go_on().await;
        // A question that is canceled says so by its error.
        if matches!(ended, Ok(Ended::Canceled) | Err(AgentError::Canceled)) {
            return Ok(Ended::With(talk.cancel(self.grace(cx)).await));
        }
        ended
    }

    /// How long the program has to end by itself. The engine drops whoever takes longer than its own grace period,
    /// and the signal is to come before that.
    fn grace(&self, cx: &TaskContext) -> Duration {
        self.spec.grace.min(cx.engine().options().cancel_grace / 2)
    }

    async fn converse(&self, mut cx: TaskContext) -> Result<Outcome, AgentError> {
        let (mut attempt, mut backoff) = (1, FIRST_BACKOFF);
        loop {
            let why = match self.once(&cx, attempt).await? {
                Ended::With(outcome) => return Ok(outcome),
                Ended::Canceled => return Err(AgentError::Canceled),
                Ended::Silent(why) => return Err(AgentError::Misuse(why)),
                Ended::Crashed(why) => why,
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
                () = tokio::time::sleep(backoff) => {}
            }
            (attempt, backoff) = (attempt + 1, (backoff * 2).min(LONGEST_BACKOFF));
            cx = cx.again();
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
            Speaks::Json => {
                cx.durable().await;
                self.converse(cx).await
            }
            Speaks::Lines => plain::run(&self.spec, &self.places, &cx).await,
        }
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::new(IsThere(self.spec.clone())))
    }
}

/// Looks for the program.
struct IsThere(ProcessSpec);

#[async_trait]
impl Probe for IsThere {
    async fn look(&self) -> Result<(), String> {
        let Some(program) = self.0.command.first() else { return Err("there is no command".into()) };
        let beside = |dir: PathBuf| dir.join(program.expose()).is_file();
        let found = if program.expose().contains('/') {
            beside(self.0.dir.as_ref().map(|dir| dir.path().to_owned()).unwrap_or_default())
        } else {
            let path =
                self.0.env.get("PATH").map(|path| path.expose().into()).or_else(|| std::env::var_os("PATH"));
            std::env::split_paths(&path.unwrap_or_default()).any(beside)
        };
        if found { Ok(()) } else { Err(format!("there is no program {program:?}")) }
    }
}
