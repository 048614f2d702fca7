//! The plan tools: make, check, draw and run a plan; read, list and cancel running ones. A run is handed over
//! to the orchestrator, so the caller gets its task.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_engine::{
    AccessKind, Action, Caller, Content, Engine, List, Message, Surface, Task, TaskUse,
    access_control::AccessRequest,
    surface::{
        HandlerError, HandlerReply, SchemaError, ToolCall, ToolGroup, TypedReply, task_arguments,
        typed_reply, typed_tool,
    },
};
use serde_json::{Map, Value};

use super::{
    AGENT, PART, PlanCore, RESULT,
    api::{
        PlanCancelAnswer, PlanCancelRequest, PlanCheckAnswer, PlanCheckRequest, PlanListAnswer,
        PlanListRequest, PlanMakeAnswer, PlanMakeRequest, PlanMatchAnswer, PlanRunRequest, PlanShowAnswer,
        PlanShowRequest, PlanStatusAnswer, PlanStatusRequest, PlanSummary,
    },
    check::{PlanProblems, Roster},
    drawing::{PlanDrawing, draw},
    file::Plan,
    graph::PlanGraph,
    make::{self, PlanMatch},
    status::PlanStatus,
};
use crate::resource::iso;

/// Plans on a page by default.
const PAGE: usize = 20;

#[derive(Clone)]
struct PlanTools {
    core: Arc<PlanCore>,
    engine: Engine,
}

pub(super) fn install(core: &Arc<PlanCore>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let tools = PlanTools { core: Arc::clone(core), engine: engine.clone() };
    typed_tool(
        "plan_make",
        "Makes a plan of a request: each part is given to the agent whose skills, tags and examples fit it best, or \
         a model or an agent makes it. The plan is checked, and yours to edit before plan_run.",
        &tools,
        PlanTools::make,
    )
    .tasks(TaskUse::Offered)
    .install(ToolGroup::Plan, surface)?;
    typed_tool(
        "plan_check",
        "Checks a plan as a whole: ids, needs, references, agents and skills. Everything that is wrong is said.",
        &tools,
        PlanTools::check,
    )
    .read_only()
    .install(ToolGroup::Plan, surface)?;
    let about = "Draws a plan, or one that runs, as text, Mermaid or SVG.";
    typed_tool("plan_show", about, &tools, PlanTools::show).read_only().install(ToolGroup::Plan, surface)?;
    typed_tool(
        "plan_run",
        "Runs a plan, or makes one of a request and runs it, as one durable task of the orchestrator. plan_status \
         tells how it goes on.",
        &tools,
        PlanTools::run,
    )
    .tasks(TaskUse::Offered)
    .without_output_schema()
    .install(ToolGroup::Plan, surface)?;
    let about = "Where a plan stands: each of its tasks, who does it, and what it came to.";
    typed_tool("plan_status", about, &tools, PlanTools::status)
        .read_only()
        .install(ToolGroup::Plan, surface)?;
    let about = "Your plans that run or ran, newest first, in pages.";
    typed_tool("plan_list", about, &tools, PlanTools::list).read_only().install(ToolGroup::Plan, surface)?;
    let about = "Ends a plan, and all tasks that it has called.";
    typed_tool("plan_cancel", about, &tools, PlanTools::cancel).install(ToolGroup::Plan, surface)
}

impl PlanTools {
    fn allow(&self, caller: &Caller, action: Action, operation: &'static str) -> Result<(), HandlerError> {
        let access =
            AccessRequest { action, kind: AccessKind::A2a, name: AGENT, operation, resource: &AGENT };
        Ok(self.engine.allow(caller, &access)?)
    }

    /// Parses the submitted plan.
    fn given(&self, plan: &Value) -> Result<Plan, PlanProblems> {
        match plan {
            Value::String(file) => Plan::parse(file, &self.core.options),
            other => Plan::read(other, &self.core.options),
        }
    }

