//! MCP from one side to the other, in each revision: what a server writes, a client reads, and what a client writes,
//! a server reads. Then what servers of others send: messages with members missing, additional or of another type.

use std::time::Duration;

use nuncio_engine::{
    Answer, Artifact, Content, Level, Message, Part, Profile, Role, Skill, State, Task, TaskId, TaskUse,
    clock::Timestamp,
    event::{Entry, Event, LogLine, Progress, Status},
    question::{Ask, Question},
    surface::{ContentBlock, ResourceContent, ToolOutput, ToolProfile},
    task::Origin,
};
use nuncio_wire::{
    a2a::{StreamEvent, TaskIds},
    json,
    jsonrpc::RpcErrorObject,
    mcp::{
        CallOutput, ClientCapabilities, ClientDescription, ClientNotification, ClientRequest, ClientResponse,
        DiscoverReply, EVENT_NOTIFICATION, Implementation, InitializeParams, InitializeResult, InputRequest,
        ListParams, ListedTool, ListenParams, McpErrorBody, McpFault, McpMessage, McpQuestion,
        McpTaskSnapshot, McpTaskStatus, McpTaskView, McpVersion, ProgressToken, ReceivedContent, SERVER_INFO,
        ServerCapabilities, ServerNotification, ServerRequest, TaskEventRequest, ToolCallParams,
        ToolCallReply, ToolCallRequest, ToolResult, ToolsPage, UpdateTaskParams, add_log_level,
        answer_in_error, answer_in_result, links_required_by, read_messages, read_meta, read_params,
        request_message, retry_after_in, write_agent_as_tool, write_bare_notification, write_cancelled,
        write_contents, write_discover_result, write_initialize_result, write_input_requests, write_log,
        write_new_task, write_output, write_progress, write_resource_updated, write_subscribed, write_task,
        write_task_changed, write_task_event, write_tool,
    },
};
use serde_json::{Map, Value, json, value::RawValue};
use uuid::Uuid;

use crate::value as written;

use McpVersion::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

const TASK: &str = "00000000-0000-0000-0000-000000000007";

