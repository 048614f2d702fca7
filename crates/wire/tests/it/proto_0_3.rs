//! 0.3 over REST and gRPC: what a client writes a server reads, and the other way round, but for the losses that are listed.

use nuncio_engine::event::Entry;
use nuncio_wire::{
    a2a::{
        A2aCall, Dialect, GrpcMethod, RestOperation, RestRequest, StreamEvent, TaskDetail, TaskIds, TaskView,
    },
    protobuf::ProtobufLimits,
};
use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use crate::{grpc::with_doubles, losses::proto_0_3 as losses, raw, strategies, text};

const DIALECT: Dialect = Dialect::V0_3;
const LIMITS: ProtobufLimits = ProtobufLimits { max_depth: 64, max_json_bytes: 1 << 22 };
const IDS: TaskIds<'static> = TaskIds { task: "t-1", context: "c-1" };

fn as_raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

/// Numbers of `data` and `metadata` are doubles over gRPC.
fn doubles(json: &RawValue) -> Box<RawValue> {
    as_raw(&with_doubles(json.get()))
}

fn get() -> A2aCall {
    A2aCall::Get { task: IDS.task.to_owned(), history_length: None }
}

/// What a client gets as the result of a call, if the server's dialect wrote this: over REST, and over gRPC.
fn results(call: &A2aCall, json: &RawValue) -> [Box<RawValue>; 2] {
    let wrapped = matches!(call, A2aCall::Send(_) | A2aCall::Stream(_) | A2aCall::Subscribe { .. });
    let rest = raw(|out| DIALECT.write_rest_result(out, json.get().as_bytes(), wrapped));
    let (method, _) = GrpcMethod::of_call(DIALECT, call).unwrap();
    let mut message = vec![];
    method.write_result(&mut message, json.get().as_bytes(), None).unwrap();
    let grpc = method.read_response(&message, LIMITS).unwrap();
    [rest, grpc].map(|json| DIALECT.read_rest_result(call, json).unwrap())
}

/// A call as the server reads it, over REST; `None` for those that have no body.
fn over_rest(call: &A2aCall, request: &str) -> Option<A2aCall> {
    let operation = match call.clone() {
        A2aCall::Send(_) => RestOperation::Send,
        A2aCall::Stream(_) => RestOperation::Stream,
        A2aCall::Cancel { task, .. } => RestOperation::Cancel { task },
        A2aCall::SetWebhook { task, .. } => RestOperation::SetWebhook { task },
        _ => return None,
    };
    let request = RestRequest { operation, query: "", body: request.as_bytes() };
    Some(request.read_call(DIALECT, 100).unwrap())
}

fn over_grpc(call: &A2aCall, request: &str) -> A2aCall {
    let (method, path) = GrpcMethod::of_call(DIALECT, call).unwrap();
    assert!(path.starts_with("/a2a.v1.A2AService/"), "{path}");
    let mut message = vec![];
    method.write_request(&mut message, request.as_bytes()).unwrap();
    method.read_call(&method.read_request(&message, LIMITS).unwrap()).unwrap()
}

/// The params of JSON-RPC, with doubles: what tells two calls apart.
fn params_of(call: &A2aCall) -> Value {
    with_doubles(&text(|out| assert!(DIALECT.write_call(out, call).is_some())))
}

