//! The request to the orchestrator: a plan to run, or a text to make a plan from; and the step that admits a
//! plan after checking it against the available agents.

use nuncio_engine::{AgentError, CallEnd, Message, Part, Role, State, TaskContext};
use serde_json::Value;
use tokio::task::yield_now;

use super::{AdmittedPlan, PlanCore, agent_choice, ask_model, subtask};
use crate::plan::{
    check::Roster,
    file::{Plan, PlanTarget},
    make,
    synthesis::SubtaskOutput,
};

/// A request to the orchestrator.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PlanRequest {
    /// Run this plan.
    Run(SubmittedPlan),
    /// Make a plan for this request, by the given planner, and run it if `run` is set.
    Make { request: String, by: PlanMaker, run: bool },
}

/// A plan as submitted.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SubmittedPlan {
    /// The text of a plan file.
    File(String),
    /// A JSON value.
    Value(Value),
}

/// The planner that makes a plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PlanMaker {
    /// The built-in rules.
    Rules,
    /// A model.
    Model,
    /// The agent with that name.
    Agent(String),
}

/// Parses the named arguments. A text is a plan if it looks like one, else a request.
pub(super) fn read(cx: &TaskContext) -> Result<PlanRequest, String> {
    let text_of = |name: &str| match cx.argument(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
        Some(_) => Err(format!("{name}: a text is wanted")),
    };
    let flag = |name: &str| match cx.argument(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("{name}: true or false is wanted")),
    };
    match cx.argument("plan") {
        None | Some(Value::Null) => {}
        Some(Value::String(file)) => return Ok(PlanRequest::Run(SubmittedPlan::File(file.clone()))),
        Some(value) => return Ok(PlanRequest::Run(SubmittedPlan::Value(value.clone()))),
    }
    let data = cx.input().data();
    if data.is_some_and(|data| data.get("tasks").is_some()) {
        return Ok(PlanRequest::Run(SubmittedPlan::Value(data.cloned().unwrap_or_default())));
    }
    let request = match text_of("request")? {
        Some(request) => request,
        None => cx.text(),
    };
    if looks_like_a_plan(&request) {
        return Ok(PlanRequest::Run(SubmittedPlan::File(request)));
    }
    if request.trim().is_empty() {
        return Err(
            "give a plan (as data `plan`, or as a text that is TOML or JSON), or a request to make one of"
                .into(),
        );
    }
    let by = match (text_of("by")?, flag("model")?) {
        (Some(_), true) => return Err("by: a model is to make it already; give one or the other".into()),
        (Some(agent), false) => PlanMaker::Agent(agent),
        (None, true) => PlanMaker::Model,
        (None, false) => PlanMaker::Rules,
    };
    Ok(PlanRequest::Make { request, by, run: !flag("make")? })
}

fn looks_like_a_plan(text: &str) -> bool {
    let text = text.trim_start();
    (text.starts_with('{') && text.contains("\"tasks\"")) || text.contains("[[tasks]]")
}

/// Admits a plan, or returns why not.
pub(super) async fn begin(
    core: &PlanCore,
    cx: &TaskContext,
    wanted: PlanRequest,
) -> Result<Result<AdmittedPlan, String>, AgentError> {
    match wanted {
        PlanRequest::Run(given) => {
            cx.step("plan", async |_| {
                let plan = match &given {
                    SubmittedPlan::File(text) => Plan::parse(text, &core.options),
                    SubmittedPlan::Value(value) => Plan::read(value, &core.options),
                };
                let roster = Roster::of(&cx.engine());
                Ok(admit_plan(cx, plan.map_err(|problems| problems.to_string()), &roster).await)
            })
            .await
        }
        PlanRequest::Make { request, by: PlanMaker::Rules, .. } => {
            cx.step("plan", async |_| {
                let roster = Roster::of(&cx.engine());
                let made = make(&request, &roster, &core.options).map(|made| made.plan);
                Ok(admit_plan(cx, made.map_err(|error| error.to_string()), &roster).await)
            })
            .await
        }
        PlanRequest::Make { request, by, .. } => by_other(core, cx, &request, &by).await,
    }
}

/// Each of these checks takes up to a millisecond for hundreds of tasks, so it yields to other tasks in between.
async fn admit_plan(
    cx: &TaskContext,
    plan: Result<Plan, String>,
    roster: &Roster,
) -> Result<AdmittedPlan, String> {
    let engine = cx.engine();
    let plan = plan?;
    yield_now().await;
    plan.check(roster).map_err(|problems| problems.to_string())?;
    yield_now().await;
    let meant = |task: &crate::plan::PlanTask| (task.id.clone(), agent_choice::skills_of(task, roster));
    let skills = plan.tasks.iter().map(meant).collect();
    yield_now().await;
    Ok(AdmittedPlan { plan: plan.to_value(), at: engine.clock().now(), skills })
}

/// Has an agent or the model make a plan. If the plan is invalid, it is requested once more, with the problems.
async fn by_other(
    core: &PlanCore,
    cx: &TaskContext,
    request: &str,
    by: &PlanMaker,
) -> Result<Result<AdmittedPlan, String>, AgentError> {
    let engine = cx.engine();
    let asked: Result<String, String> = cx
        .step("ask", async |_| {
            let roster = Roster::of(&engine);
            if let PlanMaker::Agent(name) = by
                && let Err(problems) = roster.known("by", &PlanTarget::Agent(name.clone()))
            {
                return Ok(Err(problems.to_string()));
            }
            Ok(Ok(make::prompt(request, &roster)))
        })
        .await?;
    let mut prompt = match asked {
        Ok(prompt) => prompt,
        Err(why) => return Ok(Err(why)),
    };
    for round in 0..2 {
        let said = match by {
            PlanMaker::Agent(agent) => {
                let input = Message::of("", Role::User, vec![Part::text(prompt.clone())]);
                match cx.call_until(agent, input, None).await?.end {
                    CallEnd::Ended(task) if task.state == State::Completed => {
                        Ok(said_by(SubtaskOutput::of(&task)))
                    }
                    CallEnd::Ended(task) | CallEnd::Late(task) => {
                        Err(format!("{agent} made no plan: {}", subtask::status_text(&task)))
                    }
                    CallEnd::Refused(why) => Err(format!("{agent} made no plan: {why}")),
                }
            }
            PlanMaker::Model | PlanMaker::Rules => ask_model(cx, prompt.clone()).await?.map(|(text, _)| text),
        };
        let said = match said {
            Ok(said) => said,
            Err(why) => return Ok(Err(why)),
        };
        let read: Result<AdmittedPlan, String> = cx
            .step("plan", async |_| {
                let plan = Plan::parse(make::file_in(&said), &core.options);
                let plan = plan.map(|mut plan| {
                    plan.request.get_or_insert_with(|| request.to_owned());
                    plan
                });
                // A demonstration that the request does not name is no agent that the plan may name.
                let roster = Roster::of(&cx.engine()).for_request(request);
                Ok(admit_plan(cx, plan.map_err(|problems| problems.to_string()), &roster).await)
            })
            .await?;
        match read {
            Ok(begun) => return Ok(Ok(begun)),
            Err(why) if round == 1 => return Ok(Err(format!("what was made is not a valid plan:\n{why}"))),
            Err(why) => prompt = make::repair(&prompt, &said, &why),
        }
    }
    Ok(Err("no plan was made".into()))
}

fn said_by(output: SubtaskOutput) -> String {
    match (output.text.trim().is_empty(), output.data) {
        (true, Some(data)) => data.to_string(),
        _ => output.text,
    }
}
