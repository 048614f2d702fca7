//! The workflow tools: start, read, submit, go back, list, and run everything by the coordinator.

use std::sync::Arc;

use nuncio_engine::{
    Surface, TaskUse,
    surface::{
        ContentBlock, HandlerError, HandlerReply, HandlerRequest, SchemaError, ToolOutput, ToolProfile, tool,
    },
};
use serde_json::{Map, Value, json};

use super::{
    agents::GATE,
    phase::{SparcPhase, SparcRole},
    schema, view,
    workflows::{MAX_CONTEXT_ID, MAX_PAGE, WorkflowActor, Workflows},
};

type SparcToolResult = Result<HandlerReply<ToolOutput>, HandlerError>;

/// Workflows of a list, or entries of a history, on a page by default.
const PAGE: usize = 50;

/// Registers the tools.
pub(super) fn install(workflows: &Workflows, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    let context_id = json!({
        "type": "string", "minLength": 1, "maxLength": MAX_CONTEXT_ID,
        "description": "The name of the workflow.",
    });
    let goal = json!({ "type": "string", "minLength": 1, "description": "What is to be achieved." });
    let limit =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "description": "How many at most." });
    add(
        workflows,
        surface,
        profile(
            "sparc_start",
            "Starts a SPARC workflow: five phases from specification to completion, each of which ends at a gate.",
            json!({
                "contextId": context_id,
                "goal": goal,
                "batchtoolsEnabled": {
                    "type": "boolean",
                    "description": "Whether a coordinator that completes it stores the artifacts that passed in the memory \
                        bank, by one batch: each under contextId:phase of the namespace sparc-workflow. Default: false.",
                },
            }),
            &["goal"],
            schema::workflow(),
        ),
        start,
    )?;
    add(
        workflows,
        surface,
        read_only(profile(
            "sparc_status",
            "A workflow: its current phase, what the gates said, its artifacts.",
            json!({ "contextId": context_id }),
            &["contextId"],
            schema::workflow(),
        )),
        status,
    )?;
    add(
        workflows,
        surface,
        profile(
            "sparc_submit",
            "Submits the artifact of the current phase. Its gate decides at once whether the phase has passed, and names \
             everything that is wrong; for refinement it runs the configured tests first, as a task. \
             sparc://phase/{phase}/template says what belongs into an artifact.",
            json!({
                "contextId": context_id,
                "artifact": { "type": "object", "description": "What the phase's template asks for." },
                "phase": phase("The phase that it is for; refused unless it is the current one."),
            }),
            &["contextId", "artifact"],
            schema::submitted(),
        )
        .tasks(TaskUse::Offered),
        submit,
    )?;
    add(
        workflows,
        surface,
        profile(
            "sparc_back",
            "Goes back to an earlier phase. What comes after it is pending again; the artifacts stay.",
            json!({
                "contextId": context_id,
                "to": phase("An earlier phase."),
                "reason": { "type": "string", "minLength": 1, "description": "Why, for the history." },
            }),
            &["contextId", "to", "reason"],
            schema::workflow(),
        ),
        back,
    )?;
    add(
        workflows,
        surface,
        read_only(profile(
            "sparc_list",
            "The workflows that the caller may read, by name.",
            json!({
                "prefix": { "type": "string", "maxLength": MAX_CONTEXT_ID, "description": "Only names that begin so." },
                "after": { "type": "string", "maxLength": MAX_CONTEXT_ID, "description": "The last name that is known." },
                "limit": limit,
            }),
            &[],
            schema::listed(),
        )),
        list,
    )?;
    add(
        workflows,
        surface,
        read_only(profile(
            "sparc_history",
            "Who did what to a workflow and what came of it, oldest first.",
            json!({
                "contextId": context_id,
                "after": { "type": "integer", "minimum": 0, "description": "The last entry that is known." },
                "limit": limit,
            }),
            &["contextId"],
            schema::history(),
        )),
        history,
    )?;
    add(
        workflows,
        surface,
        profile(
            "sparc_run",
            "Has the coordinator work on a workflow from where it stands to its completion, as one task with a child for \
             each phase. Starts the workflow where there is none.",
            json!({ "contextId": context_id, "goal": goal }),
            &["goal"],
            schema::ran(),
        )
        .tasks(TaskUse::Offered),
        run,
    )
}

fn phase(about: &str) -> Value {
    let mut schema = schema::phase();
    schema["description"] = about.into();
    schema
}

fn profile(name: &str, about: &str, properties: Value, required: &[&str], output: Value) -> ToolProfile {
    let mut input = json!({ "type": "object", "required": required, "additionalProperties": false });
    input["properties"] = properties;
    ToolProfile::new(name, about).input(input).output(output)
}

