//! The gRPC binding as a format: the same calls, results and errors as in the other bindings.

use nuncio_wire::{
    a2a::{
        A2aCall, A2aProblem, Dialect, GrpcMethod, StreamEvent, TaskDetail, TaskIds, TaskListPage,
        card::CURSOR_EXTENSION,
    },
    grpc::GrpcCode,
    protobuf::{self, ProtobufLimits},
};
use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use crate::{raw, strategies, text};

const LIMITS: ProtobufLimits = ProtobufLimits { max_depth: 64, max_json_bytes: 1 << 22 };

fn method(name: &str) -> GrpcMethod {
    GrpcMethod::find(&format!("/lf.a2a.v1.A2AService/{name}")).unwrap()
}

fn older(name: &str) -> GrpcMethod {
    GrpcMethod::find(&format!("/a2a.v1.A2AService/{name}")).unwrap()
}

/// What a server reads of a request that has this JSON.
fn read(method: &GrpcMethod, message: &str, request: &Value) -> Result<A2aCall, String> {
    let mut bytes = vec![];
    let message = protobuf::message(message).unwrap();
    message.write_from_json(&mut bytes, request.to_string().as_bytes()).unwrap();
    let json = method.read_request(&bytes, LIMITS).unwrap();
    method.read_call(&json).map_err(|fault| fault.message)
}

fn result(method: &GrpcMethod, json: &str, cursor: Option<u64>) -> Box<RawValue> {
    let mut bytes = vec![];
    method.write_result(&mut bytes, json.as_bytes(), cursor).unwrap();
    method.read_response(&bytes, LIMITS).unwrap()
}

#[test]
fn every_operation_of_both_services_has_its_method() {
    for (service, dialect, count) in
        [("lf.a2a.v1.A2AService", Dialect::V1, 11), ("a2a.v1.A2AService", Dialect::V0_3, 10)]
    {
        let methods = &protobuf::DescriptorPool::get().service(service).unwrap().methods;
        assert_eq!(methods.len(), count);
        for method in methods {
            let found = GrpcMethod::find(&format!("/{service}/{}", method.name)).unwrap();
            assert_eq!((found.dialect, found.streams()), (dialect, method.streams));
        }
    }
    for path in [
        "",
        "/",
        "/lf.a2a.v1.A2AService",
        "/lf.a2a.v1.A2AService/",
        "/lf.a2a.v1.A2AService/TaskSubscription",
        "/a2a.v1.A2AService/ListTasks",
        "lf.a2a.v1.A2AService/GetTask",
    ] {
        assert!(GrpcMethod::find(path).is_none(), "{path}");
    }
}

#[test]
fn the_package_is_the_version_where_none_is_named() {
    let code = |method: &GrpcMethod, version| method.check_version(version).map_err(|fault| fault.problem);
    for version in [None, Some(""), Some("1.0"), Some("1.0.1")] {
        assert_eq!(code(&method("GetTask"), version), Ok(()));
    }
    for version in ["0.3", "0.1", "1.1", "2.0", "x"] {
        assert_eq!(code(&method("GetTask"), Some(version)), Err(A2aProblem::VersionNotSupported));
    }
    assert_eq!(code(&older("GetTask"), Some("0.3.0")), Ok(()));
    assert_eq!(code(&older("GetTask"), Some("1.0")), Err(A2aProblem::VersionNotSupported));
}

