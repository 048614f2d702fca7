//! Reading requests: what is taken, and in which words the rest is refused.

use nuncio_engine::{
    clock::Timestamp,
    content::{Content, Part},
    task::State,
};
use nuncio_wire::a2a::{A2aCall, A2aFault, A2aProblem, Dialect, ListTasks, SendMessage};
use serde_json::{Value, json, value::to_raw_value};

use Dialect::{V0_1, V0_3, V1};

fn read(dialect: Dialect, method: &str, params: &Value) -> Result<A2aCall, A2aFault> {
    dialect.read_call(method, Some(&to_raw_value(params).unwrap()))
}

fn sent(dialect: Dialect, params: &Value) -> SendMessage {
    let method = [(V0_1, "tasks/send"), (V0_3, "message/send"), (V1, "SendMessage")];
    let (_, method) = method.into_iter().find(|(of, _)| *of == dialect).unwrap();
    match read(dialect, method, params) {
        Ok(A2aCall::Send(send)) => *send,
        other => panic!("{params}: {other:?}"),
    }
}

fn refused(dialect: Dialect, method: &str, params: &Value, message: &str) {
    let fault = read(dialect, method, params).expect_err(&params.to_string());
    assert_eq!((fault.problem, fault.code), (A2aProblem::InvalidParams, -32602), "{params}");
    assert_eq!(fault.message, message, "{params}");
}

/// A 1.0 message with one part.
fn with_part(part: &Value) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [part] } })
}

#[test]
fn what_is_wrong_with_a_message_is_said_with_its_place() {
    let check = |params: Value, message| refused(V1, "SendMessage", &params, message);
    check(json!({}), "params.message: is required");
    check(json!([]), "params: expected an object");
    check(json!("text"), "params: expected an object");
    check(json!({ "message": "hi" }), "params.message: invalid type: string \"hi\", expected an object");
    check(
        json!({ "message": { "role": "ROLE_USER", "parts": [{ "text": "" }] } }),
        "params.message.messageId: is required",
    );
    check(
        json!({ "message": { "messageId": "", "role": "ROLE_USER", "parts": [{ "text": "" }] } }),
        "params.message.messageId: is required",
    );
    check(
        json!({ "message": { "messageId": 5, "role": "ROLE_USER", "parts": [{ "text": "" }] } }),
        "params.message.messageId: invalid type: integer `5`, expected a string",
    );
    check(
        json!({ "message": { "messageId": "m", "parts": [{ "text": "" }] } }),
        "params.message.role: is required",
    );
    for role in [json!("user"), json!("ROLE_UNSPECIFIED"), json!(0), json!(3)] {
        check(
            json!({ "message": { "messageId": "m", "role": role, "parts": [{ "text": "" }] } }),
            "params.message.role: expected \"ROLE_USER\" or \"ROLE_AGENT\"",
        );
    }
    let no_parts = "params.message.parts: a message needs at least one part";
    check(json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [] } }), no_parts);
    check(json!({ "message": { "messageId": "m", "role": "ROLE_USER" } }), no_parts);
    check(
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": "invalid" } }),
        "params.message.parts: invalid type: string \"invalid\", expected a sequence",
    );
}

#[test]
fn what_is_wrong_with_a_part_is_said_with_its_place() {
    let check = |part: Value, message| refused(V1, "SendMessage", &with_part(&part), message);
    check(json!({}), "params.message.parts[0]: a part needs one of text, raw, url, data");
    check(json!({ "kind": "text" }), "params.message.parts[0]: a part needs one of text, raw, url, data");
    check(
        json!({ "text": "a", "url": "b" }),
        "params.message.parts[0]: a part has only one of text, raw, url, data",
    );
    check(
        json!({ "text": null, "raw": null }),
        "params.message.parts[0]: a part needs one of text, raw, url, data",
    );
    check(json!({ "text": 1 }), "params.message.parts[0].text: invalid type: integer `1`, expected a string");
    check(json!({ "raw": "*" }), "params.message.parts[0].raw: not base64: Invalid symbol 42, offset 0.");
    check(
        json!({ "text": "", "metadata": 1 }),
        "params.message.parts[0].metadata: invalid type: integer `1`, expected a map",
    );

    let check = |part: Value, message| {
        let params =
            json!({ "message": { "messageId": "m", "role": "user", "parts": [{ "text": "" }, part] } });
        refused(V0_3, "message/send", &params, message);
        let params = json!({ "id": "t", "message": { "role": "user", "parts": [{ "text": "" }, part] } });
        refused(V0_1, "tasks/send", &params, message);
    };
    check(json!({}), "params.message.parts[1]: a part needs one of text, file, data");
    check(
        json!({ "kind": "video" }),
        "params.message.parts[1]: the kind of a part is text, file or data, not \"video\"",
    );
    check(json!({ "kind": "text" }), "params.message.parts[1]: a text part needs the member text");
    check(
        json!({ "type": "file", "text": "" }),
        "params.message.parts[1]: a file part needs the member file",
    );
    check(
        json!({ "kind": "file", "file": {} }),
        "params.message.parts[1].file: a file needs one of bytes, uri",
    );
    check(
        json!({ "kind": "file", "file": { "bytes": "", "uri": "u" } }),
        "params.message.parts[1].file: a file has only one of bytes, uri",
    );
    check(json!({ "kind": "data", "data": [1] }), "params.message.parts[1].data: expected an object");
}

