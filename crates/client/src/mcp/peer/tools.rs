//! The tools of a server: their schemas, and the conversion of a message to arguments.

use std::{collections::HashSet, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use nuncio_engine::{
    Skill, TaskUse,
    content::{Content, Message},
};
use nuncio_wire::{
    jsonrpc::METHOD_NOT_FOUND,
    mcp::{ClientRequest, ListedTool, McpVersion, ToolsPage, mirrored_arguments, value_at},
};
use serde_json::{Map, Value, json};

use super::{
    connection::{McpConnection, McpTransport},
    error::McpRequestError,
};
use crate::{
    mcp::relay::envelope::encoded,
    peer::{PeerCapability, PeerError},
};

/// Pages of a list that are read.
const MAX_PAGES: usize = 1000;

/// The schema annotation for an argument that is also sent as a header.
const HEADER: &str = "x-mcp-header";

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpTool {
    pub(super) offer: PeerCapability,
    /// Whether calls may or must be tasks (2025-11-25).
    pub(super) tasks: TaskUse,
    /// Whether a repeat with the same idempotency key is the same call.
    pub(super) takes_key: bool,
    /// Arguments that are also sent as headers: the header, and the path of the argument.
    mirrored: Vec<(HeaderName, Vec<String>)>,
}

/// Lists the tools, from all pages.
pub(super) async fn list(connection: &McpConnection) -> Result<Vec<Arc<McpTool>>, McpRequestError> {
    let (at, most) = (&connection.at, connection.options.max_tools);
    let (mut tools, mut cursor, mut cursors) = (vec![], None::<String>, HashSet::new());
    let http =
        connection.version == McpVersion::V2026_07_28 && matches!(connection.link, McpTransport::Http(_));
    for _ in 0..MAX_PAGES {
        let page = match connection.request(ClientRequest::ListTools(cursor.as_deref())).await {
            Ok(page) => ToolsPage::read(page),
            // A server without tools need not implement the method.
            Err(McpRequestError::Rpc(error))
                if error.code == i64::from(METHOD_NOT_FOUND) && tools.is_empty() =>
            {
                return Ok(vec![]);
            }
            Err(fail) => return Err(fail),
        };
        let Some(page) = page else {
            return Err(McpRequestError::malformed(at, "tools/list: a result without tools"));
        };
        for tool in &page.tools {
            match McpTool::read(tool, http) {
                Ok(tool) => tools.push(Arc::new(tool)),
                // One invalid tool must not hide the others.
                Err(why) => tracing::warn!(why, "{at}: ignoring the invalid tool {}", tool["name"]),
            }
        }
        if tools.len() > most {
            return Err(McpRequestError::malformed(at, format!("it offers more than {most} tools")));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(tools),
            Some(cursor) if !cursors.insert(cursor.clone()) => break,
            Some(_) => {}
        }
    }
    Err(McpRequestError::malformed(at, "tools/list: its pages do not end"))
}

impl McpTool {
    /// Parses a tool. `headers`: whether the revision sends arguments as headers, so that the annotations
    /// count.
    fn read(tool: &Value, headers: bool) -> Result<Self, String> {
        let ListedTool {
            name,
            title,
            description,
            input_schema,
            output_schema,
            tasks,
            takes_key,
            idempotent,
        } = ListedTool::read(tool)?;
        let mirrored = input_schema.as_ref().filter(|_| headers).map(mirrored_in).transpose()?;
        let skills = vec![Skill::new(&name, title.as_deref().unwrap_or(&name), &description)];
        let input_schema = Some(input_schema.unwrap_or_else(|| json!({ "type": "object" })));
        let offer =
            PeerCapability { name, title, description, input_schema, output_schema, skills, idempotent };
        Ok(Self { offer, tasks, takes_key, mirrored: mirrored.unwrap_or_default() })
    }

    /// The headers that repeat arguments.
    pub(super) fn headers(&self, arguments: &Value) -> HeaderMap {
        let value = |path: &[String]| match value_at(arguments, path)? {
            Value::String(text) => encoded(text),
            other => HeaderValue::from_str(&other.to_string()).ok(),
        };
        let headers = self.mirrored.iter();
        headers.filter_map(|(name, path)| Some((name.clone(), value(path)?))).collect()
    }

    /// Converts a message to arguments: its first data part, or its text if the tool takes a single text.
    pub(super) fn arguments(&self, message: &Message) -> Result<Value, PeerError> {
        let name = &self.offer.name;
        if message.parts.iter().any(|part| matches!(part.content, Content::Bytes(_) | Content::Url(_))) {
            let why =
                format!("the tool {name} takes arguments, not files: say in them what it needs to know");
            return Err(PeerError::Unsupported(why));
        }
        let text = message.joined_text();
        let wanted = self.text_argument();
        match message.data() {
            Some(Value::Object(given)) => {
                let mut given = given.clone();
                if let Some("text") = wanted.filter(|_| !text.is_empty()) {
                    given.entry("text").or_insert_with(|| text.into());
                }
                Ok(Value::Object(given))
            }
            Some(other) => {
                let why = format!("the arguments of the tool {name} are an object, not {other}");
                Err(PeerError::Refused(why))
            }
            None => match serde_json::from_str::<Map<String, Value>>(&text) {
                Ok(given) => Ok(Value::Object(given)),
                Err(_) if text.trim().is_empty() => Ok(json!({})),
                Err(_) => match wanted {
                    Some(wanted) => Ok(json!({ wanted: text })),
                    None => {
                        let why =
                            format!("the tool {name} takes arguments: give them as JSON, by its schema");
                        Err(PeerError::Refused(why))
                    }
                },
            },
        }
    }

    /// The argument for plain text: `text`, otherwise the only required one, otherwise the only one.
    fn text_argument(&self) -> Option<&str> {
        let schema = self.offer.input_schema.as_ref()?;
        let properties = schema["properties"].as_object()?;
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let only = match required[..] {
            _ if properties.contains_key("text") => "text",
            [only] => only,
            [] if properties.len() == 1 => properties.keys().next()?,
            _ => return None,
        };
        let (name, property) = properties.get_key_value(only)?;
        matches!(property["type"].as_str(), Some("string") | None).then_some(name.as_str())
    }
}

/// The arguments that go into headers; an error if an annotation is not usable.
fn mirrored_in(schema: &Value) -> Result<Vec<(HeaderName, Vec<String>)>, String> {
    let found = mirrored_arguments(schema);
    let mut headers: Vec<(HeaderName, Vec<String>)> = vec![];
    for (name, path) in found {
        let header = HeaderName::try_from(format!("mcp-param-{name}")).ok().filter(|_| !name.is_empty());
        let header = header.ok_or_else(|| format!("{HEADER}: {name:?} is no name of a header"))?;
        let property = path.iter().fold(schema, |schema, name| &schema["properties"][name]);
        if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
            return Err(format!("{HEADER}: {} is no string, integer or boolean", path.join(".")));
        }
        if headers.iter().any(|(other, _)| *other == header) {
            return Err(format!("{HEADER}: {name:?} is used twice"));
        }
        headers.push((header, path));
    }
    match count(schema) == headers.len() {
        true => Ok(headers),
        false => Err(format!("{HEADER} stands where no path of properties leads, or is no text")),
    }
}

