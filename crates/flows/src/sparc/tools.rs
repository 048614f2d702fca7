//! The workflow tools: start, read, submit, go back, list, and run everything by the coordinator.

use std::sync::Arc;

use nuncio_engine::{
    Surface, TaskUse,
    surface::{
        HandlerReply, SchemaError, ToolCall, ToolGroup, TypedReply, task_arguments, typed_reply, typed_tool,
    },
};

use super::{
    agents::GATE,
    api::{
        SparcBackRequest, SparcHistoryRequest, SparcListRequest, SparcRunAnswer, SparcRunRequest,
        SparcStartRequest, SparcStatusRequest, SparcSubmitAnswer, SparcSubmitRequest, WorkflowAnswer,
        WorkflowHistoryAnswer, WorkflowListAnswer, WorkflowSummary,
    },
    phase::{SparcPhase, SparcRole},
    view,
    workflows::{WorkflowActor, Workflows},
};

/// Workflows of a list, or entries of a history, on a page by default.
const PAGE: usize = 50;

/// Registers the tools.
pub(super) fn install(workflows: &Workflows, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    let about = "Starts a SPARC workflow: five phases from specification to completion, each of which ends at a gate.";
    typed_tool("sparc_start", about, workflows, start).install(ToolGroup::Sparc, surface)?;
    let about = "A workflow: its current phase, what the gates said, its artifacts.";
    typed_tool("sparc_status", about, workflows, status).read_only().install(ToolGroup::Sparc, surface)?;
    typed_tool(
        "sparc_submit",
        "Submits the artifact of the current phase. Its gate decides at once whether the phase has passed, and names \
         everything that is wrong; for refinement it runs the configured tests first, as a task. \
         sparc://phase/{phase}/template says what belongs into an artifact.",
        workflows,
        submit,
    )
    .tasks(TaskUse::Offered)
    .install(ToolGroup::Sparc, surface)?;
    let about = "Goes back to an earlier phase. What comes after it is pending again; the artifacts stay.";
    typed_tool("sparc_back", about, workflows, back).install(ToolGroup::Sparc, surface)?;
    let about = "The workflows that the caller may read, by name.";
    typed_tool("sparc_list", about, workflows, list).read_only().install(ToolGroup::Sparc, surface)?;
    let about = "Who did what to a workflow and what came of it, oldest first.";
    typed_tool("sparc_history", about, workflows, history).read_only().install(ToolGroup::Sparc, surface)?;
    typed_tool(
        "sparc_run",
        "Has the coordinator work on a workflow from where it stands to its completion, as one task with a child for \
         each phase. Starts the workflow where there is none.",
        workflows,
        run,
    )
    .tasks(TaskUse::Offered)
    .install(ToolGroup::Sparc, surface)
}

async fn start(workflows: Workflows, call: ToolCall<SparcStartRequest>) -> TypedReply<WorkflowAnswer> {
    let SparcStartRequest { context_id, goal, batchtools_enabled } = call.input;
    let who = WorkflowActor::caller(&call.caller);
    let batchtools = batchtools_enabled.unwrap_or(false);
    let stored = workflows.start(&who, context_id.as_deref(), &goal, batchtools, None).await?;
    let text = format!("Workflow {:?} has started with its specification.", stored.workflow.context_id);
    typed_reply(text, view::workflow(&stored))
}

async fn status(workflows: Workflows, call: ToolCall<SparcStatusRequest>) -> TypedReply<WorkflowAnswer> {
    let stored = workflows.get(&call.caller, &call.input.context_id).await?;
    let workflow = &stored.workflow;
    let text = match workflow.is_done() {
        true => format!("Workflow {:?} has passed all five phases.", workflow.context_id),
        false => {
            let gate = workflow.phase(workflow.current).gate.as_ref().filter(|gate| !gate.passed);
            let wrong = gate.map(|gate| format!(" The gate said:\n{}", gate.in_words())).unwrap_or_default();
            format!(
                "Workflow {:?} is in phase {} of 5, {} ({}).{wrong}",
                workflow.context_id,
                workflow.current.index() + 1,
                workflow.current,
                workflow.current.role().name(),
            )
        }
    };
    typed_reply(text, view::workflow(&stored))
}

async fn submit(workflows: Workflows, call: ToolCall<SparcSubmitRequest>) -> TypedReply<SparcSubmitAnswer> {
    let SparcSubmitRequest { context_id, artifact, phase } = call.input;
    let (phase, violations) = workflows.inspect(&call.caller, &context_id, phase, &artifact).await?;
    if phase == SparcPhase::Refinement && violations.is_empty() {
        // The tests may run for a long time, so the call continues as a task.
        let input = SparcSubmitRequest { context_id, artifact, phase: None };
        return Ok(HandlerReply::HandOver { agent: GATE.into(), arguments: task_arguments(&input)? });
    }
    let who = WorkflowActor::caller(&call.caller);
    let submitted = workflows.submit(&who, &context_id, Some(phase), &artifact, None, None).await?;
    typed_reply(view::submitted_in_words(&submitted), view::submitted(&context_id, &submitted))
}

async fn back(workflows: Workflows, call: ToolCall<SparcBackRequest>) -> TypedReply<WorkflowAnswer> {
    let SparcBackRequest { context_id, to, reason } = call.input;
    let who = WorkflowActor::caller(&call.caller);
    let stored = workflows.go_back(&who, &context_id, to, &reason, None).await?;
    typed_reply(
        format!("Workflow {:?} is back at {to}.", stored.workflow.context_id),
        view::workflow(&stored),
    )
}

async fn list(workflows: Workflows, call: ToolCall<SparcListRequest>) -> TypedReply<WorkflowListAnswer> {
    let SparcListRequest { prefix, after, limit } = call.input;
    let (prefix, after) = (prefix.unwrap_or_default(), after.unwrap_or_default());
    let (found, next) = workflows.list(&call.caller, &prefix, &after, limit.unwrap_or(PAGE)).await?;
    let redact = |text: &str| workflows.engine().redactor().text(text).into_owned();
    let found: Vec<WorkflowSummary> = found.iter().map(|stored| view::line(stored, redact)).collect();
    let text = match found.len() {
        0 => "There are no workflows.".into(),
        n => format!("{n} workflows{}", if next.is_some() { ", and more after them." } else { "." }),
    };
    typed_reply(text, WorkflowListAnswer { workflows: found, next })
}

async fn history(
    workflows: Workflows,
    call: ToolCall<SparcHistoryRequest>,
) -> TypedReply<WorkflowHistoryAnswer> {
    let SparcHistoryRequest { context_id, after, limit } = call.input;
    let limit = limit.unwrap_or(PAGE);
    let (stored, entries) = workflows.history(&call.caller, &context_id, after.unwrap_or(0), limit).await?;
    let text = format!("{} of {} entries.", entries.len(), stored.workflow.entries);
    typed_reply(text, view::history(&stored, &entries))
}

async fn run(workflows: Workflows, call: ToolCall<SparcRunRequest>) -> TypedReply<SparcRunAnswer> {
    let mut input = call.input;
    // A session is one conversation that may run several workflows, so each workflow has its own name.
    let context_id = input.context_id.take().unwrap_or_else(|| workflows.new_context());
    workflows.allow_run(&call.caller, &context_id)?;
    input.context_id = Some(context_id);
    let agent = SparcRole::Coordinator.name().into();
    Ok(HandlerReply::HandOver { agent, arguments: task_arguments(&input)? })
}
