//! REST of A2A 0.3, under `/v1`: the ProtoJSON that its official clients write and read, and what they are refused.

use serde_json::{Value, json};

use crate::{
    rest::refusal,
    site::{Site, unique},
    socket::{Answer, Events, bare, get, post},
};

/// A message as the official clients write it.
fn proto(text: &str) -> Value {
    json!({ "messageId": unique("m"), "role": "ROLE_USER", "content": [{ "text": text }] })
}

/// A message as the text of the specification has it.
fn plain(text: &str) -> Value {
    json!({ "kind": "message", "messageId": unique("m"), "role": "user", "parts": [{ "kind": "text", "text": text }] })
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "application/json"),
        "{}",
        answer.text()
    );
    let body = answer.json();
    assert!(
        !answer.text().contains("\"kind\""),
        "official clients refuse a member that they do not know: {body}"
    );
    body
}

#[tokio::test]
async fn every_operation_of_0_3_at_every_place_of_an_agent() {
    let site = Site::new().await;
    for (base, headers) in [("", &[][..]), ("/agents/actor", &[("A2A-Version", "0.3")])] {
        let base = format!("{base}/v1");
        let send = async |path: &str, body: Value| {
            site.send(post(&format!("{base}{path}"), headers, body.to_string())).await
        };
        let read = async |path: &str| site.send(get(&format!("{base}{path}"), headers)).await;
        let blocking = json!({ "blocking": true, "historyLength": 5, "acceptedOutputModes": ["text/plain"] });
        let body = json!({ "message": proto("hello"), "configuration": blocking });
        let sent = ok(&send("/message:send", body.clone()).await);
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "hello" }]));
        let said = &task["history"][0];
        assert_eq!((&said["role"], &said["content"]), (&json!("ROLE_USER"), &json!([{ "text": "hello" }])));
        let id = task["id"].as_str().unwrap();
        assert_eq!(ok(&read(&format!("/tasks/{id}")).await), *task);
        for query in ["historyLength=0", "history_length=0"] {
            assert!(ok(&read(&format!("/tasks/{id}?{query}")).await).get("history").is_none());
        }

        // The form of the specification, and the names of the proto file.
        let sent = ok(&send("/message:send", json!({ "message": plain("hello") })).await);
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "it waits, as in JSON-RPC");
        let snake = json!({ "message_id": unique("m"), "role": 1, "content": [{ "text": "hello" }] });
        let sent = ok(&send("/message:send", json!({ "request": snake })).await);
        assert!(sent["task"]["id"].is_string(), "{sent}");

        let request = post(&format!("{base}/message:stream"), headers, body.to_string());
        let events = Events::open(site.socket().await, &request).await.results().await;
        assert_eq!(events.len(), 4, "{events:?}");
        assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
        assert_eq!(events[2]["artifactUpdate"]["artifact"]["parts"], json!([{ "text": "hello" }]));
        assert_eq!(events[3]["statusUpdate"]["final"], true);

        // Absent is false in ProtoJSON: this does not wait.
        let waiting = ok(&send("/message:send", json!({ "message": proto("wait") })).await);
        let waiting = waiting["task"]["id"].as_str().unwrap();
        for method in ["GET", "POST"] {
            let request = bare(method, &format!("{base}/tasks/{waiting}:subscribe"), headers);
            let mut stream = Events::open(site.socket().await, &request).await;
            assert_eq!(stream.next().await.unwrap().1["task"]["id"], waiting);
        }
        let canceled = bare("POST", &format!("{base}/tasks/{waiting}:cancel"), headers);
        assert_eq!(ok(&site.send(canceled).await)["status"]["state"], "TASK_STATE_CANCELLED", "with two l");
        let request = bare("GET", &format!("{base}/tasks/{waiting}:subscribe"), &[("Last-Event-ID", "2")]);
        let rest = Events::open(site.socket().await, &request).await.results().await;
        assert_eq!(rest[0]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELLED");
    }
}

#[tokio::test]
async fn parts_of_every_kind_come_back_as_they_were_sent() {
    let site = Site::new().await;
    let parts = json!([
        { "text": "see", "metadata": { "a": 1 } },
        { "file": { "fileWithUri": "https://example.com/x", "mimeType": "text/plain", "name": "x.txt" } },
        { "file": { "fileWithBytes": "aGVsbG8=", "mimeType": "text/plain" } },
        { "data": { "data": { "key": "value", "n": 12345678901234567890_u64, "data": { "deep": true } } } },
    ]);
    let message = json!({ "messageId": unique("m"), "role": "ROLE_USER", "content": parts });
    let body = json!({ "message": message, "configuration": { "blocking": true } });
    let sent = ok(&site.send(post("/v1/message:send", &[], body.to_string())).await);
    assert_eq!(sent["task"]["artifacts"][0]["parts"], parts);
    assert_eq!(sent["task"]["history"][0]["content"], parts);
    // What the official kit writes of a file.
    let file =
        json!({ "file": { "mime_type": "text/plain", "file_with_uri": "", "file_with_bytes": "aGVsbG8=" } });
    let message = json!({ "message_id": unique("m"), "role": "ROLE_USER", "content": [file] });
    let body = json!({ "message": message, "configuration": { "blocking": true } });
    let sent = ok(&site.send(post("/v1/message:send", &[], body.to_string())).await);
    assert_eq!(sent["task"]["artifacts"][0]["parts"], json!([parts[2]]));
}

