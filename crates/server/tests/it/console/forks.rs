//! A task is forked at a question over the API.

use serde_json::{Value, json};

use super::{API, refused};
use crate::{
    guests::{self, As},
    receiver::until,
    socket::{Answer, post},
};

async fn fork(caller: &As<'_>, task: &str, body: &Value) -> Answer {
    let authorization = format!("Bearer {}", caller.token);
    let path = format!("{API}/tasks/{task}/fork");
    caller.site.send(post(&path, &[("authorization", &*authorization)], body.to_string())).await
}

async fn state(caller: &As<'_>, task: &str) -> String {
    let shown = caller.get(&format!("{API}/tasks/{task}")).await.json();
    shown["row"]["state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_task_is_forked_at_a_question_by_its_caller_alone() {
    let site = guests::site().await;
    let ada = As { site: &site, token: "acme/ada" };
    let task = ada.begin("ask-twice").await;
    until("the question", async || state(&ada, &task).await == "input-required").await;
    let log = ada.get(&format!("{API}/tasks/{task}/events?kind=question")).await.json();
    let at = log["events"][0]["seq"].clone();
    let with = |confirm: Value| json!({ "at": at, "answer": { "action": "accept", "content": { "confirm": confirm } } });
    let made = fork(&ada, &task, &with(json!(false))).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    assert_eq!(made["forkedFrom"], json!({ "taskId": task, "at": at }));
    let forked = made["taskId"].as_str().unwrap();
    let second = async || {
        let log = ada.get(&format!("{API}/tasks/{forked}/events?kind=question")).await.json();
        log["events"].as_array().unwrap().len() == 2
    };
    until("the second question of the fork", second).await;
    let log = ada.get(&format!("{API}/tasks/{forked}/events")).await.json();
    let answer =
        log["events"].as_array().unwrap().iter().find(|event| event["type"] == "answer").unwrap().clone();
    assert_eq!(answer["by"], json!({ "caller": "acme/ada", "dialect": "console" }));
    assert_eq!(answer["data"]["answer"], json!({ "accept": { "confirm": false } }));
    assert_eq!(state(&ada, &task).await, "input-required", "the original is as it was");

    refused(&fork(&ada, &task, &with(json!("perhaps"))).await, 422, "answer_invalid");
    let deep: Value = serde_json::from_str(&format!("{}{}", "[".repeat(100), "]".repeat(100))).unwrap();
    let too_deep = refused(&fork(&ada, &task, &with(deep)).await, 400, "bad_request");
    assert!(too_deep["message"].as_str().unwrap().contains("nested deeper than"), "{too_deep}");
    let reason = refused(&fork(&ada, &task, &json!({ "at": 1 })).await, 409, "cannot_fork");
    assert!(reason["message"].as_str().unwrap().contains("asks no question"), "{reason}");
    for stranger in ["acme/bob", "globex/eve", "acme/boss;read,write:admin:tasks+execute:a2a"] {
        let stranger = As { site: &site, token: stranger };
        refused(&fork(&stranger, &task, &with(json!(true))).await, 404, "not_found");
    }
    let reader = As { site: &site, token: "acme/ada;read:a2a" };
    refused(&fork(&reader, &task, &with(json!(true))).await, 403, "scope_missing");
}