    async fn make(self, call: ToolCall<PlanMakeRequest>) -> TypedReply<PlanMakeAnswer> {
        self.allow(&call.caller, Action::Execute, "plan.make")?;
        if call.input.by.is_some() || call.input.model == Some(true) {
            let mut arguments = task_arguments(&call.input)?;
            arguments.insert("make".into(), true.into());
            return Ok(HandlerReply::HandOver { agent: AGENT.into(), arguments });
        }
        let made = make::make(&call.input.request, &Roster::of(&self.engine), &self.core.options)
            .map_err(|error| HandlerError::Failed(error.to_string()))?;
        let file = made.to_toml();
        let matches = made.matches.into_iter().map(PlanMatchAnswer::from).collect();
        typed_reply(file.clone(), PlanMakeAnswer { plan: members(made.plan.to_value()), file, matches })
    }

    async fn check(self, call: ToolCall<PlanCheckRequest>) -> TypedReply<PlanCheckAnswer> {
        self.allow(&call.caller, Action::Read, "plan.check")?;
        let (roster, options) = (Roster::of(&self.engine), &self.core.options);
        let checked = match &call.input.plan {
            Value::String(file) => Plan::parse_for(file, options, Some(&roster)),
            other => Plan::read_for(other, options, Some(&roster)),
        };
        match checked {
            Ok(plan) => {
                let graph = PlanGraph::of(&plan);
                let ids = |tasks: Vec<usize>| -> Vec<String> {
                    tasks.into_iter().map(|n| plan.tasks[n].id.clone()).collect()
                };
                let answer = PlanCheckAnswer {
                    valid: true,
                    problems: vec![],
                    tasks: Some(plan.tasks.len() as u64),
                    order: Some(ids(graph.order())),
                    longest_way: Some(ids(graph.critical_path(|_| 1.0).0)),
                };
                typed_reply(format!("The plan is valid: {} tasks.", plan.tasks.len()), answer)
            }
            Err(problems) => {
                let text = problems.to_string();
                typed_reply(text, PlanCheckAnswer { problems: problems.0, ..PlanCheckAnswer::default() })
            }
        }
    }

    async fn show(self, call: ToolCall<PlanShowRequest>) -> TypedReply<PlanShowAnswer> {
        self.allow(&call.caller, Action::Read, "plan.show")?;
        let PlanShowRequest { plan, plan_id, format } = call.input;
        let format = format.unwrap_or(PlanDrawing::Text);
        let drawing = match plan_id {
            Some(id) => {
                let task = self.find(&call.caller, &id).await?;
                let status = PlanStatus::of(&task, &self.core.options)
                    .ok_or_else(|| HandlerError::Failed("that task has no plan yet".into()))?;
                draw(&status.plan, Some(&status), format)
            }
            None => {
                let plan = self.given(&plan.unwrap_or_default());
                let plan = plan.map_err(|problems| HandlerError::Invalid(problems.to_string()))?;
                draw(&plan, None, format)
            }
        };
        typed_reply(drawing.clone(), PlanShowAnswer { format, drawing })
    }

    /// Hands over to the orchestrator, so it has no answer of its own.
    async fn run(self, call: ToolCall<PlanRunRequest>) -> TypedReply<()> {
        self.allow(&call.caller, Action::Execute, "plan.run")?;
        match (&call.input.plan, &call.input.request) {
            (Some(_), Some(_)) => {
                return Err(HandlerError::Invalid(
                    "request: there is a plan already; give one or the other".into(),
                ));
            }
            (None, None) => return Err(HandlerError::Invalid("plan: give a plan or a request".into())),
            (Some(plan), None) => {
                // Reported before anything begins; the orchestrator checks once more, and journals the result.
                self.given(plan)
                    .and_then(|plan| plan.check(&Roster::of(&self.engine)))
                    .map_err(|problems| HandlerError::Invalid(problems.to_string()))?;
            }
            (None, Some(_)) => {}
        }
        Ok(HandlerReply::HandOver { agent: AGENT.into(), arguments: task_arguments(&call.input)? })
    }