/// Counts the annotation anywhere in a schema. A property may have the same name.
fn count(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => {
            let here = usize::from(members.contains_key(HEADER));
            let below = members.iter().filter(|(name, _)| *name != "properties" && *name != HEADER);
            let below = below.map(|(_, value)| value);
            let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
            here + below.chain(properties.map(|(_, value)| value)).map(count).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{Part, Role};

    use super::*;

    fn tool(schema: impl Into<Value>) -> Result<McpTool, String> {
        let schema: Value = schema.into();
        McpTool::read(&json!({ "name": "t", "inputSchema": schema }), true)
    }

    #[test]
    fn a_tool_is_an_offer() {
        let listed = json!({
            "name": "look", "description": "Looks.", "inputSchema": { "type": "object" },
            "annotations": { "title": "A look", "readOnlyHint": true },
            "execution": { "taskSupport": "optional" },
        });
        let read = McpTool::read(&listed, true).unwrap();
        assert_eq!(read.offer.title.as_deref(), Some("A look"));
        assert_eq!(read.offer.skills, [Skill::new("look", "A look", "Looks.")]);
        assert!(read.offer.idempotent && read.tasks == TaskUse::Offered);
    }

    #[test]
    fn a_message_becomes_arguments() {
        let check = |schema: &Value, parts: Vec<Part>, expected: Result<Value, &str>| {
            let got = tool(schema.clone()).unwrap().arguments(&Message::of("m", Role::User, parts));
            match expected {
                Ok(expected) => assert_eq!(got.unwrap(), expected),
                Err(expected) => {
                    let error = got.unwrap_err().to_string();
                    assert!(error.contains(expected), "{error}");
                }
            }
        };
        let text = json!({ "properties": { "text": { "type": "string" }, "n": { "type": "integer" } } });
        check(&text, vec![Part::text("hello")], Ok(json!({ "text": "hello" })));
        check(
            &text,
            vec![Part::text("hi"), Part::data(json!({ "n": 1 }))],
            Ok(json!({ "n": 1, "text": "hi" })),
        );
        check(&text, vec![Part::text(r#"{"n":2}"#)], Ok(json!({ "n": 2 })));
        check(&text, vec![Part::data(json!([1]))], Err("are an object"));
        let city = json!({ "properties": { "city": { "type": "string" }, "day": {} }, "required": ["city"] });
        check(&city, vec![Part::text("Bern")], Ok(json!({ "city": "Bern" })));
        let two = json!({ "properties": { "a": {}, "b": {} }, "required": ["a", "b"] });
        check(&two, vec![Part::text("Bern")], Err("give them as JSON"));
        check(&two, vec![], Ok(json!({})));
        check(&two, vec![Content::Bytes(vec![1]).into()], Err("not files"));
    }

    #[test]
    fn only_arguments_that_headers_can_carry_are_repeated() {
        let named = |name: Value, kind: &str| json!({ "type": kind, "x-mcp-header": name });
        let one = tool(json!({ "properties": { "region": named("Region".into(), "string") } })).unwrap();
        assert_eq!(one.headers(&json!({ "region": "eu" }))["mcp-param-region"], "eu");
        assert!(one.headers(&json!({ "region": null })).is_empty());
        let check = |schema: Value, expected: &str| {
            let why = tool(schema).unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        check(json!({ "properties": { "a": named("".into(), "string") } }), "is no name");
        check(json!({ "properties": { "a": named("a b".into(), "string") } }), "is no name");
        check(json!({ "properties": { "a": named("A".into(), "number") } }), "is no string");
        check(json!({ "properties": { "a": named(7.into(), "string") } }), "is no text");
        let twice = json!({ "a": named("X".into(), "string"), "b": named("x".into(), "string") });
        check(json!({ "properties": twice }), "twice");
        check(json!({ "properties": { "a": { "items": named("A".into(), "string") } } }), "no path");
        let called_so = json!({ "properties": { "x-mcp-header": { "type": "string" } } });
        assert!(tool(called_so).is_ok(), "a property of that name is none");
    }
}
