//! Every method of every dialect, by hand: the shapes are those of the specifications, and one task is the same
//! task in all of them.

use nuncio_engine::{Caller, Message, Role, Submit};
use nuncio_wire::a2a::{Dialect, TaskDetail};
use serde_json::{Value, json};

use crate::{
    schema_0_1,
    site::{Site, message, request, unique},
    socket::{Events, post},
};

/// A message as it was before 1.0; `kind` is the name of the tag.
fn plain(kind: &str, text: &str) -> Value {
    json!({ "messageId": unique("m"), "role": "user", "parts": [{ kind: "text", "text": text }] })
}

/// The value with every time replaced: only that it is one is checked.
fn timeless(mut value: Value) -> Value {
    fn visit(value: &mut Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(time)) = members.get_mut("timestamp") {
                    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
                    *time = "T".to_owned();
                }
                members.values_mut().for_each(visit);
            }
            Value::Array(items) => items.iter_mut().for_each(visit),
            _ => {}
        }
    }
    visit(&mut value);
    value
}

fn code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {response}"))
}

fn said(response: &Value) -> &str {
    response["error"]["message"].as_str().unwrap()
}

// ---------------------------------------------------------------------------------------------------- 0.1

/// A call of 0.1 without a header; the response satisfies the schema.
async fn call_0_1(site: &Site, method: &str, params: Value) -> Value {
    let response = site.call("", method, params).await;
    schema_0_1::check(
        match method {
            "tasks/send" => "SendTaskResponse",
            "tasks/get" => "GetTaskResponse",
            "tasks/cancel" => "CancelTaskResponse",
            "tasks/pushNotification/set" => "SetTaskPushNotificationResponse",
            "tasks/pushNotification/get" => "GetTaskPushNotificationResponse",
            _ => "SendTaskStreamingResponse",
        },
        &response,
    );
    response
}

async fn results_0_1(mut stream: Events) -> Vec<Value> {
    let mut results = vec![];
    while let Some((_, response)) = stream.next().await {
        schema_0_1::check("SendTaskStreamingResponse", &response);
        assert_eq!(response["id"], 1);
        results.push(timeless(response["result"].clone()));
    }
    results
}

#[tokio::test]
async fn all_of_0_1() {
    let site = Site::new().await;
    let said_hello = json!({ "role": "user", "parts": [{ "type": "text", "text": "hello" }] });
    let send =
        json!({ "id": "t-1", "sessionId": "s-1", "message": plain("type", "hello"), "metadata": { "a": 1 } });
    let done = json!({
        "id": "t-1",
        "sessionId": "s-1",
        "status": { "state": "completed", "timestamp": "T" },
        "artifacts": [{ "parts": [{ "type": "text", "text": "hello" }], "index": 0, "lastChunk": true }],
        "history": [said_hello],
        "metadata": { "a": 1 },
    });
    let sent = call_0_1(&site, "tasks/send", send).await;
    assert_eq!(timeless(sent), json!({ "jsonrpc": "2.0", "id": 1, "result": done }));

    let got = call_0_1(&site, "tasks/get", json!({ "id": "t-1" })).await;
    assert_eq!(timeless(got["result"].clone()), done);
    let mut without_history = done.clone();
    without_history.as_object_mut().unwrap().remove("history");
    let got = call_0_1(&site, "tasks/get", json!({ "id": "t-1", "historyLength": 0 })).await;
    assert_eq!(timeless(got["result"].clone()), without_history);

    let update = |state: &str, last: bool| json!({ "id": "t-2", "status": { "state": state, "timestamp": "T" }, "final": last });
    let send = json!({ "id": "t-2", "message": plain("type", "hello") });
    let stream = site.stream("", "tasks/sendSubscribe", send).await;
    let frames = vec![
        update("submitted", false),
        update("working", false),
        json!({ "id": "t-2", "artifact": done["artifacts"][0] }),
        update("completed", true),
    ];
    assert_eq!(results_0_1(stream).await, frames);
    let again = site.stream("", "tasks/resubscribe", json!({ "id": "t-2" })).await;
    assert_eq!(results_0_1(again).await, frames[3..]);
    let after = [("Last-Event-ID", "2")];
    let rest = site.stream_with(&after, "tasks/resubscribe", json!({ "id": "t-2" })).await;
    assert_eq!(results_0_1(rest).await, frames[2..]);

    let send = json!({ "id": "t-3", "message": plain("type", "wait") });
    let sent = call_0_1(&site, "tasks/send", send).await;
    assert_eq!(sent["result"]["status"]["state"], "working", "long work answers at once");
    let canceled = call_0_1(&site, "tasks/cancel", json!({ "id": "t-3" })).await;
    assert_eq!(canceled["result"]["status"]["state"], "canceled");
    assert_eq!(code(&call_0_1(&site, "tasks/cancel", json!({ "id": "t-3" })).await), -32002);
    assert_eq!(code(&call_0_1(&site, "tasks/cancel", json!({ "id": "nobody" })).await), -32001);
    assert_eq!(code(&call_0_1(&site, "tasks/get", json!({ "id": "nobody" })).await), -32001);

    let hook = json!({
        "url": "https://example.com/hook",
        "token": "t0ken",
        "authentication": { "schemes": ["Bearer"], "credentials": "s3cret" },
    });
    let shown = json!({
        "id": "t-1",
        "pushNotificationConfig": {
            "url": "https://example.com/hook",
            "authentication": { "schemes": ["Bearer"] },
        },
    });
    let set = json!({ "id": "t-1", "pushNotificationConfig": hook });
    assert_eq!(call_0_1(&site, "tasks/pushNotification/set", set).await["result"], shown);
    let got = call_0_1(&site, "tasks/pushNotification/get", json!({ "id": "t-1" })).await;
    assert_eq!(got["result"], shown, "secrets are not read back");
    let got = call_0_1(&site, "tasks/pushNotification/get", json!({ "id": "t-2" })).await;
    assert_eq!(code(&got), -32001);
    assert!(said(&got).contains("\"t-2\" has no push notification config: set one first"), "{got}");
    let send = json!({ "id": "t-4", "message": plain("type", "x"), "pushNotification": hook });
    call_0_1(&site, "tasks/send", send).await;
    let got = call_0_1(&site, "tasks/pushNotification/get", json!({ "id": "t-4" })).await;
    assert_eq!(got["result"]["pushNotificationConfig"], shown["pushNotificationConfig"]);

    for unknown in [
        "tasks/list",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "agent/getAuthenticatedExtendedCard",
    ] {
        assert_eq!(code(&site.call("0.1", unknown, json!({ "id": "t-1" })).await), -32601, "{unknown}");
    }
}

