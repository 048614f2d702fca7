//! The coordinator: drives a whole workflow as one durable task. For each phase it calls the agent of that
//! phase's role as a child, and follows the workflow, also back to earlier phases.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Chunk, Content, Message, Outcome, Part, Profile, Role as Speaker, State, StepContext,
    Task, TaskContext, TaskFacts,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SparcTaskInput, profile, retry_step, who, workflows};
use crate::resource::plain_value;
use crate::sparc::{
    SparcShared,
    api::{PassedPhase, SparcRunAnswer},
    error::SparcError,
    phase::{SparcPhase, SparcRole},
    resources::{artifact_uri, workflow_uri},
    store::StoredWorkflow,
    workflows::{WorkflowActor, Workflows},
};

/// The time limit of one workflow: the coordinator waits for its children, which may wait for people.
const TIME_LIMIT: Duration = Duration::from_secs(90 * 24 * 3600);
/// The memory bank namespace for artifacts that a batch stores.
const MEMORY: &str = "sparc-workflow";
/// The name of the agent behind every batch.
const BATCH: &str = crate::batch::AGENT;
/// Maximum phases that one run works on, repeated visits included.
const MAX_VISITS: usize = 100;

/// The agent that drives whole workflows.
pub(super) struct Coordinator {
    options: Arc<SparcShared>,
}

/// The current phase of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WorkflowProgress {
    current: SparcPhase,
    done: bool,
    passed: Vec<(SparcPhase, u32)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    batchtools: bool,
}

impl WorkflowProgress {
    fn at(stored: &StoredWorkflow) -> Self {
        let workflow = &stored.workflow;
        let passed = |phase| Some((phase, workflow.phase(phase).passed_version?));
        Self {
            current: workflow.current,
            done: workflow.is_done(),
            passed: SparcPhase::ALL.into_iter().filter_map(passed).collect(),
            batchtools: workflow.batchtools_enabled,
        }
    }
}

impl Coordinator {
    pub(super) fn new(options: Arc<SparcShared>) -> Self {
        Self { options }
    }
}

#[async_trait]
impl Agent for Coordinator {
    fn describe_task(&self, task: &Task) -> TaskFacts {
        TaskFacts { phase: phase_of(task), ..TaskFacts::default() }
    }

