//! Authorizations that an agent waits for: streams stay open meanwhile, and the answer may come past the client, from
//! a person at the callback or from the operator.

use serde_json::{Value, json};

use crate::{
    guests::{self, As},
    site::{Site, message, request, version_header},
    socket::{Answer, Events, bare, post},
};

/// The members of the data part beside the text of a question.
fn asked(status: &Value) -> &Value {
    let parts = status["message"]["parts"].as_array().unwrap_or_else(|| panic!("{status}"));
    parts.iter().find_map(|part| part.get("data")).unwrap()
}

/// The path of the callback in a status.
fn callback(status: &Value) -> String {
    let url = asked(status)["callbackUrl"].as_str().unwrap_or_else(|| panic!("no callback: {status}"));
    let rest = url.strip_prefix("http://").unwrap();
    rest[rest.find('/').unwrap()..].to_owned()
}

fn status_of(frame: &Value) -> &Value {
    let result = &frame["result"];
    &result.get("statusUpdate").or_else(|| result.get("task")).unwrap_or_else(|| panic!("{frame}"))["status"]
}

/// Reads a stream up to the status in which an authorization is awaited.
async fn until_required(stream: &mut Events) -> Value {
    loop {
        let (_, frame) = stream.next().await.expect("a status");
        let status = status_of(&frame);
        if status["state"] == "TASK_STATE_AUTH_REQUIRED" {
            return status.clone();
        }
    }
}