#[test]
fn the_rest_of_a_request_is_checked_as_well() {
    let configured = |configuration: Value| {
        let mut params = with_part(&json!({ "text": "" }));
        params["configuration"] = configuration;
        params
    };
    let check = |params: Value, message| refused(V1, "SendMessage", &params, message);
    check(
        configured(json!({ "historyLength": -1 })),
        "params.configuration.historyLength: expected a number from 0, got -1",
    );
    check(
        configured(json!({ "returnImmediately": "yes" })),
        "params.configuration.returnImmediately: invalid type: string \"yes\", expected a boolean",
    );
    check(
        configured(json!({ "taskPushNotificationConfig": { "token": "t" } })),
        "params.configuration.taskPushNotificationConfig.url: is required",
    );
    check(
        configured(json!({ "taskPushNotificationConfig": { "url": "u", "authentication": {} } })),
        "params.configuration.taskPushNotificationConfig.authentication.scheme: is required",
    );
    refused(V1, "GetTask", &json!({}), "params.id: is required");
    refused(
        V1,
        "GetTask",
        &json!({ "id": "t", "historyLength": -5 }),
        "params.historyLength: expected a number from 0, got -5",
    );
    refused(
        V1,
        "GetTask",
        &json!({ "id": "t", "historyLength": 1.5 }),
        "params.historyLength: invalid value: floating point `1.5`, expected a whole number",
    );
    refused(V1, "GetTaskPushNotificationConfig", &json!({ "taskId": "t" }), "params.id: is required");
    refused(V1, "DeleteTaskPushNotificationConfig", &json!({ "id": "c" }), "params.taskId: is required");
    refused(
        V0_3,
        "tasks/pushNotificationConfig/delete",
        &json!({ "id": "t" }),
        "params.pushNotificationConfigId: is required",
    );
    refused(
        V0_3,
        "tasks/pushNotificationConfig/set",
        &json!({ "taskId": "t" }),
        "params.pushNotificationConfig: is required",
    );
    refused(
        V0_1,
        "tasks/send",
        &json!({ "message": { "role": "user", "parts": [{ "text": "" }] } }),
        "params.id: is required",
    );
    for size in [0, -1, 101] {
        refused(
            V1,
            "ListTasks",
            &json!({ "pageSize": size }),
            &format!("params.pageSize: expected 1 to 100, got {size}"),
        );
    }
    let fault = read(V1, "ListTasks", &json!({ "status": "TASK_STATE_RUNNING" })).unwrap_err();
    assert!(
        fault.message.starts_with("params.status: expected one of TASK_STATE_SUBMITTED, "),
        "{}",
        fault.message
    );
    assert_eq!(fault.field.as_deref(), Some("status"));
}

#[test]
fn proto_json_may_spell_things_in_several_ways() {
    let plain = sent(
        V1,
        &json!({
            "message": {
                "messageId": "m", "taskId": "t", "contextId": "c", "role": "ROLE_USER",
                "parts": [{ "text": "hi", "mediaType": "text/plain" }, { "raw": "+/8=" }],
                "referenceTaskIds": ["r"],
            },
            "configuration": { "historyLength": 2, "returnImmediately": true, "acceptedOutputModes": ["a/b"] },
        }),
    );
    let spelled = sent(
        V1,
        &json!({
            "message": {
                "message_id": "m", "task_id": "t", "context_id": "c", "role": 1, "metadata": null, "extensions": null,
                "parts": [{ "text": "hi", "media_type": "text/plain", "raw": null }, { "raw": "-_8" }],
                "reference_task_ids": ["r"], "unheardOf": { "x": [1] },
            },
            "configuration": { "history_length": "2", "return_immediately": true, "accepted_output_modes": ["a/b"], "blocking": true },
            "tenant": "", "unheardOf": 1,
        }),
    );
    assert_eq!(plain, spelled);
    assert_eq!(plain.message.parts[1], Part::from(Content::Bytes(vec![0xfb, 0xff])));
    assert!(!plain.blocking);

    let list = read(
        V1,
        "ListTasks",
        &json!({
            "context_id": "c", "status": 6, "page_size": 7.0, "statusTimestampAfter": "2024-03-15T14:00:00+02:00",
        }),
    );
    let expected = ListTasks {
        context: Some("c".to_owned()),
        state: Some(State::InputRequired),
        page_size: 7,
        since: Some(Timestamp(1_710_504_000_000)),
        ..ListTasks::default()
    };
    assert_eq!(list, Ok(A2aCall::List(expected)));
    let nothing = json!({ "contextId": "", "status": "TASK_STATE_UNSPECIFIED", "pageToken": "", "historyLength": null });
    assert_eq!(read(V1, "ListTasks", &nothing), Ok(A2aCall::List(ListTasks::default())));
    assert_eq!(V1.read_call("ListTasks", None), Ok(A2aCall::List(ListTasks::default())));
    assert_eq!(V1.read_call("GetExtendedAgentCard", None), Ok(A2aCall::ExtendedCard));
}

