//! Selects the tool that a message means, and its arguments. Asks the caller for what is missing.
//!
//! Structured input names the tool (`tool` with `arguments`, or `skill`); a text begins with its name. A
//! single tool need not be named. Arguments are validated against the tool's schema before the peer is
//! called.

use nuncio_client::peer::PeerCapability;
use nuncio_engine::{
    AgentError, Answer, Message, Outcome, TaskContext,
    surface::{self, CompiledSchema},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{RemoteSide, form, profile::names, turn};

/// A tool and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SelectedTool {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

/// The result of matching a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum ToolSelection {
    /// Call this tool.
    Call(SelectedTool),
    /// The caller has to name one of these.
    Which(Vec<String>),
    /// The tool lacks arguments: an object of this schema.
    More { tool: String, arguments: Map<String, Value>, schema: Value },
    /// No tool can be called; why.
    No(String),
    /// The peer is unreachable.
    Away(String),
}

/// The caller's input so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolRequest {
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
    text: Option<String>,
    /// Structured input that names no tool: the arguments, if only one tool can be meant.
    plain: Option<Map<String, Value>>,
}

/// Finds the tool for a task's message; asks the caller if needed. `Err`: the task ends with this outcome.
pub(super) async fn select_tool(
    there: &RemoteSide,
    cx: &TaskContext,
) -> Result<Result<SelectedTool, Outcome>, AgentError> {
    let mut said = ToolRequest::from_message(cx.input());
    loop {
        let look = async |step: nuncio_engine::StepContext| {
            let mut backoff = turn::opening_backoff(there, there.remote.patience.begin);
            match turn::find_capabilities(there, &step, &mut backoff).await? {
                Ok(offers) => Ok(choose_bounded(&offers, &said).await),
                Err(why) => Ok(ToolSelection::Away(why)),
            }
        };
        let choice = match there.cached_capabilities() {
            Some(offers) if offers.iter().all(is_cheap) => {
                cx.decide("choose", || match_tool(&offers, &said))?
            }
            Some(offers) => cx.step("choose", async |_| Ok(choose_bounded(&offers, &said).await)).await?,
            None => cx.step("choose", look).await?,
        };
        match choice {
            ToolSelection::Call(chosen) => return Ok(Ok(chosen)),
            ToolSelection::No(why) => return Ok(Err(Outcome::rejected(why))),
            ToolSelection::Away(why) => return Err(AgentError::Unreachable(why)),
            ToolSelection::Which(tools) => {
                let schema = json!({
                    "type": "object",
                    "properties": { "tool": { "type": "string", "enum": tools, "description": "The tool to call." } },
                    "required": ["tool"],
                });
                match cx.ask("Which tool do you want?", schema).await? {
                    Answer::Accept(data) => said.tool = data["tool"].as_str().map(str::to_owned),
                    other => {
                        return Ok(Err(unanswered(&other, &format!("name a tool: {}", tools.join(", ")))));
                    }
                }
            }
            ToolSelection::More { tool, arguments, schema } => {
                match form::ask(cx, &format!("The tool {tool:?} needs more to begin."), &schema).await? {
                    Answer::Accept(Value::Object(more)) => {
                        said.arguments = Some(arguments.into_iter().chain(more).collect());
                        (said.tool, said.text, said.plain) = (Some(tool), None, None);
                    }
                    other => {
                        let required = schema["required"].as_array().cloned().unwrap_or_default();
                        let required: Vec<_> = required.iter().filter_map(Value::as_str).collect();
                        let what = format!("call {tool:?} with {}", required.join(", "));
                        return Ok(Err(unanswered(&other, &what)));
                    }
                }
            }
        }
    }
}

fn is_cheap(offer: &PeerCapability) -> bool {
    offer.input_schema.as_ref().is_none_or(surface::is_cheap)
}

/// As [`match_tool`], on a blocking thread if a schema of the peer is expensive.
async fn choose_bounded(offers: &[PeerCapability], said: &ToolRequest) -> ToolSelection {
    if offers.iter().all(is_cheap) {
        return match_tool(offers, said);
    }
    let (owned, said) = (offers.to_vec(), said.clone());
    let chosen = surface::validate_off_worker(move || match_tool(&owned, &said)).await;
    chosen.unwrap_or_else(|| {
        ToolSelection::No("validating against the schemas of the server's tools took too long".into())
    })
}

fn unanswered(answer: &Answer, what: &str) -> Outcome {
    match answer {
        Answer::Cancel => Outcome::canceled(format!("nothing was called: {what}")),
        _ => Outcome::rejected(format!("nothing was called: {what}")),
    }
}

impl ToolRequest {
    fn from_message(message: &Message) -> Self {
        let text = Some(message.joined_text().trim().to_owned()).filter(|text| !text.is_empty());
        let named = message.metadata.as_ref().and_then(skill);
        match message.data() {
            Some(Value::Object(data)) => Self::of_data(data.clone(), named, text),
            _ => match text.as_deref().map(serde_json::from_str::<Value>) {
                Some(Ok(Value::Object(data))) => Self::of_data(data, named, None),
                _ => Self { tool: named, text, ..Self::default() },
            },
        }
    }

