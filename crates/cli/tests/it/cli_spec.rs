//! Rows of the community's `a2a-cli` specification 0.2, each by its id: how tasks, versions and extensions are handled.
//! `docs/a2a-cli-compliance.md` lists every row with its test.

mod auth;
mod commands;
mod settings;
mod transport;

use serde_json::json;

use crate::{
    command::{Ran, nuncio_in, run},
    fake_agent::{FakeAgent, Reply, status, task},
};

/// A command in a folder of its own, with a home folder of its own.
fn nuncio(args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    run(nuncio_in(dir.path()).env("HOME", dir.path()).env_remove("XDG_CONFIG_HOME").args(args))
}

/// `A2ACLI_INTERACT_004`
#[test]
fn a_task_that_waits_for_an_authorization_says_how_to_go_on() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("AUTH_REQUIRED") })));
    let ran = nuncio(&["send", "x", "-a", &agent.url]).exits(0);
    assert_eq!([ran.field("Task"), ran.field("Context"), ran.field("State")], ["t1", "c1", "auth-required"]);
    let resume = ran.field("Resume");
    assert!(resume.contains(&format!(" send --task-id t1 -a {} ", agent.url)), "{resume}");
}

/// `A2ACLI_AUTH_011`: an authorization that is given elsewhere is waited for, on request.
#[test]
fn an_authorization_within_a_task_is_waited_for_on_request() {
    // With a stream that stays open, with one that ends there, and without any.
    for kind in ["open", "ended", "none"] {
        let polls = std::sync::atomic::AtomicU32::new(0);
        let card = if kind == "none" { json!({ "capabilities": {} }) } else { json!({}) };
        let agent = FakeAgent::start(card, move |asked| match &*asked.method {
            "SendMessage" => Reply::Result(json!({ "task": task("AUTH_REQUIRED") })),
            "GetTask" if polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 => {
                Reply::Result(task("AUTH_REQUIRED"))
            }
            "GetTask" => Reply::Result(task("COMPLETED")),
            "SendStreamingMessage" if kind == "ended" => {
                Reply::Stream(vec![(1, json!({ "task": task("WORKING") })), (2, status("AUTH_REQUIRED"))])
            }
            "SubscribeToTask" if kind == "ended" => {
                Reply::Stream(vec![(3, json!({ "task": task("COMPLETED") }))])
            }
            _ => Reply::Stream(vec![
                (1, json!({ "task": task("WORKING") })),
                (2, status("AUTH_REQUIRED")),
                (3, status("COMPLETED")),
            ]),
        });
        let args = ["send", "x", "--poll-interval", "10ms", "-a", &agent.url];
        assert_eq!(
            nuncio(&args).exits(0).field("State"),
            "auth-required",
            "{kind}: by default it stops there"
        );
        let waited = nuncio(&[&args[..], &["--wait-auth"]].concat()).exits(0);
        assert_eq!(waited.field("State"), "completed", "{kind}");
        if kind != "none" {
            let streamed = nuncio(&[&args[..], &["--wait-auth", "--stream"]].concat()).exits(0);
            let states: Vec<_> =
                streamed.stdout.lines().filter_map(|line| line.strip_prefix("State: ")).collect();
            assert_eq!(states, ["working", "auth-required", "completed", "completed"], "{kind}");
        }
    }
}

/// `A2ACLI_TASK_POLL_003`
#[test]
fn a_state_that_this_client_does_not_know_is_shown_as_it_was_received() {
    for name in ["UNSPECIFIED", "PAUSED"] {
        let agent = FakeAgent::start(json!({}), move |asked| match &*asked.method {
            "ListTasks" => Reply::Result(json!({ "tasks": [task(name)], "totalSize": 1 })),
            _ => Reply::Result(task(name)),
        });
        let state = format!("TASK_STATE_{name}");
        assert_eq!(nuncio(&["task", "get", "t1", "-a", &agent.url]).exits(0).field("State"), state);
        let listed = nuncio(&["task", "list", "-a", &agent.url]).exits(0);
        assert!(listed.stdout.lines().nth(1).unwrap().contains(&state), "{}", listed.stdout);
        assert_eq!(nuncio(&["task", "list", "-a", &agent.url, "--verbose"]).exits(0).field("State"), state);
        let json = nuncio(&["task", "get", "t1", "-a", &agent.url, "-o", "json"]).exits(0).json();
        assert_eq!(json, task(name), "and JSON is as it was sent");
    }
}

