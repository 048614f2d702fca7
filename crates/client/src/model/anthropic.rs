//! Anthropic's messages.
//!
//! A stream is a message of blocks, each begun, added to and stopped; it ends with `message_stop`. What the model
//! thought is not part of the answer, but has to be shown to it again with the calls that came of it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelError,
    collect::Collector,
    talk::{Request, Said, Stop, Tool, ToolResult, Turn},
};

/// The header that every request has.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// The longest answer where nobody said one: this API wants one.
const MAX_TOKENS: u32 = 4096;

/// The body of a request.
pub(super) fn body(name: &str, request: &Request) -> Value {
    let mut body = json!({
        "model": name,
        "messages": request.turns.iter().map(turn).collect::<Value>(),
        "max_tokens": request.max_tokens.unwrap_or(MAX_TOKENS),
        "stream": true,
    });
    if let Some(system) = &request.system {
        body["system"] = system.as_str().into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    body
}

fn turn(turn: &Turn) -> Value {
    match turn {
        Turn::User(text) => json!({ "role": "user", "content": text }),
        Turn::Model(said) => json!({ "role": "assistant", "content": blocks(said) }),
        Turn::Results(results) => {
            json!({ "role": "user", "content": results.iter().map(result).collect::<Value>() })
        }
    }
}

/// What was thought, what was said, what is called: in the order in which it came.
fn blocks(said: &Said) -> Vec<Value> {
    let mut blocks: Vec<Value> = said.opaque.iter().filter_map(Value::as_array).flatten().cloned().collect();
    if !said.text.is_empty() {
        blocks.push(json!({ "type": "text", "text": said.text }));
    }
    blocks.extend(said.calls.iter().map(|call| {
        // Arguments that are not JSON cannot be repeated; the result says what was wrong with them.
        let input = call.arguments().unwrap_or_default();
        json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
    }));
    if blocks.is_empty() {
        blocks.push(json!({ "type": "text", "text": "(nothing)" }));
    }
    blocks
}

fn result(result: &ToolResult) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": result.id, "content": result.text });
    if result.failed {
        block["is_error"] = true.into();
    }
    block
}