#[tokio::test]
async fn in_0_1_the_id_of_the_client_continues_its_task() {
    let site = Site::new().await;
    let send = |text: &str| json!({ "id": "trip", "message": plain("type", text) });
    call_0_1(&site, "tasks/send", send("ask")).await;
    site.until_state("trip", "INPUT_REQUIRED").await;
    let asked = call_0_1(&site, "tasks/get", json!({ "id": "trip" })).await;
    let question = &asked["result"]["status"]["message"];
    assert_eq!(question["parts"][0], json!({ "type": "text", "text": "Really?" }));
    assert_eq!(question["parts"][1]["data"]["schema"]["required"], json!(["confirm"]));
    // What is no answer changes nothing.
    let refused = call_0_1(&site, "tasks/send", send("perhaps")).await;
    assert_eq!(code(&refused), -32602);
    assert_eq!(call_0_1(&site, "tasks/get", json!({ "id": "trip" })).await["result"], asked["result"]);
    let elsewhere = json!({ "id": "trip", "sessionId": "another", "message": plain("type", "yes") });
    let refused = call_0_1(&site, "tasks/send", elsewhere).await;
    assert_eq!(code(&refused), -32602);
    assert!(said(&refused).contains("another"), "{refused}");

    let answered = call_0_1(&site, "tasks/send", send("yes")).await;
    assert_eq!(answered["result"]["status"]["state"], "working");
    site.until_state("trip", "COMPLETED").await;
    let done = call_0_1(&site, "tasks/get", json!({ "id": "trip" })).await;
    assert_eq!(done["result"]["status"]["message"]["parts"], json!([{ "type": "text", "text": "yes" }]));
    let history: Vec<_> = done["result"]["history"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(history, ["user", "agent", "user"]);
    assert_eq!(site.total().await, 1);

    let refused = call_0_1(&site, "tasks/send", send("more")).await;
    assert_eq!(code(&refused), -32009);
    assert!(said(&refused).contains("start a new task"), "{refused}");
    let refused = call_0_1(&site, "tasks/sendSubscribe", send("more")).await;
    assert_eq!(code(&refused), -32009);

    // The answer can be streamed just as well: what is said from there on, to the end of the turn.
    let send = |text: &str| json!({ "id": "trip-2", "message": plain("type", text) });
    let stream = site.stream("", "tasks/sendSubscribe", send("ask")).await;
    let states = |frames: &[Value]| -> Vec<(String, bool)> {
        let state = |frame: &Value| frame["status"]["state"].as_str().unwrap().to_owned();
        frames.iter().map(|frame| (state(frame), frame["final"].as_bool().unwrap())).collect()
    };
    let expected = [("submitted", false), ("working", false), ("input-required", true)];
    assert_eq!(states(&results_0_1(stream).await), expected.map(|(state, last)| (state.to_owned(), last)));
    let stream = site.stream("", "tasks/sendSubscribe", send("no")).await;
    let expected = [("working", false), ("completed", true)];
    assert_eq!(states(&results_0_1(stream).await), expected.map(|(state, last)| (state.to_owned(), last)));
}

// ---------------------------------------------------------------------------------------------------- 0.3

#[tokio::test]
async fn all_of_0_3() {
    let site = Site::new().await;
    let call = async |method: &str, params: Value| site.call("", method, params).await;
    let said_hello = plain("kind", "hello");
    let done = |task: &Value, message: &Value| {
        json!({
            "kind": "task",
            "id": task["id"],
            "contextId": task["contextId"],
            "status": { "state": "completed", "timestamp": "T" },
            "artifacts": [{ "artifactId": "echo", "parts": [{ "kind": "text", "text": "hello" }] }],
            "history": [{
                "kind": "message",
                "messageId": message["messageId"],
                "contextId": task["contextId"],
                "taskId": task["id"],
                "role": "user",
                "parts": [{ "kind": "text", "text": "hello" }],
            }],
        })
    };
    let sent = call("message/send", json!({ "message": said_hello })).await;
    let task = &sent["result"];
    assert_eq!(
        timeless(sent.clone()),
        json!({ "jsonrpc": "2.0", "id": 1, "result": done(task, &said_hello) })
    );
    assert_eq!(call("tasks/get", json!({ "id": task["id"] })).await, sent);
    let got = call("tasks/get", json!({ "id": task["id"], "historyLength": 0 })).await;
    assert!(got["result"].get("history").is_none());

    let mut stream = site.stream("", "message/stream", json!({ "message": said_hello })).await;
    let mut frames = vec![];
    while let Some((id, response)) = stream.next().await {
        assert_eq!((&response["jsonrpc"], &response["id"]), (&json!("2.0"), &json!(1)));
        frames.push((id.unwrap(), timeless(response["result"].clone())));
    }
    let (first, rest) = frames.split_first().unwrap();
    let update = |kind: &str, members: Value| {
        let ids = json!({ "kind": kind, "taskId": first.1["id"], "contextId": first.1["contextId"] });
        let mut update = ids.as_object().unwrap().clone();
        update.extend(members.as_object().unwrap().clone());
        Value::Object(update)
    };
    let status = |state: &str, last: bool| {
        update("status-update", json!({ "status": { "state": state, "timestamp": "T" }, "final": last }))
    };
    let artifact = done(task, &said_hello)["artifacts"][0].clone();
    assert_eq!(
        (first.0, &first.1["kind"], &first.1["status"]["state"]),
        (1, &json!("task"), &json!("submitted"))
    );
    let expected = [
        (2, status("working", false)),
        (3, update("artifact-update", json!({ "artifact": artifact, "lastChunk": true }))),
        (4, status("completed", true)),
    ];
    assert_eq!(rest, expected);
    let again = site.stream("", "tasks/resubscribe", json!({ "id": first.1["id"] })).await.results().await;
    assert_eq!(again.len(), 1, "a task that has ended, and that is all");
    assert_eq!(timeless(again[0].clone()), done(&first.1, &said_hello));

    let waiting = json!({ "message": plain("kind", "wait"), "configuration": { "blocking": false } });
    let waiting = call("message/send", waiting).await;
    assert_eq!(waiting["result"]["status"]["state"], "working");
    let id = json!({ "id": waiting["result"]["id"] });
    let canceled = call("tasks/cancel", id.clone()).await;
    assert_eq!(
        (&canceled["result"]["kind"], &canceled["result"]["status"]["state"]),
        (&json!("task"), &json!("canceled"))
    );
    assert_eq!(code(&call("tasks/cancel", id).await), -32002);
    assert_eq!(code(&call("tasks/cancel", json!({ "id": "nobody" })).await), -32001);
    assert_eq!(code(&call("tasks/get", json!({ "id": "nobody" })).await), -32001);

    webhooks_of_0_3(&site, &task["id"]).await;

    let extended = call("agent/getAuthenticatedExtendedCard", json!({})).await;
    assert_eq!(code(&extended), -32007);
    assert!(said(&extended).contains("extended card"));
    assert_eq!(code(&site.call("0.3", "tasks/list", json!({})).await), -32601);

    // A message to a task that has ended.
    let mut more = plain("kind", "more");
    more["taskId"] = task["id"].clone();
    let refused = call("message/send", json!({ "message": more })).await;
    assert_eq!(code(&refused), -32602);
    assert!(said(&refused).contains("has ended"), "{refused}");
    more["taskId"] = "nobody".into();
    assert_eq!(code(&call("message/send", json!({ "message": more })).await), -32001);
}

async fn webhooks_of_0_3(site: &Site, task: &Value) {
    let call = async |method: &str, params: Value| {
        site.call("", &format!("tasks/pushNotificationConfig/{method}"), params).await
    };
    let hook = |id: &str| json!({ "id": id, "url": "https://example.com/hook", "token": "t0ken" });
    let shown = |id: &str| json!({ "taskId": task, "pushNotificationConfig": { "id": id, "url": "https://example.com/hook" } });
    for id in ["a", "b"] {
        let set = call("set", json!({ "taskId": task, "pushNotificationConfig": hook(id) })).await;
        assert_eq!(set["result"], shown(id));
    }
    let other = call("get", json!({ "id": task, "pushNotificationConfigId": "c" })).await;
    assert!(said(&other).contains("no push notification config \"c\""), "{other}");
    let unnamed = json!({ "taskId": task, "pushNotificationConfig": { "url": "https://example.com/hook" } });
    let unnamed = call("set", unnamed).await;
    let named = unnamed["result"]["pushNotificationConfig"]["id"].as_str().unwrap();
    let got = call("get", json!({ "id": task, "pushNotificationConfigId": "b" })).await;
    assert_eq!(got["result"], shown("b"));
    assert_eq!(call("get", json!({ "id": task })).await["result"], shown("a"), "any of them");
    let list = call("list", json!({ "id": task })).await;
    assert_eq!(list["result"], json!([shown("a"), shown("b"), shown(named)]));
    let deleted = call("delete", json!({ "id": task, "pushNotificationConfigId": "a" })).await;
    assert_eq!(deleted["result"], json!(null));
    assert!(deleted.as_object().unwrap().contains_key("result"), "null is a result");
    let gone = json!({ "id": task, "pushNotificationConfigId": "a" });
    assert_eq!(call("delete", gone.clone()).await.get("result"), Some(&json!(null)), "as often as one likes");
    assert_eq!(code(&call("get", gone).await), -32001);
    assert_eq!(code(&call("list", json!({ "id": "nobody" })).await), -32001);
}

// ---------------------------------------------------------------------------------------------------- 1.0

#[tokio::test]
async fn all_of_1_0() {
    let site = Site::new().await;
    let call = async |method: &str, params: Value| site.call("1.0", method, params).await;
    let said_hello = message("hello");
    let done = |task: &Value| {
        json!({
            "id": task["id"],
            "contextId": task["contextId"],
            "status": { "state": "TASK_STATE_COMPLETED", "timestamp": "T" },
            "artifacts": [{ "artifactId": "echo", "parts": [{ "text": "hello" }] }],
            "history": [{
                "messageId": said_hello["messageId"],
                "contextId": task["contextId"],
                "taskId": task["id"],
                "role": "ROLE_USER",
                "parts": [{ "text": "hello" }],
            }],
        })
    };
    let sent = call("SendMessage", json!({ "message": said_hello })).await;
    let task = &sent["result"]["task"];
    assert_eq!(
        timeless(sent.clone()),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "task": done(task) } })
    );
    assert_eq!(call("GetTask", json!({ "id": task["id"] })).await["result"], *task);

    let mut stream = site.stream("1.0", "SendStreamingMessage", json!({ "message": said_hello })).await;
    let (_, first) = stream.next().await.unwrap();
    let first = &first["result"]["task"];
    assert_eq!(first["status"]["state"], "TASK_STATE_SUBMITTED");
    let update = |members: Value| {
        let ids = json!({ "taskId": first["id"], "contextId": first["contextId"] });
        let mut update = ids.as_object().unwrap().clone();
        update.extend(members.as_object().unwrap().clone());
        Value::Object(update)
    };
    let status = |state: &str| json!({ "statusUpdate": update(json!({ "status": { "state": state, "timestamp": "T" } })) });
    let artifact = json!({ "artifact": done(first)["artifacts"][0], "lastChunk": true });
    let expected = [
        status("TASK_STATE_WORKING"),
        json!({ "artifactUpdate": update(artifact) }),
        status("TASK_STATE_COMPLETED"),
    ];
    let rest: Vec<_> = stream.results().await.into_iter().map(timeless).collect();
    assert_eq!(rest, expected);
    let ended = call("SubscribeToTask", json!({ "id": first["id"] })).await;
    assert_eq!(code(&ended), -32004);
    assert!(said(&ended).contains("has ended") && said(&ended).contains("Last-Event-ID"), "{ended}");
    let after = [("A2A-Version", "1.0"), ("Last-Event-ID", "3")];
    let rest = site.stream_with(&after, "SubscribeToTask", json!({ "id": first["id"] })).await;
    assert_eq!(timeless(rest.results().await.into()), json!([status("TASK_STATE_COMPLETED")]));

    let waiting = site.begin("wait").await;
    let mut stream = site.stream("1.0", "SubscribeToTask", json!({ "id": waiting })).await;
    let (id, current) = stream.next().await.unwrap();
    assert_eq!(current["result"]["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(id, Some(2), "the id is that of the last event in it");
    let canceled = call("CancelTask", json!({ "id": waiting })).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    let (id, end) = stream.next().await.unwrap();
    assert_eq!(end["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!((id, stream.next().await), (Some(3), None));
    assert_eq!(code(&call("CancelTask", json!({ "id": waiting })).await), -32002);
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let missing = call(method, json!({ "id": "nobody" })).await;
        assert_eq!(
            (code(&missing), &missing["error"]["data"][0]["reason"]),
            (-32001, &json!("TASK_NOT_FOUND"))
        );
    }
    lists_of_1_0(&site).await;
    webhooks_of_1_0(&site, &task["id"]).await;

    let extended = call("GetExtendedAgentCard", json!({})).await;
    assert_eq!(code(&extended), -32004);
    assert_eq!(extended["error"]["data"][0]["reason"], "UNSUPPORTED_OPERATION");

    let mut more = message("more");
    more["taskId"] = task["id"].clone();
    assert_eq!(code(&call("SendMessage", json!({ "message": more })).await), -32004);
    more["taskId"] = "nobody".into();
    assert_eq!(code(&call("SendMessage", json!({ "message": more })).await), -32001);
}

async fn lists_of_1_0(site: &Site) {
    let list = async |params: Value| site.result("1.0", "ListTasks", params).await;
    let mut asking = message("ask");
    asking["contextId"] = "together".into();
    let asking = site.result("1.0", "SendMessage", json!({ "message": asking })).await;
    assert_eq!(asking["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "the turn is over");

    let all = list(json!({})).await;
    assert_eq!(
        (&all["totalSize"], &all["pageSize"], &all["nextPageToken"]),
        (&json!(4), &json!(50), &json!(""))
    );
    let ids = |page: &Value| -> Vec<Value> {
        page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
    };
    assert_eq!(ids(&all)[0], asking["task"]["id"], "the newest first");
    assert!(all["tasks"][0].get("artifacts").is_none());
    let with_artifacts = list(json!({ "includeArtifacts": true, "historyLength": 0 })).await;
    assert_eq!(with_artifacts["tasks"][0]["artifacts"], json!([]));
    assert_eq!(with_artifacts["tasks"][3]["artifacts"][0]["parts"][0]["text"], "hello");
    assert!(with_artifacts["tasks"][0].get("history").is_none());

    let (mut token, mut pages) = (json!(""), vec![]);
    loop {
        let page = list(json!({ "pageSize": 3, "pageToken": token })).await;
        assert_eq!(page["totalSize"], 4);
        pages.extend(ids(&page));
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!(pages, ids(&all));
    for (filter, count) in [
        (json!({ "contextId": "together" }), 1),
        (json!({ "contextId": "nowhere" }), 0),
        (json!({ "status": "TASK_STATE_COMPLETED" }), 2),
        (json!({ "status": "TASK_STATE_CANCELED" }), 1),
        (json!({ "status": "TASK_STATE_COMPLETED", "contextId": "together" }), 0),
        (json!({ "statusTimestampAfter": "2020-01-01T00:00:00Z" }), 4),
        (json!({ "statusTimestampAfter": "2999-01-01T00:00:00Z" }), 0),
    ] {
        let page = list(filter.clone()).await;
        assert_eq!((ids(&page).len(), &page["totalSize"]), (count, &json!(count)), "{filter}");
    }
}

async fn webhooks_of_1_0(site: &Site, task: &Value) {
    let call = async |method: &str, params: Value| site.call("1.0", method, params).await;
    let shown = |id: &str| {
        json!({
            "taskId": task,
            "id": id,
            "url": "https://example.com/hook",
            "authentication": { "scheme": "Bearer" },
        })
    };
    for id in ["a", "b", "c"] {
        let mut config = shown(id);
        config["token"] = "t0ken".into();
        config["authentication"]["credentials"] = "s3cret".into();
        let created = call("CreateTaskPushNotificationConfig", config).await;
        assert_eq!(created["result"], shown(id), "secrets are not read back");
    }
    let got = call("GetTaskPushNotificationConfig", json!({ "taskId": task, "id": "b" })).await;
    assert_eq!(got["result"], shown("b"));
    let list = async |params: Value| call("ListTaskPushNotificationConfigs", params).await["result"].clone();
    let all = json!({ "configs": [shown("a"), shown("b"), shown("c")], "nextPageToken": "" });
    assert_eq!(list(json!({ "taskId": task })).await, all);
    let page = list(json!({ "taskId": task, "pageSize": 2 })).await;
    assert_eq!(page["configs"], json!([shown("a"), shown("b")]));
    let page = list(json!({ "taskId": task, "pageSize": 2, "pageToken": page["nextPageToken"] })).await;
    assert_eq!(page, json!({ "configs": [shown("c")], "nextPageToken": "" }));
    let named = json!({ "taskId": task, "id": "a" });
    let deleted = call("DeleteTaskPushNotificationConfig", named.clone()).await;
    assert_eq!(deleted["result"], json!({}));
    let again = call("DeleteTaskPushNotificationConfig", named.clone()).await;
    assert_eq!(again["result"], json!({}), "as often as one likes");
    assert_eq!(code(&call("GetTaskPushNotificationConfig", named).await), -32001);
}

// ----------------------------------------------------------------------------------------------- together

/// `tasks/get` and its like stand in 0.1 and in 0.3. Without a header the task decides.
#[tokio::test]
async fn without_a_version_the_task_decides_between_0_1_and_0_3() {
    let site = Site::new().await;
    let make = async |version: &str, method: &str, params: Value| {
        let sent = site.result(version, method, params).await;
        sent.get("task").unwrap_or(&sent)["id"].as_str().unwrap().to_owned()
    };
    for (made_in, kind) in [("0.1", None), ("0.3", Some("task")), ("1.0", Some("task"))] {
        let begin = async || match made_in {
            "0.1" => {
                make("", "tasks/send", json!({ "id": unique("t"), "message": plain("type", "wait") })).await
            }
            "0.3" => {
                let message = plain("kind", "wait");
                let params = json!({ "message": message, "configuration": { "blocking": false } });
                make("", "message/send", params).await
            }
            _ => site.begin("wait").await,
        };
        let task = begin().await;
        let got = site.result("", "tasks/get", json!({ "id": task })).await;
        assert_eq!(got.get("kind").and_then(Value::as_str), kind, "made in {made_in}: {got}");
        assert_eq!(got.get("sessionId").is_some(), kind.is_none());
        let mut stream = site.stream("", "tasks/resubscribe", json!({ "id": task })).await;
        let (_, first) = stream.next().await.unwrap();
        assert_eq!(first["result"].get("kind").and_then(Value::as_str), kind, "made in {made_in}: {first}");
        let canceled = site.result("", "tasks/cancel", json!({ "id": task })).await;
        assert_eq!(canceled.get("kind").and_then(Value::as_str), kind, "made in {made_in}: {canceled}");
        // So do errors: in 0.1 they have details of their own shape, and codes.
        let refused = site.call("", "tasks/cancel", json!({ "id": task })).await;
        assert_eq!(code(&refused), -32002);
        // A version that is named counts more.
        for (version, kind) in [("0.1", None), ("0.3", Some("task"))] {
            let got = site.result(version, "tasks/get", json!({ "id": task })).await;
            assert_eq!(got.get("kind").and_then(Value::as_str), kind);
        }
    }
    let missing = site.call("", "tasks/get", json!({ "id": "nobody" })).await;
    assert_eq!((code(&missing), &missing["error"]["data"]), (-32001, &json!({ "taskId": "nobody" })));
}

/// What was begun in one dialect is the same task, under the same id, in the others: to read, and to answer.
#[tokio::test]
async fn a_task_is_the_same_in_every_dialect() {
    let site = Site::new().await;
    let ask = |kind: &str| plain(kind, "ask");
    let begun = [
        site.result("", "tasks/send", json!({ "id": "mine", "message": ask("type") })).await["id"].clone(),
        site.result("", "message/send", json!({ "message": ask("kind") })).await["id"].clone(),
        site.result("1.0", "SendMessage", json!({ "message": message("ask") })).await["task"]["id"].clone(),
    ];
    for (n, task) in begun.iter().enumerate() {
        let id = task.as_str().unwrap();
        site.until_state(id, "INPUT_REQUIRED").await;
        let views = [("0.1", "tasks/get"), ("0.3", "tasks/get"), ("1.0", "GetTask")];
        let mut contexts = vec![];
        for (version, method) in views {
            let got = site.result(version, method, json!({ "id": id })).await;
            assert_eq!(got["id"], *task);
            let question = &got["status"]["message"]["parts"];
            assert_eq!(
                (&question[0]["text"], &question[1]["data"]["questionId"]),
                (&json!("Really?"), &json!("q1"))
            );
            contexts.push(got[if version == "0.1" { "sessionId" } else { "contextId" }].clone());
        }
        assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
        // Answered in the next dialect, which never saw it before.
        let answered = match n {
            0 => {
                let mut answer = plain("kind", "yes");
                answer["taskId"] = task.clone();
                site.result("", "message/send", json!({ "message": answer })).await
            }
            1 => {
                let mut answer = message("yes");
                (answer["taskId"], answer["contextId"]) = (task.clone(), contexts[0].clone());
                site.result("1.0", "SendMessage", json!({ "message": answer })).await["task"].clone()
            }
            _ => {
                let params = json!({ "id": task, "message": plain("type", "yes") });
                site.result("", "tasks/send", params).await;
                site.until_state(id, "COMPLETED").await
            }
        };
        assert_eq!(answered["id"], *task);
        assert_eq!(answered["status"]["message"]["parts"][0]["text"], "yes");
    }
    assert_eq!(site.total().await, 3);
}

#[tokio::test]
async fn a_task_belongs_to_its_context() {
    let site = Site::new().await;
    let asked = site.result("1.0", "SendMessage", json!({ "message": message("ask") })).await;
    let task = &asked["task"];
    for (version, method, mut answer) in
        [("1.0", "SendMessage", message("yes")), ("0.3", "message/send", plain("kind", "yes"))]
    {
        answer["taskId"] = task["id"].clone();
        answer["contextId"] = "elsewhere".into();
        let refused = site.call(version, method, json!({ "message": answer })).await;
        assert_eq!(code(&refused), -32602, "{version}");
        for word in ["contextId", "elsewhere", task["contextId"].as_str().unwrap()] {
            assert!(said(&refused).contains(word), "{refused}");
        }
    }
    assert_eq!(site.result("1.0", "GetTask", json!({ "id": task["id"] })).await, *task, "nothing was heard");
    let mut answer = message("yes");
    answer["taskId"] = task["id"].clone();
    answer["contextId"] = task["contextId"].clone();
    let done = site.result("1.0", "SendMessage", json!({ "message": answer })).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED");

    // A context holds several tasks, of whatever dialect.
    let context = &task["contextId"];
    let mut more = plain("kind", "more");
    more["contextId"] = context.clone();
    let more = site.result("", "message/send", json!({ "message": more })).await;
    let oldest = json!({ "id": "old", "sessionId": context, "message": plain("type", "old") });
    site.result("", "tasks/send", oldest).await;
    let list = site.result("1.0", "ListTasks", json!({ "contextId": context })).await;
    let ids: Vec<_> = list["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(ids, [&json!("old"), &more["id"], &task["id"]]);
}

#[tokio::test]
async fn a_history_is_as_long_as_it_is_asked_for() {
    let site = Site::new().await;
    let asked = site.result("1.0", "SendMessage", json!({ "message": message("ask") })).await;
    let mut answer = message("yes");
    answer["taskId"] = asked["task"]["id"].clone();
    let configuration = json!({ "historyLength": 1 });
    let done =
        site.result("1.0", "SendMessage", json!({ "message": answer, "configuration": configuration })).await;
    let texts = |task: &Value| -> Vec<Value> {
        let history = task.get("history").map_or(&[][..], |history| history.as_array().unwrap());
        history.iter().map(|message| message["parts"][0]["text"].clone()).collect()
    };
    assert_eq!(texts(&done["task"]), ["yes"]);
    let whole = ["ask", "Really?", "yes"];
    for (length, from) in [(0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (1 << 30, 0)] {
        for (version, method) in [("0.1", "tasks/get"), ("0.3", "tasks/get"), ("1.0", "GetTask")] {
            let params = json!({ "id": asked["task"]["id"], "historyLength": length });
            assert_eq!(
                texts(&site.result(version, method, params).await),
                whole[from..],
                "{version} {length}"
            );
        }
        let list = site.result("1.0", "ListTasks", json!({ "historyLength": length })).await;
        assert_eq!(texts(&list["tasks"][0]), whole[from..], "{length}");
    }
    let sent = json!({ "message": message("x"), "configuration": { "historyLength": 0 } });
    assert_eq!(texts(&site.result("1.0", "SendMessage", sent).await["task"]), [Value::Null; 0]);
}

#[tokio::test]
async fn a_send_waits_for_the_turn_unless_it_is_told_not_to() {
    let site = Site::new().await;
    for (version, method, configuration) in [
        ("1.0", "SendMessage", json!({ "returnImmediately": true })),
        ("0.3", "message/send", json!({ "blocking": false })),
    ] {
        let send = |text: &str, configuration: &Value| {
            let message = if version == "1.0" { message(text) } else { plain("kind", text) };
            json!({ "message": message, "configuration": configuration })
        };
        let state = |result: &Value| {
            let state = result.get("task").unwrap_or(result)["status"]["state"].as_str().unwrap();
            state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
        };
        let at_once = site.result(version, method, send("wait", &configuration)).await;
        assert_eq!(state(&at_once), "working");
        let asked = site.result(version, method, send("ask", &json!({}))).await;
        assert_eq!(state(&asked), "input-required");
        let done = site.result(version, method, send("chunks 700", &json!({}))).await;
        assert_eq!(state(&done), "completed");

        // It waits for as long as it takes: here, until somebody cancels.
        let before = site.total().await;
        let blocking = site.result(version, method, send("wait", &json!({})));
        let canceling = async {
            let mut task = json!(null);
            while task.is_null() {
                let list = site.result("1.0", "ListTasks", json!({ "pageSize": 1 })).await;
                if list["totalSize"].as_u64().unwrap() > before {
                    task = list["tasks"][0]["id"].clone();
                }
            }
            site.result("1.0", "CancelTask", json!({ "id": task })).await;
        };
        let (done, ()) = tokio::join!(blocking, canceling);
        assert_eq!(state(&done), "canceled");
    }
}

#[tokio::test]
async fn an_agent_that_makes_nothing_that_is_accepted_is_not_asked() {
    let site = Site::new().await;
    for (version, method) in [("1.0", "SendMessage"), ("0.3", "message/send")] {
        let send = |modes: Value| {
            let message = if version == "1.0" { message("x") } else { plain("kind", "x") };
            json!({ "message": message, "configuration": { "acceptedOutputModes": modes } })
        };
        let before = site.total().await;
        let refused = site.call(version, method, send(json!(["image/png", "audio/*"]))).await;
        assert_eq!(code(&refused), -32005, "{refused}");
        for word in ["text/plain", "image/png"] {
            assert!(said(&refused).contains(word), "{refused}");
        }
        assert_eq!(site.total().await, before);
        for modes in
            [json!([]), json!(["image/png", "text/plain"]), json!(["text/*"]), json!(["TEXT/PLAIN; q=1"])]
        {
            site.result(version, method, send(modes)).await;
        }
    }
    let mut picture = message("x");
    picture["parts"] = json!([{ "url": "https://example.com/x.png", "mediaType": "image/png" }]);
    let refused = site.call("1.0", "SendMessage", json!({ "message": picture })).await;
    assert_eq!((code(&refused), said(&refused).contains("not image/png")), (-32005, true), "{refused}");
}

#[tokio::test]
async fn what_a_message_refers_to_is_kept() {
    let site = Site::new().await;
    let mut sent = message("x");
    sent["referenceTaskIds"] = json!(["t-1", "not one of ours"]);
    sent["extensions"] = json!(["https://example.com/extension"]);
    sent["metadata"] = json!({ "deep": { "er": [1, null, 1.5, "é\u{1f600}"] } });
    let task = site.result("1.0", "SendMessage", json!({ "message": sent, "metadata": { "a": 1 } })).await;
    let id = &task["task"]["id"];
    for (version, method) in [("0.3", "tasks/get"), ("1.0", "GetTask")] {
        let got = site.result(version, method, json!({ "id": id })).await;
        for member in ["referenceTaskIds", "extensions", "metadata", "messageId"] {
            assert_eq!(got["history"][0][member], sent[member], "{version}");
        }
        assert_eq!(got["metadata"], json!({ "a": 1 }));
    }
}

/// A request without an id is a notification to JSON-RPC, which has no answer. Over HTTP there is one anyway,
/// in 0.1 the id is optional, and the official servers answer: so do we, with the id that errors have that
/// could not be told whose they are.
#[tokio::test]
async fn a_request_without_an_id_is_answered_with_null() {
    let site = Site::new().await;
    let send = json!({ "message": message("x") });
    for id in ["", r#""id":null,"#] {
        let body = format!(r#"{{"jsonrpc":"2.0",{id}"method":"SendMessage","params":{send}}}"#);
        let answer = site.send(post("/", &[("A2A-Version", "1.0")], body)).await.json();
        assert_eq!(answer["id"], json!(null));
        assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    let refused = site.send(post("/", &[], r#"{"jsonrpc":"2.0","method":"nothing"}"#)).await.json();
    assert_eq!((code(&refused), &refused["id"]), (-32601, &json!(null)));
}

/// One service, free of any transport: what a program calls directly is what the wire shows.
#[tokio::test]
async fn a_direct_call_and_a_request_give_the_same() {
    let site = Site::new().await;
    let caller = Caller::local();
    let methods = [("0.1", "tasks/get"), ("0.3", "tasks/get"), ("1.0", "GetTask")];
    for ((version, method), dialect) in methods.into_iter().zip(Dialect::ALL) {
        let mut submit = Submit::new("actor", Message::text("m-1", Role::User, "hello"));
        submit.dialect = dialect.name().to_owned();
        submit.context = Some("c-1".to_owned());
        submit.client_id = (version == "0.1").then(|| "t-direct".to_owned());
        let direct = site.engine.submit(&caller, submit).await.unwrap();
        let mut written = vec![];
        dialect.write_task(&mut written, &direct, TaskDetail::default());
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(site.result(version, method, json!({ "id": direct.origin.public_id() })).await, written);

        let said = json!({ "messageId": "m-1", "contextId": "c-1", "parts": [{ "text": "hello" }] });
        let with_role = |role: &str| {
            let mut said = said.clone();
            said["role"] = role.into();
            said
        };
        let sent = match version {
            "0.1" => {
                let params = json!({ "id": "t-wire", "sessionId": "c-1", "message": with_role("user") });
                site.result("", "tasks/send", params).await
            }
            "0.3" => site.result("", "message/send", json!({ "message": with_role("user") })).await,
            _ => {
                let sent = json!({ "message": with_role("ROLE_USER") });
                site.result("1.0", "SendMessage", sent).await["task"].clone()
            }
        };
        // But for its identity and its time.
        let anonymous = |task: &Value| {
            let id = task["id"].as_str().unwrap();
            timeless(serde_json::from_str(&task.to_string().replace(id, "id")).unwrap())
        };
        assert_eq!(anonymous(&sent), anonymous(&written), "{version}");
    }
    let waiting = site.begin("wait").await;
    let canceled = site.engine.cancel(&caller, &waiting).await.unwrap();
    let mut written = vec![];
    Dialect::V1.write_task(&mut written, &canceled, TaskDetail::default());
    let got = site.result("1.0", "GetTask", json!({ "id": waiting })).await;
    assert_eq!(got, serde_json::from_slice::<Value>(&written).unwrap());
}

/// Whoever answers one of two questions is shown the other one, and that is the end of the turn.
#[tokio::test]
async fn an_answer_that_leaves_another_question_open_ends_its_stream() {
    let site = Site::new().await;
    for version in ["0.1", "0.3", "1.0"] {
        let id = unique("t");
        let send = |text: &str, task: Option<&Value>| match version {
            "0.1" => ("tasks/sendSubscribe", json!({ "id": id, "message": plain("type", text) })),
            "0.3" => {
                let mut message = plain("kind", text);
                task.into_iter().for_each(|task| message["taskId"] = task.clone());
                ("message/stream", json!({ "message": message }))
            }
            _ => {
                let mut message = message(text);
                task.into_iter().for_each(|task| message["taskId"] = task.clone());
                ("SendStreamingMessage", json!({ "message": message }))
            }
        };
        let (method, params) = send("ask-both", None);
        let frames = site.stream(version, method, params).await.results().await;
        let first = frames[0].get("task").unwrap_or(&frames[0]);
        let task = first["id"].clone();
        // Both are asked by the time that one is answered.
        crate::receiver::until("both questions", async || {
            let got = site.engine.get(&Caller::local(), task.as_str().unwrap()).await.unwrap();
            got.questions.len() == 2
        })
        .await;
        let (method, params) = send("yes", Some(&task));
        let frames = site.stream(version, method, params).await.results().await;
        assert_eq!(frames.len(), 1, "{version}: {frames:?}");
        let shown = frames[0].get("task").unwrap_or(&frames[0]);
        let question = &shown["status"]["message"]["parts"][0]["text"];
        assert!(question == "Left?" || question == "Right?", "{version}: {shown}");
        if version == "0.1" {
            assert_eq!(shown["final"], true);
        }
        let (method, params) = send("no", Some(&task));
        let frames = site.stream(version, method, params).await.results().await;
        assert!(frames.len() >= 2, "{version}: {frames:?}");
        site.until_state(task.as_str().unwrap(), "COMPLETED").await;
    }
}

/// A subscription to a task that waits for the caller: before 1.0 a stream ends there, and so does this one; in
/// 1.0 it stays for what comes after the answer.
#[tokio::test]
async fn subscriptions_to_a_task_that_waits() {
    let site = Site::new().await;
    let asked = site.result("1.0", "SendMessage", json!({ "message": message("ask") })).await;
    let task = asked["task"]["id"].as_str().unwrap();
    for version in ["0.1", "0.3"] {
        let frames = site.stream(version, "tasks/resubscribe", json!({ "id": task })).await.results().await;
        assert_eq!(frames.len(), 1, "{version}: {frames:?}");
        assert_eq!(frames[0]["status"]["state"], "input-required");
        assert_eq!(frames[0].get("final"), (version == "0.1").then_some(&json!(true)));
    }
    let mut stream = site.stream("1.0", "SubscribeToTask", json!({ "id": task })).await;
    let (_, first) = stream.next().await.unwrap();
    assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let mut answer = message("yes");
    answer["taskId"] = task.into();
    let body = request("SendMessage", &json!({ "message": answer }));
    site.send(post("/", &[("A2A-Version", "1.0")], body)).await;
    let states: Vec<_> = stream
        .results()
        .await
        .into_iter()
        .map(|frame| frame["statusUpdate"]["status"]["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
}
