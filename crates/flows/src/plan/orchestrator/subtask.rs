//! One running subtask of a plan: resolves its input, chooses an agent, calls it, and retries or reroutes until
//! the subtask is done or has failed.

use std::sync::{OnceLock, atomic::Ordering};

use futures_util::future::BoxFuture;
use nuncio_engine::{
    AgentError, CallEnd, CallResult, Chunk, Message, Part, Role, State, Task, clock::Timestamp,
    context::Branch, duration,
};
use serde::{Deserialize, Serialize};

use super::{PlanExecution, agent_choice};
use crate::plan::{
    PART, PLAN,
    agent_choice::{AgentChoice, AttemptHistory},
    api::UnavailableAgent,
    check::Roster,
    file::PlanTask,
    reference::{render, render_value},
    status::{SubtaskChange, SubtaskState},
    synthesis::{PlanResults, SubtaskOutput, SubtaskResult},
};

/// One running subtask.
pub(super) struct Subtask<'a, 'r> {
    running: &'a PlanExecution<'r>,
    n: usize,
    task: &'a PlanTask,
    branch: &'a Branch,
    seen: SubtaskProgress,
}

/// The progress of the subtask so far.
#[derive(Default)]
struct SubtaskProgress {
    agent: Option<String>,
    task_id: Option<String>,
    attempts: u32,
    /// The number of retries requested.
    retries: u32,
    rerouted_from: Vec<UnavailableAgent>,
    started_at: Option<Timestamp>,
}

/// The failure of one attempt.
struct AttemptFailure {
    why: String,
    kind: AttemptFailureKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptFailureKind {
    /// The agent is unreachable.
    Unreachable,
    /// A retry may succeed.
    Failed,
    /// A retry with the same agent would fail again.
    Rejected,
    /// No agent may retry it.
    Final,
}

/// Why an attempt was abandoned, once that is journaled.
type AbandonReason = OnceLock<Result<Option<String>, AgentError>>;

/// Whether the agent of a failed attempt is down. Journaled, so that a restart makes the same decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AgentDownCheck {
    down: Option<String>,
}

impl<'a, 'r> Subtask<'a, 'r> {
    pub(super) fn new(running: &'a PlanExecution<'r>, n: usize, branch: &'a Branch) -> Self {
        Self { running, n, task: &running.plan.tasks[n], branch, seen: SubtaskProgress::default() }
    }

    pub(super) async fn run(mut self) -> Result<SubtaskResult, AgentError> {
        if let Some(why) = self.in_the_way() {
            return self.end(SubtaskState::Skipped, Some(why), SubtaskOutput::default(), None).await;
        }
        let input = match self.input() {
            Ok(input) => input,
            Err(why) => {
                return self.end(SubtaskState::Failed, Some(why), SubtaskOutput::default(), None).await;
            }
        };
        match self.tries(&input).await? {
            Ok(task) => {
                let output = SubtaskOutput::of(&task);
                let parts = whole(&task);
                if !parts.is_empty() {
                    let artifact = Chunk::parts(format!("{PART}{}", self.task.id), parts);
                    self.branch.artifact(artifact.named(self.task.id.clone()).complete()).await?;
                }
                self.end(SubtaskState::Done, None, output, Some(task.status_at)).await
            }
            Err((why, at)) => self.end(SubtaskState::Failed, Some(why), SubtaskOutput::default(), at).await,
        }
    }

    /// Why the subtask cannot begin: a required dependency is not done.
    fn in_the_way(&self) -> Option<String> {
        let running = self.running;
        running.graph.needs(self.n).iter().find_map(|need| {
            let (task, ended) = (&running.plan.tasks[*need], running.ended[*need].get()?);
            let word = if ended.state == SubtaskState::Skipped { "was skipped" } else { "failed" };
            (ended.state != SubtaskState::Done && !task.optional)
                .then(|| format!("it needs {}, which {word}", task.id))
        })
    }

    fn input(&self) -> Result<Message, String> {
        let running = self.running;
        let find = |id: &str| running.ended(id);
        let known = PlanResults { plan: running.plan, ended: &find };
        let input = &self.task.input;
        let mut parts = vec![];
        let default = || running.plan.request.clone().unwrap_or_else(|| running.plan.name.clone());
        match (&input.text, &input.data) {
            (Some(text), _) => parts.push(Part::text(render(text, &known)?)),
            (None, None) => parts.push(Part::text(default())),
            (None, Some(_)) => {}
        }
        if let Some(data) = &input.data {
            parts.push(Part::data(render_value(data, &known)?));
        }
        let message = Message::of("", Role::User, parts);
        let (size, most) = (message.size(), running.core.options.input_bytes);
        if size > most {
            return Err(format!(
                "input_bytes: with what came before its input has {size} bytes, and at most {most} are allowed"
            ));
        }
        Ok(message)
    }