#[test]
fn a_request_is_what_the_official_clients_send() {
    let check = |call: &A2aCall, expected: Value| {
        let written = text(|out| assert!(DIALECT.write_rest_request(out, call)));
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), expected);
    };
    let task = || "7".to_owned();
    check(
        &A2aCall::Get { task: task(), history_length: Some(2) },
        json!({ "name": "tasks/7", "historyLength": 2 }),
    );
    check(&A2aCall::Cancel { task: task(), metadata: None }, json!({ "name": "tasks/7" }));
    check(
        &A2aCall::GetWebhook { task: task(), id: Some("c".into()) },
        json!({ "name": "tasks/7/pushNotificationConfigs/c" }),
    );
    let params = json!({
        "message": {
            "kind": "message", "messageId": "m", "role": "user", "taskId": "7", "referenceTaskIds": ["5"],
            "parts": [
                { "kind": "text", "text": "hi", "metadata": { "a": 1 } },
                { "kind": "file", "file": { "bytes": "aGk=", "mimeType": "text/plain", "name": "n" } },
                { "kind": "data", "data": { "x": 1 } },
            ],
        },
        "configuration": { "blocking": true, "pushNotificationConfig": { "url": "https://x/" } },
    });
    let call = DIALECT.read_call("message/send", Some(&as_raw(&params))).unwrap();
    check(
        &call,
        json!({
            "message": {
                "messageId": "m", "taskId": "7", "role": "ROLE_USER",
                "content": [
                    { "text": "hi", "metadata": { "a": 1 } },
                    { "file": { "fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "n" } },
                    { "data": { "data": { "x": 1 } } },
                ],
            },
            "configuration": { "blocking": true, "pushNotification": { "url": "https://x/" } },
        }),
    );
    let params = json!({ "taskId": "7", "pushNotificationConfig": { "id": "c", "url": "https://x/" } });
    let call = DIALECT.read_call("tasks/pushNotificationConfig/set", Some(&as_raw(&params))).unwrap();
    check(
        &call,
        json!({
            "parent": "tasks/7", "configId": "c",
            "config": {
                "name": "tasks/7/pushNotificationConfigs/c",
                "pushNotificationConfig": { "id": "c", "url": "https://x/" },
            },
        }),
    );
    for dialect in [Dialect::V0_1, DIALECT] {
        assert!(
            !dialect.write_rest_request(&mut vec![], &A2aCall::List(nuncio_wire::a2a::ListTasks::default()))
        );
    }
}

/// What others write: defaults left out, numbers for names, the names of fields, and the form of JSON-RPC.
#[test]
fn results_of_other_servers_are_read() {
    let read = |call: &A2aCall, json: Value| -> Value {
        let read = DIALECT.read_rest_result(call, as_raw(&json)).unwrap();
        serde_json::from_str(read.get()).unwrap()
    };
    let task = |json: Value| DIALECT.read_task(&as_raw(&read(&get(), json))).unwrap();
    let unset = task(json!({ "id": "t", "status": {} }));
    assert_eq!(unset.unknown_state.as_deref(), Some("unknown"));
    assert_eq!(
        task(json!({ "id": "t", "status": { "state": 5 } })).state,
        nuncio_engine::task::State::Canceled
    );
    let said = task(
        json!({ "id": "t", "status": { "state": "TASK_STATE_WORKING", "update": { "messageId": "m", "content": [{ "text": "x" }] } } }),
    );
    assert_eq!(said.message.unwrap().parts.len(), 1);
    let plain = json!({ "kind": "task", "id": "t", "status": { "state": "working" } });
    assert_eq!(read(&get(), plain.clone()), plain);

    let event =
        |json: Value| DIALECT.read_rest_event(as_raw(&json)).map(|read| DIALECT.read_event(&read).unwrap());
    let answer = event(json!({ "msg": { "messageId": "m", "content": [{ "text": "x" }] } })).unwrap();
    assert!(matches!(answer, StreamEvent::Message(_)));
    let update = event(
        json!({ "status_update": { "taskId": "t", "status": { "state": "TASK_STATE_FAILED" }, "final": true } }),
    );
    assert!(matches!(update.unwrap(), StreamEvent::Status(update) if update.last));
    let update = event(json!({ "artifact_update": { "taskId": "t", "artifact": { "artifactId": "a" } } }));
    assert!(matches!(update.unwrap(), StreamEvent::Artifact(_)));
    assert!(event(plain).is_ok());
    assert!(event(json!({ "something": {} })).is_err());
    assert!(event(json!([])).is_err());

    let one = A2aCall::GetWebhook { task: "t".into(), id: Some("c".into()) };
    let hook = json!({ "pushNotificationConfig": { "url": "https://x/", "authentication": {} } });
    let (of, config) = DIALECT.read_webhook(&as_raw(&read(&one, hook))).unwrap();
    assert_eq!((of.as_str(), config.authentication), ("t", None));
    let named = json!({ "name": "tasks/a/b/pushNotificationConfigs/c", "push_notification_config": { "url": "https://x/" } });
    let (of, config) = DIALECT.read_webhook(&as_raw(&read(&one, named.clone()))).unwrap();
    assert_eq!((of.as_str(), config.id.as_str()), ("a/b", "c"));
    let list = A2aCall::ListWebhooks { task: "t".into(), page_size: None, page_token: None };
    let page = |json: Value| DIALECT.read_webhooks(&as_raw(&read(&list, json))).unwrap();
    assert_eq!(page(json!({})), (vec![], None));
    let (configs, next) = page(json!({ "configs": [named], "nextPageToken": "2" }));
    assert_eq!((configs.len(), next.as_deref()), (1, Some("2")));
}

#[test]
fn a_card_is_read_as_the_other_bindings_have_it() {
    let card = json!({
        "name": "a", "url": "http://a/", "protocolVersion": "0.3.0", "iconUrl": "http://a/i",
        "securitySchemes": { "key": { "type": "apiKey", "name": "X-Key", "in": "header" } },
        "security": [{ "key": [] }],
    });
    let [rest, grpc] = results(&A2aCall::ExtendedCard, &as_raw(&card));
    let value = |json: &RawValue| serde_json::from_str::<Value>(json.get()).unwrap();
    assert_eq!(value(&rest), card);
    assert_eq!(value(&grpc)["securitySchemes"], card["securitySchemes"]);
    assert_eq!(value(&grpc)["security"], card["security"]);
    assert_eq!(value(&grpc)["iconUrl"], card["iconUrl"]);
}

proptest! {
    #[test]
    fn calls(call in strategies::call(DIALECT)) {
        let Some(expected) = losses::call(call.clone(), false) else {
            prop_assert!(!DIALECT.write_rest_request(&mut vec![], &call));
            prop_assert!(GrpcMethod::of_call(DIALECT, &call).is_none());
            return Ok(());
        };
        let request = text(|out| assert!(DIALECT.write_rest_request(out, &call)));
        if let Some(read) = over_rest(&call, &request) {
            prop_assert_eq!(read, expected);
        }
        let read = over_grpc(&call, &request);
        let expected = losses::call(call, true).unwrap();
        prop_assert_eq!(params_of(&read), params_of(&expected));
        if let A2aCall::ListWebhooks { .. } = expected {
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn tasks(task in strategies::task()) {
        let written = raw(|out| DIALECT.write_task(out, &task, TaskDetail::default()));
        let expected = losses::task(TaskView::from(&task));
        let [rest, grpc] = results(&get(), &written);
        prop_assert_eq!(DIALECT.read_task(&rest).unwrap(), expected);
        let expected = losses::task(DIALECT.read_task(&doubles(&written)).unwrap());
        prop_assert_eq!(DIALECT.read_task(&doubles(&grpc)).unwrap(), expected);
    }

    #[test]
    fn events(task in strategies::task(), seq in 1..u64::MAX, entry in strategies::entry()) {
        let subscribe = A2aCall::Subscribe { task: IDS.task.to_owned() };
        let check = |written: &RawValue| {
            let plain = DIALECT.read_event(written).unwrap();
            let [rest, grpc] = results(&subscribe, written);
            assert_eq!(DIALECT.read_event(&rest).unwrap(), losses::event(plain));
            let plain = DIALECT.read_event(&doubles(written)).unwrap();
            assert_eq!(DIALECT.read_event(&doubles(&grpc)).unwrap(), losses::event(plain));
        };
        check(&raw(|out| { DIALECT.write_stream_start(out, &task, TaskDetail::default()); }));
        let mut frame = None;
        let written = text(|out| frame = DIALECT.write_event(out, &IDS, seq, &Entry::clone(&entry)));
        if frame.is_some() {
            check(&RawValue::from_string(written).unwrap());
        }
    }

    #[test]
    fn webhooks(config in strategies::webhook(DIALECT)) {
        let redacted = config.clone().redacted();
        let call = A2aCall::SetWebhook { task: "t-1".into(), config: config.clone() };
        let written = raw(|out| DIALECT.write_webhook(out, "t-1", &config));
        for (read, binary) in results(&call, &written).iter().zip([false, true]) {
            let expected = losses::webhook(redacted.clone(), binary);
            prop_assert_eq!(DIALECT.read_webhook(read).unwrap(), ("t-1".to_owned(), expected));
        }
        let call = A2aCall::ListWebhooks { task: "t-1".into(), page_size: None, page_token: None };
        let written = raw(|out| DIALECT.write_webhooks(out, "t-1", &[config.clone(), config], None));
        for (read, binary) in results(&call, &written).iter().zip([false, true]) {
            let expected = vec![losses::webhook(redacted.clone(), binary); 2];
            prop_assert_eq!(DIALECT.read_webhooks(read).unwrap(), (expected, None));
        }
    }
}
