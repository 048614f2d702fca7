//! OpenAI's chat completions, and the servers compatible with them.
//!
//! A stream ends with `[DONE]`. Servers that omit it send a finish reason, which counts as an end as well;
//! the usage follows it in a chunk without choices.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelError,
    accumulator::ReplyAccumulator,
    messages::{ModelReply, ModelRequest, ModelTool, ModelToolCall, ModelTurn, StopReason},
};

/// The body of a request. `newest`: the server knows the successor of `max_tokens`.
pub(super) fn body(name: &str, request: &ModelRequest, newest: bool) -> Value {
    let mut messages = vec![];
    messages.extend(request.system.iter().map(|text| json!({ "role": "system", "content": text })));
    for turn in &request.turns {
        match turn {
            ModelTurn::User(text) => messages.push(json!({ "role": "user", "content": text })),
            ModelTurn::Model(said) => messages.push(assistant(said)),
            ModelTurn::Results(results) => {
                messages.extend(results.iter().map(
                    |result| json!({ "role": "tool", "tool_call_id": result.id, "content": result.text }),
                ));
            }
        }
    }
    let mut body = json!({
        "model": name,
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(max) = request.max_tokens {
        body[if newest { "max_completion_tokens" } else { "max_tokens" }] = max.into();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    body
}

fn assistant(said: &ModelReply) -> Value {
    let content = if said.text.is_empty() { Value::Null } else { Value::from(said.text.as_str()) };
    let mut message = json!({ "role": "assistant", "content": content });
    if !said.calls.is_empty() {
        message["tool_calls"] = said.calls.iter().map(call).collect();
    }
    message
}

fn call(call: &ModelToolCall) -> Value {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let mut value = json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": arguments },
    });
    match &call.opaque {
        // The signature of a call that was made over Gemini's own API, by an earlier version.
        Some(Value::String(signature)) => {
            value["extra_content"] = json!({ "google": { "thought_signature": signature } });
        }
        Some(opaque) => value["extra_content"] = opaque.clone(),
        None => {}
    }
    value
}

fn tool(tool: &ModelTool) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.schema },
    })
}

