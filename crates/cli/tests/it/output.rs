//! The output contract of the community's `a2a-cli` specification: what goes where, error envelopes, exit
//! codes, and a stream that is cut.

use serde_json::json;

use crate::{
    command::{Ran, nuncio_in, run},
    fake_agent::{FakeAgent, Reply, status, task},
};

fn nuncio(args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    run(nuncio_in(dir.path()).args(args))
}

/// An address at which nobody listens. Not a free port: another test may get it.
const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn every_failure_has_a_code_and_an_exit() {
    #[track_caller]
    fn check(args: &[&str], exit: i32, code: &str, message: &str) {
        let json = nuncio(&[args, &["-o", "json"]].concat()).exits(exit);
        let envelope = json.json();
        let error = &envelope["error"];
        assert_eq!(error["code"], code, "{envelope}");
        assert!(error["message"].as_str().unwrap().contains(message), "{envelope}");
        assert!(error.get("hint").is_some() && error.get("a2aCode").is_some(), "{envelope}");
        let text = nuncio(args).exits(exit);
        assert_eq!(text.stdout, "");
        assert!(text.stderr.contains(message), "{}", text.stderr);
    }
    let fake = FakeAgent::start(json!({}), |_| Reply::Error(-32001, "there is no task x"));
    let locked = FakeAgent::start(json!({}), |_| Reply::Status(401));
    let broken = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "nothing": 1 })));
    let busy = FakeAgent::start(json!({}), |_| Reply::Status(503));
    let old = FakeAgent::start(
        json!({ "supportedInterfaces": [{ "url": "http://x/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" }] }),
        |_| Reply::Status(500),
    );
    let pigeon = FakeAgent::start(
        json!({ "supportedInterfaces": [{ "url": "x:1", "protocolBinding": "PIGEON", "protocolVersion": "1.0" }] }),
        |_| Reply::Status(500),
    );
    let bare = FakeAgent::start(json!({ "skills": null, "name": 5 }), |_| Reply::Status(500));

    check(&["send"], 2, "A2ACLI_ERR_USAGE", "there is nothing to send");
    check(&["send", "x", "--async", "--stream"], 2, "A2ACLI_ERR_USAGE", "cannot be used with");
    check(&["send", "--media-type", "a/b", "x"], 2, "A2ACLI_ERR_USAGE", "--media-type");
    check(&["send", "--data", "missing.json"], 2, "A2ACLI_ERR_USAGE", "cannot read missing.json");
    check(&["send", "--data", "{", "-a", NOBODY], 2, "A2ACLI_ERR_USAGE", "is not JSON");
    check(&["send", "x", "--metadata", "[]"], 2, "A2ACLI_ERR_USAGE", "expected a JSON object");
    check(&["send", "x", "--timeout", "5"], 2, "A2ACLI_ERR_USAGE", "is no length of time");
    check(
        &["send", "x", "--a2a-version", "2.0"],
        2,
        "A2ACLI_ERR_USAGE",
        "this client speaks 1.0, 0.3 and 0.1",
    );
    check(&["task", "subscribe", "x", "--after", "1"], 2, "A2ACLI_ERR_USAGE", "--stream");
    check(&["frobnicate"], 2, "A2ACLI_ERR_USAGE", "frobnicate");

    check(&["send", "x", "-a", NOBODY], 3, "A2ACLI_ERR_UNREACHABLE", "cannot be reached");
    check(&["card", "get", "-a", "missing.json"], 3, "A2ACLI_ERR_CARD_NOT_FOUND", "missing.json");
    check(&["card", "get", "-a", &format!("{}/none", fake.url)], 3, "A2ACLI_ERR_CARD_NOT_FOUND", "HTTP 404");
    check(&["card", "get", "-a", &bare.url], 1, "A2ACLI_ERR_CARD_INVALID", "name: is required");
    check(&["send", "x", "-a", &old.url], 1, "VersionNotSupportedError", "the agent speaks A2A 0.3, not 1.0");
    check(&["send", "x", "-a", &pigeon.url], 1, "A2ACLI_ERR_INTERNAL", "the agent offers PIGEON");

    check(&["send", "x", "-a", &locked.url], 4, "A2ACLI_ERR_CREDENTIALS_MISSING", "HTTP 401");
    check(&["send", "x", "-a", &locked.url, "--bearer", "b"], 4, "A2ACLI_ERR_AUTH_FAILED", "HTTP 401");
    check(&["task", "get", "x", "-a", &fake.url], 1, "TaskNotFoundError", "there is no task x");
    check(&["task", "get", "x", "-a", &broken.url], 1, "InvalidAgentResponseError", "malformed");
    check(&["task", "get", "x", "-a", &busy.url], 1, "A2ACLI_ERR_INTERNAL", "HTTP 503");
}

