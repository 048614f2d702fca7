//! Dead letters, seen and tried again by the operator: with a server, and without one.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    command::{Ran, nuncio_in, run},
    http,
    server_process::ServerProcess,
};

#[test]
fn dead_letters_are_listed_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let config = "[webhooks]\nfirst-retry = \"1ms\"\ngive-up-after = \"2ms\"\n";
    std::fs::write(dir.path().join("nuncio.toml"), config).unwrap();
    let push =
        |args: &[&str]| -> Ran { run(nuncio_in(dir.path()).arg("push").args(args).args(["--data", "data"])) };
    let refused = push(&["list"]).exits(1);
    assert!(refused.stderr.contains("there is no server and no store"), "{}", refused.stderr);

    let mut server = ServerProcess::start(&data, &["--allow-private-webhooks"]);
    assert_eq!(push(&["list"]).exits(0).field("Total"), "0");

    // A webhook at which nobody listens.
    let params = json!({
        "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] },
        "configuration": { "taskPushNotificationConfig": { "id": "h", "url": "http://127.0.0.1:1/hook?key=t0ken" } },
    });
    let answer = http::rpc(server.url(), "SendMessage", &params);
    let task = answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();

    let started = Instant::now();
    let letters = loop {
        let listed = push(&["list", "-o", "json"]).exits(0).json();
        let letters = listed["deadLetters"].as_array().unwrap().clone();
        if !letters.is_empty() {
            break letters;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{}", server.log());
    };
    assert_eq!(letters[0]["task"], *task);
    assert_eq!(letters[0]["webhook"], "h");
    let text = push(&["list"]).exits(0);
    assert_eq!(text.field("Webhook"), "h");
    assert_eq!(text.field("URL"), "http://127.0.0.1:1/hook?(hidden)");
    assert_eq!(letters[0]["url"], "http://127.0.0.1:1/hook?(hidden)");

    let delivery = letters[0]["delivery"].as_str().unwrap();
    assert_eq!(push(&["replay", delivery]).exits(0).field("Replayed"), "1");
    let unknown = push(&["replay", "no-such-delivery"]).exits(1);
    assert!(
        unknown.stderr.contains("no delivery \"no-such-delivery\" failed for good"),
        "{}",
        unknown.stderr
    );

    // Nobody holds the folder: the store itself is asked.
    server.terminate();
    let listed = push(&["list", "-o", "json"]).exits(0).json();
    assert!(listed["deadLetters"].is_array(), "{listed}");
    for letter in listed["deadLetters"].as_array().unwrap() {
        assert_eq!(letter["url"], "http://127.0.0.1:1/hook?(hidden)");
    }
}
