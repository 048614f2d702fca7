//! MCP on the wire: what differs between the revisions, side by side.

use nuncio_engine::{
    Answer, Artifact, Content, Level, Message, Part, Role, State, Task, TaskId,
    clock::Timestamp,
    event::{LogLine, Progress},
    question::{Ask, Question},
    surface::{ContentBlock, HandlerQuestion, ResourceContent, ToolOutput},
    task::Origin,
};
use nuncio_wire::{
    json,
    jsonrpc::{RpcErrorObject, RpcMessage as Rpc, RpcMessages, parse_messages},
    mcp::{
        CallOutput, ClientCapabilities, McpQuestion, McpTaskStatus, McpTaskView, McpVersion, ProgressToken,
        answer_in_error, answer_in_result, parse_level, read_meta, status_of, write_log, write_output,
        write_progress, write_task,
    },
};
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

use crate::value as written;

use McpVersion::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

fn object(members: impl FnOnce(&mut json::JsonObject<'_>)) -> Value {
    written(|out| json::object(out, members))
}

fn task(state: State) -> Task {
    let origin = Origin {
        id: TaskId(Uuid::from_u128(7)),
        client_id: None,
        context: "c".into(),
        agent: "a".into(),
        owner: "local".into(),
        dialect: "mcp/2026-07-28".into(),
        metadata: None,
        trace: None,
        accepts_reply: false,
    };
    Task { state, status_at: Timestamp(2_000), ..Task::new(origin) }
}

fn said(text: &str) -> Option<Message> {
    Some(Message::text("m", Role::Agent, text))
}

#[test]
fn a_revision_is_agreed_on_and_never_echoed() {
    for version in McpVersion::ALL {
        assert_eq!(McpVersion::parse(version.name()), Some(version));
        let expected = if version == V2026_07_28 { V2025_11_25 } else { version };
        assert_eq!(McpVersion::negotiate(version.name()), expected, "{version:?}");
    }
    for unknown in ["", "1999-01-01", "2030-01-01", "2025-11-25 "] {
        assert_eq!(McpVersion::negotiate(unknown), V2025_11_25, "{unknown:?}");
    }
}

#[test]
fn what_a_client_can_do_is_what_its_revision_knew() {
    let check = |declared: Value, version, [form, url, sampling, roots, tasks]: [bool; 5]| {
        let expected = ClientCapabilities { form, url, sampling, roots, tasks };
        assert_eq!(ClientCapabilities::read(&declared, version), expected, "{declared} {version:?}");
    };
    let (yes, no) = (true, false);
    check(json!({}), V2025_11_25, [no; 5]);
    check(Value::Null, V2026_07_28, [no; 5]);
    check(json!({ "elicitation": {} }), V2025_03_26, [no; 5]);
    check(json!({ "elicitation": {} }), V2025_06_18, [yes, no, no, no, no]);
    check(json!({ "elicitation": { "url": {} } }), V2025_11_25, [no, yes, no, no, no]);
    check(json!({ "elicitation": { "form": {}, "url": {} } }), V2025_11_25, [yes, yes, no, no, no]);
    check(json!({ "sampling": {}, "roots": { "listChanged": true } }), V2024_11_05, [no, no, yes, yes, no]);
    let extension = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    check(extension.clone(), V2026_07_28, [no, no, no, no, yes]);
    check(extension, V2025_11_25, [no; 5]);
}

#[test]
fn meta_is_read_or_refused_with_its_place() {
    let read = |params: &str| {
        let raw: Box<RawValue> = RawValue::from_string(params.to_owned()).unwrap();
        read_meta(Some(&raw))
    };
    let meta =
        read(r#"{"name":"x","_meta":{"progressToken":7,"io.modelcontextprotocol/logLevel":"notice"}}"#);
    let meta = meta.unwrap();
    assert_eq!(meta.progress.as_ref().map(ProgressToken::as_json), Some("7"));
    assert_eq!((meta.present, meta.level, meta.background), (true, Some(Level::Notice), false));
    assert!(!read("{}").unwrap().present);
    assert_eq!(
        read(r#"{"_meta":{"progressToken":"a"}}"#).unwrap().progress,
        ProgressToken::from_json("\"a\"")
    );
    for (wrong, word) in [
        (r#"{"_meta":{"progressToken":1.5}}"#, "progressToken"),
        (r#"{"_meta":{"progressToken":{}}}"#, "progressToken"),
        (r#"{"_meta":7}"#, "_meta"),
        (r#"{"_meta":{"io.modelcontextprotocol/logLevel":"loud"}}"#, "loud"),
    ] {
        let fault = read(wrong).unwrap_err();
        assert!(fault.code == -32602 && fault.message.contains(word), "{}", fault.message);
    }
    assert_eq!(parse_level("emergency").unwrap(), Level::Emergency);
}

#[test]
fn an_agent_that_failed_is_failed_in_one_generation_and_completed_in_the_other() {
    let check = |state, before, since| {
        assert_eq!(status_of(V2025_11_25, &task(state)), before, "{state:?}");
        assert_eq!(status_of(V2026_07_28, &task(state)), since, "{state:?}");
    };
    check(State::Submitted, McpTaskStatus::Working, McpTaskStatus::Working);
    check(State::Working, McpTaskStatus::Working, McpTaskStatus::Working);
    check(State::InputRequired, McpTaskStatus::InputRequired, McpTaskStatus::InputRequired);
    check(State::AuthRequired, McpTaskStatus::InputRequired, McpTaskStatus::InputRequired);
    check(State::Completed, McpTaskStatus::Completed, McpTaskStatus::Completed);
    check(State::Failed, McpTaskStatus::Failed, McpTaskStatus::Completed);
    check(State::Rejected, McpTaskStatus::Failed, McpTaskStatus::Completed);
    check(State::Canceled, McpTaskStatus::Cancelled, McpTaskStatus::Cancelled);
    let mut broken = task(State::Failed);
    broken.status_message = said("it panicked");
    broken.status_message.as_mut().unwrap().metadata = json!({ "nuncio/fault": true }).as_object().cloned();
    assert_eq!(status_of(V2026_07_28, &broken), McpTaskStatus::Failed);
    let shown = shown(&broken, V2026_07_28);
    assert_eq!(shown["error"], json!({ "code": -32603, "message": "it panicked" }));
    assert!(shown.get("result").is_none());
}

fn shown(task: &Task, version: McpVersion) -> Value {
    let view = McpTaskView {
        version,
        created_at: Timestamp(1_000),
        ttl_ms: Some(60_000),
        poll_ms: 500,
        detailed: true,
    };
    object(|object| write_task(object, task, view))
}

#[test]
fn a_task_is_shown_with_what_it_asks_or_came_to() {
    let mut asking = task(State::InputRequired);
    let ask = Ask::Form { schema: json!({ "type": "object", "properties": {} }) };
    asking.questions = vec![(3, Question { id: "q1".into(), text: "Sure?".into(), ask, callback: None })];
    let id = asking.origin.id.to_string();
    let requests = json!({ "q1": { "method": "elicitation/create", "params": {
        "mode": "form", "message": "Sure?", "requestedSchema": { "type": "object", "properties": {} } } } });
    assert_eq!(
        shown(&asking, V2026_07_28),
        json!({ "taskId": id, "status": "input_required", "createdAt": "1970-01-01T00:00:01.000Z",
            "lastUpdatedAt": "1970-01-01T00:00:02.000Z", "ttlMs": 60000, "pollIntervalMs": 500,
            "inputRequests": requests })
    );
    assert_eq!(
        shown(&asking, V2025_11_25),
        json!({ "taskId": id, "status": "input_required", "createdAt": "1970-01-01T00:00:01.000Z",
            "lastUpdatedAt": "1970-01-01T00:00:02.000Z", "ttl": 60000, "pollInterval": 500 })
    );
    let mut failed = task(State::Failed);
    failed.status_message = said("no luck");
    let result = &shown(&failed, V2026_07_28)["result"];
    assert_eq!(*result, json!({ "content": [{ "type": "text", "text": "no luck" }], "isError": true }));
}

#[test]
fn a_result_is_the_artifacts_and_the_last_word_that_does_not_repeat_them() {
    let mut done = task(State::Completed);
    let bytes = |media: &str| Part { media_type: Some(media.into()), ..Content::Bytes(vec![1]).into() };
    let link = Part { filename: Some("f".into()), ..Content::Url("https://x/".into()).into() };
    let parts = vec![
        Part::text("booked"),
        Part::data(json!({ "n": 1 })),
        bytes("image/png"),
        bytes("audio/wav"),
        link,
    ];
    done.artifacts = vec![Artifact {
        id: "a".into(),
        name: None,
        description: None,
        parts,
        metadata: None,
        extensions: vec![],
        complete: true,
    }];
    done.status_message = said("booked");
    let kinds = |version| {
        let result = object(|result| write_output(result, version, CallOutput::Task(&done)));
        let blocks = result["content"].as_array().unwrap();
        let kinds: Vec<String> = blocks.iter().map(|b| b["type"].as_str().unwrap().to_owned()).collect();
        (kinds.join(" "), result.get("structuredContent").cloned())
    };
    assert_eq!(kinds(V2024_11_05), ("text text image resource text".into(), None));
    assert_eq!(kinds(V2025_03_26), ("text text image audio text".into(), None));
    let newer = ("text text image audio resource_link".to_owned(), Some(json!({ "n": 1 })));
    assert_eq!(kinds(V2025_06_18), newer);
    assert_eq!(kinds(V2026_07_28), newer);
    done.status_message = said("and paid");
    let result = object(|result| write_output(result, V2026_07_28, CallOutput::Task(&done)));
    assert_eq!(result["content"][5]["text"], "and paid");
    assert!(result.get("isError").is_none());
}

#[test]
fn blocks_of_tools_are_written() {
    let blocks = vec![
        ContentBlock::Text("t".into()),
        ContentBlock::Image { data: vec![255], media_type: "image/png".into() },
        ContentBlock::Resource(ResourceContent::text("x://y", "text/plain", "body")),
        ContentBlock::Resource(ResourceContent::bytes("x://z", "application/pdf", vec![0])),
    ];
    let output = ToolOutput { is_error: true, structured: Some(json!(3)), ..ToolOutput::blocks(blocks) };
    assert_eq!(
        object(|result| write_output(result, V2026_07_28, CallOutput::Tool(&output))),
        json!({
            "content": [
                { "type": "text", "text": "t" },
                { "type": "image", "data": "/w==", "mimeType": "image/png" },
                { "type": "resource", "resource": { "uri": "x://y", "mimeType": "text/plain", "text": "body" } },
                { "type": "resource", "resource": { "uri": "x://z", "mimeType": "application/pdf", "blob": "AA==" } },
            ],
            "structuredContent": 3,
            "isError": true,
        })
    );
}

#[test]
fn questions_are_put_in_the_words_of_their_revision() {
    let params = |asked: McpQuestion<'_>, version, related| {
        written(|out| asked.write_params(out, version, "r1", related))
    };
    let form = HandlerQuestion::Form { text: "Name?".into(), schema: json!({ "type": "object" }) };
    let asked = McpQuestion::Inquiry(&form);
    assert_eq!(asked.method(), "elicitation/create");
    let old = json!({ "message": "Name?", "requestedSchema": { "type": "object" } });
    assert_eq!(params(asked, V2025_06_18, None), old);
    assert_eq!(params(asked, V2025_11_25, None)["mode"], "form");
    let related = params(asked, V2025_11_25, Some("t"));
    assert_eq!(related["_meta"], json!({ "io.modelcontextprotocol/related-task": { "taskId": "t" } }));
    let question = Question {
        id: "q2".into(),
        text: "Sign in".into(),
        ask: Ask::Authorization { url: "https://x/".into() },
        callback: None,
    };
    let link = json!({ "mode": "url", "message": "Sign in", "url": "https://x/" });
    assert_eq!(params(McpQuestion::Question(&question), V2026_07_28, None), link);
    assert_eq!(params(McpQuestion::Question(&question), V2025_11_25, None)["elicitationId"], "r1");
    // Put again it has another id, and is known by its name.
    assert_eq!(params(McpQuestion::Question(&question), V2025_11_25, None)["_meta"]["nuncio/question"], "q2");
    let sample =
        HandlerQuestion::Sample { prompt: "Hi".into(), system: Some("Be brief".into()), max_tokens: 5 };
    assert_eq!(
        params(McpQuestion::Inquiry(&sample), V2026_07_28, None),
        json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "Hi" } }],
            "systemPrompt": "Be brief", "maxTokens": 5 })
    );
    assert_eq!(params(McpQuestion::Inquiry(&HandlerQuestion::Roots), V2026_07_28, None), json!({}));
}

#[test]
fn answers_are_told_by_their_shape() {
    let check =
        |result: Value, answer| assert_eq!(answer_in_result(&result).as_ref(), Ok(&answer), "{result}");
    check(json!({ "action": "accept", "content": { "n": 1 } }), Answer::Accept(json!({ "n": 1 })));
    check(json!({ "action": "accept" }), Answer::Accept(json!({})));
    check(json!({ "action": "decline" }), Answer::Decline(None));
    let note = || Answer::decline("too dear");
    check(json!({ "action": "decline", "_meta": { "nuncio/note": "too dear" } }), note());
    check(json!({ "action": "decline", "content": { "confirm": false, "notes": " too dear " } }), note());
    check(json!({ "action": "decline", "content": {}, "_meta": {} }), Answer::Decline(None));
    check(json!({ "action": "cancel" }), Answer::Cancel);
    let model = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "hi" } });
    check(model, Answer::Accept(json!({ "text": "hi", "model": "m" })));
    let blocks = json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] });
    check(blocks, Answer::Accept(json!({ "text": "a\nb" })));
    check(
        json!({ "roots": [{ "uri": "file:///x" }] }),
        Answer::Accept(json!({ "roots": [{ "uri": "file:///x" }] })),
    );
    for wrong in [json!({}), json!({ "action": "maybe" }), json!(null), json!([])] {
        answer_in_result(&wrong).unwrap_err();
    }
    let error = |code| RpcErrorObject { code, message: String::new(), data: None };
    for cannot in [-32600, -32601, -32602] {
        assert_eq!(answer_in_error(&error(cannot)), Some(Answer::Unavailable));
    }
    assert_eq!(answer_in_error(&error(-1)), Some(Answer::Cancel));
    for broken in [-32603, -32000, -32001, 7] {
        assert_eq!(answer_in_error(&error(broken)), None, "a client that broke has not answered");
    }
}