#[test]
fn without_a_server_it_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("nuncio-data")).unwrap();
    let published = json!({ "url": NOBODY, "pid": 1, "adminToken": "x" });
    std::fs::write(dir.path().join("nuncio-data/server.json"), published.to_string()).unwrap();
    let ran = run(nuncio_in(dir.path()).args(["send", "hi"])).exits(3);
    assert!(ran.stderr.contains(&format!("no server at {NOBODY}: start one with `")), "{}", ran.stderr);
    assert!(ran.stderr.contains("server.json names that address"), "{}", ran.stderr);
}

#[test]
fn help_and_version_are_no_errors() {
    for args in
        [&["help"][..], &["--help"], &["send", "--help"], &["serve", "--help"], &["task", "help", "get"]]
    {
        let ran = nuncio(args).exits(0);
        assert!(ran.stdout.contains("Usage"), "{}", ran.stdout);
    }
    for args in [&["--version"][..], &["-v"]] {
        assert_eq!(nuncio(args).exits(0).stdout, format!("nuncio {}\n", env!("CARGO_PKG_VERSION")));
    }
    assert!(nuncio(&["serve", "--help"]).stdout.contains("[default: 127.0.0.1:8080]"));
}

#[test]
fn a_cut_stream_is_never_a_success() {
    // It says that the task works, and ends; again and again.
    let cut = FakeAgent::start(json!({}), |asked| match asked.method.as_str() {
        "SubscribeToTask" => Reply::Stream(vec![]),
        _ => Reply::Stream(vec![(1, json!({ "task": task("SUBMITTED") })), (2, status("WORKING"))]),
    });
    // In text, too, nothing looks like an end. Beside the other, because both wait between their attempts.
    let other = FakeAgent::start(json!({}), |_| Reply::Stream(vec![(1, status("WORKING"))]));
    let text = std::thread::spawn(move || nuncio(&["send", "x", "--stream", "-a", &other.url]));

    let ran = nuncio(&["send", "x", "--stream", "-o", "json", "-a", &cut.url]).exits(1);
    let lines = ran.json_lines();
    assert_eq!(lines.len(), 3, "the two events, and the error on a line of its own: {lines:?}");
    let error = &lines[2]["error"];
    assert!(error["message"].as_str().unwrap().contains("broke off"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("task subscribe t1"), "{error}");
    assert!(error["hint"].as_str().unwrap().ends_with("--after 2"), "{error}");
    let resumes: Vec<_> = cut.asked().into_iter().filter(|asked| asked.method == "SubscribeToTask").collect();
    assert_eq!(resumes.len(), 8, "a bounded number of times");
    assert!(resumes.iter().all(|asked| asked.header("last-event-id") == Some("2")));

    let ran = text.join().unwrap().exits(1);
    assert!(!ran.stdout.contains("completed"), "{}", ran.stdout);
    assert!(ran.stderr.contains("Error: the stream broke off"), "{}", ran.stderr);
}

#[test]
fn a_cut_stream_goes_on_where_it_was() {
    let agent = FakeAgent::start(json!({}), |asked| match (&*asked.method, asked.header("last-event-id")) {
        ("SendStreamingMessage", None) => {
            Reply::Stream(vec![(1, json!({ "task": task("SUBMITTED") })), (2, status("WORKING"))])
        }
        ("SubscribeToTask", Some("2")) => Reply::Stream(vec![(3, status("WORKING"))]),
        ("SubscribeToTask", Some("3")) => Reply::Stream(vec![(4, status("COMPLETED"))]),
        other => panic!("{other:?}"),
    });
    let lines = nuncio(&["send", "x", "--stream", "-o", "json", "-a", &agent.url]).exits(0).json_lines();
    assert_eq!(
        lines,
        [json!({ "task": task("SUBMITTED") }), status("WORKING"), status("WORKING"), status("COMPLETED")]
    );
}

#[test]
fn a_server_without_cursors_is_asked_for_the_end() {
    let agent = FakeAgent::start(json!({}), |asked| match &*asked.method {
        "SendStreamingMessage" => Reply::Stream(vec![(1, json!({ "task": task("WORKING") }))]),
        "SubscribeToTask" => Reply::Error(-32004, "the task has ended"),
        "GetTask" => Reply::Result(task("FAILED")),
        other => panic!("{other}"),
    });
    let ran = nuncio(&["send", "x", "--stream", "-o", "json", "-a", &agent.url]).exits(0);
    assert_eq!(ran.json_lines(), [json!({ "task": task("WORKING") }), json!({ "task": task("FAILED") })]);
    assert!(ran.stderr.contains("warning: the task failed"), "what the agent decided is no exit code");
}

#[test]
fn waiting_falls_back_to_asking() {
    let agent = FakeAgent::start(json!({}), {
        let asked_for = std::sync::atomic::AtomicU32::new(0);
        move |asked| match &*asked.method {
            "SendMessage" => Reply::Result(json!({ "task": task("SUBMITTED") })),
            "SubscribeToTask" => Reply::Status(500),
            "GetTask" if asked_for.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 3 => {
                Reply::Result(task("UNSPECIFIED"))
            }
            "GetTask" => Reply::Result(task("COMPLETED")),
            other => panic!("{other}"),
        }
    });
    let args = ["send", "x", "-o", "json", "--poll-interval", "10ms", "-a", &agent.url];
    assert_eq!(nuncio(&args).exits(0).json(), json!({ "task": task("COMPLETED") }));
    let sent = &agent.asked()[0];
    assert_eq!(sent.header("a2a-version"), Some("1.0"));
    assert_eq!(sent.params["configuration"]["returnImmediately"], true);
}

#[test]
fn an_answer_without_a_task_is_an_answer() {
    let message = json!({ "message": { "messageId": "m", "contextId": "c", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] } });
    let agent = FakeAgent::start(json!({}), {
        let message = message.clone();
        move |asked| match &*asked.method {
            "SendStreamingMessage" => Reply::Stream(vec![(1, message.clone())]),
            _ => Reply::Result(message.clone()),
        }
    });
    for extra in [&[][..], &["--stream"]] {
        let args = [&["send", "x", "-o", "json", "-a", &agent.url], extra].concat();
        assert_eq!(nuncio(&args).exits(0).json(), message);
        let text = nuncio(&[&["send", "x", "-a", &agent.url], extra].concat()).exits(0);
        assert!(text.stdout.contains("Text:\nhi\n\n"), "{}", text.stdout);
    }
}