fn tool(tool: &Tool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Begun,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Addition,
    },
    MessageDelta {
        delta: Ending,
        #[serde(default)]
        usage: Option<Tokens>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// Pings, ends of blocks, and whatever is added to this API.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Begun {
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Addition {
    TextDelta {
        text: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Ending {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

impl Tokens {
    /// What was read from a cache, or put there, is counted apart from the rest.
    fn input(&self) -> Option<u64> {
        let cached = [self.cache_creation_input_tokens, self.cache_read_input_tokens];
        Some(self.input_tokens? + cached.into_iter().flatten().sum::<u64>())
    }
}

/// Takes one event of a stream.
pub(super) fn read(collector: &mut Collector, data: &str) -> Result<(), ModelError> {
    match serde_json::from_str(data).map_err(|error| ModelError::strange(&error))? {
        Event::MessageStart { message: Begun { usage: Some(tokens) } } => {
            collector.usage(tokens.input(), tokens.output_tokens);
        }
        Event::ContentBlockStart { index, content_block } => match content_block {
            Block::Text { text } => collector.text(&text),
            Block::ToolUse { id, name } => {
                collector.call(index, Some(&id)).name = name;
            }
            Block::Thinking { thinking, signature } => {
                let block = json!({ "type": "thinking", "thinking": thinking, "signature": signature });
                collector.thoughts().push(block);
            }
            Block::RedactedThinking { data } => {
                collector.thoughts().push(json!({ "type": "redacted_thinking", "data": data }));
            }
            Block::Other => {}
        },
        Event::ContentBlockDelta { index, delta } => match delta {
            Addition::TextDelta { text } => collector.text(&text),
            Addition::InputJsonDelta { partial_json } => {
                collector.call(index, None).arguments.push_str(&partial_json);
            }
            Addition::ThinkingDelta { thinking } => add(collector, "thinking", &thinking),
            Addition::SignatureDelta { signature } => add(collector, "signature", &signature),
            Addition::Other => {}
        },
        Event::MessageDelta { delta, usage } => {
            if let Some(tokens) = usage {
                collector.usage(tokens.input(), tokens.output_tokens);
            }
            if let Some(why) = delta.stop_reason {
                collector.stop(match &*why {
                    "end_turn" | "stop_sequence" => Stop::End,
                    "tool_use" => Stop::Tools,
                    "max_tokens" | "model_context_window_exceeded" => Stop::Length,
                    "refusal" => Stop::Refused(why),
                    _ => Stop::Other(why),
                });
            }
        }
        Event::MessageStop => collector.end(),
        Event::Error { error } => return Err(ModelError::in_stream(&error)),
        Event::MessageStart { .. } | Event::Other => {}
    }
    Ok(())
}

/// Adds to a member of the newest thought: they come one after another.
fn add(collector: &mut Collector, member: &str, text: &str) {
    let Some(block) = collector.thoughts().last_mut() else { return };
    let before = block[member].as_str().unwrap_or_default();
    block[member] = format!("{before}{text}").into();
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            collect::collect,
            talk::{ToolCall, Usage},
        },
        *,
    };

    #[test]
    fn a_conversation_as_it_is_sent() {
        let call =
            ToolCall { id: "t1".into(), name: "add".into(), arguments: "{\"n\":1}".into(), opaque: None };
        let said = Said {
            text: "I add.".into(),
            calls: vec![call],
            opaque: Some(json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }])),
            ..Said::default()
        };
        let result = ToolResult { id: "t1".into(), name: "add".into(), text: "no".into(), failed: true };
        let request = Request {
            system: Some("Be short.".into()),
            turns: vec![Turn::User("1+1?".into()), Turn::Model(said), Turn::Results(vec![result])],
            tools: vec![Tool {
                name: "add".into(),
                description: "Adds.".into(),
                schema: json!({ "type": "object" }),
            }],
            max_tokens: None,
            temperature: Some(0.0),
        };
        let expected = json!({
            "model": "m",
            "messages": [
                { "role": "user", "content": "1+1?" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "s" },
                    { "type": "text", "text": "I add." },
                    { "type": "tool_use", "id": "t1", "name": "add", "input": { "n": 1 } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": true },
                ] },
            ],
            "max_tokens": 4096,
            "stream": true,
            "system": "Be short.",
            "tools": [{ "name": "add", "description": "Adds.", "input_schema": { "type": "object" } }],
            "temperature": 0.0,
        });
        assert_eq!(body("m", &request), expected);
    }

    #[test]
    fn a_stream_becomes_an_answer() {
        let said = collect(read, false, &[
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I "}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"add."}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"add","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"n\":"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}"#,
            r#"{"type":"message_stop"}"#,
        ])
        .unwrap();
        assert_eq!((&*said.text, &said.stop), ("I add.", &Stop::Tools));
        assert_eq!(said.usage, Usage { input: Some(15), output: Some(15) });
        assert_eq!(said.calls[0].arguments().unwrap()["n"], 1);
        assert_eq!(said.opaque, Some(json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }])));
    }

    #[test]
    fn ends_and_cuts() {
        let stop = |why: &str| {
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{why}"}},"usage":{{"output_tokens":1}}}}"#
            )
        };
        let end = r#"{"type":"message_stop"}"#;
        let check = |why: &str, expected: Stop| {
            assert_eq!(collect(read, false, &[&stop(why), end]).unwrap().stop, expected);
        };
        check("end_turn", Stop::End);
        check("max_tokens", Stop::Length);
        check("refusal", Stop::Refused("refusal".into()));
        check("pause_turn", Stop::Other("pause_turn".into()));
        assert!(matches!(collect(read, false, &[&stop("end_turn")]), Err(ModelError::Cut)));
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let error = collect(read, false, &[error]).unwrap_err();
        assert!(error.is_passing());
        assert_eq!(error.to_string(), "the model broke its answer off: Overloaded (overloaded_error)");
    }
}
