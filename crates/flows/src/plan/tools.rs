//! The plan tools: make, check, draw and run a plan; read, list and cancel running ones. A run is handed over
//! to the orchestrator, so the caller gets its task.

use std::{collections::HashSet, sync::Arc};

use nuncio_engine::{
    AccessKind, Action, Content, Engine, List, Message, Surface, Task, TaskUse,
    access_control::AccessRequest,
    surface::{HandlerError, HandlerReply, HandlerRequest, SchemaError, ToolOutput, ToolProfile, tool},
};
use serde_json::{Map, Value, json};

use super::{
    AGENT, PART, PlanCore, RESULT,
    check::{PlanProblems, Roster},
    drawing::{PlanDrawing, draw},
    file::Plan,
    graph::PlanGraph,
    make, schemas,
    status::PlanStatus,
};
use crate::resource::iso;

type PlanToolResult = Result<HandlerReply<ToolOutput>, HandlerError>;

#[derive(Clone)]
struct PlanTools {
    core: Arc<PlanCore>,
    engine: Engine,
}

pub(super) fn install(core: &Arc<PlanCore>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let desk = PlanTools { core: Arc::clone(core), engine: engine.clone() };
    macro_rules! offer {
        ($profile:expr, $method:ident) => {{
            let desk = desk.clone();
            surface.add_tool(tool($profile, move |request| {
                let desk = desk.clone();
                async move { desk.$method(request).await }
            }))?;
        }};
    }
    let read_only = |mut profile: ToolProfile| {
        profile.annotations.insert("readOnlyHint".into(), true.into());
        profile
    };
    offer!(
        ToolProfile::new(
            "plan_make",
            "Makes a plan of a request: each part is given to the agent whose skills, tags and examples fit it best, or \
             a model or an agent makes it. The plan is checked, and yours to edit before plan_run.",
        )
        .input(schemas::make())
        .output(schemas::made())
        .tasks(TaskUse::Offered),
        make
    );
    offer!(
        read_only(
            ToolProfile::new(
                "plan_check",
                "Checks a plan as a whole: ids, needs, references, agents and skills. Everything that is wrong is said.",
            )
            .input(schemas::given())
            .output(schemas::checked())
        ),
        check
    );
    offer!(
        read_only(
            ToolProfile::new("plan_show", "Draws a plan, or one that runs, as text, Mermaid or SVG.")
                .input(schemas::show())
                .output(schemas::shown())
        ),
        show
    );
    offer!(
        ToolProfile::new(
            "plan_run",
            "Runs a plan, or makes one of a request and runs it, as one durable task of the orchestrator. plan_status \
             tells how it goes on.",
        )
        .input(schemas::run())
        .tasks(TaskUse::Offered),
        run
    );
    offer!(
        read_only(
            ToolProfile::new(
                "plan_status",
                "Where a plan stands: each of its tasks, who does it, and what it came to."
            )
            .input(schemas::looked_at())
            .output(schemas::status())
        ),
        status
    );
    offer!(
        read_only(
            ToolProfile::new("plan_list", "Your plans that run or ran, newest first, in pages.")
                .input(schemas::list())
                .output(schemas::listed())
        ),
        list
    );
    offer!(
        ToolProfile::new("plan_cancel", "Ends a plan, and all tasks that it has called.")
            .input(schemas::named())
            .output(schemas::canceled()),
        cancel
    );
    Ok(())
}

impl PlanTools {
    fn allow(
        &self,
        request: &HandlerRequest,
        action: Action,
        operation: &'static str,
    ) -> Result<(), HandlerError> {
        let access =
            AccessRequest { action, kind: AccessKind::A2a, name: AGENT, operation, resource: &AGENT };
        Ok(self.engine.allow(&request.caller, &access)?)
    }

    /// Parses the submitted plan.
    fn given(&self, value: Option<&Value>) -> Result<Plan, PlanProblems> {
        match value {
            Some(Value::String(file)) => Plan::parse(file, &self.core.options),
            other => Plan::read(other.unwrap_or(&Value::Null), &self.core.options),
        }
    }

