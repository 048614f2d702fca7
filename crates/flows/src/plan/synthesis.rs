//! The synthesis of a plan's result: the results of its subtasks, the values of references to them, and how
//! they are joined, by a template or by an agent or model that gets all of them. The source of each part is
//! always recorded with it.

use nuncio_engine::{Content, Message, Task, clock::Timestamp};
use serde_json::{Value, json};

use super::{
    api::UnavailableAgent,
    file::Plan,
    reference::{PlanReference, ReferenceResolver, TaskProperty, at_path, render},
    status::SubtaskState,
};

/// The result of a subtask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SubtaskResult {
    pub(crate) state: SubtaskState,
    /// Why it failed or was skipped.
    pub(crate) why: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) rerouted_from: Vec<UnavailableAgent>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) output: SubtaskOutput,
}

/// The output of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SubtaskOutput {
    pub(crate) text: String,
    pub(crate) data: Option<Value>,
}

impl SubtaskOutput {
    /// The texts and the first structured value of the task's artifacts; of its status message if it has none.
    pub(crate) fn of(task: &Task) -> Self {
        let mut texts: Vec<String> = vec![];
        let mut data = None;
        for artifact in &task.artifacts {
            for part in &artifact.parts {
                match &part.content {
                    Content::Text(text) => texts.push(text.trim_end().to_owned()),
                    Content::Data(value) if data.is_none() => data = Some(value.clone()),
                    Content::Url(url) => texts.push(url.clone()),
                    Content::Data(_) | Content::Bytes(_) => {}
                }
            }
        }
        let last = task.status_message.as_ref();
        if texts.is_empty() {
            texts.extend(last.map(Message::joined_text).filter(|text| !text.is_empty()));
        }
        data = data.or_else(|| last.and_then(Message::data).cloned());
        Self { text: texts.join("\n"), data }
    }
}

/// Resolves references to the results of these subtasks.
pub(crate) struct PlanResults<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ended: &'a (dyn Fn(&str) -> Option<&'a SubtaskResult> + Sync),
}

impl ReferenceResolver for PlanResults<'_> {
    fn resolve(&self, reference: &PlanReference) -> Result<Value, String> {
        let (id, what) = match reference {
            PlanReference::Request => return Ok(json!(self.plan.request.clone().unwrap_or_default())),
            PlanReference::Name => return Ok(json!(self.plan.name)),
            PlanReference::Task { id, what } => (id, what),
        };
        let Some(ended) = (self.ended)(id) else { return Err(format!("{reference}: {id} has not ended")) };
        match what {
            TaskProperty::Agent => Ok(json!(ended.agent)),
            TaskProperty::State => Ok(json!(ended.state.name())),
            TaskProperty::Id => Ok(json!(ended.task_id)),
            // A failed optional subtask resolves to null.
            _ if ended.state != SubtaskState::Done => Ok(Value::Null),
            TaskProperty::Text => Ok(json!(ended.output.text)),
            TaskProperty::Data(path) => match &ended.output.data {
                Some(data) => at_path(data, path).cloned().map_err(|why| format!("{reference}: {why}")),
                None => Err(format!("{reference}: {id} came to no structured data; its text is .text")),
            },
        }
    }
}

/// The results under their headings, each with the agent that produced it.
pub(crate) fn parts(plan: &Plan, ended: &[SubtaskResult]) -> String {
    let mut out = String::new();
    for (task, ended) in plan.tasks.iter().zip(ended) {
        let from = ended.agent.as_deref().unwrap_or("none");
        let words = match ended.state {
            SubtaskState::Done if !ended.output.text.trim().is_empty() => ended.output.text.trim().to_owned(),
            SubtaskState::Done => ended
                .output
                .data
                .as_ref()
                .map_or_else(|| "Done, without text.".to_owned(), |data| format!("```json\n{data:#}\n```")),
            _ => format!("Not done: {}", ended.why.as_deref().unwrap_or("it was not begun")),
        };
        out.push_str(&format!("## {}\n\n{words}\n\n_from agent {from}_\n\n", task.id));
    }
    out.trim_end().to_owned() + "\n"
}

/// The prompt for the agent or model that joins the results.
pub(crate) fn prompt(
    plan: &Plan,
    ended: &[SubtaskResult],
    words: Option<&str>,
    known: &PlanResults<'_>,
) -> Result<String, String> {
    let words = match words {
        Some(words) => render(words, known)?,
        None => "Put these parts together into one coherent answer. Keep what is in them, and say for each statement \
                 which agent it came from."
            .to_owned(),
    };
    let request = plan.request.as_ref().map(|request| format!("\n\nWhat was asked for: {request}"));
    Ok(format!("{words}{}\n\n{}", request.unwrap_or_default(), parts(plan, ended)))
}

/// The source of every part.
pub(crate) fn provenance(plan: &Plan, ended: &[SubtaskResult]) -> Value {
    let part = |(task, ended): (&super::file::PlanTask, &SubtaskResult)| {
        json!({
            "task": task.id,
            "state": ended.state.name(),
            "agent": ended.agent,
            "taskId": ended.task_id,
            "attempts": ended.attempts,
            "why": ended.why,
            "reroutedFrom": ended.rerouted_from,
            "startedAt": ended.started_at.map(crate::resource::iso),
            "durationMs": ended.duration_ms,
            "optional": task.optional,
        })
    };
    plan.tasks.iter().zip(ended).map(part).collect()
}