/// The states that follow, up to the end of the stream, and the last message.
async fn rest_of(mut stream: Events) -> (Vec<String>, Value) {
    let (mut states, mut last) = (vec![], Value::Null);
    while let Some((_, frame)) = stream.next().await {
        let status = status_of(&frame);
        states.push(status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_").to_owned());
        last = status["message"]["parts"][0]["text"].clone();
    }
    (states, last)
}

/// The callback is pressed, as a browser does it.
async fn press(site: &Site, path: &str) -> Answer {
    site.send(post(path, &[("content-type", "application/x-www-form-urlencoded")], "")).await
}

fn ends_authorized() -> (Vec<String>, Value) {
    (vec!["WORKING".into(), "COMPLETED".into()], "authorized".into())
}

#[tokio::test]
async fn a_stream_of_1_0_stays_open_while_an_authorization_is_awaited() {
    let site = Site::new().await;
    let params = json!({ "message": message("authorize") });
    let mut stream = site.stream("1.0", "SendStreamingMessage", params).await;
    let status = until_required(&mut stream).await;
    assert_eq!(asked(&status)["url"], "https://login.example/");
    let list = site.result("1.0", "ListTasks", json!({})).await;
    let task = list["tasks"][0]["id"].clone();
    // A message answers as before, and the stream that was open sees what follows.
    let mut answer = message("done");
    answer["taskId"] = task;
    site.result("1.0", "SendMessage", json!({ "message": answer })).await;
    assert_eq!(rest_of(stream).await, ends_authorized());
}

/// 0.3 §4.5: the client brings what was asked for in a further message, so its interaction is over.
#[tokio::test]
async fn a_stream_of_0_3_ends_when_an_authorization_is_asked_for() {
    let site = Site::new().await;
    let said =
        json!({ "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "authorize" }] });
    let frames = site.stream("0.3", "message/stream", json!({ "message": said })).await.results().await;
    let last = frames.last().unwrap();
    assert_eq!((&last["status"]["state"], &last["final"]), (&json!("auth-required"), &json!(true)));
    // A send returns, in every dialect.
    let params = json!({ "message": message("authorize") });
    let sent = site.result("1.0", "SendMessage", params).await;
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
}

#[tokio::test]
async fn a_person_authorizes_at_the_callback_and_the_task_goes_on_without_a_message() {
    let site = Site::new().await;
    let params = json!({ "message": message("authorize") });
    let mut stream = site.stream("1.0", "SendStreamingMessage", params).await;
    let status = until_required(&mut stream).await;
    let path = callback(&status);
    // To look at it, as crawlers and previews of links do, changes nothing.
    for _ in 0..2 {
        let page = site.get(&path, &[]).await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        assert_eq!(page.header("cache-control"), "no-store");
        let text = page.text();
        assert!(text.contains("Log in, please.") && text.contains("method=\"post\""), "{text}");
        assert!(!text.contains("http"), "nothing is fetched from elsewhere: {text}");
    }
    let done = press(&site, &path).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(rest_of(stream).await, ends_authorized());
    // Once.
    for answer in [press(&site, &path).await, site.get(&path, &[]).await] {
        assert_eq!(answer.status, 410, "{}", answer.text());
    }
    // The history says how it was answered.
    let list = site.result("1.0", "ListTasks", json!({})).await;
    let got = site.result("1.0", "GetTask", json!({ "id": list["tasks"][0]["id"] })).await;
    let answer = got["history"].as_array().unwrap().last().unwrap();
    assert_eq!(answer["metadata"], json!({ "nuncio/answeredBy": "callback" }), "{got}");
}

#[tokio::test]
async fn a_callback_cannot_be_guessed_made_up_or_used_for_another_task() {
    let site = Site::new().await;
    let mut paths = vec![];
    for _ in 0..2 {
        let sent = site.result("1.0", "SendMessage", json!({ "message": message("authorize") })).await;
        paths.push((sent["task"]["id"].as_str().unwrap().to_owned(), callback(&sent["task"]["status"])));
    }
    let [(first, own), (second, other)] = &paths[..] else { panic!() };
    assert_ne!(own, other);
    let (own_name, own_mac) = own.rsplit_once('.').unwrap();
    let (_, other_mac) = other.rsplit_once('.').unwrap();
    assert!(own_mac.len() >= 43, "256 bits: {own_mac}");
    let flipped =
        if own_mac.starts_with('A') { own_mac.replacen('A', "B", 1) } else { format!("A{}", &own_mac[1..]) };
    for forged in [
        format!("{own_name}.{other_mac}"),
        format!("{own_name}.{flipped}"),
        format!("{own_name}.{}", &own_mac[1..]),
        format!("{own_name}."),
        own_name.to_owned(),
        format!("{own}x"),
        "/authorizations/x.y".to_owned(),
        "/authorizations/%FF.%FF".to_owned(),
    ] {
        for answer in [press(&site, &forged).await, site.get(&forged, &[]).await] {
            assert_eq!(answer.status, 404, "{forged}: {}", answer.text());
        }
    }
    // A page of another site does not press it, and nothing else than pressing counts.
    let foreign = site.send(post(own, &[("origin", "https://evil.example")], "")).await;
    assert_eq!(foreign.status, 403, "{}", foreign.text());
    for method in ["PUT", "DELETE", "PATCH"] {
        assert_eq!(site.send(bare(method, own, &[("content-length", "0")])).await.status, 405);
    }
    let mut socket = site.socket().await;
    socket.send(bare("HEAD", own, &[])).await;
    assert_eq!(socket.head().await.unwrap().0, 200);
    site.until_state(first, "AUTH_REQUIRED").await;
    assert_eq!(press(&site, own).await.status, 200);
    site.until_state(first, "COMPLETED").await;
    site.until_state(second, "AUTH_REQUIRED").await;
}

#[tokio::test]
async fn a_callback_outlives_the_server_and_dies_with_its_question() {
    let site = Site::new().await;
    let ask = async || {
        let sent = site.result("1.0", "SendMessage", json!({ "message": message("authorize") })).await;
        (sent["task"]["id"].as_str().unwrap().to_owned(), callback(&sent["task"]["status"]))
    };
    let ((kept, open), (_, canceled), (_, answered)) = (ask().await, ask().await, ask().await);
    let ids = site.result("1.0", "ListTasks", json!({})).await;
    let [third, second] = [0, 1].map(|n| ids["tasks"][n]["id"].clone());
    site.result("1.0", "CancelTask", json!({ "id": second })).await;
    let mut answer = message("done");
    answer["taskId"] = third;
    site.result("1.0", "SendMessage", json!({ "message": answer })).await;
    for path in [&canceled, &answered] {
        assert_eq!(press(&site, path).await.status, 410);
    }
    let folder = site.begin_stop().finish().await;
    let site = Site::with(|setup| setup.folder = folder).await;
    for path in [&canceled, &answered] {
        assert_eq!(press(&site, path).await.status, 410);
    }
    let got = site.result("1.0", "GetTask", json!({ "id": kept })).await;
    assert_eq!(callback(&got["status"]), open, "the same after a restart");
    assert_eq!(press(&site, &open).await.status, 200);
    site.until_state(&kept, "COMPLETED").await;
}

/// The address is the permission: whoever has it needs no token, and whoever has a token does not have the address.
#[tokio::test]
async fn where_tokens_are_asked_for_the_callback_works_without_one_but_not_for_a_closed_tenant() {
    let site = guests::site().await;
    let ann = As { site: &site, token: "acme/ann" };
    let bob = As { site: &site, token: "other/bob" };
    let begin = async || {
        let params = json!({ "message": message("authorize") });
        ann.a2a("1.0", "SendMessage", &params).await.json()["result"]["task"].clone()
    };
    let task = begin().await;
    let unseen = bob.a2a("1.0", "GetTask", &json!({ "id": task["id"] })).await.json();
    assert_eq!(unseen["error"]["code"], -32001);
    assert_eq!(press(&site, &callback(&task["status"])).await.status, 200);

    let task = begin().await;
    let operator = [("authorization", "Bearer operator")];
    let closed = site.send(post("/admin/tenants/acme/suspend", &operator, "")).await;
    assert_eq!(closed.status, 200, "{}", closed.text());
    let refused = press(&site, &callback(&task["status"])).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    site.send(post("/admin/tenants/acme/resume", &operator, "")).await;
    assert_eq!(press(&site, &callback(&task["status"])).await.status, 200);
}

#[tokio::test]
async fn the_operator_authorizes_a_task_of_any_tenant() {
    let site = guests::site().await;
    let ann = As { site: &site, token: "acme/ann" };
    let params = json!({ "message": message("authorize") });
    let headers: Vec<_> =
        version_header("1.0").into_iter().chain([("authorization", "Bearer acme/ann")]).collect();
    let mut stream =
        Events::open(site.socket().await, &post("/", &headers, request("SendStreamingMessage", &params)))
            .await;
    until_required(&mut stream).await;
    let list = ann.a2a("1.0", "ListTasks", &json!({})).await.json();
    let id = list["result"]["tasks"][0]["id"].as_str().unwrap();
    let path = format!("/admin/tasks/{id}/authorize");
    let operator = [("authorization", "Bearer operator")];
    for (headers, query, status) in [
        (vec![], "", 401),
        (vec![("authorization", "Bearer acme/ann;read:a2a")], "", 403),
        (vec![("authorization", "Bearer other/bob;write:admin:tasks")], "", 404),
        (operator.to_vec(), "?tenant=other", 404),
        (operator.to_vec(), "?question=nothing", 409),
        (operator.to_vec(), "?answer=perhaps", 400),
    ] {
        let answer = site.send(post(&format!("{path}{query}"), &headers, "")).await;
        assert_eq!(answer.status, status, "{headers:?} {query}: {}", answer.text());
    }
    let done = site.send(post(&format!("{path}?tenant=acme"), &operator, "")).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json()["id"], id);
    assert_eq!(rest_of(stream).await, ends_authorized());
    // It waits for no authorization any more, and a form is none.
    let again = site.send(post(&path, &operator, "")).await;
    assert_eq!(again.status, 409, "{}", again.text());
    let form = ann.begin("ask").await;
    let wrong = site.send(post(&format!("/admin/tasks/{form}/authorize"), &operator, "")).await;
    assert_eq!(wrong.status, 409, "{}", wrong.text());
    assert!(wrong.text().contains("no authorization"), "{}", wrong.text());

    // Or declines it.
    let asked = ann.a2a("1.0", "SendMessage", &json!({ "message": message("authorize") })).await.json();
    let id = asked["result"]["task"]["id"].as_str().unwrap();
    let declined =
        site.send(post(&format!("/admin/tasks/{id}/authorize?answer=decline"), &operator, "")).await;
    assert_eq!(declined.status, 200, "{}", declined.text());
    let said = crate::socket::within("the end", async {
        loop {
            let got = ann.a2a("1.0", "GetTask", &json!({ "id": id })).await.json();
            if got["result"]["status"]["state"] == "TASK_STATE_COMPLETED" {
                return got["result"]["status"]["message"]["parts"][0]["text"].clone();
            }
        }
    })
    .await;
    assert_eq!(said, "not authorized");
    let page = site.get("/admin/audit", &operator).await;
    assert!(page.text().contains("admin.task.authorize"), "{}", page.text());
}