#[test]
fn notifications_carry_the_token_as_it_came() {
    let token = ProgressToken::from_json("\"p\\u0041\"").unwrap();
    let progress = Progress { done: 25.0, total: Some(100.5), text: Some("on".into()), data: None };
    let mut out = vec![];
    write_progress(&mut out, &token, &progress, None);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p\u0041","progress":25,"total":100.5,"message":"on"}}"#
    );
    let line = LogLine { level: Level::Warning, text: "hot".into() };
    let log = written(|out| write_log(out, "agent", &line, Some("t")));
    assert_eq!(log["params"]["level"], "warning");
    assert_eq!((&log["params"]["logger"], &log["params"]["data"]), (&json!("agent"), &json!("hot")));
}

#[test]
fn a_body_is_one_message_or_several() {
    let parse = |body: &'static str| parse_messages(body.as_bytes(), 8);
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
        Ok(RpcMessages::One(Rpc::Request(request))) if request.method == "ping"
    ));
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#),
        Ok(RpcMessages::One(Rpc::Response(response))) if response.outcome.is_ok()
    ));
    let Ok(RpcMessages::Batch(batch)) = parse(r#" [{"jsonrpc":"2.0","method":"n"}, 7, {"jsonrpc":"1.0"}]"#)
    else {
        panic!("a batch")
    };
    let kinds: Vec<bool> = batch.iter().map(Result::is_ok).collect();
    assert_eq!(kinds, [true, false, false]);
    for (body, code) in [
        ("{", -32700),
        ("[1,", -32700),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"x","params":[[[[[[[[[]]]]]]]]]}"#, -32600),
    ] {
        assert_eq!(parse(body).unwrap_err().code(), code, "{body}");
    }
}
