//! Google's `streamGenerateContent`.
//!
//! Calls arrive complete. The only end marker is the finish reason of a candidate. A call may carry a
//! thought signature, and newer models reject a conversation without it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelError,
    accumulator::ReplyAccumulator,
    messages::{ModelReply, ModelRequest, ModelTool, ModelToolCall, ModelToolResult, ModelTurn, StopReason},
};

/// The body of a request. The model's name is in the URL.
pub(super) fn body(request: &ModelRequest) -> Value {
    let mut body = json!({ "contents": request.turns.iter().map(turn).collect::<Value>() });
    if let Some(system) = &request.system {
        body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
    }
    if !request.tools.is_empty() {
        body["tools"] =
            json!([{ "functionDeclarations": request.tools.iter().map(tool).collect::<Value>() }]);
    }
    let mut config = json!({});
    if let Some(max) = request.max_tokens {
        config["maxOutputTokens"] = max.into();
    }
    if let Some(temperature) = request.temperature {
        config["temperature"] = temperature.into();
    }
    if config.as_object().is_some_and(|config| !config.is_empty()) {
        body["generationConfig"] = config;
    }
    body
}

fn turn(turn: &ModelTurn) -> Value {
    match turn {
        ModelTurn::User(text) => json!({ "role": "user", "parts": [{ "text": text }] }),
        ModelTurn::Model(said) => json!({ "role": "model", "parts": parts(said) }),
        ModelTurn::Results(results) => {
            json!({ "role": "user", "parts": results.iter().map(result).collect::<Value>() })
        }
    }
}

/// All calls of a turn stay together, because only the first of them has a signature.
fn parts(said: &ModelReply) -> Vec<Value> {
    let mut parts = vec![];
    if !said.text.is_empty() || said.calls.is_empty() {
        parts.push(json!({ "text": said.text }));
    }
    parts.extend(said.calls.iter().map(|call| {
        let mut function = json!({ "name": call.name, "args": call.arguments().unwrap_or_default() });
        if !call.id.is_empty() {
            function["id"] = call.id.as_str().into();
        }
        let mut part = json!({ "functionCall": function });
        if let Some(signature) = &call.opaque {
            part["thoughtSignature"] = signature.clone();
        }
        part
    }));
    parts
}

fn result(result: &ModelToolResult) -> Value {
    let response = match result.failed {
        true => json!({ "error": result.text }),
        false => json!({ "output": result.text }),
    };
    let mut function = json!({ "name": result.name, "response": response });
    if !result.id.is_empty() {
        function["id"] = result.id.as_str().into();
    }
    json!({ "functionResponse": function })
}