#[test]
fn in_0_3_a_name_is_an_id() {
    let check = |name: &str, message: &str, request: Value, expected: A2aCall| {
        assert_eq!(read(&older(name), message, &request).unwrap(), expected);
    };
    let task = || "a/b".to_owned();
    check(
        "GetTask",
        "a2a.v1.GetTaskRequest",
        json!({ "name": "tasks/a/b", "historyLength": 2 }),
        A2aCall::Get { task: task(), history_length: Some(2) },
    );
    check(
        "GetTask",
        "a2a.v1.GetTaskRequest",
        json!({ "name": "tasks/a/b" }),
        A2aCall::Get { task: task(), history_length: None },
    );
    check(
        "CancelTask",
        "a2a.v1.CancelTaskRequest",
        json!({ "name": "tasks/a/b" }),
        A2aCall::Cancel { task: task(), metadata: None },
    );
    check(
        "TaskSubscription",
        "a2a.v1.TaskSubscriptionRequest",
        json!({ "name": "tasks/a/b" }),
        A2aCall::Subscribe { task: task() },
    );
    check(
        "GetTaskPushNotificationConfig",
        "a2a.v1.GetTaskPushNotificationConfigRequest",
        json!({ "name": "tasks/a/b/pushNotificationConfigs/c" }),
        A2aCall::GetWebhook { task: task(), id: Some("c".into()) },
    );
    check(
        "GetTaskPushNotificationConfig",
        "a2a.v1.GetTaskPushNotificationConfigRequest",
        json!({ "name": "tasks/a/b" }),
        A2aCall::GetWebhook { task: task(), id: None },
    );
    check(
        "DeleteTaskPushNotificationConfig",
        "a2a.v1.DeleteTaskPushNotificationConfigRequest",
        json!({ "name": "tasks/a/b/pushNotificationConfigs/c" }),
        A2aCall::DeleteWebhook { task: task(), id: "c".into() },
    );
    check(
        "ListTaskPushNotificationConfig",
        "a2a.v1.ListTaskPushNotificationConfigRequest",
        json!({ "parent": "tasks/a/b", "pageSize": 3, "pageToken": "p" }),
        A2aCall::ListWebhooks { task: task(), page_size: Some(3), page_token: Some("p".into()) },
    );
    let set = json!({ "parent": "tasks/a/b/pushNotificationConfigs", "configId": "c", "config": { "pushNotificationConfig": { "url": "https://x/" } } });
    let call = read(
        &older("CreateTaskPushNotificationConfig"),
        "a2a.v1.CreateTaskPushNotificationConfigRequest",
        &set,
    )
    .unwrap();
    assert!(
        matches!(call, A2aCall::SetWebhook { task, config } if task == "a/b" && config.id == "c" && config.url == "https://x/")
    );
    let send = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "hi" }] }, "configuration": { "blocking": true } });
    let call = read(&older("SendMessage"), "a2a.v1.SendMessageRequest", &send).unwrap();
    assert!(matches!(call, A2aCall::Send(send) if send.blocking && send.message.id == "m"));
}

#[test]
fn what_a_request_lacks_is_named() {
    let refused =
        |method: &GrpcMethod, message: &str, request: Value| read(method, message, &request).unwrap_err();
    assert_eq!(
        refused(&older("GetTask"), "a2a.v1.GetTaskRequest", json!({ "name": "x" })),
        "name: expected tasks/{id}, got \"x\""
    );
    assert_eq!(
        refused(
            &older("GetTask"),
            "a2a.v1.GetTaskRequest",
            json!({ "name": "tasks/x", "historyLength": -1 })
        ),
        "historyLength: expected a number from 0, got -1"
    );
    assert!(refused(&method("GetTask"), "lf.a2a.v1.GetTaskRequest", json!({})).starts_with("id: "));
    assert!(
        refused(&method("SendMessage"), "lf.a2a.v1.SendMessageRequest", json!({})).starts_with("message: ")
    );
    assert!(
        refused(
            &method("SendMessage"),
            "lf.a2a.v1.SendMessageRequest",
            json!({ "message": { "messageId": "m", "role": "ROLE_USER" } })
        )
        .starts_with("message.parts: ")
    );
}

