//! The role agent: works on one phase. It makes the artifact, by a model or by forms that a person fills in,
//! and submits it.
//!
//! The gate decides. After the first refusal the agent retries by itself with the violations; after that it
//! asks a person whether to retry, go back or stop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Answer, Chunk, Outcome, Profile, StepContext, Task, TaskContext, TaskFacts,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SparcTaskInput, profile, retry_step, submit, who, workflows};
use crate::resource::plain_value;
use crate::sparc::{
    SparcShared,
    api::{PhaseWorkAnswer, PhaseWorkOutcome, Violation},
    error::SparcError,
    forms::{self, FormsOutcome},
    gate::GateVerdict,
    model_prompt::{MAX_TOKENS, json_in, prompt, retry_prompt, shortened, system},
    phase::{SparcPhase, SparcRole, names},
    resources::artifact_uri,
    templates::PhaseTemplate,
    workflow::Workflow,
    workflows::{SubmissionResult, WorkflowActor, Workflows},
};

/// The time limit of one phase, waits excluded.
const TIME_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Maximum questions to a person about how to continue; after that the answer counts as a no.
const MAX_DECISIONS: usize = 100;

/// The agent that works on the phases of its role.
pub(super) struct RoleAgent {
    role: SparcRole,
    options: Arc<SparcShared>,
}

/// The context of the work on a phase. Journaled, so that a restart begins with the same one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PhaseBrief {
    phase: SparcPhase,
    goal: String,
    prompt: String,
}

/// The source of the artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArtifactSource {
    /// A model: the caller's, or the server's own.
    Model,
    /// A person, who fills in forms.
    Forms,
}

/// The outcome of one attempt to make an artifact.
enum ArtifactAttempt {
    Artifact(Value),
    /// The answer contained no artifact, with the reason.
    Nothing(String),
    /// No source can make an artifact, with the reason.
    GaveUp(String),
}

/// The previous attempt, as input for the next one.
struct PreviousAttempt {
    artifact: Option<Value>,
    verdict: GateVerdict,
}

/// A person's decision about a phase that does not pass.
enum PhaseDecision {
    Retry,
    Back { to: SparcPhase, reason: String },
    Stop(String),
}

impl RoleAgent {
    pub(super) fn new(role: SparcRole, options: Arc<SparcShared>) -> Self {
        Self { role, options }
    }
}

#[async_trait]
impl Agent for RoleAgent {
    /// The phase that the task's attributes or its input name.
    fn describe_task(&self, task: &Task) -> TaskFacts {
        let attribute = task.origin.metadata.as_ref().and_then(|metadata| metadata.get("sparcPhase"));
        let input = || task.history.first()?.data()?.get("phase");
        let phase = attribute.and_then(Value::as_str).or_else(|| input()?.as_str());
        TaskFacts { phase: phase.map(str::to_owned), ..TaskFacts::default() }
    }