fn tool(tool: &ModelTool) -> Value {
    let mut declared = json!({ "name": tool.name, "description": tool.description });
    // Gemini rejects an object schema without properties, so a function without parameters declares none.
    if tool.schema["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
        declared["parametersJsonSchema"] = tool.schema.clone();
    }
    declared
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    #[serde(default)]
    candidates: Vec<GeminiCandidate>,
    #[serde(default)]
    prompt_feedback: Option<GeminiFeedback>,
    #[serde(default)]
    usage_metadata: Option<GeminiUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate {
    #[serde(default)]
    content: Option<GeminiContent>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct GeminiContent {
    #[serde(default)]
    parts: Vec<GeminiPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart {
    #[serde(default)]
    text: Option<String>,
    /// Whether it is the model's thinking, which is not part of the reply.
    #[serde(default)]
    thought: bool,
    #[serde(default)]
    function_call: Option<GeminiFunctionCall>,
    #[serde(default)]
    thought_signature: Option<Value>,
}

#[derive(Deserialize)]
struct GeminiFunctionCall {
    #[serde(default)]
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiFeedback {
    #[serde(default)]
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsage {
    #[serde(default)]
    prompt_token_count: Option<u64>,
    #[serde(default)]
    candidates_token_count: Option<u64>,
    #[serde(default)]
    thoughts_token_count: Option<u64>,
}

/// Handles one event of a stream.
pub(super) fn read(collector: &mut ReplyAccumulator, data: &str) -> Result<(), ModelError> {
    let chunk: GeminiChunk = serde_json::from_str(data).map_err(|error| ModelError::strange(&error))?;
    if let Some(error) = chunk.error {
        return Err(ModelError::in_stream(&error));
    }
    if let Some(tokens) = chunk.usage_metadata {
        // Thinking tokens are counted separately, and billed as output.
        let output = [tokens.candidates_token_count, tokens.thoughts_token_count];
        let output = output.iter().any(Option::is_some).then(|| output.into_iter().flatten().sum());
        collector.usage(tokens.prompt_token_count, output);
    }
    if let Some(why) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
        collector.stop(StopReason::Refused(why));
    }
    let Some(candidate) = chunk.candidates.into_iter().next() else { return Ok(()) };
    for part in candidate.content.into_iter().flat_map(|content| content.parts) {
        if let Some(function) = part.function_call {
            collector.whole_call(ModelToolCall {
                id: function.id.unwrap_or_default(),
                name: function.name,
                arguments: function
                    .args
                    .filter(Value::is_object)
                    .map(|args| args.to_string())
                    .unwrap_or_default(),
                opaque: part.thought_signature,
            });
        } else if let Some(text) = part.text.filter(|_| !part.thought) {
            collector.text(&text);
        }
    }
    if let Some(why) = candidate.finish_reason {
        collector.stop(match &*why {
            "STOP" => StopReason::End,
            "MAX_TOKENS" => StopReason::Length,
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => StopReason::Refused(why),
            _ => StopReason::Other(why),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{accumulator::collect, messages::ModelUsage},
        *,
    };

    #[test]
    fn a_conversation_as_it_is_sent() {
        let call = |id: &str, opaque| ModelToolCall {
            id: id.into(),
            name: "add".into(),
            arguments: "{\"n\":1}".into(),
            opaque,
        };
        let said = ModelReply {
            calls: vec![call("", Some(json!("sig"))), call("f2", None)],
            ..ModelReply::default()
        };
        let result = |id: &str, failed| ModelToolResult {
            id: id.into(),
            name: "add".into(),
            text: "2".into(),
            failed,
        };
        let tool = |name: &str, schema| ModelTool { name: name.into(), description: "Does.".into(), schema };
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let request = ModelRequest {
            system: Some("Be short.".into()),
            turns: vec![
                ModelTurn::User("1+1?".into()),
                ModelTurn::Model(said),
                ModelTurn::Results(vec![result("", false), result("f2", true)]),
            ],
            tools: vec![tool("add", schema.clone()), tool("now", json!({ "type": "object" }))],
            max_tokens: Some(9),
            temperature: None,
        };
        let expected = json!({
            "contents": [
                { "role": "user", "parts": [{ "text": "1+1?" }] },
                { "role": "model", "parts": [
                    { "functionCall": { "name": "add", "args": { "n": 1 } }, "thoughtSignature": "sig" },
                    { "functionCall": { "name": "add", "args": { "n": 1 }, "id": "f2" } },
                ] },
                { "role": "user", "parts": [
                    { "functionResponse": { "name": "add", "response": { "output": "2" } } },
                    { "functionResponse": { "name": "add", "response": { "error": "2" }, "id": "f2" } },
                ] },
            ],
            "systemInstruction": { "parts": [{ "text": "Be short." }] },
            "tools": [{ "functionDeclarations": [
                { "name": "add", "description": "Does.", "parametersJsonSchema": schema },
                { "name": "now", "description": "Does." },
            ] }],
            "generationConfig": { "maxOutputTokens": 9 },
        });
        assert_eq!(body(&request), expected);
    }

    #[test]
    fn a_stream_becomes_an_answer() {
        let said = collect(read, true, &[
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true},{"text":"I "}]}}],"usageMetadata":{"promptTokenCount":11,"totalTokenCount":11}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"add."},{"functionCall":{"name":"add","args":{"n":1}},"thoughtSignature":"sig"},{"functionCall":{"id":"f2","name":"now"}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":4,"thoughtsTokenCount":3,"totalTokenCount":18}}"#,
        ])
        .unwrap();
        assert_eq!((&*said.text, &said.stop), ("I add.", &StopReason::Tools));
        assert_eq!(said.usage, ModelUsage { input: Some(11), output: Some(7) });
        assert_eq!(said.calls[0].opaque, Some(json!("sig")));
        let calls: Vec<_> =
            said.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("", "add", "{\"n\":1}"), ("f2", "now", "")]);
    }

    #[test]
    fn ends_and_cuts() {
        let stop = |why: &str| {
            format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"x"}}]}},"finishReason":"{why}"}}]}}"#)
        };
        let check = |why: &str, expected: StopReason| {
            assert_eq!(collect(read, true, &[&stop(why)]).unwrap().stop, expected);
        };
        check("STOP", StopReason::End);
        check("MAX_TOKENS", StopReason::Length);
        check("SAFETY", StopReason::Refused("SAFETY".into()));
        check("MALFORMED_FUNCTION_CALL", StopReason::Other("MALFORMED_FUNCTION_CALL".into()));
        let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}"#;
        assert_eq!(collect(read, true, &[blocked]).unwrap().stop, StopReason::Refused("SAFETY".into()));
        let half = r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#;
        assert!(matches!(collect(read, true, &[half]), Err(ModelError::Cut)));
        let error = r#"{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}"#;
        assert!(collect(read, true, &[half, error]).unwrap_err().is_transient());
    }
}
