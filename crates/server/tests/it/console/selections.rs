//! Selections: what is frozen, for whom, and the batch that an act on one begins.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use nuncio_engine::{
    Caller, Surface,
    engine::{OverviewQuery, OverviewScope},
    surface::{HandlerError, HandlerReply, ToolOutput, ToolProfile, tool},
};
use serde_json::{Value, json};

use super::refused;
use crate::{
    guests::{As, site_with},
    site::{Setup, Site},
};

/// A tool in place of the batch engine's, which notes who submits what.
type Submitted = Arc<Mutex<Vec<(String, Value)>>>;

fn with_batches(setup: &mut Setup) -> Submitted {
    let submitted = Submitted::default();
    let noted = Arc::clone(&submitted);
    let surface = Surface::default();
    let profile = ToolProfile::new("batch_submit", "Begins a batch");
    let submit = tool(profile, move |request| {
        let owner = request.caller.owner().to_owned();
        noted.lock().unwrap().push((owner.clone(), Value::Object(request.arguments)));
        std::future::ready(match &*owner {
            "unlucky" => Err(HandlerError::Forbidden("execute:batchtools:batchtools".into())),
            "late" => {
                let retry_after = Duration::from_secs(5);
                Err(HandlerError::Later { why: "the queue is full".into(), retry_after, too_fast: false })
            }
            _ => Ok(HandlerReply::Done(ToolOutput {
                structured: Some(json!({ "batchId": "b-1", "status": "submitted" })),
                ..ToolOutput::text("begun")
            })),
        })
    });
    surface.add_tool(submit).unwrap();
    setup.surface = Arc::new(surface);
    submitted
}

async fn post(site: &Site, token: &str, path: &str, body: &Value) -> crate::socket::Answer {
    site.console_post(path, &[("authorization", &format!("Bearer {token}"))], body).await
}