    /// Attempts the subtask until it is done, or no agent is left. The error: why, and when it was determined.
    async fn tries(
        &mut self,
        input: &Message,
    ) -> Result<Result<Task, (String, Option<Timestamp>)>, AgentError> {
        let mut tried = AttemptHistory::default();
        // Consecutive attempts with the last chosen agent.
        let mut in_a_row = 0;
        let mut last: Option<String> = None;
        loop {
            let picked = self.pick(&tried).await?;
            self.seen.started_at.get_or_insert(picked.at);
            self.pass_over(&picked.passed_over);
            if self.running.until.is_some_and(|until| picked.at >= until) {
                let why = last.map(|why| format!("; before that: {why}")).unwrap_or_default();
                return Ok(Err((format!("the plan's time was up{why}"), Some(picked.at))));
            }
            let Some((agent, target)) = picked.agent else {
                let down: Vec<String> = tried
                    .down
                    .iter()
                    .chain(&picked.passed_over)
                    .map(|one| format!("{}: {}", one.agent, one.why))
                    .collect();
                let why = match (last, down.is_empty()) {
                    (Some(why), true) => why,
                    (_, false) => format!("nobody is left who could do it ({})", down.join("; ")),
                    (None, true) => "no agent that could do it exists any longer".into(),
                };
                // Agents that are down may recover after a while.
                if down.is_empty() || !self.wait_for_retry(&why).await? {
                    return Ok(Err((why, Some(picked.at))));
                }
                (tried.down, tried.again, in_a_row) = (vec![], None, 0);
                last = Some(why);
                continue;
            };
            in_a_row = if self.seen.agent.as_deref() == Some(&agent) { in_a_row + 1 } else { 1 };
            let failure = match self.attempt(&agent, input, picked.at, &tried).await? {
                Ok(task) => return Ok(Ok(task)),
                Err(failure) => failure,
            };
            if failure.kind == AttemptFailureKind::Final {
                return Ok(Err((failure.why, None)));
            }
            let down = self.check_agent_down(&agent, &failure).await?;
            last = Some(failure.why.clone());
            if let Some(why) = down {
                let passed = UnavailableAgent { agent: agent.clone(), why };
                self.pass_over(std::slice::from_ref(&passed));
                tried.down.push(passed);
                tried.again = None;
                continue;
            }
            let more = failure.kind == AttemptFailureKind::Failed && in_a_row < self.task.retry.attempts;
            if more && self.wait_for_retry(&failure.why).await? {
                (tried.again, tried.from) = (Some(agent), target);
                continue;
            }
            // The agent itself reported that it cannot do it, so only the fallbacks of the plan remain.
            self.pass_over(&[UnavailableAgent { agent, why: failure.why }]);
            tried = AttemptHistory { from: target + 1, again: None, down: vec![] };
            if tried.from > self.task.fallbacks.len() {
                return Ok(Err((last.unwrap_or_default(), None)));
            }
        }
    }

    async fn pick(&self, tried: &AttemptHistory) -> Result<AgentChoice, AgentError> {
        let running = self.running;
        let (core, engine) = (running.core, running.cx.engine());
        let skills = self.skills();
        // The chosen agent is called next, and the call waits until the choice is durable.
        self.branch
            .step_unwaited("pick", async |_| {
                let (roster, at) = (Roster::of(&engine), engine.clock().now());
                let mut picked = agent_choice::pick(self.task, tried, skills, &roster, &core.registry, at);
                for passed in &mut picked.passed_over {
                    passed.why = self.redact_reason(std::mem::take(&mut passed.why));
                }
                Ok(picked)
            })
            .await
    }

