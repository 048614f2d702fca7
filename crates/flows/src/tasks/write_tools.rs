//! The tools that change tasks: send, reply, cancel.

use nuncio_engine::{
    Engine, Message, Part, Reply, Role, Submit,
    surface::{HandlerError, HandlerRequest, Tool, ToolProfile},
};
use serde_json::{Map, Value, json};

use super::{
    TaskToolReply, arguments, name, of_engine,
    view::{self, TaskViewOptions},
};

/// The dialect of tasks that are created by a tool.
const DIALECT: &str = "mcp/tool";
const BRIEFLY: TaskViewOptions = TaskViewOptions { history: false, artifacts: true };

pub(super) fn send(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new(
        "task_send",
        "Gives an agent something to do and returns its task at once. task_get and task_events tell how it goes on; \
         where it asks something, task_reply answers.",
    )
    .input(arguments(
        &json!({
            "agent": name("Who is to do it, as agents_list has it."),
            "text": { "type": "string", "description": "What to do, in words." },
            "data": { "description": "What to do, for agents that take structured input." },
            "contextId": name("The conversation that it belongs to; without it a new one is opened."),
        }),
        &["agent"],
    ))
    .output(json!({
        "type": "object",
        "properties": {
            "taskId": { "type": "string" },
            "contextId": { "type": "string" },
            "state": { "enum": view::state_names() },
        },
        "required": ["taskId", "contextId", "state"],
        "additionalProperties": false,
    }));
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let agent = request.text("agent").unwrap_or_default();
        let mut submit = Submit::new(agent, message_from_request(&engine, &request)?);
        submit.context = request.text("contextId").map(str::to_owned);
        submit.dialect = DIALECT.into();
        let task = engine.submit(&request.caller, submit).await?;
        let value = json!({
            "taskId": task.origin.public_id(),
            "contextId": task.origin.context,
            "state": view::state_name(task.state),
        });
        Ok(TaskToolReply { text: view::line(&task), value })
    })
}

pub(super) fn reply(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new(
        "task_reply",
        "Says something to a task that has not ended: the answer, where it asks something.",
    )
    .input(arguments(
        &json!({
            "taskId": name("The task."),
            "text": { "type": "string", "description": "An answer in words, or a message." },
            "data": { "description": "An answer that fits the question's schema." },
            "action": {
                "enum": ["accept", "decline", "cancel"],
                "description": "How the question is answered; without it, what is given is the accepted answer.",
            },
            "questionId": name("Which question, where several are open; without it the oldest."),
        }),
        &["taskId"],
    ))
    .output(view::schema());
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let task = request.text("taskId").unwrap_or_default().to_owned();
        let message = answer(&engine, &request)?;
        let reply = Reply { task, context: None, message, idempotency_key: None, webhooks: vec![] };
        let task = engine.reply(&request.caller, reply).await?;
        Ok(TaskToolReply { text: view::line(&task), value: view::task(&task, BRIEFLY) })
    })
}

pub(super) fn cancel(engine: &Engine) -> impl Tool {
    let profile = ToolProfile::new("task_cancel", "Ends a task; returns when it has ended, or soon after.")
        .input(arguments(&json!({ "taskId": name("The task.") }), &["taskId"]))
        .output(view::schema());
    of_engine(engine, profile, async |engine: Engine, request: HandlerRequest| {
        let task = request.text("taskId").unwrap_or_default();
        let task = engine.cancel(&request.caller, task).await?;
        Ok(TaskToolReply { text: view::line(&task), value: view::task(&task, BRIEFLY) })
    })
}

fn message(engine: &Engine, parts: Vec<Part>) -> Message {
    Message::of(engine.clock().new_id().to_string(), Role::User, parts)
}

/// The message to an agent: text, data, or both.
fn message_from_request(engine: &Engine, request: &HandlerRequest) -> Result<Message, HandlerError> {
    let text = request.text("text").map(Part::text);
    let data = request.arguments.get("data").cloned().map(Part::data);
    let parts: Vec<Part> = text.into_iter().chain(data).collect();
    if parts.is_empty() {
        return Err(HandlerError::Invalid("text or data: one of them must be given".into()));
    }
    Ok(message(engine, parts))
}

/// The answer to a task. A choice, or the id of a question, is added to the data in the format that the engine
/// parses.
fn answer(engine: &Engine, request: &HandlerRequest) -> Result<Message, HandlerError> {
    let data = request.arguments.get("data");
    let content = data.cloned().or_else(|| request.text("text").map(Value::from));
    let question = request.text("questionId").map(|id| ("questionId".to_owned(), json!(id)));
    let choice = match (request.text("action"), data) {
        (Some(action), _) => {
            let mut choice = Map::from_iter([("action".to_owned(), json!(action))]);
            choice.extend(content.map(|content| ("content".to_owned(), content)));
            choice
        }
        (None, _) if question.is_none() => return message_from_request(engine, request),
        (None, Some(Value::Object(data))) => data.clone(),
        (None, _) => {
            let why = "questionId: goes with data that is an object, or with an action";
            return Err(HandlerError::Invalid(why.into()));
        }
    };
    let choice: Map<String, Value> = choice.into_iter().chain(question).collect();
    Ok(message(engine, vec![Part::data(Value::Object(choice))]))
}
