//! One tool call, in a branch of its own. Errors of the tool become its result for the model, and the task
//! goes on.

use nuncio_client::model::{ModelToolCall, ModelToolResult};
use nuncio_engine::{
    AgentError, Answer, Message, Part, Role,
    context::{Branch, CallEnd},
    knowledge::MemoryQuery,
    surface::{self, CompiledSchema},
};
use serde_json::{Map, Value, json};

use super::{
    super::spec::LlmSpec,
    render,
    toolbox::{LlmTool, LlmToolTarget},
};

/// Entries that one memory search returns.
const FOUND: usize = 20;

/// Makes a tool call. An error concerns the task itself: it is canceled, or the context was misused.
pub(super) async fn call_tool(
    branch: Branch,
    tools: &[LlmTool],
    spec: &LlmSpec,
    call: &ModelToolCall,
) -> Result<ModelToolResult, AgentError> {
    let checked = if tools.iter().all(|offered| surface::is_cheap(&offered.tool.schema)) {
        prepared(tools, call)
    } else {
        let (owned, asked) = (tools.to_vec(), call.clone());
        let work = move || {
            prepared(&owned, &asked).map(|(offered, arguments)| (offered.tool.name.clone(), arguments))
        };
        match surface::validate_off_worker(work).await {
            Some(checked) => checked.and_then(|(name, arguments)| {
                let offered = tools.iter().find(|offered| offered.tool.name == name);
                offered
                    .map(|offered| (offered, arguments))
                    .ok_or_else(|| format!("there is no tool {name:?}"))
            }),
            None => Err(format!("the schema of {} takes too long to apply", call.name)),
        }
    };
    let said = match checked {
        Ok((offered, arguments)) => called(&branch, offered, spec, arguments).await?,
        Err(why) => Err(why),
    };
    let (text, failed) = match said {
        Ok(text) => (text, false),
        Err(why) => (why, true),
    };
    Ok(ModelToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        text: render::truncate_text(text),
        failed,
    })
}

/// The tool of a call and its arguments, if they match the tool's schema.
fn prepared<'a>(
    tools: &'a [LlmTool],
    call: &ModelToolCall,
) -> Result<(&'a LlmTool, Map<String, Value>), String> {
    let Some(offered) = tools.iter().find(|offered| offered.tool.name == call.name) else {
        let names: Vec<&str> = tools.iter().map(|offered| offered.tool.name.as_str()).collect();
        return Err(format!("there is no tool {:?}; there are: {}", call.name, names.join(", ")));
    };
    let arguments = call.arguments()?;
    // The schema of a local agent was compiled when it was registered; a remote one's may be invalid.
    if let Ok(shape) = CompiledSchema::compile(&offered.tool.schema)
        && let Some(why) = shape.refuse(&Value::Object(arguments.clone()))
    {
        return Err(format!("the arguments are not what {} takes: {why}", call.name));
    }
    Ok((offered, arguments))
}

async fn called(
    branch: &Branch,
    offered: &LlmTool,
    spec: &LlmSpec,
    arguments: Map<String, Value>,
) -> Result<Result<String, String>, AgentError> {
    let namespace = spec.memory.as_deref().unwrap_or_default();
    let key = || arguments.get("key").and_then(Value::as_str).unwrap_or_default();
    match &offered.target {
        LlmToolTarget::Agent(agent) => {
            let part = match (arguments.len(), arguments.get("text")) {
                (1, Some(Value::String(text))) => Part::text(text),
                _ => Part::data(Value::Object(arguments)),
            };
            agent_called(branch, agent, part).await
        }
        LlmToolTarget::Skill { agent, skill } => {
            let part = Part::data(json!({ "tool": skill, "arguments": arguments }));
            agent_called(branch, agent, part).await
        }
        LlmToolTarget::MemoryGet => {
            tool_result(branch.memory(namespace).get(key()).await, |entry| match entry {
                Some(entry) => entry.value.to_string(),
                None => format!("there is no entry {:?}", key()),
            })
        }
        LlmToolTarget::MemorySet => {
            let value = arguments.get("value").unwrap_or(&Value::Null);
            tool_result(branch.memory(namespace).store(key(), value, None).await, |version| {
                format!("written, version {version}")
            })
        }
        LlmToolTarget::MemorySearch => {
            let words = arguments.get("words").and_then(Value::as_str).unwrap_or_default();
            let words = words.split_whitespace().map(str::to_owned).collect();
            tool_result(
                branch.memory(namespace).search(&MemoryQuery::Words(words), 1, FOUND).await,
                |found| {
                    let entries = found
                        .results
                        .iter()
                        .map(|(entry, _)| json!({ "key": entry.key, "value": entry.value }));
                    json!({ "total": found.total, "entries": entries.collect::<Value>() }).to_string()
                },
            )
        }
        LlmToolTarget::Person => {
            let question = arguments.get("question").and_then(Value::as_str).unwrap_or_default();
            Ok(match branch.ask(question, form(arguments.get("fields"))).await? {
                Answer::Accept(data) => Ok(data.to_string()),
                Answer::Decline(None) => Err("the person declined to answer".into()),
                Answer::Decline(Some(note)) => Err(format!("the person declined to answer: {note}")),
                Answer::Cancel => Err("the person dismissed the question".into()),
                Answer::Unavailable => Err("no user is available to answer".into()),
            })
        }
    }
}

