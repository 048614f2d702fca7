//! The agents that work on workflows: one for each role, the coordinator, and the agent that runs the tests of
//! a manually submitted artifact.
//!
//! They read a workflow in steps and change it in steps with an idempotency key, so that a restart in any phase
//! neither loses nor repeats a change.

mod coordinator;
mod manual_gate;
mod role;

use std::sync::Arc;

use nuncio_engine::{
    Agent, AgentError, Engine, Profile, Skill, StepContext, TaskContext,
    surface::{ToolGroup, output_schema},
};
use serde_json::{Value, json};

use super::{
    SparcShared,
    api::{PhaseWorkAnswer, SparcRunAnswer},
    command::CommandReport,
    phase::{SparcPhase, SparcRole, names},
    workflows::{SubmissionResult, WorkflowActor, Workflows},
};
use crate::retry::retry_step;
pub(super) use manual_gate::GATE;

/// All SPARC agents.
pub(super) fn all(options: &Arc<SparcShared>) -> Vec<Arc<dyn Agent>> {
    let role = |role| Arc::new(role::RoleAgent::new(role, Arc::clone(options))) as Arc<dyn Agent>;
    vec![
        role(SparcRole::Researcher),
        role(SparcRole::Coder),
        role(SparcRole::Analyst),
        Arc::new(coordinator::Coordinator::new(Arc::clone(options))),
        Arc::new(manual_gate::GateAgent::new(Arc::clone(options))),
    ]
}

/// The input of a SPARC agent's task.
#[derive(Debug)]
struct SparcTaskInput {
    context_id: String,
    phase: Option<SparcPhase>,
    goal: Option<String>,
}

impl SparcTaskInput {
    /// Parses the named arguments. A text is the goal, and the conversation is the context.
    fn read(cx: &TaskContext) -> Result<Self, String> {
        let argument = |name: &str| match cx.argument(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
            Some(_) => Err(format!("{name}: a text is wanted")),
        };
        let phase = argument("phase")?.map(|phase| phase.parse().map_err(|why| format!("phase: {why}")));
        let goal = match argument("goal")? {
            Some(goal) => Some(goal),
            None => argument("text")?.or_else(|| Some(cx.text()).filter(|text| !text.trim().is_empty())),
        };
        let context_id = argument("contextId")?.unwrap_or_else(|| cx.context_id().to_owned());
        Ok(Self { context_id, phase: phase.transpose()?, goal })
    }
}

fn workflows(engine: Engine, options: &Arc<SparcShared>) -> Workflows {
    Workflows::new(engine, Arc::clone(options))
}

fn who(cx: &TaskContext, agent: &str) -> WorkflowActor {
    WorkflowActor { caller: cx.caller(), agent: Some((agent.to_owned(), cx.task_id().to_string())) }
}

/// Submits an artifact: inspects it, runs the tests if the phase has some, and applies the gate. Each is a step
/// of its own, so that a restart repeats at most the interrupted one.
async fn submit(
    cx: &TaskContext,
    workflows: &Workflows,
    who: &WorkflowActor,
    context_id: &str,
    phase: SparcPhase,
    artifact: &Value,
) -> Result<Result<SubmissionResult, String>, AgentError> {
    let mut tests = None;
    if phase == SparcPhase::Refinement {
        let inspected: Result<bool, String> = cx
            .step("inspect", async |step| {
                let found =
                    retry_step(&step, || workflows.inspect(&who.caller, context_id, Some(phase), artifact))
                        .await?;
                Ok(found.map(|(_, violations)| violations.is_empty()).map_err(|error| error.to_string()))
            })
            .await?;
        match inspected {
            Err(why) => return Ok(Err(why)),
            Ok(false) => {}
            Ok(true) => {
                match cx.step("test", async |step| test(&step, workflows, who, context_id).await).await? {
                    Ok(report) => tests = Some(report),
                    Err(why) => return Ok(Err(why)),
                }
            }
        }
    }
    cx.step("submit", async |step| {
        let key = step.idempotency_key();
        let submitted = retry_step(&step, || {
            workflows.submit(who, context_id, Some(phase), artifact, tests.clone(), Some(&key))
        })
        .await?;
        Ok(submitted.map_err(|error| error.to_string()))
    })
    .await
}

/// Runs the tests. They are killed when the task is to end.
async fn test(
    step: &StepContext,
    workflows: &Workflows,
    who: &WorkflowActor,
    context_id: &str,
) -> Result<Result<CommandReport, String>, AgentError> {
    tokio::select! {
        biased;
        () = step.canceled() => Err(AgentError::Canceled),
        report = retry_step(step, || workflows.test(&who.caller, context_id)) => {
            Ok(report?.map_err(|error| error.to_string()))
        }
    }
}

fn profile(role: SparcRole, about: &str, skill: &str) -> Profile {
    let mut profile = Profile::new(role.name(), about).tool_group(ToolGroup::Sparc).input(json!({
        "type": "object",
        "properties": {
            "contextId": { "type": "string", "description": "The workflow; default: the conversation's own." },
            "goal": { "type": "string", "description": "What is to be achieved; starts a workflow where there is none." },
            "phase": {
                "type": "string", "enum": role.phases(),
                "description": "The phase to work on; default: the current one.",
            },
            "text": { "type": "string", "description": "The goal, in words." },
        },
        "additionalProperties": false,
    }));
    profile.skills = role
        .phases()
        .into_iter()
        .map(|phase| Skill {
            tags: vec!["sparc".into(), phase.name().into()],
            ..Skill::new(
                &format!("sparc_{phase}"),
                &format!("SPARC {phase}"),
                &format!("{skill} the {phase} phase of a SPARC workflow, up to its gate."),
            )
        })
        .collect();
    if role == SparcRole::Coordinator {
        profile.skills = vec![Skill {
            tags: vec!["sparc".into(), "coordination".into()],
            examples: vec!["Build a URL shortener whose links expire".into()],
            ..Skill::new(
                "sparc_workflow",
                "SPARC workflow",
                &format!("Drives a whole SPARC workflow: {}.", names(&SparcPhase::ALL)),
            )
        }];
        profile.output_schema = Some(output_schema::<SparcRunAnswer>());
    } else {
        profile.output_schema = Some(output_schema::<PhaseWorkAnswer>());
    }
    profile
}
