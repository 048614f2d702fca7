//! The same operation by JSON-RPC, REST and gRPC has the same result, and the same error, in both generations.

use serde_json::{Map, Value, json};

use crate::{
    grpc_client::{self, GrpcClient},
    rest::refusal,
    site::{Site, request, unique, version_header},
    socket::{Events, bare, post},
};

/// One operation in every binding.
struct Row {
    method: &'static str,
    params: Value,
    verb: &'static str,
    path: String,
    body: Value,
}

/// The tasks that a table works on: each binding has its own.
struct Tasks {
    ended: String,
    waiting: String,
    asking: String,
}

impl Tasks {
    async fn new(site: &Site) -> Self {
        let [ended, waiting, asking] =
            [site.begin("echo").await, site.begin("wait").await, site.begin("ask").await];
        site.until_state(&ended, "COMPLETED").await;
        site.until_state(&waiting, "WORKING").await;
        site.until_state(&asking, "INPUT_REQUIRED").await;
        Self { ended, waiting, asking }
    }
}

fn sent(version: &str, task: Option<&str>, part: &Value) -> Value {
    let role = if version == "1.0" { "ROLE_USER" } else { "user" };
    let mut message = json!({ "messageId": unique("m"), "role": role, "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    json!({ "message": message })
}

/// The table. Rows whose order matters stand in it; every binding goes through all of them.
fn table(version: &str, tasks: &Tasks) -> Vec<Row> {
    let v1 = version == "1.0";
    let prefix = if v1 { "" } else { "/v1" };
    let names = |newer: &'static str, older: &'static str| if v1 { newer } else { older };
    let row = |method, params, verb, path: String, body| Row {
        method,
        params,
        verb,
        path: format!("{prefix}{path}"),
        body,
    };
    let (ended, waiting, asking) = (tasks.ended.as_str(), tasks.waiting.as_str(), tasks.asking.as_str());
    let none = Value::Null;
    let text = |text: &str| json!({ "text": text });
    let mut rows = vec![];
    let (send, stream) =
        (names("SendMessage", "message/send"), names("SendStreamingMessage", "message/stream"));
    for (task, part) in [
        (None, text("hello")),
        (None, text("fail because")),
        (None, text("ask")),
        (None, json!({ "data": { "a": [1, 2.5, null, "x"] } })),
        (Some("nobody"), text("x")),
        (Some(ended), text("x")),
        (Some(asking), json!({ "data": { "confirm": "perhaps" } })),
        (None, json!({})),
        (None, json!({ "text": 5 })),
    ] {
        let body = sent(version, task, &part);
        rows.push(row(send, body.clone(), "POST", "/message:send".into(), body));
    }
    rows.push(row(send, json!({}), "POST", "/message:send".into(), json!({})));
    let large = json!({ "k": "x".repeat(70_000) });
    for task in [None, Some(waiting)] {
        let mut body = sent(version, task, &text("hello"));
        body["message"]["metadata"] = large.clone();
        rows.push(row(send, body.clone(), "POST", "/message:send".into(), body));
    }
    let mut body = sent(version, None, &text("hello"));
    body["metadata"] = large;
    rows.push(row(send, body.clone(), "POST", "/message:send".into(), body));
    for (task, part) in
        [(None, text("chunks 2")), (None, text("ask")), (Some("nobody"), text("x")), (Some(ended), text("x"))]
    {
        let body = sent(version, task, &part);
        rows.push(row(stream, body.clone(), "POST", "/message:stream".into(), body));
    }
    let (get, cancel) = (names("GetTask", "tasks/get"), names("CancelTask", "tasks/cancel"));
    for task in [ended, asking, "nobody"] {
        rows.push(row(get, json!({ "id": task }), "GET", format!("/tasks/{task}"), none.clone()));
    }
    rows.push(row(
        get,
        json!({ "id": ended, "historyLength": 0 }),
        "GET",
        format!("/tasks/{ended}?historyLength=0"),
        none.clone(),
    ));
    rows.push(row(
        get,
        json!({ "id": ended, "historyLength": -1 }),
        "GET",
        format!("/tasks/{ended}?historyLength=-1"),
        none.clone(),
    ));
    let subscribe = names("SubscribeToTask", "tasks/resubscribe");
    for task in [ended, "nobody"] {
        rows.push(row(
            subscribe,
            json!({ "id": task }),
            "POST",
            format!("/tasks/{task}:subscribe"),
            none.clone(),
        ));
    }
    let hook = json!({ "id": "h", "url": "https://example.com/hook" });
    let hooks = format!("/tasks/{waiting}/pushNotificationConfigs");
    let (set, params, body) = match v1 {
        true => {
            let mut params = hook.clone();
            params["taskId"] = waiting.into();
            ("CreateTaskPushNotificationConfig", params, hook)
        }
        false => {
            let params = json!({ "taskId": waiting, "pushNotificationConfig": hook });
            ("tasks/pushNotificationConfig/set", params.clone(), json!({ "config": params }))
        }
    };
    rows.push(row(set, params, "POST", hooks.clone(), body));
    let one = |id: &str| match v1 {
        true => json!({ "taskId": waiting, "id": id }),
        false => json!({ "id": waiting, "pushNotificationConfigId": id }),
    };
    let (read, list, delete) = match v1 {
        true => (
            "GetTaskPushNotificationConfig",
            "ListTaskPushNotificationConfigs",
            "DeleteTaskPushNotificationConfig",
        ),
        false => (
            "tasks/pushNotificationConfig/get",
            "tasks/pushNotificationConfig/list",
            "tasks/pushNotificationConfig/delete",
        ),
    };
    for id in ["h", "none"] {
        rows.push(row(read, one(id), "GET", format!("{hooks}/{id}"), none.clone()));
    }
    let of = if v1 { json!({ "taskId": waiting }) } else { json!({ "id": waiting }) };
    rows.push(row(list, of.clone(), "GET", hooks.clone(), none.clone()));
    for _ in 0..2 {
        rows.push(row(delete, one("h"), "DELETE", format!("{hooks}/h"), none.clone()));
    }
    rows.push(row(list, of, "GET", hooks, none.clone()));
    for task in [waiting, waiting, ended, "nobody"] {
        rows.push(row(cancel, json!({ "id": task }), "POST", format!("/tasks/{task}:cancel"), none.clone()));
    }
    if v1 {
        for (params, query) in [
            (json!({ "status": "TASK_STATE_FAILED" }), "status=TASK_STATE_FAILED"),
            (json!({ "pageSize": 1, "includeArtifacts": true }), "pageSize=1&includeArtifacts=true"),
            (json!({ "pageSize": 0 }), "pageSize=0"),
            (json!({ "status": "x" }), "status=x"),
            (json!({ "contextId": "nothing" }), "contextId=nothing"),
            (json!({ "statusTimestampAfter": "x" }), "statusTimestampAfter=x"),
        ] {
            rows.push(row("ListTasks", params, "GET", format!("/tasks?{query}"), none.clone()));
        }
    }
    let (card, path) = match v1 {
        true => ("GetExtendedAgentCard", "/extendedAgentCard"),
        false => ("agent/getAuthenticatedExtendedCard", "/card"),
    };
    rows.push(row(card, json!({}), "GET", path.into(), none));
    rows
}

#[tokio::test]
async fn every_binding_gives_the_same_in_1_0() {
    compare("1.0").await;
}

#[tokio::test]
async fn every_binding_gives_the_same_in_0_3() {
    compare("0.3").await;
}

async fn compare(version: &str) {
    // A server each, so that lists and totals are comparable.
    let (rpc, rest, grpc) = (Site::new().await, Site::new().await, Site::new().await);
    let by_rpc = table(version, &Tasks::new(&rpc).await);
    let by_rest = table(version, &Tasks::new(&rest).await);
    let by_grpc = table(version, &Tasks::new(&grpc).await);
    assert_eq!((by_rpc.len(), by_rpc.len()), (by_rest.len(), by_grpc.len()));
    let client = GrpcClient::connect(grpc.address).await;
    let (mut results, mut errors, mut typed) = (0, 0, 0);
    for ((one, other), third) in by_rpc.iter().zip(&by_rest).zip(&by_grpc) {
        let expected = outcome_by_rpc(&rpc, version, one).await;
        let got = outcome_by_rest(&rest, version, other).await;
        assert_eq!(got, expected, "{version}: {} and {} {}", one.method, other.verb, other.path);
        match outcome_by_grpc(&client, version, third).await {
            Some(got) => assert_eq!(got, lean(expected), "{version}: {} and gRPC", one.method),
            // Its messages cannot say this.
            None => typed += 1,
        }
        match got {
            Outcome::Results(_) => results += 1,
            Outcome::Error { .. } => errors += 1,
        }
    }
    assert!(results >= 15 && errors >= 12, "{version}: {results} results, {errors} errors");
    assert!(typed <= 4, "{version}: {typed} of {} rows are not in gRPC", by_rpc.len());
}

/// The method and the request of a row in gRPC.
fn in_grpc(version: &str, row: &Row) -> (String, Value) {
    if version == "1.0" {
        return (format!("/lf.a2a.v1.A2AService/{}", row.method), row.params.clone());
    }
    let params = &row.params;
    let task = |member: &str| format!("tasks/{}", params[member].as_str().unwrap_or_default());
    let config = || {
        format!(
            "{}/pushNotificationConfigs/{}",
            task("id"),
            params["pushNotificationConfigId"].as_str().unwrap()
        )
    };
    let (method, request) = match row.method {
        "message/send" | "message/stream" => {
            let mut request = params.clone();
            // Absence means that the call does not wait; JSON-RPC waits.
            request["configuration"] = json!({ "blocking": true });
            if let Some(message) = request.get_mut("message").and_then(Value::as_object_mut) {
                let parts = message.remove("parts").unwrap();
                let parts = parts.as_array().unwrap().iter().map(|part| match part.get("data") {
                    Some(data) => json!({ "data": { "data": data } }),
                    None => part.clone(),
                });
                message.insert("content".to_owned(), parts.collect());
                message.insert("role".to_owned(), "ROLE_USER".into());
            }
            (if row.method == "message/send" { "SendMessage" } else { "SendStreamingMessage" }, request)
        }
        "tasks/get" => {
            ("GetTask", json!({ "name": task("id"), "historyLength": params.get("historyLength") }))
        }
        "tasks/cancel" => ("CancelTask", json!({ "name": task("id") })),
        "tasks/resubscribe" => ("TaskSubscription", json!({ "name": task("id") })),
        "tasks/pushNotificationConfig/set" => (
            "CreateTaskPushNotificationConfig",
            json!({ "parent": task("taskId"), "config": { "pushNotificationConfig": params["pushNotificationConfig"] } }),
        ),
        "tasks/pushNotificationConfig/get" => ("GetTaskPushNotificationConfig", json!({ "name": config() })),
        "tasks/pushNotificationConfig/list" => {
            ("ListTaskPushNotificationConfig", json!({ "parent": task("id") }))
        }
        "tasks/pushNotificationConfig/delete" => {
            ("DeleteTaskPushNotificationConfig", json!({ "name": config() }))
        }
        _ => ("GetAgentCard", json!({})),
    };
    (format!("/a2a.v1.A2AService/{method}"), request)
}

async fn outcome_by_grpc(client: &GrpcClient, version: &str, row: &Row) -> Option<Outcome> {
    let (path, request) = in_grpc(version, row);
    // 0 means that nothing is said about the history, and `GetAgentCard` is also the public card.
    let is_card = row.method == "agent/getAuthenticatedExtendedCard";
    if version == "0.3" && (is_card || row.params.get("historyLength") == Some(&json!(0))) {
        return None;
    }
    let body = grpc_client::message(&path, &request)?;
    let headers = version_header(version);
    let answer = client.begin(&path, &headers, body, true).await.answer().await;
    assert_eq!(answer.http_status, 200);
    let (code, reason) = answer.refusal();
    if reason.is_empty() {
        assert_eq!(code as i32, 0, "{:?}", answer.status);
        let results = answer.messages.into_iter().map(|message| normal(version, message)).collect();
        return Some(lean(Outcome::Results(results)));
    }
    let code = match (version, reason) {
        ("0.3", "TASK_NOT_FOUND") => -32001,
        ("0.3", "TASK_NOT_CANCELABLE") => -32002,
        // A message to a task that has ended is invalid in 0.3.
        ("0.3", "UNSUPPORTED_OPERATION") if answer.status.message.contains("no more messages") => -32602,
        ("0.3", "INVALID_PARAMS") => -32602,
        (_, reason) => code_of(reason, status_of(code)),
    };
    let message = answer.status.message.replace("message.content", "message.parts");
    Some(Outcome::Error { code, message: without_ids(&message) })
}

/// The HTTP status that belongs to a code of gRPC (1.0.1, section 5.4).
fn status_of(code: nuncio_wire::grpc::GrpcCode) -> u16 {
    use nuncio_wire::grpc::GrpcCode;
    match code {
        GrpcCode::NotFound => 404,
        GrpcCode::InvalidArgument | GrpcCode::FailedPrecondition => 400,
        other => panic!("no row for {other:?}"),
    }
}

/// Without cursors, and without what proto does not write: empty texts and lists, `false` and 0.
fn lean(outcome: Outcome) -> Outcome {
    fn visit(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, value| {
                    if name != "data" {
                        visit(value);
                    }
                    let lost = [json!(false), json!(0), json!(""), json!([]), json!({}), Value::Null];
                    !name.ends_with("/cursor/v1") && (name == "data" || !lost.contains(value))
                });
            }
            Value::Array(items) => items.iter_mut().for_each(visit),
            _ => {}
        }
    }
    match outcome {
        Outcome::Results(mut results) => {
            for result in &mut results {
                visit(result);
                // A list of 0.3 that is empty.
                if *result == json!([]) {
                    *result = json!({});
                }
            }
            Outcome::Results(results)
        }
        error => error,
    }
}