    fn profile(&self) -> Profile {
        let (about, does) = match self.role {
            SparcRole::Researcher => {
                ("Finds out what is wanted, and writes the specification of a SPARC workflow.", "Does")
            }
            SparcRole::Coder => (
                "Writes the pseudocode of a SPARC workflow, and refines the work until its tests pass.",
                "Does",
            ),
            SparcRole::Analyst | SparcRole::Coordinator => {
                ("Writes the architecture of a SPARC workflow, and validates its completion.", "Does")
            }
        };
        Profile { time_limit: Some(TIME_LIMIT), ..profile(self.role, about, does) }
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let input = match SparcTaskInput::read(&cx) {
            Ok(input) => input,
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let job = RoleJob {
            who: who(&cx, self.role.name()),
            workflows: workflows(cx.engine(), &self.options),
            context_id: input.context_id.clone(),
            cx,
        };
        let begun: Result<PhaseBrief, String> = job
            .cx
            .step("begin", async |step| {
                let begun = self.begin(&job, &input, &step).await?;
                Ok(begun.map_err(|error| error.to_string()))
            })
            .await?;
        match begun {
            Err(why) => Ok(Outcome::Rejected(why)),
            Ok(work) => job.work(&work).await,
        }
    }
}

impl RoleAgent {
    /// Finds the workflow, or starts it if this role begins one, and collects the context of the work.
    async fn begin(
        &self,
        job: &RoleJob,
        input: &SparcTaskInput,
        step: &StepContext,
    ) -> Result<Result<PhaseBrief, SparcError>, AgentError> {
        let (workflows, who, context_id) = (&job.workflows, &job.who, &input.context_id);
        let first = self.role.phases().contains(&SparcPhase::Specification);
        let found = retry_step(step, || workflows.get(&who.caller, context_id)).await?;
        let stored = match (found, &input.goal) {
            (Err(SparcError::NoWorkflow(_)), Some(goal)) if first => {
                let key = step.idempotency_key();
                retry_step(step, || workflows.start(who, Some(context_id), goal, false, Some(&key))).await?
            }
            (found, _) => found,
        };
        let (workflow, phase) = match stored.and_then(|stored| self.own_phase(stored.workflow, input.phase)) {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let earlier = retry_step(step, || workflows.passed(&who.caller, &workflow)).await?;
        Ok(earlier.map(|earlier| {
            let prompt = prompt(phase, &workflow.goal, &earlier);
            PhaseBrief { phase, goal: workflow.goal, prompt }
        }))
    }

    /// The phase to work on, if it is the current one and belongs to this role.
    fn own_phase(
        &self,
        workflow: Workflow,
        asked: Option<SparcPhase>,
    ) -> Result<(Workflow, SparcPhase), SparcError> {
        let phase = asked.unwrap_or(workflow.current);
        workflow.check_current(phase)?;
        if phase.role() != self.role {
            return Err(SparcError::Invalid(format!(
                "phase: {phase} is the work of the {}; the {} works on {}",
                phase.role().name(),
                self.role.name(),
                names(&self.role.phases()),
            )));
        }
        Ok((workflow, phase))
    }
}

/// One task of a role agent.
struct RoleJob {
    cx: TaskContext,
    who: WorkflowActor,
    workflows: Workflows,
    context_id: String,
}

impl RoleJob {
    async fn work(&self, work: &PhaseBrief) -> Result<Outcome, AgentError> {
        let (mut source, mut before, mut tries) = (ArtifactSource::Model, None::<PreviousAttempt>, 0);
        loop {
            tries += 1;
            self.cx.progress(0.0, None, format!("{}: making the artifact (try {tries})", work.phase)).await?;
            let (artifact, verdict) = match self.make(work, &mut source, before.as_ref()).await? {
                ArtifactAttempt::GaveUp(why) => return self.give_up(work, &why).await,
                ArtifactAttempt::Nothing(wrong) => {
                    let violations = vec![Violation { path: String::new(), message: wrong }];
                    let kept = before.take().and_then(|before| before.artifact);
                    (
                        kept,
                        GateVerdict {
                            passed: false,
                            checked_at: Default::default(),
                            violations,
                            command: None,
                        },
                    )
                }
                ArtifactAttempt::Artifact(artifact) => {
                    let submitted =
                        submit(&self.cx, &self.workflows, &self.who, &self.context_id, work.phase, &artifact);
                    let submitted = match submitted.await? {
                        Ok(submitted) => submitted,
                        Err(why) => return Ok(Outcome::Failed(why)),
                    };
                    if submitted.verdict.passed {
                        return self.passed(&submitted, artifact).await;
                    }
                    (Some(artifact), submitted.verdict)
                }
            };
            // The first retry is automatic; after that a person decides.
            if tries > 1 {
                match self.decide(work, &verdict).await? {
                    PhaseDecision::Retry => {}
                    PhaseDecision::Back { to, reason } => return self.go_back(work, to, &reason).await,
                    PhaseDecision::Stop(why) => return self.give_up(work, &why).await,
                }
            }
            before = Some(PreviousAttempt { artifact, verdict });
        }
    }

