//! Anthropic's messages.
//!
//! A stream is a message of blocks, each with a start, deltas and a stop; it ends with `message_stop`. The
//! model's thinking is not part of the reply, but has to be sent back with the calls that resulted from it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelError,
    accumulator::ReplyAccumulator,
    messages::{ModelReply, ModelRequest, ModelTool, ModelToolResult, ModelTurn, StopReason},
};

/// The version header of every request.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// `max_tokens` if the caller sets none: this API requires it.
const MAX_TOKENS: u32 = 4096;

/// The body of a request.
pub(super) fn body(name: &str, request: &ModelRequest) -> Value {
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

fn turn(turn: &ModelTurn) -> Value {
    match turn {
        ModelTurn::User(text) => json!({ "role": "user", "content": text }),
        ModelTurn::Model(said) => json!({ "role": "assistant", "content": blocks(said) }),
        ModelTurn::Results(results) => {
            json!({ "role": "user", "content": results.iter().map(result).collect::<Value>() })
        }
    }
}

/// Thinking, text and calls, in the order in which they arrived.
fn blocks(said: &ModelReply) -> Vec<Value> {
    let mut blocks: Vec<Value> = said.opaque.iter().filter_map(Value::as_array).flatten().cloned().collect();
    if !said.text.is_empty() {
        blocks.push(json!({ "type": "text", "text": said.text }));
    }
    blocks.extend(said.calls.iter().map(|call| {
        // Arguments that are not JSON cannot be sent back; the tool's result has the error.
        let input = call.arguments().unwrap_or_default();
        json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
    }));
    if blocks.is_empty() {
        blocks.push(json!({ "type": "text", "text": "(nothing)" }));
    }
    blocks
}

fn result(result: &ModelToolResult) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": result.id, "content": result.text });
    if result.failed {
        block["is_error"] = true.into();
    }
    block
}

fn tool(tool: &ModelTool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicEvent {
    MessageStart {
        message: AnthropicMessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: AnthropicBlock,
    },
    ContentBlockDelta {
        index: u64,
        delta: AnthropicDelta,
    },
    MessageDelta {
        delta: AnthropicMessageDelta,
        #[serde(default)]
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// Pings, ends of blocks, and future events.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct AnthropicMessageStart {
    #[serde(default)]
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock {
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
enum AnthropicDelta {
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
struct AnthropicMessageDelta {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

impl AnthropicUsage {
    /// Tokens read from a cache or written to it are counted separately from the rest.
    fn input(&self) -> Option<u64> {
        let cached = [self.cache_creation_input_tokens, self.cache_read_input_tokens];
        Some(self.input_tokens? + cached.into_iter().flatten().sum::<u64>())
    }
}

/// Handles one event of a stream.
pub(super) fn read(collector: &mut ReplyAccumulator, data: &str) -> Result<(), ModelError> {
    match serde_json::from_str(data).map_err(|error| ModelError::strange(&error))? {
        AnthropicEvent::MessageStart { message: AnthropicMessageStart { usage: Some(tokens) } } => {
            collector.usage(tokens.input(), tokens.output_tokens);
        }
        AnthropicEvent::ContentBlockStart { index, content_block } => match content_block {
            AnthropicBlock::Text { text } => collector.text(&text),
            AnthropicBlock::ToolUse { id, name } => {
                collector.call(index, Some(&id)).name = name;
            }
            AnthropicBlock::Thinking { thinking, signature } => {
                let block = json!({ "type": "thinking", "thinking": thinking, "signature": signature });
                collector.thoughts().push(block);
            }
            AnthropicBlock::RedactedThinking { data } => {
                collector.thoughts().push(json!({ "type": "redacted_thinking", "data": data }));
            }
            AnthropicBlock::Other => {}
        },
        AnthropicEvent::ContentBlockDelta { index, delta } => match delta {
            AnthropicDelta::TextDelta { text } => collector.text(&text),
            AnthropicDelta::InputJsonDelta { partial_json } => {
                collector.call(index, None).arguments.push_str(&partial_json);
            }
            AnthropicDelta::ThinkingDelta { thinking } => add(collector, "thinking", &thinking),
            AnthropicDelta::SignatureDelta { signature } => add(collector, "signature", &signature),
            AnthropicDelta::Other => {}
        },
        AnthropicEvent::MessageDelta { delta, usage } => {
            if let Some(tokens) = usage {
                collector.usage(tokens.input(), tokens.output_tokens);
            }
            if let Some(why) = delta.stop_reason {
                collector.stop(match &*why {
                    "end_turn" | "stop_sequence" => StopReason::End,
                    "tool_use" => StopReason::Tools,
                    "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
                    "refusal" => StopReason::Refused(why),
                    _ => StopReason::Other(why),
                });
            }
        }
        AnthropicEvent::MessageStop => collector.end(),
        AnthropicEvent::Error { error } => return Err(ModelError::in_stream(&error)),
        AnthropicEvent::MessageStart { .. } | AnthropicEvent::Other => {}
    }
    Ok(())
}

/// Appends to a member of the newest thinking block: blocks arrive one after another.
fn add(collector: &mut ReplyAccumulator, member: &str, text: &str) {
    let Some(block) = collector.thoughts().last_mut() else { return };
    let before = block[member].as_str().unwrap_or_default();
    block[member] = format!("{before}{text}").into();
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            accumulator::collect,
            messages::{ModelToolCall, ModelUsage},
        },
        *,
    };

    #[test]
    fn a_conversation_as_it_is_sent() {
        let call = ModelToolCall {
            id: "t1".into(),
            name: "add".into(),
            arguments: "{\"n\":1}".into(),
            opaque: None,
        };
        let said = ModelReply {
            text: "I add.".into(),
            calls: vec![call],
            opaque: Some(json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }])),
            ..ModelReply::default()
        };
        let result = ModelToolResult { id: "t1".into(), name: "add".into(), text: "no".into(), failed: true };
        let request = ModelRequest {
            system: Some("Be short.".into()),
            turns: vec![
                ModelTurn::User("1+1?".into()),
                ModelTurn::Model(said),
                ModelTurn::Results(vec![result]),
            ],
            tools: vec![ModelTool {
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
        assert_eq!((&*said.text, &said.stop), ("I add.", &StopReason::Tools));
        assert_eq!(said.usage, ModelUsage { input: Some(15), output: Some(15) });
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
        let check = |why: &str, expected: StopReason| {
            assert_eq!(collect(read, false, &[&stop(why), end]).unwrap().stop, expected);
        };
        check("end_turn", StopReason::End);
        check("max_tokens", StopReason::Length);
        check("refusal", StopReason::Refused("refusal".into()));
        check("pause_turn", StopReason::Other("pause_turn".into()));
        assert!(matches!(collect(read, false, &[&stop("end_turn")]), Err(ModelError::Cut)));
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let error = collect(read, false, &[error]).unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "the model broke its answer off: Overloaded (overloaded_error)");
    }
}