#[test]
fn an_event_carries_its_cursor_beside_its_own_metadata() {
    let method = method("SubscribeToTask");
    let check = |json: Value, payload: &str, metadata: Value| {
        let read: Value = serde_json::from_str(result(&method, &json.to_string(), Some(7)).get()).unwrap();
        assert_eq!(read[payload]["metadata"], metadata, "{json}");
    };
    let cursor = json!({ CURSOR_EXTENSION: "7" });
    check(json!({ "statusUpdate": { "taskId": "t" } }), "statusUpdate", cursor.clone());
    check(json!({ "statusUpdate": {} }), "statusUpdate", cursor.clone());
    check(
        json!({ "artifactUpdate": { "taskId": "t", "artifact": { "metadata": { "a": 1 } } } }),
        "artifactUpdate",
        cursor,
    );
    check(
        json!({ "task": { "id": "t", "metadata": { "own": [1] } } }),
        "task",
        json!({ "own": [1], CURSOR_EXTENSION: "7" }),
    );
}

#[test]
fn errors_have_the_codes_of_their_specification() {
    let code = |dialect: Dialect, problem| dialect.grpc_code(problem);
    for (problem, newer, older) in [
        (A2aProblem::TaskNotFound, GrpcCode::NotFound, GrpcCode::NotFound),
        (A2aProblem::TaskNotCancelable, GrpcCode::FailedPrecondition, GrpcCode::FailedPrecondition),
        (A2aProblem::PushUnsupported, GrpcCode::FailedPrecondition, GrpcCode::Unimplemented),
        (A2aProblem::UnsupportedOperation, GrpcCode::FailedPrecondition, GrpcCode::Unimplemented),
        (A2aProblem::ContentTypeNotSupported, GrpcCode::InvalidArgument, GrpcCode::InvalidArgument),
        (A2aProblem::VersionNotSupported, GrpcCode::FailedPrecondition, GrpcCode::FailedPrecondition),
        (A2aProblem::InvalidParams, GrpcCode::InvalidArgument, GrpcCode::InvalidArgument),
        (A2aProblem::Unauthenticated, GrpcCode::Unauthenticated, GrpcCode::Unauthenticated),
        (A2aProblem::Internal, GrpcCode::Internal, GrpcCode::Internal),
    ] {
        assert_eq!((code(Dialect::V1, problem), code(Dialect::V0_3, problem)), (newer, older), "{problem:?}");
    }
    let fault = Dialect::V1.problem(A2aProblem::TaskNotFound, "Task not found: t").with_detail("taskId", "t");
    let status = Dialect::V1.grpc_status(&fault);
    assert_eq!(status.details[0]["reason"], "TASK_NOT_FOUND");
    assert!(status.write_details().is_some());
}