    async fn status(self, call: ToolCall<PlanStatusRequest>) -> TypedReply<PlanStatusAnswer> {
        self.allow(&call.caller, Action::Read, "plan.status")?;
        let task = self.find(&call.caller, &call.input.plan_id).await?;
        let status = PlanStatus::of(&task, &self.core.options);
        let result = task.artifacts.iter().find(|artifact| artifact.id == RESULT);
        let parts = || result.iter().flat_map(|artifact| &artifact.parts);
        let provenance = parts().find_map(|part| match &part.content {
            Content::Data(value) => value.as_object().cloned(),
            _ => None,
        });
        let over = status.as_ref().map_or(0, PlanStatus::finished_count) as u64;
        let (plan, parts_of_plan) = status.map(|status| (status.plan, status.parts)).unzip();
        let parts_of_plan = parts_of_plan.unwrap_or_default();
        let answer = PlanStatusAnswer {
            plan_id: task.origin.public_id().to_string(),
            state: task.state.name().to_owned(),
            name: plan.as_ref().map(|plan| plan.name.clone()),
            message: task.status_message.as_ref().map(Message::joined_text).filter(|text| !text.is_empty()),
            plan: plan.map(|plan| members(plan.to_value())),
            over,
            total: parts_of_plan.len() as u64,
            parts: parts_of_plan,
            result: parts().find_map(nuncio_engine::Part::as_text).map(str::to_owned),
            provenance,
            results: call.input.results.map(|wanted| results(&task, &wanted)),
        };
        let PlanStatusAnswer { plan_id, state, total, .. } = &answer;
        typed_reply(format!("Plan {plan_id} is {state}: {over} of {total} subtasks are over."), answer)
    }

    async fn list(self, call: ToolCall<PlanListRequest>) -> TypedReply<PlanListAnswer> {
        self.allow(&call.caller, Action::Read, "plan.list")?;
        let list = List {
            agent: Some(AGENT.into()),
            page_token: call.input.page_token,
            page_size: call.input.page_size.unwrap_or(PAGE),
            ..List::default()
        };
        let listed = self.engine.list(&call.caller, list).await?;
        let summary = |task: &Task| {
            let status = PlanStatus::of(task, &self.core.options);
            PlanSummary {
                plan_id: task.origin.public_id().to_string(),
                state: task.state.name().to_owned(),
                name: status.as_ref().map(|status| status.plan.name.clone()),
                over: status.as_ref().map_or(0, PlanStatus::finished_count) as u64,
                total: status.as_ref().map_or(0, |status| status.parts.len()) as u64,
                updated_at: iso(task.status_at),
            }
        };
        let plans: Vec<PlanSummary> = listed.tasks.iter().map(summary).collect();
        let text = format!("{} of {} plans.", plans.len(), listed.total);
        let (total, next_page_token) = (listed.total as u64, listed.next_page_token);
        typed_reply(text, PlanListAnswer { plans, total, next_page_token })
    }

    async fn cancel(self, call: ToolCall<PlanCancelRequest>) -> TypedReply<PlanCancelAnswer> {
        self.allow(&call.caller, Action::Write, "plan.cancel")?;
        let id = self.find(&call.caller, &call.input.plan_id).await?.origin.public_id().to_string();
        let task = self.engine.cancel(&call.caller, &id).await?;
        let state = task.state.name();
        typed_reply(
            format!("Plan {id} is {state}."),
            PlanCancelAnswer { plan_id: id, state: state.to_owned() },
        )
    }

    /// The plan with that id. A task of another agent is not a plan.
    async fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Task>, HandlerError> {
        let task = self.engine.get(caller, id).await?;
        match task.origin.agent == AGENT {
            true => Ok(task),
            false => Err(nuncio_engine::Error::NoSuchTask(id.to_owned()).into()),
        }
    }
}

impl From<PlanMatch> for PlanMatchAnswer {
    fn from(found: PlanMatch) -> Self {
        let PlanMatch { task, part, agent, skill, score, words, .. } = found;
        Self { task, part, agent, skill, score: (score * 1_000.0).round() / 1_000.0, words }
    }
}

/// The results of these subtasks as text, as far as they are done.
fn results(task: &Task, wanted: &[String]) -> BTreeMap<String, String> {
    let mut results = BTreeMap::new();
    for artifact in &task.artifacts {
        let Some(id) = artifact.id.strip_prefix(PART) else { continue };
        if wanted.iter().any(|wanted| wanted == id) {
            let texts: Vec<&str> = artifact.parts.iter().filter_map(nuncio_engine::Part::as_text).collect();
            results.insert(id.to_owned(), texts.join("\n"));
        }
    }
    results
}

/// The members of a plan, which is always an object.
fn members(plan: Value) -> Map<String, Value> {
    match plan {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
