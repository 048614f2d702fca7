//! The agent that runs plans. It takes a plan, or a request to make one from, runs every subtask as a task of
//! its own, and joins the results.
//!
//! Everything that might differ after a restart is determined in journaled steps: the validated plan, the
//! chosen agents, the times, and the granted retries. The result of a subtask is journaled with its call. A
//! restarted run therefore makes the same decisions as the run before, and calls no agent twice.

mod request;
mod subtask;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    pin::pin,
    sync::{Arc, OnceLock, atomic::AtomicUsize},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use nuncio_engine::{
    Agent, AgentError, Answer, CallEnd, Chunk, Level, Message, Outcome, Part, Profile, Role, State,
    TaskContext, TaskUse,
    clock::Timestamp,
    surface::{ToolGroup, input_schema},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    AGENT, PLAN, PlanCore, RESULT, agent_choice,
    api::OrchestratorRequest,
    check::Roster,
    file::{Plan, PlanTarget, Synthesis},
    graph::PlanGraph,
    poll_slice::{PollSlice, SlicedFuture},
    status::SubtaskState,
    subtask_permits::{self, SubtaskPermit},
    synthesis::{self, PlanResults, SubtaskResult},
};
use request::PlanRequest;

/// The longest answer of a model, in tokens.
const MODEL_TOKENS: u32 = 4_096;

pub(crate) struct Orchestrator {
    pub(crate) core: Arc<PlanCore>,
}

/// An admitted plan. It is journaled, so that a restart continues with the same plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AdmittedPlan {
    plan: Value,
    at: Timestamp,
    /// The skills of the named agents when the plan began, by task.
    skills: HashMap<String, BTreeSet<String>>,
}

/// The schema of the arguments. It is open: a plan may also be given as the message's data itself.
fn input() -> Value {
    let mut schema = input_schema::<OrchestratorRequest>();
    if let Value::Object(schema) = &mut schema {
        schema.shift_remove("additionalProperties");
    }
    schema
}

#[async_trait]
impl Agent for Orchestrator {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            AGENT,
            "Runs a plan over many agents as one durable task: subtasks in parallel where their needs allow, with \
             retries, timeouts and fallbacks, rerouted where an agent is down, and put together at the end with where \
             each part came from. Give it a plan, or a request of which it makes one.",
        )
        .input(input())
        .tool_group(ToolGroup::Plan);
        profile.tasks = TaskUse::Offered;
        profile.time_limit = Some(self.core.options.time_limit);
        let skill = &mut profile.skills[0];
        skill.id = "run_plan".into();
        skill.name = "Run a plan".into();
        skill.tags = vec!["plan".into(), "orchestration".into(), "multi-agent".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let (around, most) =
            (cx.called_by().iter().filter(|agent| *agent == AGENT).count(), self.core.options.plans_around);
        if around > most {
            return Ok(Outcome::rejected(format!(
                "plans_around: a plan is within at most {most} others; this one is within {around}"
            )));
        }
        let wanted = match request::read(&cx) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Outcome::rejected(why)),
        };
        let only_make = matches!(&wanted, PlanRequest::Make { run: false, .. });
        let mut begun = match request::begin(&self.core, &cx, wanted).await? {
            Ok(begun) => begun,
            Err(why) => return Ok(Outcome::rejected(why)),
        };
        // The value is not needed again while the plan runs, so its memory is freed.
        let value = std::mem::take(&mut begun.plan);
        let plan = match Plan::read(&value, &self.core.options) {
            Ok(plan) => plan,
            // The plan was valid when it was admitted; the limits may have been lowered since.
            Err(problems) => return Ok(Outcome::failed(problems.to_string())),
        };
        drop(value);
        tokio::task::yield_now().await;
        if only_make {
            let file = plan.to_toml();
            // The same format as the tool that makes plans by rules.
            let made = json!({ "plan": plan.to_value(), "file": file, "matches": [] });
            let parts = vec![Part::text(file), Part::data(made)];
            cx.artifact(Chunk::parts(PLAN, parts).named("Plan").complete()).await?;
            return Ok(Outcome::said(format!("The plan has {} tasks.", plan.tasks.len())));
        }
        let running = PlanExecution::new(&self.core, &cx, &plan, &begun);
        running.run().await
    }
}