/// Numbers of `data` and `metadata` are doubles here.
pub(crate) fn with_doubles(json: &str) -> Value {
    fn simplify(value: &mut Value) {
        match value {
            Value::Number(number) => {
                if let Some(number) = number.as_f64() {
                    *value = json!(number);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(simplify),
            Value::Object(members) => members.values_mut().for_each(simplify),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(json).unwrap();
    simplify(&mut value);
    value
}

fn params_of(call: &A2aCall) -> Value {
    with_doubles(&text(|out| assert!(Dialect::V1.write_call(out, call).is_some())))
}

/// What a client reads of a response to a message.
fn sent(json: &str) -> StreamEvent {
    Dialect::V1.read_sent(&RawValue::from_string(with_doubles(json).to_string()).unwrap()).unwrap()
}

/// As deep as JSON may be that an agent sends; the event around it has some levels more.
#[test]
fn an_event_with_deep_data_is_written() {
    let data = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    let event = format!(
        r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{{"artifactId":"a","parts":[{{"data":{data}}}]}}}}}}"#
    );
    let with_metadata = event.replacen(r#""taskId""#, r#""metadata":{"m":1},"taskId""#, 1);
    let limits = ProtobufLimits { max_depth: 200, ..LIMITS };
    let message = protobuf::message("lf.a2a.v1.StreamResponse").unwrap();
    for event in [event, with_metadata] {
        let mut bytes = vec![];
        method("SendStreamingMessage").write_result(&mut bytes, event.as_bytes(), Some(7)).unwrap();
        let read = message.read_text(&bytes, limits).unwrap();
        assert!(read.contains(&data) && read.contains("\"7\""), "{read}");
    }
}

proptest! {
    #[test]
    fn a_call_is_the_same_as_over_json_rpc(call in strategies::call(Dialect::V1)) {
        let mut params = vec![];
        let name = Dialect::V1.write_call(&mut params, &call).unwrap();
        let (method, path) = GrpcMethod::of_call(Dialect::V1, &call).unwrap();
        prop_assert_eq!(path, format!("/lf.a2a.v1.A2AService/{name}"));
        let mut message = vec![];
        method.write_request(&mut message, &params).unwrap();
        let json = method.read_request(&message, LIMITS).unwrap();
        let params = RawValue::from_string(String::from_utf8(params).unwrap()).unwrap();
        let over_json = Dialect::V1.read_call(name, Some(&params)).unwrap();
        prop_assert_eq!(params_of(&method.read_call(&json).unwrap()), params_of(&over_json));
    }

    #[test]
    fn a_task_is_the_same_message_written_straight_and_by_its_json(task in strategies::task(), history_length in 0..3_usize, artifacts in any::<bool>()) {
        let view = TaskDetail { history_length: (history_length > 0).then_some(history_length), artifacts };
        for method in [method("GetTask"), older("GetTask")] {
            let (mut straight, mut by_json) = (vec![], vec![]);
            method.write_task(&mut straight, &task, view).unwrap();
            let json = text(|out| method.dialect.write_task(out, &task, view));
            method.write_result(&mut by_json, json.as_bytes(), None).unwrap();
            prop_assert_eq!(straight, by_json);
        }
        for method in [method("SendMessage"), older("SendMessage")] {
            let (mut straight, mut by_json) = (vec![], vec![]);
            method.write_sent(&mut straight, &task, view).unwrap();
            let json = text(|out| method.dialect.write_sent(out, &task, view));
            method.write_result(&mut by_json, json.as_bytes(), None).unwrap();
            prop_assert_eq!(straight, by_json);
        }
    }

    #[test]
    fn results_and_events_are_the_same_as_over_json_rpc(task in strategies::task(), entry in strategies::entry()) {
        let written = text(|out| Dialect::V1.write_sent(out, &task, TaskDetail::default()));
        let read = result(&method("SendMessage"), &written, None);
        prop_assert_eq!(sent(read.get()), sent(&written));
        let page = TaskListPage { tasks: std::slice::from_ref(&task), view: TaskDetail::default(), page_size: 1, total: 1, next: None };
        let written = text(|out| Dialect::V1.write_list(out, &page));
        let read: Value = serde_json::from_str(result(&method("ListTasks"), &written, None).get()).unwrap();
        prop_assert_eq!(&read["tasks"][0]["id"], &json!(task.origin.public_id()));
        // Every result of 0.3 fits its messages, too.
        for (name, json) in [("GetTask", text(|out| Dialect::V0_3.write_task(out, &task, TaskDetail::default()))), ("SendMessage", text(|out| Dialect::V0_3.write_sent(out, &task, TaskDetail::default())))] {
            result(&older(name), &json, None);
        }
        let ids = TaskIds { task: "t-1", context: "c-1" };
        for dialect in [Dialect::V1, Dialect::V0_3] {
            let mut framed = None;
            let written = raw(|out| {
                framed = dialect.write_event(out, &ids, 3, &entry);
                if framed.is_none() {
                    out.extend_from_slice(b"null");
                }
            });
            if framed.is_none() {
                continue;
            }
            let method = if dialect == Dialect::V1 { method("SubscribeToTask") } else { older("TaskSubscription") };
            let read = result(&method, written.get(), Some(3));
            prop_assert!(read.get().contains("\"3\""), "{}", read);
        }
    }
}
