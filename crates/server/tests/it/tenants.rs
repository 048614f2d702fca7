//! What belongs to another tenant does not exist: the same words, in the same time, and a line of the audit.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    guests::{As, audit, site},
    site::{Site, request, version_header},
    socket::{Answer, post, within},
};

const NOBODY: &str = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";

/// Two tenants, and a task of the second one that waits for its end, with a webhook.
async fn stage() -> (Site, String) {
    let site = site().await;
    let bob = As { site: &site, token: "globex/bob" };
    let task = bob.begin("wait").await;
    let hook = json!({ "taskId": task, "id": "hook", "url": "https://hooks.example.org/x" });
    let set = bob.a2a("1.0", "CreateTaskPushNotificationConfig", &hook).await;
    assert!(set.json().get("result").is_some(), "{}", set.text());
    (site, task)
}

/// An answer with the name of the task taken out of it.
fn without(answer: &Answer, id: &str) -> (u16, String, String) {
    (answer.status, answer.header("content-type").to_owned(), answer.text().replace(id, "TASK"))
}

/// All calls of a dialect that name a task.
fn calls(version: &str, task: &str) -> Vec<(&'static str, Value)> {
    let text = |kind: &str| json!([{ kind: "text", "text": "more" }]);
    match version {
        "1.0" => {
            let message = json!({ "messageId": "m1", "role": "ROLE_USER", "taskId": task, "parts": [{ "text": "more" }] });
            vec![
                ("GetTask", json!({ "id": task })),
                ("CancelTask", json!({ "id": task })),
                ("SubscribeToTask", json!({ "id": task })),
                ("SendMessage", json!({ "message": message })),
                ("SendStreamingMessage", json!({ "message": message })),
                (
                    "CreateTaskPushNotificationConfig",
                    json!({ "taskId": task, "id": "h", "url": "https://hooks.example.org/y" }),
                ),
                ("GetTaskPushNotificationConfig", json!({ "taskId": task, "id": "hook" })),
                ("ListTaskPushNotificationConfigs", json!({ "taskId": task })),
                ("DeleteTaskPushNotificationConfig", json!({ "taskId": task, "id": "hook" })),
            ]
        }
        "0.3" => {
            let message = json!({ "kind": "message", "messageId": "m1", "role": "user", "taskId": task, "parts": text("kind") });
            let config = json!({ "url": "https://hooks.example.org/y", "id": "h" });
            vec![
                ("tasks/get", json!({ "id": task })),
                ("tasks/cancel", json!({ "id": task })),
                ("tasks/resubscribe", json!({ "id": task })),
                ("message/send", json!({ "message": message })),
                ("message/stream", json!({ "message": message })),
                (
                    "tasks/pushNotificationConfig/set",
                    json!({ "taskId": task, "pushNotificationConfig": config }),
                ),
                (
                    "tasks/pushNotificationConfig/get",
                    json!({ "id": task, "pushNotificationConfigId": "hook" }),
                ),
                ("tasks/pushNotificationConfig/list", json!({ "id": task })),
                (
                    "tasks/pushNotificationConfig/delete",
                    json!({ "id": task, "pushNotificationConfigId": "hook" }),
                ),
            ]
        }
        // A task of 0.1 has the id that its client chose, so sending to it is making one: see below.
        _ => {
            let config = json!({ "url": "https://hooks.example.org/y" });
            vec![
                ("tasks/get", json!({ "id": task })),
                ("tasks/cancel", json!({ "id": task })),
                ("tasks/resubscribe", json!({ "id": task })),
                ("tasks/pushNotification/set", json!({ "id": task, "pushNotificationConfig": config })),
                ("tasks/pushNotification/get", json!({ "id": task })),
            ]
        }
    }
}

#[tokio::test]
async fn a_task_of_another_tenant_is_one_that_does_not_exist_in_every_dialect() {
    let (site, task) = stage().await;
    let ada = As { site: &site, token: "acme/ada" };
    let mut asked = 0;
    // The last is how 0.3 and 0.1 are spoken without a header.
    for version in ["1.0", "0.3", "0.1", ""] {
        let dialect = if version.is_empty() { "0.3" } else { version };
        for ((method, theirs), (_, nobodys)) in calls(dialect, &task).into_iter().zip(calls(dialect, NOBODY))
        {
            let there = ada.a2a(version, method, &theirs).await;
            let nowhere = ada.a2a(version, method, &nobodys).await;
            assert_eq!(without(&there, &task), without(&nowhere, NOBODY), "{version} {method}");
            let said = nowhere.text().to_owned();
            assert!(said.contains("-32001"), "{version} {method}: {said}");
            asked += 1;
        }
    }
    let listed = ada.a2a("1.0", "ListTasks", &json!({})).await.json();
    assert_eq!(listed["result"]["totalSize"], 0, "{listed}");

    // Nothing has happened to it, and every look at it is in the audit.
    let bob = As { site: &site, token: "globex/bob" };
    let got = bob.a2a("1.0", "GetTask", &json!({ "id": task })).await.json();
    assert_eq!(got["result"]["status"]["state"], "TASK_STATE_WORKING", "{got}");
    let hooks = bob.a2a("1.0", "ListTaskPushNotificationConfigs", &json!({ "taskId": task })).await.json();
    assert_eq!(hooks["result"]["configs"].as_array().map(Vec::len), Some(1), "{hooks}");
    let lines = audit(&site).await;
    let refused = lines.iter().filter(|line| {
        line.tenant == "acme"
            && line.resource == format!("a2a://tasks/{task}")
            && line.refused.as_deref().is_some_and(|why| why.starts_with("not found"))
    });
    let refused = refused.count();
    assert!(refused >= asked, "{refused} lines for {asked} looks");
    let nowhere =
        lines.iter().filter(|line| line.resource.ends_with(NOBODY) && line.refused.is_some()).count();
    assert_eq!(nowhere, 0, "there was nothing to refuse");
}

