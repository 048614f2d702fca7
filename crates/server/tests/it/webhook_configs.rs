//! Push notification configs as their owner sees them: deleted as often as one likes, and without their secrets.

use serde_json::{Value, json};

use crate::{
    guests::{self, As},
    site::{Site, message, unique},
};

const URL: &str = "https://example.com/hook";

/// The method and the params that delete a config, in the dialects that have such a method.
fn deletion(version: &str, task: &str, config: &str) -> (&'static str, Value) {
    match version {
        "1.0" => ("DeleteTaskPushNotificationConfig", json!({ "taskId": task, "id": config })),
        _ => {
            ("tasks/pushNotificationConfig/delete", json!({ "id": task, "pushNotificationConfigId": config }))
        }
    }
}

async fn ended_task(site: &Site) -> String {
    let sent = site.result("1.0", "SendMessage", json!({ "message": message("hello") })).await;
    sent["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn deleting_a_config_that_is_not_there_succeeds() {
    let site = Site::new().await;
    let task = ended_task(&site).await;
    for (version, done) in [("0.3", json!(null)), ("1.0", json!({}))] {
        let set = json!({ "taskId": task, "id": "once", "url": URL });
        site.result("1.0", "CreateTaskPushNotificationConfig", set).await;
        // Never there, there, and there no longer.
        for config in ["never", "once", "once"] {
            let (method, params) = deletion(version, &task, config);
            let answer = site.call(version, method, params).await;
            assert_eq!(answer.get("result"), Some(&done), "{version} {config}: {answer}");
        }
        let list = json!({ "taskId": task });
        let left = site.result("1.0", "ListTaskPushNotificationConfigs", list).await;
        assert_eq!(left["configs"], json!([]), "{version}");
    }
}

#[tokio::test]
async fn deleting_a_config_of_a_task_that_is_not_there_does_not() {
    let site = guests::site().await;
    let (ann, bob) = (As { site: &site, token: "ann" }, As { site: &site, token: "bob" });
    let task = ann.begin("hello").await;
    for version in ["0.3", "1.0"] {
        for (caller, task) in [(ann, "nobody"), (bob, task.as_str())] {
            let (method, params) = deletion(version, task, "any");
            let answer = caller.a2a(version, method, &params).await.json();
            assert_eq!(answer["error"]["code"], -32001, "{version}: {answer}");
        }
        let (method, params) = deletion(version, &task, "any");
        let own = ann.a2a(version, method, &params).await.json();
        assert!(own.get("error").is_none(), "{version}: {own}");
    }
}

/// Reading needs less than writing: a token that may only read tasks must not come by the receiver's secrets.
#[tokio::test]
async fn the_secrets_of_a_config_are_sent_to_its_receiver_and_shown_to_nobody() {
    let site = Site::new().await;
    let config = json!({
        "url": URL,
        "token": "t0ken",
        "authentication": { "schemes": ["Bearer"], "scheme": "Bearer", "credentials": "s3cret" },
    });
    let mut answers = vec![];

    let id = unique("t");
    let old = json!({ "role": "user", "parts": [{ "type": "text", "text": "hello" }] });
    let send = json!({ "id": id, "message": old, "pushNotification": config });
    answers.push(site.call("0.1", "tasks/send", send).await);
    let set = json!({ "id": id, "pushNotificationConfig": config });
    answers.push(site.call("0.1", "tasks/pushNotification/set", set).await);
    answers.push(site.call("0.1", "tasks/pushNotification/get", json!({ "id": id })).await);

    let task = ended_task(&site).await;
    let set = json!({ "taskId": task, "pushNotificationConfig": config });
    answers.push(site.call("0.3", "tasks/pushNotificationConfig/set", set).await);
    answers.push(site.call("0.3", "tasks/pushNotificationConfig/get", json!({ "id": task })).await);
    answers.push(site.call("0.3", "tasks/pushNotificationConfig/list", json!({ "id": task })).await);

    let mut flat = config.clone();
    (flat["taskId"], flat["id"]) = (task.clone().into(), "flat".into());
    answers.push(site.call("1.0", "CreateTaskPushNotificationConfig", flat).await);
    let named = json!({ "taskId": task, "id": "flat" });
    answers.push(site.call("1.0", "GetTaskPushNotificationConfig", named).await);
    answers.push(site.call("1.0", "ListTaskPushNotificationConfigs", json!({ "taskId": task })).await);

    for (n, answer) in answers.iter().enumerate() {
        assert!(answer.get("error").is_none(), "{n}: {answer}");
        let text = answer.to_string();
        assert!(!text.contains("t0ken") && !text.contains("s3cret"), "{n}: {text}");
        // What is no secret is shown.
        assert!(n == 0 || (text.contains(URL) && text.contains("Bearer")), "{n}: {text}");
    }
    // They are kept all the same, for the receiver.
    let stored = site.engine.store_for_tests();
    let id = nuncio_engine::task::TaskId::parse(&task).unwrap();
    let row = stored.row(&nuncio_engine::store::TaskKey::Id(id)).await.unwrap().unwrap();
    for hook in stored.webhooks(row.no).await.unwrap() {
        let config = String::from_utf8(hook.config.to_vec()).unwrap();
        assert!(config.contains("t0ken") && config.contains("s3cret"), "{config}");
    }
}
