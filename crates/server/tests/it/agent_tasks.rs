//! The tasks that an agent's own address shows: those of that agent, and no others.

use serde_json::{Value, json};

use crate::{
    site::{Site, message, request, unique, version_header},
    socket::{Piece, post},
};

const OWN: &str = "/agents/actor";
const OTHER: &str = "/agents/unpushed";

fn code(answer: &Value) -> &Value {
    &answer["error"]["code"]
}

/// Begins a task of the agent at that address, in 1.0.
async fn begin(site: &Site, at: &str, text: &str, context: &str) -> String {
    let mut said = message(text);
    said["contextId"] = context.into();
    let params = json!({ "message": said, "configuration": { "returnImmediately": true } });
    let sent = site.call_at(at, "1.0", "SendMessage", params).await;
    sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
}

async fn listed(site: &Site, at: &str, filter: Value) -> (Vec<String>, u64) {
    let answer = site.call_at(at, "1.0", "ListTasks", filter).await;
    let tasks = answer["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let ids = tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect();
    (ids, answer["result"]["totalSize"].as_u64().unwrap())
}

#[tokio::test]
async fn an_agents_address_lists_its_own_tasks_and_the_root_those_of_all() {
    let site = Site::new().await;
    let own = begin(&site, OWN, "hello", "c").await;
    let other = begin(&site, OTHER, "hello", "c").await;
    let newest_first = vec![other.clone(), own.clone()];
    for filter in [json!({}), json!({ "contextId": "c" })] {
        assert_eq!(listed(&site, OWN, filter.clone()).await, (vec![own.clone()], 1), "{filter}");
        assert_eq!(listed(&site, OTHER, filter.clone()).await, (vec![other.clone()], 1), "{filter}");
        assert_eq!(listed(&site, "/", filter.clone()).await, (newest_first.clone(), 2), "{filter}");
    }
}

#[tokio::test]
async fn a_task_of_another_agent_is_not_found_at_an_agents_address() {
    let site = Site::new().await;
    let working = begin(&site, OWN, "wait", "w").await;
    let asking = begin(&site, OWN, "ask", "a").await;
    site.until_state(&asking, "INPUT_REQUIRED").await;
    let ended = begin(&site, OWN, "hello", "e").await;
    site.until_state(&ended, "COMPLETED").await;
    let answer_to = |task: &str, version: &str| {
        let mut said = message("yes");
        if version == "0.3" {
            said = json!({
                "messageId": unique("m"), "role": "user", "parts": [{ "kind": "text", "text": "yes" }],
            });
        }
        said["taskId"] = task.into();
        json!({ "message": said })
    };
    let hook = "https://example.com/hook";
    let nested = json!({ "taskId": working, "pushNotificationConfig": { "url": hook } });
    let flat = json!({ "taskId": working, "url": hook });
    let named = json!({ "taskId": working, "id": "default" });
    let named_0_3 = json!({ "id": working, "pushNotificationConfigId": "default" });
    for (version, method, params) in [
        ("0.1", "tasks/get", json!({ "id": ended })),
        ("0.1", "tasks/cancel", json!({ "id": working })),
        ("0.1", "tasks/pushNotification/get", json!({ "id": working })),
        ("0.3", "tasks/get", json!({ "id": working })),
        ("0.3", "tasks/get", json!({ "id": ended })),
        ("0.3", "tasks/cancel", json!({ "id": working })),
        ("0.3", "message/send", answer_to(&asking, "0.3")),
        ("0.3", "tasks/pushNotificationConfig/set", nested),
        ("0.3", "tasks/pushNotificationConfig/list", json!({ "id": working })),
        ("0.3", "tasks/pushNotificationConfig/delete", named_0_3),
        ("1.0", "GetTask", json!({ "id": working })),
        ("1.0", "GetTask", json!({ "id": ended })),
        ("1.0", "CancelTask", json!({ "id": working })),
        ("1.0", "SubscribeToTask", json!({ "id": working })),
        ("1.0", "SendMessage", answer_to(&asking, "1.0")),
        ("1.0", "SendStreamingMessage", answer_to(&asking, "1.0")),
        ("1.0", "CreateTaskPushNotificationConfig", flat),
        ("1.0", "GetTaskPushNotificationConfig", named.clone()),
        ("1.0", "ListTaskPushNotificationConfigs", json!({ "taskId": working })),
        ("1.0", "DeleteTaskPushNotificationConfig", named),
    ] {
        let answer = site.call_at(OTHER, version, method, params).await;
        // What its card does not offer is refused as that, whatever the task is.
        let expected = if method.to_lowercase().contains("push") { -32003 } else { -32001 };
        assert_eq!(code(&answer), expected, "{version} {method}: {answer}");
    }
    // A stream of 0.3 carries its refusal, also with a cursor.
    for headers in [vec![], vec![("Last-Event-ID", "1")]] {
        for method in ["tasks/resubscribe", "message/stream"] {
            let params = match method {
                "tasks/resubscribe" => json!({ "id": working }),
                _ => answer_to(&asking, "0.3"),
            };
            let headers: Vec<_> = version_header("0.3").into_iter().chain(headers.clone()).collect();
            let opened = post(OTHER, &headers, request(method, &params));
            let answer = site.send(opened).await;
            assert_eq!(answer.header("content-type"), "text/event-stream");
            let Piece::Event { data, .. } = Piece::read(answer.text().trim_end()) else { panic!("{method}") };
            assert_eq!(code(&data), -32001, "{method}: {data}");
        }
    }
    // Nothing of it had an effect, and the agent's own address still works.
    site.until_state(&working, "WORKING").await;
    site.until_state(&asking, "INPUT_REQUIRED").await;
    let answered = site.call_at(OWN, "1.0", "SendMessage", answer_to(&asking, "1.0")).await;
    assert_eq!(answered["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answered}");
    let canceled = site.call_at(OWN, "1.0", "CancelTask", json!({ "id": working })).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
}

/// In 0.1 the client chooses the id, and ids are unique per caller: the message must not reach the other agent's task.
#[tokio::test]
async fn in_0_1_an_id_that_another_agents_task_has_is_refused() {
    let site = Site::new().await;
    let id = unique("t");
    let said = |text: &str| json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
    let send = |text: &str| json!({ "id": id, "message": said(text) });
    site.call_at(OWN, "0.1", "tasks/send", send("ask")).await;
    site.until_state(&id, "INPUT_REQUIRED").await;
    let refused = site.call_at(OTHER, "0.1", "tasks/send", send("yes")).await;
    assert_eq!(code(&refused), -32602, "{refused}");
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(
        words.contains(&id) && words.contains("another agent") && words.contains("another id"),
        "{words}"
    );
    site.until_state(&id, "INPUT_REQUIRED").await;
    // At the root the caller's tasks of all agents are reached, as ever.
    site.call_at("/", "0.1", "tasks/send", send("yes")).await;
    site.until_state(&id, "COMPLETED").await;
    assert_eq!(site.total().await, 1);
}

/// Over REST an agent's address is its path, or the tenant, which is the agent's name.
#[tokio::test]
async fn over_rest_a_task_of_another_agent_is_not_found_at_an_agents_address() {
    let site = Site::new().await;
    let task = site.begin("wait").await;
    for (place, status, listed) in [
        ("", 200, 1),
        ("/agents/actor", 200, 1),
        ("/actor", 200, 1),
        ("/agents/unpushed", 404, 0),
        ("/unpushed", 404, 0),
    ] {
        let version = [("A2A-Version", "1.0")];
        let got = site.get(&format!("{place}/tasks/{task}"), &version).await;
        assert_eq!(got.status, status, "{place}: {}", got.text());
        let list = site.get(&format!("{place}/tasks"), &version).await.json();
        assert_eq!(list["totalSize"], listed, "{place}: {list}");
    }
}

/// Over JSON-RPC as over REST and gRPC; at another agent's address it is a mistake.
#[tokio::test]
async fn a_tenant_names_an_agent_in_json_rpc() {
    let site = Site::new().await;
    let mut params = json!({ "message": message("hello"), "tenant": "unpushed" });
    let sent = site.call_at("/", "1.0", "SendMessage", params.clone()).await;
    let task = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
    assert_eq!(listed(&site, OTHER, json!({})).await, (vec![task.clone()], 1));
    assert_eq!(listed(&site, "/", json!({ "tenant": "actor" })).await, (vec![], 0));
    let get = |tenant: Value| json!({ "id": task, "tenant": tenant });
    let missing = site.call_at("/", "1.0", "GetTask", get("actor".into())).await;
    assert_eq!(code(&missing), -32001);
    assert_eq!(site.call_at("/", "1.0", "GetTask", get("".into())).await["result"]["id"], task.as_str());
    assert_eq!(code(&site.call_at("/", "1.0", "GetTask", get(5.into())).await), -32602);
    for (path, tenant) in [("/", "nobody"), (OWN, "unpushed")] {
        params["tenant"] = tenant.into();
        let answer = site.send(&post(path, &version_header("1.0"), request("SendMessage", &params))).await;
        assert_eq!(answer.status, 404, "{path} {tenant}: {}", answer.text());
    }
}
