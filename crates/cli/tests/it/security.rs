//! Tokens, JWTs, the audit and what is kept out of logs: with the real binary, and with a clock of the test's own.

mod bridges;
mod cluster;
mod erasure;
mod files;
pub(crate) mod issuer;
mod jwt;
mod operator;
mod presented;
mod proxy;
mod shared;
mod tokens;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use nuncio::engine::clock::{Clock, SystemClock, Timestamp};
use serde_json::Value;

use crate::{
    command::{Ran, nuncio_in, run},
    server_process::ServerProcess,
};

/// A clock that goes when it is told to.
struct Hands(AtomicI64);

impl Hands {
    fn new() -> Self {
        Self(AtomicI64::new(1_800_000_000_000))
    }

    fn pass(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> uuid::Uuid {
        SystemClock.new_id()
    }

    fn chance(&self) -> f64 {
        0.5
    }

    fn random_bytes(&self) -> [u8; 32] {
        SystemClock.random_bytes()
    }
}

/// A server that asks for tokens, in a folder of its own, as its operator sees it.
struct Place {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl Place {
    fn new(flags: &[&str]) -> Self {
        Self::configured("", flags)
    }

    fn configured(file: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nuncio.toml"), file).unwrap();
        let flags = [&["--auth", "on"], flags].concat();
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), &flags);
        Self { dir, server }
    }

    fn nuncio(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.dir.path()).args(args))
    }

    fn send_as(&self, token: &str, text: &str) -> Ran {
        let mut command = nuncio_in(self.dir.path());
        run(command.args(["send", text]).env("A2ACLI_BEARER", token))
    }

    fn token(&self, args: &[&str]) -> Value {
        self.nuncio(&[&["token", "create", "-o", "json"], args].concat()).exits(0).json()
    }

    fn audit(&self, args: &[&str]) -> Vec<Value> {
        let page = self.nuncio(&[&["audit", "-o", "json"], args].concat()).exits(0).json();
        page["entries"].as_array().unwrap().clone()
    }
}

/// Whether any file of a folder holds these bytes.
fn holds(dir: &Path, bytes: &[u8]) -> Option<String> {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = holds(&path, bytes) {
                return Some(found);
            }
        } else if fs::read(&path).is_ok_and(|file| file.windows(bytes.len()).any(|window| window == bytes)) {
            return Some(path.display().to_string());
        }
    }
    None
}