    /// Calls an agent once, and classifies the outcome.
    async fn attempt(
        &mut self,
        agent: &str,
        input: &Message,
        at: Timestamp,
        tried: &AttemptHistory,
    ) -> Result<Result<Task, AttemptFailure>, AgentError> {
        self.seen.agent = Some(agent.to_owned());
        self.seen.attempts += 1;
        self.report_progress(SubtaskState::Working, None, None).await?;
        let own = self.task.timeout.map(|timeout| at.after(timeout));
        let until = [own, self.running.until].into_iter().flatten().min();
        let given_up = AbandonReason::default();
        let gone = self.give_up(agent, tried, &given_up);
        let CallResult { end, replayed } = self.branch.call_unless(agent, input.clone(), until, gone).await?;
        let report = |outcome| {
            if !replayed {
                self.running.core.registry.report(agent, outcome);
            }
        };
        let failed = |kind, why: String| Ok(Err(AttemptFailure { why, kind }));
        match end {
            CallEnd::Ended(task) => {
                self.seen.task_id = Some(task.origin.id.to_string());
                match task.state {
                    State::Completed => {
                        report(Ok(()));
                        Ok(Ok(task))
                    }
                    State::Rejected => {
                        failed(AttemptFailureKind::Rejected, format!("rejected: {}", status_text(&task)))
                    }
                    State::Canceled => match self.why_given_up(given_up).await? {
                        Some(why) => failed(AttemptFailureKind::Unreachable, why),
                        None => failed(
                            AttemptFailureKind::Final,
                            format!("its task was canceled: {}", status_text(&task)),
                        ),
                    },
                    _ if task.is_unreachable() => {
                        let why = status_text(&task);
                        report(Err(&why));
                        failed(AttemptFailureKind::Unreachable, why)
                    }
                    _ => failed(AttemptFailureKind::Failed, status_text(&task)),
                }
            }
            CallEnd::Late(task) => {
                self.seen.task_id = Some(task.origin.id.to_string());
                if self.running.until == until {
                    return failed(
                        AttemptFailureKind::Final,
                        "it was not done when the plan's time was up".into(),
                    );
                }
                let timeout = self.task.timeout.map(duration::format).unwrap_or_default();
                failed(AttemptFailureKind::Failed, format!("it was not done within its timeout of {timeout}"))
            }
            CallEnd::Refused(why) => failed(AttemptFailureKind::Rejected, why),
        }
    }