/// What came of it, without what differs between two servers.
#[derive(Debug, PartialEq)]
enum Outcome {
    Results(Vec<Value>),
    Error { code: i64, message: String },
}

async fn outcome_by_rpc(site: &Site, version: &str, row: &Row) -> Outcome {
    let headers = version_header(version);
    let sent = post("/", &headers, request(row.method, &row.params));
    let answer = site.send(&sent).await;
    let bodies = if answer.header("content-type") == "text/event-stream" {
        frames(answer.text())
    } else {
        vec![answer.json()]
    };
    if let Some(error) = bodies.last().and_then(|body| body.get("error")) {
        let message = error["message"].as_str().unwrap().replace("params.", "");
        return Outcome::Error { code: error["code"].as_i64().unwrap(), message: without_ids(&message) };
    }
    let results = bodies.into_iter().map(|body| normal(version, body["result"].clone()));
    Outcome::Results(results.collect())
}

async fn outcome_by_rest(site: &Site, version: &str, row: &Row) -> Outcome {
    let headers = version_header(version);
    let sent = match &row.body {
        Value::Null => bare(row.verb, &row.path, &headers),
        body => post(&row.path, &headers, body.to_string()),
    };
    let answer = site.send(&sent).await;
    if answer.status != 200 {
        let (status, _, reason) = refusal(&answer);
        let body = answer.json();
        let code = match version {
            "0.3" => body["code"].as_i64().unwrap(),
            _ => code_of(&reason, status),
        };
        let message = body["error"]["message"].as_str().unwrap().replace("message.content", "message.parts");
        return Outcome::Error { code, message: without_ids(&message) };
    }
    let bodies = if answer.header("content-type") == "text/event-stream" {
        frames(answer.text())
    } else {
        vec![answer.json()]
    };
    Outcome::Results(bodies.into_iter().map(|body| normal(version, body)).collect())
}