#[test]
fn a_token_lets_in_until_it_is_taken_back_and_is_kept_nowhere() {
    let place = Place::new(&["--log", "debug"]);
    let made = place.token(&[
        "--name",
        "ada",
        "--tenant",
        "acme",
        "--scope",
        "read:a2a",
        "--scope",
        "execute:a2a:echo",
    ]);
    let (token, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    assert!(token.starts_with(&format!("nun_{id}_")), "{token}");
    assert_eq!(id.len(), 12);

    let sent = place.send_as(token, "hello").exits(0);
    assert_eq!(sent.field("State"), "completed");
    let task = sent.field("Task").to_owned();
    // The operator is somebody else, and needs no token to be it.
    place.nuncio(&["send", "hello"]).exits(0);
    let theirs = place.nuncio(&["task", "get", &task]);
    assert!(theirs.code != 0 && theirs.stderr.contains("Task not found"), "{}", theirs.stderr);
    let mut command = nuncio_in(place.dir.path());
    let forbidden = run(command.args(["send", "hi", "--agent", "travel_agent"]).env("A2ACLI_BEARER", token));
    assert!(forbidden.stderr.contains("execute:a2a:travel_agent"), "{}", forbidden.stderr);

    let listed = place.nuncio(&["token", "list", "-o", "json"]).exits(0).json();
    let shown = &listed["tokens"][0];
    assert_eq!(
        (&shown["id"], &shown["name"], &shown["tenant"], &shown["state"]),
        (&id.into(), &"ada".into(), &"acme".into(), &"active".into())
    );
    assert!(shown["lastUsedAt"].is_string() && shown["expiresAt"].is_string(), "{shown}");
    assert_eq!(
        place.nuncio(&["token", "list"]).exits(0).stdout.lines().next().unwrap().split_whitespace().next(),
        Some("ID")
    );

    place.nuncio(&["token", "revoke", id]).exits(0);
    let refused = place.send_as(token, "hello").exits(4);
    assert!(!refused.stderr.contains(token));
    let unknown = place.nuncio(&["token", "revoke", "nobody"]).exits(1);
    assert!(unknown.stderr.contains("there is no token"), "{}", unknown.stderr);

    let operations = |lines: &[Value]| -> Vec<String> {
        lines
            .iter()
            .map(|line| format!("{} {}", line["operation"].as_str().unwrap(), line["allowed"]))
            .collect()
    };
    let all = operations(&place.audit(&[]));
    for expected in
        ["token.create true", "token.revoke true", "task.send true", "task.send false", "authenticate false"]
    {
        assert!(all.iter().any(|line| line == expected), "{expected}: {all:?}");
    }
    let ada = place.audit(&["--caller", "acme/ada", "--type", "a2a", "--since", "1h"]);
    assert!(ada.iter().all(|line| line["tenant"] == "acme" && line["from"] == "127.0.0.1"), "{ada:?}");
    assert!(place.audit(&["--refused"]).iter().all(|line| line["allowed"] == false));
    assert!(place.audit(&["--tenant", "globex"]).is_empty());
    assert!(place.nuncio(&["audit"]).exits(0).stdout.contains("acme/ada"));
    place.nuncio(&["audit", "--type", "colour"]).exits(1);

    // Nowhere but in the hands of whoever made it.
    let secret = token.rsplit_once(&format!("{id}_")).unwrap().1;
    for planted in [token.as_bytes(), secret.as_bytes()] {
        assert_eq!(holds(&place.dir.path().join("nuncio-data"), planted), None);
    }
    let log = place.server.log();
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn without_a_server_the_store_is_asked() {
    let mut place = Place::new(&[]);
    let token = place.token(&["--name", "ada", "--expires", "never"]);
    assert_eq!(token["expiresAt"], Value::Null);
    place.server.terminate();
    let other = place.token(&["--name", "bob"]);
    let listed = place.nuncio(&["token", "list", "-o", "json"]).exits(0).json();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 2);
    place.nuncio(&["token", "revoke", token["id"].as_str().unwrap()]).exits(0);
    assert!(place.audit(&[]).iter().any(|line| line["operation"] == "token.revoke"));
    place.server.restart();
    place.send_as(token["token"].as_str().unwrap(), "x").exits(4);
    place.send_as(other["token"].as_str().unwrap(), "x").exits(0);
    for (wrong, word) in [
        (vec!["--name", "a b"], "is no name"),
        (vec!["--name", "local"], "the server's own"),
        (vec!["--name", "x", "--scope", "look:at"], "is no scope"),
        (vec!["--name", "x", "--tenant", "a/b"], "is no name"),
    ] {
        let refused = place.nuncio(&[vec!["token", "create"], wrong].concat()).exits(1);
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    place.nuncio(&["token", "create", "--name", "x", "--expires", "0s"]).exits(2);
}

#[test]
fn planted_secrets_are_not_logged() {
    const PLANTED: [&str; 4] =
        ["sk-live-0123456789abcdef", "hunter2-in-a-url", "ACME-777-ABC", "geheim-in-a-field"];
    // Its keys cannot be had, which is logged with its name.
    let file = "redact = [\"ACME-[0-9]{1,3}-[A-Z]+\"]\n[jwt]\naudience = \"a\"\nallow-private-jwks = true\n\
                jwks-url = \"http://127.0.0.1:1/\"\nissuer = \"https://ada:hunter2-in-a-url@i.example/ACME-777-ABC?\
                password=geheim-in-a-field&k=sk-live-0123456789abcdef\"\n";
    for format in ["text", "json"] {
        let place = Place::configured(file, &["--log", "trace", "--log-format", format]);
        let token = place.token(&["--name", "ada"])["token"].as_str().unwrap().to_owned();
        let sends = [
            "my key is sk-live-0123456789abcdef",
            "look at https://ada:hunter2-in-a-url@db.example/x",
            "ticket ACME-777-ABC",
            "{\"password\": \"geheim-in-a-field\"}",
        ];
        for text in sends {
            place.send_as(&token, text).exits(0);
            let wrong = format!("nun_{text}").replace(|c: char| !c.is_ascii_graphic(), "-");
            place.send_as(&wrong, "x").exits(4);
        }
        place.send_as("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.e30.AA", "x");
        place.server.logs("those that are known stay");
        let address = place.server.addr();
        for secret in PLANTED {
            let mut stream = TcpStream::connect(address).unwrap();
            let request = format!(
                "GET /schemas/token={secret}?password={secret} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\
                 Connection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
        }
        let (log, lines) = (place.server.log(), place.audit(&[]));
        assert!(log.contains("i.example") && log.contains("[redacted]") && !lines.is_empty(), "{log}");
        for secret in PLANTED {
            assert!(!log.contains(secret), "{format}: {secret} is in the log");
            assert!(!Value::from(lines.clone()).to_string().contains(secret), "{secret} is in the audit");
        }
        assert!(!log.contains(&token), "{format}");
    }
}

#[test]
fn secrets_are_not_printed_with_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = "store = \"postgres://ada:geheim@db/x\"\nredact = [\"a{1,2}\", \"b\"]\n[rate]\nmemory = \"100/s\"\n\
                [jwt]\nissuer = \"https://i.example\"\ndefault-scopes = [\"read:a2a\", \"read,write:memory:x\"]\n\
                [cors]\norigins = [\"https://app.example.org\"]\n";
    fs::write(dir.path().join("nuncio.toml"), file).unwrap();
    let printed = run(nuncio_in(dir.path()).args(["serve", "--print-config"])).exits(0).stdout;
    assert!(!printed.contains("geheim"), "{printed}");
    for line in [
        "redact = [\"a{1,2}\", \"b\"]",
        "memory = \"100/s\"",
        "issuer = \"https://i.example\"",
        "origins = [\"https://app.example.org\"]",
        "auth = \"auto\"",
        "audit = \"auto\"",
        "audit-retention = \"90d\"",
        "max-streams-per-caller = 1024",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let check = |flags: &[&str], word: &str| {
        let ran = run(nuncio_in(dir.path()).args(["serve", "--data", "d"]).args(flags));
        assert!(ran.code > 0 && ran.stderr.contains(word), "{word}: {}", ran.stderr);
    };
    fs::write(dir.path().join("nuncio.toml"), "").unwrap();
    check(&["--auth", "maybe"], "expected auto, on, file or off");
    check(&["--audit", "some"], "expected auto, off, refused, changes or all");
    check(&["--redact", "("], "is no pattern");
    for (section, word) in [
        ("[rate]\na2a = \"fast\"", "is no rate"),
        ("[cors]\norigins = [\"https://a.example/path\"]", "expected origins"),
        ("[jwt]\nissuer = \"i\"", "needs jwt.audience"),
        ("[jwt]\nissuer = \"i\"\naudience = \"a\"", "needs one of jwt.jwks-url and jwt.jwks-file"),
        ("[jwt]\nissuer = \"i\"\naudience = \"a\"\njwks-url = \"http://keys.example/\"", "use https"),
        ("[jwt]\nissuer = \"i\"\naudience = \"a\"\njwks-url = \"https://127.0.0.1/\"", "allow-private-jwks"),
        ("[jwt]\nissuer = \"i\"\naudience = \"a\"\njwks-file = \"nowhere\"", "jwt.jwks-file"),
    ] {
        fs::write(dir.path().join("nuncio.toml"), section).unwrap();
        check(&["--listen", "127.0.0.1:0"], word);
    }
}