    fn of_data(mut data: Map<String, Value>, named: Option<String>, text: Option<String>) -> Self {
        let wrapped = |data: &mut Map<String, Value>| match data.get("arguments") {
            Some(Value::Object(_)) => match data.shift_remove("arguments") {
                Some(Value::Object(arguments)) => Some(arguments),
                _ => None,
            },
            _ => None,
        };
        if let Some(tool) = named {
            let arguments = wrapped(&mut data).unwrap_or(data);
            return Self { tool: Some(tool), arguments: Some(arguments), text, plain: None };
        }
        if let Some(tool) = data.get("tool").and_then(Value::as_str).map(str::to_owned)
            && data.keys().all(|key| key == "tool" || key == "arguments")
        {
            let plain = Some(data.clone());
            let arguments = wrapped(&mut data).unwrap_or_default();
            return Self { tool: Some(tool), arguments: Some(arguments), text, plain };
        }
        if let Some(tool) = skill(&data) {
            let plain = Some(data.clone());
            data.retain(|key, _| key != "skill" && key != "skillId");
            let arguments = wrapped(&mut data).unwrap_or(data);
            return Self { tool: Some(tool), arguments: Some(arguments), text, plain };
        }
        Self { tool: None, arguments: None, text, plain: Some(data) }
    }
}

/// The skill that a message names by `skill` or `skillId`.
fn skill(members: &Map<String, Value>) -> Option<String> {
    ["skill", "skillId"].into_iter().find_map(|key| members.get(key)?.as_str()).map(str::to_owned)
}

/// Matches the input against these tools.
pub(super) fn match_tool(offers: &[PeerCapability], said: &ToolRequest) -> ToolSelection {
    if offers.is_empty() {
        return ToolSelection::No("the server has no tools".into());
    }
    let find = |name: &str| offers.iter().find(|offer| offer.name == name);
    let only = match offers {
        [only] => Some(only),
        _ => None,
    };
    if let Some(name) = &said.tool {
        return match (find(name), only, &said.plain) {
            (Some(tool), ..) => with_arguments(tool, said),
            // A tool may have an argument of that name.
            (None, Some(tool), Some(plain)) if fits(tool, plain) => call(tool, plain.clone()),
            _ => {
                ToolSelection::No(format!("there is no tool {name:?}; there is {}", names(offers).join(", ")))
            }
        };
    }
    if let (Some(tool), Some(plain)) = (only, &said.plain) {
        return checked(tool, plain.clone());
    }
    if let Some(text) = &said.text {
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if let Some(tool) = find(first) {
            let said = ToolRequest { text: Some(rest.trim().to_owned()), ..said.clone() };
            return with_arguments(tool, &said);
        }
        if let Some(tool) = only {
            return with_arguments(tool, said);
        }
    }
    match only {
        Some(tool) => checked(tool, Map::new()),
        None => ToolSelection::Which(names(offers).into_iter().map(str::to_owned).collect()),
    }
}

/// The arguments for a known tool: as given, as JSON, or as the only text that it needs.
fn with_arguments(tool: &PeerCapability, said: &ToolRequest) -> ToolSelection {
    if let Some(arguments) = &said.arguments {
        return checked(tool, arguments.clone());
    }
    if let Some(plain) = &said.plain {
        return checked(tool, plain.clone());
    }
    match said.text.as_deref().filter(|text| !text.is_empty()) {
        None => checked(tool, Map::new()),
        Some(text) => match (serde_json::from_str(text), only_text(tool)) {
            (Ok(Value::Object(arguments)), _) => checked(tool, arguments),
            (_, Some(name)) => checked(tool, Map::from_iter([(name.to_owned(), text.into())])),
            _ => checked(tool, Map::new()),
        },
    }
}

/// The only required argument of a tool, if it is a text.
fn only_text(tool: &PeerCapability) -> Option<&str> {
    let schema = tool.input_schema.as_ref()?;
    let [only] = schema["required"].as_array()?.as_slice() else { return None };
    let name = only.as_str()?;
    (schema["properties"][name]["type"] == "string").then_some(name)
}

fn fits(tool: &PeerCapability, arguments: &Map<String, Value>) -> bool {
    matches!(checked(tool, arguments.clone()), ToolSelection::Call(_))
}

fn call(tool: &PeerCapability, arguments: Map<String, Value>) -> ToolSelection {
    ToolSelection::Call(SelectedTool { tool: tool.name.clone(), arguments })
}

/// Validates arguments against the tool's schema: a call, the question for what is missing, or the error.
fn checked(tool: &PeerCapability, arguments: Map<String, Value>) -> ToolSelection {
    let Some(schema) = &tool.input_schema else { return call(tool, arguments) };
    if let Err(why) = surface::check_foreign_cost(schema) {
        return ToolSelection::No(format!("the tool {:?} is not called: {why}", tool.name));
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<&str> = required.filter(|name| !arguments.contains_key(*name)).collect();
    if !missing.is_empty() {
        let asked = missing.iter().map(|name| ((*name).to_owned(), schema["properties"][*name].clone()));
        let properties: Map<String, Value> = asked.collect();
        let schema = json!({ "type": "object", "properties": properties, "required": missing });
        return ToolSelection::More { tool: tool.name.clone(), arguments, schema };
    }
    // If the schema cannot be compiled, the server validates the arguments itself.
    let Ok(shape) = CompiledSchema::compile(schema) else { return call(tool, arguments) };
    let value = Value::Object(arguments);
    match (shape.refuse(&value), value) {
        (None, Value::Object(arguments)) => call(tool, arguments),
        (why, _) => {
            let why = why.unwrap_or_default();
            ToolSelection::No(format!("the arguments of {:?} do not fit its schema: {why}", tool.name))
        }
    }
}