    fn profile(&self) -> Profile {
        let about = "Drives a whole SPARC workflow, from specification to completion, with one child task for each \
                     phase. Starts the workflow where there is none, and goes on with it where it stands.";
        Profile { time_limit: Some(TIME_LIMIT), ..profile(SparcRole::Coordinator, about, "Drives") }
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let input = match SparcTaskInput::read(&cx) {
            Ok(input) => input,
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let (who, workflows) =
            (who(&cx, SparcRole::Coordinator.name()), workflows(cx.engine(), &self.options));
        let context_id = &input.context_id;
        let started: Result<WorkflowProgress, String> = cx
            .step("start", async |step| {
                let started = start(&step, &workflows, &who, &input).await?;
                Ok(started.map(|stored| WorkflowProgress::at(&stored)).map_err(|error| error.to_string()))
            })
            .await?;
        let mut now = match started {
            Ok(now) => now,
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let mut refused = None;
        for _ in 0..MAX_VISITS {
            if now.done {
                let batch = match now.batchtools {
                    true => Some(store_artifacts(&cx, &workflows, &who, context_id, &now).await?),
                    false => None,
                };
                return finish(&cx, context_id, &now, batch).await;
            }
            let phase = now.current;
            let said = format!("Phase {} of 5: {phase} ({})", phase.index() + 1, phase.role().name());
            cx.progress_with(
                phase.index() as f64,
                Some(5.0),
                said,
                event("sparc_phase_started", context_id, phase),
            )
            .await?;
            let ask = Part::data(json!({ "contextId": context_id, "phase": phase }));
            let child = cx.call_wired(phase.role().name(), Message::of("", Speaker::User, vec![ask])).await?;
            let words = child.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
            match child.state {
                State::Completed => show(&cx, phase, &child).await?,
                // Another caller may have moved the workflow meanwhile; a second rejection in the same phase is
                // final.
                State::Rejected if refused != Some(phase) => refused = Some(phase),
                _ => {
                    let mut event = event("sparc_phase_failed", context_id, phase);
                    event["reason"] = words.clone().into();
                    cx.progress_with(phase.index() as f64, Some(5.0), words.clone(), event).await?;
                    return Ok(Outcome::failed(format!("{phase}: {words}")));
                }
            }
            let look: Result<WorkflowProgress, String> = cx
                .step("look", async |step| {
                    if child.state == State::Completed {
                        let (done, said) = (phase.index() as f64 + 1.0, format!("{phase} is done"));
                        let mut event = event("sparc_phase_completed", context_id, phase);
                        event["taskId"] = child.origin.id.to_string().into();
                        step.progress_with(done, Some(5.0), said, event).await?;
                    }
                    let stored = retry_step(&step, || workflows.get(&who.caller, context_id)).await?;
                    Ok(stored.map(|stored| WorkflowProgress::at(&stored)).map_err(|error| error.to_string()))
                })
                .await?;
            now = match look {
                Ok(look) => look,
                Err(why) => return Ok(Outcome::Failed(why)),
            };
        }
        Ok(Outcome::failed(format!(
            "the workflow went through {MAX_VISITS} phases (max_visits) and is not done"
        )))
    }
}

/// A phase event for subscribers of the task.
fn event(r#type: &str, context_id: &str, phase: SparcPhase) -> Value {
    json!({ "type": r#type, "contextId": context_id, "phase": phase, "agentType": phase.role().name() })
}

/// The workflow, which is started if it does not exist.
async fn start(
    step: &StepContext,
    workflows: &Workflows,
    who: &WorkflowActor,
    input: &SparcTaskInput,
) -> Result<Result<StoredWorkflow, SparcError>, AgentError> {
    let (caller, context_id, key) = (&who.caller, &input.context_id, step.idempotency_key());
    if let Err(error) =
        retry_step(step, || std::future::ready(workflows.allow_run(caller, context_id))).await?
    {
        return Ok(Err(error));
    }
    let found = retry_step(step, || workflows.get(caller, context_id)).await?;
    match (found, &input.goal) {
        (Err(SparcError::NoWorkflow(_)), Some(goal)) => {
            retry_step(step, || workflows.start(who, Some(context_id), goal, false, Some(&key))).await
        }
        (found, _) => Ok(found),
    }
}

/// Publishes the artifact of a phase that has passed. As text: the only structured result is that of the whole run.
async fn show(cx: &TaskContext, phase: SparcPhase, child: &Task) -> Result<(), AgentError> {
    let parts = child.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let mut worked = parts.filter_map(|part| match &part.content {
        Content::Data(value) => Some(value),
        _ => None,
    });
    let Some(worked) = worked.next_back().filter(|worked| worked["outcome"] == "passed") else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(&worked["artifact"]).map_err(AgentError::failed)?;
    let part = Part { media_type: Some("application/json".into()), ..Part::text(text) };
    let chunk = Chunk::parts(format!("{phase}-{}", worked["version"]), vec![part]);
    let described = worked["uri"].as_str().unwrap_or_default();
    cx.artifact(chunk.named(format!("The {phase}")).described(described).complete()).await
}

/// Implements `batchtoolsEnabled`: one batch stores the passed artifacts in the memory bank, each under
/// `{contextId}:{phase}` in the namespace `sparc-workflow`. Returns the id of the batch. The workflow completes
/// even if this fails.
async fn store_artifacts(
    cx: &TaskContext,
    workflows: &Workflows,
    who: &WorkflowActor,
    context_id: &str,
    now: &WorkflowProgress,
) -> Result<Option<String>, AgentError> {
    let gathered: Option<Vec<Value>> = cx
        .step("gather", async |step| {
            let mut operations = vec![];
            for (phase, version) in &now.passed {
                let read = || workflows.artifact(&who.caller, context_id, *phase, *version);
                let Ok(artifact) = retry_step(&step, read).await? else { return Ok(None) };
                let key = format!("{context_id}:{phase}");
                let args = json!({ "namespace": MEMORY, "key": key, "value": artifact.content });
                operations.push(json!({ "id": phase, "type": "memory.store", "args": args, "retries": 2 }));
            }
            Ok(Some(operations))
        })
        .await?;
    let Some(operations) = gathered.filter(|_| cx.engine().catalog().get(BATCH).is_ok()) else {
        return Ok(None);
    };
    let ask = Part::data(json!({ "operations": operations, "sequentialSample": 0 }));
    let batch = cx.call_wired(BATCH, Message::of("", Speaker::User, vec![ask])).await?;
    Ok(Some(batch.origin.id.to_string()))
}

async fn finish(
    cx: &TaskContext,
    context_id: &str,
    now: &WorkflowProgress,
    batch: Option<Option<String>>,
) -> Result<Outcome, AgentError> {
    let passed = |(phase, version): &(SparcPhase, u32)| PassedPhase {
        phase: *phase,
        version: *version,
        uri: artifact_uri(context_id, *phase, *version),
    };
    let ran = SparcRunAnswer {
        context_id: context_id.to_owned(),
        uri: workflow_uri(context_id),
        current_phase: now.current,
        done: now.done,
        phases: now.passed.iter().map(passed).collect(),
        batch: batch.flatten(),
    };
    let event = json!({
        "type": "sparc_workflow_completed", "contextId": context_id, "phase": SparcPhase::Completion,
        "phases": now.passed.len(),
    });
    cx.progress_with(5.0, Some(5.0), "All five phases have passed", event).await?;
    cx.artifact(Chunk::data("workflow", plain_value(&ran)).named("What the workflow came to").complete())
        .await?;
    Ok(Outcome::said(format!("All five phases of {context_id:?} have passed.")))
}

/// The phase that a coordinator's task drives now, or the last one that has a result: a task that has ended has no
/// progress.
fn phase_of(task: &Task) -> Option<String> {
    let data = task.progress.as_ref().and_then(|(_, progress)| progress.data.as_ref());
    let current = data.and_then(|data| data["phase"].as_str()).map(str::to_owned);
    let last = || {
        let names = task.artifacts.iter().rev().filter_map(|artifact| artifact.id.split('-').next());
        names.into_iter().find_map(|name| name.parse::<SparcPhase>().ok()).map(|phase| phase.to_string())
    };
    current.or_else(last)
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{
        Event, TaskId,
        clock::Timestamp,
        content::Artifact,
        event::{Entry, Progress},
        task::Origin,
    };

    use super::*;

    #[test]
    fn a_coordinators_task_is_about_the_phase_that_it_drives() {
        let mut task = Task::new(Origin {
            id: TaskId::parse("0190a5a5-0000-7000-8000-000000000000").expect("an id"),
            client_id: None,
            context: "c".into(),
            agent: "coordinator".into(),
            owner: "local".into(),
            dialect: "a2a/1.0".into(),
            metadata: None,
            trace: None,
            accepts_reply: false,
        });
        task.apply(&Entry(Timestamp(1), Event::Message(Message::text("m", Speaker::User, "go"))));
        assert_eq!(phase_of(&task), None);
        for phase in ["architecture", "refinement"] {
            let data = Some(json!({ "type": "sparc_phase_started", "phase": phase }));
            let progress = Progress { done: 2.0, total: Some(5.0), text: None, data };
            task.apply(&Entry(Timestamp(2), Event::Progress(progress)));
            assert_eq!(phase_of(&task).as_deref(), Some(phase));
        }
        for id in ["specification-1", "pseudocode-1", "notes"] {
            let parts = vec![Part::text("done")];
            let [name, description] = [None, None];
            let (metadata, extensions, complete) = (None, vec![], true);
            let id = id.to_owned();
            task.artifacts.push(Artifact { id, name, description, parts, metadata, extensions, complete });
        }
        task.progress = None;
        assert_eq!(phase_of(&task).as_deref(), Some("pseudocode"), "the last phase that has a result");
    }
}
