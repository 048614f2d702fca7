//! REST of A2A 1.0: every path, with and without a tenant, and what each of them refuses.

use serde_json::{Value, json};

use crate::{
    guests::site_with,
    site::{Site, message},
    socket::{Answer, Events, bare, get, post, within},
};

/// The header that every request of 1.0 has.
pub(crate) const V1: (&str, &str) = ("A2A-Version", "1.0");

/// What an error body says: HTTP status, `status` and `reason`.
#[track_caller]
pub(crate) fn refusal(answer: &Answer) -> (u16, String, String) {
    let body = answer.json();
    let error = &body["error"];
    assert_eq!(error["code"], answer.status, "{body}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    let info = error["details"]
        .as_array()
        .unwrap()
        .iter()
        .find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo");
    if let Some(info) = info {
        assert_eq!(info["domain"], "a2a-protocol.org", "{body}");
    }
    let reason = info.map_or("-", |info| info["reason"].as_str().unwrap());
    (answer.status, error["status"].as_str().unwrap().to_owned(), reason.to_owned())
}

#[track_caller]
fn refused(answer: &Answer, status: u16, name: &str, reason: &str) {
    assert_eq!(refusal(answer), (status, name.to_owned(), reason.to_owned()), "{}", answer.text());
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

/// The requests of 1.0 under one base path.
struct Rest<'a> {
    site: &'a Site,
    base: &'a str,
}

impl Rest<'_> {
    async fn get(&self, path: &str) -> Answer {
        self.site.send(get(&format!("{}{path}", self.base), &[V1])).await
    }

    async fn post(&self, path: &str, body: impl ToString) -> Answer {
        self.site.send(post(&format!("{}{path}", self.base), &[V1], body.to_string())).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.site.send(bare("DELETE", &format!("{}{path}", self.base), &[V1])).await
    }

    async fn stream(&self, path: &str, headers: &[(&str, &str)], body: impl ToString) -> Events {
        let headers = [&[V1], headers].concat();
        let request = post(&format!("{}{path}", self.base), &headers, body.to_string());
        Events::open(self.site.socket().await, &request).await
    }
}