async fn select(site: &Site, token: &str, filter: Value) -> Value {
    let answer = post(site, token, "selections", &json!({ "filter": filter })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn begin(site: &Site, token: &str, text: &str, count: usize) -> Vec<String> {
    let mut tasks = vec![];
    for _ in 0..count {
        tasks.push(As { site, token }.begin(text).await);
    }
    tasks
}

#[tokio::test]
async fn a_selection_is_frozen_and_bound_to_its_caller() {
    let mut submitted = Submitted::default();
    let site = site_with(|setup| submitted = with_batches(setup)).await;
    let tasks = begin(&site, "ada", "wait", 23).await;
    begin(&site, "bob", "wait", 2).await;
    let selection = select(&site, "ada", json!({ "agent": ["actor"] })).await;
    assert_eq!(selection["count"], 23);
    assert_eq!(selection["examples"].as_array().unwrap().len(), 20);
    assert_eq!(selection["examples"][0]["firstText"], "wait");
    assert!(selection["asOf"].as_str() < selection["expires"].as_str());
    let id = selection["id"].as_str().unwrap();

    // What comes later is not in it, and what ends stays in it.
    begin(&site, "ada", "wait", 1).await;
    post(&site, "ada", &format!("tasks/{}/cancel", tasks[0]), &json!({})).await;
    let path = format!("selections/{id}");
    let again = site.console(&path, &[("authorization", "Bearer ada")]).await.json();
    assert_eq!((&again["count"], &again["asOf"]), (&23.into(), &selection["asOf"]));

    // Nobody else finds it: not of the same tenant, not an administrator.
    for token in ["bob", "acme/ada", "root;read,write:admin:tasks+read,write:a2a", "ada2"] {
        let headers = [("authorization", &*format!("Bearer {token}"))];
        site.console_refuses(&path, &headers, 404, "not_found").await;
        let answer = post(&site, token, &format!("{path}/cancel"), &json!({ "count": 23 })).await;
        refused(&answer, 404, "not_found");
    }
    for odd in ["x", "..%2f..", "019a8f2e-7d11-7c3a-9b1e-000000000007"] {
        let headers = [("authorization", "Bearer ada")];
        site.console_refuses(&format!("selections/{odd}"), &headers, 404, "not_found").await;
    }

    // A count that was not seen is refused, with the one that is.
    for (count, act) in [(24, "cancel"), (0, "cancel"), (22, "rerun")] {
        let answer = post(&site, "ada", &format!("{path}/{act}"), &json!({ "count": count })).await;
        assert_eq!(refused(&answer, 409, "count_differs")["count"], 23);
    }
    for body in [json!({}), json!({ "count": "23" }), json!({ "count": -1 }), json!({ "count": 23, "x": 1 })]
    {
        let answer = post(&site, "ada", &format!("{path}/cancel"), &body).await;
        refused(&answer, 400, "bad_request");
    }
    assert!(submitted.lock().unwrap().is_empty(), "nothing was begun");
    for act in ["cancel", "rerun"] {
        let answer = post(&site, "ada", &format!("{path}/{act}"), &json!({ "count": 23 })).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!((&answer.json()["batchId"], &answer.json()["count"]), (&"b-1".into(), &23.into()));
        let (owner, asked) = submitted.lock().unwrap().pop().unwrap();
        assert_eq!(owner, "ada", "in its own name");
        let operation = &asked["operations"][0];
        assert_eq!(operation["type"], format!("task.{act}"));
        assert_eq!(operation["args"], json!({ "selection": id }));
    }
}

#[tokio::test]
async fn what_the_batch_engine_refuses_is_refused_with_its_reason() {
    let site = site_with(|setup| drop(with_batches(setup))).await;
    for (owner, status, code) in [("unlucky", 403, "scope_missing"), ("late", 503, "busy")] {
        begin(&site, owner, "wait", 1).await;
        let selection = select(&site, owner, json!({})).await;
        let path = format!("selections/{}/cancel", selection["id"].as_str().unwrap());
        refused(&post(&site, owner, &path, &json!({ "count": 1 })).await, status, code);
    }
    let without = site_with(|_| {}).await;
    let selection = select(&without, "ada", json!({})).await;
    let path = format!("selections/{}/cancel", selection["id"].as_str().unwrap());
    refused(&post(&without, "ada", &path, &json!({ "count": 0 })).await, 404, "not_found");
}

#[tokio::test]
async fn a_filter_selects_what_a_list_of_it_shows() {
    let site = site_with(|_| {}).await;
    begin(&site, "acme/ada", "wait", 3).await;
    begin(&site, "acme/bob", "hello", 2).await;
    begin(&site, "evil/eve", "wait", 2).await;
    let boss = "acme/boss;read:admin:tasks+read:a2a";
    for (token, filter, count) in [
        ("acme/ada", json!({}), 3),
        ("acme/ada", json!({ "state": ["completed"] }), 0),
        ("acme/ada", json!({ "state": ["working", "submitted"], "agent": ["actor", "none"] }), 3),
        ("acme/ada", json!({ "agent": ["none"] }), 0),
        ("acme/ada", json!({ "state": ["working", "working"], "agent": ["actor", "actor"] }), 3),
        ("acme/ada", json!({ "roots": true }), 3),
        ("acme/ada", json!({ "before": "2020-01-01" }), 0),
        ("acme/ada", json!({ "owner": "acme/ada" }), 3),
        (boss, json!({ "owner": "all" }), 5),
        (boss, json!({ "owner": "acme/bob" }), 2),
        (boss, json!({ "owner": "evil/eve" }), 0),
        (boss, json!({}), 0),
    ] {
        assert_eq!(select(&site, token, filter.clone()).await["count"], count, "{token} {filter}");
    }
    let ada = "acme/ada;read:a2a";
    let answer = post(&site, ada, "selections", &json!({ "filter": { "owner": "all" } })).await;
    assert_eq!(refused(&answer, 403, "scope_missing")["scope"], "read:admin:tasks");
    let answer = post(&site, "acme/ada;nothing", "selections", &json!({ "filter": {} })).await;
    refused(&answer, 403, "scope_missing");
    for (filter, field) in [
        (json!({ "state": ["odd"] }), "state"),
        (json!({ "since": "odd" }), "since"),
        (json!({ "id": "x!" }), "id"),
        (json!({ "limit": 3 }), ""),
        (json!({ "agent": (0..17).map(|n| format!("a{n}")).collect::<Vec<_>>() }), "filter"),
        (json!({ "roots": "true" }), ""),
        (json!(3), ""),
    ] {
        let answer = post(&site, "acme/ada", "selections", &json!({ "filter": filter })).await;
        assert_eq!(refused(&answer, 400, "bad_request")["field"], field, "{filter}");
    }
}

#[tokio::test]
async fn selections_have_limits() {
    let site = site_with(|setup| {
        setup.options.limits.selected_tasks = 3;
        setup.options.limits.selections_per_caller = 2;
        setup.options.limits.selection_life = Duration::from_millis(1_500);
    })
    .await;
    begin(&site, "ada", "wait", 3).await;
    let first = select(&site, "ada", json!({})).await;
    let headers = [("authorization", "Bearer ada")];
    begin(&site, "ada", "wait", 1).await;
    let answer = post(&site, "ada", "selections", &json!({ "filter": {} })).await;
    let why = refused(&answer, 400, "bad_request")["message"].as_str().unwrap().to_owned();
    assert!(why.contains("3 tasks") && why.contains("console.selection"), "{why}");

    // The oldest gives way to a third one, and of another caller none.
    let other = select(&site, "bob", json!({})).await;
    let none = || json!({ "agent": ["none"] });
    let (second, third) = (select(&site, "ada", none()).await, select(&site, "ada", none()).await);
    let path = |selection: &Value| format!("selections/{}", selection["id"].as_str().unwrap());
    site.console_refuses(&path(&first), &headers, 404, "not_found").await;
    for known in [&second, &third] {
        assert_eq!(site.console(&path(known), &headers).await.status, 200);
    }
    assert_eq!(site.console(&path(&other), &[("authorization", "Bearer bob")]).await.status, 200);
    crate::receiver::until("it has expired", async || {
        site.console(&path(&third), &headers).await.status == 404
    })
    .await;
    let shown = site.console("me", &headers).await.json();
    assert_eq!((&shown["limits"]["selection"], &shown["limits"]["selections"]), (&3.into(), &2.into()));
}

/// The ids are in the store: the number that a caller was shown is the one that it acts on after a restart.
#[tokio::test]
async fn a_selection_survives_a_restart() {
    let site = site_with(|_| {}).await;
    begin(&site, "ada", "wait", 3).await;
    let before = select(&site, "ada", json!({ "agent": ["actor"] })).await;
    let path = format!("selections/{}", before["id"].as_str().unwrap());
    let folder = site.begin_stop().finish().await;

    let mut submitted = Submitted::default();
    let site = site_with(|setup| {
        submitted = with_batches(setup);
        setup.folder = folder;
    })
    .await;
    let after = site.console(&path, &[("authorization", "Bearer ada")]).await;
    assert_eq!(after.status, 200, "{}", after.text());
    for member in ["id", "count", "asOf", "expires"] {
        assert_eq!(after.json()[member], before[member], "{member}");
    }
    site.console_refuses(&path, &[("authorization", "Bearer bob")], 404, "not_found").await;
    let canceled = post(&site, "ada", &format!("{path}/cancel"), &json!({ "count": 3 })).await;
    assert_eq!(canceled.status, 200, "{}", canceled.text());
    let (owner, asked) = submitted.lock().unwrap().pop().unwrap();
    assert_eq!((&*owner, &asked["operations"][0]["args"]["selection"]), ("ada", &before["id"]));
}

/// Tasks whose status changes while they are selected are neither lost nor counted twice.
#[tokio::test]
async fn what_moves_meanwhile_is_selected_once() {
    let site = Arc::new(site_with(|_| {}).await);
    let tasks = begin(&site, "ada", "ask", 40).await;
    let moving = {
        let (site, tasks) = (Arc::clone(&site), tasks.clone());
        tokio::spawn(async move {
            for task in tasks.iter().rev() {
                let _ = site.engine.cancel(&Caller::named("ada"), task).await;
            }
        })
    };
    let query = OverviewQuery { scope: OverviewScope::Own, limit: 1, ..OverviewQuery::default() };
    while !moving.is_finished() {
        let (selection, _) = site.engine.create_selection(&Caller::named("ada"), &query).await.unwrap();
        let mut found: Vec<String> = selection.tasks.iter().map(ToString::to_string).collect();
        found.sort();
        let mut all = tasks.clone();
        all.sort();
        assert_eq!(found, all);
    }
}