/// The code of JSON-RPC and the HTTP status belong together (1.0.1, section 5.4).
fn code_of(reason: &str, status: u16) -> i64 {
    let (code, expected) = match reason {
        "TASK_NOT_FOUND" => (-32001, 404),
        "TASK_NOT_CANCELABLE" => (-32002, 400),
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => (-32003, 400),
        "UNSUPPORTED_OPERATION" => (-32004, 400),
        "CONTENT_TYPE_NOT_SUPPORTED" => (-32005, 400),
        "INVALID_PARAMS" | "LIMIT_REACHED" => (-32602, 400),
        other => panic!("no row for {other}"),
    };
    assert_eq!(status, expected, "{reason}");
    code
}

fn frames(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// ProtoJSON of 0.3 as the JSON of JSON-RPC, without `kind`; that itself otherwise.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(members) => plain_object(members),
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        other => other,
    }
}

fn plain_object(members: Map<String, Value>) -> Value {
    if members.len() == 1 {
        for name in ["task", "statusUpdate", "artifactUpdate", "configs"] {
            if let Some(inner) = members.get(name) {
                return plain(inner.clone());
            }
        }
    }
    let mut out = Map::new();
    for (name, value) in members {
        let word = |value: Value| match value.as_str() {
            Some(word) => {
                let word = word.trim_start_matches("TASK_STATE_").trim_start_matches("ROLE_");
                json!(word.to_lowercase().replace('_', "-").replace("cancelled", "canceled"))
            }
            None => value,
        };
        let (name, value) = match name.as_str() {
            "kind" => continue,
            "content" => ("parts", plain(value)),
            "fileWithUri" => ("uri", value),
            "fileWithBytes" => ("bytes", value),
            "state" | "role" => (name.as_str(), word(value)),
            "data" if value.as_object().is_some_and(|data| data.len() == 1 && data.contains_key("data")) => {
                ("data", value["data"].clone())
            }
            "data" | "metadata" => (name.as_str(), value),
            // The name of a webhook is its task and its id, which it also has.
            "name" if value.as_str().is_some_and(|name| name.contains("/pushNotificationConfigs/")) => {
                ("taskId", value)
            }
            _ => (name.as_str(), plain(value)),
        };
        out.insert(name.to_owned(), value);
    }
    Value::Object(out)
}

