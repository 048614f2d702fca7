//! Signed cards with the real binary: keys by command, verification of a card, and remote agents whose cards must be signed.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::{
    command::{Ran, nuncio_in, run},
    http::{client, rpc},
    server_process::ServerProcess,
};

fn fetch(url: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(async { client().get(url).send().await.unwrap().text().await.unwrap() });
    serde_json::from_str(&text).unwrap()
}

/// A server with signed cards, and its folder.
struct SignedServer {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl SignedServer {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
        let signed = Self { dir, server };
        signed.run(&["key", "create"]).exits(0);
        signed
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.dir.path()).args(args))
    }

    fn keys(&self) -> Value {
        fetch(&format!("{}/.well-known/jwks.json", self.server.url()))
    }

    fn card(&self) -> Value {
        fetch(&format!("{}/agents/echo/.well-known/agent-card.json", self.server.url()))
    }

    fn write(&self, name: &str, content: &Value) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.display().to_string()
    }
}

#[test]
fn keys_are_created_listed_rotated_and_retired() {
    let signed = SignedServer::start();
    let listed = signed.run(&["key", "list", "-o", "json"]).exits(0).json();
    let first = listed["keys"][0]["kid"].as_str().unwrap().to_owned();
    assert_eq!(listed["keys"][0]["key"], signed.keys()["keys"][0]);
    let again = signed.run(&["key", "create"]).exits(1);
    assert!(again.stderr.contains("nuncio key rotate"), "{}", again.stderr);
    let rotated = signed.run(&["key", "rotate", "--overlap", "1h", "-o", "json"]).exits(0).json();
    assert_eq!((rotated["keys"].as_array().unwrap().len(), &rotated["keys"][1]["kid"]), (2, &json!(first)));
    let shown = signed.run(&["key", "list"]).exits(0).stdout;
    assert!(shown.contains("State: current") && shown.contains("State: previous"), "{shown}");
    signed.run(&["key", "retire", &first]).exits(0);
    assert_eq!(signed.keys()["keys"].as_array().unwrap().len(), 1);
    signed.run(&["key", "retire", "../tokens"]).exits(2);
}

/// `A2ACLI_CARD_GET_004`: verified, unverifiable or absent, and never called verified if it is not.
#[test]
fn card_get_reports_whether_the_card_is_signed_by_a_trusted_key() {
    let signed = SignedServer::start();
    let url = signed.server.url();
    let key_set = format!("{url}/.well-known/jwks.json");
    let file = signed.write("keys.json", &signed.keys());
    let get = |more: &[&str]| signed.run(&[&["card", "get"], more].concat());
    for keys in [key_set.as_str(), &file] {
        let shown = get(&["-a", url, "--verify", "--card-keys", keys]).exits(0).stdout;
        assert!(shown.contains("Signature: verified, by the key "), "{shown}");
    }
    let shown = get(&["-a", url]).exits(0).stdout;
    assert!(
        shown.contains("Signature: unverifiable: the card is signed, and no trusted keys are given"),
        "{shown}"
    );
    let error = get(&["-a", url, "--verify", "-o", "json"]).exits(1).json();
    assert_eq!(error["error"]["code"], "A2ACLI_ERR_CARD_INVALID", "{error}");

    // The output of a program is the card alone, as far as it is signed.
    let mut card = signed.card();
    card["evil"] = json!("added");
    let added = signed.write("added.json", &card);
    let ran = get(&["-a", &added, "--verify", "--card-keys", &file, "-o", "json"]).exits(0);
    assert!(ran.json().get("evil").is_none() && ran.json()["name"] == "echo", "{}", ran.stdout);
    assert!(ran.stderr.contains("signature: verified"), "{}", ran.stderr);

    card["supportedInterfaces"][0]["url"] = json!("https://evil.example/");
    card["url"] = json!("https://evil.example/");
    let changed = signed.write("changed.json", &card);
    let refused = get(&["-a", &changed, "--verify", "--card-keys", &file]).exits(1).stderr;
    assert!(refused.contains("does not fit the card"), "{refused}");
    let shown = get(&["-a", &changed, "--card-keys", &file]).exits(0).stdout;
    assert!(shown.contains("Signature: unverifiable: ") && !shown.contains("verified, by"), "{shown}");

    card.as_object_mut().unwrap().remove("signatures");
    let unsigned = signed.write("unsigned.json", &card);
    let shown = get(&["-a", &unsigned, "--verify", "--card-keys", &file]).exits(0).stdout;
    assert!(shown.contains("Signature: absent"), "{shown}");
    get(&["-a", url, "--card-keys", "nowhere.json"]).exits(2);

    // A key that was retired is not in the key set, and verifies nothing.
    let kid = signed.keys()["keys"][0]["kid"].as_str().unwrap().to_owned();
    let before = signed.write("before.json", &signed.card());
    signed.run(&["key", "rotate", "--overlap", "1h"]).exits(0);
    get(&["-a", &before, "--verify", "--card-keys", &key_set]).exits(0);
    signed.run(&["key", "retire", &kid]).exits(0);
    let refused = get(&["-a", &before, "--verify", "--card-keys", &key_set]).exits(1).stderr;
    assert!(refused.contains("no signature is by a trusted key"), "{refused}");
}