#[test]
fn empty_ids_are_no_ids() {
    let send = sent(
        V1,
        &json!({ "message": { "messageId": "m", "taskId": "", "contextId": "", "role": 1, "parts": [{ "text": "" }] } }),
    );
    assert_eq!((send.task_id, send.context_id), (None, None));
}

#[test]
fn null_is_data() {
    let send = sent(V1, &with_part(&json!({ "data": null })));
    assert_eq!(send.message.parts, [Part::data(Value::Null)]);
}

#[test]
fn the_role_of_the_agent_is_not_the_clients() {
    for (dialect, method, roles) in [
        (V0_1, "tasks/send", [json!("user"), json!("agent")]),
        (V0_3, "message/send", [json!("user"), json!("agent")]),
        (V1, "SendMessage", [json!("ROLE_USER"), json!("ROLE_AGENT")]),
        // ProtoJSON allows the number, too.
        (V1, "SendStreamingMessage", [json!(1), json!(2)]),
    ] {
        let [of_user, of_agent] = roles.map(|role| {
            let message = json!({ "messageId": "m", "role": role, "parts": [{ "text": "" }] });
            read(dialect, method, &json!({ "id": "t", "message": message }))
        });
        assert!(of_user.is_ok(), "{dialect:?}: {of_user:?}");
        let fault = of_agent.unwrap_err();
        assert_eq!((fault.code, fault.field.as_deref()), (-32602, Some("message.role")), "{dialect:?}");
    }
}

#[test]
fn kinds_may_be_left_out_before_1_0() {
    let bare = json!([{ "text": "a" }, { "file": { "uri": "u", "mimeType": "m", "name": "n" } }, { "data": { "x": 1 } }]);
    let tagged = |tag: &str| {
        let mut parts = bare.clone();
        for (part, kind) in parts.as_array_mut().unwrap().iter_mut().zip(["text", "file", "data"]) {
            part[tag] = json!(kind);
        }
        parts
    };
    let sent_0_3 = |parts: Value| {
        sent(V0_3, &json!({ "message": { "messageId": "m", "role": "user", "parts": parts } })).message
    };
    let sent_0_1 = |parts: Value| {
        sent(V0_1, &json!({ "id": "t", "message": { "role": "user", "parts": parts } })).message
    };
    let expected = sent_0_3(tagged("kind")).parts;
    for parts in [bare.clone(), tagged("kind"), tagged("type")] {
        assert_eq!(sent_0_3(parts.clone()).parts, expected);
        assert_eq!(sent_0_1(parts).parts, expected);
    }
}

#[test]
fn waiting_is_the_default_but_for_0_1() {
    let message = |role: &str| json!({ "messageId": "m", "role": role, "parts": [{ "text": "" }] });
    assert!(sent(V1, &json!({ "message": message("ROLE_USER") })).blocking);
    assert!(sent(V0_3, &json!({ "message": message("user") })).blocking);
    assert!(
        !sent(V0_3, &json!({ "message": message("user"), "configuration": { "blocking": false } })).blocking
    );
    let first =
        sent(V0_1, &json!({ "id": "t", "sessionId": "s", "message": message("user"), "historyLength": 4 }));
    assert!(!first.blocking);
    assert_eq!((first.client_task_id.as_deref(), first.task_id), (Some("t"), None));
    assert_eq!((first.context_id.as_deref(), first.history_length), (Some("s"), Some(4)));
    assert_eq!(first.message.id, "");
}

#[test]
fn webhooks_are_registered_in_the_dialect_of_the_request() {
    let configs = [
        (
            V0_1,
            "tasks/pushNotification/set",
            json!({ "id": "t", "pushNotificationConfig": { "url": "u", "authentication": { "schemes": ["A", "B"] } } }),
        ),
        (
            V0_3,
            "tasks/pushNotificationConfig/set",
            json!({ "taskId": "t", "pushNotificationConfig": { "url": "u", "authentication": { "schemes": ["A", "B"] } } }),
        ),
        (
            V1,
            "CreateTaskPushNotificationConfig",
            json!({ "taskId": "t", "url": "u", "authentication": { "scheme": "A" } }),
        ),
    ];
    for (dialect, method, params) in configs {
        let Ok(A2aCall::SetWebhook { task, config }) = read(dialect, method, &params) else {
            panic!("{params}")
        };
        assert_eq!((&*task, &*config.url, &*config.id, &*config.dialect), ("t", "u", "", dialect.name()));
        assert_eq!(config.authentication.unwrap().schemes[0], "A");
    }
}