/// `A2ACLI_TASK_POLL_003`: it is neither an end nor an interruption.
#[test]
fn a_wait_goes_on_over_a_state_that_this_client_does_not_know() {
    let polls = std::sync::atomic::AtomicU32::new(0);
    let agent = FakeAgent::start(json!({ "capabilities": {} }), move |asked| match &*asked.method {
        "SendMessage" => Reply::Result(json!({ "task": task("PAUSED") })),
        "GetTask" if polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 => {
            Reply::Result(task("PAUSED"))
        }
        "GetTask" => Reply::Result(task("COMPLETED")),
        other => panic!("{other}"),
    });
    let ran = nuncio(&["send", "x", "--poll-interval", "10ms", "-a", &agent.url]).exits(0);
    assert_eq!(ran.field("State"), "completed");
    let agent = FakeAgent::start(json!({ "capabilities": {} }), |_| Reply::Result(task("UNSPECIFIED")));
    let args =
        ["task", "get", "t1", "--wait", "--poll-interval", "10ms", "--timeout", "100ms", "-a", &agent.url];
    let late = nuncio(&[&args[..], &["-o", "json"]].concat()).exits(5).json();
    assert_eq!(late["error"]["code"], "A2ACLI_ERR_TIMEOUT");
}

/// `A2ACLI_TASK_POLL_003`: also as an event of a stream.
#[test]
fn a_stream_shows_a_state_that_this_client_does_not_know() {
    let agent = FakeAgent::start(json!({}), |_| {
        Reply::Stream(vec![
            (1, json!({ "task": task("WORKING") })),
            (2, status("PAUSED")),
            (3, status("COMPLETED")),
        ])
    });
    let ran = nuncio(&["send", "x", "--stream", "-a", &agent.url]).exits(0);
    let states: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("State: ")).collect();
    assert_eq!(states, ["working", "TASK_STATE_PAUSED", "completed", "completed"]);
}

/// `A2ACLI_VER_001`
#[test]
fn a_later_version_is_refused_by_name_and_not_taken_for_1_0() {
    let offering = |version: &str| {
        let interface =
            json!({ "url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC", "protocolVersion": version });
        FakeAgent::start(json!({ "supportedInterfaces": [interface] }), |_| Reply::Status(500))
    };
    let agent = offering("1.1");
    let error = &nuncio(&["send", "x", "-a", &agent.url, "-o", "json"]).exits(1).json()["error"];
    assert_eq!(error["code"], "VersionNotSupportedError");
    let message = error["message"].as_str().unwrap();
    assert_eq!(message, "the agent speaks A2A 1.1, not 1.0; this client speaks 1.0, 0.3 and 0.1");
    assert!(error["hint"].is_null(), "an older version does not help: {error}");
    // A patch version changes nothing on the wire.
    let patched = offering("1.0.1");
    let error = &nuncio(&["send", "x", "-a", &patched.url, "-o", "json"]).exits(3).json()["error"];
    assert_eq!(error["code"], "A2ACLI_ERR_UNREACHABLE", "it was spoken to: {error}");
}

/// `A2ACLI_VER_002`
#[test]
fn an_extension_that_the_agent_requires_is_declared_or_refused_by_name() {
    let requiring = |uri: &str| {
        let extensions = json!([{ "uri": uri, "required": true }, { "uri": "https://other.example/x" }]);
        FakeAgent::start(json!({ "capabilities": { "extensions": extensions } }), |_| {
            Reply::Result(json!({ "task": task("COMPLETED") }))
        })
    };
    let unknown = requiring("https://strange.example/ext/v1");
    let args = ["send", "x", "-a", &unknown.url, "-o", "json"];
    let error = &nuncio(&args).exits(1).json()["error"];
    assert_eq!(error["code"], "ExtensionSupportRequiredError");
    assert!(error["message"].as_str().unwrap().contains("https://strange.example/ext/v1"), "{error}");
    assert!(unknown.asked().is_empty(), "no request was made");
    let declared = ["--extension", "https://strange.example/ext/v1"];
    nuncio(&[&args[..], &declared].concat()).exits(0);
    assert_eq!(unknown.asked()[0].header("a2a-extensions"), Some("https://strange.example/ext/v1"));
    // One that this client knows needs no flag.
    let known = requiring("https://nuncio.dev/extensions/cursor/v1");
    nuncio(&["send", "x", "-a", &known.url]).exits(0);
    assert_eq!(known.asked()[0].header("a2a-extensions"), Some("https://nuncio.dev/extensions/cursor/v1"));
}
