//! The keys that webhooks are signed with, one per tenant, and the receivers of the documentation, run as they stand there.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run},
    http::rpc_with,
    server_process::ServerProcess,
};

const DOCUMENT: &str = include_str!("../../../../docs/webhooks.md");

/// A receiver of the documentation, at work.
struct Receiver {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Receiver {
    fn start(dir: &Path, language: &str, key: &str) -> Self {
        let begin = DOCUMENT.split(&format!("```{language}\n")).nth(1).unwrap();
        let program = begin.split("```").next().unwrap();
        assert!(program.lines().count() <= 13, "short enough to be read");
        let (file, command) = match language {
            "python" => (dir.join("receiver.py"), "python3"),
            _ => (dir.join("receiver.mjs"), "node"),
        };
        std::fs::write(&file, program).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new(command)
            .arg(&file)
            .env("WEBHOOK_KEY", key)
            .env("PORT", port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(std::time::Instant::now() < until, "{command} does not listen");
        }
        Self { child, lines, port }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// What it says of the next delivery.
    fn verdict(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.split(' ').next().unwrap().trim().to_owned()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Place {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl Place {
    fn new(configuration: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("nuncio.toml"), configuration).unwrap();
        let flags = ["--auth", "on", "--allow-private-webhooks"];
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), &flags);
        Self { dir, server }
    }

    fn json(&self, args: &[&str]) -> Value {
        let mut command = nuncio_in(self.dir.path());
        run(command.args(args).args(["-o", "json"])).exits(0).json()
    }

    fn token(&self, tenant: &str) -> String {
        let made = self.json(&["token", "create", "--name", "ada", "--tenant", tenant]);
        made["token"].as_str().unwrap().to_owned()
    }

    fn key(&self, tenant: &str) -> Value {
        self.json(&["push", "key", "--tenant", tenant])
    }

    fn send(&self, token: &str, hook: &str) -> Value {
        let message = json!({ "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER",
            "parts": [{ "text": "hello" }] });
        let configuration = json!({ "taskPushNotificationConfig": { "url": hook } });
        let params = json!({ "message": message, "configuration": configuration });
        let authorization = format!("Bearer {token}");
        rpc_with(self.server.url(), "SendMessage", &params, &[("Authorization", &authorization)])
    }
}

#[test]
fn the_receivers_of_the_documentation_know_the_key_of_their_tenant_and_no_other() {
    let place = Place::new("");
    let (acme, other) = (place.token("acme"), place.token("other"));
    let [home, acme_key, other_key] =
        ["home", "acme", "other"].map(|tenant| place.key(tenant)["secret"].clone());
    let file = std::fs::read_to_string(place.dir.path().join("nuncio-data/webhook-secret")).unwrap();
    assert_eq!(home, file.trim(), "receivers of before go on");
    assert!(acme_key != other_key && acme_key != home && other_key != home);
    for language in ["python", "js"] {
        let mut receiver = Receiver::start(place.dir.path(), language, acme_key.as_str().unwrap());
        let sent = place.send(&acme, &receiver.url());
        assert!(sent.get("error").is_none(), "{sent}");
        assert_eq!(receiver.verdict(), "good", "{language}");
        drop(receiver);
        // Another tenant's is a forgery here, and so is one of the key that was rotated away.
        let mut receiver = Receiver::start(place.dir.path(), language, acme_key.as_str().unwrap());
        place.send(&other, &receiver.url());
        assert_eq!(receiver.verdict(), "forged", "{language}");
    }

    let rotated = place.json(&["push", "rotate-key", "--tenant", "acme", "--overlap", "1h"]);
    assert_eq!(rotated["previous"], acme_key);
    let new_key = rotated["secret"].as_str().unwrap();
    assert_ne!(new_key, acme_key);
    for key in [new_key, acme_key.as_str().unwrap()] {
        let mut receiver = Receiver::start(place.dir.path(), "python", key);
        place.send(&acme, &receiver.url());
        assert_eq!(receiver.verdict(), "good", "both sign meanwhile");
    }
    let again = place.json(&["push", "rotate-key", "--tenant", "acme", "--overlap", "0s"]);
    assert_eq!((&again["previous"], &again["generation"]), (&Value::Null, &json!(2)));
    let mut receiver = Receiver::start(place.dir.path(), "python", new_key);
    place.send(&acme, &receiver.url());
    assert_eq!(receiver.verdict(), "forged", "its time is over");
    assert_eq!(place.key("other")["secret"], other_key, "the others keep theirs");
}

#[test]
fn a_webhook_without_tls_is_refused_where_the_operator_wants_that() {
    let place = Place::new("[webhooks]\nhttps-only = true\n");
    let refused = place.send(&place.token("acme"), "http://127.0.0.1:9/hook");
    assert!(refused["error"]["message"].as_str().unwrap().contains("webhooks.https-only"), "{refused}");
}