    /// Resolves when the registry opens the breaker of an agent that is working and another agent could do the
    /// subtask. The decision is journaled before the agent's task is canceled.
    async fn give_up<'s>(
        &'s self,
        agent: &str,
        tried: &AttemptHistory,
        given_up: &'s AbandonReason,
    ) -> BoxFuture<'s, ()> {
        let registry = &self.running.core.registry;
        let mut news = registry.subscribe_health();
        let why = loop {
            if let Some(why) = registry.open_breaker_reason(agent)
                && self.has_another(agent, tried, &why)
            {
                break self.redact_reason(why);
            }
            if news.changed().await.is_err() {
                return std::future::pending().await;
            }
        };
        Box::pin(async move {
            let kept = self.aside().step("give up", async |_| Ok(Some(why))).await;
            // There is one such call per attempt.
            let _ = given_up.set(kept);
        })
    }

    /// Why the last attempt was abandoned, if it was: in this run, or before a restart.
    async fn why_given_up(&self, given_up: AbandonReason) -> Result<Option<String>, AgentError> {
        match given_up.into_inner() {
            Some(kept) => kept,
            None => self.aside().step("give up", async |_| Ok(None)).await,
        }
    }

    /// A separate branch for the attempt, whose own branch is in use by its call.
    fn aside(&self) -> Branch {
        self.branch.branch(&format!("try {}", self.seen.attempts))
    }

    /// Whether another agent could do the subtask.
    fn has_another(&self, agent: &str, tried: &AttemptHistory, why: &str) -> bool {
        let running = self.running;
        let mut without = AttemptHistory { again: None, ..tried.clone() };
        without.down.push(UnavailableAgent { agent: agent.to_owned(), why: why.to_owned() });
        let (roster, at) = (Roster::of(&running.cx.engine()), running.cx.engine().clock().now());
        agent_choice::pick(self.task, &without, self.skills(), &roster, &running.core.registry, at)
            .agent
            .is_some()
    }

    /// The skills of the named agent when the plan began.
    fn skills(&self) -> &std::collections::BTreeSet<String> {
        static NONE: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
        self.running.begun.skills.get(&self.task.id).unwrap_or(&NONE)
    }

    /// Whether the agent of a failed attempt is down: it was unreachable, it was removed from the catalog, or a
    /// probe fails now.
    async fn check_agent_down(
        &self,
        agent: &str,
        failure: &AttemptFailure,
    ) -> Result<Option<String>, AgentError> {
        let running = self.running;
        let (core, engine) = (running.core, running.cx.engine());
        let looked: AgentDownCheck = self
            .branch
            .step("look", async |_| {
                let down = match failure.kind {
                    AttemptFailureKind::Unreachable => Some(failure.why.clone()),
                    _ if engine.catalog().get(agent).is_err() => Some("it was removed".to_owned()),
                    _ => core.registry.probe_down_reason(agent).await.map(|why| self.redact_reason(why)),
                };
                Ok(AgentDownCheck { down })
            })
            .await?;
        Ok(looked.down)
    }

    /// Why an agent is down, as far as the caller may read it: the registry learns it from other callers' calls
    /// and its own probes.
    fn redact_reason(&self, why: String) -> String {
        match self.running.cx.failure_report().is_open() {
            true => why,
            false => "it cannot be reached".into(),
        }
    }

    /// Waits for the next attempt; false if no retry is left.
    async fn wait_for_retry(&mut self, why: &str) -> Result<bool, AgentError> {
        let retry = self.task.retry;
        if self.seen.retries + 1 >= retry.attempts.saturating_mul(1 + self.task.fallbacks.len() as u32) {
            return Ok(false);
        }
        self.seen.retries += 1;
        if !self.running.grant(&self.task.id, self.seen.retries).await? {
            return Ok(false);
        }
        let doubled = retry.backoff.saturating_mul(1 << (self.seen.retries - 1).min(16));
        let wait = doubled.min(self.running.core.options.longest_backoff);
        let soon = format!("{why}; tried again in {}", duration::format(wait));
        self.report_progress(SubtaskState::Retrying, Some(soon), None).await?;
        self.branch.sleep(wait).await?;
        Ok(true)
    }

    fn pass_over(&mut self, passed: &[UnavailableAgent]) {
        for one in passed {
            if !self.seen.rerouted_from.iter().any(|known| known.agent == one.agent) {
                self.seen.rerouted_from.push(one.clone());
            }
        }
    }

    async fn end(
        &mut self,
        state: SubtaskState,
        why: Option<String>,
        output: SubtaskOutput,
        at: Option<Timestamp>,
    ) -> Result<SubtaskResult, AgentError> {
        self.running.over.fetch_add(1, Ordering::SeqCst);
        let duration_ms = match (self.seen.started_at, at) {
            (Some(from), Some(to)) => u64::try_from(to.since(from).as_millis()).ok(),
            _ => None,
        };
        // The agent of the last attempt does not count as rerouted from.
        if let Some(agent) = &self.seen.agent {
            self.seen.rerouted_from.retain(|passed| passed.agent != *agent);
        }
        self.report_progress(state, why.clone(), duration_ms).await?;
        let SubtaskProgress { agent, task_id, attempts, rerouted_from, started_at, .. } =
            std::mem::take(&mut self.seen);
        Ok(SubtaskResult {
            state,
            why,
            agent,
            task_id,
            attempts,
            rerouted_from,
            started_at,
            duration_ms,
            output,
        })
    }

    /// Reports a change: a log line for people, and a line of the `plan` artifact for programs that draw the plan.
    async fn report_progress(
        &self,
        state: SubtaskState,
        why: Option<String>,
        duration_ms: Option<u64>,
    ) -> Result<(), AgentError> {
        let SubtaskProgress { agent, task_id, attempts, rerouted_from, started_at, .. } = &self.seen;
        let by = agent.as_ref().map(|agent| format!(" by {agent}")).unwrap_or_default();
        let long = duration_ms.map(|ms| format!(" in {:.1} s", ms as f64 / 1_000.0)).unwrap_or_default();
        let because = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let (over, all) = (self.running.over.load(Ordering::SeqCst), self.running.plan.tasks.len());
        let line = format!("{} {}{by}{long} ({over}/{all}){because}", self.task.id, state.name());
        self.branch.progress(over as f64, Some(all as f64), line).await?;
        let changed = SubtaskChange {
            task: self.task.id.clone(),
            state,
            agent: agent.clone(),
            task_id: task_id.clone(),
            attempts: *attempts,
            why,
            rerouted_from: rerouted_from.clone(),
            started_at: *started_at,
            duration_ms,
        };
        // Only strings, numbers and lists: serialization cannot fail.
        let changed = serde_json::to_value(changed).unwrap_or_default();
        self.branch.add(Chunk::data(PLAN, changed)).await
    }
}

/// All artifacts of a task; its status message if it has none.
fn whole(task: &Task) -> Vec<Part> {
    let made: Vec<Part> = task.artifacts.iter().flat_map(|artifact| artifact.parts.clone()).collect();
    if !made.is_empty() {
        return made;
    }
    task.status_message.as_ref().map(|message| message.parts.clone()).unwrap_or_default()
}

/// The final status message of a task, as text.
pub(super) fn status_text(task: &Task) -> String {
    let said = task.status_message.as_ref().map(Message::joined_text).filter(|said| !said.is_empty());
    said.unwrap_or_else(|| "it did not say why".into())
}