    /// Makes an artifact: by the caller's model, else by the server's own, else by forms.
    async fn make(
        &self,
        work: &PhaseBrief,
        source: &mut ArtifactSource,
        before: Option<&PreviousAttempt>,
    ) -> Result<ArtifactAttempt, AgentError> {
        let prompt = match before {
            None => work.prompt.clone(),
            Some(PreviousAttempt { artifact, verdict }) => {
                retry_prompt(&work.prompt, artifact.as_ref(), &verdict.in_words())
            }
        };
        if *source == ArtifactSource::Model {
            match self.cx.sample(&prompt, Some(system(work.phase)), MAX_TOKENS).await? {
                Answer::Unavailable => *source = ArtifactSource::Forms,
                Answer::Decline(_) => {
                    return Ok(ArtifactAttempt::GaveUp("the question to the model was declined".into()));
                }
                Answer::Cancel => {
                    return Ok(ArtifactAttempt::GaveUp("the question to the model was dismissed".into()));
                }
                answer => return Ok(in_answer(answer.text().unwrap_or_default())),
            }
        }
        self.by_forms(work, before).await
    }

    async fn by_forms(
        &self,
        work: &PhaseBrief,
        before: Option<&PreviousAttempt>,
    ) -> Result<ArtifactAttempt, AgentError> {
        let before =
            before.and_then(|before| Some((before.artifact.as_ref()?, &before.verdict.violations[..])));
        Ok(match forms::fill(&self.cx, PhaseTemplate::of(work.phase), &work.goal, before).await? {
            FormsOutcome::Artifact(artifact) => ArtifactAttempt::Artifact(artifact),
            FormsOutcome::Refused(why) => ArtifactAttempt::GaveUp(why),
            FormsOutcome::Unavailable => ArtifactAttempt::GaveUp(
                "there is no model and no person to ask: call it from a client that samples or answers forms, send it as \
                 a task, or configure the server's own model (model.name)"
                    .into(),
            ),
        })
    }