#[tokio::test]
async fn webhooks_of_0_3_in_the_form_of_every_client() {
    let site = Site::new().await;
    let body = json!({ "message": proto("wait") }).to_string();
    let sent = ok(&site.send(post("/v1/message:send", &[], body)).await);
    let task = sent["task"]["id"].as_str().unwrap();
    let all = format!("/v1/tasks/{task}/pushNotificationConfigs");
    let hook = |id: &str| json!({ "id": id, "url": "https://example.com/hook", "token": "t" });
    let shown = |id: &str| {
        json!({
            "name": format!("tasks/{task}/pushNotificationConfigs/{id}"),
            "pushNotificationConfig": { "id": id, "url": "https://example.com/hook" },
        })
    };
    let snake =
        json!({ "push_notification_config": { "url": "https://example.com/hook", "authentication": {} } });
    for (id, body) in [
        (
            "py",
            json!({ "parent": format!("tasks/{task}"), "configId": "py", "config": { "pushNotificationConfig": hook("py") } }),
        ),
        (
            "js",
            json!({ "name": "tasks/other/pushNotificationConfigs/js", "pushNotificationConfig": hook("js") }),
        ),
        ("kit", json!({ "parent": format!("tasks/{task}"), "config_id": "kit", "config": snake })),
        ("text", json!({ "config": { "taskId": "other", "pushNotificationConfig": hook("text") } })),
    ] {
        let set = ok(&site.send(post(&all, &[], body.to_string())).await);
        assert_eq!(set, shown(id));
        assert_eq!(ok(&site.get(&format!("{all}/{id}"), &[]).await), shown(id));
    }
    let listed = ok(&site.get(&all, &[]).await);
    assert_eq!(listed, json!({ "configs": [shown("js"), shown("kit"), shown("py"), shown("text")] }));
    assert_eq!(ok(&site.send(bare("DELETE", &format!("{all}/js"), &[])).await), json!({}));
    assert_eq!(refusal(&site.get(&format!("{all}/js"), &[]).await).0, 404);
    assert_eq!(refusal(&site.send(post(&all, &[], "{}")).await).0, 422);
}

#[tokio::test]
async fn refusals_have_the_statuses_of_the_official_server_and_the_code_beside() {
    let site = Site::new().await;
    let sent =
        ok(&site.send(post("/v1/message:send", &[], json!({ "message": plain("x") }).to_string())).await);
    let ended = sent["task"]["id"].as_str().unwrap().to_owned();
    let mut more = proto("more");
    more["taskId"] = ended.clone().into();
    let more = json!({ "message": more }).to_string();
    let empty = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "content": [{}] } }).to_string();
    let unstreamed = json!({ "message": proto("x") }).to_string();
    let cancel = format!("/v1/tasks/{ended}:cancel");
    for (path, headers, body, status, reason, code) in [
        ("/v1/tasks/nobody:cancel", &[][..], "", 404, "TASK_NOT_FOUND", -32001),
        (&*cancel, &[], "", 409, "TASK_NOT_CANCELABLE", -32002),
        ("/v1/message:send", &[], &*more, 422, "UNSUPPORTED_OPERATION", -32602),
        ("/v1/message:send", &[], "{}", 422, "INVALID_PARAMS", -32602),
        ("/v1/message:send", &[], &*empty, 422, "INVALID_PARAMS", -32602),
        ("/v1/message:send", &[], "{", 400, "PARSE_ERROR", -32700),
        ("/agents/unstreamed/v1/message:stream", &[], &*unstreamed, 501, "UNSUPPORTED_OPERATION", -32004),
        (
            "/v1/message:send",
            &[("content-type", "text/plain")],
            "{}",
            415,
            "CONTENT_TYPE_NOT_SUPPORTED",
            -32005,
        ),
        ("/v1/message:send", &[("A2A-Version", "1.0")], "{}", 400, "VERSION_NOT_SUPPORTED", -32009),
        ("/v1/message:shout", &[], "{}", 404, "-", -32600),
    ] {
        let answer = site.send(post(path, headers, body)).await;
        let (got, _, why) = refusal(&answer);
        assert_eq!((got, &*why), (status, reason), "{path}: {}", answer.text());
        let body = answer.json();
        assert_eq!(body["code"], code, "{path}: {body}");
        assert_eq!(body["message"], body["error"]["message"]);
    }
    let answer = site.send(post("/v1/message:send", &[], empty)).await.json();
    assert_eq!(answer["data"]["field"], "message.content[0]", "{answer}");
    for (path, status, reason) in [
        ("/v1/tasks", 501, "UNSUPPORTED_OPERATION"),
        ("/v1/card", 404, "UNSUPPORTED_OPERATION"),
        ("/v1/tasks/nobody", 404, "TASK_NOT_FOUND"),
        ("/v1/tasks/nobody:subscribe", 404, "TASK_NOT_FOUND"),
        ("/v1/tasks/x?historyLength=x", 422, "INVALID_PARAMS"),
    ] {
        let (got, _, why) = refusal(&site.get(path, &[]).await);
        assert_eq!((got, &*why), (status, reason), "{path}");
    }
    // A task that has ended is streamed as it is, as in JSON-RPC.
    let request = bare("GET", &format!("/v1/tasks/{ended}:subscribe"), &[]);
    let again = Events::open(site.socket().await, &request).await.results().await;
    assert_eq!((again.len(), &again[0]["task"]["status"]["state"]), (1, &json!("TASK_STATE_COMPLETED")));
}
