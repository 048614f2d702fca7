//! Ollama's `/api/chat`: one JSON object per line, the last with `done`.
//!
//! Calls arrive complete and have no ids; a result names its tool.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelError,
    accumulator::ReplyAccumulator,
    messages::{ModelReply, ModelRequest, ModelToolCall, ModelTurn, StopReason},
};

/// The body of a request.
pub(super) fn body(name: &str, request: &ModelRequest) -> Value {
    let mut messages = vec![];
    messages.extend(request.system.iter().map(|text| json!({ "role": "system", "content": text })));
    for turn in &request.turns {
        match turn {
            ModelTurn::User(text) => messages.push(json!({ "role": "user", "content": text })),
            ModelTurn::Model(said) => messages.push(assistant(said)),
            ModelTurn::Results(results) => {
                messages.extend(results.iter().map(
                    |result| json!({ "role": "tool", "tool_name": result.name, "content": result.text }),
                ));
            }
        }
    }
    let mut body = json!({ "model": name, "messages": messages, "stream": true });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({ "type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.schema } })
        });
        body["tools"] = tools.collect();
    }
    let mut options = json!({});
    if let Some(max) = request.max_tokens {
        options["num_predict"] = max.into();
    }
    if let Some(temperature) = request.temperature {
        options["temperature"] = temperature.into();
    }
    if options.as_object().is_some_and(|options| !options.is_empty()) {
        body["options"] = options;
    }
    body
}

fn assistant(said: &ModelReply) -> Value {
    let mut message = json!({ "role": "assistant", "content": said.text });
    if !said.calls.is_empty() {
        let calls = said.calls.iter().map(|call| {
            let arguments = call.arguments().unwrap_or_default();
            json!({ "function": { "name": call.name, "arguments": arguments } })
        });
        message["tool_calls"] = calls.collect();
    }
    message
}

#[derive(Deserialize)]
struct OllamaLine {
    #[serde(default)]
    message: Option<OllamaMessage>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
    #[serde(default)]
    eval_count: Option<u64>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct OllamaMessage {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<OllamaCall>>,
}

#[derive(Deserialize)]
struct OllamaCall {
    function: OllamaFunction,
}

#[derive(Deserialize)]
struct OllamaFunction {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

/// Handles one line of a stream.
pub(super) fn read(collector: &mut ReplyAccumulator, data: &str) -> Result<(), ModelError> {
    let line: OllamaLine = serde_json::from_str(data).map_err(|error| ModelError::strange(&error))?;
    if let Some(error) = line.error {
        return Err(ModelError::in_stream(&error));
    }
    if let Some(message) = line.message {
        collector.text(message.content.as_deref().unwrap_or_default());
        for call in message.tool_calls.into_iter().flatten() {
            let arguments = call.function.arguments.filter(|arguments| !arguments.is_null());
            let arguments = arguments.map(|arguments| arguments.to_string());
            collector.whole_call(ModelToolCall {
                name: call.function.name,
                arguments: arguments.unwrap_or_default(),
                ..ModelToolCall::default()
            });
        }
    }
    if line.done {
        collector.usage(line.prompt_eval_count, line.eval_count);
        collector.stop(match line.done_reason.as_deref() {
            None | Some("stop" | "") => StopReason::End,
            Some("length") => StopReason::Length,
            Some(other) => StopReason::Other(other.into()),
        });
        collector.end();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            accumulator::collect,
            messages::{ModelTool, ModelToolResult, ModelUsage},
        },
        *,
    };

    #[test]
    fn a_conversation_as_it_is_sent() {
        let call =
            ModelToolCall { name: "add".into(), arguments: "{\"n\":1}".into(), ..ModelToolCall::default() };
        let said = ModelReply { text: "I add.".into(), calls: vec![call], ..ModelReply::default() };
        let result =
            ModelToolResult { id: String::new(), name: "add".into(), text: "2".into(), failed: false };
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
            max_tokens: Some(9),
            temperature: Some(0.5),
        };
        let expected = json!({
            "model": "m",
            "messages": [
                { "role": "system", "content": "Be short." },
                { "role": "user", "content": "1+1?" },
                { "role": "assistant", "content": "I add.",
                  "tool_calls": [{ "function": { "name": "add", "arguments": { "n": 1 } } }] },
                { "role": "tool", "tool_name": "add", "content": "2" },
            ],
            "stream": true,
            "tools": [{ "type": "function", "function": {
                "name": "add", "description": "Adds.", "parameters": { "type": "object" } } }],
            "options": { "num_predict": 9, "temperature": 0.5 },
        });
        assert_eq!(body("m", &request), expected);
    }

    #[test]
    fn a_stream_becomes_an_answer() {
        let said = collect(read, false, &[
            r#"{"model":"m","message":{"role":"assistant","content":"I "},"done":false}"#,
            r#"{"message":{"role":"assistant","content":"add.","tool_calls":[{"function":{"name":"add","arguments":{"n":1}}}]},"done":false}"#,
            r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":8}"#,
        ])
        .unwrap();
        assert_eq!((&*said.text, &said.stop), ("I add.", &StopReason::Tools));
        assert_eq!(said.usage, ModelUsage { input: Some(26), output: Some(8) });
        assert_eq!(said.calls[0].arguments, "{\"n\":1}");
    }

    #[test]
    fn ends_and_cuts() {
        let stop = |why: &str| format!(r#"{{"message":{{"content":""}},"done":true,"done_reason":"{why}"}}"#);
        let check = |why: &str, expected: StopReason| {
            assert_eq!(collect(read, false, &[&stop(why)]).unwrap().stop, expected);
        };
        check("stop", StopReason::End);
        check("length", StopReason::Length);
        check("load", StopReason::Other("load".into()));
        let half = r#"{"message":{"content":"x"},"done":false}"#;
        assert!(matches!(collect(read, false, &[half]), Err(ModelError::Cut)));
        let error = collect(read, false, &[half, r#"{"error":"the runner has stopped"}"#]).unwrap_err();
        assert_eq!(error.to_string(), "the model broke its answer off: the runner has stopped");
    }
}