    /// Asks a person how to continue.
    async fn decide(&self, work: &PhaseBrief, verdict: &GateVerdict) -> Result<PhaseDecision, AgentError> {
        let phase = work.phase;
        let earlier = phase.earlier();
        let actions = if earlier.is_empty() { vec!["retry", "stop"] } else { vec!["retry", "back", "stop"] };
        let mut schema = json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "title": "What to do", "enum": actions },
                "reason": { "type": "string", "title": "Reason", "description": "Needed for going back." },
            },
            "required": ["action"],
        });
        if !earlier.is_empty() {
            schema["properties"]["to"] = json!({ "type": "string", "title": "Back to", "enum": earlier });
        }
        let wrong = shortened(&verdict.in_words());
        let question = match earlier {
            [] => format!("The {phase} did not pass its gate:\n{wrong}\nShall I try again, or stop?"),
            _ => format!(
                "The {phase} did not pass its gate:\n{wrong}\nShall I try again, go back to an earlier phase (with a \
                 reason), or stop?"
            ),
        };
        let mut hint = String::new();
        for _ in 0..MAX_DECISIONS {
            let form = match self.cx.ask(format!("{hint}{question}"), schema.clone()).await? {
                Answer::Accept(form) => form,
                Answer::Decline(None) => return Ok(stop("a person declined to decide", verdict)),
                Answer::Decline(Some(note)) => {
                    return Ok(stop(&format!("a person declined to decide: {note}"), verdict));
                }
                Answer::Cancel => return Ok(stop("the question what to do was dismissed", verdict)),
                Answer::Unavailable => return Ok(stop("no person could be asked what to do", verdict)),
            };
            let reason = form["reason"].as_str().map(str::trim).unwrap_or_default();
            match (form["action"].as_str(), form["to"].as_str().and_then(|to| to.parse().ok())) {
                (Some("retry"), _) => return Ok(PhaseDecision::Retry),
                (Some("back"), Some(to)) if !reason.is_empty() => {
                    return Ok(PhaseDecision::Back { to, reason: reason.into() });
                }
                (Some("back"), _) => hint = "Going back needs a phase to go to, and a reason. ".into(),
                _ => return Ok(stop(if reason.is_empty() { "a person said stop" } else { reason }, verdict)),
            }
        }
        Ok(stop("nothing was decided", verdict))
    }

    async fn passed(&self, submitted: &SubmissionResult, artifact: Value) -> Result<Outcome, AgentError> {
        let SubmissionResult { phase, version, .. } = submitted;
        let worked = PhaseWorkAnswer {
            version: Some(*version),
            uri: Some(artifact_uri(&self.context_id, *phase, *version)),
            artifact: Some(artifact),
            ..self.worked(*phase, PhaseWorkOutcome::Passed)
        };
        self.cx
            .artifact(
                Chunk::data(phase.name(), plain_value(&worked)).named(format!("The {phase}")).complete(),
            )
            .await?;
        Ok(Outcome::said(format!("The {phase} (version {version}) has passed its gate.")))
    }

    async fn go_back(&self, work: &PhaseBrief, to: SparcPhase, reason: &str) -> Result<Outcome, AgentError> {
        let back: Result<(), String> = self
            .cx
            .step("back", async |step| {
                let key = step.idempotency_key();
                let back = retry_step(&step, || {
                    self.workflows.go_back(&self.who, &self.context_id, to, reason, Some(&key))
                })
                .await?;
                Ok(back.map(|_| ()).map_err(|error| error.to_string()))
            })
            .await?;
        if let Err(why) = back {
            return Ok(Outcome::Failed(why));
        }
        let worked = PhaseWorkAnswer {
            to: Some(to),
            reason: Some(reason.to_owned()),
            ..self.worked(work.phase, PhaseWorkOutcome::WentBack)
        };
        self.cx.artifact(Chunk::data(work.phase.name(), plain_value(&worked)).complete()).await?;
        Ok(Outcome::said(format!("The workflow is back at {to}: {reason}")))
    }

    /// Leaves the phase blocked, with the reason.
    async fn give_up(&self, work: &PhaseBrief, why: &str) -> Result<Outcome, AgentError> {
        let blocked: Result<(), String> = self
            .cx
            .step("block", async |step| {
                let key = step.idempotency_key();
                let (who, phase) = (&self.who, work.phase);
                let blocked =
                    retry_step(&step, || self.workflows.block(who, &self.context_id, phase, why, Some(&key)))
                        .await?;
                Ok(blocked.map(|_| ()).map_err(|error| error.to_string()))
            })
            .await?;
        if let Err(error) = blocked {
            return Ok(Outcome::Failed(error));
        }
        let worked = PhaseWorkAnswer {
            reason: Some(why.to_owned()),
            ..self.worked(work.phase, PhaseWorkOutcome::Blocked)
        };
        self.cx.artifact(Chunk::data(work.phase.name(), plain_value(&worked)).complete()).await?;
        Ok(Outcome::failed(format!("The {} is blocked: {why}", work.phase)))
    }

    fn worked(&self, phase: SparcPhase, outcome: PhaseWorkOutcome) -> PhaseWorkAnswer {
        PhaseWorkAnswer {
            context_id: self.context_id.clone(),
            phase,
            outcome,
            version: None,
            uri: None,
            to: None,
            reason: None,
            artifact: None,
        }
    }
}

fn stop(why: &str, verdict: &GateVerdict) -> PhaseDecision {
    PhaseDecision::Stop(format!("{why}; the gate said: {}", shortened(&verdict.in_short())))
}

fn in_answer(text: &str) -> ArtifactAttempt {
    match json_in(text) {
        Some(artifact) => ArtifactAttempt::Artifact(artifact),
        None => ArtifactAttempt::Nothing(
            "the answer has no JSON object in it, or was cut off: answer with one JSON object and nothing else".into(),
        ),
    }
}
