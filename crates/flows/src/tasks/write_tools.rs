//! The tools that change tasks: send, reply, cancel.

use nuncio_engine::{
    Engine, Message, Part, Reply, Role, Submit,
    surface::{HandlerError, SchemaError, Surface, ToolCall, ToolGroup, TypedReply, typed_reply, typed_tool},
};
use serde_json::{Map, Value, json};

use super::{
    api::{TaskAnswer, TaskCancelRequest, TaskReplyRequest, TaskSendAnswer, TaskSendRequest},
    view::{self, TaskViewOptions},
};

/// The dialect of tasks that are created by a tool.
const DIALECT: &str = "mcp/tool";
const BRIEFLY: TaskViewOptions = TaskViewOptions { history: false, artifacts: true };

pub(super) fn install(engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    typed_tool(
        "task_send",
        "Gives an agent something to do and returns its task at once. task_get and task_events tell how it goes on; \
         where it asks something, task_reply answers.",
        engine,
        send,
    )
    .install(ToolGroup::Tasks, surface)?;
    let about = "Says something to a task that has not ended: the answer, where it asks something.";
    typed_tool("task_reply", about, engine, reply).install(ToolGroup::Tasks, surface)?;
    let about = "Ends a task; returns when it has ended, or soon after.";
    typed_tool("task_cancel", about, engine, cancel).install(ToolGroup::Tasks, surface)
}

async fn send(engine: Engine, call: ToolCall<TaskSendRequest>) -> TypedReply<TaskSendAnswer> {
    let TaskSendRequest { agent, text, data, context_id } = call.input;
    let mut submit = Submit::new(&agent, message(&engine, text, data)?);
    submit.context = context_id;
    submit.dialect = DIALECT.into();
    let task = engine.submit(&call.caller, submit).await?;
    let (task_id, context_id) = (task.origin.public_id(), task.origin.context.to_string());
    typed_reply(view::line(&task), TaskSendAnswer { task_id, context_id, state: task.state })
}

async fn reply(engine: Engine, call: ToolCall<TaskReplyRequest>) -> TypedReply<TaskAnswer> {
    let task = call.input.task_id.clone();
    let message = answer(&engine, call.input)?;
    let reply = Reply { task, context: None, message, idempotency_key: None, webhooks: vec![] };
    let task = engine.reply(&call.caller, reply).await?;
    typed_reply(view::line(&task), view::task(&task, BRIEFLY))
}

async fn cancel(engine: Engine, call: ToolCall<TaskCancelRequest>) -> TypedReply<TaskAnswer> {
    let task = engine.cancel(&call.caller, &call.input.task_id).await?;
    typed_reply(view::line(&task), view::task(&task, BRIEFLY))
}

/// The message to an agent: text, data, or both.
fn message(engine: &Engine, text: Option<String>, data: Option<Value>) -> Result<Message, HandlerError> {
    let parts: Vec<Part> = text.map(Part::text).into_iter().chain(data.map(Part::data)).collect();
    if parts.is_empty() {
        return Err(HandlerError::Invalid("text or data: one of them must be given".into()));
    }
    Ok(Message::of(engine.clock().new_id().to_string(), Role::User, parts))
}

/// The answer to a task. A choice, or the id of a question, is added to the data in the format that the engine
/// parses.
fn answer(engine: &Engine, request: TaskReplyRequest) -> Result<Message, HandlerError> {
    let TaskReplyRequest { text, data, action, question_id, .. } = request;
    let data = data.map(object_in_text);
    let mut choice = match (action, question_id.is_some(), data) {
        (Some(action), _, data) => {
            let mut choice = Map::from_iter([("action".to_owned(), json!(action))]);
            choice.extend(data.or(text.map(Value::from)).map(|content| ("content".to_owned(), content)));
            choice
        }
        (None, false, data) => return message(engine, text, data),
        (None, true, Some(Value::Object(data))) => data,
        (None, true, _) => {
            let why = "questionId: goes with data that is an object, or with an action";
            return Err(HandlerError::Invalid(why.into()));
        }
    };
    choice.extend(question_id.map(|id| ("questionId".to_owned(), Value::from(id))));
    message(engine, None, Some(Value::Object(choice)))
}

/// Clients whose forms have only lines of text, as the Inspector's command line, send an object as its JSON. An answer that
/// is a text beginning like one can be given as `text`.
fn object_in_text(data: Value) -> Value {
    match &data {
        Value::String(text) if text.trim_start().starts_with('{') => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => data,
        },
        _ => data,
    }
}