fn object(members: impl FnOnce(&mut json::JsonObject<'_>)) -> Value {
    written(|out| json::object(out, members))
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

fn message(bytes: &[u8]) -> McpMessage {
    let mut messages = read_messages(bytes).unwrap();
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn notification(write: impl FnOnce(&mut Vec<u8>)) -> ServerNotification {
    let mut out = vec![];
    write(&mut out);
    match message(&out) {
        McpMessage::Notification(notification) => notification,
        other => panic!("no notification: {other:?}"),
    }
}

fn notified(method: &str, params: &Value) -> ServerNotification {
    notification(|out| out.extend(json!({ "method": method, "params": params }).to_string().bytes()))
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

fn artifact(parts: Vec<Part>) -> Artifact {
    let id = "made".into();
    Artifact { id, name: None, description: None, parts, metadata: None, extensions: vec![], complete: true }
}

fn view(version: McpVersion) -> McpTaskView {
    McpTaskView { version, created_at: Timestamp(1_000), ttl_ms: None, poll_ms: 500, detailed: true }
}

fn snapshot(version: McpVersion, task: &Task) -> McpTaskSnapshot {
    McpTaskSnapshot::read(object(|object| write_task(object, task, view(version))))
}

fn client() -> ClientDescription {
    ClientDescription {
        capabilities: ClientCapabilities { form: true, url: true, sampling: true, roots: true, tasks: true },
        info: Implementation { name: "tester".into(), version: "1".into() },
    }
}

#[test]
fn a_client_introduces_itself_in_each_revision() {
    let all = client().capabilities;
    for version in McpVersion::ALL {
        let known = ClientCapabilities {
            form: version >= V2025_06_18,
            url: version >= V2025_11_25,
            tasks: version >= V2026_07_28,
            ..all
        };
        assert_eq!(ClientCapabilities::read(&all.write(version), version), known, "{version:?}");
        for only in [
            ClientCapabilities { form: true, ..ClientCapabilities::default() },
            ClientCapabilities { url: true, ..ClientCapabilities::default() },
            ClientCapabilities { sampling: true, ..ClientCapabilities::default() },
        ] {
            let read = ClientCapabilities::read(&only.write(version), version);
            let expected = ClientCapabilities {
                form: only.form && version >= V2025_06_18,
                url: only.url && version >= V2025_11_25,
                ..only
            };
            assert_eq!(read, expected, "{version:?}");
        }
        if version.is_stateless() {
            let mut params = json!({});
            client().add_to(&mut params, version);
            add_log_level(&mut params, Level::Notice);
            let meta = read_meta(Some(&raw(&params))).unwrap();
            assert_eq!(meta.version.as_deref(), Some(version.name()));
            assert_eq!((meta.capabilities(version), meta.level), (known, Some(Level::Notice)));
            assert_eq!(meta.client_info, Some(json!({ "name": "tester", "version": "1" })));
        } else {
            let params: InitializeParams =
                read_params(Some(&raw(&client().initialize_params(version)))).unwrap();
            assert_eq!(McpVersion::negotiate(&params.protocol_version), version);
            assert_eq!(ClientCapabilities::read(&params.capabilities, version), known);
            assert_eq!(params.client_info, json!({ "name": "tester", "version": "1" }));
        }
    }
}

#[test]
fn what_is_declared_is_said_as_each_revision_knows_it() {
    let check = |capabilities: ClientCapabilities, version, expected: Value| {
        assert_eq!(capabilities.write(version), expected, "{version:?}");
    };
    let all = ClientCapabilities { roots: false, ..client().capabilities };
    check(all, V2024_11_05, json!({ "sampling": {} }));
    check(all, V2025_06_18, json!({ "elicitation": {}, "sampling": {} }));
    let both = json!({ "form": {}, "url": {} });
    check(all, V2025_11_25, json!({ "elicitation": both, "sampling": {} }));
    let extension = json!({ "io.modelcontextprotocol/tasks": {} });
    check(all, V2026_07_28, json!({ "elicitation": both, "sampling": {}, "extensions": extension }));
    let links = ClientCapabilities { url: true, ..ClientCapabilities::default() };
    check(links, V2025_06_18, json!({}));
    check(links, V2025_11_25, json!({ "elicitation": { "url": {} } }));
}

#[test]
fn a_server_introduces_itself_in_each_revision() {
    let info = Implementation { name: "nuncio".into(), version: "2".into() };
    for version in McpVersion::ALL {
        let server = if version.is_stateless() {
            let result = object(|result| {
                write_discover_result(result, version, None);
                result.object("_meta", |meta| meta.value(SERVER_INFO, &info));
            });
            match DiscoverReply::read(Ok(result)) {
                DiscoverReply::Newest(server) => server,
                other => panic!("{other:?}"),
            }
        } else {
            let result = object(|result| write_initialize_result(result, version, &info, None));
            let read = InitializeResult::read(result);
            assert_eq!(McpVersion::parse(&read.version), Some(version));
            read.server
        };
        assert_eq!(server.display_name(), Some("nuncio"));
        let can = &server.capabilities;
        assert_eq!(can, &ServerCapabilities::of_nuncio(version));
        assert!(can.has_logging() && can.announces_tools() && can.names().any(|name| name == "resources"));
        assert_eq!(can.has_tasks(version), version >= V2025_11_25, "{version:?}");
        assert_eq!(can.has_events(version), version >= V2025_11_25, "{version:?}");
        for tasks in [TaskUse::Never, TaskUse::Offered, TaskUse::Required] {
            let wants = version == V2025_11_25 && tasks != TaskUse::Never;
            assert_eq!(can.wants_task_request(version, tasks), wants, "{version:?} {tasks:?}");
        }
    }
    let fault = McpFault::unsupported_version("2027-01-01");
    let error = RpcErrorObject { code: fault.code.into(), message: fault.message, data: fault.data };
    assert_eq!(DiscoverReply::read(Err(error)), DiscoverReply::SameVersion);
}

#[test]
fn a_server_that_declares_nonsense_has_no_capabilities() {
    for declared in [json!(null), json!([]), json!({ "tools": 7, "logging": true, "extensions": [] })] {
        let can = ServerCapabilities::from_json(declared);
        assert!(!can.has_logging() && !can.announces_tools());
        assert!(!can.has_tasks(V2026_07_28) && !can.has_events(V2025_11_25));
    }
    let read = InitializeResult::read(json!({ "protocolVersion": 7, "serverInfo": "me" }));
    assert_eq!((read.version.as_str(), read.server.display_name()), ("", None));
    assert_eq!(InitializeResult::read(json!(null)).version, "");
}

#[test]
fn tools_and_agents_are_listed_in_each_revision() {
    let mut tool = ToolProfile::new("look", "Looks.");
    tool.input_schema = json!({ "type": "object" });
    tool.title = Some("A look".into());
    tool.output_schema = Some(json!({ "type": "object", "title": "out" }));
    tool.tasks = TaskUse::Offered;
    tool.annotations = serde_json::from_value(json!({ "readOnlyHint": true })).unwrap();
    let mut agent = Profile::new("writer", "Writes.");
    agent.skills = vec![Skill::new("s", "The writer", "Writes.")];
    agent.tasks = TaskUse::Required;
    for version in McpVersion::ALL {
        let tools = [
            written(|out| write_tool(out, version, &tool)),
            written(|out| write_agent_as_tool(out, version, &agent)),
        ];
        let page = ToolsPage::read(json!({ "tools": tools, "nextCursor": "c" })).unwrap();
        assert_eq!(page.next_cursor.as_deref(), Some("c"));
        let [tool, agent] = [0, 1].map(|at| ListedTool::read(&page.tools[at]).unwrap());
        assert_eq!((tool.name.as_str(), tool.description.as_str()), ("look", "Looks."));
        assert_eq!(tool.input_schema, Some(json!({ "type": "object" })));
        assert_eq!(tool.title.is_some(), version >= V2025_06_18);
        assert_eq!(tool.output_schema.is_some(), version >= V2025_06_18);
        assert_eq!(tool.idempotent, version >= V2025_03_26, "{version:?}");
        let tasks = |tasks| if version == V2025_11_25 { tasks } else { TaskUse::Never };
        assert_eq!(tool.tasks, tasks(TaskUse::Offered));
        assert_eq!(agent.tasks, tasks(TaskUse::Required));
        assert_eq!((agent.takes_key, agent.idempotent), (version >= V2025_06_18, version >= V2025_06_18));
        assert!(!tool.takes_key);
    }
}

#[test]
fn a_sloppy_list_of_tools_is_read_as_far_as_it_goes() {
    assert_eq!(ToolsPage::read(json!({ "tools": {} })), None);
    assert_eq!(ToolsPage::read(json!(null)), None);
    let page = ToolsPage::read(json!({ "tools": [7], "nextCursor": 3, "more": true })).unwrap();
    assert_eq!(page.next_cursor, None);
    for nameless in [json!(7), json!({}), json!({ "name": "" }), json!({ "name": 7 })] {
        assert_eq!(ListedTool::read(&nameless), Err("it has no name".to_owned()));
    }
    let odd = json!({
        "name": "t", "title": 7, "description": null, "inputSchema": "any", "outputSchema": [],
        "annotations": { "title": "T", "readOnlyHint": "yes" }, "execution": { "taskSupport": "maybe" },
        "_meta": { "nuncio/idempotencyKey": "true" }, "icons": [],
    });
    let expected = ListedTool {
        name: "t".into(),
        title: Some("T".into()),
        description: String::new(),
        input_schema: None,
        output_schema: None,
        tasks: TaskUse::Never,
        takes_key: false,
        idempotent: false,
    };
    assert_eq!(ListedTool::read(&odd), Ok(expected));
}

#[test]
fn a_call_is_read_with_all_that_it_carries() {
    for version in McpVersion::ALL {
        let request = ClientRequest::CallTool(ToolCallRequest {
            name: "writer",
            arguments: json!({ "text": "hi" }),
            progress_token: Some("p1"),
            with_events: true,
            idempotency_key: Some("k"),
            trace: Some("00-aa"),
            answers: Map::from_iter([("q".to_owned(), json!({ "action": "accept" }))]),
            state: Some("s"),
            as_task: version == V2025_11_25,
        });
        assert_eq!(request.method(version), "tools/call");
        let params = raw(&request.into_params(version));
        let meta = read_meta(Some(&params)).unwrap();
        assert_eq!(meta.progress.as_ref().map(ProgressToken::as_json), Some("\"p1\""));
        assert_eq!((meta.idempotency_key.as_deref(), meta.trace.as_deref()), (Some("k"), Some("00-aa")));
        assert_eq!(meta.events.map(|cursors| cursors.len()), Some(0));
        let call: ToolCallParams = read_params(Some(&params)).unwrap();
        assert_eq!(call.name, "writer");
        assert_eq!(call.arguments, json!({ "text": "hi" }).as_object().cloned());
        assert_eq!(call.task.is_some(), version == V2025_11_25);
        assert_eq!(call.request_state.as_deref(), Some("s"));
        assert_eq!(call.input_responses.unwrap()["q"], json!({ "action": "accept" }));
    }
    let plain = ToolCallRequest { name: "t", arguments: json!({}), ..ToolCallRequest::default() };
    let params = ClientRequest::CallTool(plain).into_params(V2026_07_28);
    assert_eq!(params, json!({ "name": "t", "arguments": {} }), "nothing that was not wanted");
}

#[test]
fn requests_about_tasks_are_read_in_each_revision() {
    for version in [V2025_11_25, V2026_07_28] {
        for request in [ClientRequest::GetTask(TASK), ClientRequest::CancelTask(TASK)] {
            let params: UpdateTaskParams = read_params(Some(&raw(&request.into_params(version)))).unwrap();
            assert_eq!(params.task_id, TASK);
        }
        let follow = ClientRequest::FollowTask { task: TASK, after: Some(7) };
        let method = follow.method(version).to_owned();
        let params = follow.into_params(version);
        let events = read_meta(Some(&raw(&params))).unwrap().events.unwrap();
        assert_eq!(events[TASK], 7);
        if version.is_stateless() {
            let listen: ListenParams = serde_json::from_value(params["notifications"].clone()).unwrap();
            let expected = ListenParams { task_ids: vec![TASK.into()], ..ListenParams::default() };
            assert_eq!((method.as_str(), listen), ("subscriptions/listen", expected));
        } else {
            let result: UpdateTaskParams = read_params(Some(&raw(&params))).unwrap();
            assert_eq!((method.as_str(), result.task_id.as_str()), ("tasks/result", TASK));
        }
    }
    let answers = Map::from_iter([("q".to_owned(), json!({ "action": "cancel" }))]);
    let update = ClientRequest::UpdateTask { task: TASK, answers }.into_params(V2026_07_28);
    let update: UpdateTaskParams = read_params(Some(&raw(&update))).unwrap();
    assert_eq!(answer_in_result(&update.input_responses.unwrap()["q"]), Ok(Answer::Cancel));
    let page: ListParams =
        read_params(Some(&raw(&ClientRequest::ListTools(Some("c")).into_params(V2025_06_18)))).unwrap();
    assert_eq!(page.cursor.as_deref(), Some("c"));
    let wanted = ListenParams {
        tools_list_changed: true,
        resource_subscriptions: vec!["a:b".into()],
        task_ids: vec![TASK.into()],
        ..ListenParams::default()
    };
    let params = ClientRequest::Listen { wanted: &wanted, events: Some((TASK, 7)) }.into_params(V2026_07_28);
    assert_eq!(read_meta(Some(&raw(&params))).unwrap().events.unwrap()[TASK], 7);
    let read: ListenParams = serde_json::from_value(params["notifications"].clone()).unwrap();
    assert_eq!(read, wanted);
    let tools = ListenParams { tools_list_changed: true, ..ListenParams::default() };
    let params = ClientRequest::Listen { wanted: &tools, events: None }.into_params(V2026_07_28);
    assert_eq!(params, json!({ "notifications": { "toolsListChanged": true } }));
    assert_eq!(ClientRequest::Ping.method(V2025_11_25), "ping");
    assert_eq!(ClientRequest::Ping.method(V2026_07_28), "server/discover");
    assert_eq!(
        ClientRequest::SetLogLevel(Level::Error).into_params(V2025_03_26),
        json!({ "level": "error" })
    );
    let other = ClientRequest::Other { method: "prompts/list", params: Value::Null };
    assert_eq!(
        (other.method(V2025_03_26), other.clone().into_params(V2025_03_26)),
        ("prompts/list", json!({}))
    );
}

#[test]
fn a_result_is_read_as_what_the_tool_made() {
    let picture = Part { media_type: Some("image/png".into()), ..Content::Bytes(b"abc".into()).into() };
    let sound = Part { media_type: Some("audio/wav".into()), ..Content::Bytes(b"abc".into()).into() };
    let link = Part {
        content: Content::Url("https://x/a".into()),
        metadata: None,
        filename: Some("a".into()),
        media_type: None,
    };
    let mut done = task(State::Completed);
    done.artifacts = vec![artifact(vec![Part::text("hello"), picture.clone(), sound.clone(), link.clone()])];
    done.status_message = Some(Message::text("m", Role::Agent, "that is all"));
    for version in McpVersion::ALL {
        let result = object(|result| write_output(result, version, CallOutput::Task(&done)));
        let ToolCallReply::Complete(result) = ToolCallReply::read(result) else { panic!("{version:?}") };
        let parts = result.parts();
        assert!(!result.is_error && parts.len() == 5);
        assert_eq!(
            (&parts[0], &parts[1], &parts[4]),
            (&Part::text("hello"), &picture, &Part::text("that is all"))
        );
        match version {
            // Audio is a file there, without a media type of its own kind of block.
            V2024_11_05 => assert!(matches!(&parts[2].content, Content::Bytes(bytes) if bytes == b"abc")),
            _ => assert_eq!(parts[2], sound),
        }
        let expected = if version >= V2025_06_18 { link.clone() } else { Part::text("https://x/a") };
        assert_eq!(parts[3], expected, "{version:?}");
    }
}

#[test]
fn a_structured_result_is_there_once() {
    let output = ToolOutput {
        content: vec![ContentBlock::Text("{ \"n\": 1 }".into()), ContentBlock::Text("one".into())],
        structured: Some(json!({ "n": 1 })),
        is_error: true,
    };
    for version in McpVersion::ALL {
        let read =
            ToolResult::read(object(|result| write_output(result, version, CallOutput::Tool(&output))));
        assert!(read.is_error);
        assert_eq!(read.text(), "{ \"n\": 1 }\none");
        let expected = match version >= V2025_06_18 {
            true => vec![Part::text("one"), Part::data(json!({ "n": 1 }))],
            false => vec![Part::text("{ \"n\": 1 }"), Part::text("one")],
        };
        assert_eq!(read.parts(), expected, "{version:?}");
    }
}

#[test]
fn blocks_that_cannot_be_read_are_kept_as_they_are() {
    let check = |block: Value, expected: Part| {
        assert_eq!(ToolResult::read(json!({ "content": [block] })).parts(), [expected]);
    };
    for kept in [
        json!({ "type": "image", "data": "***", "mimeType": "image/png" }),
        json!({ "type": "smell" }),
        json!({ "type": "text", "text": 7 }),
        json!({ "type": "resource", "resource": { "uri": "file:///x" } }),
        json!({ "type": "resource_link", "name": "a" }),
        json!("words"),
        json!(null),
    ] {
        check(kept.clone(), Part::data(kept));
    }
    let embedded =
        json!({ "type": "resource", "resource": { "uri": "file:///x/y.txt?z", "text": "inside" } });
    let read = ToolResult::read(json!({ "content": [embedded] })).parts();
    assert_eq!((read[0].as_text(), read[0].filename.as_deref()), (Some("inside"), Some("y.txt")));
    for nothing in [json!(null), json!([]), json!({ "content": "words", "isError": "true" })] {
        assert_eq!(ToolResult::read(nothing), ToolResult::default());
    }
    assert_eq!(ToolResult::read(json!({ "structuredContent": null })).structured, None);
}

#[test]
fn the_text_of_a_resource_is_read() {
    let content = ResourceContent::text("a:b", "text/plain", "hello");
    let result = object(|result| write_contents(result, &[content]));
    let expected = ReceivedContent { uri: Some("a:b".into()), text: Some("hello".into()) };
    assert_eq!(ReceivedContent::read_all(result), Some(vec![expected]));
    let binary = ReceivedContent { uri: None, text: None };
    assert_eq!(
        ReceivedContent::read_all(json!({ "contents": [{ "blob": "YQ==" }, 7] })),
        Some(vec![binary.clone(), binary])
    );
    assert_eq!(ReceivedContent::read_all(json!({ "contents": {} })), None);
}

#[test]
fn a_reply_to_a_call_is_told_apart_in_any_form() {
    let asked = Question {
        id: "q".into(),
        text: "Who?".into(),
        ask: Ask::Form { schema: json!({ "type": "object" }) },
        callback: None,
    };
    let mut waiting = task(State::InputRequired);
    waiting.questions = vec![(1, asked)];
    let required = object(|result| {
        result.value("resultType", "input_required");
        write_input_requests(result, V2026_07_28, McpQuestion::all_of(&waiting));
        result.value("requestState", "signed");
    });
    let ToolCallReply::InputRequired(required) = ToolCallReply::read(required) else { panic!() };
    assert_eq!(required.state.as_deref(), Some("signed"));
    let requests = required.requests.unwrap();
    assert_eq!(requests[0].0, "q");
    assert_eq!(requests[0].1.read_question().unwrap().0, "Who?");

    let extension = object(|result| {
        result.value("resultType", "task");
        write_task(result, &task(State::Working), view(V2026_07_28));
    });
    let session = object(|result| {
        result.object("task", |object| write_new_task(object, &task(State::Working), view(V2025_11_25)));
    });
    for begun in [extension, session] {
        let ToolCallReply::Task(begun) = ToolCallReply::read(begun) else { panic!() };
        assert_eq!((begun.id.as_deref(), begun.status), (Some(TASK), Ok(McpTaskStatus::Working)));
        assert_eq!(begun.poll_interval, Some(Duration::from_millis(500)));
    }

    let reply = |result: Value| ToolCallReply::read(result);
    assert_eq!(reply(json!({ "resultType": "later" })), ToolCallReply::Unknown("later".into()));
    assert!(matches!(reply(json!({ "resultType": 7, "task": { "taskId": 7 } })), ToolCallReply::Complete(_)));
    assert!(
        matches!(reply(json!("done")), ToolCallReply::Complete(result) if result == ToolResult::default())
    );
    let nameless = reply(json!({ "resultType": "task" }));
    assert!(matches!(nameless, ToolCallReply::Task(task) if task.id.is_none()));
    let ToolCallReply::InputRequired(odd) =
        reply(json!({ "resultType": "input_required", "inputRequests": [], "requestState": 7 }))
    else {
        panic!()
    };
    assert_eq!((odd.state, odd.requests), (None, None));
}

#[test]
fn a_task_is_read_in_each_generation() {
    let mut done = task(State::Completed);
    done.artifacts = vec![artifact(vec![Part::text("hello")])];
    let mut stopped = task(State::Canceled);
    stopped.status_message = Some(Message::text("m", Role::Agent, "as you wish"));
    for version in [V2025_11_25, V2026_07_28] {
        let read = snapshot(version, &done);
        assert_eq!((read.id.as_deref(), &read.status), (Some(TASK), &Ok(McpTaskStatus::Completed)));
        assert_eq!(read.poll_interval, Some(Duration::from_millis(500)));
        let made = if version.is_stateless() { vec![Part::text("hello")] } else { vec![] };
        assert_eq!(read.result.parts(), made, "in the session it is the result of another request");
        let read = snapshot(version, &stopped);
        assert_eq!(
            (read.status, read.message.as_deref()),
            (Ok(McpTaskStatus::Cancelled), Some("as you wish"))
        );
    }
    let mut broken = task(State::Failed);
    broken.status_message = Some(Message::text("m", Role::Agent, "it panicked"));
    broken.status_message.as_mut().unwrap().metadata = json!({ "nuncio/fault": true }).as_object().cloned();
    assert_eq!(snapshot(V2026_07_28, &broken).error.as_deref(), Some("it panicked"));
    assert_eq!(snapshot(V2025_11_25, &broken).status, Ok(McpTaskStatus::Failed));
}

#[test]
fn a_sloppy_task_is_read_as_far_as_it_goes() {
    for nothing in [json!(null), json!([1]), json!("working"), json!({ "status": 7, "taskId": 7 })] {
        let read = McpTaskSnapshot::read(nothing);
        assert_eq!((read.id, read.status), (None, Err(String::new())));
        assert!(read.input_requests.is_empty() && read.poll_interval.is_none());
    }
    let odd = McpTaskSnapshot::read(json!({
        "taskId": "t", "status": "submitted", "statusMessage": 7, "pollInterval": 20, "pollIntervalMs": "30",
        "inputRequests": { "a": 7, "b": { "method": "roots/list" } }, "error": "bad", "result": [], "x": {},
    }));
    assert_eq!((odd.id.as_deref(), odd.status), (Some("t"), Ok(McpTaskStatus::Submitted)));
    assert_eq!((odd.message, odd.error, odd.poll_interval), (None, None, Some(Duration::from_millis(20))));
    let requests = odd.input_requests;
    assert_eq!(requests[0].1, InputRequest { method: String::new(), params: Value::Null });
    assert!(requests[1].1.asks_for_roots());
    assert_eq!(McpTaskSnapshot::read(json!({ "status": "paused" })).status, Err("paused".into()));
}

#[test]
fn a_question_and_its_answer_survive_the_way_there_and_back() {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let asks = [
        Ask::Form { schema },
        Ask::Authorization { url: "https://x/".into() },
        Ask::Sample { system: Some("Be brief.".into()), max_tokens: 5 },
    ];
    let given = [
        json!({ "name": "Ada" }),
        json!({}),
        json!({ "text": "four", "model": "m", "stopReason": "endTurn" }),
    ];
    for version in McpVersion::ALL {
        for (ask, given) in asks.iter().zip(&given) {
            let question =
                Question { id: "q".into(), text: "Well?".into(), ask: ask.clone(), callback: None };
            let asked = McpQuestion::Question(&question);
            let related = (version == V2025_11_25).then_some(TASK);
            let params = written(|out| asked.write_params(out, version, "r", related));
            let request = json!({ "jsonrpc": "2.0", "id": 9, "method": asked.method(), "params": params });
            let McpMessage::Request { id, request: ServerRequest::Input(request) } =
                message(request.to_string().as_bytes())
            else {
                panic!("{version:?} {ask:?}")
            };
            assert_eq!(request.read_question(), Ok(("Well?".to_owned(), ask.clone())), "{version:?}");
            assert_eq!(request.related_task(), related);
            assert_eq!(request.name(), (!version.is_stateless()).then_some("q"));
            assert_eq!(request.is_link(), matches!(ask, Ask::Authorization { .. }));
            assert!(request.has_same_content(&request.clone()));

            let accepted = Answer::Accept(given.clone());
            let response = ClientResponse::Input(request.write_reply(&accepted).unwrap()).to_message(&id);
            assert_eq!((&response["id"], response.get("error")), (&json!(9), None));
            assert_eq!(answer_in_result(&response["result"]), Ok(accepted), "{version:?} {ask:?}");
            for refusal in [Answer::decline("too dear"), Answer::Cancel, Answer::Unavailable] {
                let read = match request.write_reply(&refusal) {
                    Ok(result) => answer_in_result(&result).ok(),
                    Err((code, message)) => {
                        answer_in_error(&RpcErrorObject { code: code.into(), message, data: None })
                    }
                };
                // A sample has one refusal only.
                let expected = match (ask, refusal) {
                    (Ask::Sample { .. }, Answer::Decline(_)) => Answer::Cancel,
                    (_, refusal) => refusal,
                };
                assert_eq!(read, Some(expected), "{version:?} {ask:?}");
            }
        }
    }
    assert_eq!(answer_in_result(&InputRequest::no_roots()), Ok(Answer::Accept(json!({ "roots": [] }))));
    assert_eq!(answer_in_result(&InputRequest::write_visited()), Ok(Answer::Accept(json!({}))));
}

#[test]
fn notifications_arrive_as_they_were_sent() {
    let token = ProgressToken::from_json("\"p\"").unwrap();
    let progress = Progress { done: 25.0, total: Some(100.5), text: Some("on".into()), data: None };
    for related in [None, Some(TASK)] {
        let read = notification(|out| write_progress(out, &token, &progress, related));
        let expected = ServerNotification::Progress { token: Some("p".into()), progress: progress.clone() };
        assert_eq!(read, expected);
        let line = LogLine { level: Level::Warning, text: "hot".into() };
        let read = notification(|out| write_log(out, "agent", &line, related));
        assert_eq!(read, ServerNotification::Log { line, task: related.map(str::to_owned) });
    }
    let read = notification(|out| write_cancelled(out, "\"r\"", Some("1")));
    assert_eq!(read, ServerNotification::Cancelled("r".into()));
    let wanted = ListenParams {
        task_ids: vec![TASK.into()],
        resource_subscriptions: vec!["a:b".into()],
        tools_list_changed: true,
        ..ListenParams::default()
    };
    let read = notification(|out| write_subscribed(out, &wanted, Some("1")));
    assert_eq!(
        read,
        ServerNotification::Subscribed { tasks: vec![TASK.into()], resources: vec!["a:b".into()] }
    );
    let read = notification(|out| write_resource_updated(out, "a:b", Some("1")));
    assert_eq!(read, ServerNotification::ResourceUpdated(Some("a:b".into())));
    let working = task(State::Working);
    let read = notification(|out| write_task_changed(out, &working, view(V2026_07_28), Some("1")));
    assert_eq!(read, ServerNotification::Task(Box::new(snapshot(V2026_07_28, &working))));
    let read = notification(|out| write_bare_notification(out, "notifications/tools/list_changed", None));
    assert_eq!(read, ServerNotification::ToolsChanged);

    let ids = TaskIds { task: TASK, context: "c" };
    let entry =
        Entry(Timestamp(3_000), Event::Status(Status { state: State::Working, message: None, by: None }));
    for of in [TaskEventRequest::Task, TaskEventRequest::Subscription("1")] {
        let read = notification(|out| assert!(write_task_event(out, &ids, 5, &entry, of)));
        let ServerNotification::TaskEvent(event) = read else { panic!("{read:?}") };
        assert_eq!((event.task.as_deref(), event.seq), (Some(TASK), Some(5)));
        assert!(
            matches!(event.read_event(), Ok(StreamEvent::Status(update)) if update.state == State::Working)
        );
    }

    let cancelled = ClientNotification::Cancelled { request: &json!(4), reason: "enough" }.to_message();
    assert_eq!(cancelled["params"], json!({ "requestId": 4, "reason": "enough" }));
    assert_eq!(ClientNotification::Initialized.to_message()["method"], "notifications/initialized");
    let request = request_message(&json!(4), "ping", &json!({}));
    assert!(matches!(
        message(request.to_string().as_bytes()),
        McpMessage::Request { request: ServerRequest::Ping, .. }
    ));
}

#[test]
fn sloppy_notifications_are_read_as_far_as_they_go() {
    let progress = |token: Option<&str>, done, total| ServerNotification::Progress {
        token: token.map(str::to_owned),
        progress: Progress { done, total, text: None, data: None },
    };
    let method = "notifications/progress";
    assert_eq!(notified(method, &json!(null)), progress(None, 0.0, None));
    assert_eq!(notified(method, &json!([1])), progress(None, 0.0, None));
    assert_eq!(
        notified(method, &json!({ "progressToken": 7, "progress": "1", "total": 2 })),
        progress(None, 0.0, Some(2.0))
    );
    let log = |level, text: &str| ServerNotification::Log {
        line: LogLine { level, text: text.into() },
        task: None,
    };
    let method = "notifications/message";
    assert_eq!(
        notified(method, &json!({ "level": "loud", "data": { "a": 1 } })),
        log(Level::Info, r#"{"a":1}"#)
    );
    assert_eq!(notified(method, &json!({ "level": "error", "_meta": 7 })), log(Level::Error, "null"));
    assert_eq!(
        notified(
            "notifications/subscriptions/acknowledged",
            &json!({ "notifications": { "taskIds": [7, "t"] } })
        ),
        ServerNotification::Subscribed { tasks: vec!["t".into()], resources: vec![] }
    );
    assert_eq!(notified("notifications/cancelled", &json!(7)), ServerNotification::Cancelled(Value::Null));
    assert_eq!(
        notified("notifications/elicitation/complete", &json!({ "elicitationId": 7 })),
        ServerNotification::ElicitationComplete(7.into())
    );
    let ServerNotification::Task(task) = notified("notifications/tasks/status", &json!({ "taskId": "t" }))
    else {
        panic!()
    };
    assert_eq!(task.id.as_deref(), Some("t"));
    let ServerNotification::TaskEvent(event) =
        notified(EVENT_NOTIFICATION, &json!({ "seq": -1, "event": 7 }))
    else {
        panic!()
    };
    assert_eq!((&event.task, event.seq), (&None, None));
    event.read_event().unwrap_err();
    assert_eq!(
        notified("notifications/else", &json!({})),
        ServerNotification::Unknown("notifications/else".into())
    );
}

#[test]
fn errors_say_when_to_retry_and_which_links_to_visit() {
    let error = |data: Value| RpcErrorObject { code: -32042, message: "no".into(), data: Some(data) };
    assert_eq!(retry_after_in(&error(json!({ "retryAfterMs": 250 }))), Some(Duration::from_millis(250)));
    for none in [json!(null), json!([250]), json!({ "retryAfterMs": "250" }), json!({ "retryAfterMs": 2.5 })]
    {
        assert_eq!(retry_after_in(&error(none)), None);
    }
    let links = links_required_by(&mut error(
        json!({ "elicitations": [{ "url": "https://x/", "elicitationId": "e" }, 7] }),
    ));
    let [Ok(link), Err(other)] = &links[..] else { panic!("{links:?}") };
    assert_eq!(link.read_question(), Ok((String::new(), Ask::Authorization { url: "https://x/".into() })));
    assert_eq!((link.elicitation_id(), other), (&json!("e"), &json!(7)));
    assert!(links_required_by(&mut error(json!({ "elicitations": {} }))).is_empty());

    let check = |body: &str, message: Option<&str>, retry: Option<u64>, code: Option<i64>| {
        let read = McpErrorBody::read(body.as_bytes());
        assert_eq!(read.message.as_deref(), message, "{body}");
        assert_eq!(read.retry_after, retry.map(Duration::from_millis), "{body}");
        assert_eq!(read.error.map(|error| error.code), code, "{body}");
    };
    check("<html>", None, None, None);
    check(r#"{"error":{"code":-32601,"message":"no"}}"#, Some("no"), None, Some(-32601));
    check(r#"{"error":{"data":{"retryAfterMs":250}}}"#, None, Some(250), None);
    check(r#"{"error":"invalid_token","error_description":"expired"}"#, Some("expired"), None, None);
    check(r#"{"message":"later"}"#, Some("later"), None, None);
}