/// A chunk of a stream, which has deltas, or a whole completion, which has messages.
#[derive(Deserialize)]
struct OpenAiCompletion {
    #[serde(default)]
    choices: Option<Vec<OpenAiChoice>>,
    #[serde(default)]
    usage: Option<OpenAiUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct OpenAiChoice {
    #[serde(default, alias = "message")]
    delta: Option<OpenAiDelta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiDelta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<OpenAiCallDelta>>,
}

#[derive(Deserialize)]
struct OpenAiCallDelta {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<OpenAiFunctionDelta>,
    /// Data that some servers require back with the call, such as a thought signature.
    #[serde(default)]
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct OpenAiFunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// Handles one event of a stream.
pub(super) fn read(collector: &mut ReplyAccumulator, data: &str) -> Result<(), ModelError> {
    if data.trim() == "[DONE]" {
        collector.end();
        return Ok(());
    }
    let chunk: OpenAiCompletion = serde_json::from_str(data).map_err(|error| ModelError::strange(&error))?;
    take(collector, chunk)
}

/// Handles the response of a server that does not stream.
pub(super) fn read_whole(collector: &mut ReplyAccumulator, data: &str) -> Result<(), ModelError> {
    let whole: OpenAiCompletion = serde_json::from_str(data)
        .map_err(|error| ModelError::Answer(format!("not a chat completion: {error}")))?;
    if whole.error.is_none() && whole.choices.as_ref().is_none_or(Vec::is_empty) {
        return Err(ModelError::Answer("not a chat completion: it has no choices".into()));
    }
    take(collector, whole)?;
    collector.end();
    Ok(())
}

fn take(collector: &mut ReplyAccumulator, chunk: OpenAiCompletion) -> Result<(), ModelError> {
    if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
        return Err(ModelError::in_stream(&error));
    }
    if let Some(tokens) = chunk.usage {
        collector.usage(tokens.prompt_tokens, tokens.completion_tokens);
    }
    let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
    if let Some(delta) = choice.delta {
        collector.text(delta.content.as_deref().unwrap_or_default());
        collector.text(delta.refusal.as_deref().unwrap_or_default());
        for (place, piece) in delta.tool_calls.into_iter().flatten().enumerate() {
            let call = collector.call(piece.index.unwrap_or(place as u64), piece.id.as_deref());
            if let Some(function) = piece.function {
                // The name arrives once; some servers repeat it, which must not append to it.
                if call.name.is_empty() {
                    call.name = function.name.unwrap_or_default();
                }
                call.arguments.push_str(function.arguments.as_deref().unwrap_or_default());
            }
            if piece.extra_content.is_some() {
                call.opaque = piece.extra_content;
            }
        }
    }
    match choice.finish_reason.as_deref() {
        None | Some("") => {}
        Some("stop") => collector.stop(StopReason::End),
        Some("tool_calls" | "function_call") => collector.stop(StopReason::Tools),
        Some("length") => collector.stop(StopReason::Length),
        Some(why @ "content_filter") => collector.stop(StopReason::Refused(why.into())),
        Some(other) => collector.stop(StopReason::Other(other.into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            accumulator::collect,
            messages::{ModelToolResult, ModelUsage},
        },
        *,
    };

    #[test]
    fn a_conversation_as_it_is_sent() {
        let said = ModelReply {
            calls: vec![
                ModelToolCall {
                    id: "c1".into(),
                    name: "add".into(),
                    arguments: "{\"n\":1}".into(),
                    opaque: None,
                },
                ModelToolCall {
                    id: "c2".into(),
                    name: "now".into(),
                    arguments: String::new(),
                    opaque: Some(json!({ "s": 1 })),
                },
            ],
            ..ModelReply::default()
        };
        let result = |id: &str, text: &str| ModelToolResult {
            id: id.into(),
            name: "x".into(),
            text: text.into(),
            failed: false,
        };
        let request = ModelRequest {
            system: Some("Be short.".into()),
            turns: vec![
                ModelTurn::User("1+1?".into()),
                ModelTurn::Model(said),
                ModelTurn::Results(vec![result("c1", "2"), result("c2", "noon")]),
            ],
            tools: vec![ModelTool {
                name: "add".into(),
                description: "Adds.".into(),
                schema: json!({ "type": "object" }),
            }],
            max_tokens: Some(9),
            temperature: Some(0.5),
        };
        let expected = json!({
            "model": "m",
            "messages": [
                { "role": "system", "content": "Be short." },
                { "role": "user", "content": "1+1?" },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"n\":1}" } },
                    { "id": "c2", "type": "function", "function": { "name": "now", "arguments": "{}" },
                      "extra_content": { "s": 1 } },
                ] },
                { "role": "tool", "tool_call_id": "c1", "content": "2" },
                { "role": "tool", "tool_call_id": "c2", "content": "noon" },
            ],
            "stream": true,
            "stream_options": { "include_usage": true },
            "tools": [{ "type": "function", "function": {
                "name": "add", "description": "Adds.", "parameters": { "type": "object" } } }],
            "max_tokens": 9,
            "temperature": 0.5,
        });
        assert_eq!(body("m", &request, false), expected);
        assert_eq!(body("m", &request, true)["max_completion_tokens"], 9);
    }

    /// As Gemini sends them: without indexes, each call whole in a chunk of its own, with a signature that has to
    /// come back.
    #[test]
    fn a_signature_comes_back_with_its_call() {
        let chunk = |id: &str, extra: &str| {
            format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"id":"{id}","type":"function",{extra}
                "function":{{"name":"add","arguments":"{{}}"}}}}]}}}}]}}"#
            )
        };
        let signed = r#""extra_content":{"google":{"thought_signature":"sig"}},"#;
        let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let said = collect(read, true, &[&chunk("f1", signed), &chunk("f2", ""), stop]).unwrap();
        assert_eq!(said.stop, StopReason::Tools);
        let sent: Vec<Value> = said.calls.iter().map(call).collect();
        assert_eq!((sent.len(), &sent[1]["id"], &sent[1]["extra_content"]), (2, &json!("f2"), &Value::Null));
        let signature = json!({ "google": { "thought_signature": "sig" } });
        assert_eq!((&sent[0]["id"], &sent[0]["extra_content"]), (&json!("f1"), &signature));
        // One that a task kept from before.
        let kept = ModelToolCall { opaque: Some(json!("sig")), ..said.calls[1].clone() };
        assert_eq!(call(&kept)["extra_content"], signature);
    }

    #[test]
    fn a_stream_becomes_an_answer() {
        let said = collect(read, true, &[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Let "}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"me see."}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"add","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"now","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19}}"#,
            "[DONE]",
        ])
        .unwrap();
        assert_eq!(said.text, "Let me see.");
        assert_eq!(said.stop, StopReason::Tools);
        assert_eq!(said.usage, ModelUsage { input: Some(12), output: Some(7) });
        let calls: Vec<_> =
            said.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("c1", "add", "{\"n\":1}"), ("c2", "now", "{}")]);
    }

    #[test]
    fn ends_and_cuts() {
        let text = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
        let stop = |why: &str| format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{why}"}}]}}"#);
        let check = |why: &str, expected: StopReason| {
            assert_eq!(collect(read, true, &[text, &stop(why)]).unwrap().stop, expected);
        };
        check("stop", StopReason::End);
        check("length", StopReason::Length);
        check("content_filter", StopReason::Refused("content_filter".into()));
        check("odd", StopReason::Other("odd".into()));
        assert!(matches!(collect(read, true, &[text]), Err(ModelError::Cut)));
        let error = collect(read, true, &[text, r#"{"error":{"message":"The server had an error"}}"#]);
        assert!(error.unwrap_err().is_transient());
        assert!(matches!(collect(read, true, &["{"]), Err(ModelError::Answer(_))));
    }

    #[test]
    fn a_server_that_does_not_stream_is_understood() {
        let whole = r#"{"choices":[{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],
            "usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
        let said = collect(read_whole, true, &[whole]).unwrap();
        assert_eq!((&*said.text, said.stop, said.usage.input), ("Hi", StopReason::End, Some(3)));
        assert!(collect(read_whole, true, &[r#"{"object":"list"}"#]).is_err());
        assert!(collect(read_whole, true, &["<html>"]).is_err());
    }
}
