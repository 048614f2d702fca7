//! Credentials that are shown to a server that requires none: they decide who the caller is.

use serde_json::json;

use super::proxy::http;
use crate::{
    command::{Live, Ran, nuncio_in, run},
    server_process::ServerProcess,
};

struct OpenServer {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl OpenServer {
    fn new(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), flags);
        Self { dir, server }
    }

    fn nuncio(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.dir.path()).args(args))
    }

    /// The status and the text of `GET /tasks` with this header.
    fn tasks(&self, authorization: &str) -> (u16, String) {
        let headers = [("A2A-Version", "1.0"), ("Authorization", authorization)];
        http("GET", &format!("{}/tasks", self.server.url()), &headers, None)
    }
}

#[test]
fn a_token_is_never_more_than_it_says_where_none_is_required() {
    let open = OpenServer::new(&[]);
    let sent = open.nuncio(&["send", "hello"]).exits(0);
    let task = sent.field("Task").to_owned();
    let args = ["token", "create", "--name", "bob", "--tenant", "acme", "--scope", "execute:a2a:lines"];
    let made = open.nuncio(&args).exits(0);
    assert!(made.stderr.contains("requires no token"), "{}", made.stderr);
    let made = open.nuncio(&[&args[..], &["-o", "json"]].concat()).exits(0);
    assert_eq!(made.stderr, "", "programs are told nothing");
    let made = made.json();
    let shown = format!("Bearer {}", made["token"].as_str().unwrap());

    let (status, text) = open.tasks(&shown);
    assert!(status == 200 && !text.contains(&task), "{status} {text}");
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] } });
    let headers = [("A2A-Version", "1.0"), ("Authorization", shown.as_str())];
    let url = format!("{}/message:send", open.server.url());
    let (status, text) = http("POST", &url, &headers, Some(&message));
    assert!(status == 403 && text.contains("execute:a2a:echo"), "{status} {text}");

    open.nuncio(&["token", "revoke", made["id"].as_str().unwrap()]).exits(0);
    for bad in [shown.as_str(), "Bearer sk-foo", "Basic YTpi"] {
        let (status, text) = open.tasks(bad);
        assert!(status == 401 && text.contains("the token is not good"), "{bad}: {status} {text}");
    }
    let refused = open.nuncio(&["audit", "--refused", "-o", "json"]).exits(0).json();
    let failed =
        refused["entries"].as_array().unwrap().iter().filter(|line| line["operation"] == "authenticate");
    assert_eq!(failed.count(), 3, "{refused}");

    // The operator's commands show the folder's secret, and a request without credentials is let in as before.
    open.nuncio(&["task", "list"]).exits(0);
    let (status, _) = http("GET", &format!("{}/tasks", open.server.url()), &[("A2A-Version", "1.0")], None);
    assert_eq!(status, 200);
}

#[test]
fn a_server_that_is_told_to_ignores_credentials() {
    let open = OpenServer::new(&["--auth", "off"]);
    assert_eq!(open.tasks("Bearer sk-foo").0, 200);
}

/// The secret that a command has sent is another one after a restart.
#[test]
fn a_send_is_followed_across_a_restart_whether_tokens_are_required_or_not() {
    for flags in [&["--agent-step", "100ms"][..], &["--agent-step", "100ms", "--auth", "on"]] {
        let mut open = OpenServer::new(flags);
        let args = ["send", "--agent", "long_running_agent", "--stream", "count to 20"];
        let mut live = Live::start(nuncio_in(open.dir.path()).args(args));
        live.line().unwrap();
        open.server.kill9();
        open.server.restart();
        live.finish().exits(0);
    }
}