#[test]
fn an_agent_that_does_not_stream_is_waited_for() {
    let agent = FakeAgent::start(json!({ "capabilities": {} }), |asked| match &*asked.method {
        "SendMessage" => Reply::Result(json!({ "task": task("COMPLETED") })),
        other => panic!("{other}"),
    });
    let ran = nuncio(&["send", "x", "--stream", "-o", "json", "-a", &agent.url]).exits(0);
    assert_eq!(ran.json_lines(), [json!({ "task": task("COMPLETED") })]);
    assert!(ran.stderr.contains("does not stream"), "{}", ran.stderr);
}

#[test]
fn requests_carry_what_was_asked_for() {
    let agent = FakeAgent::start(
        json!({ "securitySchemes": { "key": { "apiKeySecurityScheme": { "location": "header", "name": "X-Key" } } } }),
        |_| Reply::Result(json!({ "task": task("COMPLETED") })),
    );
    let dir = tempfile::tempdir().unwrap();
    let ran = run(nuncio_in(dir.path())
        .args([
            "send",
            "x",
            "-a",
            &agent.url,
            "--debug",
            "--svc-param",
            "X-Trace: secret-3",
            "--metadata",
            r#"{"k":1}"#,
        ])
        .args(["--context-id", "c1"])
        .env("A2ACLI_BEARER", "secret-1")
        .env("A2ACLI_API_KEY", "secret-2"))
    .exits(0);
    let asked = &agent.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer secret-1"));
    assert_eq!(asked.header("x-key"), Some("secret-2"));
    assert_eq!(asked.header("x-trace"), Some("secret-3"));
    assert_eq!(asked.params["metadata"], json!({ "k": 1 }));
    assert_eq!(asked.params["message"]["contextId"], "c1");
    assert!(ran.stderr.contains("SendMessage"), "the messages are in the log: {}", ran.stderr);
    assert!(!ran.stderr.contains("secret"), "the credentials are not: {}", ran.stderr);
}