/// A plan that is running.
struct PlanExecution<'a> {
    core: &'a PlanCore,
    cx: &'a TaskContext,
    plan: &'a Plan,
    begun: &'a AdmittedPlan,
    graph: PlanGraph,
    /// The result of each subtask, once it has ended.
    ended: Vec<OnceLock<SubtaskResult>>,
    over: AtomicUsize,
    /// The deadline of the plan.
    until: Option<Timestamp>,
    ledger: tokio::sync::Mutex<RetryLedger>,
    /// The permits of the caller's tenant, at this nesting depth of plans.
    turns: Arc<Semaphore>,
}

/// The retries that were granted, in the order of the grants: each is a step of the plan's main branch.
#[derive(Default)]
struct RetryLedger {
    granted: u32,
    /// Journaled grants that were read back before their subtasks requested them.
    replayed: HashMap<(String, u32), bool>,
}

/// The decision on one requested retry.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RetryGrant {
    task: String,
    attempt: u32,
    granted: bool,
}

impl<'a> PlanExecution<'a> {
    fn new(core: &'a PlanCore, cx: &'a TaskContext, plan: &'a Plan, begun: &'a AdmittedPlan) -> Self {
        Self {
            core,
            cx,
            plan,
            begun,
            graph: PlanGraph::of(plan),
            ended: plan.tasks.iter().map(|_| OnceLock::new()).collect(),
            over: AtomicUsize::new(0),
            until: plan.budget.time.map(|time| begun.at.after(time)),
            ledger: tokio::sync::Mutex::default(),
            turns: core.turns.of(cx.caller().tenant(), cx.called_by().len()),
        }
    }

    async fn run(&self) -> Result<Outcome, AgentError> {
        let first = json!({ "plan": self.plan.to_value(), "startedAt": crate::resource::iso(self.begun.at) });
        self.cx
            .add(Chunk::data(PLAN, first).named("Plan").described("The plan, and what became of its tasks"))
            .await?;
        match self.dispatch().await {
            Ok(()) => {}
            Err(AgentError::Canceled) => {
                let done =
                    self.ended.iter().filter_map(OnceLock::get).filter(|e| e.state == SubtaskState::Done);
                let (done, all) = (done.count(), self.plan.tasks.len());
                return Ok(Outcome::canceled(format!(
                    "The plan was canceled: {done} of {all} subtasks were done."
                )));
            }
            Err(error) => return Err(error),
        }
        let ended: Vec<SubtaskResult> = self.ended.iter().filter_map(|ended| ended.get().cloned()).collect();
        let failed = self.failed(&ended);
        if !failed.is_empty() {
            let result = json!({ "name": self.plan.name, "parts": synthesis::provenance(self.plan, &ended) });
            self.cx.artifact(Chunk::data(RESULT, result).named("Result").complete()).await?;
            return Ok(Outcome::failed(format!(
                "{} was not completed.\n{}",
                self.plan.name,
                failed.join("\n")
            )));
        }
        let (text, by) = self.synthesize(&ended).await?;
        let result = json!({
            "name": self.plan.name,
            "synthesis": by,
            "parts": synthesis::provenance(self.plan, &ended),
        });
        let parts = vec![Part::text(text), Part::data(result)];
        self.cx.artifact(Chunk::parts(RESULT, parts).named("Result").complete()).await?;
        let done = ended.iter().filter(|ended| ended.state == SubtaskState::Done).count();
        Ok(Outcome::said(format!("{}: {done} of {} subtasks are done.", self.plan.name, ended.len())))
    }

    /// Runs every subtask that can run: each begins as soon as its dependencies are done and it has a permit. A
    /// subtask that waits for a permit is only a number in a queue, because nested plans have hundreds of
    /// thousands of them.
    async fn dispatch(&self) -> Result<(), AgentError> {
        let slice = PollSlice::new();
        slice.of(self.dispatch_in(&slice)).await
    }