fn read_only(mut profile: ToolProfile) -> ToolProfile {
    profile.annotations.insert("readOnlyHint".into(), true.into());
    profile
}

fn add<A>(
    workflows: &Workflows,
    surface: &Surface,
    profile: ToolProfile,
    answer: fn(Workflows, HandlerRequest) -> A,
) -> Result<(), SchemaError>
where
    A: Future<Output = SparcToolResult> + Send + 'static,
{
    let workflows = workflows.clone();
    surface.add_tool(tool(profile, move |request| answer(workflows.clone(), request)))
}

fn tool_reply(text: String, structured: Value) -> SparcToolResult {
    Ok(HandlerReply::Done(ToolOutput {
        content: vec![ContentBlock::Text(text)],
        structured: Some(structured),
        is_error: false,
    }))
}

async fn start(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let who = WorkflowActor::caller(&request.caller);
    let goal = request.text("goal").unwrap_or_default();
    let batchtools = request.arguments.get("batchtoolsEnabled") == Some(&Value::Bool(true));
    let stored = workflows.start(&who, request.text("contextId"), goal, batchtools, None).await?;
    let text = format!("Workflow {:?} has started with its specification.", stored.workflow.context_id);
    tool_reply(text, view::workflow(&stored))
}

async fn status(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let stored = workflows.get(&request.caller, context_id(&request)).await?;
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
    tool_reply(text, view::workflow(&stored))
}

async fn submit(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let (context_id, caller) = (context_id(&request), &request.caller);
    let phase = request.text("phase").map(str::parse).transpose().map_err(HandlerError::Invalid)?;
    let artifact = request.arguments.get("artifact").unwrap_or(&Value::Null);
    let (phase, violations) = workflows.inspect(caller, context_id, phase, artifact).await?;
    if phase == SparcPhase::Refinement && violations.is_empty() {
        // The tests may run for a long time, so the call continues as a task.
        let arguments = json!({ "contextId": context_id, "artifact": artifact });
        return Ok(HandlerReply::HandOver { agent: GATE.into(), arguments: object(arguments) });
    }
    let submitted = workflows
        .submit(&WorkflowActor::caller(caller), context_id, Some(phase), artifact, None, None)
        .await?;
    tool_reply(view::submitted_in_words(&submitted), view::submitted(context_id, &submitted))
}

async fn back(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let to = request.text("to").unwrap_or_default().parse().map_err(HandlerError::Invalid)?;
    let reason = request.text("reason").unwrap_or_default();
    let who = WorkflowActor::caller(&request.caller);
    let stored = workflows.go_back(&who, context_id(&request), to, reason, None).await?;
    tool_reply(format!("Workflow {:?} is back at {to}.", stored.workflow.context_id), view::workflow(&stored))
}

async fn list(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let [prefix, after] = ["prefix", "after"].map(|name| request.text(name).unwrap_or_default());
    let (found, next) = workflows.list(&request.caller, prefix, after, page(&request)).await?;
    let redact = |text: &str| workflows.engine().redactor().text(text).into_owned();
    let lines: Vec<Value> = found.iter().map(|stored| view::line(stored, redact)).collect();
    let text = match lines.len() {
        0 => "There are no workflows.".into(),
        n => format!("{n} workflows{}", if next.is_some() { ", and more after them." } else { "." }),
    };
    tool_reply(text, json!({ "workflows": lines, "next": next }))
}

async fn history(workflows: Workflows, request: HandlerRequest) -> SparcToolResult {
    let after = request.arguments.get("after").and_then(Value::as_u64).unwrap_or(0);
    let found = workflows.history(&request.caller, context_id(&request), after, page(&request)).await?;
    let (stored, entries) = found;
    let text = format!("{} of {} entries.", entries.len(), stored.workflow.entries);
    tool_reply(text, view::history(&stored, &entries))
}

async fn run(workflows: Workflows, mut request: HandlerRequest) -> SparcToolResult {
    // A session is one conversation that may run several workflows, so each workflow has its own name.
    let context_id = request.text("contextId").map_or_else(|| workflows.new_context(), str::to_owned);
    workflows.allow_run(&request.caller, &context_id)?;
    request.arguments.insert("contextId".into(), context_id.into());
    Ok(HandlerReply::HandOver { agent: SparcRole::Coordinator.name().into(), arguments: request.arguments })
}

fn context_id(request: &HandlerRequest) -> &str {
    request.text("contextId").unwrap_or_default()
}

fn page(request: &HandlerRequest) -> usize {
    let limit = request.arguments.get("limit").and_then(Value::as_u64);
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(PAGE)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