/// A host that serves this card and counts what else it is asked.
struct Impostor {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Impostor {
    fn start(card: impl Fn(&str) -> Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = card(&url).to_string();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let mut request = [0; 8192];
                let length = connection.read(&mut request).unwrap_or_default();
                if !request[..length].starts_with(b"GET ") {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
                let _ = write!(connection, "{head}Content-Length: {}\r\n\r\n{card}", card.len());
            }
        });
        Self { url, calls }
    }
}

fn serve(dir: &Path, agents: &[(&str, &str)], keys: &str) -> ServerProcess {
    let table = |(name, url): &(&str, &str)| {
        format!(
            "[[agent]]\nname = \"{name}\"\nkind = \"a2a\"\nurl = \"{url}\"\ncard-keys = \"{keys}\"\npatience = \"1s\"\n"
        )
    };
    let tables: String = agents.iter().map(table).collect();
    std::fs::write(dir.join("nuncio.toml"), tables).unwrap();
    ServerProcess::start(&dir.join("data"), &[])
}

#[test]
fn a_remote_agent_with_pinned_keys_is_not_called_unless_its_card_is_signed_by_one() {
    let signed = SignedServer::start();
    let card = signed.card();
    let moved = |card: &Value, url: &str| {
        let mut card = card.clone();
        let members = card["supportedInterfaces"].as_array_mut().unwrap();
        members.iter_mut().for_each(|interface| interface["url"] = url.into());
        card["url"] = url.into();
        card
    };
    let changed = Impostor::start(|url| moved(&card, url));
    let unsigned = Impostor::start(|url| {
        let mut card = moved(&card, url);
        card.as_object_mut().unwrap().remove("signatures");
        card
    });
    let dir = tempfile::tempdir().unwrap();
    // Relative to the file that names it.
    std::fs::write(dir.path().join("keys.json"), signed.keys().to_string()).unwrap();
    let echo = format!("{}/agents/echo", signed.server.url());
    let agents = [("echo-far", echo.as_str()), ("changed", &changed.url), ("unsigned", &unsigned.url)];
    let server = serve(dir.path(), &agents, "keys.json");
    let send = |agent: &str| {
        let message = json!({ "messageId": agent, "role": "ROLE_USER", "parts": [{ "text": "hello" }] });
        rpc(&format!("{}/agents/{agent}", server.url()), "SendMessage", &json!({ "message": message }))
    };
    let fine = send("echo-far");
    assert_eq!(fine["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{fine}");
    for (agent, impostor, why) in
        [("changed", &changed, "does not fit the card"), ("unsigned", &unsigned, "the card is not signed")]
    {
        let failed = send(agent).to_string();
        assert!(failed.contains("is not trusted") && failed.contains(why), "{failed}");
        assert_eq!(impostor.calls.load(Ordering::SeqCst), 0, "{agent} was called");
    }
    drop(server);

    // Wrong keys are an error at the start, not at the first call.
    std::fs::write(dir.path().join("keys.json"), "{}").unwrap();
    let refused = run(nuncio_in(dir.path()).args(["serve", "--data", "data2"])).exits(1).stderr;
    assert!(refused.contains("card-keys") && refused.contains("there is no key"), "{refused}");
}