#[tokio::test]
async fn every_operation_of_1_0_at_every_place_of_an_agent() {
    let site = Site::new().await;
    // The default agent at the root, by its tenant, by its name, and by both.
    for base in ["", "/actor", "/agents/actor", "/agents/actor/actor", "/unpushed", "/agents/unpushed"] {
        let rest = Rest { site: &site, base };
        let sent = ok(&rest.post("/message:send", json!({ "message": message("hello") })).await);
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{base}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "hello");
        let id = task["id"].as_str().unwrap();
        assert_eq!(ok(&rest.get(&format!("/tasks/{id}")).await), *task);
        let short = ok(&rest.get(&format!("/tasks/{id}?historyLength=0")).await);
        assert!(short.get("history").is_none(), "{short}");
        let context = task["contextId"].as_str().unwrap();
        let listed = ok(&rest.get(&format!("/tasks?contextId={context}&includeArtifacts=true")).await);
        assert_eq!(listed["tasks"][0]["id"], id);
        assert_eq!((&listed["totalSize"], &listed["nextPageToken"]), (&json!(1), &json!("")));

        let body = json!({ "message": message("hello") });
        let events = rest.stream("/message:stream", &[], body).await.results().await;
        assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
        assert_eq!(events[3]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(events.len(), 4);

        let body = json!({ "message": message("wait"), "configuration": { "returnImmediately": true } });
        let waiting = ok(&rest.post("/message:send", body).await);
        let waiting = waiting["task"]["id"].as_str().unwrap();
        let mut stream = rest.stream(&format!("/tasks/{waiting}:subscribe"), &[], "").await;
        assert_eq!(stream.next().await.unwrap().1["task"]["id"], waiting);
        // Without a body, and without a type of one.
        let cancel = bare("POST", &format!("{base}/tasks/{waiting}:cancel"), &[V1]);
        assert_eq!(ok(&site.send(cancel).await)["status"]["state"], "TASK_STATE_CANCELED");
        let end = stream.next().await.unwrap().1;
        assert_eq!(end["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(stream.next().await, None);
        refused(&rest.get("/extendedAgentCard").await, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION");
    }
}

#[tokio::test]
async fn a_body_that_is_null_is_an_empty_one() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "" };
    let task = site.begin("wait").await;
    // The official client for Go sends it wherever an operation has no body.
    let mut stream = rest.stream(&format!("/tasks/{task}:subscribe"), &[], "null").await;
    assert_eq!(stream.next().await.unwrap().1["task"]["id"], *task);
    let canceled = ok(&rest.post(&format!("/tasks/{task}:cancel"), " null\n").await);
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    refused(&rest.post("/message:send", "null").await, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    let older = post(&format!("/v1/tasks/{task}:cancel"), &[], "null");
    assert_eq!(site.send(older).await.status, 409);
}

#[tokio::test]
async fn below_a_base_path_everything_is_served_as_at_the_root() {
    let site = Site::with(|setup| setup.server.base_path = Some("/a2a/".into())).await;
    let sent = site.call_at("/a2a", "1.0", "SendMessage", json!({ "message": message("hello") })).await;
    let task = sent["result"]["task"]["id"].as_str().unwrap();
    for base in ["/a2a/agents/actor", "/a2a", ""] {
        let found = ok(&Rest { site: &site, base }.get(&format!("/tasks/{task}")).await);
        assert_eq!(found["id"], *task, "{base}");
    }
    let card = site.get("/a2a/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(card, site.get("/.well-known/agent-card.json", &[]).await.json());
    for path in ["/a2a/admin/tokens", "/admin/tokens"] {
        assert_eq!(site.get(path, &[]).await.status, 404, "{path}");
    }
    for path in ["/a2ab/.well-known/agent-card.json", "/a2a/a2a/.well-known/agent-card.json"] {
        assert_eq!(site.get(path, &[]).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn webhooks_of_1_0() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "/actor" };
    let task = site.begin("wait").await;
    let all = format!("/tasks/{task}/pushNotificationConfigs");
    let hook = |id: &str| json!({ "taskId": task, "id": id, "url": "https://example.com/hook" });
    for id in ["a", "b/c"] {
        // The path names the task, whatever the body says.
        let mut body = hook(id);
        body["taskId"] = "another".into();
        body["authentication"] = json!({ "scheme": "Bearer", "credentials": "x" });
        let set = ok(&rest.post(&all, body).await);
        assert_eq!((&set["taskId"], &set["id"]), (&json!(task), &json!(id)));
    }
    assert_eq!(ok(&rest.get(&format!("{all}/b%2Fc")).await)["id"], "b/c");
    let page = ok(&rest.get(&format!("{all}?pageSize=1")).await);
    assert_eq!(page["configs"].as_array().unwrap().len(), 1);
    let next = page["nextPageToken"].as_str().unwrap();
    let rest_of = ok(&rest.get(&format!("{all}?pageSize=1&pageToken={next}")).await);
    assert_eq!(rest_of["configs"][0]["id"], "b/c");
    assert_eq!(ok(&rest.delete(&format!("{all}/a")).await), json!({}));
    assert_eq!(ok(&rest.get(&all).await)["configs"].as_array().unwrap().len(), 1);
    refused(&rest.get(&format!("{all}/a")).await, 404, "NOT_FOUND", "TASK_NOT_FOUND");
    refused(&rest.post(&all, json!({})).await, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    let elsewhere = "/tasks/nobody/pushNotificationConfigs";
    refused(&rest.get(elsewhere).await, 404, "NOT_FOUND", "TASK_NOT_FOUND");
    let unpushed = Rest { site: &site, base: "/agents/unpushed" };
    let body = json!({ "message": message("wait"), "configuration": { "returnImmediately": true } });
    let sent = ok(&unpushed.post("/message:send", body).await);
    let path = format!("/tasks/{}/pushNotificationConfigs", sent["task"]["id"].as_str().unwrap());
    let set = unpushed.post(&path, json!({ "url": "https://example.com/hook" })).await;
    refused(&set, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED");
}

#[tokio::test]
async fn a_task_of_any_id_is_found_by_its_encoded_id() {
    let site = Site::new().await;
    // Only clients of 0.1 choose ids.
    for id in ["a/b", "urn:x:1", "50%", "x:cancel", "ä ö", "tasks", "a+b"] {
        let said = json!({ "role": "user", "parts": [{ "type": "text", "text": "wait" }] });
        let sent = site.call("", "tasks/send", json!({ "id": id, "message": said })).await;
        assert_eq!(sent["result"]["id"], id, "{sent}");
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let rest = Rest { site: &site, base: "" };
        assert_eq!(ok(&rest.get(&format!("/tasks/{encoded}")).await)["id"], id);
        let canceled = ok(&rest.post(&format!("/tasks/{encoded}:cancel"), "").await);
        assert_eq!(
            (&canceled["id"], &canceled["status"]["state"]),
            (&json!(id), &json!("TASK_STATE_CANCELED"))
        );
    }
    // As Python writes them.
    assert_eq!(ok(&Rest { site: &site, base: "" }.get("/tasks/urn:x:1").await)["id"], "urn:x:1");
}

#[tokio::test]
async fn a_version_is_required_and_may_be_in_the_query() {
    let site = Site::new().await;
    let task = site.begin("x").await;
    let path = format!("/tasks/{task}");
    assert_eq!(site.send(get(&format!("{path}?A2A-Version=1.0"), &[])).await.status, 200);
    for versions in [&[][..], &[("A2A-Version", "")], &[("A2A-Version", "0.3")], &[("A2A-Version", "2.0")]] {
        let answer = site.send(get(&path, versions)).await;
        refused(&answer, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED");
        let sent = site.send(post("/message:send", versions, "{}")).await;
        refused(&sent, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED");
    }
    assert_eq!(site.send(get(&path, &[("A2A-Version", "1.0.1")])).await.status, 200);
}

#[tokio::test]
async fn a_tenant_is_an_agent_and_said_once() {
    let site = Site::new().await;
    let send = |tenant: &str| json!({ "tenant": tenant, "message": message("x") });
    let root = Rest { site: &site, base: "" };
    // In the body as in the path: the agent that cannot stream tells which one it was.
    let streamed = root.post("/message:stream", send("unstreamed")).await;
    refused(&streamed, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION");
    let streamed = root.post("/unstreamed/message:stream", send("unstreamed")).await;
    refused(&streamed, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION");
    ok(&root.post("/message:send", send("")).await);
    ok(&root.get("/tasks?tenant=unstreamed").await);

    let differs = root.post("/actor/message:send", send("unstreamed")).await;
    refused(&differs, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    assert!(
        differs.text().contains("BadRequest") && differs.text().contains("\"tenant\""),
        "{}",
        differs.text()
    );
    refused(&root.get("/actor/tasks?tenant=unstreamed").await, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    refused(
        &root.post("/message:send", json!({ "tenant": 5 })).await,
        400,
        "INVALID_ARGUMENT",
        "INVALID_PARAMS",
    );
    for path in
        ["/nobody/tasks", "/tasks?tenant=nobody", "/agents/nobody/tasks", "/agents/actor/unstreamed/tasks"]
    {
        refused(&root.get(path).await, 404, "NOT_FOUND", "-");
    }
    // The names of the server's own paths are no tenants.
    for path in ["/admin/tasks", "/mcp/tasks", "/schemas/tasks", "/.well-known/tasks"] {
        let answer = root.get(path).await;
        assert!(answer.json().get("jsonrpc").is_some(), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_query_is_read_and_a_bad_value_is_refused_with_its_name() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "" };
    for text in ["one", "two", "ask"] {
        rest.post("/message:send", json!({ "message": message(text) })).await;
    }
    let total = async |query: &str| ok(&rest.get(&format!("/tasks?{query}")).await)["totalSize"].clone();
    assert_eq!(total("").await, 3);
    assert_eq!(total("status=TASK_STATE_INPUT_REQUIRED").await, 1);
    assert_eq!(total("status=TASK_STATE_UNSPECIFIED").await, 3);
    assert_eq!(total("statusTimestampAfter=2100-01-01T00%3A00%3A00.123456789Z").await, 0);
    assert_eq!(total("statusTimestampAfter=2000-01-01T00%3A00%3A00%2B02%3A00").await, 3);
    assert_eq!(total("page_size=0&unknown=1&A2A-Version=1.0&status_=x").await, 3, "unknown ones are ignored");
    let page = ok(&rest.get("/tasks?pageSize=2&historyLength=0&includeArtifacts=false").await);
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["pageSize"]), (2, &json!(2)));
    let token = page["nextPageToken"].as_str().unwrap();
    let last = ok(&rest.get(&format!("/tasks?pageSize=2&pageToken={token}")).await);
    assert_eq!((last["tasks"].as_array().unwrap().len(), &last["nextPageToken"]), (1, &json!("")));

    for (query, field) in [
        ("pageSize=0", "pageSize"),
        ("pageSize=101", "pageSize"),
        ("pageSize=many", "pageSize"),
        ("pageSize=", "pageSize"),
        ("pageSize=1&pageSize=2", "pageSize"),
        ("historyLength=-1", "historyLength"),
        ("historyLength=1.5", "historyLength"),
        ("status=working", "status"),
        ("status=3", "status"),
        ("includeArtifacts=yes", "includeArtifacts"),
        ("includeArtifacts=TRUE", "includeArtifacts"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
    ] {
        let answer = rest.get(&format!("/tasks?{query}")).await;
        refused(&answer, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
        let violation = &answer.json()["error"]["details"][1];
        assert_eq!(violation["@type"], "type.googleapis.com/google.rpc.BadRequest", "{query}");
        assert_eq!(violation["fieldViolations"][0]["field"], field, "{query}: {violation}");
    }
    let task = site.begin("x").await;
    for query in ["historyLength=x", "historyLength=-1", "historyLength="] {
        let answer = rest.get(&format!("/tasks/{task}?{query}")).await;
        refused(&answer, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    }
    let garbage = rest.get("/tasks?pageToken=%00garbage").await;
    refused(&garbage, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
}

#[tokio::test]
async fn every_refusal_has_a_status_a_reason_and_words() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "" };
    let sent = ok(&rest.post("/message:send", json!({ "message": message("x") })).await);
    let ended = sent["task"]["id"].as_str().unwrap().to_owned();
    let reply = |task: &str| {
        let mut reply = message("more");
        reply["taskId"] = task.into();
        json!({ "message": reply })
    };
    let deep = format!("{}{}", "{\"a\":".repeat(100), "1}".to_owned() + &"}".repeat(99));
    for (path, body, status, name, reason) in [
        ("/tasks/nobody:cancel", String::new(), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("/tasks/nobody:subscribe", String::new(), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (&format!("/tasks/{ended}:cancel"), "{}".into(), 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        (
            &format!("/tasks/{ended}:subscribe"),
            String::new(),
            400,
            "FAILED_PRECONDITION",
            "UNSUPPORTED_OPERATION",
        ),
        ("/message:send", reply(&ended).to_string(), 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("/message:send", reply("nobody").to_string(), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("/message:stream", reply("nobody").to_string(), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("/message:send", String::new(), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("/message:send", "{}".into(), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("/message:send", "[]".into(), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("/message:send", "null".into(), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("/message:send", "{".into(), 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        ("/message:send", deep, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ("/tasks/x:cancel", "{".into(), 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        ("/message:shout", "{}".into(), 404, "NOT_FOUND", "-"),
        ("/tasks/a/b", "{}".into(), 404, "NOT_FOUND", "-"),
    ] {
        let answer = rest.post(path, body).await;
        assert_eq!(refusal(&answer), (status, name.into(), reason.into()), "{path}: {}", answer.text());
    }
    let missing = rest.post("/message:send", "{}").await.json();
    assert_eq!(missing["error"]["message"], "message: is required");
    let missing = rest.get("/tasks/nobody").await.json();
    assert_eq!(missing["error"]["details"][0]["metadata"]["taskId"], "nobody");

    for (method, path, allow) in [
        ("GET", "/message:send", "POST"),
        ("PUT", "/tasks/x", "GET"),
        ("GET", "/tasks/x:cancel", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/x:subscribe", "GET,POST"),
        ("HEAD", "/tasks", "GET"),
        ("PATCH", "/tasks/x/pushNotificationConfigs/y", "DELETE,GET"),
    ] {
        let mut socket = site.socket().await;
        socket.send(bare(method, path, &[V1])).await;
        let (status, headers) = socket.head().await.unwrap();
        assert_eq!((status, headers["allow"].to_str().unwrap()), (405, allow), "{method} {path}");
    }
}

#[tokio::test]
async fn media_types_in_and_out() {
    let site = Site::new().await;
    let body = json!({ "message": message("x") }).to_string();
    let send = async |headers: &[(&str, &str)]| {
        site.send(post("/message:send", &[&[V1], headers].concat(), &body)).await
    };
    for good in ["application/json", "application/a2a+json", "Application/JSON; charset=utf-8"] {
        assert_eq!(send(&[("content-type", good)]).await.status, 200, "{good}");
    }
    for bad in ["text/plain", "application/problem+json", "multipart/form-data", ""] {
        let answer = send(&[("content-type", bad)]).await;
        refused(&answer, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED");
    }
    let length = body.len().to_string();
    let untyped = bare("POST", "/message:send", &[V1, ("content-length", &length)]);
    let untyped = site.send([untyped, body.clone().into_bytes()].concat()).await;
    refused(&untyped, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED");

    for (accept, expected) in [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json, application/a2a+json", "application/json"),
        ("application/a2a+json, application/json", "application/a2a+json"),
        ("application/a2a+json;q=1", "application/a2a+json"),
    ] {
        let headers = [V1, ("accept", accept)];
        assert_eq!(send(&headers[1..]).await.header("content-type"), expected, "{accept}");
        for path in ["/tasks/nobody", "/tasks/a/b", "/tasks"] {
            assert_eq!(
                site.send(get(path, &headers)).await.header("content-type"),
                expected,
                "{accept} {path}"
            );
        }
    }
    // What JavaScript sends with a GET.
    assert_eq!(site.send(get("/tasks", &[V1, ("content-type", "application/json")])).await.status, 200);
}

#[tokio::test]
async fn a_stream_is_resumed_by_its_cursor() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "" };
    let mut stream = rest.stream("/message:stream", &[], json!({ "message": message("chunks 3") })).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let mut all = vec![];
    while let Some((id, event)) = stream.next().await {
        all.push((id.unwrap(), event));
    }
    let task = all[0].1["task"]["id"].as_str().unwrap().to_owned();
    let path = format!("/tasks/{task}:subscribe");
    for cursor in 1..all.len() {
        let after = all[cursor - 1].0.to_string();
        for method in ["POST", "GET"] {
            let request = bare(method, &path, &[V1, ("Last-Event-ID", &after)]);
            let mut stream = Events::open(site.socket().await, &request).await;
            let mut rest = vec![];
            while let Some((id, event)) = stream.next().await {
                rest.push((id.unwrap(), event));
            }
            assert_eq!(rest, all[cursor..], "{method} after {after}");
        }
    }
    for bad in ["999", "x", "-1"] {
        let answer = site.send(bare("POST", &path, &[V1, ("Last-Event-ID", bad)])).await;
        refused(&answer, 400, "INVALID_ARGUMENT", "INVALID_PARAMS");
    }
}

/// The stream of a message ends when the agent asks; a subscription stays, as in JSON-RPC.
#[tokio::test]
async fn a_question_ends_the_stream_of_its_message_and_no_subscription() {
    let site = Site::new().await;
    let rest = Rest { site: &site, base: "" };
    let events =
        rest.stream("/message:stream", &[], json!({ "message": message("ask") })).await.results().await;
    let task = events[0]["task"]["id"].as_str().unwrap();
    assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let mut subscribed = rest.stream(&format!("/tasks/{task}:subscribe"), &[], "").await;
    assert_eq!(subscribed.next().await.unwrap().1["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let mut reply = message("");
    reply["taskId"] = task.into();
    reply["parts"] = json!([{ "data": { "confirm": true } }]);
    let answered = ok(&rest.post("/message:send", json!({ "message": reply })).await);
    assert_eq!(answered["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let rest_of = subscribed.results().await;
    assert_eq!(rest_of.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// A follower that is behind when its task is deleted: the stream has begun, so the error is an event.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_stream_that_has_begun_is_an_event() {
    let site = Site::with(|setup| setup.options.limits.events_per_task = 200_000).await;
    let body = json!({ "message": message("chunks 60000") }).to_string();
    let mut stream = Events::open(site.socket().await, &post("/message:stream", &[V1], body)).await;
    let (_, first) = stream.next().await.unwrap();
    let task = first["task"]["id"].as_str().unwrap().to_owned();
    // Not read meanwhile: far more than the buffers between here and there.
    site.until_state(&task, "COMPLETED").await;
    let caller = nuncio_engine::Caller::local();
    site.engine.admin_delete(&caller, None, &task).await.unwrap();
    let mut last = first;
    within("the end of the stream", async {
        while let Some((_, event)) = stream.next().await {
            last = event;
        }
    })
    .await;
    let error = &last["error"]["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!(404), &json!("NOT_FOUND")), "{last}");
    assert_eq!(error["details"][0]["reason"], "TASK_NOT_FOUND");
}

#[tokio::test]
async fn the_layers_around_it_refuse_in_its_own_form() {
    let site = site_with(|setup| {
        setup.server.limits.max_body_bytes = 1000;
        setup.server.limits.requests_per_second = 5;
    })
    .await;
    let paths = ["/tasks", "/v1/tasks/x", "/agents/actor/tasks", "/actor/tasks/x"];
    for path in paths {
        let answer = site.send(get(path, &[V1])).await;
        refused(&answer, 401, "UNAUTHENTICATED", "UNAUTHENTICATED");
        assert!(answer.header("www-authenticate").starts_with("Bearer "));
        let host = site.send(get(path, &[V1, ("host", "evil.example")])).await;
        refused(&host, 403, "PERMISSION_DENIED", "PERMISSION_DENIED");
        let origin = site.send(get(path, &[V1, ("origin", "http://evil.example")])).await;
        refused(&origin, 403, "PERMISSION_DENIED", "PERMISSION_DENIED");
    }
    let ada = [V1, ("authorization", "Bearer ada")];
    let large = json!({ "message": message(&"x".repeat(2000)) }).to_string();
    refused(&site.send(post("/message:send", &ada, large)).await, 413, "INVALID_ARGUMENT", "-");
    let mut answer = site.send(get("/tasks", &ada)).await;
    within("a refusal", async {
        while answer.status == 200 {
            answer = site.send(get("/tasks", &ada)).await;
        }
    })
    .await;
    refused(&answer, 429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED");
    assert_eq!(answer.header("retry-after"), "1");
    let away = site.send(get("/tasks", &[V1, ("authorization", "Bearer away")])).await;
    refused(&away, 503, "UNAVAILABLE", "UNAVAILABLE");
    assert_eq!(away.header("retry-after"), "2");
}
