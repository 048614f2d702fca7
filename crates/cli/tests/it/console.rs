//! `nuncio console`: the operator's way into the web console.

use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run},
    http::client,
    server_process::ServerProcess,
};

/// The status of a response, and its body.
fn sent(request: reqwest::RequestBuilder) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let response = request.send().await.unwrap();
        let (status, body) = (response.status().as_u16(), response.text().await.unwrap());
        (status, serde_json::from_str(&body).unwrap())
    })
}

#[test]
fn the_operator_opens_it_with_a_code_that_is_good_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--auth", "on"]);
    assert!(
        server.greeting().contains(&format!("Console:  {}/console/\n", server.url())),
        "{}",
        server.greeting()
    );
    let console =
        || run(nuncio_in(dir.path()).args(["console", "--data", "data", "-o", "json"])).exits(0).json();
    let opened = console();
    let (page, code) = opened["url"].as_str().unwrap().split_once("#code=").unwrap();
    assert_eq!(page, format!("{}/console/", server.url()));
    let api = format!("{}/console/api", server.url());
    let exchange = || {
        let body = json!({ "code": code }).to_string();
        sent(client().post(format!("{api}/session")).header("Content-Type", "application/json").body(body))
    };
    let (status, session) = exchange();
    assert_eq!(status, 200, "{session}");
    let me = || client().get(format!("{api}/me"));
    let (status, caller) = sent(me().bearer_auth(session["token"].as_str().unwrap()));
    assert_eq!((status, &caller["by"]), (200, &json!("session")));
    assert_eq!(exchange().0, 401, "used up");
    assert_eq!(sent(me()).0, 401);
    // A person reads it, too.
    let text = run(nuncio_in(dir.path()).args(["console", "--data", "data", "--no-open"])).exits(0);
    assert!(text.field("Console").starts_with(page), "{}", text.stdout);
}

#[test]
fn a_server_without_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--console", "off"]);
    assert!(!server.greeting().contains("Console:"), "{}", server.greeting());
    let refused = run(nuncio_in(dir.path()).args(["console", "--data", "data"])).exits(1);
    assert!(refused.stderr.contains("console = \"off\""), "{}", refused.stderr);
}