    async fn dispatch_in(&self, slice: &PollSlice) -> Result<(), AgentError> {
        let mut left: Vec<usize> = (0..self.graph.len()).map(|n| self.graph.needs(n).len()).collect();
        let mut ready: VecDeque<usize> = (0..left.len()).filter(|n| left[*n] == 0).collect();
        let mut turn = pin!(subtask_permits::take(&self.turns));
        let mut flying = FuturesUnordered::new();
        loop {
            let (n, ended) = tokio::select! {
                biased;
                Some(ended) = flying.next() => ended,
                taken = (SlicedFuture { slice, future: turn.as_mut() }), if !ready.is_empty() => {
                    turn.set(subtask_permits::take(&self.turns));
                    if let Some(n) = ready.pop_front() {
                        flying.push(SlicedFuture { slice, future: self.start(n, taken) });
                    }
                    continue;
                }
                () = self.cx.canceled(), if !ready.is_empty() => return Err(AgentError::Canceled),
                else => return Ok(()),
            };
            // It is set only once, because there is one branch per task.
            let _ = self.ended[n].set(ended?);
            for dependent in self.graph.dependents(n) {
                left[*dependent] -= 1;
                if left[*dependent] == 0 {
                    ready.push_back(*dependent);
                }
            }
        }
    }