    async fn make(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Execute, "plan.make")?;
        if request.text("by").is_some() || request.arguments.get("model") == Some(&Value::Bool(true)) {
            let mut arguments = request.arguments;
            arguments.insert("make".into(), true.into());
            return Ok(HandlerReply::HandOver { agent: AGENT.into(), arguments });
        }
        let words = request.text("request").unwrap_or_default();
        let made = make(words, &Roster::of(&self.engine), &self.core.options)
            .map_err(|error| HandlerError::Failed(error.to_string()))?;
        let matches: Vec<Value> = made
            .matches
            .iter()
            .map(|found| {
                json!({
                    "task": found.task, "part": found.part, "agent": found.agent, "skill": found.skill,
                    "score": (found.score * 1_000.0).round() / 1_000.0, "words": found.words,
                })
            })
            .collect();
        let file = made.to_toml();
        tool_reply(file.clone(), json!({ "plan": made.plan.to_value(), "file": file, "matches": matches }))
    }

    async fn check(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Read, "plan.check")?;
        let (roster, options) = (Roster::of(&self.engine), &self.core.options);
        let checked = match request.arguments.get("plan") {
            Some(Value::String(file)) => Plan::parse_for(file, options, Some(&roster)),
            other => Plan::read_for(other.unwrap_or(&Value::Null), options, Some(&roster)),
        };
        match checked {
            Ok(plan) => {
                let graph = PlanGraph::of(&plan);
                let ids = |tasks: Vec<usize>| -> Vec<&str> {
                    tasks.into_iter().map(|n| plan.tasks[n].id.as_str()).collect()
                };
                let said = json!({
                    "valid": true,
                    "problems": [],
                    "tasks": plan.tasks.len(),
                    "order": ids(graph.order()),
                    "longestWay": ids(graph.critical_path(|_| 1.0).0),
                });
                tool_reply(format!("The plan is valid: {} tasks.", plan.tasks.len()), said)
            }
            Err(problems) => {
                let listed: Vec<Value> = problems
                    .0
                    .iter()
                    .map(|problem| json!({ "task": problem.task, "key": problem.key, "why": problem.why }))
                    .collect();
                tool_reply(problems.to_string(), json!({ "valid": false, "problems": listed }))
            }
        }
    }

    async fn show(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Read, "plan.show")?;
        let format = request.text("format").unwrap_or("text");
        let drawing = PlanDrawing::named(format).unwrap_or(PlanDrawing::Text);
        let drawn = match request.text("planId") {
            Some(_) => {
                let task = self.find(&request).await?;
                let status = PlanStatus::of(&task, &self.core.options)
                    .ok_or_else(|| HandlerError::Failed("that task has no plan yet".into()))?;
                draw(&status.plan, Some(&status), drawing)
            }
            None => {
                let plan = self.given(request.arguments.get("plan"));
                let plan = plan.map_err(|problems| HandlerError::Invalid(problems.to_string()))?;
                draw(&plan, None, drawing)
            }
        };
        tool_reply(drawn.clone(), json!({ "format": format, "drawing": drawn }))
    }

    async fn run(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Execute, "plan.run")?;
        let given = |name: &str| request.arguments.get(name).is_some_and(|value| !value.is_null());
        match (given("plan"), given("request")) {
            (true, true) => {
                return Err(HandlerError::Invalid(
                    "request: there is a plan already; give one or the other".into(),
                ));
            }
            (false, false) => return Err(HandlerError::Invalid("plan: give a plan or a request".into())),
            (true, false) => {
                // Reported before anything begins; the orchestrator checks once more, and journals the result.
                let plan = self.given(request.arguments.get("plan"));
                plan.and_then(|plan| plan.check(&Roster::of(&self.engine)))
                    .map_err(|problems| HandlerError::Invalid(problems.to_string()))?;
            }
            (false, true) => {}
        }
        Ok(HandlerReply::HandOver { agent: AGENT.into(), arguments: request.arguments })
    }

    async fn status(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Read, "plan.status")?;
        let task = self.find(&request).await?;
        let status = PlanStatus::of(&task, &self.core.options);
        let result = task.artifacts.iter().find(|artifact| artifact.id == RESULT);
        let parts = || result.iter().flat_map(|artifact| &artifact.parts);
        let data = parts().find_map(|part| match &part.content {
            Content::Data(value) => Some(value),
            _ => None,
        });
        let wanted = request.arguments.get("results").and_then(Value::as_array);
        let mut said = json!({
            "planId": task.origin.public_id(),
            "state": state_name(&task),
            "name": status.as_ref().map(|status| &status.plan.name),
            "message": task.status_message.as_ref().map(Message::joined_text).filter(|said| !said.is_empty()),
            "plan": status.as_ref().map(|status| status.plan.to_value()),
            "parts": status.as_ref().map_or_else(|| json!([]), PlanStatus::to_value),
            "over": status.as_ref().map_or(0, PlanStatus::finished_count),
            "total": status.as_ref().map_or(0, |status| status.parts.len()),
            "result": parts().find_map(nuncio_engine::Part::as_text),
            "provenance": data,
        });
        if let Some(wanted) = wanted {
            let wanted: HashSet<&str> = wanted.iter().filter_map(Value::as_str).collect();
            said["results"] = results(&task, &wanted);
        }
        let text = format!(
            "Plan {} is {}: {} of {} subtasks are over.",
            said["planId"], said["state"], said["over"], said["total"]
        );
        tool_reply(text.replace('"', ""), said)
    }

    async fn list(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Read, "plan.list")?;
        let list = List {
            agent: Some(AGENT.into()),
            page_token: request.text("pageToken").map(str::to_owned),
            page_size: request.arguments.get("pageSize").and_then(Value::as_u64).unwrap_or(20) as usize,
            ..List::default()
        };
        let listed = self.engine.list(&request.caller, list).await?;
        let line = |task: &Task| {
            let status = PlanStatus::of(task, &self.core.options);
            json!({
                "planId": task.origin.public_id(),
                "state": state_name(task),
                "name": status.as_ref().map(|status| &status.plan.name),
                "over": status.as_ref().map_or(0, PlanStatus::finished_count),
                "total": status.as_ref().map_or(0, |status| status.parts.len()),
                "updatedAt": iso(task.status_at),
            })
        };
        let plans: Vec<Value> = listed.tasks.iter().map(line).collect();
        let said = json!({ "plans": plans, "total": listed.total, "nextPageToken": listed.next_page_token });
        tool_reply(format!("{} of {} plans.", listed.tasks.len(), listed.total), said)
    }

    async fn cancel(self, request: HandlerRequest) -> PlanToolResult {
        self.allow(&request, Action::Write, "plan.cancel")?;
        let id = self.find(&request).await?.origin.public_id();
        let task = self.engine.cancel(&request.caller, &id).await?;
        let state = state_name(&task);
        tool_reply(format!("Plan {id} is {state}."), json!({ "planId": id, "state": state }))
    }

    /// The plan that a request names. A task of another agent is not a plan.
    async fn find(&self, request: &HandlerRequest) -> Result<Arc<Task>, HandlerError> {
        let id = request.text("planId").unwrap_or_default();
        let task = self.engine.get(&request.caller, id).await?;
        match task.origin.agent == AGENT {
            true => Ok(task),
            false => Err(nuncio_engine::Error::NoSuchTask(id.to_owned()).into()),
        }
    }
}

/// The results of these subtasks as text, as far as they are done.
fn results(task: &Task, wanted: &HashSet<&str>) -> Value {
    let mut results = Map::new();
    for artifact in &task.artifacts {
        let Some(id) = artifact.id.strip_prefix(PART).filter(|id| wanted.contains(id)) else { continue };
        let texts: Vec<&str> = artifact.parts.iter().filter_map(nuncio_engine::Part::as_text).collect();
        results.insert(id.to_owned(), texts.join("\n").into());
    }
    results.into()
}

fn state_name(task: &Task) -> String {
    // A variant without fields: serialization cannot fail.
    serde_json::to_value(task.state)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn tool_reply(text: String, value: Value) -> PlanToolResult {
    let mut output = ToolOutput::text(text);
    output.structured = Some(value);
    Ok(HandlerReply::Done(output))
}