async fn agent_called(
    branch: &Branch,
    agent: &str,
    part: Part,
) -> Result<Result<String, String>, AgentError> {
    let message = Message::of("", Role::User, vec![part]);
    // A rejection is journaled like an end: the model has read it, so after a restart the agent must not be
    // called.
    match branch.call_until(agent, message, None).await?.end {
        CallEnd::Ended(task) | CallEnd::Late(task) => {
            let (text, failed) = render::render_task(&task);
            Ok(if failed { Err(text) } else { Ok(text) })
        }
        CallEnd::Refused(why) => Ok(Err(why)),
    }
}

/// The tool result for the outcome of a step.
fn tool_result<T>(
    result: Result<T, AgentError>,
    text: impl FnOnce(T) -> String,
) -> Result<Result<String, String>, AgentError> {
    match result {
        Ok(value) => Ok(Ok(text(value))),
        Err(AgentError::Failed(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

/// The form that the model described; a single text field if it described none.
fn form(fields: Option<&Value>) -> Value {
    let (mut properties, mut required) = (Map::new(), vec![]);
    for field in fields.and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = field["name"].as_str() else { continue };
        let mut property = json!({ "type": field["type"].as_str().unwrap_or("string") });
        if let Some(description) = field["description"].as_str() {
            property["description"] = description.into();
        }
        let options = field["options"].as_array().filter(|options| !options.is_empty());
        if let (Some(options), "string") = (options, property["type"].as_str().unwrap_or_default()) {
            property["enum"] = options.clone().into();
        }
        if field["required"] == true {
            required.push(name.to_owned());
        }
        properties.insert(name.to_owned(), property);
    }
    if properties.is_empty() {
        properties.insert("answer".into(), json!({ "type": "string" }));
        required.push("answer".into());
    }
    required.dedup();
    json!({ "type": "object", "properties": properties, "required": required })
}

#[cfg(test)]
mod tests {
    use nuncio_client::model::ModelTool;

    use super::*;

    fn refused(name: &str, arguments: &str) -> String {
        let schema = json!({
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let tool = ModelTool { name: "add".into(), description: String::new(), schema };
        let tools = [LlmTool { tool, target: LlmToolTarget::Agent("add".into()) }];
        let call =
            ModelToolCall { name: name.into(), arguments: arguments.into(), ..ModelToolCall::default() };
        prepared(&tools, &call).map(|(_, arguments)| arguments).unwrap_err()
    }

    #[test]
    fn what_is_wrong_with_a_call_is_named() {
        assert_eq!(refused("sub", "{}"), "there is no tool \"sub\"; there are: add");
        assert!(refused("add", "{\"n\":").starts_with("the arguments are not JSON"));
        assert_eq!(refused("add", "[1]"), "the arguments are not a JSON object");
        assert_eq!(
            refused("add", "{}"),
            "the arguments are not what add takes: \"n\" is a required property"
        );
    }

    #[test]
    fn a_form_is_flat_and_never_empty() {
        let fields = json!([
            { "name": "day", "type": "string", "description": "Which day", "options": ["mon", "tue"], "required": true },
            { "name": "count", "type": "integer" },
        ]);
        let expected = json!({
            "type": "object",
            "properties": {
                "day": { "type": "string", "description": "Which day", "enum": ["mon", "tue"] },
                "count": { "type": "integer" },
            },
            "required": ["day"],
        });
        assert_eq!(form(Some(&fields)), expected);
        assert_eq!(form(None)["required"], json!(["answer"]));
        assert_eq!(form(Some(&json!([])))["required"], json!(["answer"]));
    }
}