/// Without ids, times and tokens, in a fixed order of members; 0.3 in the form of JSON-RPC.
fn normal(version: &str, value: Value) -> Value {
    let mut value = if version == "0.3" { plain(value) } else { value };
    fn visit(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for name in ["id", "taskId", "contextId", "messageId", "timestamp", "nextPageToken"] {
                    if let Some(text) = members.get_mut(name).filter(|text| **text != "") {
                        *text = "X".into();
                    }
                }
                members.values_mut().for_each(visit);
                members.sort_keys();
            }
            Value::Array(items) => items.iter_mut().for_each(visit),
            _ => {}
        }
    }
    visit(&mut value);
    // Deleted: `null` in JSON-RPC of 0.3, an empty object elsewhere.
    if value.is_null() { json!({}) } else { value }
}

/// Ids of tasks are the server's.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == 36 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words
        .map(|word| {
            let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_id(bare) { word.replace(bare, "ID") } else { word.to_owned() }
        })
        .collect()
}

/// What a stream begun by one binding has left is the same in the other, by the same cursors.
#[tokio::test]
async fn a_stream_continues_in_the_other_binding() {
    let site = Site::new().await;
    let body = sent("1.0", None, &json!({ "text": "chunks 4" }));
    let begun = post("/message:stream", &[("A2A-Version", "1.0")], body.to_string());
    let mut stream = Events::open(site.socket().await, &begun).await;
    let (_, first) = stream.next().await.unwrap();
    let (cursor, _) = stream.next().await.unwrap();
    let rest = stream.results().await;
    let cursor = cursor.unwrap().to_string();
    let headers = [("A2A-Version", "1.0"), ("Last-Event-ID", cursor.as_str())];
    let id = json!({ "id": first["task"]["id"] });
    let continued = site.stream_with(&headers, "SubscribeToTask", id).await.results().await;
    assert_eq!(continued, rest);
    assert!(rest.len() >= 4, "{rest:?}");
}