#[tokio::test]
async fn in_0_1_the_id_of_anothers_task_is_free_to_choose() {
    let (site, task) = stage().await;
    let ada = As { site: &site, token: "acme/ada" };
    let send = |id: &str| json!({ "id": id, "message": { "role": "user", "parts": [{ "type": "text", "text": "mine" }] } });
    for (id, said) in [(&*task, "theirs"), (NOBODY, "nobody's")] {
        let sent = ada.a2a("0.1", "tasks/send", &send(id)).await.json();
        assert_eq!(
            (&sent["result"]["id"], &sent["result"]["status"]["state"]),
            (&json!(id), &json!("completed")),
            "{said}: {sent}"
        );
    }
    let bob = As { site: &site, token: "globex/bob" };
    let got = bob.a2a("1.0", "GetTask", &json!({ "id": task })).await.json();
    assert_eq!(got["result"]["status"]["state"], "TASK_STATE_WORKING");
    let mine = ada.a2a("0.1", "tasks/get", &json!({ "id": task })).await.json();
    assert_eq!(mine["result"]["status"]["state"], "completed", "{mine}");
}

#[tokio::test]
async fn the_same_over_mcp_in_both_eras() {
    let (site, task) = stage().await;
    let ada = As { site: &site, token: "acme/ada" };
    let session = ada.session().await;
    let methods = |id: &str| {
        let uri = format!("a2a://tasks/{id}");
        vec![
            ("tasks/get", json!({ "taskId": id })),
            ("tasks/cancel", json!({ "taskId": id })),
            ("tasks/update", json!({ "taskId": id, "inputResponses": {} })),
            ("tasks/result", json!({ "taskId": id })),
            ("resources/read", json!({ "uri": uri })),
            ("resources/subscribe", json!({ "uri": uri })),
        ]
    };
    let mut compared = 0;
    for session in [&*session, ""] {
        for ((method, theirs), (_, nobodys)) in methods(&task).into_iter().zip(methods(NOBODY)) {
            let of_sessions = matches!(method, "tasks/result" | "resources/subscribe");
            // Each era has some of them.
            if (session.is_empty() && of_sessions) || (!session.is_empty() && method == "tasks/update") {
                continue;
            }
            let there = ada.mcp(session, method, theirs).await;
            let nowhere = ada.mcp(session, method, nobodys).await;
            assert!(there.json().get("error").is_some(), "{method}: {}", there.text());
            assert_eq!(without(&there, &task), without(&nowhere, NOBODY), "{session:?} {method}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5 + 4);
    let listed = ada.mcp(&session, "tasks/list", json!({})).await.json();
    assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    // A stream of another's call is not taken up again.
    let resume = async |id: &str| {
        let cursor = format!("{id}.1");
        let headers =
            [("mcp-session-id", &*session), ("accept", "text/event-stream"), ("last-event-id", &*cursor)];
        ada.bare("GET", "/mcp", &headers).await
    };
    assert_eq!(without(&resume(&task).await, &task), without(&resume(NOBODY).await, NOBODY));
    // Nor is its id completed for whoever types.
    let typed = json!({ "ref": { "type": "ref/resource", "uri": "a2a://tasks/{taskId}" },
        "argument": { "name": "taskId", "value": "" } });
    let completed = ada.mcp(&session, "completion/complete", typed).await.json();
    assert_eq!(completed["result"]["completion"]["values"], json!([]), "{completed}");
    assert!(audit(&site).await.iter().filter(|line| line.refused.is_some()).count() >= 9);
}

/// Medians of the times that requests take, asked in turns so that what else the machine does hits all of them.
async fn medians<const N: usize>(site: &Site, rounds: usize, requests: [Vec<u8>; N]) -> [Duration; N] {
    let mut times = [(); N].map(|()| vec![]);
    let mut socket = site.socket().await;
    for _ in 0..rounds {
        for (n, request) in requests.iter().enumerate() {
            let began = Instant::now();
            socket.send(request).await;
            socket.answer().await;
            times[n].push(began.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    })
}

#[tokio::test]
async fn what_is_anothers_takes_as_long_as_what_is_not_there() {
    let (site, _) = stage().await;
    let bob = As { site: &site, token: "globex/bob" };
    // A long log, which must not be read for somebody who may not see it.
    let task = bob.begin(&format!("chunks {}", 400)).await;
    within("the task has ended", async {
        while bob.a2a("1.0", "GetTask", &json!({ "id": task })).await.json()["result"]["status"]["state"]
            != "TASK_STATE_COMPLETED"
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let full = std::env::var_os("NUNCIO_FULL").is_some();
    let rounds = if full { 1_000 } else { 300 };
    for (version, method) in [("1.0", "GetTask"), ("0.3", "tasks/get"), ("0.1", "tasks/get")] {
        let ask = |id: &str| {
            let mut headers = version_header(version);
            headers.push(("authorization", "Bearer acme/ada"));
            post("/", &headers, request(method, &json!({ "id": id })))
        };
        // A machine that is busy with other things gets another chance; a difference that is there stays.
        let mut seen = vec![];
        let close = async {
            for _ in 0..5 {
                let [there, nowhere] = medians(&site, rounds, [ask(&task), ask(NOBODY)]).await;
                let ratio = there.as_secs_f64() / nowhere.as_secs_f64();
                seen.push((there, nowhere));
                if (0.75..=1.25).contains(&ratio) {
                    return true;
                }
            }
            false
        };
        assert!(close.await, "{version}: {seen:?}");
    }
}