    fn start(
        &self,
        n: usize,
        turn: SubtaskPermit,
    ) -> BoxFuture<'_, (usize, Result<SubtaskResult, AgentError>)> {
        let branch = self.cx.branch(&self.plan.tasks[n].id);
        Box::pin(async move {
            let _turn = turn;
            (n, subtask::Subtask::new(self, n, &branch).run().await)
        })
    }

    fn ended(&self, id: &str) -> Option<&SubtaskResult> {
        let n = self.plan.tasks.iter().position(|task| task.id == id)?;
        self.ended[n].get()
    }

    /// Whether a subtask may be retried. Retries are charged to the plan's budget, in the order in which they
    /// were first requested.
    async fn grant(&self, task: &str, attempt: u32) -> Result<bool, AgentError> {
        let budget = self.plan.budget.retries.unwrap_or(self.core.options.retries_per_plan);
        let mut ledger = self.ledger.lock().await;
        let asked = (task.to_owned(), attempt);
        loop {
            if let Some(granted) = ledger.replayed.remove(&asked) {
                return Ok(granted);
            }
            let granted = ledger.granted < budget;
            let fresh = RetryGrant { task: task.to_owned(), attempt, granted };
            // After a restart this returns the journaled grant, which may belong to another subtask.
            let grant: RetryGrant = self.cx.step("retry", async |_| Ok(fresh)).await?;
            ledger.granted += u32::from(grant.granted);
            ledger.replayed.insert((grant.task, grant.attempt), grant.granted);
        }
    }

    /// Why the plan failed: each required subtask that is not done, with its reason.
    fn failed(&self, ended: &[SubtaskResult]) -> Vec<String> {
        let tasks = self.plan.tasks.iter().zip(ended);
        let failed = tasks.filter(|(task, ended)| ended.state != SubtaskState::Done && !task.optional);
        // No subtask is skipped because of an optional one that failed: optional subtasks do not block others.
        let line = |(task, ended): (&super::file::PlanTask, &SubtaskResult)| {
            let why = ended.why.as_deref().unwrap_or("it was not begun");
            match (&ended.agent, ended.state) {
                (Some(agent), SubtaskState::Failed) => format!("- {} ({agent}): {why}", task.id),
                _ => format!("- {}: {why}", task.id),
            }
        };
        failed.map(line).collect()
    }

    /// Joins the results of the subtasks, and reports what joined them.
    async fn synthesize(&self, ended: &[SubtaskResult]) -> Result<(String, Value), AgentError> {
        let find = |id: &str| self.ended(id);
        let known = PlanResults { plan: self.plan, ended: &find };
        let tried: Result<(String, Value), String> = match &self.plan.synthesis {
            Synthesis::Parts => Ok((synthesis::parts(self.plan, ended), json!({ "by": "parts" }))),
            Synthesis::Template(template) => {
                super::reference::render(template, &known).map(|text| (text, json!({ "by": "template" })))
            }
            Synthesis::By(target, words) => {
                match synthesis::prompt(self.plan, ended, words.as_deref(), &known) {
                    Ok(prompt) => self.ask_agent(target, ended, prompt).await?,
                    Err(why) => Err(why),
                }
            }
            Synthesis::Model(words) => match synthesis::prompt(self.plan, ended, words.as_deref(), &known) {
                Ok(prompt) => self.ask_model(prompt).await?,
                Err(why) => Err(why),
            },
        };
        match tried {
            Ok(made) => Ok(made),
            // The results are not lost because they could not be joined.
            Err(why) => {
                self.cx.log(Level::Warning, format!("The results were not joined: {why}")).await?;
                Ok((synthesis::parts(self.plan, ended), json!({ "by": "parts", "why": why })))
            }
        }
    }

    async fn ask_agent(
        &self,
        target: &PlanTarget,
        ended: &[SubtaskResult],
        prompt: String,
    ) -> Result<Result<(String, Value), String>, AgentError> {
        let (core, engine) = (self.core, self.cx.engine());
        let agent: Option<String> = self
            .cx
            .step("synthesis", async |_| {
                let roster = Roster::of(&engine);
                let meant = roster.matching_agents(target);
                let well = meant.iter().find(|agent| core.registry.down_reason(agent).is_none());
                Ok(well.or(meant.first()).map(|agent| (*agent).to_owned()))
            })
            .await?;
        let Some(agent) = agent else { return Ok(Err(format!("{target} no longer exists"))) };
        let data = json!({ "parts": synthesis::provenance(self.plan, ended) });
        let input = Message::of("", Role::User, vec![Part::text(prompt), Part::data(data)]);
        Ok(match self.cx.call_until(&agent, input, self.until).await?.end {
            CallEnd::Ended(task) if task.state == State::Completed => {
                let made = synthesis::SubtaskOutput::of(&task);
                let by = json!({ "by": "agent", "agent": agent, "taskId": task.origin.id.to_string() });
                Ok((made.text, by))
            }
            CallEnd::Ended(task) => Err(format!("{agent}: {}", subtask::status_text(&task))),
            CallEnd::Late(_) => Err(format!("{agent} was not done when the plan's time was up")),
            CallEnd::Refused(why) => Err(format!("{agent}: {why}")),
        })
    }

    async fn ask_model(&self, prompt: String) -> Result<Result<(String, Value), String>, AgentError> {
        Ok(ask_model(self.cx, prompt)
            .await?
            .map(|(text, model)| (text, json!({ "by": "model", "model": model }))))
    }
}

/// Sends a prompt to the caller's model, or to the server's own if the caller has none. Returns the text and the
/// model's name.
async fn ask_model(cx: &TaskContext, prompt: String) -> Result<Result<(String, String), String>, AgentError> {
    // Journaled, because the configuration may differ after a restart.
    let named: Option<String> = cx.step("which model", async |_| Ok(cx.own_model())).await?;
    let said = match cx.sample(prompt, None, MODEL_TOKENS).await? {
        Answer::Accept(answer) => answer.as_str().or_else(|| answer["text"].as_str()).map(str::to_owned),
        Answer::Decline(_) | Answer::Cancel => {
            return Ok(Err("the caller's model was not to be asked".into()));
        }
        Answer::Unavailable => {
            return Ok(Err(match named {
                Some(name) => format!("the model {name} returned no text"),
                None => "there is no model: none is configured, and the caller has none".into(),
            }));
        }
    };
    Ok(said
        .map(|text| (text, named.unwrap_or_else(|| "the caller's".to_owned())))
        .ok_or_else(|| "the model's answer held no text".into()))
}
